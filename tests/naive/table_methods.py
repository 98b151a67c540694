"""Plain references of the methods that assign objects by tables; loops over objects, members and labels."""

import math
from fractions import Fraction

MISSING = -1


def agreement(x, y):
    """Return (c, N) of two rows."""
    both = [(a, b) for a, b in zip(x, y, strict=True) if a != MISSING and b != MISSING]
    return sum(a == b for a, b in both), len(both)


def frequencies(rows, partition):
    """Return {label: share} among the members that the partition labeled."""
    seen = [row[partition] for row in rows if row[partition] != MISSING]
    return {label: Fraction(seen.count(label), len(seen)) for label in set(seen)}


def majority(rows, partition):
    """Return the most frequent label, the lowest of a tie, None if nothing was observed."""
    shares = frequencies(rows, partition)
    return min(shares, key=lambda label: (-shares[label], label)) if shares else None


def ivc_cost(row, members):
    return sum(label != majority(members, u) for u, label in enumerate(row) if label != MISSING)


def ipvc_cost(row, members):
    return sum(1 - frequencies(members, u).get(label, 0) for u, label in enumerate(row) if label != MISSING)


def qmi_cost(row, members):
    """Squared distance of one-hot labels to the frequencies, over the observed partitions."""
    total = 0
    for u, label in enumerate(row):
        if label != MISSING:
            f = frequencies(members, u)
            total += (1 - f.get(label, 0)) ** 2 + sum(s * s for other, s in f.items() if other != label)
    return total


def entropy_cost(row, members):
    return sum(
        -math.log(max(frequencies(members, u).get(label, 0.0), 1e-6))
        for u, label in enumerate(row)
        if label != MISSING
    )


def ipc_cost(row, members, normalize):
    """Minus the mean similarity to the members."""
    total = 0
    for other in members:
        c, n = agreement(row, other)
        total += Fraction(c, len(row) if normalize == "all" else max(n, 1))
    return -total / len(members)


def costs(labels, assigned, n_clusters, cost):
    """Return the cost of every labeled object for every cluster, infinite for an empty one."""
    members = [
        [row for row, k in zip(labels, assigned, strict=True) if k == cluster]
        for cluster in range(n_clusters)
    ]
    return [
        [cost(row, own) if own else math.inf for own in members]
        if any(label != MISSING for label in row)
        else None
        for row in labels
    ]
