"""The label matrix on disk: generations of one Zarr array, of which the manifest names the valid one.

A store that grows gets a new generation beside the old one. Chunks that stay as they are are shared
between the two by hard links, so the cost of an append is that of the new labels; the commit of the
manifest is the moment of the change, and the old generation goes after it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import CorruptStoreError, InvalidInputError, StoreError, StoreNotFoundError
from bigcons.schema import ENSEMBLE, MISSING
from bigcons.stores import manifest
from bigcons.stores.zarr_arrays import (
    MAX_CHUNK_BYTES,
    create_array,
    create_group,
    damaged,
    metadata_checksum,
    open_array,
)

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
    n_labelled: np.ndarray
    """``(n_partitions,)`` int64: how many objects each partition labels"""
    chunk_rows: int
    provenance: dict[str, Any]


class StoredLabels:
    """One generation of a store, open for reading. Safe to read from many threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        body = manifest.load(path, KIND)
        try:
            self.head = _read_head(body)
            self.generation = _natural(body["generation"])
            self.dtype = np.dtype(_one_of(body["dtype"], ENSEMBLE["labels"].dtypes))
            self.chunk_columns = _natural(body["chunk_columns"])
            self.checksums = np.array(body["checksums"], np.int64)
            self.n_bytes = int(body["n_bytes"])
            self._categories_checksum = body["categories_checksum"]
            self._check_sizes(body)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptStoreError(
                f"{path} has a manifest that does not add up ({error}); {_RESTORE}"
            ) from None
        self._array = self._open_array(body)

    def read(self, start: int, stop: int, first_column: int = 0) -> np.ndarray:
        """Return rows ``start`` to ``stop``, from ``first_column`` on, checked.

        Raises CorruptStoreError for a chunk that is damaged, lost, or holds what cannot be a label.
        """
        shape = (stop - start, len(self.head.names) - first_column)
        if 0 in shape:
            return np.empty(shape, self.dtype)
        try:
            block = np.ascontiguousarray(self._array[start:stop, first_column:])
        except OSError:
            raise
        except Exception as error:  # codecs raise errors of many types
            raise self._broken(start, stop, str(error) or type(error).__name__) from None
        if block.min() < MISSING:
            raise self._broken(start, stop, "a chunk is lost")
        if (_column_maxima(block) >= self.head.n_clusters[first_column:]).any():
            raise self._broken(start, stop, "a label is not of its partition")
        return block

    def categories(self) -> Categories:
        """Return the original label values of every partition, None where they are the codes."""
        if self._categories_checksum is None:
            return [None] * len(self.head.names)
        path = self.path / categories_name(self.generation)
        try:
            data = path.read_bytes()
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
        n_labelled = np.zeros(len(self.head.names), np.int64)
        present = [np.zeros(k, bool) for k in self.head.n_clusters]
        for row, start in enumerate(range(0, self.head.n_objects, self.head.chunk_rows)):
            block = self.read(start, min(start + self.head.chunk_rows, self.head.n_objects))
            if tile_checksums(block, self.chunk_columns) != self.checksums[row].tolist():
                raise self._broken(start, start + len(block), "a chunk is not the one that was written")
            n_labelled += np.count_nonzero(block != MISSING, axis=0)
            for u, found in enumerate(present):
                found[block[:, u][block[:, u] >= 0]] = True
        if not np.array_equal(n_labelled, self.head.n_labelled) or not all(found.all() for found in present):
            raise CorruptStoreError(f"{self.path} has labels that its manifest does not count; {_RESTORE}")
        for entry in self.path.rglob("*"):
            if entry.is_symlink():
                raise CorruptStoreError(
                    f"{entry} is a link that may leave the store; copy the data in its place."
                )
        return int(self.checksums.size)

    def is_current(self) -> bool:
        """Tell whether the store still is at this generation."""
        return bool(manifest.load(self.path, KIND).get("generation") == self.generation)

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
        path = self.path / labels_name(self.generation)
        try:
            array = open_array(path)
        except StoreNotFoundError:
            raise CorruptStoreError(f"{path} is missing; {_RESTORE}") from None
        expected = (self.head.n_objects, len(self.head.names)), (self.head.chunk_rows, self.chunk_columns)
        if (array.shape, array.chunks) != expected or array.dtype != self.dtype:
            raise CorruptStoreError(f"{path} has another shape or type than the manifest says; {_RESTORE}")
        if metadata_checksum(path) != body["metadata_checksum"]:
            raise CorruptStoreError(f"{path} has damaged metadata (its checksum is wrong); {_RESTORE}")
        return array

    def _broken(self, start: int, stop: int, reason: str) -> StoreError:
        if not self.is_current():
            return StoreError(f"{self.path} has changed since it was opened; open it again.")
        reason = reason.splitlines()[0][:120]
        return CorruptStoreError(f"{self.path} is damaged in rows {start} to {stop} ({reason}); {_RESTORE}")


