"""Co-association weighted by dissimilarity increments: partitions of objects seen through their features.

Each base cluster has a law of increments (see `increments`); two of its objects count as together by how
likely the increment is that they make with the nearest neighbor of the second. Distances are Euclidean.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bigcons.coassociation.increment_model import (
    MIN_OBJECTS,
    clusters_of,
    increment_model,
    model_bytes,
    open_points,
    read_points,
    similarity_matrix,
)
from bigcons.coassociation.increments import CHOICES, cluster_tree, log_increment_density
from bigcons.coassociation.similarity import NORMALIZATIONS
from bigcons.errors import MemoryBudgetError
from bigcons.execution.engine import open_engine
from bigcons.memory import format_size, parse_size
from bigcons.progress import progress
from bigcons.validation import check_choice, check_flag


def did_matrix(
    features: Any,
    x: Any,
    *,
    normalize: str = "all",
    weights: Any = None,
    exclude_self: bool = False,
    increments: str = "vertex",
    memory: int | str = "4GB",
    client: object = None,
) -> np.ndarray:
    """Return the co-association by dissimilarity increments, ``(n_objects, n_objects)`` float64, asymmetric.

    Entry (i, j) is the mean over the partitions of ``p(w; lambda) / p(0; lambda)`` where they join i and j,
    with ``w = |d(x_i, x_j) - d(x_j, NN(x_j))|``, lambda the mean increment of the cluster and NN the nearest
    neighbor in it. On the diagonal stands what that formula says, as in the paper's algorithm, not 1.

    Parameters
    ----------
    features
        ``(n_objects, n_features)``: what `bigcons.stores.features.open_features` takes. Distances are
        Euclidean, so scale them before.
    x
        The ensemble, or anything ``Ensemble.from_labels`` takes.
    normalize
        "all": divide by the number of partitions, as printed; "observed": by those that label both objects.
    weights
        (n_partitions,) >= 0 of the partitions, by default equal. One of weight 0 does not count.
    exclude_self
        Where ``NN(x_j)`` is ``x_i``, take the next neighbor. The paper's text says so, its algorithm, and
        the default, not.
    increments
        Which edges of a cluster's minimum spanning tree make increments: "vertex", every two that meet;
        "sorted", of those that meet at a vertex the neighbors in length. The paper leaves it open.
    memory
        Budget; refused with MemoryBudgetError if the matrix does not fit.

    Time O(n^2 (d + M) + sum of squared cluster sizes d), on all workers; 8 n^2 bytes.
    """
    from bigcons.stores.ensemble import as_ensemble

    ensemble = as_ensemble(x)
    check_choice("normalize", normalize, NORMALIZATIONS)
    check_flag("exclude_self", exclude_self)
    budget = parse_size(memory)
    with open_engine(client) as engine:
        source = open_points(features, ensemble.n_objects)
        held = model_bytes(ensemble, source, engine, exclude_self=exclude_self)
        refuse_matrix(held + 8 * ensemble.n_objects**2, budget, ensemble.n_objects)
        model = increment_model(
            source,
            ensemble,
            engine,
            weights=weights,
            by_observed=normalize == "observed",
            exclude_self=exclude_self,
            increments=increments,
        )
        return similarity_matrix(model, engine)


def did_ranking(
    features: Any, x: Any, *, increments: str = "vertex", label_code: bool = False, client: object = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rank partitions by how briefly the increments of their clusters are described (G-DID).

    Returns ``(order, lengths)``: partitions from the best on, and the description length of each in nats,

        DL(P) = - sum_k sum_w ln p(w; lambda_k) + (K / 2) ln n  [+ sum_k n_k ln(n / n_k)]

    over the K clusters of its n labeled objects and the increments w of each, the last term with
    ``label_code``. A reconstruction after Fred and Jain 2008: the source prints no formula. Clusters of fewer
    than three objects, and those whose increments are all 0, have no law and add their penalty only.
    Partitions of different numbers of labeled objects do not compare. ``features``, ``x`` and ``increments``
    as for `did_matrix`. Time O(sum of squared cluster sizes n_features).
    """
    from bigcons.stores.ensemble import as_ensemble

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
        if len(members) >= MIN_OBJECTS:
            tree = cluster_tree(points[members])
            mean = tree.mean(increments)
            if mean > 0:
                total -= float(log_increment_density(tree.increments(increments), mean).sum())
        total += 0.5 * np.log(n) + (len(members) * np.log(n / len(members)) if label_code else 0.0)
    return total


def refuse_matrix(needed: int, budget: int, n_objects: int) -> None:
    """Refuse a matrix that does not fit, naming what does."""
    if needed > budget:
        raise MemoryBudgetError(
            f"the increments of all pairs of {n_objects:,} objects need {format_size(needed)}, more than the "
            f"{format_size(budget)} there is for them; raise memory, or give DID sampled pairs and "
            "linkage='single'.",
            needed=needed,
            budget=budget,
        )
