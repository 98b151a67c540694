"""docs/promises.md: every promise names a test that exists, and the README and the results are linked."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and not re.match(r"\|(-| what )", line)
]


def test_page__has_no_empty_cell_and_is_linked():
    assert len(ROWS) > 45
    assert all(len(row) in (2, 3) and all(row) for row in ROWS)
    assert "(docs/promises.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    for name in re.findall(r"`(benchmarks/[\w/.]+)`", PAGE):
        assert (ROOT / name).exists()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_row__names_a_test_that_exists(row):
    (named,) = re.findall(r"`([\w/.]+::\w+)`", row[-1])
    file, function = named.split("::")
    assert f"def test_{function}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")
