"""Manifests and whole stores: nothing counts before its manifest is committed, and that comes last.

``new_store`` makes or replaces a store as one step; ``commit`` does the same for the manifest of a
store that grows. Both survive a kill at any moment with the old or the new state, never a mixture.

On a disk a new store is filled beside its place and renamed. In a bucket nothing can be renamed: the data
go to a folder of a name of its own inside the store, and the manifest, which is one object, names it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import sys
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import CorruptStoreError, StoreError, StoreExistsError, StoreNotFoundError
from bigcons.schema import FORMAT_VERSION, KINDS
from bigcons.storage.locks import writer_lock
from bigcons.storage.place import Place, StorePath
from bigcons.storage.places import DiskPlace, place_of, sync
from bigcons.version import __version__

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 30

_FOLDER = re.compile(r"data-[0-9a-f]{32}")


class Contents(NamedTuple):
    """What a manifest says."""

    data: Place
    """Where the data are."""
    body: dict[str, Any]
    shared: list[Place]
    """Further folders, of which parts of the data count."""


def is_store(path: StorePath | Place) -> bool:
    """Tell whether ``path`` is a folder with a manifest, of whatever kind."""
    return (place_of(path) / MANIFEST).is_file()


def commit(
    place: StorePath | Place,
    kind: str,
    body: dict[str, Any],
    *,
    data: str | None = None,
    shared: Sequence[str] = (),
) -> None:
    """Make ``body`` the manifest of the store at ``place``, in one step and durably.

    All files of the store reach the disk first: what a manifest names is there. ``data`` is the name of the
    folder of the data, if they do not lie beside the manifest, and ``shared`` those of others that count.
    """
    content = {
        "format": "bigcons",
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "created_by": f"bigcons {__version__}",
        "body": json.loads(json.dumps(body, default=_plain)),
    }
    _write(place_of(place), content, data, shared)


def _write(place: Place, content: dict[str, Any], data: str | None, shared: Sequence[str] = ()) -> None:
    if data is not None:
        content = {**content, "data": data, "shared": list(shared)}
    content["checksum"] = _checksum(content)
    (place / MANIFEST).write_last(json.dumps(content, indent=1).encode())


def load(path: StorePath | Place, kind: str) -> Contents:
    """Return the contents of the manifest of the store of ``kind`` at ``path``.

    Raises StoreNotFoundError if there is none of this kind, CorruptStoreError if it is damaged and
    StoreError if a later format wrote it.
    """
    place = place_of(path)
    content = read(place)
    if content["kind"] != kind:
        raise StoreNotFoundError(
            f"{place} is {KINDS.get(content['kind'], 'a store of another kind')}; "
            f"{KINDS[kind]} is needed here."
        )
    data = content.get("data")
    shared = [place / name for name in content.get("shared", [])]
    return Contents(place if data is None else place / data, content["body"], shared)


def read(path: StorePath | Place) -> dict[str, Any]:
    """Return a manifest of any kind with its head: kind, format_version, created_by and body."""
    place = place_of(path)
    file = place / MANIFEST
    try:
        text = file.read(MAX_MANIFEST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        what = "is not a bigcons store (no manifest.json)" if place.exists() else "does not exist"
        raise StoreNotFoundError(f"{place} {what}; check the path.") from None
    except ValueError as error:
        raise CorruptStoreError(f"{file} is no manifest ({error}); restore the store from a copy.") from None
    try:
        content = json.loads(text)
        whole = isinstance(content, dict) and content.pop("checksum", None) == _checksum(content)
    except (ValueError, RecursionError):
        whole = False
    if not whole or content.get("format") != "bigcons" or not isinstance(content.get("body"), dict):
        raise CorruptStoreError(f"{file} is damaged or not of bigcons; restore the store from a copy.")
    if content["format_version"] > FORMAT_VERSION:
        raise StoreError(
            f"{place} has format {content['format_version']}, newer than {FORMAT_VERSION}; upgrade bigcons."
        )
    if not all(_is_folder(name) for name in _folders(content)):
        raise CorruptStoreError(f"{file} names data outside of the store; restore the store from a copy.")
    return content


@contextmanager
def new_store(path: StorePath | Place, overwrite: bool = False) -> Iterator[Place]:
    """Yield an empty place that becomes the store at ``path`` when the ``with`` block succeeds.

    The block fills it and calls ``commit`` on it. On failure it is removed and what was at ``path`` is
    untouched. Raises StoreExistsError, StoreLockedError, and StoreError when the disk is full.
    """
    place = place_of(path)
    refuse_existing(place, overwrite)
    with writer_lock(place) as check_lock, plain_disk_errors(place):
        refuse_existing(place, overwrite)
        if isinstance(place, DiskPlace):
            with _new_directory(place.path) as partial:
                yield partial
        else:
            with _new_folder(place) as folder:
                yield folder
                check_lock()


@contextmanager
def _new_directory(path: Path) -> Iterator[Place]:
    """Yield a temporary directory beside ``path``, and rename it at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f".{path.name}.*.partial"):
        shutil.rmtree(leftover, ignore_errors=True)
    partial = path.parent / f".{path.name}.{os.getpid()}.partial"
    try:
        partial.mkdir()
        yield DiskPlace(partial)
        read(partial)
        _move_into_place(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _new_folder(place: Place) -> Iterator[Place]:
    """Yield a folder inside ``place``, and have the manifest name it at the end."""
    sweep_folders(place)
    with discarded_on_failure(new_folder(place), place) as folder:
        yield folder
        _write(place, read(folder), folder.name)
    (folder / MANIFEST).remove()
    sweep_folders(place)


@contextmanager
def discarded_on_failure(folder: Place, place: Place) -> Iterator[Place]:
    """Yield ``folder``; if the ``with`` block fails, remove it unless the manifest at ``place`` names it."""
    try:
        yield folder
    except BaseException:
        if not (is_store(place) and folder.name in _folders(read(place))):
            folder.remove()
        raise


def new_folder(place: Place) -> Place:
    """Return a folder for data inside ``place``, of a name that no other writer gives."""
    return place / f"data-{uuid.uuid4().hex}"


def sweep_folders(place: Place) -> None:
    """Remove the folders of data that the manifest does not name: older ones, and those of killed writers."""
    named = _folders(read(place)) if is_store(place) else []
    for name in place.names():
        if _is_folder(name) and name not in named:
            (place / name).remove()


def _folders(content: dict[str, Any]) -> list[Any]:
    """Return the names of the folders of data that a manifest gives; none if they lie beside it."""
    shared = content.get("shared", [])
    return [
        *([content["data"]] if "data" in content else []),
        *(shared if isinstance(shared, list) else [None]),
    ]


def _is_folder(name: object) -> bool:
    return isinstance(name, str) and _FOLDER.fullmatch(name) is not None


@contextmanager
def plain_disk_errors(path: StorePath | Place) -> Iterator[None]:
    """Turn a full disk or quota, or a file that grew too large, met while writing ``path``, into a one-line
    StoreError.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise StoreError(
                f"A file grew beyond the size allowed here while writing {path}; "
                "raise the limit (ulimit -f), or choose a disk that takes larger files."
            ) from error
        cut_short = error.errno is None and "requested and" in str(error)  # how NumPy tells of a full disk
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) and not cut_short:
            raise
        raise StoreError(f"No space left while writing {path}; free some or choose another disk.") from error


def refuse_existing(path: StorePath | Place, overwrite: bool = False) -> None:
    """Raise StoreExistsError if a store may not be written at ``path``: to be called before any work."""
    place = place_of(path)
    if not _is_taken(place):
        return
    if not overwrite:
        raise StoreExistsError(f"{place} exists; pass overwrite=True (--overwrite) or choose another path.")
    if not is_store(place):
        raise StoreExistsError(f"{place} exists and is not a bigcons store; choose another path.")


def refuse_source(out: StorePath | Place, source: StorePath | Place | None) -> None:
    """Raise StoreExistsError if what is made of the store ``source`` would replace it at ``out``.

    To be called where the two are stores of different kinds: there is no way back then.
    """
    if source is None:
        return
    target, read_from = place_of(out), place_of(source)
    if isinstance(target, DiskPlace) and isinstance(read_from, DiskPlace):
        same = target.path.resolve() == read_from.path.resolve()
    else:
        same = str(target) == str(read_from)
    if same:
        raise StoreExistsError(f"{target} is what is read here, and would be lost; choose another path.")


def _is_taken(place: Place) -> bool:
    """Tell whether anything is at ``place`` but what a killed writer left in a bucket."""
    if isinstance(place, DiskPlace):
        return place.exists()
    return place.exists() and (place.is_file() or not all(_is_folder(name) for name in place.names()))


def _move_into_place(partial: Path, path: Path) -> None:
    """Rename ``partial`` to ``path``; if a store is there, ``partial`` then holds that one."""
    if not path.exists():
        partial.rename(path)
    elif not _exchange(partial, path):  # the system cannot swap: the old store is away for a moment
        previous = partial.with_suffix(".previous")
        path.rename(previous)
        partial.rename(path)
        previous.rename(partial)
    sync(path.parent)


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
    if isinstance(value, Place):
        return str(value)
    raise TypeError(f"a manifest holds JSON values, not {type(value).__name__}")
