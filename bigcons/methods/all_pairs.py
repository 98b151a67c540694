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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigcons.coassociation.factorized import AgreementSums, add_sums, agreement_sums, in_order
from bigcons.contingency import entropies
from bigcons.io.labels import observed
from bigcons.kernels import all_pairs as kernel
from bigcons.kernels.cluster_tables import padded
from bigcons.memory import Block
from bigcons.progress import Progress, progress
from bigcons.run.engine import fold, stop_if_cancelled
from bigcons.run.passes import Iterate, Passes, Record, Run, State, Step
from bigcons.run.survey import mean_pair_weight
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.weights import Weights

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
    products = 2.0 * sums.inner(sums.T, change.T) + sums.inner(change.T, change.T) - change.quartics
    return float(-agreement + 0.5 * products)


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


def first_rows(ensemble: Ensemble, solved: Solved, block: Block, labels: np.ndarray) -> np.ndarray:
    """Return the first memberships (rows, K) float32 of a block with these labels.

    The solved ones, if all objects were solved; else the best ones given the sums that the sample estimates.
    """
    if len(solved.memberships) == ensemble.n_objects:
        return solved.memberships[block.start : block.stop]
    estimate = solved.sums.scaled(ensemble.n_objects / len(solved.memberships))
    return best_memberships(estimate, ensemble.offsets, labels)


@dataclass(eq=False)
class AllPairs(Passes):
    """The passes of PCC over all pairs, squared divergence; objects carry memberships (rows, K) float32.

    The gap is in units of the mean weight of an object, ``sum_j N_ij``. A solve has converged before the pass
    that finds no object with a gap above the tolerance. What that pass would change is dropped, so the gap
    it reports is exact.
    """

    name = "all-pairs PCC"

    n_clusters: int
    begin: Begin

    def start(self, run: Run) -> tuple[State, list[float]]:
        """Write the first memberships and return their sums."""
        with progress("start from a sample", 0):
            solved = self.begin(run)
        data, arrays = run.data, run.arrays

        def write_first(block: Block) -> AgreementSums:
            labels = data.read(block.start, block.stop)
            memberships = first_rows(data, solved, block, labels)
            arrays.write(0, block, memberships)
            return agreement_sums(labels, data.offsets, memberships, solved.sums.weights)

        sums = fold(run.engine, run.blocks, write_first, add_sums, progress="start of PCC")
        return packed_sums(sums), solved.start_objectives

    def one_pass(self, run: Run, iterate: Iterate, listener: Progress) -> Step:
        """Update every object given all others; shorten the step if together they gain too little."""
        offsets = run.data.offsets
        sums = unpacked_sums(iterate.state, offsets, self.n_clusters)
        weights = sums.weights
        scale = mean_pair_weight(run.data.n_labeled, run.data.n_objects, sums.partition_weights)
        is_single, before, after = len(run.blocks) == 1, iterate.generation, iterate.generation + 1
        arguments = sums, offsets, MOVING * run.tol * scale, RELAXATION if is_single else 1.0
        update = run.visit(update_block, *arguments, reads=[before], writes=after)
        total = fold(run.engine, run.blocks, update, add_changes, progress=listener)
        gap, length = total.gap / scale, 1.0
        if gap <= run.tol:
            run.arrays.drop([after])
            record: Record = {"objective": sums.objective, "gap": gap, "moved": 0, "step_length": 0.0}
            return Step(iterate.state, record, is_settled=True, n_generations=0)

        def sums_between(
            length: float, labels: np.ndarray, old: np.ndarray, new: np.ndarray
        ) -> AgreementSums:
            return agreement_sums(labels, offsets, old + np.float32(length) * (new - old), weights)

        is_short = not is_single and objective_change(sums, total.sums) > ENOUGH * total.predicted
        new_sums = add_sums(total.sums, sums)
        for step in 0.5 ** np.arange(1.0, 11.0) if is_short and total.n_moved else ():
            between = run.visit(sums_between, step, reads=[before, after])
            candidate = fold(run.engine, run.blocks, between, add_sums)
            if candidate.objective < new_sums.objective:
                new_sums, length = candidate, float(step)
            elif new_sums.objective < sums.objective:
                break
        if length < 1.0:
            run.shorten(before, length)
        record = {"objective": new_sums.objective, "gap": gap, "moved": total.n_moved, "step_length": length}
        return Step(packed_sums(new_sums), record, is_settled=False, n_generations=1 if length == 1.0 else 2)


# What is stored of a solve, and the placing of new objects


