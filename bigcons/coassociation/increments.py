"""The law of dissimilarity increments, and the trees of base clusters that give its parameter.

The increment of a triplet ``x_i, x_j, x_k``, each the nearest neighbor of the one before, is
``|d(x_i, x_j) - d(x_j, x_k)|``; within a cluster it follows, with mean lambda, the law of the difference of
two Rayleigh distances (Aidos and Fred).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

CHOICES = ("vertex", "sorted")

# From here on erfcx is replaced by its expansion: the terms that cancel are a million times their difference.
_FAR = 1e3


def increment_density(w: np.ndarray, mean: float | np.ndarray) -> np.ndarray:
    """Return the density ``p(w; lambda)`` of increments ``w >= 0`` of the given mean, float64.

    Falls from ``pi (2 - sqrt 2) / (2 sqrt 2 lambda)`` at 0. The printed form, with ``exp(-s^2) erfc(s)``
    written as ``exp(-2 s^2) erfcx(s)``, which does not underflow before its factor does.
    """
    return np.sqrt(np.pi) * _scale(mean) * increment_ratio(w, mean)


def increment_ratio(w: np.ndarray, mean: float | np.ndarray) -> np.ndarray:
    """Return ``p(w; lambda) / p(0; lambda)``, from 1 to 0; for a mean of 0, 1 where w is 0 and else 0."""
    s = np.minimum(_reduced(w, mean), _FAR)  # where the ratio is 0 in float64 long before
    return np.exp(-2.0 * s * s) * _factor(s)


def log_increment_density(w: np.ndarray, mean: float) -> np.ndarray:
    """Return the natural logarithm of the density, for a mean above 0."""
    s = _reduced(w, mean)
    return np.log(np.sqrt(np.pi) * _scale(mean)) - 2.0 * s * s + np.log(_factor(s))


def _scale(mean: float | np.ndarray) -> float | np.ndarray:
    return np.sqrt(np.pi) * (2.0 - np.sqrt(2.0)) / (2.0 * np.sqrt(2.0) * mean)


def _reduced(w: np.ndarray, mean: float | np.ndarray) -> np.ndarray:
    """Return ``s``, infinite where an increment is above a mean of 0."""
    w = np.asarray(w, np.float64)
    quotient = np.divide(w, mean, out=np.where(w > 0, np.inf, 0.0), where=np.asarray(mean) > 0)
    return quotient * _scale(1.0)


def _factor(s: np.ndarray) -> np.ndarray:
    """Return ``2 s / sqrt(pi) + (1 - 2 s^2) erfcx(s)``: 1 at 0, falling as ``2 / (sqrt(pi) s)``."""
    from scipy.special import erfcx

    near, far = np.minimum(s, _FAR), np.maximum(s, _FAR)
    exact = 2.0 * near / np.sqrt(np.pi) + (1.0 - 2.0 * near * near) * erfcx(near)
    return np.where(s < _FAR, exact, 2.0 / (np.sqrt(np.pi) * far) * (1.0 - 1.0 / far**2))


class ClusterTree(NamedTuple):
    """What the increments of a cluster of n points need, from its Euclidean minimum spanning tree."""

    nearest: np.ndarray
    """(n,) int64 the nearest other point, -1 if there is none."""
    distance: np.ndarray
    """(n,) float64 its distance, infinite if there is none."""
    next_distance: np.ndarray
    """(n,) float64 the distance of the second nearest."""
    start: np.ndarray
    """(n + 1,) int64 where the edges of each vertex begin in ``edges``."""
    edges: np.ndarray
    """(2 (n - 1),) float64 the lengths of the edges at each vertex, ascending."""

    @property
    def n_points(self) -> int:
        """Number of points."""
        return len(self.nearest)

    def mean(self, choice: str) -> float:
        """Return the mean increment of a cluster of three points or more.

        "vertex": over all pairs of edges that meet at a vertex; "sorted": over those next to each other in
        length.
        """
        from bigcons.kernels.increments import mean_increment

        return float(mean_increment(self.start, self.edges, choice == "vertex"))

    def increments(self, choice: str) -> np.ndarray:
        """Return the increments, vertex after vertex, float64."""
        from bigcons.kernels.increments import list_increments

        n_increments = list_increments(self.start, self.edges, choice == "vertex", np.empty(0))
        increments = np.empty(n_increments)
        list_increments(self.start, self.edges, choice == "vertex", increments)
        return increments


def cluster_tree(points: np.ndarray) -> ClusterTree:
    """Return the tree of ``points (n, d)`` float64: exact, O(n^2 d) time and O(n) memory."""
    from bigcons.kernels.increments import incident_edges, tree_and_neighbors

    n = len(points)
    parent, nearest = np.empty(n, np.int64), np.empty(n, np.int64)
    length, distance, next_distance = np.empty(n), np.empty(n), np.empty(n)
    tree_and_neighbors(points, parent, length, nearest, distance, next_distance)
    start, edges = np.empty(n + 1, np.int64), np.empty(2 * (n - 1))
    incident_edges(parent, length, start, edges)
    return ClusterTree(nearest, distance, next_distance, start, edges)
