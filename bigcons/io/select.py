"""Which columns of a table are read, and which column identifies its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError, UnknownColumnError
from bigcons.io.ids import Ids, scan_ids
from bigcons.io.reading import MissingRule, missing_rule, rules_of
from bigcons.io.table import Reading, Rows, Table, is_index_name
from bigcons.validation import check_choice

if TYPE_CHECKING:
    import pyarrow as pa

Column = str | int
"""A column: its name or, in a table without names, its position from 0."""

Columns = Column | Sequence[Column]
"""One or more columns."""

INDEX = "index"
"""The id that is the index of a data frame or the names of rows in a file, unless a column has this name."""


@dataclass(frozen=True)
class Selection:
    """A table with a choice of its columns and how it is read; made by `select`."""

    source: Any
    id: Column | None = None
    columns: Columns | None = None
    drop: Columns | None = None
    missing: Any = None
    header: bool | None = None
    sep: str | None = None
    decimal: str | None = None
    categorical: Columns | None = None


def select(
    source: Any,
    *,
    id: Column | None = None,
    columns: Columns | None = None,
    drop: Columns | None = None,
    missing: Any = None,
    header: bool | None = None,
    sep: str | None = None,
    decimal: str | None = None,
    categorical: Columns | None = None,
) -> Any:
    """Choose which columns of a table to use, the one that identifies its rows, and how it is read.

    The result goes wherever a table goes: into `Ensemble.from_labels`, ``fit`` and ``predict``, the functions
    of `bigcons.generate`, and so on. Most of these take the first parameters themselves.

    Parameters
    ----------
    source
        Any table: an array, a data frame, a path, an ensemble; see `Ensemble.from_labels`.
    id : default=None
        The column with the identifier of each row, which is neither a feature nor a partition: whole numbers
        or text, all different, none missing. "index" is the index of a data frame. By default, names of rows
        are the ids: the index of a data frame unless it is 0, 1, ... in order, the one that pandas keeps in
        Parquet, the coordinate of an xarray, the first column of a CSV file if it has no name, as R and
        pandas write it, and the names of observations of an AnnData. Of a dask dataframe, an index with text
        or a name. The ids stay with the rows, through ensemble and consensus into every export.
    columns : default=None
        The columns to use, in this order; by default all but the id. A pattern such as ``"leiden*"`` is all
        columns whose names match it.
    drop : default=None
        Columns to leave out; "index" leaves out the names of rows.
    missing : default=None
        Which labels or features are missing, besides empty text, NaN, None and masked entries: a value, a
        list, or a mapping from columns to these. Text is missing in addition to the words that pandas reads
        as missing (NA, null, ...); of labels, numbers are so in place of the negative ones, and ``[]`` is
        nothing else. By default, the words and, of labels, negative numbers. Blanks around text do not count.
    header : default=None
        Whether the first line of a file of text has the names of the columns. By default, this must be clear
        from the file: see `Ensemble.from_labels`.
    sep : default=None
        The character between the columns of a file of text, such as ``";"``; the file may then have any
        suffix. By default a comma or, in .tsv, a tab.
    decimal : {".", ","}, default=None
        What stands before the fractions of features in a file of text. By default a point; numbers such as
        1,5 are then refused.
    categorical : default=None
        Features whose numbers are categories, such as zip codes, and are taken as text is.

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
    if header not in (None, True, False):
        raise InvalidInputError(
            f"header={header!r} is no choice; use True, False or None.", parameter="header"
        )
    if sep is not None and (not isinstance(sep, str) or len(sep.encode()) != 1 or sep in '"\r\n\0'):
        raise InvalidInputError(
            f"sep={sep!r} separates no columns; use one character, such as ';'.", parameter="sep"
        )
    if decimal is not None:
        check_choice("decimal", decimal, (".", ","))
    given = (id, columns, drop, missing, header, sep, decimal, categorical)
    return source if all(value is None for value in given) else Selection(source, *given)


