"""Centroid linkage: always the two nearest centers merge, wherever they are.

Two clusters that merge may come nearer to a third, so that chains of nearest neighbors, which take merges
out of their order, do not find these. Instead every cluster remembers the nearest of those after it.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit
from bigcons.kernels.linkage import condensed_index


@jit
def centroid_merges(squares, sizes, first, second, heights):
    """Fill the ``n - 1`` merges of a linkage of centers, in the order in which they are made.

    ``squares`` (n (n - 1) / 2,) float64, squared distances of the centers of n points, condensed as scipy
    does, are overwritten; ``sizes`` (n,) float64, overwritten too, are the numbers of objects that the points
    stand for. A merge is of the clusters that begin with points ``first < second``, at ``heights``, which may
    fall by up to a factor of ``sqrt(3 / 4)`` from one to the next. Of equals the pair of the lowest first,
    then of the lowest second point. O(n^2) time as long as few rows must be looked through again, O(n^3) at
    worst.

    ``least`` of a cluster is at most its square with the nearest after it: one whose nearest moved away is
    only looked through again once it might be first (Müllner 2011, section 3.1).
    """
    n = sizes.shape[0]
    nearest = np.zeros(n, np.int64)
    least = np.full(n, np.inf)
    for i in range(n - 1):
        _look_through(squares, sizes, i, nearest, least)
    for merge in range(n - 1):
        a = np.argmin(least)
        while squares[condensed_index(n, a, nearest[a])] != least[a]:
            _look_through(squares, sizes, a, nearest, least)
            a = np.argmin(least)
        b = nearest[a]
        first[merge] = a
        second[merge] = b
        heights[merge] = np.sqrt(least[a])
        _merge_centers(squares, sizes, a, b, least[a])
        least[b] = np.inf
        _look_through(squares, sizes, a, nearest, least)
        for i in range(a):
            if sizes[i] == 0:
                continue
            if nearest[i] == b:
                nearest[i] = a
            _offer(squares[condensed_index(n, i, a)], i, a, nearest, least)
        for i in range(a + 1, b):
            if sizes[i] > 0 and nearest[i] == b:
                _look_through(squares, sizes, i, nearest, least)


@jit
def _look_through(squares, sizes, i, nearest, least):
    """Find the nearest of the living clusters after ``i``, the lowest of equals; infinitely far if none."""
    n = sizes.shape[0]
    least[i] = np.inf
    for j in range(i + 1, n):
        square = squares[condensed_index(n, i, j)]
        if sizes[j] > 0 and square < least[i]:
            least[i] = square
            nearest[i] = j


@jit
def _offer(square, i, j, nearest, least):
    """Let ``j`` be the nearest after ``i`` if it is nearer than any known, or as near and lower."""
    if square < least[i] or (square == least[i] and j < nearest[i]):
        least[i] = square
        nearest[i] = j


@jit
def _merge_centers(squares, sizes, a, b, square):
    """Let ``a`` stand for both clusters, ``square`` apart (Lance and Williams 1967), and ``b`` for none."""
    n = sizes.shape[0]
    size = sizes[a] + sizes[b]
    inside = sizes[a] * sizes[b] * square / (size * size)
    for i in range(n):
        if sizes[i] == 0 or i in (a, b):
            continue
        at = condensed_index(n, min(a, i), max(a, i))
        x = squares[at]
        y = squares[condensed_index(n, min(b, i), max(b, i))]
        squares[at] = (sizes[a] * x + sizes[b] * y) / size - inside
    sizes[a] = size
    sizes[b] = 0
