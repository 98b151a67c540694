"""PCC of many clusters over all pairs: the block model, each object in few clusters, no table for each pair.

The sums of `AllPairs` have a table of K x K for every partition, and a pass takes O(K^3) for each. Of more
than `MOST_IN_TABLES` clusters, one table serves all objects:

    f = sum_{i<j} ( w_ij p_ij^2 - 2 sum_u w_u d_u (omega J_u(i, j) - a_u) p_ij ),    p_ij = y_i' theta y_j

with ``w_ij = v_i v_j`` in the place of ``sum_u w_u d_u^2`` over the partitions that label both objects, where
``v_i = c_i / C^(1/2)`` for an object whose partitions have the sum ``c_i`` of all, C. If every partition
labels every object, this is the model of `AllPairs`. It is so on average if labels are missing at random; in
any case the joins and the background, which decide where an object belongs, are counted partition by
partition. A pass costs O(n M K), as much as one of k-means on the labels.

An object keeps at most `MOST_SHARES` memberships, found among all clusters (``kernels/candidates.py``). All
objects move at once, and a pass that would not lower the objective goes part of the way.

Affinities of two clusters below `LEAST_AFFINITY` count as none. The start is k-means of the spectral
embedding of the subsample in a few columns: the more columns, the more noise of single objects they hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import Rates
from bigcons.execution.engine import stop_if_cancelled
from bigcons.kernels import candidates as kernel
from bigcons.kernels.cluster_tables import padded
from bigcons.methods.pcc.block_model import (
    BLOCK_ROUNDS,
    MOST_PARTITIONS,
    PRIOR_PAIRS,
    by_partition,
    joins_of,
    pairs_of,
    rarity_of,
    some_partitions,
    weights_of,
)
from bigcons.methods.pcc.calibrated import Calibration
from bigcons.methods.pcc.memberships import (
    MOST_SHARES,
    BlockMemberships,
    Solution,
    all_shares,
    few_shares,
    solution_at,
)
from bigcons.methods.pcc.subsample import SUBSAMPLE
from bigcons.overlaps.eigenvectors import leading_by_products
from bigcons.overlaps.embedding import best_kmeans, n_distinct_rows
from bigcons.progress import progress
from bigcons.seeding import generator
from bigcons.solving.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.solving.passes import Iterate, Run, Step, Visit
from bigcons.solving.survey import mean_pair_weight
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.trust import TRUST_ROW

# Most clusters for which every partition has a table of its own.
MOST_IN_TABLES = 50

# Objects of the subsample for each cluster, and most columns of its embedding. Planted classes were found
# best by 24 to 50 columns for 100 classes, by 32 for 300.
OBJECTS_PER_CLUSTER, MOST_COLUMNS = 32, 32

# Affinities of two clusters below this count as none.
LEAST_AFFINITY = 0.02

# Entries of S that are mapped at once.
SLICE_ENTRIES = 2**21

# Passes over the subsample, and parts of the way that a pass tries.
SAMPLE_PASSES = 4
LENGTHS = (1.0, 0.5, 0.25, 0.125)

# Passes have settled when at most this share of the objects changed cluster, or ``tol`` if that is more, and
# the objective fell by at most this share of it.
FEW_CHANGE, LEAST_DECREASE = 1e-4, 1e-4

# A pass is taken if it lowers the objective by this share of what its objects would, each alone.
SUFFICIENT_SHARE = 0.1


def sample_rows(n_clusters: int) -> int:
    """Return the size of the subsample."""
    return OBJECTS_PER_CLUSTER * n_clusters


# The sums, and what objects see of them


class ManySums(NamedTuple):
    """Sums over all objects, by which each is placed; in a report of a block, their changes by its moves."""

    S: np.ndarray
    """(B + M, padded K): summed memberships of each base cluster; then of each partition."""
    X: np.ndarray
    """(K, K): ``sum_i v_i y_i y_i'``."""
    own: np.ndarray
    """(M,): summed ``|y_i|^2`` of the objects of each partition."""
    totals: np.ndarray
    """See ``kernels.candidates.sweep``."""
    rates: Rates | None = None

    @property
    def n_clusters(self) -> int:
        """The number of clusters."""
        return len(self.X)

    @property
    def weights(self) -> Rates:
        """The rates, by which partitions count."""
        if self.rates is None:
            raise TypeError("the sums of a block have no rates.")
        return self.rates

    @property
    def theta(self) -> np.ndarray:
        """(K, K): the affinities of the clusters."""
        if self.weights.theta is None:
            raise TypeError("the rates are not of the block model.")
        return self.weights.theta

    @property
    def partition_weights(self) -> np.ndarray:
        """(M,): the weights of the partitions."""
        return self.weights.partitions

    def scaled(self, factor: float) -> ManySums:
        """Return the sums over ``factor`` times as many objects of the same kind."""
        S, X, own, totals = (factor * part for part in self[:4])
        return ManySums(S, X, own, totals, self.rates)


