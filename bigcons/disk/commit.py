"""Atomic commits: stores and files are written under temporary names and published in the last step.

A store is what its manifest names, and the manifest is written after everything else is durable. A process
killed at any moment leaves the old state or the new one, never a mixture.

Disks and buckets publish differently. On a disk, a new store is written to a hidden folder next to its path
and renamed, so that an incomplete store never appears at the path; an append hard-links unchanged chunks, and
the new manifest replaces the old one. Buckets can neither rename nor link: the data go to a folder with a
unique name inside the store, and the manifest, a single object, names that folder and those it shares chunks
with.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import re
import shutil
import sys
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from bigcons.disk.checkpoint import differences
from bigcons.disk.interface import Place, StorePath
from bigcons.disk.leftovers import (
    is_left,
    is_running,
    is_temporary_left,
    partials_of,
    sweep_partials,
    sweep_temporary,
    temporary_in,
)
from bigcons.disk.locks import writer_lock
from bigcons.disk.places import DiskPlace, atomic_file, disk_errors, local_path, place_of, sync
from bigcons.disk.reading import corrupt, read_json
from bigcons.disk.schema import FORMAT_VERSION, KINDS
from bigcons.errors import (
    CorruptStoreError,
    InvalidInputError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)
from bigcons.validation import check_flag
from bigcons.version import __version__

MANIFEST = "manifest.json"
PARQUET_MANIFEST = "_manifest.json"
"""The manifest of a folder of Parquet files, whose readers pass over names that begin so."""

PARQUET = (".parquet", ".pq")
_FILES = (*PARQUET, ".csv", ".tsv", ".gz", ".npy", ".npz", ".h5ad")
"""Suffixes of files with a table."""

_DATA_FOLDER = re.compile(r"data-[0-9a-f]{32}")


class Manifest(NamedTuple):
    """A manifest, with its folders as places."""

    data: Place
    """Where the arrays are."""
    body: dict[str, Any]
    """The entries of its kind of store; see `bigcons.disk.schema`."""
    shared: list[Place]
    """Earlier data folders that still hold chunks of this store."""


# Manifests


def write_manifest(
    path: StorePath | Place,
    kind: str,
    body: dict[str, Any],
    *,
    data: str | None = None,
    shared: Sequence[str] = (),
    name: str = MANIFEST,
) -> None:
    """Commit: make ``body`` the manifest of the store at ``path``, atomically and durably.

    All files of the store are flushed first. ``data`` names the data folder if the arrays are not next to
    the manifest, ``shared`` the earlier folders that still hold chunks. ``name`` is that of the manifest.
    """
    content = {
        "format": "bigcons",
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "created_by": f"bigcons {__version__}",
        "body": json.loads(json.dumps(body, default=_plain)),
    }
    _publish(place_of(path), content, data, shared, name)


def _publish(
    place: Place,
    content: dict[str, Any],
    data: str | None,
    shared: Sequence[str] = (),
    name: str = MANIFEST,
) -> None:
    if data is not None:
        content = {**content, "data": data, "shared": list(shared)}
    content["checksum"] = _checksum(content)
    place.flush()
    (place / name).write(json.dumps(content, indent=1).encode(), durable=True)


def manifest_of(path: StorePath | Place) -> Place:
    """Return the manifest of the store at ``path``, which need not exist."""
    place = place_of(path)
    if isinstance(place, DiskPlace) and (place / PARQUET_MANIFEST).is_file():
        return place / PARQUET_MANIFEST
    return place / MANIFEST


def load_manifest(path: StorePath | Place, kind: str) -> Manifest:
    """Return the manifest of the store of ``kind`` at ``path``.

    Raises StoreNotFoundError if there is no store of this kind, CorruptStoreError if the manifest is damaged
    and StoreError if its format is newer than this version of bigcons.
    """
    place = place_of(path)
    content = read_manifest(place)
    if content["kind"] != kind:
        found = KINDS.get(content["kind"], "a store of another kind")
        raise StoreNotFoundError(f"{place} is {found}; {KINDS[kind]} is needed here.", path=place)
    data = content.get("data")
    shared = [place / name for name in content.get("shared", [])]
    return Manifest(place if data is None else place / data, content["body"], shared)


def read_manifest(path: StorePath | Place) -> dict[str, Any]:
    """Return the full manifest of a store of any kind: kind, format_version, created_by, body, ..."""
    place = place_of(path)
    file = manifest_of(place)
    try:
        content = read_json(file)
    except (FileNotFoundError, NotADirectoryError):
        what, remedy = "does not exist", "check the path"
        if place.exists():
            what = "is not a bigcons store (no manifest.json)"
            names = [] if place.is_file() else sorted(place.names())[:20]  # a bucket is asked for each
            inside = [name for name in names if is_store(place / name)]
            remedy = f"give {' or '.join(inside)} in it" if inside else remedy
        raise StoreNotFoundError(f"{place} {what}; {remedy}.", path=place) from None
    try:
        intact = isinstance(content, dict) and content.pop("checksum", None) == _checksum(content)
    except (ValueError, RecursionError):  # text that is no Unicode, lists nested too deep to be written
        intact = False
    wanted = {"format_version": int, "kind": str, "body": dict}
    whole = intact and all(isinstance(content.get(name), kind) for name, kind in wanted.items())
    if not whole or content.get("format") != "bigcons":
        raise corrupt(file, "is damaged or not written by bigcons", "restore the store from a copy.")
    if content["format_version"] > FORMAT_VERSION:
        raise StoreError(
            f"{place} has format {content['format_version']}, newer than {FORMAT_VERSION}; upgrade bigcons.",
            path=place,
        )
    if not all(_is_data_folder(name) for name in _folders_named(content)):
        raise corrupt(file, "names data outside the store", "restore the store from a copy.")
    return content


def is_store(path: StorePath | Place) -> bool:
    """Return whether ``path`` is a store of any kind."""
    return manifest_of(path).is_file()


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


# Stores


@contextmanager
def new_store(path: StorePath | Place, overwrite: bool = False, kind: str | None = None) -> Iterator[Place]:
    """Yield an empty folder that becomes the store at ``path`` when the ``with`` block succeeds.

    The block writes into the folder and finally calls `write_manifest` on it. If it fails, the folder is
    removed and ``path`` is left unchanged. Raises StoreExistsError, also for a store of another ``kind``,
    StoreLockedError, and StoreError if the disk is full.
    """
    place = place_of(path)
    refuse_existing(place, overwrite, kind)
    with writer_lock(place) as check_lock, disk_errors(place):
        if isinstance(place, DiskPlace):
            _restore_previous(place.path)
        refuse_existing(place, overwrite, kind)
        if isinstance(place, DiskPlace):
            with _renamed_folder(place.path) as folder:
                yield folder
                read_manifest(folder)
        else:
            with _named_folder(place, check_lock) as folder:
                yield folder


def provenance_at(path: StorePath | Place, kind: str) -> Mapping[str, Any] | None:
    """Return what the store at ``path`` was made with; None if there is none of this ``kind``."""
    if not is_store(path) or (found := read_manifest(path)).get("kind") != kind:
        return None
    body = found.get("body")
    made = body.get("provenance") if isinstance(body, dict) else None
    return made if isinstance(made, dict) else None


def is_finished_import(
    path: StorePath | Place, made: Mapping[str, Any] | None, wanted: Mapping[str, Any]
) -> bool:
    """Return whether what is at ``path`` is the result of an import of files, ``made`` as it is ``wanted``.

    Raises StoreExistsError if the import had another source, other options, or another "version" of the
    source. What else is there, such as an ensemble to which more was appended since, is no such result.
    """
    if made is None or "version" not in wanted or "version" not in made or "appended" in made:
        return False
    if made.get("made_by") != wanted["made_by"]:
        return False
    found, asked = ({"source": of["source"], **of["options"]} for of in (made, wanted))
    told = differences(found, {**dict.fromkeys(found), **asked})
    if made["version"] != wanted["version"]:
        told = told or f"other contents of {made['source']}"
    refuse_other(path, told)
    return True


def refuse_other(path: StorePath | Place, told: str) -> None:
    """Raise StoreExistsError if a result at ``path`` is of another call, with ``told`` of the difference."""
    _refuse_taken(bool(told), path, f" and was made with {told}")


def _refuse_taken(is_taken: bool, path: StorePath | Place, told: str = "") -> None:
    if is_taken:
        remedy = "pass overwrite=True (--overwrite) or choose another path."
        raise StoreExistsError(f"{path} exists{told}; {remedy}", path=path)


def refuse_existing(path: StorePath | Place, overwrite: bool = False, kind: str | None = None) -> None:
    """Raise StoreExistsError if a store must not be written at ``path``; call it before any work.

    Only a store is overwritten, of the same ``kind`` if that is given, or one whose manifest is damaged.
    Raises InvalidInputError for the suffix of a file, which a store of this ``kind`` cannot be.
    """
    check_flag("overwrite", overwrite)
    place = place_of(path)
    _refuse_suffix(place, kind)
    _refuse_inside_store(place)
    is_taken = place.exists()
    if is_taken and not isinstance(place, DiskPlace):  # a killed writer may have left data folders
        is_taken = place.is_file() or not all(_is_data_folder(name) for name in place.names())
    if not is_taken:
        return
    _refuse_taken(not overwrite, place)
    if not is_store(place):
        raise StoreExistsError(f"{place} exists and is not a bigcons store; choose another path.", path=place)
    with suppress(CorruptStoreError):
        found = read_manifest(place).get("kind")
        if kind is not None and found != kind:
            what = KINDS.get(str(found), "a store of another kind")
            raise StoreExistsError(
                f"{place} exists and is {what}, which would be lost; choose another path or remove it.",
                path=place,
            )


def names_parquet(path: StorePath | Place) -> bool:
    """Return whether what is stored at ``path`` is to be Parquet: on a disk, by its suffix."""
    place = place_of(path)
    return isinstance(place, DiskPlace) and place.name.lower().endswith(PARQUET)


def _refuse_suffix(place: Place, kind: str | None) -> None:
    suffix = next((known for known in _FILES if place.name.lower().endswith(known)), None)
    if suffix is None or (kind == "ensemble" and names_parquet(place)):
        return
    what = KINDS.get(kind or "", "a store")
    choices = ".zarr"
    if kind in ("ensemble", "pairs"):
        choices += " or, on a disk, .parquet"
    by_export = "; export() writes its labels to a file" if kind == "consensus" else ""
    raise InvalidInputError(f"{place} has suffix {suffix!r}, but {what} is stored as {choices}{by_export}.")


def _refuse_inside_store(place: Place) -> None:
    """Raise StoreExistsError for an output inside a store, which is lost when that is replaced."""
    if isinstance(place, DiskPlace):
        for parent in place.path.resolve().parents:
            if any((parent / name).is_file() for name in (MANIFEST, PARQUET_MANIFEST)):
                raise _inside(place, parent)
        return
    scheme, _, rest = str(place).partition("://")
    bucket, *parts, _ = rest.split("/")
    for n in range(len(parts), 0, -1):
        folder = "/".join([f"{scheme}://{bucket}", *parts[:n]])
        found = False
        with suppress(StoreError):  # of a folder that these credentials cannot look into
            found = is_store(folder)
        if found:
            raise _inside(place, folder)


def _inside(place: Place, store: object) -> StoreExistsError:
    return StoreExistsError(
        f"{place} is inside the store {store}, with which it would be replaced; choose another path.",
        path=place,
    )


def refuse_source(out: StorePath | Place, source: StorePath | Place | None) -> None:
    """Raise StoreExistsError if writing to ``out`` would replace the store ``source`` that is being read.

    Call it if the two are stores of different kinds, because the source could not be recovered.
    """
    if source is None:
        return
    target, read_from = place_of(out), place_of(source)
    if isinstance(target, DiskPlace) and isinstance(read_from, DiskPlace):
        same = target.path.resolve() == read_from.path.resolve()
    else:
        same = str(target) == str(read_from)
    if same:
        raise StoreExistsError(f"{target} is the input and would be lost; choose another path.", path=target)


def _restore_previous(path: Path) -> None:
    """Put back the store that a writer moved aside, if it was killed before the new one was in its place."""
    for aside in sorted(path.parent.glob(f".{glob.escape(path.name)}.*.previous")):
        if path.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(path)


@contextmanager
def _renamed_folder(path: Path) -> Iterator[DiskPlace]:
    """Yield a hidden folder next to ``path`` that is renamed to it at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep_temporary(path.parent)
    abandoned = re.compile(rf"\.{re.escape(path.name)}\.[0-9]+\.partial")
    for entry in path.parent.iterdir():
        if abandoned.fullmatch(entry.name):
            shutil.rmtree(entry, ignore_errors=True)
    partial = path.parent / f".{path.name}.{os.getpid()}.partial"
    try:
        partial.mkdir()
        yield DiskPlace(partial)
        if not path.exists():
            partial.rename(path)
        elif not _exchange(partial, path):  # without an exchange, neither store is at the path for a moment
            previous = partial.with_suffix(".previous")
            path.rename(previous)
            partial.rename(path)
            previous.rename(partial)
        sync(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two folders atomically; return False if the system cannot (Linux can, since 2014)."""
    if not sys.platform.startswith("linux"):
        return False
    at_cwd, rename_exchange = -100, 2
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    return renameat2(at_cwd, os.fsencode(a), at_cwd, os.fsencode(b), rename_exchange) == 0


@contextmanager
def _named_folder(place: Place, check_lock: Callable[[], None]) -> Iterator[Place]:
    """Yield a data folder inside ``place``; the manifest of ``place`` names it at the end."""
    sweep_folders(place)
    with discarded_on_failure(new_folder(place), place) as folder:
        yield folder
        content = read_manifest(folder)
        check_lock()
        _publish(place, content, folder.name)
    (folder / MANIFEST).remove()
    sweep_folders(place)


@contextmanager
def discarded_on_failure(folder: Place, place: Place) -> Iterator[Place]:
    """Yield ``folder``; if the ``with`` block fails, remove it unless the manifest at ``place`` names it."""
    try:
        yield folder
    except BaseException:
        if not (is_store(place) and folder.name in _folders_named(read_manifest(place))):
            folder.remove()
        raise


def new_folder(place: Place) -> Place:
    """Return a data folder inside ``place`` with a unique name."""
    return place / f"data-{uuid.uuid4().hex}"


def sweep_folders(place: Place) -> None:
    """Remove data folders that the manifest does not name: older ones, and those of killed writers."""
    named = _folders_named(read_manifest(place)) if is_store(place) else []
    for name in place.names():
        if _is_data_folder(name) and name not in named:
            (place / name).remove()


def _folders_named(content: dict[str, Any]) -> list[Any]:
    """Return the data folders that a manifest names; none if the arrays are next to it."""
    shared = content.get("shared", [])
    own = [content["data"]] if "data" in content else []
    return [*own, *(shared if isinstance(shared, list) else [None])]


def _is_data_folder(name: object) -> bool:
    return isinstance(name, str) and _DATA_FOLDER.fullmatch(name) is not None


# Single files


@contextmanager
def new_file(path: StorePath, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """Yield a file that becomes ``path``, on a disk, if the ``with`` block succeeds; else it is removed.

    What killed writers of the same file left is removed first. Raises StoreExistsError if ``path`` exists and
    must not be replaced, StoreError if the disk is full.
    """
    target = refuse_existing_file(path, overwrite)
    sweep_partials(target)
    with disk_errors(target), atomic_file(target) as file:
        yield file


@contextmanager
def new_folder_of_files(path: StorePath, pattern: str, *, overwrite: bool) -> Iterator[Path]:
    """Yield a folder, on a disk, that becomes ``path`` if the ``with`` block succeeds; else it is removed.

    Only a folder that contains nothing but files like ``pattern`` is replaced. Raises StoreExistsError, and
    StoreError if the disk is full.
    """
    target = local_path(path)
    _refuse_inside_store(DiskPlace(target))
    _refuse_taken(target.exists() and not overwrite, path)
    if target.exists() and not (target.is_dir() and all(e.match(pattern) for e in target.iterdir())):
        raise StoreExistsError(
            f"{path} exists and is not a folder of {pattern} only; choose another path.", path=path
        )
    with writer_lock(DiskPlace(target)), disk_errors(target), _renamed_folder(target) as folder:
        yield folder.path
        folder.flush()


def unless_overwriting(out: StorePath | Place, overwrite: bool) -> str:
    """Return how a call must differ from the one that was interrupted to resume it, as words to insert."""
    if not overwrite:
        return ""
    return " without overwrite" + (f", once {out} is moved away," if is_store(out) else "")


def refuse_existing_file(path: StorePath, overwrite: bool) -> Path:
    """Return ``path`` as a Path; raise StoreExistsError if a file must not be written there."""
    target = local_path(path)
    _refuse_inside_store(DiskPlace(target))
    if target.is_dir():
        raise StoreExistsError(f"{path} exists and is a folder; choose another path.", path=path)
    _refuse_taken(target.exists() and not overwrite, path)
    return target


# What killed writers left


class Leftover(NamedTuple):
    """Something next to an output that a writer, running or killed, has there."""

    path: str
    what: str
    """What it is, and what becomes of it."""
    n_bytes: int


def leftovers_of(path: StorePath | Place) -> list[Leftover]:
    """Return what unfinished and killed writers of the store or file at ``path`` have left next to it."""
    place = place_of(path)
    found: list[tuple[Place, str]] = []
    unfinished = place.sibling(f"{place.name}.partial")
    if unfinished.exists():
        found.append((unfinished, "an unfinished run: the same call resumes it, overwrite removes it"))
    for locked in (place, unfinished):
        lock = locked.sibling(f".{locked.name}.lock")
        if lock.is_file():
            found.append((lock, _lock_state(lock)))
    if isinstance(place, DiskPlace):
        inside = [DiskPlace(entry) for entry in place.path.glob(".*.partial")] if place.path.is_dir() else []
        found += [(entry, "of a killed writer: the next append removes it") for entry in inside]
        for partial in partials_of(place.path):
            process = partial.name.split(".")[-2]  # the name of a folder has the process alone
            left = not is_running(int(process)) if process.isdigit() else is_left(partial)
            state = "of a killed writer: the next writer removes it" if left else "of a writer, maybe running"
            found.append((DiskPlace(partial), state))
        for aside in place.path.parent.glob(f".{glob.escape(place.name)}.*.previous"):
            found.append((DiskPlace(aside), "a store moved aside: the next writer puts it back"))
        if found or place.exists():  # temporary folders are of some output in the same folder
            left_folders = filter(is_temporary_left, temporary_in(place.path.parent))
            state = "scratch of a killed process: the next writer here removes it"
            found += [(DiskPlace(folder), state) for folder in left_folders]
    elif place.exists():
        named = _folders_named(read_manifest(place)) if is_store(place) else []
        unnamed = [name for name in place.names() if _is_data_folder(name) and name not in named]
        found += [(place / name, "of a writer, maybe killed: the next writer removes it") for name in unnamed]
    return [Leftover(str(entry), what, _size(entry)) for entry, what in found]


def _lock_state(lock: Place) -> str:
    """Describe the holder of a lock, from its file; a lease in a bucket may have expired."""
    try:
        text = lock.read(1 << 12).decode("ascii", "replace").strip()
    except (FileNotFoundError, ValueError):
        text = ""
    if not isinstance(lock, DiskPlace):
        return "the lock of a writer; it expires a minute after the writer is killed"
    if text.isdigit() and is_running(int(text)):
        return f"the lock of process {text}, if that is a writer"
    return "the lock of a killed writer, which locks nothing: the next writer removes it"


def _size(place: Place) -> int:
    if isinstance(place, DiskPlace) and place.path.is_file():
        return place.path.stat().st_size
    return place.n_bytes()
