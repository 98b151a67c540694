"""Solves of PCC below the estimator: from given memberships, in given blocks."""

from typing import Any, NamedTuple

import numpy as np

from bigcons import Ensemble
from bigcons.coassociation.factorized import agreement_sums
from bigcons.divergences import resolve_divergence
from bigcons.memory import DataBudget
from bigcons.methods.all_pairs import AllPairs, Solved
from bigcons.methods.pcc import BlockedPairs, Neighborhoods, check_tasks, cut_blocks
from bigcons.run.engine import SerialEngine
from bigcons.run.passes import Run, as_history, run_passes
from bigcons.run.survey import take_survey


class Found(NamedTuple):
    """The end of a solve."""

    memberships: np.ndarray
    objective: float
    gap: float
    settled: bool
    n_passes: int
    history: dict[str, list[float]]
    state: Any


def found(run, at):
    last = at.records[-1]
    rows = np.concatenate([run.arrays.read(at.generation, block) for block in run.blocks])
    history = as_history(at.records)
    return Found(rows, last["objective"], last["gap"], at.is_settled, len(at.records), history, at.state)


def given(memberships, weights=None):
    """Return a beginning of a run over labels from memberships of all objects."""
    memberships = np.asarray(memberships, np.float32)

    def begin(run):
        labels = run.data.read(0, run.data.n_objects)
        return Solved(memberships, agreement_sums(labels, run.data.offsets, memberships, weights), [])

    return begin


def solve_all(
    x, n_clusters, begin, *, max_passes=100, tol=3e-5, seed=0, engine=None, arrays=None,
    snapshots=None, n_sampled=400,
):  # fmt: skip
    """Solve all pairs by sums."""
    ensemble, engine = x if isinstance(x, Ensemble) else Ensemble.from_labels(x), engine or SerialEngine()
    survey = take_survey(ensemble, engine, seed, n_sampled)
    run = Run(ensemble, ensemble.blocks(), engine, seed, max_passes, tol, survey.sample, snapshots=snapshots)
    run.arrays = arrays or run.arrays
    method = AllPairs(n_clusters, begin)
    return found(run, run_passes(run, method))


def solve_listed(
    table, n_clusters, start, divergence="l2", *, blocks=None, max_passes=100, tol=3e-5, seed=0, engine=None,
    arrays=None, snapshots=None, max_steps=None, memory=None, **how,
):  # fmt: skip
    """Solve a table of pairs from memberships (n, K), in the blocks given or those that PCC cuts."""
    engine, start = engine or SerialEngine(), np.asarray(start, np.float32)
    blocks = cut_blocks(table) if blocks is None else blocks
    near = Neighborhoods.from_pairs(table, blocks, engine, resolve_divergence(divergence))
    if memory is not None:
        check_tasks(near, n_clusters, engine, DataBudget(memory))
    run = Run(table, near.blocks, engine, seed, max_passes, tol, snapshots=snapshots)
    run.arrays = arrays or run.arrays

    def begin():
        return (lambda block: start[block.start : block.stop]), []

    method = BlockedPairs(near, begin, max_steps, **how)
    return found(run, run_passes(run, method))
