"""PCC over all pairs with the squared divergence: an exact fold over row blocks, without forming pairs.

Objects interact only through sums of a few thousand numbers (``AgreementSums``; the identities are in
``kernels/all_pairs.py``), so a pass over the label matrix costs O(n M K + n K^2 M), whatever the number of
pairs.

Every block starts from the same sums and updates its own objects in turn, so each block alone would lower the
objective by a known amount. In the rare case that all blocks together fall short of that prediction, further
folds measure shorter steps along the changes, and the best one is taken.

The objective has many local optima. The clusters that a tree finds in a sample of the objects and several
random memberships are all solved on that sample, and the solution of the lowest objective is extended to a
larger sample, solved there, and extended to all objects: each gets its best membership given the sample. The
larger the sample, the less its sums are off, and the fewer passes over all objects are left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import AgreementSums, add_sums, agreement_sums, in_order, no_sums
from bigcons.divergences import Divergence
from bigcons.io.labels import observed
from bigcons.kernels import all_pairs as kernel
from bigcons.memory import LABELS_TOGETHER, N_SAMPLED, Block
from bigcons.metrics.clusterings import entropies_of_table
from bigcons.progress import progress
from bigcons.run.engine import Engine, stop_if_cancelled
from bigcons.run.memory_plan import MemoryPlan, block_label_bytes
from bigcons.run.passes import Iterate, Record, Run, Step, run_passes
from bigcons.run.results import Output
from bigcons.run.survey import Survey, mean_pair_weight
from bigcons.seeding import generator
from bigcons.store.clusters import TRUST_ROW
from bigcons.store.ensemble import Ensemble
from bigcons.trust.groups import Sample, n_groups_for, plan_bytes
from bigcons.weights import Weights

SAMPLE, SHARE = 16_384, 64
"""The best start is extended to so many objects before all, or to one in so many: passes over these then cost
little beside those that they save.

`benchmarks/phases.py` has the time of the passes that are left.
"""

# Successive over-relaxation speeds up convergence within a block, whose objects move in turn (below 2, every
# step lowers the objective): 2,000 objects in 60 partitions take 180 passes with it, 280 without. Several
# blocks move at once and overshoot already, so they do without it.
RELAXATION = 1.5

# A full step needs no further fold, so it is taken if the blocks together gain at least this share of what
# each would alone. In the quadratic model it then achieves at least half the decrease of the best length.
ENOUGH = 0.3

# Objects move whose gap is above this share of the tolerance. Objects just below the tolerance move too, or
# they delay one another: 20,000 objects in ten blocks take 54 to 71 passes with a quarter, 69 to 100 without.
MOVING = 0.25


# One block


class Change(NamedTuple):
    """The change by one block or the sum over all: the statistics of a pass."""

    sums: AgreementSums
    """What the sums change by."""
    gap: float
    """The largest KKT gap before the update."""
    n_moved: int
    """Number of objects whose membership changed."""
    predicted: float
    """The change of the objective if each block changed alone, summed over the blocks."""


def update_block(
    sums: AgreementSums,
    offsets: np.ndarray,
    threshold: float,
    relaxation: float,
    labels: np.ndarray,
    memberships: np.ndarray | None = None,
) -> tuple[Change, np.ndarray]:
    """Update each object of a block given all others; return the change and the new memberships.

    Objects whose KKT gap is at most ``threshold`` do not move; the others take ``relaxation`` times the step
    to their optimum, within the simplex. Later objects see the moves of earlier ones. Without memberships the
    objects are new: the sums neither have them nor get them, and each has its best membership given these.
    Cost: see ``kernels.all_pairs.sweep``.
    """
    K, totals, is_new = sums.n_clusters, np.zeros(4), memberships is None
    updated = np.empty((len(labels), K), np.float32)
    # the heaviest clusters first, so that objects need few of the first ones
    order = np.argsort(-sums.S[:, :K].sum(axis=0), kind="stable")
    S, T = in_order(sums.S, sums.T, order)
    kernel.sweep(
        *(labels, offsets, sums.partition_weights, S, T, order, updated if is_new else memberships, updated),
        *(threshold, relaxation, is_new, totals),
    )
    S, T = in_order(S, T, np.argsort(order))
    squares, quartics, gap, n_moved = totals.tolist()
    change = AgreementSums(K, S - sums.S, T - sums.T, squares, quartics, sums.weights)
    return Change(change, gap, int(n_moved), objective_change(sums, change)), updated


def add_changes(a: Change, b: Change) -> Change:
    """Add ``b`` to ``a`` in place, and return it."""
    gap, n_moved = max(a.gap, b.gap), a.n_moved + b.n_moved
    return Change(add_sums(a.sums, b.sums), gap, n_moved, a.predicted + b.predicted)


def objective_change(sums: AgreementSums, change: AgreementSums) -> float:
    """Return the exact change of the objective where the sums change by ``change``."""
    agreement = 2.0 * sums.dot(sums.S, change.S) + sums.dot(change.S, change.S) - change.squares
    together = 2.0 * sums.inner(sums.T, change.T) + sums.inner(change.T, change.T) - change.quartics
    return float(-agreement + 0.5 * together)


def sums_between(
    length: float,
    offsets: np.ndarray,
    weights: Weights | None,
    labels: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
) -> AgreementSums:
    """Return a block's sums at a step of some length from the memberships ``before`` towards ``after``."""
    between = before + np.float32(length) * (after - before)
    return agreement_sums(labels, offsets, between, weights)


