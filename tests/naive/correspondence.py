"""CCC, CCU, CCSVD and BEST by their definitions, over sets of objects."""

import math
from itertools import permutations

import numpy as np

from tests.naive.overlaps import base_clusters, partitions


def cosine(a, b):
    return len(a & b) / math.sqrt(len(a) * len(b))


def resemblances(labels, groups, n_groups):
    """Return the mean cosine of every base cluster to those of other partitions in each group, 0 if none."""
    clusters, own = base_clusters(labels), partitions(labels)
    table = []
    for a, cluster in enumerate(clusters):
        members = [
            [
                cosine(cluster, clusters[b])
                for b in range(len(clusters))
                if groups[b] == k and own[b] != own[a]
            ]
            for k in range(n_groups)
        ]
        table.append([sum(cosines) / len(cosines) if cosines else 0.0 for cosines in members])
    return table


def objective(labels, groups, n_groups):
    table = resemblances(labels, groups, n_groups)
    return sum(table[b][group] for b, group in enumerate(groups) if group >= 0)


def best_matching(table, n_groups):
    """Return the largest sum of entries (row, group), each row and each group at most once."""
    members = range(len(table))
    if len(table) <= n_groups:
        return max(
            sum(table[row][k] for row, k in enumerate(order))
            for order in permutations(range(n_groups), len(table))
        )
    return max(sum(table[row][k] for k, row in enumerate(order)) for order in permutations(members, n_groups))


def votes(labels, groups, n_groups):
    """Return the share of the observed labels of every object that votes for each group; 0 without any."""
    clusters = base_clusters(labels)
    table = np.zeros((len(labels), n_groups))
    for cluster, group in zip(clusters, groups, strict=True):
        for i in cluster:
            table[i, group] += 1
    return table / np.maximum(table.sum(axis=1, keepdims=True), 1)


def nearest_clusters(labels, winner):
    """Return the cluster of every object: that of the winner, or the one with the nearest mean."""
    labels = np.asarray(labels)
    found = []
    for i in range(len(labels)):
        if labels[i, winner] >= 0:
            found.append(labels[i, winner])
            continue
        distances = []
        for k in range(labels[:, winner].max() + 1):
            members = labels[labels[:, winner] == k]
            distance = 0.0
            for u in np.flatnonzero(labels[i] >= 0):
                seen = members[members[:, u] >= 0][:, u]
                for label in range(labels[:, u].max() + 1):
                    share = np.mean(seen == label) if len(seen) else 0.0
                    distance += ((labels[i, u] == label) - share) ** 2
            distances.append(distance)
        found.append(distances)
    return found
