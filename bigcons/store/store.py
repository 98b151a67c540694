"""A store of any kind: its arrays, files and ids are opened, read, verified and written as declared.

`bigcons.disk.schema` has the declarations.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from bigcons.disk.arrays import (
    SharedChunks,
    check_group,
    create_array,
    create_group,
    open_declared,
    refuse_links,
)
from bigcons.disk.commit import PARQUET_MANIFEST, load_manifest, manifest_of, write_manifest
from bigcons.disk.interface import Place
from bigcons.disk.reading import MOST_BYTES, corrupt, decoding
from bigcons.disk.schema import PARQUET, Array, Layout, Piece, layout_of
from bigcons.errors import CorruptStoreError
from bigcons.io.ids import Ids
from bigcons.store.ids import StoredIds, array_names

INCONSISTENT = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading the body of a manifest raises that is not consistent."""


Made = TypeVar("Made")


@contextmanager
def consistent(place: Place, remedy: str) -> Iterator[None]:
    """Raise CorruptStoreError for what is inconsistent in a manifest."""
    try:
        yield
    except INCONSISTENT as error:
        raise corrupt(place, f"has an inconsistent manifest ({error})", remedy) from error


class Manifested(NamedTuple):
    """What the manifest of a store says."""

    kind: str
    """Also ``PARQUET``, of an ensemble."""
    place: Place
    data: Place
    body: dict[str, Any]
    layout: Layout
    shared: SharedChunks
    """Chunks of the first array that are in earlier data folders."""

    def elsewhere(self) -> dict[str, Place]:
        """Return the arrays that hold chunks of earlier generations, by key."""
        name = next(iter(self.layout.arrays), "")
        return self.shared.arrays(lambda generation: f"{name.removesuffix(self.layout.suffix)}-{generation}")


def read_layout(place: Place, kind: str, remedy: str) -> Manifested:
    """Return what the manifest of a store of this kind says; raises CorruptStoreError if inconsistent."""
    data, body, folders = load_manifest(place, kind)
    if manifest_of(place).name == PARQUET_MANIFEST:
        kind = PARQUET
    with consistent(place, remedy):
        layout = layout_of(kind, body)
        grid = layout.covered[0].checksums.shape if layout.covered else (0, 0)
        shared = SharedChunks.from_manifest(body.get("shared"), folders, grid)
    return Manifested(kind, place, data, body, layout, shared)


