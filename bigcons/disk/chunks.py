"""The stores of Zarr that arrays are read through: what chunks there are, and what they take.

Importing Zarr takes a fifth of a second, so that only what opens an array does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zarr.abc.store import Store
from zarr.storage import WrapperStore

from bigcons.disk.files import Place, check_file
from bigcons.disk.places import DiskPlace

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype


class CheckedStore(WrapperStore[Store]):
    """A read-only Zarr store that gives out no chunk that is missing or decompresses to more than a chunk.

    ``n_bytes`` is the most that one decompresses to, the ``compressor`` "zstd", "blosc", or "" of shards, of
    which chunks are parts, and of what is not compressed. With ``are_complete``, a chunk that is not there is
    lost, rather than one of fill values.
    """

    def __init__(
        self, store: Store, place: Place, n_bytes: int, compressor: str, *, are_complete: bool
    ) -> None:
        super().__init__(store)
        self._place, self._n_bytes = place, n_bytes
        self._compressor, self._are_complete = compressor, are_complete

    def _with_store(self, store: Store) -> CheckedStore:
        return type(self)(
            *(store, self._place, self._n_bytes, self._compressor), are_complete=self._are_complete
        )

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the object of a key; raises ValueError for a chunk that is none.

        No compressor adds more than a 64th, and a megabyte, to what it cannot compress.
        """
        if key.endswith("zarr.json"):
            return await self._store.get(key, prototype, byte_range)
        most = self._n_bytes
        if isinstance(self._place, DiskPlace):
            check_file(self._place.path / key, most + most // 64 + (1 << 20))
        found = await self._store.get(key, prototype, byte_range)
        if found is None and self._are_complete:
            raise ValueError(f"chunk {key} is missing")
        if found is not None and self._compressor:
            n_bytes = _stated_size(self._compressor, found.as_numpy_array()[:18].tobytes())
            if n_bytes is None:
                raise ValueError(f"chunk {key} does not state to what it decompresses")
            if n_bytes > most:
                raise ValueError(f"chunk {key} decompresses to more than the {most} bytes of a chunk")
        return found


def _stated_size(compressor: str, head: bytes) -> int | None:
    """Return the size after decompression that a chunk states; 0 of what is damaged, as the codec reports."""
    if compressor == "blosc":
        return int.from_bytes(head[4:8], "little")
    if head[:4] != b"\x28\xb5\x2f\xfd":
        return 0
    flags = head[4] if len(head) > 4 else 0
    is_single = flags >> 5 & 1
    width = (is_single, 2, 4, 8)[flags >> 6]
    first = 5 + (1 - is_single) + (0, 1, 2, 4)[flags & 3]
    stated = int.from_bytes(head[first : first + width], "little") + (256 if width == 2 else 0)
    return stated if width else None
