"""Where PCC starts: a few thousand objects over all their pairs, from the clusters of a tree and at random.

The objective has many local optima. The clusters that a tree finds in a sample of the objects and several
random memberships are all solved on that sample, and the solution of the lowest objective is extended to all
objects: each gets its best membership given the sample.
"""

from __future__ import annotations

import numpy as np

from bigcons.coassociation.factorized import Rates, Weights, agreement_sums, by_partition
from bigcons.execution.engine import Engine, stop_if_cancelled
from bigcons.methods.pcc.all_pairs import RELAXATION, Solved, apply_change, update_block
from bigcons.metrics.clusterings import mutual_information_of_table
from bigcons.progress import progress
from bigcons.seeding import generator
from bigcons.solving.survey import mean_pair_weight
from bigcons.stores.ensemble_store import observed

SUBSAMPLE = 2048

# Passes and largest relative gap of a start: enough to rank it.
RANKING = (50, 1e-3)


def perturbed_uniform(n_rows: int, n_clusters: int, seed: int, *index: int) -> np.ndarray:
    """Return rows ``1/K (1 + 0.001 gaussian)``, renormalized; float32.

    Uniform ones, the start of the paper, are a saddle point, at which every KKT gap is zero.
    """
    noise = generator(seed, "pcc.start.uniform", *index).standard_normal((n_rows, n_clusters), np.float32)
    return normalized(1.0 + 1e-3 * noise)


def dirichlet(n_rows: int, n_clusters: int, seed: int, *index: int) -> np.ndarray:
    """Return rows drawn uniformly from the simplex; float32."""
    stream = generator(seed, "pcc.start.dirichlet", *index)
    return normalized(stream.standard_exponential((n_rows, n_clusters), np.float32))


