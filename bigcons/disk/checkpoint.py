"""Checkpoints of a long solve: block arrays by generation, and a snapshot of everything else.

Nothing is modified in place. A pass reads one generation of block arrays and writes the next, so that tasks
are idempotent and a killed run resumes after its last complete pass. Generations that no snapshot refers to
are dropped.

Every file ends with a seal, by which a file is refused that is damaged, or in the place of another. The seal
of a block is a hash of its run, generation, number and rows, the seal of a snapshot a hash of its content.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.files import Place, StorePath, corrupt, decoding, pack, unpack
from bigcons.disk.places import disk_errors, place_of
from bigcons.errors import InvalidInputError
from bigcons.memory import Block

SNAPSHOT = "snapshot.npz"
SNAPSHOT_FORMAT = 13
"""Incremented whenever the content of snapshots or blocks changes."""
SEAL_BYTES = 16
MOST_SHOWN = 40
"""Characters of a value that a message shows."""
_PARAMETERS = {"seed": "random_state", "generator": "scheme"}
_START_OVER = "start over with overwrite=True (--overwrite)."


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

    def drop(self, generations: Sequence[int]) -> None:
        """Remove generations."""
        for generation in generations:
            (self.folder / f"generation-{generation}").remove()

    def _seal(self, generation: int, block: Block, content: Any) -> bytes:
        return _hash(struct.pack("<16sqqI", self.run, generation, block.index, zlib.crc32(content)))

    def _place(self, generation: int, block: Block) -> Place:
        return self.folder / f"generation-{generation}" / f"block-{block.index}"


class Snapshot(NamedTuple):
    """A snapshot as it was read."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]
    """The JSON facts that were saved."""
    fingerprint: dict[str, Any]
    """Of the solve that saved it, with the ``format``."""


class Snapshots:
    """The snapshot of a solve after its last pass: small arrays and JSON facts, replaced atomically.

    ``fingerprint`` identifies the solve by its parameters and data; snapshots of other solves are refused.
    """

    def __init__(self, folder: StorePath | Place, fingerprint: Mapping[str, Any]) -> None:
        self.folder: Place = place_of(folder)
        self._file = self.folder / SNAPSHOT
        text = json.dumps(dict(fingerprint), default=str, sort_keys=True)
        self.fingerprint: dict[str, Any] = json.loads(text)
        self.run: bytes = _hash(text.encode())
        """16 bytes that identify the solve, for the seals of its blocks."""
        self.check_lock: Callable[[], None] = lambda: None
        """Raises StoreError if the lock of the folder has been lost; called before every snapshot."""

    def save(self, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        """Replace the snapshot; it is durable when this returns."""
        self.check_lock()
        head = {"format": SNAPSHOT_FORMAT, "fingerprint": self.fingerprint, "facts": dict(facts)}
        content = pack(head, arrays)
        with disk_errors(self._file):
            self._file.write(content, _hash(content), durable=True)

    def exists(self) -> bool:
        """Return whether there is a snapshot."""
        return self._file.is_file()

    def read(self) -> Snapshot | None:
        """Return the snapshot of any solve and version; None without one.

        Raises CorruptStoreError if it is damaged.
        """
        try:
            content = bytes(self._file.read())
        except FileNotFoundError:
            return None
        with decoding(lambda _: corrupt(self._file, "is damaged, or of an earlier version", _START_OVER)):
            if _hash(content[:-SEAL_BYTES]) != content[-SEAL_BYTES:]:
                raise ValueError
            head, arrays = unpack(content[:-SEAL_BYTES])
            return Snapshot(arrays, dict(head["facts"]), {"format": head["format"], **head["fingerprint"]})

    def load(self) -> Snapshot | None:
        """Return the snapshot, or None without one.

        Raises InvalidInputError if another solve, or another version of bigcons, wrote it, and
        CorruptStoreError if it is damaged.
        """
        snapshot, fingerprint = self.read(), {"format": SNAPSHOT_FORMAT, **self.fingerprint}
        if snapshot is not None and (changes := differences(snapshot.fingerprint, fingerprint)):
            raise InvalidInputError(
                f"{self.folder} holds an unfinished run with {changes}; repeat the call that started it, "
                f"with the same version of bigcons, or {_START_OVER}"
            )
        return snapshot


def differences(stored: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Describe how the parameters and data of a ``stored`` run differ from the ``current`` ones; "" if equal.

    Long values, and data, are only said to be others. Entries that the stored run lacks, and what follows
    from parameters, are named if nothing else differs.
    """

    def words(name: str) -> str:
        was, is_now = str(stored.get(name)), str(current[name])
        is_of_data = " crc " in was + is_now or name.endswith("_checksum")
        if is_of_data or max(len(was), len(is_now)) > MOST_SHOWN:
            return f"other {name.removesuffix('_checksum')}"
        return f"{_PARAMETERS.get(name, name)}={was}, not {is_now}"

    names = [name for name in current if stored.get(name) != current[name]]
    names = [name for name in names if name in stored] or names
    return "; ".join(map(words, [name for name in names if name != "sample_rows"] or names))


def partial_folder(path: StorePath) -> Place:
    """Return the folder of the unfinished solve with output ``path``."""
    place = place_of(path)
    return place.sibling(f"{place.name}.partial")
