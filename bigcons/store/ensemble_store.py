"""What every stored ensemble is: rows of labels or memberships that are read block by block, and a header.

`zarr_ensemble` stores them as a Zarr array, `parquet_ensemble` as Parquet files.
"""

from __future__ import annotations

import json
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.arrays import MAX_CHUNK_BYTES, damaged
from bigcons.disk.commit import manifest_of
from bigcons.disk.interface import Place
from bigcons.disk.places import link
from bigcons.disk.reading import MOST_JSON_BYTES, corrupt, decoding, parse_json
from bigcons.disk.schema import ENSEMBLE, MISSING, file_names
from bigcons.errors import InvalidInputError, StoreError
from bigcons.io.encode import label_dtype
from bigcons.io.ids import Ids
from bigcons.io.labels import observed
from bigcons.memory import row_blocks
from bigcons.store.generator import Generator, StoredGenerator
from bigcons.store.store import Store, consistent, write_file

KIND = "ensemble"
MAX_CHUNK_COLUMNS = 128
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

    path: Place
    header: Header
    dtype: np.dtype
    chunk_columns: int
    """Columns that a checksum covers."""
    remedy: str = ""
    """How else than by more memory reading would fit into a budget; continues "raise it to X"."""
    store: Store
    _stamp: Hashable = None
    _checksums: np.ndarray | None = None

    def __init__(self, path: Place) -> None:
        self.path = path
        self._stamp = stamp_of(path)
        store = self.store = Store(path, KIND, RESTORE)
        self._files = file_names(store.manifest.kind, store.layout.suffix)
        with consistent(path, RESTORE):
            self._take(store.body)

    @property
    def n_bytes(self) -> int:
        """What the store takes: labels, ids, original values and all else."""
        return self.path.n_bytes()

    def _take(self, body: dict[str, Any]) -> None:
        """Set what the body of a manifest says; raises KeyError, TypeError or ValueError if inconsistent."""
        n_objects, chunk_rows, names = body["n_objects"], body["chunk_rows"], list(map(str, body["names"]))
        n_clusters, n_labeled = (np.array(body[name], np.int64) for name in ("n_clusters", "n_labeled"))
        require(n_clusters.shape == n_labeled.shape == (len(names),) != (0,), "the number of names")
        require(body["n_partitions"] == len(names), "the number of names")
        require(bool((n_clusters >= 1).all() and (n_labeled >= 1).all()), "the number of clusters")
        require(bool((n_labeled <= n_objects).all()), "the number of labels")
        soft, hard = ENSEMBLE["memberships"].dtypes, ENSEMBLE["labels"].dtypes
        require(body["dtype"] in (*soft, *hard), f"dtype {body['dtype']!r}")
        self.dtype = np.dtype(body["dtype"])
        self.chunk_columns = body["chunk_columns"]
        generator = self._files["generator_checksum"]
        self.header = Header(
            *(n_objects, names, n_clusters, n_labeled, chunk_rows, body["provenance"]),
            *(body["dtype"] in soft, self.store.ids),
            None if body["generator_checksum"] is None else StoredGenerator(self.store, generator),
        )
        self._checksums = np.array(body["checksums"], np.int64)
        grid = (math.ceil(n_objects / chunk_rows), math.ceil(self.header.n_columns / self.chunk_columns))
        require(self.checksums.shape == grid, "the number of chunks")
        chunk_bytes = chunk_rows * self.chunk_columns * self.dtype.itemsize
        require(chunk_bytes <= MAX_CHUNK_BYTES, "the size of chunks")
        if not self.header.is_soft:
            require(int(np.max(n_clusters)) - 1 <= np.iinfo(self.dtype).max, "the type")

    @property
    def checksums(self) -> np.ndarray:
        """The CRC-32 of the values of each chunk ``(rows of chunks, columns of chunks)`` int64."""
        if self._checksums is None:
            blocks = row_blocks(self.header.n_objects, self.header.chunk_rows)
            found = [tile_checksums(self.read(b.start, b.stop), self.chunk_columns) for b in blocks]
            self._checksums = np.array(found, np.int64)
        return self._checksums

    @abstractmethod
    def decoded(self, start: int, stop: int, first_column: int) -> np.ndarray:
        """Return rows ``start`` to ``stop``, not empty, from ``first_column`` on, as they are stored."""

    @abstractmethod
    def reading_bytes(self, n_processes: int, n_threads: int) -> int:
        """Return the memory that reading takes in all, besides the rows that are returned.

        ``n_threads`` threads, in all of ``n_processes`` processes, read at a time.
        """

    def categories(self) -> Categories:
        """Return the original label values of every partition; None where values and labels are the same."""
        n_clusters, name = self.header.n_clusters, self._files["categories_checksum"]
        if self.store.layout.files[name] is None:
            return [None] * len(n_clusters)
        file = self.store.data / name
        try:
            entries = parse_json(self.store.read_file(name, MOST_JSON_BYTES), file)
            values = [None if entry is None else _category_array(entry) for entry in entries]
            fits = len(values) == len(n_clusters) and all(
                entry is None or entry.shape == (k,) for entry, k in zip(values, n_clusters, strict=True)
            )
            require(fits, "inconsistent with the manifest")
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(file, error) from None
        return values

    def check_files(self) -> None:
        """Raise CorruptStoreError if ids and files are not those of the manifest."""
        self.store.check_rest()

    def read(self, start: int, stop: int, first_column: int = 0) -> np.ndarray:
        """Return rows ``start`` to ``stop`` from ``first_column`` on.

        Raises CorruptStoreError for a chunk that is damaged, missing or has an invalid label, and StoreError
        if the store has changed since it was opened.
        """
        shape = (stop - start, self.header.n_columns - first_column)
        if 0 in shape:
            return np.empty(shape, self.dtype)
        with decoding(lambda reason: self.broken(start, stop, reason)):
            block = self.decoded(start, stop, first_column)
        self._check_unchanged()
        if self.header.is_soft:
            if not (block.min() >= 0 and block.max() <= 1):  # NaN fails too
                raise self.broken(start, stop, "a chunk is missing, or a membership is not from 0 to 1")
            return block
        if block.min() < MISSING:
            raise self.broken(start, stop, "a chunk is missing")
        if (_column_maxima(block) >= self.header.n_clusters[first_column:]).any():
            raise self.broken(start, stop, "a label exceeds the number of clusters")
        return block

    def verify(self) -> int:
        """Read everything and compare it with the manifest; return the number of chunks."""
        header = self.header
        self.categories()
        n_labeled = np.zeros(len(header.names), np.int64)
        present = [np.zeros(k, bool) for k in header.n_clusters]
        for row, start in enumerate(range(0, header.n_objects, header.chunk_rows)):
            block = self.read(start, min(start + header.chunk_rows, header.n_objects))
            if tile_checksums(block, self.chunk_columns) != self.checksums[row].tolist():
                raise self.broken(start, start + len(block), "a chunk differs from its checksum")
            if header.is_soft:
                n_labeled += np.count_nonzero(observed(block, header.offsets), axis=0)
                self._check_sums(start, block)
                continue
            n_labeled += np.count_nonzero(block != MISSING, axis=0)
            for u, found in enumerate(present):
                found[block[:, u][block[:, u] >= 0]] = True
        if not np.array_equal(n_labeled, header.n_labeled) or not (
            header.is_soft or all(found.all() for found in present)
        ):
            raise corrupt(self.path, "has labels that do not match the counts in the manifest", RESTORE)
        if isinstance(header.generator, StoredGenerator):
            header.generator.load()
        self.check_files()
        return int(self.checksums.size)

    def _check_sums(self, start: int, block: np.ndarray) -> None:
        """Raise CorruptStoreError unless the memberships of every object sum to 1 or 0 in every partition."""
        sums = np.add.reduceat(block, self.header.offsets[:-1], axis=1, dtype=np.float64)
        if (np.minimum(np.abs(sums - 1.0), np.abs(sums)) > SUM_TOLERANCE).any():
            raise self.broken(start, start + len(block), "memberships of a partition do not sum to 1")

    def _check_unchanged(self) -> None:
        """Raise StoreError if the store has changed since it was opened: rows read may be old or new."""
        if stamp_of(self.path) != self._stamp:
            raise StoreError(f"{self.path} has changed since it was opened; open it again.", path=self.path)

    def broken(self, start: int, stop: int, reason: str) -> StoreError:
        """Return the error of damaged rows, or that of a store that has changed since it was opened."""
        self._check_unchanged()
        return corrupt(self.path, f"is damaged in rows {start} to {stop} ({reason})", RESTORE)


