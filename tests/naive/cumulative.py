"""Cumulative voting by its definition, object after object."""

import math

import numpy as np


def entropy(column):
    seen = [label for label in column if label >= 0]
    shares = [seen.count(label) / len(seen) for label in set(seen)]
    return -sum(share * math.log(share) for share in shares)


def order(labels):
    """Return the partitions by decreasing entropy; ties in their order."""
    labels = np.asarray(labels)
    return sorted(range(labels.shape[1]), key=lambda u: (-round(entropy(labels[:, u].tolist()), 9), u))


def mean_votes(labels, variant):
    """Return the mean votes (n_objects, k) of the objects, and their numbers of votes."""
    labels = np.asarray(labels)
    n, _ = labels.shape
    first, *others = order(labels)
    k = labels[:, first].max() + 1
    summed, n_votes = np.zeros((n, k)), np.zeros(n)
    sizes = [sum(labels[:, first] == q) for q in range(k)]
    for i in range(n):
        if labels[i, first] >= 0:
            summed[i, labels[i, first]] = sizes[labels[i, first]] if variant == "urcv" else 1
            n_votes[i] = 1
    reference, n_reference = summed.copy(), n_votes.copy()
    for u in others:
        target, n_target = (summed, n_votes) if variant == "acv" else (reference, n_reference)
        votes = {}
        for label in range(labels[:, u].max() + 1):
            members = [i for i in range(n) if labels[i, u] == label and n_target[i] > 0]
            if variant == "urcv":
                votes[label] = np.bincount(labels[members, first], minlength=k).astype(float)
            elif members:  # objects are weighted by their number of votes
                votes[label] = sum(target[i] for i in members) / sum(n_target[i] for i in members)
        for i in range(n):
            vote = votes.get(labels[i, u])
            if vote is not None and vote.any():
                summed[i] = summed[i] + vote
                n_votes[i] += 1
    return summed / np.maximum(n_votes, 1)[:, None], n_votes


def memberships(votes, n_clusters):
    """Return votes as memberships: rows that sum to 1, uniform without votes."""
    votes = np.pad(votes, [(0, 0), (0, n_clusters - votes.shape[1])])
    totals = votes.sum(axis=1, keepdims=True)
    return np.where(totals > 0, votes / np.where(totals > 0, totals, 1), 1 / n_clusters)


def adaptive_by_regression(labels):
    """Return the adaptive reference of a complete ensemble: U <- ((i - 1) U + E W) / i by least squares."""
    labels = np.asarray(labels)
    indicators = [np.eye(labels[:, u].max() + 1)[labels[:, u]] for u in order(labels)]
    U = indicators[0]
    for i, E in enumerate(indicators[1:], start=2):
        W = np.linalg.lstsq(E, U, rcond=None)[0]
        U = ((i - 1) * U + E @ W) / i
    return U


def divergence(a, b):
    """Return the Jensen-Shannon divergence in bits of two columns, weighted by their sums."""
    p, q = a / a.sum(), b / b.sum()
    weight = a.sum() / (a.sum() + b.sum())
    middle = weight * p + (1 - weight) * q
    total = 0.0
    for i in range(len(middle)):
        if p[i] > 0:
            total += weight * p[i] * math.log2(p[i] / middle[i])
        if q[i] > 0:
            total += (1 - weight) * q[i] * math.log2(q[i] / middle[i])
    return total


def merge(columns, n_clusters):
    """Return the groups of columns, and the summed average divergence at which they were merged."""
    k = columns.shape[1]
    table = [
        [divergence(columns[:, q], columns[:, r]) if q != r else 0.0 for r in range(k)] for q in range(k)
    ]
    groups, cost = [[q] for q in range(k)], 0.0
    while len(groups) > n_clusters:
        found = [
            (np.mean([table[q][r] for q in groups[a] for r in groups[b]]), a, b)
            for a in range(len(groups))
            for b in range(a + 1, len(groups))
        ]
        height, a, b = min(found)
        cost += height
        groups = [group for c, group in enumerate(groups) if c not in (a, b)] + [groups[a] + groups[b]]
    return sorted(sorted(group) for group in groups), cost
