"""PCC on a pair table in memory: Algorithm 1 of Lourenço et al. 2015, steepest two-coordinate descent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigcons.divergences import Calibrated, Divergence
from bigcons.kernels import pair_descent
from bigcons.kernels.divergences import l2_slope
from bigcons.kernels.line_search import newton_search, sampling_search
from bigcons.methods.pcc.calibrated_pairs import (
    NOBODY,
    calibrated,
    rates_of,
    sums_over_pairs,
    unit_of,
)
from bigcons.methods.pcc.memberships import (
    LEAST_PART,
    Init,
    Solution,
    checked_start,
    contradicted,
    dirichlet,
    diverges_at_edges,
    perturbed_uniform,
    softened,
)
from bigcons.progress import progress
from bigcons.solving.passes import as_history, best_start, timed
from bigcons.stores.pair_rows import Rows
from bigcons.stores.pairs import PairTable

# Number of times per n_objects * n_clusters steps that gradients are recomputed, which bounds their drift,
# and the objective is recorded.
STRETCHES = 4


def solve_pairs(
    pairs: PairTable,
    n_clusters: int,
    divergence: Divergence,
    *,
    init: Init,
    n_init: int,
    max_steps: int,
    tol: float,
    seed: int,
    rule: str | None = None,
) -> Solution:
    """Minimize the divergence over the pairs by steepest single steps; keep the best of ``n_init`` runs.

    With a ``rule``, rates of a calibrated co-association are those of the memberships ``init``. The gap is in
    units of `mean_weight`, times that of `unit_of`. Time O(steps * l (K + log n)) for l pairs per object;
    memory 24 bytes per pair and O(n K).
    """
    if not isinstance(init, str):
        first = checked_start(init, pairs.n_objects, n_clusters)
        if rule is not None:
            divergence = calibrated(divergence, rates_of(sums_over_pairs(pairs, first), rule))
        graph = graph_of(pairs, divergence)
        if rule is None and diverges_at_edges(divergence):
            rows = contradicted(graph.indptr, graph.indices, graph.observed, first, first)
            first[rows] = softened(first[rows], LEAST_PART)
        starts = [first]
    else:
        graph = graph_of(pairs, divergence)
        draw = dirichlet if init == "dirichlet" else perturbed_uniform
        starts = [draw(pairs.n_objects, n_clusters, seed, 0, number) for number in range(n_init)]
    weight = float(pairs.n_seen.sum(dtype=np.float64))
    scale = mean_weight(weight, pairs.n_objects) * unit_of(divergence)
    runs = (
        _descend(graph, memberships, divergence, isinstance(init, str), max_steps, tol, scale)
        for memberships in starts
    )
    best, objectives = best_start(runs, lambda run: run.objective)
    return best._replace(start_objectives=objectives).by(divergence)


def _descend(
    graph: Graph,
    memberships: np.ndarray,
    divergence: Divergence,
    saddle: bool,
    max_steps: int,
    tol: float,
    scale: float,
) -> Solution:
    """Run one start."""
    n_objects, n_clusters = memberships.shape
    limit = stretch_steps(n_objects, n_clusters)
    steps, records = 0, []
    with progress("PCC on pairs", max_steps, "steps") as listener:
        for number in range(1, -(-max_steps // limit) + 1):
            began = time.perf_counter()
            # gaps at a near-uniform start, a saddle, are not meaningful until every object has moved
            threshold = 0.0 if saddle and number == 1 else tol * scale
            n_steps = min(limit, max_steps - steps)
            memberships, done = take_stretch(graph, memberships, divergence, n_steps, threshold)
            steps += done.n_steps
            listener.advance(n_steps)
            record = {"step": steps, "objective": done.objective, "gap": done.gap / scale}
            records.append(timed("PCC on pairs", number, record, began))
            if records[-1]["gap"] <= tol:
                break
    last = records[-1]
    objective, gap = last["objective"], last["gap"]
    return Solution(memberships, objective, gap, gap <= tol, len(records), as_history(records), [objective])


# A stretch of steps


class Graph(NamedTuple):
    """The pairs of n objects as kernels read them: CSR, each pair of two of them stored in both rows."""

    indptr: np.ndarray
    indices: np.ndarray
    observed: np.ndarray
    weight: np.ndarray
    others: np.ndarray
    """(., K) float32: fixed memberships of the objects numbered from n."""


class Stretch(NamedTuple):
    """The report of a stretch of steps. Gaps are in units of the pairs' weights."""

    n_steps: int
    gap_before: float
    gap: float
    objective: float


def graph_of(pairs: PairTable | Rows, divergence: Divergence, others: np.ndarray = NOBODY) -> Graph:
    """Return the arrays of a pair table or of some rows of one, counts turned into shares.

    By squared divergence, those of a calibrated co-association are its `Calibrated.targets`.
    """
    weight = pairs.n_seen.astype(np.float32)
    observed = pairs.n_agree / weight
    if isinstance(divergence, Calibrated):
        observed, weight = divergence.targets(observed, weight)
    return Graph(pairs.indptr, pairs.indices, observed, weight, others)


def stretch_steps(n_objects: int, n_clusters: int) -> int:
    """Return the number of steps in a stretch: at least one per object."""
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

    Returns the new memberships (n, K) float32 and a report; its objective covers the pairs of the n objects
    with each other and with the first ``n_counted`` others. Time O(n_steps l (K + log n)) for l
    pairs an object; memory 16 n K + 32 n bytes.
    """
    n, K = memberships.shape
    value, slope, _, parameter = divergence.compiled
    rows = np.zeros((n, 2 * K))
    rows[:, :K] = memberships
    is_squared = divergence.compiled.slope is l2_slope
    search = pair_descent.quadratic_search if is_squared else general_search(divergence)
    queue = np.empty(n), np.empty(n, np.int32), np.empty(n, np.int32)
    pair_descent.prepare(rows, *graph, *queue, slope, parameter)
    gap_before = float(queue[0][0])
    scratch = np.empty((4, max(int(np.diff(graph.indptr).max(initial=0)), 1)))
    taken, gap = pair_descent.descend(
        rows, *graph, *queue, scratch, n_steps, threshold, search, slope, parameter
    )
    counted = graph._replace(others=graph.others[:n_counted])
    objective = pair_descent.total_value(rows, *counted, value, parameter)
    return rows[:, :K].astype(np.float32), Stretch(taken, gap_before, gap, objective)


def general_search(divergence: Divergence) -> Callable[..., Any]:
    """Return the compiled search: Newton if the divergence is double-convex, else sampling."""
    value, slope, curvature, _ = divergence.compiled
    return newton_search(slope, curvature) if divergence.is_double_convex else sampling_search(value)