def source_of(x: Any) -> Any:
    """Return what was chosen from, as the user gave it."""
    return source_of(x.source) if isinstance(x, Selection) else x


def choices_of(x: Any) -> list[Selection]:
    """Return the choices from a source, the first one first."""
    return [*choices_of(x.source), x] if isinstance(x, Selection) else []


def given_for(x: Any) -> dict[str, Any]:
    """Return what `select` was given for a source, by parameter; later choices go before earlier ones."""
    given = {
        name: value for choice in choices_of(x) for name, value in vars(choice).items() if value is not None
    }
    return {name: value for name, value in given.items() if name != "source"}


def reading_of(choices: Sequence[Selection]) -> Reading:
    """Return how the source of some choices is read."""
    missing = [choice.missing for choice in reversed(choices)]
    header, sep, decimal = (
        next((getattr(c, name) for c in reversed(choices) if getattr(c, name) is not None), None)
        for name in ("header", "sep", "decimal")
    )
    return Reading(
        header,
        sep,
        decimal,
        missing=next(
            (missing_rule(m).more_words for m in missing if m is not None and not isinstance(m, Mapping)), ()
        ),
    )


def choose(table: Table, choice: Selection, check: Callable[[Table], None] = lambda _: None) -> Table:
    """Return ``table`` with the columns of a choice, and with its ids; see `select`.

    What ``check`` raises of the columns comes before the ids are read.
    """
    names, index, id_position = table.names, None, None
    if choice.id is not None and (index := _index_of(table, choice.id)) is None:
        id_position = _position(table, choice.id)
    dropped = {position for column in _listed(choice.drop) for position in _positions(table, column)}
    if choice.columns is None:
        positions = [c for c in range(table.n_columns) if c != table.index_position]
    else:
        positions = [c for column in _listed(choice.columns) for c in _positions(table, column)]
        if len(set(positions)) < len(positions):
            raise InvalidInputError(f"columns={choice.columns!r} has one twice; name each once.")
    positions = [c for c in positions if c not in dropped and c != id_position]
    if not positions:
        raise InvalidInputError(f"{table.where} has no columns left; choose at least one besides the id.")
    check(SelectedTable(table, positions))
    ids = table.ids
    if index is not None:
        ids = scan_ids(index, index.names[0] if index.names else INDEX, is_index=True)
    elif id_position is not None:
        source = table.id_table(id_position) or SelectedTable(table, [id_position])
        ids = scan_ids(source, source.names[0] if source.names else "id")
    chosen = SelectedTable(table, positions, ids)
    named = {position for column in _listed(choice.categorical) for position in _positions(table, column)}
    chosen.categorical |= {place for place, position in enumerate(positions) if position in named}
    if choice.missing is not None:
        if isinstance(choice.missing, Mapping):
            for name in choice.missing:
                _position(table, name)
        names = chosen.names or [str(c) for c in positions]
        given = choice.missing
        if isinstance(given, Mapping) and table.names is None:
            given = {str(c): values for c, values in given.items()}
        chosen.rules = rules_of(given, names)
    if table.index_position in dropped or (INDEX in _listed(choice.drop) and INDEX not in (names or [])):
        chosen.is_named = False
    return chosen


def with_row_names(table: Table) -> Table:
    """Return ``table`` with the names of its rows as ids, unless it has others."""
    if table.index_position is None and (not table.is_named or table.ids is not None):
        return table
    ids, index = table.ids, row_names(table)
    if ids is None and index is not None:
        ids = scan_ids(index, index.names[0] if index.names else INDEX, is_index=True)
    return SelectedTable(table, [c for c in range(table.n_columns) if c != table.index_position], ids)


def row_names(table: Table) -> Table | None:
    """Return the names of the rows, or the index of a data frame, as a table of one column."""
    if table.index_position is None:
        return table.index
    found = table.id_table(table.index_position) or SelectedTable(table, [table.index_position])
    found.index_position = None
    found.names = [INDEX if is_index_name(name) else name for name in found.names or [INDEX]]
    return found


