"""The driver of methods whose next state follows from sums over the objects.

A method of this kind is a `Problem`: a start from a few thousand objects, a visit of a block that adds up
statistics, and the tiny next state that follows from them. The driver makes the starts, carries the best
of them over all blocks, several in the same passes, and commits every pass; it knows no method and no engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from bigcons.execution.engine import Engine
from bigcons.execution.fold import fold
from bigcons.execution.loop import run_passes
from bigcons.memory import Block
from bigcons.progress import progress
from bigcons.stores.checkpoint import BlockArrays, Snapshots
from bigcons.stores.ensemble import Ensemble

SUBSAMPLE = 4096

State = Mapping[str, np.ndarray]
"""Small named arrays that a pass works from. They travel to workers and into snapshots."""

Stats = Mapping[str, np.ndarray]
"""Small named arrays that add up over the blocks."""

Record = dict[str, float]


class Problem(Protocol):
    """What a method has to say."""

    name: str
    n_carried: int
    """Numbers that an object carries from pass to pass, such as its cluster; 0 if none."""
    carried_dtype: str
    lower_is_better: bool
    """Which way the objective goes."""

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, np.ndarray | None]:
        """Return the first state of start ``number``, and what the objects carry if that matters.

        ``labels`` (rows, M) is the sample to start from, or all objects if these are few.
        """
        ...

    def visit(
        self, state: State, labels: np.ndarray, carried: np.ndarray | None
    ) -> tuple[Stats, np.ndarray | None]:
        """Return the statistics of a block under ``state``, and what its objects (rows, n_carried) carry on.

        ``carried`` is None in the first pass over objects that no start has seen.
        """
        ...

    def finish(self, state: State, stats: Stats) -> tuple[State, Record]:
        """Return the next state, and the record of ``state``: at least its "objective"."""
        ...

    def is_settled(self, previous: Record | None, record: Record, tol: float) -> bool:
        """Tell whether to stop after the pass of ``record``."""
        ...

    def results(self, state: State, labels: np.ndarray, carried: np.ndarray | None) -> np.ndarray:
        """Return memberships (rows, K) float32 of a block, or clusters (rows,) of a method that is not soft.

        ``carried`` is None for objects that no pass has seen.
        """
        ...


class Stage(NamedTuple):
    """All that the next pass depends on: what a snapshot holds."""

    judged: list[State]
    """One state per finalist: the one that the last record speaks of."""
    following: list[State]
    """One state per finalist: that of the next pass."""
    records: list[list[Record]]
    """One list per finalist, one record a pass."""
    settled: bool = False
    carries: bool = False
    """Whether the block arrays hold what objects carry into the next pass."""

    @property
    def n_passes(self) -> int:
        """How many passes have been made."""
        return len(self.records[0])


class Solution(NamedTuple):
    """The best finalist, as its last record judged it."""

    state: State
    carried: CarriedArrays
    records: list[Record]
    """One a pass; the last judges ``state`` with what the objects carry."""
    converged: bool


class CarriedArrays(NamedTuple):
    """What the objects carry, of one finalist among those that lie side by side in block arrays."""

    arrays: BlockArrays
    generation: int
    columns: slice

    def read(self, block: Block) -> np.ndarray | None:
        """Return the rows (rows, n_carried) of a block, or None if objects carry nothing."""
        if self.columns.stop == 0:
            return None
        return np.ascontiguousarray(self.arrays.read(self.generation, block)[:, self.columns])


def solve_by_passes(
    problem: Problem,
    ensemble: Ensemble,
    sample: np.ndarray,
    *,
    n_init: int,
    n_finalists: int,
    max_passes: int,
    tol: float,
    seed: int,
    engine: Engine,
    arrays: BlockArrays,
    snapshots: Snapshots | None = None,
) -> Solution:
    """Run ``n_init`` starts on the ``sample`` of rows (all rows, if it has as many), the best
    ``n_finalists`` of them on all objects in the same passes, and return the best of these.
    """
    blocks = ensemble.blocks()
    resumed = _resumed(snapshots)
    if resumed is None:
        stage, rows = _finalists(problem, sample, n_init, n_finalists, max_passes, tol, seed, engine)
        if rows is not None and sample.shape[0] == ensemble.n_objects:
            for block in blocks:
                arrays.write(0, block, rows[block.start : block.stop])
            stage = stage._replace(carries=True)
        _commit(snapshots, stage)
    else:
        stage = resumed
    done = stage.n_passes
    states, carries = stage.following, stage.carries

    def visit(block: Block) -> list[Stats]:
        labels = ensemble.read(block.start, block.stop)
        before = arrays.read(done, block) if carries else None
        stats, after = visit_all(problem, states, labels, before)
        if after is not None:
            arrays.write(done + 1, block, after)
        return stats

    def one_pass(_number: int) -> Record:
        nonlocal stage, states, carries, done
        stats = fold(engine, blocks, visit, add_all, progress=listener)
        stage = finish_all(problem, stage, stats, tol)
        _commit(snapshots, stage)
        arrays.drop(done)
        states, carries, done = stage.following, stage.carries, stage.n_passes
        return stage.records[_best(problem, stage.records)][-1]

    with progress(problem.name, ensemble.n_objects * (max_passes - done)) as listener:
        passes = run_passes(one_pass, first=done + 1, max_passes=max_passes, what=problem.name)
        while not stage.settled and next(passes, None) is not None:
            pass
    best = _best(problem, stage.records)
    columns = slice(best * problem.n_carried, (best + 1) * problem.n_carried)
    carried = CarriedArrays(arrays, done, columns)
    return Solution(stage.judged[best], carried, stage.records[best], stage.settled)


def _finalists(
    problem: Problem,
    sample: np.ndarray,
    n_init: int,
    n_finalists: int,
    max_passes: int,
    tol: float,
    seed: int,
    engine: Engine,
) -> tuple[Stage, np.ndarray | None]:
    """Return the first stage, of the best starts on the sample, and what its objects carry side by side."""

    def restart(number: int) -> tuple[Record, State, np.ndarray | None]:
        state, carried = problem.start(sample, seed, number)
        stage = Stage([], [state], [[]])
        while not stage.settled and stage.n_passes < max_passes:
            stats, carried = visit_all(problem, stage.following, sample, carried)
            stage = finish_all(problem, stage, stats, tol)
        return stage.records[0][-1], stage.judged[0], carried

    results = list(engine.map(restart, range(n_init)))
    results.sort(key=lambda result: _rank(problem, result[0]))
    carried = [rows for _, _, rows in results[:n_finalists] if rows is not None]
    states = [state for _, state, _ in results[:n_finalists]]
    stage = Stage([], states, [[] for _ in states])
    return stage, np.concatenate(carried, axis=1) if carried else None


def gains_little(previous: Record | None, record: Record, tol: float) -> bool:
    """Return whether an objective gained no more than ``tol`` of itself: a rule for `Problem.is_settled`."""
    if previous is None:
        return False
    return record["objective"] - previous["objective"] <= tol * abs(record["objective"])


def visit_all(
    problem: Problem, states: list[State], labels: np.ndarray, carried: np.ndarray | None
) -> tuple[list[Stats], np.ndarray | None]:
    """Visit a block under every state; what objects carry lies side by side, (rows, states * n_carried)."""
    width = problem.n_carried
    results = []
    for f, state in enumerate(states):
        own = None if carried is None else np.ascontiguousarray(carried[:, f * width : (f + 1) * width])
        results.append(problem.visit(state, labels, own))
    after = [rows for _, rows in results if rows is not None]
    return [stats for stats, _ in results], np.concatenate(after, axis=1) if after else None


def add_all(total: list[Stats], more: list[Stats]) -> list[Stats]:
    """Add the statistics of a further block, in place."""
    for stats, further in zip(total, more, strict=True):
        for name, values in further.items():
            stats[name][...] += values
    return total


def finish_all(problem: Problem, stage: Stage, stats: list[Stats], tol: float) -> Stage:
    """Return the stage after a pass with these statistics; it is settled when every finalist is."""
    following, records, settled = [], [], True
    for state, own, past in zip(stage.following, stats, stage.records, strict=True):
        state_after, record = problem.finish(state, own)
        settled &= problem.is_settled(past[-1] if past else None, record, tol)
        following.append(state_after)
        records.append([*past, record])
    return Stage(stage.following, following, records, settled, carries=problem.n_carried > 0)


def _best(problem: Problem, records: list[list[Record]]) -> int:
    return min(range(len(records)), key=lambda f: _rank(problem, records[f][-1]))


def _rank(problem: Problem, record: Record) -> float:
    return record["objective"] if problem.lower_is_better else -record["objective"]


def _commit(snapshots: Snapshots | None, stage: Stage) -> None:
    if snapshots is None:
        return
    arrays: dict[str, np.ndarray] = {}
    for part, states in (("judged", stage.judged), ("following", stage.following)):
        for f, state in enumerate(states):
            arrays |= {f"{part}.{f}.{name}": values for name, values in state.items()}
    facts = {"records": stage.records, "settled": stage.settled, "carries": stage.carries}
    snapshots.save(arrays, facts)


def _resumed(snapshots: Snapshots | None) -> Stage | None:
    found = snapshots.load() if snapshots is not None else None
    if found is None:
        return None
    arrays, facts = found
    n_finalists = len(facts["records"])
    states: dict[str, list[dict[str, np.ndarray]]] = {
        part: [{} for _ in range(n_finalists)] for part in ("judged", "following")
    }
    for key, values in arrays.items():
        part, f, name = key.split(".", 2)
        states[part][int(f)][name] = values
    return Stage([*states["judged"]], [*states["following"]], **facts)
