"""Checkpoints of a long solve: block arrays by generation, and a snapshot of everything else.

Nothing is modified in place. A pass reads one generation of block arrays and writes the next, so that tasks
are idempotent and a killed run resumes after its last complete pass. The pass before is kept too, with its
snapshot: if the last one is damaged, the run goes on from there. Generations that no snapshot refers to are
dropped.

Every file of blocks ends with a seal: the run it belongs to, its generation, its number and a checksum. A
file that is damaged, or whole but not the one asked for, is refused. A snapshot holds a hash of all its
contents, and is refused if any of them is another.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.interface import Place, StorePath
from bigcons.disk.places import disk_errors, place_of
from bigcons.disk.reading import MOST_BYTES, parse_json
from bigcons.errors import CorruptStoreError, InvalidInputError
from bigcons.memory import Block

logger: logging.Logger = logging.getLogger("bigcons")

SNAPSHOT, SNAPSHOT_BEFORE = "snapshot.npz", "snapshot-before.npz"
SNAPSHOT_FORMAT = 9
"""Incremented whenever the content of snapshots or blocks changes."""
_START_OVER = "start over with overwrite=True (--overwrite)."


class Seal:
    """What a file of a run ends with: which run, generation and number it is of, and a checksum of it all."""

    _FACTS = struct.Struct("<16sqq")
    _CHECKSUM = struct.Struct("<I")
    n_bytes: int = _FACTS.size + _CHECKSUM.size

    def __init__(self, run: bytes, generation: int, number: int) -> None:
        self.generation = generation
        self.number = number
        self._facts = self._FACTS.pack(run, generation, number)

    def of(self, checksum: int) -> bytes:
        """Return the seal of content with this CRC-32."""
        return self._facts + self._CHECKSUM.pack(zlib.crc32(self._facts, checksum))

    def fault(self, found: bytes | bytearray, checksum: int) -> str | None:
        """Return what is wrong with content of this CRC-32 that ends with the seal ``found``, if anything."""
        if len(found) != self.n_bytes:
            return "is truncated"
        facts, own = found[: self._FACTS.size], found[self._FACTS.size :]
        if self._CHECKSUM.pack(zlib.crc32(facts, checksum)) != own:
            return "is damaged"
        if facts[:16] != self._facts[:16]:
            return "is of another run"
        if facts != self._facts:
            _, generation, number = self._FACTS.unpack(facts)
            return (
                f"is block {number} of generation {generation}, "
                f"not block {self.number} of generation {self.generation}"
            )
        return None

    def read(self, place: Place, at_most: int = MOST_BYTES) -> tuple[memoryview, str | None]:
        """Return the content of a file before its seal, and what is wrong with the file, if anything.

        It may be written to: read-only arrays would compile the kernels again.
        """
        try:
            content = memoryview(place.read(at_most))
        except FileNotFoundError:
            return memoryview(b""), f"{place} is missing"
        except CorruptStoreError as error:
            return memoryview(b""), str(error).rpartition(";")[0]
        rows, seal = content[: -self.n_bytes], content[-self.n_bytes :]
        fault = self.fault(bytes(seal), zlib.crc32(rows))
        return rows, None if fault is None else f"{place} {fault}"


def key_of(facts: Any) -> bytes:
    """Return 16 bytes that identify a run by what it depends on, JSON-serializable."""
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).digest()


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
        if rows is None:
            raise CorruptStoreError(f"{fault}; {_START_OVER}", path=self._place(generation, block))
        return rows

    def write(self, generation: int, block: Block, rows: np.ndarray) -> None:
        """Store the rows of a block; a second write replaces the first atomically."""
        place = self._place(generation, block)
        content = np.ascontiguousarray(rows, self.dtype).data.cast("B")
        with disk_errors(place):
            place.write(content, self._seal(generation, block).of(zlib.crc32(content)))

    def drop(self, generations: Sequence[int]) -> None:
        """Remove generations."""
        for generation in generations:
            self._folder(generation).remove()

    def n_kept(self, generation: int) -> int:
        """Return how many blocks of a generation there are."""
        return sum(name.startswith("block-") for name in self._folder(generation).names())

    def fault(self, generation: int, block: Block) -> str | None:
        """Return what is wrong with a block, with its path; None if it is whole, of plausible numbers."""
        rows, fault = self._load(generation, block)
        # no number that a run writes to a float32 block is larger; fourth powers of what is would overflow
        if rows is not None and rows.dtype.kind == "f" and not (np.abs(rows) <= 2.0**24).all():
            fault = f"{self._place(generation, block)} has numbers that are not finite or too large"
        return fault

    def _load(self, generation: int, block: Block) -> tuple[np.ndarray | None, str | None]:
        place = self._place(generation, block)
        expected = block.n_rows * self.n_columns * self.dtype.itemsize
        rows, fault = self._seal(generation, block).read(place, expected + Seal.n_bytes)
        if fault is None and len(rows) != expected:
            fault = f"{place} has {len(rows)} bytes of rows, not {expected}"
        if fault is not None:
            return None, fault
        return np.frombuffer(rows, self.dtype).reshape(block.n_rows, self.n_columns), None

    def _seal(self, generation: int, block: Block) -> Seal:
        return Seal(self.run, generation, block.index)

    def _folder(self, generation: int) -> Place:
        return self.folder / f"generation-{generation}"

    def _place(self, generation: int, block: Block) -> Place:
        return self._folder(generation) / f"block-{block.index}"


class Snapshot(NamedTuple):
    """A snapshot as it was read."""

    is_last: bool
    """Whether it is of the last pass, not of the one before."""
    arrays: dict[str, np.ndarray]
    head: dict[str, Any]
    """Its format and fingerprint, and its facts."""

    @property
    def facts(self) -> dict[str, Any]:
        """The JSON facts that were saved."""
        return dict(self.head["facts"])


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
        text = json.dumps({**head, "hash": _hash_of(arrays, json.loads(json.dumps(head)))})
        content = io.BytesIO()
        np.savez(content, **{**arrays, "head": np.frombuffer(text.encode(), np.uint8)})  # type: ignore[arg-type]
        with disk_errors(self._file):
            # getvalue, not a view: Python 3.12.1 crashes on collecting a view held by an error's frames
            self._file.write(content.getvalue(), durable=True)

    def exists(self) -> bool:
        """Return whether there is a snapshot."""
        return self._file.is_file() or self._before.is_file()

    def fingerprint_kept(self) -> dict[str, Any] | None:
        """Return the fingerprint of the last snapshot that is whole, or None without a snapshot."""
        return next((found.head["fingerprint"] for found in self._whole()), None)

    def load(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Return arrays and facts of the last snapshot that is whole, or None without one; see `kept`."""
        return next(((found.arrays, found.facts) for found in self.kept()), None)

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
                yield Snapshot(file is self._file, *found)
        if damage is not None and not n_whole:
            raise damage

    def verify(self) -> tuple[int, int]:
        """Check the seals of all blocks of the last pass; return passes and blocks.

        Raises CorruptStoreError if its snapshot or one of its blocks is lost or damaged.
        """
        found = _read_snapshot(self._file)
        if found is None:
            raise self.damaged("the snapshot is missing")
        facts = found[1]["facts"]
        run, generation, n_blocks = (
            key_of(found[1]["fingerprint"]),
            facts.get("generation"),
            facts.get("n_blocks"),
        )
        n_passes = len(facts.get("records") or ())
        for number in range(n_blocks or 0):
            place = self.folder / f"generation-{generation}" / f"block-{number}"
            if fault := Seal(run, generation, number).read(place)[1]:
                raise self.damaged(fault, n_passes)
        return n_passes, n_blocks or 0

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
        content = io.BytesIO(file.read())
    except FileNotFoundError:
        return None
    try:
        with zipfile.ZipFile(content) as archive:
            if any(entry.file_size != entry.compress_size for entry in archive.infolist()):
                raise ValueError("compressed")
        with np.load(content, allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
        head = parse_json(arrays.pop("head").tobytes(), file)
        if not all(isinstance(head[name], dict) for name in ("fingerprint", "facts")):
            raise ValueError("no fingerprint")
        if head.get("format") == SNAPSHOT_FORMAT and head.pop("hash") != _hash_of(arrays, head):
            raise ValueError("another hash")
    except Exception as error:  # damaged archives raise errors of many types
        raise CorruptStoreError(f"{file} is damaged; {_START_OVER}", path=file) from error
    return arrays, head


def _hash_of(arrays: Mapping[str, np.ndarray], head: Mapping[str, Any]) -> str:
    """Return a hash of everything in a snapshot."""
    digest = hashlib.blake2b(json.dumps(head, sort_keys=True).encode(), digest_size=16)
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any], show: Callable[[Any], str] = str) -> str:
    """Describe how the parameters and data of a stored run differ from those wanted; "" if they do not.

    ``show`` turns a value into text; of data, which have a checksum, it is said that they are others, and of
    names, which differ. Entries that the stored run lacks are named if nothing else differs.
    """

    def one(name: str) -> str:
        if name.endswith("_checksum"):
            return f"other {name.removesuffix('_checksum')}"
        values: list[Any] = [entries.get(name) for entries in (found, wanted)]
        if all(_are_names(names) for names in values):
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