def _listed(columns: Columns | None) -> list[Column]:
    if columns is None:
        return []
    return [columns] if isinstance(columns, (str, int, np.integer)) else list(columns)


def _index_of(table: Table, name: Column) -> Table | None:
    """Return the names of the rows if ``name`` means them, else None."""
    position, names = table.index_position, table.names or []
    is_meant = name == INDEX and INDEX not in names
    if position is not None and (is_meant or (not isinstance(name, str) and name == position)):
        return row_names(table)
    if position is not None and names and name == names[position]:
        return row_names(table)
    if name in names or table.index is None:
        return None
    return table.index if name in (INDEX, *(table.index.names or [])) else None


def _positions(table: Table, column: Column) -> list[int]:
    """Return the positions of a column, or of all that match a pattern; raise UnknownColumnError for none."""
    names = table.names or []
    is_pattern = isinstance(column, str) and column not in names and any(mark in column for mark in "*?[")
    if is_pattern and (found := [c for c, name in enumerate(names) if fnmatchcase(name, str(column))]):
        return [c for c in found if c != table.index_position]
    if column == INDEX and column not in names and table.index_position is not None:
        return [table.index_position]
    if column == INDEX and column not in names and table.is_named:
        return []
    return [_position(table, column)]


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


_KEPT = (
    *("dtype", "is_text", "is_sparse", "fixed_bytes", "least_rows"),
    *("names_are_guessed", "is_given", "may_be_other"),
)
"""What a choice of columns does not change."""


