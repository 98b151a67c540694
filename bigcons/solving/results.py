"""The results of a solve, computed block by block in tasks and kept in memory or written to a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from bigcons.execution.engine import Engine
from bigcons.memory import Block
from bigcons.stores.consensus import ConsensusWriter, Written
from bigcons.stores.ensemble import Ensemble

Use = TypeVar("Use")


@dataclass
class Results:
    """The results of all blocks, computed by tasks on an engine."""

    ensemble: Ensemble
    unlabeled: np.ndarray
    """Sorted indices of the objects without any label: they get label -1 and uniform memberships."""
    n_clusters: int
    """The maximum number of clusters."""
    soft: bool
    """Whether ``read`` gives memberships, the largest of which is the label, or labels, -1 included."""
    read: Callable[[Block], Any]
    """Memberships (rows, n_clusters) or labels (rows,) of a block, or a pair of these and anything else."""
    engine: Engine
    extras: list[Any] = field(default_factory=list)
    """The second items of such pairs, in the order of the blocks."""

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
        """Write the rows of a consensus in the tasks; return how many clusters win objects."""
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

        def task(part: tuple[Block, np.ndarray]) -> tuple[Use, list[Any]]:
            block, unlabeled = part
            found = read(block)
            rows, *extra = found if isinstance(found, tuple) else (found,)
            return use(block, *finish(rows, unlabeled)), extra

        blocks = self.ensemble.blocks()
        ends = [np.searchsorted(self.unlabeled, (block.start, block.stop)) for block in blocks]
        parts = [
            (block, self.unlabeled[first:last] - block.start)
            for block, (first, last) in zip(blocks, ends, strict=True)
        ]
        with closing(self.engine.map(task, parts)) as done:
            for block, (used, extra) in zip(blocks, done, strict=True):
                self.extras += extra
                yield block, used


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
