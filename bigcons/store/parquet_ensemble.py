"""Ensembles in Parquet: a folder of files that every reader of Parquet opens, or the files of others.

A store has one file for each chunk of rows, ``part-00000.parquet`` and so on, with the ids and a column for
each partition: its original labels, null where missing. The manifest beside the files has their checksums. An
append writes a new folder with links to the files that stay, and exchanges the folders in one step, so that
other readers never see a file that is not part of the ensemble.

The files of others have no manifest. They are read once when they are opened, to find the values of the
labels, and then row group by row group.
"""

from __future__ import annotations

import threading
import zlib
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigcons.disk.commit import (
    PARQUET_MANIFEST,
    names_parquet,
    new_store,
    write_manifest,
)
from bigcons.disk.interface import Place, StorePath
from bigcons.disk.places import DiskPlace, place_of
from bigcons.disk.reading import corrupt
from bigcons.disk.schema import MISSING, PARQUET, file_names
from bigcons.errors import DamagedFileError, InvalidInputError, StoreError
from bigcons.io.codes import Encoding, integer_lookup, text_lookup
from bigcons.io.encode import (
    counts_of,
    default_chunk_rows,
    label_dtype,
    partition_names,
    refuse_other_rows,
    scan_labels,
)
from bigcons.io.files import MADE_FOR_ENSEMBLE, ParquetTable, footer_of, is_within, size_of
from bigcons.io.ids import canonical, parts_of
from bigcons.io.labels import observed
from bigcons.io.reading import rule_of_values
from bigcons.io.select import SelectedTable
from bigcons.io.table import Table
from bigcons.memory import BLOCK_ROWS, row_blocks
from bigcons.store.ensemble_store import (
    KIND,
    MAX_CHUNK_COLUMNS,
    RESTORE,
    Appending,
    Categories,
    Header,
    RowsWriter,
    StoredRows,
    link_kept,
    refuse_other_length,
    require,
)
from bigcons.store.ids import StoredIds
from bigcons.store.store import consistent

MOST_PARTITIONS = 4_096
"""Partitions of an ensemble in Parquet, which describes each column in every file. Of more, the time to open
a file grows faster than their number: measured by ``benchmarks/stores.py``."""

_TOGETHER = 16
"""Columns that a thread decodes at a time."""


def refuse_wide(out: StorePath | Place, n_partitions: int) -> None:
    """Raise InvalidInputError for an ensemble in Parquet with more partitions than its footers bear."""
    if names_parquet(out) and n_partitions > MOST_PARTITIONS:
        raise InvalidInputError(
            f"{out} would have n_partitions={n_partitions:,}, but Parquet describes each column in every "
            f"file and is slow beyond {MOST_PARTITIONS:,}; store it as .zarr."
        )


def _file_of(folder: Place, number: int) -> Path:
    assert isinstance(folder, DiskPlace)  # noqa: S101 - buckets have no Parquet
    return folder.path / f"part-{number:05}.parquet"


# Reading


class PartedRows(StoredRows):
    """Rows in parts, files or row groups, of which each is decoded by itself."""

    _ends: np.ndarray
    """The row after the last one of each part."""

    def decoded(self, start: int, stop: int, first_column: int) -> np.ndarray:
        """Return rows from the parts that they are in."""
        found = np.empty((stop - start, self.header.n_columns), self.dtype)
        numbers = np.searchsorted(self._ends, (start, stop - 1), "right").tolist()
        for number in range(numbers[0], numbers[1] + 1):
            first, end = self._rows_of(number)
            low, high = max(start, first), min(stop, end)
            self._fill(number, slice(low - first, high - first), found[low - start : high - start])
        return np.ascontiguousarray(found[:, first_column:])

    def _rows_of(self, number: int) -> tuple[int, int]:
        """Return the first row of a part, and the one after its last."""
        return int(self._ends[number - 1]) if number else 0, int(self._ends[number])

    @abstractmethod
    def _fill(self, number: int, part: slice, out: np.ndarray) -> None:
        """Write some rows of a part to ``out``."""


