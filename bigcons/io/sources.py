"""Sources: names of columns, batches of rows, and ids. All data of a user are opened as a source.

A batch is a matrix of numpy or SciPy, or the list of its columns, of numpy or Arrow. pandas, polars, dask,
Arrow and AnnData are known by the module of their types or by what they offer, so none is imported here.
Pickles are never loaded.
"""

from __future__ import annotations

import copy
import csv
import glob
import io
import json
import math
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, islice
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons import errors
from bigcons.disk.arrays import METADATA, ZarrArray
from bigcons.disk.commit import PARQUET, head_of, is_store, names_parquet, stores_of_run
from bigcons.disk.files import READ_AHEAD, Place, StorePath, check_file, decoding, open_file
from bigcons.disk.places import DiskPlace, place_of
from bigcons.errors import InvalidInputError, first_line, nearest
from bigcons.io.columns import (
    DEFAULT_RULE,
    INDEX,
    MISSING_WORDS,
    NONE_MISSING,
    Ids,
    MissingRule,
    Selection,
    choose,
    is_index,
    loose_number,
    missing_rule,
    options_of,
    source_of,
)
from bigcons.validation import check_path

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.disk.buckets import BucketPlace

    File = Path | BucketPlace
    """A file or folder, on a disk or in a bucket."""

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
    is_text
        Whether numbers are written as text.
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
    is_raw, may_be_other
        Whether a user gave these labels, not an ensemble, and whether their rows may be no objects.
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
    text: Source | None = None
    index: Source | None = None
    is_named: bool = False
    ids: Ids | None = None
    rule: MissingRule = DEFAULT_RULE
    categorical: frozenset[int] = frozenset()
    is_raw: bool = False
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
        return None if None in self.lengths else sum(self.lengths)  # type: ignore[arg-type]

    def most_rows(self, n_read: int, at_most: int) -> int:
        """Return the number of rows, if it is unknown ``n_read``; above ``at_most``, all are counted."""
        for _ in self.batches(n_read, columns=[0]) if self.n_rows is None and n_read > at_most else ():
            pass
        return self.n_rows or n_read

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
            span = max(start - begin, 0), min(end - begin, sys.maxsize if length is None else length)
            n_rows, at_once = 0, max(rows, self.least_rows)
            if length is None or span[0] < length:
                for first, batch in self.load(part, rows, positions, *span):
                    n_rows = first + count_rows(batch)
                    if length is not None and n_rows > length:
                        break
                    low, high = max(span[0] - first, 0), min(span[1], n_rows) - first
                    for cut in range(low, high, at_once):
                        last = min(cut + at_once, high)
                        if isinstance(batch, list):
                            yield [column[cut:last] for column in batch]
                        else:
                            yield batch if last - cut == batch.shape[0] else batch[cut:last]
                    del batch  # before the next one is made
                    if n_rows >= span[1]:
                        break
                else:
                    length = n_rows if length is None else length
                    self.lengths[part] = length
                if length is not None and positions and not min(span[1], length) <= n_rows <= length:
                    raise InvalidInputError(
                        f"{self.where} has {n_rows:,} rows where {length:,} are declared or were before; "
                        "pass rows that do not change."
                    )
            if length is None:
                return  # the end is in this part
            begin += length

    def selected(self, columns: Sequence[int]) -> Source:
        """Return some columns of the source, in this order."""
        selection = copy.copy(self)
        selection.positions = [self.positions[c] for c in columns]
        selection.n_columns = len(columns)
        selection.names = None if self.names is None else [self.names[c] for c in columns]
        selection.categorical = frozenset(place for place, c in enumerate(columns) if c in self.categorical)
        selection.text = None if self.text is None else self.text.selected(columns)
        selection.n_read = self.n_read if self.dtype is not None else len(columns)
        return selection

    def column_types(self) -> list[pa.DataType] | None:
        """Return the Arrow types of the columns; None for arrays."""
        types = None if self.types is None else self.types()
        return None if types is None else [types[position] for position in self.positions]


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


def with_index(source: Source, column: int | None) -> Source:
    """Return a source without ``column``, which has the names of its rows."""
    if column is None:
        return source
    table = source.selected([c for c in range(source.n_columns) if c != column])
    table.index, table.is_named = (source.text or source).selected([column]), True
    if not table.index.names or not table.index.names[0] or _INDEX_NAME.fullmatch(table.index.names[0]):
        table.index.names = [INDEX]
    return table


