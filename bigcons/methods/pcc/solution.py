"""What every PCC solver returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import AgreementSums
from bigcons.kernels.prototypes import Tables
from bigcons.memory import Block
from bigcons.solving.passes import History, Iterate, Run, as_history
from bigcons.storage.checkpoint import BlockArrays


class BlockMemberships(NamedTuple):
    """Memberships that lie in block arrays."""

    arrays: BlockArrays
    generation: int
    blocks: list[Block] | None = None
    """The blocks they were written in, if these may be others than those that are read."""

    def read(self, block: Block) -> np.ndarray:
        """Return the memberships of a block, not to be changed."""
        if self.blocks is None:
            return self.arrays.read(self.generation, block)
        parts = [
            self.arrays.read(self.generation, own)[max(block.start - own.start, 0) : block.stop - own.start]
            for own in self.blocks
            if own.start < block.stop and block.start < own.stop
        ]
        return np.concatenate(parts)


class Solution(NamedTuple):
    """The memberships found, and how far they are from a KKT point."""

    memberships: np.ndarray | BlockMemberships
    """(n, K) float32, rows on the simplex."""
    objective: float
    gap: float
    converged: bool
    n_passes: int
    history: History
    start_objectives: list[float]
    """Of every start, where the best was chosen; of one that had no rival the objective of the solution."""
    sums: AgreementSums | None = None
    """The all-pairs sums of the memberships, where the solver has them anyhow."""
    tables: Tables | None = None
    """The prototypes' tables of the memberships, of a solver that works by them."""

    def read(self, block: Block) -> np.ndarray:
        """Return the memberships of a block, not to be changed."""
        if isinstance(self.memberships, BlockMemberships):
            return self.memberships.read(block)
        return self.memberships[block.start : block.stop]


def solution_at(
    run: Run,
    at: Iterate[Any],
    *,
    sums: AgreementSums | None = None,
    tables: Tables | None = None,
    blocks: list[Block] | None = None,
) -> Solution:
    """Return the solution where the passes of a run ended; see `BlockMemberships` for ``blocks``."""
    last = at.records[-1]
    return Solution(
        BlockMemberships(run.arrays, at.generation, blocks),
        last["objective"],
        last["gap"],
        at.is_settled,
        len(at.records),
        as_history(at.records),
        at.start_objectives or [last["objective"]],
        sums,
        tables,
    )
