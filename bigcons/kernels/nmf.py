"""Multiplicative updates of the NMF consensus, object by object, from tables of base clusters.

Row ``q`` of an object with ``m`` labels, under a table G (B, width) and ``A = G'G`` (K, K): with ``g_k =
m^(-1/2) sum_j G[offset_j + x_j, k]``, the update is ``q_k sqrt(g_k / (q A)_k)``.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.kernels._jit import empty, flat, jit, leaf, zeros
from bigcons.kernels.cluster_tables import add_to_rows, find_rows, sum_rows


@jit
def multiply_rows(labels, offsets, table, A, before, after, T, P, totals):
    """Set ``after`` (rows, K) float32 to the updates of ``before``, zeros without labels.

    labels (rows, M) with -1 missing; offsets (M+1,) int64; table, T (B, padded K), A, P (K, K) float64. Adds
    to T the new rows over the root of their numbers of labels, to P their outer products, and to totals
    (2,) the objects with labels and those whose largest entry is another.
    """
    n_rows, M = labels.shape
    K, width = A.shape[0], table.shape[1]
    at = empty(M, np.uint64)
    g, q, below = zeros(width, np.float64), zeros(width, np.float64), zeros(width, np.float64)
    rows, sums = flat(table), flat(T)
    for i in range(n_rows):
        m = find_rows(labels, i, 0, M, offsets, width, at)
        if m == 0:
            after[i] = 0.0
            continue
        root = math.sqrt(m)
        sum_rows(rows, at, m, g)
        for k in range(K):
            q[k] = before[i, k]
        _times(q, A, below)
        old = new = 0
        for k in range(K):
            if before[i, k] > before[i, old]:
                old = k
            if below[k] > 0.0:
                q[k] *= math.sqrt(g[k] / (root * below[k]))
            after[i, k] = np.float32(q[k])
            q[k] = after[i, k]  # what the next pass reads
            if q[k] > q[new]:
                new = k
        totals[0] += 1.0
        totals[1] += new != old
        for k in range(K):
            if q[k] != 0.0:
                for h in range(K):
                    P[k, h] += q[k] * q[h]
        for k in range(K):
            q[k] /= root
        add_to_rows(sums, at, m, q, width)


@jit
def place_rows(labels, offsets, table, A, n_steps, out):
    """Set ``out`` (rows, K) float32 to the minima over q >= 0 of ``q A q' / 2 - g q'``, where updates rest.

    By ``n_steps`` steps ``q_k g_k / (q A)_k``, which never raise it; zeros without labels. Arguments as of
    `multiply_rows`.
    """
    n_rows, M = labels.shape
    K, width = A.shape[0], table.shape[1]
    at = empty(M, np.uint64)
    g, q, below = zeros(width, np.float64), zeros(width, np.float64), zeros(width, np.float64)
    rows = flat(table)
    for i in range(n_rows):
        m = find_rows(labels, i, 0, M, offsets, width, at)
        if m == 0:
            out[i] = 0.0
            continue
        sum_rows(rows, at, m, g)
        for k in range(K):
            g[k] /= math.sqrt(m)
            q[k] = g[k] / A[k, k] if A[k, k] > 0.0 else 0.0
        for _ in range(n_steps):
            _times(q, A, below)
            for k in range(K):
                if below[k] > 0.0:
                    q[k] *= g[k] / below[k]
        for k in range(K):
            out[i, k] = np.float32(q[k])


@leaf
def _times(q, A, out):
    """Set ``out[:K]`` to the row ``q[:K] A``."""
    K = A.shape[0]
    for k in range(K):
        out[k] = 0.0
    for h in range(K):
        if q[h] != 0.0:
            for k in range(K):
                out[k] += q[h] * A[h, k]
