"""Methods with several starts: all run on a sample, and the best of them share the passes over all objects.

Such a method is a `Problem`, which `BestOfStarts` turns into a `PassMethod` of `bigcons.solving.passes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from bigcons.execution.engine import stop_if_cancelled
from bigcons.memory import Block
from bigcons.solving.passes import BlockArrays, Iterate, Record, Run, State, Stats, Step, add_stats

Start = TypeVar("Start")

# Passes after which three of four starts on the sample are dropped: by then their ranking is clear, and most
# methods have settled anyway.
SHORT_PASSES = 20


class Problem(Protocol):
    """A method whose next state follows from sums over the objects, from any of several starts."""

    name: str
    n_carried: int
    """Numbers that an object carries from pass to pass, such as its cluster; 0 if none."""
    carried_dtype: str
    lower_is_better: bool
    """Whether the objective is minimized."""

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, np.ndarray | None]:
        """Return the first state of start ``number``, and the objects' rows if they matter.

        ``labels`` (rows, M) is the sample to start from, or all objects if these are few.
        """

    def for_all(self, state: State) -> State:
        """Return the state from which passes over all objects start, given the solved sample's."""

    def visit(
        self, state: State, labels: np.ndarray, carried: np.ndarray | None
    ) -> tuple[Stats, np.ndarray | None]:
        """Return the statistics of a block under ``state``, and its objects' next rows (rows, n_carried).

        ``carried`` is None in the first pass over objects that were not in the sample.
        """

    def finish(self, state: State, stats: Stats) -> tuple[State, Record]:
        """Return the next state, and the record of ``state``: at least its "objective"."""

    def is_settled(self, previous: Record | None, record: Record, tol: float) -> bool:
        """Return whether to stop after the pass of ``record``."""

    def results(self, state: State, labels: np.ndarray, carried: np.ndarray | None) -> np.ndarray:
        """Return memberships (rows, K) float32 of a block, or clusters (rows,) of a method that is not soft.

        ``carried`` is None for objects that were in no pass.
        """


@runtime_checkable
class CountedProblem(Problem, Protocol):
    """A `Problem` that can start from all objects in given clusters."""

    def state_of_counts(self, counts: np.ndarray, sizes: np.ndarray) -> State:
        """Return the first state from the objects of each base cluster in each cluster (B, K), and the sizes
        of the clusters (K,).
        """


class Finalists(NamedTuple):
    """Starts that share the passes over all objects."""

    judged: list[State]
    """The states that the last records describe."""
    following: list[State]
    """The states of the next pass."""
    records: list[list[Record]]
    """One list per finalist, one record per pass."""
    carries: bool
    """Whether the block arrays hold the objects' rows for the next pass."""


class Winner(NamedTuple):
    """The best finalist by its last record."""

    state: State
    records: list[Record]
    arrays: BlockArrays
    generation: int
    columns: slice
    """Columns of the block arrays, which hold the rows of all finalists side by side."""

    def carried(self, block: Block) -> np.ndarray | None:
        """Return the rows of a block's objects (rows, n_carried), None if n_carried is 0."""
        if self.columns.stop == 0:
            return None
        return np.ascontiguousarray(self.arrays.read(self.generation, block)[:, self.columns])


