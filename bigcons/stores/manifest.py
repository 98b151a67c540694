"""Manifests and whole stores: nothing counts before its manifest is committed, and that comes last.

``new_store`` makes or replaces a store as one step; ``commit`` does the same for the manifest of a
store that grows. Both survive a kill at any moment with the old or the new state, never a mixture.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bigcons import __version__
from bigcons.errors import (
    CorruptStoreError,
    InvalidInputError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)
from bigcons.schema import FORMAT_VERSION, KINDS
from bigcons.stores.locks import writer_lock

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 30

StorePath = str | os.PathLike[str]


def is_store(path: StorePath) -> bool:
    """Tell whether ``path`` is a directory with a manifest, of whatever kind."""
    return (Path(path) / MANIFEST).is_file()


def commit(directory: StorePath, kind: str, body: dict[str, Any]) -> None:
    """Make ``body`` the manifest of the store in ``directory``, in one step and durably.

    All files of the store reach the disk first: what a manifest names is there.
    """
    directory = Path(directory)
    content = {
        "format": "bigcons",
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "created_by": f"bigcons {__version__}",
        "body": json.loads(json.dumps(body, default=_plain)),
    }
    content["checksum"] = _checksum(content)
    partial = directory / f"{MANIFEST}.partial"
    try:
        partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
        sync_tree(directory)
        partial.replace(directory / MANIFEST)
    finally:
        partial.unlink(missing_ok=True)
    _sync(directory)


def load(directory: StorePath, kind: str) -> dict[str, Any]:
    """Return the body of the manifest of the store of ``kind`` in ``directory``.

    Raises StoreNotFoundError if there is none of this kind, CorruptStoreError if it is damaged and
    StoreError if a later format wrote it.
    """
    content = read(directory)
    if content["kind"] != kind:
        raise StoreNotFoundError(
            f"{directory} is {KINDS.get(content['kind'], 'a store of another kind')}; "
            f"{KINDS[kind]} is needed here."
        )
    body: dict[str, Any] = content["body"]
    return body


def read(directory: StorePath) -> dict[str, Any]:
    """Return a manifest of any kind with its head: kind, format_version, created_by and body."""
    path = Path(directory) / MANIFEST
    try:
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        what = (
            "does not exist" if not Path(directory).exists() else "is not a bigcons store (no manifest.json)"
        )
        raise StoreNotFoundError(f"{directory} {what}; check the path.") from None
    if size > MAX_MANIFEST_BYTES:
        raise CorruptStoreError(
            f"{path} has {size} bytes, more than any manifest ({MAX_MANIFEST_BYTES}); "
            "restore the store from a copy."
        )
    try:
        content = json.loads(path.read_bytes())
        whole = isinstance(content, dict) and content.pop("checksum", None) == _checksum(content)
    except (ValueError, RecursionError):
        whole = False
    if not whole or content.get("format") != "bigcons" or not isinstance(content.get("body"), dict):
        raise CorruptStoreError(f"{path} is damaged or not of bigcons; restore the store from a copy.")
    if content["format_version"] > FORMAT_VERSION:
        raise StoreError(
            f"{directory} has format {content['format_version']}, newer than {FORMAT_VERSION}; "
            "upgrade bigcons."
        )
    return content


@contextmanager
def new_store(path: StorePath, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary directory beside ``path`` that becomes ``path`` when the ``with`` block succeeds.

    The block fills it and calls ``commit`` on it. On failure it is removed and what was at ``path`` is
    untouched. Raises StoreExistsError, LockedStoreError, and StoreError when the disk is full.
    """
    path = local_path(path)
    refuse_existing(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with writer_lock(path):
        refuse_existing(path, overwrite)
        for leftover in path.parent.glob(f".{path.name}.*.partial"):
            shutil.rmtree(leftover, ignore_errors=True)
        partial = path.parent / f".{path.name}.{os.getpid()}.partial"
        try:
            with plain_disk_errors(path):
                partial.mkdir()
                yield partial
                read(partial)
                _move_into_place(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def local_path(path: StorePath) -> Path:
    """Return ``path`` as an absolute Path; refuse URLs with a one-line error."""
    text = os.fspath(path)
    if "://" in text:
        raise InvalidInputError(f"{text} is a URL; give a path on a local or mounted disk.")
    return Path(text).absolute()


@contextmanager
def plain_disk_errors(path: StorePath) -> Iterator[None]:
    """Turn a full disk or quota, met while writing ``path``, into a one-line StoreError."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StoreError(f"No space left while writing {path}; free some or choose another disk.") from error


def sync_tree(directory: Path) -> int:
    """Flush all files and directories under ``directory`` to the disk; return the bytes of the files."""
    n_bytes = 0
    for root, _, files in os.walk(directory, topdown=False):
        for name in files:
            n_bytes += _sync(Path(root) / name)
        _sync(Path(root))
    return n_bytes


def _sync(path: Path) -> int:
    if path.is_dir() and sys.platform == "win32":  # directories cannot be opened there
        return 0
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def refuse_existing(path: StorePath, overwrite: bool = False) -> None:
    """Raise StoreExistsError if a store may not be written at ``path``: to be called before any work."""
    path = local_path(path)
    if not path.exists() and not path.is_symlink():
        return
    if not overwrite:
        raise StoreExistsError(f"{path} exists; pass overwrite=True (--overwrite) or choose another path.")
    if not is_store(path):
        raise StoreExistsError(f"{path} exists and is not a bigcons store; choose another path.")


def _move_into_place(partial: Path, path: Path) -> None:
    """Rename ``partial`` to ``path``; if a store is there, ``partial`` then holds that one."""
    if not path.exists():
        partial.rename(path)
    elif not _exchange(partial, path):  # the system cannot swap: the old store is away for a moment
        previous = partial.with_suffix(".previous")
        path.rename(previous)
        partial.rename(path)
        previous.rename(partial)
    _sync(path.parent)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two directories in one step; return False where the system cannot (Linux can, since 2014)."""
    if not sys.platform.startswith("linux"):
        return False
    at_cwd, rename_exchange = -100, 2
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    return renameat2(at_cwd, os.fsencode(a), at_cwd, os.fsencode(b), rename_exchange) == 0


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a manifest holds JSON values, not {type(value).__name__}")
