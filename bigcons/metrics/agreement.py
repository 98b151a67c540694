"""Criteria that count objects or pairs of objects on which two clusterings agree.

Each is a function of their contingency table, and stands twice: for two clusterings, and for a table
``(n_classes, n_clusters)`` that has an object; empty rows and columns do no harm. The symmetric ones take a
stack of tables ``(..., n_classes, n_clusters)`` too, and return as many values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.metrics.contingency import contingency, truth_table
from bigcons.validation import check_choice


def matching_accuracy(truth: Any, labels: Any) -> float:
    """Return the H criterion: the share of objects in agreement under the best one-to-one matching.

    Clusters of ``labels`` are matched with classes of ``truth`` by the Hungarian method; with unequal
    numbers, those left over match nothing (Lourenço et al. 2015, section 5). In (0, 1], 1 if equal up
    to names. Labels are as in `contingency`.
    """
    return float(matching_accuracy_of_table(truth_table(truth, labels)))


def consistency_index(truth: Any, labels: Any, *, matching: str = "hungarian") -> float:
    """Return the consistency index (CI), the share of objects in agreement under a one-to-one matching.

    With ``matching="hungarian"`` the matching is the best one and CI is the H criterion, of which it is
    another name; with "greedy" the largest overlaps are matched first, as in Fred (2001).
    """
    check_choice("matching", matching, ("hungarian", "greedy"))
    return micro_precision(truth, labels, mode=matching)


def micro_precision(truth: Any, labels: Any, *, mode: str = "greedy") -> float:
    """Return the micro-precision (MP): the share of objects whose cluster stands for their class.

    Which class a cluster stands for is decided by ``mode``: "greedy" takes the largest cell of the
    contingency table, then the largest in what other classes and clusters are left, and so on (equal ones in
    ascending order of class, then of cluster); "hungarian" is the best one-to-one matching
    (`matching_accuracy`); "majority" lets several clusters stand for one class (`purity`).

    Wang, Shan and Banerjee (2009) define it by the majority, but their tables have values below the share of
    the largest class, which then cannot be: compare with them by the default.
    """
    check_choice("mode", mode, tuple(_MODES))
    return float(_MODES[mode](truth_table(truth, labels)))


def purity(truth: Any, labels: Any) -> float:
    """Return the share of objects whose class is the most frequent one of their cluster.

    Many clusters may stand for one class, so it grows with the number of clusters and is 1 for
    singletons: compare it at equal numbers only (accuracy in Nguyen and Caruana 2007).
    """
    return purity_of_table(truth_table(truth, labels))


def rand_index(a: Any, b: Any) -> float:
    """Return the share of pairs of objects that both clusterings join or both part (Rand 1971).

    Symmetric, in [0, 1], 1 if equal up to names or if there is one object. Chance alone brings it near 1
    when there are many clusters; `adjusted_rand` is corrected for that. The Rand distance of Nguyen and
    Caruana (2007), which they call adjusted, is 1 minus this index.
    """
    return float(rand_index_of_table(contingency(a, b)))


def adjusted_rand(truth: Any, labels: Any) -> float:
    """Return the adjusted Rand index of Hubert and Arabie (1985): 1 if equal, 0 as expected by chance.

    Symmetric. 1 if both clusterings put all objects together, or both put each alone.
    """
    return float(adjusted_rand_of_table(truth_table(truth, labels)))


def van_dongen(a: Any, b: Any) -> float:
    """Return the normalized van Dongen distance: the share of objects to move to make each the other.

    ``1 - (sum of row maxima + sum of column maxima) / 2n`` of the contingency table (Nguyen and Caruana
    2007, section 5). A symmetric distance in [0, 1), 0 if equal up to names.
    """
    return float(van_dongen_of_table(contingency(a, b)))


def matching_accuracy_of_table(tables: np.ndarray) -> Any:
    """Return `matching_accuracy` from contingency tables."""
    from scipy.optimize import linear_sum_assignment

    each = tables.reshape(-1, *tables.shape[-2:])
    matched = [table[linear_sum_assignment(table, maximize=True)].sum() for table in each]
    return np.reshape(matched, tables.shape[:-2])[()] / tables.sum(axis=(-2, -1))


def greedy_accuracy_of_table(table: np.ndarray) -> float:
    """Return greedy `micro_precision` from a contingency table of classes (rows) and clusters."""
    row_is_free, column_is_free = (np.ones(size, bool) for size in table.shape)
    matched = 0
    for cell in np.argsort(-table, axis=None, kind="stable"):
        row, column = divmod(int(cell), table.shape[1])
        if row_is_free[row] and column_is_free[column]:
            row_is_free[row] = column_is_free[column] = False
            matched += int(table[row, column])
    return float(matched / table.sum())


def purity_of_table(table: np.ndarray) -> float:
    """Return `purity` from a contingency table of classes (rows) and clusters."""
    return float(table.max(axis=0).sum() / table.sum())


def rand_index_of_table(tables: np.ndarray) -> Any:
    """Return `rand_index` from contingency tables."""
    together, in_rows, in_columns, all_pairs = _pairs_joined(tables)
    no_pair = all_pairs == 0
    return (all_pairs - in_rows - in_columns + 2 * together + no_pair) / (all_pairs + no_pair)


def adjusted_rand_of_table(tables: np.ndarray) -> Any:
    """Return `adjusted_rand` from contingency tables."""
    together, in_rows, in_columns, all_pairs = _pairs_joined(tables)
    is_trivial = (in_rows == in_columns) & ((in_rows == 0) | (in_rows == all_pairs))
    by_chance = in_rows * in_columns / np.maximum(all_pairs, 1.0)
    at_most = np.where(is_trivial, 1.0, (in_rows + in_columns) / 2 - by_chance)
    return np.where(is_trivial, 1.0, (together - by_chance) / at_most)[()]


def van_dongen_of_table(tables: np.ndarray) -> Any:
    """Return `van_dongen` from contingency tables."""
    n = tables.sum(axis=(-2, -1))
    kept = tables.max(axis=-1).sum(axis=-1) + tables.max(axis=-2).sum(axis=-1)
    return (2 * n - kept) / (2 * n)


_MODES = {
    "greedy": greedy_accuracy_of_table,
    "majority": purity_of_table,
    "hungarian": matching_accuracy_of_table,
}


def _pairs_joined(tables: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return how many pairs both clusterings join, that of the rows, that of the columns; and all pairs."""
    return (
        _pairs(tables).sum(axis=(-2, -1)),
        _pairs(tables.sum(axis=-1)).sum(axis=-1),
        _pairs(tables.sum(axis=-2)).sum(axis=-1),
        _pairs(tables.sum(axis=(-2, -1))),
    )


def _pairs(n_objects: np.ndarray) -> np.ndarray:
    """Return ``n (n - 1) / 2`` in floats, for it may not fit an integer."""
    n = np.asarray(n_objects, dtype=np.float64)
    return n * (n - 1) / 2
