"""CSPA, HGPA, HBGF and MCLA with full matrices, and the ensembles to test them on."""

import numpy as np

from tests.naive.overlaps import base_clusters, incidence


def noisy_copies(n_objects, n_clusters, n_partitions, share, seed):
    """Return a balanced random clustering, and renumbered copies of it with a share of random labels."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.arange(n_objects) % n_clusters)
    labels = np.empty((n_objects, n_partitions), int)
    for u in range(n_partitions):
        copy = truth.copy()
        wrong = rng.choice(n_objects, round(share * n_objects), replace=False)
        copy[wrong] = rng.integers(n_clusters, size=len(wrong))
        labels[:, u] = rng.permutation(n_clusters)[copy]
    return truth, labels


def similarity(labels, *, normalize):
    """Return the co-association of all pairs, over the partitions that label both or over all."""
    seen = np.asarray(labels) >= 0
    agree = [(row == labels) & (row >= 0) for row in np.asarray(labels)]
    both = [row & seen for row in seen]
    whole = np.sum(both, axis=2) if normalize == "observed" else seen.shape[1]
    return np.sum(agree, axis=2) / np.maximum(whole, 1)


def expected_similarity(labels):
    """Return the co-association with ``N_ij`` replaced by ``m_i m_j / M``."""
    H = incidence(labels)
    n_labels = H.sum(axis=1)
    return H @ H.T * np.asarray(labels).shape[1] / np.outer(n_labels, n_labels)


def normalized(matrix):
    """Return ``D^-1/2 S D^-1/2``."""
    degrees = matrix.sum(axis=1)
    return matrix / np.sqrt(np.outer(degrees, degrees))


def bipartite(labels):
    """Return ``Hn = D_r^-1/2 H D_c^-1/2``."""
    H = incidence(labels)
    return H / np.sqrt(H.sum(axis=1))[:, None] / np.sqrt(H.sum(axis=0))


def zhou(labels, weights):
    """Return ``D_v^-1/2 H W D_e^-1 H^T D_v^-1/2`` of Zhou, Huang and Schölkopf."""
    H = incidence(labels)
    degrees = H @ weights
    scale = np.diag(1 / np.sqrt(degrees))
    return scale @ H @ np.diag(weights) @ np.diag(1 / H.sum(axis=0)) @ H.T @ scale


def cut(labels, parts, objective, edge_weight="unit"):
    """Return the weight of the hyperedges in several parts, by km1 once for every part beyond the first."""
    total = 0
    for cluster in base_clusters(labels):
        beyond = max(len({parts[i] for i in cluster}) - 1, 0)  # a label between others may have no object
        weight = len(cluster) if edge_weight == "size" else 1
        total += weight * (min(beyond, 1) if objective == "cut" else beyond)
    return total


def associations(labels, groups, n_groups):
    """Return for every object the share of the base clusters of each group that it is in."""
    clusters = base_clusters(labels)
    table = np.zeros((len(labels), n_groups))
    for k in range(n_groups):
        members = [cluster for cluster, group in zip(clusters, groups, strict=True) if group == k]
        for i in range(len(labels)):
            if members:
                table[i, k] = sum(i in cluster for cluster in members) / len(members)
    return table


def nearest_centers(rows, weights, centers):
    """Return the first nearest center of each row, -1 of weight 0, and weighed sums, sizes and distance."""
    assigned, total = [], 0.0
    sums, sizes = np.zeros(centers.shape), np.zeros(len(centers))
    for row, weight in zip(rows, weights, strict=True):
        distances = [float(((row - center) ** 2).sum()) for center in centers]
        k = distances.index(min(distances))
        assigned.append(k if weight else -1)
        sums[k] += weight * row
        sizes[k] += weight
        total += weight * distances[k]
    return assigned, sums, sizes, total
