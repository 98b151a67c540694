"""Places in a bucket, through obstore: keys with a common prefix, each object written in one put.

Settings and credentials come from the environment variables that obstore reads: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP. Only URLs are sent to workers, which read
their own environment.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import PurePosixPath
from typing import IO, Any
from urllib.parse import quote

import obstore
from obstore import exceptions
from obstore.store import ObjectStore, from_url

from bigcons import errors
from bigcons.disk.files import MOST_BYTES, READ_AHEAD, checked_size, is_running, machine, read_json

_URL = re.compile(r"([a-z0-9]+)://([^/]+)/+(.+)", re.IGNORECASE | re.DOTALL)


class BucketPlace:
    """An object, or all objects below a key, as `bigcons.disk.places.DiskPlace`; made by `bucket_place`.

    For readers of files it has what they use of a Path, too: ``suffix``, `is_dir`, `iterdir` and `open`.
    """

    def __init__(self, root: str, key: str, bucket: ObjectStore) -> None:
        self.root = root
        self.key = key
        self.bucket = bucket
        self.name: str = key.rpartition("/")[2]
        self.suffix: str = PurePosixPath(self.name).suffix

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
        return any(True for _ in self._below()) or self.is_file()

    def is_file(self) -> bool:
        """Return whether an object has this key."""
        return self.stamp() is not None

    def is_dir(self) -> bool:
        """Return whether no object has this key, which is then the key of a folder, if it exists."""
        return not self.is_file()

    @contextmanager
    def for_zarr(self) -> Iterator[Any]:
        """Yield this folder as Zarr opens it to read; errors of the server become a one-line StoreError."""
        from zarr import storage

        with bucket_errors(self):
            yield storage.StorePath(storage.ObjectStore(self.bucket, read_only=True), self.key)

    def names(self) -> list[str]:
        """Return the next component of all keys below, sorted."""

        with bucket_errors(self):
            listing = obstore.list_with_delimiter(self.bucket, self.key)
        keys = {*listing["common_prefixes"], *(entry["path"] for entry in listing["objects"])}
        return sorted(key.rpartition("/")[2] for key in keys - {self.key.rstrip("/")})  # the folder's marker

    def iterdir(self) -> Iterator[BucketPlace]:
        """Yield the places right below."""
        return (self / name for name in self.names())

    def _below(self) -> Iterator[Mapping[str, Any]]:
        """Yield what the server says of each object below."""

        with bucket_errors(self):
            for batch in obstore.list(self.bucket, self.key, chunk_size=1000):
                yield from batch

    def stamp(self) -> tuple[int, str | None, str | None] | None:
        """Return the size, the entity tag and the version of the object; None if there is none."""
        with bucket_errors(self), suppress(FileNotFoundError):
            head = obstore.head(self.bucket, self.key)
            return head["size"], head["e_tag"], head["version"]
        return None

    def read(self, at_most: int = MOST_BYTES) -> bytearray:
        """Return the object, streamed so that memory holds it only once; raises FileNotFoundError."""

        with bucket_errors(self):
            response = obstore.get(self.bucket, self.key)
            content = bytearray(checked_size(response.meta["size"], at_most, self))
            _fill(memoryview(content), response)
        return content

    def open(self, mode: str = "rb", buffering: int = READ_AHEAD) -> IO[bytes]:  # noqa: ARG002 - as of a Path
        """Open the object for reading, from any position on."""
        raw: Any = _ObjectFile(self)
        return io.BufferedReader(raw, buffering) if buffering else raw

    def write(self, *parts: Any, durable: bool = False) -> None:  # noqa: ARG002 - every put is durable
        """Put the concatenated parts as the object."""
        self.put(b"".join(parts) if len(parts) > 1 else bytes(*parts))

    def put(self, content: bytes, mode: Any = "overwrite") -> dict[str, str] | None:
        """Put the object and return its version, or None if the condition ``mode`` fails.

        "create" requires that no such object exists, a version that it is the current one.
        """

        with bucket_errors(self):
            try:
                version = obstore.put(self.bucket, self.key, content, mode=mode)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return None
        return {name: value for name, value in version.items() if isinstance(value, str)}

    def remove(self) -> None:
        """Remove the object with this key and all below."""

        keys = [entry["path"] for entry in self._below()]
        with bucket_errors(self), suppress(FileNotFoundError):
            for first in range(0, len(keys), 1000):
                obstore.delete(self.bucket, keys[first : first + 1000])
            obstore.delete(self.bucket, self.key)

    @contextmanager
    def lock(self, seconds: float = 60.0) -> Iterator[Callable[[], None]]:
        """Lock the store here for writing, as `bigcons.disk.places.DiskPlace.lock`.

        The lock is an object that only one writer can create: a lease, renewed while its owner works, that
        expires after ``seconds`` if the owner dies, at once for writers on the machine that it ran on; clocks
        must differ by less. A writer that loses its lease, because its machine was suspended, does no damage:
        every writer has its own data folder, and checks its lease before it commits a store or a pass.
        """
        lock, token = self.sibling(f".{self.name}.lock"), uuid.uuid4().hex
        owner = {"process": os.getpid(), "host": socket.gethostname(), "machine": machine(), "token": token}
        released = threading.Event()

        def claim(mode: Any) -> dict[str, str] | None:
            return lock.put(json.dumps({**owner, "expires": time.time() + seconds}).encode(), mode=mode)

        def holder() -> dict[str, Any]:
            content = None
            with suppress(FileNotFoundError, errors.CorruptStoreError):
                content = read_json(lock, 1 << 12)
            return content if isinstance(content, dict) else {}

        def check() -> None:
            if holder().get("token") != token:
                raise errors.StoreError(
                    f"{self}: the lock was lost to another writer, because its lease of {seconds:g} seconds "
                    "expired without renewal; write the store again.",
                    path=self,
                )

        def renew(version: Any) -> None:
            while version is not None and not released.wait(seconds / 4):
                with suppress(errors.StoreError):  # retried in the next round; `check` decides in the end
                    version = claim(version)

        version = claim("create")
        while version is None:
            stamp, lease = lock.stamp(), holder()
            seconds_left, process = float(lease.get("expires", 0)) - time.time(), lease.get("process")
            is_gone = lease.get("machine") == machine() and not is_running(int(process or 0))
            if seconds_left > 0 and not is_gone:
                raise errors.StoreLockedError(
                    f"{self} is being written by process {process} on {lease.get('host')}; "
                    f"wait until it is done, or {seconds_left:.0f} seconds if it was killed.",
                    path=self,
                )
            # replace the lease of a dead or lost writer, unless another writer was faster
            version = claim("create" if stamp is None else {"e_tag": stamp[1]})
        renewer = threading.Thread(target=renew, args=(version,), name="bigcons-lock", daemon=True)
        renewer.start()
        try:
            yield check
        finally:
            released.set()
            renewer.join()
            if holder().get("token") == token:  # no other writer has taken it over
                lock.remove()


class _ObjectFile(io.RawIOBase):
    """An object that is read range by range, all of the version that was opened."""

    def __init__(self, place: BucketPlace) -> None:
        stamp = place.stamp()
        if stamp is None:
            raise errors.StoreNotFoundError(f"{place} does not exist; check the path.", path=place)
        self._place, self._at = place, 0
        self._size, self._tag, _ = stamp

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:

        view = memoryview(buffer)[: max(self._size - self._at, 0)]
        if not len(view):
            return 0
        options: Any = {"range": (self._at, self._at + len(view)), "if_match": self._tag}
        n_bytes = -1
        with bucket_errors(self._place), suppress(FileNotFoundError, exceptions.PreconditionError):
            n_bytes = _fill(view, obstore.get(self._place.bucket, self._place.key, options=options))
        if n_bytes != len(view):
            raise errors.StoreError(
                f"{self._place} has changed while it was read; read it again.", path=self._place
            )
        self._at += len(view)
        return len(view)


def _fill(view: memoryview, response: Any) -> int:
    """Write the content of an object to ``view`` as it arrives; return its size."""
    n_filled = 0
    for part in response.stream(min_chunk_size=1 << 20):
        view[n_filled : n_filled + len(part)] = memoryview(part)
        n_filled += len(part)
    return n_filled


def bucket_place(url: str) -> BucketPlace:
    """Return the place that a URL such as ``s3://bucket/path`` names."""
    parts = _URL.fullmatch(url.rstrip("/"))
    if parts is None or {".", ".."} & set(parts[3].split("/")):
        raise errors.InvalidInputError(
            f"{url} does not name a path in a bucket; use s3://bucket/path, without '.' and '..'."
        )
    root, key = f"{parts[1].lower()}://{parts[2]}", re.sub("/+", "/", parts[3])
    settings = frozenset(item for item in os.environ.items() if item[0].startswith("AWS_"))
    return BucketPlace(root, key, _connect(root, settings))


