"""Linkage of many label rows through inverted lists, the rows of each base cluster.

Rows that share no base cluster have similarity 0. If base clusters are small, a row shares them with few
rows, and neither all pairs are compared nor any stored.

`single_link` finds the spanning tree by Borůvka's algorithm: in each round every component joins the one with
which it has the most similar pair of rows. Each row keeps its nearest rows, which tell this pair until they
are all in the row's own component; then it is searched again, outside of it.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np

from bigcons.coassociation.counts import distance
from bigcons.coassociation.linkage import Merges, single_merges, sorted_merges
from bigcons.execution.engine import Engine, ThreadsEngine
from bigcons.memory import Block, row_blocks
from bigcons.progress import progress

logger: logging.Logger = logging.getLogger("bigcons")

# Neighbors that a row keeps. Arbitrary: with more, rows are searched less often.
NEIGHBORS = 16

ROWS_PER_TASK = 1 << 12

BYTES_PER_ROW = 300
"""Memory of a row besides its labels, its lists and its neighbors: components, edges and merges."""


class Lists(NamedTuple):
    """Label rows in an order in which similar ones lie close together, and the rows of each base cluster."""

    rows: np.ndarray
    """(n_rows, n_partitions) labels."""
    order: np.ndarray
    """(n_rows,) int64 where each row was."""
    offsets: np.ndarray
    """(n_partitions + 1,) int64 number of base clusters before each partition."""
    starts: np.ndarray
    """(n_base_clusters + 1,) int64 where the rows of each base cluster begin."""
    members: np.ndarray
    """(n_labels,) int32 the rows of each base cluster, ascending."""


def single_link_bytes(rows: np.ndarray, engine: Engine) -> int:
    """Return the memory that `single_link` needs besides ``rows``."""
    n, n_partitions = rows.shape
    counts = np.min_scalar_type(n_partitions).itemsize
    neighbors = NEIGHBORS * (4 + 2 * counts) + n_partitions // 8 + 8
    return rows.nbytes + n * (4 * n_partitions + neighbors + BYTES_PER_ROW + (4 + counts) * engine.n_workers)


def make_lists(rows: np.ndarray) -> Lists:
    """Return the lists of label rows ``(n_rows, n_partitions)``. O(n_rows n_partitions) time and memory."""
    from bigcons.kernels.neighbors import list_members, order_of_visits

    offsets = np.zeros(rows.shape[1] + 1, np.int64)
    np.cumsum([int(column.max(initial=-1)) + 1 for column in rows.T], out=offsets[1:])
    members = np.empty(np.count_nonzero(rows >= 0), np.int32)
    starts = np.zeros(offsets[-1] + 1, np.int64)
    list_members(rows, offsets, starts, members)
    order = np.empty(len(rows), np.int64)
    order_of_visits(rows, offsets, starts, members, order)
    rows = rows[order]
    starts[:] = 0
    list_members(rows, offsets, starts, members)
    return Lists(rows, order, offsets, starts, members)


# ---- single link


class Neighbors(NamedTuple):
    """The nearest rows of each row, by falling similarity ``agree / seen``; -1 where there are no more."""

    rows: np.ndarray
    """(n_rows, q) int32."""
    agree: np.ndarray
    seen: np.ndarray
    observed: np.ndarray
    """(n_rows, n_words) uint64 bits of the partitions that label each row; no words if all are seen."""
    fewest: int
    """The fewest labels of a row."""

    @classmethod
    def none(cls, rows: np.ndarray, normalize: str) -> Neighbors:
        """Return room for the neighbors of label rows."""
        from bigcons.kernels.neighbors import mark_observed

        n, n_partitions = rows.shape
        n_labels = (rows >= 0).sum(axis=1)
        fewest = int(n_labels.min(initial=n_partitions))
        n_words = 0 if normalize == "all" or fewest == n_partitions else -(-n_partitions // 64)
        observed = np.zeros((n, n_words), np.uint64)
        if n_words:
            mark_observed(rows, observed)
        shape, counts = (n, NEIGHBORS), np.min_scalar_type(n_partitions)
        neighbors = np.full(shape, -1, np.int32)
        return cls(neighbors, np.zeros(shape, counts), np.ones(shape, counts), observed, fewest)

    def search(
        self, lists: Lists, component: np.ndarray, owner: np.ndarray, wanted: np.ndarray, engine: Engine
    ) -> None:
        """Replace the neighbors of the rows ``wanted`` by the nearest outside their components."""
        from bigcons.kernels.neighbors import nearest_outside

        def search_block(block: Block) -> None:
            nearest_outside(
                *(lists.rows, lists.offsets, lists.starts, lists.members, self.observed, self.fewest),
                *(component, owner, wanted[block.start : block.stop]),
                np.zeros(len(lists.rows), self.agree.dtype),
                *(self.rows, self.agree, self.seen),
            )

        with progress("neighbors", len(wanted)) as listener:
            blocks = row_blocks(len(wanted), ROWS_PER_TASK)
            for block, _ in zip(blocks, engine.map(search_block, blocks), strict=True):
                listener.advance(block.n_rows)


def single_link(rows: np.ndarray, normalize: str, engine: Engine) -> Merges:
    """Return the single-link merges of label rows ``(n_rows, n_partitions)``, at the heights of all pairs.

    A search of a row reads the lists of its base clusters, from the smallest until no other row can be nearer
    than those found: at most their summed lengths. Rows are searched a few times, those of the largest
    component not at all. Runs on the threads of this process if the engine does not share its memory.
    """
    from bigcons.kernels.linkage import union_merges
    from bigcons.kernels.neighbors import best_outside, mark_owners, number_components

    engine = engine if engine.shares_memory else ThreadsEngine()
    lists = make_lists(rows)
    n = len(rows)
    near, head = Neighbors.none(lists.rows, normalize), np.zeros(n, np.int64)
    parent, component = np.arange(n), np.arange(n, dtype=np.int32)
    owner, best = np.empty(len(lists.starts) - 1, np.int32), np.empty(n, np.int64)
    wanted, largest = np.arange(n), -1
    kept = [Merges(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    with progress("spanning tree", n - 1, "edges") as listener:
        while True:
            while len(wanted):
                mark_owners(lists.starts, lists.members, component, owner)
                near.search(lists, component, owner, wanted, engine)
                head[wanted] = 0
                wanted = best_outside(component, largest, near.rows, near.agree, near.seen, head, best)
            first = best[best >= 0]
            at = (first, head[first])
            heights = distance(near.agree[at], near.seen[at], rows.shape[1], normalize)
            edges = sorted_merges(first, near.rows[at].astype(np.int64), heights)
            joins = np.empty(len(first), bool)
            n_joined = union_merges(edges.first, edges.second, parent, joins)
            if not n_joined:
                break
            kept.append(Merges(*(column[joins] for column in edges)))
            listener.advance(n_joined)
            best = np.empty(number_components(parent, component), np.int64)
            logger.info("spanning tree: %s components left", f"{len(best):,}")
            largest = int(np.bincount(component).argmax())
            wanted = best_outside(component, largest, near.rows, near.agree, near.seen, head, best)
    forest = Merges(*(np.concatenate(parts) for parts in zip(*kept, strict=True)))
    merges = single_merges(forest, n, apart=1.0)
    return Merges(lists.order[merges.first], lists.order[merges.second], merges.heights)
