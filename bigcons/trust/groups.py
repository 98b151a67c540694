"""Trees over groups of objects: from some hundred small groups of a sample to any number of clusters.

Groups come from the spectral embedding of the labels; every object then joins the group that its labels make
most probable. All else comes from their table: how many objects of each group are in each base cluster. Two
trees merge the groups, the least costly pair first.

*Average link of the locally weighted co-association* (Huang, Wang and Lai 2018): the mean, over the pairs of
objects of two clusters and the partitions that label both, of the reliability of the base cluster that joins
them, 0 if none does. It finds clusters of similar sizes; a large cluster, whose distant objects are seldom
joined, it divides before it shows small ones.

*Distinctness*: partition u separates clusters k and l by ``x_u = 1 - cos(t_uk, t_ul)``, the rows of their
table within u, and they are distinct as far as the partitions that separate them do so cleanly,

    D_kl = sum_u w_u x_u^2 / (2 + sum_u w_u x_u).

Pieces of one cluster are separated by many partitions, too, but each cuts it in a place of its own. Sizes do
not matter.

Which tree is right differs from ensemble to ensemble, and where classes overlap, spherical k-means of the
objects in the K leading vectors of the embedding is often better than either. Both trees are cut at K, that
of average link, which takes off outliers before it divides classes, into clusters of a least share of the
objects (`LEAST_SHARE`). Of the three that is taken which has the largest product of its mean normalized
mutual information with the partitions (Strehl and Ghosh 2002) and the mean distinctness of clusters, over the
pairs of objects in different ones.

*Reliability*: a base cluster whose objects the other partitions put together, too, is to be relied on; one
that they scatter is not. The uncertainty of base cluster b is the entropy of the labels of its objects,
summed over the partitions:

    H_b = sum_v c_v H_v(b),   H_v(b) = -sum_{a in v} p_ab log2 p_ab,

with the share ``p_ab = |a and b| / sum_{a' in v} |a' and b|`` of the objects of b that v labels, and weights
``c_v`` of the partitions, 1 without any. Its reliability is ``exp(-H_b / (theta sum_v c_v))``, the
"ensemble-driven cluster index" of Huang, Wang and Lai. The own partition adds nothing, as its labels of b are
all alike; objects that v does not label are left out of its entropy. In soft clusterings overlaps of
memberships take the place of counts, and the own partition adds how far it divides the objects of b itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from bigcons.contingency import SEED, nmi, of_each, ratio
from bigcons.errors import InvalidInputError
from bigcons.io.labels import observed
from bigcons.run.engine import one_thread
from bigcons.seeding import generator
from bigcons.spectra import MOST_FOR_DENSE, products_of_rows, spectrum
from bigcons.store.clusters import level_sums, node_sums, numbers_of_large
from bigcons.store.ensemble import Ensemble
from bigcons.trust.placement import log_rates
from bigcons.weights import counts_of, incidence_of

FIRST_GROUPS, N_GROUPS, GROUPS_PER_CLUSTER = 30, 60, 3
"""Groups with which the search for a number of clusters begins; groups for a given number, and the fewest
for each of its clusters: `benchmarks/tree_ablation.py` has others."""

N_ROWS, ROWS_PER_GROUP = 2000, 20
"""Objects of the sample, and the fewest for each group."""

MOST_GROUPS, MOST_PRODUCTS = 400, 120_000_000
"""Groups by the spectrum, at most; and products that a tree over groups takes, at most, where the number of
clusters is looked for: base clusters of a group, in the mean, times the square of the groups."""

ROUNDS = 16
"""Rounds in which the centers of groups are drawn, and of k-means in the embedding."""

MOST_LABELS = 500
"""Labels of an object, in the mean, by which groups are found; all labels place objects."""

ERROR_RATES = {0.0: 1.0, 0.5: 0.1, 0.8: 0.1}
"""Shares of an object's labels that may be errors, and how often they are, for one object without errors.

Without errors, objects that err are groups, and a cluster, of their own, or join one cluster together:
`benchmarks/structure.py` has such objects. Were they as frequent in clusters, too, a lone object of few
objects or partitions would join a large cluster with which most partitions do not put it
(`benchmarks/toys.py`).
"""

FEWEST_LABELS = 4
"""Labels of a sample for each base cluster below which groups are found from all objects.