class LabelWriter:
    """Writes one generation, row chunk by row chunk.

    ``kept`` is the generation before, of which the first ``kept_rows`` rows of chunks or, for
    partitions appended, the first ``kept_columns`` columns of chunks stay as they are.
    """

    def __init__(
        self,
        directory: Path,
        generation: int,
        shape: tuple[int, int],
        dtype: np.dtype,
        chunks: tuple[int, int],
        *,
        kept: StoredLabels | None = None,
        kept_rows: int = 0,
        kept_columns: int = 0,
    ) -> None:
        self.directory = directory
        self.generation = generation
        self.dtype = dtype
        self.chunk_rows, self.chunk_columns = chunks
        self._first_column = kept_columns * self.chunk_columns
        self._path = directory / labels_name(generation)
        poison = int(np.iinfo(dtype).min)
        self._array = create_array(self._path, shape, chunks, dtype, poison, ("object", "partition"))
        self._checksums: list[list[int]] = []
        self._kept_checksums: list[list[int]] = []
        self._next_row = 0
        if kept is not None:
            self._keep(kept, kept_rows, kept_columns)

    def write(self, blocks: Iterable[np.ndarray]) -> None:
        """Write blocks of exactly ``chunk_rows`` rows (the last may be smaller), behind what is there."""
        for block in blocks:
            stop = self._next_row + len(block)
            if stop > self._array.shape[0]:
                raise InvalidInputError(
                    "labels has more objects than when they were counted; give stable labels."
                )
            self._array[self._next_row : stop, self._first_column :] = block
            kept = self._kept_checksums[len(self._checksums)] if self._first_column else []
            self._checksums.append(kept + tile_checksums(block, self.chunk_columns))
            self._next_row = stop

    def commit(self, head: Head, categories: Categories) -> None:
        """Make this the valid generation, and remove all others."""
        if self._next_row != head.n_objects:
            raise InvalidInputError(
                f"labels has {self._next_row} objects but {head.n_objects} when they were counted; "
                "give stable labels."
            )
        create_group(self.directory)
        body = {
            "n_objects": head.n_objects,
            "n_partitions": len(head.names),
            "names": head.names,
            "n_clusters": head.n_clusters,
            "n_labelled": head.n_labelled,
            "provenance": head.provenance,
            "generation": self.generation,
            "dtype": self.dtype.name,
            "chunk_rows": self.chunk_rows,
            "chunk_columns": self.chunk_columns,
            "metadata_checksum": metadata_checksum(self._path),
            "categories_checksum": self._write_categories(categories),
            "checksums": self._checksums,
            "n_bytes": _size_of(self._path),
        }
        manifest.commit(self.directory, KIND, body)
        sweep(self.directory, self.generation)

    def _write_categories(self, categories: Categories) -> int | None:
        if all(values is None for values in categories):
            return None
        entries = [None if values is None else values.tolist() for values in categories]
        data = json.dumps(entries).encode()
        (self.directory / categories_name(self.generation)).write_bytes(data)
        return zlib.crc32(data)

    def _keep(self, kept: StoredLabels, kept_rows: int, kept_columns: int) -> None:
        n_rows, n_columns = kept.checksums.shape
        for row in range(n_rows if kept_columns else kept_rows):
            for column in range(kept_columns or n_columns):
                chunk = Path("c", str(row), str(column))
                _link(kept.path / labels_name(kept.generation) / chunk, self._path / chunk)
        if kept_columns:
            self._kept_checksums = kept.checksums[:, :kept_columns].tolist()
        else:
            self._checksums = kept.checksums[:kept_rows].tolist()
            self._next_row = kept_rows * self.chunk_rows


def labels_name(generation: int) -> str:
    """Return the name of the label array of a generation."""
    return f"labels-{generation}"


def categories_name(generation: int) -> str:
    """Return the name of the file of original label values of a generation."""
    return f"categories-{generation}.json"


def sweep(directory: Path, generation: int) -> None:
    """Remove what does not belong to ``generation``: older ones, and what a killed writer left."""
    keep = {labels_name(generation), categories_name(generation)}
    for entry in [*directory.glob("labels-*"), *directory.glob("categories-*")]:
        if entry.name not in keep:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


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


def _read_head(body: dict[str, Any]) -> Head:
    n_objects = _natural(body["n_objects"])
    names = [str(name) for name in body["names"]]
    n_clusters, n_labelled = (np.array(body[key], np.int64) for key in ("n_clusters", "n_labelled"))
    _check(len(names) > 0 and n_clusters.shape == n_labelled.shape == (len(names),), "the number of names")
    _check(bool((n_clusters >= 1).all() and (n_labelled >= 1).all()), "the number of clusters")
    _check(bool((n_labelled <= n_objects).all()), "the number of labels")
    _check(isinstance(body["provenance"], dict), "the provenance")
    return Head(n_objects, names, n_clusters, n_labelled, _natural(body["chunk_rows"]), body["provenance"])


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


def _link(source: Path, target: Path) -> None:
    """Share a chunk between generations: they are never changed in place. Copy where links are not known."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise CorruptStoreError(f"{source} is missing; {_RESTORE}") from None
    except OSError:
        shutil.copyfile(source, target)


def _size_of(directory: Path) -> int:
    return sum(entry.stat().st_size for entry in directory.rglob("*") if entry.is_file())
