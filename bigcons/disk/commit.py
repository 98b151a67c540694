"""Atomic commits: stores and files are written aside and published in the last step.

A store is a Zarr group whose attributes are its head, or a folder of Parquet files with a head beside them.
It is written to a folder aside, head last. On a disk that is a hidden folder next to the path, which is
renamed to it once everything in it is durable; a store that is there is exchanged for it in one step. Buckets
cannot rename: the folder has a unique name inside the store, and a single object at the path, which is put
last, names it. A process killed at any moment leaves the old state or the new one, never a mixture.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import sys
import uuid
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from bigcons import errors
from bigcons.disk import places
from bigcons.disk.checkpoint import differences
from bigcons.disk.files import MOST_JSON_BYTES, Place, StorePath, corrupt, read_json
from bigcons.disk.schema import FORMAT_VERSION, KINDS, OF_RUN
from bigcons.validation import check_flag
from bigcons.version import __version__

HEAD = "zarr.json"
PARQUET_HEAD = "_bigcons.json"
"""The head of a folder of Parquet files, whose readers pass over names that begin so."""

PARQUET = (".parquet", ".pq")

_DATA_FOLDER = re.compile("data-[0-9a-f]{32}")

# Heads


class Head(NamedTuple):
    """The head of a store."""

    kind: str
    body: dict[str, Any]
    """The entries of its kind of store; see `bigcons.disk.schema`."""
    data: Place
    """The folder with its arrays and files."""
    is_parquet: bool
    identity: Hashable
    """What tells the store from all that were or will be at its path: checksum and digest of its content and,
    in a bucket, its folder."""


def write_head(folder: Place, kind: str, body: dict[str, Any], *, parquet: bool = False) -> None:
    """Write the head of a new store to its folder, after everything else.

    The metadata of its arrays are listed for other tools, which then need not list the folder.
    """
    head = {
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "created_by": f"bigcons {__version__}",
        "body": json.loads(json.dumps(body, default=lambda value: getattr(value, "tolist", value.__str__)())),
    }
    content: dict[str, Any] = {"attributes": {"bigcons": head}}
    if not parquet:
        metadata = {name: read_json(folder / name / "zarr.json") for name in body.get("crc32c", ())}
        listing = {"kind": "inline", "must_understand": False, "metadata": metadata}
        content |= {"zarr_format": 3, "node_type": "group", "consolidated_metadata": listing}
    head["checksum"] = _checksum(content)
    text = json.dumps(content, indent=1).encode()
    (folder / (PARQUET_HEAD if parquet else HEAD)).write(text, durable=True)


def head_of(path: StorePath | Place) -> Place:
    """Return the file with the head of the store at ``path``, which need not exist."""
    place = places.place_of(path)
    is_parquet = isinstance(place, places.DiskPlace) and (place / PARQUET_HEAD).is_file()
    return place / (PARQUET_HEAD if is_parquet else HEAD)


def is_store(path: StorePath | Place) -> bool:
    """Return whether ``path`` is a store of any kind, also a damaged one."""
    with suppress(FileNotFoundError, NotADirectoryError, errors.DamagedFileError):
        return b'"bigcons"' in head_of(path).read(MOST_JSON_BYTES)
    return False


def stored_kind(path: StorePath | Place) -> str | None:
    """Return the kind of the store at ``path``; None if there is none."""
    return read_head(path).kind if is_store(path) else None


def stores_of_run(folder: Place, kind: str | None = None) -> list[str]:
    """Return the paths of the stores, of this ``kind``, that `bigcons run` made in a folder."""
    return [f"{p}" for n in OF_RUN[::-1] if n.startswith(kind or "") and is_store(p := folder / n)]


def read_head(path: StorePath | Place, kind: str | None = None) -> Head:
    """Return the head of the store, of this ``kind``, at ``path``.

    Raises StoreNotFoundError if there is no store of this kind, CorruptStoreError if the head is damaged and
    StoreError if its format is of another version of bigcons.
    """
    place = data = places.place_of(path)
    file, folder = head_of(place), None
    try:
        content = read_json(file)
        if (folder := _data_folder_in(content)) is not None:
            data = place / folder
            file = data / HEAD
            content = read_json(file)
        head = content["attributes"]["bigcons"]
    except (FileNotFoundError, NotADirectoryError, LookupError, TypeError):
        stores = stores_of_run(place, kind)
        state = "is not a bigcons store, or its head is damaged" if place.exists() else "does not exist"
        fault = f"is a folder of stores; pass {' or '.join(stores)}" if stores else f"{state}; check the path"
        raise errors.StoreNotFoundError(f"{place} {fault}.", path=place) from None
    try:
        checksum = head.pop("checksum")
        is_whole = checksum == _checksum(content)
        version, body, head_kind = head["format_version"], head["body"], head["kind"]
        is_whole &= isinstance(version, int) and isinstance(body, dict) and isinstance(head_kind, str)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise corrupt(file, "is damaged or not written by bigcons", "restore the store from a copy.")
    if version != FORMAT_VERSION:
        remedy = "upgrade bigcons" if version > FORMAT_VERSION else "make it again"
        words = f"{place} has format {version}, and not {FORMAT_VERSION}; {remedy}."
        raise errors.StoreError(words, path=place)
    if kind not in (None, head_kind):
        state = KINDS.get(head_kind, "a store of another kind")
        raise errors.StoreNotFoundError(f"{place} is {state}; {KINDS[str(kind)]} is needed here.", path=place)
    identity = checksum, body.get("digest"), folder
    return Head(head_kind, body, data, file.name == PARQUET_HEAD, identity)


def _data_folder_in(content: Any) -> str | None:
    """Return the name of the folder of a store in a bucket, by the object at its path; None without one."""
    with suppress(LookupError, TypeError):
        name = content["attributes"]["bigcons"]["data"]
        return name if _DATA_FOLDER.fullmatch(name) else None
    return None


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


# Stores


@contextmanager
def new_store(path: StorePath | Place, overwrite: bool = False, kind: str | None = None) -> Iterator[Place]:
    """Yield an empty folder that becomes the store at ``path`` when the ``with`` block succeeds.

    The block writes into the folder and finally calls `write_head` on it. If it fails, the folder is removed
    and ``path`` is left unchanged. Raises StoreExistsError, also for a store of another ``kind``,
    StoreLockedError, and StoreError if the disk is full.
    """
    place = places.place_of(path)
    refuse_existing(place, overwrite, kind)
    if isinstance(place, places.DiskPlace):
        place = places.DiskPlace(os.path.realpath(place.path))  # a link stays
    new_folder: Any = _renamed_folder if isinstance(place, places.DiskPlace) else _named_folder
    with place.lock() as check_lock, places.disk_errors(place), new_folder(place, check_lock) as folder:
        refuse_existing(place, overwrite, kind)
        yield folder
        read_head(folder)


@contextmanager
def _renamed_folder(place: places.DiskPlace, check_lock: Callable[[], None]) -> Iterator[places.DiskPlace]:
    """Yield a hidden folder next to ``place`` that is made durable and renamed to it at the end.

    What killed writers left is removed first; a store that one had moved aside is put back.
    """
    path = place.path
    path.parent.mkdir(parents=True, exist_ok=True)
    previous = path.with_name(f".{path.name}.previous")
    if previous.exists() and not path.exists():
        previous.rename(path)
    pattern = re.compile(rf"\.{re.escape(path.name)}\.([0-9]+\.partial|previous)")
    for entry in path.parent.iterdir():
        if pattern.fullmatch(entry.name):
            shutil.rmtree(entry, ignore_errors=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.mkdir()
        folder = places.DiskPlace(partial)
        yield folder
        folder.flush()
        check_lock()
        if path.exists() and not _exchange(partial, path):  # neither store is at the path for a moment
            path.rename(previous)
        if partial.exists() and not path.exists():
            partial.rename(path)
        places.sync(path.parent)
    finally:
        if previous.exists() and not path.exists():
            previous.rename(path)
        for leftover in (partial, previous):
            shutil.rmtree(leftover, ignore_errors=True)


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
    """Yield a folder inside ``place``, which the object at ``place`` names at the end.

    Folders that it does not name are removed: older ones, and those of killed writers.
    """
    _sweep_folders(place)
    folder = place / f"data-{uuid.uuid4().hex}"
    head = {"bigcons": {"data": folder.name}}
    content = {"zarr_format": 3, "node_type": "group", "attributes": head}
    try:
        yield folder
        check_lock()
        (place / HEAD).write(json.dumps(content).encode())
    except BaseException:
        if _current_folder(place) != folder.name:
            folder.remove()
        raise
    _sweep_folders(place)


def _sweep_folders(place: Place) -> None:
    """Remove data folders that the head does not name: older ones, and those of killed writers."""
    current = _current_folder(place)
    for name in place.names():
        if _DATA_FOLDER.fullmatch(name) and name != current:
            (place / name).remove()


def _current_folder(place: Place) -> str | None:
    """Return the name of the folder of a store in a bucket, None without one."""
    with suppress(FileNotFoundError, errors.CorruptStoreError):
        return _data_folder_in(read_json(place / HEAD))
    return None


# What is there already


def provenance_at(path: StorePath | Place, kind: str) -> Mapping[str, Any] | None:
    """Return what the store at ``path`` was made with; None if there is none of this ``kind``."""
    provenance = read_head(path).body.get("provenance") if stored_kind(path) == kind else None
    return provenance if isinstance(provenance, dict) else None


def is_finished_import(
    path: StorePath | Place, kind: str, provenance: Mapping[str, Any], overwrite: bool
) -> bool:
    """Return whether an import of files of this ``provenance`` is at ``path``; refuse anything else there.

    Raises StoreExistsError if the import had another source, other options, or another "version" of the
    source, and for what `refuse_existing` refuses, such as an ensemble to which more was appended since.
    """
    stored = (None if overwrite else provenance_at(path, kind)) or {}
    is_import = "version" in provenance and "version" in stored and "appended" not in stored
    if not is_import or stored.get("made_by") != provenance["made_by"]:
        refuse_existing(path, overwrite, kind)
        return False
    old, new = ({"source": call["source"], **call["options"]} for call in (stored, provenance))
    difference = differences(old, {**dict.fromkeys(old), **new})
    if stored["version"] != provenance["version"]:
        difference = difference or f"other contents of {stored['source']}"
    refuse_other(path, difference)
    return True


def refuse_other(path: StorePath | Place, difference: str) -> None:
    """Raise StoreExistsError, with a ``difference``, if the result at ``path`` is of another call."""
    if difference:
        raise _exists_error(path, f" and was made with {difference}")


def _exists_error(path: StorePath | Place, detail: str = "") -> errors.StoreExistsError:
    remedy = "pass overwrite=True (--overwrite) or choose another path."
    return errors.StoreExistsError(f"{path} exists{detail}; {remedy}", path=path)


def refuse_existing(path: StorePath | Place, overwrite: bool = False, kind: str | None = None) -> None:
    """Raise StoreExistsError if a store must not be written at ``path``; call it before any work.

    Only a store is overwritten, of the same ``kind`` if that is given, or one whose head is damaged. Raises
    InvalidInputError for the suffix of a file, which a store of this ``kind`` cannot be.
    """
    check_flag("overwrite", overwrite)
    place = places.place_of(path)
    suffix = re.search(r"\.(parquet|pq|csv|tsv|gz|npy|npz|h5ad)$", place.name.lower())
    if suffix is not None and not (kind == "ensemble" and names_parquet(place)):
        raise errors.InvalidInputError(
            f"{place} has suffix {suffix[0]!r}, but {KINDS.get(kind or '', 'a store')} is stored as .zarr "
            "(an ensemble on a disk also as .parquet); export() writes labels to a file."
        )
    _refuse_inside_store(place)
    is_taken = place.exists()
    if is_taken and not isinstance(place, places.DiskPlace):  # a killed writer may have left data folders
        is_taken = place.is_file() or not all(map(_DATA_FOLDER.fullmatch, place.names()))
    if not is_taken:
        return
    if not overwrite:
        raise _exists_error(place)
    if not is_store(place):
        raise errors.StoreExistsError(
            f"{place} exists and is not a bigcons store; choose another path.", path=place
        )
    with suppress(errors.CorruptStoreError):
        if kind not in (None, other := read_head(place).kind):
            raise errors.StoreExistsError(
                f"{place} exists and is {KINDS.get(other, 'a store of another kind')}, which would be lost; "
                "choose another path or remove it.",
                path=place,
            )


def names_parquet(path: StorePath | Place) -> bool:
    """Return whether what is stored at ``path`` is to be Parquet: on a disk, by its suffix."""
    place = places.place_of(path)
    return isinstance(place, places.DiskPlace) and place.name.lower().endswith(PARQUET)


def _refuse_inside_store(place: Place) -> None:
    """Raise StoreExistsError for an output inside a store on a disk, which is lost when that is replaced."""
    for parent in Path(os.path.realpath(place.path)).parents if isinstance(place, places.DiskPlace) else ():
        if is_store(parent):
            words = f"{place} is inside the store {parent}, with which it would be replaced; "
            raise errors.StoreExistsError(f"{words}choose another path.", path=place)


# Single files


@contextmanager
def new_file(path: StorePath, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """Yield a file that becomes ``path``, on a disk, if the ``with`` block succeeds; else it is removed.

    What killed writers of the same file left is removed first. Raises StoreExistsError if ``path`` exists and
    must not be replaced, StoreError if the disk is full.
    """
    target = Path(os.path.realpath(refuse_existing_file(path, overwrite)))  # a link stays
    with suppress(OSError):
        for entry in target.parent.iterdir():
            is_of_path = entry.name.rpartition(".")[0].rpartition(".")[0] == f".{target.name}"
            if is_of_path and places.is_leftover(entry):
                entry.unlink(missing_ok=True)
    with places.disk_errors(target), places.atomic_file(target) as file:
        yield file


def refuse_existing_file(path: StorePath, overwrite: bool) -> Path:
    """Return ``path`` as a Path; raise a StoreError if a file must not, or cannot, be written there."""
    target = places.local_path(path)
    _refuse_inside_store(places.DiskPlace(target))
    if target.is_dir():
        raise errors.StoreExistsError(f"{path} exists and is a folder; choose another path.", path=path)
    if target.exists() and not overwrite:
        raise _exists_error(path)
    return target
