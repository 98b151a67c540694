"""The co-association of all pairs by groups, for any Bregman divergence at linear cost.

Objects of similar memberships form a group. All that one object needs of the others is, for each group, how
often it agrees with its members and how often both are labeled: sums, over the object's labels, of rows of
two tables that one pass over the label matrix fills.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels import prototypes as kernel
from bigcons.kernels.cluster_tables import padded
from bigcons.kernels.prototypes import Tables


def empty_tables(centers: np.ndarray, n_base_clusters: int, n_partitions: int) -> Tables:
    """Return the tables of no objects."""
    width = padded(centers.shape[0])
    count, seen = np.zeros((n_base_clusters, width)), np.zeros((n_partitions, width))
    return Tables(centers, count, seen, np.zeros_like(centers), np.zeros(centers.shape[0]))


def tables_of_block(
    centers: np.ndarray, offsets: np.ndarray, labels: np.ndarray, memberships: np.ndarray
) -> Tables:
    """Return the tables of a block's objects under the given memberships (rows, K) float32."""
    tables = empty_tables(centers, int(offsets[-1]), labels.shape[1])
    kernel.accumulate(labels, offsets, tables, memberships)
    return tables


def add_tables(a: Tables, b: Tables) -> Tables:
    """Add ``b``, of the same centers, to ``a`` in place, and return it."""
    for total, part in zip(a[1:], b[1:], strict=True):
        np.add(total, part, out=total)
    return a


def copy_tables(tables: Tables) -> Tables:
    """Return a copy that can be changed in place; the centers are shared."""
    return Tables(tables.centers, *(table.copy() for table in tables[1:]))


def choose_centers(memberships: np.ndarray, n_groups: int) -> np.ndarray:
    """Return up to ``n_groups`` centers (G, K) float64 of the given memberships (rows, K), by k-means.

    The first centers are farthest points, without random draws; equal rows share a center.
    O(rows G K) a round.
    """
    rows = memberships.astype(np.float64)
    centers = _farthest_points(rows, n_groups)
    for _ in range(12):  # of Lloyd's algorithm: the groups need to be small, not optimal
        group = _squared_distances(rows, centers).argmin(axis=1)
        sizes = np.bincount(group, minlength=len(centers))
        sums = np.zeros_like(centers)
        np.add.at(sums, group, rows)
        filled = sizes > 0
        centers[filled] = sums[filled] / sizes[filled, np.newaxis]
    return centers


def _farthest_points(rows: np.ndarray, most: int) -> np.ndarray:
    """Return rows far from each other: ``most`` of them, or all distinct ones if these are fewer."""
    chosen = [int(np.argmin(_squared_distances(rows, rows.mean(axis=0, keepdims=True))))]
    nearest = _squared_distances(rows, rows[chosen]).ravel()
    while len(chosen) < most and nearest.max() > 0.0:
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, _squared_distances(rows, rows[chosen[-1:]]).ravel())
    return rows[chosen]


def _squared_distances(rows: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return (rows, G) squared distances, cluster by cluster: sums in a fixed order on any machine."""
    distances = np.zeros((len(rows), len(centers)))
    for k in range(rows.shape[1]):
        distances += (rows[:, k, np.newaxis] - centers[:, k]) ** 2
    return distances
