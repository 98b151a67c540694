"""The fold: block statistics mapped on any engine and combined in block order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TypeVar

from bigcons.execution.engine import Engine
from bigcons.memory import Block
from bigcons.progress import Progress

Stats = TypeVar("Stats")


def fold(
    engine: Engine,
    blocks: Sequence[Block],
    block_stats: Callable[[Block], Stats],
    combine: Callable[[Stats, Stats], Stats],
    *,
    progress: Progress | None = None,
) -> Stats:
    """Return ``block_stats`` of all blocks combined from the first to the last.

    The order of combination is the order of ``blocks`` whatever the engine, so that sums of floats
    come out bit for bit the same. ``combine`` may change and return its first argument.
    """
    if not blocks:
        raise ValueError("a fold needs at least one block")
    total: Stats | None = None
    with closing(engine.map(block_stats, blocks)) as results:
        for block, stats in zip(blocks, results, strict=True):
            total = stats if total is None else combine(total, stats)
            if progress is not None:
                progress.advance(block.n_rows)
    assert total is not None  # noqa: S101 - there was at least one block
    return total
