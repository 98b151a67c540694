"""PCC over all pairs with the squared divergence: an exact fold over row blocks, without forming pairs.

Objects interact only through sums of a few thousand numbers (``AgreementSums``; the identities are in
``kernels/all_pairs.py``), so a pass over the label matrix costs O(n M K + n K^2 M), whatever the number of
pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import AgreementSums, Rates, Weights, add_sums
from bigcons.memory import Block
from bigcons.methods.pcc.start import Begin, First
from bigcons.methods.pcc.updates import (
    RELAXATION,
    Change,
    add_changes,
    add_step_sums,
    apply_change,
    apply_part,
    decreases_enough,
    line_search,
    measure_block,
    place_block,
    update_block,
)
from bigcons.progress import progress
from bigcons.solving.passes import Iterate, Run, Step, Visit
from bigcons.solving.survey import mean_pair_weight
from bigcons.storage.checkpoint import BlockArrays


def threshold_after(gap: float, tol: float) -> float:
    """Return the relative gap up to which objects do not move, if the largest is ``gap``."""
    # Objects just below the tolerance move too, or they delay one another: 20,000 objects in ten blocks take
    # 54 to 71 passes with a quarter, 69 to 100 without.
    return tol * (1.0 if gap <= tol else 0.25)


class BlockMemberships(NamedTuple):
    """Memberships stored in block arrays."""

    arrays: BlockArrays
    generation: int
    blocks: list[Block] | None = None
    """The blocks they were written in, if those may differ from the blocks that are read."""

    def read(self, block: Block) -> np.ndarray:
        """Return the memberships (rows, K) float32 of a block, read-only."""
        if self.blocks is None:
            return self.arrays.read(self.generation, block)
        parts = [
            self.arrays.read(self.generation, own)[max(block.start - own.start, 0) : block.stop - own.start]
            for own in self.blocks
            if own.start < block.stop and block.start < own.stop
        ]
        return np.concatenate(parts)


class AllPairs:
    """The passes of PCC over all pairs, squared divergence; objects carry memberships (rows, K) float32.

    The gap is in units of the mean weight of an object, ``sum_j N_ij``. A solve has converged after a pass in
    which no object has a gap above the tolerance. That pass changes nothing, so the gap it reports is exact.
    """

    name = "all-pairs PCC"

    def __init__(self, n_seen: np.ndarray, begin: Begin) -> None:
        self.n_seen = n_seen
        """(M,): number of objects that each partition labels."""
        self.begin = begin

    def start(self, run: Run) -> tuple[AgreementSums, list[float]]:
        """Write the first memberships and return their sums."""
        with progress("start from a sample", 0):
            solved = self.begin(run)
        first, arrays = First.of(run.data, solved), run.arrays

        def write_first(block: Block) -> AgreementSums:
            memberships, sums = first(block)
            arrays.write(0, block, memberships)
            return sums

        with progress("start of PCC", run.data.n_objects) as listener:
            return run.fold(write_first, add_sums, listener), solved.start_objectives

    def visit(self, run: Run, at: Iterate[AgreementSums]) -> Visit:
        """Return the task that updates every object of a block given all others."""
        gap = at.records[-1]["gap"] if at.records else np.inf
        threshold = threshold_after(gap, run.tol) * self._mean_weight(run, at.state)
        relaxation = RELAXATION if len(run.blocks) == 1 else 1.0
        reads, writes = [at.generation], at.generation + 1
        arguments = at.state, run.data.offsets, threshold, relaxation
        return run.visit(update_block, *arguments, reads=reads, writes=writes)

    @staticmethod
    def add(total: Change, part: Change) -> Change:
        """Add the change of a further block, in place."""
        return add_changes(total, part)

    def step(self, run: Run, at: Iterate[AgreementSums], total: Change) -> Step[AgreementSums]:
        """Take the full step if the objective decreases enough, else the best shorter one."""
        sums, length, n_generations = at.state, 1.0, 1
        reached = apply_change(sums, total)
        if len(run.blocks) > 1 and total.n_moved > 0 and not decreases_enough(sums, total):
            reads = [at.generation, at.generation + 1]
            along = run.fold(run.visit(measure_block, sums, run.data.offsets, reads=reads), add_step_sums)
            length, _ = line_search(sums, total, along)
            if length < 1.0:
                run.shorten(at.generation, length)
                reached, n_generations = apply_part(sums, total, along, length), 2
        record = {
            "objective": reached.objective,
            "gap": total.gap / self._mean_weight(run, sums),
            "moved": total.n_moved,
            "step_length": length,
        }
        return Step(reached, record, total.n_moved == 0, n_generations)

    def pack(self, state: AgreementSums) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the sums and how partitions count as arrays and facts."""
        return packed_sums(state)

    def unpack(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> AgreementSums:
        """Return the sums of a snapshot."""
        return unpacked_sums({**arrays, **facts})

    def _mean_weight(self, run: Run, sums: AgreementSums) -> float:
        return mean_pair_weight(self.n_seen, run.data.n_objects, sums.partition_weights)


def packed_sums(sums: AgreementSums) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return sums, and how partitions count in them, as arrays and numbers."""
    facts = sums._asdict()
    arrays = {"S": facts.pop("S"), "T": facts.pop("T")}
    weights = facts.pop("weights")
    for name, value in ({} if weights is None else weights._asdict()).items():
        (arrays if isinstance(value, np.ndarray) else facts)[name] = value
    return arrays, facts


def unpacked_sums(given: dict[str, Any]) -> AgreementSums:
    """Return the sums of `packed_sums`; raises TypeError or KeyError for anything else."""
    kind = Rates if "a" in given else Weights if "partitions" in given else None
    weights = None if kind is None else kind(**{name: given.pop(name) for name in kind._fields})
    return AgreementSums(**given, weights=weights)


@dataclass(frozen=True)
class BySquares:
    """Gives the memberships of new objects: the best ones given all solved objects, over all pairs."""

    sums: AgreementSums
    offsets: np.ndarray

    @property
    def weights(self) -> np.ndarray | None:
        """Weights (M,) of the partitions, None if all are one."""
        return self.sums.partition_weights

    def __call__(self, labels: np.ndarray) -> np.ndarray:
        """Return the best memberships (rows, K) float32 of new objects."""
        placed = np.empty((labels.shape[0], self.sums.n_clusters), np.float32)
        place_block(self.sums, labels, self.offsets, placed)
        return placed