def tile_checksums(block: np.ndarray, columns: int) -> list[int]:
    """Return the CRC-32 of the values of each chunk in a row of chunks."""
    tiles = (block[:, first : first + columns] for first in range(0, block.shape[1], columns))
    return [zlib.crc32(np.ascontiguousarray(tile).data) for tile in tiles]


def _column_maxima(block: np.ndarray) -> np.ndarray:
    """Return the maximum of each column; folds rows first, because long rows reduce much faster."""
    (n_rows, n_columns), together = block.shape, 256
    if n_rows < 2 * together:
        return block.max(axis=0)
    whole = n_rows - n_rows % together
    folded = block[:whole].reshape(-1, together * n_columns).max(axis=0).reshape(together, n_columns)
    return np.maximum(folded.max(axis=0), block[whole:].max(axis=0, initial=MISSING))


def stamp_of(path: Place) -> Hashable:
    """Return a value that changes with every commit, because each makes a new manifest file."""
    return manifest_of(path).stamp()


def require(condition: bool, what: str) -> None:
    """Raise ValueError that ``what`` is inconsistent unless the condition holds."""
    if not condition:
        raise ValueError(what)


# The original values of labels


def _category_array(entry: list[Any]) -> np.ndarray:
    if all(isinstance(value, str) for value in entry):
        return np.array(entry, dtype=object)
    return np.array(entry, dtype=np.int64)


