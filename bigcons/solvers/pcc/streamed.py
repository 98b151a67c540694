"""The driver of all-pairs PCC: start on a subsample, extend to all objects, passes to the KKT point."""

from __future__ import annotations

from functools import partial

import numpy as np

from bigcons.coassociation.factorised import State, Weights, add_states, state_of_block
from bigcons.execution.engine import Engine
from bigcons.execution.fold import fold
from bigcons.execution.loop import Packed, Pass, Record, Stage, as_history, run_stages
from bigcons.memory import Block
from bigcons.progress import Progress, progress
from bigcons.solvers.pcc import start
from bigcons.solvers.pcc.all_pairs import (
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
from bigcons.solvers.pcc.solution import BlockMemberships, Solution
from bigcons.solvers.pcc.subsample import solve_subsample
from bigcons.solvers.pcc.weights import information_weights
from bigcons.solvers.survey import Survey, mean_pair_weight
from bigcons.stores.checkpoint import BlockArrays, Snapshots
from bigcons.stores.ensemble import Ensemble

# While the largest gap is above the tolerance, objects down to this share of it move too: those just below
# would otherwise wait at the threshold for one another, pass after pass.
MOVE_SHARE = 0.25


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
    """Minimise the squared divergence over all pairs; memberships (rows, K) float32 live in ``arrays``.

    ``weights`` may be "information". The gap is in units of the mean weight of an object,
    ``sum_j N_ij``. A pass in which no object has a gap above ``tol`` changes
    nothing, so the gap it reports is that of the memberships returned, exactly; only such a pass counts as
    convergence. With ``snapshots``, every pass is committed, and one that is there already is taken up.
    """
    blocks, offsets = ensemble.blocks(), ensemble.offsets
    relaxation = RELAXATION if len(blocks) == 1 else 1.0

    def one_pass(stage: Stage[State], listener: Progress) -> Pass[State]:
        state, generation = stage.state, stage.generation
        mean_weight = mean_pair_weight(survey.n_seen, survey.n_objects, state.partition_weights)
        threshold = _threshold(stage.records, init, tol) * mean_weight

        def update(block: Block) -> Change:
            labels = ensemble.read(block.start, block.stop)
            memberships = arrays.read(generation, block)
            updated = np.empty_like(memberships)
            change = update_block(state, labels, offsets, memberships, updated, threshold, relaxation)
            arrays.write(generation + 1, block, updated)
            return change

        change = fold(engine, blocks, update, add_changes, progress=listener)
        step, reached = 1.0, apply_change(state, change)
        if len(blocks) > 1 and change.n_moved and not keeps_promise(state, change):
            course = _course(ensemble, state, engine, arrays, generation)
            step = line_search(state, change, course)[0]
            if step < 1.0:
                reached = apply_part(state, change, course, step)
                _shorten(engine, blocks, arrays, generation, step)
        record = {
            "objective": reached.objective,
            "gap": change.gap / mean_weight,
            "moved": change.n_moved,
            "step_length": step,
        }
        return Pass(reached, generation + (1 if step == 1.0 else 2), record, change.n_moved == 0)

    last = run_stages(
        partial(_begin, ensemble, survey, n_clusters, init, n_init, seed, engine, arrays, weights),
        one_pass,
        pack=_pack,
        unpack=partial(_unpack, n_clusters, offsets),
        max_passes=max_passes,
        n_objects=ensemble.n_objects,
        what="all-pairs PCC",
        arrays=arrays,
        snapshots=snapshots,
    )
    return Solution(
        BlockMemberships(arrays, last.generation),
        last.state.objective,
        last.records[-1]["gap"],
        last.is_settled,
        len(last.records),
        as_history(last.records),
        last.state,
    )


def _threshold(records: list[Record], init: start.Init, tol: float) -> float:
    """Return the relative gap up to which objects stay as they are in the next pass."""
    if records:
        return tol * (1.0 if records[-1]["gap"] <= tol else MOVE_SHARE)
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
) -> State:
    """Write the first memberships as generation 0; return their state."""
    offsets = ensemble.offsets
    estimate = None
    if isinstance(weights, str):
        unweighted, _ = solve_subsample(survey.sample, offsets, n_clusters, n_init, seed, engine)
        weights = information_weights(unweighted, offsets)
    if not isinstance(init, str):
        init = start.given(init, ensemble.n_objects, n_clusters)
    elif init == "subsample":
        estimate, memberships = solve_subsample(
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
        return fold(engine, ensemble.blocks(), first_memberships, add_states, progress=listener)


def _course(ensemble: Ensemble, state: State, engine: Engine, arrays: BlockArrays, generation: int) -> Course:
    """Return what a line search from a generation to the next one needs; reads the labels once."""

    def measure(block: Block) -> Course:
        labels = ensemble.read(block.start, block.stop)
        before, after = arrays.read(generation, block), arrays.read(generation + 1, block)
        return course_of_block(state, labels, ensemble.offsets, before, after)

    return fold(engine, ensemble.blocks(), measure, add_courses)


def _shorten(engine: Engine, blocks: list[Block], arrays: BlockArrays, generation: int, step: float) -> None:
    """Write two generations ahead what lies at ``step`` of the way to the next one."""

    def blend(block: Block) -> None:
        before, after = arrays.read(generation, block), arrays.read(generation + 1, block)
        arrays.write(generation + 2, block, before + np.float32(step) * (after - before))

    for _ in engine.map(blend, blocks):
        pass


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
