"""One writer per store: on a disk an advisory lock that the operating system drops when its holder dies."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bigcons.errors import StoreLockedError
from bigcons.storage.place import Place, StorePath
from bigcons.storage.places import DiskPlace, naming, place_of

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # a byte far behind the text, which stays readable
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_path(path: str | os.PathLike[str]) -> Path:
    """Return the lock file of the store at ``path``: a hidden sibling, for the store may be replaced."""
    path = Path(path).resolve()
    return path.parent / f".{path.name}.lock"


@contextmanager
def writer_lock(path: StorePath | Place) -> Iterator[Callable[[], None]]:
    """Hold the right to write to the store at ``path``, which need not exist yet.

    A second writer, in another process or thread, gets StoreLockedError at once. A writer that was
    killed leaves a file but no lock; in a bucket its lock runs out. Yields what raises StoreError if the lock
    was lost meanwhile, to be called before the step that counts.
    """
    place = place_of(path)
    if isinstance(place, DiskPlace):
        with _file_lock(place.path):
            yield _keep
        return
    from bigcons.storage.object_locks import object_lock
    from bigcons.storage.objects import ObjectPlace

    assert isinstance(place, ObjectPlace)  # noqa: S101 - there is no third kind of place
    with object_lock(place) as lock:
        yield lock.check


def _keep() -> None:
    """Do nothing: the system does not take a lock from a process that lives."""


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    lock = lock_path(path)
    descriptor = _acquire(lock, path)
    try:
        yield
    finally:
        with suppress(OSError):  # Windows does not remove an open file; an unlocked file does no harm
            lock.unlink()
        os.close(descriptor)


def _acquire(lock: Path, path: Path) -> int:
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with naming(path):
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _try_lock(descriptor)
        except OSError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise StoreLockedError(
                f"{path} is being written by another writer (process {holder or 'unknown'}); "
                "wait until it is done and try again."
            ) from None
        if _is_current(descriptor, lock):
            os.truncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
            return descriptor
        os.close(descriptor)  # the previous holder removed the file between our open and our lock


def _is_current(descriptor: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except FileNotFoundError:
        return False
