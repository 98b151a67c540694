"""PCC of many clusters over all pairs: the block model, each object in few clusters, no table for each pair.

The sums of `AllPairs` have a table of K x K for every partition, and a pass takes O(K^3) for each. Of more
than `MOST_IN_TABLES` clusters, one table serves all objects:

    f = sum_{i<j} ( w_ij p_ij^2 - 2 sum_u w_u d_u (omega J_u(i, j) - a_u) p_ij ),    p_ij = y_i' theta y_j

with ``w_ij = v_i v_j`` in the place of ``sum_u w_u d_u^2`` over the partitions that label both objects, where
``v_i = c_i / C^(1/2)`` for an object whose partitions have the sum ``c_i`` of all, C. If every partition
labels every object, this is the model of `AllPairs`. It is so on average if labels are missing at random; in
any case the joins and the background, which decide where an object belongs, are counted partition by
partition.

A base cluster hints at the few clusters of which it has a part, or which are a part of it (`LEAST_HINT`), and
an object may belong to those at which its base clusters hint most (`LEAST_PULL`): a pass takes time in
proportion to labels and hints, whatever K. What a base cluster has of other clusters, mostly objects with a
wrong label, counts in moves as if drawn from all objects; the objective counts all of it. The sums of base
clusters have entries only where there are objects (``kernels/sparse_rows.py``).

An object keeps at most `MOST_SHARES` memberships (``kernels/candidates.py``). All objects move at once, and a
pass that would not lower the objective goes part of the way.

Affinities of two clusters below `LEAST_AFFINITY` count as none. The start is spherical k-means of a spectral
embedding of the subsample in fewer columns than there are clusters, and after only `PRODUCTS` products: every
column is then still a random mix of all in which clusters differ. Converged columns would tell a few clusters
from all others, and nothing of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy

from bigcons.coassociation.factorized import Rates, incidence_of
from bigcons.execution.engine import stop_if_cancelled
from bigcons.kernels import candidates as kernel
from bigcons.kernels import sparse_rows
from bigcons.methods.pcc.block_model import (
    INFORMED,
    MOST_PARTITIONS,
    affinities,
    informed_weights,
    of_unit_length,
    rarity_of,
    shared_rates,
    some_partitions,
)
from bigcons.methods.pcc.calibrated import Calibration, rates_of_joins
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
from bigcons.overlaps.kmeans import kmeans_of_unit_rows, n_distinct_rows
from bigcons.overlaps.n_clusters import normalized
from bigcons.progress import progress
from bigcons.seeding import generator
from bigcons.solving.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.solving.passes import Iterate, Record, Run, Step, Visit, until
from bigcons.solving.survey import mean_pair_weight
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.trust import TRUST_ROW

# Most clusters for which every partition has a table of its own.
MOST_IN_TABLES = 50

# Most clusters that sparse tables have columns for.
MOST_COLUMNS_OF_TABLES = 2**16 - 1

# Objects of the subsample for each cluster, most columns of its embedding, and products by which it is found.
# On 42 ensembles of 60 to 1,000 planted classes, k-means had a mean adjusted Rand index of .79, .85, .85 and
# .83 after 2, 3, 5 and 24 products with 32 columns, of .87 and .88 after 3 with 48 and 64, and spherical
# k-means with exchanges of .91 (64 columns).
OBJECTS_PER_CLUSTER, MOST_COLUMNS, PRODUCTS = 32, 64, 3

# Affinities of two clusters below this count as none.
LEAST_AFFINITY = 0.02

# A base cluster hints at clusters with this share of its objects, or with this share of theirs in it; an
# object may belong to clusters with this share of its largest sum of hints.
LEAST_HINT, LEAST_PULL = 0.05, 0.1

# Largest table of clusters and base clusters, in bytes, by which it is said which labels to trust: that takes
# K numbers for each label of an object, from two such tables.
MOST_TO_WEIGH = 2**27

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


class SparseRows(NamedTuple):
    """A sparse table with one row per base cluster, see ``kernels/sparse_rows.py``."""

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, table: Any) -> SparseRows:
        """Return the entries of a SciPy array, duplicates added up."""
        table = table.tocsr()
        table.sum_duplicates()
        return cls(table.indptr.astype(np.int64), table.indices.astype(np.uint16), table.data)

    def plus(self, other: SparseRows) -> SparseRows:
        """Return the sum of two tables."""
        return SparseRows(*sparse_rows.add_tables(tuple(self), tuple(other)))

    def of_partitions(self, offsets: np.ndarray, n_clusters: int) -> np.ndarray:
        """Return the sums (M, K) over the base clusters of each partition."""
        found = np.zeros((offsets.size - 1, n_clusters))
        sparse_rows.sum_partitions(tuple(self), offsets, found)
        return found

    def sum_rows(self, values: np.ndarray) -> np.ndarray:
        """Return the sums (B,) of ``values``, one for each entry."""
        rows = np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))
        return np.bincount(rows, values, self.starts.size - 1)


class ManySums(NamedTuple):
    """Sums over all objects, by which each is placed; in a report of a block, their changes by its moves."""

    S: SparseRows
    """Summed memberships of each base cluster."""
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
        X, own, totals = (factor * part for part in self[1:4])
        return ManySums(self.S._replace(values=factor * self.S.values), X, own, totals, self.rates)

    def join_rates(self, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what ``calibrated.join_rates`` does of sums in tables."""
        squares, sizes = self.S.sum_rows(self.S.values**2), self.S.sum_rows(self.S.values)
        return rates_of_joins(
            self.S.of_partitions(offsets, self.n_clusters), sizes, squares, self.own, offsets
        )


