"""Co-association and what is made of it, by definition, one pair at a time."""

from fractions import Fraction
from itertools import combinations, pairwise

from tests.naive.agreement import counts


def similarity(labels, i, j, over_all=False):
    """Return the share of partitions that join objects i and j, of those that label both; 0 if none does."""
    n_agree, n_seen = counts(labels, i, j)
    if over_all:
        return Fraction(n_agree, len(labels[i]))
    return Fraction(n_agree, n_seen) if n_seen else Fraction(0)


def labeled_objects(labels):
    """Return the objects with a label in some partition."""
    return [i for i, row in enumerate(labels) if max(row) >= 0]


def distance_between(distances, a, b, linkage):
    """Return the distance of two clusters, sets of objects, given that of any two objects."""
    values = [distances[i, j] for i in a for j in b]
    if linkage == "average":
        return sum(values) / len(values)
    return min(values) if linkage == "single" else max(values)


def replay(distances, groups, merges, linkage):
    """Yield, for each merge, the distance of the clusters merged and the least distance of any two.

    ``groups`` are the objects of the points at the start; a merge is of two points.
    """
    clusters = [frozenset(group) for group in groups]
    points = [set(group) for group in groups]
    for first, second in merges:
        a = next(cluster for cluster in clusters if points[first] <= cluster)
        b = next(cluster for cluster in clusters if points[second] <= cluster)
        least = min(distance_between(distances, x, y, linkage) for x, y in combinations(clusters, 2))
        yield distance_between(distances, a, b, linkage), least
        clusters = [cluster for cluster in clusters if cluster not in (a, b)] + [a | b]


def left_after_merges(tree, n_clusters):
    """Return the cluster of each point after the first rows of scipy's linkage matrix, in their order.

    Scipy's own cut goes by heights instead.
    """
    n = len(tree) + 1
    clusters = {i: [i] for i in range(n)}
    for merge in range(n - n_clusters):
        a, b = (int(cluster) for cluster in tree[merge][:2])
        clusters[n + merge] = clusters.pop(a) + clusters.pop(b)
    found = {i: number for number, members in clusters.items() for i in members}
    return [found[i] for i in range(n)]


def lifetimes(heights, bottom, top):
    """Return the lifetime of each number of clusters: the range of heights with that many."""
    n = len(heights) + 1
    ends = [bottom, *sorted(heights), top]
    found = {}
    for low, high in pairwise(ends):
        if high > low:
            middle = (low + high) / 2
            k = n - sum(height <= middle for height in heights)
            found[k] = found.get(k, 0) + high - low
    return found


def furthest(labels, n_clusters):
    """Return the centers and the labels of furthest consensus; ties go to the lowest."""
    objects = labeled_objects(labels)
    pairs = list(combinations(objects, 2))
    centers = list(min(pairs, key=lambda pair: similarity(labels, *pair))) if pairs else objects
    centers = centers[:n_clusters]
    if len(centers) == 2 and similarity(labels, *centers) == 1:
        centers = centers[:1]
    while len(centers) < n_clusters:
        nearest = {i: max(similarity(labels, i, c) for c in centers) for i in objects}
        candidate = min(objects, key=lambda i: nearest[i])
        if nearest[candidate] == 1:
            break
        centers.append(candidate)
    found = [-1] * len(labels)
    for i in objects:
        found[i] = max(range(len(centers)), key=lambda k: similarity(labels, i, centers[k]))
    return centers, found


def disagreements(labels, clusters):
    """Return how many pairs, over the partitions that label them, one joins and the other separates."""
    total = 0
    for i, j in combinations(range(len(labels)), 2):
        for first, second in zip(labels[i], labels[j], strict=True):
            if first >= 0 and second >= 0:
                total += (first == second) != (clusters[i] == clusters[j])
    return total
