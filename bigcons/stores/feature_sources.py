"""Where features come from: every kind of source as a stream of pieces, in row order.

A piece is a two-dimensional numeric array, or an Arrow table for sources with typed columns. No
source is gathered: a piece is a slice of what is in memory, a stretch of a file, or one partition of
a dask collection.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from bigcons.errors import InvalidInputError, StoreNotFoundError
from bigcons.stores.csv_header import is_header
from bigcons.stores.place import Place, StorePath
from bigcons.stores.places import DiskPlace, place_of

Piece = Any
"""ndarray (rows, n_features), or pyarrow Table or RecordBatch of the columns asked for."""

_CSV_BLOCK = 1 << 20
_CSV_READ_AHEAD = 64 << 20  # measured: the reader runs some 32 blocks ahead
_READ_BUFFER = 1 << 16
_PARQUET_PAGES = 5 << 19  # a data page and a dictionary page, a megabyte each as usually written


class Source(Protocol):
    """What the reader of features needs to know of a source."""

    @property
    def where(self) -> str:
        """What messages call it."""
        ...

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        ...

    @property
    def schema(self) -> pa.Schema | None:
        """Types of the columns; None for arrays, and for tables whose types only their values show."""
        ...

    @property
    def dtype(self) -> np.dtype | None:
        """Type of the values of an array; None for tables."""
        ...

    @property
    def n_rows(self) -> int | None:
        """None until a first pass has counted them."""
        ...

    @property
    def held_bytes(self) -> int:
        """About how much it decodes at a time, beside the piece it yields."""
        ...

    def pieces(
        self, start: int, stop: int | None, rows: int, columns: Sequence[str] | None = None
    ) -> Iterator[Piece]:
        """Yield rows ``start`` to ``stop`` (None: to the end) in pieces of about ``rows``.

        ``columns`` restricts the pieces of a table; arrays come whole.
        """
        ...


def open_source(source: object) -> Source:
    """Return the Source of whatever `bigcons.stores.features.open_features` takes."""
    if isinstance(source, (str, os.PathLike)):
        return _open_path(source)
    package = type(source).__module__.partition(".")[0]
    if package in ("dask", "dask_expr"):
        return DaskSource(source)
    if package in ("pandas", "polars", "pyarrow"):
        return _open_table(source, package)
    if isinstance(source, (list, tuple)):
        source = np.asarray(source)
    if all(hasattr(source, name) for name in ("shape", "dtype", "__getitem__")) and package != "scipy":
        return ArraySource(source, where="features")
    raise InvalidInputError(
        f"features has type {type(source).__name__}; give a dense array, a pandas, polars or pyarrow table, "
        "a dask array or dataframe, or a path to .npy, .zarr, .parquet or .csv."
    )


def _open_path(given: StorePath) -> Source:
    place = place_of(given)
    if not isinstance(place, DiskPlace):
        if place.name.lower().endswith(".zarr"):
            return ArraySource(_open_zarr(place), where=str(place))
        raise InvalidInputError(
            f"{place} is no .zarr, the only features read from a bucket; copy it to a disk."
        )
    path = Path(given)
    if not path.exists():
        raise StoreNotFoundError(f"{path} does not exist; check the path of the features.")
    name = path.name.lower()
    if name.endswith(".npy"):
        return ArraySource(NpyFile(path), where=str(path))
    if name.endswith((".csv", ".csv.gz")):
        return CsvSource(path)
    if name.endswith((".parquet", ".pq")) or any(path.glob("*.parquet")):
        return ParquetSource(path)
    if name.endswith(".zarr") or any((path / key).exists() for key in ("zarr.json", ".zarray")):
        return ArraySource(_open_zarr(place), where=str(path))
    raise InvalidInputError(f"{path} has no known format; give .npy, .zarr, .parquet, .csv or .csv.gz.")


def _open_zarr(path: Place) -> Any:
    import zarr

    try:
        node = zarr.open(path.for_zarr(read_only=True), mode="r")
    except (FileNotFoundError, ValueError) as error:
        raise InvalidInputError(f"{path} is no Zarr array ({_first_line(error)}); check the path.") from None
    if not isinstance(node, zarr.Array):
        raise InvalidInputError(f"{path} is a Zarr group; give the path of one two-dimensional array in it.")
    return node


# Arrays


class ArraySource:
    """Anything sliced like a two-dimensional numeric array: ndarray, memory map, Zarr, HDF5, `NpyFile`."""

    schema = None

    def __init__(self, array: Any, where: str) -> None:
        self.where = where
        self.dtype = check_matrix(array.shape, array.dtype, where)
        self.n_rows: int | None = int(array.shape[0])
        self.names = default_names(array.shape[1])
        chunks = getattr(array, "chunks", None) or (0,)
        chunk_bytes = chunks[0] * array.shape[1] * self.dtype.itemsize
        self.held_bytes = 6 * chunk_bytes  # a piece may touch two: as stored, decoded and copied
        self._array = array

    def pieces(
        self,
        start: int,
        stop: int | None,
        rows: int,
        columns: Sequence[str] | None = None,  # noqa: ARG002 - an array comes whole
    ) -> Iterator[np.ndarray]:
        """Yield slices of ``rows`` rows."""
        stop = self.n_rows if stop is None else stop
        for first in range(start, stop or 0, rows):
            yield np.asarray(self._array[first : min(first + rows, stop or 0)])


class NpyFile:
    """A .npy file read by position: unlike those of a memory map, its pages never count as our memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            mapped = np.load(path, mmap_mode="r")
        except ValueError as error:
            raise InvalidInputError(
                f"{path} cannot be read ({_first_line(error)}); write a two-dimensional numeric array."
            ) from None
        self.shape: tuple[int, ...] = mapped.shape
        self.dtype: np.dtype = mapped.dtype
        self._by_columns = mapped.flags.f_contiguous and not mapped.flags.c_contiguous
        self._offset: int = mapped.offset

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        n_columns = self.shape[1]
        if not self._by_columns:
            return self._read(start * n_columns, (stop - start) * n_columns).reshape(-1, n_columns)
        columns = [self._read(c * self.shape[0] + start, stop - start) for c in range(n_columns)]
        return np.stack(columns, axis=1)

    def _read(self, first: int, count: int) -> np.ndarray:
        offset = self._offset + first * self.dtype.itemsize
        values = np.fromfile(self._path, dtype=self.dtype, count=count, offset=offset)
        if len(values) < count:
            raise InvalidInputError(f"{self._path} ends early; the file was cut or is still being written.")
        return values


