"""Locally weighted ensemble clustering by counting objects, one base cluster and one pair after the other."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np

from tests.naive.overlaps import base_clusters, incidence


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


def coassociation(labels, *, normalize):
    """Return the locally weighted co-association, over the partitions that label both objects or over all."""
    H, seen = incidence(labels), (np.asarray(labels) >= 0).astype(int)
    whole = seen @ seen.T if normalize == "observed" else seen.shape[1]
    return H * reliability(labels) @ H.T / np.maximum(whole, 1)


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