class ParquetRows(PartedRows):
    """The files of a store, open for reading."""

    def __init__(self, path: Place) -> None:
        super().__init__(path)
        body, sizes = self.store.body, (self.header.n_objects, self.header.chunk_rows)
        with consistent(path, RESTORE):
            self.file_checksums: list[int] = [int(checksum) for checksum in body["files"]]
            self.footers: list[int] = [int(checksum) for checksum in body["footers"]]
            require(len(self.file_checksums) == len(self.checksums), "the number of files")
            require(len(self.footers) == len(self.checksums), "the number of footers")
            if body["ids"] is not None:
                self.store.ids = ParquetIds(path, body["ids"], self.footers, *sizes)
                self.header: Header = self.header._replace(ids=self.store.ids)
        self._ends: np.ndarray = np.array([block.stop for block in row_blocks(*sizes)])
        self._encodings: list[Encoding] = []
        """Those of the partitions, made when a label is looked up."""

    def _fill(self, number: int, part: slice, out: np.ndarray) -> None:
        """Read some rows of a file, a few partitions at a time."""
        header = self.header
        with _opened(_file_of(self.path, number), self.footers[number]) as file:
            first, end = self._rows_of(number)
            require(file.metadata.num_rows == end - first, "another number of rows")
            for first in range(0, len(header.names), _TOGETHER):
                names = header.names[first : first + _TOGETHER]
                table = file.read_row_group(0, columns=names, use_threads=False).slice(
                    part.start, part.stop - part.start
                )
                columns = [table.column(name).combine_chunks() for name in names]
                del table
                if header.is_soft:
                    for u, column in enumerate(columns, first):
                        _fill_memberships(out[:, header.offsets[u] : header.offsets[u + 1]], column)
                    continue
                codes = np.empty((len(names), len(out)), self.dtype)
                for u in range(len(names)):
                    codes[u] = self._codes(columns[u], first + u)
                    columns[u] = None
                _transpose(codes, out[:, first : first + len(names)])

    def _codes(self, column: Any, u: int) -> np.ndarray:
        """Return the codes of a partition's labels, -1 where they are missing."""
        import pyarrow as pa

        if self.store.body["categories_checksum"] is None:
            require(column.type == pa.from_numpy_dtype(self.dtype), f"labels of type {column.type}")
            return whole_numbers(column)
        if not self._encodings:
            values = zip(self.header.names, self.header.n_clusters, self.categories(), strict=True)
            self._encodings = [_encoding_of(name, k, known) for name, k, known in values]
        codes = encoded(column, self._encodings[u])
        n_labeled = int(np.count_nonzero(codes >= 0))
        require(n_labeled == len(column) - column.null_count, "a label that the manifest does not know")
        return codes

    def reading_bytes(self, n_processes: int, n_threads: int) -> int:
        """Return what each thread holds, a footer and a few columns of a chunk, besides Arrow (measured)."""
        n_columns = min(self.header.n_columns, _TOGETHER)
        if self.header.is_soft:
            groups = range(0, len(self.header.names), _TOGETHER)
            n_columns = int(np.add.reduceat(self.header.n_clusters, groups).max())
        label_bytes = 20 + 4 * self.dtype.itemsize  # of Parquet's 32 bits and levels, of Arrow, and codes
        footer_bytes = 8_000 * len(self.header.names)
        return n_processes * 25_000_000 + n_threads * (
            footer_bytes + self.header.chunk_rows * n_columns * label_bytes
        )

    def check_files(self) -> None:
        """Compare ids and files with their checksums, and refuse others beside them."""
        super().check_files()
        known = {_file_of(self.path, number).name for number in range(len(self.file_checksums))}
        for name in self.path.names():
            if name not in known and not name.startswith(("_", ".")):
                what = "is not part of the ensemble, but other readers would read it"
                raise corrupt(self.path / name, what, "remove it.")


@contextmanager
def _opened(path: Path, footer: int) -> Iterator[Any]:
    """Yield a file of a store. Its footer is compared with the checksum, and pages with theirs when read.

    Arrow may crash on a damaged footer.
    """
    from pyarrow import parquet

    try:
        require(not path.is_symlink(), f"{path.name} is a symbolic link")
        require(zlib.crc32(footer_of(path)) == footer, f"{path.name} has a damaged footer")
    except FileNotFoundError:
        raise ValueError(f"{path.name} is missing") from None
    with parquet.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
        require(file.num_row_groups == 1, "another number of row groups")
        group = file.metadata.row_group(0)
        columns = [group.column(c) for c in range(group.num_columns)]
        require(is_within(columns, group.num_rows, path.stat().st_size), "columns beyond the file")
        yield file


