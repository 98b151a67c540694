"""Whether clusters of a sample of objects are distinct, and the merging of those that are not.

A partition tells two distinct clusters apart cleanly, or it joins them. The pieces of one cluster are told
apart by many partitions, too, but each cuts it in a place of its own. With

    x_u(k, l) = I_u(k, l) / H_u(k, l),

the share of the entropy of "k or l", over the objects of both, that the label in partition u explains beyond
what chance gives, relative to what u explains of clear cases, the distinctness of k and l is the mean of x
over the partitions that separate them, which x itself tells:

    sum_u w_u x_u^2 / (2 + sum_u w_u x_u)

The least distinct pair is merged, and so on to a single cluster. Objects move to their most probable cluster
as the clusters become larger, and the labels tell more about them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import by_partition
from bigcons.metrics.confidence import log_rates
from bigcons.overlaps.incidence import one_hot

# So many partitions of clean separation count half: a few may cut a cluster by chance.
PRIOR_PARTITIONS = 2.0

# What a partition explains of clear cases: this quantile over the pairs of clusters, and at least that much.
CLEAR_CASES, LEAST_CLEAR = 0.95, 0.02

# Of so many clusters with all others, since all pairs of many clusters are too many to hold.
CLEAR_ROWS = 60

# The least blur told apart from none, and the distinctness of a single cluster.
LEAST_BLUR, SINGLE = 0.2, 0.5

# Objects move, so many times over, whenever the number of clusters has fallen to this share.
MOVE_AT, SWEEPS = 0.85, 2


class MergePath(NamedTuple):
    """Clusters of the sample merged one by one, from many to one."""

    numbers: np.ndarray
    """Numbers of clusters, falling; a few are left out where a cluster lost its last object."""
    distinctness: np.ndarray
    """How distinct the least distinct two of so many clusters are, from 0 to 1."""
    clusters: list[np.ndarray]
    """(rows,) of every number."""

    def scores(self, numbers: np.ndarray) -> np.ndarray:
        """Return by how much these numbers of clusters stand out from all larger ones.

        The logarithm of the factor by which the least distinct two clusters are more blurred in the best of
        the larger numbers; the blur is one minus the distinctness. A single cluster counts as half distinct.
        """
        most = max(int(self.numbers.max(initial=1)), int(numbers.max()))
        distinctness = self.distinctness_of(np.arange(1, most + 2))
        distinctness[0] = SINGLE
        blur = np.maximum(1.0 - distinctness, LEAST_BLUR)
        best = np.minimum.accumulate(blur[::-1])[::-1]
        return np.asarray(np.log(best[numbers] / blur[numbers - 1]))

    def distinctness_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the distinctness of these numbers of clusters; of one left out that of the next larger.

        0 for more than the first, NaN for one cluster, which has no pair.
        """
        at = np.searchsorted(self.numbers[::-1], numbers)
        values = np.append(self.distinctness[::-1], 0.0)[at]
        return np.where(numbers == 1, np.nan, values)


def merge(
    incidence: Any, offsets: np.ndarray, counts: np.ndarray, clusters: np.ndarray, enough: float = 1.0
) -> MergePath:
    """Merge clusters (rows,) of objects by their incidence matrix H (rows, B).

    ``counts`` (M,): the weights of the partitions. Nothing is merged if the first clusters are as distinct as
    ``enough``. O(B K^2) time.
    """
    offsets, incidence = _without(offsets, incidence, counts == 0)
    counts = counts[counts > 0]
    clusters, table = _moved(incidence, offsets, clusters)
    pairs = Pairs.of(table, offsets, counts)
    numbers, found, members, n_moved_at = [], [], [], table.shape[1]
    while (n := table.shape[1]) > 1:
        at, other = sorted(divmod(int(pairs.distinctness.argmin()), n))
        numbers.append(n)
        found.append(pairs.distinctness[at, other])
        members.append(clusters)
        if found[0] > enough:
            break
        clusters = np.where(clusters == other, at, clusters - (clusters > other))
        table[:, at] += table[:, other]
        table = np.delete(table, other, axis=1)
        if n - 1 <= MOVE_AT * n_moved_at:
            clusters, table = _moved(incidence, offsets, clusters)
            pairs, n_moved_at = Pairs.of(table, offsets, counts, pairs), table.shape[1]
        else:
            pairs = pairs.merged(at, other, table, offsets)
    return MergePath(np.array(numbers, np.int64), np.array(found), members)