# Writing


class RowsWriter(ABC):
    """Writes the rows of a new store, or of a grown one, chunk by chunk."""

    n_kept: int = 0
    """Objects whose rows are taken from the store before, if objects are appended."""
    first_column: int = 0
    """Columns before it are taken from the store before, if partitions are appended."""

    def __init__(
        self, folder: Place, header: Header, categories: Categories, files: dict[str, str], columns: int
    ) -> None:
        """Prepare to write to ``folder``; ``files`` has the names of those besides the rows, by their entry.

        A checksum covers ``columns`` columns.
        """
        self._folder, self._header, self._categories, self._files = folder, header, categories, files
        self._chunk_columns = columns
        self._checksums: list[list[int]] = []
        self._kept_checksums: list[list[int]] = []
        """Of the columns of chunks that are kept, by rows of chunks."""
        self._next_row = 0

    @abstractmethod
    def put(self, start: int, block: np.ndarray) -> None:
        """Write the rows from ``start`` on."""

    def write(self, block: np.ndarray) -> None:
        """Write the next ``chunk_rows`` rows, fewer at the end, from ``first_column`` on."""
        stop = self._next_row + len(block)
        if stop > self._header.n_objects:
            refuse_other_length(stop, self._header.n_objects)
        self.put(self._next_row, block)
        kept = self._kept_checksums[len(self._checksums)] if self.first_column else []
        self._checksums.append([*kept, *tile_checksums(block, self._chunk_columns)])
        self._next_row = stop

    def note(self, checksums: list[list[int]], n_rows: int) -> None:
        """Record the checksums of the next rows, which another process has written."""
        self._checksums += checksums
        self._next_row += n_rows

    @abstractmethod
    def commit(self) -> None:
        """Write what belongs to the rows, and make all of it valid by the manifest."""

    def body(self, own: dict[str, Any]) -> dict[str, Any]:
        """Write the files besides the rows; return all entries of the manifest, with the ``own`` ones."""
        header = self._header
        values = [None if known is None else known.tolist() for known in self._categories]
        data = b"" if all(known is None for known in values) else json.dumps(values).encode()
        if len(data) > MOST_JSON_BYTES:
            raise InvalidInputError(
                f"the names of the base clusters take {len(data):,} bytes, more than the "
                f"{MOST_JSON_BYTES:,} that are read again; use shorter labels, such as numbers."
            )
        contents = {
            "categories_checksum": data,
            "generator_checksum": b"" if header.generator is None else header.generator.to_bytes(),
        }
        return {
            **base_body(header, self._chunk_columns),
            **own,
            **{
                entry: write_file(self._folder / self._files[entry], content) if content else None
                for entry, content in contents.items()
            },
            "checksums": self._checksums,
        }

    def refuse_missing(self) -> None:
        """Raise InvalidInputError unless all rows were written."""
        if self._next_row != self._header.n_objects:
            refuse_other_length(self._next_row, self._header.n_objects)


def link_kept(source: Path, target: Path) -> None:
    """Link a file of the store before into the grown one; raises CorruptStoreError if it is missing."""
    try:
        link(source, target)
    except FileNotFoundError:
        raise corrupt(source, "is missing", RESTORE) from None


class Appending(NamedTuple):
    """A store locked for an append."""

    stored: StoredRows
    writer: Callable[[Header, Categories], RowsWriter]
    """Returns the writer of a grown header with its categories."""


def base_body(header: Header, chunk_columns: int) -> dict[str, Any]:
    """Return the entries of a manifest that follow from the header."""
    return {
        "n_objects": header.n_objects,
        "n_partitions": len(header.names),
        "names": header.names,
        "n_clusters": header.n_clusters,
        "n_labeled": header.n_labeled,
        "provenance": header.provenance,
        "dtype": header.dtype.name,
        "chunk_rows": header.chunk_rows,
        "chunk_columns": chunk_columns,
    }


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
