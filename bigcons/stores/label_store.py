"""The label matrix on disk, open for reading: one Zarr array, named and described by the manifest."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import CorruptStoreError, StoreError, StoreNotFoundError
from bigcons.schema import ENSEMBLE, MISSING
from bigcons.storage.arrays import (
    MAX_CHUNK_BYTES,
    SharedChunks,
    damaged,
    metadata_checksum,
    open_array,
)
from bigcons.storage.commit import MANIFEST, load_manifest
from bigcons.storage.places import Place

KIND = "ensemble"
MAX_CHUNK_COLUMNS = 128
_RESTORE = "restore the store from a copy."
_FOLD_ROWS = 256

Categories = list[np.ndarray | None]


class Head(NamedTuple):
    """What is known of an ensemble without reading its labels."""

    n_objects: int
    names: list[str]
    n_clusters: np.ndarray
    """``(n_partitions,)`` int64"""
    n_labeled: np.ndarray
    """``(n_partitions,)`` int64: how many objects each partition labels"""
    chunk_rows: int
    provenance: dict[str, Any]


class StoredLabels:
    """One generation of a store, open for reading. Safe to read from many threads."""

    def __init__(self, path: Place) -> None:
        self.path = path
        self._stamp = _stamp(path)
        self.data, body, folders = load_manifest(path, KIND)
        try:
            self.head = _read_head(body)
            self.generation = _natural(body["generation"])
            self.dtype = np.dtype(_one_of(body["dtype"], ENSEMBLE["labels"].dtypes))
            self.chunk_columns = _natural(body["chunk_columns"])
            self.checksums = np.array(body["checksums"], np.int64)
            self.n_bytes = int(body["n_bytes"])
            self._categories_checksum = body["categories_checksum"]
            self._check_sizes(body)
            self.shared = SharedChunks.from_manifest(body.get("shared"), folders, self.checksums.shape)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptStoreError(
                f"{path} has a manifest that does not add up ({error}); {_RESTORE}"
            ) from None
        self._array = self._open_array(body)

    def read(self, start: int, stop: int, first_column: int = 0) -> np.ndarray:
        """Return rows ``start`` to ``stop``, from ``first_column`` on, checked.

        Raises CorruptStoreError for a chunk that is damaged, lost, or holds what cannot be a label, and
        StoreError if the store was written to since it was opened.
        """
        shape = (stop - start, len(self.head.names) - first_column)
        if 0 in shape:
            return np.empty(shape, self.dtype)
        try:
            block = np.ascontiguousarray(self._array[start:stop, first_column:])
        except (OSError, MemoryError, StoreError):
            raise
        except Exception as error:  # codecs raise errors of many types
            raise self._broken(start, stop, str(error) or type(error).__name__) from None
        self._check_unchanged()
        if block.min() < MISSING:
            raise self._broken(start, stop, "a chunk is lost")
        if (_column_maxima(block) >= self.head.n_clusters[first_column:]).any():
            raise self._broken(start, stop, "a label is not of its partition")
        return block

    def categories(self) -> Categories:
        """Return the original label values of every partition, None where they are the codes."""
        if self._categories_checksum is None:
            return [None] * len(self.head.names)
        path = self.data / categories_name(self.generation)
        try:
            data = path.read()
            if zlib.crc32(data) != self._categories_checksum:
                raise ValueError("its checksum is wrong")
            values = [None if entry is None else _category_array(entry) for entry in json.loads(data)]
            _check(_category_lengths(values, self.head.n_clusters), "it does not fit the manifest")
        except (ValueError, TypeError, FileNotFoundError, RecursionError) as error:
            raise damaged(path, error) from None
        return values

    def verify(self) -> int:
        """Read everything and compare it with the manifest; return the number of chunks."""
        self.categories()
        n_labeled = np.zeros(len(self.head.names), np.int64)
        present = [np.zeros(k, bool) for k in self.head.n_clusters]
        for row, start in enumerate(range(0, self.head.n_objects, self.head.chunk_rows)):
            block = self.read(start, min(start + self.head.chunk_rows, self.head.n_objects))
            if tile_checksums(block, self.chunk_columns) != self.checksums[row].tolist():
                raise self._broken(start, start + len(block), "a chunk is not the one that was written")
            n_labeled += np.count_nonzero(block != MISSING, axis=0)
            for u, found in enumerate(present):
                found[block[:, u][block[:, u] >= 0]] = True
        if not np.array_equal(n_labeled, self.head.n_labeled) or not all(found.all() for found in present):
            raise CorruptStoreError(f"{self.path} has labels that its manifest does not count; {_RESTORE}")
        for link in self.path.links():
            raise CorruptStoreError(f"{link} is a link that may leave the store; copy the data in its place.")
        return int(self.checksums.size)

    def _check_sizes(self, body: dict[str, Any]) -> None:
        n, m = self.head.n_objects, len(self.head.names)
        _check(body["n_partitions"] == m, "the number of names")
        grid = (math.ceil(n / self.head.chunk_rows), math.ceil(m / self.chunk_columns))
        _check(self.checksums.shape == grid, "the number of chunks")
        _check(
            self.head.chunk_rows * self.chunk_columns * self.dtype.itemsize <= MAX_CHUNK_BYTES, "the chunks"
        )
        _check(int(self.head.n_clusters.max()) - 1 <= np.iinfo(self.dtype).max, "the type")

    def _open_array(self, body: dict[str, Any]) -> Any:
        path = self.data / labels_name(self.generation)
        try:
            array = open_array(path, self.shared.arrays(labels_name))
        except StoreNotFoundError:
            raise CorruptStoreError(f"{path} is missing; {_RESTORE}") from None
        expected = (self.head.n_objects, len(self.head.names)), (self.head.chunk_rows, self.chunk_columns)
        if (array.shape, array.chunks) != expected or array.dtype != self.dtype:
            raise CorruptStoreError(f"{path} has another shape or type than the manifest says; {_RESTORE}")
        if metadata_checksum(path) != body["metadata_checksum"]:
            raise CorruptStoreError(f"{path} has damaged metadata (its checksum is wrong); {_RESTORE}")
        return array

    def _check_unchanged(self) -> None:
        """Refuse rows of a store that was written to since: they could be of the old or of the new."""
        if _stamp(self.path) != self._stamp:
            raise StoreError(f"{self.path} has changed since it was opened; open it again.")

    def _broken(self, start: int, stop: int, reason: str) -> StoreError:
        self._check_unchanged()
        reason = reason.splitlines()[0][:120]
        return CorruptStoreError(f"{self.path} is damaged in rows {start} to {stop} ({reason}); {_RESTORE}")


def open_labels(path: Place) -> StoredLabels:
    """Open the store at ``path`` as it is now, also while another process appends to it."""
    while True:
        stamp = _stamp(path)
        try:
            return StoredLabels(path)
        except CorruptStoreError:
            if _stamp(path) == stamp:
                raise


def labels_name(generation: int) -> str:
    """Return the name of the label array of a generation."""
    return f"labels-{generation}"


def categories_name(generation: int) -> str:
    """Return the name of the file of original label values of a generation."""
    return f"categories-{generation}.json"


def tile_checksums(block: np.ndarray, columns: int) -> list[int]:
    """Return the crc32 of the labels of each chunk in a row of chunks."""
    tiles = (block[:, first : first + columns] for first in range(0, block.shape[1], columns))
    return [zlib.crc32(np.ascontiguousarray(tile).data) for tile in tiles]


def _column_maxima(block: np.ndarray) -> np.ndarray:
    """Return the maximum of each column; rows are folded first, for long rows reduce much faster."""
    n_rows, n_columns = block.shape
    if n_rows < 2 * _FOLD_ROWS:
        return block.max(axis=0)
    whole = n_rows - n_rows % _FOLD_ROWS
    folded = block[:whole].reshape(-1, _FOLD_ROWS * n_columns).max(axis=0).reshape(_FOLD_ROWS, n_columns)
    return np.maximum(folded.max(axis=0), block[whole:].max(axis=0, initial=MISSING))


def _stamp(path: Place) -> Hashable:
    """Return what tells one manifest from the next: every commit makes a new file."""
    return (path / MANIFEST).stamp()


def _read_head(body: dict[str, Any]) -> Head:
    n_objects = _natural(body["n_objects"])
    names = [str(name) for name in body["names"]]
    n_clusters, n_labeled = (np.array(body[key], np.int64) for key in ("n_clusters", "n_labeled"))
    _check(len(names) > 0 and n_clusters.shape == n_labeled.shape == (len(names),), "the number of names")
    _check(bool((n_clusters >= 1).all() and (n_labeled >= 1).all()), "the number of clusters")
    _check(bool((n_labeled <= n_objects).all()), "the number of labels")
    _check(isinstance(body["provenance"], dict), "the provenance")
    return Head(n_objects, names, n_clusters, n_labeled, _natural(body["chunk_rows"]), body["provenance"])


def _check(true: bool, what: str) -> None:
    if not true:
        raise ValueError(what)


def _natural(value: Any) -> int:
    _check(isinstance(value, int) and not isinstance(value, bool) and value >= 1, f"{value!r} is no size")
    return int(value)


def _one_of(value: Any, allowed: tuple[str, ...]) -> str:
    _check(value in allowed, f"{value!r} is not one of {allowed}")
    return str(value)


def _category_array(entry: list[Any]) -> np.ndarray:
    if all(isinstance(value, str) for value in entry):
        return np.array(entry, dtype=object)
    return np.array(entry, dtype=np.int64)


def _category_lengths(values: Categories, n_clusters: np.ndarray) -> bool:
    return len(values) == len(n_clusters) and all(
        entry is None or entry.shape == (k,) for entry, k in zip(values, n_clusters, strict=True)
    )