@contextmanager
def _converted(fault: str, remedy: str = "convert each column to numbers or text") -> Iterator[None]:
    """Raise InvalidInputError, with this ``fault``, for an error of Arrow or NumPy."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(f"{fault} ({first_line(error)}); {remedy}.") from None


# Arrays


def check_matrix(shape: Sequence[float], where: str) -> None:
    """Raise InvalidInputError unless an array is a matrix that may be meant."""
    if len(shape) != 2 or shape[0] > 1 << 40 or shape[1] > 1 << 24:
        raise InvalidInputError(
            f"{where} has {len(shape)} dimension(s), {tuple(shape)}; pass one row per object. "
            "Reshape your data."  # which scikit-learn looks for
        )


def array_source(array: Any, where: str, shape: Sequence[int] | None = None) -> Source:
    """Return any matrix that can be sliced by rows: numpy, a memory map, Zarr, HDF5, or sparse of SciPy.

    One of another ``shape`` is reshaped.
    """
    dtype, chunks, sparse = np.dtype(array.dtype), getattr(array, "chunks", None), is_sparse(array)
    if dtype.names:
        raise InvalidInputError(f"{where} is an array of records; pass pandas.DataFrame(x).")
    attributes = getattr(array, "attrs", {})
    fill = attributes.get("missing_value", attributes.get("_FillValue", np.nan))
    if str(fill) not in ("nan", "[nan]", "AAAAAAAA+H8="):  # as xarray writes NaN
        raise InvalidInputError(f"{where} has {fill} where a value is missing; pass the array of xarray.")
    check_matrix(shape := shape or array.shape, where)
    n_rows, width = shape
    column_bytes = (3.0 if chunks else 2.0) * dtype.itemsize  # as decoded, as read, as columns
    if sparse:
        array = array.tocsr() if hasattr(array, "tocsr") else array
        n_values = max(n_rows * width, 1)
        column_bytes = 16.0 * getattr(array, "nnz", n_values) / n_values

    def read(start: int, stop: int, columns: Sequence[int]) -> Rows:
        rows = array[start:stop]
        if sparse:
            from scipy.sparse import csr_array

            rows = csr_array(rows)
            rows.sum_duplicates()
        else:
            rows = np.asanyarray(rows).reshape(len(rows), width)  # keeps masks
        return rows if list(columns) == list(range(width)) else rows[:, list(columns)]

    least_rows = int(np.max(chunks[0])) if chunks else 1
    source = Source(where, None, width, [n_rows], sliced(read, least_rows), column_bytes)
    source.dtype, source.least_rows, source.is_sparse = dtype, least_rows, sparse
    return source


def is_sparse(x: Any) -> bool:
    """Return whether ``x`` is a sparse matrix of scipy, or rows of one that an AnnData keeps on a disk."""
    return type(x).__module__.startswith("scipy.") or (hasattr(x, "format") and hasattr(x, "dtype"))


def rows_source(rows: Sequence[Any], role: str) -> Source:
    """Return the source of a list of rows of equal length."""
    try:
        matrix = np.asarray(rows, object if role == "labels" else None)  # numbers and text stay so
    except ValueError:  # rows of several lengths
        matrix = np.empty(0)
    if matrix.ndim != 2:
        raise InvalidInputError(
            f"{role} is a list, but not a matrix; pass a list of values for each object, and of communities, "
            "which are sets of objects, pandas.Series({v: c for c, vs in enumerate(x) for v in vs})."
        )
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
        if isinstance(series.dtype, np.dtype) or hasattr(series.array, "to_dense"):
            return series.to_numpy()
        with _converted(f"column {str(series.name)!r} of {where} has type {series.dtype}"):
            return pa.array(series, from_pandas=True)

    def types() -> Sequence[pa.DataType]:
        """Return the Arrow types; those of objects are inferred from the values."""
        kinds = []
        for name, series in frame.items():
            with _converted(f"{where} has mixed types in {str(name)!r}"):
                kinds.append(pa.array(column(series), from_pandas=True).type)
        return kinds

    load = sliced(lambda start, stop, places: [column(frame.iloc[start:stop, c]) for c in places])
    source = Source(where, frame.columns, frame.shape[1], [len(frame)], load, types=types)
    index, name = frame.index, INDEX if frame.index.name is None else frame.index.name
    load = sliced(lambda start, stop, _: [column(index_frame(index[start:stop], where).iloc[:, 0])])
    source.index = Source(where, [name], 1, [len(frame)], load)
    source.is_named = not frame.iloc[:, :0].reset_index(drop=True).index.equals(index)  # not 0, 1, ...
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


def _pandas_list(schema: pa.Schema, key: str) -> list[Any]:
    """Return a list of the metadata of pandas; empty without metadata, or if others use the name."""
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        stored = json.loads((schema.metadata or {})[b"pandas"])[key]
        return stored if isinstance(stored, list) else []
    return []


def pandas_index(schema: pa.Schema) -> int | None:
    """Return the position of the column that was the index of a data frame; None if none was."""
    names = [name for name in _pandas_list(schema, "index_columns") if isinstance(name, str)]
    names = [name for name in names if name in schema.names]
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
    if kind == "Delayed" or getattr(collection, "ndim", 0) != 2:  # a Delayed has any attribute
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
        data = parts[part].compute()
        source = array_source(np.asanyarray(data), where) if is_array else frame_source(data, where)
        source = source.index if of_index and source.index is not None else source
        yield from source.load(0, rows, columns, 0, source.n_rows or 0)

    result = Source(where, names, width, lengths, load)
    if is_array:
        result.dtype = np.dtype(collection.dtype)
        result.column_bytes = 4.0 * result.dtype.itemsize  # values read, decoded, sliced and in columns
        most_rows = max((length or 1 for length in lengths), default=1)
        result.fixed_bytes = int(most_rows * result.row_bytes / 2)
        return result
    result.types = frame_source(collection._meta_nonempty, where).types
    index = collection.index
    result.index = Source(where, [index.name or INDEX], 1, lengths, partial(load, of_index=True))
    # dask gives numbers to rows without names
    result.is_named = index.name is not None or index.dtype.kind not in "iu"
    return result


# Files

IN_MEMORY = "in memory"

_COMPRESSED = {"": None, ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_TABS = tuple(f".tsv{suffix}" for suffix in _COMPRESSED)
_CSV = (*(f".csv{suffix}" for suffix in _COMPRESSED), *_TABS)
KNOWN = ".npy, .csv, .tsv (or either with .gz, .bz2 or .zst), .parquet, .h5ad or .zarr (version 3)"
"""What files may be, in words."""

_NO_TEXT = (b"PK\3\4", b"<!DOCTYPE", b"<html", b"<?xml", b'[{"', b'{"', b"version https://git-lfs")
"""How files begin that are no CSV, but that the reader of CSV would take for such."""


# Paths


def file_of(path: StorePath | File) -> File:
    """Return the file or folder at a path, as it is given, or at a URL."""
    location: Any = path
    place: Any = place_of(path)
    return Path(check_path(location)) if isinstance(place, DiskPlace) else place


def open_path(source: StorePath | File, role: str, choice: Selection) -> Source:
    """Return the source of the file, folder, pattern or Zarr array at a path or URL."""
    place, path = place_of(source), file_of(source)
    name = path.name.lower()
    if is_store(place):
        raise InvalidInputError(f"{place} is a store of bigcons, no table of {role}; pass tables without it.")
    if (place / METADATA).is_file():
        array = ZarrArray(place)
        return array_source(array, str(place), (*array.shape, 1)[:2])
    refuse_missing(place)
    if role == "pairs" or name.endswith(".npy"):
        refuse_bucket(path)
    if not place.exists():
        return open_files(matching(place), role, choice, str(place))
    if path.is_dir():
        if files := _files_in(path):
            return open_files(files, role, choice, str(path))
        remedy = " or ".join(stores_of_run(place, "ensemble")) or "files, a pattern, or zarr.open_array(x)"
        raise InvalidInputError(
            f"{path} is a folder without tables of its own, or a Zarr array of version 2; pass {remedy}."
        )
    if isinstance(path, Path) and name.endswith(".npy"):
        return _open_npy(path)
    if name.endswith(PARQUET):
        return parquet_source(path)
    if name.endswith(_CSV) or choice.sep is not None:
        return csv_source(path, str(path), role, choice)
    raise InvalidInputError(f"{path} has suffix {path.suffix!r}; use {KNOWN}, or name sep= (--sep) for text.")


def open_files(paths: Sequence[File], role: str, choice: Selection, where: str | None = None) -> Source:
    """Return the source of the rows of several files, one after another."""
    if not paths:
        raise errors.StoreNotFoundError(f"no file matches {where}; check the path.", path=where)
    local = [path if path.is_dir() else path.parent for path in paths if isinstance(path, Path)]
    folders = sorted({folder for path in local for folder in (path, path.parent)})
    for folder in {parent for path in local for parent in (path, *path.parents)}:
        logs = ("_delta_log", ".hoodie", "metadata/*.metadata.json")
        _refuse_logs(folder, {log.partition("/")[0] for log in logs if any(folder.glob(log))})
    if len(matches := [folder for folder in folders if "=" in folder.name]) > 1:
        raise InvalidInputError(
            f"{matches[0]} and {matches[1].name} are named by values of a column that is in none of their "
            "files; pass the data frame that pandas.read_parquet reads."
        )
    if len(paths) == 1:
        return open_path(paths[0], role, choice)
    source = joined([open_path(path, role, choice) for path in paths], where)
    if role == "labels" and (source.n_columns == 1 or source.names is None):
        raise InvalidInputError(
            f"{source.where} has {len(paths)} files of one column, or without names; pass them to Ensemble."
            "from_runs([...]) (bigcons import --runs) if each is a partition, else one file of all rows."
        )
    return source


def refuse_bucket(path: StorePath | File) -> None:
    """Raise InvalidInputError for a URL of data that are read from a disk only."""
    if not isinstance(place := place_of(path), DiskPlace):
        raise InvalidInputError(f"{place} cannot be read from a bucket; copy it, or use Parquet.")


def refuse_missing(path: StorePath | Place) -> None:
    """Raise StoreNotFoundError for a path where nothing is and that is no pattern."""
    place = place_of(path)
    if not place.exists() and not glob.has_magic(str(place)):
        files = place.path.parent.glob("*") if isinstance(place, DiskPlace) else ()
        hint = f" Did you mean {near}?" if (near := nearest(place.name, (f.name for f in files))) else ""
        raise errors.StoreNotFoundError(f"{place} does not exist; check the path.{hint}", path=place)


def refuse_inputs(out: Any, *inputs: Any) -> None:
    """Raise InvalidInputError for an output that is, contains or lies within an input, also through links.

    An input is what `open_source` takes, or a store; an output lies within a pattern that matches it. What is
    no path, such as a stream or data in memory, is neither.
    """
    if not isinstance(out, (str, os.PathLike)):
        return
    target = _resolved(out)
    for x in map(source_of, inputs):
        place = x.path if hasattr(x, "id_column") else x
        if isinstance(place, (list, tuple, Mapping)):
            parts = place.values() if isinstance(place, Mapping) else place
            refuse_inputs(out, *(part for part in parts if not isinstance(part, (list, tuple))))
        if not isinstance(place, (str, os.PathLike)):
            continue
        source, verb = _resolved(place), ""
        pattern = str(source)
        is_matched = any(path.match(pattern) for path in (target, *target.parents))
        if "**" in source.parts:
            is_matched = fnmatchcase(str(target), pattern.replace("**/", "*"))
        if source.is_relative_to(target):
            verb = "is" if source == target else "contains"
        elif target.is_relative_to(source) or is_matched:
            verb = "lies within"
        if verb:
            raise InvalidInputError(
                f"the output {out} {verb} the input {place}, which it would change; choose another path.",
                parameter="out",
            )


def _resolved(path: StorePath) -> PurePath:
    """Return where a path or URL leads, through links."""
    place = place_of(path)
    return Path(os.path.realpath(place.path)) if isinstance(place, DiskPlace) else PurePosixPath(str(place))


def matching(place: Place) -> list[File]:
    """Return the files that match a pattern: in a bucket of one folder."""
    if isinstance(place, DiskPlace):
        files: Any = map(Path, glob.iglob(str(place), recursive=True))  # noqa: PTH207 - may begin anywhere
    else:
        names = place.sibling("").names()
        files = (place.sibling(name) for name in names if fnmatchcase(name, place.name))
    return sorted(files, key=_natural_order)


def _files_in(folder: File) -> list[File]:
    """Return the files of a folder that have a table, of Parquet or of text; raises for both."""
    files = [*folder.iterdir()]
    names = {path.name for path in files}
    files = [path for path in files if not path.name.startswith((".", "_"))]  # as other readers
    parquet, text = ([p for p in files if p.name.lower().endswith(ends)] for ends in (PARQUET, _CSV))
    _refuse_logs(folder, names if not (parquet or text) else names - {"metadata"})
    if parquet and text:
        raise InvalidInputError(f"{folder} has files of Parquet and of text; pass '{folder}/*.csv'.")
    return sorted(parquet or text, key=_natural_order)


def _refuse_logs(folder: File, names: set[str]) -> None:
    """Raise InvalidInputError for a folder with ``names`` of which a log says which files count."""
    for log, kind in (("_delta_log", "Delta Lake"), (".hoodie", "Hudi"), ("metadata", "Iceberg")):
        if log in names:
            fault = f"{folder} is a table of {kind}, in which not all files count"
            raise InvalidInputError(f"{fault}; pass the data frame that its own library reads.")


def _natural_order(path: File) -> tuple[list[tuple[int, str]], str]:
    """Sort ``part.10`` after ``part.9``."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts], path.name


