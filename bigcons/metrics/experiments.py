"""Criteria of the papers' experiments.

Growing samples, two methods run by run, all cuts of a dendrogram, distances within clusters, and the order in
which clusters show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.io.features import open_features
from bigcons.io.labels import LabelColumn, names_of_rows, refuse_other_rows
from bigcons.memory import TILE_ROWS, Block
from bigcons.metrics.clusterings import nmi
from bigcons.progress import progress
from bigcons.run.engine import fold, open_engine
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.validation import check_choice, check_int

__all__ = ["compactness", "error_roc", "error_roc_auc", "learning_curve", "paired_t_test", "vat_order"]


def learning_curve(
    cluster: Callable[[np.ndarray, int], Any],
    truth: Any,
    sizes: Sequence[int],
    *,
    n_repetitions: int = 10,
    random_state: SeedLike = None,
) -> np.ndarray:
    """Return the quality of a method above chance on samples of several sizes ``(n_sizes, n_repetitions)``.

    That is the NMI of its labels with ``truth`` minus the NMI of a random labeling with as many, equally
    likely clusters, which is far from 0 on small samples (Strehl and Ghosh 2002, robust centralized
    clustering).

    Parameters
    ----------
    cluster
        Called as ``cluster(sample, seed)`` with ``(size,)`` ascending indices of objects and an integer;
        returns their ``(size,)`` labels, as in `contingency`.
    truth
        ``(n_objects,)``, as in `contingency`. Samples are drawn from the objects with a class.
    sizes
        Sizes of the samples, drawn without replacement and independently in each repetition.
    n_repetitions
        Samples of each size.
    random_state
        Seed of the samples, of the random labelings and of the seeds passed to ``cluster``.

    Raises InvalidInputError if a size exceeds the number of objects with a class.

    Examples
    --------
    >>> import bigcons as bc
    >>> import numpy as np
    >>> truth = np.repeat([0, 1], 50)
    >>> curve = bc.metrics.learning_curve(
    ...     lambda rows, seed: truth[rows], truth, [10, 50], n_repetitions=3, random_state=0
    ... )
    >>> curve.shape
    (2, 3)
    """
    column = LabelColumn("truth", truth)
    classes = column.codes(0, column.n_objects)
    labeled = np.flatnonzero(classes >= 0)
    for size in sizes:
        check_int("sizes", size, at_most=len(labeled))
    check_int("n_repetitions", n_repetitions)
    seed = resolve_seed(random_state)
    scores = np.empty((len(sizes), n_repetitions))
    for s, size in enumerate(sizes):
        for repetition in range(n_repetitions):
            rng = generator(seed, "learning_curve", s, repetition)
            sample = np.sort(rng.choice(labeled, size, replace=False))
            labels = LabelColumn("labels", cluster(sample, int(rng.integers(2**31))))
            codes = labels.codes(0, labels.n_objects)
            by_chance = rng.integers(labels.n_clusters, size=size)
            quality = nmi(classes[sample], codes)  # refuses labels of more or fewer objects
            scores[s, repetition] = quality - nmi(classes[sample], np.where(codes >= 0, by_chance, -1))
    return scores


class PairedTTest(NamedTuple):
    """A paired, one-sided t-test: the columns of table 4 in Wang et al. (2009), and the statistic."""

    mean_difference: float
    """Mean of ``a - b``."""
    sd_a: float
    sd_b: float
    statistic: float
    p_value: float


def paired_t_test(a: Any, b: Any) -> PairedTTest:
    """Test whether scores ``a`` have a lower mean than ``b``, paired by run: ``H_a: mean(a) < mean(b)``.

    ``a`` and ``b`` ``(n_runs,)`` are scores of two methods on the same ensembles; a small ``p_value`` means
    that ``a`` is lower. Scores equal in every run give p = 1/2. Wang, Shan and Banerjee (2009, table 4) test
    in this way whether the micro-precision of the mixture model is below that of Bayesian cluster ensembles.

    Examples
    --------
    >>> import bigcons as bc
    >>> test = bc.metrics.paired_t_test([0.61, 0.58, 0.63], [0.70, 0.66, 0.74])
    >>> round(test.p_value, 4)
    0.0044
    """
    from scipy.stats import ttest_rel

    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or len(a) < 2 or not np.isfinite([a, b]).all():
        raise InvalidInputError(
            f"a has shape {a.shape} and b {b.shape}; "
            "pass finite scores of the same two or more runs, (n_runs,)."
        )
    differences = a - b
    statistic, p_value = 0.0, 0.5
    if np.ptp(differences) > 0:
        statistic, p_value = ttest_rel(a, b, alternative="less")
    elif differences[0] != 0:
        statistic, p_value = np.copysign(np.inf, differences[0]), float(differences[0] > 0)
    spread = (float(a.std(ddof=1)), float(b.std(ddof=1)))
    return PairedTTest(float(differences.mean()), *spread, float(statistic), float(p_value))


def error_roc_auc(linkage: Any, classes: Any, *, row_of_object: Any = None) -> float:
    """Return the area under the error curve of a dendrogram over all its cuts; lower is more robust.

    The area under `error_roc` by the trapezoidal rule (Aidos, Duin and Fred 2013), with the same parameters
    and errors: 0 if some cut equals the classes, and 1/2 by chance.

    Examples
    --------
    >>> import bigcons as bc
    >>> model = bc.EACAverage(2).fit([[0, 0], [0, 0], [0, 1], [1, 2]])
    >>> bc.metrics.error_roc_auc(model.linkage_, [0, 0, 0, 1], row_of_object=model.row_of_object_)
    0.0
    """
    separated, joined = error_roc(linkage, classes, row_of_object=row_of_object)
    return float(np.trapezoid(separated, joined))


def error_roc(linkage: Any, classes: Any, *, row_of_object: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the two errors ``(e1, e2)`` of every cut of a dendrogram, from the finest to the coarsest.

    ``e1`` is the share of pairs of the same class that a cut separates, ``e2`` the share of pairs of
    different classes that it joins (Aidos, Duin and Fred 2013). The curve runs from (1, 0), all objects
    apart, to (0, 1), all in one cluster.

    Parameters
    ----------
    linkage
        ``(n_points - 1, 4)``, as `scipy.cluster.hierarchy.linkage` returns, or the ``linkage_`` of `EAC` or
        `DID`. Merges are made in the order of its rows, those of equal height too.
    classes
        ``(n_objects,)``, as in `contingency`; objects without a class are in no pair.
    row_of_object
        ``(n_objects,)`` integers, the point of the dendrogram that stands for each object, -1 for none: the
        ``row_of_object_`` of `EAC` or `DID`. The objects of a point are joined before all others, in one
        step; objects of none are in no pair. By default the points are the objects.

    Returns two arrays float64, of length n_points; with ``row_of_object`` n_points + 1, where the first cut
    is the one before the objects of each point are joined.

    Raises InvalidInputError if no two objects share a class, or all do. O(n_objects + n_points n_classes)
    time and memory.

    Examples
    --------
    >>> import bigcons as bc
    >>> model = bc.EACAverage(2).fit([[0, 0], [0, 0], [0, 1], [1, 2]])
    >>> separated, joined = bc.metrics.error_roc(
    ...     model.linkage_, [0, 0, 0, 1], row_of_object=model.row_of_object_
    ... )
    >>> separated.round(2), joined.round(2)
    (array([1.  , 0.67, 0.  , 0.  ]), array([0., 0., 0., 1.]))
    """
    merges, column = np.asarray(linkage), LabelColumn("classes", classes)
    is_linkage, n_points = merges.ndim == 2 and merges.shape[1] == 4, len(merges) + 1
    if is_linkage:  # every cluster but the last is merged once, after it is formed
        ends, steps = merges[:, :2], np.arange(n_points - 1)
        is_once = np.array_equal(np.sort(ends, axis=None), np.arange(2 * steps.size))
        is_linkage = is_once and bool((ends.max(axis=1) < n_points + steps).all())
    if not is_linkage:
        raise InvalidInputError(
            f"linkage of shape {merges.shape} is not a linkage matrix; pass what "
            "scipy.cluster.hierarchy.linkage returns, (n_objects - 1, 4)."
        )
    rows = np.arange(n_points) if row_of_object is None else np.asarray(row_of_object)
    if rows.shape != (column.n_objects,) or rows.max() >= n_points:
        raise InvalidInputError(
            f"classes has {column.n_objects:,} objects but the linkage has {n_points:,}; pass one class per "
            "object, and the row_of_object_ of the estimator whose linkage_ it is."
        )
    codes = column.codes(0, column.n_objects)
    labeled = (codes >= 0) & (rows >= 0)
    counts = np.zeros((n_points, column.n_clusters))
    np.add.at(counts, (rows[labeled], codes[labeled]), 1)
    # pairs of the same class and of different ones: none at first, then within points, then of each merge
    joined, sizes = np.zeros((n_points + 1, 2)), counts.sum(axis=1)
    same = (counts * (counts - 1)).sum() / 2
    joined[1] = same, (sizes * (sizes - 1)).sum() / 2 - same
    row_of = np.concatenate([np.arange(n_points), np.zeros(len(merges), np.int64)])
    for step, (left, right) in enumerate(merges[:, :2].astype(np.int64)):
        into, gone = counts[row_of[left]], counts[row_of[right]]
        same = into @ gone
        joined[step + 2] = same, into.sum() * gone.sum() - same
        into += gone
        row_of[n_points + step] = row_of[left]
    of_same, of_different = joined.cumsum(axis=0).T
    if of_same[-1] == 0 or of_different[-1] == 0:
        raise InvalidInputError(
            "classes has no two objects of the same class, or none of different classes, so one of the "
            "errors is undefined; pass at least two classes, one of them with several objects."
        )
    first = 1 if row_of_object is None else 0  # points that are objects join none
    return 1.0 - of_same[first:] / of_same[-1], of_different[first:] / of_different[-1]


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
    distances = np.where(np.isnan(distances), np.inf, distances)
    order, to_placed, waiting = np.empty(n, np.int64), np.full(n, np.inf), np.arange(n)
    for position in range(n):
        current = waiting[np.argmin(to_placed[waiting])] if position else np.argmax(distances) // n
        order[position], waiting = current, waiting[waiting != current]
        np.minimum(to_placed, distances[current], out=to_placed)
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
    from scipy.spatial.distance import cdist

    check_choice("metric", metric, ("euclidean", "sqeuclidean", "cityblock"))
    data, column = open_features(features), LabelColumn("labels", labels)
    if column.n_objects != data.n_objects:
        raise InvalidInputError(
            f"labels has {column.n_objects:,} objects but the features have {data.n_objects:,}; "
            "pass one label per row of the features."
        )
    refuse_other_rows("labels", column.row_names, "the features", data.ids or names_of_rows(features))
    codes = column.codes(0, column.n_objects)
    sizes = np.bincount(codes[codes >= 0], minlength=column.n_clusters)

    def sums_of_block(block: Block) -> np.ndarray:
        """Return the sum of distances per cluster over the pairs of a block's rows and with later rows."""
        sums, here = np.zeros(column.n_clusters), codes[block.start : block.stop]
        rows = data.read(block.start, block.stop).astype(np.float64, copy=False)
        for other in data.blocks()[block.index :]:
            is_same, there = other.index == block.index, codes[other.start : other.stop]
            others = rows if is_same else data.read(other.start, other.stop).astype(np.float64, copy=False)
            for cluster in np.intersect1d(here[here >= 0], there).tolist():
                left, right = rows[here == cluster], others[there == cluster]
                for a in range(0, len(left), TILE_ROWS):
                    for b in range(0, len(right), TILE_ROWS):
                        distances = cdist(left[a : a + TILE_ROWS], right[b : b + TILE_ROWS], metric)
                        sums[cluster] += distances.sum() / (2 if is_same else 1)  # there, each pair twice
        return sums

    with open_engine(client) as engine, progress("visit pairs", data.n_objects) as listener:
        distances = fold(engine, data.blocks(), sums_of_block, np.add, progress=listener)
    n_pairs = np.maximum(sizes * (sizes - 1.0) / 2.0, 1.0)  # a single object: 0 / 1
    return float((sizes * distances / n_pairs).sum() / sizes.sum())
