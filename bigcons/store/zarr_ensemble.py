"""Ensembles in Zarr: generations of one array, labels or memberships; the manifest names the valid one.

An append writes a new generation next to the old one. They share unchanged chunks, as hard links on a disk
and by reference in a bucket, so that an append costs no more than writing the new labels. Committing the
manifest makes the new generation valid; then the old one is removed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from bigcons.disk.arrays import (
    METADATA,
    SharedChunks,
    bytes_kept_by_decoding,
    create_group,
    listed_arrays,
)
from bigcons.disk.commit import (
    discarded_on_failure,
    load_manifest,
    new_folder,
    sweep_folders,
    write_manifest,
)
from bigcons.disk.interface import Place
from bigcons.disk.locks import writer_lock
from bigcons.disk.places import DiskPlace, disk_errors
from bigcons.disk.reading import corrupt
from bigcons.disk.schema import ENSEMBLE, GROUPS, IDS, arrays_of, file_names
from bigcons.errors import InvalidInputError
from bigcons.store.ensemble_store import (
    KIND,
    MAX_CHUNK_COLUMNS,
    RESTORE,
    Appending,
    Categories,
    Header,
    RowsWriter,
    StoredRows,
    base_body,
    link_kept,
)
from bigcons.store.ids import write_ids
from bigcons.store.store import create_arrays, list_arrays

# Reading


class ZarrRows(StoredRows):
    """One generation of a store, open for reading."""

    def __init__(self, path: Place) -> None:
        super().__init__(path)
        ((name, self._array),) = self.store.arrays.items()
        file = self.store.data / name
        if self._array.chunks != (self.header.chunk_rows, self.chunk_columns):
            raise corrupt(file, "does not have the chunks in the manifest", RESTORE)
        if zlib.crc32((file / METADATA).read()) != self.store.body["metadata_checksum"]:
            raise corrupt(file, "has damaged metadata (wrong checksum)", RESTORE)

    @property
    def generation(self) -> int:
        """Number in the names of its arrays and files."""
        return int(self.store.body["generation"])

    def decoded(self, start: int, stop: int, first_column: int) -> np.ndarray:
        """Return rows from the array."""
        return np.ascontiguousarray(self._array[start:stop, first_column:])

    def reading_bytes(self, n_processes: int, n_threads: int) -> int:  # noqa: ARG002 - Zarr has its own
        """Return the buffers that reading leaves in the processes."""
        row_bytes = self.header.n_columns * self.dtype.itemsize
        return reading_bytes(self.header.chunk_rows, row_bytes, self.dtype, n_processes)


def reading_bytes(chunk_rows: int, row_bytes: int, dtype: np.dtype, n_processes: int) -> int:
    """Return the buffers that reading an array of such rows leaves in as many processes.

    Where rows span several chunks, these are read together, and a thread holds one while it decodes the next.
    """
    chunk_row = MAX_CHUNK_COLUMNS * dtype.itemsize
    n_at_once = min(-(-row_bytes // chunk_row), 2)
    return n_processes * n_at_once * bytes_kept_by_decoding(chunk_rows * min(row_bytes, chunk_row))


# Writing


class ArrayWriter(RowsWriter):
    """Writes one generation to ``folder`` and commits it as the valid one of the store at ``place``.

    ``kept`` is the previous generation, whose full rows of chunks (or, with more partitions, full columns
    of chunks) are shared unless the type grows.
    """

    def __init__(
        self,
        folder: Place,
        place: Place,
        check_lock: Callable[[], None],
        kept: ZarrRows | None,
        header: Header,
        categories: Categories,
    ) -> None:
        self._place, self._check_lock = place, check_lock
        self._generation = 1 if kept is None else kept.generation + 1
        grows = kept is not None and len(header.names) == len(kept.header.names)
        columns = min(header.n_columns, MAX_CHUNK_COLUMNS)
        if kept is not None and grows:
            columns = kept.chunk_columns
        self._suffix = f"-{self._generation}"
        super().__init__(folder, header, categories, file_names(KIND, self._suffix), columns)
        body = {**base_body(header, columns), "generation": self._generation}
        ((name, self._array),) = create_arrays(folder, arrays_of(KIND, GROUPS[KIND][0], body)).items()
        self.rows: Place = folder / name
        self._kept_bytes = 0
        self._shared = SharedChunks.none(self._array.cdata_shape)
        kept_rows = kept_columns = 0
        if kept is not None and kept.dtype == header.dtype:
            if grows:
                kept_rows = kept.header.n_objects // header.chunk_rows
            elif kept.chunk_columns == MAX_CHUNK_COLUMNS:
                kept_columns = kept.header.n_columns // MAX_CHUNK_COLUMNS
            if kept_rows or kept_columns:
                self._keep(kept, kept_rows, kept_columns)
        self.n_kept: int = kept_rows * header.chunk_rows
        self._next_row = self.n_kept
        self.first_column: int = kept_columns * MAX_CHUNK_COLUMNS

    def put(self, start: int, block: np.ndarray) -> None:
        """Write rows to the array."""
        self._array[start : start + len(block), self.first_column :] = block

    def commit(self) -> None:
        """Write ids and categories, and make this generation the valid one."""
        self.refuse_missing()
        header, ids = self._header, None
        if header.ids is not None:
            ids = write_ids(self._folder, self._suffix, header.ids, header.n_objects, header.chunk_rows)
        self._check_lock()
        metadata = zlib.crc32((self.rows / METADATA).read())
        body = self.body({"generation": self._generation, "metadata_checksum": metadata})
        body |= {"n_bytes": self.rows.n_bytes() + self._kept_bytes, "ids": ids}
        if not (self._folder / METADATA).is_file():  # else an append on a disk: `_sweep` lists the arrays
            list_arrays(self._folder, body, [self.rows.name], self._suffix)
        if isinstance(self._folder, DiskPlace) or self._place is self._folder:
            write_manifest(self._place, KIND, body)
            return
        body["shared"] = self._shared.as_entry()
        folders = [folder.name for folder in self._shared.folders]
        write_manifest(self._place, KIND, body, data=self._folder.name, shared=folders)

    def _keep(self, kept: ZarrRows, kept_rows: int, kept_columns: int) -> None:
        n_rows, n_columns = kept.checksums.shape
        n_rows, n_columns = (n_rows, kept_columns) if kept_columns else (kept_rows, n_columns)
        if isinstance(kept.store.data, DiskPlace):
            assert isinstance(self.rows, DiskPlace)  # noqa: S101 - next to the generation before
            before = kept.store.data.path / next(iter(kept.store.layout.arrays))
            for row, column in np.ndindex(n_rows, n_columns):
                source, target = before / f"c/{row}/{column}", self.rows.path / f"c/{row}/{column}"
                target.parent.mkdir(parents=True, exist_ok=True)
                link_kept(source, target)
        else:
            grid = self._array.cdata_shape
            self._shared = kept.store.manifest.shared.grown(
                kept.store.data, kept.generation, grid, n_rows, n_columns
            )
            self._kept_bytes = kept.store.body["n_bytes"] if self._shared.folders else 0
        if kept_columns:
            self._kept_checksums = kept.checksums[:, :kept_columns].tolist()
        else:
            self._checksums = kept.checksums[:kept_rows].tolist()


@contextmanager
def appending(place: Place) -> Iterator[Appending]:
    """Lock the store at ``place`` for an append; if the ``with`` block fails, its output is removed."""
    with writer_lock(place) as check_lock, disk_errors(place):
        stored = ZarrRows(place)
        _sweep(place)
        if not isinstance(place, DiskPlace):
            with discarded_on_failure(new_folder(place), place) as folder:
                yield Appending(stored, partial(ArrayWriter, folder, place, check_lock, stored))
            _sweep(place)
        elif stored.store.data is place:
            try:
                yield Appending(stored, partial(ArrayWriter, place, place, check_lock, stored))
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
    suffix = f"-{load_manifest(place, KIND).body['generation']}"
    generated = [*ENSEMBLE, *IDS, *file_names(KIND, ".").values()]
    prefixes = tuple(name.partition(".")[0] + "-" for name in generated)
    keep = {*(name + suffix for name in (*ENSEMBLE, *IDS)), *file_names(KIND, suffix).values()}
    names = place.names()
    arrays = [name for name in names if name in keep and (place / name / METADATA).is_file()]
    if listed_arrays(place) != arrays:
        create_group(place, arrays)
    for name in names:
        if name.endswith(".partial") or (name.startswith(prefixes) and name not in keep):
            (place / name).remove()
