"""Criteria that count objects or pairs of objects on which two clusterings agree."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.metrics.contingency import truth_table


def matching_accuracy(truth: Any, labels: Any) -> float:
    """Return the H criterion: the share of objects in agreement under the best one-to-one matching.

    Clusters of ``labels`` are matched with classes of ``truth`` by the Hungarian method; with unequal
    numbers, those left over match nothing (Lourenço et al. 2015, section 5). In (0, 1], 1 if equal up
    to names. Labels are as in `contingency`.
    """
    from scipy.optimize import linear_sum_assignment

    table = truth_table(truth, labels)
    matched = table[linear_sum_assignment(table, maximize=True)].sum()
    return float(matched / table.sum())


def purity(truth: Any, labels: Any) -> float:
    """Return the share of objects whose class is the most frequent one of their cluster.

    Many clusters may stand for one class, so it grows with the number of clusters and is 1 for
    singletons: compare it at equal numbers only (accuracy in Nguyen and Caruana 2007).
    """
    table = truth_table(truth, labels)
    return float(table.max(axis=0).sum() / table.sum())


def adjusted_rand(truth: Any, labels: Any) -> float:
    """Return the adjusted Rand index of Hubert and Arabie (1985): 1 if equal, 0 as expected by chance.

    Symmetric. 1 if both clusterings put all objects together, or both put each alone.
    """
    table = truth_table(truth, labels)
    together = _pairs(table).sum()
    in_truth, in_labels = _pairs(table.sum(axis=1)).sum(), _pairs(table.sum(axis=0)).sum()
    all_pairs = _pairs(table.sum())
    if in_truth == in_labels and in_truth in (0.0, all_pairs):
        return 1.0
    by_chance = in_truth * in_labels / all_pairs
    return float((together - by_chance) / ((in_truth + in_labels) / 2 - by_chance))


def _pairs(n_objects: np.ndarray) -> np.ndarray:
    """Return ``n (n - 1) / 2`` in floats, for it may not fit an integer."""
    n = np.asarray(n_objects, dtype=np.float64)
    return n * (n - 1) / 2
