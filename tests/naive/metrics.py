"""Criteria by definition, by enumeration where possible.

Labels are lists; None is missing.
"""

import math
from collections import Counter
from itertools import combinations, pairwise, permutations


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


def greedy_accuracy(truth, labels):
    """Match the largest remaining overlap, ties by class and then by cluster, until none is left."""
    pairs = known(truth, labels)
    left, matched = Counter(pairs), 0
    while left:
        (x, y), count = min(left.items(), key=lambda item: (-item[1], item[0]))
        matched += count
        left = Counter({(v, w): n for (v, w), n in left.items() if v != x and w != y})
    return matched / len(pairs)


def rand_index(a, b):
    """Return the share of pairs of objects that both join or both separate; None if there is no pair."""
    agree = [(x == y) == (v == w) for (x, v), (y, w) in combinations(known(a, b), 2)]
    return sum(agree) / len(agree) if agree else None


def van_dongen(a, b):
    """Return the share of objects outside the largest part of their cluster, averaged over both sides."""
    pairs = known(a, b)
    return ((1 - purity(a, b)) + (1 - purity(b, a))) / 2 if pairs else None


def adjusted_rand(truth, labels):
    """Return the index from the four kinds of pairs of objects; None where it is 0 / 0."""
    pairs = list(combinations(known(truth, labels), 2))
    both = sum(a == b for a, b in pairs)
    first, second = (sum(a[k] == b[k] for a, b in pairs) for k in (0, 1))
    expected = first * second / len(pairs) if pairs else 0
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


def variation_of_information(a, b):
    pairs = known(a, b)
    return 2 * entropy(pairs) - entropy([x for x, _ in pairs]) - entropy([y for _, y in pairs])


def average(criterion, partitions, labels, *, weighted):
    """Return the mean of a criterion over the partitions that share an object with the labels."""
    shared = [partition for partition in partitions if known(partition, labels)]
    weights = [len(known(partition, labels)) if weighted else 1 for partition in shared]
    values = [criterion(labels, partition) for partition in shared]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def anmi(partitions, labels, *, weighted=True):
    """Labels of objects that ``labels`` leaves out count with NMI 0 if weighted."""
    covered = sum(len(known(partition, labels)) for partition in partitions)
    n_labels = sum(label is not None for partition in partitions for label in partition)
    share = covered / n_labels if weighted else 1
    return share * average(nmi, partitions, labels, weighted=weighted)


def divergence(p, q):
    """Return the Jensen-Shannon divergence in bits."""
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return sum(
        x * math.log2(x / m) / 2 for side in (p, q) for x, m in zip(side, middle, strict=True) if x > 0
    )


def jensen_shannon(y, z):
    """Return the least mean divergence over all matchings of the clusters."""
    size = max(len(y[0]), len(z[0]))
    y, z = ([[*row, *[0.0] * (size - len(row))] for row in rows] for rows in (y, z))
    return min(
        sum(divergence([row[k] for k in order], other) for row, other in zip(y, z, strict=True)) / len(y)
        for order in permutations(range(size))
    )


def groupings(n_objects, n_clusters):
    """Yield every partition of the objects into exactly k clusters, as restricted-growth strings."""

    def grow(prefix, used):
        if len(prefix) == n_objects:
            if used == n_clusters:
                yield prefix
            return
        for label in range(min(used + 1, n_clusters)):
            yield from grow([*prefix, label], max(used, label + 1))

    yield from grow([], 0)


DISTANCES = {
    "euclidean": math.dist,
    "sqeuclidean": lambda x, y: math.dist(x, y) ** 2,
    "cityblock": lambda x, y: sum(abs(a - b) for a, b in zip(x, y, strict=True)),
}


def compactness(features, labels, metric):
    distance = DISTANCES[metric]
    total = 0.0
    for cluster in set(labels) - {None}:
        members = [x for x, label in zip(features, labels, strict=True) if label == cluster]
        distances = [distance(x, y) for x, y in combinations(members, 2)]
        if distances:
            total += len(members) * sum(distances) / len(distances)
    return total / sum(label is not None for label in labels)


def cluster_overlap(memberships, threshold):
    rows = [[y if y >= threshold else 0.0 for y in row] for row in memberships]
    rows = [[y / sum(row) for y in row] for row in rows if sum(row)]
    clusters = range(len(memberships[0]))

    def weight(a, b):
        if a == b:
            return 1.0
        size = sum(row[a] for row in rows)
        return sum(row[a] * row[b] for row in rows) / size if size else 0.0

    return [[weight(a, b) for b in clusters] for a in clusters]


def cluster_centroids(features, memberships):
    centroids = []
    for k in range(len(memberships[0])):
        size = sum(row[k] for row in memberships)
        sums = [
            sum(row[k] * x[f] for x, row in zip(features, memberships, strict=True))
            for f in range(len(features[0]))
        ]
        centroids.append([total / size if size else math.nan for total in sums])
    return centroids


def error_roc_auc(merges, classes):
    """Cut the dendrogram into every number of clusters, and count the errors of each cut pair by pair."""
    n_objects = len(classes)
    clusters = {i: [i] for i in range(n_objects)}
    curve = []
    for step in range(n_objects):
        cluster_of = {i: name for name, members in clusters.items() for i in members}
        pairs = [
            (classes[i] == classes[j], cluster_of[i] == cluster_of[j])
            for i, j in combinations(range(n_objects), 2)
            if classes[i] is not None and classes[j] is not None
        ]
        alike = [joined for same, joined in pairs if same]
        unlike = [joined for same, joined in pairs if not same]
        if not alike or not unlike:
            return None
        curve.append((1 - sum(alike) / len(alike), sum(unlike) / len(unlike)))
        if step < n_objects - 1:
            left, right = merges[step]
            clusters[n_objects + step] = clusters.pop(left) + clusters.pop(right)
    return sum((v - x) * (u + w) / 2 for (u, x), (w, v) in pairwise(curve))