class SelectedTable(Table):
    """Some columns of a table, in another order."""

    def __init__(self, table: Table, positions: Sequence[int], ids: Ids | None = None) -> None:
        self.table: Table = table
        self._positions = list(positions)
        self.where: str = table.where
        self.n_columns: int = len(positions)
        self.names: list[str] | None = (
            None if table.names is None else [table.names[c] for c in self._positions]
        )
        for name in _KEPT:
            setattr(self, name, getattr(table, name))
        share = 1.0 if table.dtype is not None else len(positions) / max(table.n_columns, 1)
        self.row_bytes: float = table.row_bytes * share  # a matrix is read with all columns
        self.ids: Ids | None = ids
        self.rules: Sequence[MissingRule] | None = (
            None if table.rules is None else [table.rules[c] for c in self._positions]
        )
        self.categorical: frozenset[int] = frozenset(
            place for place, c in enumerate(self._positions) if c in table.categorical
        )
        self.is_named: bool = table.is_named or table.index_position is not None
        kept = table.index_position in self._positions
        self.index_position: int | None = (
            self._positions.index(table.index_position) if kept else None  # type: ignore[arg-type]
        )

    @property
    def n_rows(self) -> int | None:  # type: ignore[override]
        """Number of rows; None until a first pass has counted them."""
        return self.table.n_rows

    @property
    def held_bytes(self) -> int:
        """Memory for decoding."""
        return self.table.held_bytes

    @property
    def index(self) -> Table | None:
        """The names of the rows of the table."""
        return row_names(self.table)

    @property
    def workers(self) -> Callable[[Any], Any] | None:
        """Those of the table."""
        return self.table.workers

    def on_workers(self, workers: Any, task: Callable[[Table], Any]) -> Iterator[Any]:
        """Yield what a task makes of the columns of each part."""
        return self.table.on_workers(workers, partial(_of_columns, self._positions, task))

    def id_table(self, position: int) -> Table | None:
        """Return a column as the text that is in the file, if it has no type."""
        return self.table.id_table(self._positions[position])

    def column_types(self) -> list[pa.DataType] | None:
        """Return the types of the columns."""
        types = self.table.column_types()
        return None if types is None else [types[c] for c in self._positions]

    def file_and_row(self, row: int) -> tuple[str, int]:
        """Return the file that a row is in, and its row there."""
        return self.table.file_and_row(row)

    def blocks(
        self, rows: int, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[Rows]:
        """Yield the blocks of the table with the columns in order."""
        positions = self._positions if columns is None else [self._positions[c] for c in columns]
        for block in self.table.blocks(rows, start, stop, positions):
            yield block if isinstance(block, list) else block[:, self._positions]  # a matrix has all


def _of_columns(positions: Sequence[int], task: Callable[[Table], Any], table: Table) -> Any:
    return task(SelectedTable(table, positions))


# Columns of vectors


def is_vector(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is lists of floats, as those of embeddings are."""
    import pyarrow as pa

    types = pa.types
    is_list = any(test(kind) for test in (types.is_fixed_size_list, types.is_list, types.is_large_list))
    return is_list and bool(types.is_floating(kind.value_type))


def with_flat_vectors(table: Table) -> Table:
    """Return a table with a column for each number of its columns of vectors, if it has any."""
    types = table.column_types() or []
    vectors = {c: kind for c, kind in enumerate(types) if is_vector(kind)}
    return FlatTable(table, vectors) if vectors else table


class FlatTable(SelectedTable):
    """A table whose columns of vectors are one column for each of their numbers, ``name[0]``, ...."""

    def __init__(self, table: Table, vectors: Mapping[int, pa.DataType]) -> None:
        self._kinds = vectors
        widths = [self._width(table, c) if c in vectors else 1 for c in range(table.n_columns)]
        super().__init__(table, [c for c, width in enumerate(widths) for _ in range(width)], table.ids)
        self._places = [place for width in widths for place in range(width)]
        if table.names is not None:
            self.names: list[str] | None = [
                f"{table.names[c]}[{place}]" if c in vectors else table.names[c]
                for c, place in zip(self._positions, self._places, strict=True)
            ]

    def _width(self, table: Table, c: int) -> int:
        for (column,) in table.blocks(1024, columns=[c]):
            if width := max(map(len, self._lists(column, c).drop_null()), default=0):
                return width
        raise InvalidInputError(
            f"{table.where} has no vector in column {c} (from 0); drop it (drop=, --drop)."
        )

    def _lists(self, column: Any, c: int) -> Any:
        import pyarrow as pa

        column = pa.array(column, self._kinds[c]) if isinstance(column, np.ndarray) else column
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def column_types(self) -> list[pa.DataType]:
        """Return the types of the columns."""
        import pyarrow as pa

        types = super().column_types() or []
        return [
            pa.float64() if c in self._kinds else kind for c, kind in zip(self._positions, types, strict=True)
        ]

    def blocks(
        self, rows: int, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[Rows]:
        """Yield the blocks with vectors as columns; raise InvalidInputError if their lengths differ."""
        chosen = range(self.n_columns) if columns is None else columns
        sources = sorted({self._positions[c] for c in chosen})
        for block in self.table.blocks(rows, start, stop, sources):
            found = dict(zip(sources, block, strict=True))
            found |= {c: self._numbers(found[c], c) for c in sources if c in self._kinds}
            yield [
                found[c][:, place] if c in self._kinds else found[c]
                for c, place in ((self._positions[at], self._places[at]) for at in chosen)
            ]

    def _numbers(self, column: Any, c: int) -> np.ndarray:
        """Return vectors as a matrix, NaN where one is missing."""
        import pyarrow.compute as pc

        lists, width = self._lists(column, c), self._positions.count(c)
        if pc.any(pc.not_equal(pc.list_value_length(lists), width)).as_py():
            name = c if self.table.names is None else self.table.names[c]
            raise InvalidInputError(
                f"{self.where} has vectors of other lengths than {width} in column {name!r}; drop it (drop=, "
                "--drop), or write it as columns."
            )
        numbers = np.full((len(lists), width), np.nan)
        is_known = lists.is_valid().to_numpy(zero_copy_only=False)
        numbers[is_known] = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
        return numbers
