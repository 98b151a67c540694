"""Locally weighted ensemble clustering by counting objects, one base cluster and one pair after the other."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np

from tests.naive.overlaps import base_clusters


def reliability(labels, theta=0.4, counts=None):
    """Return ``exp(-H_b / (theta M))`` of every base cluster; ``counts``: how often each partition occurs."""
    labels = np.asarray(labels)
    counts = [1] * labels.shape[1] if counts is None else counts
    found = []
    for cluster in base_clusters(labels):
        total = 0.0
        for v, count in enumerate(counts):
            numbers = Counter(labels[i, v] for i in cluster if labels[i, v] >= 0).values()
            total += count * sum(-n / sum(numbers) * math.log2(n / sum(numbers)) for n in numbers)
        found.append(math.exp(-total / (theta * sum(counts))))
    return np.array(found)


def counts(labels, i, j, reliable):
    """Return the summed reliabilities of the base clusters of both objects, and how many label both."""
    labels = np.asarray(labels)
    offsets = np.cumsum([0, *(labels.max(axis=0) + 1)])
    n_seen, joined = 0, 0.0
    for u in range(labels.shape[1]):
        if labels[i, u] >= 0 and labels[j, u] >= 0:
            n_seen += 1
            joined += reliable[offsets[u] + labels[i, u]] if labels[i, u] == labels[j, u] else 0.0
    return joined, n_seen


def coassociation(labels, *, normalize):
    """Return the locally weighted co-association, over the partitions that label both objects or over all."""
    n, n_partitions = np.shape(labels)
    reliable, table = reliability(labels), np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            joined, n_seen = counts(labels, i, j, reliable)
            whole = n_seen if normalize == "observed" else n_partitions
            table[i, j] = joined / whole if whole else 0.0
    return table


def soft_reliability(H, offsets, theta=0.4):
    """Return the same of soft clusterings by their memberships H (n_objects, n_base_clusters)."""
    found = []
    for b in range(H.shape[1]):
        total = 0.0
        for first, last in pairwise(offsets):
            shares = [float(H[:, a] @ H[:, b]) for a in range(first, last)]
            total += sum(-x / sum(shares) * math.log2(x / sum(shares)) for x in shares if x)
        found.append(math.exp(-total / (theta * (len(offsets) - 1))))
    return np.array(found)