class Pairs(NamedTuple):
    """How distinct all pairs of clusters are."""

    distinctness: np.ndarray
    """(K, K), infinite on the diagonal."""
    clear: np.ndarray
    """(M,): what partitions explain of clear cases."""
    weights: np.ndarray
    """(M,) of the partitions."""

    @classmethod
    def of(
        cls, table: np.ndarray, offsets: np.ndarray, counts: np.ndarray, before: Pairs | None = None
    ) -> Pairs:
        """Return those of the table (B, K), and of clear cases from it; of two clusters as ``before``."""
        n, terms = table.shape[1], _terms(table, offsets)
        if n > 2 or before is None:  # a single pair tells nothing about clear cases
            some = np.unique(np.linspace(0, n - 1, min(n, CLEAR_ROWS)).astype(np.int64))
            pairs = [_separated(table, offsets, k, slice(None), *terms) for k in some]
            apart = np.arange(n) != some[:, None]
            clear = np.ones(counts.size)
            if n > 1:
                clear = np.quantile(np.stack(pairs, axis=1)[:, apart], CLEAR_CASES, axis=1)
            clear = np.maximum(clear, LEAST_CLEAR)
            before = cls(np.empty(0), clear, counts / counts.max() * clear / clear.max())
        found = np.zeros((n, n))
        for k in range(n - 1):
            found[k, k + 1 :] = before.summed(_separated(table, offsets, k, slice(k + 1, n), *terms))
        found += found.T
        np.fill_diagonal(found, np.inf)
        return before._replace(distinctness=found)

    def merged(self, at: int, other: int, table: np.ndarray, offsets: np.ndarray) -> Pairs:
        """Return those after a cluster was merged into another, which gave ``table``."""
        found = np.delete(np.delete(self.distinctness, other, axis=0), other, axis=1)
        row = self.summed(_separated(table, offsets, at, slice(None), *_terms(table, offsets)))
        found[at], found[:, at] = row, row
        found[at, at] = np.inf
        return self._replace(distinctness=found)

    def summed(self, separated: np.ndarray) -> np.ndarray:
        """Return the distinctness of pairs by how far every partition separates them, (M, pairs)."""
        x = np.minimum(separated / self.clear[:, None], 1.0)
        total = np.einsum("u,uk->k", self.weights, x)
        return np.asarray(np.einsum("u,uk,uk->k", self.weights, x, x) / (PRIOR_PARTITIONS + total))


def bytes_to_merge(n_partitions: int, n_clusters: int) -> int:
    """Return the bytes that `merge` holds besides tables (B, K)."""
    return 24 * n_partitions * min(n_clusters, CLEAR_ROWS) * n_clusters


def _without(offsets: np.ndarray, incidence: Any, left_out: np.ndarray) -> tuple[np.ndarray, Any]:
    """Return offsets and columns of all but some partitions."""
    if not left_out.any():
        return offsets, incidence
    widths = np.diff(offsets)
    kept = np.flatnonzero(np.repeat(~left_out, widths))
    return np.concatenate([[0], np.cumsum(widths[~left_out])]), incidence[:, kept]


def _terms(table: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the objects of each cluster that a partition labels, and ``sum n log n`` of them, (M, K)."""
    return by_partition(table, offsets), by_partition(_n_log_n(table), offsets)


def _separated(
    table: np.ndarray, offsets: np.ndarray, k: int, others: slice, sizes: np.ndarray, terms: np.ndarray
) -> np.ndarray:
    """Return ``I_u / H_u`` (M, others) of cluster k with others, less what chance gives."""
    both, n = table[:, others] + table[:, [k]], sizes[:, others] + sizes[:, [k]]
    entropy = _n_log_n(n) - _n_log_n(sizes[:, others]) - _n_log_n(sizes[:, [k]])
    information = entropy + terms[:, others] + terms[:, [k]] - by_partition(_n_log_n(both), offsets)
    chance = 0.5 * np.maximum(by_partition((both > 0).astype(np.float64), offsets) - 1.0, 0.0)
    room = entropy - chance
    share = np.divide(information - chance, room, out=np.zeros_like(room), where=room > 0)
    return np.clip(share, 0.0, 1.0)


def _n_log_n(n: np.ndarray) -> np.ndarray:
    return n * np.log(np.where(n > 0, n, 1.0))


def _moved(incidence: Any, offsets: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return clusters without gaps and their table (B, K) after objects moved to their most probable one.

    As by `bigcons.metrics.trust`: naive Bayes on the labels of each object, by the other objects.
    """
    used, clusters = np.unique(clusters, return_inverse=True)
    table, rows = incidence.T @ one_hot(clusters, used.size), np.arange(clusters.size)
    for _ in range(SWEEPS):
        sizes = table.sum(axis=0)
        log_shares, own_log_shares = log_rates(table.T, sizes, offsets)
        scores = incidence @ log_shares + np.log(np.bincount(clusters))
        scores[rows, clusters] += (incidence @ (own_log_shares - log_shares))[rows, clusters]
        nearest = scores.argmax(axis=1)
        if (nearest == clusters).all():
            break
        used, clusters = np.unique(nearest, return_inverse=True)
        table = incidence.T @ one_hot(clusters, used.size)
    return clusters, table