def is_parquet(path: StorePath) -> bool:
    """Return whether ``path`` is a file of this suffix, or a folder of such, but no store of bigcons."""
    place = place_of(path)
    if not isinstance(place, DiskPlace) or is_store(place):
        return False
    return names_parquet(path) if place.is_file() else any(n.endswith(".parquet") for n in place.names())


def is_list_of_paths(x: Any) -> bool:
    """Return whether ``x`` is a list of paths to tables."""
    suffixes = (*PARQUET, *_CSV, ".npy", ".zarr", ".h5ad")
    are_paths = isinstance(x, (list, tuple)) and all(isinstance(p, (str, os.PathLike)) for p in x)
    return are_paths and any(not isinstance(p, str) or p.lower().endswith(suffixes) for p in x)


# Provenance


def describe(source: Any) -> str:
    """Return in words what a table is made of: paths, or the type of what is in memory."""
    source = source_of(source)
    if is_list_of_paths(source):
        return ", ".join(map(describe, source))
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else type(source).__name__


def origin(source: Any) -> str:
    """Return the paths that a table is read from, or "in memory"."""
    is_read = isinstance(held := source_of(source), (str, os.PathLike)) or is_list_of_paths(held)
    return describe(source) if is_read else IN_MEMORY


def provenance_of_files(source: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance of what is made of a table: its source, its ``options``, and its version.

    The version of a file, of the files of a folder or a pattern, or of several, tells whether they have
    changed: it is a checksum of their names, sizes and times of change.
    Other sources have none.
    """
    if isinstance(source, Selection):
        options, source = {"sep": source.sep, **options}, source.source
    plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in options.items()}
    texts = {name: str(value) for name, value in plain.items() if value is not None}
    provenance: dict[str, Any] = {"source": describe(source), "options": texts}
    versions = [_versions_of(path) for path in (source if isinstance(source, (list, tuple)) else [source])]
    if versions and all(versions):
        provenance["version"] = f"{zlib.crc32(repr(list(chain(*versions))).encode()):08x}"
    return provenance


def _versions_of(source: Any) -> list[Any]:
    """Return what tells whether the files at a path have changed; nothing without files there."""
    source = source_of(source)
    if not isinstance(source, (str, os.PathLike)):
        return []
    place, path = place_of(source), file_of(source)
    if path.is_file():
        files = [path]
    elif not place.exists():
        files = matching(place)
    else:
        files = [file_of(str(head_of(place)))] if is_store(place) else _files_in(path)
        if isinstance(path, Path) and not files:
            files = [*sorted(file for file in path.rglob("*") if file.is_file())]
    if not all(file.is_file() for file in files):
        return []
    return [(str(file), place_of(file).stamp()) for file in files]


# Arrays


def _open_npy(path: Path) -> Source:
    """Return the source of a ``.npy``, of which a one-dimensional array is one column.

    It is read, not memory-mapped, because a map counts as memory, and ends the process if the file is cut.
    """
    check_file(path)
    with reading(path, ".npy of numbers or fixed-width text (pickles are never loaded)"):
        try:
            header = np.lib.format.open_memmap(path, mode="r")
        except MemoryError:  # of the parser
            raise ValueError("its head is none") from None
        if not header.dtype.itemsize:
            raise ValueError("its type holds nothing")
    source = array_source(header.reshape(-1, 1) if header.ndim == 1 else header, str(path))
    n_rows, width, dtype, begin = len(header), source.n_columns, header.dtype, header.offset
    by_columns = not header.flags.c_contiguous
    del header

    def values(first: int, count: int) -> np.ndarray:
        values = np.fromfile(path, dtype, count, offset=begin + first * dtype.itemsize)
        if len(values) < count:
            raise InvalidInputError(f"{path} is truncated; write the file again.")
        return values

    def read(start: int, stop: int, columns: Sequence[int]) -> Rows:
        if by_columns:
            return np.stack([values(c * n_rows + start, stop - start) for c in columns], axis=1)
        rows = values(start * width, (stop - start) * width).reshape(stop - start, width)
        return rows if list(columns) == list(range(width)) else rows[:, list(columns)]

    source.load = sliced(read)
    return source


# Text


def csv_source(path: File, where: str, role: str, choice: Selection) -> Source:
    """Return values separated by commas or tabs, plain or compressed, read as a stream.

    Labels are read as text, each cell as it is; otherwise column types are inferred from the first megabyte,
    and whole numbers are read as floats, except of pairs. Seeking parses all rows before.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow

    separator = choice.sep or ("\t" if path.name.lower().endswith(_TABS) else ",")
    with reading(where, "CSV"):
        names, width, n_skipped = _head_of(path, where, separator, choice)
    places = [str(c) for c in range(width)]

    def open_text(types: Sequence[Any], columns: Sequence[int], extras: Any = (), *, as_text: bool) -> Any:
        missing = [*MISSING_WORDS, *missing_rule(choice.missing).more_words]
        if as_text:  # an empty line of a single column may be an object without a value
            missing = [""] if width == 1 else []
        use_threads = not as_text and role != "pairs"
        layout = {"block_size": 1 << 20, "column_names": places, "skip_rows": n_skipped}
        return arrow.open_csv(
            _content_of(path),
            read_options=arrow.ReadOptions(use_threads=use_threads, **layout),
            parse_options=arrow.ParseOptions(
                delimiter=separator, ignore_empty_lines=width > 1, newlines_in_values=True
            ),
            convert_options=arrow.ConvertOptions(
                decimal_point=choice.decimal or ".",
                column_types=dict(zip(places, types, strict=False))
                | dict.fromkeys(extras, pa.large_binary()),
                null_values=missing,
                strings_can_be_null=True,
                quoted_strings_can_be_null=not as_text,
                include_columns=[*(places[c] for c in columns), *extras],
            ),
        )

    def source_of(types: Sequence[pa.DataType], *, as_text: bool) -> Source:
        def load(_: int, __: int, columns: Sequence[int], *___: int) -> Iterator[tuple[int, Rows]]:
            first, is_new = 0, table.lengths[0] is None  # and its other columns may have quotes without end
            extras = [places[c] for c in range(width) if is_new and c not in columns]
            with reading(where, "CSV"), open_text(types, columns, extras, as_text=as_text) as batches:
                for batch in batches:
                    texts = [c for c in batch.columns if c.type in (pa.large_string(), pa.large_binary())]
                    if any(pc.any(pc.match_substring(column, "\0")).as_py() for column in texts):
                        raise InvalidInputError(f"{where} has NUL bytes, as after a crash; write it again.")
                    for column in texts:
                        cells = column.filter(pc.match_substring(column, "\n")).cast(pa.large_binary())
                        if hits := [c for c in cells.to_pylist() if c.count(separator.encode()) >= width - 1]:
                            raise InvalidInputError(
                                f"{where} has a cell of several lines, {str(hits[0][:40])[1:]}, as after a "
                                "quote that is not closed; close it, or take the line breaks out."
                            )
                    if as_text and width == 1 and batch.columns[0].null_count:
                        row = first + batch.columns[0].is_null().index(True).as_py()
                        raise InvalidInputError(
                            f'{where} has an empty line in place of row {row} (from 0); write NA or "" '
                            "there, or delete it."
                        )
                    yield first, batch.columns[: len(columns)]
                    first += batch.num_rows

        table = Source(where, names, width, [None], load, 64.0, types=lambda: types)
        table.is_text = as_text
        # measured: the threaded reader is about 32 blocks ahead
        table.fixed_bytes = 0 if as_text or role == "pairs" else 64 << 20
        return table

    source = text = source_of([pa.large_string()] * width, as_text=True)
    if role != "labels":
        with reading(where, "CSV"), open_text([], range(width), as_text=False) as batches:
            types = batches.schema.types
        number = pa.int64() if role == "pairs" else pa.float64()  # whole ones may have fractions further down
        types = [number if pa.types.is_integer(t) or pa.types.is_null(t) else t for t in types]
        source = source_of([pa.large_string() if t == pa.string() else t for t in types], as_text=False)
        source.text = text
    return with_index(source, 0 if names is not None and names[0] == "" else None)


@contextmanager
def reading(where: object, kind: str) -> Iterator[None]:
    """Raise DamagedFileError, with the path before the reason, for a file that is not of its kind."""

    def broken(reason: str) -> Exception:
        remedy = "write it again"
        if "conversion error" in reason:
            remedy = "name in missing= of bigcons.select (--missing) what stands for no value, else fix it"
        elif "UTF8" in reason or "codec can't decode" in reason:
            remedy = "write it in UTF-8, as iconv -t UTF-8 does"
        return errors.DamagedFileError(f"{where} cannot be read as {kind} ({reason}); {remedy}.", path=where)

    with decoding(broken):
        yield


def _content_of(path: File) -> Any:
    """Return the content of a file as a stream, decompressed by its suffix."""
    import pyarrow as pa

    if isinstance(path, Path):
        check_file(path)
    content = path if isinstance(path, Path) else path.open("rb")
    return pa.input_stream(content, compression=_COMPRESSED.get(path.suffix.lower()))


def _head_of(path: File, where: str, separator: str, choice: Selection) -> tuple[list[str] | None, int, int]:
    """Return names and number of columns, and the lines that are skipped, as the first two lines say.

    The first column may have no name, "", if it has the names of the rows. A first line with a number may be
    an object as well: it is refused unless ``choice`` says what it is.
    """
    with _content_of(path) as content:
        head = content.read(1 << 23)
    if head.removeprefix(b"\xef\xbb\xbf").startswith(_NO_TEXT) or b"\0" in head[: 1 << 16]:
        raise InvalidInputError(
            f"{where} is no CSV, but begins with {head[:12]!r} or has NUL bytes; get or save it as CSV."
        )
    end = head.rfind(b"\n") + 1
    reader = csv.reader(io.StringIO(head[: end or None].decode("utf-8-sig"), newline=""), delimiter=separator)
    lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in islice(filter(None, reader), 2)]
    if not lines:
        raise InvalidInputError(f"{where} is empty; write one line per object.")
    (n_first, names), (_, second) = lines[0], lines[-1]
    marks = [mark for mark in ";\t|, :" if mark in names[0] and mark in "".join(second)]
    marks = marks if len(names) == 1 and choice.sep is None else []
    if marks and (marks[0] != " " or loose_number(second[0].split()[0]) is not None):
        raise InvalidInputError(
            f"{where} begins with {names[0][:40]!r}, of which {marks[0]!r} may separate columns; pass "
            f"sep={marks[0]!r} of bigcons.select (--sep {marks[0]!r}), or another."
        )
    if choice.header is False:
        return None, len(names), 0
    has_rows = names[0] == "" and len(second) > 1 and loose_number(second[0]) is None
    has_numbers = any(loose_number(name) is not None for name in names) and not has_rows
    if choice.header is None and (has_numbers or all(name in MISSING_WORDS for name in names)):
        raise InvalidInputError(
            f"{where} begins with the line {','.join(names)[:60]}, which may be a header or an object; pass "
            "header=True (--header) if it has names, header=False (--no-header) if it has values."
        )
    if "" in names[1:] or len(second) != len(names):
        raise InvalidInputError(
            f"{where} has a header of {len(names)} columns, one without a name, or not the {len(second)} of "
            "the next line; name all but the one with the names of rows, or pass header=False (--no-header)."
        )
    return names, len(names), n_first


