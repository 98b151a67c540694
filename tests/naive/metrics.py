"""Criteria as their definitions read, by enumeration wherever there is something to enumerate.

Labels are lists; None is missing.
"""

import math
from collections import Counter
from itertools import combinations, permutations


def known(a, b):
    return [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]


def matching_accuracy(truth, labels):
    pairs = known(truth, labels)
    classes, clusters = sorted({x for x, _ in pairs}), sorted({y for _, y in pairs})
    size = max(len(classes), len(clusters))
    padded = classes + [object() for _ in range(size - len(classes))]
    cell = Counter(pairs)
    best = max(
        sum(cell[x, y] for x, y in zip(order, clusters, strict=False))
        for order in permutations(padded, len(clusters))
    )
    return best / len(pairs)


def purity(truth, labels):
    pairs = known(truth, labels)
    clusters = {y for _, y in pairs}
    return sum(max(Counter(x for x, y in pairs if y == cluster).values()) for cluster in clusters) / len(
        pairs
    )


def adjusted_rand(truth, labels):
    """Return the index from the four kinds of pairs of objects; None where it is 0 / 0."""
    pairs = known(truth, labels)
    both = first = second = total = 0
    for (x, y), (v, w) in combinations(pairs, 2):
        both += x == v and y == w
        first += x == v
        second += y == w
        total += 1
    expected = first * second / total if total else 0
    if (first + second) / 2 == expected:
        return None
    return (both - expected) / ((first + second) / 2 - expected)


def entropy(values):
    n = len(values)
    return -sum(count / n * math.log(count / n) for count in Counter(values).values())


def nmi(a, b):
    pairs = known(a, b)
    if not pairs:
        return 0.0
    first, second = entropy([x for x, _ in pairs]), entropy([y for _, y in pairs])
    if first == 0 or second == 0:
        return 0.0
    return (first + second - entropy(pairs)) / math.sqrt(first * second)


def anmi(partitions, labels, *, weighted=True):
    weights = [len(known(partition, labels)) if weighted else 1 for partition in partitions]
    values = [nmi(partition, labels) for partition in partitions]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def divergence(p, q):
    """Return the Jensen-Shannon divergence in bits."""
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return sum(
        x * math.log2(x / m) / 2 for side in (p, q) for x, m in zip(side, middle, strict=True) if x > 0
    )


def jensen_shannon(y, z):
    """Return the least mean divergence over all ways to name the clusters."""
    size = max(len(y[0]), len(z[0]))
    y, z = ([[*row, *[0.0] * (size - len(row))] for row in rows] for rows in (y, z))
    return min(
        sum(divergence([row[k] for k in order], other) for row, other in zip(y, z, strict=True)) / len(y)
        for order in permutations(range(size))
    )


def groupings(n_objects, n_clusters):
    """Yield every grouping of the objects into exactly so many clusters, as restricted-growth strings."""

    def grow(prefix, used):
        if len(prefix) == n_objects:
            if used == n_clusters:
                yield prefix
            return
        for label in range(min(used + 1, n_clusters)):
            yield from grow([*prefix, label], max(used, label + 1))

    yield from grow([], 0)
