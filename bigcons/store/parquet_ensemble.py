"""Ensembles in Parquet: a folder of files that every reader of Parquet opens.

There is a file for each chunk of rows, ``part-00000.parquet`` and so on, with the ids and a column for each
partition: its original labels, null where missing. The head beside the files has the checksums of their
footers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bigcons.disk.commit import names_parquet, write_head
from bigcons.disk.files import Place, StorePath, corrupt, decoding
from bigcons.disk.places import DiskPlace
from bigcons.disk.schema import MISSING
from bigcons.errors import InvalidInputError
from bigcons.io.columns import rule_of_values
from bigcons.io.factorize import Encoding
from bigcons.io.files import MADE_FOR_ENSEMBLE, footer_of, is_within
from bigcons.io.ids import TEXT, canonical
from bigcons.io.labels import observed
from bigcons.store.ensemble_store import (
    KIND,
    RESTORE,
    Categories,
    Header,
    RowsWriter,
    StoredRows,
    ZarrRows,
    refuse_other_length,
    require,
)
from bigcons.store.ids import StoredIds
from bigcons.store.store import Store, consistent

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


def _path(folder: Place, number: int) -> Path:
    assert isinstance(folder, DiskPlace)  # noqa: S101 - buckets have no Parquet
    return folder.path / f"part-{number:05}.parquet"


# Reading


class ParquetRows(StoredRows):
    """Rows in files of Parquet, one for each chunk."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._encodings: list[Encoding] = []
        """Those of the partitions, made when a label is looked up."""
        self._footers = store.body["footers"] or []
        with consistent(self.path, RESTORE):
            n_files = -(-self.header.n_objects // self.header.chunk_rows)
            require(len(self._footers) == n_files, "the number of footers")
            if store.body["ids"] is not None:
                store.ids = ParquetIds(store, self._opened)
                self.header: Header = self.header._replace(ids=store.ids)

    @classmethod
    def file_name(cls, name: str) -> str:
        """Return a name that readers of Parquet pass over."""
        return f"_{name}"

    def files_of(self, number: int) -> list[str]:
        """Return the name of the file."""
        return [f"part-{number:05}.parquet"]

    def footers(self, n_files: int) -> list[int]:
        """Return the CRC-32 of the footers of the first files."""
        return list(self._footers[:n_files])

    def decoded(self, start: int, stop: int) -> np.ndarray:
        """Return rows from the files that they are in."""
        rows = np.empty((stop - start, self.header.n_columns), self.dtype)
        chunk = self.header.chunk_rows
        with decoding(lambda reason: self.broken(start, stop, reason)):
            for number in range(start // chunk, (stop - 1) // chunk + 1):
                low, high = max(start, number * chunk), min(stop, (number + 1) * chunk)
                part = slice(low - number * chunk, high - number * chunk)
                self._fill(number, part, rows[low - start : high - start])
        self.store.check_unchanged()
        return rows

    def _fill(self, number: int, part: slice, out: np.ndarray) -> None:
        """Write some rows of a file to ``out``, a few partitions at a time."""
        header = self.header
        with self._opened(number) as file:
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

        if self.file_name("categories.json") not in self.store.body["files"]:
            require(column.type == pa.from_numpy_dtype(self.dtype), f"labels of type {column.type}")
            return whole_numbers(column)
        if not self._encodings:
            values = zip(self.header.names, self.header.n_clusters, self.categories(), strict=True)
            self._encodings = [_encoding_of(name, k, known) for name, k, known in values]
        codes = encoded(column, self._encodings[u])
        n_labeled = int(np.count_nonzero(codes >= 0))
        require(n_labeled == len(column) - column.null_count, "a label that the head does not know")
        return codes

    @contextmanager
    def _opened(self, number: int) -> Iterator[Any]:
        """Yield a file. Its footer is compared with its checksum, and pages with theirs when read.

        Arrow may crash on a damaged footer.
        """
        from pyarrow import parquet

        path, rows = _path(self.path, number), self.header.chunk_rows
        try:
            require(not path.is_symlink(), f"{path.name} is a symbolic link")
            require(zlib.crc32(footer_of(path)) == self._footers[number], f"{path.name} has a damaged footer")
        except FileNotFoundError:
            raise ValueError(f"{path.name} is missing") from None
        with parquet.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
            require(file.num_row_groups == 1, "another number of row groups")
            group = file.metadata.row_group(0)
            require(group.num_rows == min(rows, self.header.n_objects - number * rows), "other rows")
            columns = [group.column(c) for c in range(group.num_columns)]
            require(is_within(columns, group.num_rows, path.stat().st_size), "columns beyond the file")
            yield file

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

    def verify(self) -> int:
        """Read everything and compare it with the head; refuse other files beside those of the ensemble."""
        n_chunks = super().verify()
        known = {name for number in range(len(self._footers)) for name in self.files_of(number)}
        for name in self.path.names():
            if name not in known and not name.startswith(("_", ".")):
                what = "is not part of the ensemble, but other readers would read it"
                raise corrupt(self.path / name, what, "remove it.")
        return n_chunks


def open_rows(place: Place) -> StoredRows:
    """Open the rows of the ensemble at ``place``."""
    store = Store(place, KIND, RESTORE)
    return ParquetRows(store) if store.head.is_parquet else ZarrRows(store)


def _encoding_of(name: str, n_clusters: int, values: np.ndarray | None) -> Encoding:
    """Return the encoding of a partition's original values."""
    known = np.arange(n_clusters) if values is None else values
    return Encoding(name, known, rule=rule_of_values(known))


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
    """The ids of a store, read file by file."""

    def __init__(self, store: Store, opened: Callable[[int], AbstractContextManager[Any]]) -> None:
        super().__init__(store)
        self._opened = opened

    def __reduce__(self) -> tuple[Any, ...]:
        return _ids_at, (self._store.place,)

    def read(self, start: int, stop: int) -> Any:
        """Return the ids of a range of rows; raises CorruptStoreError if they are damaged."""
        import pyarrow as pa

        name, chunk, parts = self.facts.name, self.chunk_rows, []
        for number in range(start // chunk, -(-stop // chunk)):
            first, path = number * chunk, _path(self._store.place, number)
            with decoding(lambda reason: corrupt(path, f"has damaged ids ({reason})", RESTORE)):  # noqa: B023
                with self._opened(number) as file:
                    column = file.read_row_group(0, columns=[name], use_threads=False).column(name)
                ids = canonical(column, name, str(path), first=first, dtype=self.facts.dtype)
            parts.append(ids.slice(max(start - first, 0), min(stop - first, chunk) - max(start - first, 0)))
        kind = pa.large_string() if self.facts.dtype == TEXT else pa.type_for_alias(self.facts.dtype)
        return pa.concat_arrays(parts) if parts else pa.array([], kind)


def _ids_at(place: Place) -> Any:
    return open_rows(place).header.ids


# Writing


class ParquetWriter(RowsWriter):
    """Writes rows, with their ids, to files of Parquet."""

    rows_of = ParquetRows

    def __init__(
        self, folder: Place, header: Header, categories: Categories, kept: StoredRows | None = None
    ) -> None:
        self._schema = _schema(header, categories, header.dtype)
        super().__init__(folder, header, categories, kept)
        n_kept = self.n_kept // header.chunk_rows
        self._footers: list[int] = kept.footers(n_kept) if isinstance(kept, ParquetRows) else []
        self._ids: Iterator[Any] | None = None
        if header.ids is not None:
            self._ids = header.ids.blocks(header.chunk_rows)
            for _ in range(n_kept):
                next(self._ids)

    def shares(self, kept: StoredRows) -> bool:
        """Return whether the files have the same columns and types."""
        same = _schema(kept.header, kept.categories(), kept.dtype) == self._schema
        return same and kept.header.chunk_rows == self.header.chunk_rows

    def put(self, start: int, block: np.ndarray) -> None:
        """Write a chunk as a file."""
        import pyarrow as pa
        from pyarrow import parquet

        header, path = self.header, _path(self.folder, len(self._footers))
        columns: list[Any] = []
        if header.is_soft:
            labeled = observed(block, header.offsets)
            for u in range(len(header.names)):
                columns.append(_lists(block[:, header.offsets[u] : header.offsets[u + 1]], labeled[:, u]))
        else:
            codes = np.empty(block.shape[::-1], block.dtype)
            _transpose(block, codes)
            columns = [_labels(codes[u], values) for u, values in enumerate(self._categories)]
        if header.ids is not None and self._ids is not None:
            ids = next(self._ids, pa.array([], pa.int64()))
            if len(ids) != len(block):
                refuse_other_length(start + len(ids), header.n_objects)
            columns.insert(0, header.ids.as_they_came(ids))
        table = pa.Table.from_arrays(columns, schema=self._schema)
        with parquet.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            use_dictionary=[] if header.is_soft else header.names,
            write_statistics=False,
            write_page_checksum=True,
        ) as writer:
            writer.write_table(table, row_group_size=max(len(block), 1))
        self._footers.append(zlib.crc32(footer_of(path)))

    def commit(self) -> None:
        """Write the files besides the rows, and the head."""
        ids = None if self.header.ids is None else self.header.ids.facts._asdict()
        write_head(self.folder, KIND, self.body(ids, self._footers), parquet=True)


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