class BestOfStarts:
    """A `Problem` from several starts: all on the sample, the best on all objects in the same passes."""

    def __init__(self, problem: Problem, n_finalists: int) -> None:
        self.problem = problem
        self.n_finalists = n_finalists
        self.name: str = problem.name

    def n_held(self, n_init: int) -> int:
        """Return the most starts on the sample that are held at once."""
        return min(n_init, self._n_continued(n_init) + self.n_finalists + 1)

    def start(self, run: Run) -> tuple[Finalists, list[float]]:
        """Run all starts on the sample; return the best of them, and the final objectives of all.

        Every start makes a few passes; the best quarter continues until it settles.
        """
        problem, max_passes = self.problem, run.max_passes
        first = SampleStart(problem, run.sample, run.seed, run.tol, min(SHORT_PASSES, max_passes))
        further = replace(first, max_passes=max_passes - SHORT_PASSES)
        n_kept = self._n_continued(run.n_init)
        starts: dict[int, OnSample] = {}
        objectives: list[float] = []

        def rank(number: int) -> float:
            return self._rank(starts[number].finalists)

        for number, start in enumerate(run.engine.map(first, range(run.n_init))):
            starts[number] = start
            objectives.append(start.objective)
            if len(starts) > n_kept + self.n_finalists:  # no further one can end among the best
                del starts[sorted(starts, key=rank)[-1]]
        order = sorted(starts, key=rank)
        ended = run.engine.map(further.resume, [starts[number] for number in order[:n_kept]])
        for number, start in zip(order, ended, strict=False):
            starts[number] = start
            objectives[number] = start.objective
        # rank all again: if the objective is not monotone, one that continued may fall behind
        order.sort(key=rank)
        best = [starts[number] for number in order[: self.n_finalists]]
        states = [start.finalists.judged[0] for start in best]
        carries = best[0].carried is not None and run.sample.shape[0] == run.data.n_objects
        if carries:
            carried = np.concatenate([start.carried for start in best if start.carried is not None], axis=1)
            for block in run.blocks:
                run.arrays.write(0, block, carried[block.start : block.stop])
        if run.sample.shape[0] < run.data.n_objects:
            states = [problem.for_all(state) for state in states]
        return Finalists([], states, [[] for _ in states], carries), objectives

    def visit(self, run: Run, at: Iterate[Finalists]) -> Callable[[Block], list[Stats]]:
        """Return the task that visits a block under the states of all finalists."""
        reads = [at.generation] if at.state.carries else []
        states = at.state.following
        return run.visit(visit_all, self.problem, states, reads=reads, writes=at.generation + 1)

    @staticmethod
    def add(total: list[Stats], part: list[Stats]) -> list[Stats]:
        """Add the statistics of a further block, in place."""
        return add_all(total, part)

    def step(self, run: Run, at: Iterate[Finalists], total: list[Stats]) -> Step[Finalists]:
        """Take the step of every finalist; the record is that of the best."""
        finalists, settled = finish_all(self.problem, at.state, total, run.tol)
        return Step(finalists, finalists.records[self._best(finalists)][-1], settled)

    def winner(self, run: Run, at: Iterate[Finalists]) -> Winner:
        """Return the best finalist where the passes ended."""
        finalists, best, width = at.state, self._best(at.state), self.problem.n_carried
        columns = slice(best * width, (best + 1) * width)
        return Winner(finalists.judged[best], finalists.records[best], run.arrays, at.generation, columns)

    def pack(self, state: Finalists) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the finalists as arrays and facts."""
        arrays: dict[str, np.ndarray] = {}
        for part, states in (("judged", state.judged), ("following", state.following)):
            for f, own in enumerate(states):
                arrays |= {f"{part}.{f}.{name}": values for name, values in own.items()}
        return arrays, {"records": state.records, "carries": state.carries}

    def unpack(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Finalists:
        """Return the finalists of a snapshot."""
        states: dict[str, list[dict[str, np.ndarray]]] = {
            part: [{} for _ in facts["records"]] for part in ("judged", "following")
        }
        for key, values in arrays.items():
            part, f, name = key.split(".", 2)
            states[part][int(f)][name] = values
        return Finalists([*states["judged"]], [*states["following"]], **facts)

    def _n_continued(self, n_init: int) -> int:
        return max(self.n_finalists, -(-n_init // 4))

    def _best(self, finalists: Finalists) -> int:
        return min(range(len(finalists.records)), key=lambda f: self._rank(finalists, f))

    def _rank(self, finalists: Finalists, f: int = 0) -> float:
        objective = finalists.records[f][-1]["objective"]
        return objective if self.problem.lower_is_better else -objective


Counts = tuple[np.ndarray, np.ndarray]
"""How many objects of each base cluster are in each cluster (B, K), and how many in all (K,)."""


class CountedStart(BestOfStarts):
    """Passes that start from all objects in given clusters, which are counted; nothing else is tried."""

    def __init__(
        self, problem: CountedProblem, counts: Callable[[Run], Counts], *, carries: bool = False
    ) -> None:
        super().__init__(problem, 1)
        self.counted = problem
        self.counts = counts
        self.carries = carries
        """Whether ``counts`` writes the first rows of the objects."""

    def n_held(self, _n_init: int) -> int:
        """Return 0: none starts on the sample."""
        return 0

    def start(self, run: Run) -> tuple[Finalists, list[float]]:
        """Return the state that follows from the counts."""
        return Finalists([], [self.counted.state_of_counts(*self.counts(run))], [[]], self.carries), []


class OnSample(NamedTuple):
    """One start on the sample, between passes."""

    finalists: Finalists
    """The start alone."""
    carried: np.ndarray | None
    is_settled: bool

    @property
    def objective(self) -> float:
        """Objective of its last pass."""
        return self.finalists.records[0][-1]["objective"]


@dataclass(frozen=True)
class SampleStart:
    """A task: run one start on the sample, for a limited number of passes."""

    problem: Problem
    sample: np.ndarray
    seed: int
    tol: float
    max_passes: int

    def __call__(self, number: int) -> OnSample:
        """Run start ``number``."""
        state, carried = self.problem.start(self.sample, self.seed, number)
        return self.resume(OnSample(Finalists([], [state], [[]], carries=False), carried, False))

    def resume(self, start: OnSample) -> OnSample:
        """Continue a start unless it has settled."""
        for _ in range(self.max_passes):
            stop_if_cancelled()
            if start.is_settled:
                break
            stats, carried = visit_all(self.problem, start.finalists.following, self.sample, start.carried)
            finalists, settled = finish_all(self.problem, start.finalists, stats, self.tol)
            start = OnSample(finalists, carried, settled)
        return start


def visit_all(
    problem: Problem, states: list[State], labels: np.ndarray, carried: np.ndarray | None = None
) -> tuple[list[Stats], np.ndarray | None]:
    """Visit a block under every state; the objects' rows are side by side, (rows, states * n_carried)."""
    width = problem.n_carried
    results = []
    for f, state in enumerate(states):
        own = None if carried is None else np.ascontiguousarray(carried[:, f * width : (f + 1) * width])
        results.append(problem.visit(state, labels, own))
    after = [rows for _, rows in results if rows is not None]
    return [stats for stats, _ in results], np.concatenate(after, axis=1) if after else None


def add_all(total: list[Stats], more: list[Stats]) -> list[Stats]:
    """Add the statistics of a further block under every state, in place."""
    return [add_stats(*of_both) for of_both in zip(total, more, strict=True)]


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


def gains_little(previous: Record | None, record: Record, tol: float) -> bool:
    """Return whether the objective rose by at most ``tol`` of itself: a rule for `Problem.is_settled`."""
    if previous is None:
        return False
    return record["objective"] - previous["objective"] <= tol * abs(record["objective"])


def best_start(
    starts: Iterable[Start], objective: Callable[[Start], float], *, lower_is_better: bool = True
) -> tuple[Start, list[float]]:
    """Return the best start, the first in case of ties, and the objectives of all, in order.

    Holds at most two starts at a time.
    """
    sign = 1.0 if lower_is_better else -1.0
    best: list[Start] = []
    objectives: list[float] = []
    least = float("inf")
    for start in starts:
        value = float(objective(start))
        objectives.append(value)
        if not best or sign * value < least:
            best, least = [start], sign * value
    return best[0], objectives
