"""The driver of methods whose next state follows from sums over the objects.

A method of this kind is a `Problem`: a start from a few thousand objects, a visit of a block that adds up
statistics, and the tiny next state that follows from them. The driver makes the starts, carries the best
of them over all blocks, several in the same passes, and commits every pass; it knows no method and no engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from bigcons.execution.engine import Engine
from bigcons.execution.fold import fold
from bigcons.memory import Block
from bigcons.progress import Progress
from bigcons.solving.loop import Begun, Packed, Pass, Record, Stage, run_stages
from bigcons.solving.starts import go_on
from bigcons.storage.checkpoint import BlockArrays, Snapshots
from bigcons.stores.ensemble import Ensemble

SUBSAMPLE = 4096

# Passes after which three of four starts on the sample are given up: which of them leads where has shown by
# then, and most methods have settled anyway.
SHORT_PASSES = 20

State = Mapping[str, np.ndarray]
"""Small named arrays that a pass works from. They travel to workers and into snapshots."""

Stats = Mapping[str, np.ndarray]
"""Small named arrays that add up over the blocks."""


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

    def for_all(self, state: State) -> State:
        """Return the state to begin passes over all objects from, given where a sample settled."""
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


class Effort(NamedTuple):
    """How many starts there are, and how far they go."""

    n_init: int
    n_finalists: int
    """Of ``n_init``: these go on over all objects."""
    max_passes: int
    tol: float
    """What `Problem.is_settled` is asked with."""
    seed: int


class Finalists(NamedTuple):
    """The starts that are carried over all objects, side by side."""

    judged: list[State]
    """The states that their last records speak of."""
    following: list[State]
    """The states of the next pass."""
    records: list[list[Record]]
    """One list each, one record a pass."""
    carries: bool
    """Whether the block arrays hold what objects carry into the next pass."""


class Solution(NamedTuple):
    """The best finalist, as its last record judged it."""

    state: State
    carried: CarriedArrays
    records: list[Record]
    """One a pass; the last judges ``state`` with what the objects carry."""
    converged: bool
    start_objectives: list[float]
    """Of every start on the sample, see `_finalists`."""


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
    effort: Effort,
    engine: Engine,
    arrays: BlockArrays,
    snapshots: Snapshots | None = None,
) -> Solution:
    """Run all starts on the ``sample`` of rows (all rows, if it has as many), the finalists, the best of
    them, on all objects in the same passes, and return the best of these.
    """

    def one_pass(stage: Stage[Finalists], listener: Progress) -> Pass[Finalists]:
        stats = _visit_blocks(problem, ensemble, engine, arrays, stage, listener)
        finalists, settled = finish_all(problem, stage.state, stats, effort.tol)
        record = finalists.records[_best(problem, finalists)][-1]
        return Pass(finalists, stage.generation + 1, record, settled)

    stage = run_stages(
        partial(_begin, problem, ensemble, sample, effort, engine, arrays),
        one_pass,
        pack=_pack,
        unpack=_unpack,
        max_passes=effort.max_passes,
        n_objects=ensemble.n_objects,
        what=problem.name,
        arrays=arrays,
        snapshots=snapshots,
    )
    finalists, best = stage.state, _best(problem, stage.state)
    columns = slice(best * problem.n_carried, (best + 1) * problem.n_carried)
    carried = CarriedArrays(arrays, stage.generation, columns)
    state, records = finalists.judged[best], finalists.records[best]
    return Solution(state, carried, records, stage.is_settled, stage.start_objectives)


def _begin(
    problem: Problem,
    ensemble: Ensemble,
    sample: np.ndarray,
    effort: Effort,
    engine: Engine,
    arrays: BlockArrays,
) -> Begun[Finalists]:
    """Find the finalists, and write as generation 0 what all objects carry, if the sample is all of them."""
    finalists, carried, objectives = _finalists(problem, sample, effort, engine)
    if sample.shape[0] < ensemble.n_objects:
        following = [problem.for_all(state) for state in finalists.following]
        return Begun(finalists._replace(following=following), objectives)
    if carried is not None:
        for block in ensemble.blocks():
            arrays.write(0, block, carried[block.start : block.stop])
    return Begun(finalists._replace(carries=carried is not None), objectives)


def _visit_blocks(
    problem: Problem,
    ensemble: Ensemble,
    engine: Engine,
    arrays: BlockArrays,
    stage: Stage[Finalists],
    listener: Progress,
) -> list[Stats]:
    """Visit every block under the states of a stage; return their statistics, write what objects carry on."""
    generation, states, carries = stage.generation, stage.state.following, stage.state.carries

    def visit(block: Block) -> list[Stats]:
        labels = ensemble.read(block.start, block.stop)
        before = arrays.read(generation, block) if carries else None
        stats, after = visit_all(problem, states, labels, before)
        if after is not None:
            arrays.write(generation + 1, block, after)
        return stats

    return fold(engine, ensemble.blocks(), visit, add_all, progress=listener)


def _finalists(
    problem: Problem, sample: np.ndarray, effort: Effort, engine: Engine
) -> tuple[Finalists, np.ndarray | None, list[float]]:
    """Return the best starts on the sample, what its objects carry, side by side, and all objectives.

    Every start makes a few passes; the better quarter of them goes on until it settles. The objectives are
    those where each start ended, of the others after their few passes.
    """
    n_init, n_finalists, max_passes = effort.n_init, effort.n_finalists, effort.max_passes
    one_pass = partial(_pass_over_sample, problem, sample, effort.tol)

    def begin(number: int) -> _Start:
        state, carried = problem.start(sample, effort.seed, number)
        start = _Start(Finalists([], [state], [[]], carries=False), carried, False)
        return go_on(start, one_pass, min(SHORT_PASSES, max_passes))[0]

    def end(start: _Start) -> _Start:
        return start if start.is_settled else go_on(start, one_pass, max_passes - SHORT_PASSES)[0]

    def rank(number: int) -> float:
        return _rank(problem, starts[number].alone.records[0][-1])

    starts = list(engine.map(begin, range(n_init)))
    order = sorted(range(n_init), key=rank)
    kept = order[: max(n_finalists, -(-n_init // 4))]
    for number, ended in zip(kept, engine.map(end, [starts[number] for number in kept]), strict=True):
        starts[number] = ended
    order.sort(key=rank)  # all of them: without a monotone objective one that went on may fall behind
    best = [starts[number] for number in order[:n_finalists]]
    carried = [start.carried for start in best if start.carried is not None]
    states = [start.alone.judged[0] for start in best]
    finalists = Finalists([], states, [[] for _ in states], carries=False)
    objectives = [start.alone.records[0][-1]["objective"] for start in starts]
    return finalists, np.concatenate(carried, axis=1) if carried else None, objectives


class _Start(NamedTuple):
    """One start on its way over the sample."""

    alone: Finalists
    carried: np.ndarray | None
    is_settled: bool


def _pass_over_sample(problem: Problem, sample: np.ndarray, tol: float, start: _Start) -> tuple[_Start, bool]:
    stats, carried = visit_all(problem, start.alone.following, sample, start.carried)
    alone, settled = finish_all(problem, start.alone, stats, tol)
    return _Start(alone, carried, settled), settled


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


def finish_all(
    problem: Problem, finalists: Finalists, stats: list[Stats], tol: float
) -> tuple[Finalists, bool]:
    """Return the finalists after a pass with these statistics, and whether all of them are settled."""
    following, records, settled = [], [], True
    for state, own, past in zip(finalists.following, stats, finalists.records, strict=True):
        state_after, record = problem.finish(state, own)
        settled &= problem.is_settled(past[-1] if past else None, record, tol)
        following.append(state_after)
        records.append([*past, record])
    return Finalists(finalists.following, following, records, problem.n_carried > 0), settled


def _best(problem: Problem, finalists: Finalists) -> int:
    return min(range(len(finalists.records)), key=lambda f: _rank(problem, finalists.records[f][-1]))


def _rank(problem: Problem, record: Record) -> float:
    return record["objective"] if problem.lower_is_better else -record["objective"]


def _pack(finalists: Finalists) -> Packed:
    arrays: dict[str, np.ndarray] = {}
    for part, states in (("judged", finalists.judged), ("following", finalists.following)):
        for f, state in enumerate(states):
            arrays |= {f"{part}.{f}.{name}": values for name, values in state.items()}
    return arrays, {"records": finalists.records, "carries": finalists.carries}


def _unpack(arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Finalists:
    states: dict[str, list[dict[str, np.ndarray]]] = {
        part: [{} for _ in facts["records"]] for part in ("judged", "following")
    }
    for key, values in arrays.items():
        part, f, name = key.split(".", 2)
        states[part][int(f)][name] = values
    return Finalists([*states["judged"]], [*states["following"]], **facts)
