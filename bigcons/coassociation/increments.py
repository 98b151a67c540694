"""Dissimilarity increments (DID): co-association weighted by the features of objects.

The increment of a triplet ``x_i, x_j, x_k``, each the nearest neighbor of the one before, is
``|d(x_i, x_j) - d(x_j, x_k)|``. Within a cluster it follows, with mean lambda, the law of the difference of
two Rayleigh distances (Aidos and Fred), and lambda is estimated from the edges of the cluster's minimum
spanning tree. `did_matrix` weights two objects of a cluster by the relative likelihood of the increment they
form with the nearest neighbor of the second; `did_ranking` ranks partitions by the description length of the
increments of their clusters. Distances are Euclidean.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.coassociation.counts import NORMALIZATIONS, PAIRS_PER_TASK
from bigcons.errors import InvalidInputError
from bigcons.memory import Block, DataBudget, parse_size, row_blocks
from bigcons.progress import progress
from bigcons.run.engine import Engine, open_engine
from bigcons.validation import check_choice, check_flag, check_partition_weights

if TYPE_CHECKING:
    from bigcons.io.features import Features
    from bigcons.store.ensemble import Ensemble

CHOICES = ("vertex", "sorted")
PAIR_MODELS = ("increments", "coassociation")

PairModel = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""``pair_model(w, means)``: the probabilities of pairs, from their increments and those of their clusters."""

# Beyond this, erfcx is replaced by its expansion: terms a million times their difference would cancel.
_FAR = 1e3


def did_matrix(
    features: Any,
    x: Any,
    *,
    normalize: str = "all",
    weights: Any = None,
    exclude_self: bool = False,
    increments: str = "vertex",
    pair_model: str | PairModel = "increments",
    memory: int | str = "4GB",
    client: object = None,
) -> np.ndarray:
    """Return the co-association by dissimilarity increments: ``(n_objects, n_objects)`` float64, asymmetric.

    Entry (i, j) is the mean over the partitions of the probability that i and j belong together: 0 where they
    are in different clusters, else what ``pair_model`` makes of their increment
    ``w = |d(x_i, x_j) - d(x_j, NN(x_j))|``, where NN is the nearest neighbor in the cluster. The diagonal
    follows the same formula, as in the paper's algorithm, and is not 1. Clusters of one or two objects
    contribute nothing.

    Parameters
    ----------
    features
        ``(n_objects, n_features)``: what `bigcons.io.features.open_features` takes. Distances are
        Euclidean, so scale features first.
    x
        The ensemble, or anything ``Ensemble.from_labels`` takes.
    normalize
        "all": divide by the number of partitions, as in the paper; "observed": by the number that label both
        objects.
    weights
        ``(n_partitions,)`` >= 0, by default equal.
    exclude_self
        Where ``NN(x_j)`` is ``x_i``, take the next neighbor, as the paper's text says; its algorithm and the
        default do not.
    increments
        Which edges of a cluster's minimum spanning tree form increments. "vertex": any two that meet at a
        vertex; "sorted": of these, only those adjacent in length. The paper does not say.
    pair_model
        "increments": ``p(w; lambda) / p(0; lambda)``, the paper's, with lambda the mean increment of the
        cluster. "coassociation": 1, which makes the matrix the plain co-association; here all clusters
        contribute, and ``exclude_self`` and ``increments`` do not apply. Or a function of two arrays
        ``(n,)``, increments and the means of their clusters (0 if its objects are evenly spaced), that
        returns probabilities ``(n,)`` from 0 to 1. It is called in several threads or processes at a time.
    memory
        Budget; MemoryBudgetError if the matrix does not fit.

    O(n^2 (d + M) + d sum of squared cluster sizes) time, on all workers; 8 n^2 bytes. A matrix that does not
    fit raises MemoryBudgetError before it is computed, a ``pair_model`` whose values are not probabilities
    InvalidInputError.

    Examples
    --------
    >>> import bigcons as bc
    >>> features = [[0.0], [0.1], [0.3], [5.0], [5.2], [5.3]]
    >>> labels = [[0, 0], [0, 0], [0, 0], [1, 1], [1, 1], [1, 1]]
    >>> bc.coassociation.did_matrix(features, labels)[0].round(2)
    array([0.7, 1. , 0.7, 0. , 0. , 0. ])
    """
    from bigcons.store.ensemble import as_ensemble

    ensemble = as_ensemble(x)
    check_choice("normalize", normalize, NORMALIZATIONS)
    check_increments(pair_model, increments, exclude_self)
    budget = DataBudget(parse_size(memory))
    with open_engine(client) as engine:
        source = open_points(features, ensemble.n_objects)
        held = model_bytes(ensemble, source, engine, exclude_self=exclude_self)
        check_matrix(held + 8 * ensemble.n_objects**2, budget, ensemble.n_objects)
        model = increment_model(
            source,
            ensemble,
            engine,
            weights=weights,
            by_observed=normalize == "observed",
            exclude_self=exclude_self,
            increments=increments,
            pair_model=pair_model,
        )
        return similarity_matrix(model, engine)