def _encoding_of(name: str, n_clusters: int, values: np.ndarray | None) -> Encoding:
    """Return the encoding of a partition's original values."""
    known = np.arange(n_clusters) if values is None else values
    rule = rule_of_values(known)
    is_text = known.dtype == object
    lookup = text_lookup(known, np.arange(len(known))) if is_text else integer_lookup(rule.spread(known))
    return Encoding(name, known, 0, lookup, rule)


def whole_numbers(column: Any) -> np.ndarray:
    """Return an Arrow array of integers, -1 where it is null."""
    validity, content = column.buffers()
    dtype = np.dtype(column.type.to_pandas_dtype())
    values = np.frombuffer(content, dtype, len(column), column.offset * dtype.itemsize)
    if column.null_count == 0:
        return values
    bits = np.unpackbits(
        np.frombuffer(validity, np.uint8), count=column.offset + len(column), bitorder="little"
    )
    return np.where(bits[column.offset :].view(bool), values, dtype.type(MISSING))


def encoded(column: Any, encoding: Encoding) -> np.ndarray:
    """Return the codes of a column; of one with a dictionary, each of its values is looked up once."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return encoding.encode(column)
    codes = np.append(encoding.encode(column.dictionary), MISSING)
    return codes[whole_numbers(column.indices)]


def _fill_memberships(out: np.ndarray, column: Any) -> None:
    """Write the lists of memberships of a partition to ``out``, and 0 where it is missing."""
    labeled = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.flatten().to_numpy(zero_copy_only=False)
    require(len(values) == int(labeled.sum()) * out.shape[1], "another number of clusters")
    out[:] = 0.0
    out[labeled] = values.reshape(-1, out.shape[1])


def _transpose(columns: np.ndarray, out: np.ndarray) -> None:
    """Write ``columns`` to those of ``out``, tile by tile, which stay in the cache."""
    for start in range(0, len(out), 2048):
        out[start : start + 2048] = columns[:, start : start + 2048].T


class ParquetIds(StoredIds):
    """The ids of a store, read chunk by chunk."""

    def __init__(
        self, path: Place, entry: Mapping[str, Any], footers: list[int], n_objects: int, chunk_rows: int
    ) -> None:
        """Take the entry of the manifest; raises KeyError, TypeError or ValueError if it is inconsistent."""
        self._footers = footers
        self.take(path, entry, n_objects, chunk_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetIds, (self._place, self._entry, self._footers, self.n_objects, self.chunk_rows)

    def _decoded(self, number: int, start: int, stop: int) -> Any:  # noqa: ARG002 - the file tells
        name, path = self.facts.name, _file_of(self._place, number)
        with _opened(path, self._footers[number]) as file:
            column = file.read_row_group(0, columns=[name], use_threads=False).column(name)
        found = canonical(column, name, str(path), first=start, dtype=self.facts.dtype)
        self._check(number, *parts_of(found))
        return found


# Writing


class ParquetWriter(RowsWriter):
    """Writes the files of a store to an empty ``folder``.

    ``kept`` is the store before: the files of its full chunks are linked, unless a column is new or changes
    its type.
    """

    def __init__(
        self,
        folder: Place,
        kept: ParquetRows | None,
        header: Header,
        categories: Categories,
    ) -> None:
        columns = min(header.n_columns, MAX_CHUNK_COLUMNS)
        super().__init__(folder, header, categories, file_names(PARQUET), columns)
        self._schema = _schema(header, categories, header.dtype)
        self._parts: list[int] = []
        self._footers: list[int] = []
        self._id_checksums: list[int] = []
        n_kept = 0
        if kept is not None and _schema(kept.header, kept.categories(), kept.dtype) == self._schema:
            n_kept = kept.header.n_objects // header.chunk_rows
            self._checksums = kept.checksums[:n_kept].tolist()
            self._parts, self._footers = kept.file_checksums[:n_kept], kept.footers[:n_kept]
            for number in range(n_kept):
                link_kept(_file_of(kept.path, number), _file_of(folder, number))
        self.n_kept: int = n_kept * header.chunk_rows
        self._next_row = self.n_kept
        self._ids: Iterator[Any] | None = None
        if header.ids is not None:
            self._ids = header.ids.blocks(header.chunk_rows)
            for _ in range(n_kept):
                self._next_ids()

    def put(self, start: int, block: np.ndarray) -> None:
        """Write a chunk as a file."""
        import pyarrow as pa
        from pyarrow import parquet

        header, number = self._header, len(self._parts)
        columns: list[Any] = []
        if header.is_soft:
            labeled = observed(block, header.offsets)
            for u in range(len(header.names)):
                columns.append(_lists(block[:, header.offsets[u] : header.offsets[u + 1]], labeled[:, u]))
        else:
            codes = np.empty(block.shape[::-1], block.dtype)
            _transpose(block, codes)
            columns = [_labels(codes[u], values) for u, values in enumerate(self._categories)]
        if header.ids is not None:
            ids = self._next_ids()
            if len(ids) != len(block):
                refuse_other_length(start + len(ids), header.n_objects)
            columns.insert(0, header.ids.as_they_came(ids))
        table = pa.Table.from_arrays(columns, schema=self._schema)
        with _file_of(self._folder, number).open("wb") as file:
            checked = _Checked(file)
            with parquet.ParquetWriter(
                checked,
                self._schema,
                compression="zstd",
                use_dictionary=[] if header.is_soft else header.names,
                write_statistics=False,
                write_page_checksum=True,
            ) as writer:
                writer.write_table(table, row_group_size=max(len(block), 1))
        self._parts.append(checked.checksum)
        self._footers.append(zlib.crc32(footer_of(_file_of(self._folder, number))))

    def commit(self) -> None:
        """Write the categories and the manifest."""
        self.refuse_missing()
        header = self._header
        ids = None if header.ids is None else {**header.ids.facts._asdict(), "checksums": self._id_checksums}
        sizes = [_file_of(self._folder, number).stat().st_size for number in range(len(self._parts))]
        body = self.body({"files": self._parts, "footers": self._footers})
        body |= {"n_bytes": sum(sizes), "ids": ids}
        write_manifest(self._folder, KIND, body, name=PARQUET_MANIFEST)

    def _next_ids(self) -> Any:
        assert self._ids is not None  # noqa: S101 - called if there are some
        import pyarrow as pa

        ids = next(self._ids, pa.array([], pa.int64()))
        values, text = parts_of(ids)
        self._id_checksums.append(zlib.crc32(text.data, zlib.crc32(values.data)))
        return ids


class _Checked:
    """A file that is written, and the CRC-32 of what was."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.checksum: int = 0

    def write(self, content: Any) -> int:
        self.checksum = zlib.crc32(content, self.checksum)
        return self._file.write(content)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()


