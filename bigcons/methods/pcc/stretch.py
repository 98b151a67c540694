"""A stretch of Algorithm 1 of Lourenço et al. 2015 on some objects of a pair table, all others held fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigcons.divergences import Divergence
from bigcons.kernels import pair_descent
from bigcons.kernels.divergences import l2_slope
from bigcons.methods.pcc.searches import general_search
from bigcons.stores.pair_rows import Rows
from bigcons.stores.pairs import PairTable

# The gradients are built anew, which bounds the drift of their updates, and the objective is recorded this
# often while n_objects * n_clusters steps are taken.
STRETCHES = 4

NOBODY = np.empty((0, 0), np.float32)


class Graph(NamedTuple):
    """The pairs of n objects as the kernels read them: CSR, with every pair of two of them at both ends."""

    indptr: np.ndarray
    indices: np.ndarray
    observed: np.ndarray
    weight: np.ndarray
    others: np.ndarray
    """(., K) float32: memberships of the objects from number n on, which stay as they are."""


class Stretch(NamedTuple):
    """What a stretch of steps did. Gaps are in units of the pairs' weights."""

    n_steps: int
    gap_before: float
    gap: float
    objective: float


def graph_of(pairs: PairTable | Rows, others: np.ndarray = NOBODY) -> Graph:
    """Return the arrays of a pair table or of some rows of one, counts turned into shares."""
    weight = pairs.n_seen.astype(np.float32)
    return Graph(pairs.indptr, pairs.indices, pairs.n_agree / weight, weight, others)


def stretch_steps(n_objects: int, n_clusters: int) -> int:
    """Return how many steps a stretch has: at least one for every object."""
    return max(n_objects * n_clusters // STRETCHES, n_objects, 1)


def mean_weight(total_weight: float, n_objects: int) -> float:
    """Return the mean over the objects of ``sum_j N_ij``: the scale of a KKT gap over sampled pairs."""
    return max(total_weight / n_objects, 1.0)


def take_stretch(
    graph: Graph,
    memberships: np.ndarray,
    divergence: Divergence,
    n_steps: int,
    threshold: float,
    n_counted: int | None = None,
) -> tuple[np.ndarray, Stretch]:
    """Take up to ``n_steps`` steps, the steepest first, while a KKT gap is above ``threshold``.

    Returns the new memberships (n, K) float32, and what was done; the objective is over the pairs of the n
    objects with each other and with the first ``n_counted`` others. Time O(n_steps l (K + log n)) for l
    pairs an object; memory 16 n K + 32 n bytes.
    """
    n, K = memberships.shape
    value, slope, _, parameter = divergence.compiled
    rows = np.zeros((n, 2 * K))
    rows[:, :K] = memberships
    queue = np.empty(n), np.empty(n, np.int32), np.empty(n, np.int32)
    pair_descent.prepare(rows, *graph, *queue, slope, parameter)
    gap_before = float(queue[0][0])
    scratch = np.empty((4, max(int(np.diff(graph.indptr).max(initial=0)), 1)))
    taken, gap = pair_descent.descend(
        rows, *graph, *queue, scratch, n_steps, threshold, _line_search(divergence), slope, parameter
    )
    counted = graph._replace(others=graph.others[:n_counted])
    objective = pair_descent.total_value(rows, *counted, value, parameter)
    return rows[:, :K].astype(np.float32), Stretch(taken, gap_before, gap, objective)


def _line_search(divergence: Divergence) -> Callable[..., Any]:
    if divergence.compiled.slope is l2_slope:
        return pair_descent.quadratic_search
    return general_search(divergence)