def of_clusters(clusters: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return memberships (rows, K) float32 near the clusters (rows,), uniform where these are -1."""
    crisp = np.full((len(clusters), n_clusters), 1.0 / n_clusters, np.float32)
    crisp[clusters >= 0] = np.eye(n_clusters, dtype=np.float32)[clusters[clusters >= 0]]
    return softened(crisp)


def softened(memberships: np.ndarray, part: float = 0.1) -> np.ndarray:
    """Mix memberships with a uniform part, so that no pair has probability 0 or 1."""
    return normalized((1.0 - part) * memberships + part / memberships.shape[1])


def normalized(rows: np.ndarray) -> np.ndarray:
    """Return rows of sum one, float32."""
    return np.asarray(rows / rows.sum(axis=1, keepdims=True), dtype=np.float32)


# The sample


def solve_sample(
    labels: np.ndarray,
    offsets: np.ndarray,
    clusters: np.ndarray,
    n_clusters: int,
    n_init: int,
    seed: int,
    engine: Engine,
    weights: Weights | None = None,
    *,
    calibrates: bool = False,
) -> Solved:
    """Solve a sample (rows, M) from ``n_init`` starts, first from ``clusters`` (rows,); keep the best.

    Its squared divergence is over all pairs. If it ``calibrates``, the rates are found first, from the
    clusters.
    """
    first = of_clusters(clusters, n_clusters)
    how: Weights | Rates | None = weights
    if calibrates:
        counts = np.ones(offsets.size - 1) if weights is None else weights.partitions
        how = calibrated(labels, offsets, first, counts)

    def solve_start(number: int) -> Solved:
        drawn = first if number == 0 else dirichlet(len(labels), n_clusters, seed, number)
        return descend(labels, offsets, drawn, how, *RANKING)

    best, objectives = first, [np.inf]
    with progress("starts of PCC", n_init, "starts") as listener:
        for start in engine.map(solve_start, range(n_init)):
            objective = start.sums.objective
            best = start.memberships if objective < min(objectives) else best
            objectives.append(objective)
            listener.advance(1)
    # so far that extending the best start takes no further passes over all objects
    solved = descend(labels, offsets, best, how, 200, 1e-4)
    return solved._replace(start_objectives=objectives[1:])


def descend(
    labels: np.ndarray,
    offsets: np.ndarray,
    memberships: np.ndarray,
    weights: Weights | Rates | None,
    max_passes: int,
    tol: float,
) -> Solved:
    """Update the objects in turn until all gaps are at most ``tol``; a canceled task ends between passes."""
    sums = agreement_sums(labels, offsets, memberships, weights)
    n_seen = np.count_nonzero(observed(labels, offsets), axis=0)
    threshold = tol * mean_pair_weight(n_seen, len(labels), sums.partition_weights)
    for _ in range(max_passes):
        stop_if_cancelled()
        change, memberships = update_block(sums, offsets, threshold, RELAXATION, labels, memberships)
        sums = apply_change(sums, change)
        if change.n_moved == 0:
            break
    return Solved(memberships, sums, [])


# Rates of a calibrated co-association


def calibrated(
    labels: np.ndarray, offsets: np.ndarray, memberships: np.ndarray, partitions: np.ndarray
) -> Rates:
    """Return the rates of the co-association, estimated in turn with memberships from a first estimate.

    ``partitions`` (M,): the weights of the partitions.
    """
    rates = rates_of(labels, offsets, memberships, partitions)
    for _ in range(5):  # rates and memberships are estimated in turn
        memberships = descend(labels, offsets, memberships, rates, *RANKING).memberships
        rates = rates_of(labels, offsets, memberships, partitions)
    return rates


def rates_of(
    labels: np.ndarray, offsets: np.ndarray, memberships: np.ndarray, partitions: np.ndarray
) -> Rates:
    """Return the rates with which partitions join objects surely in one cluster, and in different ones.

    Counted over all pairs of such objects: with these rates a pair that is surely together has a calibrated
    co-association of 1 on average, and a pair that is surely apart one of 0.
    """
    K, clusters, largest = memberships.shape[1], memberships.argmax(axis=1), memberships.max(axis=1)
    least = np.full(K, 0.95)  # surely in a cluster; half of the objects of each at least count as such
    for k in np.unique(clusters):
        least[k] = min(least[k], float(np.median(largest[clusters == k])))
    sure = largest >= least[clusters]
    table = agreement_sums(labels[sure], offsets, np.eye(K, dtype=np.float32)[clusters[sure]]).S[:, :K]
    of_partitions, sizes = by_partition(table, offsets), table.sum(axis=1)

    def pairs(counts: np.ndarray) -> np.ndarray:
        return 0.5 * counts * (counts - 1.0)

    together = float(partitions @ pairs(of_partitions).sum(axis=1))
    apart = float(partitions @ pairs(of_partitions.sum(axis=1))) - together
    hits = float(partitions @ by_partition(pairs(table).sum(axis=1), offsets))
    joined = float(partitions @ by_partition(pairs(sizes), offsets))
    if together == 0.0 or apart == 0.0:
        return Rates.of(0.0, 1.0, partitions, offsets)  # pairs that cannot be told apart
    # rates that differ by less tell no pairs apart
    a = min((joined - hits) / apart, 1.0 - 1e-3)
    return Rates.of(a, max(hits / together - a, 1e-3), partitions, offsets)


# Weights of partitions by their labels


def entropy_weights(labels: np.ndarray, offsets: np.ndarray) -> Weights:
    """Return weights of mean 1: the entropy of each partition's labels (rows, M) over its labeled rows.

    Two objects share label ``b`` by chance with probability ``p_b``, so sharing it carries information
    ``log(1 / p_b)``; the entropy is its mean over the objects.
    """
    # the entropy is the mutual information of labels with themselves
    tables = [np.diag(np.bincount(column[column >= 0])) for column in labels.T]
    worth = np.array([mutual_information_of_table(table) if table.size else 0.0 for table in tables])
    if not worth.any():
        return Weights.of(np.ones(worth.size), offsets)
    # an uninformative partition counts next to nothing, yet objects that no other partition labeled are
    # still placed by it
    weights = np.maximum(worth, 0.001 * worth.mean())
    return Weights.of(weights / weights.mean(), offsets)
