"""A source: names of columns, batches of rows, and ids. Those in memory and of dask; `files` has the others.

A batch is a numpy matrix or the list of its columns, of numpy or Arrow. pandas and dask are known by what
they offer, so that neither is imported here.
"""

from __future__ import annotations

import copy
import json
import math
import mmap
import pickle
import re
import shutil
import sys
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.disk.places import make_temporary_folder
from bigcons.errors import InvalidInputError, first_line
from bigcons.io.columns import DEFAULT_RULE, INDEX, MissingRule, rule_of_values
from bigcons.validation import is_names

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.io.ids import Ids

Rows = Any
"""``(n_rows, n_columns)``: a numpy matrix, or the list of its columns."""

_INDEX_NAME = re.compile(r"__index_level_\d+__|__null_dask_index__")
"""Names that pandas and dask give to the Parquet column of an unnamed index."""


class Reading(NamedTuple):
    """How a call says that a source is read."""

    header: bool | None = None
    """Whether the first line of a file of text is a header."""
    sep: str | None = None
    """What separates the columns of a file of text; None if its name says so."""
    decimal: str | None = None
    """What stands before the fractions of numbers in a file of text; None for a point."""
    missing: tuple[str, ...] = ()
    """What is missing in any column, besides what is so by default."""
    are_objects: bool = False
    """Whether the caller knows that rows of a list are objects."""


DEFAULT_READING = Reading()


