"""Dissimilarity increments (DID): co-association weighted by the features of objects.

The increment of a triplet ``x_i, x_j, x_k``, each the nearest neighbor of the one before, is
``|d(x_i, x_j) - d(x_j, x_k)|``. Within a cluster it follows, with mean lambda, the law of the difference of
two Rayleigh distances (Aidos and Fred), and lambda is estimated from the edges of the cluster's minimum
spanning tree. `did_matrix` weights two objects of a cluster by the relative likelihood of the increment they
form with the nearest neighbor of the second; `did_ranking` ranks partitions by the description length of the
increments of their clusters. Distances are Euclidean.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.counts import NORMALIZATIONS, PAIRS_PER_TASK
from bigcons.errors import InvalidInputError
from bigcons.io.features import Features, open_features
from bigcons.memory import Block, DataBudget, parse_size, row_blocks
from bigcons.run.engine import map_with_progress, open_engine
from bigcons.store.ensemble import as_ensemble
from bigcons.validation import check_choice, check_flag, check_partition_weights

CHOICES = ("vertex", "sorted")
PAIR_MODELS = ("increments", "coassociation")

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
    pair_model: str = "increments",
    memory: Any = "4GB",
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
        contribute, and ``exclude_self`` and ``increments`` do not apply.
    memory
        Budget; MemoryBudgetError if the matrix does not fit.

    O(n^2 (d + M) + d sum of squared cluster sizes) time, on all workers; 8 n^2 bytes. A matrix that does not
    fit raises MemoryBudgetError before it is computed.

    Examples
    --------
    >>> import bigcons as bc
    >>> features = [[0.0], [0.1], [0.3], [5.0], [5.2], [5.3]]
    >>> labels = [[0, 0], [0, 0], [0, 0], [1, 1], [1, 1], [1, 1]]
    >>> bc.coassociation.did_matrix(features, labels)[0].round(2)
    array([0.7, 1. , 0.7, 0. , 0. , 0. ])
    """
    from scipy.spatial.distance import cdist

    check_choice("normalize", normalize, NORMALIZATIONS)
    check_choice("pair_model", pair_model, PAIR_MODELS)
    check_choice("increments", increments, CHOICES)
    check_flag("exclude_self", exclude_self)
    budget = memory if isinstance(memory, DataBudget) else DataBudget(parse_size(memory))
    ensemble, by_increments = as_ensemble(x), pair_model == "increments"
    n, M, offsets = ensemble.n_objects, ensemble.n_partitions, ensemble.offsets
    weights = np.ones(M) if weights is None else check_partition_weights(weights, M)
    with open_engine(client) as engine:
        source = _open_points(features, n)
        # labels and features, held and being read; of each pair in flight distance, sums, masks, terms
        n_bytes = n * (M * (2 * ensemble.dtype.itemsize + 9 + 12 * exclude_self) + 16 * source.n_features)
        n_bytes += PAIRS_PER_TASK * 100 * engine.in_flight
        subject = f"the increments of all pairs of {n:,} objects"
        budget.check(n_bytes + 8 * n**2, subject, "use eac-single, which needs labels only")
        points = np.ascontiguousarray(source.read(0, n), np.float64)
        labels = np.array(ensemble.read(0, n).T, order="C")
        observed = labels >= 0 if normalize == "observed" else None
        # of clusters their mean increments, of objects the nearest neighbor in the cluster and its distance
        means, to_nearest = np.zeros(ensemble.n_base_clusters), np.full((M, n), np.inf)
        n_excluding = M if exclude_self else 0
        nearest, to_next = np.full((n_excluding, n), -1, np.int32), np.full((n_excluding, n), np.inf)

        def measure(cluster: tuple[int, np.ndarray]) -> tuple[float, SpanningTree] | None:
            _, members = cluster
            if len(members) < 3:
                return None
            tree = spanning_tree(points[members])
            return float(tree.increments(increments).mean()), tree

        partitions = range(M if by_increments else 0)
        clusters = [(u, members) for u in partitions for members in _clusters_of(labels[u])]
        results = map_with_progress(engine, measure, clusters, "increments", "clusters")
        for (u, members), cluster in results:
            if cluster is None:  # too small to have increments
                labels[u, members] = -1
                continue
            means[offsets[u] + labels[u, members[0]]], tree = cluster
            to_nearest[u, members] = tree.distance
            if exclude_self:
                nearest[u, members], to_next[u, members] = members[tree.nearest], tree.next_distance

        def rows_of_band(band: Block) -> np.ndarray:
            """Return the rows of the matrix of a band of objects."""
            part = slice(band.start, band.stop)
            distances = cdist(points[part], points)
            total = np.zeros(distances.shape)
            divisors = np.full(distances.shape, weights.sum() if observed is None else 0.0)
            for u, weight in enumerate(weights):
                if observed is not None:
                    divisors += weight * (observed[u, part, None] & observed[u])
                i, j = np.nonzero((labels[u, part, None] == labels[u]) & (labels[u] >= 0))
                if not by_increments:
                    total[i, j] += weight
                    continue
                to_neighbor = to_nearest[u, j]
                if exclude_self:
                    to_neighbor = np.where(nearest[u, j] == i + band.start, to_next[u, j], to_neighbor)
                differences = np.abs(distances[i, j] - to_neighbor)
                total[i, j] += weight * increment_ratio(differences, means[offsets[u] + labels[u, j]])
            return np.divide(total, divisors, out=total, where=divisors > 0)

        matrix, bands = np.empty((n, n)), row_blocks(n, max(PAIRS_PER_TASK // n, 1))
        for band, rows in map_with_progress(engine, rows_of_band, bands, "increments of pairs"):
            matrix[band.start : band.stop] = rows
    return matrix


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
    ensemble = as_ensemble(x)
    check_choice("increments", increments, CHOICES)
    check_flag("label_code", label_code)
    n_objects = ensemble.n_objects
    points = np.ascontiguousarray(_open_points(features, n_objects).read(0, n_objects), np.float64)
    labels = ensemble.read(0, n_objects)

    def description_length(column: np.ndarray) -> float:
        n, total = np.count_nonzero(column >= 0), 0.0
        for members in _clusters_of(column):
            if len(members) >= 3:  # smaller clusters have no increment
                lengths = spanning_tree(points[members]).increments(increments)
                if lengths.any():
                    total -= float(log_increment_density(lengths, float(lengths.mean())).sum())
            total += 0.5 * np.log(n) + (len(members) * np.log(n / len(members)) if label_code else 0.0)
        return total

    columns = list(np.ascontiguousarray(labels.T))
    with open_engine(client) as engine:
        results = map_with_progress(engine, description_length, columns, "rank partitions", "partitions")
        lengths = np.array([length for _, length in results])
    return np.argsort(lengths, kind="stable"), lengths


def _open_points(features: Any, n_objects: int) -> Features:
    """Open features; raise InvalidInputError if they do not have ``n_objects`` rows."""
    source = open_features(features)
    if source.n_objects != n_objects:
        raise InvalidInputError(
            f"features have {source.n_objects:,} rows but the ensemble n_objects={n_objects}; "
            "give one row of features for each object, in the same order."
        )
    return source


def _clusters_of(labels: np.ndarray) -> list[np.ndarray]:
    """Return the ascending members of every cluster of a partition."""
    order = np.argsort(labels, kind="stable")[int((labels < 0).sum()) :]
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


# The law, and the tree of a cluster


def log_increment_density(w: np.ndarray, mean: float) -> np.ndarray:
    """Return the logarithm of the density ``p(w; lambda)`` of increments ``w >= 0`` with a mean above 0.

    The density falls from ``pi (2 - sqrt 2) / (2 sqrt 2 lambda)`` at 0. The paper's form, with
    ``exp(-s^2) erfc(s)`` written as ``exp(-2 s^2) erfcx(s)``, which does not underflow before its factor.
    """
    s, scale = _reduced(w, mean), np.sqrt(np.pi) * (2.0 - np.sqrt(2.0)) / (2.0 * np.sqrt(2.0) * mean)
    return np.log(np.sqrt(np.pi) * scale) - 2.0 * s * s + np.log(_factor(s))


def increment_ratio(w: np.ndarray, mean: float | np.ndarray) -> np.ndarray:
    """Return ``p(w; lambda) / p(0; lambda)``, from 1 to 0; for a mean of 0, 1 where w is 0 and else 0."""
    s = np.minimum(_reduced(w, mean), _FAR)  # where the ratio is 0 in float64 long before
    return np.exp(-2.0 * s * s) * _factor(s)


def _reduced(w: np.ndarray, mean: float | np.ndarray) -> np.ndarray:
    """Return ``s``, infinite where an increment is above a mean of 0."""
    w = np.asarray(w, np.float64)
    quotient = np.divide(w, mean, out=np.where(w > 0, np.inf, 0.0), where=np.asarray(mean) > 0)
    return quotient * (np.sqrt(np.pi) * (2.0 - np.sqrt(2.0)) / (2.0 * np.sqrt(2.0)))


def _factor(s: np.ndarray) -> np.ndarray:
    """Return ``2 s / sqrt(pi) + (1 - 2 s^2) erfcx(s)``: 1 at 0, falling as ``2 / (sqrt(pi) s)``."""
    from scipy.special import erfcx

    near, far = np.minimum(s, _FAR), np.maximum(s, _FAR)
    exact = 2.0 * near / np.sqrt(np.pi) + (1.0 - 2.0 * near * near) * erfcx(near)
    return np.where(s < _FAR, exact, 2.0 / (np.sqrt(np.pi) * far) * (1.0 - 1.0 / far**2))


class SpanningTree(NamedTuple):
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


def spanning_tree(points: np.ndarray) -> SpanningTree:
    """Return the tree of ``points (n, d)`` float64: exact, O(n^2 d) time and O(n) memory."""
    from bigcons.kernels.linkage import incident_edges, tree_and_neighbors

    n = len(points)
    parent, nearest = np.empty(n, np.int64), np.empty(n, np.int64)
    length, distance, next_distance = np.empty(n), np.empty(n), np.empty(n)
    tree_and_neighbors(points, parent, length, nearest, distance, next_distance)
    start, edges = np.empty(n + 1, np.int64), np.empty(2 * (n - 1))
    incident_edges(parent, length, start, edges)
    return SpanningTree(nearest, distance, next_distance, start, edges)
