"""Ensembles of different algorithms on the same data, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from bigcons.errors import InvalidInputError
from bigcons.generate.training import check_range, fitted_kmeans, measure, quiet_scikit_learn
from bigcons.io.features import open_features
from bigcons.io.sources import columns_source
from bigcons.memory import beside_processes
from bigcons.partitioners import graph_of, partition_graph, partition_hypergraph
from bigcons.progress import progress
from bigcons.run.engine import one_thread
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.store.ensemble import Ensemble, ensemble_of
from bigcons.validation import check_choice, check_flag
from bigcons.version import __version__

Points = np.ndarray
Numbers = Sequence[int]
Partitions = list[np.ndarray]

Clusterer = Callable[[Points, Numbers, Generator], Partitions]
"""An algorithm, of points, numbers of clusters and a generator."""

Similarity = Callable[[Points, Points], np.ndarray]


def diverse(
    features: object,
    *,
    n_clusters: int | tuple[int, int] = (2, 10),
    algorithms: str | Sequence[str] = "pcc",
    standardize: bool = True,
    memory: int | float | str | None = None,
    random_state: SeedLike = None,
) -> Ensemble:
    """Return an ensemble of different algorithms, each for several numbers of clusters, in memory.

    Parameters
    ----------
    features
        As in `kmeans`, also of `bigcons.select`, which chooses columns and ids; held in memory as float64.
    n_clusters
        Number of clusters, or an inclusive range (low, high); each algorithm runs once for every number
        in it. The papers' tables are lost; the default is ours.
    algorithms
        Names, or the name of a set:

        "pcc" (ensembles of the second type of Lourenço et al. 2015): "single", "average", "ward" and
        "centroid" linkage, "kmeans", and "spectral" by Ng, Jordan and Weiss;

        "rcc" (robust centralized clustering of Strehl and Ghosh 2002): k-means by four distances,
        "kmeans", "kmeans-cosine", "kmeans-correlation", "kmeans-jaccard", balanced graph partitioning by
        four similarities, "graph-euclidean", "graph-cosine", "graph-correlation", "graph-jaccard", a
        self-organizing map, "som", and "hypergraph", a balanced cut of the hypergraph of features;

        and "random", their baseline of random labels.
    standardize
        Scale every column to mean 0 and variance 1; otherwise columns are unchanged. Constant columns
        are always dropped. Negative cosine and Jaccard similarities, common only in centered data, are
        not edges of a graph.
    memory
        Memory budget, as in `kmeans`.
    random_state
        Seed. The partitions of an algorithm depend on the seed, its name and ``n_clusters``, not on the
        other algorithms.

    Partitions are named after algorithm and number of clusters, such as "ward-3".

    Raises MemoryBudgetError, with the required size, if an algorithm on all pairs does not fit (beyond
    10,000 objects for linkage within 1.5 GB); InvalidInputError, and MissingDependencyError for graph
    partitioning without pymetis or "hypergraph" without mtkahypar. Cost: linkage, spectral clustering and
    graph partitioning take at least ``n_objects ** 2`` time, and 8, 36 and 48 bytes per ordered pair of
    objects.

    Examples
    --------
    >>> import bigcons as bc
    >>> features = [[0.0], [0.1], [0.2], [5.0], [5.1], [9.0]]
    >>> ensemble = bc.generate.diverse(features, n_clusters=(2, 3), algorithms=("single", "ward"))
    >>> ensemble.names
    ['single-2', 'single-3', 'ward-2', 'ward-3']
    >>> ensemble.read(0, 6).T
    array([[0, 0, 0, 1, 1, 1],
           [0, 0, 0, 1, 1, 2],
           [0, 0, 0, 1, 1, 1],
           [0, 0, 0, 1, 1, 2]], dtype=int8)
    """
    low, high = check_range(n_clusters)
    names = list(SETS.get(algorithms, (algorithms,)) if isinstance(algorithms, str) else algorithms)
    for name in names:
        check_choice("algorithms", name, tuple(CLUSTERERS))
    check_flag("standardize", standardize)
    budget = beside_processes(memory)
    seed, numbers = resolve_seed(random_state), range(low, high + 1)
    data = open_features(features)
    if high >= data.n_objects:
        raise InvalidInputError(
            f"n_clusters={high} but there are {data.n_objects:,} objects; use fewer clusters than objects."
        )
    points_bytes = 8 * data.n_objects * data.n_features
    for name in names:
        n_bytes = 4 * points_bytes + PAIR_BYTES.get(name.partition("-")[0], 0) * data.n_objects**2
        budget.check(n_bytes, f"points and pairs of {name!r}", "sample the objects, or use generate.kmeans")
    scaling = measure(data, standardize=standardize)[0]
    points = np.empty((data.n_objects, scaling.width))
    for block, values in data.iterate(gaps=True):
        points[block.start : block.stop] = scaling.apply(values, scaled=False)
    if standardize:  # centered only then, because angles depend on it
        columns = points[:, : len(scaling.kept)]
        columns -= scaling.mean
        columns /= scaling.scale
    partitions: list[np.ndarray] = []  # by algorithm, then by number of clusters
    with quiet_scikit_learn(), progress("run algorithms", len(names), "algorithms") as listener:
        for name in names:
            rng = generator(seed, f"generate.diverse.{name}")
            with one_thread():
                partitions += CLUSTERERS[name](points, numbers, rng)
            listener.advance(1)
    titles = [f"{name}-{k}" for name in names for k in numbers]
    table = columns_source(partitions, data.n_objects, titles, ids=data.ids)
    provenance = {
        "generator": "diverse",
        "n_clusters": [low, high],
        "algorithms": names,
        "standardize": standardize,
        "seed": seed,
        "read": data.options,
        "source": data.where,
        "bigcons": __version__,
    }
    return ensemble_of(table, provenance=provenance)


# The algorithms


def linkage(method: str, points: Points, numbers: Numbers, _: Generator) -> Partitions:
    """Cut the dendrogram of ``method`` at each number of clusters."""
    from scipy.cluster import hierarchy

    tree = hierarchy.linkage(points, method)
    return [after_merges(tree, len(points), k) for k in numbers]


def after_merges(tree: np.ndarray, n_objects: int, n_clusters: int) -> np.ndarray:
    """Return the clusters after the first ``n_objects - n_clusters`` merges of a linkage.

    Cuts by the order of merges, not by height, because centroid linkage has inversions.
    """
    labels = np.arange(2 * n_objects)
    for step in range(n_objects - n_clusters - 1, -1, -1):
        labels[tree[step, :2].astype(np.int64)] = labels[n_objects + step]  # of what they are merged into
    _, first, clusters = np.unique(labels[:n_objects], return_index=True, return_inverse=True)
    return first.argsort().argsort()[clusters]  # in the order of their first objects


def k_means(
    prepare: Callable[[Points], Points], points: Points, numbers: Numbers, rng: Generator
) -> Partitions:
    """Run k-means on ``prepare(points)`` once from a random start, for each number of clusters."""
    data = prepare(points)
    return [fitted_kmeans(data.copy(), k, rng, "random").labels_ for k in numbers]


def jaccard_k_means(points: Points, numbers: Numbers, rng: Generator) -> Partitions:
    """Run Lloyd's algorithm with the extended Jaccard similarity, for each number of clusters.

    No scaling of the points turns this similarity into a Euclidean distance, so scikit-learn does not apply.
    Convergence within the 100 iterations is not guaranteed.
    """
    partitions = []
    for k in numbers:
        means, labels = points[rng.choice(len(points), size=k, replace=False)], np.full(len(points), -1)
        for _ in range(100):
            previous, labels = labels, jaccard(points, means).argmax(axis=1)
            if (previous == labels).all():
                break
            sizes, sums = np.bincount(labels, minlength=k), np.zeros_like(means)
            np.add.at(sums, labels, points)
            means = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], means)
        partitions.append(labels)
    return partitions


def spectral(points: Points, numbers: Numbers, rng: Generator) -> Partitions:
    """Spectral clustering of Ng, Jordan and Weiss 2002: k-means on the normalized rows of k eigenvectors.

    The affinity is ``exp(-d^2 / (2 s^2))`` with a zero diagonal; s, which neither they nor Lourenço et al.
    specify, is the median distance to the tenth neighbor.
    """
    from scipy.sparse.linalg import eigsh
    from sklearn.metrics import pairwise_distances

    squared: np.ndarray = pairwise_distances(points, metric="sqeuclidean")
    neighbor = min(10, len(points) - 1)
    radii = np.partition(squared, neighbor, axis=1)[:, neighbor]
    scale = np.median(radii[radii > 0]) if (radii > 0).any() else 1.0
    affinity = np.exp(squared / (-2 * scale))
    np.fill_diagonal(affinity, 0)
    degree = np.maximum(affinity.sum(axis=1), np.finfo(float).tiny)
    affinity /= np.sqrt(degree)[:, None]
    affinity /= np.sqrt(degree)
    start = rng.uniform(-1, 1, size=len(points))
    values, vectors = eigsh(affinity, k=max(numbers), which="LA", v0=start)
    vectors = vectors[:, np.argsort(values)[::-1]]
    rows = (unit_rows(vectors[:, :k]) for k in numbers)
    return [fitted_kmeans(columns, columns.shape[1], rng, "random", n_init=10).labels_ for columns in rows]


def graph_partition(similarity: Similarity, points: Points, numbers: Numbers, rng: Generator) -> Partitions:
    """Partition the graph of all similarities into parts of about equal size by METIS.

    METIS takes integer weights, so similarities are rounded to a 10,000th of the largest, or more coarsely
    if their sum would overflow. Nonpositive similarities are not edges.
    """
    graph = graph_of(similarity(points, points))
    # the paper's allowed excess of a part over its share
    return [partition_graph(graph, k, int(rng.integers(2**31))) for k in numbers]


def self_organizing_map(points: Points, numbers: Numbers, rng: Generator) -> Partitions:
    """Cluster by the units of a self-organizing map in a row, in 10 rounds of the online rule."""
    partitions = []
    for k in numbers:
        units = points[rng.choice(len(points), k)]
        units += 0.01 * points.std() * rng.normal(size=units.shape)
        n_steps, place = 10 * len(points), np.arange(k)
        for step in range(n_steps):
            rate = 1 - step / n_steps
            row = points[rng.integers(len(points))]
            winner = ((units - row) ** 2).sum(axis=1).argmin()
            closeness = np.exp(-((place - winner) ** 2) / (2 * (0.3 + rate * k / 4) ** 2))
            units += (0.5 * rate * closeness)[:, None] * (row - units)
        partitions.append(((units**2).sum(axis=1) - 2 * points @ units.T).argmin(axis=1))
    return partitions


def hypergraph_of_features(points: Points, numbers: Numbers, rng: Generator) -> Partitions:
    """Cut the hypergraph of features, each an edge of the objects above its median, by Mt-KaHyPar.

    Of counts, most of which are 0, these are the documents with a word.
    """
    is_above = points > np.median(points, axis=0)
    pins = [np.flatnonzero(column) for column in is_above.T if column.any()]
    cut = partial(partition_hypergraph, pins, np.ones(len(pins)), np.ones(len(points), np.int64))
    return [cut(k, int(rng.integers(2**31)), "km1")[0] for k in numbers]


def random_labels(points: Points, numbers: Numbers, rng: Generator) -> Partitions:
    """Draw every label uniformly at random."""
    return [rng.integers(k, size=len(points)) for k in numbers]


# The four similarities of robust centralized clustering, between two sets of points


def euclidean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``exp(-|x - y|^2)``."""
    from sklearn.metrics import pairwise_distances

    return np.exp(-pairwise_distances(a, b, metric="sqeuclidean"))


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``x.y / (|x| |y|)``, 0 for points at the origin."""
    return unit_rows(a) @ unit_rows(b).T


def correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``(r + 1) / 2`` with Pearson's r over the features, 1/2 for points whose features are all equal."""
    return (unit_deviations(a) @ unit_deviations(b).T + 1) / 2