200,000 objects in 20 partitions of 5,000 clusters, 8 classes, have .4, or .2 where half of the labels are
missing: adjusted Rand index .87 and .00 by the sample, .99999 and .994 by all objects. Of overlapping classes
of very different sizes in 20 partitions, with 8, 4 and 2 labels: .88, .89, .70 and .87, .88, .87.
"""

FEWEST_OBJECTS = 2
"""The fewest objects of the sample in a cluster of a given number, where a tree has as many: a lone one of
more than ten objects a cluster is an outlier, which most partitions may set apart, rather than a cluster.
`benchmarks/tree_ablation.py` has the results without it."""

LEAST_SHARE = 0.35
"""Of the mean size of clusters, what the smallest has at least where average link is cut into a given number
and has as many: `benchmarks/tree_ablation.py` has other shares, `benchmarks/features.py` has none."""

THETA = 0.4
"""Of the reliability of base clusters, as published."""

AT_ONCE = 1_000
"""Base clusters whose overlaps are held at once."""


AVERAGE, DISTINCTNESS = "average", "distinctness"
TREES = (AVERAGE, DISTINCTNESS)
SPECTRUM = "spectrum"


class Tree(NamedTuple):
    """The merges of groups, from many to one."""

    sides: np.ndarray
    """(G - 1, 2): the two nodes that each merge joins, groups from 0, what merges make of them from G."""
    heights: np.ndarray
    """(G,): what the merges cost that lead to G, G - 1, ..., 1 clusters; 0 of all groups.

    Costs may fall from a merge to the next: the largest up to there.
    """

    def cut(self, n_clusters: int) -> np.ndarray:
        """Return the cluster (G,) int64 of every group where ``n_clusters`` are left, or fewer groups.

        Clusters are numbered by their first groups.
        """
        G = len(self.sides) + 1
        clusters, first = np.arange(G), np.arange(2 * G - 1)
        for node, sides in enumerate(self.sides[: max(G - n_clusters, 0)], G):
            first[node], absorbed = sorted(first[sides])
            clusters[clusters == absorbed] = first[node]
        return np.unique(clusters, return_inverse=True)[1]

    def cut_large(self, n_clusters: int, sizes: np.ndarray, least: float) -> np.ndarray:
        """Return the cut (G,) in which ``n_clusters`` have at least ``least`` objects, by groups' ``sizes``.

        Where a tree never has as many of these, it is cut at ``n_clusters``.
        """
        is_enough = numbers_of_large(self.sides, sizes, least) >= n_clusters
        return self.cut(int(np.argmax(is_enough)) + 1 if is_enough.any() else n_clusters)


class Cut(NamedTuple):
    """Clusters of the groups by one of the trees, and how good they are."""

    clusters: np.ndarray
    """(G,) int64."""
    tree: str
    """One of `TREES`, or `SPECTRUM`."""
    anmi: float
    """Mean normalized mutual information with the partitions."""
    distinctness: float
    """Mean over the pairs of objects in different clusters; 1 of clusters that no partition sees together."""
    merit: float
    """The product of the two, by which the best cut is chosen; rounded, so that rounding settles no tie."""
    labels: np.ndarray
    """(rows,) int64: the clusters of the objects, -1 for those without labels."""


def quality(
    table: np.ndarray, sizes: np.ndarray, offsets: np.ndarray, counts: np.ndarray
) -> tuple[float, float, float]:
    """Return the mutual information, the distinctness and the merit of clusters: see `Cut`.

    By their table (K, B) and sizes (K,), and weights (M,) of the partitions.
    """
    from bigcons.kernels.tree import DISTINCT, pair_costs

    anmi = counts @ of_each(nmi, table, offsets) / counts.sum()
    costs = pair_costs(DISTINCT, table, offsets, counts, np.ones(table.shape[1]))
    pairs = np.outer(sizes, sizes) - np.diag(sizes**2)
    distinctness = ratio((pairs * np.nan_to_num(costs, nan=1.0, posinf=0.0)).sum(), pairs.sum(), 0.0)
    return float(anmi), float(distinctness), round(float(anmi) * float(distinctness), 12)


class Groups(NamedTuple):
    """Small groups of the objects of a sample, and the trees that merge them."""

    groups: np.ndarray
    """(rows,) int64 of the objects, -1 for those without labels."""
    sizes: np.ndarray
    """(G,) int64: the numbers of objects of the groups."""
    table: np.ndarray
    """(G, B) float64: objects of each group in each base cluster."""
    offsets: np.ndarray
    counts: np.ndarray
    """(M,): the weights of the partitions."""
    reliable: np.ndarray
    """(B,): the reliability of the base clusters."""
    trees: dict[str, Tree]
    distinct: np.ndarray
    """(G, G) distinctness of any two groups, NaN where no partition labels both; the diagonal is infinite."""

    def cut(self, n_clusters: int, least: int = 0, trees: Sequence[str] = TREES, share: float = 0.0) -> Cut:
        """Return the best cut of ``trees`` into ``n_clusters``, on a tie the cut of average link.

        With ``least``, clusters have at least so many objects, by average link also at least a ``share`` of
        their mean number; a tree that never has as many such clusters is cut into any. Groups in smaller
        clusters are in none, but count in their most probable one. The mutual information is normalized by
        the geometric mean of the entropies, and 0 of a partition of one cluster, or of objects of one.
        """
        cuts = []
        for name in trees:
            fewest = max(least, share * self.sizes.sum() / n_clusters if name == AVERAGE else 0.0)
            clusters = self.trees[name].cut_large(n_clusters, self.sizes, fewest)
            is_large = np.bincount(clusters, self.sizes) >= fewest
            if np.count_nonzero(is_large) >= n_clusters:
                clusters = np.where(is_large, is_large.cumsum() - 1, -1)[clusters]
            K, outside = int(clusters.max()) + 1, clusters < 0
            table, sizes = np.zeros((K + 1, self.table.shape[1])), np.zeros(K + 1)
            for sums, group_sums in ((table, self.table), (sizes, self.sizes)):
                np.add.at(sums, clusters, group_sums)  # the last of those in no cluster
            if outside.any():
                rates = log_rates(table[:K], sizes[:K], self.offsets)[0]
                rates *= np.repeat(self.counts, np.diff(self.offsets))[:, None]
                nearest = (self.table[outside] @ rates).round(9).argmax(axis=1)
                np.add.at(table, nearest, self.table[outside])
                np.add.at(sizes, nearest, self.sizes[outside])
            qualities = quality(table[:K], sizes[:K], self.offsets, self.counts)
            cuts.append(Cut(clusters, name, *qualities, np.append(clusters, -1)[self.groups]))
        return max(cuts, key=attrgetter("merit"))

    def mutual_information(self, name: str) -> np.ndarray:
        """Return the mean normalized mutual information of 1, 2, ... clusters of a tree, (G,): see `cut`."""
        from scipy.special import xlogy

        sides, first = self.trees[name].sides, self.offsets[:-1]
        nodes = node_sums(sides, self.table)
        sizes = np.add.reduceat(nodes, first, axis=1)
        n = np.where(sizes[-1] > 0, sizes[-1], 1.0)
        entropies = np.log(n) - level_sums(sides, xlogy(sizes, sizes)) / n
        joint = np.log(n) - level_sums(sides, np.add.reduceat(xlogy(nodes, nodes), first, axis=1)) / n
        norms = np.maximum(entropies * joint[0], 0.0).round(12)  # a single cluster has the entropy of columns
        return ratio(entropies + joint[0] - joint, np.sqrt(norms), 0.0) @ self.counts / self.counts.sum()


class Sample:
    """Objects whose labels form groups."""

    def __init__(
        self,
        labels: np.ndarray,
        offsets: np.ndarray,
        counts: np.ndarray | None = None,
        reliable: np.ndarray | None = None,
        times: np.ndarray | None = None,
    ) -> None:
        """Take labels (rows, M), or memberships (rows, B), weights (M,) and reliabilities (B,).

        All partitions count the same by default, and reliabilities are by the labels. Of partitions that give
        objects more than `MOST_LABELS` in the mean, as many count as give that, evenly spaced. ``times``
        (rows,): how many objects of the ensemble each stands for, in proportion; groups and trees do
        without them.
        """
        M = offsets.size - 1
        counts = np.ones(M) if counts is None else counts
        partitions = np.flatnonzero(counts > 0)
        n_labels = int(np.count_nonzero(observed(labels, offsets)[:, partitions])) / len(labels)
        if n_labels > MOST_LABELS:
            n_chosen = -int(-MOST_LABELS * partitions.size // n_labels)
            partitions = partitions[np.arange(n_chosen) * partitions.size // n_chosen]
        is_chosen = np.isin(np.arange(M), partitions)
        self.all_labels = labels
        """The labels, or memberships, of all partitions."""
        self.times: np.ndarray | None = times
        self.offsets: np.ndarray
        self.labels: np.ndarray
        self.offsets, self.labels = of_partitions(is_chosen, offsets, labels)
        self.counts: np.ndarray = counts[partitions]
        self._by_column = np.repeat(self.counts, np.diff(self.offsets))
        self._reliable = None if reliable is None else of_partitions(is_chosen, offsets, reliable)[1]
        incidence = incidence_of(self.labels, self.offsets)
        self._labeled = np.diff(incidence.indptr) > 0
        if not self._labeled.any():
            raise InvalidInputError(
                f"none of the {len(labels)} sampled objects has a label; leave out those without any."
            )
        self._incidence: Any = incidence if self._labeled.all() else incidence[self._labeled]
        self._most, self._vectors = 0, np.empty((0, 0))

    def groups(self, n_groups: int, *, at_any_scale: bool = False) -> Groups:
        """Return at most ``n_groups`` groups of objects, by the spectral embedding of their labels.

        O(rows M^2 + B^3 + rows g^2 + B g^2) time for g groups. ``at_any_scale``: by k-means instead where
        many are asked for or base clusters are very many, in time proportional to the objects and what they
        have in common with centers, and then E g^2 for E base clusters of a group; all base clusters then
        count as equally reliable.
        """
        tables = self.tables(n_groups, at_any_scale=at_any_scale)
        return Groups(*tables, *merge_groups(*tables[2:]))

    def divide(self, n_clusters: int) -> Cut | None:
        """Return ``n_clusters`` by k-means of the objects in as many leading vectors of the embedding.

        None where there are fewer vectors, since groups were found without them, and if a cluster is small.
        """
        from bigcons.kernels.nearest import normalize_rows
        from bigcons.spectra import assign, move_centers

        rows = self._vectors[:, :n_clusters].copy()
        if not 1 < n_clusters <= min(rows.shape):
            return None
        normalize_rows(rows)
        starts = nearest_pivots(rows)
        centers = np.zeros((int(starts.max()) + 1, n_clusters))
        np.add.at(centers, starts, rows)
        normalize_rows(centers)
        with one_thread(user_api="blas"):
            ones = np.ones(len(rows))
            centers, _ = move_centers(centers, lambda current: assign(rows, ones, current)[1], ROUNDS, 0.0)
            assigned, _ = assign(rows, ones, centers)
        labels = np.full(self._labeled.size, -1)
        labels[self._labeled] = np.unique(assigned, return_inverse=True)[1]
        T, sizes = counts_of(self.labels, self.offsets, labels, int(labels.max()) + 1)
        if sizes.min() < fewest_objects(len(rows), n_clusters):
            return None
        return Cut(labels, SPECTRUM, *quality(T.T.copy(), sizes, self.offsets, self.counts), labels)

    def tables(
        self, n_groups: int, *, at_any_scale: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return `Groups` without trees: groups, sizes, table, offsets, weights and reliabilities."""
        groups, labeled = np.full(self._labeled.size, -1), self._labeled
        with one_thread(user_api="blas"):
            if at_any_scale and not by_spectrum(len(self.labels), self.offsets[-1], n_groups):
                groups[labeled] = nearest_centers(self._incidence, self.offsets, self._by_column, n_groups)
                reliable = np.ones(self.offsets[-1])
            else:
                if self._reliable is None:
                    self._reliable = reliability_of_table(self._incidence, self.offsets, self.counts)
                if self._most < n_groups:
                    gains = self._by_column * self._reliable
                    self._most, self._vectors = n_groups, spectrum(self._incidence, gains, n_groups)[1]
                reliable, groups[labeled] = self._reliable, nearest_pivots(self._vectors[:, :n_groups])
                groups = most_probable(self.labels, self.offsets, self.counts, groups, free_errors=True)
        groups[labeled] = np.unique(groups[labeled], return_inverse=True)[1]
        T, sizes = counts_of(self.labels, self.offsets, groups, int(groups.max()) + 1)
        return groups, sizes.astype(np.int64), T.T.copy(), self.offsets, self.counts, reliable


