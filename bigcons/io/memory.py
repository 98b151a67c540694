"""Tables in memory and in dask: arrays, lists of rows, pandas, Arrow, columns, ensembles."""

from __future__ import annotations

import io
import json
import math
import mmap
import os
import pickle
import shutil
import sys
import tempfile
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bigcons.disk.files import Place
from bigcons.disk.places import DiskPlace, make_temporary_folder
from bigcons.errors import InvalidInputError, StoreNotFoundError, first_line
from bigcons.io.reading import MissingRule, rule_of_values
from bigcons.io.table import (
    Column,
    PartedTable,
    Rows,
    SlicedTable,
    Table,
    as_names,
    check_matrix,
    check_size,
    is_index_name,
)
from bigcons.validation import is_names
from bigcons.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.io.ids import Ids

T = TypeVar("T")


class ArrayTable(SlicedTable):
    """Any array that can be sliced by rows: numpy, a memory map, Zarr, HDF5."""

    def __init__(self, array: Any, where: str) -> None:
        if getattr(array.dtype, "names", None):
            raise InvalidInputError(f"{where} is a structured array; pass pandas.DataFrame(x).")
        check_matrix(array.shape, where)
        check_size(array.shape, where)
        self.dtype: np.dtype | None = np.dtype(array.dtype)
        chunks = getattr(array, "chunks", None)
        copies = 3 if chunks else 2  # as decoded, as read, as columns
        super().__init__(where, array.shape, column_bytes=copies * self.dtype.itemsize)
        self.least_rows: int = chunks[0] if chunks else 1
        self._array = array

    @property
    def held_bytes(self) -> int:
        """Two chunks, each as stored, decoded and copied."""
        return int(2 * self.least_rows * self.row_bytes) if self.least_rows > 1 else 0

    def slice(self, start: int, stop: int, columns: Sequence[int]) -> Rows:  # noqa: ARG002 - a matrix
        """Return some rows."""
        return np.asanyarray(self._array[start:stop])  # keeps masks

    def blocks(
        self, rows: int, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[Rows]:
        """Yield slices of ``rows`` rows; the pages of a memory map are released after each."""
        for block in super().blocks(rows, start, stop, columns):
            yield block
            release_pages(self._array)


class SparseTable(SlicedTable):
    """A sparse matrix of scipy, in memory, or one of an AnnData, whose rows can be sliced on the disk."""

    is_sparse = True

    def __init__(self, matrix: Any, where: str) -> None:
        check_matrix(matrix.shape, where)
        check_size(matrix.shape, where)
        super().__init__(where, matrix.shape)
        self._matrix = matrix.tocsr() if hasattr(matrix, "tocsr") else matrix
        self.dtype: np.dtype | None = np.dtype(matrix.dtype)
        if (stored := getattr(self._matrix, "nnz", None)) is not None:
            self.row_bytes: float = 16.0 * stored / max(matrix.shape[0], 1)

    def slice(self, start: int, stop: int, columns: Sequence[int]) -> Rows:  # noqa: ARG002 - a matrix
        """Return some rows, compressed."""
        from scipy.sparse import csr_array

        rows = csr_array(self._matrix[start:stop])
        rows.sum_duplicates()
        return rows


def map_npy(path: Path) -> np.ndarray:
    """Map a ``.npy`` file of any shape into memory."""
    try:
        mapped: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise StoreNotFoundError(f"{path} does not exist; check the path.", path=path) from None
    except (ValueError, EOFError):
        raise InvalidInputError(f"{path} is not a .npy file of numbers; write it with numpy.save.") from None
    return mapped


def release_pages(array: Any) -> None:
    """Release the pages of a memory map, which otherwise count as memory of this process."""
    pages = getattr(array, "_mmap", None)
    if not isinstance(pages, mmap.mmap) or getattr(array, "mode", "") not in ("r", "r+"):
        return
    if hasattr(pages, "madvise"):  # not on Windows
        pages.madvise(mmap.MADV_DONTNEED)


def table_of_rows(rows: Sequence[Any], role: str, are_objects: bool = False) -> ArrayTable:
    """Return the table of a list of rows of equal length.

    Rows of labels that are arrays, or fewer than their columns, may be partitions and are refused unless they
    ``are_objects``.
    """

    def is_row(row: Any) -> bool:
        return hasattr(row, "__len__") and not isinstance(row, (str, set, frozenset))

    if len(rows) and not is_row(rows[0]) and not isinstance(rows[0], (set, frozenset)):
        check_matrix((len(rows),), role)
    n_columns = len(rows[0]) if len(rows) else 0
    for index, row in enumerate(rows):
        if not is_row(row) or len(row) != n_columns:
            is_one = not hasattr(row, "__len__") or isinstance(row, str)
            found = "a single value" if is_one else f"{len(row)} value(s)" * is_row(row) or "a set"
            raise InvalidInputError(
                f"{role} is ragged: row {index} has {found} but row 0 has {n_columns}; "
                "pass one value per column, None where missing."
            )
    if role == "features" and n_columns:
        return ArrayTable(np.asarray(rows), role)
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
    return ArrayTable(matrix, role)


class PandasTable(SlicedTable):
    """A pandas DataFrame."""

    def __init__(self, frame: Any, where: str) -> None:
        super().__init__(where, frame.shape, as_names(frame.columns))
        if any(str(dtype).startswith("Sparse[") for dtype in frame.dtypes):
            raise InvalidInputError(
                f"{where} has sparse columns of pandas; pass x.sparse.to_dense() or, of features alone, "
                "x.sparse.to_coo()."
            )
        self.is_named: bool = is_names(frame.index)
        self._frame = frame

    @property
    def index(self) -> Table:
        """The index, which is read as the ids only."""
        return PandasTable(index_frame(self._frame.index, self.where), self.where)

    def column_types(self) -> list[pa.DataType]:
        """Return the Arrow types; those of object columns are inferred from the values."""
        import pyarrow as pa

        try:
            return list(pa.Schema.from_pandas(self._frame, preserve_index=False).types)
        except (pa.ArrowException, ValueError) as error:
            if len(repeated := self._frame.columns[self._frame.columns.duplicated()]):
                raise InvalidInputError(
                    f"{self.where} has more than one column {str(repeated[0])!r}; give each its own name."
                ) from None
            mixed = [name for c, name in enumerate(self.names or []) if _is_mixed(self._frame.iloc[:, c])]
            raise InvalidInputError(
                f"{self.where} has mixed types in {', '.join(map(repr, mixed))} "
                f"({first_line(error)}); convert each column to one type."
            ) from None

    def slice(self, start: int, stop: int, columns: Sequence[int]) -> Rows:
        """Return some rows as columns."""
        part = self._frame.iloc[start:stop]
        return [self._column(part.iloc[:, c]) for c in columns]

    def _column(self, series: Any) -> Column:
        import pyarrow as pa

        if isinstance(series.dtype, np.dtype):
            return series.to_numpy()
        try:
            return pa.array(series, from_pandas=True)
        except pa.ArrowException:
            raise InvalidInputError(
                f"column {str(series.name)!r} of {self.where} has type {series.dtype}; "
                "convert it to numbers or text."
            ) from None


def _is_mixed(series: Any) -> bool:
    import pyarrow as pa

    try:
        pa.array(series, from_pandas=True)
    except (pa.ArrowException, ValueError):
        return True
    return False


def index_frame(index: Any, where: str) -> Any:
    """Return an index of one level as a data frame."""
    if index.nlevels != 1:
        raise InvalidInputError(
            f"the index of {where} has {index.nlevels} levels; call reset_index() and name the column of "
            "ids in id=, or reset_index(drop=True) if it names no rows."
        )
    return index.to_frame(index=False, name="index" if index.name is None else index.name)


class ArrowTable(SlicedTable):
    """Anything that offers the Arrow C data interface: polars, pyarrow, DuckDB; a stream is read once."""

    def __init__(self, source: Any, where: str) -> None:
        import pyarrow as pa

        try:
            table = pa.table(source)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"{where} has type {type(source).__name__}, which is not a table ({first_line(error)}); "
                "give a table with one row per object."
            ) from None
        super().__init__(where, table.shape, table.column_names)
        self.index_position: int | None = pandas_index(table.schema)
        self._index = names_of_ranges([pandas_range(table.schema, len(table))], where)
        self.is_named: bool = self._index is not None
        self._columns = [_without_views(column) for column in table.columns]

    def column_types(self) -> list[pa.DataType]:
        """Return the types of the columns."""
        return [column.type for column in self._columns]

    def slice(self, start: int, stop: int, columns: Sequence[int]) -> Rows:
        """Return some rows as columns."""
        return [self._columns[c].slice(start, stop - start) for c in columns]


