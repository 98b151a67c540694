"""A stored ensemble: a header, and rows of labels or memberships that are read block by block.

The rows are an array of Zarr, or a folder of files that every reader of Parquet opens: one for each chunk
of rows, ``part-00000.parquet`` and so on, with the ids and a column for each partition, its original labels,
null where missing. The head beside the files has the checksums of their footers.
"""

from __future__ import annotations

import json
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.arrays import StoredArray, digest_text, rows_digest
from bigcons.disk.commit import names_parquet, write_head
from bigcons.disk.files import MOST_JSON_BYTES, Place, StorePath, corrupt, decoding, parse_json
from bigcons.disk.places import DiskPlace
from bigcons.disk.schema import MISSING, arrays_of, chunk_columns
from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.io.columns import rule_of_values
from bigcons.io.factorize import Encoding, label_dtype
from bigcons.io.files import MADE_FOR_ENSEMBLE, footer_of, is_within
from bigcons.io.ids import TEXT, Ids, canonical
from bigcons.io.labels import observed
from bigcons.memory import Block, row_blocks
from bigcons.store.generator import Generator, StoredGenerator
from bigcons.store.store import Store, StoredIds, consistent, write_files, write_ids

KIND = "ensemble"
SUM_TOLERANCE = 1e-3
"""How far from 1 memberships of an object in a partition may sum."""
RESTORE = "restore the store from a copy."
"""What to do with a damaged store."""

Categories = list[np.ndarray | None]
"""Original value of each label, per partition; None where values and labels are the same."""


class Header(NamedTuple):
    """The metadata of an ensemble."""

    n_objects: int
    names: list[str]
    n_clusters: np.ndarray
    """``(n_partitions,)`` int64"""
    n_labeled: np.ndarray
    """``(n_partitions,)`` int64: number of objects labeled by each partition"""
    chunk_rows: int
    provenance: dict[str, Any]
    is_soft: bool = False
    """Whether the columns of the array are memberships in base clusters, rather than labels of partitions."""
    ids: Ids | None = None
    """What identifies the objects, if that is known."""
    generator: Generator | StoredGenerator | None = None
    """What labels new rows by their features, if the partitions were generated."""

    @property
    def n_columns(self) -> int:
        """Number of columns of the array."""
        return int(self.n_clusters.sum()) if self.is_soft else len(self.names)

    @property
    def dtype(self) -> np.dtype:
        """Smallest type of the array."""
        return np.dtype(np.float32) if self.is_soft else label_dtype(self.n_clusters)

    @property
    def offsets(self) -> np.ndarray:
        """First base cluster of each partition: ``(n_partitions + 1,)`` int64."""
        return np.concatenate([[0], np.cumsum(self.n_clusters)])

    def digest(self, block: Block, rows: np.ndarray) -> int:
        """Return the part of a block of ``chunk_rows`` rows in the digest of the store, which is the sum."""
        name = "memberships" if self.is_soft else "labels"
        return rows_digest(name, block.index, rows, (self.chunk_rows, chunk_columns(self.n_columns)))


class Content(NamedTuple):
    """An ensemble that is ready to be held or stored, or what is appended to one."""

    header: Header
    """With what is appended."""
    categories: Categories
    blocks: Iterable[np.ndarray]
    """Labels ``(n_rows, n_partitions)`` or memberships ``(n_rows, n_base_clusters)``, in the order of the
    objects; of an append those of the new objects, or of the new partitions."""


# Reading


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


