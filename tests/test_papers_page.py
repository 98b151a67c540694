"""docs/papers.md: every row is complete, and what it names exists."""

import re
from pathlib import Path

import pytest

import bigcons

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/papers.md").read_text().splitlines()
    if line.startswith("|") and not re.match(r"\|(-|\s*(what|experiment) )", line)
]
HEAD = re.compile(r"^[\w.]+")


def test_page__has_no_empty_cell():
    assert len(ROWS) > 80
    assert all(len(row) == 4 and all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_row__names_what_exists(row):
    _, call, test, figure = row
    for name in re.findall(r"`([^`]+)`", test):
        if "::" in name:
            file, function = name.split("::")
            assert f"def test_{function}(" in (ROOT / "tests" / file).read_text()
    for name in re.findall(r"`([\w/]+\.json)`", test + figure):
        assert (ROOT / "benchmarks/results" / name).exists()
    for name in re.findall(r"`([^`]+)`", call):
        if name.startswith("benchmarks/"):
            assert (ROOT / name.split()[0]).exists()
        elif not name.startswith(("bigcons ", '"')):
            value = bigcons
            for part in HEAD.match(name).group().split("."):
                value = getattr(value, part)
