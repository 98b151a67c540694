"""What a long solve keeps between passes: arrays by block, and snapshots of the rest.

Nothing is changed in place. A pass reads one generation of block arrays and writes the next, so that a task
may run twice and a killed run finds its last whole pass; a generation is dropped when no snapshot needs it.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.memory import Block
from bigcons.stores.manifest import plain_disk_errors

_CHECKSUM_BYTES = 4


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
    """Block arrays as one file each, in a directory that all workers reach.

    Files are read whole, not mapped, for mapped pages count as memory; each ends with a checksum.
    """

    def __init__(self, directory: str | os.PathLike[str], n_columns: int, dtype: str = "<f4") -> None:
        self.directory = Path(directory)
        self.n_columns = n_columns
        self.dtype = np.dtype(dtype)

    def read(self, generation: int, block: Block) -> np.ndarray:
        """Return the rows of a block; CorruptStoreError if they are not as they were written."""
        path = self._path(generation, block)
        content = bytearray(
            path.stat().st_size
        )  # not bytes: kernels would be compiled again for read-only rows
        with path.open("rb") as file:
            file.readinto(content)
        rows = memoryview(content)[:-_CHECKSUM_BYTES]
        expected = block.n_rows * self.n_columns * self.dtype.itemsize
        if len(rows) != expected or content[-_CHECKSUM_BYTES:] != _checksum(rows):
            raise CorruptStoreError(f"{path} is damaged; remove its folder and run without resuming.")
        return np.frombuffer(rows, self.dtype).reshape(block.n_rows, self.n_columns)

    def write(self, generation: int, block: Block, rows: np.ndarray) -> None:
        """Keep the rows of a block."""
        path = self._path(generation, block)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = np.ascontiguousarray(rows, self.dtype).data.cast("B")
        with plain_disk_errors(path):
            _replace(path, content, _checksum(content))

    def drop(self, generation: int) -> None:
        """Forget a generation."""
        shutil.rmtree(self.directory / f"generation-{generation}", ignore_errors=True)

    def _path(self, generation: int, block: Block) -> Path:
        return self.directory / f"generation-{generation}" / f"block-{block.index}"


class Snapshots:
    """The latest snapshot of a solve: small arrays and JSON facts, replaced as a whole.

    ``fingerprint`` says what the solve is of (parameters, data); a snapshot of another solve is refused.
    """

    def __init__(self, directory: str | os.PathLike[str], fingerprint: Mapping[str, Any]) -> None:
        self.path = Path(directory) / "snapshot.npz"
        self.fingerprint = json.loads(json.dumps(dict(fingerprint), default=str))

    def save(self, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        """Replace the snapshot; it is on the disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        head = json.dumps({"fingerprint": self.fingerprint, "facts": dict(facts)})
        with plain_disk_errors(self.path), temporary.open("wb") as file:
            np.savez(file, **{**arrays, "head": np.frombuffer(head.encode(), np.uint8)})  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)

    def load(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Return arrays and facts of the snapshot, or None if there is none."""
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
            head = json.loads(arrays.pop("head").tobytes())
        except Exception as error:
            raise CorruptStoreError(f"{self.path} is damaged; remove its folder and start anew.") from error
        if head["fingerprint"] != self.fingerprint:
            names = [n for n in self.fingerprint if head["fingerprint"].get(n) != self.fingerprint[n]]
            raise InvalidInputError(
                f"{self.path.parent} holds a solve with other {', '.join(names) or 'parameters'}; "
                "resume with the same parameters and data, or start without resuming."
            )
        return arrays, head["facts"]


def _checksum(content: memoryview) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")


def _replace(path: Path, *parts: Any) -> None:
    """Write ``parts`` under a name of this process' own, then give it the final name."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{id(parts)}.tmp")
    with temporary.open("wb") as file:
        for part in parts:
            file.write(part)
    temporary.replace(path)