class Tables(NamedTuple):
    """What an object sees of the sums; the arguments of ``kernels.candidates.sweep``."""

    hints: tuple[np.ndarray, np.ndarray, np.ndarray]
    background: np.ndarray
    spread: np.ndarray
    G: np.ndarray
    theta: np.ndarray
    near: tuple[np.ndarray, np.ndarray, np.ndarray]
    weights: np.ndarray
    least: float


def tables_of(sums: ManySums, offsets: np.ndarray) -> tuple[Tables, float]:
    """Return the tables, and the objective of the memberships in the sums."""
    import scipy.sparse

    rates, theta, B = sums.weights, sums.theta, int(offsets[-1])
    entries = scipy.sparse.csr_array(theta)
    near = entries.indptr.astype(np.int64), entries.indices.astype(np.int32), entries.data
    G = times_theta(times_theta(sums.X, theta).T, theta)
    together = float(np.einsum("kl,kl->", G, sums.X)) - float(sums.totals[kernel.QUARTICS])
    of_partitions = sums.S.of_partitions(offsets, sums.n_clusters)
    background = rates.base_clusters[B:, None] * times_theta(of_partitions, theta)
    agreement = float(np.einsum("uk,uk->", background, of_partitions)) - float(sums.totals[kernel.SQUARES])
    shares = of_partitions.sum(axis=0) / max(float(of_partitions.sum()), np.finfo(float).tiny)
    weights = weights_of_labels(rates, offsets)
    hints, agrees = sparse_rows.choose_hints(
        *(tuple(sums.S), offsets, of_partitions, shares, rates.base_clusters[:B]),
        *(LEAST_HINT, near, weights[:, 2]),
    )
    tables = Tables(
        *(hints, np.ascontiguousarray(background.T), times_theta(shares[None], theta)[0], G, theta, near),
        *(weights, LEAST_PULL),
    )
    return tables, 0.5 * together - agreement - agrees


def weights_of_labels(rates: Rates, offsets: np.ndarray) -> np.ndarray:
    """Return ``weights`` (B, 3) of ``kernels.candidates.sweep``, the last 0."""
    n_clusters, B = np.diff(offsets), int(offsets[-1])
    weights = np.zeros((B, 3))
    weights[:, 0] = rates.base_clusters[:B] + np.repeat(rates.base_clusters[B:], n_clusters)
    weights[:, 1] = np.repeat(rates.partitions / np.sqrt(rates.partitions.sum()), n_clusters)
    return weights