def pandas_index(schema: pa.Schema) -> int | None:
    """Return the position of the column that was the index of a data frame; None if none was."""
    stored = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    found = [name for name in stored if isinstance(name, str) and name in schema.names]
    found = found or [name for name in schema.names if is_index_name(name)]
    if len(found) > 1:
        raise InvalidInputError(
            f"the table has an index of {len(found)} levels, {', '.join(found)}; call reset_index() first."
        )
    return schema.names.index(found[0]) if found else None


def pandas_range(schema: pa.Schema, n_rows: int) -> tuple[str, range] | None:
    """Return name and values of the index of a data frame that is told, not stored; None of other rows."""
    for told in json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", []):
        if isinstance(told, dict) and told.get("kind") == "range":
            ends: list[Any] = [told.get(name) for name in ("start", "stop", "step")]
            found = range(*ends) if ends[2] and all(isinstance(end, int) for end in ends) else range(0)
            return (str(told.get("name") or "index"), found) if len(found) == n_rows else None
    return None


def names_of_ranges(parts: Sequence[tuple[str, range] | None], where: str) -> Table | None:
    """Return the index of parts of a table, by `pandas_range`, that names the rows; None if it does not.

    It does not if any part has none, or if the rows are numbered in order, as a whole or each part anew.
    """
    known = [part for part in parts if part is not None]
    starts = np.cumsum([0, *(len(values) for _, values in known)]).tolist()
    is_default = all(values == range(len(values)) for _, values in known) or all(
        values == range(start, start + len(values)) for start, (_, values) in zip(starts, known, strict=False)
    )
    if is_default or len(known) < len(parts):
        return None
    return RangesTable([values for _, values in known], where, known[0][0])