class Tables(NamedTuple):
    """What an object sees of the sums; the arguments of ``kernels.candidates.sweep``."""

    rows: np.ndarray
    G: np.ndarray
    theta: np.ndarray
    near: tuple[np.ndarray, np.ndarray, np.ndarray]
    counts: np.ndarray
    scale: float


def tables_of(sums: ManySums, offsets: np.ndarray) -> tuple[Tables, float]:
    """Return the tables, and the objective of the memberships in the sums."""
    import scipy.sparse

    rates, K, B = sums.weights, sums.n_clusters, int(offsets[-1])
    half = times_theta(sums.X, sums.theta)
    G = np.zeros((K, padded(K)))
    G[:, :K] = times_theta(half.T, sums.theta)
    together = float(np.einsum("kl,kl->", G[:, :K], sums.X)) - float(sums.totals[kernel.QUARTICS])
    of_partitions, agreement = pull_of(sums, slice(B, None))
    agreement -= float(sums.totals[kernel.SQUARES])
    rows, step = np.zeros((B, padded(K))), max(SLICE_ENTRIES // K, 1)
    partitions = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    for first in range(0, B, step):
        part = slice(first, min(first + step, B))
        rows[part, :K], agrees = pull_of(sums, part)
        rows[part, :K] += of_partitions[partitions[part]]
        agreement += agrees
    entries = scipy.sparse.csr_array(sums.theta)
    near = entries.indptr.astype(np.int64), entries.indices.astype(np.int64), entries.data
    return Tables(rows, G, sums.theta, near, *counts_of(rates, offsets)), -agreement + 0.5 * together


def pull_of(sums: ManySums, part: slice) -> tuple[np.ndarray, float]:
    """Return some rows of S times theta and weights, and what these add to the agreement."""
    S, weights = sums.S[part, : sums.n_clusters], sums.weights.base_clusters[part]
    mapped = times_theta(S, sums.theta)
    agreement = float(np.einsum("bk,bk,b->", S, mapped, weights))
    mapped *= weights[:, None]
    return mapped, agreement


def counts_of(rates: Rates, offsets: np.ndarray) -> tuple[np.ndarray, float]:
    """Return ``counts`` of ``kernels.all_pairs.sweep``, and what makes sums of weights v of an object."""
    n_clusters = np.diff(offsets)
    B, M = int(offsets[-1]), n_clusters.size
    counts, at = np.zeros((2, B + M)), np.arange(B) + np.repeat(np.arange(1, M + 1), n_clusters)
    counts[0, at] = rates.base_clusters[:B] + np.repeat(rates.base_clusters[B:], n_clusters)
    counts[1, at] = np.repeat(rates.partitions, n_clusters)
    return counts, float(1.0 / np.sqrt(rates.partitions.sum()))


def times_theta(rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return ``rows theta``, of few entries that are not zero; the order of its sums is fixed."""
    import scipy.sparse

    return np.ascontiguousarray((scipy.sparse.csr_array(theta) @ np.ascontiguousarray(rows.T)).T)


def no_sums(n_base_clusters: int, n_partitions: int, n_clusters: int) -> ManySums:
    """Return the sums over no objects."""
    S = np.zeros((n_base_clusters + n_partitions, padded(n_clusters)))
    X, own = np.zeros((n_clusters, n_clusters)), np.zeros(n_partitions)
    return ManySums(S, X, own, np.zeros(kernel.N_TOTALS))


def sums_of_clusters(labels: np.ndarray, offsets: np.ndarray, clusters: np.ndarray, rates: Rates) -> ManySums:
    """Return the sums over objects that are each in one of ``clusters`` (rows,), or in none (-1)."""
    if rates.theta is None:
        raise TypeError("the rates are not of the block model.")
    K, M, B = len(rates.theta), offsets.size - 1, int(offsets[-1])
    rows, partitions = np.nonzero((labels >= 0) & (clusters >= 0)[:, None])
    columns, sums = offsets[partitions] + labels[rows, partitions], no_sums(B, M, K)
    np.add.at(sums.S, (columns, clusters[rows]), 1.0)
    counts, scale = counts_of(rates, offsets)
    pull = np.bincount(rows, counts[0, columns + partitions + 1], len(labels))
    v = scale * np.bincount(rows, counts[1, columns + partitions + 1], len(labels))
    own, inner = np.arange(K), np.where(clusters >= 0, np.diag(rates.theta)[clusters], 0.0)
    sums.X[own, own] = np.bincount(clusters[clusters >= 0], v[clusters >= 0], K)
    sums.own[:] = np.bincount(partitions, minlength=M)
    sums.totals[[kernel.SQUARES, kernel.QUARTICS]] = (pull * inner).sum(), (v**2 * inner**2).sum()
    return with_partitions(sums, offsets, rates)


def add_sums(a: ManySums, b: ManySums) -> ManySums:
    """Add ``b`` to ``a`` in place, and return it."""
    gap = max(a.totals[kernel.MAX_GAP], b.totals[kernel.MAX_GAP])
    for total, part in zip(a[:4], b[:4], strict=True):
        np.add(total, part, out=total)
    a.totals[kernel.MAX_GAP] = gap
    return a


def after_moves(sums: ManySums, change: ManySums, offsets: np.ndarray) -> ManySums:
    """Return the sums after the changes, in the memory of the S of these, the largest part."""
    S = np.add(sums.S, change.S, out=change.S)
    X, own, totals = (part + by for part, by in zip(sums[1:4], change[1:4], strict=True))
    return with_partitions(ManySums(S, X, own, totals), offsets, sums.weights)


def with_partitions(sums: ManySums, offsets: np.ndarray, rates: Rates) -> ManySums:
    """Return the sums with the rates, and the rows of S of partitions: sums over their base clusters."""
    B = int(offsets[-1])
    sums.S[B:] = np.add.reduceat(sums.S[:B], offsets[:-1], axis=0)
    return sums._replace(rates=rates)


# Passes


def update_block(
    tables: Tables,
    offsets: np.ndarray,
    threshold: float,
    length: float,
    labels: np.ndarray,
    kept: np.ndarray | None = None,
) -> tuple[ManySums, np.ndarray]:
    """Return what the moves of a block's objects change, and their memberships; new ones are placed."""
    K = len(tables.theta)
    sums = no_sums(int(offsets[-1]), offsets.size - 1, K)
    moved = np.empty((len(labels), 2 * min(MOST_SHARES, K)), np.float32)
    kernel.sweep(
        *(labels, offsets, *tables, moved if kept is None else kept, moved),
        *(sums.S, sums.X, sums.own, threshold, length, kept is None, sums.totals),
    )
    return sums, moved


class ManyClusters:
    """The passes of PCC of many clusters; objects carry their few memberships, see `few_shares`.

    Passes have settled if no object has a gap above ``tol``, in units of the mean weight of an object, or if
    the largest membership of few objects is in another cluster than before and the objective hardly fell: see
    `FEW_CHANGE`.
    """

    name = "PCC of many clusters"

    def __init__(self, n_clusters: int, n_seen: np.ndarray, calibration: Calibration) -> None:
        self.n_clusters = n_clusters
        self.n_seen = n_seen
        """(M,): number of objects that each partition labels."""
        self.calibration = calibration
        self._latest: tuple[ManySums, Tables, float] | None = None

    def tables(self, run: Run, sums: ManySums) -> tuple[Tables, float]:
        """Return `tables_of` the sums, those of the latest at hand."""
        if self._latest is None or self._latest[0] is not sums:
            self._latest = (sums, *tables_of(sums, run.data.offsets))
        return self._latest[1:]

    def start(self, run: Run) -> tuple[ManySums, list[float]]:
        """Solve the subsample, and write the memberships of all objects given it."""
        offsets = run.data.offsets
        with progress("start from a sample", 0):
            asked = run.sample, offsets, self.n_clusters, run.n_init, run.seed
            solved, objectives = solve_sample(*asked, self.calibration)
        tables, _ = tables_of(solved.scaled(run.data.n_objects / len(run.sample)), offsets)
        task = run.visit(update_block, tables, offsets, 0.0, 1.0, reads=[], writes=0)
        with progress("start of PCC", run.data.n_objects) as listener:
            found = run.fold(task, add_sums, listener)
        return with_partitions(found, offsets, solved.weights), objectives

    def visit(self, run: Run, at: Iterate[ManySums]) -> Visit:
        """Return the task that moves every object of a block to its best memberships."""
        return self._visit(run, at, 1.0, 1)

    def _visit(self, run: Run, at: Iterate[ManySums], length: float, ahead: int) -> Visit:
        tables, _ = self.tables(run, at.state)
        threshold = run.tol * self._unit(run, at.state)
        reads, writes = [at.generation], at.generation + ahead
        return run.visit(
            update_block, tables, run.data.offsets, threshold, length, reads=reads, writes=writes
        )

    def add(self, total: ManySums, part: ManySums) -> ManySums:
        """Add the sums of a further block, in place."""
        return add_sums(total, part)

    def step(self, run: Run, at: Iterate[ManySums], total: ManySums) -> Step[ManySums]:
        """Take the pass, or one that goes part of the way, if it lowers the objective."""
        offsets = run.data.offsets
        before, found, after = self.tables(run, at.state)[1], total, at.state
        for tried, length in enumerate((*LENGTHS, 0.0), 1):
            if tried > 1:
                found, after, self._latest = total, at.state, None  # release a try before it is followed
                found = run.fold(self._visit(run, at, length, tried), add_sums)
            self._latest = None
            after = after_moves(at.state, found, offsets)
            objective = self.tables(run, after)[1]
            if objective - before <= SUFFICIENT_SHARE * found.totals[kernel.PREDICTED]:
                break
        n_moved, n_changed = (int(found.totals[slot]) for slot in (kernel.N_MOVED, kernel.N_CHANGED))
        record = {
            "objective": objective,
            "gap": float(found.totals[kernel.MAX_GAP]) / self._unit(run, at.state),
            "moved": n_moved,
            "changed": n_changed,
            "step_length": length,
        }
        few = max(run.tol, FEW_CHANGE) * run.data.n_objects
        creeps = run.tol > 0 and n_changed <= few and before - objective <= LEAST_DECREASE * abs(objective)
        return Step(after, record, n_moved == 0 or creeps, tried)

    def pack(self, state: ManySums) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the sums and the rates as arrays and facts."""
        arrays = {"S": state.S, "X": state.X, "own": state.own, "totals": state.totals}
        rates = {f"rates.{name}": part for name, part in state.weights._asdict().items() if part is not None}
        return arrays | rates, {}

    def unpack(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> ManySums:
        """Return the sums of a snapshot."""
        rates = {name.removeprefix("rates."): part for name, part in arrays.items() if "." in name}
        return ManySums(
            *(arrays["S"], arrays["X"], arrays["own"], arrays["totals"]), rates=Rates(**rates), **facts
        )

    def solution(self, run: Run, at: Iterate[ManySums]) -> Solution:
        """Return the solution of a finished run."""
        found = BlockMemberships(run.arrays, at.generation, n_clusters=self.n_clusters)
        return solution_at(run, at)._replace(memberships=found, many=at.state)

    def _unit(self, run: Run, sums: ManySums) -> float:
        return mean_pair_weight(self.n_seen, run.data.n_objects, sums.partition_weights)


@dataclass(frozen=True)
class ByCandidates:
    """Places new objects given all solved ones."""

    tables: Tables
    offsets: np.ndarray
    weights: np.ndarray
    """(M,) of the partitions."""

    @classmethod
    def of(cls, sums: ManySums, offsets: np.ndarray) -> ByCandidates:
        """Return the placement by the sums of the solved objects."""
        return cls(tables_of(sums, offsets)[0], offsets, sums.partition_weights)

    def __call__(self, labels: np.ndarray) -> np.ndarray:
        """Return the best memberships (rows, K) float32 of new objects."""
        _, kept = update_block(self.tables, self.offsets, 0.0, 1.0, labels)
        return all_shares(kept, len(self.tables.theta))


def plan_of_many(ensemble: Ensemble, n_clusters: int, keeps_labels: bool, *, in_memory: bool) -> MemoryPlan:
    """Return the memory plan; ``in_memory``: whether memberships (n, K) are held rather than stored."""
    n, M, B, rows = ensemble.n_objects, ensemble.n_partitions, ensemble.n_base_clusters, ensemble.chunk_rows
    K, sample = n_clusters, min(n, max(sample_rows(n_clusters), SUBSAMPLE))
    table, square, kept = 8 * (B + M) * padded(K), 8 * K * K, 8 * min(MOST_SHARES, K)
    start = 128 * sample * min(M, MOST_PARTITIONS) + 8 * sample * (8 * MOST_COLUMNS + 16)
    start += 80 * B * (MOST_COLUMNS + 8)
    # S before a pass, after it, and after a shorter one; and the tables
    held = 4 * n + 4 * table + 10 * square + 24 * (SLICE_ENTRIES + K * M)
    held += start + 48 * min(n, SUBSAMPLE) * M
    held += (4 * n * K + TRUST_ROW.itemsize * n if in_memory else 0) + 2 * kept * n
    held += label_bytes(ensemble, n) if keeps_labels else 0
    # a pass, or memberships that are published
    per_block = block_label_bytes(ensemble) + max(table + square + rows * (2 * kept + 64), 12 * rows * K)
    return MemoryPlan(held, per_block, table + square + rows * (kept + 8 + (4 * K if in_memory else 0)))


# The start


def solve_sample(
    labels: np.ndarray,
    offsets: np.ndarray,
    n_clusters: int,
    n_init: int,
    seed: int,
    calibration: Calibration,
) -> tuple[ManySums, list[float]]:
    """Return the sums of the solved subsample with the rates, and the squared distances of every start."""
    clusters, distances = spectral_clusters(labels, offsets, n_clusters, n_init, seed)
    omega = rarity_of(labels, offsets, calibration.rarity)
    rates = rates_of_many(labels, offsets, clusters, n_clusters, omega, common=calibration.common)
    kept = few_shares(clusters, n_clusters)
    sums = sums_of_clusters(labels, offsets, clusters, rates)
    tables, objective = tables_of(sums, offsets)
    for _ in range(SAMPLE_PASSES):
        stop_if_cancelled()
        change, moved = update_block(tables, offsets, 0.0, 1.0, labels, kept)
        found = after_moves(sums, change, offsets)
        tables, reached = tables_of(found, offsets)
        if reached >= objective:
            break
        sums, kept, objective = found, moved, reached
    return sums, distances


def spectral_clusters(
    labels: np.ndarray, offsets: np.ndarray, n_clusters: int, n_init: int, seed: int
) -> tuple[np.ndarray, list[float]]:
    """Return clusters (rows,) int64 of objects by k-means of their spectral embedding, -1 without any label.

    Rows are of unit length: objects with many random labels are near the origin otherwise, and the fewer
    labels an object has, the further it is from others of its class.
    """
    labels, offsets = some_partitions(labels, offsets)
    incidence, n_labels = scaled_incidence(labels, offsets)
    found = leading_by_products(
        lambda table: incidence.T @ (incidence @ table),
        int(offsets[-1]),
        min(MOST_COLUMNS, n_clusters),
    )
    labeled = n_labels > 0
    rows = (incidence @ found.vectors)[labeled]
    rows /= np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), np.finfo(float).tiny)[:, None]
    draw = int(generator(seed, "pcc.many.kmeans").integers(2**31))
    n_groups = min(n_clusters, n_distinct_rows(rows))
    model, distances = best_kmeans(rows, n_groups, n_init, draw, n_labels[labeled].astype(np.float64))
    clusters = np.full(len(labels), -1, np.int64)
    clusters[labeled] = model.labels_
    return clusters, distances


def scaled_incidence(labels: np.ndarray, offsets: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return the incidence (rows, B) over the roots of labels and sizes, sparse, and the labels (rows,)."""
    import scipy.sparse

    rows, partitions = np.nonzero(labels >= 0)
    columns, B = offsets[partitions] + labels[rows, partitions], int(offsets[-1])
    n_labels, sizes = np.bincount(rows, minlength=len(labels)), np.bincount(columns, minlength=B)
    values = 1.0 / np.sqrt(n_labels[rows] * sizes[columns])
    return scipy.sparse.csr_array((values, (rows, columns)), shape=(len(labels), B)), n_labels


def rates_of_many(
    labels: np.ndarray,
    offsets: np.ndarray,
    clusters: np.ndarray,
    n_clusters: int,
    omega: np.ndarray,
    *,
    common: bool,
) -> Rates:
    """Return what `block_rates` does, by sparse tables, affinities below `LEAST_AFFINITY` as none."""
    import scipy.sparse

    K, M, own = n_clusters, offsets.size - 1, np.arange(n_clusters)
    w = np.ones(M)
    rows, partitions = np.nonzero((labels >= 0) & (clusters >= 0)[:, None])
    at = offsets[partitions] + labels[rows, partitions], clusters[rows]
    shape = int(offsets[-1]), K
    table = scipy.sparse.csr_array((np.ones(rows.size), at), shape=shape)
    table.sum_duplicates()
    of_base, squares_of_base = table.sum(axis=1), table.multiply(table).sum(axis=1)
    sizes = np.zeros((M, K))
    np.add.at(sizes, (partitions, clusters[rows]), 1.0)
    n, joined, squares, a, d = joins_of(sizes, of_base, squares_of_base, omega, offsets, common=common)

    def of_rows(weights: np.ndarray) -> np.ndarray:
        weighed = table.multiply(weights[:, None]).tocsr()
        found = (weighed.T @ table).toarray()
        found[own, own] -= weighed.sum(axis=0)
        return np.asarray(found)

    for _ in range(BLOCK_ROUNDS):
        weight, prior = w * d * d, PRIOR_PAIRS * float((w * d * d).sum())
        excess = of_rows(np.repeat(w * d, np.diff(offsets)) * omega) - pairs_of(sizes, w * d * a)
        theta = (excess + prior * np.eye(K)) / (pairs_of(sizes, weight) + prior)
        theta = np.maximum(0.5 * (theta + theta.T), 0.0)
        theta[(theta < LEAST_AFFINITY) & ~np.eye(K, dtype=bool)] = 0.0
        if not common:
            of_theta = scipy.sparse.csr_array(theta)
            within = table.multiply(table @ of_theta).sum(axis=1) - table @ np.diag(theta)
            expected = np.zeros(M)
            for values, factor in ((theta, 2.0 * a), (theta**2, d)):
                means = (times_theta(sizes, values) * sizes).sum(axis=1) - sizes @ np.diag(values)
                expected += factor * means
            fitted = a * a * n + d * expected
            fitted -= 2.0 * (a * joined + d * by_partition(omega * within, offsets))
            w = weights_of(squares + fitted, n)
    return Rates.of(a, d, w, omega, offsets, np.ascontiguousarray(theta))
