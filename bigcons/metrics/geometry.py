"""Orders and criteria from distances between objects."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.io.features import Features, open_features
from bigcons.io.labels import names_of_rows, refuse_other_rows
from bigcons.memory import TILE_ROWS, Block
from bigcons.metrics.clusterings import LabelColumn
from bigcons.progress import progress
from bigcons.run.engine import fold, open_engine
from bigcons.validation import check_choice

METRICS = ("euclidean", "sqeuclidean", "cityblock")


def vat_order(dissimilarities: np.ndarray) -> np.ndarray:
    """Return the order of objects in which clusters show as blocks on the diagonal (VAT).

    Bezdek and Hathaway (2002): begin at one end of the largest dissimilarity, then repeatedly append the
    object nearest to those already placed (Prim's algorithm). Ties go to the lower index.

    ``dissimilarities`` is ``(n, n)`` and symmetric, for example ``1 - n_agree / n_seen``; NaN, for pairs
    that no partition labels, counts as farther than anything else. Returns a permutation ``(n,)`` int64.
    O(n^2) time and one copy of the matrix in memory, so order a sample if there are many objects.

    Examples
    --------
    >>> import bigcons as bc
    >>> import numpy as np
    >>> points = np.array([0.0, 9.0, 1.0, 10.0])
    >>> bc.metrics.vat_order(abs(points[:, None] - points))
    array([0, 2, 1, 3])
    """
    distances = np.asarray(dissimilarities, dtype=np.float64)
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        raise InvalidInputError(
            f"dissimilarities has shape {distances.shape}; pass a square (n_objects, n_objects) matrix."
        )
    n = len(distances)
    order = np.empty(n, dtype=np.int64)
    if n == 0:
        return order
    distances = np.where(np.isnan(distances), np.inf, distances)
    to_placed = np.full(n, np.inf)
    waiting = np.ones(n, dtype=bool)
    current = int(np.argmax(distances)) // n
    for position in range(n):
        order[position] = current
        waiting[current] = False
        np.minimum(to_placed, distances[current], out=to_placed)
        left = np.flatnonzero(waiting)
        if len(left):
            current = int(left[np.argmin(to_placed[left])])
    return order


def compactness(features: object, labels: Any, *, metric: str = "euclidean", client: object = None) -> float:
    """Return the mean distance between objects of the same cluster, clusters weighted by their size.

    ``(1/n) sum_k n_k (mean of d(x_i, x_j) over the pairs of cluster k)`` (Nguyen and Caruana 2007), where a
    cluster of one object counts as 0. Lower is more compact; it decreases with the number of clusters, so
    compare at equal numbers.

    Parameters
    ----------
    features
        ``(n_objects, n_features)``: anything that `bigcons.io.features.open_features` takes.
    labels
        ``(n_objects,)``, as in `contingency`; ``n`` counts the objects with a label, others are left out.
    metric
        "euclidean", "sqeuclidean" or "cityblock".
    client
        Engine for the pairs; a task holds two blocks of about a million values and a tile of distances.

    Every pair of a cluster is visited, in O(sum n_k^2 n_features) time, and each block is read n_blocks / 2
    times (convert a CSV file first: each read starts at its beginning).

    Raises InvalidInputError if the lengths differ or no object has a label.

    Examples
    --------
    >>> import bigcons as bc
    >>> import numpy as np
    >>> bc.metrics.compactness(np.array([[0.0], [2.0], [9.0], [10.0]]), [0, 0, 1, 1])
    1.5
    """
    check_choice("metric", metric, METRICS)
    data, column = open_features(features), LabelColumn("labels", labels)
    if column.n_objects != data.n_objects:
        raise InvalidInputError(
            f"labels has {column.n_objects:,} objects but the features have {data.n_objects:,}; "
            "pass one label per row of the features."
        )
    refuse_other_rows("labels", column.row_names, "the features", data.ids or names_of_rows(features))
    codes = column.codes(0, column.n_objects)
    sizes = np.bincount(codes[codes >= 0], minlength=column.n_clusters)
    task = partial(_sums_of_block, data, codes, column.n_clusters, metric)
    with open_engine(client) as engine, progress("visit pairs", data.n_objects) as listener:
        distances = fold(engine, data.blocks(), task, np.add, progress=listener)
    n_pairs = np.maximum(sizes * (sizes - 1.0) / 2.0, 1.0)  # a single object: 0 / 1
    return float((sizes * distances / n_pairs).sum() / sizes.sum())


def _sums_of_block(
    data: Features, codes: np.ndarray, n_clusters: int, metric: str, block: Block
) -> np.ndarray:
    """Return the sum of distances per cluster over the pairs of a block's rows and with later rows."""
    from scipy.spatial.distance import cdist

    sums = np.zeros(n_clusters)
    here = codes[block.start : block.stop]
    rows = data.read(block.start, block.stop).astype(np.float64, copy=False)
    for other in data.blocks()[block.index :]:
        is_same = other.index == block.index
        there = codes[other.start : other.stop]
        others = rows if is_same else data.read(other.start, other.stop).astype(np.float64, copy=False)
        for cluster in np.intersect1d(here[here >= 0], there).tolist():
            left, right = rows[here == cluster], others[there == cluster]
            for a in range(0, len(left), TILE_ROWS):
                for b in range(0, len(right), TILE_ROWS):
                    distances = cdist(left[a : a + TILE_ROWS], right[b : b + TILE_ROWS], metric)
                    sums[cluster] += distances.sum() / (2 if is_same else 1)  # there, each pair twice
    return sums