class RangesTable(SlicedTable):
    """One column of numbers, range after range."""

    def __init__(self, ranges: Sequence[range], where: str, name: str) -> None:
        super().__init__(where, (sum(map(len, ranges)), 1), [name], column_bytes=8.0)
        self._ranges = ranges

    def slice(self, start: int, stop: int, columns: Sequence[int]) -> Rows:  # noqa: ARG002 - there is one
        """Return some of the numbers as a column."""
        parts = []
        for values in self._ranges:
            part = values[max(start, 0) : max(stop, 0)]
            parts.append(np.arange(part.start, part.stop, part.step, dtype=np.int64))
            start, stop = start - len(values), stop - len(values)
        return [np.concatenate(parts)]


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


def open_dask(collection: Any, role: str) -> PartedTable:
    """Return the table of a dask array or dataframe."""
    if type(collection).__name__ == "Delayed":  # which has any attribute
        raise InvalidInputError(
            f"{role} is a dask Delayed, of unknown shape; pass dask.array.from_delayed(x, shape, dtype), or "
            "dask.dataframe.from_delayed(x)."
        )
    if (
        hasattr(collection, "npartitions")
        and getattr(collection, "ndim", 0) == 2
        and not hasattr(collection, "chunks")
    ):
        return DaskFrameTable(collection, role)
    if hasattr(collection, "numblocks") and hasattr(collection, "chunks"):
        return DaskArrayTable(collection, role)
    raise InvalidInputError(
        f"{role} has type dask {type(collection).__name__}; pass a dask array or dataframe."
    )


