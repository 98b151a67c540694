"""Checkpoints of a long solve: block arrays by generation, and a snapshot of everything else.

Nothing is modified in place. A pass reads one generation of block arrays and writes the next, so that tasks
are idempotent and a killed run resumes after its last complete pass. The pass before is kept too, with its
snapshot: if the last one is damaged, the run goes on from there. Generations that no snapshot refers to are
dropped.

Every file ends with a seal, by which one that is damaged, or whole but not the one asked for, is refused: of
a block a hash of its run, generation, number and rows, of a snapshot one of its content.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.files import Place, StorePath, parse_json
from bigcons.disk.places import disk_errors, place_of
from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.memory import Block

SNAPSHOT, SNAPSHOT_BEFORE = "snapshot.npz", "snapshot-before.npz"
SNAPSHOT_FORMAT = 11
"""Incremented whenever the content of snapshots or blocks changes."""
SEAL_BYTES = 16
_START_OVER = "start over with overwrite=True (--overwrite)."


def key_of(facts: Any) -> bytes:
    """Return 16 bytes that identify a run by what it depends on, JSON-serializable."""
    return _hash(json.dumps(facts, sort_keys=True).encode())


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=SEAL_BYTES).digest()


class FileBlocks:
    """Block arrays, one file each, in a folder on a disk or in a bucket that all workers can reach.

    Files are read, not memory-mapped, because mapped pages count as memory. ``run`` are the 16 bytes that
    identify the solve in their seals.
    """

    def __init__(
        self, folder: StorePath | Place, n_columns: int, dtype: str = "<f4", run: bytes = bytes(16)
    ) -> None:
        self.folder: Place = place_of(folder)
        self.n_columns = n_columns
        self.dtype: np.dtype = np.dtype(dtype)
        self.run = run

    def read(self, generation: int, block: Block) -> np.ndarray:
        """Return the rows of a block; raises CorruptStoreError if they are lost, damaged or others'."""
        rows, fault = self._load(generation, block)
        if fault is not None:
            raise CorruptStoreError(f"{fault}; {_START_OVER}", path=self._place(generation, block))
        return rows

    def write(self, generation: int, block: Block, rows: np.ndarray) -> None:
        """Store the rows of a block; a second write replaces the first atomically."""
        place = self._place(generation, block)
        content = np.ascontiguousarray(rows, self.dtype).data.cast("B")
        with disk_errors(place):
            place.write(content, _seal_of_block(self.run, generation, block.index, content))

    def drop(self, generations: Sequence[int], block: Block | None = None) -> None:
        """Remove generations, or a block of them."""
        for generation in generations:
            self._place(generation, block).remove()

    def n_kept(self, generation: int) -> int:
        """Return how many blocks of a generation there are."""
        return sum(name.startswith("block-") for name in self._place(generation).names())

    def fault(self, generation: int, block: Block) -> str | None:
        """Return what is wrong with a block, with its path; None if it is whole, of plausible numbers."""
        rows, fault = self._load(generation, block)
        # no number that a run writes to a float32 block is larger; fourth powers of what is would overflow
        if fault is None and rows.dtype.kind == "f" and not (np.abs(rows) <= 2.0**24).all():
            fault = f"{self._place(generation, block)} has numbers that are not finite or too large"
        return fault

    def _load(self, generation: int, block: Block) -> tuple[np.ndarray, str | None]:
        """Return the rows of a block, which may be written to, and what is wrong with it, if anything."""
        place, n_bytes = self._place(generation, block), block.n_rows * self.n_columns * self.dtype.itemsize
        content, fault = _sealed_block(place, self.run, generation, block.index, n_bytes)
        if fault is not None:
            return np.empty((0, self.n_columns), self.dtype), fault
        return np.frombuffer(content, self.dtype).reshape(block.n_rows, self.n_columns), None

    def _place(self, generation: int, block: Block | None = None) -> Place:
        folder = self.folder / f"generation-{generation}"
        return folder if block is None else folder / f"block-{block.index}"


def _seal_of_block(run: bytes, generation: int, number: int, content: Any) -> bytes:
    return _hash(struct.pack("<16sqqI", run, generation, number, zlib.crc32(content)))


