"""Centers trained on samples, by k-means or by spectral clustering of landmarks.

The mean of m objects of a cluster is as good a center for the others as the mean of them all, up to 1/m of
their squared distances to it. So k-means is trained on thousands of the objects that a partition sees: on a
quarter of its sample from a random start, and from there on all of it, which takes few iterations more. Where
the sample is all that the partition sees, k-means runs on that as it is.

Landmarks are U-SPEC (Huang, Wang, Wu, Lai and Kwoh 2020) with landmarks drawn at random: some of the objects
are landmarks, and a bipartite graph joins each object of a sample to its five nearest by Gaussian weights
that sum to 1, a row of B. Landmarks are then as alike as ``B^T B``, a graph over landmarks alone, whose
normalized Laplacian has the leading eigenvectors of the bipartite graph (Li, Wu and Chang 2012). k-means in k
eigenvectors, rows to unit length and each landmark counted by its degree, makes k clusters of the landmarks.
An object is in the cluster of its nearest landmark, so that labeling all objects, and new ones, needs no more
than the search for that, however many partitions share the landmarks.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigcons.generate.scheme import ROWS_AT_ONCE, Scheme
from bigcons.kernels.nearest import normalize_rows
from bigcons.memory import row_blocks
from bigcons.run.engine import one_thread
from bigcons.seeding import generator
from bigcons.store.generator import Centers

N_LANDMARKS, OBJECTS_PER_LANDMARK = 1000, 3
"""Landmarks of a set, and the fewest objects for each."""

N_NEAREST = 5
"""Landmarks that an object is joined to."""

AT_ONCE = 1 << 21
"""Distances held at once."""


def choose_sample_rows(n_clusters: int, n_features: int) -> int:
    """Return how many objects train a partition: 40,000 of up to 156 clusters and 104 features.

    256 or more per cluster, so that estimating the centers costs about 0.4 % of the inertia.
    """
    return max(256 * n_clusters, min(40_000, (1 << 22) // n_features))


def choose_pool_rows(sample_rows: int, n_objects: int, share: float) -> int:
    """Return the size of the pool: that of two samples, and enough for a sample of a ``share`` of it."""
    return min(n_objects, math.ceil(sample_rows * max(2.0, 1.1 / share)))


def n_landmarks(n_objects: int, n_features: int) -> int:
    """Return how many of so many objects are landmarks."""
    most = min(N_LANDMARKS, max((1 << 23) // n_features, 2 * N_NEAREST))  # of very many features, fewer
    return min(most, max(n_objects // OBJECTS_PER_LANDMARK, min(n_objects, N_NEAREST)))


class Pool(NamedTuple):
    """The objects from which the samples are drawn."""

    rows: np.ndarray
    """Ascending."""
    points: Any
    """``(n_rows, n_features)`` float32, scaled; dense, or compressed sparse rows."""


@dataclass(frozen=True)
class TrainTask:
    """Trains a set of centers on a sample of the objects that its partitions see."""

    scheme: Scheme
    pool: Pool
    sample_rows: int

    def __call__(self, partitions: tuple[int, ...]) -> np.ndarray:
        """Return the centers of a set and their clusters, float64 of `n_features + 1 + n_partitions` columns.

        Of each center the coordinates and half the squared length, as `Centers` has them, and its cluster in
        each of the ``partitions``. Every center is the nearest one of some object.
        """
        scheme, u = self.scheme, partitions[0]
        is_by_kmeans = scheme.landmarks_before(u) is None
        if is_by_kmeans:
            rng, n_clusters = scheme.draw(u)
        else:
            rng = generator(scheme.seed, f"{scheme.stream}.landmarks", u)
        chosen = self._seen_by(u)
        if is_sample := len(chosen) > self.sample_rows:
            chosen = np.sort(rng.choice(chosen, size=self.sample_rows, replace=False, shuffle=False))
        points = self.pool.points[chosen]
        n_rows, width = points.shape
        weights = scheme.weights(width, u)
        with one_thread():
            if is_by_kmeans:
                centers = self._means(_weighed(points, weights), n_clusters, rng, is_sample)
                centers = _full(centers, weights, width)
                return np.column_stack([centers, np.arange(n_clusters)])[_nearest_of(points, centers)]
            rows = np.sort(rng.choice(n_rows, n_landmarks(n_rows, width), replace=False))
            landmarks = _weighed(points[rows], weights)
            landmarks = landmarks if isinstance(landmarks, np.ndarray) else landmarks.toarray()
            centers = _full(landmarks, weights, width)
            is_kept = _nearest_of(points, centers)  # equal ones are one
            most = scheme.ranges[1][1]
            kept = landmarks[is_kept].astype(np.float64)
            vectors, degrees = embedding(_weighed(points, weights), kept, most)
            clusters = (self._joined(vectors, degrees, v) for v in partitions)
            return np.column_stack([centers[is_kept], *clusters])

    def _means(self, points: Any, n_clusters: int, rng: np.random.Generator, is_sample: bool) -> np.ndarray:
        """Return the centers that k-means finds, of a sample from those of some of its points."""
        n_init, init = self.scheme.n_init, "random"
        if not is_sample:
            return fitted_kmeans(points, n_clusters, rng, init, n_init=n_init).cluster_centers_
        n_start = max(points.shape[0] // 4, n_clusters)
        first = np.sort(rng.choice(points.shape[0], size=n_start, replace=False, shuffle=False))
        start = fitted_kmeans(points[first], n_clusters, rng, init, n_init=n_init).cluster_centers_
        return fitted_kmeans(points, n_clusters, rng, start, max_iter=20).cluster_centers_

    def _joined(self, vectors: np.ndarray, degrees: np.ndarray, u: int) -> np.ndarray:
        """Return the cluster (p,) of each landmark in partition ``u``."""
        rng, n_clusters = self.scheme.draw(u)
        rows = vectors[:, : min(n_clusters, vectors.shape[1])].copy()
        normalize_rows(rows)
        return fitted_kmeans(rows, rows.shape[1], rng, "k-means++", counts=degrees).labels_

    def _seen_by(self, u: int) -> np.ndarray:
        """Return which rows of the pool partition ``u`` sees, ascending."""
        subset, rows, parts = self.scheme.subset(u), self.pool.rows, []
        for block in row_blocks(self.scheme.n_objects, ROWS_AT_ONCE):
            first, last = np.searchsorted(rows, (block.start, block.stop))
            is_seen = subset.mask(block.start, block.stop)[rows[first:last] - block.start]
            parts.append(first + np.flatnonzero(is_seen))
        return np.concatenate(parts)


def fitted_kmeans(
    points: Any,
    n_clusters: int,
    rng: np.random.Generator,
    init: Any,
    *,
    n_init: int = 1,
    max_iter: int = 100,
    counts: np.ndarray | None = None,
) -> Any:
    """Return scikit-learn's k-means, fitted with a seed from ``rng``."""
    from sklearn.cluster import KMeans

    seed = int(rng.integers(2**31))
    how = {"n_init": n_init, "max_iter": max_iter, "random_state": seed, "copy_x": False}
    return KMeans(n_clusters, init=init, **how).fit(points, sample_weight=counts)


