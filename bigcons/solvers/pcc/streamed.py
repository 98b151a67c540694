"""The driver of all-pairs PCC: start on a subsample, extend to all objects, passes to the KKT point."""

from __future__ import annotations

from functools import partial

import numpy as np

from bigcons.coassociation.factorised import State, add_states, state_of_block
from bigcons.execution.engine import Engine
from bigcons.execution.fold import fold
from bigcons.execution.loop import Packed, Pass, Record, Stage, as_history, run_stages
from bigcons.memory import Block
from bigcons.progress import Progress, progress
from bigcons.solvers.pcc import start
from bigcons.solvers.pcc.all_pairs import (
    Change,
    add_changes,
    apply_change,
    line_search,
    place_block,
    update_block,
)
from bigcons.solvers.pcc.solution import BlockMemberships, Solution
from bigcons.solvers.survey import Survey, mean_pair_weight
from bigcons.stores.checkpoint import BlockArrays, Snapshots
from bigcons.stores.ensemble import Ensemble

SUBSAMPLE = 2048
SUBSAMPLE_PASSES = 50
SUBSAMPLE_TOL = 1e-3

# Below every gap: all objects move. A near-uniform start has gaps near zero although it is a saddle.
MOVE_ALL = -1.0

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
) -> Solution:
    """Minimise the squared divergence over all pairs; memberships (rows, K) float32 live in ``arrays``.

    The gap is in units of ``survey.mean_weight``. A pass in which no object has a gap above ``tol`` changes
    nothing, so the gap it reports is that of the memberships returned, exactly; only such a pass counts as
    convergence. With ``snapshots``, every pass is committed, and one that is there already is taken up.
    """
    blocks, offsets = ensemble.blocks(), ensemble.offsets

    def one_pass(stage: Stage[State], listener: Progress) -> Pass[State]:
        state, generation = stage.state, stage.generation
        threshold = _threshold(stage.records, init, tol) * survey.mean_weight

        def update(block: Block) -> Change:
            labels = ensemble.read(block.start, block.stop)
            memberships = arrays.read(generation, block)
            updated = np.empty_like(memberships)
            change = update_block(state, labels, offsets, memberships, updated, threshold)
            arrays.write(generation + 1, block, updated)
            return change

        change = fold(engine, blocks, update, add_changes, progress=listener)
        step = line_search(state, change)[0] if len(blocks) > 1 and change.n_moved else 1.0
        reached = apply_change(state, change, step)
        if step < 1.0:
            _shorten(engine, blocks, arrays, generation, step)
        record = {
            "objective": reached.objective,
            "gap": change.gap / survey.mean_weight,
            "moved": change.n_moved,
            "step_length": step,
        }
        return Pass(reached, generation + (1 if step == 1.0 else 2), record, change.n_moved == 0)

    last = run_stages(
        partial(_begin, ensemble, survey, n_clusters, init, n_init, seed, engine, arrays),
        one_pass,
        pack=_pack,
        unpack=partial(_unpack, n_clusters),
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
) -> State:
    """Write the first memberships as generation 0; return their state."""
    offsets = ensemble.offsets
    estimate = None
    if not isinstance(init, str):
        init = start.given(init, ensemble.n_objects, n_clusters)
    elif init == "subsample":
        estimate, memberships = solve_subsample(survey.sample, offsets, n_clusters, n_init, seed, engine)
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
            state = state_of_block(labels, offsets, memberships)
        arrays.write(0, block, memberships)
        return state

    with progress("start of PCC", ensemble.n_objects) as listener:
        return fold(engine, ensemble.blocks(), first_memberships, add_states, progress=listener)


def solve_subsample(
    labels: np.ndarray, offsets: np.ndarray, n_clusters: int, n_init: int, seed: int, engine: Engine
) -> tuple[State, np.ndarray]:
    """Solve a few thousand objects from ``n_init`` random starts; return the best state and memberships.

    Random (Dirichlet) starts, not near-uniform ones: over all pairs those all lead to one and the same
    optimum, which need not be the lowest.
    """
    mean_weight = mean_pair_weight(np.count_nonzero(labels >= 0, axis=0), labels.shape[0])

    def restart(number: int) -> tuple[State, np.ndarray]:
        memberships = start.dirichlet(labels.shape[0], n_clusters, seed, number)
        updated = np.empty_like(memberships)
        state = state_of_block(labels, offsets, memberships)
        threshold = MOVE_ALL
        for _ in range(SUBSAMPLE_PASSES):
            change = update_block(state, labels, offsets, memberships, updated, threshold)
            state = apply_change(state, change, 1.0)
            memberships, updated = updated, memberships
            if change.n_moved == 0:
                break
            threshold = SUBSAMPLE_TOL * mean_weight
        return state, memberships

    return min(engine.map(restart, range(n_init)), key=lambda result: result[0].objective)


def _shorten(engine: Engine, blocks: list[Block], arrays: BlockArrays, generation: int, step: float) -> None:
    """Write two generations ahead what lies at ``step`` of the way to the next one."""

    def blend(block: Block) -> None:
        before, after = arrays.read(generation, block), arrays.read(generation + 1, block)
        arrays.write(generation + 2, block, before + np.float32(step) * (after - before))

    for _ in engine.map(blend, blocks):
        pass


def _pack(state: State) -> Packed:
    return {"S": state.S, "T": state.T}, {"squares": state.squares, "quartics": state.quartics}


def _unpack(n_clusters: int, arrays: dict[str, np.ndarray], facts: dict[str, float]) -> State:
    return State(n_clusters, arrays["S"], arrays["T"], facts["squares"], facts["quartics"])