def did_ranking(
    features: Any, x: Any, *, increments: str = "vertex", label_code: bool = False, client: object = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rank partitions by the description length of the increments of their clusters (G-DID).

    Returns ``(order, lengths)``: the partitions, best first, and the description length of each in nats,

        DL(P) = - sum_k sum_w ln p(w; lambda_k) + (K / 2) ln n  [+ sum_k n_k ln(n / n_k)]

    over the K clusters of its n labeled objects and the increments w of each, the last term with
    ``label_code``. A reconstruction after Fred and Jain 2008: the source prints no formula. Clusters of fewer
    than three objects, and those whose increments are all 0, have no law and add their penalty only.
    Lengths of partitions with different numbers of labeled objects are not comparable. ``features``, ``x``
    and ``increments`` as for `did_matrix`. O(n_features sum of squared cluster sizes) time.

    Examples
    --------
    >>> import bigcons as bc
    >>> features = [[0.0], [0.1], [0.3], [5.0], [5.2], [5.3]]
    >>> labels = [[0, 0], [0, 1], [0, 0], [1, 1], [1, 0], [1, 1]]
    >>> order, lengths = bc.coassociation.did_ranking(features, labels)
    >>> order
    array([0, 1])
    """
    from bigcons.store.ensemble import as_ensemble

    ensemble = as_ensemble(x)
    check_choice("increments", increments, CHOICES)
    check_flag("label_code", label_code)
    points = read_points(open_points(features, ensemble.n_objects))
    labels = ensemble.read(0, ensemble.n_objects)
    task = partial(_description_length, points, increments, label_code)
    with open_engine(client) as engine, progress("rank partitions", ensemble.n_partitions) as listener:
        columns = (np.ascontiguousarray(labels[:, u]) for u in range(ensemble.n_partitions))
        lengths = np.empty(ensemble.n_partitions)
        for u, length in enumerate(engine.map(task, columns)):
            lengths[u] = length
            listener.advance(1)
    return np.argsort(lengths, kind="stable"), lengths


def _description_length(points: np.ndarray, increments: str, label_code: bool, labels: np.ndarray) -> float:
    n = int((labels >= 0).sum())
    total = 0.0
    for members in clusters_of(labels):
        if len(members) >= 3:  # smaller clusters have no increment
            found = cluster_tree(points[members]).increments(increments)
            if found.any():
                total -= float(log_increment_density(found, float(found.mean())).sum())
        total += 0.5 * np.log(n) + (len(members) * np.log(n / len(members)) if label_code else 0.0)
    return total


def check_increments(pair_model: str | PairModel, increments: str, exclude_self: bool) -> None:
    """Refuse unknown choices, and choices about increments where they are not used."""
    if not callable(pair_model):
        check_choice("pair_model", pair_model, PAIR_MODELS)
    check_choice("increments", increments, CHOICES)
    check_flag("exclude_self", exclude_self)
    if pair_model == "coassociation" and (exclude_self or increments != "vertex"):
        raise InvalidInputError(
            f"exclude_self={exclude_self}, increments={increments!r} with pair_model='coassociation', which "
            "has no increments; leave them out."
        )


def check_matrix(needed: int, budget: DataBudget, n_objects: int) -> None:
    """Raise MemoryBudgetError if a matrix does not fit, and name what does."""
    what = f"the increments of all pairs of {n_objects:,} objects"
    budget.check(needed, what, "use eac-single, which needs labels only")


# The increments of an ensemble, and the similarities they give


class IncrementModel(NamedTuple):
    """An ensemble and what the increments of its clusters need; its partitions are rows, each contiguous."""

    points: np.ndarray
    """(n_objects, n_features) float64."""
    labels: np.ndarray
    """(n_partitions, n_objects) base labels, -1 where missing or of a cluster without increments."""
    observed: np.ndarray | None
    """(n_partitions, n_objects) bool: labeled or not; None if similarity is divided by n_partitions."""
    offsets: np.ndarray
    """(n_partitions + 1,) first base cluster of each partition."""
    means: np.ndarray
    """(n_base_clusters,) float64 mean increments."""
    weights: np.ndarray
    """(n_partitions,) float64."""
    distance: np.ndarray
    """(n_partitions, n_objects) float64 distance to the nearest neighbor in the object's cluster."""
    nearest: np.ndarray | None
    """(n_partitions, n_objects) int32 that neighbor; None without ``exclude_self``."""
    next_distance: np.ndarray | None
    """(n_partitions, n_objects) float64 distance to the second nearest neighbor."""
    pair_model: PairModel | None
    """Probabilities of pairs from their increments; None if every pair of a cluster counts as 1."""


def open_points(features: Any, n_objects: int) -> Features:
    """Open features; raise InvalidInputError if they do not have ``n_objects`` rows."""
    from bigcons.io.features import open_features

    source = open_features(features)
    if source.n_objects != n_objects:
        raise InvalidInputError(
            f"features have {source.n_objects:,} rows but the ensemble n_objects={n_objects}; "
            "give one row of features for each object, in the same order."
        )
    return source


def read_points(features: Features) -> np.ndarray:
    """Return features as ``(n_objects, n_features)`` float64; refuse those whose distances overflow."""
    points = np.ascontiguousarray(features.read(0, features.n_objects), np.float64)
    largest = float(np.abs(points).max())
    most = 1e150  # sums of squared differences of up to a million such features do not overflow
    if largest > most:
        raise InvalidInputError(
            f"features are up to {largest:g}, whose squared distances overflow; "
            f"scale them to at most {most:g}."
        )
    return points


def model_bytes(ensemble: Ensemble, features: Features, engine: Engine, *, exclude_self: bool) -> int:
    """Return the memory of a model, with the labels and features being read and the pairs in flight."""
    per_label = 2 * ensemble.dtype.itemsize + 9 + 12 * exclude_self
    per_object = ensemble.n_partitions * per_label + 16 * features.n_features
    # of each pair: distance, sums, masks and the terms of the law
    return ensemble.n_objects * per_object + PAIRS_PER_TASK * 100 * engine.in_flight


def increment_model(
    features: Features,
    ensemble: Ensemble,
    engine: Engine,
    *,
    weights: Any,
    by_observed: bool,
    exclude_self: bool,
    increments: str,
    pair_model: str | PairModel,
) -> IncrementModel:
    """Measure the clusters of every partition: O(n_features sum of squared cluster sizes) time."""
    n_partitions = ensemble.n_partitions
    weights = np.ones(n_partitions) if weights is None else check_partition_weights(weights, n_partitions)
    points = read_points(features)
    labels = np.array(ensemble.read(0, ensemble.n_objects).T, order="C")
    observed = labels >= 0 if by_observed else None
    means, distance = np.zeros(ensemble.n_base_clusters), np.full(labels.shape, np.inf)
    nearest = np.full(labels.shape, -1, np.int32) if exclude_self else None
    next_distance = np.full(labels.shape, np.inf) if exclude_self else None
    model: PairModel | None = pair_model if callable(pair_model) else increment_ratio
    if pair_model == "coassociation":
        model = None
    measured = range(0 if model is None else len(labels))
    clusters = [(u, members) for u in measured for members in clusters_of(labels[u])]
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
        points, labels, observed, ensemble.offsets, means, weights, distance, nearest, next_distance, model
    )


