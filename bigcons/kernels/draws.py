"""Random draws that do not depend on the thread that makes them."""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import empty

# numba promotes mixed signed and unsigned integers to float, so all parts are unsigned.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0x94D049BB133111EB)


@jit
def uniform(random):
    """Return a number in [0, 1) and advance ``random`` (1,) uint64.

    numba's own generator has a separate state in each thread and cannot be seeded from outside a kernel.
    """
    return np.float64(bits(random)) * 2.0**-53


@leaf
def bits(random):
    """Return 53 random bits and advance ``random`` (1,) uint64 (SplitMix64; Steele, Lea, Flood 2014)."""
    random[0] += _GOLDEN
    x = random[0]
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return (x ^ (x >> np.uint64(31))) >> np.uint64(11)


@jit
def mark_drawn(key, first, bounds, counts, marks):
    """Mark ``counts[p]`` of the rows ``bounds[p]`` to ``bounds[p + 1]``, all such sets equally likely.

    ``marks`` (rows,) bool. The draws of piece p depend on ``key``, a random uint64, and ``first + p`` alone.
    Selection sampling (Fan, Muller, Rezucha 1962; algorithm S of Knuth, *TAOCP* 2, 3.4.2): a row is taken
    with the share that the rows still needed have of those still to come.
    """
    random, start = empty(1, np.uint64), empty(1, np.uint64)
    for p in range(counts.size):
        start[0] = key + np.uint64(first + p) * _GOLDEN
        random[0] = bits(start) * _SECOND  # pieces start far from each other
        n_left = counts[p]
        for row in range(bounds[p], bounds[p + 1]):
            is_drawn = uniform(random) * (bounds[p + 1] - row) < n_left
            marks[row] = is_drawn
            n_left -= is_drawn


@jit
def keep_least(labels, partitions, starts, first, key, factors, keys, rows):
    """Keep the objects with the least random numbers of every base cluster, in ``rows`` and ``keys`` (S, k).

    The objects of ``labels`` (n, M) are numbered from ``first`` on; base clusters of ``partitions`` (P,) have
    the rows of the two tables from ``starts`` (P,) on. ``keys`` are ascending, of 53 bits, the largest
    uint64 where there are fewer objects. The number of an object in a partition is its random number, by
    ``key``, times the odd one of the partition, in ``factors`` (P,), modulo 2^64.
    """
    random, last, shift = empty(1, np.uint64), keys.shape[1] - 1, np.uint64(11)
    limits = empty(keys.shape[0] + 1, np.uint64)  # none for a missing label, so that it needs no branch
    limits[0] = 0
    for b in range(keys.shape[0]):
        limits[b + 1] = keys[b, last]
    for i in range(labels.shape[0]):
        row, row_labels = first + i, labels[i]
        random[0] = key + np.uint64(row) * _GOLDEN
        object_bits = bits(random)
        for p in range(np.uint64(partitions.size)):  # unsigned numbers need no check for < 0
            label = np.int64(row_labels[np.uint64(partitions[p])])
            number = (object_bits * factors[p]) >> shift
            if number < limits[np.uint64((starts[p] + label + 1) * (label >= 0))]:
                b, position = starts[p] + label, last
                while position > 0 and keys[b, position - 1] > number:
                    keys[b, position], rows[b, position] = keys[b, position - 1], rows[b, position - 1]
                    position -= 1
                keys[b, position], rows[b, position] = number, row
                limits[b + 1] = keys[b, last]


def draw_labels(memberships: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return labels ``(n_objects, n_partitions)``, each drawn from its object's memberships.

    ``memberships`` ``(n_objects, n_clusters)`` are >= 0 and need not sum to one; an object whose
    memberships are all zero gets -1. ``draws`` ``(n_objects, n_partitions)`` are uniform in [0, 1).
    A label is the first cluster whose cumulative membership exceeds the draw, so a cluster of membership
    zero is never drawn. Smallest signed type; O(n_objects * n_partitions * n_clusters).
    """
    cumulated = memberships.cumsum(axis=1, dtype=np.float64)
    total = cumulated[:, -1:]
    thresholds = np.divide(cumulated, total, out=np.zeros_like(cumulated), where=total > 0)
    n_clusters = memberships.shape[1]
    labels = np.zeros(draws.shape, dtype=np.min_scalar_type(-n_clusters))
    for k in range(n_clusters):
        labels += draws >= thresholds[:, k, None]
    labels[total[:, 0] <= 0] = -1
    return labels
