"""PCC with a calibrated co-association as its definition reads, one pair and one partition at a time."""

from itertools import combinations

import numpy as np


def joins(labels, omega, offsets):
    """Yield (u, i, j, J) of every pair of objects and every partition that labels both; J by its rarity."""
    for u in range(labels.shape[1]):
        for i, j in combinations(np.flatnonzero(labels[:, u] >= 0), 2):
            same = labels[i, u] == labels[j, u]
            yield u, i, j, omega[offsets[u] + labels[i, u]] if same else 0.0


def objective(labels, offsets, Y, a, d, w, omega, theta):
    """Return the whole objective."""
    P = Y @ theta @ Y.T
    return sum(w[u] * (J - a[u] - d[u] * P[i, j]) ** 2 for u, i, j, J in joins(labels, omega, offsets))


def gradient(labels, offsets, Y, a, d, w, omega, theta):
    g, Z = np.zeros_like(Y), Y @ theta
    for u, i, j, J in joins(labels, omega, offsets):
        slope = 2.0 * w[u] * d[u] * (a[u] + d[u] * (Y[i] @ Z[j]) - J)
        g[i] += slope * Z[j]
        g[j] += slope * Z[i]
    return g


def pair_sums(labels, offsets, Y, omega):
    """Return for each partition the sums over its pairs of 1, J, J^2, p, p^2 and J p."""
    sums = np.zeros((6, labels.shape[1]))
    for u, i, j, J in joins(labels, omega, offsets):
        p = Y[i] @ Y[j]
        sums[:, u] += [1.0, J, J * J, p, p * p, J * p]
    return sums


def share_told(labels, clusters):
    """Return the mutual information of labels and clusters beyond chance, over the most it can be."""
    seen = labels >= 0
    labels, clusters, n = labels[seen], clusters[seen], np.count_nonzero(seen)
    counts = [np.unique(of, return_counts=True)[1] for of in (labels, clusters, 1000 * labels + clusters)]
    entropies = [-sum(c / n * np.log(c / n) for c in of) for of in counts]
    told = entropies[0] + entropies[1] - entropies[2]
    told -= (len(counts[0]) - 1) * (len(counts[1]) - 1) / (2 * n)
    return max(told, 0.0) / min(entropies[:2])
