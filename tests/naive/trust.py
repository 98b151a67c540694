"""Which answers to trust, by the definitions: no table is kept, and pairs are visited one by one."""

import itertools

import numpy as np


def log_rate(labels, clusters, i, u, k, extra):
    """Return ``log P(label of i in u | cluster k)`` from all objects but i."""
    others = (np.arange(len(labels)) != i) & (clusters == k) & (labels[:, u] >= 0)
    share = extra * np.mean(clusters[clusters >= 0] == k)
    alike = np.count_nonzero(others & (labels[:, u] == labels[i, u])) + share
    return np.log(alike / (np.count_nonzero(others) + share * (labels[:, u].max() + 1)))


def posterior(labels, clusters, i, temperature, extra, partitions=None):
    """Return the probabilities (K,) of the clusters of object i, given its labels in ``partitions``."""
    K = clusters.max() + 1
    scores = np.zeros(K)
    for k in range(K):
        scores[k] = np.log(np.mean(clusters[clusters >= 0] == k))
        for u in range(labels.shape[1]) if partitions is None else partitions:
            if labels[i, u] >= 0:
                scores[k] += temperature * log_rate(labels, clusters, i, u, k, extra)
    shares = np.exp(scores - scores.max())
    return shares / shares.sum()


def temperature(labels, clusters, extra):
    """Return the variance of the evidence within clusters if partitions were independent, over that found.

    Evidence is for the own cluster of an object against the next one: that with the highest mean score.
    """
    K, known = clusters.max() + 1, np.flatnonzero(clusters >= 0)
    if K == 1:
        return 1.0
    rates = np.zeros((len(labels), labels.shape[1], K))
    for i, u, k in itertools.product(known, range(labels.shape[1]), range(K)):
        if labels[i, u] >= 0:
            rates[i, u, k] = log_rate(labels, clusters, i, u, k, extra)
    expected = found = 0.0
    for k in range(K):
        members = np.flatnonzero(clusters == k)
        seen = labels[members] >= 0
        scores = rates[members].sum(axis=(0, 1))
        scores[k] = -np.inf
        evidence = rates[members, :, k] - rates[members, :, scores.round(6).argmax()]
        for u in range(labels.shape[1]):
            if seen[:, u].any():
                observed = evidence[seen[:, u], u]
                expected += seen[:, u].sum() * observed.var()
                evidence[seen[:, u], u] -= observed.mean()
        found += ((evidence * seen).sum(axis=1) ** 2).sum()
    return min(expected / found, 1.0) if found else 1.0


def coassociation(labels, first, second):
    """Return the share of joins of pairs of an object of ``first`` and one of ``second``, over partitions."""
    joined = seen = 0
    for i, j in itertools.product(first, second):
        if i < j or (i != j and set(first).isdisjoint(second)):
            both = (labels[i] >= 0) & (labels[j] >= 0)
            seen += np.count_nonzero(both)
            joined += np.count_nonzero(both & (labels[i] == labels[j]))
    return joined / seen if seen else np.nan


def stability(labels, clusters, first, temperature, extra):
    """Return the mean Jaccard index (K,) of each cluster and what each half of the partitions assigns.

    ``first`` (M,) bool: the partitions of the first half.
    """
    K, M = clusters.max() + 1, labels.shape[1]
    found = [[] for _ in range(K)]
    for half in (np.flatnonzero(first), np.flatnonzero(~first)):
        known = [i for i in range(len(labels)) if clusters[i] >= 0 and (labels[i, half] >= 0).any()]
        assigned = np.array(
            [posterior(labels, clusters, i, temperature, extra, half).argmax() for i in known]
        )
        own = clusters[known]
        for k in range(K):
            if (own == k).any():
                either = np.count_nonzero((own == k) | (assigned == k))
                found[k].append(np.count_nonzero((own == k) & (assigned == k)) / either)
    assert first.size == M
    return np.array([np.mean(values) if values else np.nan for values in found])
