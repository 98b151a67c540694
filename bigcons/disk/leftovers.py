"""What a killed process leaves on a disk: whose it is, and who removes it.

Temporary files and folders carry the machine and the process of their owner in their name,
``.<name>.<machine>-<process>-<random>.partial`` and ``bigcons-<machine>-<process>-<random>``. The next
writer of the same name removes those whose process is gone. On another machine that cannot be seen: files
there count as left after a week without a change, folders never.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

BESIDE = ".bigcons-"
"""What the names of temporary folders begin with that are next to an output."""

_OWNER = re.compile(r"([0-9a-f]{8})-([0-9]+)-[0-9a-z_]+")


def owner() -> str:
    """Return the tag of this process, unique to it and this call."""
    return f"{machine()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def partial_name(name: str) -> str:
    """Return a hidden name, unique across processes and machines, for what is to become ``name``."""
    return f".{name}.{owner()}.partial"


def sweep_partials(path: Path) -> None:
    """Remove the temporary files that killed writers of the file at ``path`` left."""
    for left in partials_of(path):
        if left.is_file() and not left.is_symlink() and is_left(left):
            with suppress(OSError):
                left.unlink()


def partials_of(path: Path) -> list[Path]:
    """Return the temporary files and folders of writers of ``path``, of running ones too."""
    start, end = f".{path.name}.", ".partial"
    with suppress(OSError):
        return sorted(
            entry
            for entry in path.parent.iterdir()
            if entry.name.startswith(start) and entry.name.endswith(end) and "." not in _tag(entry, path)
        )
    return []


def is_left(partial: Path) -> bool:
    """Return whether the owner of a temporary file is gone."""
    tag = partial.name.removesuffix(".partial").rpartition(".")[2]
    found = _OWNER.fullmatch(tag)
    if found is not None and found[1] == machine() and (gone := _is_gone(int(found[2]))) is not None:
        return gone
    try:
        return time.time() - partial.stat().st_mtime > 7 * 24 * 3600.0  # nobody works for a week
    except OSError:
        return False


@contextmanager
def temporary_folder(parent: Path | None = None, prefix: str = "bigcons-") -> Iterator[Path]:
    """Yield a temporary folder, by default where the system has them; removed afterwards, even if not empty.

    Removes those that killed processes of this user and machine left in the same place.
    """
    folder = make_temporary_folder(parent, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_temporary_folder(parent: Path | None = None, prefix: str = "bigcons-") -> Path:
    """Return a new temporary folder, which the caller removes; see `temporary_folder`."""
    where = Path(tempfile.gettempdir()) if parent is None else parent
    sweep_temporary(where, prefix)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{machine()}-{os.getpid()}-", dir=where))


def sweep_temporary(parent: Path, prefix: str = BESIDE) -> None:
    """Remove the temporary folders in ``parent`` that killed processes of this user and machine left."""
    for left in temporary_in(parent, prefix):
        if is_temporary_left(left, prefix):
            shutil.rmtree(left, ignore_errors=True)


def temporary_in(parent: Path, prefix: str = BESIDE) -> list[Path]:
    """Return the temporary folders in ``parent`` whose names tell their owner."""
    found = sorted(parent.glob(f"{prefix}*"))
    return [entry for entry in found if _OWNER.fullmatch(entry.name.removeprefix(prefix))]


def is_temporary_left(folder: Path, prefix: str = BESIDE) -> bool:
    """Return whether the owner of a temporary folder, a process of this user and machine, is gone."""
    found = _OWNER.fullmatch(folder.name.removeprefix(prefix))
    if found is None or found[1] != machine() or not _is_ours(folder):
        return False
    return _is_gone(int(found[2])) is True


def is_running(process: int) -> bool:
    """Return whether a process of this machine runs; True if that cannot be told."""
    return _is_gone(process) is not True


def _tag(partial: Path, path: Path) -> str:
    return partial.name[len(path.name) + 2 : -len(".partial")]


def _is_gone(process: int) -> bool | None:
    """Return whether no process of this machine has this number; None if that cannot be told."""
    if sys.platform == "win32":  # there, signal 0 would end it
        return None
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # of another user
        return False
    return False


def _is_ours(folder: Path) -> bool:
    """Return whether a folder, not a link to one, belongs to the user of this process."""
    with suppress(OSError):
        found = folder.lstat()
        is_folder = folder.is_dir() and not folder.is_symlink()
        return is_folder and (not hasattr(os, "getuid") or found.st_uid == os.getuid())
    return False


@cache
def machine() -> str:
    """Return a tag of where process numbers mean the same: this host and, on Linux, this container."""
    numbers = ""
    with suppress(OSError):
        numbers = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.blake2b(f"{socket.gethostname()} {numbers}".encode(), digest_size=4).hexdigest()