def times_theta(rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return ``rows theta``, of few entries that are not zero; the order of its sums is fixed."""
    import scipy.sparse

    return np.ascontiguousarray((scipy.sparse.csr_array(theta) @ np.ascontiguousarray(rows.T)).T)


def sums_of_clusters(labels: np.ndarray, offsets: np.ndarray, clusters: np.ndarray, rates: Rates) -> ManySums:
    """Return the sums over objects that are each in one of ``clusters`` (rows,), or in none (-1)."""
    if rates.theta is None:
        raise TypeError("the rates are not of the block model.")
    labels, clusters, K = labels[clusters >= 0], clusters[clusters >= 0], len(rates.theta)
    incidence = incidence_of(labels, offsets)
    table = incidence.T @ incidence_of(clusters[:, None], np.array([0, K]))
    pull, v, _ = (incidence @ weights_of_labels(rates, offsets)).T
    inner, X = np.diag(rates.theta)[clusters], np.diag(np.bincount(clusters, v, K))
    own, totals = (labels >= 0).sum(axis=0).astype(np.float64), np.zeros(kernel.N_TOTALS)
    totals[[kernel.SQUARES, kernel.QUARTICS]] = (pull * inner).sum(), (v**2 * inner**2).sum()
    return ManySums(SparseRows.of(table), X, own, totals, rates)


def add_sums(a: ManySums, b: ManySums) -> ManySums:
    """Return the sum, in the memory of ``a`` but for S."""
    gap = max(a.totals[kernel.MAX_GAP], b.totals[kernel.MAX_GAP])
    for total, part in zip(a[1:4], b[1:4], strict=True):
        np.add(total, part, out=total)
    a.totals[kernel.MAX_GAP] = gap
    return a._replace(S=a.S.plus(b.S))


def after_moves(sums: ManySums, change: ManySums) -> ManySums:
    """Return the sums after the changes."""
    X, own, totals = (part + by for part, by in zip(sums[1:4], change[1:4], strict=True))
    return ManySums(sums.S.plus(change.S), X, own, totals, sums.weights)


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
    K, M, fresh = len(tables.theta), offsets.size - 1, kept is None
    X, own, totals = np.zeros((K, K)), np.zeros(M), np.zeros(kernel.N_TOTALS)
    moved = np.empty((len(labels), 2 * min(MOST_SHARES, K)), np.float32)
    before, has_moved = moved if kept is None else kept, np.empty(len(labels), bool)
    kernel.sweep(labels, offsets, *tables, before, moved, has_moved, X, own, threshold, length, fresh, totals)
    S = SparseRows(*sparse_rows.sum_moves(labels, offsets, before, moved, has_moved, fresh, K))
    return ManySums(S, X, own, totals), moved


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
        return found._replace(rates=solved.rates), objectives

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
        before, found, after = self.tables(run, at.state)[1], total, at.state
        for tried, length in enumerate((*LENGTHS, 0.0), 1):
            if tried > 1:
                found, after, self._latest = total, at.state, None  # release a try before it is followed
                found = run.fold(self._visit(run, at, length, tried), add_sums)
            self._latest = None
            after = after_moves(at.state, found)
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

    def passes_left(self, run: Run, records: list[Record]) -> int | None:
        """Return about how many more passes there are, by the objects that change cluster."""
        return until([record["changed"] for record in records], max(run.tol, FEW_CHANGE) * run.data.n_objects)

    def pack(self, state: ManySums) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the sums and the rates as arrays and facts."""
        arrays = {f"S.{name}": part for name, part in state.S._asdict().items()}
        arrays |= {"X": state.X, "own": state.own, "totals": state.totals}
        rates = {f"rates.{name}": part for name, part in state.weights._asdict().items() if part is not None}
        return arrays | rates, {}

    def unpack(self, arrays: dict[str, np.ndarray], _facts: dict[str, Any]) -> ManySums:
        """Return the sums of a snapshot."""
        S, rates = (
            {name.removeprefix(of): part for name, part in arrays.items() if name.startswith(of)}
            for of in ("S.", "rates.")
        )
        sums = arrays["X"], arrays["own"], arrays["totals"]
        return ManySums(SparseRows(**S), *sums, rates=Rates(**rates))

    def solution(self, run: Run, at: Iterate[ManySums]) -> Solution:
        """Return the solution of a finished run."""
        found = BlockMemberships(run.arrays, at.generation, n_clusters=self.n_clusters)
        return solution_at(run, at, sums=at.state)._replace(memberships=found)

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


def can_weigh_many(ensemble: Ensemble, n_clusters: int) -> bool:
    """Return whether finding which labels to trust costs little compared with the solve."""
    return 8 * n_clusters * ensemble.n_base_clusters <= MOST_TO_WEIGH


def plans_of_many(
    ensemble: Ensemble, n_clusters: int, keeps_labels: bool, *, in_memory: bool
) -> list[MemoryPlan]:
    """Return the memory plans of what a solve does in turn; the largest counts.

    ``in_memory``: whether memberships (n, K) are held rather than stored.
    """
    n, M, B, rows = ensemble.n_objects, ensemble.n_partitions, ensemble.n_base_clusters, ensemble.chunk_rows
    K, sample = n_clusters, min(n, max(sample_rows(n_clusters), SUBSAMPLE))
    room, square = min(MOST_SHARES, K), 8 * K * K
    kept, labels = 8 * room, block_label_bytes(ensemble)
    table, change, of_sample = (10 * min(B * K, of * M) for of in (n * room, rows * 2 * room, sample * room))
    hints = min(table, int(10 * (B + M * K) / LEAST_HINT))
    always = 4 * n + 2 * kept * n + (label_bytes(ensemble, n) if keeps_labels else 0)
    always += hints + 10 * square + 40 * K * M + 32 * B
    start = 128 * sample * min(M, MOST_PARTITIONS) + 8 * sample * (8 * MOST_COLUMNS + 16)
    start += 80 * B * (MOST_COLUMNS + 8)
    # S before a pass, what it changes, what a shorter one does, a sum of two of these, and one of a block
    passes = always + 4 * table + change
    moves = square + rows * (2 * kept + 32 * room + 8 * M + 64)
    # memberships that are published, and which labels to trust; what the start took may not be returned yet
    weighs = can_weigh_many(ensemble, K)
    results = always + start + table + 16 * min(n, SUBSAMPLE) * M + (40 * K * B if weighs else 0)
    results += 4 * n * K + TRUST_ROW.itemsize * n if in_memory else 0
    return [
        MemoryPlan(always + start + 3 * of_sample),
        MemoryPlan(passes, labels + moves, change + square + rows * (kept + 8)),
        MemoryPlan(results, labels + (20 if weighs else 12) * rows * K, rows * (8 + 4 * K * in_memory)),
    ]


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
    rates = rates_of_many(labels, offsets, clusters, n_clusters, omega, calibration.block_rule)
    kept = few_shares(clusters, n_clusters)
    sums = sums_of_clusters(labels, offsets, clusters, rates)
    tables, objective = tables_of(sums, offsets)
    for _ in range(SAMPLE_PASSES):
        stop_if_cancelled()
        change, moved = update_block(tables, offsets, 0.0, 1.0, labels, kept)
        found = after_moves(sums, change)
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
    labels an object has, the further it is from others of its class. Also returns the
    squared distances of every start.
    """
    labels, offsets = some_partitions(labels, offsets)
    incidence = incidence_of(labels, offsets)
    n_labels = incidence.sum(axis=1)
    incidence = normalized(incidence, np.ones(incidence.shape[1]))
    spectrum = leading_by_products(
        lambda table: incidence.T @ (incidence @ table),
        int(offsets[-1]),
        min(MOST_COLUMNS, n_clusters),
        max_products=PRODUCTS,
    )
    labeled = n_labels > 0
    rows = of_unit_length((incidence @ spectrum.vectors)[labeled])
    draw = int(generator(seed, "pcc.many.kmeans").integers(2**31))
    n_groups = min(n_clusters, n_distinct_rows(rows))
    found, distances = kmeans_of_unit_rows(rows, n_groups, n_init, draw, n_labels[labeled])
    clusters = np.full(len(labels), -1, np.int64)
    clusters[labeled] = found.labels
    return clusters, distances


def rates_of_many(
    labels: np.ndarray,
    offsets: np.ndarray,
    clusters: np.ndarray,
    n_clusters: int,
    omega: np.ndarray,
    rule: str,
) -> Rates:
    """Return what `block_rates` does by sparse tables, with affinities below `LEAST_AFFINITY` as none.

    The ``rule`` is `EQUAL` or `INFORMED`.
    """
    K, M, own = n_clusters, offsets.size - 1, np.arange(n_clusters)
    w, inside = np.ones(M), incidence_of(clusters[:, None], np.array([0, K]))
    table = (incidence_of(labels, offsets).T @ inside).tocsr()
    of_base, squares_of_base = table.sum(axis=1), table.multiply(table).sum(axis=1)
    sizes = np.asarray((labels >= 0).T @ inside)
    if rule == INFORMED:
        cells = table.copy()
        cells.data = xlogy(table.data, table.data)
        w = informed_weights(sizes, of_base, cells.sum(axis=1), offsets)
    a, d = shared_rates(sizes, of_base, squares_of_base, omega, offsets, w)
    weighed = table.multiply((np.repeat(w * d, np.diff(offsets)) * omega)[:, None]).tocsr()
    excess = (weighed.T @ table).toarray()
    excess[own, own] -= weighed.sum(axis=0)
    theta = affinities(excess, sizes, a, d, w)
    theta[(theta < LEAST_AFFINITY) & ~np.eye(K, dtype=bool)] = 0.0
    return Rates.of(a, d, w, omega, offsets, np.ascontiguousarray(theta))
