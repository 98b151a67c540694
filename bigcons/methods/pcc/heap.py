"""The driver of PCC on a pair table in memory: Algorithm 1 of Lourenço et al. 2015, in stretches of steps."""

from __future__ import annotations

import numpy as np

from bigcons.divergences import Divergence
from bigcons.methods.pcc import start
from bigcons.methods.pcc.solution import Solution
from bigcons.methods.pcc.stretch import Graph, graph_of, mean_weight, stretch_steps, take_stretch
from bigcons.progress import progress
from bigcons.solving.loop import as_history, run_passes
from bigcons.solving.starts import best_start
from bigcons.stores.pairs import PairTable


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
    """Minimize the divergence over the pairs by single steps, the steepest first; the best of ``n_init``
    runs.

    The gap is in units of ``stretch.mean_weight``. Time O(steps * l (K + log n)) for l pairs an object;
    memory 12 bytes for each of the two ends of a pair and O(n K).
    """
    graph = graph_of(pairs)
    if not isinstance(init, str):
        first = start.given(init, pairs.n_objects, n_clusters)
        starts = [first if divergence.name == "l2" else start.softened(first)]
    else:
        draw = start.dirichlet if init == "dirichlet" else start.perturbed_uniform
        starts = [draw(pairs.n_objects, n_clusters, seed, 0, number) for number in range(n_init)]
    runs = (
        _descend(graph, memberships, divergence, isinstance(init, str), max_steps, tol)
        for memberships in starts
    )
    best, objectives = best_start(runs, lambda run: run.objective)
    return best._replace(start_objectives=objectives)


def _descend(
    graph: Graph, memberships: np.ndarray, divergence: Divergence, saddle: bool, max_steps: int, tol: float
) -> Solution:
    """Run one start."""
    n_objects, n_clusters = memberships.shape
    scale = mean_weight(float(graph.weight.sum(dtype=np.float64)), n_objects)
    limit = stretch_steps(n_objects, n_clusters)
    steps = 0
    records = []

    def one_stretch(number: int) -> dict[str, float]:
        nonlocal memberships, steps
        # a near-uniform start is a saddle: its gaps say nothing until every object has had its step
        threshold = 0.0 if saddle and number == 1 else tol * scale
        n_steps = min(limit, max_steps - steps)
        memberships, done = take_stretch(graph, memberships, divergence, n_steps, threshold)
        steps += done.n_steps
        listener.advance(n_steps)
        return {"step": steps, "objective": done.objective, "gap": done.gap / scale}

    with progress("PCC on pairs", max_steps, "steps") as listener:
        for record in run_passes(one_stretch, max_passes=-(-max_steps // limit), what="PCC on pairs"):
            records.append(record)
            if record["gap"] <= tol:
                break
    last = records[-1]
    objective, gap = last["objective"], last["gap"]
    return Solution(memberships, objective, gap, gap <= tol, len(records), as_history(records), [objective])
