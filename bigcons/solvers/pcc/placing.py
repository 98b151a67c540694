"""The all-pairs state of memberships that any solver found, and objects placed by it."""

from __future__ import annotations

import numpy as np

from bigcons.coassociation.factorised import State, add_states, empty_state, state_of_block
from bigcons.execution.engine import Engine
from bigcons.execution.fold import fold
from bigcons.memory import Block
from bigcons.solvers.pcc.all_pairs import place_block
from bigcons.solvers.pcc.solution import Solution
from bigcons.stores.ensemble import Ensemble


def state_of_solution(ensemble: Ensemble, solution: Solution, engine: Engine) -> State:
    """Return what the found memberships mean to a further object."""

    def account(block: Block) -> State:
        labels = ensemble.read(block.start, block.stop)
        return state_of_block(labels, ensemble.offsets, np.ascontiguousarray(solution.read(block)))

    return fold(engine, ensemble.blocks(), account, add_states)


def place_isolated(ensemble: Ensemble, isolated: np.ndarray, memberships: np.ndarray, engine: Engine) -> None:
    """Set the sorted rows ``isolated`` of ``memberships`` to the all-pairs optimum given all others."""
    offsets = ensemble.offsets
    n_clusters = memberships.shape[1]

    def rows_of(block: Block) -> np.ndarray:
        first, last = np.searchsorted(isolated, (block.start, block.stop))
        return isolated[first:last] - block.start

    def account(block: Block) -> State:
        labels = np.delete(ensemble.read(block.start, block.stop), rows_of(block), axis=0)
        known = np.delete(memberships[block.start : block.stop], rows_of(block), axis=0)
        if not labels.size:
            return empty_state(int(offsets[-1]), ensemble.n_partitions, n_clusters)
        return state_of_block(labels, offsets, known)

    state = fold(engine, ensemble.blocks(), account, add_states)
    for block in ensemble.blocks():
        rows = rows_of(block)
        if rows.size:
            labels = ensemble.read(block.start, block.stop)[rows]
            placed = np.empty((rows.size, n_clusters), np.float32)
            place_block(state, labels, offsets, placed)
            memberships[rows + block.start] = placed