class _Computed:
    """The parts of a dask collection, of which each is computed once and kept on the disk for later passes.

    They are computed by the scheduler that is active. The workers of a client compute as many parts ahead as
    they have threads.
    """

    def __init__(self, part: Callable[[int], Any], n_parts: int) -> None:
        self._part = part
        self.n_parts: int = n_parts
        self._kept: set[int] = set()
        self._ahead: dict[int, Any] = {}
        self._folder: Path | None = None
        self._shared: dict[int, Place] = {}
        """Files of parts that workers have kept, which any process reads."""

    def __getstate__(self) -> dict[str, Any]:
        return {"_shared": self._shared}

    def on_workers(self, workers: DaskWorkers, task: Callable[[int, Any], T]) -> Iterator[T]:
        """Yield what a task makes of each part, and its number, where it is computed; the parts are kept."""
        calls = (
            (partial(_kept, task, part, workers.place), self._part(part)) for part in range(self.n_parts)
        )
        for part, (file, found) in enumerate(workers.map(calls)):
            self._shared[part] = file
            yield found

    def read(self, part: int) -> Any:
        """Return a part."""
        if part in self._shared:
            return _read_npy(self._shared[part])
        if part in self._kept:
            with self._file(part).open("rb") as file:
                return pickle.load(file)  # noqa: S301 - of this process, in a folder of its user alone
        found = self._compute(part)
        try:
            with self._file(part).open("wb") as file:
                pickle.dump(found, file, protocol=5)
        except OSError as error:
            where = tempfile.gettempdir()
            reason = f"{error.strerror}: what dask computes is kept in {where}; set TMPDIR to a larger disk"
            raise OSError(error.errno, reason) from None
        self._kept.add(part)
        return found

    def _file(self, part: int) -> Path:
        if self._folder is None:
            self._folder = make_temporary_folder()
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / f"{part}.pickle"

    def _compute(self, part: int) -> Any:
        if (client := _client_of_dask()) is None:
            return self._part(part).compute()
        last = min(part + max(sum(client.nthreads().values()), 1), self.n_parts - 1)
        new = [p for p in range(part, last + 1) if p not in self._kept and p not in self._ahead]
        self._ahead |= zip(new, client.compute([self._part(p) for p in new]), strict=True)
        return self._ahead.pop(part).result()


def _client_of_dask() -> Any:
    """Return the client that computes dask collections; None if none does, or within one of its tasks."""
    from dask.base import get_scheduler

    client = getattr(get_scheduler(), "__self__", None)
    distributed: Any = sys.modules.get("distributed")
    if distributed is None or not isinstance(client, distributed.Client) or _is_within_task(distributed):
        return None
    return client


def _is_within_task(distributed: Any) -> bool:
    """Return whether this is a task of Dask, whose thread is not to wait for others."""
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


class DaskWorkers:
    """The workers of a client of Dask, all of which find what is written to a folder."""

    def __init__(self, client: Any, place: Place) -> None:
        self._client: Any = client
        self.place: Place = place

    @classmethod
    def sharing(cls, place: Place) -> DaskWorkers | None:
        """Return the workers that compute dask collections; None unless all find ``place`` and have this
        version.
        """
        if (client := _client_of_dask()) is None:
            return None
        probe = place / "probe"
        probe.write(b"")
        found = client.run(_version_beside, probe, on_error="return")
        probe.remove()
        return cls(client, place) if found and set(map(str, found.values())) == {__version__} else None

    def map(self, calls: Iterable[tuple[Callable[[Any], Any], Any]]) -> Iterator[Any]:
        """Yield the results of functions of one argument, which may be a dask collection, in order."""
        from dask.delayed import delayed

        n_sent = 2 * max(sum(self._client.nthreads().values()), 1)
        sent: deque[Any] = deque()
        try:
            for function, argument in calls:
                if len(sent) == n_sent:
                    yield sent.popleft().result()
                sent.append(self._client.compute(delayed(function, pure=False)(argument)))
            while sent:
                yield sent.popleft().result()
        finally:
            self._client.cancel(list(sent))


def _version_beside(probe: Place) -> str:
    return __version__ if probe.is_file() else "it is not there"


def _kept(task: Callable[[int, Any], T], part: int, place: Place, found: Any) -> tuple[Place, T]:
    """Return the .npy file in which a part is kept, and what a task makes of the part.

    The file is that of this run of the task: another run may compute other values.
    """
    result, file = task(part, found), place / f"{part}-{uuid.uuid4().hex}.npy"
    array, head = np.ascontiguousarray(found), io.BytesIO()
    np.lib.format.write_array_header_2_0(head, np.lib.format.header_data_from_array_1_0(array))
    file.write(head.getbuffer(), array.data)
    return file, result


