"""The driver of all-pairs PCC: start on a subsample, extend to all objects, passes to the KKT point."""

from __future__ import annotations

from functools import partial

import numpy as np

from bigcons.coassociation.factorized import State, Weights, add_states, state_of_block
from bigcons.execution.engine import Engine
from bigcons.execution.fold import fold
from bigcons.memory import Block
from bigcons.methods.pcc import start
from bigcons.methods.pcc.all_pairs import (
    MOVE_ALL,
    RELAXATION,
    Change,
    Course,
    add_changes,
    add_courses,
    apply_change,
    apply_part,
    course_of_block,
    keeps_promise,
    line_search,
    place_block,
    update_block,
)
from bigcons.methods.pcc.solution import Solution, solution_at
from bigcons.methods.pcc.steps import shorten, threshold_after
from bigcons.methods.pcc.subsample import solve_subsample
from bigcons.methods.pcc.weights import ENTROPY, entropy_weights, information_weights
from bigcons.progress import Progress, progress
from bigcons.solving.loop import Begun, Packed, Pass, Record, Stage, run_stages
from bigcons.solving.survey import Survey, mean_pair_weight
from bigcons.storage.checkpoint import BlockArrays, Snapshots
from bigcons.stores.ensemble import Ensemble


def solve_all_pairs(
    ensemble: Ensemble,
    survey: Survey,
    n_clusters: int,
    *,
    init: start.Init,
    n_init: int,
    max_passes: int,
    tol: float,
    seed: int,
    engine: Engine,
    arrays: BlockArrays,
    snapshots: Snapshots | None = None,
    weights: Weights | str | None = None,
) -> Solution:
    """Minimize the squared divergence over all pairs; memberships (rows, K) float32 live in ``arrays``.

    ``weights`` may be "entropy" or "information". The gap is in units of the mean weight of an object,
    ``sum_j N_ij``. A pass in which no object has a gap above ``tol`` changes
    nothing, so the gap it reports is that of the memberships returned, exactly; only such a pass counts as
    convergence. With ``snapshots``, every pass is committed, and one that is there already is taken up.
    """
    passes = _Passes(ensemble, engine, arrays)

    def one_pass(stage: Stage[State], listener: Progress) -> Pass[State]:
        mean_weight = mean_pair_weight(survey.n_seen, survey.n_objects, stage.state.partition_weights)
        threshold = _threshold(stage.records, init, tol) * mean_weight
        reached, change, step = passes.advance(stage.state, stage.generation, threshold, listener)
        record = {
            "objective": reached.objective,
            "gap": change.gap / mean_weight,
            "moved": change.n_moved,
            "step_length": step,
        }
        return Pass(reached, stage.generation + (1 if step == 1.0 else 2), record, change.n_moved == 0)

    last = run_stages(
        partial(_begin, ensemble, survey, n_clusters, init, n_init, seed, engine, arrays, weights),
        one_pass,
        pack=_pack,
        unpack=partial(_unpack, n_clusters, ensemble.offsets),
        max_passes=max_passes,
        n_objects=ensemble.n_objects,
        what="all-pairs PCC",
        arrays=arrays,
        snapshots=snapshots,
    )
    return solution_at(last, arrays, state=last.state)


