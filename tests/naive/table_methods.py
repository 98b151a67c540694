"""Plain references of the methods that assign objects by tables; loops over objects, members and labels."""

import math

MISSING = -1


def agreement(x, y):
    """Return (c, N) of two rows."""
    both = [(a, b) for a, b in zip(x, y, strict=True) if a != MISSING and b != MISSING]
    return sum(a == b for a, b in both), len(both)


def frequencies(rows, partition):
    """Return {label: share} among the members that the partition labeled."""
    seen = [row[partition] for row in rows if row[partition] != MISSING]
    return {label: seen.count(label) / len(seen) for label in set(seen)}


def majority(rows, partition):
    """Return the most frequent label, the lowest of a tie, None if nothing was observed."""
    shares = frequencies(rows, partition)
    return min(shares, key=lambda label: (-shares[label], label)) if shares else None


def ivc_cost(row, members):
    return sum(label != majority(members, u) for u, label in enumerate(row) if label != MISSING)


def ipvc_cost(row, members):
    return sum(1 - frequencies(members, u).get(label, 0.0) for u, label in enumerate(row) if label != MISSING)


def qmi_cost(row, members):
    """Squared distance of one-hot labels to the frequencies, over the observed partitions."""
    total = 0.0
    for u, label in enumerate(row):
        if label != MISSING:
            f = frequencies(members, u)
            total += (1 - f.get(label, 0.0)) ** 2 + sum(s * s for other, s in f.items() if other != label)
    return total


def entropy_cost(row, members):
    return sum(
        -math.log(max(frequencies(members, u).get(label, 0.0), 1e-6))
        for u, label in enumerate(row)
        if label != MISSING
    )


def integer_cost(labels):
    """Return the squared distance of label numbers to the means, over the observed partitions.

    A cluster without observed members has the mean of all ``labels``.
    """

    def cost(row, members):
        total = 0.0
        for u, label in enumerate(row):
            if label != MISSING:
                seen = [other[u] for other in members if other[u] != MISSING]
                seen = seen or [other[u] for other in labels if other[u] != MISSING]
                total += (label - sum(seen) / len(seen)) ** 2
        return total

    return cost


def ipc_cost(row, members, normalize):
    """Minus the mean similarity to the members."""
    total = 0.0
    for other in members:
        c, n = agreement(row, other)
        total += c / len(row) if normalize == "all" else (c / n if n else 0.0)
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


def category_utility(labels, assigned, n_clusters):
    """Return ``sum_j w_j U_j``, U over the objects that partition j labeled, w_j their share."""
    total = 0.0
    for u in range(len(labels[0])):
        seen = [(row[u], k) for row, k in zip(labels, assigned, strict=True) if row[u] != MISSING]
        values = sorted({label for label, _ in seen})
        apart = sum((sum(label == value for label, _ in seen) / len(seen)) ** 2 for value in values)
        together = 0.0
        for cluster in range(n_clusters):
            own = [label for label, k in seen if k == cluster]
            if own:
                together += len(own) / len(seen) * sum((own.count(v) / len(own)) ** 2 for v in values)
        total += len(seen) * (together - apart)
    return total / sum(any(label != MISSING for label in row) for row in labels)
