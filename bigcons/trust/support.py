"""Do other partitions of the same data find it, too? Trees of random halves of the partitions.

A half of the partitions merges the groups of objects (`bigcons.trust.groups`) into trees of its own, by what
it knows of the groups, which are those of all partitions.

Of a *number of clusters*, the agreement is the adjusted Rand index of the trees of two halves without a
common partition, both cut at that number: near 0 for labels without structure, near 1 for clear clusters, and
between the two for a continuum, which others may divide elsewhere. An object is in the group that is most
probable by its labels in that half, itself left out: what halves cannot place, they do not agree on.

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

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from bigcons.contingency import SEED, adjusted_rand_of_pairs, pairs_of, ratio
from bigcons.io.labels import observed
from bigcons.progress import progress
from bigcons.run.engine import one_thread
from bigcons.seeding import generator
from bigcons.store.clusters import least_objects, node_sums, numbers_of_large
from bigcons.trust import groups as grouping
from bigcons.trust.groups import Groups, Sample, Tree
from bigcons.trust.placement import ClusterSupport, Placement
from bigcons.weights import Weights


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
    partitions: np.ndarray
    """(2 n_pairs, M) bool: the partitions of each half; a partition is in one half whatever its weight."""

    @classmethod
    def from_groups(cls, groups: Groups, labels: np.ndarray) -> Halves:
        """Return trees of halves over groups of the objects of ``labels`` (rows, M), or memberships.

        Each half takes the groups in an order of its own, so that halves do not agree by ties. Eight times
        the cost of the trees of half as many partitions.
        """
        M, draw = groups.counts.size, generator(SEED, "tree.halves")
        firsts = [draw.permutation(M) < M // 2 for _ in range(4 if M > 1 else 0)]
        partitions = np.array([half for first in firsts for half in (first, ~first)]).reshape(-1, M)
        halves, draw = [], generator(SEED, "tree.halves.groups")
        with progress("trees of the halves", len(partitions), "halves") as listener:
            for in_half in partitions:
                order = draw.permutation(len(groups.table))
                content = groups.table[order], groups.reliable
                starts, table, reliable = grouping.of_partitions(in_half, groups.offsets, *content)
                trees, distinct = grouping.merge_groups(table, starts, groups.counts[in_half], reliable)
                node = np.append(order, np.arange(order.size, 2 * order.size - 1))
                trees = {name: tree._replace(sides=node[tree.sides]) for name, tree in trees.items()}
                place = np.argsort(order)
                halves.append(Half(trees, distinct[place][:, place]))
                listener.advance(1)
        return cls(list(zip(halves[::2], halves[1::2], strict=True)), groups, labels, partitions)

    def support(self, name: str) -> Support:
        """Return the support of the splits of the tree of this name.

        Each half groups the objects anew, in an order of its own: eight times the cost of groups of half as
        many partitions.
        """
        (groups, sizes, _, offsets, counts, reliable, trees, _), shares = self.groups, []
        draw = generator(SEED, "tree.halves.objects")
        with progress("support by the halves", len(self.partitions), "halves") as listener:
            for in_half in self.partitions:
                order = draw.permutation(len(groups))
                arrays = offsets, self.labels[order], reliable
                starts, half_labels, half_reliable = grouping.of_partitions(in_half, *arrays)
                if observed(half_labels, starts).any():
                    sample = Sample(half_labels, starts, counts[in_half], half_reliable)
                    tables = sample.tables(sizes.size, at_any_scale=True)
                    half_tree = grouping.merge_groups(*tables[2:], names=[name])[0][name]
                    overlaps = common_objects(groups[order], tables[0])
                    shares.append(reproduction(trees[name], half_tree, overlaps))
                listener.advance(1)
        if not shares:
            return Support(*np.full((2, len(trees[name].sides)), np.nan))
        errors = np.std(shares, axis=0, ddof=1) / np.sqrt(len(shares))
        return Support(np.mean(shares, axis=0), errors)

    def agreement(self, names: Sequence[str], limit: int) -> np.ndarray:
        """Return how far the trees of halves agree on 1, 2, ... clusters, (len(names), limit), from 0 to 1.

        By the mean over the pairs of halves; NaN if there are none. Groups that cost nothing to merge, whose
        objects a tree does not know apart, are never divided. A merge adds the pairs of objects of the two
        merged groups to the pairs that are together, so that all numbers take O(G^2) time, after O(E G) for
        the E labels of all objects.
        """
        if not self.pairs:
            return np.full((len(names), limit), np.nan)
        labeled, counts, placed = self.groups.groups >= 0, self.groups.counts, []
        groups, G, labels = self.groups.groups[labeled], self.groups.sizes.size, self.labels[labeled]
        with progress("agreement of the halves", len(self.partitions), "halves") as listener:
            for in_half in self.partitions:
                starts, half_labels = grouping.of_partitions(in_half, self.groups.offsets, labels)
                arguments = half_labels, starts, counts[in_half], groups
                placed.append(grouping.most_probable(*arguments, left_out=True, free_errors=True))
                listener.advance(1)
        # pairs of objects in one cluster of both, and of each
        pairs_together = np.empty((3, len(self.pairs), len(names), limit))
        for (number, pair), (index, name) in product(enumerate(self.pairs), enumerate(names)):
            overlaps, n_merged = np.zeros((G, G)), [0, 0]
            rows = np.arange(2 * G - 1), np.arange(2 * G - 1)  # of the nodes in the tables
            np.add.at(overlaps, (placed[2 * number], placed[2 * number + 1]), 1.0)
            trees = pair[0].trees[name], pair[1].trees[name]
            tables, totals = (overlaps, overlaps.T), (overlaps.sum(axis=1), overlaps.sum(axis=0))
            n_pairs = np.array([pairs_of(overlaps).sum(), *map(np.sum, map(pairs_of, totals))])
            for K in range(max(limit, G), 0, -1):
                halves = enumerate(zip(trees, tables, totals, rows, strict=True))
                for half, (tree, table, sizes, row) in halves:
                    n_equal = np.count_nonzero(tree.heights[1:] < 1e-12)
                    for sides in tree.sides[n_merged[half] : max(G - K, n_equal)]:
                        kept, absorbed = row[sides]
                        row[G + n_merged[half]] = kept
                        n_pairs[0] += table[kept] @ table[absorbed]
                        n_pairs[1 + half] += sizes[kept] * sizes[absorbed]
                        for array in (table, sizes):
                            array[kept] += array[absorbed]
                            array[absorbed] = 0.0
                        n_merged[half] += 1
                if limit >= K:
                    pairs_together[:, number, index, K - 1] = n_pairs
        in_both, in_one, in_other = pairs_together
        indices = adjusted_rand_of_pairs(in_both, in_one, in_other, pairs_of(groups.size))
        return np.asarray(np.maximum(indices.mean(axis=0), 0.0))

    def lifetime_of_one(self) -> float:
        """Return the lifetime of a single cluster: up to its most distinct two groups, without outliers.

        The largest of many distances is so partly by chance: it counts as far as the most distinct two of a
        half are distinct in the other half.
        """
        groups, tree = self.groups, self.groups.trees[grouping.DISTINCTNESS]
        is_several = numbers_of_large(tree.sides, groups.sizes, least_objects(groups.sizes)) > 1
        n_of_one = int(np.argmax(np.append(is_several, True)))  # levels until its outliers have fallen out
        clusters = tree.cut(n_of_one)
        main = clusters == np.argmax(np.bincount(clusters, groups.sizes))
        tables = (half.distinct for pair in self.pairs for half in pair)
        all_distances, *distances = (
            np.where(np.isfinite(table), table, 0.0)[main][:, main] for table in (groups.distinct, *tables)
        )
        distinct = np.zeros(2)
        for first, second in zip(distances[::2], distances[1::2], strict=True):
            distinct += first.max() + second.max(), second.flat[first.argmax()] + first.flat[second.argmax()]
        largest = float(all_distances.max()) * float(ratio(distinct[1], distinct[0], 1.0))
        return max(largest - float(tree.heights[-n_of_one]), 0.0)

    def of_clusters(self, clusters: np.ndarray, confidence: np.ndarray, n_clusters: int) -> ClusterSupport:
        """Return the support of clusters (rows,), -1 for none, of at most ``n_clusters``, by labels.

        Objects count by the ``confidence`` (rows,) that they are in their cluster. NaN of clusters without
        objects, and of all without halves. Of all objects in one of several clusters it is 0, since any half
        proposes these by chance. O(rows M K) time for each half.

        Of a tree, objects are in the most probable cluster at its foot, where it is cut at as many: by all
        their labels, themselves left out, and naive Bayes, all clusters as probable beforehand; objects whose
        labels favor no cluster stay.
        """
        (groups, group_sizes, table, offsets, counts, *_), K = self.groups, n_clusters
        rows = np.flatnonzero(clusters >= 0)
        clusters, weights = clusters[rows], np.asarray(confidence, np.float64)[rows]
        halves = [half for pair in self.pairs for half in pair]
        least = grouping.fewest_objects(int(group_sizes.sum()), K)
        cuts = [
            [(tree, tree.cut_large(K, group_sizes, least)) for tree in half.trees.values()] for half in halves
        ]
        weighting = Weights(counts, np.repeat(counts, np.diff(offsets)), offsets)
        objects = dict[bytes, np.ndarray]()
        for key, top in {top.tobytes(): top for half_cuts in cuts for _, top in half_cuts}.items():
            cluster_table = np.zeros((n := int(top.max()) + 1, table.shape[1]))
            np.add.at(cluster_table, top, table)
            placement = Placement.fit(cluster_table.T, np.bincount(top, group_sizes, n), offsets, weighting)
            placement = replace(placement, prior=np.zeros(n))
            placed = placement.place(self.labels, np.append(top, -1)[groups])
            objects[key] = placed.clusters[rows]
        sizes, scores = np.bincount(clusters, weights, K), np.zeros((K, 1 + K))
        # the weight of all objects, and of each two clusters
        total = np.column_stack([np.full(K, sizes.sum()), sizes[:, None] + sizes])
        size_table = np.broadcast_to(sizes[:, None], total.shape)
        with one_thread(user_api="blas"):
            proposals = [
                propose([(*cut, objects[cut[1].tobytes()]) for cut in half_cuts], clusters, weights, sizes)
                for half_cuts in cuts
            ]
            for (in_one, first), (in_two, second) in zip(proposals[::2], proposals[1::2], strict=True):
                is_shared = in_one & in_two
                in_all = np.bincount(clusters[is_shared], weights[is_shared], K)[:, None]
                triple = np.array([size_table, first, second])
                # the mean share of the three in their intersection, and the same of independent ones
                share = ratio(3.0 * in_all, triple.sum(axis=0), 0.0)
                chance = 3.0 * triple.prod(axis=0)
                chance = ratio(chance, triple.sum(axis=0) * np.square(total), 0.0)
                scores += ratio((share - chance).round(12), (1.0 - chance).round(12), float(K == 1))
        n_pairs = np.where(sizes > 0, len(self.pairs) or np.nan, np.nan)
        supports, divisions = scores[:, 0] / n_pairs, np.minimum(scores[:, 1:], scores[:, 1:].T)
        divisions /= np.maximum(n_pairs, n_pairs[:, None])
        return ClusterSupport(np.maximum(supports, 0.0), np.maximum(divisions, 0.0))


def propose(
    cuts: Sequence[tuple[Tree, np.ndarray, np.ndarray]],
    clusters: np.ndarray,
    weights: np.ndarray,
    sizes: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return what a half proposes for each of K clusters: of its trees, the clade most like it.

    Returns which objects (n,) bool are in the clade of their own cluster, and the weight (K, 1 + K) of each
    clade: of all its objects, and of those that are in its cluster or in each other one.

    The likeness to the objects in ``clusters`` (n,) is Dice's coefficient, by ``weights`` (n,), which are
    ``sizes`` (K,) in all. ``cuts``: trees, the cluster (G,) of each group at their foot, and of each object
    (n,), -1 for none.
    """
    K = sizes.size
    best, has_own, inner = np.full(K, -1.0), np.zeros(clusters.size, bool), np.zeros((K, K))
    for tree, top, placed in cuts:
        n, rows = int(top.max()) + 1, placed >= 0
        node_groups = node_sums(tree.sides, np.eye(n, dtype=bool)[top])
        clades = node_groups[tree.sides[len(top) - n :].T.ravel() if n > 1 else [-1]]
        objects = np.bincount(placed[rows] * K + clusters[rows], weights[rows], n * K).reshape(-1, K)
        overlaps = clades @ objects
        likeness = ratio(2.0 * overlaps, overlaps.sum(axis=1)[:, None] + sizes, 0.0).round(12)
        nodes, highest = likeness.argmax(axis=0), likeness.max(axis=0)
        is_better = highest > best
        is_in = np.pad(clades[nodes], ((0, 0), (0, 1)))  # and of -1, in none
        inner[is_better] = overlaps[nodes[is_better]]
        has_own = np.where(is_better[clusters], is_in[clusters, placed], has_own)
        best = np.maximum(best, highest)
    return has_own, np.column_stack([inner.sum(axis=1), inner.diagonal()[:, None] + inner])


