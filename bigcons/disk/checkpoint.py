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
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.files import Place, StorePath, corrupt, pack, unpack
from bigcons.disk.places import disk_errors, place_of
from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.memory import Block

SNAPSHOT, SNAPSHOT_BEFORE = "snapshot.npz", "snapshot-before.npz"
SNAPSHOT_FORMAT = 12
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
        """Return the rows of a block, which may be written to.

        Raises CorruptStoreError if they are lost, damaged or others'.
        """
        place, n_bytes = self._place(generation, block), block.n_rows * self.n_columns * self.dtype.itemsize
        try:
            content = memoryview(place.read(n_bytes + SEAL_BYTES))
        except FileNotFoundError:
            raise corrupt(place, "is missing", _START_OVER) from None
        if len(content) < n_bytes + SEAL_BYTES:
            raise corrupt(place, "is truncated", _START_OVER)
        if content[-SEAL_BYTES:] != self._seal(generation, block, content[:-SEAL_BYTES]):
            raise corrupt(place, "is damaged, or the block of another pass, place or run", _START_OVER)
        return np.frombuffer(content[:-SEAL_BYTES], self.dtype).reshape(block.n_rows, self.n_columns)

    def write(self, generation: int, block: Block, rows: np.ndarray) -> None:
        """Store the rows of a block; a second write replaces the first atomically."""
        place = self._place(generation, block)
        content = np.ascontiguousarray(rows, self.dtype).data.cast("B")
        with disk_errors(place):
            place.write(content, self._seal(generation, block, content))

    def drop(self, generations: Sequence[int], block: Block | None = None) -> None:
        """Remove generations, or a block of them."""
        for generation in generations:
            self._place(generation, block).remove()

    def n_kept(self, generation: int) -> int:
        """Return how many blocks of a generation there are."""
        return sum(name.startswith("block-") for name in self._place(generation).names())

    def fault(self, generation: int, block: Block) -> str | None:
        """Return what is wrong with a block, with its path; None if it is whole, of plausible numbers."""
        try:
            rows = self.read(generation, block)
        except CorruptStoreError as error:
            return str(error).rpartition(";")[0]
        # no number that a run writes to a float32 block is larger; fourth powers of what is would overflow
        if rows.dtype.kind == "f" and not (np.abs(rows) <= 2.0**24).all():
            return f"{self._place(generation, block)} has numbers that are not finite or too large"
        return None

    def _seal(self, generation: int, block: Block, content: Any) -> bytes:
        return _hash(struct.pack("<16sqqI", self.run, generation, block.index, zlib.crc32(content)))

    def _place(self, generation: int, block: Block | None = None) -> Place:
        folder = self.folder / f"generation-{generation}"
        return folder if block is None else folder / f"block-{block.index}"


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
        content = pack(head, arrays)
        with disk_errors(self._file):
            self._file.write(content, _hash(content), durable=True)

    def exists(self) -> bool:
        """Return whether there is a snapshot."""
        return self._file.is_file() or self._before.is_file()

    def fingerprint_kept(self) -> dict[str, Any] | None:
        """Return the fingerprint of the last snapshot that is whole, or None without a snapshot."""
        return next((found.head["fingerprint"] for found in self._whole()), None)

    def load(self) -> Snapshot | None:
        """Return the last snapshot that is whole, or None without one; see `kept`."""
        return next(self.kept(), None)

    def kept(self) -> Iterator[Snapshot]:
        """Yield the snapshots that are whole, the last one first.

        Raises InvalidInputError if another solve, or another version of bigcons, wrote one, and
        CorruptStoreError if none is whole of those that are there.
        """
        for found in self._whole():
            kept = {"format": found.head.get("format"), **found.head["fingerprint"]}
            if other := differences(kept, {"format": SNAPSHOT_FORMAT, **self.fingerprint}):
                raise InvalidInputError(
                    f"{self.folder} holds an unfinished run with {other}; repeat the call that started it, "
                    f"with the same version of bigcons, or {_START_OVER}"
                )
            yield found

    def _whole(self) -> Iterator[Snapshot]:
        """Yield the snapshots that are whole, of any solve and version, the last one first."""
        damage: CorruptStoreError | None = None
        n_whole = 0
        for file in (self._file, self._before):
            with suppress(FileNotFoundError):
                try:
                    content = bytes(file.read())
                    head, arrays = unpack(content[:-SEAL_BYTES])
                    if _hash(content[:-SEAL_BYTES]) != content[-SEAL_BYTES:]:
                        raise ValueError("another hash")
                    snapshot = Snapshot(file is self._file, arrays, head, dict(head["facts"]))
                    dict(head["fingerprint"])
                except (CorruptStoreError, ValueError, LookupError, TypeError):
                    what = "is damaged, or of an earlier version of bigcons"
                    damage = damage or corrupt(file, what, _START_OVER)
                else:
                    n_whole += 1
                    yield snapshot
        if damage is not None and not n_whole:
            raise damage

    def go_back(self) -> None:
        """Replace the last snapshot by that of the pass before."""
        with disk_errors(self._file):
            self._file.write(self._before.read(), durable=True)

    def damaged(self, fault: str) -> CorruptStoreError:
        """Return the error for a run whose last complete pass cannot be resumed because of ``fault``."""
        what = f"so that the finished passes in {self.folder} cannot be resumed"
        return CorruptStoreError(f"{fault}, {what}; {_START_OVER}", path=self.folder)


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any], show: Callable[[Any], str] = str) -> str:
    """Describe how the parameters and data of a stored run differ from those wanted; "" if they do not.

    ``show`` turns a value into text; of data, which have a checksum, and of lists, it is said that they are
    others. Entries that the stored run lacks are named if nothing else differs.
    """

    def one(name: str) -> str:
        was, is_now = (show(entries.get(name)) for entries in (found, wanted))
        if name.endswith("_checksum") or isinstance(found.get(name), list):
            return f"other {name.removesuffix('_checksum')}"
        if " crc " not in was + is_now:
            return f"{name}={was}, not {is_now}"
        was, is_now = (text.partition(",")[0] for text in (was, is_now))
        return f"other {name}" + (f" ({was}, not {is_now})" if was != is_now else "")

    other = [name for name in wanted if found.get(name) != wanted[name]]
    return "; ".join(map(one, [name for name in other if name in found] or other))


def partial_folder(path: StorePath) -> Place:
    """Return the folder of the unfinished solve with output ``path``."""
    place = place_of(path)
    return place.sibling(f"{place.name}.partial")
