"""Greedy ANMI: move objects in turn to the cluster that raises the average NMI most.

With ``F(x) = x log x``, the counts ``n_hl`` of cluster h among label l of partition q, ``n_h`` of cluster h
among the objects that q labels, ``n_l`` of label l and ``n`` of all these, the NMI of q is

    (A - B - C + F(n)) / sqrt((F(n) - B) (F(n) - C)),  A = sum F(n_hl), B = sum F(n_h), C = sum F(n_l).

Moving one object from a to b alters two terms of A and two of B in every partition that labels it.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import empty
from bigcons.kernels.draws import uniform


@jit
def sweep(labels, offsets, codes, counts, sizes, n_seen, F, A, B, C, temperature, random):
    """Move every object of a block in turn, codes (rows,) int32 in place; return how many moved.

    labels (rows, M) with -1 missing; counts (K, base clusters) and sizes (K, M) int64 cover all objects and
    are updated with every move, as are A and B (M,) float64; C and ``n_seen`` = n (M,) are constant; F (n +
    2,) is x log x. Objects of code -1 are skipped. ``temperature`` is in objects times NMI, as gains are. At
    temperature 0 an object moves where it gains most, on a tie to the lowest cluster; above 0, to any cluster
    with probability ``~ exp(gain / temperature)``, drawn with ``random`` (1,) uint64.
    """
    M, K = labels.shape[1], counts.shape[0]
    partitions = empty(M, np.int64)
    base = empty(M, np.int64)
    a_without = empty(M, np.float64)
    b_without = empty(M, np.float64)
    gains = empty(K, np.float64)
    n_moved = 0
    for i in range(labels.shape[0]):
        a = codes[i]
        if a < 0:
            continue
        m = 0
        baseline = 0.0
        for u in range(M):
            if labels[i, u] < 0:
                continue
            partitions[m] = u
            base[m] = offsets[u] + labels[i, u]
            cell, size = counts[a, base[m]], sizes[a, u]
            a_without[m] = A[u] + F[cell - 1] - F[cell]
            b_without[m] = B[u] + F[size - 1] - F[size]
            baseline += weighted_nmi(A[u], B[u], C[u], n_seen[u], F)
            m += 1
        weigh(counts, sizes, n_seen, F, C, a, partitions[:m], base, a_without, b_without, baseline, gains)
        b = highest(gains, a) if temperature == 0.0 else draw_cluster(gains, temperature, random)
        if b == a:
            continue
        for j in range(m):
            u = partitions[j]
            cell, size = counts[b, base[j]], sizes[b, u]
            A[u] = a_without[j] + F[cell + 1] - F[cell]
            B[u] = b_without[j] + F[size + 1] - F[size]
            counts[a, base[j]] -= 1
            counts[b, base[j]] += 1
            sizes[a, u] -= 1
            sizes[b, u] += 1
        codes[i] = b
        n_moved += 1
    return n_moved


@leaf
def weigh(counts, sizes, n_seen, F, C, a, partitions, base, a_without, b_without, baseline, gains):
    """Set ``gains`` (K,) to what an object of cluster ``a`` would gain over ``baseline`` in each cluster.

    ``partitions`` are the partitions that label it, ``base`` its base clusters there, and ``a_without`` and
    ``b_without`` the sums A and B of these partitions without it.
    """
    for b in range(gains.shape[0]):
        if b == a:
            gains[b] = 0.0
            continue
        score = 0.0
        for j in range(partitions.shape[0]):
            u = partitions[j]
            cell, size = counts[b, base[j]], sizes[b, u]
            score += weighted_nmi(
                a_without[j] + F[cell + 1] - F[cell], b_without[j] + F[size + 1] - F[size], C[u], n_seen[u], F
            )
        gains[b] = score - baseline


@leaf
def highest(gains, a):
    """Return the cluster of the largest gain, on a tie the lowest; ``a`` if no gain exceeds rounding."""
    best, best_gain = a, 1e-9  # a smaller gain, in objects times NMI, is rounding
    for b in range(gains.shape[0]):
        if b != a and gains[b] > best_gain:
            best, best_gain = b, gains[b]
    return best


@jit
def draw_cluster(gains, temperature, random):
    """Return a cluster with probability ``~ exp(gain / temperature)``."""
    largest = gains.max()
    total = 0.0
    for b in range(gains.shape[0]):
        total += math.exp((gains[b] - largest) / temperature)
    threshold = uniform(random) * total
    total = 0.0
    for b in range(gains.shape[0]):
        total += math.exp((gains[b] - largest) / temperature)
        if total > threshold:
            return b
    return gains.argmax()


@jit
def weighted_nmi(a, b, c, n, F):
    """Return n times the NMI of one partition from its sums, 0 if either clustering has no entropy."""
    entropies = (F[n] - b) * (F[n] - c)
    if F[n] - b <= 1e-9 or F[n] - c <= 1e-9:
        return 0.0
    return n * (a - b - c + F[n]) / math.sqrt(entropies)
