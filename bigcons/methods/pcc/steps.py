"""What the drivers of passes over blocks share: which objects move, and steps shorter than a pass."""

from __future__ import annotations

import numpy as np

from bigcons.execution.engine import Engine
from bigcons.memory import Block
from bigcons.storage.checkpoint import BlockArrays

# While the largest gap is above the tolerance, objects down to this share of it move too: those just below
# would otherwise wait at the threshold for one another, pass after pass.
MOVE_SHARE = 0.25


def threshold_after(gap: float, tol: float) -> float:
    """Return the relative gap up to which objects stay as they are, where the largest is ``gap``."""
    return tol * (1.0 if gap <= tol else MOVE_SHARE)


def shorten(engine: Engine, blocks: list[Block], arrays: BlockArrays, generation: int, step: float) -> None:
    """Write two generations ahead what lies at ``step`` of the way to the next one."""

    def blend(block: Block) -> None:
        before, after = arrays.read(generation, block), arrays.read(generation + 1, block)
        arrays.write(generation + 2, block, before + np.float32(step) * (after - before))

    for _ in engine.map(blend, blocks):
        pass
