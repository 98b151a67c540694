"""The driver of all-pairs PCC by prototypes: start on a subsample, extend it, pass after pass downhill."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from bigcons.coassociation.grouped import add_tables, choose_centers, tables_of_block
from bigcons.divergences import Divergence
from bigcons.execution.engine import Engine
from bigcons.execution.fold import fold
from bigcons.kernels.prototypes import Tables
from bigcons.memory import Block
from bigcons.methods.pcc import start
from bigcons.methods.pcc.all_pairs import MOVE_ALL
from bigcons.methods.pcc.prototypes import (
    Change,
    Evaluation,
    add_changes,
    add_evaluations,
    apply_change,
    approximation_error,
    evaluate_block,
    place_block,
    update_block,
)
from bigcons.methods.pcc.solution import Solution, solution_at
from bigcons.methods.pcc.steps import shorten, threshold_after
from bigcons.methods.pcc.subsample import solve_subsample
from bigcons.progress import Progress, progress
from bigcons.seeding import generator
from bigcons.solving.loop import Begun, Packed, Pass, Record, Stage, run_stages
from bigcons.solving.survey import Survey
from bigcons.storage.checkpoint import BlockArrays, Snapshots
from bigcons.stores.ensemble import Ensemble

# Below this, memberships of three clusters are told apart too coarsely; above, four a cluster are fine.
FEWEST_PROTOTYPES = 16
PROTOTYPES_PER_CLUSTER = 4

# Objects whose pairs the approximation error is taken over, and whose memberships renew the centers.
SAMPLE = 512

# Passes over the subsample with its own divergence before it is extended.
REFINING_PASSES = 8

# Parts of a pass's changes that are tried when the whole would raise the objective.
STEPS = (1.0, 0.5, 0.25, 0.125)

# The centers are renewed as long as a pass lowers the objective by more than this share of it.
RENEW_ABOVE = 1e-3

# A pass that lowers the objective by less than `tol` times this share of it is the last.
LEAST_DECREASE = 1e-3


def default_prototypes(n_clusters: int) -> int:
    """Return how many prototypes keep the objective some tenths of a per cent from its optimum."""
    return max(FEWEST_PROTOTYPES, PROTOTYPES_PER_CLUSTER * n_clusters)


class Point(NamedTuple):
    """Where a solve stands: a generation of memberships as the prototypes see it."""

    tables: Tables
    objective: float
    gap: float


def solve_prototypes(
    ensemble: Ensemble,
    survey: Survey,
    n_clusters: int,
    divergence: Divergence,
    *,
    n_prototypes: int,
    init: start.Init,
    n_init: int,
    max_passes: int,
    tol: float,
    seed: int,
    engine: Engine,
    arrays: BlockArrays,
    snapshots: Snapshots | None = None,
) -> Solution:
    """Minimize any divergence over all pairs; memberships (rows, K) float32 live in ``arrays``.

    The objective is the grouped one of ``methods.pcc.prototypes``; it never rises: a pass that would raise it
    is shortened. Converged is a solve whose largest gap, in units of ``survey.mean_weight``, is at most
    ``tol``, or whose last pass lowered the objective by less than ``tol / 1000`` of it: far less than what
    the prototypes misjudge, although gaps may still be tens of times ``tol``. Every record has
    the ``error`` of the prototypes, see ``approximation_error``.

    A pass reads the labels twice, to update and to evaluate. To evaluate while the next pass updates would
    save that reading, 3 per cent of a pass, for a third generation of memberships: not worth it.
    """
    passes = _Passes(ensemble, divergence, engine, arrays, seed)

    def one_pass(stage: Stage[Point], listener: Progress) -> Pass[Point]:
        threshold = threshold_after(stage.state.gap / survey.mean_weight, tol)
        if not stage.records and isinstance(init, str) and init != "subsample":
            threshold = MOVE_ALL
        reached, generation, record = passes.advance(
            stage.state, stage.generation, threshold * survey.mean_weight, n_prototypes
        )
        listener.advance(ensemble.n_objects)
        record["gap"] = reached.gap / survey.mean_weight
        return Pass(reached, generation, record, _is_settled(stage.records, record, tol))

    last = run_stages(
        partial(_begin, passes, survey, n_clusters, n_prototypes, init, n_init, seed),
        one_pass,
        pack=_pack,
        unpack=_unpack,
        max_passes=max_passes,
        n_objects=ensemble.n_objects,
        what="all-pairs PCC",
        arrays=arrays,
        snapshots=snapshots,
    )
    return solution_at(last, arrays, tables=last.state.tables)


class _Passes:
    """The folds over the blocks of one ensemble."""

    def __init__(
        self, ensemble: Ensemble, divergence: Divergence, engine: Engine, arrays: BlockArrays, seed: int
    ) -> None:
        self.ensemble, self.divergence, self.engine, self.arrays = ensemble, divergence, engine, arrays
        self.blocks, self.offsets = ensemble.blocks(), ensemble.offsets
        n = ensemble.n_objects
        draw = generator(seed, "pcc.prototypes.sample")
        self.sampled = np.arange(n) if n <= SAMPLE else np.sort(draw.choice(n, SAMPLE, replace=False))

    def update(self, tables: Tables, generation: int, threshold: float) -> Change:
        """Update every object; write the next generation."""
        ensemble, offsets, arrays, divergence = self.ensemble, self.offsets, self.arrays, self.divergence

        def task(block: Block) -> Change:
            memberships = arrays.read(generation, block)
            updated = np.empty_like(memberships)
            labels = ensemble.read(block.start, block.stop)
            change = update_block(tables, labels, offsets, memberships, updated, threshold, divergence)
            arrays.write(generation + 1, block, updated)
            return change

        return fold(self.engine, self.blocks, task, add_changes)

    def group(self, centers: np.ndarray, generation: int) -> Tables:
        """Return the tables of a generation under given centers."""
        ensemble, offsets, arrays = self.ensemble, self.offsets, self.arrays

        def task(block: Block) -> Tables:
            labels = ensemble.read(block.start, block.stop)
            return tables_of_block(centers, labels, offsets, arrays.read(generation, block))

        return fold(self.engine, self.blocks, task, add_tables)

    def evaluate(self, tables: Tables, generation: int) -> Evaluation:
        """Return what a generation is worth under its tables."""
        ensemble, offsets, arrays, divergence = self.ensemble, self.offsets, self.arrays, self.divergence
        sampled = self.sampled

        def task(block: Block) -> Evaluation:
            labels = ensemble.read(block.start, block.stop)
            first, last = np.searchsorted(sampled, (block.start, block.stop))
            memberships = arrays.read(generation, block)
            return evaluate_block(
                tables, labels, offsets, memberships, sampled[first:last] - block.start, divergence
            )

        return fold(self.engine, self.blocks, task, add_evaluations)

    def sample(self, generation: int) -> np.ndarray:
        """Return the sampled rows of a generation."""
        arrays, sampled = self.arrays, self.sampled

        def task(block: Block) -> np.ndarray:
            first, last = np.searchsorted(sampled, (block.start, block.stop))
            return arrays.read(generation, block)[sampled[first:last] - block.start]

        return np.concatenate(list(self.engine.map(task, self.blocks)))

    def advance(
        self, point: Point, generation: int, threshold: float, n_prototypes: int
    ) -> tuple[Point, int, Record]:
        """Make one pass from a generation; return where it leads, in which generation, and its record."""
        change = self.update(point.tables, generation, threshold)
        for step in STEPS:
            if step == 1.0:
                reached, tables = generation + 1, apply_change(point.tables, change)
            else:
                shorten(self.engine, self.blocks, self.arrays, generation, step)
                reached = generation + 2
                tables = self.group(point.tables.centers, reached)
            found = self.evaluate(tables, reached)
            if found.objective < point.objective:
                break
        else:
            step, reached, tables = 0.0, generation, point.tables
            self.arrays.drop(generation + 1)
            self.arrays.drop(generation + 2)
            found = self.evaluate(tables, reached)
        if point.objective - found.objective > RENEW_ABOVE * abs(point.objective):
            tables, found = self.renew(tables, reached, found, point.objective, n_prototypes)
        record = {
            "objective": found.objective,
            "moved": change.n_moved,
            "step_length": step,
            "error": approximation_error(tables.centers, self.offsets, found, self.divergence),
        }
        return Point(tables, found.objective, found.gap), reached, record

    def renew(
        self, tables: Tables, generation: int, found: Evaluation, ceiling: float, n_prototypes: int
    ) -> tuple[Tables, Evaluation]:
        """Group by centers of the memberships as they are now, unless that lifts the objective too high."""
        renewed = self.group(choose_centers(found.memberships, n_prototypes), generation)
        evaluation = self.evaluate(renewed, generation)
        return (renewed, evaluation) if evaluation.objective < ceiling else (tables, found)


def _is_settled(records: list[Record], record: Record, tol: float) -> bool:
    before = records[-1]["objective"] if records else np.inf
    gain = before - record["objective"]
    return record["gap"] <= tol or gain <= tol * LEAST_DECREASE * abs(record["objective"])


def _begin(
    passes: _Passes,
    survey: Survey,
    n_clusters: int,
    n_prototypes: int,
    init: start.Init,
    n_init: int,
    seed: int,
) -> Begun[Point]:
    """Write the first memberships as generation 0, and group them."""
    ensemble, offsets, arrays, divergence = passes.ensemble, passes.offsets, passes.arrays, passes.divergence
    estimate = None
    start_objectives: list[float] = []
    if not isinstance(init, str):
        init = start.given(init, ensemble.n_objects, n_clusters)
        init = init if divergence.name == "l2" else start.softened(init)
    elif init == "subsample":
        _, memberships, start_objectives = solve_subsample(
            survey.sample, offsets, n_clusters, n_init, seed, passes.engine
        )
        init = start.softened(memberships)
        if survey.sample.shape[0] < ensemble.n_objects:
            estimate = _refined(survey.sample, offsets, init, n_prototypes, divergence)

    def first_memberships(block: Block) -> None:
        if estimate is not None:
            labels = ensemble.read(block.start, block.stop)
            memberships = place_block(estimate, labels, offsets, divergence)
        else:
            memberships = start.rows_of(init, block, n_clusters, seed)
        arrays.write(0, block, memberships)

    with progress("start of PCC", ensemble.n_objects) as listener:
        for block, _ in zip(passes.blocks, passes.engine.map(first_memberships, passes.blocks), strict=True):
            listener.advance(block.n_rows)
    centers = choose_centers(passes.sample(0), n_prototypes) if estimate is None else estimate.centers
    tables = passes.group(centers, 0)
    found = passes.evaluate(tables, 0)
    return Begun(Point(tables, found.objective, found.gap), start_objectives)


def _refined(
    labels: np.ndarray,
    offsets: np.ndarray,
    memberships: np.ndarray,
    n_prototypes: int,
    divergence: Divergence,
) -> Tables:
    """Return the tables of a subsample after a few passes over it, its centers renewed in each."""
    updated = np.empty_like(memberships)
    for _ in range(REFINING_PASSES):
        tables = tables_of_block(choose_centers(memberships, n_prototypes), labels, offsets, memberships)
        update_block(tables, labels, offsets, memberships, updated, 0.0, divergence)
        memberships, updated = updated, memberships
    return tables_of_block(choose_centers(memberships, n_prototypes), labels, offsets, memberships)


def _pack(point: Point) -> Packed:
    return point.tables._asdict(), {"objective": point.objective, "gap": point.gap}


def _unpack(arrays: dict[str, np.ndarray], facts: dict[str, float]) -> Point:
    return Point(Tables(**arrays), **facts)
