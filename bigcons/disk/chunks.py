"""The stores of Zarr that arrays are read through: chunks of other arrays, and bounds on what chunks take.

Importing Zarr takes a fifth of a second, so that only what opens an array does.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zarr.abc.store import Store
from zarr.storage import WrapperStore

from bigcons.disk.interface import Place
from bigcons.disk.places import DiskPlace
from bigcons.disk.reading import check_file, corrupt

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype


class SharingStore(WrapperStore[Store]):
    """A read-only Zarr store that takes the objects with keys in ``elsewhere`` from other stores."""

    def __init__(self, store: Store, elsewhere: Mapping[str, Store]) -> None:
        super().__init__(store)
        self._elsewhere = elsewhere

    def _with_store(self, store: Store) -> SharingStore:
        return type(self)(store, self._elsewhere)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the object of a key, from the store that has it."""
        return await self._elsewhere.get(key, self._store).get(key, prototype, byte_range)


@dataclass
class Bound:
    """What the chunks of one array may take, as files and when they are decompressed."""

    where: Place
    compressor: str | None
    """"" of chunks that are not compressed, None of shards, of which chunks are parts."""
    n_bytes: int

    def check_file(self, key: str) -> None:
        """Raise CorruptStoreError for what is no file, or too large for one of a chunk.

        No compressor adds more than a 64th, and a megabyte, to what it cannot compress.
        """
        if isinstance(self.where, DiskPlace):
            check_file(self.where.path / key, self.n_bytes + self.n_bytes // 64 + (1 << 20))

    def check(self, key: str, content: memoryview) -> None:
        """Raise CorruptStoreError for a chunk that decompresses to more, which no reader could bound."""
        assert self.compressor  # noqa: S101 - shards and what is not compressed are not asked
        n_bytes = _stated_size(self.compressor, bytes(content[:18]))
        if n_bytes is None:
            n_bytes = _counted_size(self.compressor, content, self.n_bytes)
        if n_bytes > self.n_bytes:
            what = f"decompresses to more than the {self.n_bytes} bytes of a chunk"
            raise corrupt(f"{self.where}/{key}", what)


class BoundedStore(WrapperStore[Store]):
    """A read-only Zarr store that gives out no chunk that decompresses to more than a chunk."""

    def __init__(self, store: Store, bound: Bound) -> None:
        super().__init__(store)
        self._bound = bound

    def _with_store(self, store: Store) -> BoundedStore:
        return type(self)(store, self._bound)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the object of a key; raise CorruptStoreError for a chunk that is too large."""
        if not key.endswith("zarr.json"):
            self._bound.check_file(key)
        found = await self._store.get(key, prototype, byte_range)
        if found is not None and not key.endswith("zarr.json") and self._bound.compressor:
            self._bound.check(key, found.as_numpy_array().data.cast("B"))
        return found


def _stated_size(compressor: str, head: bytes) -> int | None:
    """Return the size after decompression that a chunk states first; 0 if it is damaged, None if unknown."""
    if compressor == "blosc":
        return int.from_bytes(head[4:8], "little")
    if compressor == "gzip":  # states it at the end, modulo 4 GiB
        return None
    if head[:4] != b"\x28\xb5\x2f\xfd":
        return 0
    flags = head[4] if len(head) > 4 else 0
    is_single = flags >> 5 & 1
    width = (is_single, 2, 4, 8)[flags >> 6]
    first = 5 + (1 - is_single) + (0, 1, 2, 4)[flags & 3]
    stated = int.from_bytes(head[first : first + width], "little") + (256 if width == 2 else 0)
    return stated if width else None


def _counted_size(compressor: str, content: memoryview, at_most: int) -> int:
    """Return the size after decompression, or one above ``at_most``; decompresses a megabyte at a time."""
    n_bytes = 0
    if compressor == "gzip":
        stream, rest = zlib.decompressobj(31), bytes(content)
        try:
            while rest and n_bytes <= at_most:
                n_bytes += len(stream.decompress(rest, 1 << 20))
                rest = stream.unconsumed_tail
                if stream.eof:  # another part may follow
                    rest, stream = stream.unused_data, zlib.decompressobj(31)
        except zlib.error:  # of the checksum at the end, or damage that the codec will report
            pass
        return n_bytes
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.py_buffer(content), "zstd") as file:
            while n_bytes <= at_most and (part := file.read(1 << 20)):
                n_bytes += len(part)
    except (OSError, pa.ArrowException):  # of the checksum at the end, or damage that the codec will report
        pass
    return n_bytes