# The passes


class Solved(NamedTuple):
    """Memberships of a sample, or of all objects, from which all others follow."""

    memberships: np.ndarray
    """(rows, K) float32"""
    sums: AgreementSums
    """Agreement sums of these objects, with the weights of partitions they were solved by."""
    start_objectives: list[float]
    """Objective of every start at the time of choice."""


Begin = Callable[[Run], Solved]
"""Finds the first memberships of a run."""


def first_rows(ensemble: Ensemble, solved: Solved, block: Block) -> tuple[np.ndarray, AgreementSums]:
    """Return the first memberships (rows, K) float32 of a block, and their sums.

    Those of the solved objects, if these are all; else the best ones given what the solved sample estimates.
    """
    labels, rows = ensemble.read(block.start, block.stop), solved.memberships[block.start : block.stop]
    if len(solved.memberships) < ensemble.n_objects:
        estimate = solved.sums.scaled(ensemble.n_objects / len(solved.memberships))
        _, rows = update_block(estimate, ensemble.offsets, 0.0, 1.0, labels)
    return rows, agreement_sums(labels, ensemble.offsets, rows, solved.sums.weights)


@dataclass
class AllPairs:
    """The passes of PCC over all pairs, squared divergence; objects carry memberships (rows, K) float32.

    The gap is in units of the mean weight of an object, ``sum_j N_ij``. A solve has converged before the pass
    that finds no object with a gap above the tolerance. What that pass would change is dropped, so the gap
    it reports is exact.
    """

    offsets: np.ndarray
    n_clusters: int
    n_seen: np.ndarray
    """(M,): number of objects that each partition labels."""
    begin: Begin

    name = "all-pairs PCC"
    add: ClassVar[staticmethod[[Change, Change], Change]] = staticmethod(add_changes)

    def start(self, run: Run) -> tuple[AgreementSums, list[float]]:
        """Write the first memberships and return their sums."""
        with progress("start from a sample", 0):
            solved = self.begin(run)
        data, arrays = run.data, run.arrays

        def write_first(block: Block) -> AgreementSums:
            memberships, sums = first_rows(data, solved, block)
            arrays.write(0, block, memberships)
            return sums

        with progress("start of PCC", data.n_objects) as listener:
            return run.fold(write_first, add_sums, listener), solved.start_objectives

    def visit(self, run: Run, at: Iterate[AgreementSums]) -> Callable[[Block], Change]:
        """Return the task that updates every object of a block given all others."""
        scale = mean_pair_weight(self.n_seen, run.data.n_objects, at.state.partition_weights)
        relaxation = RELAXATION if len(run.blocks) == 1 else 1.0
        reads, writes = [at.generation], at.generation + 1
        arguments = at.state, self.offsets, MOVING * run.tol * scale, relaxation
        return run.visit(update_block, *arguments, reads=reads, writes=writes)

    def step(self, run: Run, at: Iterate[AgreementSums], total: Change) -> Step[AgreementSums]:
        """Take the full step if the objective decreases enough, else halve it as long as that lowers it."""
        sums, length, n_generations = at.state, 1.0, 1
        gap = total.gap / mean_pair_weight(self.n_seen, run.data.n_objects, sums.partition_weights)
        if gap <= run.tol:
            run.arrays.drop([at.generation + 1])
            record: Record = {"objective": sums.objective, "gap": gap, "moved": 0, "step_length": 0.0}
            return Step(sums, record, is_settled=True, n_generations=0)
        is_short = len(run.blocks) > 1 and objective_change(sums, total.sums) > ENOUGH * total.predicted
        reached, reads = add_sums(total.sums, sums), [at.generation, at.generation + 1]
        for shorter in 0.5 ** np.arange(1.0, 11.0) if is_short and total.n_moved else ():
            between = run.visit(sums_between, shorter, self.offsets, sums.weights, reads=reads)
            measured = run.fold(between, add_sums)
            if measured.objective < reached.objective:
                reached, length = measured, float(shorter)
            elif reached.objective < sums.objective:
                break
        if length < 1.0:
            run.shorten(at.generation, length)
            n_generations = 2
        record = {"objective": reached.objective, "gap": gap, "moved": total.n_moved, "step_length": length}
        return Step(reached, record, is_settled=False, n_generations=n_generations)

    def pack(self, state: AgreementSums) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the sums and how partitions count as arrays."""
        return packed_sums(state), {}

    def unpack(self, arrays: dict[str, np.ndarray], _facts: dict[str, Any]) -> AgreementSums:
        """Return the sums of a snapshot."""
        return unpacked_sums(arrays, self.offsets, self.n_clusters)


# What is stored of a solve, and the placing of new objects


def packed_sums(sums: AgreementSums) -> dict[str, np.ndarray]:
    """Return sums, and how partitions count in them, as arrays."""
    parts = {"S": sums.S, "T": sums.T}
    parts |= {"squares": np.asarray(sums.squares), "quartics": np.asarray(sums.quartics)}
    return parts if sums.weights is None else {**parts, "weights": sums.weights.partitions}


def unpacked_sums(parts: Mapping[str, np.ndarray], offsets: np.ndarray, n_clusters: int) -> AgreementSums:
    """Return the sums of `packed_sums`; raises KeyError or ValueError for anything else."""
    weights = None if "weights" not in parts else Weights.of(parts["weights"], offsets)
    sums, S, T = no_sums(offsets, n_clusters, weights), parts["S"], parts["T"]
    if (S.shape, T.shape) != (sums.S.shape, sums.T.shape):
        raise ValueError("arrays of other shapes")
    return sums._replace(S=S, T=T, squares=float(parts["squares"]), quartics=float(parts["quartics"]))


@dataclass(frozen=True)
class BySquares:
    """Gives the memberships of new objects: the best ones given all solved objects, over all pairs."""

    sums: AgreementSums
    offsets: np.ndarray

    def __call__(self, labels: np.ndarray) -> np.ndarray:
        """Return the best memberships (rows, K) float32 of new objects."""
        return update_block(self.sums, self.offsets, 0.0, 1.0, labels)[1]


def placer_of(run: Run, read: Callable[[Block], np.ndarray], left_out: np.ndarray | None = None) -> BySquares:
    """Return the placement of further objects by all but the sorted ``left_out``; one more pass.

    ``run`` is over the labels, and ``read`` gives the memberships of a block. It is by the squared
    divergence, whatever the fit was by.
    """
    data, offsets = run.data, run.data.offsets

    def sum_solved(block: Block) -> AgreementSums:
        labels, memberships = data.read(block.start, block.stop), read(block)
        if left_out is not None and (rows := block.rows_of(left_out)).size:
            labels, memberships = np.delete(labels, rows, axis=0), np.delete(memberships, rows, axis=0)
        return agreement_sums(labels, offsets, np.ascontiguousarray(memberships))

    return BySquares(run.fold(sum_solved, add_sums), offsets)


# The start on a sample


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


def softened(memberships: np.ndarray, part: float = 0.1) -> np.ndarray:
    """Mix memberships with a uniform part, so that no pair has probability 0 or 1."""
    return normalized((1.0 - part) * memberships + part / memberships.shape[1])


def normalized(rows: np.ndarray) -> np.ndarray:
    """Return rows of sum one, float32."""
    return np.asarray(rows / rows.sum(axis=1, keepdims=True), dtype=np.float32)


# The sample


def solve_sample(
    run: Run,
    clusters: np.ndarray,
    n_clusters: int,
    n_init: int,
    weights: Weights | None = None,
    more: np.ndarray | None = None,
) -> Solved:
    """Solve the sample of a run from ``n_init`` starts, first from ``clusters`` (rows,); keep the best.

    That start is near the clusters, and uniform where they are -1. The squared divergence is over all pairs.
    A larger sample, ``more`` (rows, M), is placed by the solution and solved in turn.
    """
    labels, offsets, seed = run.sample, run.data.offsets, run.seed
    crisp = np.full((len(clusters), n_clusters), 1.0 / n_clusters, np.float32)
    crisp[clusters >= 0] = np.eye(n_clusters, dtype=np.float32)[clusters[clusters >= 0]]
    first = softened(crisp)

    def solve_start(number: int) -> Solved:
        drawn = first if number == 0 else dirichlet(len(labels), n_clusters, seed, number)
        return descend(labels, offsets, drawn, weights, *RANKING)

    best, objectives = first, [np.inf]
    with progress("starts of PCC", n_init, "starts") as listener:
        for start in run.engine.map(solve_start, range(n_init)):
            objective = start.sums.objective
            best = start.memberships if objective < min(objectives) else best
            objectives.append(objective)
            listener.advance(1)
    # so far that extending the best start takes no further passes over all objects
    solved = descend(labels, offsets, best, weights, 200, 1e-4)
    if more is not None and len(more) > len(labels):
        estimate = solved.sums.scaled(len(more) / len(labels))
        _, placed = update_block(estimate, offsets, 0.0, 1.0, more)
        solved = descend(more, offsets, placed, weights, *RANKING)  # the passes over all objects do the rest
    return solved._replace(start_objectives=objectives[1:])


def descend(
    labels: np.ndarray,
    offsets: np.ndarray,
    memberships: np.ndarray,
    weights: Weights | None,
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
        sums = add_sums(change.sums, sums)
        if change.n_moved == 0:
            break
    return Solved(memberships, sums, [])


# Weights of partitions by their labels


def entropy_weights(labels: np.ndarray, offsets: np.ndarray) -> Weights:
    """Return weights of mean 1: the entropy of each partition's labels (rows, M) over its labeled rows.

    Two objects share label ``b`` by chance with probability ``p_b``, so sharing it carries information
    ``log(1 / p_b)``; the entropy is its mean over the objects.
    """
    worth = np.zeros(labels.shape[1])
    for u, column in enumerate(labels.T):
        if (column >= 0).any():  # the entropy is the mutual information of labels with themselves
            of_rows, of_columns, joint = entropies_of_table(np.diag(np.bincount(column[column >= 0])))
            worth[u] = np.maximum(of_rows + of_columns - joint, 0.0)
    if not worth.any():
        return Weights.of(np.ones(worth.size), offsets)
    # an uninformative partition counts next to nothing, yet objects that no other partition labeled are
    # still placed by it
    weights = np.maximum(worth, 0.001 * worth.mean())
    return Weights.of(weights / weights.mean(), offsets)


# The variants of PCC


class Solution(NamedTuple):
    """The memberships found, and what else a fit keeps."""

    read: Callable[[Block], np.ndarray]
    """Gives the memberships (rows, K) float32 of a block, read-only."""
    at: Iterate[Any]
    """Where the passes ended."""
    placer: BySquares
    """Gives the memberships of new objects."""


@dataclass(frozen=True)
class Variant(ABC):
    """A way to solve PCC, with checked parameters."""

    n_clusters: int
    divergence: Divergence
    pairs: Any
    max_iter: int | str | None
    tol: float
    n_init: int
    weights: Weights | str | None
    memory: str | float | None

    instead: ClassVar[str | None] = None
    """What takes less memory; None: ConsensusTree, if its plan fits."""
    n_generations: ClassVar[int] = 3
    """Generations of the memberships that a pass holds, one of them if it is shortened."""

    def n_passes(self, n_objects: int) -> int:  # noqa: ARG002 - of the heap, which counts steps
        """Return the largest number of passes."""
        return 100 if self.max_iter is None else int(self.max_iter)

    def n_sampled(self, ensemble: Ensemble) -> int:  # noqa: ARG002 - of all pairs by sums
        """Return how many objects are sampled: those that starts are solved on."""
        return N_SAMPLED

    def begin(self, sample: Sample, weights: Weights | None, more: np.ndarray, run: Run) -> Solved:
        """Solve the sample of a run over the labels, from clusters of its tree."""
        clusters = sample.groups(n_groups_for(self.n_clusters)).cut(self.n_clusters).of_objects
        return solve_sample(run, clusters, self.n_clusters, self.n_init, weights, more)

    def statistics_bytes(self, ensemble: Ensemble) -> int:
        """Return the size of what a block reports of a pass, or of placing objects: the sums."""
        K, M = self.n_clusters, ensemble.n_partitions
        return 8 * ((ensemble.n_base_clusters + M) * (K + 8) + M * (K * (K + 1) + 16))

    def held_bytes(self, ensemble: Ensemble) -> int:  # noqa: ARG002 - of pairs in memory
        """Return the size of what else the solve holds."""
        return 0

    def plan(self, ensemble: Ensemble, engine: Engine, *, in_memory: bool) -> MemoryPlan:
        """Return the memory plan; ``in_memory``: whether memberships are held rather than stored."""
        n, K, rows = ensemble.n_objects, self.n_clusters, ensemble.chunk_rows
        n_sampled, statistics = min(n, N_SAMPLED), self.statistics_bytes(ensemble)
        held = 4 * n + (4 * self.n_generations * n * K + TRUST_ROW.itemsize * n if in_memory else 0)
        held += n * ensemble.row_bytes if keeps_labels(ensemble, engine) else 0
        # of the sample: its incidence matrix, overlaps and groups, and a start; or what its judgment takes
        square = min(n_sampled, ensemble.n_base_clusters)
        start = 32 * n_sampled * ensemble.n_partitions + 24 * square**2 + 8 * n_sampled * (200 + 4 * K)
        held += max(start, plan_bytes(ensemble, n_sampled, n_groups_for(K), K))
        # labels as they are collected, and memberships before and after a pass
        held += min(n, self.n_sampled(ensemble)) * (3 * ensemble.row_bytes + 16 * K)
        return MemoryPlan(
            held=held + self.held_bytes(ensemble),
            # including the memberships before and after, and their change
            per_block=block_label_bytes(ensemble) + 16 * rows * K + 64 * rows + 3 * statistics,
            per_result=statistics + 8 * rows + (4 * rows * K if in_memory else 0),
        )

    def remedy(self, ensemble: Ensemble, engine: Engine, budget: int, *, in_memory: bool) -> str:
        """Return what to use within a budget that is too small for this, if anything."""
        from bigcons.methods.tree import ConsensusTree

        if self.instead is not None:
            return f" or use {self.instead}"
        plan = ConsensusTree(self.n_clusters).memory_plan(ensemble, engine, in_memory=in_memory)
        return " or use ConsensusTree" if plan.n_bytes(engine, ensemble) <= budget else ""

    @abstractmethod
    def solve(self, run: Run, survey: Survey, begin: Begin, out: Output | None) -> Solution:
        """Solve, given a run over the labels, from the memberships of ``begin``."""


class Squares(Variant):
    """All pairs by the squared divergence, exactly."""

    n_generations = 2

    def n_sampled(self, ensemble: Ensemble) -> int:
        """Return how many objects are sampled: those of the starts, or more that the best is extended to."""
        most = LABELS_TOGETHER // ensemble.n_partitions
        return max(N_SAMPLED, min(max(SAMPLE, ensemble.n_objects // SHARE), most))

    def solve(self, run: Run, survey: Survey, begin: Begin, out: Output | None) -> Solution:  # noqa: ARG002
        """Solve, given a run over the labels."""
        at = run_passes(run, AllPairs(run.data.offsets, self.n_clusters, survey.n_seen, begin))
        read = partial(run.arrays.read, at.generation)
        return Solution(read, at, BySquares(at.state, run.data.offsets))


def keeps_labels(ensemble: Ensemble, engine: Engine) -> bool:
    """Return whether labels are read once and kept: for few objects reading costs more than solving."""
    return engine.shares_memory and ensemble.n_objects * ensemble.row_bytes <= 32_000_000
