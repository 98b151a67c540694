"""docs/papers.md, promises.md: rows are complete, what they name exists, and calls give what is printed."""

import re
from pathlib import Path

import numpy as np
import pytest

from bigcons import METHODS, ConsensusClusterer, as_in_paper
from bigcons.errors import InvalidInputError, MissingDependencyError, StoreNotFoundError
from bigcons.methods.consensus import AS_IN_PAPER

ROOT = Path(__file__).parents[1]
PAGE, PROMISES = ((ROOT / "docs" / name).read_text("utf-8") for name in ("papers.md", "promises.md"))


def rows_of(page):
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("|") and not re.match(r"\|(-|\s*(what|experiment) )", line)
    ]


ROWS = rows_of(PAGE)
VALUE = re.compile(r"-?\d*\.?\d+|True|False")


def in_code(cell):
    return re.findall(r"`([^`]+)`", cell)


CALLS = [row for row in ROWS if not row[1].startswith("`benchmarks/")]


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the lines of the page define."""
    defined = {"__name__": "papers"}  # for what is compiled
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("papers"))
        exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1), defined)
        yield defined


@pytest.mark.parametrize(("page", "at_least", "widths"), [(PAGE, 81, {4}), (PROMISES, 46, {2, 3})])
def test_page__has_no_empty_cell_and_names_tests_and_benchmarks_that_exist(page, at_least, widths):
    rows = rows_of(page)
    assert len(rows) >= at_least
    assert {len(row) for row in rows} <= widths
    assert all(map(all, rows))
    for file, function in re.findall(r"`([\w/.]+)::(\w+)`", page):
        if file != "file":  # the pages say how they name tests
            assert f"def test_{function}(" in (ROOT / "tests" / file).read_text("utf-8"), function
    for name in re.findall(r"`(benchmarks/[\w/.]+)", page):
        assert (ROOT / name).exists()


def test_promises__name_a_test_in_every_row_and_are_linked():
    assert all("::" in row[-1] for row in rows_of(PROMISES))
    assert "(docs/promises.md)" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_row__names_results_that_exist(row):
    _, _, test, figure = row
    for name in re.findall(r"`([\w/]+\.json)`", test + figure):
        assert (ROOT / "benchmarks/results" / name).exists()


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[0])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_call__gives_the_figure_printed(row, names):
    figures = [name for name in in_code(row[3]) if VALUE.fullmatch(name)]
    values = []
    for call in in_code(row[1]):
        assert "(" in call  # no bare name
        try:
            found = eval(call, names)
            if isinstance(found, ConsensusClusterer) and not hasattr(found, "labels_"):
                found.fit(names["ensemble"])
        except (MissingDependencyError, StoreNotFoundError) as missing:
            pytest.skip(str(missing))
        if isinstance(found, (int, float, np.number)):
            values.append(found)
    for value, figure in zip(values, figures, strict=True):
        if isinstance(value, bool):
            assert str(value) == figure
        else:
            assert round(float(value), len(figure.partition(".")[2])) == float(figure)


@pytest.mark.parametrize("name", AS_IN_PAPER)
def test_as_in_paper__lets_parameters_of_the_caller_come_first(name):
    own = AS_IN_PAPER[name]
    made = as_in_paper(name)
    if name in METHODS:
        assert type(made) is METHODS[name]
        assert {key: made.get_params()[key] for key in own} == own
        defaults = METHODS[name](3).get_params()
        assert as_in_paper(name, 3, **{key: defaults[key] for key in own}).get_params() == defaults


def test_as_in_paper__of_a_method_of_no_paper_is_refused():
    with pytest.raises(InvalidInputError, match="name='tree' is unknown; choose one of 'pcc'"):
        as_in_paper("tree")
