"""Stores as Zarr sees them: a folder of a bucket, and a folder of which some objects lie elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zarr.abc.store import Store
from zarr.storage import ObjectStore, WrapperStore

from bigcons.storage.object_errors import plain_errors

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


class SharingStore(WrapperStore[Store]):
    """A store, to be read, of which the objects with the keys ``elsewhere`` are those of other stores."""

    def __init__(self, store: Store, elsewhere: Mapping[str, Store] | None = None) -> None:
        super().__init__(store)
        self._elsewhere = dict(elsewhere or {})

    def _with_store(self, store: Store) -> SharingStore:
        return type(self)(store, self._elsewhere)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the object, or None if there is none."""
        return await self._elsewhere.get(key, self._store).get(key, prototype, byte_range)
