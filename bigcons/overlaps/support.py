"""Do other partitions of the same data find it, too? Trees of random halves of the partitions.

A half of the partitions merges the groups of objects (`bigcons.overlaps.tree`) into trees of its own, by what
it knows of the groups. These are those of all partitions: halves differ in how they join groups, and not in
the objects that half of the labels cannot place.

Of a *number of clusters*, the agreement is the adjusted Rand index of the trees of two halves without a
common partition, both cut at that number: near 0 for labels without structure, near 1 for clear clusters, and
between the two for a continuum, which others may divide elsewhere. It is of the pairs of objects in different
groups, which halves join or not, and of those with equal labels, which every half joins. Other pairs within a
group are together by the groups, whatever halves find.

Of a *cluster*, two halves without a common partition each propose one, from their trees cut at as many
clusters. All labels then place every object in what a half proposes. The support is the chance that a
member of the cluster or of one of the two proposals, each drawn as often, is in all three, adjusted for
chance as kappa is (Cohen 1960): near 0 for labels without structure, near 1 for real clusters.

Of a *split* of a cluster in two, the support is how far a half reproduces it that groups the objects anew:
some cluster of its tree divides the objects of the split, and of the Jaccard indices of the two sides the
smaller one counts, for the cluster of which that is largest. The mean over random halves is what
bootstrapping is to phylogenies (Felsenstein 1985), with a share in place of yes or no for each (Lemoine et
al. 2018). The order in which a tree joins clusters that are equally far apart does not matter: a cluster that
a half finds divides every union of clusters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.execution.blas import one_thread
from bigcons.kernels.cluster_tables import in_whole_vectors, padded
from bigcons.metrics.clusterings import adjusted_rand_of_pairs, pairs_of
from bigcons.metrics.confidence import SEED, ClusterSupport, log_rates, random_half, ratio
from bigcons.overlaps.tree import Groups, Sample, Tree, merge_groups
from bigcons.seeding import generator
from bigcons.stores.cluster_tree import node_sums
from bigcons.stores.ensemble_store import observed


class Support(NamedTuple):
    """How far halves of the partitions reproduce the splits of a tree, NaN where nothing is known."""

    mean: np.ndarray
    """(G - 1,), in the order of the merges."""
    error: np.ndarray
    """(G - 1,): the standard error of the mean, the halves taken for independent draws."""


class Half(NamedTuple):
    """What some of the partitions know of the groups."""

    trees: dict[str, Tree]
    """The trees that merge them."""
    distinct: np.ndarray
    """(G, G): see `Groups`."""


class Halves(NamedTuple):
    """Trees by random halves of the partitions, over the same groups of objects."""

    pairs: list[tuple[Half, Half]]
    """The halves of each division of the partitions in two; none of a single partition."""
    groups: Groups
    labels: np.ndarray
    """(rows, M) of the objects, or memberships (rows, B)."""

    @classmethod
    def of(cls, groups: Groups, labels: np.ndarray) -> Halves:
        """Return trees of halves over groups of the objects of ``labels`` (rows, M), or memberships.

        Each half takes the groups in an order of its own, so that halves do not agree by ties. Eight times
        the cost of the trees of half as many partitions.
        """
        halves, draw = [], generator(SEED, "tree.halves.groups")
        for is_own in divisions(groups.counts.size):
            columns, starts = columns_of(is_own, groups.offsets)
            order = draw.permutation(len(groups.table))
            known = np.ascontiguousarray(groups.table[order][:, columns])
            trees, distinct = merge_groups(known, starts, groups.counts[is_own], groups.reliable[columns])
            trees = {name: tree._replace(merges=order[tree.merges]) for name, tree in trees.items()}
            place = np.argsort(order)
            halves.append(Half(trees, distinct[place][:, place]))
        return cls(list(zip(halves[::2], halves[1::2], strict=True)), groups, labels)

    def support(self, name: str) -> Support:
        """Return the support of the splits of the tree of this name.

        Each half groups the objects anew, in an order of its own: eight times the cost of groups of half as
        many partitions.
        """
        (groups, table, offsets, counts, reliable, trees, _), found = self.groups, []
        draw, is_soft = generator(SEED, "tree.halves.objects"), self.labels.dtype.kind == "f"
        for is_own in divisions(counts.size):
            columns, starts = columns_of(is_own, offsets)
            order = draw.permutation(len(groups))
            own = np.ascontiguousarray(self.labels[order][:, columns if is_soft else is_own])
            if observed(own, starts).any():
                sample = Sample(own, starts, counts[is_own], reliable[columns])
                other = sample.groups_at_any_scale(len(table))
                shared = common_objects(groups[order], other.groups)
                found.append(reproduced(trees[name], other.trees[name], shared))
        if not found:
            return Support(*np.full((2, len(trees[name].merges)), np.nan))
        shares = np.array(found)
        return Support(shares.mean(axis=0), shares.std(axis=0, ddof=1) / np.sqrt(len(shares)))

    def agreement(self, name: str, most: int) -> np.ndarray:
        """Return how far halves agree on 1, 2, ... clusters, (most,), from 0 to 1.

        By the mean over the pairs of halves; NaN if there are none.
        """
        if not self.pairs:
            return np.full(most, np.nan)
        _, alike = np.unique(self.labels[self.groups.groups >= 0], axis=0, return_counts=True)
        known = self.groups.sizes, float(pairs_of(alike).sum()), most
        found = [agreement_of(one.trees[name], two.trees[name], *known) for one, two in self.pairs]
        return np.maximum(np.mean(found, axis=0), 0.0)

    def most_distinct(self, among: np.ndarray) -> float:
        """Return the distinctness of the most distinct two of some groups (G,) bool, as others would find it.

        The largest of many is so partly by chance: it counts as far as the most distinct two of a half are
        distinct in the other half.
        """
        largest = self.groups.most_distinct(among)
        if not self.pairs or among.sum() < 2:
            return largest
        found = np.zeros(2)
        for pair in self.pairs:
            one, two = (np.nan_to_num(half.distinct[among][:, among], posinf=0.0) for half in pair)
            found += one.max() + two.max(), two.flat[one.argmax()] + one.flat[two.argmax()]
        return largest * float(ratio(found[1], found[0], 1.0))

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
            placed = self._placed(top, n_placed)[given]
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

    def _placed(self, top: np.ndarray, n_clusters: int) -> np.ndarray:
        """Return the most probable of clusters of groups, ``top`` (G,), for each object (rows,).

        By all its labels, itself left out, and naive Bayes, all clusters as probable beforehand; where the
        labels do not tell, objects stay.
        """
        from bigcons.kernels.tree import place

        (groups, table, offsets, counts, *_), K = self.groups, n_clusters
        of_clusters = np.zeros((K, table.shape[1]))
        np.add.at(of_clusters, top, table)
        by_column = np.repeat(counts, np.diff(offsets))[:, None]
        rates, own = log_rates(of_clusters, np.bincount(top, self.groups.sizes, K), offsets)
        evidence = in_whole_vectors(by_column * rates), in_whole_vectors(by_column * (own - rates))
        current, found = np.append(top, -1)[groups].astype(np.int32), np.empty(len(groups), np.int32)
        no_shares, none = np.empty((0, K), np.float32), np.empty(0, np.float32)
        place(
            *(self.labels, current, False, offsets, random_half(counts.size), *evidence),
            # rounding settles no tie: the evidence for another cluster must be larger by this
            *(np.zeros(K), np.full(K, 1e-9), 1.0),
            *(found, no_shares, none, np.empty(0, np.int32), none, np.empty((0, padded(K))), np.zeros(K)),
            *(np.zeros(2 + K), np.zeros((3, 2, K))),
        )
        return found


def divisions(n_partitions: int) -> np.ndarray:
    """Return which partitions are in each half (8, M) bool: halves that follow each other have all.

    A partition is in one half whatever its weight. None of a single partition.
    """
    draw = generator(SEED, "tree.halves")
    firsts = [draw.permutation(n_partitions) < n_partitions // 2 for _ in range(4 if n_partitions > 1 else 0)]
    return np.array([half for first in firsts for half in (first, ~first)]).reshape(-1, n_partitions)


def columns_of(is_own: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the base clusters (B,) bool of some partitions (M,), and where those of each begin."""
    sizes = np.diff(offsets)
    return np.repeat(is_own, sizes), np.concatenate([[0], np.cumsum(sizes[is_own])])


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
    sides = tree.sides
    table = node_sums(other.sides, node_sums(sides, shared).T).T
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


