"""Single link over sparse co-association: label rows compared with likely neighbors, not with all.

Rows that agree in many partitions stand close together when all rows are sorted by their labels in the
first few partitions of a random order. Every row is compared with those next to it in several such orders.
The graph of the pairs compared is never held: the minimum spanning forest of a graph and more edges is that
of the forest and these edges, so each order is merged into the forest of the ones before.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from bigcons.coassociation.linkage import Merges, single_merges, spanning_forest
from bigcons.coassociation.similarity import distance
from bigcons.execution.engine import Engine
from bigcons.memory import Block, row_blocks
from bigcons.progress import progress
from bigcons.seeding import generator

# Rows after each that it is compared with in one order (an arbitrary line: few, for orders differ and rows
# next to each other do not).
WINDOW = 4

ROWS_PER_TASK = 1 << 16

BYTES_PER_ROW = 400
"""Memory of a row beside its labels and a copy of them: the edges of an order while they are sorted."""


def sparse_merges(rows: np.ndarray, neighbors: int, normalize: str, engine: Engine, seed: int) -> Merges:
    """Return single-link merges of label rows ``(n, n_partitions)``, each compared with ``neighbors`` others.

    Exact on the graph of the pairs compared; what that leaves apart merges at similarity 0, distance 1. With
    q neighbors O(q n (n_partitions + log n)) time, O(n n_partitions) memory.
    """
    n = len(rows)
    n_orders = -(-neighbors // (2 * WINDOW)) if n > 1 else 0
    forest = Merges(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    with progress("neighbors", n_orders, "orders") as listener:
        for number in range(n_orders):
            order = random_order(rows, seed, number)
            edges = _edges_of_order(rows, order, normalize, engine)
            joined = Merges(*(np.concatenate(parts) for parts in zip(forest, edges, strict=True)))
            forest = spanning_forest(joined, n)
            listener.advance(1)
    return single_merges(forest, n, apart=1.0)


def random_order(rows: np.ndarray, seed: int, number: int) -> np.ndarray:
    """Return the order of distinct rows by their labels in a random order of the partitions, as bytes."""
    partitions = generator(seed, "coassociation.neighbors", number).permutation(rows.shape[1])
    turned = np.ascontiguousarray(rows[:, partitions])
    return np.argsort(turned.view(np.dtype((np.void, turned[0].nbytes)))[:, 0])


def _edges_of_order(rows: np.ndarray, order: np.ndarray, normalize: str, engine: Engine) -> Merges:
    """Return every row with those next to it in ``order``, and their distances."""
    steps = range(1, min(WINDOW, len(order) - 1) + 1)
    first = np.concatenate([order[:-step] for step in steps])
    second = np.concatenate([order[step:] for step in steps])
    blocks = row_blocks(len(first), ROWS_PER_TASK)
    parts = list(engine.map(partial(_distances_of_pairs, rows, first, second, normalize), blocks))
    return Merges(first, second, np.concatenate(parts))


def _distances_of_pairs(
    rows: np.ndarray, first: np.ndarray, second: np.ndarray, normalize: str, block: Block
) -> np.ndarray:
    from bigcons.kernels.label_rows import count_pairs

    n_agree, n_seen = np.empty(block.n_rows, np.int32), np.empty(block.n_rows, np.int32)
    pairs = slice(block.start, block.stop)
    count_pairs(rows, rows, first[pairs], second[pairs], n_agree, n_seen)
    return distance(n_agree, n_seen, rows.shape[1], normalize)
