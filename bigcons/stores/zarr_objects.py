"""Zarr's store of a folder in a bucket, with the errors of a server told in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zarr.storage import ObjectStore

from bigcons.stores.objects import plain_errors

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype


class FolderStore(ObjectStore[Any]):
    """A folder of a bucket as Zarr sees it: a missing object is one thing, a lost server another."""

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the object, or None if there is none."""
        with plain_errors(f"{self.store.prefix}/{key}"):
            return await super().get(key, prototype, byte_range)

    async def exists(self, key: str) -> bool:
        """Tell whether there is such an object."""
        with plain_errors(f"{self.store.prefix}/{key}"):
            return await super().exists(key)

    async def set(self, key: str, value: Buffer) -> None:
        """Put the object."""
        with plain_errors(f"{self.store.prefix}/{key}"):
            await super().set(key, value)
