"""Sources of labels on disk: .npy, .npz, .csv, .parquet and .zarr. Nothing in them is ever unpickled."""

from __future__ import annotations

import csv
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigcons.errors import InvalidInputError, StoreNotFoundError
from bigcons.memory import row_blocks
from bigcons.storage.arrays import METADATA, open_matrix
from bigcons.storage.places import DiskPlace, Place, place_of
from bigcons.tables.column_names import MISSING_WORDS, check_commas, column_names, refuse_index
from bigcons.tables.relabel import RawColumn
from bigcons.tables.sources.arrays import ArraySource
from bigcons.tables.sources.base import LabelSource, check_two_dimensions, columns_of

_BLOCK_BYTES = 1 << 20
_PARQUET_PAGE_BYTES = 1 << 20
_PAGES_PER_COLUMN = 3
"""compressed, plain and decoded: what a Parquet reader holds of every column"""


class NpySource(LabelSource):
    """A label matrix in ``.npy`` layout: a file, or the member of an archive."""

    def __init__(self, what: str, open_bytes: Callable[[], IO[bytes]], n_bytes: int) -> None:
        self._what = what
        self._open = open_bytes
        with open_bytes() as file:
            (self._n_rows, self.n_partitions), self._fortran, self._dtype = _read_header(file, what)
            self._first_byte = file.tell()
        if self._first_byte + self._n_rows * self.n_partitions * self._dtype.itemsize > n_bytes:
            raise self._cut()
        self.row_bytes = 2.0 * self._dtype.itemsize * self.n_partitions

    def blocks(self, rows: int) -> Iterator[Sequence[RawColumn]]:
        """Yield all rows in order, as columns of ``rows`` rows."""
        with self._open() as file:
            file.seek(self._first_byte)
            for block in row_blocks(self._n_rows, rows):
                if self._fortran:
                    yield self._columns_of_columns(file, block.start, block.n_rows)
                else:
                    yield columns_of(self._read(file, block.n_rows, self.n_partitions))

    def _columns_of_columns(self, file: IO[bytes], start: int, n_rows: int) -> list[np.ndarray]:
        columns = []
        for u in range(self.n_partitions):
            file.seek(self._first_byte + (u * self._n_rows + start) * self._dtype.itemsize)
            columns.append(self._read(file, 1, n_rows)[0])
        return columns

    def _read(self, file: IO[bytes], n_rows: int, n_columns: int) -> np.ndarray:
        n_bytes = n_rows * n_columns * self._dtype.itemsize
        data = file.read(n_bytes)
        if len(data) < n_bytes:
            raise self._cut()
        return np.frombuffer(data, self._dtype).reshape(n_rows, n_columns)

    def _cut(self) -> InvalidInputError:
        return InvalidInputError(f"{self._what} ends before its last row; write the file again.")


class CsvSource(LabelSource):
    """A table of comma separated values, with or without a line of names.

    The first line names the columns if `column_names` says so.
    """

    untyped = True

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            cells = [cell.strip() for cell in next(csv.reader(file), [])]
        check_commas(cells, str(path))
        self.names = column_names(cells, str(path))
        self.n_partitions = len(cells)
        self.row_bytes = 64.0 * self.n_partitions

    def blocks(self, rows: int) -> Iterator[Sequence[RawColumn]]:
        """Yield all rows in order, as columns of at most ``rows`` rows of text."""
        import pyarrow as pa
        import pyarrow.csv

        names = self.names or [str(u) for u in range(self.n_partitions)]
        try:
            reader = pyarrow.csv.open_csv(
                self._path,
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False,
                    block_size=_BLOCK_BYTES,
                    column_names=names,
                    skip_rows=int(self.names is not None),
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.large_string()),
                    null_values=list(MISSING_WORDS),
                    strings_can_be_null=True,
                ),
            )
            for batch in reader:
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows).columns
        except pa.ArrowInvalid as error:
            reason = str(error).splitlines()[0]
            raise InvalidInputError(
                f"{self._path} is no table of labels ({reason}); repair the file."
            ) from None


