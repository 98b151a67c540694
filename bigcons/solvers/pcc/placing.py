"""What memberships that any solver found mean to further objects, and objects placed by it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.coassociation.factorised import State, add_states, empty_state, state_of_block
from bigcons.divergences import Divergence, resolve_divergence
from bigcons.execution.engine import Engine
from bigcons.execution.fold import fold
from bigcons.kernels.prototypes import Tables
from bigcons.memory import Block
from bigcons.solvers.pcc import prototypes
from bigcons.solvers.pcc.all_pairs import place_block
from bigcons.solvers.pcc.solution import BlockMemberships, Solution
from bigcons.stores.checkpoint import BlockArrays
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.pairs import PairTable


class BySquares(NamedTuple):
    """Places objects by the squared divergence over all pairs."""

    state: State

    @property
    def weights(self) -> np.ndarray | None:
        """Weights (M,) of the partitions, if they have any."""
        return self.state.partition_weights

    def place(self, labels: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return the best memberships (rows, K) float32 of objects that were not solved."""
        placed = np.empty((labels.shape[0], self.state.n_clusters), np.float32)
        place_block(self.state, labels, offsets, placed)
        return placed


class ByPrototypes(NamedTuple):
    """Places objects by any divergence, over all pairs as the prototypes see them."""

    tables: Tables
    divergence: str | Divergence

    @property
    def weights(self) -> None:
        """Partitions have no weights here."""
        return None

    def place(self, labels: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return the best memberships (rows, K) float32 of objects that were not solved."""
        return prototypes.place_block(self.tables, labels, offsets, resolve_divergence(self.divergence))


def placing_of(
    ensemble: Ensemble, solution: Solution, divergence: str | Divergence, engine: Engine
) -> BySquares | ByPrototypes:
    """Return the way to place further objects: by the tables that the solver left, else by squares."""
    if solution.tables is not None:
        return ByPrototypes(solution.tables, divergence)
    return BySquares(solution.state or state_of_solution(ensemble, solution, engine))


def state_of_solution(ensemble: Ensemble, solution: Solution, engine: Engine) -> State:
    """Return what the found memberships mean to a further object."""

    def account(block: Block) -> State:
        labels = ensemble.read(block.start, block.stop)
        return state_of_block(labels, ensemble.offsets, np.ascontiguousarray(solution.read(block)))

    return fold(engine, ensemble.blocks(), account, add_states)


def isolated_objects(pairs: PairTable) -> np.ndarray:
    """Return the objects that are in no pair, ascending."""
    parts = [
        block.start + np.flatnonzero(pairs.degrees(block.start, block.stop) == 0) for block in pairs.blocks()
    ]
    return np.concatenate([np.empty(0, np.int64), *parts])


def place_isolated(
    ensemble: Ensemble,
    isolated: np.ndarray,
    solution: Solution,
    n_clusters: int,
    arrays: BlockArrays,
    engine: Engine,
) -> Solution:
    """Return the solution with the sorted objects ``isolated`` at the all-pairs optimum given all others.

    Its memberships are a further generation of ``arrays``, in the ensemble's blocks.
    """
    offsets = ensemble.offsets
    generation = (
        solution.memberships.generation + 1 if isinstance(solution.memberships, BlockMemberships) else 0
    )

    def rows_of(block: Block) -> np.ndarray:
        first, last = np.searchsorted(isolated, (block.start, block.stop))
        return isolated[first:last] - block.start

    def account(block: Block) -> State:
        labels = np.delete(ensemble.read(block.start, block.stop), rows_of(block), axis=0)
        known = np.delete(solution.read(block), rows_of(block), axis=0)
        if not labels.size:
            return empty_state(int(offsets[-1]), ensemble.n_partitions, n_clusters)
        return state_of_block(labels, offsets, known)

    state = fold(engine, ensemble.blocks(), account, add_states)

    def place(block: Block) -> None:
        rows, memberships = rows_of(block), np.array(solution.read(block))
        if rows.size:
            labels = ensemble.read(block.start, block.stop)[rows]
            placed = np.empty((rows.size, n_clusters), np.float32)
            place_block(state, labels, offsets, placed)
            memberships[rows] = placed
        arrays.write(generation, block, memberships)

    for _ in engine.map(place, ensemble.blocks()):
        pass
    return solution._replace(memberships=BlockMemberships(arrays, generation))
