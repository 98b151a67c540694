"""The store of Zarr that arrays of others are read through: what their chunks take.

Importing Zarr takes a fifth of a second, so that only what opens such an array does.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from zarr.abc.store import Store
from zarr.storage import WrapperStore

from bigcons.disk.arrays import stated_size
from bigcons.disk.files import Place, check_file
from bigcons.disk.places import DiskPlace

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype


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