def check_matrix(shape: tuple[int, ...], dtype: np.dtype, where: str) -> np.dtype:
    """Return ``dtype`` if the array is a two-dimensional one of real numbers with at least one row."""
    if len(shape) != 2:
        raise InvalidInputError(f"{where} has {len(shape)} dimensions; features are (n_objects, n_features).")
    if 0 in shape:
        raise InvalidInputError(
            f"{where} has shape {tuple(shape)}; it needs at least one row and one column."
        )
    if np.dtype(dtype).kind not in "buif":
        raise InvalidInputError(
            f"{where} has dtype {dtype}; an array must hold real numbers: use a table for columns of text."
        )
    return np.dtype(dtype)


def default_names(n_features: int) -> list[str]:
    """Return the names of columns that have none: f0, f1, ..."""
    return [f"f{c}" for c in range(n_features)]


# Tables in memory


def _open_table(table: Any, package: str) -> Source:
    if package == "pyarrow" and isinstance(table, (pa.Table, pa.RecordBatch)):
        return TableSource(table, table.schema)
    if package == "polars" and type(table).__name__ == "DataFrame":
        return TableSource(table, table[:0].to_arrow().schema)
    if package == "pandas" and type(table).__name__ == "DataFrame":
        return TableSource(table, pandas_schema(table))
    raise InvalidInputError(
        f"features has type {package}.{type(table).__name__}; give a table: a DataFrame or a pyarrow.Table."
    )