def jaccard(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Extended Jaccard ``x.y / (|x|^2 + |y|^2 - x.y)``, 0 between two points at the origin."""
    product = a @ b.T
    union = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - product
    return np.divide(product, union, out=np.zeros_like(product), where=union > 0)


def unit_rows(points: np.ndarray) -> Any:
    """Return ``points`` scaled to length one; the origin stays."""
    from sklearn.preprocessing import normalize

    return normalize(points)


def unit_deviations(points: np.ndarray) -> Any:
    """Return ``points`` minus the mean of their features, scaled to length one."""
    return unit_rows(points - points.mean(axis=1, keepdims=True))


LINKAGES = ("single", "average", "ward", "centroid")
SIMILARITIES = {"euclidean": euclidean, "cosine": cosine, "correlation": correlation, "jaccard": jaccard}

CLUSTERERS: dict[str, Clusterer] = {
    **{name: partial(linkage, name) for name in LINKAGES},
    "spectral": spectral,
    "kmeans": partial(k_means, np.asarray),
    "kmeans-cosine": partial(k_means, unit_rows),
    "kmeans-correlation": partial(k_means, unit_deviations),
    "kmeans-jaccard": jaccard_k_means,
    **{f"graph-{name}": partial(graph_partition, closeness) for name, closeness in SIMILARITIES.items()},
    "som": self_organizing_map,
    "hypergraph": hypergraph_of_features,
    "random": random_labels,
}

PAIR_BYTES = {**dict.fromkeys(LINKAGES, 8), "spectral": 36, "graph": 48}
"""Bytes per ordered pair of objects, by the first word of an algorithm."""

SETS: dict[str, tuple[str, ...]] = {
    "pcc": (*LINKAGES, "kmeans", "spectral"),
    "rcc": tuple(name for name in CLUSTERERS if name.startswith(("kmeans", "graph", "som", "hyper"))),
}
"""Sets of algorithms by name."""
