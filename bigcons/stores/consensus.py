"""Consensus: a stored solve, with labels, memberships, history, parameters and provenance.

A Zarr v3 group of arrays cut into the same row chunks: labels, and memberships if the method has them.
Every byte is covered twice: by the crc32c of its chunk, and by the checksum of its rows in the manifest,
which is committed last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigcons.errors import CorruptStoreError, InvalidInputError, StoreError, StoreNotFoundError
from bigcons.memory import Block, format_size, row_blocks
from bigcons.schema import CONSENSUS
from bigcons.storage.arrays import open_array
from bigcons.storage.commit import load_manifest, new_store, write_manifest
from bigcons.storage.places import Place, StorePath, place_of
from bigcons.stores.consensus_writer import (
    ConsensusRows,
    ConsensusWriter,
    fit_results,
    rows_checksum,
    specs_of,
)
from bigcons.stores.exporting import Columns, export_columns
from bigcons.stores.facts import facts_table

KIND = "consensus"
CHUNK_ROWS = 65_536

_RESTORE = "solve again or restore the store from a copy."


class Consensus:
    """A consensus on disk; nothing is read before it is asked for.

    Attributes: ``path``, ``n_objects``, ``n_clusters`` (won or not), ``has_memberships`` (methods without
    soft output store labels only), ``chunk_rows``, ``history`` (lists by name, one entry per step),
    ``parameters`` (of the method), ``results`` (objective, gap, passes, ...) and ``provenance`` (what it was
    made from, and by what).
    """

    def __init__(self, place: Place, body: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        self.path = str(place)
        self.n_objects: int = body["n_objects"]
        self.n_clusters: int = body["n_clusters"]
        self.has_memberships: bool = body.get("has_memberships", True)
        self.chunk_rows: int = body["chunk_rows"]
        self.history: dict[str, list[Any]] = body["history"]
        self.parameters: dict[str, Any] = body["parameters"]
        self.results: dict[str, Any] = body["results"]
        self.provenance: dict[str, Any] = body["provenance"]
        self._checksums: list[int] = body["checksums"]
        self._arrays = arrays

    @classmethod
    def open(cls, path: StorePath) -> Consensus:
        """Open the consensus at ``path`` for reading.

        Raises StoreNotFoundError if there is none, CorruptStoreError if the arrays are not the ones
        its manifest describes.
        """
        place = place_of(path)
        data, body, _ = load_manifest(place, KIND)
        return cls(place, body, _open_arrays(data, body))

    @classmethod
    def write(
        cls,
        path: StorePath,
        labels: np.ndarray,
        memberships: np.ndarray | None,
        *,
        history: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        results: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
        chunk_rows: int = CHUNK_ROWS,
        overwrite: bool = False,
    ) -> Consensus:
        """Store ``labels`` ``(n_objects,)`` and ``memberships`` ``(n_objects, n_clusters)`` at ``path``.

        With ``memberships`` None it holds labels only. Memberships that can be sliced are read by blocks.
        """
        labels = np.asarray(labels)
        if memberships is not None and not hasattr(memberships, "shape"):
            memberships = np.asarray(memberships)
        shape = None if memberships is None else memberships.shape
        if labels.ndim != 1 or (shape is not None and (len(shape) != 2 or labels.shape != shape[:1])):
            raise InvalidInputError(
                f"labels has shape {labels.shape} and memberships {shape}; "
                "pass (n_objects,) and (n_objects, n_clusters)."
            )
        n_clusters = int(labels.max(initial=0)) + 1 if shape is None else shape[1]
        with cls.create(
            path,
            n_objects=len(labels),
            n_clusters=n_clusters,
            chunk_rows=chunk_rows,
            overwrite=overwrite,
            memberships=memberships is not None,
        ) as writer:
            writer.describe(history=history, parameters=parameters, results=results, provenance=provenance)
            for block in row_blocks(len(labels), chunk_rows):
                rows = slice(block.start, block.stop)
                writer.write(block.start, labels[rows], None if memberships is None else memberships[rows])
        return cls.open(path)

    @classmethod
    def from_estimator(
        cls,
        path: StorePath,
        model: Any,
        *,
        provenance: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> Consensus:
        """Store what a fitted consensus clusterer found, with its parameters and its history."""
        if not hasattr(model, "labels_"):
            raise InvalidInputError(f"{type(model).__name__} has no labels_ yet; fit it before storing it.")
        return cls.write(
            path,
            model.labels_,
            getattr(model, "memberships_", None),
            history=getattr(model, "history_", None),
            parameters={"method": type(model).__name__, **model.get_params(deep=False)},
            results=fit_results(model),
            provenance=provenance,
            overwrite=overwrite,
        )

    @classmethod
    @contextmanager
    def create(
        cls,
        path: StorePath,
        *,
        n_objects: int,
        n_clusters: int,
        chunk_rows: int = CHUNK_ROWS,
        overwrite: bool = False,
        memberships: bool = True,
    ) -> Iterator[ConsensusWriter]:
        """Yield a writer by row blocks; the store appears at ``path`` when the ``with`` block ends well.

        Without ``memberships`` it stores labels only.
        If it ends with an error, or before every row was written, nothing is left behind and a store
        that was at ``path`` before stays as it was.
        """
        if n_objects < 1 or n_clusters < 1:
            raise InvalidInputError(
                f"a consensus of n_objects={n_objects} and n_clusters={n_clusters} holds nothing; "
                "both must be at least 1."
            )
        with new_store(path, overwrite) as directory:
            writer = ConsensusWriter(ConsensusRows(directory, n_objects, n_clusters, chunk_rows, memberships))
            yield writer
            write_manifest(directory, KIND, writer.body())

    @property
    def labels(self) -> np.ndarray:
        """All labels, ``(n_objects,)`` int32, -1 for objects no partition labeled. Reads the array."""
        return self.read_labels(0, self.n_objects)

    @property
    def memberships(self) -> np.ndarray:
        """All memberships, ``(n_objects, n_clusters)`` float32, rows sum to 1. Reads the array."""
        return self.read_memberships(0, self.n_objects)

    @property
    def label_rows(self) -> StoredRows:
        """The labels to be read by slices, for criteria that need no more than a block at a time."""
        return StoredRows(self.read_labels, (self.n_objects,))

    @property
    def membership_rows(self) -> StoredRows:
        """The memberships to be read by slices of rows."""
        return StoredRows(self.read_memberships, (self.n_objects, self.n_clusters))

    def read_labels(self, start: int, stop: int) -> np.ndarray:
        """Return the labels of a range of rows, ``(rows,)`` int32."""
        return self._read("labels", start, stop)

    def read_memberships(self, start: int, stop: int) -> np.ndarray:
        """Return the memberships of a range of rows, ``(rows, n_clusters)`` float32.

        Raises InvalidInputError if the consensus has labels only.
        """
        if not self.has_memberships:
            raise InvalidInputError(
                f"{self.path} holds labels only, for its method has no memberships; "
                "read its labels, or solve by a method with soft output."
            )
        return self._read("memberships", start, stop)

    def export(self, path: StorePath, *, memberships: bool = False, overwrite: bool = False) -> None:
        """Write the labels to a .parquet, .csv or .npy on a disk, in the order of the objects.

        The column ``label`` is int32, -1 for objects no partition labeled; ``memberships`` adds float32
        columns ``cluster_0``, ``cluster_1``, ... An .npy is the array of labels ``(n_objects,)``, with
        memberships one of records with these fields. Memory is that of a few blocks; the file is there as a
        whole or not at all. One of labels alone can be imported, as an ensemble of one partition.

        Raises InvalidInputError for another suffix and for memberships the consensus has not,
        StoreExistsError if there is something at ``path``; with ``overwrite`` a file there is replaced.
        """
        if memberships:
            self.read_memberships(0, 0)  # refuses a consensus without any
        clusters = range(self.n_clusters if memberships else 0)
        dtypes = {"label": np.dtype(np.int32)} | {f"cluster_{k}": np.dtype(np.float32) for k in clusters}
        columns = Columns(self.n_objects, dtypes, self._columns(memberships=memberships))
        export_columns(columns, path, overwrite=overwrite)

    def _columns(self, *, memberships: bool) -> Iterator[list[np.ndarray]]:
        """Yield the labels ``(rows,)`` of each block and, if asked for, the memberships by cluster."""
        for block in self.blocks():
            labels = self.read_labels(block.start, block.stop)
            soft = self.read_memberships(block.start, block.stop).T if memberships else ()
            yield [labels, *map(np.ascontiguousarray, soft)]

    def blocks(self, rows: int | None = None) -> list[Block]:
        """Cut the objects into blocks of ``rows`` rows, by default one chunk each."""
        return row_blocks(self.n_objects, rows or self.chunk_rows)

    def info(self) -> dict[str, Any]:
        """Return what is known of the consensus without reading its arrays; fit for JSON."""
        return {
            "kind": KIND,
            "path": self.path,
            "n_objects": self.n_objects,
            "n_clusters": self.n_clusters,
            "has_memberships": self.has_memberships,
            "chunk_rows": self.chunk_rows,
            "n_bytes": place_of(self.path).n_bytes(),
            "results": self.results,
            "parameters": self.parameters,
            "provenance": self.provenance,
        }

    def verify(self) -> dict[str, Any]:
        """Read every row, compare its checksum and its values with the promise, and report.

        Returns ``{"kind", "path", "n_objects", "n_blocks", "n_unlabeled"}``; raises CorruptStoreError at
        the first block that is not as written, or whose memberships leave the simplex.
        """
        n_unlabeled = 0
        for block, checksum in zip(self.blocks(), self._checksums, strict=True):
            labels = self.read_labels(block.start, block.stop)
            memberships = self.read_memberships(block.start, block.stop) if self.has_memberships else None
            if rows_checksum(labels, memberships) != checksum:
                raise self._corrupt(block.start, block.stop, "differ from their checksum")
            labeled = labels >= 0
            if (labels >= self.n_clusters).any():
                raise self._corrupt(block.start, block.stop, "are no labels of the clusters")
            if memberships is not None and not _on_simplex(memberships[labeled]):
                raise self._corrupt(block.start, block.stop, "are no memberships of the clusters")
            n_unlabeled += int(np.count_nonzero(~labeled))
        return {
            "kind": KIND,
            "path": self.path,
            "n_objects": self.n_objects,
            "n_blocks": len(self._checksums),
            "n_unlabeled": n_unlabeled,
        }

    def _read(self, name: str, start: int, stop: int) -> np.ndarray:
        if not 0 <= start <= stop <= self.n_objects:
            raise InvalidInputError(
                f"rows {start} to {stop} do not lie in a consensus of n_objects={self.n_objects}; "
                f"ask for 0 <= start <= stop <= {self.n_objects}."
            )
        try:
            rows = np.ascontiguousarray(self._arrays[name][start:stop])
        except StoreError:
            raise
        except Exception as error:  # a codec's own kind of error, whatever the codec
            raise self._corrupt(start, stop, f"cannot be decoded ({type(error).__name__})") from error
        if (rows == CONSENSUS[name].fill_value(rows.dtype)).any():
            raise self._corrupt(start, stop, "have lost a chunk")
        return rows

    def _corrupt(self, start: int, stop: int, what: str) -> CorruptStoreError:
        return CorruptStoreError(f"{self.path}: rows {start} to {stop} {what}; {_RESTORE}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Consensus.open, (self.path,)

    def __repr__(self) -> str:
        method = self.parameters.get("method", "consensus")
        return f"<Consensus by {method}: {self.n_objects:,} objects, {self.n_clusters} clusters, {self.path}>"

    def _repr_html_(self) -> str:
        won = self.results.get("n_clusters", self.n_clusters)
        facts = {
            "objects": f"{self.n_objects:,}",
            "clusters": won if won == self.n_clusters else f"{won} of {self.n_clusters} win objects",
            "size": format_size(self.info()["n_bytes"]),
            **self.results,
            **self.parameters,
        }
        facts.pop("n_clusters", None)  # said above
        return facts_table(f"Consensus {self.path}", facts)


@dataclass(frozen=True)
class StoredRows:
    """An array of a consensus whose rows are read when it is sliced, ``rows[start:stop]``."""

    read: Callable[[int, int], np.ndarray]
    shape: tuple[int, ...]

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        return self.read(start, stop)


def _open_arrays(directory: Place, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Open the arrays of the schema; raises CorruptStoreError if they are not those of the manifest."""
    arrays = {}
    for name, spec in specs_of(sizes.get("has_memberships", True)).items():
        try:
            arrays[name] = open_array(directory / name)
        except StoreNotFoundError as error:
            raise CorruptStoreError(f"{directory} has lost its array {name!r}; {_RESTORE}") from error
        found = (arrays[name].shape, str(arrays[name].dtype))
        if found != (spec.shape_in(sizes), spec.dtypes[0]):
            raise CorruptStoreError(
                f"{directory}: array {name!r} has shape and type {found} but the manifest says "
                f"{(spec.shape_in(sizes), spec.dtypes[0])}; {_RESTORE}"
            )
    return arrays


def _on_simplex(memberships: np.ndarray) -> bool:
    if not len(memberships):
        return True
    sums = memberships.sum(axis=1, dtype=np.float64)
    return bool((memberships >= 0).all() and np.abs(sums - 1).max() < 1e-3)
