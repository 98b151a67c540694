"""Files that anyone may have made, and the interface to them on a disk and in a bucket.

Their kind and size are checked before they are read: a pipe or a device has no end, or waits for one; a
sparse file of a few bytes on the disk may fill the memory, and so may JSON, of which a list in a list takes
two bytes.
"""

from __future__ import annotations

import json
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from bigcons.errors import BigconsError, CorruptStoreError, DamagedFileError

StorePath = str | os.PathLike[str]

READ_AHEAD = 1 << 22
"""The most bytes that are read ahead of a file in a bucket."""
MOST_BYTES = 1 << 32
"""The most that is read at once; no file that bigcons reads as a whole is larger."""
MOST_JSON_BYTES = 1 << 30


class Place(ABC):
    """A file, or a folder with everything below it; it need not exist.

    ``str(place)`` is its path or URL, ``place / name`` a place inside it. In a bucket, a file is an object
    and a folder is a common prefix of keys.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of the path."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @abstractmethod
    def __truediv__(self, name: str) -> Place: ...

    @abstractmethod
    def sibling(self, name: str) -> Place:
        """Return the place called ``name`` in the same folder."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether a file or folder exists here."""

    @abstractmethod
    def is_file(self) -> bool:
        """Return whether this is a file."""

    def is_link(self) -> bool:
        """Return whether this is a symbolic link; buckets have none."""
        return False

    def links(self) -> Iterator[Place]:
        """Yield the symbolic links below; buckets have none."""
        return iter(())

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names in this folder, sorted; empty if it does not exist."""

    @abstractmethod
    def n_bytes(self) -> int:
        """Return the total size of the files below."""

    @abstractmethod
    def stamp(self) -> Hashable:
        """Return a value that changes when the file is replaced; None if it does not exist."""

    @abstractmethod
    def read(self, at_most: int = MOST_BYTES) -> bytearray:
        """Return the content of the file.

        Raises FileNotFoundError, and DamagedFileError, without reading, if this is something else than a file
        or has more than ``at_most`` bytes.
        """

    @abstractmethod
    def write(self, *parts: Any, durable: bool = False) -> None:
        """Write the concatenated ``parts``; a reader sees the old content or the new.

        With ``durable``, the file survives a power failure once this returns.
        """

    def copy_to(self, other: Place) -> None:
        """Make ``other``, in the same store, a copy of this file; a reader sees its old content or the new.

        The copy is durable as soon as something else in the folder is. Raises FileNotFoundError.
        """
        other.write(self.read(), durable=True)

    @abstractmethod
    def flush(self) -> None:
        """Make everything below durable."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the file, or the folder with everything below it, if it exists."""

    @abstractmethod
    def for_zarr(self, *, read_only: bool) -> Any:
        """Return this folder as a Zarr store."""


# Reading


def open_file(path: Path, at_most: int | None = None) -> IO[bytes]:
    """Open a file for reading; raise DamagedFileError if it is none, or has more than ``at_most`` bytes.

    Folders, pipes, devices and sockets, and links to them, are none. Opening a pipe would wait for a writer.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except PermissionError:  # by which Windows refuses folders
        check_file(path)
        raise
    try:
        _check(os.fstat(descriptor), path, at_most)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def corrupt(where: object, what: str, remedy: str = "restore it from a copy.") -> CorruptStoreError:
    """Return the error of what is wrong with a file, a folder or a store, and what to do."""
    return CorruptStoreError(f"{where} {what}; {remedy}", path=where)


@contextmanager
def decoding(broken: Callable[[str], Exception]) -> Iterator[None]:
    """Raise what ``broken`` makes of the reason for an error of a codec, which may be of any type."""
    try:
        yield
    except (MemoryError, BigconsError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise broken((str(error) or type(error).__name__).splitlines()[0][:120]) from None


def check_file(path: Path, at_most: int | None = None) -> None:
    """Raise DamagedFileError as `open_file` does, without opening; nothing is wrong with a missing file."""
    try:
        found = path.stat()
    except OSError:
        return
    _check(found, path, at_most)


def checked_size(n_bytes: int, at_most: int | None, where: object) -> int:
    """Return ``n_bytes``; raise DamagedFileError if it exceeds ``at_most``."""
    if at_most is not None and n_bytes > at_most:
        raise DamagedFileError(
            f"{where} has {n_bytes:,} bytes, more than the {at_most:,} it may have; restore it from a copy.",
            path=str(where),
        )
    return n_bytes


def _check(found: os.stat_result, path: Path, at_most: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        kinds = {"a folder": stat.S_ISDIR, "a pipe": stat.S_ISFIFO, "a socket": stat.S_ISSOCK}
        kind = next((kind for kind, is_kind in kinds.items() if is_kind(found.st_mode)), "a device")
        raise DamagedFileError(f"{path} is {kind}, where a file is needed; replace it by one.", path=path)
    checked_size(found.st_size, at_most, path)


def read_json(place: Place, at_most: int = MOST_JSON_BYTES) -> Any:
    """Return what the JSON in a file says.

    Raises FileNotFoundError, and CorruptStoreError for what is no file, too large or not JSON.
    """
    return parse_json(place.read(at_most), place)


def parse_json(content: bytes | bytearray, where: object) -> Any:
    """Return what JSON says; raise CorruptStoreError if it cannot be parsed within bounded memory."""
    try:
        most = 1 << 22  # lists and objects; each takes about 70 bytes of memory
        n_containers = content.count(b"[") + content.count(b"{")
        if n_containers > most:  # some may be in texts
            bare = re.sub(rb'"(?:[^"\\]++|\\.)*+"', b"", content)
            n_containers = bare.count(b"[") + bare.count(b"{")
        if n_containers > most:
            raise ValueError(f"more than {most:,} lists and objects")
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise corrupt(where, f"is damaged or not written by bigcons ({reason})") from None
