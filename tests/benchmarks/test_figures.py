"""The figures of the README and of the pages are those of the results."""

import pytest
from figures import FIGURES, ROOT, corrected


@pytest.mark.parametrize(
    ("page", "sentence", "figures"), FIGURES, ids=[f"{page}-{sentence[:30]}" for page, sentence, _ in FIGURES]
)
def test_pages__state_the_figures_that_were_measured(page, sentence, figures):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert corrected(text, sentence, figures()) == text, (
        f"{page} is behind: python benchmarks/figures.py --write"
    )


def test_corrected__replaces_figures_and_keeps_words_and_lines():
    text = "It takes 1.5 s\nand 3,000 MB. It takes long."
    assert corrected(text, "takes {a} s and {b} MB", {"a": "12", "b": "none"}) == (
        "It takes 12 s\nand none MB. It takes long."
    )
    with pytest.raises(LookupError, match="found 0 times"):
        corrected(text, "took {a} s", {"a": "1"})
