"""Agglomerative clustering of label rows: the distinct rows, their merges in order, and where to cut them.

Objects with equal label rows cannot be told apart, so `unique_rows` collects each row once with its number of
objects, and `agglomerate` merges weighted points as scipy would merge the objects.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigcons.coassociation.counts import distance
from bigcons.memory import Block, DataBudget, row_blocks
from bigcons.progress import progress
from bigcons.run.engine import Engine
from bigcons.weights import Weights

if TYPE_CHECKING:
    from bigcons.store.ensemble import Ensemble

LINKAGES = ("single", "complete", "average", "ward")  # the position of each is its number in the kernel


# Distinct label rows


class UniqueRows(NamedTuple):
    """The distinct rows of an ensemble, numbered in the order in which they first appear."""

    labels: np.ndarray
    """(n_rows, n_partitions) the rows, each with a label."""
    weights: np.ndarray
    """(n_rows,) int64 number of objects of each."""
    row_of_object: np.ndarray
    """(n_objects,) int32 number of each object's row, -1 for objects without any label."""


def unique_rows(
    ensemble: Ensemble, engine: Engine, *, budget: DataBudget, remedy: str, weights: Weights | None = None
) -> UniqueRows:
    """Collect the distinct label rows in one pass; rows that differ in what is missing are distinct.

    Labels in partitions of weight 0 are missing. O(n_objects n_partitions) time; memory of 4 bytes per
    object, and twice the labels and 200 bytes for each distinct row. Raises MemoryBudgetError, with
    ``remedy`` as its advice, if that exceeds ``budget``.
    """
    numbers: dict[bytes, int] = {}
    row_of_object = np.empty(ensemble.n_objects, np.int32)
    row_bytes = ensemble.dtype.itemsize * ensemble.n_partitions
    blocks = ensemble.blocks()
    distinct = engine.map(partial(_distinct_of_block, ensemble, weights), blocks)
    with progress("distinct rows", ensemble.n_objects) as listener, closing(distinct):
        for block, (rows, number_in_block) in zip(blocks, distinct, strict=True):
            found = [numbers.setdefault(row.tobytes(), len(numbers)) for row in rows]
            needed = (2 * row_bytes + 200) * len(numbers) + row_of_object.nbytes
            budget.check(needed, f"the labels of {len(numbers):,} or more distinct rows", remedy)
            row_of_object[block.start : block.stop] = np.array([*found, -1], np.int32)[number_in_block]
            listener.advance(block.n_rows)
    labels = np.frombuffer(b"".join(numbers), ensemble.dtype).reshape(-1, ensemble.n_partitions)
    sizes = np.bincount(row_of_object[row_of_object >= 0], minlength=len(labels))
    return UniqueRows(labels, sizes, row_of_object)


def _distinct_of_block(
    ensemble: Ensemble, weights: Weights | None, block: Block
) -> tuple[np.ndarray, np.ndarray]:
    """Return a block's distinct rows that have a label, and the number of each object's row, -1 without."""
    labels = ensemble.read(block.start, block.stop)
    labels = np.ascontiguousarray(labels if weights is None else weights.counted(labels))
    labeled = np.flatnonzero((labels >= 0).any(axis=1))
    keys = labels.view(np.dtype((np.void, labels.dtype.itemsize * labels.shape[1])))[labeled, 0]
    _, first, code = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    numbers = np.full(block.n_rows, -1)
    numbers[labeled] = np.argsort(order)[code]
    return labels[labeled[first[order]]], numbers


def order_by_content(rows: UniqueRows, weights: Weights | None) -> np.ndarray:
    """Return an order (n_rows,) of distinct rows that their objects and labels tell, in which to break ties.

    The first rows have the most objects in their base clusters; if these are as many, the base clusters of
    those objects have the most. So it depends neither on the order of objects and partitions nor on the names
    of labels, except for rows alike in both, which stay in order. O(n_rows n_partitions) time.
    """
    times = np.ones(rows.labels.shape[1]) if weights is None else weights.partitions
    near = _summed_over_clusters(rows.labels, times, rows.weights)
    further = _summed_over_clusters(rows.labels, times, rows.weights * near)
    return np.lexsort((-further, -near))


