"""Placement of further objects given solved ones: new objects, and objects that occur in no sampled pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import AgreementSums, Rates, add_sums, agreement_sums
from bigcons.coassociation.grouped import add_tables, choose_centers, tables_of_block
from bigcons.divergences import Divergence, resolve_divergence
from bigcons.errors import InvalidInputError
from bigcons.execution.engine import Engine, fold
from bigcons.kernels.prototypes import Tables
from bigcons.memory import Block
from bigcons.methods.pcc import prototypes
from bigcons.methods.pcc.calibrated_pairs import rates_by_partition
from bigcons.methods.pcc.many import ByCandidates, ManySums
from bigcons.methods.pcc.memberships import BlockMemberships, Solution
from bigcons.methods.pcc.prototypes import SAMPLE, default_prototypes
from bigcons.methods.pcc.pruning import Large
from bigcons.methods.pcc.updates import place_block
from bigcons.seeding import draw_rows
from bigcons.storage.checkpoint import BlockArrays
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.ensemble_store import observed
from bigcons.stores.pairs import PairTable

NOBODY = np.empty(0, np.int64)


@dataclass(frozen=True)
class BySquares:
    """Places objects by the squared divergence over all pairs."""

    sums: AgreementSums
    offsets: np.ndarray
    large: Large | None = None
    """If only some clusters may win objects."""

    @property
    def weights(self) -> np.ndarray | None:
        """Weights (M,) of the partitions, None if all are one."""
        return self.sums.partition_weights

    def __call__(self, labels: np.ndarray) -> np.ndarray:
        """Return the best memberships (rows, K) float32 of new objects."""
        placed = np.empty((labels.shape[0], self.sums.n_clusters), np.float32)
        place_block(self.sums, labels, self.offsets, placed)
        return placed if self.large is None else self.large.settle(labels, self.offsets, placed)


@dataclass(frozen=True)
class ByPrototypes:
    """Places objects by any divergence, over all pairs, by prototypes."""

    tables: Tables
    offsets: np.ndarray
    divergence: str | Divergence

    @property
    def weights(self) -> None:
        """Partitions have no weights here."""
        return None

    def __call__(self, labels: np.ndarray) -> np.ndarray:
        """Return the best memberships (rows, K) float32 of new objects."""
        divergence = resolve_divergence(self.divergence)
        return prototypes.place_block(self.tables, labels, self.offsets, divergence)


Placing = BySquares | ByPrototypes | ByCandidates


@dataclass(frozen=True)
class Widened:
    """Gives memberships of more clusters, the last of them empty."""

    rows_of: Callable[[Any], np.ndarray]
    """Of a block, or of labels."""
    n_clusters: int

    def __call__(self, given: Any) -> np.ndarray:
        """Return memberships (rows, n_clusters)."""
        rows = np.asarray(self.rows_of(given))
        return np.pad(rows, ((0, 0), (0, self.n_clusters - rows.shape[1])))


class Known(NamedTuple):
    """The solved objects by which others are placed: all except the sorted ``left_out``."""

    ensemble: Ensemble
    solution: Solution
    left_out: np.ndarray

    def read(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Return labels and memberships of the known objects of a block."""
        labels, rows = self.ensemble.read(block.start, block.stop), block.rows_of(self.left_out)
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
    """Return the placement of further objects given the known ones, by the divergence of the solution.

    Uses the sums or tables of the solver. Solvers of listed pairs have none, so one pass over the labels
    computes them: exactly for the squared divergence, by prototypes for any other.
    """
    offsets, blocks, rates = ensemble.offsets, ensemble.blocks(), None
    if solution.calibrated is not None:
        divergence, rates = solution.calibrated, rates_by_partition(solution.calibrated, offsets)
    if solution.tables is not None:
        return ByPrototypes(solution.tables, offsets, divergence)
    if isinstance(solution.sums, ManySums):
        return ByCandidates.of(solution.sums, offsets)
    if solution.sums is not None:
        n = solution.n_large
        return BySquares(solution.sums, offsets, None if n is None else Large.of(solution.sums, n))
    known = Known(ensemble, solution, left_out)
    if resolve_divergence(divergence).label == "l2":
        return BySquares(fold(engine, blocks, SumKnown(known, rates=rates), add_sums), offsets)
    centers = _centers_of(known, seed, engine)
    return ByPrototypes(fold(engine, blocks, SumKnown(known, centers), add_tables), offsets, divergence)


