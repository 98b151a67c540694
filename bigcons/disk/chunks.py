"""Zarr arrays of others, checked before they are read: only version 3 and a short list of codecs.

What decompresses to more than a chunk is not decompressed. Importing
Zarr takes a fifth of a second, so that only what opens such an array does.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.storage import WrapperStore

from bigcons.disk.arrays import MAX_CHUNK_BYTES, read_metadata, stated_size
from bigcons.disk.files import Place, check_file, corrupt
from bigcons.disk.places import DiskPlace
from bigcons.errors import first_line

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype


CODECS = ("bytes", "zstd", "crc32c", "blosc", "transpose", "sharding_indexed")
"""The codecs an array may use; none of them executes code from the data."""


def open_array(place: Place) -> zarr.Array[Any]:
    """Open an array that was not written by bigcons, for reading.

    Raises StoreNotFoundError, and CorruptStoreError for damaged metadata, codecs outside ``CODECS``, more
    than one compressor, and chunks above 2 GiB.
    """
    codecs = _codec_names(read_metadata(place).get("codecs", []))
    compressors = [name for name in codecs if name in ("zstd", "blosc")]
    if not set(codecs) <= set(CODECS) or len(compressors) > 1:
        raise corrupt(
            place, f"uses codecs that are not supported ({', '.join(codecs)})", "rewrite it with zstd."
        )
    try:
        array = zarr.open_array(store=place.for_zarr(), mode="r", zarr_format=3)
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
    return zarr.open_array(store=CheckedStore(place, most, compressor), mode="r", zarr_format=3)


def _codec_names(codecs: Any) -> list[str]:
    """Return the names of all codecs, including those inside shards."""
    names: list[str] = []
    for codec in codecs if isinstance(codecs, list) else [codecs]:
        names.append(str(codec.get("name") if isinstance(codec, dict) else codec))
        inner = codec.get("configuration") if isinstance(codec, dict) else None
        for key in ("codecs", "index_codecs"):
            if isinstance(inner, dict) and key in inner:
                names += _codec_names(inner[key])
    return names


class CheckedStore(WrapperStore[Store]):
    """A read-only Zarr store that gives out no chunk that decompresses to more than a chunk.

    ``n_bytes`` is the most that one decompresses to, the ``compressor`` "zstd", "blosc", or "" of shards, of
    which chunks are parts, and of what is not compressed.
    """

    def __init__(self, place: Place, n_bytes: int, compressor: str) -> None:
        super().__init__(place.for_zarr())
        self._place, self._n_bytes, self._compressor = place, n_bytes, compressor

    def _with_store(self, _: Store) -> CheckedStore:
        return CheckedStore(self._place, self._n_bytes, self._compressor)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the object of a key; raises ValueError for a chunk that is none, StoreError of a server.

        No compressor adds more than a 64th, and a megabyte, to what it cannot compress.
        """
        most = self._n_bytes
        errors: Any = nullcontext()
        is_chunk = not key.endswith("zarr.json")
        if isinstance(self._place, DiskPlace):
            if is_chunk:
                check_file(self._place.path / key, most + most // 64 + (1 << 20))
        else:
            from bigcons.disk.buckets import bucket_errors

            errors = bucket_errors(self._place / key)
        with errors:
            found = await self._store.get(key, prototype, byte_range)
        if found is not None and is_chunk and self._compressor:
            n_bytes = stated_size(self._compressor, found.as_numpy_array()[:18].tobytes())
            if n_bytes is None:
                raise ValueError(f"chunk {key} does not state to what it decompresses")
            if n_bytes > most:
                raise ValueError(f"chunk {key} decompresses to more than the {most} bytes of a chunk")
        return found
