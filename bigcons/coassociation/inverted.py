"""Linkage of many label rows through inverted lists, the rows of each base cluster.

Rows that share no base cluster have similarity 0. If base clusters are small, a row shares them with few
rows, and neither all pairs are compared nor any stored.

`single_link` finds the spanning tree by Borůvka's algorithm: in each round every component joins the one with
which it has the most similar pair of rows. Each row keeps its nearest rows, which tell this pair until they
are all in the row's own component; then it is searched again, outside of it.

`average_link` merges clusters that are each other's nearest, found through the profiles of clusters: how many
of their objects are in each base cluster. Their mean co-association is that of their profiles.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np

from bigcons.coassociation.counts import distance
from bigcons.coassociation.factorized import Weights
from bigcons.coassociation.linkage import Merges, single_merges, sorted_merges
from bigcons.execution.engine import Engine, local_engine
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


def average_link_bytes(rows: np.ndarray, engine: Engine, *, pooled: bool) -> int:
    """Return the memory that `average_link` needs besides ``rows``."""
    label = rows.itemsize + (48 if pooled else 28)  # lists, or profiles by cluster, by base cluster, gathered
    return label * rows.size + len(rows) * (BYTES_PER_ROW + 16 * engine.n_workers)


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


# Single link


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
        fewest = int(np.min(n_labels, initial=n_partitions))
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

    engine = local_engine(engine)
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
            largest = int(np.argmax(np.bincount(component)))
            wanted = best_outside(component, largest, near.rows, near.agree, near.seen, head, best)
    forest = Merges(*(np.concatenate(parts) for parts in zip(*kept, strict=True)))
    merges = single_merges(forest, n, apart=1.0)
    return Merges(lists.order[merges.first], lists.order[merges.second], merges.heights)


# Average link


class Profiles:
    """Clusters of label rows and the number of their objects in each base cluster: see the kernels."""

    def __init__(
        self, lists: Lists, n_objects: np.ndarray, gains: np.ndarray, times: np.ndarray, *, pooled: bool
    ) -> None:
        rows, n = lists.rows, len(lists.rows)
        known = rows >= 0
        self.points: np.ndarray = np.arange(n)
        self.gains: np.ndarray = gains
        self.times: np.ndarray = times
        self.sizes: np.ndarray = n_objects.astype(np.float64)
        self.labeled: np.ndarray = known * self.sizes[:, None] if pooled else np.empty((0, 0))
        self._begins = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        self._clusters = (rows + lists.offsets[:-1].astype(np.int32))[known]
        self._counts = np.repeat(n_objects.astype(np.int32), np.diff(self._begins))
        self._starts = np.zeros_like(lists.starts)
        self._pieces, self._shares = np.empty((2, len(self._clusters)), np.int32)
        self.nearest: np.ndarray = np.full(n, -1)
        self.most: np.ndarray = np.zeros(n)
        self.stale: np.ndarray = np.ones(n, bool)
        self.alive: np.ndarray = np.ones(n, bool)
        self._list()

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return int(np.count_nonzero(self.alive))

    def gather(self) -> None:
        """Make every cluster a single piece, and number the clusters anew."""
        from bigcons.kernels.average_link import gather_profiles

        begins = np.zeros(self.n_clusters + 1, np.int64)
        clusters, counts = np.empty_like(self._clusters), np.empty_like(self._counts)
        n_entries = gather_profiles(
            *(self._begins, self._clusters, self._counts, self.alive, self._following),
            *(len(self._starts) - 1, begins, clusters, counts),
        )
        self._begins, self._clusters, self._counts = begins, clusters[:n_entries], counts[:n_entries]
        number = np.cumsum(self.alive) - 1
        kept = self.alive
        self.points, self.sizes = self.points[kept], self.sizes[kept]
        self.labeled = self.labeled[kept] if len(self.labeled) else self.labeled
        self.nearest = np.where(self.nearest[kept] >= 0, number[self.nearest[kept]], -1)
        self.most, self.stale, self.alive = self.most[kept], self.stale[kept], np.ones(len(begins) - 1, bool)
        self._list()

    def _list(self) -> None:
        """List the pieces of each base cluster; every cluster is a piece."""
        from bigcons.kernels.average_link import list_pieces

        self._starts[:] = 0
        list_pieces(*(self._begins, self._clusters, self._counts, self._starts, self._pieces, self._shares))
        self._root = np.arange(len(self.points), dtype=np.int32)
        self._following = np.arange(len(self.points))

    def find_nearest(self, wanted: np.ndarray, engine: Engine) -> None:
        """Find the clusters most similar to the clusters ``wanted``."""
        from bigcons.kernels.average_link import nearest_clusters

        def find(block: Block) -> None:
            nearest_clusters(
                *(self._begins, self._clusters, self._counts, self._starts, self._pieces, self._shares),
                *(self.gains, self._root, self._following, self.sizes, self.labeled, self.times),
                *(wanted[block.start : block.stop], self.nearest, self.most),
            )

        for _ in engine.map(find, row_blocks(len(wanted), ROWS_PER_TASK)):
            pass
        self.stale[wanted] = False

    def merge(self) -> Merges:
        """Merge every two clusters that are each other's nearest; heights are similarities."""
        from bigcons.kernels.average_link import merge_reciprocal

        n = len(self.points)
        first, second, similarity = np.empty(n // 2, np.int64), np.empty(n // 2, np.int64), np.empty(n // 2)
        n_merges = merge_reciprocal(
            *(self.nearest, self.most, self.alive, self._root, self._following, self.sizes, self.labeled),
            *(self.stale, first, second, similarity),
        )
        return Merges(first[:n_merges], second[:n_merges], similarity[:n_merges])


def average_link(
    rows: np.ndarray,
    n_objects: np.ndarray,
    engine: Engine,
    weights: Weights | None = None,
    *,
    pooled: bool,
) -> Merges:
    """Return the average-link merges of label rows ``(n_rows, n_partitions)`` of ``n_objects`` each.

    The similarity of two clusters is the mean over their pairs of the share of partitions that join them, or,
    ``pooled``, the partitions that join a pair, over all pairs, divided by those that label both. Both are
    exact, and so are the merges: no union is nearer to a third cluster than the nearer of its parts. In each
    round all pairs of clusters merge that are each other's nearest, and only clusters whose nearest merged
    are searched again. Weights of base clusters are rounded to such a power of two that sums over pairs of
    objects are exact: of a million objects in 100 partitions of 20 clusters by about a millionth.
    """
    engine = local_engine(engine)
    lists = make_lists(rows)
    order, n_objects = lists.order, n_objects[lists.order]
    times = np.ones(rows.shape[1]) if weights is None else weights.partitions
    gains, unit = (np.ones(lists.offsets[-1], np.int64), 1.0)
    if weights is not None:
        gains, unit = _whole(weights, lists, n_objects)
    profiles = Profiles(lists, n_objects, gains, times, pooled=pooled)
    del lists
    n_seen = unit * (1.0 if pooled else float(times.sum()))
    n, heights = len(rows), np.zeros(len(rows))
    done = [Merges(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    with progress("average linkage", n - 1, "merges") as listener:
        while True:
            profiles.find_nearest(np.flatnonzero(profiles.alive & profiles.stale), engine)
            merges = profiles.merge()
            if not len(merges.first):  # after ties: of the most similar pairs, found anew, one is reciprocal
                most = profiles.most * profiles.alive
                if not most.any():
                    break
                profiles.find_nearest(np.flatnonzero(most == most.max()), engine)
                merges = profiles.merge()
            first, second = profiles.points[merges.first], profiles.points[merges.second]
            rises = np.maximum(heights[first], heights[second])  # by the last bits
            heights[first] = np.maximum(1.0 - merges.heights / n_seen, rises)
            done.append(Merges(first, second, heights[first]))
            listener.advance(len(first))
            if 2 * profiles.n_clusters <= len(profiles.points):
                profiles.gather()
    made = sorted_merges(*(np.concatenate(parts) for parts in zip(*done, strict=True)))
    merges = single_merges(made, n, apart=1.0)
    return Merges(order[merges.first], order[merges.second], merges.heights)


def _whole(weights: Weights, lists: Lists, n_objects: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the weights (B,) of the base clusters in lists in whole units, at least 1, and the units of 1.

    Their sums over all pairs of objects stay below 2^63.
    """
    widths = np.diff(lists.offsets)
    of_lists = np.arange(widths.sum()) + np.repeat(weights.offsets[:-1] - lists.offsets[:-1], widths)
    gains = weights.base_clusters[of_lists]
    before = np.concatenate([[0], np.cumsum(n_objects[lists.members])])[lists.starts]
    bits = 62 - int(np.ceil(np.log2(np.einsum("b,b->", gains, np.diff(before).astype(np.float64) ** 2))))
    return np.maximum(np.rint(np.ldexp(gains, bits)), 1.0).astype(np.int64), 2.0**bits
