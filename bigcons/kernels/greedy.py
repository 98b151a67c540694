"""Greedy ANMI: objects in turn go where the average normalised mutual information gains most.

With ``F(x) = x log x``, the counts ``n_hl`` of cluster h among label l of partition q, ``n_h`` of cluster h
among the objects that q labels, ``n_l`` of label l and ``n`` of all these, the NMI of q is

    (A - B - C + F(n)) / sqrt((F(n) - B) (F(n) - C)),  A = sum F(n_hl), B = sum F(n_h), C = sum F(n_l).

Moving one object from a to b alters two terms of A and two of B in every partition that labels it.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.kernels._jit import jit

# A gain below this, in objects times NMI, is rounding.
_LEAST_GAIN = 1e-9


@jit
def sweep(labels, offsets, codes, counts, sizes, n_seen, F, A, B, C):
    """Move every object of a block in turn, codes (rows,) int32 in place; return moves and summed gain.

    labels (rows, M) with -1 missing; counts (K, base clusters) and sizes (K, M) int64 are of all objects and
    follow every move, as do A and B (M,) float64; C and ``n_seen`` = n (M,) stay; F (n + 2,) is x log x.
    An object of code -1 stays out. The gain is in objects times NMI. On a tie the lowest cluster wins.
    """
    M, K = labels.shape[1], counts.shape[0]
    seen = np.empty(M, np.int64)
    base = np.empty(M, np.int64)
    a_without = np.empty(M)
    b_without = np.empty(M)
    n_moved = 0
    gained = 0.0
    for i in range(labels.shape[0]):
        a = codes[i]
        if a < 0:
            continue
        m = 0
        before = 0.0
        for u in range(M):
            if labels[i, u] < 0:
                continue
            seen[m] = u
            base[m] = offsets[u] + labels[i, u]
            here, size = counts[a, base[m]], sizes[a, u]
            a_without[m] = A[u] + F[here - 1] - F[here]
            b_without[m] = B[u] + F[size - 1] - F[size]
            before += weighted_nmi(A[u], B[u], C[u], n_seen[u], F)
            m += 1
        best, best_gain = a, _LEAST_GAIN
        for b in range(K):
            if b == a:
                continue
            after = 0.0
            for j in range(m):
                u = seen[j]
                here, size = counts[b, base[j]], sizes[b, u]
                after += weighted_nmi(
                    a_without[j] + F[here + 1] - F[here],
                    b_without[j] + F[size + 1] - F[size],
                    C[u],
                    n_seen[u],
                    F,
                )
            if after - before > best_gain:
                best, best_gain = b, after - before
        if best == a:
            continue
        for j in range(m):
            u = seen[j]
            here, size = counts[best, base[j]], sizes[best, u]
            A[u] = a_without[j] + F[here + 1] - F[here]
            B[u] = b_without[j] + F[size + 1] - F[size]
            counts[a, base[j]] -= 1
            counts[best, base[j]] += 1
            sizes[a, u] -= 1
            sizes[best, u] += 1
        codes[i] = best
        n_moved += 1
        gained += best_gain
    return n_moved, gained


@jit
def weighted_nmi(a, b, c, n, F):
    """Return n times the NMI of one partition from its sums, 0 if either clustering has no entropy."""
    entropies = (F[n] - b) * (F[n] - c)
    if F[n] - b <= 1e-9 or F[n] - c <= 1e-9:
        return 0.0
    return n * (a - b - c + F[n]) / math.sqrt(entropies)
