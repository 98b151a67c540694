"""One writer per store.

On a disk, the lock is an advisory file lock, which the operating system releases when its holder dies. In a
bucket, it is an object that only one writer can create: a lease, renewed while its owner works, that expires
if the owner dies, at once for writers on the machine that it ran on. A writer that loses its lease, for
example because its machine was suspended, does no damage: every writer of a store has its own data folder,
and checks its lease before it commits, a store or a pass.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigcons.disk.files import Place, StorePath, read_json
from bigcons.disk.places import DiskPlace, disk_errors, is_running, machine, place_of
from bigcons.errors import CorruptStoreError, StoreError, StoreLockedError

if TYPE_CHECKING:
    from bigcons.disk.buckets import BucketPlace

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # a byte far beyond the text, which stays readable
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def writer_lock(path: StorePath | Place, *, seconds: float = 60.0) -> Iterator[Callable[[], None]]:
    """Lock the store at ``path``, which need not exist yet, for writing.

    A second writer, in another process or thread, immediately gets StoreLockedError. Yields a function that
    raises StoreError if the lock has been lost; call it right before the commit. In a bucket, the lock lasts
    for ``seconds`` without renewal; the clocks of writers must differ by less.
    """
    place = place_of(path)
    if isinstance(place, DiskPlace):
        with _file_lock(place.path):
            yield lambda: None  # the system never takes a lock from a living process
        return
    lease = Lease(place, seconds)
    try:
        yield lease.check
    finally:
        lease.release()


def lock_path(path: str | os.PathLike[str]) -> Path:
    """Return the lock file of the store at ``path``: a hidden sibling, because the store may be replaced."""
    path = Path(path).resolve()
    return path.parent / f".{path.name}.lock"


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """Lock the file of the store at ``path``; never through a link, whose target would be emptied."""
    lock, is_held = lock_path(path), False
    while not is_held:
        with disk_errors(path):
            lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            _try_lock(descriptor)
        except OSError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise StoreLockedError(
                f"{path} is being written by process {holder or 'unknown'}; wait until it is done.", path=path
            ) from None
        with suppress(FileNotFoundError):
            is_held = os.path.samestat(os.fstat(descriptor), lock.stat())
        if not is_held:  # the previous holder removed the file between our open and our lock
            os.close(descriptor)
    try:
        with disk_errors(path):
            os.truncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        with suppress(OSError):  # an open file on Windows; unlocked, it does no harm
            lock.unlink()
        os.close(descriptor)


def sweep_locks(path: Path) -> None:
    """Remove the lock files that killed writers of ``path`` and of its checkpoints left."""
    for locked in (path, path.with_name(f"{path.name}.partial")):
        if lock_path(locked).exists():
            with suppress(StoreError), _file_lock(locked):
                pass  # which removes the file


class Lease:
    """The right to write to the store at ``place`` in a bucket, renewed by a thread until `release`."""

    def __init__(self, place: BucketPlace, seconds: float) -> None:
        self._place = place
        self._seconds = seconds
        self._object = place.sibling(f".{place.name}.lock")
        self._owner = {
            "process": os.getpid(),
            "host": socket.gethostname(),
            "machine": machine(),
            "token": uuid.uuid4().hex,
        }
        version = self._put("create")
        while version is None:
            stamp, holder = self._object.stamp(), self._read()
            left, process = float(holder.get("expires", 0)) - time.time(), holder.get("process")
            is_gone = holder.get("machine") == machine() and not is_running(int(process or 0))
            if left > 0 and not is_gone:
                raise StoreLockedError(
                    f"{place} is being written by process {process} on {holder.get('host')}; "
                    f"wait until it is done, or {left:.0f} seconds if it was killed.",
                    path=place,
                )
            # replace the lease of a dead or lost writer, unless another writer was faster
            version = self._put("create" if stamp is None else {"e_tag": stamp[0]})  # type: ignore[index]
        self._released = threading.Event()
        self._renewer = threading.Thread(
            target=self._renew, args=(version,), name="bigcons-lock", daemon=True
        )
        self._renewer.start()

    def check(self) -> None:
        """Raise StoreError unless this writer still holds the lease."""
        if self._read().get("token") != self._owner["token"]:
            raise StoreError(
                f"{self._place}: the lock was lost to another writer, because its lease of {self._seconds:g} "
                "seconds expired without renewal; write the store again.",
                path=self._place,
            )

    def release(self) -> None:
        """Release the lease unless another writer has taken it over."""
        self._released.set()
        self._renewer.join()
        if self._read().get("token") == self._owner["token"]:
            self._object.remove()

    def _renew(self, version: Any) -> None:
        while version is not None and not self._released.wait(self._seconds / 4):
            with suppress(StoreError):  # retried in the next round; `check` decides before the commit
                version = self._put(version)

    def _put(self, mode: Any) -> dict[str, str] | None:
        content = {**self._owner, "expires": time.time() + self._seconds}
        return self._object.put(json.dumps(content).encode(), mode=mode)

    def _read(self) -> dict[str, Any]:
        """Return the content of the lease; empty if it does not exist or is not valid JSON."""
        content = None
        with suppress(FileNotFoundError, CorruptStoreError):
            content = read_json(self._object, 1 << 12)
        return content if isinstance(content, dict) else {}
