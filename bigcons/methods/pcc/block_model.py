"""The block model of the co-association: its rates by given clusters, and the clusters it starts from.

The block model has ``y_i' theta y_j`` in the place of ``y_i.y_j``: how often objects of two clusters are
joined depends on both, for some clusters are near each other, and some are often split. Its rates are those
of the clusters it starts from. Partitions share them: with rates of each, and weights by residuals, the
result is worse where labels err independently (on planted labels of noise from .05 to .9, an adjusted Rand
index of .96 instead of .99) and no better elsewhere. Only to link groups, and for the linked start, do they
have rates of their own: without these, small classes beside a large one are lost.

There are three starts, all from the spectral embedding of the labels. The *spectral* one is k-means. Objects
with many random labels lie near the origin, and it makes them a cluster of their own; the *spherical* one is
k-means of rows of unit length. Both fail on classes of very unequal size: partitions divide a large class
differently, the embedding shows its parts rather than small classes, and k-means divides it further. The
*linked* one makes many small groups and joins them by single link, which follows a large class from part to
part, but also joins classes that overlap. The start is the one that halves of the partitions agree on most:
a large class is divided here or there by chance, and overlapping classes are joined by chance.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from bigcons.coassociation.factorized import Rates, by_partition, incidence_of
from bigcons.execution.blas import one_thread
from bigcons.execution.engine import stop_if_cancelled
from bigcons.kernels.cluster_tables import count_assigned
from bigcons.metrics import adjusted_rand
from bigcons.overlaps.eigenvectors import Spectrum
from bigcons.overlaps.kmeans import best_kmeans, n_distinct_rows
from bigcons.overlaps.n_clusters import normalized
from bigcons.seeding import generator

logger: logging.Logger = logging.getLogger("bigcons")

SPECTRAL, SPHERICAL, LINKED = "spectral", "spherical", "linked"

# How partitions differ: not at all, by weights for what they tell of the clusters, or by rates and weights.
EQUAL, INFORMED, OWN = "equal", "informed", "own"

# Scales and residual variances are at least this: a partition that joins nobody has no hits.
LEAST_RATE = 1e-9

# Estimates of theta in turn with the weights of partitions by residuals, which depend on each other little.
BLOCK_ROUNDS = 2

# Share of the possible information about the clusters, beyond chance, at which a partition gets half weight:
# random partitions have less, and no other needs less weight.
HALF_WEIGHT = 0.02

# Pairs of objects by which theta is drawn to the identity, so that rates of small clusters are not noise.
PRIOR_PAIRS = 10.0

# Small groups that are joined: at least this many, three for each cluster, and no more than a quarter of the
# objects. With fewer, a group holds a class of few objects together with parts of others.
GROUPS, GROUPS_PER_CLUSTER, OBJECTS_PER_GROUP = 160, 3, 4

# Columns of the embedding for each cluster: the first show parts of large classes before small classes.
COLUMNS_PER_CLUSTER = 2

# Largest number of clusters for which groups are joined: the data by which the start was chosen have up to 20
# classes, and it takes time by the third power of this number. On blobs of 50 classes, which were not to
# choose by, it lost a tenth of the adjusted Rand index.
MOST_LINKED = 20

# Fewest partitions that are halved, and most that a half has: more take longer to tell the same.
FEWEST_HALVED, MOST_IN_HALF = 8, 256

# How often they are halved, and at most if no start is ahead of the others by so many standard errors. Halves
# that set a few outliers apart, or do not, agree on the linked start by chance.
HALVINGS, MOST_HALVINGS, SURE = 4, 8, 2.0

# Most partitions from which a start is made, and by which it is solved in the subsample: more take longer to
# show the same clusters, and the passes over all objects are by all partitions.
MOST_PARTITIONS = 2048

# Adjusted Rand index from which on it hardly matters which of two clusterings is taken.
ALIKE = 0.98

# Starts of k-means for groups and for halves, enough for a comparison.
GROUP_STARTS, HALF_STARTS = 2, (3, 1)

# By how much halves must agree better on the spherical start than on the spectral one, as adjusted Rand
# index. The linked one must make up so large a part of what the spectral one lacks of being reproduced in
# full, and have the least lead. How far either may be behind after two halvings for more of them.
MARGIN, MAKES_UP, LEAST_LEAD, HOPELESS = 0.015, 0.25, 0.005, -0.15

# Clusters are not taken to be smaller than this share.
LEAST_SHARE = 1e-3

# Powers by which theta of small clusters is raised, in turn, for the solve to keep its start.
RAISES = (0.0, 0.5, 1.0)


def rarity_of(labels: np.ndarray, offsets: np.ndarray, gamma: float) -> np.ndarray:
    """Return ``(n_u / n_b)^gamma`` (B,) of the base clusters; empty ones here count as of one object."""
    sizes = table_of(labels, offsets, np.zeros(len(labels), np.int64), 1)[:, 0]
    return rarity_by_sizes(sizes, offsets, gamma)


def rarity_by_sizes(sizes: np.ndarray, offsets: np.ndarray, gamma: float) -> np.ndarray:
    """Return the same by the numbers of objects (B,) of the base clusters."""
    seen = np.repeat(by_partition(sizes, offsets), np.diff(offsets))
    return np.asarray((seen / np.maximum(sizes, 1.0)) ** gamma)


def table_of(labels: np.ndarray, offsets: np.ndarray, clusters: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return how many objects of each base cluster are in each of ``clusters`` (rows,), (B, K) float64."""
    counts, sizes = np.zeros((int(offsets[-1]), n_clusters)), np.zeros(n_clusters)
    count_assigned(labels, offsets, clusters.astype(np.int32), counts, sizes)
    return counts


