"""Do other partitions of the same data find it, too? Trees of random halves of the partitions.

A half of the partitions groups the objects anew and merges its groups into trees of its own.

Of a *split* of a cluster in two, the support is how far a half reproduces it: some cluster of the tree of the
half divides the objects of the split, and of the Jaccard indices of the two sides the smaller one counts, for
the cluster of which that is largest. The mean over random halves is what bootstrapping is to phylogenies
(Felsenstein 1985), with a share in place of yes or no for each (Lemoine et al. 2018). The order in which a
tree joins clusters that are equally far apart does not matter: a cluster that a half finds divides every
union of clusters.

Of a *number of clusters*, the trees of two halves without a common partition, both cut at that number, have
an adjusted Rand index r. All partitions would agree with as many others to ``2 r / (1 + r)``, the formula of
Spearman (1910) and Brown (1910) for tests that are split in halves. This agreement is near 0 for labels
without structure, near 1 for clear clusters, and between the two for a continuum, which others may divide
elsewhere.

Of a *cluster*, two halves without a common partition each propose one, from their trees cut at as many
clusters. All labels then place every object in what a half proposes, so that proposals differ by what a
cluster is and not by the objects that half of the labels cannot place. The support is the chance that a
member of the cluster or of one of the two proposals, each drawn as often, is in all three, adjusted for
chance as kappa is (Cohen 1960): near 0 for labels without structure, near 1 for real clusters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import incidence_of
from bigcons.execution.blas import one_thread
from bigcons.kernels.cluster_tables import count_assigned, in_whole_vectors, padded
from bigcons.metrics.clusterings import adjusted_rand_of_pairs, pairs_of
from bigcons.metrics.confidence import SEED, ClusterSupport, log_rates, random_half, ratio
from bigcons.overlaps.reliability import reliability_of_table
from bigcons.overlaps.tree import Groups, Sample, Tree, by_spectrum
from bigcons.seeding import generator
from bigcons.stores.ensemble_store import observed


class Support(NamedTuple):
    """How far halves of the partitions reproduce the splits of a tree, NaN where nothing is known."""

    mean: np.ndarray
    """(G - 1,), in the order of the merges."""
    error: np.ndarray
    """(G - 1,): the standard error of the mean, the halves taken for independent draws."""


class Half(NamedTuple):
    """Groups of objects by some of the partitions, and the trees that merge them."""

    groups: np.ndarray
    """(rows,) int64 of the objects, -1 for those without labels."""
    trees: dict[str, Tree]


class Halves(NamedTuple):
    """Groups of the same objects by random halves of the partitions."""

    pairs: list[tuple[Half, Half]]
    """The halves of each division of the partitions in two; none of a single partition."""
    labels: np.ndarray
    """(rows, M), or memberships (rows, B)."""
    offsets: np.ndarray
    counts: np.ndarray
    """(M,): the weights of the partitions."""

    @classmethod
    def of(
        cls, labels: np.ndarray, offsets: np.ndarray, n_groups: int, counts: np.ndarray | None = None
    ) -> Halves:
        """Return groups by halves of labels (rows, M), or memberships (rows, B): see `Sample`.

        A partition is in one half whatever its weight in ``counts`` (M,). Each half takes the objects in an
        order of its own, so that halves do not agree by ties. Eight times the cost of the groups of half as
        many partitions.
        """
        M, widths = offsets.size - 1, np.diff(offsets)
        counts = np.ones(M) if counts is None else counts
        draw, shuffle = generator(SEED, "tree.halves"), generator(SEED, "tree.halves.objects")
        firsts = [draw.permutation(M) < M // 2 for _ in range(4 if M > 1 else 0)]
        chosen = np.array([half for first in firsts for half in (first, ~first)]).reshape(-1, M)
        reliable = np.ones((len(chosen), offsets[-1]))
        if len(chosen) and by_spectrum(len(labels), offsets[-1], n_groups):
            reliable = reliability_of_table(incidence_of(labels, offsets), offsets, chosen * counts)
        halves: list[Half | None] = []
        for of_half, by_column in zip(chosen, reliable, strict=True):
            some, starts = labels_of(of_half, labels, offsets)
            if observed(some, starts).any():
                order = shuffle.permutation(len(labels))
                own = counts[of_half], by_column[np.repeat(of_half, widths)]
                found = Sample(some[order], starts, *own).groups_at_any_scale(n_groups)
                halves.append(Half(found.groups[np.argsort(order)], found.trees))
            else:
                halves.append(None)
        pairs = [(one, two) for one, two in zip(halves[::2], halves[1::2], strict=True) if one and two]
        return cls(pairs, labels, offsets, counts)

    def support(self, groups: Groups, name: str) -> Support:
        """Return the support of the splits of the tree of this name over groups of the same objects."""
        n_splits = len(groups.trees[name].merges)
        found = [
            reproduced(groups.trees[name], half.trees[name], common_objects(groups.groups, half.groups))
            for pair in self.pairs
            for half in pair
        ]
        if not found:
            return Support(np.full(n_splits, np.nan), np.full(n_splits, np.nan))
        shares = np.array(found)
        return Support(shares.mean(axis=0), shares.std(axis=0, ddof=1) / np.sqrt(len(shares)))

    def agreement(self, name: str, most: int) -> np.ndarray:
        """Return how far as many other partitions would agree on 1, 2, ... clusters, (most,), from 0 to 1.

        By the mean over the pairs of halves; NaN if there are none, or no objects that both label.
        """
        if not self.pairs:
            return np.full(most, np.nan)
        r = np.mean([agreement_of(one, two, name, most) for one, two in self.pairs], axis=0)
        return np.maximum(2.0 * r / (1.0 + r), 0.0)

    def of_clusters(self, clusters: np.ndarray, confidence: np.ndarray, n_clusters: int) -> ClusterSupport:
        """Return the support of clusters (rows,), -1 for none, of at most ``n_clusters``, by labels.

        Objects count by the ``confidence`` (rows,) that they are in their cluster. NaN of clusters without
        objects, and of all without halves. O(rows M K) time for each half.
        """
        K, own, given = n_clusters, np.arange(n_clusters), np.flatnonzero(clusters >= 0)
        clusters, weights = clusters[given], np.asarray(confidence, np.float64)[given]
        sizes = np.bincount(clusters, weights, K)
        supports, divisions = np.zeros(K), np.zeros((K, K))
        with one_thread(user_api="blas"):
            for pair in self.pairs:
                found = [self._proposals(half, given, clusters, weights, K) for half in pair]
                both = found[0].has_own & found[1].has_own
                shared = np.bincount(clusters[both], weights[both], K)
                of_all = np.array([sizes, *(of.inside.sum(axis=1) for of in found)])
                supports += adjusted_share(shared, of_all, sizes.sum())
                alone = np.broadcast_to(sizes[:, None], (K, K))
                of_two = [of.inside[own, own][:, None] + of.inside for of in found]
                total = sizes[:, None] + sizes
                divisions += adjusted_share(shared[:, None], np.array([alone, *of_two]), total)
        n_pairs = np.where(sizes > 0, len(self.pairs) or np.nan, np.nan)
        divisions = np.minimum(divisions, divisions.T) / np.maximum(n_pairs, n_pairs[:, None])
        return ClusterSupport(np.maximum(supports / n_pairs, 0.0), np.maximum(divisions, 0.0))

    def _proposals(
        self, half: Half, given: np.ndarray, clusters: np.ndarray, weights: np.ndarray, K: int
    ) -> Proposals:
        """Return what a half proposes for each cluster: of its trees, the clade most like it.

        Most like, by Dice's coefficient, the objects ``given`` (n,) in ``clusters`` (n,), by weight.
        """
        sizes, best = np.bincount(clusters, weights, K), np.full(K, -1.0)
        found = Proposals(np.zeros(given.size, bool), np.zeros((K, K)))
        for tree in half.trees.values():
            top = tree.cut(K)
            left = tree.merges[max(len(top) - K, 0) :]
            sides = sides_of(Tree(top[left], np.zeros(len(left))))
            clades = np.concatenate(sides) if len(left) else np.ones((1, 1), bool)
            n_placed = clades.shape[1]
            placed = self._placed(np.append(top, -1)[half.groups], n_placed)[given]
            at = placed >= 0
            table = np.bincount(placed[at] * K + clusters[at], weights[at], n_placed * K).reshape(-1, K)
            shared = clades @ table
            alike = ratio(2.0 * shared, shared.sum(axis=1)[:, None] + sizes, 0.0).round(12)
            chosen, most = alike.argmax(axis=0), alike.max(axis=0)
            is_better = most > best
            is_in = np.pad(clades[chosen], ((0, 0), (0, 1)))  # and of -1, in none
            found.inside[is_better] = shared[chosen[is_better]]
            found.has_own[:] = np.where(is_better[clusters], is_in[clusters, placed], found.has_own)
            best = np.maximum(best, most)
        return found

    def _placed(self, clusters: np.ndarray, n_clusters: int) -> np.ndarray:
        """Return the most probable cluster (rows,) of each object by all its labels, itself left out.

        By naive Bayes, by what is in the ``clusters`` (rows,) and once more by what is placed there, all as
        probable beforehand; where the labels do not tell, objects stay.
        """
        from bigcons.kernels.tree import place

        labels, offsets, K, rows = self.labels, self.offsets, n_clusters, len(self.labels)
        by_column = np.repeat(self.counts, np.diff(offsets))[:, None]
        half = random_half(self.counts.size)
        no_shares, none = np.empty((0, K), np.float32), np.empty(0, np.float32)
        T, sizes, found = np.zeros((offsets[-1], padded(K))), np.zeros(K), clusters.astype(np.int32)
        count_assigned(labels, offsets, found, T, sizes)
        for _ in range(2):
            held = sizes > 0
            with np.errstate(divide="ignore", invalid="ignore"):  # of clusters without objects
                rates, own = log_rates(np.ascontiguousarray(T[:, :K].T), sizes, offsets)
            rates, own = (by_column * np.where(held, of, 0.0) for of in (rates, own))
            evidence = in_whole_vectors(rates), in_whole_vectors(own - rates)
            current, found = found, np.empty(rows, np.int32)
            T, sizes = np.zeros_like(T), np.zeros(K)
            place(
                *(labels, current, False, offsets, half, *evidence),
                # rounding settles no tie: the evidence for another cluster must be larger by this
                *(np.where(held, 0.0, -np.inf), np.where(held, 1e-9, -np.inf), 1.0),
                *(found, no_shares, none, np.empty(0, np.int32), none, T, sizes),
                *(np.zeros(2 + K), np.zeros((3, 2, K))),
            )
        return found


class Proposals(NamedTuple):
    """What a half of the partitions proposes for each of K clusters."""

    has_own: np.ndarray
    """(n,) bool: which objects are in what is proposed for their own cluster."""
    inside: np.ndarray
    """(K, K): the weight of the objects of each cluster in what is proposed for each, a row for each."""


def adjusted_share(shared: np.ndarray, sizes: np.ndarray, total: Any) -> np.ndarray:
    """Return the mean share of three sets in their intersection, adjusted for chance: 1 of equal sets.

    By ``sizes`` (3, ...) of the sets and ``total`` of all objects, 0 in the mean of independent sets; 1 of
    three that all have all objects.
    """
    found = ratio(3.0 * shared, sizes.sum(axis=0), 0.0)
    chance = ratio(3.0 * sizes.prod(axis=0), sizes.sum(axis=0) * np.square(total), 0.0)
    return np.asarray(ratio((found - chance).round(12), (1.0 - chance).round(12), 1.0))


def labels_of(chosen: np.ndarray, labels: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels, or memberships, of chosen partitions (M,) bool, and where their clusters begin."""
    sizes = np.diff(offsets)
    columns = np.repeat(chosen, sizes) if labels.dtype.kind == "f" else chosen
    return np.ascontiguousarray(labels[:, columns]), np.concatenate([[0], np.cumsum(sizes[chosen])])


