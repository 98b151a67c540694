"""PCC over all pairs with any Bregman divergence: by prototypes or, of few objects, pair by pair.

A group of objects with similar memberships is approximated by a single prototype (``kernels/prototypes.py``),
so a pass costs O(n G (M + K^2)) for G groups, whatever the number of pairs. Every block starts from the same
tables, updates its own objects in turn and its copy of the tables with them; the changes of all blocks are
summed.

The grouped objective is ``sum c_ij d(1, p_ij) + (N_ij - c_ij) d(0, p_ij)`` with the prototypes' probabilities
in place of ``p_ij = y_i.y_j``: for Kullback-Leibler the negative log-likelihood. It differs from ``sum N_ij
d(c_ij / N_ij, p_ij)`` by a constant and by the error of the prototypes. It never rises: a pass that would
raise it is shortened.

Up to a few thousand objects every object can meet every other: a pass costs O(n^2 (M + K^2)) and no prototype
stands for anything, so objective and gap are exact. For more objects the same sums, over a fixed sample of
objects, tell how far a solve by prototypes is from the optimum over all pairs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import add_sums, agreement_sums
from bigcons.coassociation.grouped import add_tables, choose_centers, copy_tables, tables_of_block
from bigcons.divergences import Divergence
from bigcons.kernels import pairwise
from bigcons.kernels import prototypes as kernel
from bigcons.kernels.line_search import newton_search, sampling_search
from bigcons.kernels.objective import over_votes
from bigcons.kernels.prototypes import ABOVE_FLOOR, Tables
from bigcons.memory import N_SAMPLED, Block
from bigcons.methods.pcc.all_pairs import (
    DIVERGENCES,
    MOVING,
    Begin,
    BySquares,
    Solution,
    Variant,
    softened,
)
from bigcons.progress import progress
from bigcons.seeding import draw_rows, generator
from bigcons.solving.output import Output
from bigcons.solving.passes import BlockArrays, Iterate, Record, Run, Step, run_passes
from bigcons.solving.survey import Survey
from bigcons.stores.ensemble import Ensemble

# Number of objects whose pairs give the approximation error, and whose memberships renew the centers.
SAMPLE = 512

# Step lengths along a pass's changes, tried in order until one lowers the objective.
STEPS = (1.0, 0.5, 0.25, 0.125)

# Uniform share of memberships by divergences such as KL, which are infinite where a pair has probability 0 or
# 1 and is observed otherwise: about the least that float32 resolves next to 1.
LEAST_PART = 1e-6

# The centers are renewed while a pass lowers the objective by more than this share of it; one that lowers it
# by less than `tol` times this share is the last.
SMALL_DECREASE = 1e-3


def default_prototypes(n_clusters: int) -> int:
    """Return the number of prototypes that keeps the objective some tenths of a percent from optimal."""
    # fewer than 16 resolve the memberships of three clusters too coarsely
    return max(16, 4 * n_clusters)


class Grouped(NamedTuple):
    """Memberships summarized by prototypes, with objective and gap."""

    tables: Tables
    objective: float
    gap: float


@dataclass
class Prototypes:
    """The passes of PCC over all pairs with any divergence; objects carry memberships (rows, K) float32.

    Passes have settled if the largest gap of the grouped problem, in units of the mean weight ``sum_j N_ij``
    of an object, is at most ``tol``, or if the last one lowered the objective by less
    than ``tol / 1000`` of it: far less than the error of the prototypes (`approximation_error`, in every
    record). The gap over all pairs is larger (`pairwise.sampled_gap`). A pass reads the labels twice, to
    update and to evaluate.
    """

    divergence: Divergence
    n_prototypes: int
    mean_weight: float
    begin: Begin

    name = "all-pairs PCC"

    def start(self, run: Run) -> tuple[Grouped, list[float]]:
        """Write and group the first memberships: those of a sample, refined by their own divergence."""
        solved = self.begin(run)
        first = softened(solved.memberships)
        estimate = write_start(run, first, self.divergence, self.n_prototypes)
        if estimate is None:
            centers = choose_centers(first[_sampled(run)], self.n_prototypes)
        else:
            centers = estimate.centers
        tables = self._group(run, centers, 0)
        found = self._evaluate(run, tables, 0)
        return Grouped(tables, found.objective, found.gap), solved.start_objectives

    def visit(self, run: Run, at: Iterate[Grouped]) -> Callable[[Block], Change]:
        """Return the task that updates every object of a block given all others."""
        threshold = MOVING * run.tol * self.mean_weight
        arguments = at.state.tables, run.data.offsets, threshold, self.divergence
        return run.visit(update_block, *arguments, reads=[at.generation], writes=at.generation + 1)

    @staticmethod
    def add(total: Change, part: Change) -> Change:
        """Add the change of a further block, in place."""
        tables = add_tables(total.tables, part.tables)
        return Change(tables, max(total.gap, part.gap), total.n_moved + part.n_moved)

    def step(self, run: Run, at: Iterate[Grouped], total: Change) -> Step[Grouped]:
        """Take the first step length that lowers the objective, if any; renew the centers if worthwhile."""
        before, generation = at.state, at.generation
        for length in STEPS:
            if length == 1.0:
                n_generations, tables = 1, add_tables(copy_tables(before.tables), total.tables)
            else:
                run.shorten(generation, length)
                n_generations = 2
                tables = self._group(run, before.tables.centers, generation + 2)
            found = self._evaluate(run, tables, generation + n_generations)
            if found.objective < before.objective:
                break
        else:
            length, n_generations, tables = 0.0, 0, before.tables
            run.arrays.drop([generation + 1, generation + 2])
            found = self._evaluate(run, tables, generation)
        if before.objective - found.objective > SMALL_DECREASE * abs(before.objective):
            centers = choose_centers(found.memberships, self.n_prototypes)
            renewed = self._group(run, centers, generation + n_generations)
            again = self._evaluate(run, renewed, generation + n_generations)
            if again.objective < before.objective:
                tables, found = renewed, again
        record = {
            "objective": found.objective,
            "moved": total.n_moved,
            "step_length": length,
            "error": approximation_error(tables.centers, run.data.offsets, found, self.divergence),
            "gap": found.gap / self.mean_weight,
        }
        state = Grouped(tables, found.objective, found.gap)
        gain = at.records[-1]["objective"] - found.objective if at.records else np.inf
        is_settled = record["gap"] <= run.tol or gain <= run.tol * SMALL_DECREASE * abs(found.objective)
        return Step(state, record, is_settled, n_generations)

    def pack(self, state: Grouped) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the tables as arrays and the rest as facts."""
        facts = state._asdict()
        return facts.pop("tables")._asdict(), facts

    def unpack(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Grouped:
        """Return the state of a snapshot."""
        return Grouped(Tables(**arrays), **facts)

    def _group(self, run: Run, centers: np.ndarray, generation: int) -> Tables:
        """Return the tables of a generation for given centers."""
        return run.fold(run.visit(tables_of_block, centers, run.data.offsets, reads=[generation]), add_tables)

    def _evaluate(self, run: Run, tables: Tables, generation: int) -> Evaluation:
        """Evaluate a generation with its tables."""
        ensemble, arrays, sampled, divergence = run.data, run.arrays, _sampled(run), self.divergence

        def evaluate(block: Block) -> Evaluation:
            labels, memberships = ensemble.read(block.start, block.stop), arrays.read(generation, block)
            rows = block.rows_of(sampled)
            return evaluate_block(tables, labels, ensemble.offsets, memberships, rows, divergence)

        return run.fold(evaluate, add_evaluations)


def _sampled(run: Run) -> np.ndarray:
    """Return the sampled objects, ascending; all objects if there are no more than SAMPLE."""
    n = run.data.n_objects
    draw = generator(run.seed, "pcc.prototypes.sample")
    return np.arange(n) if n <= SAMPLE else np.sort(draw.choice(n, SAMPLE, replace=False))


# The start


def write_start(
    run: Run, memberships: np.ndarray, divergence: Divergence, n_prototypes: int
) -> Tables | None:
    """Write first memberships of all objects, or refine those of a sample and place all objects by them.

    Return the tables of the refined sample in the latter case.
    """
    ensemble, arrays = run.data, run.arrays
    estimate: Tables | None = None
    if len(memberships) < ensemble.n_objects:
        sample, offsets = run.sample, ensemble.offsets
        for left in range(8, -1, -1):  # eight passes with renewed centers
            centers = choose_centers(memberships, n_prototypes)
            estimate = tables_of_block(centers, offsets, sample, memberships)
            if left:
                _, memberships = update_block(estimate, offsets, 0.0, divergence, sample, memberships)

    def write_first(block: Block) -> None:
        rows = memberships[block.start : block.stop]
        if estimate is not None:
            labels = ensemble.read(block.start, block.stop)
            rows = place_block(estimate, labels, ensemble.offsets, divergence)
        arrays.write(0, block, rows)

    with progress("start of PCC", ensemble.n_objects) as listener:
        for block, _ in zip(run.blocks, run.engine.map(write_first, run.blocks), strict=True):
            listener.advance(block.n_rows)
    return estimate


def least_membership(divergence: Divergence, n_clusters: int) -> float:
    """Return the least membership that prototypes may give.

    Not zero if the divergence has no practical bound where a pair has probability 0 or 1, as KL.
    """
    value, _, _, parameter = divergence.compiled
    growth = value(1.0, 1e-9, parameter) - value(1.0, 1e-5, parameter)
    return LEAST_PART / n_clusters if growth > 4.0 * value(1.0, 0.5, parameter) else 0.0


# One pass


class Change(NamedTuple):
    """The change by one block or the sum over all: the statistics of a pass."""

    tables: Tables
    """Differences of all tables except the centers."""
    gap: float
    """The largest KKT gap before the update."""
    n_moved: int


def update_block(
    tables: Tables,
    offsets: np.ndarray,
    threshold: float,
    divergence: Divergence,
    labels: np.ndarray,
    memberships: np.ndarray,
) -> tuple[Change, np.ndarray]:
    """Update each object of a block given all others; return the change and the new memberships.

    Objects whose KKT gap is at most ``threshold`` do not move. Cost: see ``kernels.prototypes.sweep``.
    """
    now, updated, totals = copy_tables(tables), np.empty_like(memberships), np.zeros(2)
    floor = least_membership(divergence, memberships.shape[1])
    kernel.sweep(
        labels, offsets, now, memberships, updated, floor, threshold, False, totals, *_moving(divergence)
    )
    for changed, before in zip(now[1:], tables[1:], strict=True):
        np.subtract(changed, before, out=changed)
    return Change(now, float(totals[0]), int(totals[1])), updated


def place_block(
    tables: Tables, labels: np.ndarray, offsets: np.ndarray, divergence: Divergence
) -> np.ndarray:
    """Return the best memberships (rows, K) float32 of objects that are not in ``tables``."""
    placed = np.empty((labels.shape[0], tables.centers.shape[1]), np.float32)
    totals = np.zeros(2)
    floor = least_membership(divergence, placed.shape[1])
    kernel.sweep(labels, offsets, tables, placed, placed, floor, 0.0, True, totals, *_moving(divergence))
    return placed


@dataclass(frozen=True)
class ByPrototypes:
    """Gives the memberships of new objects: the best ones given the prototypes of all solved objects."""

    tables: Tables
    offsets: np.ndarray
    divergence: Divergence

    def __call__(self, labels: np.ndarray) -> np.ndarray:
        """Return the best memberships (rows, K) float32 of new objects."""
        return place_block(self.tables, labels, self.offsets, self.divergence)


# Evaluation


class Evaluation(NamedTuple):
    """Objective and gap of given memberships, and a sample of them."""

    objective: float
    """The grouped objective over all pairs."""
    gap: float
    """The largest KKT gap."""
    labels: np.ndarray
    """(sampled rows, M)"""
    memberships: np.ndarray
    """(sampled rows, K) float32"""


def evaluate_block(
    tables: Tables,
    labels: np.ndarray,
    offsets: np.ndarray,
    memberships: np.ndarray,
    sampled: np.ndarray,
    divergence: Divergence,
) -> Evaluation:
    """Return a block's part of the objective, its largest gap, and its rows ``sampled`` (indices)."""
    totals = np.zeros(2)
    value, slope, _, parameter = divergence.compiled
    floor = least_membership(divergence, memberships.shape[1])
    kernel.evaluate(labels, offsets, tables, memberships, floor, totals, value, slope, parameter)
    objective, gap = totals.tolist()
    return Evaluation(objective, gap, labels[sampled], memberships[sampled])


def add_evaluations(a: Evaluation, b: Evaluation) -> Evaluation:
    """Return the evaluation of both blocks together."""
    labels, memberships = np.concatenate([a.labels, b.labels]), np.concatenate([a.memberships, b.memberships])
    return Evaluation(a.objective + b.objective, max(a.gap, b.gap), labels, memberships)


def approximation_error(
    centers: np.ndarray, offsets: np.ndarray, sample: Evaluation, divergence: Divergence
) -> float:
    """Return the relative error of the objective by prototypes, over the pairs of a sample.

    Compares the grouped objective of the sampled objects alone, in the groups of all objects, with the same
    sum pair by pair: O(r^2 (M + K)) for r sampled objects.
    """
    value, _, _, parameter = divergence.compiled
    rows = np.flatnonzero((sample.labels >= 0).any(axis=1))
    labels, memberships = sample.labels[rows], sample.memberships[rows]
    tables = tables_of_block(centers, offsets, labels, memberships)
    grouped = evaluate_block(tables, labels, offsets, memberships, rows[:0], divergence).objective
    exact = over_votes(labels, memberships.astype(np.float64), value, parameter)
    return abs(grouped - exact) / exact if exact > 0.0 else 0.0


def _moving(divergence: Divergence) -> tuple[Any, ...]:
    """Return the divergence's arguments of kernels that move objects."""
    _, slope, curvature, parameter = divergence.compiled
    return divergence.is_double_convex, slope, curvature, general_search(divergence), parameter


def general_search(divergence: Divergence) -> Callable[..., Any]:
    """Return the compiled search: Newton if the divergence is double-convex, else sampling."""
    value, slope, curvature, _ = divergence.compiled
    return newton_search(slope, curvature) if divergence.is_double_convex else sampling_search(value)


# Pair by pair


class Exact(NamedTuple):
    """Objective and gap of the memberships, over all pairs."""

    objective: float
    """``sum c_ij d(1, p_ij) + (N_ij - c_ij) d(0, p_ij)``."""
    gap: float
    """The largest KKT gap."""


@dataclass
class Pairwise:
    """The passes of PCC over all pairs, one by one; objects carry memberships (rows, K) float32.

    Blocks update their objects in turn, given those of other blocks as the pass began; a pass that would
    raise the objective is shortened. A solve has settled when the largest gap, in units of the mean weight
    ``sum_j N_ij`` of an object, is at most ``tol``, or when no step lowers the
    objective any more.
    """

    n_clusters: int
    divergence: Divergence
    mean_weight: float
    begin: Begin

    name = "all-pairs PCC"
    add: ClassVar[staticmethod[[int, int], int]] = staticmethod(operator.add)
    """Adds up how many objects moved."""

    def start(self, run: Run) -> tuple[Exact, list[float]]:
        """Write the first memberships: those of a sample, refined by their own divergence."""
        solved = self.begin(run)
        n_prototypes = default_prototypes(self.n_clusters)
        write_start(run, softened(solved.memberships), self.divergence, n_prototypes)
        return self._evaluate(run, 0), solved.start_objectives

    def visit(self, run: Run, at: Iterate[Exact]) -> Callable[[Block], int]:
        """Return the task that updates every object of a block given all others, and tells how many moved."""
        threshold = MOVING * run.tol * self.mean_weight
        data, arrays, blocks, divergence = run.data, run.arrays, run.blocks, self.divergence
        generation = at.generation

        def update_block(block: Block) -> int:
            everything = read_all(data, arrays, blocks, generation)
            updated, totals = np.array(arrays.read(generation, block)), np.zeros(2)
            _, slope, curvature, parameter = divergence.compiled
            pairwise.sweep(
                *(*everything, block.start, updated, threshold, totals, divergence.is_double_convex),
                *(slope, curvature, general_search(divergence), parameter),
            )
            arrays.write(generation + 1, block, updated)
            return int(totals[1])

        return update_block

    def step(self, run: Run, at: Iterate[Exact], total: int) -> Step[Exact]:
        """Take the first step length that lowers the objective, if any."""
        found, n_generations, length = at.state, 0, 0.0
        for length in STEPS if total else ():
            n_generations = 1 if length == 1.0 else 2
            if n_generations == 2:
                run.shorten(at.generation, length)
            found = self._evaluate(run, at.generation + n_generations)
            if found.objective < at.state.objective:
                break
        else:
            found, n_generations, length = at.state, 0, 0.0
            run.arrays.drop([at.generation + 1, at.generation + 2])
        record: Record = {
            "objective": found.objective,
            "moved": total,
            "step_length": length,
            "gap": found.gap / self.mean_weight,
        }
        return Step(found, record, length == 0.0 or record["gap"] <= run.tol, n_generations)

    def pack(self, state: Exact) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return everything as facts."""
        return {}, state._asdict()

    def unpack(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Exact:  # noqa: ARG002
        """Return the state of a snapshot."""
        return Exact(**facts)

    def _evaluate(self, run: Run, generation: int) -> Exact:
        """Return the objective, and the largest gap, of a generation."""
        data, arrays, blocks, divergence = run.data, run.arrays, run.blocks, self.divergence

        def evaluate_block(block: Block) -> Exact:
            totals = np.zeros(2)
            value, slope, _, parameter = divergence.compiled
            everything = read_all(data, arrays, blocks, generation)
            pairwise.evaluate(*everything, block.start, block.stop, totals, value, slope, parameter)
            return Exact(*totals.tolist())

        return run.fold(evaluate_block, lambda a, b: Exact(a.objective + b.objective, max(a.gap, b.gap)))


def read_all(
    ensemble: Ensemble, arrays: BlockArrays, blocks: Sequence[Block], generation: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (n, M) and memberships (n, K) float64, of sum one, of all objects."""
    rows = [arrays.read(generation, block) for block in blocks]
    return ensemble.read(0, ensemble.n_objects), exactly(np.concatenate(rows))


def exactly(memberships: np.ndarray) -> np.ndarray:
    """Return rows of sum one in float64: float32 does not resolve the distance to a vertex."""
    rows = memberships.astype(np.float64)
    return rows / rows.sum(axis=1, keepdims=True)


# The exact gap of memberships found by prototypes


def sampled_gap(run: Run, generation: int, divergence: Divergence) -> float:
    """Return the largest KKT gap over all pairs of a fixed sample of 128 objects, found by prototypes.

    All objects if there are few. Two passes over the labels, O(n (M + K)) time for each object of the sample.
    """
    n = run.data.n_objects
    sampled = draw_rows(n, n if n <= N_SAMPLED else 128, run.seed, "pcc.gap.sample")
    ensemble, arrays = run.data, run.arrays

    def read_sampled(block: Block) -> tuple[np.ndarray, np.ndarray]:
        rows = block.rows_of(sampled)
        labels = ensemble.read(block.start, block.stop)[rows]
        return labels, arrays.read(generation, block)[rows]

    labels, found = (
        np.concatenate(part) for part in zip(*run.engine.map(read_sampled, run.blocks), strict=True)
    )
    rows = exactly(found)

    def add_gradients(block: Block) -> np.ndarray:
        of_block, others = ensemble.read(block.start, block.stop), arrays.read(generation, block)
        gradients = np.zeros_like(rows)
        _, slope, _, parameter = divergence.compiled
        own = sampled - block.start
        pairwise.add_gradients(of_block, exactly(others), labels, rows, own, gradients, slope, parameter)
        return gradients

    gradients = run.fold(add_gradients, lambda a, b: a + b)
    least = (1.0 + ABOVE_FLOOR) * least_membership(divergence, rows.shape[1])
    highest = np.where(found > least, gradients, -np.inf).max(axis=1)
    return float((highest - gradients.min(axis=1)).max())


# Further objects: new ones, and those that occur in no pair


def placer_of(
    run: Run,
    read: Callable[[Block], np.ndarray],
    divergence: Divergence,
    left_out: np.ndarray,
) -> BySquares | ByPrototypes:
    """Return the placement of further objects over all pairs, given all but the sorted ``left_out``.

    ``run`` is over the labels, and ``read`` gives the memberships of a block. One more pass: the sums of
    `AllPairs` for the squared divergence, prototypes for any other.
    """
    ensemble, offsets, centers = run.data, run.data.offsets, None
    if divergence.label != "l2":
        drawn = draw_rows(ensemble.n_objects, SAMPLE, run.seed, "pcc.placing.sample")
        kept = np.setdiff1d(drawn, left_out, assume_unique=True)
        sampled = kept if kept.size else drawn  # prototypes need not come from the solved objects
        rows = run.engine.map(lambda block: read(block)[block.rows_of(sampled)], run.blocks)
        first = np.concatenate(list(rows))
        centers = choose_centers(first, default_prototypes(first.shape[1]))

    def sum_solved(block: Block) -> Any:
        labels, rows = ensemble.read(block.start, block.stop), block.rows_of(left_out)
        found = read(block)
        if rows.size:
            labels, found = np.delete(labels, rows, axis=0), np.delete(found, rows, axis=0)
        found = np.ascontiguousarray(found)
        if centers is None:
            return agreement_sums(labels, offsets, found)
        return tables_of_block(centers, offsets, labels, found)

    if centers is None:
        return BySquares(run.fold(sum_solved, add_sums), offsets)
    return ByPrototypes(run.fold(sum_solved, add_tables), offsets, divergence)


# The variants


class EveryPair(Variant):
    """All pairs of a few thousand objects by any divergence, pair by pair."""

    kind = DIVERGENCES

    def statistics_bytes(self, ensemble: Ensemble) -> int:
        """Return the size of labels and memberships of all objects, and of the terms of one of them."""
        n = ensemble.n_objects
        return n * ensemble.row_bytes + 20 * n * self.n_clusters + 32 * n

    def solve(self, run: Run, survey: Survey, begin: Begin, out: Output | None) -> Solution:  # noqa: ARG002
        """Solve, given a run over the labels."""
        at = run_passes(run, Pairwise(self.n_clusters, self.divergence, survey.mean_weight, begin))
        gap, read = at.records[-1]["gap"], partial(run.arrays.read, at.generation)
        place = placer_of(run, read, self.divergence, np.empty(0, np.int64))
        return Solution(read, at, gap, gap <= self.tol, place, {})


class ByGroups(Variant):
    """All pairs by any divergence, by prototypes."""

    kind = DIVERGENCES

    def statistics_bytes(self, ensemble: Ensemble) -> int:
        """Return the size of the tables of prototypes."""
        n_tables = ensemble.n_base_clusters + ensemble.n_partitions
        return 8 * (default_prototypes(self.n_clusters) + 8) * n_tables

    def solve(self, run: Run, survey: Survey, begin: Begin, out: Output | None) -> Solution:  # noqa: ARG002
        """Solve, given a run over the labels."""
        scale = survey.mean_weight
        method = Prototypes(self.divergence, default_prototypes(self.n_clusters), scale, begin)
        at = run_passes(run, method)
        gap = sampled_gap(run, at.generation, self.divergence) / scale
        last = at.records[-1]
        attributes = {"approximation_error_": last["error"], "grouped_gap_": last["gap"]}
        place = ByPrototypes(at.state.tables, run.data.offsets, self.divergence)
        read = partial(run.arrays.read, at.generation)
        return Solution(read, at, gap, at.is_settled, place, attributes)
