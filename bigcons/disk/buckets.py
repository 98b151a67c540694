"""Places in a bucket, through obstore: keys with a common prefix, each object written in one put.

Settings and credentials come from the environment variables that obstore reads: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP. Only URLs are sent to workers, which read
their own environment.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from zarr.storage import ObjectStore

from bigcons.disk.files import MOST_BYTES, READ_AHEAD, Place, checked_size
from bigcons.errors import (
    InvalidInputError,
    MissingDependencyError,
    StoreError,
    StoreNotFoundError,
    first_line,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Bucket
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

_URL = re.compile(r"([a-z0-9]+)://([^/]+)/+(.+)", re.IGNORECASE | re.DOTALL)
_SETTINGS = ("AWS_", "GOOGLE_", "AZURE_")


class BucketPlace(Place):
    """An object, or all objects below a key; made by `bucket_place`.

    For readers of files it has what they use of a Path: ``name``, ``suffix``, `is_dir`, `iterdir` and `open`.
    """

    def __init__(self, root: str, key: str, bucket: Bucket) -> None:
        self.root = root
        self.key = key
        self.bucket = bucket

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The last part of the name from its last dot on."""
        return PurePosixPath(self.name).suffix

    def __str__(self) -> str:
        return f"{self.root}/{self.key}"

    def __truediv__(self, name: str) -> BucketPlace:
        return BucketPlace(self.root, f"{self.key}/{name}", self.bucket)

    def __reduce__(self) -> tuple[Any, ...]:
        return bucket_place, (str(self),)

    def sibling(self, name: str) -> BucketPlace:
        """Return the place called ``name`` in the same folder."""
        folder, slash, _ = self.key.rpartition("/")
        return BucketPlace(self.root, folder + slash + name, self.bucket)

    def exists(self) -> bool:
        """Return whether an object has this key or a key below it."""
        import obstore

        with bucket_errors(self):
            return any(len(batch) for batch in obstore.list(self.bucket, self.key)) or self.is_file()

    def is_file(self) -> bool:
        """Return whether an object has this key."""
        return self.stamp() is not None

    def is_dir(self) -> bool:
        """Return whether no object has this key, so that it is that of a folder if it exists."""
        return not self.is_file()

    def names(self) -> list[str]:
        """Return the next component of all keys below, sorted."""
        import obstore

        with bucket_errors(self):
            found = obstore.list_with_delimiter(self.bucket, self.key)
        keys = {*found["common_prefixes"], *(entry["path"] for entry in found["objects"])}
        return sorted(key.rpartition("/")[2] for key in keys - {self.key.rstrip("/")})  # a mark of it

    def iterdir(self) -> Iterator[BucketPlace]:
        """Yield the places right below."""
        return (self / name for name in self.names())

    def n_bytes(self) -> int:
        """Return the total size of the objects below."""
        import obstore

        with bucket_errors(self):
            return sum(entry["size"] for batch in obstore.list(self.bucket, self.key) for entry in batch)

    def stamp(self) -> Hashable:
        """Return the entity tag, version and size of the object."""
        found = self.head()
        return None if found is None else (found["e_tag"], found["version"], found["size"])

    def head(self) -> Mapping[str, Any] | None:
        """Return what the server says of the object; None if there is none."""
        import obstore

        with bucket_errors(self):
            try:
                return obstore.head(self.bucket, self.key)
            except FileNotFoundError:
                return None

    def read(self, at_most: int = MOST_BYTES) -> bytearray:
        """Return the object, streamed so that memory holds it only once."""
        import obstore

        with bucket_errors(self):
            found = obstore.get(self.bucket, self.key)
            content = bytearray(checked_size(found.meta["size"], at_most, self))
            filled = 0
            for part in found.stream(min_chunk_size=1 << 23):
                content[filled : filled + len(part)] = memoryview(part)
                filled += len(part)
        return content

    def open(self, mode: str = "rb", buffering: int = 1 << 16) -> IO[bytes]:  # noqa: ARG002 - as of a Path
        """Open the object for reading, from any position on."""
        raw: Any = _ObjectFile(self)
        return io.BufferedReader(raw, buffering) if buffering else raw

    def write(self, *parts: Any, durable: bool = False) -> None:  # noqa: ARG002 - every put is durable
        """Put the object."""
        self.put(b"".join(parts) if len(parts) > 1 else bytes(*parts))

    def copy_to(self, other: Place) -> None:
        """Make ``other`` a copy of the object, in the server; raises FileNotFoundError."""
        import obstore

        assert isinstance(other, BucketPlace)  # noqa: S101 - they are in one folder
        with bucket_errors(self):
            obstore.copy(self.bucket, self.key, other.key)

    def flush(self) -> None:
        """Do nothing: every put is durable."""

    def put(self, content: bytes, mode: Any = "overwrite") -> dict[str, str] | None:
        """Put the object and return its version, or None if the condition ``mode`` fails.

        "create" requires that no such object exists, a version that it is the current one.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with bucket_errors(self):
            try:
                version = obstore.put(self.bucket, self.key, content, mode=mode)
            except (AlreadyExistsError, PreconditionError):
                return None
        return {name: value for name, value in version.items() if isinstance(value, str)}

    def remove(self) -> None:
        """Remove the object with this key and all below."""
        import obstore

        with bucket_errors(self), suppress(FileNotFoundError):
            for batch in obstore.list(self.bucket, self.key, chunk_size=1000):
                obstore.delete(self.bucket, [entry["path"] for entry in batch])
            obstore.delete(self.bucket, self.key)

    def for_zarr(self, *, read_only: bool) -> Any:
        """Return a store rooted at this folder; otherwise Zarr marks all folders above it as groups."""
        return _FolderStore(self, read_only=read_only)


class _ObjectFile(io.RawIOBase):
    """An object that is read range by range, all of the version that was opened.

    As every request takes its time, reads in order are served by larger ones, of a megabyte to `READ_AHEAD`.
    """

    def __init__(self, place: BucketPlace) -> None:
        found = place.head()
        if found is None:
            raise StoreNotFoundError(f"{place} does not exist; check the path.", path=place)
        self._place, self._at = place, 0
        self._size, self._tag = found["size"], found["e_tag"]
        self._start, self._held, self._ahead = -1, bytearray(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: max(self._size - self._at, 0)]
        first = self._at - self._start
        is_in_order = 0 <= first <= len(self._held)
        held = self._held[first : first + len(view)] if is_in_order else b""
        view[: len(held)] = held
        self._at += len(view)
        if not len(rest := view[len(held) :]):
            return len(view)
        start = self._at - len(rest)
        self._ahead = min(max(2 * self._ahead, 1 << 20), READ_AHEAD) if is_in_order else 0
        if len(rest) < self._ahead:
            content = bytearray(min(self._ahead, self._size - start))
            self._fill(memoryview(content), start)
            rest[:] = content[: len(rest)]
            self._start, self._held = start, content
        else:
            self._fill(rest, start)
            self._start, self._held = self._at, bytearray()
        return len(view)

    def _fill(self, view: memoryview, start: int) -> None:
        """Read the bytes from ``start`` on."""
        import obstore
        from obstore.exceptions import PreconditionError

        filled, ends = 0, (start, start + len(view))
        with bucket_errors(self._place):
            try:
                found = obstore.get(
                    *(self._place.bucket, self._place.key), options={"range": ends, "if_match": self._tag}
                )
                for part in found.stream(min_chunk_size=1 << 20):
                    view[filled : filled + len(part)] = memoryview(part)
                    filled += len(part)
            except (FileNotFoundError, PreconditionError):
                filled = -1
        if filled != len(view):
            raise StoreError(
                f"{self._place} has changed while it was read; read it again.", path=str(self._place)
            )


class _FolderStore(ObjectStore[Any]):
    """A Zarr store of a folder in a bucket; distinguishes missing objects from unreachable servers."""

    def __init__(self, folder: BucketPlace, *, read_only: bool = False) -> None:
        super().__init__(_connect_to(folder.root, folder.key), read_only=read_only)
        self.folder = folder

    def with_read_only(self, read_only: bool = False) -> _FolderStore:
        return _FolderStore(self.folder, read_only=read_only)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        with bucket_errors(self.folder / key):
            return await super().get(key, prototype, byte_range)

    async def exists(self, key: str) -> bool:
        with bucket_errors(self.folder / key):
            return await super().exists(key)

    async def set(self, key: str, value: Buffer) -> None:
        with bucket_errors(self.folder / key):
            await super().set(key, value)


def bucket_place(url: str) -> BucketPlace:
    """Return the place that a URL such as ``s3://bucket/path`` names."""
    parts = _URL.fullmatch(url.rstrip("/"))
    if parts is None:
        raise InvalidInputError(f"{url} does not name a path in a bucket; use s3://bucket/path.")
    root = f"{parts[1].lower()}://{parts[2]}"
    key = re.sub("/+", "/", parts[3])
    if {".", ".."} & set(key.split("/")):
        raise InvalidInputError(
            f"{url} contains '.' or '..', which keys in a bucket cannot; use the full path."
        )
    return BucketPlace(root, key, _connect_to(root))