class Source(ABC):
    """Rows ``(n_rows, n_columns)`` that can be read more than once.

    Attributes
    ----------
    where
        Name in messages: its path, "labels", "features" or "pairs".
    names, n_columns
        Names of the columns, None if it has no names, and their number.
    lengths
        Rows of each part, None until it has been read to its end.
    dtype
        Type of an array, whose batches are matrices; None of a source with a type per column.
    is_text, of_text
        Whether numbers are given as text, and whether it is a file of text.
    is_sparse
        Whether its batches are compressed sparse rows, of features only.
    row_bytes, fixed_bytes
        Approximate memory for reading, per row of a batch and independent of the number of rows.
    least_rows
        Rows that are stored together; the least size of a batch.
    ids
        What identifies the rows, if that is known.
    rules
        Which labels are missing, by column; None for the default.
    categorical
        Positions of the features whose numbers are categories.
    is_named
        Whether the names of its rows are the ids unless others are chosen.
    is_given, may_be_other
        Whether it has the labels that a user holds, and whether its rows may be no objects.
    measured
        Columns of the obs of an AnnData that are numbers, and so may be no labels.
    """

    dtype: np.dtype | None = None
    is_text: bool = False
    of_text: bool = False
    is_sparse: bool = False
    fixed_bytes: int = 0
    least_rows: int = 1
    ids: Ids | None = None
    rules: Sequence[MissingRule] | None = None
    categorical: frozenset[int] = frozenset()
    is_named: bool = False
    is_given: bool = False
    may_be_other: bool = False
    measured: frozenset[str] = frozenset()
    index: Source | None = None
    """The names of its rows, beside its columns."""
    _index_at: int | None = None
    """The column with the names of its rows, by its place before any choice."""
    _index_name: str = INDEX

    def __init__(
        self,
        where: str,
        shape: tuple[int | None, int],
        names: Sequence[object] | None = None,
        *,
        column_bytes: float = 16.0,
    ) -> None:
        """Take the name in messages, the shape, the names, and the memory to read one column of a row."""
        self.where = where
        self.names: list[str] | None = None if names is None else [str(name) for name in names]
        self.n_columns: int = int(shape[1])
        self.lengths: list[int | None] = [shape[0]]
        self.row_bytes: float = column_bytes * self.n_columns
        self._positions: list[int] = list(range(self.n_columns))

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None while the length of any part is unknown."""
        known = [length for length in self.lengths if length is not None]
        return sum(known) if len(known) == len(self.lengths) else None

    @property
    def held_bytes(self) -> int:
        """Approximate memory for decoding, in addition to the batch that is yielded."""
        stored = 2 * self.least_rows * self.row_bytes if self.least_rows > 1 else 0
        return self.fixed_bytes + int(stored)

    def batches(
        self, rows: int, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[Rows]:
        """Yield rows ``start`` to ``stop`` (None: the end) in order, about ``rows`` at a time.

        ``columns`` selects columns by position.
        """
        positions = self._positions if columns is None else [self._positions[c] for c in columns]
        yield from self._read(rows, start, stop, positions)

    def _read(self, rows: int, start: int, stop: int | None, positions: Sequence[int]) -> Iterator[Rows]:
        """Yield slices of ``rows`` rows, rounded to whole stored ones."""
        rows = max(rows - rows % self.least_rows, self.least_rows)
        end = (self.n_rows or 0) if stop is None else stop
        for first in range(start - start % self.least_rows, end, rows):
            yield self._slice(max(first, start), min(first + rows, end), positions)

    @abstractmethod
    def _slice(self, start: int, stop: int, positions: Sequence[int]) -> Rows:
        """Return rows ``start`` to ``stop`` of the columns at these places."""

    def selected(self, columns: Sequence[int]) -> Source:
        """Return some columns of the source, in this order."""
        made, names, rules = copy.copy(self), self.names, self.rules
        made._positions = [self._positions[c] for c in columns]
        made.n_columns = len(columns)
        made.names = None if names is None else [names[c] for c in columns]
        made.rules = None if rules is None else [rules[c] for c in columns]
        made.categorical = frozenset(at for at, c in enumerate(columns) if c in self.categorical)
        if self.dtype is None:  # else it is read with all columns
            made.row_bytes = self.row_bytes * len(columns) / max(self.n_columns, 1)
        return made

    @property
    def index_position(self) -> int | None:
        """The position of the column with the names of the rows; None if it has none."""
        return self._positions.index(self._index_at) if self._index_at in self._positions else None

    def row_names(self) -> Source | None:
        """Return the names of the rows as a source of one column."""
        if self._index_at is None:
            return self.index
        whole = copy.copy(self)
        whole._positions = [self._index_at]
        whole.n_columns, whole.rules, whole.ids = 1, None, None
        whole.names = [INDEX if is_index_name(self._index_name) else self._index_name]
        return whole.texts(0) or whole

    def take_index(self, position: int | None) -> None:
        """Take a column as the names of the rows, if there is one."""
        if position is not None:
            self._index_at, self.is_named = position, True
            self._index_name = INDEX if self.names is None else self.names[position]

    def texts(self, position: int) -> Source | None:  # noqa: ARG002 - of sources without types
        """Return a column as the text that is in the file; None if it has a type."""
        return None

    def rule_of(self, position: int) -> MissingRule:
        """Return which labels of a column are missing."""
        return DEFAULT_RULE if self.rules is None else self.rules[position]

    def column_types(self) -> list[pa.DataType] | None:
        """Return the Arrow types of the columns; None for arrays and if types must be inferred."""
        return None


class PartedSource(Source):
    """A source that is read part by part: partitions of a dask collection, files, or a stream."""

    @abstractmethod
    def _load(self, part: int, rows: int, positions: Sequence[int]) -> Iterator[Rows]:
        """Yield the rows of one part, in pieces of any size."""

    def _slice(self, start: int, stop: int, positions: Sequence[int]) -> Rows:
        raise NotImplementedError  # it is read in parts

    def _read(self, rows: int, start: int, stop: int | None, positions: Sequence[int]) -> Iterator[Rows]:
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
            for piece in self._load(part, rows, positions):
                first, row = row, row + count_rows(piece)
                low, high = max(start, first) - first, min(end, row) - first
                for cut in range(low, high, rows):
                    stop_here = min(cut + rows, high)
                    is_list = isinstance(piece, list)
                    yield [c[cut:stop_here] for c in piece] if is_list else piece[cut:stop_here]
                del piece  # before the next one is made
                if row >= end:
                    return
            self.lengths[part] = row - part_start


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


def is_index_name(name: str) -> bool:
    """Return whether a column of a file is the unnamed index of a pandas or dask dataframe."""
    return _INDEX_NAME.fullmatch(name) is not None


def check_matrix(shape: tuple[float, ...], where: str) -> None:
    """Raise InvalidInputError unless an array is a matrix that may be meant."""
    most_rows, most_columns = 1 << 40, 1 << 24
    if len(shape) != 2:
        raise InvalidInputError(
            f"{where} has {len(shape)} dimension(s), not 2; pass one row per object. Reshape your data."
        )
    if shape[0] > most_rows or shape[1] > most_columns:
        raise InvalidInputError(
            f"{where} has shape {shape}; pass at most {most_rows:,} rows and {most_columns:,} columns."
        )


# In memory


class ArraySource(Source):
    """Any matrix that can be sliced by rows: numpy, a memory map, Zarr, HDF5, or sparse rows of scipy."""

    def __init__(self, array: Any, where: str) -> None:
        if getattr(array.dtype, "names", None):
            raise InvalidInputError(f"{where} is a structured array; pass pandas.DataFrame(x).")
        check_matrix(array.shape, where)
        self.dtype: np.dtype | None = np.dtype(array.dtype)
        chunks = getattr(array, "chunks", None)
        # as decoded, as read, as columns
        super().__init__(where, array.shape, column_bytes=(3 if chunks else 2) * self.dtype.itemsize)
        self.least_rows: int = chunks[0] if chunks else 1
        self.is_sparse: bool = is_sparse(array)
        if self.is_sparse:
            array = array.tocsr() if hasattr(array, "tocsr") else array
            stored = getattr(array, "nnz", None)
            n_stored = array.shape[1] if stored is None else stored / max(array.shape[0], 1)
            self.row_bytes: float = 16.0 * n_stored
        self._array = array

    def _read(self, rows: int, start: int, stop: int | None, positions: Sequence[int]) -> Iterator[Rows]:
        """Yield slices; the pages of a memory map, which count as memory of this process, are released."""
        pages: Any = getattr(self._array, "_mmap", None)
        for block in super()._read(rows, start, stop, positions):
            yield block
            if getattr(self._array, "mode", "") in ("r", "r+") and hasattr(pages, "madvise"):
                pages.madvise(mmap.MADV_DONTNEED)

    def _slice(self, start: int, stop: int, positions: Sequence[int]) -> Rows:
        rows = self._array[start:stop]
        if self.is_sparse:
            from scipy.sparse import csr_array

            rows = csr_array(rows)
            rows.sum_duplicates()
        else:
            rows = np.asanyarray(rows)  # keeps masks
        return rows if list(positions) == list(range(rows.shape[1])) else rows[:, list(positions)]


def is_sparse(x: Any) -> bool:
    """Return whether ``x`` is a sparse matrix of scipy, or rows of one that an AnnData keeps on a disk."""
    return type(x).__module__.startswith("scipy.") or (hasattr(x, "format") and hasattr(x, "dtype"))


def source_of_rows(rows: Sequence[Any], role: str, are_objects: bool) -> ArraySource:
    """Return the source of a list of rows of equal length.

    Rows of labels that are arrays, or fewer than their columns, may be partitions and are refused unless they
    ``are_objects``.
    """
    lengths = [
        len(row) if hasattr(row, "__len__") and not isinstance(row, (str, set, frozenset)) else None
        for row in rows
    ]
    if rows and lengths[0] is None and not isinstance(rows[0], (set, frozenset)):
        check_matrix((len(rows),), role)
    n_columns = (lengths[0] or 0) if rows else 0
    for index, length in enumerate(lengths):
        if length is None or length != n_columns:
            what = f"{length} value(s)" if length is not None else "a single value"
            what = "a set" if isinstance(rows[index], (set, frozenset)) else what
            raise InvalidInputError(
                f"{role} is ragged: row {index} has {what} but row 0 has {n_columns}; "
                "pass one value per column, None where missing."
            )
    if role == "features" and n_columns:
        return ArraySource(np.asarray(rows), role)
    may_be_runs = len(rows) < n_columns or (len(rows) and hasattr(rows[0], "__array__"))
    if role == "labels" and may_be_runs and not are_objects:
        raise InvalidInputError(
            f"labels is a list of {len(rows)} rows of {n_columns} labels, which may be partitions or "
            "objects; pass Ensemble.from_runs(x) if each row is a partition, or numpy.array(x) if each is an "
            "object."
        )
    matrix = np.empty((len(rows), n_columns), dtype=object)  # keeps numbers and text apart
    for index, row in enumerate(rows):
        matrix[index] = row
    return ArraySource(matrix, role)


class ColumnsSource(Source):
    """One ``(n_rows,)`` array per column, which may be a memory map of a file."""

    def __init__(
        self, columns: Sequence[Any], n_rows: int, names: list[str] | None = None, ids: Ids | None = None
    ) -> None:
        super().__init__("labels", (n_rows, len(columns)), names, column_bytes=8.0)
        self._columns = columns
        self.ids: Ids | None = ids
        for index, column in enumerate(columns):
            if len(column) != n_rows or getattr(column, "ndim", 1) != 1:
                raise InvalidInputError(
                    f"column {index} has shape {np.shape(column)} but n_objects={n_rows}; "
                    f"pass one label per object, shape ({n_rows},)."
                )

    def _slice(self, start: int, stop: int, positions: Sequence[int]) -> Rows:
        return [np.asanyarray(self._columns[c][start:stop]) for c in positions]


class EnsembleSource(Source):
    """An ensemble, read with its original label values."""

    def __init__(self, ensemble: Any, where: str) -> None:
        super().__init__(where, ensemble.shape, ensemble.names, column_bytes=8.0)
        self.least_rows: int = ensemble.chunk_rows
        self.ids: Ids | None = ensemble.id_column
        self.rules: Sequence[MissingRule] | None = [rule_of_values(values) for values in ensemble.categories]
        self._ensemble = ensemble

    @property
    def held_bytes(self) -> int:
        """None: blocks are decoded by the ensemble."""
        return 0

    def _slice(self, start: int, stop: int, positions: Sequence[int]) -> Rows:
        codes = np.ascontiguousarray(self._ensemble.read(start, stop).T)
        values = self._ensemble.categories
        return [values_of(codes[c], values[c]) for c in positions]


class HardenedSource(Source):
    """The largest membership in each partition of an ensemble of soft clusterings, -1 where missing."""

    def __init__(self, ensemble: Any) -> None:
        super().__init__("memberships", ensemble.shape, ensemble.names, column_bytes=8.0)
        self.row_bytes: float = self.row_bytes + 2.0 * ensemble.row_bytes
        self.ids: Ids | None = ensemble.id_column
        self._ensemble = ensemble

    def _slice(self, start: int, stop: int, positions: Sequence[int]) -> Rows:
        memberships, offsets = self._ensemble.read(start, stop), self._ensemble.offsets
        parts = [memberships[:, offsets[u] : offsets[u + 1]] for u in positions]
        return [np.where(part.any(axis=1), part.argmax(axis=1), -1) for part in parts]


def values_of(codes: np.ndarray, values: np.ndarray | None) -> np.ndarray:
    """Return the original values of codes; missing is None for text, -1 for numbers or, beside negative
    ones, masked.
    """
    if values is None:
        return codes
    if values.dtype != object and values.min(initial=0) < 0:
        return np.ma.masked_array(values[np.maximum(codes, 0)], codes < 0)
    missing: Any = None if values.dtype == object else -1
    return np.append(values, missing)[codes]


class PandasSource(Source):
    """A pandas DataFrame."""

    def __init__(self, frame: Any, where: str) -> None:
        super().__init__(where, frame.shape, frame.columns)
        if any(str(dtype).startswith("Sparse[") for dtype in frame.dtypes):
            raise InvalidInputError(
                f"{where} has sparse columns of pandas; pass x.sparse.to_dense() or, of features alone, "
                "x.sparse.to_coo()."
            )
        self.is_named: bool = is_names(frame.index)
        self._frame = frame

    def row_names(self) -> Source:
        """Return the index, which is read as the ids only."""
        return PandasSource(index_frame(self._frame.index, self.where), self.where)

    def column_types(self) -> list[pa.DataType]:
        """Return the Arrow types; those of object columns are inferred from the values."""
        import pyarrow as pa

        frame = self._frame.iloc[:, self._positions]
        try:
            return list(pa.Schema.from_pandas(frame, preserve_index=False).types)
        except (pa.ArrowException, ValueError) as error:
            if len(repeated := frame.columns[frame.columns.duplicated()]):
                raise InvalidInputError(
                    f"{self.where} has more than one column {str(repeated[0])!r}; give each its own name."
                ) from None
            mixed = []
            for c, name in enumerate(self.names or []):
                try:
                    pa.array(frame.iloc[:, c], from_pandas=True)
                except (pa.ArrowException, ValueError):
                    mixed.append(name)
            raise InvalidInputError(
                f"{self.where} has mixed types in {', '.join(map(repr, mixed))} "
                f"({first_line(error)}); convert each column to one type."
            ) from None

    def _slice(self, start: int, stop: int, positions: Sequence[int]) -> Rows:
        import pyarrow as pa

        part, columns = self._frame.iloc[start:stop], []
        for c in positions:
            series = part.iloc[:, c]
            if isinstance(series.dtype, np.dtype):
                columns.append(series.to_numpy())
                continue
            try:
                columns.append(pa.array(series, from_pandas=True))
            except pa.ArrowException:
                raise InvalidInputError(
                    f"column {str(series.name)!r} of {self.where} has type {series.dtype}; "
                    "convert it to numbers or text."
                ) from None
        return columns


def index_frame(index: Any, where: str) -> Any:
    """Return an index of one level as a data frame."""
    if index.nlevels != 1:
        raise InvalidInputError(
            f"the index of {where} has {index.nlevels} levels; call reset_index() and name the column of "
            "ids in id=, or reset_index(drop=True) if it names no rows."
        )
    return index.to_frame(index=False, name=INDEX if index.name is None else index.name)


class ArrowSource(Source):
    """Anything that offers the Arrow C data interface: polars, pyarrow, DuckDB; a stream is read once."""

    def __init__(self, x: Any, where: str) -> None:
        import pyarrow as pa

        try:
            table = pa.table(x)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"{where} has type {type(x).__name__}, which is not a table ({first_line(error)}); "
                "give a table with one row per object."
            ) from None
        super().__init__(where, table.shape, table.column_names)
        self.take_index(pandas_index(table.schema))
        self._columns = [_without_views(column) for column in table.columns]

    def column_types(self) -> list[pa.DataType]:
        """Return the types of the columns."""
        return [self._columns[c].type for c in self._positions]

    def _slice(self, start: int, stop: int, positions: Sequence[int]) -> Rows:
        return [self._columns[c].slice(start, stop - start) for c in positions]


def _without_views(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with a dictionary that Arrow can decode, which excludes string views."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type) or column.type.value_type != pa.string_view():
        return column
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.large_string()))
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, pa.large_string()))


# The index that pandas describes in the metadata of Arrow tables


def pandas_index(schema: pa.Schema) -> int | None:
    """Return the position of the column that was the index of a data frame; None if none was."""
    stored = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    for entry in stored:
        if isinstance(entry, dict) and entry.get("step") not in (None, 1):
            raise InvalidInputError(
                f"the table has an index in steps of {entry['step']} that is told, not stored; write it by "
                "to_parquet(index=True), or call reset_index(drop=True) if it names no rows."
            )
    found = [name for name in stored if isinstance(name, str) and name in schema.names]
    found = found or [name for name in schema.names if is_index_name(name)]
    if len(found) > 1:
        raise InvalidInputError(
            f"the table has an index of {len(found)} levels, {', '.join(found)}; call reset_index() first."
        )
    return schema.names.index(found[0]) if found else None


# Dask


class DaskSource(PartedSource):
    """A dask array or dataframe, of which a part at a time is computed: some rows, or a partition.

    The number of rows may be unknown. ``index_of`` is a dataframe whose index is the only column.
    """

    def __init__(self, collection: Any, where: str, *, index_of: DaskSource | None = None) -> None:
        kind = type(collection).__name__
        if kind == "Delayed":  # which has any attribute
            raise InvalidInputError(
                f"{where} is a dask Delayed, of unknown shape; pass dask.array.from_delayed(x, shape, "
                "dtype), or dask.dataframe.from_delayed(x)."
            )
        is_array = hasattr(collection, "numblocks") and hasattr(collection, "chunks")
        if not is_array and not (hasattr(collection, "npartitions") and getattr(collection, "ndim", 0) == 2):
            raise InvalidInputError(f"{where} has type dask {kind}; pass a dask array or dataframe.")
        self._of_index = index_of is not None
        if is_array:
            check_matrix(collection.shape, where)
            if math.isnan(collection.shape[1]):
                raise InvalidInputError(
                    f"{where} has an unknown number of columns; call its compute_chunk_sizes() first."
                )
            self.dtype: np.dtype | None = np.dtype(collection.dtype)
            # read, decoded and sliced by the graph, and as columns
            super().__init__(where, (None, collection.shape[1]), column_bytes=4.0 * self.dtype.itemsize)
            self.lengths: list[int | None] = [
                None if math.isnan(rows) else int(rows) for rows in collection.chunks[0]
            ]
            self.least_rows: int = max((length or 1 for length in self.lengths), default=1)
            self._parts = _Parts(lambda part: collection.blocks[part], len(self.lengths))
        else:
            name = INDEX if collection.index.name is None else collection.index.name
            names = [name] if self._of_index else collection.columns
            super().__init__(where, (None, len(names)), names)
            if index_of is None:
                # optimized as a whole: fused partitions, as of several files, have no graphs of their own
                delayed = collection.to_delayed()
                self._parts = _Parts(delayed.__getitem__, len(delayed))
                self.index: Source | None = DaskSource(collection, where, index_of=self)
                # other numbers are those that dask gives to rows
                self.is_named: bool = (
                    collection.index.name is not None or collection.index.dtype.kind not in "iu"
                )
            else:
                self._parts = index_of._parts
            self.lengths = [None] * self._parts.n_parts
        self._width = self.n_columns
        self._meta: Any = None if is_array or self._of_index else collection._meta_nonempty

    def column_types(self) -> list[pa.DataType] | None:
        """Return the types that a dataframe declares."""
        if self._meta is None:
            return None
        return PandasSource(self._meta.iloc[:, self._positions], self.where).column_types()

    @property
    def held_bytes(self) -> int:
        """The largest chunk of an array, computed and yielded."""
        return 0 if self.dtype is None else int(self.least_rows * self.row_bytes / 2)

    def _load(self, part: int, rows: int, positions: Sequence[int]) -> Iterator[Rows]:
        found = self._parts.read(part)
        if self.dtype is None:
            frame = index_frame(found.index, self.where) if self._of_index else found
            yield from PandasSource(frame, self.where).batches(rows, columns=positions)
            return
        chunk, length = np.asanyarray(found), self.lengths[part]
        declared = (len(chunk) if length is None else length), self._width
        if chunk.shape != declared:
            raise InvalidInputError(
                f"{self.where}: chunk {part} of the dask array has shape {chunk.shape} where {declared} is "
                "declared; correct the shape given to from_delayed or the chunks given to map_blocks."
            )
        yield chunk if len(positions) == self._width else chunk[:, list(positions)]


class _Parts:
    """The parts of a dask collection, of which each is computed once and kept on the disk for later passes.

    They are computed by the scheduler that is active; the workers of a client compute as many parts ahead as
    they have threads.
    """

    def __init__(self, part: Callable[[int], Any], n_parts: int) -> None:
        self._part = part
        self.n_parts: int = n_parts
        self._ahead: dict[int, Any] = {}
        self._kept: set[int] = set()
        self._folder: Path | None = None

    def read(self, part: int) -> Any:
        """Return a part."""
        if self._folder is None:
            self._folder = make_temporary_folder()
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / f"{part}.pickle"
        if part in self._kept:
            with path.open("rb") as file:
                return pickle.load(file)  # noqa: S301 - of this process, in a folder of its user alone
        found = self._compute(part)
        try:
            with path.open("wb") as file:
                pickle.dump(found, file, protocol=5)
        except OSError as error:
            where = tempfile.gettempdir()
            reason = f"{error.strerror}: what dask computes is kept in {where}; set TMPDIR to a larger disk"
            raise OSError(error.errno, reason) from None
        self._kept.add(part)
        return found

    def _compute(self, part: int) -> Any:
        from dask.base import get_scheduler

        client, distributed = getattr(get_scheduler(), "__self__", None), sys.modules.get("distributed")
        if distributed is None or not isinstance(client, distributed.Client) or _is_within_task(distributed):
            return self._part(part).compute()
        last = min(part + max(sum(client.nthreads().values()), 1), self.n_parts - 1)
        new = [p for p in range(part, last + 1) if p not in self._kept and p not in self._ahead]
        self._ahead |= zip(new, client.compute([self._part(p) for p in new]), strict=True)
        return self._ahead.pop(part).result()


def _is_within_task(distributed: Any) -> bool:
    """Return whether this is a task of Dask, whose thread is not to wait for others."""
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True