class ParquetSource(LabelSource):
    """One ``.parquet`` file, or a directory of them in the order of the numbers in their names."""

    def __init__(self, path: Path) -> None:
        self._files = sorted(path.glob("*.parquet"), key=_by_numbers) if path.is_dir() else [path]
        if not self._files:
            raise InvalidInputError(f"{path} holds no .parquet file; check the path.")
        first = self._open(self._files[0])
        self.names = first.schema_arrow.names
        refuse_index(self.names, str(path))
        self.n_partitions = len(self.names)
        self.row_bytes = 24.0 * self.n_partitions
        self.fixed_bytes = _PAGES_PER_COLUMN * sum(_page_bytes(first.metadata))

    def blocks(self, rows: int) -> Iterator[Sequence[RawColumn]]:
        """Yield all rows in order, as columns of at most ``rows`` rows."""
        import pyarrow as pa

        for path in self._files:
            file = self._open(path)
            if file.schema_arrow.names != self.names:
                raise InvalidInputError(
                    f"{path} has other columns than {self._files[0].name}; give all files the same columns."
                )
            try:
                for batch in file.iter_batches(batch_size=rows, use_threads=False):
                    yield batch.columns
            except (pa.ArrowException, OSError) as error:
                raise _broken_parquet(path, error) from None

    def _open(self, path: Path) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # a small buffer: column chunks are streamed, not loaded whole
            return pq.ParquetFile(
                path, buffer_size=1 << 16, pre_buffer=False, page_checksum_verification=True
            )
        except (pa.ArrowException, OSError) as error:
            raise _broken_parquet(path, error) from None


def open_file(path: str | os.PathLike[str]) -> LabelSource:
    """Return the source that reads the file or directory at ``path``, by its suffix."""
    place = place_of(path)
    if not isinstance(place, DiskPlace):
        return _open_object(place)
    path = Path(path)
    if not path.exists():
        raise StoreNotFoundError(f"{path} does not exist; check the path.")
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return NpySource(str(path), lambda: path.open("rb"), path.stat().st_size)
    if suffix == ".npz":
        return _open_npz(path)
    if suffix == ".csv":
        return CsvSource(path)
    if suffix in (".parquet", ".pq"):
        return ParquetSource(path)
    if (place / METADATA).is_file():
        return ArraySource(open_matrix(place))
    raise InvalidInputError(
        f"{path} has suffix {suffix!r}; give .npy, .npz, .csv, .parquet or .zarr (version 3)."
    )


def _open_object(place: Place) -> LabelSource:
    if (place / METADATA).is_file():
        return ArraySource(open_matrix(place))
    if not place.exists():
        raise StoreNotFoundError(f"{place} does not exist; check the URL.")
    raise InvalidInputError(
        f"{place} is neither an ensemble nor a Zarr array (version 3); copy other files to a disk first."
    )


def map_npy(path: Path) -> np.ndarray:
    """Map a ``.npy`` file of any shape into memory."""
    try:
        mapped: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise StoreNotFoundError(f"{path} does not exist; check the path.") from None
    except (ValueError, EOFError):
        raise InvalidInputError(f"{path} is no .npy file of numbers; write it with numpy.save.") from None
    return mapped


def _open_npz(path: Path) -> LabelSource:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {entry.filename: entry.file_size for entry in archive.infolist()}
    except zipfile.BadZipFile:
        raise InvalidInputError(f"{path} is no .npz archive; write it with numpy.savez.") from None
    chosen = (
        ["labels.npy"] if "labels.npy" in members else [name for name in members if name.endswith(".npy")]
    )
    if len(chosen) != 1:
        raise InvalidInputError(
            f"{path} holds {len(chosen)} arrays; keep one, or name the one to take 'labels'."
        )
    name = chosen[0]
    _check_member(path, name)
    return NpySource(f"{path}[{name}]", lambda: zipfile.ZipFile(path).open(name), members[name])


def _check_member(path: Path, name: str) -> None:
    """Read a member once, from end to end: its checksum is not looked at when a reader jumps."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(name) as member:
            while member.read(_BLOCK_BYTES):
                pass
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise InvalidInputError(f"{path}[{name}] is damaged; write the file again.") from None


def _read_header(file: IO[bytes], what: str) -> tuple[tuple[int, int], bool, np.dtype]:
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
    except ValueError:
        raise InvalidInputError(f"{what} is no .npy file; write it with numpy.save.") from None
    if dtype.hasobject:
        raise InvalidInputError(
            f"{what} holds pickled objects, which are never read; save whole numbers or fixed-width text."
        )
    if len(shape) == 1:  # one partition, as exported
        shape = (*shape, 1)
    check_two_dimensions(shape)
    if min(shape) < 0:
        raise InvalidInputError(f"{what} has a shape below 0; write it with numpy.save.")
    return (shape[0], shape[1]), fortran, dtype


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """Sort ``part.10`` behind ``part.9``."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", path.name)]


def _page_bytes(metadata: Any) -> Iterator[int]:
    """Yield the size of the largest page of each column, which is at most that of the column."""
    for u in range(metadata.num_columns):
        groups = (metadata.row_group(g).column(u) for g in range(metadata.num_row_groups))
        largest = max((group.total_uncompressed_size for group in groups), default=0)
        yield min(largest, _PARQUET_PAGE_BYTES)


def _broken_parquet(path: Path, error: Exception) -> InvalidInputError:
    reason = (str(error).splitlines() or ["unknown"])[0][:120]
    return InvalidInputError(f"{path} is no whole Parquet file ({reason}); write it again.")