def _connect_to(root: str, key: str = "") -> Bucket:
    """Return obstore's store of a bucket or folder, cached while the settings stay the same."""
    settings = {name: value for name, value in os.environ.items() if name.upper().startswith(_SETTINGS)}
    return _connect(root, key, frozenset(settings.items()))


@lru_cache(maxsize=64)
def _connect(
    root: str,
    key: str,
    settings: frozenset[tuple[str, str]],  # noqa: ARG001 - part of the cache's key; obstore reads them itself
) -> Bucket:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise MissingDependencyError(
            f"{root} needs obstore, which is not installed; run: pip install 'bigcons[s3]'.", extra="s3"
        ) from None
    # enough for a busy server; an unreachable one fails within seconds
    retries: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}
    try:
        return from_url(f"{root}/{quote(key)}", retry_config=retries)
    except (BaseError, ValueError) as error:
        raise InvalidInputError(
            f"{root} cannot be used ({first_line(error)}); check the URL and the AWS_* settings."
        ) from None


@contextmanager
def bucket_errors(place: BucketPlace) -> Iterator[None]:
    """Turn obstore's errors about a server, a bucket or credentials into a one-line StoreError.

    A missing object remains a FileNotFoundError.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error):
            raise
        raise StoreError(_complaint(place, error), path=str(place)) from None


def _complaint(place: BucketPlace, error: Exception) -> str:
    """Return what is wrong with the bucket of ``place``, or with the credentials for the place itself."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    text, bucket = str(error), place.root
    keys, server = "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL and AWS_REGION"
    for service, scheme, settings in (("GCS", "gs:", "GOOGLE_*"), ("MicrosoftAzure", "az", "AZURE_*")):
        if service in text or bucket.startswith(scheme):
            keys = server = f"the {settings} settings"
    if "NoSuchBucket" in text:
        return f"{bucket} does not exist; check the URL, or create the bucket."
    if "latest/api/token" in text:  # obstore's last resort: the metadata service of a cloud instance
        return (
            f"{bucket} needs credentials, and none were found; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (or AWS_SKIP_SIGNATURE=true for a public bucket)."
        )
    status = re.search("status code: (40[13])", text)  # of a refused list, which is a general error
    if status or isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        code = re.search("<Code>([A-Za-z]{1,40})</Code>", text)
        answer = " ".join(found[1] for found in (status, code) if found)
        return (
            f"{place} cannot be accessed with these credentials"
            f"{f' (the server says {answer})' if answer else ''}; check {keys} and their permissions."
        )
    if "builder error" in text:
        return f"{bucket} is on a server without TLS (http); set AWS_ALLOW_HTTP=true to allow it."
    return f"{bucket} cannot be reached ({first_line(error)}); check the network, {server}."