class _Passes:
    """The folds over the blocks of one ensemble."""

    def __init__(self, ensemble: Ensemble, engine: Engine, arrays: BlockArrays) -> None:
        self.ensemble, self.engine, self.arrays = ensemble, engine, arrays
        self.blocks, self.offsets = ensemble.blocks(), ensemble.offsets

    def update(self, state: State, generation: int, threshold: float, listener: Progress) -> Change:
        """Update every object; write the next generation."""
        ensemble, offsets, arrays = self.ensemble, self.offsets, self.arrays
        relaxation = RELAXATION if len(self.blocks) == 1 else 1.0

        def task(block: Block) -> Change:
            labels = ensemble.read(block.start, block.stop)
            memberships = arrays.read(generation, block)
            updated = np.empty_like(memberships)
            change = update_block(state, labels, offsets, memberships, updated, threshold, relaxation)
            arrays.write(generation + 1, block, updated)
            return change

        return fold(self.engine, self.blocks, task, add_changes, progress=listener)

    def course(self, state: State, generation: int) -> Course:
        """Return what a line search from a generation to the next one needs; reads the labels once."""
        ensemble, offsets, arrays = self.ensemble, self.offsets, self.arrays

        def task(block: Block) -> Course:
            labels = ensemble.read(block.start, block.stop)
            before, after = arrays.read(generation, block), arrays.read(generation + 1, block)
            return course_of_block(state, labels, offsets, before, after)

        return fold(self.engine, self.blocks, task, add_courses)

    def advance(
        self, state: State, generation: int, threshold: float, listener: Progress
    ) -> tuple[State, Change, float]:
        """Make one pass from a generation; return where it leads, its full change, and the step taken.

        A full step leads to the next generation, a shorter one to that after it.
        """
        change = self.update(state, generation, threshold, listener)
        if len(self.blocks) > 1 and change.n_moved and not keeps_promise(state, change):
            course = self.course(state, generation)
            step = line_search(state, change, course)[0]
            if step < 1.0:
                shorten(self.engine, self.blocks, self.arrays, generation, step)
                return apply_part(state, change, course, step), change, step
        return apply_change(state, change), change, 1.0


def _threshold(records: list[Record], init: start.Init, tol: float) -> float:
    """Return the relative gap up to which objects stay as they are in the next pass."""
    if records:
        return threshold_after(records[-1]["gap"], tol)
    if isinstance(init, str):
        return 0.0 if init == "subsample" else MOVE_ALL
    return tol  # memberships that meet the tolerance stay as they are


def _begin(
    ensemble: Ensemble,
    survey: Survey,
    n_clusters: int,
    init: start.Init,
    n_init: int,
    seed: int,
    engine: Engine,
    arrays: BlockArrays,
    weights: Weights | str | None,
) -> Begun[State]:
    """Write the first memberships as generation 0; return their state."""
    offsets = ensemble.offsets
    estimate: State | None = None
    start_objectives: list[float] = []
    if isinstance(weights, str) and weights == ENTROPY:
        weights = entropy_weights(survey.sample, offsets)
    elif isinstance(weights, str):
        unweighted = solve_subsample(survey.sample, offsets, n_clusters, n_init, seed, engine).state
        weights = information_weights(unweighted, offsets)
    if not isinstance(init, str):
        init = start.given(init, ensemble.n_objects, n_clusters)
    elif init == "subsample":
        estimate, memberships, start_objectives = solve_subsample(
            survey.sample, offsets, n_clusters, n_init, seed, engine, weights
        )
        if survey.sample.shape[0] == ensemble.n_objects:
            init, estimate = memberships, None
        else:
            estimate = estimate.scaled(ensemble.n_objects / survey.sample.shape[0])

    def first_memberships(block: Block) -> State:
        labels = ensemble.read(block.start, block.stop)
        if estimate is not None:
            memberships = np.empty((block.n_rows, n_clusters), np.float32)
            state = place_block(estimate, labels, offsets, memberships)
        else:
            memberships = start.rows_of(init, block, n_clusters, seed)
            state = state_of_block(labels, offsets, memberships, weights)
        arrays.write(0, block, memberships)
        return state

    with progress("start of PCC", ensemble.n_objects) as listener:
        state = fold(engine, ensemble.blocks(), first_memberships, add_states, progress=listener)
    return Begun(state, start_objectives)


def _pack(state: State) -> Packed:
    arrays = {"S": state.S, "T": state.T}
    if state.weights is not None:
        arrays["weights"] = state.weights.partitions
    return arrays, {"squares": state.squares, "quartics": state.quartics}


def _unpack(
    n_clusters: int, offsets: np.ndarray, arrays: dict[str, np.ndarray], facts: dict[str, float]
) -> State:
    weights = Weights.of(arrays["weights"], offsets) if "weights" in arrays else None
    return State(n_clusters, arrays["S"], arrays["T"], facts["squares"], facts["quartics"], weights)