@dataclass(frozen=True)
class SumKnown:
    """A task: agreement sums of the known objects of a block or, given centers, their prototype tables."""

    known: Known
    centers: np.ndarray | None = None
    rates: Rates | None = None
    """Of the sums, in a calibrated model."""

    def __call__(self, block: Block) -> Any:
        """Sum a block."""
        labels, memberships = self.known.read(block)
        if self.centers is None:
            return agreement_sums(labels, self.known.ensemble.offsets, memberships, self.rates)
        return tables_of_block(self.centers, self.known.ensemble.offsets, labels, memberships)


@dataclass(frozen=True)
class ChosenRows:
    """A task: read the memberships of the chosen objects of a block."""

    solution: Solution
    chosen: np.ndarray

    def __call__(self, block: Block) -> np.ndarray:
        """Read them in a block."""
        return np.asarray(self.solution.read(block))[block.rows_of(self.chosen)]


def _centers_of(known: Known, seed: int, engine: Engine) -> np.ndarray:
    """Return prototypes (G, K) of the memberships of a sample of the known objects."""
    sampled = draw_rows(known.ensemble.n_objects, SAMPLE, seed, "pcc.placing.sample")
    chosen = np.setdiff1d(sampled, known.left_out, assume_unique=True)
    chosen = chosen if chosen.size else sampled  # centers need not come from the known objects
    rows = engine.map(ChosenRows(known.solution, chosen), known.ensemble.blocks())
    memberships = np.concatenate(list(rows))
    return choose_centers(memberships, default_prototypes(memberships.shape[1]))


def isolated_objects(pairs: PairTable) -> np.ndarray:
    """Return the objects that are in no pair, ascending."""
    parts = [
        block.start + np.flatnonzero(pairs.degrees(block.start, block.stop) == 0) for block in pairs.blocks()
    ]
    return np.concatenate([np.empty(0, np.int64), *parts])


def refuse_isolated(ensemble: Ensemble, pairs: PairTable) -> None:
    """Refuse pairs that lack objects with memberships, which cannot be placed over all pairs."""
    lost = isolated_objects(pairs)
    n_lost = int(observed(ensemble.read_rows(lost), ensemble.offsets).any(axis=1).sum())
    if n_lost:
        raise InvalidInputError(
            f"{n_lost} objects are in none of the {pairs.n_pairs} pairs, and PCC cannot place objects by "
            "memberships; use more pairs.",
            parameter="pairs",
        )


def place_isolated(
    ensemble: Ensemble,
    isolated: np.ndarray,
    solution: Solution,
    divergence: str | Divergence,
    seed: int,
    arrays: BlockArrays,
    engine: Engine,
) -> Solution:
    """Return the solution with the sorted objects ``isolated`` at their all-pairs optimum given all others.

    Writes the memberships to a new generation of ``arrays``, in the ensemble's blocks.
    """
    found = solution.memberships
    generation = found.generation + 1 if isinstance(found, BlockMemberships) else 0
    placing = placing_of(ensemble, solution, divergence, seed, engine, isolated)
    task = PlaceIsolated(Known(ensemble, solution, isolated), placing, arrays, generation)
    for _ in engine.map(task, ensemble.blocks()):
        pass
    return solution._replace(memberships=BlockMemberships(arrays, generation))


@dataclass(frozen=True)
class PlaceIsolated:
    """A task: copy the memberships of a block, with its isolated objects placed."""

    known: Known
    placing: Placing
    arrays: BlockArrays
    generation: int

    def __call__(self, block: Block) -> None:
        """Write a block."""
        rows, memberships = block.rows_of(self.known.left_out), np.array(self.known.solution.read(block))
        if rows.size:
            memberships[rows] = self.placing(self.known.ensemble.read(block.start, block.stop)[rows])
        self.arrays.write(self.generation, block, memberships)
