"""The driver of all-pairs PCC: start on a subsample, extend to all objects, passes to the KKT point."""

from __future__ import annotations

import numpy as np

from bigcons.coassociation.factorised import State, add_states, state_of_block
from bigcons.execution.engine import Engine
from bigcons.execution.fold import fold
from bigcons.execution.loop import as_history, run_passes
from bigcons.execution.progress import progress
from bigcons.memory import Block
from bigcons.solvers.pcc import start
from bigcons.solvers.pcc.all_pairs import (
    Change,
    add_changes,
    apply_change,
    line_search,
    place_block,
    update_block,
)
from bigcons.solvers.pcc.solution import Solution
from bigcons.solvers.survey import Survey
from bigcons.stores.ensemble import Ensemble

SUBSAMPLE = 2048
SUBSAMPLE_PASSES = 50
SUBSAMPLE_TOL = 1e-7

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
) -> Solution:
    """Minimise the squared divergence over all pairs.

    The gap is in units of ``survey.mean_weight``. A pass in which no object has a gap above ``tol`` changes
    nothing, so the gap it reports is that of the memberships returned, exactly; only such a pass counts as
    convergence. Memory: two copies of the memberships (n, K) float32, and a few states.
    """
    blocks = ensemble.blocks()
    offsets = ensemble.offsets
    memberships, state, threshold = _start(ensemble, blocks, survey, n_clusters, init, n_init, seed, engine)
    updated = np.empty_like(memberships)
    records = []
    with progress("all-pairs PCC", ensemble.n_objects * max_passes) as listener:

        def update(block: Block) -> Change:
            rows = slice(block.start, block.stop)
            labels = ensemble.read(block.start, block.stop)
            return update_block(state, labels, offsets, memberships[rows], updated[rows], threshold)

        def one_pass(_number: int) -> dict[str, float]:
            nonlocal state, memberships, updated
            change = fold(engine, blocks, update, add_changes, progress=listener)
            step = line_search(state, change)[0] if len(blocks) > 1 and change.n_moved else 1.0
            if step < 1.0:
                _shorten(blocks, memberships, updated, step)
            memberships, updated = updated, memberships
            state = apply_change(state, change, step)
            gap = change.gap / survey.mean_weight
            return {"objective": state.objective, "gap": gap, "moved": change.n_moved, "step": step}

        for record in run_passes(one_pass, max_passes=max_passes, what="all-pairs PCC"):
            records.append(record)
            threshold = tol * survey.mean_weight * (1.0 if record["gap"] <= tol else MOVE_SHARE)
            if record["moved"] == 0:
                break
    last = records[-1]
    return Solution(
        memberships, state.objective, last["gap"], last["moved"] == 0, len(records), as_history(records)
    )


def _start(
    ensemble: Ensemble,
    blocks: list[Block],
    survey: Survey,
    n_clusters: int,
    init: start.Init,
    n_init: int,
    seed: int,
    engine: Engine,
) -> tuple[np.ndarray, State, float]:
    """Return the first memberships, their state, and the threshold of the first pass."""
    offsets = ensemble.offsets
    if not isinstance(init, str):
        memberships, threshold = start.given(init, ensemble.n_objects, n_clusters), 0.0
    elif init == "subsample":
        estimate, memberships = solve_subsample(survey.sample, offsets, n_clusters, n_init, seed, engine)
        threshold = 0.0
        if survey.sample.shape[0] < ensemble.n_objects:
            estimate = estimate.scaled(ensemble.n_objects / survey.sample.shape[0])
            memberships = np.empty((ensemble.n_objects, n_clusters), np.float32)

            def place(block: Block) -> State:
                rows = slice(block.start, block.stop)
                return place_block(
                    estimate, ensemble.read(block.start, block.stop), offsets, memberships[rows]
                )

            return memberships, fold(engine, blocks, place, add_states), threshold
    else:
        draw = start.dirichlet if init == "dirichlet" else start.perturbed_uniform
        memberships = np.concatenate([draw(block.n_rows, n_clusters, seed, block.index) for block in blocks])
        threshold = MOVE_ALL

    def account(block: Block) -> State:
        labels = ensemble.read(block.start, block.stop)
        return state_of_block(labels, offsets, memberships[block.start : block.stop])

    return memberships, fold(engine, blocks, account, add_states), threshold


def solve_subsample(
    labels: np.ndarray, offsets: np.ndarray, n_clusters: int, n_init: int, seed: int, engine: Engine
) -> tuple[State, np.ndarray]:
    """Solve a few thousand objects from ``n_init`` random starts; return the state and memberships of the
    best.

    Random (Dirichlet) starts, not near-uniform ones: over all pairs those all lead to one and the same
    optimum, which need not be the lowest.
    """

    def restart(number: int) -> tuple[State, np.ndarray]:
        memberships = start.dirichlet(labels.shape[0], n_clusters, seed, number)
        updated = np.empty_like(memberships)
        state = state_of_block(labels, offsets, memberships)
        for _ in range(SUBSAMPLE_PASSES):
            before = state.objective
            change = update_block(state, labels, offsets, memberships, updated, MOVE_ALL)
            state = apply_change(state, change, 1.0)
            memberships, updated = updated, memberships
            if before - state.objective <= SUBSAMPLE_TOL * abs(before):
                break
        return state, memberships

    return min(engine.map(restart, range(n_init)), key=lambda result: result[0].objective)


def _shorten(blocks: list[Block], before: np.ndarray, after: np.ndarray, step: float) -> None:
    """Take back a part of the pass's changes, in place in ``after``."""
    for block in blocks:
        rows = slice(block.start, block.stop)
        after[rows] = before[rows] + np.float32(step) * (after[rows] - before[rows])
