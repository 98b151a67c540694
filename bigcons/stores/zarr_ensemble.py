"""Ensembles in Zarr: generations of one array, labels or memberships; the manifest names the valid one.

An append writes a new generation next to the old one. They share unchanged chunks, as hard links on a disk
and by reference in a bucket, so that an append costs no more than writing the new labels. Committing the
manifest makes the new generation valid; then the old one is removed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.layout import ENSEMBLE
from bigcons.storage.arrays import (
    METADATA,
    SharedChunks,
    bytes_kept_by_decoding,
    create_array,
    create_group,
    listed_arrays,
    refuse_links,
)
from bigcons.storage.commit import (
    discarded_on_failure,
    load_manifest,
    new_folder,
    sweep_folders,
    write_manifest,
)
from bigcons.storage.interface import Place
from bigcons.storage.locks import writer_lock
from bigcons.storage.places import DiskPlace, disk_errors, link
from bigcons.stores.ensemble_store import (
    KIND,
    MAX_CHUNK_COLUMNS,
    RESTORE,
    Appending,
    Categories,
    Header,
    RowsWriter,
    StoredRows,
    base_body,
    read_categories,
    refuse_other_length,
    stamp_of,
    tile_checksums,
    write_categories,
    write_generator,
)
from bigcons.stores.ids import PREFIXES, array_names, write_ids
from bigcons.stores.store import Store, consistent

# Reading


class ZarrRows(StoredRows):
    """One generation of a store, open for reading."""

    def __init__(self, path: Place) -> None:
        self.path: Place = path
        self._stamp = stamp_of(path)
        store = Store(path, KIND, RESTORE)
        self.store: Store = store
        with consistent(path, RESTORE):
            self.take(store.body)
            self.header: Header = self.header._replace(ids=store.ids)
            self.take_generator(store.data / generator_name(self.generation), store.body)
        ((name, self._array),) = store.arrays.items()
        file = store.data / name
        if self._array.chunks != (self.header.chunk_rows, self.chunk_columns):
            raise CorruptStoreError(f"{file} does not have the chunks in the manifest; {RESTORE}", path=file)
        if zlib.crc32((file / METADATA).read()) != store.body["metadata_checksum"]:
            raise CorruptStoreError(f"{file} has damaged metadata (wrong checksum); {RESTORE}", path=file)

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

    def categories(self) -> Categories:
        """Return the original values in the file of this generation."""
        file = self.store.data / categories_name(self.generation)
        return read_categories(file, self._categories_checksum, self.header)

    def check_files(self) -> None:
        """Refuse symbolic links."""
        refuse_links(self.path)


def reading_bytes(chunk_rows: int, row_bytes: int, dtype: np.dtype, n_processes: int) -> int:
    """Return the buffers that reading an array of such rows leaves in as many processes.

    Where rows span several chunks, these are read together, and a thread holds one while it decodes the next.
    """
    chunk_row = MAX_CHUNK_COLUMNS * dtype.itemsize
    n_at_once = min(-(-row_bytes // chunk_row), 2)
    return n_processes * n_at_once * bytes_kept_by_decoding(chunk_rows * min(row_bytes, chunk_row))


def array_name(header: Header, generation: int) -> str:
    """Return the name of a generation's array."""
    return f"{'memberships' if header.is_soft else 'labels'}-{generation}"


def categories_name(generation: int) -> str:
    """Return the name of a generation's file of original label values."""
    return f"categories-{generation}.json"


def generator_name(generation: int) -> str:
    """Return the name of a generation's file of what labels new rows."""
    return f"generator-{generation}.npz"


# Writing


