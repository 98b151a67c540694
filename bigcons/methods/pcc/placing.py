"""What memberships that any solver found mean to further objects, and objects placed by it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.coassociation.factorized import State, add_states, state_of_block
from bigcons.coassociation.grouped import add_tables, choose_centers, tables_of_block
from bigcons.divergences import Divergence, resolve_divergence
from bigcons.execution.engine import Engine
from bigcons.execution.fold import fold
from bigcons.kernels.prototypes import Tables
from bigcons.memory import Block
from bigcons.methods.pcc import prototypes
from bigcons.methods.pcc.all_pairs import place_block
from bigcons.methods.pcc.solution import BlockMemberships, Solution
from bigcons.methods.pcc.streamed_prototypes import SAMPLE, default_prototypes
from bigcons.seeding import generator
from bigcons.storage.checkpoint import BlockArrays
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.pairs import PairTable

NOBODY = np.empty(0, np.int64)


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


Placing = BySquares | ByPrototypes


class Known(NamedTuple):
    """The objects with memberships that count for others: all but the sorted ``left_out``."""

    ensemble: Ensemble
    solution: Solution
    left_out: np.ndarray

    def rows_left_out(self, block: Block) -> np.ndarray:
        """Return which rows of a block are left out."""
        first, last = np.searchsorted(self.left_out, (block.start, block.stop))
        return self.left_out[first:last] - block.start

    def read(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Return labels and memberships of the known objects of a block."""
        labels, rows = self.ensemble.read(block.start, block.stop), self.rows_left_out(block)
        memberships = np.ascontiguousarray(self.solution.read(block))
        if not rows.size:
            return labels, memberships
        return np.delete(labels, rows, axis=0), np.delete(memberships, rows, axis=0)


def placing_of(
    ensemble: Ensemble,
    solution: Solution,
    divergence: str | Divergence,
    seed: int,
    engine: Engine,
    left_out: np.ndarray = NOBODY,
) -> Placing:
    """Return the way to place further objects given the known ones, by the divergence of the solution.

    By the tables that the solver left; a solver of listed pairs leaves none, so that they are summed up here,
    in one pass over the labels: exactly for the squared divergence, by prototypes for any other.
    """
    if solution.tables is not None:
        return ByPrototypes(solution.tables, divergence)
    if solution.state is not None:
        return BySquares(solution.state)
    known, blocks, offsets = Known(ensemble, solution, left_out), ensemble.blocks(), ensemble.offsets

    def account(block: Block) -> State:
        labels, memberships = known.read(block)
        return state_of_block(labels, offsets, memberships)

    if resolve_divergence(divergence).label == "l2":
        return BySquares(fold(engine, blocks, account, add_states))
    centers = _centers_of(known, seed, engine)

    def group(block: Block) -> Tables:
        labels, memberships = known.read(block)
        return tables_of_block(centers, labels, offsets, memberships)

    return ByPrototypes(fold(engine, blocks, group, add_tables), divergence)


def _centers_of(known: Known, seed: int, engine: Engine) -> np.ndarray:
    """Return prototypes (G, K) of the memberships of a sample of the known objects."""
    n = known.ensemble.n_objects
    draw = generator(seed, "pcc.placing.sample")
    sampled = np.sort(draw.choice(n, SAMPLE, replace=False, shuffle=False)) if n > SAMPLE else np.arange(n)
    chosen = np.setdiff1d(sampled, known.left_out, assume_unique=True)
    chosen = chosen if chosen.size else sampled  # a grouping need not be of the objects that it groups

    def rows(block: Block) -> np.ndarray:
        first, last = np.searchsorted(chosen, (block.start, block.stop))
        return np.asarray(known.solution.read(block))[chosen[first:last] - block.start]

    memberships = np.concatenate(list(engine.map(rows, known.ensemble.blocks())))
    return choose_centers(memberships, default_prototypes(memberships.shape[1]))


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
    divergence: str | Divergence,
    seed: int,
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
    placing = placing_of(ensemble, solution, divergence, seed, engine, isolated)
    known = Known(ensemble, solution, isolated)

    def place(block: Block) -> None:
        rows, memberships = known.rows_left_out(block), np.array(solution.read(block))
        if rows.size:
            memberships[rows] = placing.place(ensemble.read(block.start, block.stop)[rows], offsets)
        arrays.write(generation, block, memberships)

    for _ in engine.map(place, ensemble.blocks()):
        pass
    return solution._replace(memberships=BlockMemberships(arrays, generation))
