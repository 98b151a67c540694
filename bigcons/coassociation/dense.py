"""Counts of agreement for all pairs, as full matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bigcons.errors import MemoryBudgetError
from bigcons.execution.engine import open_engine
from bigcons.memory import Block, format_size, parse_size, row_blocks
from bigcons.progress import progress

TILE_ROWS = 1024

Tile = tuple[Block, Block]


def dense(x: Any, *, memory: int | str = "4GB", client: object = None) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(n_agree, n_seen)`` of all pairs of objects of ``x``, ``(n_objects, n_objects)`` int32.

    Both are symmetric; on the diagonal stands the number of labels of the object.

    Takes 8 bytes for each of the n^2 entries, refused with MemoryBudgetError above ``memory``, and
    O(n^2 n_partitions) time; `sample` counts a share of the pairs of ensembles too large for that.
    """
    from bigcons.stores.ensemble import as_ensemble

    ensemble = as_ensemble(x)
    n = ensemble.n_objects
    needed, budget = 8 * n * n, parse_size(memory)
    if needed > budget:
        raise MemoryBudgetError(
            f"all pairs of {n:,} objects need {format_size(needed)} but memory={format_size(budget)}; "
            "raise memory or count a sample of the pairs with bigcons.coassociation.sample.",
            needed=needed,
            budget=budget,
        )
    n_agree, n_seen = np.empty((n, n), dtype=np.int32), np.empty((n, n), dtype=np.int32)
    blocks = row_blocks(n, TILE_ROWS)
    tiles = [(rows, columns) for rows in blocks for columns in blocks[rows.index :]]
    with open_engine(client) as engine, progress("count all pairs", len(tiles), "tiles") as listener:
        counts = engine.map(partial(_count_tile, ensemble.read(0, n)), tiles)
        for (rows, columns), (agree, seen) in zip(tiles, counts, strict=True):
            at_rows, at_columns = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
            for matrix, tile in ((n_agree, agree), (n_seen, seen)):
                matrix[at_rows, at_columns] = tile
                matrix[at_columns, at_rows] = tile.T
            listener.advance(1)
    return n_agree, n_seen


def _count_tile(labels: np.ndarray, tile: Tile) -> tuple[np.ndarray, np.ndarray]:
    from bigcons.kernels.label_rows import count_tile

    left, right = (labels[block.start : block.stop] for block in tile)
    n_agree = np.empty((len(left), len(right)), dtype=np.int32)
    n_seen = np.empty_like(n_agree)
    count_tile(left, right, n_agree, n_seen)
    return n_agree, n_seen