@lru_cache(maxsize=64)
def _connect(url: str, _settings: frozenset[tuple[str, str]]) -> ObjectStore:
    """Return obstore's store of a bucket, kept while the settings stay the same."""
    # enough for a busy server; an unreachable one fails within seconds
    retries: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}
    try:
        return from_url(quote(url, safe=":/"), retry_config=retries)
    except (exceptions.BaseError, ValueError) as error:
        raise errors.InvalidInputError(
            f"{url} cannot be used ({errors.first_line(error)}); check the URL and the AWS_* settings."
        ) from None


@contextmanager
def bucket_errors(place: BucketPlace) -> Iterator[None]:
    """Turn obstore's errors about a server, a bucket or credentials into a one-line StoreError.

    A missing object remains a FileNotFoundError.
    """
    try:
        yield
    except (exceptions.BaseError, FileNotFoundError) as error:
        text, reason = str(error), errors.first_line(error)
        refusals = exceptions.PermissionDeniedError, exceptions.UnauthenticatedError
        if "NoSuchBucket" in text:
            fault = f"{place.root} does not exist; check the URL, or create the bucket."
        elif isinstance(error, FileNotFoundError):
            raise
        elif isinstance(error, refusals) or re.search("status code: 40[13]", text):  # of a refused list
            fault = f"{place} cannot be accessed with these credentials ({reason}); check AWS_ACCESS_KEY_ID, "
            fault += "AWS_SECRET_ACCESS_KEY and permissions."
        else:
            fault = f"{place.root} cannot be reached ({reason}); check the network, credentials "
            fault += "(AWS_ACCESS_KEY_ID), AWS_ENDPOINT_URL, AWS_REGION and AWS_ALLOW_HTTP."
        raise errors.StoreError(fault, path=str(place)) from None
