"""Tables of any source, read as blocks of rows: the input of labels, features and pairs.

All three follow the same rules. A block is a numpy matrix or a list of columns (numpy or Arrow).
Only Arrow streams are kept in memory as a whole.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.io.reading import DEFAULT_RULE, MissingRule

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.io.ids import Ids

Column = Any
"""``(n_rows,)``: a numpy or pyarrow array of any type."""

Rows = Any
"""``(n_rows, n_columns)``: a numpy matrix, or the list of its columns."""

_INDEX_NAME = re.compile(r"__index_level_\d+__|__null_dask_index__")
"""Names that pandas and dask give to the Parquet column of an unnamed index."""


class Reading(NamedTuple):
    """How a call says that a source is read."""

    header: bool | None = None
    """Whether the first line of a file of text is a header; None if that must be clear from the file."""
    sep: str | None = None
    """What separates the columns of a file of text; None if its name says so."""
    decimal: str | None = None
    """What stands before the fractions of numbers in a file of text; None for a point."""
    are_objects: bool = False
    """Whether the caller knows that rows of a list are objects."""
    missing: tuple[str, ...] = ()
    """What is missing in any column, besides what is so by default."""


DEFAULT_READING = Reading()


class Table(ABC):
    """A table ``(n_rows, n_columns)`` that can be read more than once.

    Attributes
    ----------
    where
        Name in messages: its path, "labels", "features" or "pairs".
    names
        Names of the columns; None if it has no names.
    n_rows
        Number of rows; None until a first pass has counted them.
    dtype
        Type of an array; None for tables with a type per column.
    is_text
        Whether numbers are given as text.
    row_bytes, fixed_bytes
        Approximate memory for reading, per row of a block and independent of the number of rows.
    least_rows
        Rows that are stored together; the minimum block size.
    ids
        What identifies the rows, if that is known.
    rules
        Which labels are missing, by column; None for `DEFAULT_RULE`.
    categorical
        Positions of the features whose numbers are categories.
    index_position
        The column with the names of the rows, as pandas, R and AnnData keep them; None if it has none.
    is_named
        Whether the names of the rows are the ids unless others are chosen.
    names_are_guessed
        Whether the names come from a line that might be an object, too.
    is_given
        Whether it has the labels that a user holds, not those that are made here.
    may_be_other
        Whether rows may be no objects, as far as the call tells.
    is_sparse
        Whether its blocks are compressed sparse rows, of features only.
    measured
        Columns of the obs of an AnnData that are numbers, and so may be no labels.
    """

    where: str
    n_columns: int
    names: list[str] | None = None
    n_rows: int | None = None
    dtype: np.dtype | None = None
    is_text: bool = False
    row_bytes: float
    fixed_bytes: int = 0
    least_rows: int = 1
    ids: Ids | None = None
    rules: Sequence[MissingRule] | None = None
    categorical: frozenset[int] = frozenset()
    index_position: int | None = None
    is_named: bool = False
    names_are_guessed: bool = False
    is_given: bool = False
    may_be_other: bool = False
    is_sparse: bool = False
    measured: frozenset[str] = frozenset()
    _index: Table | None = None

    def rule_of(self, position: int) -> MissingRule:
        """Return which labels of a column are missing."""
        return DEFAULT_RULE if self.rules is None else self.rules[position]

    @property
    def held_bytes(self) -> int:
        """Approximate memory for decoding, in addition to the block that is yielded."""
        return self.fixed_bytes

    def column_types(self) -> list[pa.DataType] | None:
        """Return the Arrow types of the columns; None for arrays and if types must be inferred."""
        return None

    @abstractmethod
    def blocks(
        self, rows: int, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[Rows]:
        """Yield rows ``start`` to ``stop`` (None: the end) in order, about ``rows`` at a time.

        ``columns`` selects columns by position; matrices ignore it.
        """

    @property
    def workers(self) -> Callable[[Any], Any] | None:
        """Returns the workers that can read parts of the table, if all find a folder; None if none can."""
        return None

    def on_workers(self, workers: Any, task: Callable[[Table], Any]) -> Iterator[Any]:
        """Yield what a task makes of each part, in order, where it is computed.

        Where there are ``workers``; from then on any process that gets the table reads it.
        """
        raise NotImplementedError

    @property
    def index(self) -> Table | None:
        """The index of a data frame as a table of one column; None if there is none."""
        return self._index

    def id_table(self, position: int) -> Table | None:  # noqa: ARG002 - for tables without types
        """Return a column as the text that is in the file; None if it has a type."""
        return None

    def file_and_row(self, row: int) -> tuple[str, int]:
        """Return the name of the file that row ``row`` is in, for messages, and its row there, from 0."""
        return self.where, row

    def ranges(self, rows: int, start: int, stop: int | None) -> list[tuple[int, int]]:
        """Return ``(start, stop)`` of each block of ``rows`` rows, rounded to whole stored ones."""
        rows = max(rows - rows % self.least_rows, self.least_rows)
        end = (self.n_rows or 0) if stop is None else stop
        firsts = range(start - start % self.least_rows, end, rows)
        return [(max(first, start), min(first + rows, end)) for first in firsts]


class SlicedTable(Table):
    """A table of which any rows can be read at once."""

    def __init__(
        self,
        where: str,
        shape: tuple[int, ...],
        names: list[str] | None = None,
        *,
        column_bytes: float = 16.0,
    ) -> None:
        """Take the name in messages, the shape, the names of columns, and the memory to read one of a row."""
        self.where = where
        self.names = names
        self.n_rows: int | None = int(shape[0])
        self.n_columns: int = int(shape[1])
        self.row_bytes: float = column_bytes * self.n_columns

    @abstractmethod
    def slice(self, start: int, stop: int, columns: Sequence[int]) -> Rows:
        """Return rows ``start`` to ``stop`` of the columns at these positions; a matrix has all columns."""

    def blocks(
        self, rows: int, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[Rows]:
        """Yield slices of ``rows`` rows."""
        positions = range(self.n_columns) if columns is None else columns
        for first, end in self.ranges(rows, start, stop):
            yield self.slice(first, end, positions)


class PartedTable(Table):
    """A table that is read part by part: partitions of a dask collection, or a stream."""

    lengths: list[int | None]
    """Rows of each part; None until it has been read completely."""

    @property
    def n_rows(self) -> int | None:  # type: ignore[override]
        """Number of rows; None while the length of any part is unknown."""
        known = [length for length in self.lengths if length is not None]
        return sum(known) if len(known) == len(self.lengths) else None

    @abstractmethod
    def load(self, part: int, rows: int, columns: Sequence[int] | None) -> Iterator[Rows]:
        """Yield the rows of one part, in pieces of any size."""

    def blocks(
        self, rows: int, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[Rows]:
        """Yield the rows part by part; parts before ``start`` of known length are not loaded."""
        end = sys.maxsize if stop is None else stop
        row = 0
        for part, length in enumerate(self.lengths):
            if row >= end:
                return
            if length is not None and row + length <= start:
                row += length
                continue
            part_start = row
            for piece in self.load(part, rows, columns):
                first, row = row, row + count_rows(piece)
                low, high = max(start, first) - first, min(end, row) - first
                for cut in range(low, high, rows):
                    yield slice_rows(piece, cut, min(cut + rows, high))
                del piece  # before the next one is made
                if row >= end:
                    return
            self.lengths[part] = row - part_start


def count_rows(rows: Rows) -> int:
    """Return the number of rows of a block."""
    if isinstance(rows, list):
        return len(rows[0]) if rows else 0
    return len(rows)


def slice_rows(rows: Rows, start: int, stop: int) -> Rows:
    """Return some rows of a block."""
    if isinstance(rows, list):
        return [column[start:stop] for column in rows]
    return rows[start:stop]


def as_names(names: Sequence[object]) -> list[str]:
    """Return column names as text."""
    return [str(name) for name in names]


def is_index_name(name: str) -> bool:
    """Return whether a column of a file is the unnamed index of a pandas or dask dataframe."""
    return _INDEX_NAME.fullmatch(name) is not None


def check_matrix(shape: tuple[float, ...], where: str) -> None:
    """Raise InvalidInputError unless the array is a matrix."""
    if len(shape) != 2:
        raise InvalidInputError(
            f"{where} has {len(shape)} dimension(s), not 2; pass one row per object. Reshape your data."
        )


def check_size(shape: tuple[int, ...], where: str) -> None:
    """Raise InvalidInputError for a matrix stated to be larger than any that is meant, or fits in memory."""
    most_rows, most_columns = 1 << 40, 1 << 24
    if shape[0] > most_rows or shape[1] > most_columns:
        raise InvalidInputError(
            f"{where} has shape {shape}; pass at most {most_rows:,} rows and {most_columns:,} columns."
        )