class Store:
    """A store that is open for reading; thread-safe.

    Attributes: ``place``, ``data`` (where its arrays are), ``body`` (of its manifest), ``layout``, ``ids``.
    """

    def __init__(self, place: Place, kind: str, remedy: str) -> None:
        """Open the store at ``place``; ``remedy`` says what to do if it is damaged.

        Raises StoreNotFoundError if there is none of this kind, CorruptStoreError if its arrays are not those
        of its manifest.
        """
        self._opened_with = (place, kind, remedy)
        self.place: Place = place
        self.remedy: str = remedy
        self.manifest: Manifested = read_layout(place, kind, remedy)
        self.data: Place = self.manifest.data
        self.body: dict[str, Any] = self.manifest.body
        self.layout: Layout = self.manifest.layout
        self.ids: StoredIds | None = None
        if self.layout.arrays and self.body.get("ids") is not None:  # files of Parquet hold their ids
            with consistent(place, remedy):
                sizes = (self.body["n_objects"], self.body["chunk_rows"])
                self.ids = StoredIds(self.data, self.layout.suffix, self.body["ids"], *sizes)
        elsewhere = self.manifest.elsewhere()
        self.arrays: dict[str, Any] = {
            name: open_declared(self.data / name, array.shape, array.dtype, remedy, elsewhere)
            for name, array in self.layout.arrays.items()
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, self._opened_with

    def column(self, name: str) -> Column:
        """Return an array that is read when sliced."""
        array = self.layout.arrays[name]
        return Column(self, name, array.shape, array.dtype)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return entries, or rows, of an array; raises CorruptStoreError for the first that are damaged."""
        try:
            return self._read(name, start, stop)
        except CorruptStoreError:
            at_once = self.arrays[name].chunks[0]
            for first in range(start - start % at_once, stop, at_once):
                self._read(name, max(first, start), min(first + at_once, stop))
            raise

    def _read(self, name: str, start: int, stop: int) -> np.ndarray:
        with decoding(lambda reason: self.broken(name, start, stop, f"cannot be decoded ({reason})")):
            found = np.ascontiguousarray(self.arrays[name][start:stop])
        if found.size:
            spec = self.layout.arrays[name].spec
            extreme = found.max() if spec.fill == "maximum" and found.dtype.kind != "f" else found.min()
            if extreme == spec.fill_value(found.dtype):
                raise self.broken(name, start, stop, "are missing a chunk")
        return found

    def broken(self, name: str, start: int, stop: int, what: str) -> CorruptStoreError:
        """Return the error of damaged entries of an array, or of all arrays of the same objects."""
        of = "rows" if "object" in self.layout.arrays[name].spec.dims else f"{name}"
        return CorruptStoreError(
            f"{self.place}: {of} {start} to {stop} {what}; {self.remedy}", path=self.place
        )

    def proven(self) -> Iterator[tuple[Piece, list[np.ndarray]]]:
        """Yield every piece of the arrays with its values; raises CorruptStoreError for a wrong checksum."""
        for piece in self.layout.pieces():
            start, stop = piece.part[0].start, piece.part[0].stop
            values = [self.read(name, start, stop) for name in piece.arrays]
            if not piece.is_proven_by(values):
                raise self.broken(piece.arrays[0], start, stop, "differ from their checksum")
            yield piece, values

    def read_file(self, name: str, at_most: int = MOST_BYTES) -> bytes:
        """Return a file besides the arrays; raises CorruptStoreError if it does not have its checksum."""
        file, checksum = self.data / name, self.layout.files[name]
        try:
            content = bytes(file.read(at_most))
        except FileNotFoundError:
            raise corrupt(file, "is missing", self.remedy) from None
        if zlib.crc32(content) != checksum:
            raise corrupt(file, "is damaged (wrong checksum)", self.remedy)
        return content

    def read_parts(self, name: str, of: Callable[[dict[str, Any], dict[str, np.ndarray]], Made]) -> Made:
        """Return what ``of`` makes of facts and arrays in a file; raises CorruptStoreError if it cannot."""
        data = self.read_file(name)
        try:
            return of(*unpacked_parts(data))
        except (*INCONSISTENT, EOFError, RecursionError) as error:
            raise corrupt(self.data / name, f"is damaged ({error})", self.remedy) from None

    def check_rest(self) -> None:
        """Read what is besides the arrays, and compare it with the manifest; refuse symbolic links."""
        if self.ids is not None:
            self.ids.verify()
        if self.layout.arrays:
            check_group(self.data, self.remedy)
        for name, checksum in self.layout.files.items():
            if checksum is not None:
                self.read_file(name)
        refuse_links(self.place)


def packed_parts(facts: Any, arrays: dict[str, np.ndarray]) -> bytes:
    """Return JSON values and arrays as one .npz archive, the same bytes for the same content."""
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    file = io.BytesIO()
    np.savez(file, facts=text, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def unpacked_parts(data: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    """Return what `packed_parts` packed; raises KeyError or ValueError for anything else. No pickles."""
    import zipfile

    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, zipfile.BadZipFile, NotImplementedError, zlib.error) as error:
        raise ValueError(str(error)) from None
    return json.loads(arrays.pop("facts").tobytes()), arrays


class Objects:
    """What has a row for each object and is read block by block: ensembles, pairs, consensuses, features."""

    n_objects: int
    id_column: Ids | None = None
    """What identifies the objects, block by block; None if they have no ids."""

    @property
    def id_name(self) -> str | None:
        """Name of the column that identifies the objects; None if they have no ids."""
        return None if self.id_column is None else self.id_column.facts.name


def reopened(kind: Any, *given: Any) -> Any:
    """Open a store where it is unpickled: a class method would be pickled as its bytecode."""
    return kind.open(*given)


# Writing


def create_arrays(folder: Place, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Create declared arrays in a folder, empty."""
    return {name: create_array(folder / name, *array) for name, array in arrays.items()}


def write_file(file: Place, data: bytes) -> int:
    """Write a file besides the arrays; return its checksum."""
    file.write(data)
    return zlib.crc32(data)


def commit(folder: Place, kind: str, body: dict[str, Any], arrays: Iterable[str], suffix: str = "") -> None:
    """List the arrays of a new store, and those of its ids, for other tools, and write its manifest."""
    list_arrays(folder, body, arrays, suffix)
    write_manifest(folder, kind, body)


def list_arrays(folder: Place, body: Mapping[str, Any], arrays: Iterable[str], suffix: str = "") -> None:
    """Make a folder a group of Zarr that lists the arrays, and those of the ids in the body."""
    ids = body.get("ids")
    create_group(folder, [*arrays, *(array_names(ids["dtype"], suffix).values() if ids else ())])


# Arrays that are read when sliced


class Readable(Protocol):
    """What has arrays by name."""

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return entries, or rows, of an array."""


@dataclass(frozen=True)
class Column:
    """An array of a store that is read when sliced, so that it is never in memory as a whole."""

    source: Readable
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    def __getitem__(self, rows: Any) -> np.ndarray:
        part, *columns = rows if isinstance(rows, tuple) else (rows,)
        start, stop, _ = part.indices(self.shape[0])
        found = self.source.read(self.name, start, stop)
        return found[(slice(None), *columns)] if columns else found
