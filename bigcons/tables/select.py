"""Which columns of a table are read, and which column identifies its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError, UnknownColumnError
from bigcons.tables.ids import Ids, scan_ids
from bigcons.tables.table import Rows, Table, is_index_name

if TYPE_CHECKING:
    import pyarrow as pa

Column = str | int
"""A column: its name or, in a table without names, its position from 0."""

Columns = Column | Sequence[Column]
"""One or more columns."""

INDEX = "index"
"""The id that is the index of a pandas or dask dataframe, unless a column has this name."""


@dataclass(frozen=True)
class Selection:
    """A table with a choice of its columns; made by `select`."""

    source: Any
    id: Column | None
    columns: Columns | None
    drop: Columns | None


def select(
    source: Any, *, id: Column | None = None, columns: Columns | None = None, drop: Columns | None = None
) -> Any:
    """Choose which columns of a table to use, and the one that identifies its rows.

    The result goes wherever a table goes: into `Ensemble.from_labels`, ``fit`` and ``predict``, the functions
    of `bigcons.generate`, and so on. Most of these take the same parameters themselves.

    Parameters
    ----------
    source
        Any table: an array, a data frame, a path, an ensemble; see `Ensemble.from_labels`.
    id : default=None
        The column with the identifier of each row, which is neither a feature nor a partition: whole numbers
        or text, all different, none missing. "index" is the index of a pandas or dask dataframe. The ids stay
        with the rows, through ensemble and consensus into every export.
    columns : default=None
        The columns to use, in this order; by default all but the id.
    drop : default=None
        Columns to leave out.

    Columns are named or, in a table without names, numbered from 0. Nothing is read here; where the table is
    opened, a column that does not exist raises UnknownColumnError, and ids that are missing or repeated
    raise InvalidIdsError, after a pass over that column.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = {"who": ["eve", "bob", "ann"], "a": [0, 0, 1], "b": [1, 1, 0]}
    >>> import pyarrow as pa
    >>> bc.Ensemble.from_labels(bc.select(pa.table(labels), id="who")).ids.tolist()
    ['eve', 'bob', 'ann']
    """
    if id is None and columns is None and drop is None:
        return source
    return Selection(source, id, columns, drop)


def choose(table: Table, choice: Selection) -> Table:
    """Return ``table`` with the columns of a choice, and with its ids; see `select`."""
    index, id_position = None, None
    if choice.id is not None and (index := _index_of(table, choice.id)) is None:
        id_position = _position(table, _column_of_ids(table, choice.id))
    dropped = {_position(table, column) for column in _listed(choice.drop)}
    if choice.columns is None:
        positions = list(range(table.n_columns))
    else:
        positions = [_position(table, column) for column in _listed(choice.columns)]
        if len(set(positions)) < len(positions):
            raise InvalidInputError(f"columns={choice.columns!r} has one twice; name each once.")
    positions = [c for c in positions if c not in dropped and c != id_position]
    if not positions:
        raise InvalidInputError(f"{table.where} has no columns left; choose at least one besides the id.")
    ids = table.ids
    if index is not None:
        ids = scan_ids(index, index.names[0] if index.names else INDEX, is_index=True)
    elif id_position is not None:
        source = table.id_table(id_position) or SelectedTable(table, [id_position])
        ids = scan_ids(source, source.names[0] if source.names else "id")
    return SelectedTable(table, positions, ids)


def _listed(columns: Columns | None) -> list[Column]:
    if columns is None:
        return []
    return [columns] if isinstance(columns, (str, int, np.integer)) else list(columns)


def _index_of(table: Table, name: Column) -> Table | None:
    """Return the index of a data frame if ``name`` means it, else None."""
    if table.index is None or name in (table.names or []):
        return None
    return table.index if name in (INDEX, *(table.index.names or [])) else None


def _column_of_ids(table: Table, name: Column) -> Column:
    """Return the column that holds the unnamed index of a data frame in a file if ``name`` is "index"."""
    names = table.names or []
    stored = [column for column in names if is_index_name(column)]
    return stored[0] if name == INDEX and INDEX not in names and len(stored) == 1 else name


def _position(table: Table, column: Column) -> int:
    """Return the position of a column; raise UnknownColumnError if there is none."""
    names = table.names
    if names is not None and isinstance(column, str):
        if names.count(column) > 1:
            raise InvalidInputError(
                f"{table.where} has more than one column {column!r}; give each its own name."
            )
        if column in names:
            return names.index(column)
        raise UnknownColumnError(table.where, column, names)
    number = int(column) if isinstance(column, (int, np.integer)) or column.isdecimal() else -1
    if not 0 <= number < table.n_columns:
        raise UnknownColumnError(table.where, column, names, n_columns=table.n_columns)
    return number


def refuse_index(table: Table) -> None:
    """Raise InvalidInputError if a column of ``table`` is the unnamed index of a data frame."""
    for name in table.names or []:
        if is_index_name(name):
            raise InvalidInputError(
                f"{table.where} has the column {name!r}, a row index; write it without the index "
                "(index=False), or use it as the ids (id='index')."
            )


class SelectedTable(Table):
    """Some columns of a table, in another order."""

    def __init__(self, table: Table, positions: Sequence[int], ids: Ids | None = None) -> None:
        self._table = table
        self._positions = list(positions)
        self.where: str = table.where
        self.n_columns: int = len(positions)
        self.names: list[str] | None = (
            None if table.names is None else [table.names[c] for c in self._positions]
        )
        self.dtype: np.dtype | None = table.dtype
        self.is_text: bool = table.is_text
        share = 1.0 if table.dtype is not None else len(positions) / max(table.n_columns, 1)
        self.row_bytes: float = table.row_bytes * share  # a matrix is read with all columns
        self.fixed_bytes: int = table.fixed_bytes
        self.least_rows: int = table.least_rows
        self.ids: Ids | None = ids

    @property
    def n_rows(self) -> int | None:  # type: ignore[override]
        """Number of rows; None until a first pass has counted them."""
        return self._table.n_rows

    @property
    def held_bytes(self) -> int:
        """Memory for decoding."""
        return self._table.held_bytes

    @property
    def index(self) -> Table | None:
        """That of the table."""
        return self._table.index

    def id_table(self, position: int) -> Table | None:
        """Return a column as the text that is in the file, if it has no type."""
        return self._table.id_table(self._positions[position])

    def column_types(self) -> list[pa.DataType] | None:
        """Return the types of the columns."""
        types = self._table.column_types()
        return None if types is None else [types[c] for c in self._positions]

    def file_and_row(self, row: int) -> tuple[str, int]:
        """Return the file that a row is in, and its row there."""
        return self._table.file_and_row(row)

    def blocks(
        self, rows: int, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[Rows]:
        """Yield the blocks of the table with the columns in order."""
        positions = self._positions if columns is None else [self._positions[c] for c in columns]
        for block in self._table.blocks(rows, start, stop, positions):
            yield block if isinstance(block, list) else block[:, self._positions]  # a matrix has all
