"""The results of a solve, block by block: finished in tasks, then kept in memory or written to a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple, TypeVar

import numpy as np

from bigcons.execution.engine import Engine
from bigcons.memory import Block
from bigcons.stores.consensus import ConsensusWriter, Written
from bigcons.stores.ensemble import Ensemble

Use = TypeVar("Use")


class Results(NamedTuple):
    """The results of all blocks, read and finished by tasks on an engine."""

    ensemble: Ensemble
    unlabeled: np.ndarray
    """Sorted indices of the objects without any label: they get label -1 and uniform memberships."""
    n_clusters: int
    """The maximum number of clusters."""
    soft: bool
    """Whether memberships are read, of which the largest is the label; else labels, where -1 stays."""
    read: Callable[[Block], np.ndarray]
    """Memberships (rows, n_clusters) or labels (rows,) of a block."""
    engine: Engine

    def hold(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return labels (n_objects,) int32 and, if soft, memberships (n_objects, n_clusters) float32."""
        n_objects = self.ensemble.n_objects
        found = np.empty(n_objects, np.int32)
        soft = np.empty((n_objects, self.n_clusters), np.float32) if self.soft else None
        for block, (labels, rows) in self._map(lambda _, labels, rows: (labels, rows)):
            found[block.start : block.stop] = labels
            if soft is not None:
                soft[block.start : block.stop] = rows
        return found, soft

    def write(self, writer: ConsensusWriter) -> int:
        """Write the rows of a consensus, where they are finished; return how many clusters win objects."""
        wins = np.zeros(self.n_clusters, bool)
        store = writer.rows

        def write(block: Block, labels: np.ndarray, rows: np.ndarray | None) -> tuple[Written, np.ndarray]:
            return store.write(block.start, labels, rows), np.unique(labels[labels >= 0])

        for _, (written, winners) in self._map(write):
            writer.note(written)
            wins[winners] = True
        return int(np.count_nonzero(wins))

    def _map(self, use: Callable[[Block, np.ndarray, np.ndarray | None], Use]) -> Iterator[tuple[Block, Use]]:
        """Yield every block, in order, with ``use(block, labels, memberships)``, part of its task."""
        read, finish = self.read, _finish_memberships if self.soft else _finish_labels

        def task(part: _Part) -> Use:
            return use(part.block, *finish(read(part.block), part.unlabeled - part.block.start))

        with closing(self.engine.map(task, list(map(self._part, self.ensemble.blocks())))) as used:
            yield from zip(self.ensemble.blocks(), used, strict=True)

    def _part(self, block: Block) -> _Part:
        first, last = np.searchsorted(self.unlabeled, (block.start, block.stop))
        return _Part(block, self.unlabeled[first:last])


class _Part(NamedTuple):
    """A block and the indices of the unlabeled objects in it."""

    block: Block
    unlabeled: np.ndarray


def _finish_memberships(rows: np.ndarray, unlabeled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (rows,) int32 and memberships (rows, K) float32 of a block."""
    memberships = np.array(rows, np.float32)
    labels = memberships.argmax(axis=1).astype(np.int32)
    labels[unlabeled] = -1
    memberships[unlabeled] = np.float32(1.0 / memberships.shape[1])
    return labels, memberships


def _finish_labels(rows: np.ndarray, unlabeled: np.ndarray) -> tuple[np.ndarray, None]:
    """Return labels (rows,) int32 of a block."""
    labels = np.array(rows, np.int32)
    labels[unlabeled] = -1
    return labels, None