class StoredRows(ABC):
    """The rows of a store, open for reading; thread-safe."""

    prefix = ""
    """Of the names of files besides the rows."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.path: Place = store.place
        body = store.body
        with consistent(store.place, RESTORE):
            n_objects, names = body["n_objects"], list(map(str, body["names"]))
            n_clusters, n_labeled = (np.array(body[name], np.int64) for name in ("n_clusters", "n_labeled"))
            require(n_clusters.shape == n_labeled.shape == (len(names),) != (0,), "the number of names")
            require(bool((n_clusters >= 1).all() and (n_labeled >= 1).all()), "the number of clusters")
            require(bool((n_labeled <= n_objects).all()), "the number of labels")
            is_soft = body["dtype"] == "float32"
            if not is_soft:
                require(int(np.max(n_clusters)) - 1 <= np.iinfo(body["dtype"]).max, "the type")
        name = f"{self.prefix}generator.npz"
        self.dtype: np.dtype = np.dtype(body["dtype"])
        self.header: Header = Header(
            *(n_objects, names, n_clusters, n_labeled, body["chunk_rows"], body["provenance"], is_soft),
            *(store.ids, StoredGenerator(store, name) if name in body["files"] else None),
        )

    @abstractmethod
    def files_of(self, number: int) -> list[str]:
        """Return the files of a chunk of rows."""

    @abstractmethod
    def decoded(self, start: int, stop: int) -> np.ndarray:
        """Return rows ``start`` to ``stop``, not empty, as they are stored."""

    @abstractmethod
    def reading_bytes(self, n_processes: int, n_threads: int) -> int:
        """Return the memory that reading takes in all, besides the rows that are returned.

        ``n_threads`` threads, in all of ``n_processes`` processes, read at a time.
        """

    @property
    def n_bytes(self) -> int:
        """What the store takes: labels, ids, original values and all else."""
        return self.path.n_bytes()

    def categories(self) -> Categories:
        """Return the original label values of every partition; None where values and labels are the same."""
        n_clusters, name = self.header.n_clusters, f"{self.prefix}categories.json"
        if name not in self.store.body["files"]:
            return [None] * len(n_clusters)
        file = self.store.data / name
        entries = parse_json(self.store.read_file(name, MOST_JSON_BYTES), file)
        with consistent(file, RESTORE):
            values = [
                entry
                if entry is None
                else np.array(entry, object if all(isinstance(value, str) for value in entry) else np.int64)
                for entry in entries
            ]
            fits = len(values) == len(n_clusters) and all(
                entry is None or entry.shape == (k,) for entry, k in zip(values, n_clusters, strict=True)
            )
            require(fits, "other numbers of values than of clusters")
        return values

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return rows ``start`` to ``stop``.

        Raises CorruptStoreError for a chunk that is damaged, missing or has an invalid label, and StoreError
        if the store has changed since it was opened.
        """
        if start == stop:
            return np.empty((0, self.header.n_columns), self.dtype)
        block = self.decoded(start, stop)
        if self.header.is_soft:
            if not (block.min() >= 0 and block.max() <= 1):  # NaN fails too
                raise self.broken(start, stop, "a membership is not from 0 to 1")
            return block
        if block.min() < MISSING:
            raise self.broken(start, stop, "a label is negative")
        if (_column_maxima(block) >= self.header.n_clusters).any():
            raise self.broken(start, stop, "a label exceeds the number of clusters")
        return block

    def verify(self) -> int:
        """Read everything and compare it with the head; return the number of chunks."""
        header, total = self.header, 0
        self.categories()
        n_labeled = np.zeros(len(header.names), np.int64)
        present = [np.zeros(k, bool) for k in header.n_clusters]
        blocks = row_blocks(header.n_objects, header.chunk_rows)
        for block in blocks:
            rows = self.read(block.start, block.stop)
            total += header.digest(block, rows)
            n_labeled += np.count_nonzero(observed(rows, header.offsets), axis=0)
            if header.is_soft:
                sums = np.add.reduceat(rows, header.offsets[:-1], axis=1, dtype=np.float64)
                if (np.minimum(np.abs(sums - 1.0), np.abs(sums)) > SUM_TOLERANCE).any():
                    raise self.broken(block.start, block.stop, "memberships of a partition do not sum to 1")
                continue
            for u, found in enumerate(present):
                found[rows[:, u][rows[:, u] >= 0]] = True
        if not np.array_equal(n_labeled, header.n_labeled) or not (
            header.is_soft or all(found.all() for found in present)
        ):
            raise corrupt(self.path, "has labels that do not match the counts in its head", RESTORE)
        if isinstance(header.generator, StoredGenerator):
            header.generator.load()
        self.store.check_digest(total)
        return len(blocks) * -(-header.n_columns // chunk_columns(header.n_columns))

    def broken(self, start: int, stop: int, reason: str) -> CorruptStoreError:
        """Return the error of damaged rows; raises StoreError if the store has changed since it was
        opened."""
        self.store.check_unchanged()
        return corrupt(self.path, f"is damaged in rows {start} to {stop} ({reason})", RESTORE)


class ZarrRows(StoredRows):
    """Rows in an array of Zarr."""

    def files_of(self, number: int) -> list[str]:
        """Return the names of the chunks in a row of chunks."""
        ((name, array),) = arrays_of(KIND, self.store.body).items()
        return [f"{name}/c/{number}/{column}" for column in range(-(-array.shape[1] // array.chunks[1]))]

    def decoded(self, start: int, stop: int) -> np.ndarray:
        """Return rows from the array."""
        return self.store.read("memberships" if self.header.is_soft else "labels", start, stop)

    def reading_bytes(self, n_processes: int, n_threads: int) -> int:  # noqa: ARG002 - Zarr has its own
        """Return the buffers that reading leaves in the processes."""
        row_bytes = self.header.n_columns * self.dtype.itemsize
        return reading_bytes(self.header.chunk_rows, row_bytes, self.dtype, n_processes)


def reading_bytes(chunk_rows: int, row_bytes: int, dtype: np.dtype, n_processes: int) -> int:
    """Return the buffers that reading an array of such rows leaves in as many processes.

    Zarr decodes on its own threads, and glibc retains for each thread what it freed: a chunk and its
    compressed form, about 1.5 chunks together. Where rows span several chunks, these are read together, and a
    thread holds one while it decodes the next.
    """
    import zarr

    columns = row_bytes // dtype.itemsize
    at_once = min(-(-columns // chunk_columns(columns)), 2)
    n_threads = int(zarr.config.get("threading.max_workers") or min(32, (os.cpu_count() or 1) + 4))
    return n_processes * at_once * n_threads * chunk_rows * chunk_columns(columns) * dtype.itemsize * 3 // 2


def _column_maxima(block: np.ndarray) -> np.ndarray:
    """Return the maximum of each column; folds rows first, because long rows reduce much faster."""
    (n_rows, n_columns), together = block.shape, 256
    if n_rows < 2 * together:
        return block.max(axis=0)
    whole = n_rows - n_rows % together
    folded = block[:whole].reshape(-1, together * n_columns).max(axis=0).reshape(together, n_columns)
    return np.maximum(folded.max(axis=0), block[whole:].max(axis=0, initial=MISSING))


def require(condition: bool, what: str) -> None:
    """Raise ValueError that ``what`` is inconsistent unless the condition holds."""
    if not condition:
        raise ValueError(what)


class ParquetRows(StoredRows):
    """Rows in files of Parquet, one for each chunk."""

    prefix = "_"  # readers of Parquet pass over such files

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._encodings: list[Encoding] = []
        """Those of the partitions, made when a label is looked up."""
        self.footers: list[int] = store.body["footers"] or []
        with consistent(self.path, RESTORE):
            n_files = -(-self.header.n_objects // self.header.chunk_rows)
            require(len(self.footers) == n_files, "the number of footers")
            if store.body["ids"] is not None:
                store.ids = ParquetIds(store, self._opened)
                self.header: Header = self.header._replace(ids=store.ids)

    def files_of(self, number: int) -> list[str]:
        """Return the name of the file."""
        return [f"part-{number:05}.parquet"]

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

        if f"{self.prefix}categories.json" not in self.store.body["files"]:
            require(column.type == pa.from_numpy_dtype(self.dtype), f"labels of type {column.type}")
            return whole_numbers(column)
        if not self._encodings:
            for name, k, values in zip(
                self.header.names, self.header.n_clusters, self.categories(), strict=True
            ):
                known = np.arange(k) if values is None else values
                self._encodings.append(Encoding(name, known, rule=rule_of_values(known)))
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
            require(zlib.crc32(footer_of(path)) == self.footers[number], f"{path.name} has a damaged footer")
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
        known = {name for number in range(len(self.footers)) for name in self.files_of(number)}
        for name in self.path.names():
            if name not in known and not name.startswith(("_", ".")):
                what = "is not part of the ensemble, but other readers would read it"
                raise corrupt(self.path / name, what, "remove it.")
        return n_chunks


def open_rows(place: Place) -> StoredRows:
    """Open the rows of the ensemble at ``place``."""
    store = Store(place, KIND, RESTORE)
    return ParquetRows(store) if store.head.is_parquet else ZarrRows(store)


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


class RowsWriter(ABC):
    """Writes the rows of a store to an empty ``folder``, chunk by chunk.

    ``kept`` is the store before more objects are appended: its full chunks are linked, or copied in a bucket,
    unless a column changes its type.
    """

    rows_of: type[StoredRows]

    def __init__(
        self, folder: Place, header: Header, categories: Categories, kept: StoredRows | None = None
    ) -> None:
        self.folder: Place = folder
        self.header: Header = header
        self._categories = categories
        self.n_kept: int = 0
        """Objects whose rows are those of the store before."""
        self._next_row = self._total = 0
        if kept is None or not self.shares(kept):
            return
        n_chunks = kept.header.n_objects // header.chunk_rows
        for name in (name for number in range(n_chunks) for name in kept.files_of(number)):
            try:
                (kept.store.data / name).copy_to(folder / name)
            except FileNotFoundError:
                raise corrupt(kept.store.data / name, "is missing", RESTORE) from None
        self.n_kept = self._next_row = n_chunks * header.chunk_rows
        last = Block(n_chunks, self.n_kept, kept.header.n_objects)
        self._total = int(kept.store.body["digest"], 16)
        if last.n_rows:
            self._total -= kept.header.digest(last, kept.read(last.start, last.stop))

    @abstractmethod
    def shares(self, kept: StoredRows) -> bool:
        """Return whether full chunks of a store have the same content in this one."""

    @abstractmethod
    def put(self, start: int, block: np.ndarray) -> None:
        """Write the rows from ``start`` on."""

    @abstractmethod
    def commit(self) -> None:
        """Write what belongs to the rows, and the head."""

    def write(self, block: np.ndarray) -> None:
        """Write the next ``chunk_rows`` rows, fewer at the end."""
        if self._next_row + len(block) > self.header.n_objects:
            refuse_other_length(self._next_row + len(block), self.header.n_objects)
        self.put(self._next_row, block)
        number = self._next_row // self.header.chunk_rows
        self._total += self.header.digest(Block(number, self._next_row, self._next_row + len(block)), block)
        self._next_row += len(block)

    def body(self, ids: dict[str, Any] | None, footers: list[int] | None = None) -> dict[str, Any]:
        """Write the files besides the rows; return the body of the head.

        Raises InvalidInputError unless all rows were written.
        """
        header = self.header
        if self._next_row != header.n_objects:
            refuse_other_length(self._next_row, header.n_objects)
        values = [None if known is None else known.tolist() for known in self._categories]
        data = b"" if all(known is None for known in values) else json.dumps(values).encode()
        if len(data) > MOST_JSON_BYTES:
            raise InvalidInputError(
                f"the names of the base clusters take {len(data):,} bytes, more than the "
                f"{MOST_JSON_BYTES:,} that are read again; use shorter labels, such as numbers."
            )
        generator = b"" if header.generator is None else header.generator.to_bytes()
        files = {"categories.json": data, "generator.npz": generator}
        return {
            "n_objects": header.n_objects,
            "names": header.names,
            "n_clusters": header.n_clusters,
            "n_labeled": header.n_labeled,
            "dtype": header.dtype.name,
            "chunk_rows": header.chunk_rows,
            "provenance": header.provenance,
            "ids": ids,
            "files": write_files(
                self.folder, {f"{self.rows_of.prefix}{name}": data for name, data in files.items()}
            ),
            "digest": digest_text(self._total),
            "footers": footers,
        }


class ArrayWriter(RowsWriter):
    """Writes rows to an array of Zarr."""

    rows_of: type[StoredRows] = ZarrRows

    def __init__(
        self, folder: Place, header: Header, categories: Categories, kept: StoredRows | None = None
    ) -> None:
        body = {
            "n_objects": header.n_objects,
            "names": header.names,
            "n_clusters": header.n_clusters.tolist(),
            "dtype": header.dtype.name,
            "chunk_rows": header.chunk_rows,
        }
        ((self._name, array),) = arrays_of(KIND, body).items()
        self.array: StoredArray = StoredArray.create(folder / self._name, array)
        super().__init__(folder, header, categories, kept)

    def shares(self, kept: StoredRows) -> bool:
        """Return whether the array has the same columns and type; chunks have as many rows."""
        same_columns = kept.header.n_columns == self.header.n_columns
        return (
            same_columns
            and kept.header.chunk_rows == self.header.chunk_rows
            and kept.dtype == self.array.dtype
        )

    def put(self, start: int, block: np.ndarray) -> None:
        """Write rows to the array."""
        self.array.write(start, block)

    def commit(self) -> None:
        """Write ids, files and the head."""
        header, entry, names = self.header, None, [self._name]
        if header.ids is not None:
            entry, of_ids = write_ids(self.folder, header.ids, header.n_objects, header.chunk_rows)
            names += of_ids
        write_head(self.folder, KIND, self.body(entry), names)


class ParquetWriter(RowsWriter):
    """Writes rows, with their ids, to files of Parquet."""

    rows_of: type[StoredRows] = ParquetRows

    def __init__(
        self, folder: Place, header: Header, categories: Categories, kept: StoredRows | None = None
    ) -> None:
        self._schema = _schema(header, categories, header.dtype)
        super().__init__(folder, header, categories, kept)
        n_kept = self.n_kept // header.chunk_rows
        self._footers: list[int] = kept.footers[:n_kept] if isinstance(kept, ParquetRows) else []
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


def refuse_other_length(n_rows: int, n_objects: int) -> None:
    """Raise InvalidInputError if the rows written are not as many as those counted before."""
    if n_rows > n_objects:
        raise InvalidInputError(
            f"labels has more objects than the {n_objects:,} counted in the first pass; "
            "pass labels that do not change."
        )
    raise InvalidInputError(
        f"labels has {n_rows:,} objects but {n_objects:,} were counted in the first pass; "
        "pass labels that do not change."
    )
