"""Support of splits and agreement of trees, by sets of objects and pairs of objects."""

import numpy as np

from tests.naive import metrics
from tests.naive.trust import log_rate


def nodes_of(groups, sides, n_clusters):
    """The nodes, as sets of objects by their numbers, that are left of a tree cut into so many clusters."""
    nodes = {g: {i for i, of in enumerate(groups) if of == g} for g in range(len(sides) + 1)}
    for node, (one, two) in enumerate(sides, len(nodes)):
        if len(nodes) <= n_clusters:
            break
        nodes[node] = nodes.pop(one) | nodes.pop(two)
    return nodes


def splits_of(groups, sides):
    """The two sides of every merge, as sets of objects."""
    nodes = [{i for i, of in enumerate(groups) if of == g} for g in range(len(sides) + 1)]
    for one, two in sides:
        nodes.append(nodes[one] | nodes[two])
    return [(nodes[one], nodes[two]) for one, two in sides]


def jaccard(a, b):
    """The Jaccard index of two sets, 0 of empty ones."""
    return len(a & b) / len(a | b) if a | b else 0.0


def reproduced(split, groups, half_groups, half_sides):
    """How far a cluster of the tree of a half divides the objects of a split in the same two sides.

    Of objects that are in groups of both trees.
    """
    common = {i for i, of in enumerate(zip(groups, half_groups, strict=True)) if min(of) >= 0}
    one, two = (side & common for side in split)
    best = 0.0
    for sides in splits_of(half_groups, half_sides):
        for cluster in (side & common for side in sides):
            for own, other in ((one, two), (two, one)):
                left = (one | two) - cluster
                best = max(best, min(jaccard(own, cluster), jaccard(other, left)))
    return best


def adjusted_rand(first, second):
    """The adjusted Rand index of two lists of clusters."""
    place = [{i: k for k, of in enumerate(clusters) for i in of} for clusters in (first, second)]
    objects = sorted(place[0].keys() & place[1].keys())
    value = metrics.adjusted_rand(*([at[i] for i in objects] for at in place))
    return 1.0 if value is None else value


def adjusted_share(sets, weights):
    """The mean share of three sets of objects in their intersection, above what independent sets have.

    0 if these have all.
    """
    total = sum(weights)
    sizes = [sum(weights[i] for i in of) for of in sets]
    if sum(sizes) == 0:
        return 0.0
    mean = sum(sizes) / 3
    found = sum(weights[i] for i in set.intersection(*sets)) / mean
    chance = sizes[0] * sizes[1] * sizes[2] / total**2 / mean
    return (found - chance) / (1 - chance) if chance < 1 - 1e-12 else 0.0


def dice(a, b, weights):
    """Dice's coefficient of two sets of objects."""
    sizes = [sum(weights[i] for i in of) for of in (a, b)]
    return 2 * sum(weights[i] for i in a & b) / sum(sizes) if sum(sizes) else 0.0


def placed(labels, clusters, counts, extra):
    """The most probable cluster of every object by all other objects; of equal ones its own."""
    found = clusters.copy()
    for i in range(len(labels)):
        seen = [u for u in range(labels.shape[1]) if labels[i, u] >= 0]
        scores = {
            k: sum(counts[u] * log_rate(labels, clusters, i, u, k, extra) for u in seen)
            for k in sorted({*clusters.tolist()} - {-1})
        }
        if not seen:
            found[i] = -1
        elif clusters[i] < 0 or max(scores.values()) > scores[clusters[i]] + 1e-9:
            found[i] = max(scores, key=scores.get)
    return found


def most_probable(labels, groups, counts, extra, errors, *, left_out):
    """The most probable group of every object, of those that share a label with it; of equal ones its own.

    Its labels err at the one of the rates ``errors``, as frequent as given, by which it is most probable.
    """
    found, known = groups.copy(), groups >= 0
    for i in np.flatnonzero(known & (labels >= 0).any(axis=1)):
        scores = {}
        for k in range(groups.max() + 1):
            share = extra * np.mean(groups[known] == k)
            members = (groups == k) & ~(left_out & (np.arange(len(groups)) == i))
            by_error = {error: np.log(frequency) for error, frequency in errors.items()}
            for u in np.flatnonzero(labels[i] >= 0):
                alike = np.count_nonzero(members & (labels[:, u] == labels[i, u]))
                seen = np.count_nonzero(members & (labels[:, u] >= 0))
                n_labels = labels[:, u].max() + 1
                rate = (alike + share) / (seen + share * n_labels)
                for error in errors:
                    by_error[error] += counts[u] * np.log((1 - error) * rate + error / n_labels)
            if (k == groups[i]) or ((labels[members] == labels[i]) & (labels[i] >= 0)).any():
                scores[k] = np.log(np.count_nonzero(groups == k)) + max(by_error.values())
        if max(scores.values()) > scores[groups[i]] + 1e-9:
            found[i] = max(scores, key=scores.get)
    return found


def proposals(members, groups, trees, labels, counts, weights, extra):
    """Of each cluster, a set of objects, the one most like it that the trees of a half have, once placed."""
    best, found = [-1.0] * len(members), [set()] * len(members)
    for sides in trees:
        nodes = nodes_of(groups, sides, len(members))
        clusters, n_done = list(nodes.values()), len(sides) + 1 - len(nodes)
        numbers = {
            node: k for k, node in enumerate([*nodes, *range(len(sides) + 1 + n_done, 2 * len(sides) + 1)])
        }
        of_object = np.array(
            [next((k for k, of in enumerate(clusters) if i in of), -1) for i in range(len(groups))]
        )
        of_object = placed(labels, of_object, counts, extra).tolist()
        left = [(numbers[a], numbers[b]) for a, b in sides[n_done:]]
        splits = splits_of([*of_object, *range(len(clusters))], left)
        clades = [one for one, _ in splits] + [two for _, two in splits]
        clades = [{i for i in clade if i < len(groups)} for clade in clades]
        for clade in clades or [{i for i, k in enumerate(of_object) if k >= 0}]:
            for k, cluster in enumerate(members):
                if (alike := round(dice(clade, cluster, weights), 12)) > best[k]:
                    best[k], found[k] = alike, clade
    return found
