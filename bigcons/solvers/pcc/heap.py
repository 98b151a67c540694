"""The driver of PCC on a pair table: Algorithm 1 of Lourenço et al. 2015, in stretches of steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.divergences import Divergence
from bigcons.execution.loop import as_history, run_passes
from bigcons.execution.progress import progress
from bigcons.kernels import line_search, pair_descent
from bigcons.kernels.divergences import l2_slope
from bigcons.solvers.pcc import start
from bigcons.solvers.pcc.solution import Solution
from bigcons.stores.pairs import PairTable

# The objective is recorded this often while n_objects * n_clusters steps are taken.
STRETCHES = 4


class Graph(NamedTuple):
    """A pair table as the kernels read it: CSR with every pair at both ends."""

    indptr: np.ndarray
    indices: np.ndarray
    observed: np.ndarray
    weight: np.ndarray

    @property
    def degrees(self) -> np.ndarray:
        """Number of pairs of each object."""
        return np.diff(self.indptr)

    @property
    def mean_weight(self) -> float:
        """Mean over the objects of ``sum_j N_ij``: the scale of a KKT gap over these pairs."""
        return max(float(self.weight.sum(dtype=np.float64)) / (self.indptr.size - 1), 1.0)


def graph_of(pairs: PairTable) -> Graph:
    """Return the arrays of a pair table, counts turned into shares."""
    n_seen = pairs.n_seen
    observed = pairs.n_agree / n_seen.astype(np.float32)
    return Graph(pairs.indptr, pairs.indices, observed, n_seen.astype(np.float32))


def solve_pairs(
    pairs: PairTable,
    n_clusters: int,
    divergence: Divergence,
    *,
    init: start.Init,
    n_init: int,
    max_steps: int,
    tol: float,
    seed: int,
) -> Solution:
    """Minimise the divergence over the pairs by single steps, the steepest first; the best of ``n_init``
    runs.

    The gap is in units of ``Graph.mean_weight``. Time O(steps * l (K + log n)) for l pairs an object; memory
    12 bytes for each of the two ends of a pair and O(n K).
    """
    graph = graph_of(pairs)
    if not isinstance(init, str):
        first = start.given(init, pairs.n_objects, n_clusters)
        starts = [first if divergence.name == "l2" else start.softened(first)]
    else:
        draw = start.dirichlet if init == "dirichlet" else start.perturbed_uniform
        starts = [draw(pairs.n_objects, n_clusters, seed, 0, number) for number in range(n_init)]
    runs = [
        _descend(graph, memberships, divergence, isinstance(init, str), max_steps, tol)
        for memberships in starts
    ]
    return min(runs, key=lambda run: run.objective)


def _descend(
    graph: Graph, memberships: np.ndarray, divergence: Divergence, saddle: bool, max_steps: int, tol: float
) -> Solution:
    """Run one start. Gradients are rebuilt every n K steps, which bounds the drift of their updates."""
    n, K = memberships.shape
    value, slope, _, parameter = divergence.compiled
    search = _line_search(divergence)
    rows = np.zeros((n, 2 * K))
    rows[:, :K] = memberships
    rows[:, :K] /= rows[:, :K].sum(axis=1, keepdims=True)
    keys, items, position = np.empty(n), np.empty(n, np.int32), np.empty(n, np.int32)
    scratch = np.empty((4, max(int(graph.degrees.max(initial=0)), 1)))
    stretch = max(n * K // STRETCHES, n, 1)
    scale = graph.mean_weight
    steps = 0
    records = []

    def one_stretch(number: int) -> dict[str, float]:
        nonlocal steps
        if (number - 1) % STRETCHES == 0:
            pair_descent.prepare(rows, *graph, keys, items, position, slope, parameter)
        # a near-uniform start is a saddle: its gaps say nothing until every object has had its step
        threshold = 0.0 if saddle and number == 1 else tol * scale
        limit = min(stretch, max_steps - steps)
        taken, gap = pair_descent.descend(
            rows, *graph, keys, items, position, scratch, limit, threshold, search, slope, parameter
        )
        steps += taken
        listener.advance(limit)
        objective = pair_descent.total_value(rows, *graph, value, parameter)
        return {"step": steps, "objective": objective, "gap": gap / scale}

    with progress("PCC on pairs", max_steps, "steps") as listener:
        for record in run_passes(one_stretch, max_passes=-(-max_steps // stretch), what="PCC on pairs"):
            records.append(record)
            if record["gap"] <= tol:
                break
    last = records[-1]
    found = rows[:, :K].astype(np.float32)
    return Solution(
        found, last["objective"], last["gap"], last["gap"] <= tol, len(records), as_history(records)
    )


def _line_search(divergence: Divergence):  # type: ignore[no-untyped-def] # numba dispatchers have no useful type
    _, slope, curvature, _ = divergence.compiled
    if slope is l2_slope:
        return pair_descent.quadratic_search
    if divergence.is_double_convex:
        return line_search.newton_search(slope, curvature)
    return line_search.sampling_search(divergence.compiled.value)