class TableSource:
    """A pandas, polars or pyarrow table in memory, made into Arrow slice by slice."""

    where = "features"
    dtype = None
    held_bytes = 0

    def __init__(self, table: Any, schema: pa.Schema) -> None:
        self.schema: pa.Schema | None = schema
        self.names = check_names(schema.names, self.where)
        self.n_rows: int | None = table.shape[0]
        self._table = table

    def pieces(
        self, start: int, stop: int | None, rows: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield slices of ``rows`` rows."""
        stop = self.n_rows if stop is None else stop
        for first in range(start, stop or 0, rows):
            piece = to_arrow(self._table[first : min(first + rows, stop or 0)], self.schema)
            yield piece if columns is None else piece.select(list(columns))


def pandas_schema(table: Any) -> pa.Schema:
    """Return the Arrow schema of a pandas table; object columns are looked through for their type."""
    try:
        schema = pa.Schema.from_pandas(table, preserve_index=False)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            f"features has a column of mixed types or names ({_first_line(error)}); convert it to one type."
        ) from None
    return schema.remove_metadata()


def to_arrow(piece: Any, schema: pa.Schema | None = None) -> pa.Table:
    """Return a slice of a pandas, polars or pyarrow table as an Arrow table."""
    if hasattr(piece, "to_arrow"):
        return piece.to_arrow()
    if isinstance(piece, (pa.Table, pa.RecordBatch)):
        return piece
    named = piece.set_axis(piece.columns.map(str), axis="columns")  # as in the schema
    return pa.Table.from_pandas(named, schema=schema or pandas_schema(named), preserve_index=False)


def check_names(names: Sequence[object], where: str) -> list[str]:
    """Return the column names as text; refuse none and repeated ones."""
    texts = [str(name) for name in names]
    repeated = sorted({name for name in texts if texts.count(name) > 1})
    if repeated:
        raise InvalidInputError(f"{where} has more than one column {repeated[0]!r}; give each its own name.")
    if not texts:
        raise InvalidInputError(f"{where} has no columns; features need at least one.")
    return texts


# Sources made of parts: row groups, partitions, one stream


class PartedSource:
    """A source read part by part; the length of a part is None until it has been read to its end."""

    where: str
    names: list[str]
    schema: pa.Schema | None = None
    dtype: np.dtype | None = None
    lengths: list[int | None]
    held_bytes: int

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None while the length of any part is unknown."""
        known = [length for length in self.lengths if length is not None]
        return sum(known) if len(known) == len(self.lengths) else None

    def load(self, part: int, rows: int, columns: Sequence[str] | None) -> Iterator[Piece]:
        """Yield the pieces of one part."""
        raise NotImplementedError

    def pieces(
        self, start: int, stop: int | None, rows: int, columns: Sequence[str] | None = None
    ) -> Iterator[Piece]:
        """Yield what the parts hold of the rows, leaving out the parts before them."""
        row = 0
        for part, length in enumerate(self.lengths):
            if length is not None and row + length <= start:
                row += length
                continue
            part_start = row
            for piece in self.load(part, rows, columns):
                first, row = row, row + piece.shape[0]
                if row > start and piece.shape[0]:
                    yield piece[max(start - first, 0) : piece.shape[0] if stop is None else stop - first]
                if stop is not None and row >= stop:
                    return
            self.lengths[part] = row - part_start


class ParquetSource(PartedSource):
    """A Parquet file, or a directory of them in the order of their names; parts are row groups."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        self._parts: list[tuple[Path, int]] = []
        self.lengths = []
        self.held_bytes = 0
        for file in files:
            self._add(file)
        assert self.schema is not None  # noqa: S101 - there was at least one file
        self.names = check_names(self.schema.names, self.where)

    def _add(self, path: Path) -> None:
        with self._open(path) as file:
            schema = file.schema_arrow.remove_metadata()
            if self.schema is not None and not schema.equals(self.schema):
                raise InvalidInputError(
                    f"{path} has other columns than the files before it; make them alike."
                )
            self.schema = schema
            for g in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(g)
                self._parts.append((path, g))
                self.lengths.append(group.num_rows)
                sizes = (group.column(c).total_uncompressed_size for c in range(group.num_columns))
                self.held_bytes = max(self.held_bytes, sum(min(size, _PARQUET_PAGES) for size in sizes))

    def load(self, part: int, rows: int, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield record batches of one row group; page checksums are verified where they exist."""
        path, group = self._parts[part]
        with self._open(path) as file:
            yield from file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)

    @staticmethod
    def _open(path: Path) -> Any:
        from pyarrow import parquet

        try:
            return parquet.ParquetFile(
                path, buffer_size=_READ_BUFFER, pre_buffer=False, page_checksum_verification=True
            )
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidInputError(
                f"{path} cannot be read as Parquet ({_first_line(error)}); write it anew."
            ) from None


