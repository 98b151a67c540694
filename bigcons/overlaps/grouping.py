"""Groupings of base clusters into meta-clusters, by how similar they are to those of other partitions."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bigcons.overlaps.incidence import clear_own_partitions, one_hot, partition_of_clusters
from bigcons.seeding import generator


class Grouping(NamedTuple):
    """A grouping of base clusters into meta-clusters."""

    groups: np.ndarray
    """(B,) int64, -1 for a base cluster that is in none."""
    objective: float
    is_settled: bool = True
    """Whether regrouping changes nothing any more."""


def cosines(overlaps: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return ``|a and b| / sqrt(|a| |b|)`` (B, B) float64, zero between clusters of one partition."""
    lengths = np.sqrt(np.diag(overlaps))
    similarity = overlaps / lengths
    similarity /= lengths[:, None]
    clear_own_partitions(similarity, offsets)
    return similarity


def starting_partitions(offsets: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Return the partitions (M,) in the order in which they are started from."""
    n_own = np.diff(offsets)
    draws = generator(seed, "correspondence.starts").random(len(n_own))
    return np.lexsort((draws, np.abs(n_own - n_clusters), n_own < n_clusters))


def first_groups(
    similarity: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, start: int, n_clusters: int
) -> np.ndarray:
    """Return groups (B,) of one base cluster each: the largest of partition ``start``, -1 elsewhere.

    If they are too few, the base clusters least similar to any chosen one follow, the lowest on a tie.
    """
    own = np.arange(offsets[start], offsets[start + 1])
    chosen = own[np.sort(np.argsort(-sizes[own], kind="stable")[:n_clusters])].tolist()
    while len(chosen) < min(n_clusters, len(sizes)):
        closeness = similarity[:, chosen].max(axis=1)
        closeness[own] = np.inf
        closeness[chosen] = np.inf
        chosen.append(int(closeness.argmin()))
    groups = np.full(len(sizes), -1)
    groups[chosen] = np.arange(len(chosen))
    return groups


def alternate(
    similarity: np.ndarray,
    offsets: np.ndarray,
    groups: np.ndarray,
    n_groups: int,
    max_iter: int,
    *,
    one_to_one: bool,
) -> Grouping:
    """Regroup the base clusters of one partition after another until none moves.

    If ``max_iter`` sweeps do not get there, for a sweep need not raise means, the best one counts.
    """
    course = [groups]
    for _ in range(max_iter):
        groups = groups.copy()
        _sweep(similarity, offsets, groups, n_groups, one_to_one=one_to_one)
        if (groups == course[-1]).all():
            return Grouping(groups, mean_similarity(similarity, offsets, groups, n_groups))
        course.append(groups)
    objectives = [mean_similarity(similarity, offsets, groups, n_groups) for groups in course[1:]]
    best = int(np.argmax(objectives))
    return Grouping(course[1 + best], objectives[best], is_settled=False)


def _sweep(
    similarity: np.ndarray, offsets: np.ndarray, groups: np.ndarray, n_groups: int, *, one_to_one: bool
) -> None:
    """Regroup the base clusters of one partition after another, ``groups`` in place; O(B^2 K)."""
    from scipy.optimize import linear_sum_assignment

    table = one_hot(groups, n_groups)
    sizes = table.sum(axis=0)  # both follow the groups: to form them anew for every partition is dearer
    for first, last in pairwise(offsets):
        own = slice(first, last)
        sizes -= table[own].sum(axis=0)
        table[own] = 0.0
        resemblance = similarity[own] @ table / np.maximum(sizes, 1.0)
        if one_to_one:
            cluster, group = linear_sum_assignment(resemblance, maximize=True)
            groups[own] = -1
            groups[first + cluster] = group
        else:
            groups[own] = resemblance.argmax(axis=1)
        table[own] = one_hot(groups[own], n_groups)
        sizes += table[own].sum(axis=0)


def mean_similarity(similarity: np.ndarray, offsets: np.ndarray, groups: np.ndarray, n_groups: int) -> float:
    """Return the summed mean similarity of base clusters to those of other partitions in their group."""
    table = one_hot(groups, n_groups)
    n_own = np.add.reduceat(table, offsets[:-1], axis=0)[partition_of_clusters(offsets)]
    means = similarity @ table / np.maximum(table.sum(axis=0) - n_own, 1.0)  # own partitions are not similar
    inside = np.flatnonzero(groups >= 0)
    return float(means[inside, groups[inside]].sum())


def nearest_groups(similarity: np.ndarray, groups: np.ndarray, n_groups: int) -> np.ndarray:
    """Return the groups (B,), each base cluster in none having been given to the one it resembles most."""
    table = one_hot(groups, n_groups)
    resemblance = similarity @ table / np.maximum(table.sum(axis=0), 1.0)
    return np.where(groups >= 0, groups, resemblance.argmax(axis=1))
