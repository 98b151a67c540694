"""What a long solve keeps between passes: arrays by block, and snapshots of the rest.

Nothing is changed in place. A pass reads one generation of block arrays and writes the next, so that a task
may run twice and a killed run finds its last whole pass; a generation is dropped when no snapshot needs it.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.memory import Block
from bigcons.storage.manifest import plain_disk_errors
from bigcons.storage.place import Place, StorePath
from bigcons.storage.places import place_of

_CHECKSUM_BYTES = 4

# To be raised whenever a snapshot holds other things: 1 had the triangles of T row by row, 2 no objectives of
# the starts.
SNAPSHOT_FORMAT = 3


class BlockArrays(Protocol):
    """Arrays by generation and block."""

    def read(self, generation: int, block: Block) -> np.ndarray:
        """Return the rows of a block, not to be changed."""
        ...

    def write(self, generation: int, block: Block, rows: np.ndarray) -> None:
        """Keep the rows of a block; a second write replaces the first as a whole."""
        ...

    def drop(self, generation: int) -> None:
        """Forget a generation; it need not be there."""
        ...


class MemoryBlocks:
    """Block arrays in the memory of this process."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], np.ndarray] = {}

    def read(self, generation: int, block: Block) -> np.ndarray:
        """Return the rows of a block, not to be changed."""
        return self._rows[generation, block.index]

    def write(self, generation: int, block: Block, rows: np.ndarray) -> None:
        """Keep the rows of a block."""
        self._rows[generation, block.index] = rows

    def drop(self, generation: int) -> None:
        """Forget a generation."""
        for key in [key for key in self._rows if key[0] == generation]:
            del self._rows[key]


class FileBlocks:
    """Block arrays as one file each, in a directory or a bucket that all workers reach.

    Files are read whole, not mapped, for mapped pages count as memory; each ends with a checksum.
    """

    def __init__(self, folder: StorePath | Place, n_columns: int, dtype: str = "<f4") -> None:
        self.folder = place_of(folder)
        self.n_columns = n_columns
        self.dtype = np.dtype(dtype)

    def read(self, generation: int, block: Block) -> np.ndarray:
        """Return the rows of a block; CorruptStoreError if they are not as they were written."""
        place = self._place(generation, block)
        content = place.read()  # a bytearray: kernels would be compiled again for read-only rows
        rows = memoryview(content)[:-_CHECKSUM_BYTES]
        expected = block.n_rows * self.n_columns * self.dtype.itemsize
        if len(rows) != expected or content[-_CHECKSUM_BYTES:] != _checksum(rows):
            raise CorruptStoreError(f"{place} is damaged; remove its folder and run without resuming.")
        return np.frombuffer(rows, self.dtype).reshape(block.n_rows, self.n_columns)

    def write(self, generation: int, block: Block, rows: np.ndarray) -> None:
        """Keep the rows of a block."""
        place = self._place(generation, block)
        content = np.ascontiguousarray(rows, self.dtype).data.cast("B")
        with plain_disk_errors(place):
            place.write(content, _checksum(content))

    def drop(self, generation: int) -> None:
        """Forget a generation."""
        (self.folder / f"generation-{generation}").remove()

    def _place(self, generation: int, block: Block) -> Place:
        return self.folder / f"generation-{generation}" / f"block-{block.index}"


class Snapshots:
    """The latest snapshot of a solve: small arrays and JSON facts, replaced as a whole.

    ``fingerprint`` says what the solve is of (parameters, data); a snapshot of another solve is refused.
    """

    def __init__(self, folder: StorePath | Place, fingerprint: Mapping[str, Any]) -> None:
        self.folder = place_of(folder)
        self._file = self.folder / "snapshot.npz"
        self.fingerprint = json.loads(json.dumps(dict(fingerprint), default=str))

    def save(self, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        """Replace the snapshot; it is sure to last when this returns."""
        head = json.dumps({"format": SNAPSHOT_FORMAT, "fingerprint": self.fingerprint, "facts": dict(facts)})
        content = io.BytesIO()
        np.savez(content, **{**arrays, "head": np.frombuffer(head.encode(), np.uint8)})  # type: ignore[arg-type]
        with plain_disk_errors(self._file):
            # no view of the buffer: Python 3.12.1 crashes where it collects one among the frames of an error
            self._file.write(content.getvalue(), durable=True)

    def exists(self) -> bool:
        """Tell whether there is a snapshot."""
        return self._file.is_file()

    def load(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Return arrays and facts of the snapshot, or None if there is none."""
        try:
            content = io.BytesIO(self._file.read())
        except FileNotFoundError:
            return None
        try:
            with np.load(content, allow_pickle=False) as members:
                arrays = {name: members[name] for name in members.files}
            head = json.loads(arrays.pop("head").tobytes())
        except Exception as error:
            raise CorruptStoreError(f"{self._file} is damaged; remove its folder and start anew.") from error
        found = head.get("format", 1)
        if found != SNAPSHOT_FORMAT:
            raise InvalidInputError(
                f"{self.folder} holds a solve in format {found} of another version of bigcons, this "
                f"one reads format {SNAPSHOT_FORMAT}; finish it with that version, or start without resuming."
            )
        if head["fingerprint"] != self.fingerprint:
            names = [n for n in self.fingerprint if head["fingerprint"].get(n) != self.fingerprint[n]]
            raise InvalidInputError(
                f"{self.folder} holds a solve with other {', '.join(names) or 'parameters'}; "
                "resume with the same parameters and data, or start without resuming."
            )
        return arrays, head["facts"]


def _checksum(content: memoryview) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")
