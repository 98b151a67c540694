"""PCC over all pairs with any Bregman divergence, pair by pair; and the exact gap of solves by prototypes.

Up to a few thousand objects every object can meet every other: a pass costs O(n^2 (M + K^2)) and no prototype
stands for anything, so objective and gap are exact. For more objects the same sums, over a fixed sample of
objects, tell how far a solve by prototypes is from the optimum over all pairs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons.divergences import Divergence
from bigcons.kernels import pairwise as kernel
from bigcons.kernels.prototypes import ABOVE_FLOOR
from bigcons.memory import Block
from bigcons.methods.pcc.all_pairs import Begin, threshold_after
from bigcons.methods.pcc.prototypes import (
    STEPS,
    default_prototypes,
    general_search,
    least_membership,
    write_start,
)
from bigcons.methods.pcc.start import SUBSAMPLE, softened
from bigcons.seeding import generator
from bigcons.solving.passes import Iterate, Record, Run, Step
from bigcons.storage.checkpoint import BlockArrays
from bigcons.stores.ensemble import Ensemble


class Exact(NamedTuple):
    """Objective and gap of the memberships, over all pairs."""

    objective: float
    """``sum c_ij d(1, p_ij) + (N_ij - c_ij) d(0, p_ij)``."""
    gap: float
    """The largest KKT gap."""


@dataclass
class Pairwise:
    """The passes of PCC over all pairs, one by one; objects carry memberships (rows, K) float32.

    Blocks update their objects in turn, given those of other blocks as the pass began; a pass that would
    raise the objective is shortened. A solve has settled when the largest gap, in units of the mean weight
    ``sum_j N_ij`` of an object, is at most ``tol``, or when no step lowers the
    objective any more.
    """

    n_clusters: int
    divergence: Divergence
    mean_weight: float
    begin: Begin

    name = "all-pairs PCC"
    add: ClassVar[staticmethod[[int, int], int]] = staticmethod(operator.add)
    """Adds up how many objects moved."""

    def start(self, run: Run) -> tuple[Exact, list[float]]:
        """Write the first memberships: those of a sample, refined by their own divergence."""
        solved = self.begin(run)
        n_prototypes = default_prototypes(self.n_clusters)
        write_start(run, softened(solved.memberships), self.divergence, n_prototypes)
        return self._evaluate(run, 0), solved.start_objectives

    def visit(self, run: Run, at: Iterate[Exact]) -> Callable[[Block], int]:
        """Return the task that updates every object of a block given all others, and tells how many moved."""
        threshold = threshold_after(at.state.gap / self.mean_weight, run.tol) * self.mean_weight
        data, arrays, blocks, divergence = run.data, run.arrays, run.blocks, self.divergence
        generation = at.generation

        def update_block(block: Block) -> int:
            everything = read_all(data, arrays, blocks, generation)
            updated, totals = np.array(arrays.read(generation, block)), np.zeros(2)
            _, slope, curvature, parameter = divergence.compiled
            kernel.sweep(
                *(*everything, block.start, updated, threshold, totals, divergence.is_double_convex),
                *(slope, curvature, general_search(divergence), parameter),
            )
            arrays.write(generation + 1, block, updated)
            return int(totals[1])

        return update_block

    def step(self, run: Run, at: Iterate[Exact], total: int) -> Step[Exact]:
        """Take the first step length that lowers the objective, if any."""
        found, n_generations, length = at.state, 0, 0.0
        for length in STEPS if total else ():
            n_generations = 1 if length == 1.0 else 2
            if n_generations == 2:
                run.shorten(at.generation, length)
            found = self._evaluate(run, at.generation + n_generations)
            if found.objective < at.state.objective:
                break
        else:
            found, n_generations, length = at.state, 0, 0.0
            run.arrays.drop(at.generation + 1)
            run.arrays.drop(at.generation + 2)
        record: Record = {
            "objective": found.objective,
            "moved": total,
            "step_length": length,
            "gap": found.gap / self.mean_weight,
        }
        return Step(found, record, length == 0.0 or record["gap"] <= run.tol, n_generations)

    def pack(self, state: Exact) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return everything as facts."""
        return {}, state._asdict()

    def unpack(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Exact:  # noqa: ARG002
        """Return the state of a snapshot."""
        return Exact(**facts)

    def _evaluate(self, run: Run, generation: int) -> Exact:
        """Return the objective, and the largest gap, of a generation."""
        data, arrays, blocks, divergence = run.data, run.arrays, run.blocks, self.divergence

        def evaluate_block(block: Block) -> Exact:
            totals = np.zeros(2)
            value, slope, _, parameter = divergence.compiled
            everything = read_all(data, arrays, blocks, generation)
            kernel.evaluate(*everything, block.start, block.stop, totals, value, slope, parameter)
            return Exact(*totals.tolist())

        return run.fold(evaluate_block, lambda a, b: Exact(a.objective + b.objective, max(a.gap, b.gap)))


def read_all(
    ensemble: Ensemble, arrays: BlockArrays, blocks: Sequence[Block], generation: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (n, M) and memberships (n, K) float64, of sum one, of all objects."""
    rows = [arrays.read(generation, block) for block in blocks]
    return ensemble.read(0, ensemble.n_objects), exactly(np.concatenate(rows))


def exactly(memberships: np.ndarray) -> np.ndarray:
    """Return rows of sum one in float64: float32 does not resolve the distance to a vertex."""
    rows = memberships.astype(np.float64)
    return rows / rows.sum(axis=1, keepdims=True)


# The exact gap of memberships found by prototypes


def sampled_gap(run: Run, generation: int, divergence: Divergence) -> float:
    """Return the largest KKT gap over all pairs of a fixed sample of 128 objects, found by prototypes.

    All objects if there are few. Two passes over the labels, O(n (M + K)) time for each object of the sample.
    """
    n = run.data.n_objects
    draw = generator(run.seed, "pcc.gap.sample")
    sampled = np.arange(n) if n <= SUBSAMPLE else np.sort(draw.choice(n, 128, replace=False))
    ensemble, arrays = run.data, run.arrays

    def read_sampled(block: Block) -> tuple[np.ndarray, np.ndarray]:
        rows = block.rows_of(sampled)
        labels = ensemble.read(block.start, block.stop)[rows]
        return labels, arrays.read(generation, block)[rows]

    labels, found = (
        np.concatenate(part) for part in zip(*run.engine.map(read_sampled, run.blocks), strict=True)
    )
    rows = exactly(found)

    def add_gradients(block: Block) -> np.ndarray:
        of_block, others = ensemble.read(block.start, block.stop), arrays.read(generation, block)
        gradients = np.zeros_like(rows)
        _, slope, _, parameter = divergence.compiled
        own = sampled - block.start
        kernel.add_gradients(of_block, exactly(others), labels, rows, own, gradients, slope, parameter)
        return gradients

    gradients = run.fold(add_gradients, lambda a, b: a + b)
    least = (1.0 + ABOVE_FLOOR) * least_membership(divergence, rows.shape[1])
    highest = np.where(found > least, gradients, -np.inf).max(axis=1)
    return float((highest - gradients.min(axis=1)).max())
