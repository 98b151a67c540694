"""Places: files and folders on a disk or in a bucket, how files are written there, locks, and leftovers.

Paths and URLs become places only here. Places in a bucket are in `bigcons.disk.buckets`, which is imported
when the first URL is opened.

Temporary files and folders carry the machine and the process of their owner in their name,
``.<name>.<machine>-<process>-<random>.partial`` and ``bigcons-<machine>-<process>-<random>``. The next writer
of the same name removes those whose process is gone; on another machine that cannot be seen.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bigcons.disk.files import MOST_BYTES, Place, StorePath, is_running, machine, open_file
from bigcons.errors import InvalidInputError, MissingDependencyError, StoreError, StoreLockedError
from bigcons.validation import check_path

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(/?)")


class DiskPlace:
    """A file or folder on a local or mounted disk; `bigcons.disk.buckets.BucketPlace` does the same.

    ``str(place)`` is its path or URL, ``place / name`` a place inside it, ``name`` its last part. In a
    bucket, a file is an object and a folder is a common prefix of keys.
    """

    def __init__(self, path: StorePath) -> None:
        self.path: Path = Path(path).absolute()
        self.name: str = self.path.name

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> DiskPlace:
        return DiskPlace(self.path / name)

    def sibling(self, name: str) -> DiskPlace:
        """Return the place called ``name`` in the same folder."""
        return DiskPlace(self.path.with_name(name))

    def exists(self) -> bool:
        """Return whether a file, a folder or a link, even a broken one, exists here."""
        return os.path.lexists(self.path)

    def is_file(self) -> bool:
        """Return whether this is a file."""
        return self.path.is_file()

    @contextmanager
    def for_zarr(self) -> Iterator[Any]:
        """Yield this folder as Zarr opens it to read."""
        from zarr.storage import LocalStore

        yield LocalStore(self.path, read_only=True)

    def names(self) -> list[str]:
        """Return the names in this folder, sorted; empty if it does not exist."""
        try:
            return sorted(entry.name for entry in self.path.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def stamp(self) -> tuple[int, ...] | None:
        """Return the size of the file, and numbers that change when it does; None if there is no file."""
        with suppress(OSError):
            status = self.path.stat()
            if stat.S_ISREG(status.st_mode):
                return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
        return None

    def read(self, at_most: int = MOST_BYTES) -> bytearray:
        """Return the content of the file.

        Raises FileNotFoundError, and DamagedFileError, without reading, if this is something else than a file
        or has more than ``at_most`` bytes.
        """
        with open_file(self.path, at_most) as file:
            content = bytearray(os.fstat(file.fileno()).st_size)
            file.readinto(content)  # type: ignore[attr-defined]
        return content

    def write(self, *parts: Any, durable: bool = False) -> None:
        """Write the concatenated ``parts``; a reader sees the old content or the new.

        With ``durable``, the file survives a power failure once this returns.
        """
        with atomic_file(self.path, durable=durable) as file:
            for part in parts:
                file.write(part)

    def flush(self) -> None:
        """Make everything below durable, several files at a time as disks write them together."""
        with ThreadPoolExecutor(8) as pool:
            for root, _, files in os.walk(self.path, topdown=False):
                list(pool.map(sync, [Path(root, name) for name in files]))
                sync(Path(root))

    def remove(self) -> None:
        """Remove the file, or as much of the folder as the system permits, if it exists."""
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                self.path.unlink()

    @contextmanager
    def lock(self) -> Iterator[Callable[[], None]]:
        """Lock the store at this path, which need not exist yet, for writing.

        A second writer, in another process or thread, immediately gets StoreLockedError. Yields a function
        that raises StoreError if the lock has been lost; call it right before the commit. It is an advisory
        file lock, which the system never takes from a living process and releases when its holder dies; never
        through a link, whose target would be emptied.
        """
        path, is_held = Path(os.path.realpath(self.path)), False
        lock = path.parent / f".{path.name}.lock"  # a hidden sibling, because the store may be replaced
        while not is_held:
            with disk_errors(self.path):
                lock.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
            try:
                _try_lock(descriptor)
            except OSError:
                holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
                os.close(descriptor)
                raise StoreLockedError(
                    f"{self} is being written by process {holder}; wait until it is done.", path=self.path
                ) from None
            with suppress(FileNotFoundError):
                is_held = os.path.samestat(os.fstat(descriptor), lock.stat())
            if not is_held:  # the previous holder removed the file between our open and our lock
                os.close(descriptor)
        try:
            with disk_errors(self.path):
                os.truncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
            yield lambda: None
        finally:
            with suppress(OSError):  # an open file on Windows; unlocked, it does no harm
                lock.unlink()
            os.close(descriptor)


def place_of(path: StorePath | Place) -> Place:
    """Return the place that a path or URL names.

    Raises InvalidInputError for anything but a path and for other URLs than those of S3, and
    MissingDependencyError for a URL if obstore is not installed.
    """
    if hasattr(path, "sibling"):
        return path  # type: ignore[return-value]
    text = check_path(path)
    if (url := _URL.match(text)) is None:
        return DiskPlace(text)
    if url[1].lower() != "s3" or not url[2]:  # a Path would make s3:/ of s3://
        raise InvalidInputError(
            f"{text} is not a supported URL; use a path on a disk or a text such as s3://bucket/path."
        )
    try:
        from bigcons.disk.buckets import bucket_place
    except ImportError:
        raise MissingDependencyError(
            f"{text} needs obstore, which is not installed; run: pip install 'bigcons[s3]'.", extra="s3"
        ) from None
    return bucket_place(text)


def local_path(path: StorePath) -> Path:
    """Return ``path`` as an absolute Path; raise InvalidInputError for URLs and anything but a path."""
    text = check_path(path)
    if "://" in text:
        raise InvalidInputError(f"{text} is a URL; use a path on a local or mounted disk.")
    return Path(text).absolute()


@contextmanager
def atomic_file(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Yield a new file that is renamed to ``path`` if the ``with`` block succeeds and removed if it fails.

    The temporary name is unique across processes and machines, so that two workers may write the same file
    at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = f"{machine()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    partial = path.with_name(f".{path.name}.{owner}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    if durable:
        sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    if path.is_dir() and sys.platform == "win32":  # folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def disk_errors(path: StorePath | Place) -> Iterator[None]:
    """Turn errors of a full or failing disk, a quota, a limit or permissions into a one-line StoreError.

    A file that is missing, and errors of a network, remain what they are.
    """
    try:
        yield
    except (FileNotFoundError, ConnectionError, TimeoutError):
        raise
    except OSError as error:
        if error.errno is None:
            raise
        raise StoreError(
            f"Writing {path} failed: {error.strerror} ({error.filename or path}); "
            "check space, permissions, limits and the disk, or choose another place."
        ) from error


# What killed processes leave


def is_leftover(partial: Path) -> bool:
    """Return whether the owner of a temporary file or folder is a process of this machine that is gone."""
    owner = re.search(r"([0-9a-f]{8})-([0-9]+)-[0-9a-z_]+(\.partial)?$", partial.name)
    return owner is not None and owner[1] == machine() and not is_running(int(owner[2]))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a temporary folder where the system has them; removed afterwards, even if not empty.

    Folders that killed processes of this user and machine left in the same place are removed first.
    """
    where = Path(tempfile.gettempdir())
    for leftover in where.glob("bigcons-*"):
        with suppress(OSError):
            is_ours = not hasattr(os, "getuid") or leftover.lstat().st_uid == os.getuid()
            if is_ours and leftover.is_dir() and not leftover.is_symlink() and is_leftover(leftover):
                shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"bigcons-{machine()}-{os.getpid()}-", dir=where))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# One writer per store

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # a byte far beyond the text, which stays readable
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