def _tree_of(
    points: np.ndarray, increments: str, members: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the mean increment, distances, neighbors and next distances of a cluster; None if too small."""
    if len(members) < 3:
        return None
    tree = cluster_tree(points[members])
    return float(tree.increments(increments).mean()), tree.distance, tree.nearest, tree.next_distance


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


def _similarities(model: IncrementModel, distances: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return the similarity of objects ``i`` to ``j``; both broadcast to the shape of ``distances``."""
    total = np.zeros(distances.shape)
    seen = np.full(distances.shape, model.weights.sum() if model.observed is None else 0.0)
    for u, weight in enumerate(model.weights):
        if model.observed is not None:
            seen += weight * (model.observed[u, i] & model.observed[u, j])
        label = model.labels[u, j]
        joined = (model.labels[u, i] == label) & (label >= 0)
        if model.pair_model is None:
            total[joined] += weight
            continue
        to_neighbor = _where(joined, model.distance[u, j])
        if model.nearest is not None and model.next_distance is not None:
            is_other = _where(joined, model.nearest[u, j]) == _where(joined, i)
            to_neighbor = np.where(is_other, _where(joined, model.next_distance[u, j]), to_neighbor)
        means = _where(joined, model.means[model.offsets[u] + np.maximum(label, 0)])
        increments = np.abs(distances[joined] - to_neighbor)
        total[joined] += weight * _probabilities(model.pair_model, increments, means)
    return np.divide(total, seen, out=total, where=seen > 0)


def _probabilities(pair_model: PairModel, increments: np.ndarray, means: np.ndarray) -> np.ndarray:
    if pair_model is increment_ratio:
        return increment_ratio(increments, means)
    found = np.asarray(pair_model(increments, means))
    if found.shape != increments.shape or found.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"pair_model returned shape {found.shape} and type {found.dtype} for increments of shape "
            f"{increments.shape}; return one number for each."
        )
    wrong = ~((found >= 0) & (found <= 1 + 1e-9))
    if wrong.any():
        value, increment, mean = (array[wrong][0] for array in (found, increments, means))
        raise InvalidInputError(
            f"pair_model returned {value} for an increment of {increment:.6g} and a mean of {mean:.6g}; "
            "return probabilities from 0 to 1."
        )
    return found