# Many files


def joined(sources: Sequence[Source], where: str | None = None) -> Source:
    """Return the rows of several sources of the same columns, one after another."""
    first = sources[0]
    for source in sources:
        is_same = (source.names, source.n_columns) == (first.names, first.n_columns)
        if not is_same or (source.index is None) != (first.index is None):
            raise InvalidInputError(
                f"{source.where} has other columns than {Path(first.where).name}, or another order; write "
                "all alike, or pass them to Ensemble.from_runs([...]) (--runs) if each is a partition."
            )

    def load(
        part: int, rows: int, columns: Sequence[int], start: int, stop: int
    ) -> Iterator[tuple[int, Rows]]:
        source = sources[part]
        first = 0 if source.n_rows is None else start
        for batch in source.batches(rows, first, stop, columns):
            yield first, batch
            first += count_rows(batch)

    where = where or f"{first.where} and {len(sources) - 1} more"
    lengths = [source.n_rows for source in sources]
    table = Source(where, first.names, first.n_columns, lengths, load, max(s.column_bytes for s in sources))
    table.types = None if any(s.types is None for s in sources) else lambda: first.column_types() or []
    table.is_text, table.is_named = first.is_text, first.is_named
    table.fixed_bytes = max(source.held_bytes for source in sources)
    for name in ("text", "index"):
        if None not in (parts := [getattr(source, name) for source in sources]):
            setattr(table, name, joined(parts, where))
    return table