class ArrayWriter:
    """Writes one generation to ``folder`` and commits it as the valid one of the store at ``place``.

    ``kept`` is the previous generation, whose full rows of chunks (or, with more ``partitions``, full columns
    of chunks) are shared unless the type grows.
    """

    def __init__(
        self,
        folder: Place,
        place: Place,
        header: Header,
        categories: Categories,
        *,
        kept: ZarrRows | None = None,
        partitions: bool = False,
        check_lock: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder, self._place, self._check_lock = folder, place, check_lock
        self._header, self._categories, dtype = header, categories, header.dtype
        self._generation = 1 if kept is None else kept.generation + 1
        grows = kept is not None and not partitions
        self._chunks = (
            header.chunk_rows,
            kept.chunk_columns if kept is not None and grows else min(header.n_columns, MAX_CHUNK_COLUMNS),
        )
        self._path = folder / array_name(header, self._generation)
        spec = ENSEMBLE["memberships" if header.is_soft else "labels"]
        shape = (header.n_objects, header.n_columns)
        self._array = create_array(self._path, spec, shape, self._chunks, dtype)
        self._checksums: list[list[int]] = []
        self._kept_checksums: list[list[int]] = []
        self._kept_bytes = 0
        self._shared = SharedChunks.none(self._array.cdata_shape)
        kept_rows = kept_columns = 0
        if kept is not None and kept.dtype == dtype:
            if grows:
                kept_rows = kept.header.n_objects // header.chunk_rows
            elif kept.chunk_columns == MAX_CHUNK_COLUMNS:
                kept_columns = kept.header.n_columns // MAX_CHUNK_COLUMNS
        self.n_kept: int = kept_rows * header.chunk_rows
        self.first_column: int = kept_columns * MAX_CHUNK_COLUMNS
        self._next_row = self.n_kept
        if kept_rows or kept_columns:
            assert kept is not None  # noqa: S101 - of which they are
            self._keep(kept, kept_rows, kept_columns)

    def write(self, block: np.ndarray) -> None:
        """Write the next ``chunk_rows`` rows (fewer at the end of the matrix)."""
        stop = self._next_row + len(block)
        if stop > self._header.n_objects:
            refuse_other_length(stop, self._header.n_objects)
        self._array[self._next_row : stop, self.first_column :] = block
        kept = self._kept_checksums[len(self._checksums)] if self.first_column else []
        self._checksums.append(kept + tile_checksums(block, self._chunks[1]))
        self._next_row = stop

    def commit(self) -> None:
        """Write ids and categories, and make this generation the valid one."""
        header, generation = self._header, self._generation
        if self._next_row != header.n_objects:
            refuse_other_length(self._next_row, header.n_objects)
        ids = None
        if header.ids is not None:
            suffix = f"-{generation}"
            ids = write_ids(self._folder, suffix, header.ids, header.n_objects, header.chunk_rows)
        self._check_lock()
        categories = write_categories(self._folder / categories_name(generation), self._categories)
        body = {
            **base_body(header, self._chunks),
            "generation": generation,
            "metadata_checksum": zlib.crc32((self._path / METADATA).read()),
            "categories_checksum": categories,
            "generator_checksum": write_generator(self._folder / generator_name(generation), header),
            "checksums": self._checksums,
            "n_bytes": self._path.n_bytes() + self._kept_bytes,
            "ids": ids,
        }
        of_ids = array_names(ids["dtype"], f"-{generation}") if ids else {}
        names = [self._path.name, *of_ids.values()]
        if not (self._folder / METADATA).is_file():  # else an append on a disk: `_sweep` lists the arrays
            create_group(self._folder, names)
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
            assert isinstance(self._path, DiskPlace)  # noqa: S101 - next to the generation before
            before = (kept.store.data / array_name(kept.header, kept.generation)).path
            for row, column in np.ndindex(n_rows, n_columns):
                source, target = before / f"c/{row}/{column}", self._path.path / f"c/{row}/{column}"
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    link(source, target)
                except FileNotFoundError:
                    raise CorruptStoreError(f"{source} is missing; {RESTORE}", path=source) from None
        else:
            grid = self._array.cdata_shape
            self._shared = kept.store.manifest.shared.grown(
                kept.store.data, kept.generation, grid, n_rows, n_columns
            )
            self._kept_bytes = kept.n_bytes if self._shared.folders else 0
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

        def writer_in(folder: Place) -> Callable[[Header, Categories, bool], RowsWriter]:
            return lambda header, categories, partitions: ArrayWriter(
                *(folder, place, header, categories),
                kept=stored,
                partitions=partitions,
                check_lock=check_lock,
            )

        if not isinstance(place, DiskPlace):
            with discarded_on_failure(new_folder(place), place) as folder:
                yield Appending(stored, writer_in(folder))
            _sweep(place)
        elif stored.store.data is place:
            try:
                yield Appending(stored, writer_in(place))
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
    prefixes = ("labels-", "memberships-", "categories-", "generator-", *PREFIXES)
    keep = {f"{prefix}{generation}" for prefix in prefixes}
    keep |= {categories_name(generation), generator_name(generation)}
    names = place.names()
    arrays = [name for name in names if name in keep and (place / name / METADATA).is_file()]
    if listed_arrays(place) != arrays:
        create_group(place, arrays)
    for name in names:
        if name.endswith(".partial") or (name.startswith(prefixes) and name not in keep):
            (place / name).remove()
