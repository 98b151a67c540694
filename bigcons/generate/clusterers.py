"""Clustering algorithms for data in memory: each makes one partition for every number of clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from bigcons.generate import similarities
from bigcons.partitioners import graph_of, partition_graph

Similarity = Callable[[np.ndarray, np.ndarray], np.ndarray]
Partitions = Callable[[np.ndarray, Sequence[int], np.random.Generator], list[np.ndarray]]

_MAX_ITER = 100
_IMBALANCE = 0.05
"""by how much a part of a graph may be above its share: 5 % in the paper"""
_SCALE_NEIGHBOR = 10


class Clusterer(NamedTuple):
    """An algorithm: ``make(points, numbers of clusters, generator)``, and what it holds in memory."""

    make: Partitions
    pair_bytes: int = 0
    """for every ordered pair of objects"""


def linkage(
    method: str,
    points: np.ndarray,
    numbers: Sequence[int],
    rng: np.random.Generator,  # noqa: ARG001 - nothing is drawn
) -> list[np.ndarray]:
    """Agglomerate by ``method`` and stop at each number of clusters."""
    from scipy.cluster import hierarchy

    tree = hierarchy.linkage(points, method)
    return [after_merges(tree, len(points), k) for k in numbers]


def after_merges(tree: np.ndarray, n_objects: int, n_clusters: int) -> np.ndarray:
    """Return the clusters after the first ``n_objects - n_clusters`` merges of a linkage.

    By the order of the merges and not by a height, for those of centroid linkage may fall.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n_merges = n_objects - n_clusters
    merged = tree[:n_merges, :2].astype(np.int64).ravel()
    nodes = n_objects + np.repeat(np.arange(n_merges), 2)
    n_nodes = n_objects + n_merges
    graph = coo_array((np.ones(len(nodes)), (merged, nodes)), shape=(n_nodes, n_nodes))
    labels: np.ndarray = connected_components(graph, directed=False)[1][:n_objects]
    return labels


def k_means(
    prepare: Callable[[np.ndarray], np.ndarray],
    points: np.ndarray,
    numbers: Sequence[int],
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Run k-means on ``prepare(points)`` once from random starts, for each number of clusters."""
    prepared = prepare(points)
    return [_k_means(prepared, k, rng, n_init=1) for k in numbers]


def _k_means(points: np.ndarray, k: int, rng: np.random.Generator, *, n_init: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    model = KMeans(k, init="random", n_init=n_init, max_iter=_MAX_ITER, random_state=int(rng.integers(2**31)))
    labels: np.ndarray = model.fit_predict(points)
    return labels


def jaccard_k_means(points: np.ndarray, numbers: Sequence[int], rng: np.random.Generator) -> list[np.ndarray]:
    """Assign every point to the mean it is most similar to and recompute the means, until nothing moves.

    No scaling of the points turns the extended Jaccard similarity into a distance between them and
    means, so scikit-learn has no part in it. That the loop ends before its 100 passes is not assured.
    """
    return [_jaccard_k_means(points, k, rng) for k in numbers]


def _jaccard_k_means(points: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    means = points[rng.choice(len(points), size=k, replace=False)]
    labels = np.full(len(points), -1)
    for _ in range(_MAX_ITER):
        nearest = similarities.jaccard(points, means).argmax(axis=1)
        if (nearest == labels).all():
            break
        labels = nearest
        sizes = np.bincount(labels, minlength=k)
        sums = np.zeros_like(means)
        np.add.at(sums, labels, points)
        means = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], means)
    return labels


def spectral(points: np.ndarray, numbers: Sequence[int], rng: np.random.Generator) -> list[np.ndarray]:
    """Cluster by Ng, Jordan and Weiss 2002: k-means on the rows, of length one, of k eigenvectors.

    The affinity is ``exp(-d^2 / (2 s^2))`` without its diagonal; s is the median distance to the tenth
    neighbor, which neither they nor Lourenço et al. fix.
    """
    from scipy.sparse.linalg import eigsh

    affinity = _affinity(points)
    degree = np.maximum(affinity.sum(axis=1), np.finfo(float).tiny)
    affinity /= np.sqrt(degree)[:, None]
    affinity /= np.sqrt(degree)
    start = rng.uniform(-1, 1, size=len(points))
    values, vectors = eigsh(affinity, k=max(numbers), which="LA", v0=start)
    vectors = vectors[:, np.argsort(values)[::-1]]
    return [_k_means(similarities.unit_rows(vectors[:, :k]), k, rng, n_init=10) for k in numbers]


def _affinity(points: np.ndarray) -> np.ndarray:
    from sklearn.metrics import pairwise_distances

    squared: np.ndarray = pairwise_distances(points, metric="sqeuclidean")
    neighbor = min(_SCALE_NEIGHBOR, len(points) - 1)
    near = np.partition(squared, neighbor, axis=1)[:, neighbor]
    scale = np.median(near[near > 0]) if (near > 0).any() else 1.0
    affinity = np.exp(squared / (-2 * scale))
    np.fill_diagonal(affinity, 0)
    return affinity


def graph_partition(
    similarity: Similarity, points: np.ndarray, numbers: Sequence[int], rng: np.random.Generator
) -> list[np.ndarray]:
    """Cut the graph of all similarities into parts of about equal size by METIS.

    Its weights are whole numbers, so similarities are rounded to a 10,000th of the largest, or more coarsely
    if their sum would not fit; those that are not positive are no edges.
    """
    graph = graph_of(similarity(points, points))
    return [partition_graph(graph, k, _IMBALANCE, int(rng.integers(2**31)))[0] for k in numbers]


def random_labels(points: np.ndarray, numbers: Sequence[int], rng: np.random.Generator) -> list[np.ndarray]:
    """Draw every label uniformly: what an algorithm that sees nothing would do."""
    return [rng.integers(k, size=len(points)) for k in numbers]


def _correlated(points: np.ndarray) -> np.ndarray:
    return similarities.unit_rows(similarities.centered_rows(points))


LINKAGES = ("single", "average", "ward", "centroid")

CLUSTERERS: dict[str, Clusterer] = {
    **{name: Clusterer(partial(linkage, name), pair_bytes=8) for name in LINKAGES},
    "spectral": Clusterer(spectral, pair_bytes=36),
    "kmeans": Clusterer(partial(k_means, np.asarray)),
    "kmeans-cosine": Clusterer(partial(k_means, similarities.unit_rows)),
    "kmeans-correlation": Clusterer(partial(k_means, _correlated)),
    "kmeans-jaccard": Clusterer(jaccard_k_means),
    "graph-euclidean": Clusterer(partial(graph_partition, similarities.euclidean), pair_bytes=48),
    "graph-cosine": Clusterer(partial(graph_partition, similarities.cosine), pair_bytes=48),
    "graph-correlation": Clusterer(partial(graph_partition, similarities.correlation), pair_bytes=48),
    "graph-jaccard": Clusterer(partial(graph_partition, similarities.jaccard), pair_bytes=48),
    "random": Clusterer(random_labels),
}