# Parquet


def parquet_source(path: File) -> Source:
    """Return a Parquet file, of which row groups outside the rows that are wanted are not read."""
    with _parquet(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
        columns = [[group.column(c) for c in range(group.num_columns)] for group in groups]
    # pages compressed, decompressed and decoded: of data and a dictionary, usually a megabyte each
    n_bytes = [sum(min(3 * int(c.total_uncompressed_size), 5 << 19) for c in group) for group in columns]
    if not isinstance(path, Path):
        buffers = [sum(min(int(c.total_compressed_size), 1 << 20) for c in group) for group in columns]
        n_bytes = [READ_AHEAD + sum(sizes) for sizes in zip(n_bytes, buffers, strict=True)]
    group_rows = [group.num_rows for group in groups]
    ends = np.cumsum(group_rows)

    def load(_: int, rows: int, places: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, Rows]]:
        numbers = np.flatnonzero((ends > start) & (ends - group_rows < stop)).tolist()
        first = int(ends[numbers[0]]) - group_rows[numbers[0]] if numbers else 0
        names = [schema.names[c] for c in places]
        with _parquet(path) as file:
            for batch in file.iter_batches(rows, row_groups=numbers, columns=names, use_threads=False):
                yield first, [batch.column(name) for name in names]
                first += batch.num_rows

    source = Source(str(path), schema.names, len(schema.names), [sum(group_rows)], load, 24.0)
    source.types, source.fixed_bytes = lambda: schema.types, max(n_bytes, default=0)
    notes = [column for column in _pandas_list(schema, "columns") if isinstance(column, dict)]
    names = [column.get("field_name") for column in notes if column.get("pandas_type") == "categorical"]
    source.categorical = frozenset(c for c, name in enumerate(schema.names) if name in names)
    return with_index(source, pandas_index(schema))


