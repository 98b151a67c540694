"""Spherical k-means of unit rows in memory.

It is for spectral embeddings, in which an object with few labels, or contradictory ones, is
about as far from all centers. With many clusters the sum of squares is then often lowest with one center near
the origin, the nearest of all such objects. Of 100,000 objects of 300 planted classes (50 partitions of 10 to
40 clusters, half of the labels missing), k-means from the centers of the classes puts 9,091 into one cluster,
for an adjusted Rand index of .39. Centers therefore have unit length, too, by spherical k-means (Dhillon and
Modha 2001), whose index there is .91, as by the centers of the classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.execution.blas import one_thread
from bigcons.solving.passes import best_start


class RowClusters(NamedTuple):
    """The result of k-means of rows in memory."""

    centers: np.ndarray
    """(K, columns) float64."""
    labels: np.ndarray
    """(rows,) int32."""
    objective: float
    """Sum of the squared distances of all rows to their centers."""
    n_iter: int


class RowSums(NamedTuple):
    """What rows add to their centers."""

    rows: np.ndarray
    """(K, columns)."""
    sizes: np.ndarray
    """(K,), summed weights."""
    inertia: float
    """Sum of the squared distances."""

    def plus(self, other: RowSums) -> RowSums:
        """Return the sums of both."""
        return RowSums(self.rows + other.rows, self.sizes + other.sizes, self.inertia + other.inertia)

    def means(self, centers: np.ndarray) -> np.ndarray:
        """Return the next centers, of unit length; clusters that lose all rows keep theirs."""
        from bigcons.kernels.overlaps import normalize_rows

        found, kept = centers.copy(), self.sizes > 0
        found[kept] = self.rows[kept] / self.sizes[kept, None]
        normalize_rows(found)
        return found


def assign(rows: np.ndarray, counted: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, RowSums]:
    """Return the nearest centers of rows and their sums, rows ``counted`` by weights or, as flags, or not."""
    from bigcons.kernels.overlaps import nearest_centers

    assigned = np.empty(len(rows), np.int32)
    sums, sizes = np.zeros_like(centers), np.zeros(len(centers))
    inertia = nearest_centers(rows, counted.astype(np.float64), centers, assigned, sums, sizes)
    return assigned, RowSums(sums, sizes, inertia)


def n_distinct_rows(rows: np.ndarray) -> int:
    """Return the number of rows distinct up to rounding errors: the most clusters k-means can find."""
    return len(np.unique(rows.round(8), axis=0))


def kmeans_of_unit_rows(
    rows: np.ndarray,
    n_clusters: int,
    n_init: int,
    draw: int,
    weights: np.ndarray | None = None,
    *,
    max_iter: int = 300,
    tol: float = 1e-4,
) -> tuple[RowClusters, list[float]]:
    """Return the clusters of rows of unit length, and the squared distances of every start.

    The first start is from rows that are as orthogonal as possible, by QR with pivots (Damle, Minden and Ying
    2019); where there are more clusters than columns, and in further starts, from random ones. K-means by
    scikit-learn on eight rows for each cluster leads to spherical k-means on these and then on all rows.
    Clusters are numbered by their first rows. O(K^2 columns) time for an iteration of a start.
    """
    import scipy.linalg
    from sklearn.cluster import KMeans
    from sklearn.utils import check_random_state

    from bigcons.kernels.overlaps import normalize_rows

    step = max(len(rows) // (8 * n_clusters), 1)
    while step > 1 and n_distinct_rows(rows[::step]) < n_clusters:
        step //= 2
    counted = np.ones(len(rows)) if weights is None else weights
    part, of_part = np.ascontiguousarray(rows[::step]), np.ascontiguousarray(counted[::step])
    threshold = tol * float(np.var(rows, axis=0).mean())
    stream = check_random_state(draw)

    def start(number: int) -> RowClusters:
        how: dict[str, Any] = {"random_state": stream}
        if number == 0 and n_clusters <= rows.shape[1]:
            _, pivots = scipy.linalg.qr(part.T, mode="r", pivoting=True)
            how = {"init": part[pivots[:n_clusters]]}
        model = KMeans(n_clusters, n_init=1, max_iter=max_iter, tol=tol, **how)
        centers = model.fit(part, sample_weight=of_part).cluster_centers_
        normalize_rows(centers)
        found = _spherical(part, of_part, centers, max_iter, threshold)
        return found if step == 1 else _spherical(rows, counted, found.centers, max_iter, threshold)

    with one_thread():
        best, objectives = best_start(map(start, range(n_init)), lambda found: found.objective)
    members, first = np.unique(best.labels, return_index=True)
    ranks = np.full(n_clusters, len(rows))
    ranks[members] = first
    order = np.argsort(ranks, kind="stable")
    labels = np.argsort(order)[best.labels].astype(best.labels.dtype)
    return best._replace(centers=best.centers[order], labels=labels), objectives


def _spherical(
    rows: np.ndarray, weights: np.ndarray, centers: np.ndarray, max_iter: int, threshold: float
) -> RowClusters:
    """Iterate until the summed squared moves of the centers are at most the threshold."""
    for n_iter in range(1, max_iter + 1):
        labels, sums = assign(rows, weights, centers)
        moved = sums.means(centers)
        if ((moved - centers) ** 2).sum() <= threshold:
            break
        if n_iter < max_iter:
            centers = moved
    return RowClusters(centers, labels, sums.inertia, n_iter)
