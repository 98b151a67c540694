"""Votes of base clusters: every observed label of an object adds its row of a table to the object's scores.

The last step of all methods that group base clusters or embed them, whatever the table says.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.kernels._jit import jit
from bigcons.kernels.table_rows import find_rows, sum_rows


@jit
def sum_votes(labels, offsets, table, scores, n_labels):
    """Set ``scores`` (rows, K) float64 to the summed table rows of each object, n_labels (rows,) int64.

    labels (rows, M), negative where missing; table (B, width) float64, width >= K a multiple of eight.
    """
    n_rows, M = labels.shape
    K, width = scores.shape[1], table.shape[1]
    at = np.empty(M, np.uint64)
    total = np.zeros(width)
    rows = table.ravel()
    for i in range(n_rows):
        m = find_rows(labels, i, offsets, width, at)
        sum_rows(rows, at, m, total)
        for k in range(K):
            scores[i, k] = total[k]
        n_labels[i] = m


@jit
def mark_majorities(T, offsets, majority):
    """Set ``majority`` (B, K), zeros before, to 1 where each cluster has most members in each partition.

    T (B, K) float64 counts the members of every base cluster; the lowest label of a tie wins, and none where
    a partition has no member. One reading of T.
    """
    K = T.shape[1]
    most = np.empty(K)
    winner = np.empty(K, np.int64)
    for u in range(offsets.shape[0] - 1):
        most[:] = 0.0
        for b in range(offsets[u], offsets[u + 1]):
            for k in range(K):
                if T[b, k] > most[k]:
                    most[k] = T[b, k]
                    winner[k] = b
        for k in range(K):
            if most[k] > 0.0:
                majority[winner[k], k] = 1.0


@jit
def normalize_rows(rows):
    """Scale the rows of a float64 matrix to unit length, in place; rows of zeros stay."""
    for i in range(rows.shape[0]):
        squares = 0.0
        for k in range(rows.shape[1]):
            squares += rows[i, k] * rows[i, k]
        if squares > 0.0:
            length = math.sqrt(squares)
            for k in range(rows.shape[1]):
                rows[i, k] /= length


@jit
def nearest_centers(rows, counted, centers, assigned, sums, sizes):
    """Set ``assigned`` (n,) int32 to the nearest of the centers (K, d), the lowest number on a tie.

    Rows (n, d) for which ``counted`` is true add to sums (K, d) and sizes (K,) of their center; returns the
    sum of their squared distances. Others get -1.
    """
    inertia = 0.0
    for i in range(rows.shape[0]):
        if not counted[i]:
            assigned[i] = -1
            continue
        best, smallest = 0, np.inf
        for k in range(centers.shape[0]):
            distance = 0.0
            for d in range(centers.shape[1]):
                distance += (rows[i, d] - centers[k, d]) ** 2
            if distance < smallest:
                best, smallest = k, distance
        assigned[i] = best
        inertia += smallest
        sizes[best] += 1.0
        for d in range(rows.shape[1]):
            sums[best, d] += rows[i, d]
    return inertia
