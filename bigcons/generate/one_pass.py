"""k-means trained on samples, and one pass over the features that labels all objects in all partitions.

The mean of m objects of a cluster is as good a center for the others as the mean of them all, up to 1/m of
their squared distances to it. So a partition is trained on thousands of the objects that it sees: on a
quarter of its sample from a random start, and from there on all of it, which takes few iterations more.
However many partitions there are, all objects are read twice: to measure the features and draw the pool from
which all samples come, and to label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigcons.execution.engine import one_thread
from bigcons.generate.partition import Seen, Settings, full_centers, untrained
from bigcons.generate.sampling import PIECES_AT_ONCE
from bigcons.kernels.nearest import pack_centers
from bigcons.memory import Block, row_blocks
from bigcons.stores.encoding import Scaling
from bigcons.stores.generator import label_points
from bigcons.tables.encode import label_dtype


def choose_sample_rows(n_clusters: int, n_features: int) -> int:
    """Return how many objects train a partition: 40,000 of up to 156 clusters and 104 features.

    256 or more per cluster, so that estimating the centers costs about 0.4 % of the inertia.
    """
    return max(256 * n_clusters, min(40_000, (1 << 22) // n_features))


def choose_pool_rows(sample_rows: int, n_objects: int, share: float) -> int:
    """Return the size of the pool: that of two samples, and enough for a sample of a ``share`` of it."""
    return min(n_objects, math.ceil(sample_rows * max(2.0, 1.1 / share)))


class Pool(NamedTuple):
    """The objects from which the samples are drawn."""

    rows: np.ndarray
    """Ascending."""
    points: Any
    """``(n_rows, n_features)`` float32, scaled; dense, or compressed sparse rows."""


@dataclass(frozen=True)
class TrainTask:
    """Trains partition ``u`` on a sample of the objects that it sees."""

    seen: Seen
    settings: Settings
    pool: Pool
    sample_rows: int

    def __call__(self, u: int) -> np.ndarray:
        """Return `full_centers` ``(n_clusters, n_features + 1)``, without those of no object."""
        rng, n_clusters = self.seen.draw(u, self.settings.n_clusters)
        chosen = np.flatnonzero(self._is_seen(u))
        if len(chosen) > self.sample_rows:
            chosen = np.sort(rng.choice(chosen, size=self.sample_rows, replace=False, shuffle=False))
        points = self.pool.points[chosen]
        n_features = points.shape[1]
        view = self.seen.view(n_features, u)
        found = self._train(view.of(points.copy()), n_clusters, rng)
        centers = full_centers(found, view, n_features)
        labels = np.empty((points.shape[0], 1), self.settings.label_dtype)
        is_seen = np.ones((1, points.shape[0]), bool)
        label_points(points, pack_centers(centers), np.array([0, n_clusters]), is_seen, labels)
        return centers[np.unique(labels)]

    def _train(self, points: Any, n_clusters: int, rng: np.random.Generator) -> np.ndarray:
        """Return the centers that k-means finds for some of the points, and then for all of them."""
        n_rows = points.shape[0]
        n_start = max(n_rows // 4, n_clusters)
        first = np.sort(rng.choice(n_rows, size=n_start, replace=False, shuffle=False))
        with one_thread():
            start = untrained(self.settings, n_clusters, rng).fit(points[first])
            settings = self.settings._replace(
                init=start.cluster_centers_, n_init=1, max_iter=min(self.settings.max_iter, 20)
            )
            centers: np.ndarray = untrained(settings, n_clusters, rng).fit(points).cluster_centers_
        return centers

    def _is_seen(self, u: int) -> np.ndarray:
        """Return which rows of the pool partition ``u`` sees."""
        subset, rows = self.seen.subset(u), self.pool.rows
        is_seen = np.zeros(len(rows), bool)
        for block in row_blocks(self.seen.n_objects, PIECES_AT_ONCE * self.seen.segment_rows):
            first, last = np.searchsorted(rows, (block.start, block.stop))
            is_seen[first:last] = subset.mask(block.start, block.stop)[rows[first:last] - block.start]
        return is_seen


@dataclass(frozen=True)
class LabelTask:
    """Labels a block of objects in all partitions.

    The objects that trained a center are labeled with it again, so every cluster of every partition occurs.
    """

    seen: Seen
    scaling: Scaling
    centers: np.ndarray
    """Packed."""
    offsets: np.ndarray
    """``(n_partitions + 1,)`` int64: the first center of each."""
    dtype: np.dtype

    @classmethod
    def of(cls, seen: Seen, scaling: Scaling, centers: list[np.ndarray]) -> LabelTask:
        """Return the task for the ``centers`` of all partitions."""
        sizes = [len(found) for found in centers]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return cls(seen, scaling, pack_centers(np.concatenate(centers)), offsets, label_dtype(sizes))

    def __call__(self, item: tuple[Block, Any]) -> np.ndarray:
        """Return the labels ``(rows, n_partitions)`` of a block of features, -1 for what is not seen."""
        block, values = item
        points = self.scaling.apply(values)
        n_partitions = len(self.offsets) - 1
        is_seen = np.empty((n_partitions, block.n_rows), bool)
        for u in range(n_partitions):
            is_seen[u] = self.seen.subset(u).mask(block.start, block.stop)
        labels = np.empty((block.n_rows, n_partitions), self.dtype)
        label_points(points, self.centers, self.offsets, is_seen, labels)
        return labels
