"""A source: names of columns, batches of rows, and ids. Those in memory and of dask; `files` has the others.

A batch is a matrix of numpy or SciPy, or the list of its columns, of numpy or Arrow. pandas and dask are
known by what they offer, so that neither is imported here.
"""

from __future__ import annotations

import copy
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError, first_line
from bigcons.io.columns import DEFAULT_RULE, INDEX, NONE_MISSING, MissingRule
from bigcons.validation import is_names

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.io.ids import Ids

Rows = Any
"""``(n_rows, n_columns)``: a matrix of numpy or SciPy, or the list of its columns."""

Load = Callable[[int, int, Sequence[int], int, int], Iterator[tuple[int, Rows]]]
"""Yields the rows of a part in order, with the number of the first one of each batch.

It is given the part, the rows of a batch, the places of the columns, and which rows are wanted: others may
come as well.
"""


@dataclass
class Source:
    """Rows ``(n_rows, n_columns)`` that can be read more than once.

    Attributes
    ----------
    where
        Name in messages: its path, "labels", "features" or "pairs".
    names, n_columns
        Names of the columns, None if it has no names, and their number.
    lengths
        Rows of each part (a file, a partition of dask), None until it has been read to its end.
    load
        Reads a part.
    column_bytes, fixed_bytes
        Approximate memory for reading a column of a row, and independent of the number of rows.
    least_rows
        Rows that are stored together; the least size of a batch.
    dtype
        Type of an array, whose batches are matrices; None of a source with a type per column.
    types
        Returns the Arrow types of all columns; None for arrays.
    is_sparse
        Whether its batches are compressed sparse rows, of features only.
    is_text, of_text
        Whether numbers are given as text, and whether it is a file of text.
    text
        The same columns as the text that is in a file; None if they have types, or are text.
    index, is_named
        The names of its rows, and whether they are the ids unless others are chosen.
    ids
        What identifies the rows, if that is known.
    rule
        Which labels are missing.
    categorical
        Positions of the features whose numbers are categories.
    is_given, may_be_other
        Whether it is labels that a user holds, not an ensemble, and whether its rows may be no objects.
    """

    where: str
    names: Sequence[str] | None
    n_columns: int
    lengths: list[int | None]
    load: Load
    column_bytes: float = 16.0
    fixed_bytes: int = 0
    least_rows: int = 1
    dtype: np.dtype | None = None
    types: Callable[[], Sequence[pa.DataType]] | None = None
    is_sparse: bool = False
    is_text: bool = False
    of_text: bool = False
    text: Source | None = None
    index: Source | None = None
    is_named: bool = False
    ids: Ids | None = None
    rule: MissingRule = DEFAULT_RULE
    categorical: frozenset[int] = frozenset()
    is_given: bool = False
    may_be_other: bool = False
    positions: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = None if self.names is None else [str(name) for name in self.names]
        self.positions = self.positions or list(range(self.n_columns))
        self.n_read: int = self.n_columns
        """Columns that are read, of a matrix all of them."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None while the length of any part is unknown."""
        total = 0
        for length in self.lengths:
            if length is None:
                return None
            total += length
        return total

    @property
    def row_bytes(self) -> float:
        """Approximate memory for reading a row."""
        return self.column_bytes * self.n_read

    @property
    def held_bytes(self) -> int:
        """Approximate memory for decoding, in addition to the batch that is yielded."""
        return self.fixed_bytes + (int(2 * self.least_rows * self.row_bytes) if self.least_rows > 1 else 0)

    def batches(
        self, rows: int, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[Rows]:
        """Yield rows ``start`` to ``stop`` (None: the end) in order, about ``rows`` at a time.

        ``columns`` selects columns by position. Parts before ``start`` of known length are not loaded.
        """
        positions = self.positions if columns is None else [self.positions[c] for c in columns]
        end = sys.maxsize if stop is None else stop
        begin = 0
        """The first row of the part."""
        for part, length in enumerate(self.lengths):
            if begin >= end:
                return
            wanted = max(start - begin, 0), min(end - begin, sys.maxsize if length is None else length)
            n_rows, at_once = 0, max(rows, self.least_rows)
            if length is None or wanted[0] < length:
                for first, batch in self.load(part, rows, positions, *wanted):
                    n_rows = first + count_rows(batch)
                    if length is not None and n_rows > length:
                        break
                    low, high = max(wanted[0] - first, 0), min(wanted[1], n_rows) - first
                    for cut in range(low, high, at_once):
                        last = min(cut + at_once, high)
                        if isinstance(batch, list):
                            yield [column[cut:last] for column in batch]
                        else:
                            yield batch if last - cut == batch.shape[0] else batch[cut:last]
                    del batch  # before the next one is made
                    if n_rows >= wanted[1]:
                        break
                else:
                    length = n_rows if length is None else length
                    self.lengths[part] = length
                if length is not None and positions and not min(wanted[1], length) <= n_rows <= length:
                    raise InvalidInputError(
                        f"{self.where} has {n_rows:,} rows where {length:,} are declared or were before; "
                        "pass rows that do not change."
                    )
            if length is None:
                return  # the end is in this part
            begin += length

    def selected(self, columns: Sequence[int]) -> Source:
        """Return some columns of the source, in this order."""
        made = copy.copy(self)
        made.positions = [self.positions[c] for c in columns]
        made.n_columns = len(columns)
        made.names = None if self.names is None else [self.names[c] for c in columns]
        made.categorical = frozenset(at for at, c in enumerate(columns) if c in self.categorical)
        made.text = None if self.text is None else self.text.selected(columns)
        made.n_read = self.n_read if self.dtype is not None else len(columns)
        return made

    def column_types(self) -> list[pa.DataType] | None:
        """Return the Arrow types of the columns; None for arrays."""
        if self.types is None:
            return None
        types = self.types()
        return [types[position] for position in self.positions]


def count_rows(rows: Rows) -> int:
    """Return the number of rows of a batch."""
    if isinstance(rows, list):
        return len(rows[0]) if rows else 0
    return int(rows.shape[0])


def columns_of(rows: Rows) -> list[Any]:
    """Return a batch as columns, contiguous if it is a matrix."""
    if isinstance(rows, np.ma.MaskedArray):
        return [rows[:, c] for c in range(rows.shape[1])]
    return rows if isinstance(rows, list) else list(np.ascontiguousarray(rows.T))


def sliced(read: Callable[[int, int, Sequence[int]], Rows], least_rows: int = 1) -> Load:
    """Return how to load what any rows can be read of, by slices of whole ``least_rows``."""

    def load(_: int, rows: int, columns: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, Rows]]:
        at_once = max(rows - rows % least_rows, least_rows)
        for first in range(start - start % least_rows, stop, at_once):
            yield first, read(first, min(first + at_once, stop), columns)

    return load


