"""Bayesian cluster ensembles, collapsed Gibbs sampling: one sweep over the cluster of every label.

With ``z_ij`` the cluster of label ``x_ij`` (Wang, Shan, Banerjee 2009):

    P(z_ij = h | rest) ~ (omega + n_hj^r) / (k_j omega + n_hj) (alpha + n_ih)

where, without the label itself, ``n_hj^r`` counts the objects with label ``r = x_ij`` and cluster ``h`` in
partition ``j``, ``n_hj`` those with cluster ``h``, and ``n_ih`` the labels of object ``i`` in cluster ``h``.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import empty
from bigcons.kernels.draws import uniform


@jit
def count(labels, offsets, z, by_label, by_partition):
    """Add the clusters of all labels to by_label (B, K) and by_partition (M, K), both float64."""
    for i in range(labels.shape[0]):
        for u in range(labels.shape[1]):
            if labels[i, u] >= 0:
                by_label[offsets[u] + labels[i, u], z[i, u]] += 1.0
                by_partition[u, z[i, u]] += 1.0


@jit
def sweep(labels, offsets, z, by_label, by_partition, alpha, omega, sums, keep, random):
    """Draw every ``z_ij`` given all others, object by object, and keep the counts up to date.

    labels (n, M) with -1 missing; offsets (M+1,) int64; z (n, M) uint8; by_label (B, K) and by_partition (M,
    K) float64 as `count` fills them; random (1,) uint64. With ``keep``, add the number of labels each object
    has in each cluster to sums (n, K) float32. Cost O(n M K).
    """
    n, M = labels.shape
    K = by_label.shape[1]
    scale = empty((M, K), np.float64)
    for u in range(M):
        for h in range(K):
            scale[u, h] = 1.0 / ((offsets[u + 1] - offsets[u]) * omega + by_partition[u, h])
    counts = empty(K, np.float64)
    weight = empty(K, np.float64)
    for i in range(n):
        counts[:] = 0.0
        for u in range(M):
            if labels[i, u] >= 0:
                counts[z[i, u]] += 1.0
        for u in range(M):
            if labels[i, u] < 0:
                continue
            b = offsets[u] + labels[i, u]
            source = z[i, u]
            move(by_label, by_partition, scale, counts, b, u, source, -1.0, omega, offsets)
            total = 0.0
            for h in range(K):
                total += (omega + by_label[b, h]) * scale[u, h] * (alpha + counts[h])
                weight[h] = total
            threshold = uniform(random) * total
            target = 0
            while target < K - 1 and weight[target] <= threshold:
                target += 1
            z[i, u] = target
            move(by_label, by_partition, scale, counts, b, u, target, 1.0, omega, offsets)
        if keep:
            for h in range(K):
                sums[i, h] += np.float32(counts[h])


@leaf
def move(by_label, by_partition, scale, counts, b, u, h, change, omega, offsets):
    """Add ``change`` to the counts of labels of base cluster ``b`` in partition ``u`` and cluster ``h``."""
    counts[h] += change
    by_label[b, h] += change
    by_partition[u, h] += change
    scale[u, h] = 1.0 / ((offsets[u + 1] - offsets[u]) * omega + by_partition[u, h])


@jit
def log_prior(labels, z, log_gammas, n_clusters):
    """Return the sum over objects and clusters of ``log_gammas[n_ih]``, log_gammas (M+1,) float64."""
    counts = empty(n_clusters, np.int64)
    total = 0.0
    for i in range(labels.shape[0]):
        counts[:] = 0
        for u in range(labels.shape[1]):
            if labels[i, u] >= 0:
                counts[z[i, u]] += 1
        for h in range(n_clusters):
            total += log_gammas[counts[h]]
    return total