@contextmanager
def _parquet(path: File) -> Iterator[Any]:
    """Open a Parquet file; a small buffer streams column chunks instead of loading them."""
    from pyarrow import parquet

    if isinstance(path, Path):
        check_file(path)
    content, at_once = (path, 1 << 16) if isinstance(path, Path) else (path.open("rb", 0), 1 << 20)
    options: dict[str, Any] = {"pre_buffer": False, "page_checksum_verification": True}
    with reading(path, "Parquet"), parquet.ParquetFile(content, buffer_size=at_once, **options) as file:
        yield file


def footer_of(path: Path) -> bytes:
    """Return the metadata at the end of a Parquet file: schema, sizes and statistics of all its pages."""
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))  # of a file that was cut, there may be less
        n_bytes = int.from_bytes(file.read(4), "little") + 8
        file.seek(max(size - n_bytes, 0))
        return file.read()


# What a user holds


def open_source(
    x: Any, role: str, *, are_objects: bool = False, with_ids: bool = True, usual_id: str | None = None
) -> Source:
    """Return the data of a user as a source; ``role`` is "labels", "features", "memberships" or "pairs".

    ``x`` is anything that `Ensemble.from_labels` takes, or a result of `select`; paths may be URLs.

    ``are_objects``: the caller knows that rows are objects. Without ``with_ids``, names of rows are not read.
    ``usual_id`` is the name of the ids by default, where the source has such a column or index.

    Raises InvalidInputError for anything else, and for what can be read in two ways, and StoreNotFoundError
    for a missing file.
    """
    choice = x if isinstance(x, Selection) else Selection(x)
    data = choice.source
    are_paths = choice.sep is not None and isinstance(data, (list, tuple))  # of any suffix
    source = open_files([*map(file_of, data)], role, choice) if are_paths else _open(data, role, choice)
    is_ensemble = _is_ensemble(data)
    is_table = role in ("labels", "features") and not is_ensemble and not source.is_sparse
    is_of_text, has_features = source.is_text or source.text is not None, role == "features"
    has_effect = {"missing": is_table, "categorical": is_table and has_features, "header": is_of_text}
    has_effect |= {"sep": is_of_text, "decimal": is_of_text and has_features}
    for name in options_of(x):
        if not has_effect.get(name, True):
            subject = "an ensemble" if is_ensemble else f"{role} in {describe(data)}"
            raise InvalidInputError(f"{name}= has no effect on {subject}; leave it out.", parameter=name)
    if role == "pairs":  # whose columns are chosen by name
        return source
    if role == "labels" and source.where == "obs" and choice.columns is None:
        subject = "obs of an AnnData may have measurements, too; pass columns='leiden*' (--columns)."
        raise InvalidInputError(subject)
    if source.where == role == "labels" and isinstance(data, (list, tuple)) and not are_objects:
        n_rows, width = len(data), source.n_columns
        if n_rows < width or (n_rows and hasattr(data[0], "__array__")):
            raise InvalidInputError(
                f"labels is a list of {n_rows} rows of {width} labels; pass Ensemble.from_runs(x) if rows "
                "are partitions, numpy.array(x) if they are objects."
            )
    source.is_raw = role == "labels" and not is_ensemble and not isinstance(data, Source)
    source.may_be_other = source.is_raw and choice.columns is None and not are_objects
    usual = usual_id if choice.id is None and source.ids is None else None
    if usual is not None and (usual in (source.names or ()) or (source.is_named and is_index(source, usual))):
        choice = replace(choice, id=usual)
    return choose(source, choice, with_ids=with_ids)