def _summed_over_clusters(rows: np.ndarray, times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return for each row the values (n_rows,) of all rows in its base clusters, of partition u times[u]."""
    summed = np.zeros(len(rows))
    for labels, weight in zip(rows.T, times, strict=True):
        seen = labels >= 0
        summed[seen] += weight * np.bincount(labels[seen], values[seen])[labels[seen]]
    return summed


# Merges


class Merges(NamedTuple):
    """The merges of n points into one cluster, in the order they are made: three arrays ``(n - 1,)``."""

    first: np.ndarray
    """A point of one of the two clusters, int64."""
    second: np.ndarray
    """A point of the other."""
    heights: np.ndarray
    """The distance at which they merge, float64, ascending."""


def sorted_merges(first: np.ndarray, second: np.ndarray, heights: np.ndarray) -> Merges:
    """Return merges by ascending height; ties keep their order."""
    order = np.argsort(heights, kind="stable")
    return Merges(first[order], second[order], heights[order])


def agglomerate(
    distances: np.ndarray, linkage: str, weights: np.ndarray | None = None, within: np.ndarray | None = None
) -> Merges:
    """Merge n points, given by condensed ``distances`` (n (n - 1) / 2,) float64, which are overwritten.

    Point i stands for ``weights[i]`` objects at distance ``within[i]`` from each other (default 1 and 0),
    which is at most the distance of any of them to any other object. The merges are then those that scipy's
    linkage finds for all objects, without those inside a point, up to the order of ties. "ward" takes the
    distances to be Euclidean, as scipy does. O(n^2) time; no memory besides the distances.
    """
    from bigcons.kernels.linkage import chain_merges

    n = 1 + int(np.sqrt(2 * len(distances)) + 0.5) if len(distances) else 1
    sizes = np.ones(n) if weights is None else weights.astype(np.float64)
    within = np.zeros(n) if within is None else within
    first, second, heights = np.empty(n - 1, np.int64), np.empty(n - 1, np.int64), np.empty(n - 1)
    if linkage == "ward" and weights is not None:
        _begin_ward(distances, sizes, within)
    chain_merges(distances, sizes, LINKAGES.index(linkage), first, second, heights)
    return sorted_merges(first, second, heights)


def _begin_ward(distances: np.ndarray, sizes: np.ndarray, within: np.ndarray) -> None:
    """Turn distances of points into Ward distances of the clusters they stand for, row by row.

    The squared distance of the centers of two clusters is the mean squared distance between their objects
    less half that within each; that of Ward is ``2 p q / (p + q)`` times that.
    """
    spread, filled = within**2 * (sizes - 1) / (2 * sizes), 0
    for i in range(len(sizes) - 1):
        others = slice(i + 1, None)
        row = distances[filled : filled + len(sizes) - 1 - i]
        squares = row**2 - spread[i] - spread[others]
        row[:] = np.sqrt(2 * sizes[i] * sizes[others] / (sizes[i] + sizes[others]) * squares)
        filled += len(row)


def cut(merges: Merges, n_points: int, n_clusters: int = 1) -> np.ndarray:
    """Return the labels ``(n_points,)`` int32 at ``n_clusters`` clusters, numbered by their first points.

    The merges may be those of a forest; there are at least as many clusters as it has trees.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    made = slice(0, max(n_points - n_clusters, 0))
    edges = (merges.first[made], merges.second[made])
    graph = coo_array((np.ones(len(edges[0]), bool), edges), shape=(n_points, n_points))
    labels = connected_components(graph, directed=False)[1]
    _, first, code = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[code].astype(np.int32)


def largest_lifetime(
    heights: np.ndarray, *, most: int, below: float | None, above: float | None, tie: str
) -> int:
    """Return the number of clusters with the largest lifetime (Fred and Jain 2005).

    ``heights`` (n - 1,) are ascending. The lifetime of k clusters is the gap between the merge that leads to
    k and the one that ends it, for k = 2 .. n - 1 up to ``most``. ``below``, at most the first height, is
    where the n points were formed and admits k = n; ``above``, at least the last, is where the single cluster
    ends and admits k = 1. On a tie ``tie`` "more" takes the larger k, as the authors' implementation did,
    "fewer" the smaller.
    """
    ends = [np.empty(0) if end is None else np.array([end]) for end in (below, above)]
    lifetimes = np.diff(np.concatenate([ends[0], heights, ends[1]]))
    largest = len(heights) + (below is not None)
    numbers = np.arange(largest, largest - len(lifetimes), -1)
    lifetimes, numbers = lifetimes[numbers <= most], numbers[numbers <= most]
    if not len(lifetimes):
        return min(most, len(heights) + 1)
    longest = np.flatnonzero(lifetimes == lifetimes.max())
    return int(numbers[longest[0 if tie == "more" else -1]])


def linkage_matrix(merges: Merges, weights: np.ndarray) -> np.ndarray:
    """Return the merges as scipy's linkage matrix ``(n - 1, 4)``, whose last column sums ``weights``.

    Merge t forms cluster n + t; scipy.cluster.hierarchy draws and cuts such a matrix.
    """
    from bigcons.kernels.linkage import number_clusters

    n = len(weights)
    matrix = np.empty((n - 1, 4))
    number_clusters(merges.first, merges.second, weights.astype(np.float64), matrix)
    matrix[:, 2] = merges.heights
    return matrix


# Single link


def single_link(rows: np.ndarray, normalize: str) -> Merges:
    """Return the single-link merges of label rows ``(n, n_partitions)``, from their spanning tree.

    Exact, in O(n) memory and O(n^2 n_partitions) time.
    """
    from bigcons.kernels.linkage import grow_tree

    n, over_all = len(rows), normalize == "all"
    first, second, n_agree, n_seen = np.zeros(
        (4, n), np.int64
    )  # of the edge by which each row joins the tree
    agree, seen, nearest, in_tree = (
        np.full(n, -1),
        np.ones(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, bool),
    )
    with progress("spanning tree", n - 1, "edges") as listener:
        for edges in row_blocks(n - 1, 1 << 8):  # progress is reported in between
            state = agree, seen, nearest, in_tree
            grow_tree(rows, over_all, edges.start, edges.stop, *state, first, second, n_agree, n_seen)
            listener.advance(edges.n_rows)
    return sorted_merges(first[1:], second[1:], distance(n_agree[1:], n_seen[1:], rows.shape[1], normalize))
