"""Spectral clusterers on landmarks, which follow curved shapes, for data larger than memory.

U-SPEC (Huang, Wang, Wu, Lai and Kwoh 2020) with landmarks drawn at random: some of the objects are landmarks,
and a bipartite graph joins each object of a sample to its five nearest by Gaussian weights that sum to 1, a
row of B. Landmarks are then as alike as ``B^T B``, a graph over landmarks alone, whose normalized Laplacian
has the leading eigenvectors of the bipartite graph (Li, Wu and Chang 2012). k-means in k eigenvectors, rows
to unit length and each landmark counted by its degree, makes k clusters of the landmarks. An object is in the
cluster of its nearest landmark, so that labeling all objects, and new ones, needs no more than the search for
that, however many partitions share the landmarks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.run.engine import one_thread

N_LANDMARKS, OBJECTS_PER_LANDMARK = 1000, 3
"""Landmarks of a set, and the fewest objects for each."""

N_NEAREST = 5
"""Landmarks that an object is joined to."""

MOST_VALUES = 1 << 23
"""Numbers of all landmarks of a set, of very many features."""

AT_ONCE = 1 << 21
"""Distances held at once."""


def n_landmarks(n_objects: int, n_features: int) -> int:
    """Return how many of so many objects are landmarks."""
    most = min(N_LANDMARKS, max(MOST_VALUES // n_features, 2 * N_NEAREST))
    return min(most, max(n_objects // OBJECTS_PER_LANDMARK, min(n_objects, N_NEAREST)))


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
            found = np.argpartition(distances, n_nearest - 1, axis=1)[:, :n_nearest]
            last = first + len(found)
            nearest[first:last] = found
            squares[first:last] = lengths[:, None] + 2 * np.take_along_axis(distances, found, axis=1)
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
