"""One writer per store in a bucket: an object that only one can put, and that runs out if its owner dies.

The owner renews it while it works. What was put under another owner's feet is never lost: each writes below a
name of its own, and one that finds its lock taken does not commit.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bigcons.errors import StoreError, StoreLockedError
from bigcons.storage.objects import ObjectPlace

LEASE_SECONDS = 60.0
"""How long a lock holds that is not renewed; clocks of writers may differ by less."""
MAX_LOCK_BYTES = 1 << 12


class ObjectLock:
    """The right to write to the store at ``place``, held by this process until `release`."""

    def __init__(self, place: ObjectPlace) -> None:
        self._place = place
        self._object = place.sibling(f".{place.name}.lock")
        self._owner = {"process": os.getpid(), "host": socket.gethostname(), "token": uuid.uuid4().hex}
        self._version = self._acquire()
        self._released = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="bigcons-lock", daemon=True)
        self._renewer.start()

    def check(self) -> None:
        """Raise StoreError unless the lock is still this writer's."""
        if _read(self._object).get("token") != self._owner["token"]:
            raise StoreError(
                f"{self._place} was taken over by another writer, for this one was not heard of for "
                f"{LEASE_SECONDS:g} seconds; write it again."
            )

    def release(self) -> None:
        """Give the right back; a lock that another writer took over stays."""
        self._released.set()
        self._renewer.join()
        if _read(self._object).get("token") == self._owner["token"]:
            self._object.remove()

    def _acquire(self) -> Any:
        version = self._object.put(self._content(), mode="create")
        while version is None:
            stamp = self._object.stamp()
            holder = _read(self._object)
            left = float(holder.get("expires", 0)) - time.time()
            if left > 0:
                raise StoreLockedError(
                    f"{self._place} is being written by another writer (process {holder.get('process')} on "
                    f"{holder.get('host')}); wait until it is done, or {left:.0f} seconds if it was killed."
                )
            if stamp is None:
                version = self._object.put(self._content(), mode="create")
            else:  # only if it is still the lock that ran out
                version = self._object.put(self._content(), mode={"e_tag": stamp[0]})  # type: ignore[index]
        return version

    def _renew(self) -> None:
        while not self._released.wait(LEASE_SECONDS / 4):
            try:
                version = self._object.put(self._content(), mode=self._version)
            except StoreError:  # the next turn may do better; what is written is checked before it counts
                continue
            if version is None:
                return
            self._version = version

    def _content(self) -> bytes:
        return json.dumps({**self._owner, "expires": time.time() + LEASE_SECONDS}).encode()


@contextmanager
def object_lock(place: ObjectPlace) -> Iterator[ObjectLock]:
    """Hold the right to write to the store at ``place``; a second writer gets StoreLockedError at once."""
    lock = ObjectLock(place)
    try:
        yield lock
    finally:
        lock.release()


def _read(place: ObjectPlace) -> dict[str, Any]:
    """Return what a lock says; nothing if there is none, or one that no writer wrote."""
    try:
        content = json.loads(place.read(MAX_LOCK_BYTES))
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