def weights_of(residual: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return the inverse mean residuals (M,) of partitions, of mean 1, by their sums over ``n`` pairs."""
    w = 1.0 / np.maximum(residual / np.maximum(n, 1.0), LEAST_RATE)
    w[n == 0.0] = w[n > 0.0].mean() if (n > 0.0).any() else 1.0
    return np.asarray(w / w.mean())


def rates_of(
    pairs: np.ndarray, together: np.ndarray, joined: np.ndarray, hits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rates a and d by sums over pairs: of all, of those in one cluster, and the joins of both."""
    a = (joined - hits) / np.maximum(pairs - together, 1.0)
    return a, np.maximum(hits / np.maximum(together, 1.0) - a, LEAST_RATE)


def shared_rates(
    sizes: np.ndarray,
    of_base: np.ndarray,
    squares_of_base: np.ndarray,
    omega: np.ndarray,
    offsets: np.ndarray,
    w: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rates a and d that all partitions of weights (M,) share, (M,) each.

    By how many objects of each partition are in each cluster, ``sizes`` (M, K), and the sums (B,) of these
    numbers, and of their squares, over the clusters for each base cluster.
    """
    seen, of_one = sizes.sum(axis=1), np.repeat(w, np.diff(offsets)) * omega
    pairs, together = w * seen * (seen - 1.0), w[:, None] * sizes * (sizes - 1.0)
    joined, hits = of_one * of_base * (of_base - 1.0), of_one * (squares_of_base - of_base)
    return rates_of(*(np.full(w.size, part.sum()) for part in (pairs, together, joined, hits)))


def informed_weights(
    sizes: np.ndarray, of_base: np.ndarray, cells: np.ndarray, offsets: np.ndarray
) -> np.ndarray:
    """Return the weights (M,), of mean 1, of partitions by how much of the clusters they tell.

    That is ``s = I / min(H_u, H)``, the mutual information of partition and clusters beyond what chance gives
    over the lesser of their entropies; the weight is ``s / (s + HALF_WEIGHT)``. ``cells`` (B,): the sum over
    the clusters of ``t log t``, t objects of a base cluster being in one. The others: see `shared_rates`.
    """
    n, n_clusters = np.maximum(sizes.sum(axis=1), 1.0), np.count_nonzero(sizes, axis=1)
    n_base = by_partition((of_base > 0.0).astype(np.float64), offsets)
    within, of_clusters = by_partition(xlogy(of_base, of_base), offsets), xlogy(sizes, sizes).sum(axis=1)
    told = (by_partition(cells, offsets) - within - of_clusters) / n + np.log(n)
    told -= (n_base - 1.0) * (n_clusters - 1.0) / (2.0 * n)
    most = np.log(n) - np.maximum(within, of_clusters) / n
    share = np.maximum(told, 0.0) / np.maximum(most, LEAST_RATE)
    w = share / (share + HALF_WEIGHT)
    return np.asarray(w / w.mean()) if w.any() else np.ones(w.size)


def affinities(
    excess: np.ndarray, sizes: np.ndarray, a: np.ndarray, d: np.ndarray, w: np.ndarray
) -> np.ndarray:
    """Return theta (K, K) of the least squares, by the joins of objects of two clusters, times ``w d``."""
    weight, prior = w * d * d, PRIOR_PAIRS * float((w * d * d).sum())
    excess = excess - pairs_of(sizes, w * d * a) + prior * np.eye(len(excess))
    theta = excess / (pairs_of(sizes, weight) + prior)
    return np.asarray(np.maximum(0.5 * (theta + theta.T), 0.0))


def pairs_of(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the sum (K, K) over rows, by weights, of their ordered pairs of objects of two clusters."""
    weighed, own = weights[:, None] * rows, np.arange(rows.shape[1])
    with one_thread():
        found = weighed.T @ rows
    found[own, own] -= weighed.sum(axis=0)
    return np.asarray(found)


def block_rates(
    labels: np.ndarray,
    offsets: np.ndarray,
    clusters: np.ndarray,
    n_clusters: int,
    omega: np.ndarray,
    rule: str,
) -> Rates:
    """Return the rates of the block model by the mean joins of objects of any two clusters.

    In theta, 1 is the mean join of two objects of one cluster and 0 that of objects of different clusters;
    pairs of clusters that are joined less often than these count as 0. ``clusters`` (rows,): int64. The
    ``rule`` is `EQUAL`, `INFORMED` or `OWN`.
    """
    return rates_by_table(table_of(labels, offsets, clusters, n_clusters), offsets, omega, rule)


def rates_by_table(table: np.ndarray, offsets: np.ndarray, omega: np.ndarray, rule: str) -> Rates:
    """Return the rates of the block model by how many objects of base clusters are in clusters (B, K)."""
    if rule == OWN:
        return own_rates(table, offsets, omega)
    w, sizes = np.ones(offsets.size - 1), by_partition(table, offsets)
    of_base, squares_of_base = table.sum(axis=1), (table * table).sum(axis=1)
    if rule == INFORMED:
        w = informed_weights(sizes, of_base, xlogy(table, table).sum(axis=1), offsets)
    a, d = shared_rates(sizes, of_base, squares_of_base, omega, offsets, w)
    excess = pairs_of(table, np.repeat(w * d, np.diff(offsets)) * omega)
    return Rates.of(a, d, w, omega, offsets, affinities(excess, sizes, a, d, w))


def own_rates(table: np.ndarray, offsets: np.ndarray, omega: np.ndarray) -> Rates:
    """Return the same with rates of its own for each partition, and weights by the inverse residuals."""
    w, sizes = np.ones(offsets.size - 1), by_partition(table, offsets)
    of_base, squares_of_base = table.sum(axis=1), (table * table).sum(axis=1)
    n = sizes.sum(axis=1) * (sizes.sum(axis=1) - 1.0)
    together = (sizes * (sizes - 1.0)).sum(axis=1)
    joined = by_partition(omega * of_base * (of_base - 1.0), offsets)
    squares = by_partition(omega**2 * of_base * (of_base - 1.0), offsets)
    hits = by_partition(omega * (squares_of_base - of_base), offsets)
    a, d = rates_of(n, together, joined, hits)

    def means_of(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the sum (rows,) of ``values`` (K, K) over the ordered pairs of objects of each row."""
        with one_thread():
            return np.einsum("bk,bk->b", rows @ values, rows) - rows @ np.diag(values)

    for _ in range(BLOCK_ROUNDS):
        excess = pairs_of(table, np.repeat(w * d, np.diff(offsets)) * omega)
        theta = affinities(excess, sizes, a, d, w)
        expected = 2.0 * a * means_of(sizes, theta) + d * means_of(sizes, theta**2)
        fitted = a * a * n + d * expected
        fitted -= 2.0 * (a * joined + d * by_partition(omega * means_of(table, theta), offsets))
        w = weights_of(squares + fitted, n)
    return Rates.of(a, d, w, omega, offsets, theta)


# The starts


class Clusters(NamedTuple):
    """A clustering of the subsample to start from."""

    of: np.ndarray
    """(rows,) int64 the cluster of each object, -1 without any label."""
    distances: list[float]
    """Squared distances of every start of k-means in the spectral embedding."""
    kind: str = SPECTRAL
    is_kept: bool = False
    """Whether the solve should change little of it: the linked start, or a spectral one that agrees."""


class Embedded(NamedTuple):
    """The labeled objects of the subsample in the spectral embedding of their labels."""

    rows: np.ndarray
    """(labeled rows, columns)."""
    n_labels: np.ndarray
    """Of each, by which it counts."""
    labeled: np.ndarray
    """(rows,) bool: which objects these are."""

    def kmeans(
        self, n_columns: int, n_groups: int, n_init: int, draw: int, *, spherical: bool = False
    ) -> Clusters:
        """Return at most ``n_groups`` clusters by the first columns, ``spherical``: scaled to unit length."""
        rows = np.ascontiguousarray(self.rows[:, :n_columns])
        if spherical:
            rows = of_unit_length(rows)
        weights = self.n_labels.astype(np.float64)
        model, distances = best_kmeans(rows, min(n_groups, n_distinct_rows(rows)), n_init, draw, weights)
        found = np.full(self.labeled.size, -1, np.int64)
        found[self.labeled] = model.labels_
        return Clusters(found, distances, SPHERICAL if spherical else SPECTRAL)


def of_unit_length(rows: np.ndarray) -> np.ndarray:
    """Return the rows scaled to unit length; rows of zeros stay so."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return np.asarray(rows / np.maximum(lengths, np.finfo(float).tiny)[:, None])


def spaced_partitions(n_partitions: int) -> np.ndarray:
    """Return at most `MOST_PARTITIONS`, evenly spaced."""
    return np.arange(min(n_partitions, MOST_PARTITIONS)) * n_partitions // min(n_partitions, MOST_PARTITIONS)


def some_partitions(labels: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of at most `MOST_PARTITIONS`, evenly spaced, and where their base clusters begin."""
    M = offsets.size - 1
    return (labels, offsets) if M <= MOST_PARTITIONS else of_partitions(labels, offsets, spaced_partitions(M))


def of_partitions(
    labels: np.ndarray, offsets: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of the chosen partitions, and where their base clusters begin."""
    own = np.concatenate([[0], np.cumsum(np.diff(offsets)[chosen])])
    return np.ascontiguousarray(labels[:, chosen]), own


def embedded(
    labels: np.ndarray, offsets: np.ndarray, n_columns: int, known: Spectrum | None = None
) -> Embedded:
    """Return the embedding of correspondence analysis, of at most ``n_columns`` columns.

    These are the singular vectors of the scaled incidence matrix of labeled objects, times the singular
    values, and each object by the root of its number of labels. ``known``: the vectors, perhaps not all.
    """
    n_labels = np.count_nonzero(labels >= 0, axis=1)
    labeled = n_labels > 0
    n_labels = n_labels[labeled]
    if known is None or known.values.size < n_columns:
        incidence = incidence_of(labels[labeled], offsets)
        known = Spectrum.of(normalized(incidence, np.ones(incidence.shape[1])), n_columns)
    vectors = known.vectors[:, :n_columns] * np.sqrt(known.values[:n_columns])
    return Embedded(vectors * np.sqrt(n_labels.sum() / n_labels[:, None]), n_labels, labeled)


def spectral_start(
    labels: np.ndarray, offsets: np.ndarray, n_clusters: int, n_init: int, seed: int
) -> Clusters:
    """Return clusters of the subsample by k-means of its spectral embedding.

    Random starts do worse: the calibrated objective has many more local optima than that of the paper.
    """
    labels, offsets = some_partitions(labels, offsets)
    draw = int(generator(seed, "pcc.calibrated.kmeans").integers(2**31))
    return embedded(labels, offsets, n_clusters).kmeans(n_clusters, n_clusters, n_init, draw)


def block_start(
    labels: np.ndarray,
    offsets: np.ndarray,
    n_clusters: int,
    n_init: int,
    seed: int,
    gamma: float,
    known: Spectrum | None = None,
) -> Clusters:
    """Return the start of the block model by the subsample, ``known`` its spectrum if it has been found.

    Takes up to 17 embeddings, with seven starts of k-means each, besides ``n_init`` of the first two kinds.
    """
    labels, offsets = some_partitions(labels, offsets)
    M = offsets.size - 1
    names = [SPECTRAL]
    if n_clusters > 1 and M >= FEWEST_HALVED:
        names += [SPHERICAL, LINKED] if n_clusters <= MOST_LINKED else [SPHERICAL]
    draw = int(generator(seed, "pcc.calibrated.kmeans").integers(2**31))
    starts = starts_of(labels, offsets, n_clusters, names, (n_init, GROUP_STARTS), draw, gamma, known)
    spectral = starts[SPECTRAL]
    alike = {name for name in starts if agreement(spectral.of, starts[name].of) >= ALIKE}
    if LINKED in alike:
        return spectral._replace(is_kept=True)
    ahead: dict[str, list[float]] = {name: [] for name in starts if name not in alike}
    tried = list(ahead)
    for number in range(MOST_HALVINGS):
        if number >= 2:
            tried = [name for name in tried if np.mean(ahead[name]) >= HOPELESS]
        if not tried or (number >= HALVINGS and is_settled([ahead[name] for name in tried])):
            break
        stop_if_cancelled()
        order = generator(seed, "pcc.calibrated.halves", number).permutation(M)
        found_by = []
        for half in (order[: M // 2], order[M // 2 :]):
            of_half, own = of_partitions(labels, offsets, np.sort(half[:MOST_IN_HALF]))
            names = [SPECTRAL, *tried]
            found_by.append(starts_of(of_half, own, n_clusters, names, HALF_STARTS, draw, gamma))
        of_spectral = reproduced(SPECTRAL, starts, found_by)
        for name in tried:
            needed = max(LEAST_LEAD, MAKES_UP * (1.0 - of_spectral)) if name == LINKED else MARGIN
            ahead[name].append(reproduced(name, starts, found_by) - of_spectral - needed)
    means = {SPECTRAL: 0.0} | {name: float(np.mean(leads)) for name, leads in ahead.items()}
    for name in ahead:
        logger.info(
            "halves of the partitions reproduce the %s start %+.3f better than it needs to replace the "
            "spectral one (adjusted Rand index)",
            *(name, means[name]),
        )
    chosen = max(means, key=lambda name: means[name])
    logger.info("%s start", chosen)
    return starts[chosen]._replace(distances=spectral.distances)


def is_settled(leads: list[list[float]]) -> bool:
    """Return whether one start is ahead of the others, the spectral one (0) among them, beyond doubt."""
    rows = np.array([[0.0] * len(leads[0]), *leads])
    best = rows.mean(axis=1).argmax()
    by = rows[best] - np.delete(rows, best, axis=0)
    error = by.std(axis=1, ddof=1) / np.sqrt(by.shape[1])
    return bool((by.mean(axis=1) >= SURE * error).all())


def starts_of(
    labels: np.ndarray,
    offsets: np.ndarray,
    n_clusters: int,
    names: list[str],
    n_init: tuple[int, int],
    draw: int,
    gamma: float,
    known: Spectrum | None = None,
) -> dict[str, Clusters]:
    """Return the starts of these names; the linked one is left out where there are too few objects.

    ``n_init``: starts of k-means for clusters, and for the groups that are linked. ``known``: see `embedded`.
    """
    if not (labels >= 0).any():
        return {name: Clusters(np.full(len(labels), -1, np.int64), []) for name in names}
    found = embedded(labels, offsets, COLUMNS_PER_CLUSTER * n_clusters, known)
    starts = {
        name: found.kmeans(n_clusters, n_clusters, n_init[0], draw, spherical=name == SPHERICAL)
        for name in names
        if name != LINKED
    }
    if LINKED in names:
        linked = linked_clusters(found, labels, offsets, n_clusters, n_init[1], draw, gamma)
        if linked is not None:
            starts[LINKED] = linked
    return starts


def reproduced(name: str, starts: dict[str, Clusters], found_by: list[dict[str, Clusters]]) -> float:
    """Return the mean agreement of any two of a start by all partitions and those by both halves."""
    a, b, c = (found.get(name, found[SPECTRAL]).of for found in (starts, *found_by))
    return (agreement(a, b) + agreement(a, c) + agreement(b, c)) / 3.0


def agreement(a: np.ndarray, b: np.ndarray) -> float:
    """Return the adjusted Rand index of two clusterings (rows,) of the objects that both have, -1 missing."""
    both = (a >= 0) & (b >= 0)
    return float(adjusted_rand(a[both], b[both])) if both.sum() > 1 else 0.0


def linked_clusters(
    found: Embedded,
    labels: np.ndarray,
    offsets: np.ndarray,
    n_clusters: int,
    n_init: int,
    draw: int,
    gamma: float,
) -> Clusters | None:
    """Return clusters of small groups that are joined by single link; None of too few objects.

    A few outliers that single link sets apart are no cluster, although halves of the partitions agree on
    them: they go to the nearest, and a larger cluster is divided further.

    Two groups are as near as their objects are joined more often than those of different groups, relative to
    objects of one group: theta of the block model of the groups, over the roots of its diagonal.
    """
    from scipy.cluster.hierarchy import cut_tree, linkage
    from scipy.spatial.distance import squareform

    n_groups = n_groups_of(n_clusters, len(found.rows))
    if n_groups <= n_clusters:
        return None
    groups = found.kmeans(found.rows.shape[1], n_groups, n_init, draw)
    n_groups = int(groups.of.max()) + 1
    if n_groups <= n_clusters:
        return None
    omega = rarity_of(labels, offsets, gamma)
    theta = block_rates(labels, offsets, groups.of, n_groups, omega, OWN).theta
    if theta is None:
        raise TypeError("the block model has no theta.")
    scale = np.sqrt(np.maximum(np.diag(theta), LEAST_RATE))
    near = theta / scale[:, None] / scale
    merges = linkage(squareform(near.max() - near, checks=False), "single")
    sizes = np.bincount(groups.of[groups.of >= 0], minlength=n_groups)
    for cluster_of in cut_tree(merges, range(n_clusters, n_groups + 1)).T:
        is_large = np.bincount(cluster_of, sizes) >= OBJECTS_PER_GROUP
        if is_large.sum() == n_clusters:
            break
    else:
        return None
    placed = np.flatnonzero(is_large[cluster_of])
    nearest = placed[near[:, placed].argmax(axis=1)]
    joined = (np.cumsum(is_large) - 1)[np.where(is_large[cluster_of], cluster_of, cluster_of[nearest])]
    found_of = np.where(groups.of >= 0, joined[groups.of], -1)
    return Clusters(found_of, groups.distances, LINKED, is_kept=True)


def n_groups_of(n_clusters: int, n_objects: int) -> int:
    """Return the number of groups that are joined to ``n_clusters``."""
    return min(max(GROUPS, GROUPS_PER_CLUSTER * n_clusters), n_objects // OBJECTS_PER_GROUP)


def start_bytes(n_rows: int, n_partitions: int, n_base_clusters: int, n_clusters: int) -> int:
    """Return the memory of the start by ``n_rows`` objects.

    These are the incidence matrix, its square, eigenvectors, the embedding, and tables of the groups.
    """
    square = min(n_rows, n_base_clusters)
    embedding = 3 * COLUMNS_PER_CLUSTER * n_clusters * n_rows
    groups = n_groups_of(n_clusters, n_rows) if n_clusters <= MOST_LINKED else n_clusters
    n_partitions = min(n_partitions, MOST_PARTITIONS)
    return 32 * n_rows * n_partitions + 24 * square**2 + 8 * embedding + 32 * n_base_clusters * groups


def raised(rates: Rates, clusters: np.ndarray, offsets: np.ndarray, power: float) -> Rates:
    """Return the rates with theta raised for every cluster with less than an equal share of the objects.

    Its diagonal is multiplied by ``(1 / (K share)) ** power``.

    The objects of a large class are joined with few of its others. To one at its edge a cluster of few
    objects, which costs little, would fit better than its own, if not for this.
    """
    if rates.theta is None:
        raise TypeError("only rates of the block model are raised.")
    K, own = len(rates.theta), np.arange(len(rates.theta))
    sizes = np.bincount(clusters[clusters >= 0], minlength=K)
    shares = sizes / max(int(sizes.sum()), 1)
    theta = rates.theta.copy()
    theta[own, own] *= np.maximum(1.0 / (K * np.maximum(shares, LEAST_SHARE)), 1.0) ** power
    return Rates.of(rates.a, rates.d, rates.w, rates.omega, offsets, theta)