def agreement_of(first: Tree, second: Tree, sizes: np.ndarray, n_alike: float, most: int) -> np.ndarray:
    """Return the adjusted Rand index of two trees cut into 1, 2, ... clusters, (most,).

    Of the pairs of objects in different groups, of ``sizes`` (G,), and of ``n_alike`` within groups. Groups
    that cost nothing to merge, whose objects a tree does not know apart, are never divided. A merge adds the
    pairs of objects of the two merged groups to those that are together, so that all numbers take O(G^2)
    time.
    """
    G, found = len(sizes), np.empty(most)
    of_sides = [sizes.astype(float), sizes.astype(float)]
    shared, together = np.diag(of_sides[0]), n_alike
    n_pairs = pairs_of(of_sides[0].sum()) - pairs_of(of_sides[0]).sum() + n_alike
    joined, done = np.full(2, n_alike), [0, 0]
    for K in range(max(most, G), 0, -1):
        for at, (tree, table) in enumerate(((first, shared), (second, shared.T))):
            n_equal = np.count_nonzero(tree.heights < 1e-12)
            for kept, merged in tree.merges[done[at] : max(G - K, n_equal)]:
                together += table[kept] @ table[merged]
                joined[at] += of_sides[at][kept] * of_sides[at][merged]
                for of in (table, of_sides[at]):
                    of[kept] += of[merged]
                    of[merged] = 0.0
                done[at] += 1
        if most >= K:
            found[K - 1] = adjusted_rand_of_pairs(together, joined[0], joined[1], n_pairs)
    return found
