"""Files that anyone may have made.

Their kind and size are checked before they are read: a pipe or a device has no end, or waits for one; a
sparse file of a few bytes on the disk may fill the memory, and so may JSON, of which a list in a list takes
two bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bigcons.errors import BigconsError, CorruptStoreError, DamagedFileError, first_line, is_of_process

if TYPE_CHECKING:
    from bigcons.disk.buckets import BucketPlace
    from bigcons.disk.places import DiskPlace

StorePath = str | os.PathLike[str]
Place: TypeAlias = "DiskPlace | BucketPlace"
"""A file, or a folder with everything below it, which need not exist; see `bigcons.disk.places.DiskPlace`."""

READ_AHEAD = 1 << 22
"""The most bytes that are read ahead of a file in a bucket."""
MOST_BYTES = 1 << 32
"""The most that is read at once; no file that bigcons reads as a whole is larger."""
MOST_JSON_BYTES = 1 << 30


def open_file(path: Path, at_most: int | None = None) -> IO[bytes]:
    """Open a file for reading; raise DamagedFileError if it is none, or has more than ``at_most`` bytes.

    Folders, pipes, devices and sockets, and links to them, are none. Opening a pipe would wait for a writer.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        check_file(path, at_most, os.fstat(descriptor))
    except DamagedFileError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def check_file(path: Path, at_most: int | None = None, status: os.stat_result | None = None) -> None:
    """Raise DamagedFileError as `open_file` does, without opening; nothing is wrong with a missing file."""
    with suppress(OSError):
        status = status or path.stat()
    if status is None:
        return
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a device or a socket"
        raise DamagedFileError(f"{path} is {kind}, where a file is needed; replace it by one.", path=path)
    checked_size(status.st_size, at_most, path)


def checked_size(n_bytes: int, at_most: int | None, where: object) -> int:
    """Return ``n_bytes``; raise DamagedFileError if it exceeds ``at_most``."""
    if at_most is not None and n_bytes > at_most:
        raise DamagedFileError(
            f"{where} has {n_bytes:,} bytes, more than the {at_most:,} it may have; restore it from a copy.",
            path=str(where),
        )
    return n_bytes


def corrupt(where: object, fault: str, remedy: str = "restore it from a copy.") -> CorruptStoreError:
    """Return the error of a file, a folder or a store with a ``fault``, and a remedy."""
    return CorruptStoreError(f"{where} {fault}; {remedy}", path=where)


@contextmanager
def decoding(broken: Callable[[str], Exception]) -> Iterator[None]:
    """Raise what ``broken`` makes of the reason for an error of a codec, which may be of any type."""
    try:
        yield
    except Exception as error:
        is_of_system = isinstance(error, OSError) and error.errno is not None
        if isinstance(error, BigconsError) or is_of_process(error) or is_of_system:
            raise
        raise broken(first_line(error)) from None


def read_json(place: Place, at_most: int = MOST_JSON_BYTES) -> Any:
    """Return what the JSON in a file says.

    Raises FileNotFoundError, and CorruptStoreError for what is no file, too large or not JSON.
    """
    return parse_json(place.read(at_most), place)


def parse_json(content: bytes | bytearray, where: object) -> Any:
    """Return what JSON says; raise CorruptStoreError if it cannot be parsed within bounded memory."""
    try:
        n_containers = content.count(b"[") + content.count(b"{")  # each takes many times its bytes of text
        if n_containers > 1 << 22:
            raise ValueError(f"{n_containers:,} lists and objects")
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise corrupt(where, f"is damaged or not written by bigcons ({reason})") from None


def pack(facts: Any, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return JSON values and arrays as one .npz archive, the same bytes for the same content."""
    file = io.BytesIO()
    np.savez(file, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def unpack(content: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    """Return what `pack` packed; raises errors of many types for anything else. No pickles."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(arrays.pop("facts").tobytes()), arrays


# Owners of files


@cache
def machine() -> str:
    """Return a tag of where process numbers mean the same: this host and, on Linux, this container."""
    numbers = ""
    with suppress(OSError):
        numbers = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.blake2b(f"{socket.gethostname()} {numbers}".encode(), digest_size=4).hexdigest()


def is_running(process: int) -> bool:
    """Return whether a process of this machine runs."""
    import psutil

    return process < 1 << 31 and psutil.pid_exists(process)
