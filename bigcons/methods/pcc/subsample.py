"""The start of PCC: a few thousand objects are solved over all their pairs, from several random starts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from bigcons.coassociation.factorized import State, Weights, state_of_block
from bigcons.execution.engine import Engine
from bigcons.methods.pcc import start
from bigcons.methods.pcc.all_pairs import MOVE_ALL, RELAXATION, apply_change, update_block
from bigcons.progress import Progress, progress
from bigcons.solving.starts import best_start, go_on
from bigcons.solving.survey import mean_pair_weight

SUBSAMPLE = 2048

# Every start goes so far, which tells them apart.
SHORT_PASSES = 50
SHORT_TOL = 1e-3

# The best of them goes on: what it lacks here, passes over all objects would have to make up for.
LONG_PASSES = 200
LONG_TOL = 1e-4


class _Start(NamedTuple):
    """Memberships (n, K) float32 of a start on its way, and their state."""

    state: State
    memberships: np.ndarray


class Solved(NamedTuple):
    """The best start where it settled, and what all were worth."""

    state: State
    memberships: np.ndarray
    start_objectives: list[float]
    """Of every start when the best was chosen: the squared divergence over the pairs of the subsample."""


def solve_subsample(
    labels: np.ndarray,
    offsets: np.ndarray,
    n_clusters: int,
    n_init: int,
    seed: int,
    engine: Engine,
    weights: Weights | None = None,
) -> Solved:
    """Solve a few thousand objects from ``n_init`` random starts.

    Random (Dirichlet) starts, not near-uniform ones: over all pairs those all lead to one and the same
    optimum, which need not be the lowest.
    """
    by_partition = None if weights is None else weights.partitions
    mean_weight = mean_pair_weight(np.count_nonzero(labels >= 0, axis=0), labels.shape[0], by_partition)

    def one_pass(found: _Start, tol: float) -> tuple[_Start, bool]:
        state, memberships = found
        updated = np.empty_like(memberships)
        change = update_block(state, labels, offsets, memberships, updated, tol * mean_weight, RELAXATION)
        return _Start(apply_change(state, change), updated), change.n_moved == 0

    def begin(number: int) -> _Start:
        memberships = start.dirichlet(labels.shape[0], n_clusters, seed, number)
        found = _Start(state_of_block(labels, offsets, memberships, weights), memberships)
        moved, _ = one_pass(found, MOVE_ALL)
        return go_on(moved, partial(one_pass, tol=SHORT_TOL), SHORT_PASSES - 1)[0]

    def begun(listener: Progress) -> Iterator[_Start]:
        for found in engine.map(begin, range(n_init)):
            listener.advance(1)
            yield found

    with progress("starts of PCC", n_init, "starts") as listener:
        best, objectives = best_start(begun(listener), lambda found: found.state.objective)
    ended, _ = go_on(best, partial(one_pass, tol=LONG_TOL), LONG_PASSES)
    return Solved(*ended, objectives)
