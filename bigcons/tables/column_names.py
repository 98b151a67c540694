"""Names of the columns of a table, and which is an index: one rule for labels and features."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bigcons.errors import InvalidInputError, SuspiciousLabelsWarning, warn_user

MISSING_WORDS = ("", "NA", "N/A", "<NA>", "NaN", "nan", "None", "none", "NULL", "null", "#N/A")
"""What stands for a missing cell."""
_LONGEST_SHOWN = 40
_INDEX_NAME = re.compile(r"__index_level_\d+__|__null_dask_index__")
"""What pandas and Dask call a column of Parquet that holds an index without a name."""


def _is_header(cells: Sequence[str], where: str) -> bool:
    """Return whether the first line of the file ``where`` has names: no number, and not missing cells alone.

    A line with a number is the first object; warns if its numbers count up like the names that are written
    for columns without any.
    """
    if any(_is_number(cell) for cell in cells):
        if _counts_up(cells):
            line = ",".join(cells[:4] if len(cells) <= 4 else [*cells[:4], "..."])
            warn_user(
                f"{where} begins with the line {line}, taken for an object; if it names the columns, "
                "write names that are no numbers, or leave it out.",
                SuspiciousLabelsWarning,
            )
        return False
    return not all(cell in MISSING_WORDS for cell in cells)


def check_commas(cells: Sequence[str], where: str) -> None:
    """Refuse a file whose first line is one cell that other separators would part.

    Read as it stands, every line would be one label of its own, or one category.
    """
    for mark, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(cells) == 1 and mark in cells[0]:
            raise InvalidInputError(
                f"{where} begins with {cells[0][:_LONGEST_SHOWN]!r}, parted by {name}; write the file with "
                "commas between its columns."
            )


def column_names(cells: Sequence[str], where: str) -> list[str] | None:
    """Return the names of the columns if the first line has them; refuse a column without one.

    An empty cell before numbers that count up is no object but what stands over an index of rows: cells
    may be missing, so that this line, too, could be read as one.
    """
    over_an_index = list(cells[:1]) == [""] and _counts_up(cells)
    if not over_an_index and not _is_header(cells, where):
        return None
    if "" in cells:
        raise InvalidInputError(
            f"{where} has no name over column {list(cells).index('')} (an index of rows?); "
            "write it without the index, or name the column."
        )
    return list(cells)


def refuse_index(names: Sequence[str], where: str) -> None:
    """Refuse an index of rows that was stored as a column: it says nothing of the objects."""
    for name in names:
        if _INDEX_NAME.fullmatch(name):
            raise InvalidInputError(
                f"{where} has the column {name!r}, an index of rows; write it without (index=False)."
            )


def _counts_up(cells: Sequence[str]) -> bool:
    """Return whether the numbers among the cells are 0, 1, 2, ... or 1, 2, 3, ..., and three at least."""
    numbers = [cell for cell in cells if _is_number(cell)]
    return len(numbers) >= 3 and any(
        numbers == [str(first + u) for u in range(len(numbers))] for first in (0, 1)
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
