"""Writing the label matrix: generations of one Zarr array, of which the manifest names the valid one.

A store that grows gets a new generation beside the old one. Chunks that stay as they are are shared
between the two by hard links, so the cost of an append is that of the new labels; the commit of the
manifest is the moment of the change, and the old generation goes after it.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterable

import numpy as np

from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.schema import ENSEMBLE
from bigcons.storage.arrays import METADATA, create_array, create_group, metadata_checksum
from bigcons.storage.commit import load_manifest, sweep_folders, write_manifest
from bigcons.storage.places import DiskPlace, Place
from bigcons.stores.label_store import (
    KIND,
    Categories,
    Head,
    StoredLabels,
    categories_name,
    labels_name,
    tile_checksums,
)


class LabelWriter:
    """Writes one generation, row chunk by row chunk.

    ``kept`` is the generation before, of which the first ``kept_rows`` rows of chunks or, for
    partitions appended, the first ``kept_columns`` columns of chunks stay as they are.
    """

    def __init__(
        self,
        directory: Place,
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
        self._array = create_array(self._path, ENSEMBLE["labels"], shape, chunks, dtype)
        self._checksums: list[list[int]] = []
        self._kept_checksums: list[list[int]] = []
        self._next_row = 0
        self._kept_bytes = 0
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

    def commit(self, place: Place, head: Head, categories: Categories) -> None:
        """Make this the valid generation of the store at ``place``."""
        if self._next_row != head.n_objects:
            raise InvalidInputError(
                f"labels has {self._next_row} objects but {head.n_objects} when they were counted; "
                "give stable labels."
            )
        if not (self.directory / METADATA).is_file():
            create_group(self.directory)
        body = {
            "n_objects": head.n_objects,
            "n_partitions": len(head.names),
            "names": head.names,
            "n_clusters": head.n_clusters,
            "n_labeled": head.n_labeled,
            "provenance": head.provenance,
            "generation": self.generation,
            "dtype": self.dtype.name,
            "chunk_rows": self.chunk_rows,
            "chunk_columns": self.chunk_columns,
            "metadata_checksum": metadata_checksum(self._path),
            "categories_checksum": self._write_categories(categories),
            "checksums": self._checksums,
            "n_bytes": self._path.n_bytes() + self._kept_bytes,
        }
        if isinstance(self.directory, DiskPlace) or place is self.directory:
            write_manifest(place, KIND, body)
            return
        body["shared"] = self._shared.as_entry()
        folders = [folder.name for folder in self._shared.folders]
        write_manifest(place, KIND, body, data=self.directory.name, shared=folders)

    def _write_categories(self, categories: Categories) -> int | None:
        if all(values is None for values in categories):
            return None
        entries = [None if values is None else values.tolist() for values in categories]
        data = json.dumps(entries).encode()
        (self.directory / categories_name(self.generation)).write(data)
        return zlib.crc32(data)

    def _keep(self, kept: StoredLabels, kept_rows: int, kept_columns: int) -> None:
        n_rows, n_columns = kept.checksums.shape
        n_rows, n_columns = (n_rows, kept_columns) if kept_columns else (kept_rows, n_columns)
        if isinstance(kept.data, DiskPlace):
            before = kept.data / labels_name(kept.generation)
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


def sweep(place: Place) -> None:
    """Remove what the manifest does not name: older generations, and what a killed writer left."""
    if not isinstance(place, DiskPlace):
        sweep_folders(place)
        return
    generation = load_manifest(place, KIND).body["generation"]
    keep = {labels_name(generation), categories_name(generation)}
    for name in place.names():
        if name.startswith(("labels-", "categories-")) and name not in keep:
            (place / name).remove()


def _link(source: Place, target: Place) -> None:
    """Share a chunk between generations: they are never changed in place. Copy where links are not known."""
    assert isinstance(source, DiskPlace)  # noqa: S101 - in a bucket there are no links
    assert isinstance(target, DiskPlace)  # noqa: S101
    target.path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.path, target.path)
    except FileNotFoundError:
        raise CorruptStoreError(f"{source} is missing; restore the store from a copy.") from None
    except OSError:
        shutil.copyfile(source.path, target.path)
