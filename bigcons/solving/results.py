"""The results of a solve, computed block by block in tasks and kept in memory or written to a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from bigcons.execution.engine import Engine
from bigcons.memory import Block
from bigcons.progress import progress
from bigcons.stores.consensus import ConsensusWriter, Written
from bigcons.stores.ensemble import Ensemble

Use = TypeVar("Use")


@dataclass
class Results:
    """The results of all blocks, computed by tasks on an engine, with clusters numbered by falling size.

    A method may number its clusters as it likes, and leave some without objects. Here they are numbered by
    falling number of objects, from 0 and without gaps; of equal ones, the method's first is first. Clusters
    without objects are the last columns of the memberships. The label of an object is that of its largest
    membership; of equal ones the first, which is that of the larger cluster.
    """

    ensemble: Ensemble
    unlabeled: np.ndarray
    """Sorted indices of the objects without any label: they get label -1 and uniform memberships."""
    n_clusters: int
    """The maximum number of clusters."""
    soft: bool
    """Whether ``read`` gives memberships or labels, -1 included."""
    read: Callable[[Block], Any]
    """Memberships (rows, n_clusters) or labels (rows,) of a block, or a pair of these and anything else."""
    engine: Engine
    extras: list[Any] = field(default_factory=list)
    """The second items of such pairs, in the order of the blocks."""

    def __post_init__(self) -> None:
        self.order: np.ndarray = np.arange(self.n_clusters)
        """(n_clusters,) int64, once computed: the method's number of each cluster."""
        self.sizes: np.ndarray = np.zeros(self.n_clusters, np.int64)
        """(n_clusters,) int64, once computed: the objects of each cluster, falling."""

    def hold(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return labels (n_objects,) int32 and, if soft, memberships (n_objects, n_clusters) float32."""
        n_objects, K = self.ensemble.n_objects, self.n_clusters
        found = np.empty(n_objects, np.int32)
        soft = np.empty((n_objects, K), np.float32) if self.soft else None
        for block, (labels, rows) in self._map(lambda _, labels, rows: (labels, rows)):
            found[block.start : block.stop] = labels
            if soft is not None:
                soft[block.start : block.stop] = rows
            self.sizes += sizes_of(labels, K)
        while (np.diff(self.sizes) > 0).any():  # more than once only if objects with equal memberships move
            order = by_size(self.sizes)
            self.order, self.sizes = self.order[order], np.zeros_like(self.sizes)
            for block in self.ensemble.blocks():
                part = slice(block.start, block.stop)
                if soft is None:
                    found[part] = renumbered(found[part], order)
                else:
                    soft[part] = np.take(soft[part], order, axis=1)
                    found[part] = np.where(found[part] >= 0, soft[part].argmax(axis=1), -1)
                self.sizes += sizes_of(found[part], K)
        return found, soft

    def write(self, writer: ConsensusWriter) -> np.ndarray | None:
        """Write the rows of a consensus; return its labels if it has no memberships: they are in memory.

        Memberships are read twice, first to count the objects of the clusters, and written in the tasks.
        """
        if not self.soft:
            labels, _ = self.hold()
            for block in self.ensemble.blocks():
                writer.write(block.start, labels[block.start : block.stop])
            return labels
        tied = self._count()
        while (np.diff(self.sizes) > 0).any():
            order = by_size(self.sizes)
            self.order, self.sizes = self.order[order], self.sizes[order]
            if tied:
                tied = self._count()
        store = writer.rows

        def write(block: Block, labels: np.ndarray, rows: np.ndarray | None) -> Written:
            return store.write(block.start, labels, rows)

        for _, written in self._map(write):
            writer.note(written)
        return None

    def _count(self) -> bool:
        """Count the objects of each cluster; return whether any has several largest memberships."""
        K, tied = self.n_clusters, False

        def count(_: Block, labels: np.ndarray, rows: np.ndarray | None) -> tuple[np.ndarray, bool]:
            labeled = labels >= 0
            last = K - 1 - np.asarray(rows)[:, ::-1].argmax(axis=1)
            return sizes_of(labels, K), bool((last[labeled] != labels[labeled]).any())

        self.sizes = np.zeros(K, np.int64)
        for _, (sizes, found) in self._map(count):
            self.sizes, tied = self.sizes + sizes, tied or found
        return tied

    def _map(self, use: Callable[[Block, np.ndarray, np.ndarray | None], Use]) -> Iterator[tuple[Block, Use]]:
        """Yield every block, in order, with ``use(block, labels, memberships)``, part of its task."""
        read, order, soft = self.read, self.order, self.soft

        def task(part: tuple[Block, np.ndarray]) -> tuple[Use, list[Any]]:
            block, unlabeled = part
            found = read(block)
            rows, *extra = found if isinstance(found, tuple) else (found,)
            if soft:
                return use(block, *_finish_memberships(rows, order, unlabeled)), extra
            return use(block, *_finish_labels(rows, unlabeled)), extra

        self.extras = []
        blocks = self.ensemble.blocks()
        parts = [(block, block.rows_of(self.unlabeled)) for block in blocks]
        with (
            closing(self.engine.map(task, parts)) as done,
            progress("results", self.ensemble.n_objects) as listener,
        ):
            for block, (used, extra) in zip(blocks, done, strict=True):
                self.extras += extra
                yield block, used
                listener.advance(block.n_rows)


def _finish_memberships(
    rows: np.ndarray, order: np.ndarray, unlabeled: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (rows,) int32 and memberships (rows, K) float32 of a block, its columns in ``order``."""
    memberships = np.take(np.asarray(rows, np.float32), order, axis=1)
    labels = memberships.argmax(axis=1).astype(np.int32)
    labels[unlabeled] = -1
    memberships[unlabeled] = np.float32(1.0 / memberships.shape[1])
    return labels, memberships


def _finish_labels(rows: np.ndarray, unlabeled: np.ndarray) -> tuple[np.ndarray, None]:
    """Return labels (rows,) int32 of a block."""
    labels = np.array(rows, np.int32)
    labels[unlabeled] = -1
    return labels, None


# Numbers of clusters


def sizes_of(labels: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return the number of objects of each cluster, (n_clusters,) int64; -1 is in none."""
    return np.bincount(labels[labels >= 0], minlength=n_clusters)


def by_size(sizes: np.ndarray) -> np.ndarray:
    """Return the clusters by falling size, (K,) int64; of equal ones the first is first."""
    return np.argsort(-sizes, kind="stable")


def falling_order(count: Callable[[np.ndarray], np.ndarray], n_clusters: int) -> np.ndarray:
    """Return the order (n_clusters,) int64 of the clusters of memberships by falling size.

    ``count`` gives the sizes of the clusters in an order, in which the first of equal memberships wins.
    """
    order = np.arange(n_clusters)
    while (np.diff(sizes := count(order)) > 0).any():
        order = order[by_size(sizes)]
    return order


def renumbered(clusters: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return clusters, any shape, with ``order[k]`` numbered k; -1 stays."""
    numbers = np.full(order.size + 1, -1, clusters.dtype)  # the last entry is that of -1
    numbers[order] = np.arange(order.size)
    return numbers[clusters]