def as_table(x: Any) -> Any:
    """Return a vector ``(n_objects,)`` of any kind as a table of one column, and anything else unchanged."""
    if hasattr(x, "nlevels"):  # an index of pandas
        return index_frame(x, "ids")
    if _is_column(x):
        import pyarrow as pa

        return x.to_frame() if hasattr(x, "to_frame") else pa.table({"label": x})
    if isinstance(x, (list, tuple)) and all(isinstance(v, str) or not hasattr(v, "__len__") for v in x):
        return np.array(x, object).reshape(-1, 1)
    return np.asanyarray(x).reshape(-1, 1) if len(getattr(x, "shape", ())) == 1 else x


def _open(x: Any, role: str, choice: Selection) -> Source:
    """Open data that are known by their type, or by their attributes."""
    package, name = type(x).__module__.partition(".")[0], type(x).__name__
    if isinstance(x, (Source, np.ndarray)):
        return x if isinstance(x, Source) else array_source(x, role)
    if isinstance(x, (str, os.PathLike)):
        is_anndata = os.fspath(x).lower().endswith(".h5ad")
        return _open_h5ad(x, role, choice) if is_anndata else open_path(x, role, choice)
    if is_list_of_paths(x):
        return open_files([*map(file_of, x)], role, choice)
    if isinstance(x, (list, tuple)):
        return rows_source(x, role)
    if package in ("dask", "dask_expr"):
        return dask_source(x, role)
    if package == "anndata" and hasattr(x, "obs"):
        return _open_anndata(x, role, choice)
    if package == "pandas" and hasattr(x, "columns"):
        return frame_source(x, role)
    if _is_ensemble(x) and role == "labels":
        return ensemble_source(x, role)
    if is_sparse(x) and role != "features":
        raise InvalidInputError(
            f"{role} is a sparse {name}; pass x.toarray(), with missing=[0] if what is not stored is missing."
        )
    if not _is_column(x):
        if is_sparse(x) or all(hasattr(x, name) for name in ("shape", "dtype", "__getitem__")):
            return array_source(x, role)  # also of xarray, of which Arrow has one column
        if hasattr(x, "__arrow_c_stream__") or hasattr(x, "__arrow_c_array__"):
            return arrow_source(x, role)
    kind = f"{package}.{name}" if package in ("pandas", "polars", "pyarrow") else name
    raise InvalidInputError(
        f"{role} of type {kind} cannot be read; pass an array, a list of rows, a table (of a series "
        "x.to_frame(), of a lazy frame x.collect(), of a dict pandas.DataFrame(x) or Ensemble.from_runs(x), "
        "of the label of each object in a dict pandas.Series(x), of igraph pandas.Series(x.membership, "
        f"x.graph.vs['name'])), or a path to {KNOWN}."
    )


def _is_ensemble(x: Any) -> bool:
    return hasattr(x, "categories") and hasattr(x, "n_partitions")


def _is_column(x: Any) -> bool:
    return type(x).__name__ == "Series" or (
        type(x).__module__.startswith("pyarrow") and hasattr(x, "null_count")
    )


def _open_anndata(x: Any, role: str, choice: Selection) -> Source:
    """Return the obs of an AnnData as labels, or its X as features; names of obs are the ids."""
    obs = frame_source(x.obs, "obs")
    source = obs if role == "labels" else _open(x.X, role, choice)
    source.index, source.is_named = obs.index, True
    return source


def _open_h5ad(path: Any, role: str, choice: Selection) -> Source:
    """Return the source of an AnnData in a file, of which X stays on the disk."""
    refuse_bucket(path)
    try:
        import anndata
    except ImportError as error:
        raise errors.MissingDependencyError(f"{path} is read by anndata; run pip install anndata.") from error
    refuse_missing(path)
    check_file(Path(path))
    with reading(path, "AnnData"):
        return _open_anndata(anndata.read_h5ad(path, backed="r"), role, choice)
