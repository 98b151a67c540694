"""Criteria of two clusterings: their contingency table, and what is computed from it.

Labels are whole numbers or text; negative numbers, None and NaN are missing. The objects labeled in both
clusterings are compared. Labels are read block by block, so they may be memory-mapped or in Zarr. In place of
labels stands a fitted clusterer or a `Consensus`. Each is a criterion of `bigcons.contingency`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons import contingency as tables
from bigcons.errors import InvalidInputError
from bigcons.io.labels import LabelColumn, names_of_rows, refuse_other_rows
from bigcons.validation import check_choice, check_int

__all__ = [
    "adjusted_rand", "consistency_index", "contingency", "matching_accuracy", "micro_precision", "nmi",
    "purity", "rand_index", "relative_nmi", "reliability", "van_dongen", "variation_of_information",
]  # fmt: skip

_MODES = {
    "greedy": tables.greedy_accuracy,
    "majority": tables.purity,
    "hungarian": tables.matching_accuracy,
}


def contingency(a: Any, b: Any) -> np.ndarray:
    """Return how many objects lie in each cluster of ``a`` and each of ``b``: ``(ka, kb)`` int64.

    ``a`` and ``b`` are ``(n_objects,)`` labels, whole numbers or text, a fitted clusterer or a `Consensus`.
    Objects whose label is negative, None or NaN in either are left out. Rows and columns are in ascending
    order of the labels; labels of no compared object are left out, so no row or column is empty. Arrays are
    compared in their order; where indexes or ids show that the rows are others, or in another order, they are
    refused.

    Raises InvalidInputError for these, and if the lengths differ or no object is labeled in both.

    Examples
    --------
    >>> import bigcons as bc
    >>> bc.metrics.contingency([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7])
    array([[2, 1],
           [0, 3]])
    """
    return tables.table_of(LabelColumn("a", a), LabelColumn("b", b))


def _of_truth(truth: Any, labels: Any) -> np.ndarray:
    """Return the contingency of ``truth`` (rows) with ``labels`` (columns)."""
    return tables.table_of(LabelColumn("truth", truth), LabelColumn("labels", labels))


def matching_accuracy(truth: Any, labels: Any) -> float:
    """Return the H criterion: the share of objects in agreement under the best one-to-one matching.

    Clusters of ``labels`` are matched with classes of ``truth`` by the Hungarian method; if their numbers
    differ, some match nothing (Lourenço et al. 2015). In (0, 1], 1 if equal up to names. Labels as in
    `contingency`.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.matching_accuracy([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.833
    """
    return micro_precision(truth, labels, mode="hungarian")


def consistency_index(truth: Any, labels: Any, *, matching: str = "hungarian") -> float:
    """Return the consistency index (CI), the share of objects in agreement under a one-to-one matching.

    With ``matching="hungarian"``, the best matching, it is the H criterion (`matching_accuracy`); with
    "greedy" the largest overlaps are matched first, as in Fred (2001).

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.consistency_index([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.833
    """
    check_choice("matching", matching, ("hungarian", "greedy"))
    return micro_precision(truth, labels, mode=matching)


def micro_precision(truth: Any, labels: Any, *, mode: str = "greedy") -> float:
    """Return the micro-precision (MP): the share of objects whose cluster represents their class.

    ``mode`` decides which class a cluster represents. "greedy" takes the largest cell of the contingency
    table, then the largest among the classes and clusters that remain, and so on (ties in ascending order of
    class, then of cluster); "hungarian" is the best one-to-one matching (`matching_accuracy`); "majority"
    lets several clusters represent one class (`purity`).

    Wang, Shan and Banerjee (2009) define it by the majority, but their tables have values below the share of
    the largest class, which is impossible with a majority: compare with them by the default.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.micro_precision([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.833
    """
    check_choice("mode", mode, tuple(_MODES))
    return float(_MODES[mode](_of_truth(truth, labels)))


def purity(truth: Any, labels: Any) -> float:
    """Return the share of objects whose class is the most frequent one of their cluster.

    The accuracy of Nguyen and Caruana (2007). Many clusters may represent one class, so it grows with the
    number of clusters and is 1 for singletons: compare it at equal numbers of clusters only.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.purity([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.833
    """
    return micro_precision(truth, labels, mode="majority")


def rand_index(a: Any, b: Any) -> float:
    """Return the share of pairs of objects that both clusterings join or both separate (Rand 1971).

    Symmetric, in [0, 1], 1 if equal up to names or if there is one object. With many clusters it is near 1 by
    chance alone; `adjusted_rand` corrects for that. The Rand distance of Nguyen and Caruana (2007), which
    they call adjusted, is 1 minus this index.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.rand_index([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.667
    """
    return float(tables.rand_index(contingency(a, b)))


def adjusted_rand(truth: Any, labels: Any) -> float:
    """Return the adjusted Rand index of Hubert and Arabie (1985): 1 if equal, 0 on average by chance.

    Symmetric. 1 if both clusterings have a single cluster, or both have only singletons. Labels as in
    `contingency`: objects labeled -1, None or NaN in either are left out, whereas scikit-learn's
    ``adjusted_rand_score`` takes -1 as a cluster.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.adjusted_rand([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.324
    """
    return float(tables.adjusted_rand(_of_truth(truth, labels)))


def van_dongen(a: Any, b: Any) -> float:
    """Return the normalized van Dongen distance: the share of objects to move to turn one into the other.

    ``1 - (sum of row maxima + sum of column maxima) / 2n`` of the contingency table (Nguyen and Caruana
    2007). A symmetric distance in [0, 1), 0 if equal up to names.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.van_dongen([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.167
    """
    return float(tables.van_dongen(contingency(a, b)))


def nmi(a: Any, b: Any) -> float:
    """Return the mutual information of two clusterings over the geometric mean of their entropies.

    In [0, 1], 1 if equal up to names; 0 by definition if one of them has a single cluster (Strehl and Ghosh
    2002). Labels as in `contingency`.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.nmi([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.479
    """
    return float(tables.nmi(contingency(a, b)))


def relative_nmi(truth: Any, labels: Any, reference: Any) -> float:
    """Return the NMI of ``labels`` with ``truth`` over that of ``reference``, a clustering of all the data.

    The quality of a consensus of clusterings of parts of the data relative to one clustering of all (Strehl
    and Ghosh 2002, object-distributed clustering); above 1 if it is better. Each NMI compares the objects
    labeled in both. Raises InvalidInputError if the reference has NMI 0 with the truth.

    Examples
    --------
    >>> import bigcons as bc
    >>> truth, reference = [0, 0, 1, 1], [0, 1, 1, 1]
    >>> round(bc.metrics.relative_nmi(truth, [0, 0, 1, 1], reference), 3)
    2.894
    """
    whole = nmi(truth, reference)
    if whole == 0:
        raise InvalidInputError(
            "reference has NMI 0 with truth, so the ratio is undefined; pass a better clustering."
        )
    return nmi(truth, labels) / whole


def variation_of_information(a: Any, b: Any) -> float:
    """Return the variation of information ``H(a) + H(b) - 2 I(a; b)`` of two clusterings, in nats.

    A metric of clusterings (Meilă 2007): symmetric, 0 exactly if they are equal up to names, at most
    ``log n``. Labels as in `contingency`. Nguyen and Caruana (2007) do not say which logarithm they use.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.variation_of_information([0, 0, 0, 1, 1, 1], [5, 5, 7, 7, 7, 7]), 3)
    0.693
    """
    return float(tables.variation_of_information(contingency(a, b)))


class Reliability(NamedTuple):
    """How often labels of a stated confidence are right; see `reliability`."""

    n_objects: np.ndarray
    """(n_bins,) int64"""
    confidence: np.ndarray
    """(n_bins,): the mean confidence of the objects of each bin, NaN if it has none."""
    accuracy: np.ndarray
    """(n_bins,): the share of them whose label is right."""
    error: float
    """The expected calibration error: the mean of ``|accuracy - confidence|``, bins by their objects."""


def reliability(truth: Any, labels: Any, confidence: Any, *, n_bins: int = 15) -> Reliability:
    """Return how often labels of a stated confidence are right, in bins of equal width from 0 to 1.

    A label is right if its cluster is matched with the object's class, in the best one-to-one matching, as in
    `matching_accuracy`. ``confidence`` (n_objects,), from 0 to 1, is that of `trust`, or the largest
    membership of each object. Labels as in `contingency`; objects without a class or a label are left out.

    Examples
    --------
    >>> import bigcons as bc
    >>> found = bc.metrics.reliability([0, 0, 1, 1], [0, 0, 1, 0], [0.9, 0.9, 0.8, 0.4], n_bins=2)
    >>> found.accuracy
    array([0., 1.])
    >>> round(found.error, 3)
    0.2
    """
    from scipy.optimize import linear_sum_assignment

    check_int("n_bins", n_bins)
    columns = LabelColumn("truth", truth), LabelColumn("labels", labels)
    n = columns[0].n_objects
    if columns[1].n_objects != n or np.shape(confidence) != (n,):
        raise InvalidInputError(
            f"truth has {n} objects, labels {columns[1].n_objects} and confidence shape "
            f"{np.shape(confidence)}; pass one of each per object."
        )
    refuse_other_rows("truth", columns[0].row_names, "labels", columns[1].row_names)
    refuse_other_rows("confidence", names_of_rows(confidence), "labels", columns[1].row_names)
    classes, clusters = (column.codes(0, n) for column in columns)
    judged = (classes >= 0) & (clusters >= 0)
    classes, clusters, stated = classes[judged], clusters[judged], np.asarray(confidence, np.float64)[judged]
    if not ((stated >= 0) & (stated <= 1)).all():
        raise InvalidInputError("confidence leaves 0 to 1; pass probabilities.")
    table = np.zeros([column.n_clusters for column in columns], np.int64)
    np.add.at(table, (classes, clusters), 1)
    class_of = np.full(table.shape[1], -1)
    rows, matched = linear_sum_assignment(table, maximize=True)
    class_of[matched] = rows
    bins = np.minimum((stated * n_bins).astype(np.int64), n_bins - 1)
    is_right = class_of[clusters] == classes
    sizes, summed, right = (np.bincount(bins, weights, n_bins) for weights in (None, stated, is_right))
    error = np.abs(right - summed).sum() / np.float64(sizes.sum())
    return Reliability(
        sizes.astype(np.int64), tables.ratio(summed, sizes), tables.ratio(right, sizes), float(error)
    )