def _read_npy(file: Place) -> np.ndarray:
    if isinstance(file, DiskPlace):
        return map_npy(file.path)
    found: np.ndarray = np.load(io.BytesIO(file.read()), allow_pickle=False)
    return found


class DaskArrayTable(PartedTable):
    """A dask array, computed one chunk of rows at a time; the number of rows may be unknown."""

    def __init__(self, array: Any, where: str) -> None:
        check_matrix(array.shape, where)
        check_size(array.shape, where)
        if math.isnan(array.shape[1]):
            raise InvalidInputError(
                f"{where} has an unknown number of columns; call its compute_chunk_sizes() first."
            )
        self.where = where
        self.dtype: np.dtype | None = np.dtype(array.dtype)
        self.n_columns: int = int(array.shape[1])
        self.lengths: list[int | None] = [None if math.isnan(rows) else int(rows) for rows in array.chunks[0]]
        self.least_rows: int = max((length or 1 for length in self.lengths), default=1)
        copies = 4  # read, decoded and sliced by the graph, and as columns
        self.row_bytes: float = float(copies * self.dtype.itemsize * self.n_columns)
        self._computed = _Computed(lambda part: array.blocks[part], len(self.lengths))
        self._is_plain = self.dtype.kind in "biuf" and type(array._meta) is np.ndarray

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_index": None}  # which workers do not read

    @property
    def held_bytes(self) -> int:
        """The largest chunk, computed and yielded."""
        return int(self.least_rows * self.row_bytes / 2)

    @property
    def workers(self) -> Callable[[Place], DaskWorkers | None] | None:
        """Returns the workers that share a folder; None unless the chunks are plain numbers."""
        return DaskWorkers.sharing if self._is_plain else None

    def on_workers(self, workers: DaskWorkers, task: Callable[[Table], T]) -> Iterator[T]:
        """Yield what a task makes of the table of each chunk, where it is computed and kept."""
        check = partial(_of_chunk, self.where, self.n_columns, self.lengths, task)
        for part, (n_rows, found) in enumerate(self._computed.on_workers(workers, check)):
            self.lengths[part] = n_rows
            yield found

    def load(
        self,
        part: int,
        rows: int,  # noqa: ARG002 - a chunk comes whole
        columns: Sequence[int] | None,  # noqa: ARG002 - a matrix comes whole
    ) -> Iterator[Rows]:
        """Compute one chunk of rows."""
        yield _checked(self._computed.read(part), part, self.where, self.n_columns, self.lengths)


def _checked(found: Any, part: int, where: str, n_columns: int, lengths: Sequence[int | None]) -> np.ndarray:
    """Return a chunk as an array; refuse one of another shape than it is declared to have."""
    chunk, n_rows = np.asanyarray(found), lengths[part]
    declared = (len(chunk) if n_rows is None else n_rows), n_columns
    if chunk.shape != declared:
        raise InvalidInputError(
            f"{where}: chunk {part} of the dask array has shape {chunk.shape} where {declared} is "
            "declared; correct the shape given to from_delayed or the chunks given to map_blocks."
        )
    return chunk


def _of_chunk(
    where: str,
    n_columns: int,
    lengths: Sequence[int | None],
    task: Callable[[Table], T],
    part: int,
    found: Any,
) -> tuple[int, T]:
    """Return the number of rows of a chunk, and what a task makes of their table."""
    chunk = _checked(found, part, where, n_columns, lengths)
    if chunk.dtype.kind not in "biuf" or type(chunk) is not np.ndarray:
        raise InvalidInputError(
            f"{where}: chunk {part} of the dask array is a {type(chunk).__name__} of {chunk.dtype} where "
            "an array of numbers is declared; pass its meta= to from_delayed or map_blocks."
        )
    return len(chunk), task(ArrayTable(chunk, where))


