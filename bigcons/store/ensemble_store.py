"""A stored ensemble: a header, and rows of labels or memberships that are read block by block.

Here the rows are an array of Zarr; `parquet_ensemble` has those in files of Parquet.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.arrays import StoredArray, bytes_kept_by_decoding, digest_text
from bigcons.disk.commit import write_head
from bigcons.disk.files import MOST_JSON_BYTES, Place, corrupt, parse_json
from bigcons.disk.schema import MISSING, arrays_of, chunk_columns
from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.io.factorize import label_dtype
from bigcons.io.ids import Ids
from bigcons.io.labels import observed
from bigcons.memory import Block, row_blocks
from bigcons.store.generator import Generator, StoredGenerator
from bigcons.store.ids import write_ids
from bigcons.store.store import Store, consistent, rows_digest, write_files

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


class StoredRows(ABC):
    """The rows of a store, open for reading; thread-safe."""

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
        name = self.file_name("generator.npz")
        self.dtype: np.dtype = np.dtype(body["dtype"])
        self.header = Header(
            *(n_objects, names, n_clusters, n_labeled, body["chunk_rows"], body["provenance"], is_soft),
            *(store.ids, StoredGenerator(store, name) if name in body["files"] else None),
        )

    @classmethod
    @abstractmethod
    def file_name(cls, name: str) -> str:
        """Return under which name a file besides the rows is stored."""

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
        n_clusters, name = self.header.n_clusters, self.file_name("categories.json")
        if name not in self.store.body["files"]:
            return [None] * len(n_clusters)
        file = self.store.data / name
        entries = parse_json(self.store.read_file(name, MOST_JSON_BYTES), file)
        with consistent(file, RESTORE):
            values = [None if entry is None else _category_array(entry) for entry in entries]
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

    @classmethod
    def file_name(cls, name: str) -> str:
        """Return the name as it is."""
        return name

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

    Where rows span several chunks, these are read together, and a thread holds one while it decodes the next.
    """
    columns = row_bytes // dtype.itemsize
    at_once = min(-(-columns // chunk_columns(columns)), 2)
    return (
        n_processes * at_once * bytes_kept_by_decoding(chunk_rows * chunk_columns(columns) * dtype.itemsize)
    )


def _column_maxima(block: np.ndarray) -> np.ndarray:
    """Return the maximum of each column; folds rows first, because long rows reduce much faster."""
    (n_rows, n_columns), together = block.shape, 256
    if n_rows < 2 * together:
        return block.max(axis=0)
    whole = n_rows - n_rows % together
    folded = block[:whole].reshape(-1, together * n_columns).max(axis=0).reshape(together, n_columns)
    return np.maximum(folded.max(axis=0), block[whole:].max(axis=0, initial=MISSING))


def _category_array(entry: list[Any]) -> np.ndarray:
    if all(isinstance(value, str) for value in entry):
        return np.array(entry, dtype=object)
    return np.array(entry, dtype=np.int64)


def require(condition: bool, what: str) -> None:
    """Raise ValueError that ``what`` is inconsistent unless the condition holds."""
    if not condition:
        raise ValueError(what)


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
        self.folder, self.header, self._categories = folder, header, categories
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
        self.note(block_digest(self.header, self._next_row, block), len(block))

    def note(self, digest: int, n_rows: int) -> None:
        """Record the digest of the next rows, which may have been written by another process."""
        self._total += digest
        self._next_row += n_rows

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
                self.folder, {self.rows_of.file_name(name): data for name, data in files.items()}
            ),
            "digest": digest_text(self._total),
            "footers": footers,
        }


def block_digest(header: Header, start: int, block: np.ndarray) -> int:
    """Return the part of a chunk of rows in the digest of the store."""
    return header.digest(Block(start // header.chunk_rows, start, start + len(block)), block)


class ArrayWriter(RowsWriter):
    """Writes rows to an array of Zarr."""

    rows_of = ZarrRows

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
