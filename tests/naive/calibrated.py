"""PCC with a calibrated co-association as its definition reads, one pair at a time."""

from itertools import combinations

import numpy as np


def calibrated(pairs, a, d):
    """Return pairs as those of `naive.pcc`, with the calibrated share of agreement: ``(c / N - a) / d``."""
    return [(i, j, (n_agree - a * n_seen) / d, n_seen) for i, j, n_agree, n_seen in pairs]


def rates(labels, Y, weights, sure=0.95):
    """Return false-join rate and excess of the hit rate, over pairs of objects surely in a cluster."""
    clusters, largest = Y.argmax(axis=1), Y.max(axis=1)
    is_sure = [largest[i] >= min(sure, np.median(largest[clusters == k])) for i, k in enumerate(clusters)]
    seen, joined = np.zeros(2), np.zeros(2)
    for i, j in combinations(np.flatnonzero(is_sure), 2):
        same = int(clusters[i] == clusters[j])
        for u, weight in enumerate(weights):
            if labels[i, u] >= 0 and labels[j, u] >= 0:
                seen[same] += weight
                joined[same] += weight * (labels[i, u] == labels[j, u])
    apart, together = joined / seen
    return apart, together - apart