def _sealed_block(
    place: Place, run: bytes, generation: int, number: int, n_bytes: int | None
) -> tuple[memoryview, str | None]:
    """Return the content of a block of ``n_bytes``, if that is known, and what is wrong with its file."""
    try:
        content = memoryview(place.read(*([] if n_bytes is None else [n_bytes + SEAL_BYTES])))
    except FileNotFoundError:
        return memoryview(b""), f"{place} is missing"
    except CorruptStoreError as error:
        return memoryview(b""), str(error).rpartition(";")[0]
    rows, seal = content[:-SEAL_BYTES], content[-SEAL_BYTES:]
    if n_bytes not in (None, len(rows)):
        return rows, f"{place} is truncated"
    is_whole = seal == _seal_of_block(run, generation, number, rows)
    return rows, None if is_whole else f"{place} is damaged, or the block of another pass, place or run"


class Snapshot(NamedTuple):
    """A snapshot as it was read."""

    is_last: bool
    """Whether it is of the last pass, not of the one before."""
    arrays: dict[str, np.ndarray]
    head: dict[str, Any]
    """Its format and fingerprint."""
    facts: dict[str, Any]
    """The JSON facts that were saved."""


class Snapshots:
    """The snapshots of a solve after its last two passes: small arrays and JSON facts, written atomically.

    ``fingerprint`` identifies the solve by its parameters and data; snapshots of other solves are refused.
    """

    def __init__(self, folder: StorePath | Place, fingerprint: Mapping[str, Any]) -> None:
        self.folder: Place = place_of(folder)
        self._file = self.folder / SNAPSHOT
        self._before = self.folder / SNAPSHOT_BEFORE
        self.fingerprint: Any = json.loads(json.dumps(dict(fingerprint), default=str))
        self.check_lock: Callable[[], None] = lambda: None
        """Raises StoreError if the lock of the folder has been lost; called before every snapshot."""

    @property
    def run(self) -> bytes:
        """16 bytes that identify the solve, for the seals of its blocks."""
        return key_of(self.fingerprint)

    def save(self, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        """Replace the snapshot, which becomes that of the pass before; it is durable when this returns."""
        self.check_lock()
        with disk_errors(self._before), suppress(FileNotFoundError):
            self._file.copy_to(self._before)
        head = {"format": SNAPSHOT_FORMAT, "fingerprint": self.fingerprint, "facts": dict(facts)}
        text = np.frombuffer(json.dumps(head).encode(), np.uint8)
        file = io.BytesIO()
        np.savez(file, **{**arrays, "head": text})  # type: ignore[arg-type]
        content = file.getvalue()
        with disk_errors(self._file):
            self._file.write(content, _hash(content), durable=True)

    def exists(self) -> bool:
        """Return whether there is a snapshot."""
        return self._file.is_file() or self._before.is_file()

    def fingerprint_kept(self) -> dict[str, Any] | None:
        """Return the fingerprint of the last snapshot that is whole, or None without a snapshot."""
        return next((found.head["fingerprint"] for found in self._whole()), None)

    def load(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Return arrays and facts of the last snapshot that is whole, or None without one; see `kept`."""
        for found in self.kept():
            return found.arrays, found.facts
        return None

    def kept(self) -> Iterator[Snapshot]:
        """Yield the snapshots that are whole, the last one first.

        Raises InvalidInputError if another solve, or another version of bigcons, wrote one, and
        CorruptStoreError if none is whole of those that are there.
        """
        for found in self._whole():
            version = found.head.get("format", 1)
            if version != SNAPSHOT_FORMAT:
                raise InvalidInputError(
                    f"{self.folder} contains a run in format {version} of another version of bigcons; this "
                    f"one reads format {SNAPSHOT_FORMAT}: finish the run with that version, or start over "
                    "with overwrite=True (--overwrite)."
                )
            if told := differences(found.head["fingerprint"], self.fingerprint):
                raise InvalidInputError(
                    f"{self.folder} holds an unfinished run with {told}; repeat the call that started it, or "
                    "start over with overwrite=True (--overwrite)."
                )
            yield found

    def _whole(self) -> Iterator[Snapshot]:
        """Yield the snapshots that are whole, of any solve and version, the last one first."""
        damage: CorruptStoreError | None = None
        n_whole = 0
        for file in (self._file, self._before):
            try:
                found = _read_snapshot(file)
            except CorruptStoreError as error:
                damage = damage or error
                continue
            if found is not None:
                n_whole += 1
                yield Snapshot(file is self._file, *found, found[1]["facts"])
        if damage is not None and not n_whole:
            raise damage

    def verify(self) -> tuple[int, int]:
        """Check the seals of all blocks of the last pass; return passes and blocks.

        Raises CorruptStoreError if its snapshot or one of its blocks is lost or damaged.
        """
        found = _read_snapshot(self._file)
        if found is None:
            raise self.damaged("the snapshot is missing")
        facts, run = found[1]["facts"], key_of(found[1]["fingerprint"])
        generation, n_blocks = facts.get("generation"), facts.get("n_blocks") or 0
        n_passes = len(facts.get("records") or ())
        for number in range(n_blocks):
            place = self.folder / f"generation-{generation}" / f"block-{number}"
            if fault := _sealed_block(place, run, generation, number, None)[1]:
                raise self.damaged(fault, n_passes)
        return n_passes, n_blocks

    def go_back(self) -> None:
        """Replace the last snapshot by that of the pass before."""
        with disk_errors(self._file):
            self._file.write(self._before.read(), durable=True)

    def damaged(self, fault: str, n_passes: int | None = None) -> CorruptStoreError:
        """Return the error for a run whose last complete pass cannot be resumed because of ``fault``."""
        known = "" if n_passes is None else f"{n_passes} "
        passes = f"{known}finished {'pass' if n_passes == 1 else 'passes'}"
        return CorruptStoreError(
            f"{fault}, so that the {passes} in {self.folder} cannot be resumed; {_START_OVER}",
            path=self.folder,
        )


def _read_snapshot(file: Place) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Return arrays and head of a snapshot, or None if it does not exist; only its content is checked."""
    try:
        content = bytes(file.read())
    except FileNotFoundError:
        return None
    try:
        if _hash(content[:-SEAL_BYTES]) != content[-SEAL_BYTES:]:
            raise ValueError("another hash")
        archive = io.BytesIO(content[:-SEAL_BYTES])
        with zipfile.ZipFile(archive) as members:
            if any(entry.file_size != entry.compress_size for entry in members.infolist()):
                raise ValueError("compressed")
        with np.load(archive, allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
        head = parse_json(arrays.pop("head").tobytes(), file)
        if not all(isinstance(head[name], dict) for name in ("fingerprint", "facts")):
            raise ValueError("no fingerprint")
    except Exception as error:  # damaged archives raise errors of many types
        raise CorruptStoreError(
            f"{file} is damaged, or of an earlier version of bigcons; {_START_OVER}", path=file
        ) from error
    return arrays, head


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any], show: Callable[[Any], str] = str) -> str:
    """Describe how the parameters and data of a stored run differ from those wanted; "" if they do not.

    ``show`` turns a value into text; of data, which have a checksum, it is said that they are others, and of
    names, which differ. Entries that the stored run lacks are named if nothing else differs.
    """

    def one(name: str) -> str:
        if name.endswith("_checksum"):
            return f"other {name.removesuffix('_checksum')}"
        values: list[Any] = [entries.get(name) for entries in (found, wanted)]
        if all(isinstance(names, list) and names and isinstance(names[0], str) for names in values):
            more, fewer = ([e for e in one if e not in two] for one, two in (values, values[::-1]))
            if not more and not fewer:
                return f"{name} in another order"
            and_not = f", not {show(fewer)[1:-1]}" if fewer else " in addition"
            return f"{name} {show(more)[1:-1]}{and_not}" if more else f"no {name} {show(fewer)[1:-1]}"
        texts = [show(value) for value in values]
        if not any(" crc " in text for text in texts):
            return f"{name}={texts[0]}, not {texts[1]}"
        was, is_now = (text.partition(",")[0] for text in texts)
        return f"other {name}" + (f" ({was}, not {is_now})" if was != is_now else "")

    other = [name for name in wanted if found.get(name) != wanted[name]]
    named = [name for name in other if name in found] or other
    return "; ".join(map(one, named))


def partial_folder(path: StorePath) -> Place:
    """Return the folder of the unfinished solve with output ``path``."""
    place = place_of(path)
    return place.sibling(f"{place.name}.partial")
