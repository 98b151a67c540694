"""Groupings of base clusters into meta-clusters, by how similar they are to those of other partitions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.seeding import generator
from bigcons.solvers.hypergraph.incidence import one_hot, partition_of_clusters


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
    similarity = overlaps / lengths / lengths[:, None]
    partition = partition_of_clusters(offsets)
    similarity[partition[:, None] == partition] = 0.0
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
    from scipy.optimize import linear_sum_assignment

    groups = groups.copy()
    best = Grouping(groups, -np.inf, is_settled=False)
    for _ in range(max_iter):
        before = groups.copy()
        for u in range(len(offsets) - 1):
            own = slice(offsets[u], offsets[u + 1])
            resemblance = group_similarities(similarity[own], groups, n_groups, own)
            if one_to_one:
                cluster, group = linear_sum_assignment(resemblance, maximize=True)
                groups[own] = -1
                groups[own.start + cluster] = group
            else:
                groups[own] = resemblance.argmax(axis=1)
        objective = mean_similarity(similarity, offsets, groups, n_groups)
        if (groups == before).all():
            return Grouping(groups, objective)
        if objective > best.objective:
            best = Grouping(groups.copy(), objective, is_settled=False)
    return best


def group_similarities(similarity: np.ndarray, groups: np.ndarray, n_groups: int, own: slice) -> np.ndarray:
    """Return the mean similarity (rows, n_groups) to the members of each group outside ``own``; 0 if none."""
    table = one_hot(groups, n_groups)
    table[own] = 0.0
    return np.asarray(similarity @ table / np.maximum(table.sum(axis=0), 1.0))


def mean_similarity(similarity: np.ndarray, offsets: np.ndarray, groups: np.ndarray, n_groups: int) -> float:
    """Return the summed mean similarity of base clusters to those of other partitions in their group."""
    total = 0.0
    for u in range(len(offsets) - 1):
        own = slice(offsets[u], offsets[u + 1])
        resemblance = group_similarities(similarity[own], groups, n_groups, own)
        inside = np.flatnonzero(groups[own] >= 0)
        total += float(resemblance[inside, groups[own][inside]].sum())
    return total


def nearest_groups(similarity: np.ndarray, groups: np.ndarray, n_groups: int) -> np.ndarray:
    """Return the groups (B,), each base cluster in none having been given to the one it resembles most."""
    resemblance = group_similarities(similarity, groups, n_groups, slice(0, 0))
    return np.where(groups >= 0, groups, resemblance.argmax(axis=1))