def _schema(header: Header, categories: Categories, dtype: np.dtype) -> Any:
    """Return the columns of the files: ids, and labels as they were given or lists of memberships."""
    import pyarrow as pa

    def type_of(values: np.ndarray | None) -> pa.DataType:
        if header.is_soft:
            return pa.list_(pa.float32())
        if values is None:
            return pa.from_numpy_dtype(dtype)
        return pa.dictionary(pa.int32(), pa.string()) if values.dtype == object else pa.int64()

    fields = [(name, type_of(values)) for name, values in zip(header.names, categories, strict=True)]
    if header.ids is not None:
        name = header.ids.facts.name
        if name in header.names:
            raise InvalidInputError(
                f"the ids have the name of the partition {name!r}, but columns of Parquet need different "
                "ones; rename one of them, or store the ensemble as .zarr."
            )
        fields.insert(0, (name, header.ids.type))
    return pa.schema(fields, metadata=MADE_FOR_ENSEMBLE)


def _labels(codes: np.ndarray, values: np.ndarray | None) -> Any:
    """Return the labels of a partition by their codes."""
    import pyarrow as pa

    missing = codes < 0
    if values is None:
        return pa.array(codes, mask=missing)
    if values.dtype == object:
        indices = pa.array(codes.astype(np.int32), mask=missing)
        return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string()))
    return pa.array(values.astype(np.int64)[codes], mask=missing)


def _lists(memberships: np.ndarray, labeled: np.ndarray) -> Any:
    """Return memberships as lists, null where an object has none."""
    import pyarrow as pa

    ends = np.concatenate([[0], np.cumsum(labeled)]) * memberships.shape[1]
    offsets = pa.array(ends.astype(np.int32))
    mask = pa.array(~labeled)
    return pa.ListArray.from_arrays(offsets, pa.array(memberships[labeled].ravel()), mask=mask)


