"""Stored ensembles: generations of one Zarr array, labels or memberships; the manifest names the valid one.

An append writes a new generation next to the old one. They share unchanged chunks, as hard links on a disk
and by reference in a bucket, so that an append costs no more than writing the new labels. Committing the
manifest makes the new generation valid; then the old one is removed.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import CorruptStoreError, InvalidInputError, StoreError, StoreNotFoundError
from bigcons.progress import progress
from bigcons.schema import ENSEMBLE, MISSING
from bigcons.storage.arrays import (
    MAX_CHUNK_BYTES,
    METADATA,
    SharedChunks,
    create_array,
    create_group,
    damaged,
    listed_arrays,
    open_array,
    refuse_links,
)
from bigcons.storage.commit import (
    MANIFEST,
    discarded_on_failure,
    load_manifest,
    new_folder,
    new_store,
    sweep_folders,
    write_manifest,
)
from bigcons.storage.interface import Place, StorePath
from bigcons.storage.locks import writer_lock
from bigcons.storage.places import DiskPlace, disk_errors
from bigcons.storage.reading import MOST_JSON_BYTES, parse_json
from bigcons.stores.ids import PREFIXES, StoredIds, array_names, write_ids
from bigcons.tables.encode import rechunk
from bigcons.tables.ids import Ids
from bigcons.validation import check_int

KIND = "ensemble"
MAX_CHUNK_COLUMNS = 128
SUM_TOLERANCE = 1e-3
"""How far from 1 memberships of an object in a partition may sum."""
_RESTORE = "restore the store from a copy."

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

    @property
    def n_columns(self) -> int:
        """Number of columns of the array."""
        return int(self.n_clusters.sum()) if self.is_soft else len(self.names)

    @property
    def offsets(self) -> np.ndarray:
        """First base cluster of each partition: ``(n_partitions + 1,)`` int64."""
        return np.concatenate([[0], np.cumsum(self.n_clusters)])


# Reading


class StoredRows:
    """One generation of a store, open for reading; thread-safe."""

    def __init__(self, path: Place) -> None:
        self.path = path
        self._stamp = _stamp(path)
        self.data: Place
        self.data, body, folders = load_manifest(path, KIND)
        try:
            self.header: Header = _read_header(body)
            self.generation: int = check_int("generation", body["generation"])
            types = ENSEMBLE["memberships" if self.header.is_soft else "labels"].dtypes
            _require(body["dtype"] in types, f"dtype {body['dtype']!r}")
            self.dtype: np.dtype = np.dtype(body["dtype"])
            self.chunk_columns: int = check_int("chunk_columns", body["chunk_columns"])
            self.checksums: np.ndarray = np.array(body["checksums"], np.int64)
            self.n_bytes: int = int(body["n_bytes"])
            self._categories_checksum = body["categories_checksum"]
            metadata_checksum = body["metadata_checksum"]
            n, m, chunk_rows = self.header.n_objects, len(self.header.names), self.header.chunk_rows
            _require(body["n_partitions"] == m, "the number of names")
            n_columns = self.header.n_columns
            grid = (math.ceil(n / chunk_rows), math.ceil(n_columns / self.chunk_columns))
            _require(self.checksums.shape == grid, "the number of chunks")
            chunk_bytes = chunk_rows * self.chunk_columns * self.dtype.itemsize
            _require(chunk_bytes <= MAX_CHUNK_BYTES, "the size of chunks")
            if not self.header.is_soft:
                _require(int(self.header.n_clusters.max()) - 1 <= np.iinfo(self.dtype).max, "the type")
            self.shared: SharedChunks = SharedChunks.from_manifest(
                body.get("shared"), folders, self.checksums.shape
            )
            if body.get("ids") is not None:
                ids = StoredIds(self.data, f"-{self.generation}", body["ids"], n, chunk_rows)
                self.header = self.header._replace(ids=ids)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptStoreError(
                f"{path} has an inconsistent manifest ({error}); {_RESTORE}", path=path
            ) from None
        file = self.data / array_name(self.header, self.generation)
        try:
            self._array = open_array(file, self.shared.arrays(partial(array_name, self.header)))
        except StoreNotFoundError:
            raise CorruptStoreError(f"{file} is missing; {_RESTORE}", path=file) from None
        shape, chunks = self._array.shape, self._array.chunks
        wanted = ((n, n_columns), (chunk_rows, self.chunk_columns), self.dtype)
        if (shape, chunks, self._array.dtype) != wanted:
            raise CorruptStoreError(
                f"{file} does not have the shape and type in the manifest; {_RESTORE}", path=file
            )
        if zlib.crc32((file / METADATA).read()) != metadata_checksum:
            raise CorruptStoreError(f"{file} has damaged metadata (wrong checksum); {_RESTORE}", path=file)

    def read(self, start: int, stop: int, first_column: int = 0) -> np.ndarray:
        """Return rows ``start`` to ``stop`` from ``first_column`` on.

        Raises CorruptStoreError for a chunk that is damaged, missing or has an invalid label, and StoreError
        if the store has changed since it was opened.
        """
        shape = (stop - start, self.header.n_columns - first_column)
        if 0 in shape:
            return np.empty(shape, self.dtype)
        try:
            block = np.ascontiguousarray(self._array[start:stop, first_column:])
        except (OSError, MemoryError, StoreError):
            raise
        except Exception as error:  # codecs raise errors of many types
            raise self._broken(start, stop, str(error) or type(error).__name__) from None
        self._check_unchanged()
        if self.header.is_soft:
            if not (block.min() >= 0 and block.max() <= 1):  # NaN fails too
                raise self._broken(start, stop, "a chunk is missing, or a membership is not from 0 to 1")
            return block
        if block.min() < MISSING:
            raise self._broken(start, stop, "a chunk is missing")
        if (_column_maxima(block) >= self.header.n_clusters[first_column:]).any():
            raise self._broken(start, stop, "a label exceeds the number of clusters")
        return block

    def categories(self) -> Categories:
        """Return the original label values of every partition; None where values and labels are the same."""
        if self._categories_checksum is None:
            return [None] * len(self.header.names)
        path = self.data / categories_name(self.generation)
        try:
            data = path.read(MOST_JSON_BYTES)
            if zlib.crc32(data) != self._categories_checksum:
                raise ValueError("wrong checksum")
            values = [None if entry is None else _category_array(entry) for entry in parse_json(data, path)]
            fits = len(values) == len(self.header.n_clusters) and all(
                entry is None or entry.shape == (k,)
                for entry, k in zip(values, self.header.n_clusters, strict=True)
            )
            _require(fits, "inconsistent with the manifest")
        except (ValueError, TypeError, FileNotFoundError, RecursionError) as error:
            raise damaged(path, error) from None
        return values

    def verify(self) -> int:
        """Read everything and compare it with the manifest; return the number of chunks."""
        header = self.header
        self.categories()
        n_labeled = np.zeros(len(header.names), np.int64)
        present = [np.zeros(k, bool) for k in header.n_clusters]
        for row, start in enumerate(range(0, header.n_objects, header.chunk_rows)):
            block = self.read(start, min(start + header.chunk_rows, header.n_objects))
            if tile_checksums(block, self.chunk_columns) != self.checksums[row].tolist():
                raise self._broken(start, start + len(block), "a chunk differs from its checksum")
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
            raise CorruptStoreError(
                f"{self.path}: the labels do not match the counts in the manifest; {_RESTORE}", path=self.path
            )
        if isinstance(header.ids, StoredIds):
            header.ids.verify()
        refuse_links(self.path)
        return int(self.checksums.size)

    def _check_sums(self, start: int, block: np.ndarray) -> None:
        """Raise CorruptStoreError unless the memberships of every object sum to 1 or 0 in every partition."""
        sums = np.add.reduceat(block, self.header.offsets[:-1], axis=1, dtype=np.float64)
        if (np.minimum(np.abs(sums - 1.0), np.abs(sums)) > SUM_TOLERANCE).any():
            raise self._broken(start, start + len(block), "memberships of a partition do not sum to 1")

    def _check_unchanged(self) -> None:
        """Raise StoreError if the store has changed since it was opened: rows read may be old or new."""
        if _stamp(self.path) != self._stamp:
            raise StoreError(f"{self.path} has changed since it was opened; open it again.", path=self.path)

    def _broken(self, start: int, stop: int, reason: str) -> StoreError:
        self._check_unchanged()
        reason = reason.splitlines()[0][:120]
        return CorruptStoreError(
            f"{self.path} is damaged in rows {start} to {stop} ({reason}); {_RESTORE}", path=self.path
        )


def open_labels(path: Place) -> StoredRows:
    """Open the store at ``path``, even while another process appends to it."""
    while True:
        stamp = _stamp(path)
        try:
            return StoredRows(path)
        except CorruptStoreError:
            if _stamp(path) == stamp:
                raise


def array_name(header: Header, generation: int) -> str:
    """Return the name of a generation's array."""
    return f"{'memberships' if header.is_soft else 'labels'}-{generation}"