def of_partitions(is_chosen: np.ndarray, offsets: np.ndarray, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return where the base clusters of some partitions (M,) bool begin, and ``arrays`` of these alone.

    Arrays are labels (rows, M), or floats (..., B): memberships, or other numbers of base clusters.
    """
    sizes = np.diff(offsets)
    columns = {True: np.repeat(is_chosen, sizes), False: is_chosen}
    parts = (np.ascontiguousarray(array[..., columns[array.dtype.kind == "f"]]) for array in arrays)
    return np.concatenate([[0], np.cumsum(sizes[is_chosen])]), *parts


def nearest_pivots(vectors: np.ndarray) -> np.ndarray:
    """Return the group (rows,) of every object by its vectors (rows, k) scaled to unit length.

    QR with pivots picks k objects that are as orthogonal as possible, without chance (Damle, Minden and Ying
    2019), of equal ones, as all are at first, the one whose vectors are longest; the others join the nearest.
    """
    import scipy.linalg

    lengths = np.sqrt((vectors**2).sum(axis=1))[:, None]
    rows = vectors / np.maximum(lengths, np.finfo(float).tiny)
    columns = (rows * (1.0 + 1e-6 * lengths)).T
    _, pivots = scipy.linalg.qr(columns, mode="r", pivoting=True, check_finite=False)
    nearest = (rows @ rows[pivots[: rows.shape[1]]].T).round(9).argmax(axis=1)
    return np.unique(nearest, return_inverse=True)[1]


def most_probable(
    labels: np.ndarray,
    offsets: np.ndarray,
    counts: np.ndarray,
    groups: np.ndarray,
    *,
    left_out: bool = False,
    free_errors: bool = False,
) -> np.ndarray:
    """Return the most probable group (rows,) of every object in one by its labels, or memberships.

    By naive Bayes, partitions counted by weight (M,), from the labels and the sizes of groups (rows,), of
    which none is empty; ``left_out``: from the labels of the other objects, so that none vouches for itself.
    An object errs at a rate of its own, in which its labels are any of their partitions: the one of
    `ERROR_RATES` counts by which a group is most probable; with ``free_errors`` all are as frequent. An
    object stays where no other group that shares a label with it is more probable. The spectrum of few or
    noisy partitions holds more noise than clusters, and groups by it mix classes: most objects of a class
    then have another group, of more objects like them. O(E g) time for E labels of all objects.
    """
    incidence, widths = incidence_of(labels, offsets), np.diff(offsets)
    T, sizes = counts_of(labels, offsets, groups, int(groups.max()) + 1)
    (rates, own_rates), by_column = log_rates(T.T.copy(), sizes, offsets), np.repeat(counts, widths)[:, None]
    index, scores = (np.arange(groups.size), groups), np.full((groups.size, sizes.size), -np.inf)
    if left_out:
        rows, squares = np.repeat(index[0], np.diff(incidence.indptr)), incidence.data**2
        cells = incidence.indices * sizes.size + groups[rows]
    for error, frequency in ERROR_RATES.items():
        chance = error / np.repeat(widths, widths)[:, None]
        erring = np.log((1.0 - error) * np.exp(rates) + chance) * by_column
        evidence = incidence @ erring
        if left_out:  # of a part of an object, that part
            erring_alone = np.log((1.0 - error) * np.exp(own_rates) + chance) * by_column
            evidence[index] += np.bincount(rows, squares * np.take(erring_alone - erring, cells), groups.size)
        np.maximum(scores, evidence + (0.0 if free_errors else np.log(frequency)), out=scores)
    scores += np.log(sizes)
    scores = np.where(incidence @ T > 0, scores, -np.inf).round(9)
    is_moved = (scores.max(axis=1) > scores[index]) & (groups >= 0)
    return np.where(is_moved, scores.argmax(axis=1), groups)


def by_spectrum(n_rows: int, n_base_clusters: int, n_groups: int) -> bool:
    """Return whether groups are found by the spectrum: few groups, and not very many base clusters."""
    return n_groups <= MOST_GROUPS and min(n_rows, n_base_clusters) <= N_ROWS


def nearest_centers(incidence: Any, offsets: np.ndarray, by_column: np.ndarray, n_groups: int) -> np.ndarray:
    """Return the group (rows,) of every object by k-means of its labels, H (rows, B), at most ``n_groups``.

    Seeds are drawn in rounds, by the square of one minus the cosine with the seeds before (k-means||, Bahmani
    et al. 2012), until there are enough or all objects equal one. Objects join the group whose members most
    often have their labels: the sum over the partitions, by weight (B,), of the cosine; twice.
    """
    import scipy.sparse

    draw, n, diagonal = generator(SEED, "tree.groups"), int(incidence.shape[0]), scipy.sparse.diags_array
    partitions = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    weighted = (incidence @ diagonal(by_column)).tocsr()
    rows = (incidence @ diagonal(np.sqrt(by_column))).tocsr()
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    rows = (diagonal(1.0 / lengths) @ rows).tocsr()
    seeds, distances = np.empty(0, np.int64), np.ones(n)
    while seeds.size < n_groups and distances.any():
        n_drawn = min(max(n_groups // ROUNDS, 1), n_groups - seeds.size, int(np.count_nonzero(distances)))
        new_seeds = draw.choice(n, n_drawn, replace=False, p=distances**2 / (distances**2).sum())
        cosines = nearest_of_rows(rows, rows[new_seeds].T.tocsr())[1]
        distances = np.minimum(distances, np.maximum(1.0 - cosines, 0.0).round(9))
        seeds = np.append(seeds, new_seeds)
    centers = incidence[seeds].tocoo()
    for _ in range(2):
        cells = centers.row * (offsets.size - 1) + partitions[centers.col]
        squares = np.bincount(cells, centers.data**2)
        shares = centers.data / np.sqrt(squares[cells])
        center_of = scipy.sparse.csr_array((shares, (centers.col, centers.row)), (offsets[-1], seeds.size))
        groups = nearest_of_rows(weighted, center_of)[0]
        ones = np.ones(n), (groups, np.arange(n))
        centers = (scipy.sparse.csr_array(ones, (seeds.size, n)) @ incidence).tocoo()
    return groups


def nearest_of_rows(rows: Any, columns: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the column (rows,) of the largest entry of each row of a product, and that entry.

    The product of two csr_arrays without negative entries; of entries equal to 1e-9, the first column.
    """
    from bigcons.kernels.tree import find_nearest

    n = rows.shape[0]
    groups, largest = np.zeros(n, np.int64), np.zeros(n)
    parts = (getattr(matrix, name) for matrix in (rows, columns) for name in ("indptr", "indices", "data"))
    find_nearest(*parts, columns.shape[1], groups, largest)
    return groups, largest


def fewest_objects(n_rows: int, n_clusters: int) -> int:
    """Return the fewest objects in a cluster: `FEWEST_OBJECTS`, or one if that is a tenth of their mean."""
    return FEWEST_OBJECTS if n_rows > 10 * n_clusters else 1


def n_groups_for(n_clusters: int) -> int:
    """Return how many groups a tree needs that is cut into ``n_clusters``."""
    return max(N_GROUPS, GROUPS_PER_CLUSTER * n_clusters)


def rows_for(n_groups: int) -> int:
    """Return how many objects are sampled for so many groups."""
    return max(N_ROWS, ROWS_PER_GROUP * n_groups)


def plan_bytes(ensemble: Ensemble, n_rows: int, n_groups: int, n_clusters: int) -> int:
    """Return the most bytes held at once to group a sample of an ensemble and to merge the groups.

    The incidence and its scaled copies; beside them first overlaps of base clusters, by pairs and partitions,
    then the smaller product of the incidence with itself, its eigenvectors and their distances, or how
    probable each group is for each object, then eight tables of groups by base clusters, by which objects are
    placed, and how distinct groups are by all partitions and eight halves.
    """
    n_labels, r, g = float(ensemble.n_labeled.sum()) / ensemble.n_objects, n_rows, n_groups
    share = min(1.0, MOST_LABELS / max(n_labels, 1.0))
    M, B = (int(share * n) for n in (ensemble.n_partitions, ensemble.n_base_clusters))
    per_object = share * (ensemble.n_base_clusters if ensemble.is_soft else n_labels)
    incidence = int(r * per_object)
    n_at_once = B if B <= MOST_FOR_DENSE else AT_ONCE
    n_overlaps = B * B if B <= MOST_FOR_DENSE else min(AT_ONCE * B, incidence * per_object)
    overlaps = 64 * int(n_overlaps) + 48 * n_at_once * M
    spectrum = max(32 * min(r, B) ** 2, 80 * r * g) + 8 * r * g if by_spectrum(r, B, g) else 32 * r * g
    groups = 64 * g * B + 88 * g * g + 16 * n_clusters * B
    return 96 * incidence + 9 * r * M + max(overlaps, spectrum, groups)


def merge_groups(
    table: np.ndarray,
    offsets: np.ndarray,
    counts: np.ndarray,
    reliable: np.ndarray,
    names: Sequence[str] = TREES,
) -> tuple[dict[str, Tree], np.ndarray]:
    """Return the trees of these names over groups by their table (G, B), weights (M,), reliabilities (B,).

    Also the costs (G, G) of any two groups in the last tree: of all trees, how distinct groups are.

    Groups that no partition sees together cost what two groups cost in the mean: nothing is known of them.
    """
    from bigcons.kernels.tree import agglomerate, pair_costs

    G, trees = len(table), {}
    gains = np.repeat(counts, np.diff(offsets)) * reliable
    for name in names:
        rule = TREES.index(name)
        costs = pair_costs(rule, table, offsets, counts, gains)
        sides, heights = np.empty((G - 1, 2), np.int64), np.zeros(G)
        seen_together = np.isfinite(costs)
        cost_unseen = float(costs[seen_together].mean()) if seen_together.any() else 0.0
        all_costs = np.where(np.isnan(costs), cost_unseen, costs)
        agglomerate(rule, table.copy(), offsets, counts, gains, all_costs, cost_unseen, sides, heights[1:])
        trees[name] = Tree(sides, np.maximum.accumulate(heights))
    return trees, costs


# How reliable base clusters are


def reliability_of_table(incidence: Any, offsets: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """Return the reliability (B,) of base clusters from the incidence matrix H (rows, B) of some objects.

    H is a csr_array of SciPy's, ``counts`` (M,) are weights of the partitions. Of many base clusters, the
    overlaps of `AT_ONCE` at a time: 2,400 objects in 200 partitions of 40 clusters take 2 s.
    """
    members, B = incidence.T.tocsr(), incidence.shape[1]
    if B <= MOST_FOR_DENSE:
        return reliability_of_overlaps(products_of_rows(members), offsets, counts)
    parts = []
    for first in range(0, B, AT_ONCE):
        overlaps = (members[first : first + AT_ONCE] @ incidence).tocsr()
        parts.append(reliability_of_overlaps(overlaps, offsets, counts))
    return np.concatenate(parts)


def reliability_of_overlaps(
    overlaps: Any, offsets: np.ndarray, counts: np.ndarray | None = None
) -> np.ndarray:
    """Return the reliability (B,) of base clusters from their overlaps ``H^T H`` (B, B).

    A table, or a csr_array of both triangles; ``counts`` (M,) are weights of the partitions.
    """
    is_table, M = isinstance(overlaps, np.ndarray), offsets.size - 1
    values = overlaps if is_table else overlaps.data
    n_log_n = values * np.log2(np.where(values > 0, values, 1.0))
    if is_table:
        sizes = np.add.reduceat(values, offsets[:-1], axis=1)
        sums = np.add.reduceat(n_log_n, offsets[:-1], axis=1)
    else:
        B = overlaps.shape[0]
        cells = np.repeat(np.arange(B) * M, np.diff(overlaps.indptr))
        cells += np.repeat(np.arange(M), np.diff(offsets))[overlaps.indices]
        sizes = np.bincount(cells, values, B * M).reshape(B, M)
        sums = np.bincount(cells, n_log_n, B * M).reshape(B, M)
    sizes = np.where(sizes > 0, sizes, 1.0)
    entropies = np.maximum(np.log2(sizes) - sums / sizes, 0.0)  # 0 where a partition labels no object of b
    counts = np.ones(M) if counts is None else counts
    return np.asarray(np.exp(-np.einsum("bu,u->b", entropies, counts) / (THETA * counts.sum())))
