"""Writing a consensus: its arrays, block by block, and what the manifest says of the solve."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.memory import row_blocks
from bigcons.schema import CONSENSUS, ArraySpec
from bigcons.storage.arrays import create_array, create_group, open_array
from bigcons.storage.places import Place


class Written(NamedTuple):
    """What the manifest has to know of rows that were written."""

    first_chunk: int
    checksums: list[int]


class ConsensusRows:
    """The arrays of a consensus that is being made, writable from every thread and worker that reaches them.

    Blocks that do not share a chunk may be written at once, and a block again as it was.
    """

    def __init__(
        self, directory: Place, n_objects: int, n_clusters: int, chunk_rows: int, memberships: bool
    ) -> None:
        self.n_objects = n_objects
        self.n_clusters = n_clusters
        self.has_memberships = memberships
        self.chunk_rows = min(chunk_rows, n_objects)
        self._directory = directory
        self._arrays = self._create_arrays()

    def write(self, start: int, labels: np.ndarray, memberships: np.ndarray | None = None) -> Written:
        """Write rows as `ConsensusWriter.write` does; its `ConsensusWriter.note` wants what this returns."""
        self._check(start, labels, memberships)
        stop = start + len(labels)
        labels = np.ascontiguousarray(labels, dtype=np.int32)
        self._arrays["labels"][start:stop] = labels
        if memberships is not None:
            memberships = np.ascontiguousarray(memberships, dtype=np.float32)
            self._arrays["memberships"][start:stop] = memberships
        checksums = []
        for block in row_blocks(len(labels), self.chunk_rows):
            rows = slice(block.start, block.stop)
            checksums.append(rows_checksum(labels[rows], None if memberships is None else memberships[rows]))
        return Written(start // self.chunk_rows, checksums)

    def _check(self, start: int, labels: np.ndarray, memberships: np.ndarray | None) -> None:
        stop = start + len(labels)
        whole = start % self.chunk_rows == 0 and (stop % self.chunk_rows == 0 or stop == self.n_objects)
        if not whole or not 0 <= start < stop <= self.n_objects:
            raise InvalidInputError(
                f"rows {start} to {stop} are not whole chunks of {self.chunk_rows} among {self.n_objects}; "
                "write blocks that begin and end at chunk borders."
            )
        expected = (len(labels), self.n_clusters) if self.has_memberships else None
        found = None if memberships is None else memberships.shape
        if found != expected:
            raise InvalidInputError(f"memberships has shape {found}; pass {expected}.")
        if labels.dtype.kind not in "iu" or labels.min() < -1 or labels.max() >= self.n_clusters:
            raise InvalidInputError(
                f"labels of type {labels.dtype} go from {labels.min()} to {labels.max()}; pass integers "
                f"from 0 to {self.n_clusters - 1}, -1 where there is none."
            )

    def _create_arrays(self) -> dict[str, Any]:
        """Create the empty arrays of the schema, cut into chunks of ``chunk_rows`` rows."""
        create_group(self._directory)
        arrays = {}
        for name, spec in specs_of(self.has_memberships).items():
            shape = spec.shape_in({"n_objects": self.n_objects, "n_clusters": self.n_clusters})
            chunks = (self.chunk_rows, *shape[1:])
            arrays[name] = create_array(self._directory / name, spec, shape, chunks, spec.dtypes[0])
        return arrays

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_arrays"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        names = specs_of(self.has_memberships)
        self._arrays = {name: open_array(self._directory / name, read_only=False) for name in names}


class ConsensusWriter:
    """Writes a consensus block by block, in any order; made by ``Consensus.create``."""

    def __init__(self, rows: ConsensusRows) -> None:
        self.rows = rows
        self._checksums: list[int | None] = [None] * math.ceil(rows.n_objects / rows.chunk_rows)
        self._description: dict[str, Any] = {}

    def write(self, start: int, labels: np.ndarray, memberships: np.ndarray | None = None) -> None:
        """Write rows from ``start`` on: ``labels`` ``(rows,)`` and ``memberships`` ``(rows, n_clusters)``.

        A consensus of labels only takes no memberships.

        The rows must be whole chunks: begin at a multiple of ``chunk_rows``, end at one or at the last row.
        """
        self.note(self.rows.write(start, labels, memberships))

    def note(self, written: Written) -> None:
        """Take note of rows that ``rows.write`` wrote, here or elsewhere."""
        last = written.first_chunk + len(written.checksums)
        self._checksums[written.first_chunk : last] = written.checksums

    def describe(
        self,
        *,
        history: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        results: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        """Set what the manifest says of the solve; values that JSON cannot hold are described in words."""
        if history is not None:
            self._description["history"] = _as_json({name: list(values) for name, values in history.items()})
        parts = {"parameters": parameters, "results": results, "provenance": provenance}
        self._description |= {name: _as_json(value) for name, value in parts.items() if value is not None}

    def body(self) -> dict[str, Any]:
        """Return the manifest's body; raises InvalidInputError if some rows were never written."""
        n_missing = self._checksums.count(None)
        if n_missing:
            raise InvalidInputError(
                f"{n_missing} of {len(self._checksums)} blocks were not written; write every row."
            )
        return {
            "n_objects": self.rows.n_objects,
            "n_clusters": self.rows.n_clusters,
            "has_memberships": self.rows.has_memberships,
            "chunk_rows": self.rows.chunk_rows,
            "checksums": self._checksums,
            "history": {},
            "parameters": {},
            "results": {},
            "provenance": {},
            **self._description,
        }


def fit_results(model: Any) -> dict[str, Any]:
    """Return the small results of a fitted clusterer by name: objective, those of the starts, passes, ..."""
    names = ("objective", "start_objectives", "gap", "n_clusters", "n_passes", "n_steps", "converged")
    found = {name: getattr(model, f"{name}_", None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def specs_of(memberships: bool) -> dict[str, ArraySpec]:
    """Return the arrays of a consensus, with memberships or without."""
    return {name: spec for name, spec in CONSENSUS.items() if memberships or name != "memberships"}


def rows_checksum(labels: np.ndarray, memberships: np.ndarray | None) -> int:
    """Return the crc32 of the rows' bytes, little-endian and C-contiguous."""
    checksum = zlib.crc32(labels.astype("<i4").data)
    return checksum if memberships is None else zlib.crc32(memberships.astype("<f4").data, checksum)


def _as_json(value: Any) -> Any:
    """Turn ``value`` into what JSON holds: NaN and infinity into null, other objects into a text."""
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    if isinstance(value, np.generic):
        return _as_json(value.item())
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {value.dtype}"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return repr(value)