def _weighed(points: Any, weights: np.ndarray | None) -> Any:
    """Return a copy of points, dense or sparse, times the weights, without the columns of weight 0."""
    if weights is None:
        return points.copy()
    columns = np.flatnonzero(weights)
    points = points[:, columns]
    if isinstance(points, np.ndarray):
        points *= weights[columns]
    else:
        points.data *= weights[columns][points.indices]
    return points


def _full(centers: np.ndarray, weights: np.ndarray | None, width: int) -> np.ndarray:
    """Return centers ``(n_clusters, width + 1)`` for `Centers`, given those of `_weighed` points.

    Weights of the features are factors of the centers, and the last column is half the squared length.
    """
    centers = centers.astype(np.float64)
    columns = np.arange(width) if weights is None else np.flatnonzero(weights)
    full = np.zeros((len(centers), width + 1))
    full[:, columns] = centers if weights is None else centers * weights[columns]
    full[:, -1] = np.einsum("ij,ij->i", centers, centers) / 2
    return full


def _nearest_of(points: Any, centers: np.ndarray) -> np.ndarray:
    """Return which centers are the nearest one of some point, ascending."""
    alone = Centers.of([centers], np.zeros(1, np.int64), [np.arange(len(centers))], np.ones((1, 1)))
    return np.unique(alone.label(points, np.ones((1, points.shape[0]), bool))[1])