def packed_sums(sums: AgreementSums) -> dict[str, np.ndarray]:
    """Return sums, and how partitions count in them, as arrays."""
    parts = {"S": sums.S, "T": sums.T}
    parts |= {"squares": np.asarray(sums.squares), "quartics": np.asarray(sums.quartics)}
    return parts if sums.weights is None else {**parts, "weights": sums.weights.partitions}


def unpacked_sums(parts: Mapping[str, np.ndarray], offsets: np.ndarray, n_clusters: int) -> AgreementSums:
    """Return the sums of `packed_sums`; raises KeyError or ValueError for anything else."""
    weights = None if "weights" not in parts else Weights.build(parts["weights"], offsets)
    S, T = parts["S"], parts["T"]
    n_products = n_clusters * (n_clusters + 1) // 2
    if S.shape != (offsets[-1], padded(n_clusters)) or T.shape != (offsets.size - 1, padded(n_products)):
        raise ValueError("arrays of other shapes")
    return AgreementSums(n_clusters, S, T, float(parts["squares"]), float(parts["quartics"]), weights)


def best_memberships(sums: AgreementSums, offsets: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the best memberships (rows, K) float32 of new objects given all solved ones, over all pairs."""
    return update_block(sums, offsets, 0.0, 1.0, labels)[1]


def solved_sums(
    run: Run, read: Callable[[Block], np.ndarray], left_out: np.ndarray | None = None
) -> AgreementSums:
    """Return the sums of all objects but the sorted ``left_out``, by which others are placed; one more pass.

    ``run`` is over the labels, and ``read`` gives the memberships of a block.
    """
    data, offsets = run.data, run.data.offsets

    def sum_solved(block: Block) -> AgreementSums:
        labels, memberships = data.read(block.start, block.stop), read(block)
        if left_out is not None and (rows := block.rows_of(left_out)).size:
            labels, memberships = np.delete(labels, rows, axis=0), np.delete(memberships, rows, axis=0)
        return agreement_sums(labels, offsets, np.ascontiguousarray(memberships))

    return fold(run.engine, run.blocks, sum_solved, add_sums)


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


def softened(memberships: np.ndarray) -> np.ndarray:
    """Mix memberships with a uniform part, so that no pair has probability 0 or 1."""
    return normalized(0.9 * memberships + 0.1 / memberships.shape[1])


def normalized(rows: np.ndarray) -> np.ndarray:
    """Return rows of sum one, float32."""
    return np.asarray(rows / rows.sum(axis=1, keepdims=True), dtype=np.float32)


def solve_sample(
    run: Run, clusters: np.ndarray, n_clusters: int, n_init: int, weights: Weights | None, larger: np.ndarray
) -> Solved:
    """Solve the sample of a run from ``n_init`` starts, first from ``clusters`` (rows,); keep the best.

    That start is near the clusters, and uniform where they are -1. The squared divergence is over all pairs.
    A larger sample, ``larger`` (rows, M), is placed by the solution and solved in turn.
    """
    labels, offsets, seed = run.sample, run.data.offsets, run.seed
    crisp = np.full((len(clusters), n_clusters), 1.0 / n_clusters, np.float32)
    crisp[clusters >= 0] = np.eye(n_clusters, dtype=np.float32)[clusters[clusters >= 0]]
    first = softened(crisp)

    def solve_start(number: int) -> Solved:
        memberships = first if number == 0 else dirichlet(len(labels), n_clusters, seed, number)
        return descend(labels, offsets, memberships, weights, *RANKING)

    best, objectives = first, [np.inf]
    with progress("starts of PCC", n_init, "starts") as listener:
        for start in run.engine.map(solve_start, range(n_init)):
            objective = start.sums.objective
            best = start.memberships if objective < min(objectives) else best
            objectives.append(objective)
            listener.advance(1)
    # so far that extending the best start takes no further passes over all objects
    solved = descend(labels, offsets, best, weights, 200, 1e-4)
    if len(larger) > len(labels):
        placed = best_memberships(solved.sums.scaled(len(larger) / len(labels)), offsets, larger)
        solved = descend(larger, offsets, placed, weights, *RANKING)  # passes over all objects do the rest
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
    information = np.zeros(labels.shape[1])
    for u, column in enumerate(labels.T):
        if (column >= 0).any():  # the entropy is the mutual information of labels with themselves
            row_entropy, column_entropy, joint = entropies(np.diag(np.bincount(column[column >= 0])))
            information[u] = np.maximum(row_entropy + column_entropy - joint, 0.0)
    if not information.any():
        return Weights.build(np.ones(information.size), offsets)
    # an uninformative partition counts next to nothing, yet objects that no other partition labeled are
    # still placed by it
    weights = np.maximum(information, 0.001 * information.mean())
    return Weights.build(weights / weights.mean(), offsets)