def with_index(source: Source, at: int | None) -> Source:
    """Return a source without the column ``at``, which has the names of its rows."""
    if at is None:
        return source
    made = source.selected([c for c in range(source.n_columns) if c != at])
    made.index, made.is_named = (source.text or source).selected([at]), True
    if not made.index.names or not made.index.names[0] or _INDEX_NAME.fullmatch(made.index.names[0]):
        made.index.names = [INDEX]
    return made


@contextmanager
def _converted(what: str, remedy: str = "convert each column to numbers or text") -> Iterator[None]:
    """Raise InvalidInputError for what Arrow or NumPy cannot take; it says ``what`` that is."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(f"{what} ({first_line(error)}); {remedy}.") from None


# Arrays


def check_matrix(shape: Sequence[float], where: str) -> None:
    """Raise InvalidInputError unless an array is a matrix that may be meant."""
    if len(shape) != 2 or shape[0] > 1 << 40 or shape[1] > 1 << 24:
        raise InvalidInputError(
            f"{where} has {len(shape)} dimension(s), {tuple(shape)}; pass one row per object. "
            "Reshape your data."  # which scikit-learn looks for
        )


def array_source(array: Any, where: str) -> Source:
    """Return any matrix that can be sliced by rows: numpy, a memory map, Zarr, HDF5, or sparse of SciPy."""
    check_matrix(array.shape, where)
    dtype, chunks, sparse = np.dtype(array.dtype), getattr(array, "chunks", None), is_sparse(array)
    column_bytes = (3.0 if chunks else 2.0) * dtype.itemsize  # as decoded, as read, as columns
    if sparse:
        array = array.tocsr() if hasattr(array, "tocsr") else array
        n_values = max(array.shape[0] * array.shape[1], 1)
        column_bytes = 16.0 * getattr(array, "nnz", n_values) / n_values

    def read(start: int, stop: int, columns: Sequence[int]) -> Rows:
        rows = array[start:stop]
        if sparse:
            from scipy.sparse import csr_array

            rows = csr_array(rows)
            rows.sum_duplicates()
        else:
            rows = np.asanyarray(rows)  # keeps masks
        return rows if list(columns) == list(range(rows.shape[1])) else rows[:, list(columns)]

    least_rows = chunks[0] if chunks else 1
    load = sliced(read, least_rows)
    source = Source(where, None, array.shape[1], [int(array.shape[0])], load, column_bytes)
    source.dtype, source.least_rows, source.is_sparse = dtype, least_rows, sparse
    return source


def is_sparse(x: Any) -> bool:
    """Return whether ``x`` is a sparse matrix of scipy, or rows of one that an AnnData keeps on a disk."""
    return type(x).__module__.startswith("scipy.") or (hasattr(x, "format") and hasattr(x, "dtype"))


def rows_source(rows: Sequence[Any], role: str) -> Source:
    """Return the source of a list of rows of equal length."""
    try:
        matrix = np.asarray(rows, None if role == "features" else object)  # numbers and text stay so
    except ValueError:  # rows of several lengths
        matrix = np.empty(0)
    if matrix.ndim != 2:
        raise InvalidInputError(f"{role} is a list, but no matrix; pass a list of values for each object.")
    return array_source(matrix, role)


# Columns in memory, and ensembles


def columns_source(
    columns: Sequence[Any], n_rows: int, names: Sequence[str] | None = None, ids: Ids | None = None
) -> Source:
    """Return labels as one ``(n_rows,)`` array per column, which may be a memory map of a file."""
    load = sliced(lambda start, stop, places: [np.asanyarray(columns[c][start:stop]) for c in places])
    return Source("labels", names, len(columns), [n_rows], load, 8.0, ids=ids)


def ensemble_source(ensemble: Any, where: str) -> Source:
    """Return an ensemble as a source of its original label values.

    Of soft clusterings, labels are the largest memberships. What is missing is masked.
    """

    def read(start: int, stop: int, columns: Sequence[int]) -> Rows:
        rows = ensemble.read(start, stop)
        if ensemble.is_soft:
            parts = [rows[:, ensemble.offsets[u] : ensemble.offsets[u + 1]] for u in columns]
            return [np.ma.masked_array(part.argmax(axis=1), ~part.any(axis=1)) for part in parts]
        codes, values = np.ascontiguousarray(rows.T), ensemble.categories
        return [values_of(codes[c], values[c]) for c in columns]

    column_bytes = 8.0 + (2.0 * ensemble.row_bytes / ensemble.n_partitions if ensemble.is_soft else 0.0)
    load = sliced(read, 1 if ensemble.is_soft else ensemble.chunk_rows)
    lengths = [ensemble.n_objects]
    source = Source(where, ensemble.names, ensemble.n_partitions, lengths, load, column_bytes)
    source.ids, source.rule = ensemble.id_column, NONE_MISSING
    return source


def values_of(codes: np.ndarray, values: np.ndarray | None) -> np.ndarray:
    """Return the original values of codes, masked where they are missing."""
    return np.ma.masked_array(codes if values is None else values[np.maximum(codes, 0)], codes < 0)


# Tables of pandas and Arrow


def frame_source(frame: Any, where: str) -> Source:
    """Return a pandas DataFrame, whose index is read as the ids only."""
    import pyarrow as pa

    def column(series: Any) -> Any:
        """Return a column as numpy or, of a type that numpy has not, as Arrow."""
        if isinstance(series.dtype, np.dtype):
            return series.to_numpy()
        with _converted(f"column {str(series.name)!r} of {where} has type {series.dtype}"):
            return pa.array(series, from_pandas=True)

    def types() -> Sequence[pa.DataType]:
        """Return the Arrow types; those of objects are inferred from the values."""
        kinds = []
        for name, series in frame.items():
            with _converted(f"{where} has mixed types in {str(name)!r}"):
                kinds.append(pa.array(series, from_pandas=True).type)
        return kinds

    def read(start: int, stop: int, columns: Sequence[int]) -> Rows:
        part = frame.iloc[start:stop]
        return [column(part.iloc[:, c]) for c in columns]

    source = Source(where, frame.columns, frame.shape[1], [len(frame)], sliced(read), types=types)
    index, name = frame.index, INDEX if frame.index.name is None else frame.index.name
    load = sliced(lambda start, stop, _: [column(index_frame(index[start:stop], where).iloc[:, 0])])
    source.index, source.is_named = Source(where, [name], 1, [len(frame)], load), is_names(index)
    return source


def index_frame(index: Any, where: str) -> Any:
    """Return an index of one level as a data frame."""
    if index.nlevels != 1:
        raise InvalidInputError(
            f"the index of {where} has {index.nlevels} levels; call reset_index(), or reset_index(drop=True)."
        )
    return index.to_frame(index=False, name=INDEX if index.name is None else index.name)


def arrow_source(x: Any, where: str) -> Source:
    """Return anything with the Arrow C data interface: polars, pyarrow, DuckDB; a stream is read once."""
    import pyarrow as pa

    with _converted(f"{where} has type {type(x).__name__}, which is not a table", "give one row per object"):
        table = pa.table(x)
    columns = list(table.columns)
    for c, kind in enumerate(table.schema.types):
        if pa.types.is_dictionary(kind) and kind.value_type == pa.string_view():  # Arrow decodes none
            columns[c] = columns[c].cast(pa.dictionary(kind.index_type, pa.large_string()))
    load = sliced(lambda start, stop, places: [columns[c].slice(start, stop - start) for c in places])
    source = Source(where, table.column_names, table.num_columns, [table.num_rows], load)
    source.types = lambda: [column.type for column in columns]
    return with_index(source, pandas_index(table.schema))


_INDEX_NAME = re.compile(r"__index_level_\d+__|__null_dask_index__")
"""Names that pandas and dask give to the Parquet column of an unnamed index."""


def pandas_index(schema: pa.Schema) -> int | None:
    """Return the position of the column that was the index of a data frame; None if none was."""
    stored = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    names = [name for name in stored if isinstance(name, str) and name in schema.names]
    names = names or [name for name in schema.names if _INDEX_NAME.fullmatch(name)]
    if len(names) > 1:
        raise InvalidInputError(f"the table has an index of {len(names)} levels; call reset_index() first.")
    return schema.names.index(names[0]) if names else None


# Dask


def dask_source(collection: Any, where: str) -> Source:
    """Return a dask array or dataframe, of which each pass computes a part at a time: rows, or a partition.

    The number of rows may be unknown.
    """
    kind, is_array = type(collection).__name__, hasattr(collection, "numblocks")
    if kind == "Delayed" or getattr(collection, "ndim", 0) != 2:  # the former has any attribute
        raise InvalidInputError(
            f"{where} has type dask {kind}; pass a matrix, such as dask.array.from_delayed(x, shape, dtype)."
        )
    lengths: list[int | None]
    if is_array:
        check_matrix(collection.shape, where)
        width, names, parts = collection.shape[1], None, collection.blocks
        lengths = [None if math.isnan(rows) else int(rows) for rows in collection.chunks[0]]
    else:
        # optimized as a whole: fused partitions have no graphs of their own
        width, names, parts = len(collection.columns), collection.columns, collection.to_delayed()
        lengths = [None] * len(parts)

    def load(
        part: int, rows: int, columns: Sequence[int], *_: int, of_index: bool = False
    ) -> Iterator[tuple[int, Rows]]:
        computed = parts[part].compute()
        source = array_source(np.asanyarray(computed), where) if is_array else frame_source(computed, where)
        source = source.index if of_index and source.index is not None else source
        yield from source.load(0, rows, columns, 0, source.n_rows or 0)

    made = Source(where, names, width, lengths, load)
    if is_array:
        made.dtype = np.dtype(collection.dtype)
        made.column_bytes = 4.0 * made.dtype.itemsize  # read, decoded and sliced by the graph, and as columns
        most_rows = max((length or 1 for length in lengths), default=1)
        made.fixed_bytes = int(most_rows * made.row_bytes / 2)
        return made
    made.types = frame_source(collection._meta_nonempty, where).types
    index = collection.index
    made.index = Source(where, [index.name or INDEX], 1, lengths, partial(load, of_index=True))
    # other numbers are those that dask gives to rows
    made.is_named = index.name is not None or index.dtype.kind not in "iu"
    return made