def embedding(points: Any, landmarks: np.ndarray, n_vectors: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading eigenvectors (p, n_vectors) of the graph of landmarks, and their degrees (p,).

    ``points`` (rows, d) are of the sample, dense or sparse, ``landmarks`` (p, d) float64, all different. In
    one thread of BLAS. O(rows p d + p^3) time.
    """
    import scipy.linalg
    from scipy.sparse import csr_array

    n, p = points.shape[0], len(landmarks)
    n_nearest = min(N_NEAREST, p)
    nearest, squares = np.empty((n, n_nearest), np.int64), np.empty((n, n_nearest))
    with one_thread(user_api="blas"):
        halves = np.einsum("ij,ij->i", landmarks, landmarks) / 2
        for first in range(0, n, max(AT_ONCE // p, 1)):
            rows = points[first : first + max(AT_ONCE // p, 1)].astype(np.float64)
            lengths = np.asarray((rows**2).sum(axis=1)).ravel()
            distances = halves - np.asarray(rows @ landmarks.T)  # half of the squared one, less a constant
            closest = np.argpartition(distances, n_nearest - 1, axis=1)[:, :n_nearest]
            last = first + len(closest)
            nearest[first:last] = closest
            squares[first:last] = lengths[:, None] + 2 * np.take_along_axis(distances, closest, axis=1)
        np.maximum(squares, 0.0, out=squares)
        scale = np.sqrt(squares).mean()
        squares -= squares.min(axis=1)[:, None]
        weights = np.exp(-squares / (2 * scale**2 or 1.0))
        weights /= weights.sum(axis=1)[:, None]
        starts = np.arange(0, n * n_nearest + 1, n_nearest)
        graph = csr_array((weights.ravel(), nearest.ravel(), starts), (n, p))
        alike = (graph.T @ graph).toarray()
        degrees = alike.sum(axis=1)
        scales = 1.0 / np.sqrt(degrees)
        wanted = [max(p - n_vectors, 0), p - 1]
        vectors = scipy.linalg.eigh(alike * scales * scales[:, None], subset_by_index=wanted)[1]
    return vectors[:, ::-1] * scales[:, None], degrees


def centers_of(scheme: Scheme, trained: list[np.ndarray], width: int) -> Centers:
    """Return the centers of all partitions, given what `TrainTask` returns for each set."""
    members, n = scheme.sets(), scheme.n_partitions
    sets, clusters = np.empty(n, np.int64), [np.empty(0, np.int64)] * n
    for s, (partitions, set_of_centers) in enumerate(zip(members, trained, strict=True)):
        sets[list(partitions)] = s
        for number, u in enumerate(partitions):
            numbers = set_of_centers[:, width + 1 + number].astype(np.int64)
            clusters[u] = np.unique(numbers, return_inverse=True)[1]
    weights = [scheme.weights(width, partitions[0]) for partitions in members]
    squares = np.ones((1, width))
    if any(of_set is not None for of_set in weights):
        ones = np.ones(width)
        squares = np.array([ones if of_set is None else of_set.astype(np.float64) ** 2 for of_set in weights])
    return Centers.of([set_of_centers[:, : width + 1] for set_of_centers in trained], sets, clusters, squares)


@contextmanager
def quiet_scikit_learn() -> Iterator[None]:
    """Use one BLAS thread and suppress warnings of empty clusters.

    Both settings are global to the process, so they are made once around all tasks.
    """
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(), one_thread(user_api="blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
