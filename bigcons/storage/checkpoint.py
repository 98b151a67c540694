"""Checkpoints of a long solve: block arrays by generation, and a snapshot of everything else.

Nothing is modified in place. A pass reads one generation of block arrays and writes the next, so that tasks
are idempotent and a killed run resumes after its last complete pass. Generations that no snapshot refers to
are dropped.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.memory import Block
from bigcons.storage.interface import Place, StorePath
from bigcons.storage.places import disk_errors, place_of

_CHECKSUM_BYTES = 4

SNAPSHOT_FORMAT = 5
"""Incremented whenever the content of snapshots changes."""


class MemoryBlocks:
    """Block arrays in the memory of this process."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], np.ndarray] = {}

    def read(self, generation: int, block: Block) -> np.ndarray:
        """Return the rows of a block, which must not be modified."""
        return self._rows[generation, block.index]

    def write(self, generation: int, block: Block, rows: np.ndarray) -> None:
        """Store the rows of a block."""
        self._rows[generation, block.index] = rows

    def drop(self, generation: int) -> None:
        """Remove a generation."""
        for key in [key for key in self._rows if key[0] == generation]:
            del self._rows[key]


class FileBlocks:
    """Block arrays, one file each, in a folder on a disk or in a bucket that all workers can reach.

    Files are read, not memory-mapped, because mapped pages count as memory. Each ends with a checksum.
    """

    def __init__(self, folder: StorePath | Place, n_columns: int, dtype: str = "<f4") -> None:
        self.folder: Place = place_of(folder)
        self.n_columns = n_columns
        self.dtype: np.dtype = np.dtype(dtype)

    def read(self, generation: int, block: Block) -> np.ndarray:
        """Return the rows of a block; raises CorruptStoreError if they are damaged."""
        place = self._place(generation, block)
        content = place.read()  # a bytearray: read-only arrays would compile the kernels again
        rows = memoryview(content)[:-_CHECKSUM_BYTES]
        expected = block.n_rows * self.n_columns * self.dtype.itemsize
        if len(rows) != expected or content[-_CHECKSUM_BYTES:] != _checksum(rows):
            raise CorruptStoreError(
                f"{place} is damaged; start over with overwrite=True (--overwrite).", path=place
            )
        return np.frombuffer(rows, self.dtype).reshape(block.n_rows, self.n_columns)

    def write(self, generation: int, block: Block, rows: np.ndarray) -> None:
        """Store the rows of a block; a second write replaces the first atomically."""
        place = self._place(generation, block)
        content = np.ascontiguousarray(rows, self.dtype).data.cast("B")
        with disk_errors(place):
            place.write(content, _checksum(content))

    def drop(self, generation: int) -> None:
        """Remove a generation."""
        (self.folder / f"generation-{generation}").remove()

    def _place(self, generation: int, block: Block) -> Place:
        return self.folder / f"generation-{generation}" / f"block-{block.index}"


BlockArrays = MemoryBlocks | FileBlocks


class Snapshots:
    """The latest snapshot of a solve: small arrays and JSON facts, replaced atomically.

    ``fingerprint`` identifies the solve by its parameters and data; snapshots of other solves are refused.
    """

    def __init__(self, folder: StorePath | Place, fingerprint: Mapping[str, Any]) -> None:
        self.folder: Place = place_of(folder)
        self._file = self.folder / "snapshot.npz"
        self.fingerprint: Any = json.loads(json.dumps(dict(fingerprint), default=str))

    def save(self, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        """Replace the snapshot; it is durable when this returns."""
        head = json.dumps({"format": SNAPSHOT_FORMAT, "fingerprint": self.fingerprint, "facts": dict(facts)})
        content = io.BytesIO()
        np.savez(content, **{**arrays, "head": np.frombuffer(head.encode(), np.uint8)})  # type: ignore[arg-type]
        with disk_errors(self._file):
            # getvalue, not a view: Python 3.12.1 crashes on collecting a view held by an error's frames
            self._file.write(content.getvalue(), durable=True)

    def exists(self) -> bool:
        """Return whether there is a snapshot."""
        return self._file.is_file()

    def fingerprint_kept(self) -> dict[str, Any] | None:
        """Return the fingerprint of the snapshot, or None without a snapshot."""
        found = self._read()
        return None if found is None else found[1].get("fingerprint")

    def load(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Return arrays and facts of the snapshot, or None if it does not exist.

        Raises InvalidInputError if another solve, or another version of bigcons, wrote it.
        """
        content = self._read()
        if content is None:
            return None
        arrays, head = content
        found = head.get("format", 1)
        if found != SNAPSHOT_FORMAT:
            raise InvalidInputError(
                f"{self.folder} contains a run in format {found} of another version of bigcons; this one "
                f"reads format {SNAPSHOT_FORMAT}: finish the run with that version, or start over with "
                "overwrite=True (--overwrite)."
            )
        if told := differences(head["fingerprint"], self.fingerprint):
            raise InvalidInputError(
                f"{self.folder} holds an unfinished run with {told}; repeat the call that started it, or "
                "start over with overwrite=True (--overwrite)."
            )
        return arrays, head["facts"]

    def _read(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Return arrays and head of the snapshot, or None if it does not exist."""
        try:
            content = io.BytesIO(self._file.read())
        except FileNotFoundError:
            return None
        try:
            with np.load(content, allow_pickle=False) as members:
                arrays = {name: members[name] for name in members.files}
            head = json.loads(arrays.pop("head").tobytes())
        except Exception as error:
            raise CorruptStoreError(
                f"{self._file} is damaged; start over with overwrite=True (--overwrite).", path=self._file
            ) from error
        return arrays, head


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any], show: Callable[[Any], str] = str) -> str:
    """Describe how the parameters and data of a stored run differ from those wanted; "" if they do not.

    ``show`` turns a value into text. Entries that the stored run lacks are named if nothing else differs.
    """
    other = [name for name in wanted if found.get(name) != wanted[name]]
    named = [name for name in other if name in found] or other
    return "; ".join(f"{name}={show(found.get(name))}, not {show(wanted[name])}" for name in named)


def _checksum(content: memoryview) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")
