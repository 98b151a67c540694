"""Overlaps of base clusters by plain counting, and the hypergraph as a dense matrix."""

import numpy as np


def base_clusters(labels):
    """Return the set of objects of every base cluster, partition after partition."""
    clusters = []
    for column in np.asarray(labels).T:
        own = [set() for _ in range(column.max() + 1)]
        for i, label in enumerate(column):
            if label >= 0:
                own[label].add(i)
        clusters += own
    return clusters


def partitions(labels):
    """Return the partition of every base cluster."""
    labels = np.asarray(labels)
    return [u for u in range(labels.shape[1]) for _ in range(labels[:, u].max() + 1)]


def overlaps(labels, weights=None):
    """Return the summed weights of the objects that every two base clusters share."""
    clusters = base_clusters(labels)
    weight = [1] * len(labels) if weights is None else weights
    return np.array([[sum(weight[i] for i in a & b) for b in clusters] for a in clusters], float)


def incidence(labels):
    """Return H (n_objects, n_base_clusters), one where an object is in a base cluster."""
    clusters = base_clusters(labels)
    return np.array([[float(i in cluster) for cluster in clusters] for i in range(len(labels))])


def jaccard(labels):
    """Return the Jaccard overlaps; of one partition zero."""
    labels = np.asarray(labels)
    clusters, own = base_clusters(labels), partitions(labels)
    table = np.zeros((len(clusters), len(clusters)))
    for a in range(len(clusters)):
        for b in range(len(clusters)):
            union = clusters[a] | clusters[b]
            if own[a] != own[b] and union:
                table[a, b] = len(clusters[a] & clusters[b]) / len(union)
    return table