def categories_name(generation: int) -> str:
    """Return the name of a generation's file of original label values."""
    return f"categories-{generation}.json"


def observed(rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return which partitions label each object (rows, M), given labels (rows, M) or memberships (rows, B).

    Partition ``u`` has the columns of memberships from ``offsets[u]``, all 0 where it is missing.
    """
    if rows.dtype.kind != "f":
        return rows >= 0
    return np.maximum.reduceat(rows, offsets[:-1], axis=1) > 0


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


def _stamp(path: Place) -> Hashable:
    """Return a value that changes with every commit, because each makes a new manifest file."""
    return (path / MANIFEST).stamp()


def _read_header(body: dict[str, Any]) -> Header:
    n_objects, chunk_rows = (check_int(name, body[name]) for name in ("n_objects", "chunk_rows"))
    names = [str(name) for name in body["names"]]
    n_clusters = np.array(body["n_clusters"], np.int64)
    # early stores spell it in British English
    n_labeled = np.array(body["n_labelled" if "n_labelled" in body else "n_labeled"], np.int64)
    _require(len(names) > 0 and n_clusters.shape == n_labeled.shape == (len(names),), "the number of names")
    _require(bool((n_clusters >= 1).all() and (n_labeled >= 1).all()), "the number of clusters")
    _require(bool((n_labeled <= n_objects).all()), "the number of labels")
    _require(isinstance(body["provenance"], dict), "the provenance")
    is_soft = body["dtype"] in ENSEMBLE["memberships"].dtypes
    return Header(n_objects, names, n_clusters, n_labeled, chunk_rows, body["provenance"], is_soft)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)


def _category_array(entry: list[Any]) -> np.ndarray:
    if all(isinstance(value, str) for value in entry):
        return np.array(entry, dtype=object)
    return np.array(entry, dtype=np.int64)


# Writing


class ArrayWriter:
    """Writes one generation to ``folder``, one row of chunks at a time, and commits it.

    ``kept`` is the previous generation, whose first ``kept_rows`` rows of chunks (or, when partitions are
    appended, first ``kept_columns`` columns of chunks) are shared.
    """

    def __init__(
        self,
        folder: Place,
        generation: int,
        header: Header,
        dtype: np.dtype,
        chunks: tuple[int, int],
        *,
        kept: StoredRows | None = None,
        kept_rows: int = 0,
        kept_columns: int = 0,
    ) -> None:
        self.folder = folder
        self.generation = generation
        self.dtype = dtype
        self.chunk_rows: int = chunks[0]
        self.chunk_columns: int = chunks[1]
        self._first_column = kept_columns * self.chunk_columns
        self._path = folder / array_name(header, generation)
        spec = ENSEMBLE["memberships" if header.is_soft else "labels"]
        self._array = create_array(self._path, spec, (header.n_objects, header.n_columns), chunks, dtype)
        self._checksums: list[list[int]] = []
        self._kept_checksums: list[list[int]] = []
        self._next_row = 0
        self._kept_bytes = 0
        self._ids: dict[str, Any] | None = None
        self._shared = SharedChunks.none(self._array.cdata_shape)
        if kept is not None:
            self._keep(kept, kept_rows, kept_columns)

    def write(self, block: np.ndarray) -> None:
        """Write the next ``chunk_rows`` rows (fewer at the end of the matrix)."""
        stop = self._next_row + len(block)
        if stop > self._array.shape[0]:
            raise InvalidInputError(
                f"labels has more objects than the {self._array.shape[0]} counted in the first pass; "
                "pass labels that do not change."
            )
        self._array[self._next_row : stop, self._first_column :] = block
        kept = self._kept_checksums[len(self._checksums)] if self._first_column else []
        self._checksums.append(kept + tile_checksums(block, self.chunk_columns))
        self._next_row = stop

    def write_ids(self, header: Header) -> None:
        """Write the ids of the objects, if they have any."""
        if header.ids is not None:
            suffix = f"-{self.generation}"
            self._ids = write_ids(self.folder, suffix, header.ids, header.n_objects, self.chunk_rows)

    def commit(self, place: Place, header: Header, categories: Categories) -> None:
        """Commit this generation as the valid one of the store at ``place``."""
        if self._next_row != header.n_objects:
            raise InvalidInputError(
                f"labels has {self._next_row} objects but {header.n_objects} were counted in the first pass; "
                "pass labels that do not change."
            )
        categories_checksum = None
        if any(values is not None for values in categories):
            entries = [None if values is None else values.tolist() for values in categories]
            data = json.dumps(entries).encode()
            if len(data) > MOST_JSON_BYTES:
                raise InvalidInputError(
                    f"the names of the base clusters take {len(data):,} bytes, more than the "
                    f"{MOST_JSON_BYTES:,} that are read again; use shorter labels, such as numbers."
                )
            (self.folder / categories_name(self.generation)).write(data)
            categories_checksum = zlib.crc32(data)
        body = {
            "n_objects": header.n_objects,
            "n_partitions": len(header.names),
            "names": header.names,
            "n_clusters": header.n_clusters,
            "n_labeled": header.n_labeled,
            "provenance": header.provenance,
            "generation": self.generation,
            "dtype": self.dtype.name,
            "chunk_rows": self.chunk_rows,
            "chunk_columns": self.chunk_columns,
            "metadata_checksum": zlib.crc32((self._path / METADATA).read()),
            "categories_checksum": categories_checksum,
            "checksums": self._checksums,
            "n_bytes": self._path.n_bytes() + self._kept_bytes,
            "ids": self._ids,
        }
        of_ids = array_names(self._ids["dtype"], f"-{self.generation}") if self._ids else {}
        names = [self._path.name, *of_ids.values()]
        if not (self.folder / METADATA).is_file():  # else an append on a disk, and `_sweep` lists the arrays
            create_group(self.folder, names)
        if isinstance(self.folder, DiskPlace) or place is self.folder:
            write_manifest(place, KIND, body)
            return
        body["shared"] = self._shared.as_entry()
        folders = [folder.name for folder in self._shared.folders]
        write_manifest(place, KIND, body, data=self.folder.name, shared=folders)

    def _keep(self, kept: StoredRows, kept_rows: int, kept_columns: int) -> None:
        n_rows, n_columns = kept.checksums.shape
        n_rows, n_columns = (n_rows, kept_columns) if kept_columns else (kept_rows, n_columns)
        if isinstance(kept.data, DiskPlace):
            before = kept.data / array_name(kept.header, kept.generation)
            for row, column in np.ndindex(n_rows, n_columns):
                _link(before / f"c/{row}/{column}", self._path / f"c/{row}/{column}")
        else:
            grid = self._array.cdata_shape
            self._shared = kept.shared.grown(kept.data, kept.generation, grid, n_rows, n_columns)
            self._kept_bytes = kept.n_bytes if self._shared.folders else 0
        if kept_columns:
            self._kept_checksums = kept.checksums[:, :kept_columns].tolist()
        else:
            self._checksums = kept.checksums[:kept_rows].tolist()
            self._next_row = kept_rows * self.chunk_rows


def _link(source: Place, target: Place) -> None:
    """Hard-link a chunk, which is never modified; copy it if the file system has no hard links."""
    assert isinstance(source, DiskPlace)  # noqa: S101 - buckets have no links
    assert isinstance(target, DiskPlace)  # noqa: S101
    target.path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.path, target.path)
    except FileNotFoundError:
        raise CorruptStoreError(f"{source} is missing; {_RESTORE}", path=source) from None
    except OSError:
        shutil.copyfile(source.path, target.path)


def write_store(
    path: StorePath,
    blocks: Iterable[np.ndarray],
    header: Header,
    categories: Categories,
    dtype: np.dtype,
    overwrite: bool,
) -> None:
    """Store consecutive blocks of labels or memberships as a new ensemble at ``path``."""
    chunks = (header.chunk_rows, min(header.n_columns, MAX_CHUNK_COLUMNS))
    with new_store(path, overwrite, KIND) as folder:
        writer = ArrayWriter(folder, 1, header, dtype, chunks)
        with progress("labels to the store", header.n_objects) as listener:
            for block in rechunk(blocks, header.chunk_rows):
                writer.write(block)
                listener.advance(len(block))
        writer.write_ids(header)
        writer.commit(folder, header, categories)


class Appending(NamedTuple):
    """A store locked for an append."""

    stored: StoredRows
    folder: Place
    """Where to write the next generation."""
    check_lock: Callable[[], None]
    """Raises StoreError if the lock has been lost; call it right before the commit."""


@contextmanager
def appending(place: Place) -> Iterator[Appending]:
    """Lock the store at ``place`` for an append; if the ``with`` block fails, its output is removed."""
    with writer_lock(place) as check_lock, disk_errors(place):
        stored = open_labels(place)
        _sweep(place)
        if not isinstance(place, DiskPlace):
            with discarded_on_failure(new_folder(place), place) as folder:
                yield Appending(stored, folder, check_lock)
            _sweep(place)
        elif stored.data is place:
            try:
                yield Appending(stored, place, check_lock)
            finally:
                _sweep(place)
        else:
            raise InvalidInputError(
                f"{place} was copied from a bucket; save() a copy on the disk and append to that."
            )


def _sweep(place: Place) -> None:
    """Remove what the manifest does not name: older generations, and leftovers of killed writers.

    Before that, the listing for other tools names the valid arrays: it never names one that is not there.
    """
    if not isinstance(place, DiskPlace):
        sweep_folders(place)
        return
    generation = load_manifest(place, KIND).body["generation"]
    prefixes = ("labels-", "memberships-", "categories-", *PREFIXES)
    keep = {f"{prefix}{generation}" for prefix in prefixes} | {categories_name(generation)}
    names = place.names()
    arrays = [name for name in names if name in keep and (place / name / METADATA).is_file()]
    if listed_arrays(place) != arrays:
        create_group(place, arrays)
    for name in names:
        if name.endswith(".partial") or (name.startswith(prefixes) and name not in keep):
            (place / name).remove()
