"""Agglomerative clustering of weighted points: the merges in order, and where to cut them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

MONOTONE = ("single", "complete", "average", "ward")  # the place of each is its number in the kernel
LINKAGES = (*MONOTONE, "centroid")


class Merges(NamedTuple):
    """The merges of n points into one cluster, as they are made; three arrays ``(n - 1,)``."""

    first: np.ndarray
    """A point of one of the two clusters, int64."""
    second: np.ndarray
    """A point of the other."""
    heights: np.ndarray
    """The distance at which they merge, float64; ascending but for "centroid"."""


def sorted_merges(first: np.ndarray, second: np.ndarray, heights: np.ndarray) -> Merges:
    """Return merges by ascending height; of equals the one found first comes first."""
    order = np.argsort(heights, kind="stable")
    return Merges(first[order], second[order], heights[order])


def agglomerate(
    distances: np.ndarray, linkage: str, weights: np.ndarray | None = None, within: np.ndarray | None = None
) -> Merges:
    """Merge n points, given by condensed ``distances`` (n (n - 1) / 2,) float64, which are overwritten.

    Point i stands for ``weights[i]`` objects that are ``within[i]`` of each other (default 1 and 0), no
    further than any of them is from any other object; then the merges are those that scipy's linkage finds
    for all objects, less those of the objects of one point, up to the order of ties. "ward" and "centroid"
    take the distances for Euclidean ones, as scipy does. "centroid" merges the objects of a point before
    all others, as scipy must only if they are at distance 0. O(n^2) time, for "centroid" O(n^3) at worst; no
    memory beside the distances.
    """
    from bigcons.kernels.linkage import centroid_merges, chain_merges

    n = 1 + int(np.sqrt(2 * len(distances)) + 0.5) if len(distances) else 1
    sizes = np.ones(n) if weights is None else weights.astype(np.float64)
    within = np.zeros(n) if within is None else within
    first, second, heights = np.empty(n - 1, np.int64), np.empty(n - 1, np.int64), np.empty(n - 1)
    if linkage == "centroid":
        _square_between_centers(distances, sizes, within)
        centroid_merges(distances, sizes, first, second, heights)
        return Merges(first, second, heights)
    if linkage == "ward" and weights is not None:
        _begin_ward(distances, sizes, within)
    chain_merges(distances, sizes, MONOTONE.index(linkage), first, second, heights)
    return sorted_merges(first, second, heights)


def _begin_ward(distances: np.ndarray, sizes: np.ndarray, within: np.ndarray) -> None:
    """Turn distances of points into Ward's of the clusters that they stand for, row by row.

    Its square is ``2 p q / (p + q)`` times the squared distance of the centers.
    """
    _square_between_centers(distances, sizes, within)
    for i, row in enumerate(_rows_of(distances, len(sizes))):
        others = sizes[i + 1 :]
        row[:] = np.sqrt(2 * sizes[i] * others / (sizes[i] + others) * row)


def _square_between_centers(distances: np.ndarray, sizes: np.ndarray, within: np.ndarray) -> None:
    """Turn distances of points into squared ones of the centers of the clusters that they stand for.

    These are the mean squared distance between the clusters less half that within each.
    """
    spread = within**2 * (sizes - 1) / (2 * sizes)
    for i, row in enumerate(_rows_of(distances, len(sizes))):
        row[:] = row**2 - spread[i] - spread[i + 1 :]


def _rows_of(distances: np.ndarray, n_points: int) -> Iterator[np.ndarray]:
    """Yield the distances of each point with those after it, as views."""
    filled = 0
    for n_others in range(n_points - 1, 0, -1):
        yield distances[filled : filled + n_others]
        filled += n_others


def single_merges(edges: Merges, n_points: int, *, apart: float) -> Merges:
    """Return the single-link merges of ``n_points`` of which only some pairs have a distance: ``edges``.

    Exact on the graph of these pairs, which come in any order, by a minimum spanning forest; what the graph
    leaves apart merges at distance ``apart``, in the order of first points. O(n_pairs log n_pairs) time.
    """
    forest = spanning_forest(edges, n_points)
    ends = np.unique(cut(forest, n_points), return_index=True)[1][1:]
    return Merges(
        np.append(forest.first, np.zeros(len(ends), np.int64)),
        np.append(forest.second, ends),
        np.append(forest.heights, np.full(len(ends), apart)),
    )


def spanning_forest(edges: Merges, n_points: int) -> Merges:
    """Return the edges of a minimum spanning forest, ascending; of equals the ones given first."""
    from bigcons.kernels.linkage import union_merges

    edges = sorted_merges(*edges)
    kept = np.empty(len(edges.heights), bool)
    union_merges(edges.first, edges.second, np.arange(n_points), kept)
    return Merges(*(column[kept] for column in edges))


def cut(merges: Merges, n_points: int, n_clusters: int = 1) -> np.ndarray:
    """Return the labels ``(n_points,)`` int32 when ``n_clusters`` are left, numbered by their first points.

    The merges may be those of a forest; then there are at least as many clusters as it has trees.
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
    """Return the number of clusters that stays the same over the widest range of heights (Fred, Jain 2005).

    ``heights`` (n - 1,) are ascending. Of k = 2 .. n - 1 clusters the lifetime is the gap between the merge
    that leads to k and the one that ends it; at most ``most`` are considered. ``below``, at most the first
    height, is the one at which the n points were formed and lets k = n be considered; ``above``, at least
    the last, is where the one cluster ends and lets k = 1. ``tie`` "more" takes the larger k, as the
    reference implementation did, "fewer" the smaller.
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
    """Return the merges as scipy's linkage matrix ``(n - 1, 4)``, the last column counting ``weights``.

    Merge t makes cluster n + t; scipy.cluster.hierarchy draws and cuts such a matrix.
    """
    from bigcons.kernels.linkage import number_clusters

    n = len(weights)
    matrix = np.empty((n - 1, 4))
    number_clusters(merges.first, merges.second, weights.astype(np.float64), matrix)
    matrix[:, 2] = merges.heights
    return matrix
