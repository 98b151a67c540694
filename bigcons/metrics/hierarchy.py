"""Criteria of a dendrogram as a whole, over all cuts."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.metrics.clusterings import LabelColumn


def error_roc_auc(linkage: Any, classes: Any) -> float:
    """Return the area under the error curve of a dendrogram over all its cuts; lower is more robust.

    A cut into k = 1 .. n clusters errs in two ways: ``e1`` is the share of pairs of the same class that it
    separates, ``e2`` the share of pairs of different classes that it joins. The curve ``(e1, e2)`` runs from
    (0, 1) at k = 1 to (1, 0) at k = n. The area under it, by the trapezoidal rule (Aidos, Duin and Fred
    2013), is 0 if some cut equals the classes, and 1/2 by chance.

    Parameters
    ----------
    linkage
        ``(n_objects - 1, 4)``, as `scipy.cluster.hierarchy.linkage` returns. Merges are made in the order
        of its rows, those of equal height too.
    classes
        ``(n_objects,)``, as in `contingency`; objects without a class are in no pair.

    Raises InvalidInputError if no two objects share a class, or all do. O(n_objects n_classes) time and
    memory.
    """
    merges = np.asarray(linkage)
    if not _is_linkage(merges):
        raise InvalidInputError(
            f"linkage of shape {merges.shape} is not a linkage matrix; pass what "
            "scipy.cluster.hierarchy.linkage returns, (n_objects - 1, 4)."
        )
    column = LabelColumn("classes", classes)
    n_objects = len(merges) + 1
    if column.n_objects != n_objects:
        raise InvalidInputError(
            f"classes has {column.n_objects} objects but the linkage has {n_objects}; "
            "pass one class per object."
        )
    same, different = _pairs_joined(merges[:, :2].astype(np.int64), column).T
    if same[-1] == 0 or different[-1] == 0:
        raise InvalidInputError(
            "classes has no two objects of the same class, or none of different classes, so one of the "
            "errors is undefined; pass at least two classes, one of them with several objects."
        )
    return float(np.trapezoid(1.0 - same / same[-1], different / different[-1]))


def _is_linkage(merges: np.ndarray) -> bool:
    """Return whether every cluster but the last is merged once, after it is formed."""
    if merges.ndim != 2 or merges.shape[1] != 4:
        return False
    n_merges = len(merges)
    once = np.array_equal(np.sort(merges[:, :2], axis=None), np.arange(2 * n_merges))
    return once and bool((merges[:, :2].max(axis=1) <= n_merges + np.arange(n_merges)).all())


def _pairs_joined(merges: np.ndarray, column: LabelColumn) -> np.ndarray:
    """Count the pairs of the same class, and of different classes, that 0, 1, ... merges join: ``(n, 2)``."""
    n_objects = len(merges) + 1
    codes = column.codes(0, n_objects)
    known = np.flatnonzero(codes >= 0)
    counts = np.zeros((n_objects, column.n_clusters))
    counts[known, codes[known]] = 1
    row_of = np.concatenate([np.arange(n_objects), np.zeros(len(merges), np.int64)])
    joined = np.zeros((n_objects, 2))
    for step, (left, right) in enumerate(merges):
        into, gone = counts[row_of[left]], counts[row_of[right]]
        same = into @ gone
        joined[step + 1] = same, into.sum() * gone.sum() - same
        into += gone
        row_of[n_objects + step] = row_of[left]
    return joined.cumsum(axis=0)
