"""Zarr arrays: those of stores, as the head determines them, and those of others, checked before they are
read.

Of the arrays of a store, nothing but chunks is read: their metadata follow from the head. Of others, only
Zarr version 3 and a short list of codecs are accepted. What decompresses to more than a chunk is not
decompressed.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.disk.files import Place, corrupt, read_json
from bigcons.disk.schema import Array
from bigcons.errors import StoreNotFoundError, first_line

if TYPE_CHECKING:
    import zarr

CODECS = ("bytes", "zstd", "crc32c", "blosc", "transpose", "sharding_indexed")
"""The codecs an array may use; none of them executes code from the data."""
MAX_CHUNK_BYTES = 1 << 31
METADATA = "zarr.json"


class StoredArray:
    """An array of a store, opened when it is first used; picklable and thread-safe."""

    def __init__(self, place: Place, array: Array, *, is_writable: bool = False) -> None:
        self.place = place
        self.array = array
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype = np.dtype(array.dtype)
        self._is_writable = is_writable

    @classmethod
    def create(cls, place: Place, array: Array) -> StoredArray:
        """Return a new array at ``place``, to be written."""
        (place / METADATA).write(json.dumps(array.metadata(), indent=1).encode())
        return cls(place, array, is_writable=True)

    @cached_property
    def _chunks(self) -> zarr.Array[Any]:
        import zarr
        from zarr.storage import StorePath

        from bigcons.disk.chunks import CheckedStore

        store = self.place.for_zarr(read_only=not self._is_writable)
        if not self._is_writable:
            refuse_link(self.place)
            n_bytes = int(np.prod(self.array.chunks, dtype=object)) * self.dtype.itemsize
            compressor = "zstd" if self.array.compressor == "zstd" else "blosc"
            store = CheckedStore(store, self.place, n_bytes + 4, compressor, are_complete=True)
        found = zarr.Array.from_dict(StorePath(store), self.array.metadata())
        return found.with_config({"write_empty_chunks": True})

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return entries, or rows; raises an error of any type for chunks that are damaged or missing."""
        return np.ascontiguousarray(self._chunks[start:stop])

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        return self.read(start, stop)

    def write(self, start: int, values: np.ndarray) -> None:
        """Write entries, or rows, from ``start`` on."""
        self._chunks[start : start + len(values)] = values

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_chunks"}


def rows_digest(name: str, row: int, values: np.ndarray, chunks: tuple[int, ...]) -> int:
    """Return a number that depends on a row of chunks of an array, and on their places in the store.

    The digest of a store is the sum over its chunks modulo 2^64, so that blocks may be written in any order.
    """
    total = 0
    width = chunks[1] if values.ndim == 2 else 1
    for first in range(0, values.shape[1] if values.ndim == 2 else 1, width):
        part = values[:, first : first + width] if values.ndim == 2 else values
        position = (row, first // width) if values.ndim == 2 else (row,)
        crc = zlib.crc32(np.ascontiguousarray(part, part.dtype.newbyteorder("<")).data.cast("B"))
        text = f"{name} {position} {part.shape} {part.dtype.name} {crc}"
        total += int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    return total


def digest_text(total: int) -> str:
    """Return a digest of a store as the head has it."""
    return f"{total % 2**64:016x}"


def refuse_link(place: Place) -> None:
    """Raise CorruptStoreError for a symbolic link."""
    if place.is_link():
        raise corrupt(place, "is a link that may leave the store", "replace it with the data.")


# Arrays of others


def open_array(place: Place) -> zarr.Array[Any]:
    """Open an array that was not written by bigcons, for reading.

    Raises StoreNotFoundError, and CorruptStoreError for damaged metadata, symbolic links, codecs outside
    ``CODECS`` and chunks above 2 GiB.
    """
    import zarr

    from bigcons.disk.chunks import CheckedStore

    metadata = read_metadata(place)
    codecs = _codec_names(metadata.get("codecs", []))
    if unknown := sorted(set(codecs) - set(CODECS)) or metadata.get("storage_transformers"):
        raise corrupt(place, f"uses unsupported codecs: {unknown}", "rewrite it with zstd.")
    compressors = [name for name in codecs if name in ("zstd", "blosc")]
    if len(compressors) > 1:
        what = f"is compressed more than once ({', '.join(compressors)})"
        raise corrupt(place, what, "rewrite it with zstd.")
    try:
        array = zarr.open_array(store=place.for_zarr(read_only=True), mode="r", zarr_format=3)
    except Exception as error:  # damaged metadata surfaces as an error of almost any type
        raise corrupt(place, f"is damaged ({first_line(error)})") from None
    chunk_bytes = int(np.prod(array.chunks, dtype=object)) * array.dtype.itemsize
    if chunk_bytes > MAX_CHUNK_BYTES or 0 in array.chunks:
        what = f"has chunks of {array.chunks}, of no size or above 2 GiB"
        raise corrupt(place, what, "use others, or restore it from a copy.")
    if array.dtype.hasobject:
        raise corrupt(place, "holds objects, not numbers", "rewrite it as numbers.")
    compressor = "" if "sharding_indexed" in codecs else "".join(compressors)
    most = chunk_bytes + 4 if compressor else MAX_CHUNK_BYTES
    store = CheckedStore(place.for_zarr(read_only=True), place, most, compressor, are_complete=False)
    return zarr.open_array(store=store, mode="r", zarr_format=3)


def read_metadata(place: Place) -> dict[str, Any]:
    """Return the metadata of the array or group at ``place``; only its format is checked."""
    file = place / METADATA
    refuse_link(place)
    refuse_link(file)
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