def _where(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.broadcast_to(values, mask.shape)[mask]


# The law, and the tree of a cluster


def increment_density(w: np.ndarray, mean: float | np.ndarray) -> np.ndarray:
    """Return the density ``p(w; lambda)`` of increments ``w >= 0`` with the given mean, float64.

    Falls from ``pi (2 - sqrt 2) / (2 sqrt 2 lambda)`` at 0. The paper's form, with ``exp(-s^2) erfc(s)``
    written as ``exp(-2 s^2) erfcx(s)``, which does not underflow before its factor does.
    """
    return np.sqrt(np.pi) * _scale(mean) * increment_ratio(w, mean)


def increment_ratio(w: np.ndarray, mean: float | np.ndarray) -> np.ndarray:
    """Return ``p(w; lambda) / p(0; lambda)``, from 1 to 0; for a mean of 0, 1 where w is 0 and else 0."""
    s = np.minimum(_reduced(w, mean), _FAR)  # where the ratio is 0 in float64 long before
    return np.exp(-2.0 * s * s) * _factor(s)


def log_increment_density(w: np.ndarray, mean: float) -> np.ndarray:
    """Return the natural logarithm of the density, for a mean above 0."""
    s = _reduced(w, mean)
    return np.log(np.sqrt(np.pi) * _scale(mean)) - 2.0 * s * s + np.log(_factor(s))


def _scale(mean: float | np.ndarray) -> float | np.ndarray:
    return np.sqrt(np.pi) * (2.0 - np.sqrt(2.0)) / (2.0 * np.sqrt(2.0) * mean)


def _reduced(w: np.ndarray, mean: float | np.ndarray) -> np.ndarray:
    """Return ``s``, infinite where an increment is above a mean of 0."""
    w = np.asarray(w, np.float64)
    quotient = np.divide(w, mean, out=np.where(w > 0, np.inf, 0.0), where=np.asarray(mean) > 0)
    return quotient * _scale(1.0)


def _factor(s: np.ndarray) -> np.ndarray:
    """Return ``2 s / sqrt(pi) + (1 - 2 s^2) erfcx(s)``: 1 at 0, falling as ``2 / (sqrt(pi) s)``."""
    from scipy.special import erfcx

    near, far = np.minimum(s, _FAR), np.maximum(s, _FAR)
    exact = 2.0 * near / np.sqrt(np.pi) + (1.0 - 2.0 * near * near) * erfcx(near)
    return np.where(s < _FAR, exact, 2.0 / (np.sqrt(np.pi) * far) * (1.0 - 1.0 / far**2))


class ClusterTree(NamedTuple):
    """The Euclidean minimum spanning tree of a cluster of n points, and its nearest neighbors."""

    nearest: np.ndarray
    """(n,) int64 the nearest other point, -1 if there is none."""
    distance: np.ndarray
    """(n,) float64 its distance, infinite if there is none."""
    next_distance: np.ndarray
    """(n,) float64 the distance of the second nearest."""
    start: np.ndarray
    """(n + 1,) int64 where the edges of each vertex begin in ``edges``."""
    edges: np.ndarray
    """(2 (n - 1),) float64 lengths of the edges at each vertex, ascending."""

    def increments(self, choice: str) -> np.ndarray:
        """Return the increments, vertex by vertex, float64: of a cluster of three points or more.

        "vertex": of all pairs of edges that meet at a vertex; "sorted": of those adjacent in length.
        """
        from bigcons.kernels.linkage import list_increments

        n_increments = list_increments(self.start, self.edges, choice == "vertex", np.empty(0))
        increments = np.empty(n_increments)
        list_increments(self.start, self.edges, choice == "vertex", increments)
        return increments


def cluster_tree(points: np.ndarray) -> ClusterTree:
    """Return the tree of ``points (n, d)`` float64: exact, O(n^2 d) time and O(n) memory."""
    from bigcons.kernels.linkage import incident_edges, tree_and_neighbors

    n = len(points)
    parent, nearest = np.empty(n, np.int64), np.empty(n, np.int64)
    length, distance, next_distance = np.empty(n), np.empty(n), np.empty(n)
    tree_and_neighbors(points, parent, length, nearest, distance, next_distance)
    start, edges = np.empty(n + 1, np.int64), np.empty(2 * (n - 1))
    incident_edges(parent, length, start, edges)
    return ClusterTree(nearest, distance, next_distance, start, edges)
