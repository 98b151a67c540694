"""PCC over all pairs with any Bregman divergence, pair by pair, for up to a few thousand objects.

A pass costs O(n^2 (M + K^2)). The objective is ``sum c_ij d(1, p_ij) + (N_ij - c_ij) d(0, p_ij)`` with
``p_ij = y_i.y_j``: for Kullback-Leibler the negative log-likelihood. It differs from
``sum N_ij d(c_ij / N_ij, p_ij)`` by a constant, and never rises: a pass that would raise it is shortened.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons.divergences import Divergence
from bigcons.kernels import pairwise
from bigcons.kernels.line_search import newton_search, sampling_search
from bigcons.memory import Block
from bigcons.methods.pcc.all_pairs import (
    MOVING,
    Begin,
    Solution,
    Variant,
    placer_of,
    softened,
)
from bigcons.run.output import Output
from bigcons.run.passes import BlockArrays, Iterate, Record, Run, Step, run_passes
from bigcons.run.survey import Survey
from bigcons.store.ensemble import Ensemble

# Step lengths along a pass's changes, tried in order until one lowers the objective.
STEPS = (1.0, 0.5, 0.25, 0.125)


def general_search(divergence: Divergence) -> Callable[..., Any]:
    """Return the compiled search: Newton if the divergence is double-convex, else sampling."""
    value, slope, curvature, _ = divergence.compiled
    return newton_search(slope, curvature) if divergence.is_double_convex else sampling_search(value)


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
        """Write the first memberships, those by the squared divergence."""
        solved = self.begin(run)  # the sample is all objects
        first = softened(solved.memberships)
        for block in run.blocks:
            run.arrays.write(0, block, first[block.start : block.stop])
        return self._evaluate(run, 0), solved.start_objectives

    def visit(self, run: Run, at: Iterate[Exact]) -> Callable[[Block], int]:
        """Return the task that updates every object of a block given all others, and tells how many moved."""
        threshold = MOVING * run.tol * self.mean_weight
        data, arrays, blocks, divergence = run.data, run.arrays, run.blocks, self.divergence
        generation = at.generation

        def update_block(block: Block) -> int:
            everything = read_all(data, arrays, blocks, generation)
            updated, totals = np.array(arrays.read(generation, block)), np.zeros(2)
            _, slope, curvature, parameter = divergence.compiled
            pairwise.sweep(
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
            run.arrays.drop([at.generation + 1, at.generation + 2])
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
            pairwise.evaluate(*everything, block.start, block.stop, totals, value, slope, parameter)
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


class EveryPair(Variant):
    """All pairs of a few thousand objects by any divergence, pair by pair."""

    def statistics_bytes(self, ensemble: Ensemble) -> int:
        """Return the size of labels and memberships of all objects, and of the terms of one of them."""
        n = ensemble.n_objects
        return n * ensemble.row_bytes + 20 * n * self.n_clusters + 32 * n

    def solve(self, run: Run, survey: Survey, begin: Begin, out: Output | None) -> Solution:  # noqa: ARG002
        """Solve, given a run over the labels."""
        at = run_passes(run, Pairwise(self.n_clusters, self.divergence, survey.mean_weight, begin))
        read = partial(run.arrays.read, at.generation)
        return Solution(read, at, placer_of(run, read))
