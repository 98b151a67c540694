"""Support of splits and agreement of trees, by sets of objects and pairs of objects."""

from itertools import combinations


def clusters_of(groups, merges, n_clusters):
    """The clusters, as sets of objects, after merging groups until so many are left."""
    clusters = {g: {i for i, of in enumerate(groups) if of == g} for g in range(max(groups) + 1)}
    for kept, merged in merges:
        if len(clusters) <= n_clusters:
            break
        clusters[kept] = clusters[kept] | clusters.pop(merged)
    return list(clusters.values())


def splits_of(groups, merges):
    """The two sides of every merge, as sets of objects."""
    clusters = {g: {i for i, of in enumerate(groups) if of == g} for g in range(max(groups) + 1)}
    found = []
    for kept, merged in merges:
        one, two = clusters[kept], clusters.pop(merged)
        found.append((one, two))
        clusters[kept] = one | two
    return found


def jaccard(a, b):
    """The Jaccard index of two sets, 0 of empty ones."""
    return len(a & b) / len(a | b) if a | b else 0.0


def reproduced(split, groups, half_groups, half_merges):
    """How far a cluster of the tree of a half divides the objects of a split in the same two sides.

    Of objects that are in groups of both trees.
    """
    common = {i for i, of in enumerate(zip(groups, half_groups, strict=True)) if min(of) >= 0}
    one, two = (side & common for side in split)
    best = 0.0
    for sides in splits_of(half_groups, half_merges):
        for cluster in (side & common for side in sides):
            for own, other in ((one, two), (two, one)):
                left = (one | two) - cluster
                best = max(best, min(jaccard(own, cluster), jaccard(other, left)))
    return best


def adjusted_rand(first, second):
    """The adjusted Rand index of two lists of clusters, of the objects in both."""
    place = [{i: k for k, of in enumerate(clusters) for i in of} for clusters in (first, second)]
    objects = sorted(place[0].keys() & place[1].keys())
    both = one = two = total = 0
    for i, j in combinations(objects, 2):
        a, b = (at[i] == at[j] for at in place)
        both, one, two, total = both + (a and b), one + a, two + b, total + 1
    if one == two and one in (0, total):
        return 1.0
    chance = one * two / total
    return (both - chance) / ((one + two) / 2 - chance)
