"""Places in a bucket, through obstore: keys below a common beginning, each object put as a whole.

Settings and credentials come from the environment as obstore takes them: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP. Workers read their own environment; only
the URL is sent to them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bigcons.errors import InvalidInputError, MissingDependencyError
from bigcons.storage.object_errors import plain_errors, reason_of
from bigcons.storage.place import Place, checked_size

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_URL = re.compile(r"([a-z0-9]+)://([^/]+)/+(.+)", re.IGNORECASE | re.DOTALL)
_SETTINGS = ("AWS_", "GOOGLE_", "AZURE_")
_PART_BYTES = 1 << 23
# What a busy server gets; one that is not there is given up within seconds.
_MAX_RETRIES, _RETRY_TIMEOUT = 5, timedelta(seconds=30)


class ObjectPlace(Place):
    """An object, or all objects below a key; made by `object_place`."""

    def __init__(self, root: str, key: str, bucket: ObjectStore) -> None:
        self.root = root
        self.key = key
        self.bucket = bucket

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.root}/{self.key}"

    def __repr__(self) -> str:
        return f"ObjectPlace({str(self)!r})"

    def __truediv__(self, name: str) -> ObjectPlace:
        return ObjectPlace(self.root, f"{self.key}/{name}", self.bucket)

    def __reduce__(self) -> tuple[Any, ...]:
        return object_place, (str(self),)

    def sibling(self, name: str) -> ObjectPlace:
        """Return the place of that name beside this one."""
        folder, slash, _ = self.key.rpartition("/")
        return ObjectPlace(self.root, folder + slash + name, self.bucket)

    def exists(self) -> bool:
        """Tell whether there is an object of this key, or any below."""
        import obstore

        with plain_errors(str(self)):
            return any(len(batch) for batch in obstore.list(self.bucket, self.key)) or self.is_file()

    def is_file(self) -> bool:
        """Tell whether there is an object of this key."""
        return self.stamp() is not None

    def is_link(self) -> bool:
        """Tell that an object is never a link."""
        return False

    def links(self) -> Iterator[Place]:
        """Yield nothing: buckets have no links."""
        return iter(())

    def names(self) -> list[str]:
        """Return the next parts of all keys below, ascending."""
        import obstore

        with plain_errors(str(self)):
            found = obstore.list_with_delimiter(self.bucket, self.key)
        keys = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        return sorted(key.rpartition("/")[2] for key in keys)

    def n_bytes(self) -> int:
        """Return the size of all objects below."""
        import obstore

        with plain_errors(str(self)):
            return sum(entry["size"] for batch in obstore.list(self.bucket, self.key) for entry in batch)

    def stamp(self) -> Hashable:
        """Return the tag that the bucket gave the object when it was put."""
        import obstore

        with plain_errors(str(self)):
            try:
                found = obstore.head(self.bucket, self.key)
            except FileNotFoundError:
                return None
        return found["e_tag"], found["version"], found["size"]

    def read(self, at_most: int | None = None) -> bytearray:
        """Return the object, received part by part: it is in memory once."""
        import obstore

        with plain_errors(str(self)):
            found = obstore.get(self.bucket, self.key)
            content = bytearray(checked_size(found.meta["size"], at_most))
            filled = 0
            for part in found.stream(min_chunk_size=_PART_BYTES):
                content[filled : filled + len(part)] = memoryview(part)
                filled += len(part)
        return content

    def write(self, *parts: Any, durable: bool = False) -> None:  # noqa: ARG002 - what is put lasts
        """Put the object."""
        self.put(b"".join(parts) if len(parts) > 1 else bytes(*parts))

    def write_last(self, content: bytes) -> None:
        """Put the object; what was put before it lasts."""
        self.put(content)

    def put(self, content: bytes, mode: Any = "overwrite") -> dict[str, str] | None:
        """Put the object and return its version, or return None if that breaks the condition ``mode``.

        "create" asks that there be none yet, a version that it be the one there.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with plain_errors(str(self)):
            try:
                version = obstore.put(self.bucket, self.key, content, mode=mode)
            except (AlreadyExistsError, PreconditionError):
                return None
        return {name: value for name, value in version.items() if isinstance(value, str)}

    def remove(self) -> None:
        """Remove the object of this key and all below."""
        import obstore

        with plain_errors(str(self)), suppress(FileNotFoundError):
            for batch in obstore.list(self.bucket, self.key, chunk_size=1000):
                obstore.delete(self.bucket, [entry["path"] for entry in batch])
            obstore.delete(self.bucket, self.key)

    def for_zarr(self, *, read_only: bool) -> Any:
        """Return a store of this folder alone: Zarr would mark all folders above as groups."""
        from bigcons.storage.zarr_stores import FolderStore

        return FolderStore(connect(self.root, self.key), read_only=read_only)


def object_place(url: str) -> ObjectPlace:
    """Return the place that a URL such as ``s3://bucket/path`` names."""
    parts = _URL.fullmatch(url.rstrip("/"))
    if parts is None:
        raise InvalidInputError(f"{url} names no place in a bucket; write s3://bucket/path.")
    root = f"{parts[1].lower()}://{parts[2]}"
    key = re.sub("/+", "/", parts[3])
    if {".", ".."} & set(key.split("/")):
        raise InvalidInputError(
            f"{url} has '.' or '..' in it, which a bucket has not; write the path in full."
        )
    return ObjectPlace(root, key, connect(root))


def connect(root: str, key: str = "") -> ObjectStore:
    """Return obstore's store of a bucket, or of a folder in it, shared while the settings stay the same."""
    settings = {name: value for name, value in os.environ.items() if name.upper().startswith(_SETTINGS)}
    return _connect(root, key, frozenset(settings.items()))


@lru_cache(maxsize=64)
def _connect(
    root: str,
    key: str,
    settings: frozenset[tuple[str, str]],  # noqa: ARG001 - obstore reads them itself
) -> ObjectStore:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise MissingDependencyError(
            f"{root} needs obstore, which is not installed; run: pip install 'bigcons[s3]'."
        ) from None
    retries: Any = {"max_retries": _MAX_RETRIES, "retry_timeout": _RETRY_TIMEOUT}
    try:
        return from_url(f"{root}/{quote(key)}", retry_config=retries)
    except (BaseError, ValueError) as error:
        raise InvalidInputError(
            f"{root} cannot be used ({reason_of(error)}); check the URL and the settings AWS_*."
        ) from None