def sides_of(tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """Return the groups of the two sides of each merge, (G - 1, G) bool each."""
    G = len(tree.merges) + 1
    members, sides = np.eye(G, dtype=bool), np.empty((2, G - 1, G), bool)
    for at, (kept, merged) in enumerate(tree.merges):
        sides[0, at], sides[1, at] = members[kept], members[merged]
        members[kept] |= members[merged]
    return sides[0], sides[1]


def common_objects(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return how many objects groups (rows,) of two kinds share, (G, H) float64; -1 is in none."""
    table = np.zeros((int(first.max()) + 1, int(second.max()) + 1))
    both = (first >= 0) & (second >= 0)
    np.add.at(table, (first[both], second[both]), 1.0)
    return table


def reproduced(tree: Tree, other: Tree, shared: np.ndarray) -> np.ndarray:
    """Return how far clusters of another tree divide the objects of splits in the same two sides, (G - 1,).

    ``shared`` (G, H): objects that the groups of the two have in common. With sides X and Y of a split and a
    cluster N of the other tree, the smaller of the Jaccard indices of X and N, and of Y and what N leaves of
    X and Y; the largest over N, and over which side is X. O(G H) time; 0 if the other tree has one group.
    """
    sides, table = node_sides(tree), node_sums(other, node_sums(tree, shared).T).T
    best = np.zeros(len(sides))
    if table.shape[1] == 1:
        return best
    n_objects, inside = table[:, -1:], table[:, :-1]
    sizes = inside[-1]
    for own, rest in (sides.T, sides.T[::-1]):
        own_in, rest_in = inside[own], inside[rest]
        of_own = own_in / np.maximum(n_objects[own] + sizes - own_in, 1.0)
        of_rest = (n_objects[rest] - rest_in) / np.maximum(n_objects[rest] + n_objects[own] - own_in, 1.0)
        best = np.maximum(best, np.minimum(of_own, of_rest).max(axis=1))
    return best


def node_sides(tree: Tree) -> np.ndarray:
    """Return the two nodes that each merge joins, (G - 1, 2): leaves from 0, the results of merges from G."""
    node, sides = np.arange(len(tree.merges) + 1), np.empty((len(tree.merges), 2), np.int64)
    for at, (kept, merged) in enumerate(tree.merges):
        sides[at] = node[kept], node[merged]
        node[kept] = len(node) + at
    return sides


def node_sums(tree: Tree, rows: np.ndarray) -> np.ndarray:
    """Return the sums of the rows (G, ...) of leaves over each node of a tree, (2 G - 1, ...)."""
    found = np.concatenate([rows, np.empty((len(tree.merges), *rows.shape[1:]))])
    for at, (one, two) in enumerate(node_sides(tree), len(rows)):
        found[at] = found[one] + found[two]
    return found


def agreement_of(first: Half, second: Half, name: str, most: int) -> np.ndarray:
    """Return the adjusted Rand index of two trees cut into 1, 2, ... clusters, (most,); NaN without objects.

    Of objects that both label. A merge adds the pairs of objects of the two merged groups to those that are
    together, so that all numbers take O(G H) time.
    """
    shared = common_objects(first.groups, second.groups)
    n = shared.sum()
    if n == 0:
        return np.full(most, np.nan)
    of_first, of_second = shared.sum(axis=1), shared.sum(axis=0)
    together, by_first, by_second = (pairs_of(of).sum() for of in (shared, of_first, of_second))
    merges = first.trees[name].merges, second.trees[name].merges
    found = np.empty(most)
    for K in range(max(most, *shared.shape), 0, -1):
        if len(of_first) > K:
            kept, merged = merges[0][len(of_first) - 1 - K]
            together += shared[kept] @ shared[merged]
            by_first += of_first[kept] * of_first[merged]
            shared[kept] += shared[merged]
            of_first[kept] += of_first[merged]
            shared[merged], of_first[merged] = 0.0, 0.0
        if len(of_second) > K:
            kept, merged = merges[1][len(of_second) - 1 - K]
            together += shared[:, kept] @ shared[:, merged]
            by_second += of_second[kept] * of_second[merged]
            shared[:, kept] += shared[:, merged]
            of_second[kept] += of_second[merged]
            shared[:, merged], of_second[merged] = 0.0, 0.0
        if most >= K:
            found[K - 1] = adjusted_rand_of_pairs(together, by_first, by_second, pairs_of(n))
    return found
