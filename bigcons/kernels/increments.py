"""Dissimilarity increments: the minimum spanning tree of a cluster and the differences of its edges."""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import zeros


@jit
def tree_and_neighbors(points, parent, length, nearest, distance, next_distance):
    """Fill the Euclidean minimum spanning tree of ``points`` (n, d) float64, and their nearest neighbors.

    An edge of ``length[v]`` joins vertex ``v`` to ``parent[v]``; vertex 0 has parent -1. ``nearest`` (n,) is
    the nearest other point (on a tie, the first visited), at ``distance``; the second nearest is at
    ``next_distance``, infinite if it does not exist. Prim's algorithm visits every pair once, so distances
    are exact and none is stored: O(n^2 d) time, O(n) memory. On a tie the parent is the vertex placed last,
    so that many equal points form a path, not a star.
    """
    n = points.shape[0]
    placed = zeros(n, np.bool_)
    for v in range(n):
        parent[v] = -1
        length[v] = distance[v] = next_distance[v] = np.inf
        nearest[v] = -1
    current = 0
    length[0] = 0.0
    for _ in range(n - 1):
        placed[current] = True
        best = -1
        for v in range(n):
            if placed[v]:
                continue
            squares = 0.0
            for k in range(points.shape[1]):
                difference = points[current, k] - points[v, k]
                squares += difference * difference
            d = np.sqrt(squares)
            _meet(current, v, d, nearest, distance, next_distance)
            _meet(v, current, d, nearest, distance, next_distance)
            if d <= length[v]:
                length[v] = d
                parent[v] = current
            if best < 0 or length[v] < length[best]:
                best = v
        current = best


@leaf
def _meet(v, other, d, nearest, distance, next_distance):
    """Update the two nearest distances of point ``v`` with its distance to another point."""
    if d < distance[v]:
        next_distance[v] = distance[v]
        distance[v] = d
        nearest[v] = other
    elif d < next_distance[v]:
        next_distance[v] = d


@jit
def incident_edges(parent, length, start, edges):
    """List the lengths of the tree's edges at every vertex, ascending: those of ``v`` begin at ``start[v]``.

    Fills ``start`` (n + 1,) and ``edges`` (2 (n - 1),).
    """
    n = parent.shape[0]
    start[:] = 0
    for v in range(n):
        if parent[v] >= 0:
            start[v + 1] += 1
            start[parent[v] + 1] += 1
    for v in range(n):
        start[v + 1] += start[v]
    free = start[:-1].copy()
    for v in range(n):
        if parent[v] >= 0:
            for end in (v, parent[v]):
                edges[free[end]] = length[v]
                free[end] += 1
    for v in range(n):
        edges[start[v] : start[v + 1]].sort()


@jit
def list_increments(start, edges, every_pair, increments):
    """Fill the differences of the edges at every vertex, of every pair or of neighbors in length.

    Returns their number, even if they do not fit.
    """
    count = 0
    for v in range(start.shape[0] - 1):
        for r in range(start[v] + 1, start[v + 1]):
            lowest = start[v] if every_pair else r - 1
            for s in range(lowest, r):
                if count < increments.shape[0]:
                    increments[count] = edges[r] - edges[s]
                count += 1
    return count
