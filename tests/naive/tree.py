"""Trees over groups of objects, and naive Bayes placement, one pair, partition and object after the other."""

import math
from itertools import pairwise, permutations

import numpy as np

from tests.naive.metrics import nmi

AVERAGE, DISTINCT = 0, 1


def table_of(labels, groups):
    """Return how many objects of each group are in each base cluster, and where partitions begin."""
    labels = np.asarray(labels)
    offsets = np.cumsum([0, *(labels.max(axis=0) + 1)])
    table = np.zeros((max(groups) + 1, offsets[-1]))
    for i, group in enumerate(groups):
        for u, label in enumerate(labels[i]):
            if group >= 0 and label >= 0:
                table[group, offsets[u] + label] += 1
    return table, offsets


def nearest(rows, columns):
    """Return the first column with the largest sum of products with each row, to 1e-9, and that sum."""
    found = []
    for row in rows:
        sums = [sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*columns, strict=True)]
        found.append((next(k for k, of in enumerate(sums) if of >= max(sums) - 1e-9), max(sums)))
    return found


def average_cost(first, second, offsets, counts, gains):
    """Return one minus the mean gain of pairs of objects of two rows of a table, NaN if none is seen."""
    together = pairs = 0.0
    for u, (start, stop) in enumerate(pairwise(offsets)):
        pairs += counts[u] * sum(first[start:stop]) * sum(second[start:stop])
        if counts[u] > 0:
            together += sum(gains[b] * first[b] * second[b] for b in range(start, stop))
    return 1.0 - together / pairs if pairs else math.nan


def distinctness(first, second, offsets, counts, prior=2.0):
    """Return how distinct two rows of a table are, NaN if no partition sees objects of both."""
    summed = squares = weight = 0.0
    for u, (start, stop) in enumerate(pairwise(offsets)):
        a, b = np.array(first[start:stop]), np.array(second[start:stop])
        if a.sum() and b.sum() and counts[u]:
            x = max(1.0 - float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)), 0.0)
            weight += counts[u]
            summed += counts[u] * x
            squares += counts[u] * x**2
    return squares / (prior + summed) if weight else math.nan


def pair_costs(rule, table, offsets, counts, gains):
    """Return what it costs to merge each two groups (G, G), infinite on the diagonal."""
    costs = np.full((len(table), len(table)), math.inf)
    for a in range(len(table)):
        for b in range(len(table)):
            if a < b and rule == AVERAGE:
                costs[a, b] = costs[b, a] = average_cost(table[a], table[b], offsets, counts, gains)
            elif a < b:
                costs[a, b] = costs[b, a] = distinctness(table[a], table[b], offsets, counts)
    return costs


def costs_before_merges(rule, table, offsets, counts, gains, sides):
    """Yield the costs of all pairs of the nodes that are left before each of some merges, counted anew.

    Nodes that are gone, or not yet made, cost infinitely; those that no partition sees together, as much as
    groups did in the mean at the beginning.
    """
    rows, left, unknown = [*np.array(table, float)], [*range(len(table))], None
    for one, two in sides:
        costs = pair_costs(rule, np.array([rows[node] for node in left]), offsets, counts, gains)
        if unknown is None:
            known = costs[np.isfinite(costs)]
            unknown = known.mean() if known.size else 0.0
        costs[np.isnan(costs)] = unknown
        of_all = np.full((len(rows), len(rows)), math.inf)
        of_all[np.ix_(left, left)] = costs
        yield of_all
        left = [node for node in left if node not in (one, two)] + [len(rows)]
        rows.append(rows[one] + rows[two])


def score(labels, clusters, counts):
    """Return the mean mutual information of a clustering with partitions, and its mean distinctness.

    That of pairs of objects in two clusters: 1 if no partition sees the two, 0 of a single cluster.
    """
    labels, clusters = np.asarray(labels), np.asarray(clusters)
    shared = 0.0
    for u, count in enumerate(counts):
        seen = (labels[:, u] >= 0) & (clusters >= 0)
        shared += count * nmi(clusters[seen], labels[seen, u])
    table, offsets = table_of(labels, clusters)
    costs = pair_costs(DISTINCT, table, offsets, counts, None)
    found = [
        1.0 if math.isnan(costs[k, other]) else costs[k, other]
        for k, other in permutations(clusters[clusters >= 0], 2)
        if k != other
    ]
    return shared / sum(counts), sum(found) / max(len(found), 1)


def scores(labels, clusters, i, n_clusters, counts, *, own=True, extra=1.0):
    """Return the log-probabilities (K,) of the labels and clusters of object i by those of all objects.

    Without the labels of the object itself if ``own``. Clusters without objects have minus infinity.
    """
    labels, clusters = np.asarray(labels), np.asarray(clusters)
    others = clusters >= 0
    n, sizes = np.count_nonzero(others), np.bincount(clusters[others], minlength=n_clusters)
    if own:
        others = others & (np.arange(len(labels)) != i)
    found = np.full(n_clusters, -math.inf)
    for k in np.flatnonzero(sizes):
        members = others & (clusters == k)
        found[k] = math.log(sizes[k] / n)
        more = extra * sizes[k] / n
        for u, count in enumerate(counts):
            if labels[i, u] >= 0:
                alike = np.count_nonzero(members & (labels[:, u] == labels[i, u])) + more
                seen = np.count_nonzero(members & (labels[:, u] >= 0))
                found[k] += count * math.log(alike / (seen + more * (labels[:, u].max() + 1)))
    return found


def probabilities(log_probabilities, temperature):
    """Return the probabilities (K,) of tempered evidence."""
    shares = np.exp(temperature * (log_probabilities - log_probabilities.max()))
    return shares / shares.sum()
