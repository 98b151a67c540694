"""Dissimilarity increments as the paper writes them: the printed density, and three loops."""

import math
from itertools import combinations, pairwise


def density(w, mean):
    """Return the printed density of an increment ``w`` with a given mean."""
    beta = 2 - math.sqrt(2)
    first = math.pi * beta**2 / (4 * mean**2) * w * math.exp(-math.pi * beta**2 * w**2 / (4 * mean**2))
    second = (
        math.pi**2
        * beta**3
        / (8 * math.sqrt(2) * mean**3)
        * (4 * mean**2 / (math.pi * beta**2) - w**2)
        * math.exp(-math.pi * beta**2 * w**2 / (8 * mean**2))
        * math.erfc(math.sqrt(math.pi) * beta * w / (2 * math.sqrt(2) * mean))
    )
    return first + second


def spanning_tree(points):
    """Return the edges (length, i, j) of the minimum spanning tree, by Kruskal's algorithm."""
    edges = sorted((math.dist(points[i], points[j]), i, j) for i, j in combinations(range(len(points)), 2))
    component = list(range(len(points)))
    tree = []
    for length, i, j in edges:
        if component[i] != component[j]:
            tree.append((length, i, j))
            old, new = component[i], component[j]
            component = [new if c == old else c for c in component]
    return tree


def increments(points, choice):
    """Return the increments of a cluster: of all, or of consecutive, edges that meet at a vertex."""
    found = []
    tree = spanning_tree(points)
    for vertex in range(len(points)):
        lengths = sorted(length for length, i, j in tree if vertex in (i, j))
        if choice == "vertex":
            found += [b - a for a, b in combinations(lengths, 2)]
        else:
            found += [b - a for a, b in pairwise(lengths)]
    return found


def matrix(points, labels, *, weights, choice, exclude_self, by_observed):
    """Return the co-association by increments (a list of rows): partition, cluster, pair."""
    n = len(labels)
    total = [[0.0] * n for _ in range(n)]
    seen = [[0.0 if by_observed else sum(weights)] * n for _ in range(n)]
    for u, weight in enumerate(weights):
        for i in range(n):
            for j in range(n):
                if by_observed and labels[i][u] >= 0 and labels[j][u] >= 0:
                    seen[i][j] += weight
        for cluster in {row[u] for row in labels if row[u] >= 0}:
            members = [i for i in range(n) if labels[i][u] == cluster]
            if len(members) < 3:
                continue
            sizes = increments([points[i] for i in members], choice)
            mean = sum(sizes) / len(sizes)
            for i in members:
                for j in members:
                    others = sorted((math.dist(points[j], points[k]), k) for k in members if k != j)
                    to_nearest = others[1][0] if exclude_self and others[0][1] == i else others[0][0]
                    w = abs(math.dist(points[i], points[j]) - to_nearest)
                    total[i][j] += weight * density(w, mean) / density(0.0, mean)
    return [[total[i][j] / seen[i][j] if seen[i][j] else 0.0 for j in range(n)] for i in range(n)]


def description_length(points, labels, choice, label_code):
    """Return the description length in nats of one partition."""
    n = sum(label >= 0 for label in labels)
    total = 0.0
    for cluster in {label for label in labels if label >= 0}:
        members = [i for i in range(len(labels)) if labels[i] == cluster]
        if len(members) >= 3:
            sizes = increments([points[i] for i in members], choice)
            mean = sum(sizes) / len(sizes)
            total -= sum(math.log(density(w, mean)) for w in sizes)
        total += math.log(n) / 2
        if label_code:
            total += len(members) * math.log(n / len(members))
    return total
