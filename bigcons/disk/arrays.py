"""Zarr arrays of stores: created from the schema, validated before they are read, with shared chunks.

Only Zarr version 3 and a short list of codecs are accepted, and both are checked before any codec runs. What
decompresses to more than a chunk is not decompressed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.disk.interface import Place
from bigcons.disk.reading import corrupt, read_json
from bigcons.disk.schema import ArraySpec
from bigcons.errors import CorruptStoreError, StoreError, StoreNotFoundError, first_line

if TYPE_CHECKING:
    import zarr

CODECS = ("bytes", "zstd", "crc32c", "blosc", "gzip", "transpose", "sharding_indexed")
"""The codecs an array may use; none of them executes code from the data."""
COMPRESSORS = ("zstd", "blosc", "gzip")
MAX_CHUNK_BYTES = 1 << 31
METADATA = "zarr.json"
_LINK = ("is a link that may leave the store", "replace it with the data.")


def create_array(
    place: Place, spec: ArraySpec, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype | str
) -> zarr.Array[Any]:
    """Create an empty array at ``place``: compressed as the schema says, then crc32c over the result."""
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

    dtype = np.dtype(dtype)
    fast = BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=dtype.itemsize)
    return zarr.create_array(
        store=place.for_zarr(read_only=False),
        shape=shape,
        chunks=chunks,
        dtype=dtype.name,
        fill_value=spec.fill_value(dtype),
        compressors=[fast if spec.codec == "lz4" else ZstdCodec(level=1), Crc32cCodec()],
        dimension_names=spec.dims,
        zarr_format=3,
        config={"write_empty_chunks": True},
    )


def bytes_kept_by_decoding(chunk_bytes: int) -> int:
    """Return how much freed memory a process retains after reading chunks of this size.

    Zarr decodes on its own threads, and glibc retains for each thread what it freed: a chunk and its
    compressed form, about 1.5 chunks together.
    """
    import zarr

    n_threads = zarr.config.get("threading.max_workers") or min(32, (os.cpu_count() or 1) + 4)
    return int(n_threads) * chunk_bytes * 3 // 2


def create_group(place: Place, names: Iterable[str]) -> None:
    """Make ``place`` a Zarr group that lists its arrays ``names``, for other tools.

    With their metadata in it, nobody lists the folder, where the manifest is no part of the hierarchy.
    """
    (place / METADATA).write(json.dumps(_group_of(place, names), indent=1).encode(), durable=True)


def check_group(place: Place, remedy: str) -> None:
    """Raise CorruptStoreError unless ``place`` is a Zarr group whose listed arrays are there as it says.

    Older arrays may be listed, of an append that was killed before it removed them. Attributes may be any.
    """
    try:
        found = read_metadata(place)
        as_made = _group_of(place, listed_arrays(place))
    except (StoreError, FileNotFoundError):
        found, as_made = {}, None
    if not isinstance(found.get("attributes"), dict) or {**found, "attributes": {}} != as_made:
        raise corrupt(place / METADATA, "is missing, or does not list the arrays as they are", remedy)


def _group_of(place: Place, names: Iterable[str]) -> dict[str, Any]:
    arrays = {name: read_json(place / name / METADATA) for name in sorted(names)}
    return {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {},
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": arrays},
    }


def listed_arrays(place: Place) -> list[str]:
    """Return the arrays that the group at ``place`` lists, sorted; none if it is no group or is damaged."""
    with suppress(StoreError):
        group = read_metadata(place)
        with suppress(KeyError, TypeError):
            return sorted(group["consolidated_metadata"]["metadata"])
    return []


def open_array(
    place: Place, elsewhere: Mapping[str, Place] | None = None, *, read_only: bool = True
) -> zarr.Array[Any]:
    """Open the array at ``place``; ``elsewhere`` maps keys of chunks to the other arrays that hold them.

    Raises StoreNotFoundError, and CorruptStoreError for damaged metadata, symbolic links, codecs outside
    ``CODECS`` and chunks above 2 GiB.
    """
    import zarr

    from bigcons.disk.chunks import Bound, BoundedStore, SharingStore

    metadata = read_metadata(place)
    codecs = _codec_names(metadata.get("codecs", []))
    if unknown := sorted(set(codecs) - set(CODECS)) or metadata.get("storage_transformers"):
        raise corrupt(place, f"uses unsupported codecs: {unknown}", "rewrite it with zstd.")
    compressors = [name for name in codecs if name in COMPRESSORS]
    if len(compressors) > 1:
        what = f"is compressed more than once ({', '.join(compressors)})"
        raise corrupt(place, what, "rewrite it with zstd.")
    compressor = None if "sharding_indexed" in codecs else next(iter(compressors), "")
    bound = Bound(place, compressor, MAX_CHUNK_BYTES)
    try:
        store = place.for_zarr(read_only=read_only)
        if elsewhere:
            others = {key: other.for_zarr(read_only=True) for key, other in elsewhere.items()}
            store = SharingStore(store, others)
        if read_only:
            store = BoundedStore(store, bound)
        array = zarr.open_array(store=store, mode="r" if read_only else "r+", zarr_format=3)
    except StoreError:
        raise
    except Exception as error:  # damaged metadata surfaces as an error of almost any type
        raise damaged(place, error) from None
    chunk_bytes = int(np.prod(array.chunks, dtype=object)) * array.dtype.itemsize
    if chunk_bytes > MAX_CHUNK_BYTES or 0 in array.chunks:
        what = f"has chunks of {array.chunks}, of no size or above 2 GiB"
        raise corrupt(place, what, "use others, or restore it from a copy.")
    if array.dtype.hasobject:
        raise corrupt(place, "holds objects, not numbers", "rewrite it as numbers.")
    if bound.compressor is not None:
        bound.n_bytes = chunk_bytes + 4  # a crc32c, before the compression
    return array


def open_declared(
    place: Place,
    shape: tuple[int, ...],
    dtype: np.dtype | str,
    remedy: str,
    elsewhere: Mapping[str, Place] | None = None,
) -> zarr.Array[Any]:
    """Open an array; raise CorruptStoreError unless it has the shape and type that the manifest declares."""
    try:
        array = open_array(place, elsewhere)
    except StoreNotFoundError as error:
        raise corrupt(place, "is missing", remedy) from error
    if (array.shape, array.dtype) != (shape, np.dtype(dtype)):
        what = f"is {array.dtype} {array.shape} but the manifest says {dtype} {shape}"
        raise corrupt(place, what, remedy)
    return array


def read_metadata(place: Place) -> dict[str, Any]:
    """Return the metadata of the array or group at ``place``; only its format is checked."""
    file = place / METADATA
    if place.is_link() or file.is_link():
        raise corrupt(place, *_LINK)
    try:
        metadata = read_json(file, 1 << 20)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreNotFoundError(
            f"{place} is not a Zarr version 3 array; check the path.", path=place
        ) from None
    if not isinstance(metadata, dict) or metadata.get("zarr_format") != 3:
        raise corrupt(place, "is not Zarr version 3", "rewrite it with zarr_format=3.")
    return metadata


def _codec_names(codecs: Any) -> list[str]:
    """Return the names of all codecs, including those inside shards."""
    names: list[str] = []
    for codec in codecs if isinstance(codecs, list) else [codecs]:
        name = codec.get("name") if isinstance(codec, dict) else codec
        names.append(str(name))
        inner = codec.get("configuration") if isinstance(codec, dict) else None
        for key in ("codecs", "index_codecs"):
            if isinstance(inner, dict) and key in inner:
                names += _codec_names(inner[key])
    return names


def refuse_links(place: Place) -> None:
    """Raise CorruptStoreError if there is a symbolic link anywhere in the store at ``place``."""
    for link in place.links():
        raise corrupt(link, *_LINK)


def damaged(place: Place, error: Exception) -> CorruptStoreError:
    """Return the error for data at ``place`` that cannot be read, in one line."""
    return corrupt(place, f"is damaged ({first_line(error)})")


class SharedChunks(NamedTuple):
    """Where each chunk of one generation of a label matrix in a bucket is stored.

    On a disk, unchanged chunks are hard-linked into the next generation. Buckets have no links, and copying
    costs as much as writing all labels, so the manifest records the folder of every chunk.
    """

    folders: list[Place]
    """Data folders of earlier generations."""
    generations: list[int]
    """Numbers of these generations."""
    grid: np.ndarray
    """``(rows, columns)`` of chunks: 0 for the generation's own folder, ``i`` for ``folders[i - 1]``."""

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> SharedChunks:
        """Return the record of a generation that shares nothing; ``shape`` counts chunks."""
        return cls([], [], np.zeros(shape, np.int64))

    @classmethod
    def from_manifest(cls, entry: Any, folders: list[Place], shape: tuple[int, ...]) -> SharedChunks:
        """Parse a manifest's entry; raises ValueError, TypeError or KeyError if it is invalid."""
        if entry is None:
            return cls.none(shape)
        generations, grid = list(entry["generations"]), np.array(entry["chunks"], np.int64)
        fits = len(generations) == len(folders) and all(isinstance(number, int) for number in generations)
        if not fits or grid.shape != shape or np.min(grid) < 0 or np.max(grid) > len(folders):
            raise ValueError("invalid shared chunks")
        return cls(folders, generations, grid)

    def as_entry(self) -> dict[str, Any] | None:
        """Return the manifest's entry."""
        return {"generations": self.generations, "chunks": self.grid.tolist()} if self.folders else None

    def grown(
        self, own: Place, generation: int, shape: tuple[int, ...], kept_rows: int, kept_columns: int
    ) -> SharedChunks:
        """Return the record of the next generation, which keeps chunks of this one, stored in ``own``."""
        grid = np.zeros(shape, np.int64)
        grid[:kept_rows, :kept_columns] = 1 + self.grid[:kept_rows, :kept_columns]
        folders, generations = [own, *self.folders], [generation, *self.generations]
        used = np.unique(grid[grid > 0])
        numbers = np.zeros(len(folders) + 1, np.int64)
        numbers[used] = np.arange(1, len(used) + 1)
        return SharedChunks([folders[i - 1] for i in used], [generations[i - 1] for i in used], numbers[grid])

    def arrays(self, array_name: Callable[[int], str]) -> dict[str, Place]:
        """Return the array of each shared chunk, by key; ``array_name`` is called with generations."""
        arrays = [
            folder / array_name(number) for folder, number in zip(self.folders, self.generations, strict=True)
        ]
        chunks = np.argwhere(self.grid).tolist()
        return {f"c/{row}/{column}": arrays[self.grid[row, column] - 1] for row, column in chunks}
