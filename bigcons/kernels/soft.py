"""Soft clusterings: products with a real incidence matrix.

Memberships are ``(rows, B)`` float32, C-contiguous; partition ``u`` has the columns ``offsets[u]`` to
``offsets[u + 1]``, which sum to 1 or, where it is missing, are all 0. Zeros cost next to nothing.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import empty


@jit
def add_soft_overlaps(memberships, weights, table):
    """Add ``weights[i] h_i h_i^T`` of every row to ``table`` (B, B) float64, on and above the diagonal.

    weights (rows,) float64. O(b_i^2) for an object with memberships in b_i base clusters.
    """
    B = memberships.shape[1]
    codes, values = empty(B, np.int64), empty(B, np.float64)
    for i in range(memberships.shape[0]):
        m = list_memberships(memberships, i, codes, values)
        for p in range(m):
            weighted = weights[i] * values[p]
            for q in range(p, m):
                table[codes[p], codes[q]] += weighted * values[q]


@jit
def sum_soft_votes(memberships, table, scores):
    """Set ``scores`` (rows, K) float64 to the product of the memberships and ``table`` (B, K) float64."""
    B, K = memberships.shape[1], scores.shape[1]
    codes, values = empty(B, np.int64), empty(B, np.float64)
    for i in range(memberships.shape[0]):
        m = list_memberships(memberships, i, codes, values)
        scores[i] = 0.0
        for p in range(m):
            for k in range(K):
                scores[i, k] += values[p] * table[codes[p], k]


@leaf
def list_memberships(memberships, i, codes, values):
    """List the base clusters of object ``i`` in ``codes`` (B,), with ``values`` (B,), and return how many."""
    m = 0
    for b in range(memberships.shape[1]):
        codes[m] = b  # overwritten by the next if there is no membership
        values[m] = memberships[i, b]
        m += memberships[i, b] > 0
    return m