@contextmanager
def appending(place: Place) -> Iterator[Appending]:
    """Lock the store at ``place`` for an append, which replaces it when the ``with`` block ends."""
    with new_store(place, overwrite=True, kind=KIND) as folder:
        stored = ParquetRows(place)
        yield Appending(stored, partial(ParquetWriter, folder, stored))


# The files of others


class GivenRows(PartedRows):
    """The labels in Parquet files without a manifest.

    Codes and chunks are those of the same files read into memory. A row group is decoded as a whole, by one
    thread at a time, and the codes of the last two are kept, because blocks may be smaller.
    """

    chunk_columns: int = MAX_CHUNK_COLUMNS

    def __init__(self, table: Table, files: ParquetTable, provenance: dict[str, Any]) -> None:
        names = partition_names(table, None)
        self._stamps = _stamps(files)
        n_objects, self._encodings = scan_labels(table, names)
        self._table, self._source = table, files
        self.path: Any = table.where
        n_clusters, n_labeled, self._values = counts_of(self._encodings)
        chunk_rows = default_chunk_rows(n_objects, len(names))
        self.header: Header = Header(
            *(n_objects, names, n_clusters, n_labeled, chunk_rows, provenance), ids=table.ids
        )
        self.dtype: np.dtype = label_dtype(self.header.n_clusters)
        if table.may_be_other:
            refuse_other_rows(table, self._decode(0, min(n_objects, BLOCK_ROWS)), self._encodings)
        self._ends: np.ndarray = np.cumsum(files.group_rows())
        self._held: dict[int, np.ndarray] = {}
        self._decoding = threading.Lock()
        if max(files.group_rows()) > self.header.chunk_rows:
            self.remedy: str = (
                f", or store {self.path} by bigcons import, in smaller chunks than its row groups of "
                f"{max(files.group_rows()):,} rows"
            )

    @property
    def n_bytes(self) -> int:
        """What the files take."""
        return sum(map(size_of, self._source.files()))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_held": {}, "_decoding": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._decoding = threading.Lock()

    def _fill(self, number: int, part: slice, out: np.ndarray) -> None:
        """Write the codes of rows of a row group."""
        with self._decoding:
            codes = self._held.pop(number, None)
            if codes is None:
                while len(self._held) > 1:
                    del self._held[next(iter(self._held))]
                try:
                    codes = self._decode(*self._rows_of(number))
                except DamagedFileError:
                    self._check_unchanged()
                    raise
            self._held[number] = codes
        out[:] = codes[part]

    def _decode(self, start: int, stop: int) -> np.ndarray:
        codes = np.empty((stop - start, self.header.n_columns), self.dtype)
        row = 0
        for columns in self._table.blocks(BLOCK_ROWS, start, stop):
            n_rows = len(columns[0])
            by_column = np.empty((len(columns), n_rows), self.dtype)
            for u, column in enumerate(columns):
                by_column[u] = encoded(column, self._encodings[u])
            _transpose(by_column, codes[row : row + n_rows])
            row += n_rows
        require(row == len(codes), "another number of rows")
        return codes

    def reading_bytes(self, n_processes: int, n_threads: int) -> int:  # noqa: ARG002 - one decodes at a time
        """Return what a process holds: the codes of three row groups, and what decoding takes."""
        most = int(np.diff(self._ends, prepend=0).max())
        batch = min(most, BLOCK_ROWS) * (self._table.row_bytes + self.header.n_columns * self.dtype.itemsize)
        codes = 3 * most * self.header.n_columns * self.dtype.itemsize
        return n_processes * int(codes + self._table.held_bytes + batch)

    def categories(self) -> Categories:
        """Return the values found when the files were opened."""
        return self._values

    def verify(self) -> int:
        """Read everything; return the number of chunks. Pages have checksums, if any; the files have none."""
        return int(self.checksums.size)

    def check_files(self) -> None:
        """Raise StoreError if the files have changed."""
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        if _stamps(self._source) != self._stamps:
            raise StoreError(f"{self.path} has changed since it was opened; open it again.", path=self.path)


def _stamps(files: ParquetTable) -> list[Hashable]:
    return [place_of(file).stamp() for file in files.files()]


def given_rows(table: Table, provenance: dict[str, Any]) -> GivenRows | None:
    """Return the rows of a table of labels that is in Parquet files, opened lazily; None of another table."""
    files = table
    while isinstance(files, SelectedTable):
        files = files.table
    return GivenRows(table, files, provenance) if isinstance(files, ParquetTable) else None