class DaskFrameTable(PartedTable):
    """A dask dataframe, computed one partition at a time: its columns, or its index as the only one."""

    def __init__(self, frame: Any, where: str, *, index_of: _Computed | None = None) -> None:
        self.where: str = where
        of_index = index_of is not None
        name = "index" if frame.index.name is None else frame.index.name
        self.names: list[str] | None = as_names([name] if of_index else frame.columns)
        self._of_index = of_index
        self.n_columns: int = len(self.names)
        self._frame = frame
        # optimized as a whole: partitions that are fused, as of several files, have no graphs of their own
        parts = [] if of_index else frame.to_delayed()
        self._computed: _Computed = index_of or _Computed(parts.__getitem__, len(parts))
        self.lengths: list[int | None] = [None] * self._computed.n_parts
        self.row_bytes: float = 16.0 * self.n_columns

    def load(self, part: int, rows: int, columns: Sequence[int] | None) -> Iterator[Rows]:
        """Compute one partition."""
        frame = self._computed.read(part)
        frame = index_frame(frame.index, self.where) if self._of_index else frame
        yield from PandasTable(frame, self.where).blocks(rows, columns=columns)

    @property
    def is_named(self) -> bool:  # type: ignore[override]
        """Whether the index has a name or text; other numbers are those that dask gives to rows."""
        index = self._frame.index
        return not self._of_index and (index.name is not None or index.dtype.kind not in "iu")

    @property
    def index(self) -> Table:
        """The index, which is read as the ids only."""
        return DaskFrameTable(self._frame, self.where, index_of=self._computed)


class ColumnsTable(SlicedTable):
    """One ``(n_rows,)`` array or .npy file per column."""

    def __init__(
        self, columns: Sequence[Any], n_rows: int, names: list[str] | None = None, ids: Ids | None = None
    ) -> None:
        super().__init__("labels", (n_rows, len(columns)), names, column_bytes=8.0)
        self._columns = columns
        self.ids: Ids | None = ids
        for index in range(self.n_columns):
            self._open(index)

    def slice(self, start: int, stop: int, columns: Sequence[int]) -> Rows:
        """Return some rows as columns."""
        parts = []
        for c in columns:
            parts.append(np.array(self._open(c)[start:stop]))
            release_pages(self._columns[c])
        return parts

    def _open(self, index: int) -> np.ndarray:
        """Return the column as an array; a file is memory-mapped and closed with the array."""
        column = self._columns[index]
        if isinstance(column, (str, os.PathLike)):
            column = map_npy(Path(column))
        column = np.asarray(column)
        if column.shape != (self.n_rows,):
            raise InvalidInputError(
                f"column {index} has shape {column.shape} but n_objects={self.n_rows}; "
                f"pass one label per object, shape ({self.n_rows},)."
            )
        return column


class EnsembleTable(SlicedTable):
    """An ensemble, read with its original label values."""

    def __init__(self, ensemble: Any, where: str) -> None:
        super().__init__(where, ensemble.shape, list(ensemble.names), column_bytes=8.0)
        self.least_rows: int = ensemble.chunk_rows
        self.ids: Ids | None = ensemble.id_column
        self.rules: Sequence[MissingRule] | None = [rule_of_values(values) for values in ensemble.categories]
        self._ensemble = ensemble

    def slice(self, start: int, stop: int, columns: Sequence[int]) -> Rows:
        """Return some rows as columns."""
        codes = np.ascontiguousarray(self._ensemble.read(start, stop).T)
        values = self._ensemble.categories
        return [values_of(codes[c], values[c]) for c in columns]


class HardenedTable(SlicedTable):
    """The largest membership in each partition of an ensemble of soft clusterings, -1 where missing."""

    def __init__(self, ensemble: Any) -> None:
        super().__init__("memberships", ensemble.shape, list(ensemble.names), column_bytes=8.0)
        self.dtype: np.dtype | None = np.dtype(np.int64)
        self.least_rows: int = ensemble.chunk_rows
        self.row_bytes: float = self.row_bytes + 2.0 * ensemble.row_bytes
        self.ids: Ids | None = ensemble.id_column
        self._ensemble = ensemble

    def slice(self, start: int, stop: int, columns: Sequence[int]) -> Rows:  # noqa: ARG002 - a matrix
        """Return labels as a matrix."""
        memberships = self._ensemble.read(start, stop)
        labels = np.empty((stop - start, self.n_columns), np.int64)
        for u, (left, right) in enumerate(pairwise(self._ensemble.offsets)):
            own = memberships[:, left:right]
            labels[:, u] = np.where(own.any(axis=1), own.argmax(axis=1), -1)
        return labels


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
