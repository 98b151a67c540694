"""Criteria of a dendrogram as a whole, over all cuts."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.metrics.clusterings import LabelColumn


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
    merges = np.asarray(linkage)
    if not _is_linkage(merges):
        raise InvalidInputError(
            f"linkage of shape {merges.shape} is not a linkage matrix; pass what "
            "scipy.cluster.hierarchy.linkage returns, (n_objects - 1, 4)."
        )
    column = LabelColumn("classes", classes)
    n_points = len(merges) + 1
    if row_of_object is None:
        if column.n_objects != n_points:
            raise InvalidInputError(
                f"classes has {column.n_objects:,} objects but the linkage has {n_points:,}; "
                "pass one class per object, and row_of_object if the linkage is of distinct rows."
            )
        rows = np.arange(n_points)
    else:
        rows = _checked_rows(row_of_object, column.n_objects, n_points)
    same, different = _pairs_joined(merges[:, :2].astype(np.int64), rows, column).T
    if same[-1] == 0 or different[-1] == 0:
        raise InvalidInputError(
            "classes has no two objects of the same class, or none of different classes, so one of the "
            "errors is undefined; pass at least two classes, one of them with several objects."
        )
    first = 1 if row_of_object is None else 0  # points that are objects join none
    return 1.0 - same[first:] / same[-1], different[first:] / different[-1]


def _is_linkage(merges: np.ndarray) -> bool:
    """Return whether every cluster but the last is merged once, after it is formed."""
    if merges.ndim != 2 or merges.shape[1] != 4:
        return False
    n_merges = len(merges)
    once = np.array_equal(np.sort(merges[:, :2], axis=None), np.arange(2 * n_merges))
    return once and bool((merges[:, :2].max(axis=1) <= n_merges + np.arange(n_merges)).all())


def _checked_rows(row_of_object: Any, n_objects: int, n_points: int) -> np.ndarray:
    rows = np.asarray(row_of_object)
    if rows.shape != (n_objects,) or rows.dtype.kind not in "iu":
        raise InvalidInputError(
            f"row_of_object has shape {rows.shape} and type {rows.dtype} but classes has {n_objects} "
            "objects; pass one integer per object."
        )
    if rows.max() >= n_points or rows.min() < -1:
        raise InvalidInputError(
            f"row_of_object is from {rows.min()} to {rows.max()} but the linkage has {n_points} points; "
            "pass the row_of_object_ of the estimator whose linkage_ it is."
        )
    return rows


def _pairs_joined(merges: np.ndarray, rows: np.ndarray, column: LabelColumn) -> np.ndarray:
    """Return how many pairs of the same class and of different ones are joined ``(n_points + 1, 2)``.

    None at first, then those within points, then those after each merge.
    """
    n_points = len(merges) + 1
    codes = column.codes(0, column.n_objects)
    known = np.flatnonzero((codes >= 0) & (rows >= 0))
    counts = np.zeros((n_points, column.n_clusters))
    np.add.at(counts, (rows[known], codes[known]), 1)
    joined = np.zeros((n_points + 1, 2))
    same = (counts * (counts - 1)).sum() / 2
    sizes = counts.sum(axis=1)
    joined[1] = same, (sizes * (sizes - 1)).sum() / 2 - same
    row_of = np.concatenate([np.arange(n_points), np.zeros(len(merges), np.int64)])
    for step, (left, right) in enumerate(merges):
        into, gone = counts[row_of[left]], counts[row_of[right]]
        same = into @ gone
        joined[step + 2] = same, into.sum() * gone.sum() - same
        into += gone
        row_of[n_points + step] = row_of[left]
    return joined.cumsum(axis=0)