def common_objects(groups: np.ndarray, other_groups: np.ndarray) -> np.ndarray:
    """Return how many objects groups (rows,) of two kinds share, (G, H) float64; -1 is in none."""
    table = np.zeros((int(groups.max()) + 1, int(other_groups.max()) + 1))
    is_shared = (groups >= 0) & (other_groups >= 0)
    np.add.at(table, (groups[is_shared], other_groups[is_shared]), 1.0)
    return table


def reproduction(tree: Tree, other: Tree, counts: np.ndarray) -> np.ndarray:
    """Return how far clusters of another tree divide the objects of splits in the same two sides, (G - 1,).

    ``counts`` (G, H): objects that the groups of the two have in common. With sides X and Y of a split and a
    cluster N of the other tree, the smaller of the Jaccard indices of X and N, and of Y and what N leaves of
    X and Y; the largest over N, and over which side is X. O(G H) time; 0 if the other tree has one group.
    """
    sides = tree.sides
    table = node_sums(other.sides, node_sums(sides, counts).T).T
    best = np.zeros(len(sides))
    if table.shape[1] == 1:
        return best
    n_objects, inner = table[:, -1:], table[:, :-1]
    sizes = inner[-1]
    for near, far in (sides.T, sides.T[::-1]):
        in_near, in_far = inner[near], inner[far]
        near_match = in_near / np.maximum(n_objects[near] + sizes - in_near, 1.0)
        far_match = (n_objects[far] - in_far) / np.maximum(n_objects[far] + n_objects[near] - in_near, 1.0)
        best = np.maximum(best, np.minimum(near_match, far_match).max(axis=1))
    return best
