"""What the increments of an ensemble's clusters say of pairs of objects: of all, or of some."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.coassociation.increments import CHOICES, cluster_tree, increment_ratio
from bigcons.errors import InvalidInputError
from bigcons.execution.engine import Engine
from bigcons.memory import Block, row_blocks
from bigcons.progress import progress
from bigcons.validation import check_choice, check_partition_weights

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble
    from bigcons.stores.features import Features

# A cluster of fewer objects has no increment and contributes nothing.
MIN_OBJECTS = 3

# The squares of differences of up to a million such features still add up.
MOST_FEATURE = 1e150

# Pairs of a task, and the bytes of each on the way: distance, sums, masks and what the law takes.
PAIRS_PER_TASK = 1 << 19
BYTES_PER_PAIR = 100


class IncrementModel(NamedTuple):
    """What increments ask of an ensemble and its features; partitions are rows here, for reading in runs."""

    points: np.ndarray
    """(n_objects, n_features) float64."""
    labels: np.ndarray
    """(n_partitions, n_objects) base labels, -1 where missing or of a cluster of fewer than three."""
    observed: np.ndarray | None
    """(n_partitions, n_objects) bool whether there is a label, if similarity is normalized by that."""
    offsets: np.ndarray
    """(n_partitions + 1,) first base cluster of each partition."""
    means: np.ndarray
    """(n_base_clusters,) float64 mean increments."""
    weights: np.ndarray
    """(n_partitions,) float64."""
    distance: np.ndarray
    """(n_partitions, n_objects) float64 distance to the nearest neighbor in the own cluster."""
    nearest: np.ndarray | None
    """(n_partitions, n_objects) int32 that neighbor, if the other object of a pair is no neighbor."""
    next_distance: np.ndarray | None
    """(n_partitions, n_objects) float64 distance to the one after."""


def open_points(features: Any, n_objects: int) -> Features:
    """Open features, refused if they are of other objects."""
    from bigcons.stores.features import open_features

    source = open_features(features)
    if source.n_objects != n_objects:
        raise InvalidInputError(
            f"features have {source.n_objects} rows but the ensemble n_objects={n_objects}; "
            "give one row of features for each object, in the same order."
        )
    return source


def read_points(features: Features) -> np.ndarray:
    """Return features as ``(n_objects, n_features)`` float64, refused if distances would overflow."""
    points = np.ascontiguousarray(features.read(0, features.n_objects), np.float64)
    largest = float(np.abs(points).max())
    if largest > MOST_FEATURE:
        raise InvalidInputError(
            f"features are up to {largest:g}, whose squared distances overflow; "
            f"scale them to at most {MOST_FEATURE:g}."
        )
    return points


def model_bytes(ensemble: Ensemble, features: Features, engine: Engine, *, exclude_self: bool) -> int:
    """Return the memory of a model, labels and features being read and the pairs under way included."""
    per_label = 2 * ensemble.dtype.itemsize + 9 + 12 * exclude_self
    per_object = ensemble.n_partitions * per_label + 16 * features.n_features
    return ensemble.n_objects * per_object + PAIRS_PER_TASK * BYTES_PER_PAIR * engine.in_flight


def increment_model(
    features: Features,
    ensemble: Ensemble,
    engine: Engine,
    *,
    weights: Any,
    by_observed: bool,
    exclude_self: bool,
    increments: str,
) -> IncrementModel:
    """Measure the clusters of every partition: O(sum of squared cluster sizes n_features) time."""
    check_choice("increments", increments, CHOICES)
    n_partitions = ensemble.n_partitions
    weights = np.ones(n_partitions) if weights is None else check_partition_weights(weights, n_partitions)
    points = read_points(features)
    labels = np.array(ensemble.read(0, ensemble.n_objects).T, order="C")
    observed = labels >= 0 if by_observed else None
    means, distance = np.zeros(ensemble.n_base_clusters), np.full(labels.shape, np.inf)
    nearest = np.full(labels.shape, -1, np.int32) if exclude_self else None
    next_distance = np.full(labels.shape, np.inf) if exclude_self else None
    clusters = [(u, members) for u in range(len(labels)) for members in clusters_of(labels[u])]
    trees = engine.map(partial(_tree_of, points, increments), (members for _, members in clusters))
    with progress("increments", len(clusters), "clusters") as listener:
        for (u, members), found in zip(clusters, trees, strict=True):
            if found is None:
                labels[u, members] = -1
                continue
            means[ensemble.offsets[u] + labels[u, members[0]]] = found[0]
            distance[u, members] = found[1]
            if nearest is not None and next_distance is not None:
                nearest[u, members] = members[found[2]]
                next_distance[u, members] = found[3]
            listener.advance(1)
    return IncrementModel(
        points, labels, observed, ensemble.offsets, means, weights, distance, nearest, next_distance
    )


def _tree_of(
    points: np.ndarray, increments: str, members: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the mean increment, distances, neighbors and next distances of a cluster; None if too small."""
    if len(members) < MIN_OBJECTS:
        return None
    tree = cluster_tree(points[members])
    return tree.mean(increments), tree.distance, tree.nearest, tree.next_distance


