"""What a store consists of by its manifest: pieces of arrays, each with its checksum, whole or not."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import CorruptStoreError, StoreError
from bigcons.memory import row_blocks
from bigcons.schema import CONSENSUS, ENSEMBLE, PAIRS, TRUST, ArraySpec
from bigcons.storage.arrays import SharedChunks, create_array, open_array
from bigcons.storage.commit import load_manifest
from bigcons.storage.interface import Place
from bigcons.storage.places import place_of


class Array(NamedTuple):
    """An array as its schema and the manifest determine it."""

    spec: ArraySpec
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype

    def keys(self) -> Iterator[str]:
        """Yield the keys of all chunks."""
        grid = (range(-(-size // chunk)) for size, chunk in zip(self.shape, self.chunks, strict=True))
        return (f"c/{'/'.join(map(str, index))}" for index in itertools.product(*grid))


class Piece(NamedTuple):
    """Parts of arrays that one checksum covers, one after another."""

    arrays: tuple[str, ...]
    part: tuple[slice, ...]
    checksum: int
    rows: tuple[int, int] | None = None
    """The range of objects, where known."""

    def __str__(self) -> str:
        start, stop = self.rows or (self.part[0].start, self.part[0].stop)
        columns = f", columns {self.part[1].start} to {self.part[1].stop}" if len(self.part) > 1 else ""
        of = "rows" if self.rows else "entries"
        return f"{of} {start} to {stop} of {' and '.join(self.arrays)}{columns}"

    def is_proven_by(self, values: Sequence[np.ndarray] | None) -> bool:
        """Return whether values have the checksum."""
        checksum = 0
        for array in values or ():
            content = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            checksum = zlib.crc32(content.data.cast("B") if content.size else b"", checksum)
        return values is not None and checksum == self.checksum


@dataclass
class Layout:
    """All that a store consists of, by its manifest."""

    kind: str
    data: Place
    body: dict[str, Any]
    arrays: dict[str, Array] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    suffix: str = ""
    """What the names of the arrays of an ensemble end with."""
    elsewhere: dict[str, Place] = field(default_factory=dict)
    """Arrays that hold chunks of earlier generations, by key."""


def layout_of(place: Place, kind: str) -> Layout:
    """Return what the manifest says of a store; raises CorruptStoreError if it is inconsistent."""
    data, body, folders = load_manifest(place, kind)
    layout = Layout(kind, data, body)
    try:
        {"ensemble": _add_ensemble, "pairs": _add_pairs, "consensus": _add_consensus}[kind](layout, folders)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise CorruptStoreError(f"{place} has an inconsistent manifest ({error}).") from error
    return layout


def _add_ensemble(layout: Layout, folders: list[Place]) -> None:
    body = layout.body
    dtype = np.dtype(body["dtype"])
    name = "memberships" if dtype.kind == "f" else "labels"
    layout.suffix = f"-{int(body['generation'])}"
    spec, stored = ENSEMBLE[name], name + layout.suffix
    shape = spec.shape_in(body)
    chunks = (int(body["chunk_rows"]), int(body["chunk_columns"]))
    layout.arrays[stored] = Array(spec, shape, chunks, dtype)
    checksums = np.array(body["checksums"], np.int64)
    shared = SharedChunks.from_manifest(body.get("shared"), folders, checksums.shape)
    layout.elsewhere = shared.arrays(lambda generation: f"{name}-{generation}")
    for block, row in zip(row_blocks(shape[0], chunks[0]), checksums.tolist(), strict=True):
        for columns, checksum in zip(row_blocks(shape[1], chunks[1]), row, strict=True):
            part = (slice(block.start, block.stop), slice(columns.start, columns.stop))
            layout.pieces.append(Piece((stored,), part, checksum, (block.start, block.stop)))


def _add_pairs(layout: Layout, _: list[Place]) -> None:
    body = layout.body
    counts, length = np.dtype(body["counts_dtype"]), int(body["chunk_entries"])
    dtypes = {"indptr": "int64", "indices": "int32", "n_agree": body.get("agree_dtype", counts)}
    for name, spec in PAIRS.items():
        shape = spec.shape_in(body)
        chunks = (min(length, max(shape[0], 1)),)
        layout.arrays[name] = Array(spec, shape, chunks, np.dtype(dtypes.get(name, counts)))
        for chunk, checksum in zip(row_blocks(shape[0], length), body["checksums"][name], strict=True):
            rows = (chunk.start, chunk.stop) if name == "indptr" else None
            layout.pieces.append(Piece((name,), (slice(chunk.start, chunk.stop),), checksum, rows))


def _add_consensus(layout: Layout, _: list[Place]) -> None:
    body = layout.body
    trust = body.get("trust")
    groups = [("labels", *(["memberships"] if body.get("has_memberships", True) else []))]
    groups += [] if trust is None else [tuple(TRUST)]
    checksums = [body["checksums"], *([] if trust is None else [trust["checksums"]])]
    for names, known in zip(groups, checksums, strict=True):
        for name in names:
            spec = {**CONSENSUS, **TRUST}[name]
            shape = spec.shape_in(body)
            chunks = (int(body["chunk_rows"]), *shape[1:])
            layout.arrays[name] = Array(spec, shape, chunks, np.dtype(spec.dtypes[0]))
        for block, checksum in zip(row_blocks(body["n_objects"], body["chunk_rows"]), known, strict=True):
            rows = (block.start, block.stop)
            layout.pieces.append(Piece(names, (slice(*rows),), checksum, rows))


class Stored:
    """The pieces of a damaged store that are still whole."""

    def __init__(self, layout: Layout, scratch: Path) -> None:
        """Prepare to read with the stored metadata of each array and, where these fail, with their own."""
        self.derived: list[Piece] = []
        """Those read whose labels follow from their memberships."""
        self._readings: list[dict[str, Any]] = [{}, {}]
        for name, array in layout.arrays.items():
            fresh = place_of(scratch) / name
            create_array(fresh, *array)
            stored = dict.fromkeys(array.keys(), layout.data / name) | layout.elsewhere
            for reading, place, chunks in (
                (self._readings[0], layout.data / name, layout.elsewhere), (self._readings[1], fresh, stored)
            ):  # fmt: skip
                try:
                    opened = open_array(place, chunks)
                except (StoreError, OSError):
                    continue
                if (opened.shape, opened.dtype) == (array.shape, array.dtype):
                    reading[name] = opened

    def read(self, piece: Piece) -> list[np.ndarray] | None:
        """Return a piece if it has its checksum, else None."""
        for reading in self._readings:
            parts = [part_of(reading.get(name), piece.part) for name in piece.arrays]
            if piece.arrays == ("labels", "memberships") and parts[1] is not None:
                candidates = [[labels, parts[1]] for labels in (parts[0], *_labels_of(parts[1]))]
            else:
                candidates = [parts]
            for values in candidates:
                if all(part is not None for part in values) and piece.is_proven_by(values):
                    if values[0] is not parts[0]:
                        self.derived.append(piece)
                    return values
        return None


def part_of(array: Any, part: tuple[slice, ...]) -> Any:
    """Return part of an array, None if it cannot be read."""
    if array is None:
        return None
    try:
        return np.ascontiguousarray(array[part])
    except MemoryError:
        raise
    except Exception:  # codecs raise errors of many types, and disks that fail OSError
        return None


def _labels_of(memberships: np.ndarray) -> Iterator[np.ndarray]:
    """Yield labels that memberships may have: of the largest, and -1 where they are uniform."""
    labels = memberships.argmax(axis=1).astype(np.int32)
    yield labels
    uniform = (memberships == np.float32(1.0 / memberships.shape[1])).all(axis=1)
    yield np.where(uniform, np.int32(-1), labels)