class CsvSource(PartedSource):
    """A CSV file, plain or gzipped, read as a stream: reading from the middle parses all before it.

    The first line names the columns if `is_header` says so, else they are f0, f1, ...
    Types are taken from the first megabytes: a column is a number, a boolean or text.
    """

    def __init__(self, path: Path) -> None:
        from pyarrow import csv

        self.where = str(path)
        self.held_bytes = _CSV_READ_AHEAD
        self._path = path
        self._read_options = csv.ReadOptions(block_size=_CSV_BLOCK)
        self._types: dict[str, pa.DataType] = {}
        schema = self._peek()
        if not is_header(schema.names, self.where):
            self._read_options.autogenerate_column_names = True
            schema = self._peek()
        self._types = {field.name: _csv_type(field.type) for field in schema}
        self.schema = pa.schema(self._types)
        self.names = check_names(schema.names, self.where)
        self.lengths = [None]

    def load(
        self,
        part: int,  # noqa: ARG002 - the file is the only part
        rows: int,  # noqa: ARG002 - the size of a batch is fixed in bytes
        columns: Sequence[str] | None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of the file."""
        try:
            with self._open(columns) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            raise self._unreadable(error) from None

    def _peek(self) -> pa.Schema:
        try:
            with self._open(None) as reader:
                return reader.schema
        except pa.ArrowInvalid as error:
            raise self._unreadable(error) from None

    def _open(self, columns: Sequence[str] | None) -> Any:
        from pyarrow import csv

        options = csv.ConvertOptions(
            column_types=self._types, strings_can_be_null=True, include_columns=list(columns or [])
        )
        return csv.open_csv(self._path, read_options=self._read_options, convert_options=options)

    def _unreadable(self, error: Exception) -> InvalidInputError:
        return InvalidInputError(
            f"{self.where} cannot be read ({_first_line(error)}); repair it, or write it as Parquet."
        )


def _csv_type(inferred: pa.DataType) -> pa.DataType:
    """The type to read a column as: whole numbers may turn out to have fractions further down."""
    numeric = pa.types.is_integer(inferred) or pa.types.is_null(inferred)
    return pa.float64() if numeric else inferred


class DaskSource(PartedSource):
    """A dask.array or dask.dataframe, computed one row partition at a time and never gathered."""

    where = "features"

    def __init__(self, collection: Any) -> None:
        self._collection = collection
        if hasattr(collection, "chunks"):
            self.dtype = check_matrix(collection.shape, collection.dtype, self.where)
            self.names = default_names(collection.shape[1])
            self.lengths = [None if np.isnan(rows) else int(rows) for rows in collection.chunks[0]]
        elif hasattr(collection, "partitions") and hasattr(collection, "columns"):
            self.names = check_names(list(collection.columns), self.where)
            self.lengths = [None] * collection.npartitions
        else:
            raise InvalidInputError(
                f"features has type dask {type(collection).__name__}; give a dask array or dataframe."
            )

    @property
    def held_bytes(self) -> int:  # type: ignore[override]
        """The largest partition, as it is computed and as it is yielded."""
        itemsize = 8 if self.dtype is None else self.dtype.itemsize
        return 2 * max(length or 0 for length in self.lengths) * len(self.names) * itemsize

    def load(
        self,
        part: int,
        rows: int,  # noqa: ARG002 - a partition comes whole
        columns: Sequence[str] | None,
    ) -> Iterator[Piece]:
        """Compute one partition."""
        if self.dtype is not None:
            yield np.asarray(self._collection.blocks[part].compute())
            return
        table = to_arrow(self._collection.partitions[part].compute())
        yield table if columns is None else table.select(list(columns))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")