def clusters_of(labels: np.ndarray) -> list[np.ndarray]:
    """Return the ascending members of every cluster of a partition."""
    order = np.argsort(labels, kind="stable")[int((labels < 0).sum()) :]
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def similarity_matrix(model: IncrementModel, engine: Engine) -> np.ndarray:
    """Return the matrix of `did_matrix` from a model, band by band."""
    n = len(model.points)
    matrix = np.empty((n, n))
    bands = row_blocks(n, max(PAIRS_PER_TASK // n, 1))
    with progress("increments of pairs", n) as listener:
        for band, part in zip(bands, engine.map(partial(_band, model), bands), strict=True):
            matrix[band.start : band.stop] = part
            listener.advance(band.n_rows)
    return matrix


def _band(model: IncrementModel, band: Block) -> np.ndarray:
    from scipy.spatial.distance import cdist

    distances = cdist(model.points[band.start : band.stop], model.points)
    i, j = np.arange(band.start, band.stop)[:, None], np.arange(len(model.points))[None, :]
    return _similarities(model, distances, i, j)


def similarity_of_pairs(
    model: IncrementModel, i: np.ndarray, j: np.ndarray, engine: Engine
) -> tuple[np.ndarray, np.ndarray]:
    """Return the entries ``(i, j)`` and ``(j, i)`` of `did_matrix` for pairs, each ``(n_pairs,)`` float64."""
    blocks = row_blocks(len(i), PAIRS_PER_TASK)
    forward, backward = np.empty(len(i)), np.empty(len(i))
    items = ((i[block.start : block.stop], j[block.start : block.stop]) for block in blocks)
    with progress("increments of pairs", len(i), "pairs") as listener:
        for block, parts in zip(blocks, engine.map(partial(_pairs, model), items), strict=True):
            forward[block.start : block.stop], backward[block.start : block.stop] = parts
            listener.advance(block.n_rows)
    return forward, backward


def _pairs(model: IncrementModel, pairs: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    i, j = pairs
    squares = np.zeros(len(i))
    for column in model.points.T:
        squares += (column[i] - column[j]) ** 2
    distances = np.sqrt(squares)
    return _similarities(model, distances, i, j), _similarities(model, distances, j, i)


def _similarities(model: IncrementModel, distances: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return the similarity of objects ``i`` to ``j``; both broadcast to the shape of ``distances``."""
    total = np.zeros(distances.shape)
    seen = np.full(distances.shape, model.weights.sum() if model.observed is None else 0.0)
    for u, weight in enumerate(model.weights):
        if model.observed is not None:
            seen += weight * (model.observed[u, i] & model.observed[u, j])
        label = model.labels[u, j]
        joined = (model.labels[u, i] == label) & (label >= 0)
        to_neighbor = _where(joined, model.distance[u, j])
        if model.nearest is not None and model.next_distance is not None:
            is_other = _where(joined, model.nearest[u, j]) == _where(joined, i)
            to_neighbor = np.where(is_other, _where(joined, model.next_distance[u, j]), to_neighbor)
        means = _where(joined, model.means[model.offsets[u] + np.maximum(label, 0)])
        total[joined] += weight * increment_ratio(np.abs(distances[joined] - to_neighbor), means)
    return np.divide(total, seen, out=total, where=seen > 0)


def _where(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.broadcast_to(values, mask.shape)[mask]
