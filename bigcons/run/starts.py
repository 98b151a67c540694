"""Methods with several starts: all run on a sample, and the best of them on all objects.

Such a method is a `Method`, which `BestOfStarts` turns into a `PassMethod` of `bigcons.run.passes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bigcons.memory import Block
from bigcons.run.engine import stop_if_cancelled
from bigcons.run.passes import BlockArrays, Iterate, Record, Run, State, Stats, Step, add_stats

Start = TypeVar("Start")

# Passes after which three of four starts on the sample are dropped: by then their ranking is clear, and most
# methods have settled anyway.
SHORT_PASSES = 20


class Method(ABC):
    """A method: what it adds up over a block, and what it does with the sum.

    Its next state follows from sums over the objects, from any of several starts. Starts, resuming, memory
    and engines wrap it and know nothing of it.
    """

    name: str
    n_carried: int = 0
    """Numbers that an object carries from pass to pass, such as its cluster; 0 if none."""
    carried_dtype: str = "<f4"
    lower_is_better: bool = False
    """Whether the objective is minimized."""

    @abstractmethod
    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, np.ndarray | None]:
        """Return the first state of start ``number``, and the objects' rows if they matter.

        ``labels`` (rows, M) is the sample to start from, or all objects if these are few.
        """

    @abstractmethod
    def block_stats(
        self, state: State, labels: np.ndarray, carried: np.ndarray | None = None
    ) -> tuple[Stats, np.ndarray | None]:
        """Return the statistics of a block under ``state``, and its objects' next rows (rows, n_carried).

        ``carried`` is None in the first pass over objects that were not in the sample.
        """

    @abstractmethod
    def finish(self, state: State, stats: Stats) -> tuple[State, Record]:
        """Return the next state, and the record of ``state``: at least its "objective"."""

    @abstractmethod
    def place(self, state: State, labels: np.ndarray, carried: np.ndarray | None = None) -> np.ndarray:
        """Return memberships (rows, K) float32 of a block, or clusters (rows,) of a method that is not soft.

        ``carried`` is None for objects that were in no pass.
        """

    def for_all(self, state: State) -> State:
        """Return the state from which passes over all objects start, given the solved sample's."""
        return state

    def state_of_counts(self, counts: np.ndarray, sizes: np.ndarray) -> State:
        """Return the first state of all objects in given clusters.

        By the objects of each base cluster in each cluster (B, K), and the sizes of the clusters (K,).
        """
        raise NotImplementedError

    def is_settled(self, previous: Record | None, record: Record, tol: float) -> bool:
        """Return whether to stop after the pass of ``record``: it gained at most ``tol`` of the objective."""
        return gains_little(previous, record, tol)


class Trial(NamedTuple):
    """One start between two passes."""

    judged: State
    """The state that the last record describes; empty before the first pass."""
    following: State
    """The state of the next pass."""
    records: list[Record]
    """One per pass."""
    carries: bool
    """Whether the block arrays hold the objects' rows for the next pass."""

    @property
    def objective(self) -> float:
        """Objective of the last pass."""
        return self.records[-1]["objective"]


class Winner(NamedTuple):
    """The best start after the last pass."""

    state: State
    records: list[Record]
    arrays: BlockArrays
    generation: int
    n_carried: int

    def carried(self, block: Block) -> np.ndarray | None:
        """Return the rows of a block's objects (rows, n_carried), None if n_carried is 0."""
        return self.arrays.read(self.generation, block) if self.n_carried else None


class BestOfStarts:
    """A `Method` from several starts: all on the sample, the best of them on all objects."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.name: str = method.name

    def n_held(self, n_init: int) -> int:
        """Return the most starts on the sample that are held at once."""
        return min(n_init, _n_continued(n_init) + 2)

    def start(self, run: Run) -> tuple[Trial, list[float]]:
        """Run all starts on the sample; return the best of them, and the final objectives of all.

        Every start makes a few passes; the best quarter continues until it settles.
        """
        method, max_passes = self.method, run.max_passes
        first = SampleStart(method, run.sample, run.seed, run.tol, min(SHORT_PASSES, max_passes))
        further = replace(first, max_passes=max_passes - SHORT_PASSES)
        n_kept = _n_continued(run.n_init)
        starts: dict[int, OnSample] = {}
        objectives: list[float] = []

        def rank(number: int) -> float:
            objective = starts[number].trial.objective
            return objective if method.lower_is_better else -objective

        for number, start in enumerate(run.engine.map(first, range(run.n_init))):
            starts[number] = start
            objectives.append(start.trial.objective)
            if len(starts) > n_kept + 1:  # no further one can end as the best
                del starts[sorted(starts, key=rank)[-1]]
        order = sorted(starts, key=rank)
        ended = run.engine.map(further.resume, [starts[number] for number in order[:n_kept]])
        for number, start in zip(order, ended, strict=False):
            starts[number] = start
            objectives[number] = start.trial.objective
        # rank all again: if the objective is not monotone, one that continued may fall behind
        best = starts[min(order, key=rank)]
        state, is_sample = best.trial.judged, run.sample.shape[0] < run.data.n_objects
        carries = best.carried is not None and not is_sample
        if best.carried is not None and carries:
            for block in run.blocks:
                run.arrays.write(0, block, best.carried[block.start : block.stop])
        return Trial({}, method.for_all(state) if is_sample else state, [], carries), objectives

    def visit(self, run: Run, at: Iterate[Trial]) -> Callable[[Block], Stats]:
        """Return the task that visits a block."""
        reads = [at.generation] if at.state.carries else []
        return run.visit(self.method.block_stats, at.state.following, reads=reads, writes=at.generation + 1)

    @staticmethod
    def add(total: Stats, part: Stats) -> Stats:
        """Add the statistics of a further block, in place."""
        return add_stats(total, part)

    def step(self, run: Run, at: Iterate[Trial], total: Stats) -> Step[Trial]:
        """Take the step that follows from the sums."""
        trial, is_settled = following(self.method, at.state, total, run.tol)
        return Step(trial, trial.records[-1], is_settled)

    def winner(self, run: Run, at: Iterate[Trial]) -> Winner:
        """Return the start where its passes ended."""
        trial = at.state
        return Winner(trial.judged, trial.records, run.arrays, at.generation, self.method.n_carried)

    def pack(self, state: Trial) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return a trial as arrays and facts."""
        arrays = {f"judged.{name}": values for name, values in state.judged.items()}
        arrays |= {f"following.{name}": values for name, values in state.following.items()}
        return arrays, {"records": state.records, "carries": state.carries}

    def unpack(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Trial:
        """Return the trial of a snapshot."""
        states: dict[str, dict[str, np.ndarray]] = {"judged": {}, "following": {}}
        for key, values in arrays.items():
            part, name = key.split(".", 1)
            states[part][name] = values
        return Trial(states["judged"], states["following"], **facts)


def _n_continued(n_init: int) -> int:
    return -(-n_init // 4)


Counts = tuple[np.ndarray, np.ndarray]
"""How many objects of each base cluster are in each cluster (B, K), and how many in all (K,)."""


class CountedStart(BestOfStarts):
    """Passes that start from all objects in given clusters, which are counted; nothing else is tried."""

    def __init__(self, method: Method, counts: Callable[[Run], Counts], *, carries: bool = False) -> None:
        super().__init__(method)
        self.counts = counts
        self.carries = carries
        """Whether ``counts`` writes the first rows of the objects."""

    def n_held(self, _n_init: int) -> int:
        """Return 0: none starts on the sample."""
        return 0

    def start(self, run: Run) -> tuple[Trial, list[float]]:
        """Return the state that follows from the counts."""
        return Trial({}, self.method.state_of_counts(*self.counts(run)), [], self.carries), []


class OnSample(NamedTuple):
    """One start on the sample, between passes."""

    trial: Trial
    carried: np.ndarray | None
    is_settled: bool


@dataclass(frozen=True)
class SampleStart:
    """A task: run one start on the sample, for a limited number of passes."""

    method: Method
    sample: np.ndarray
    seed: int
    tol: float
    max_passes: int

    def __call__(self, number: int) -> OnSample:
        """Run start ``number``."""
        state, carried = self.method.start(self.sample, self.seed, number)
        return self.resume(OnSample(Trial({}, state, [], carries=False), carried, False))

    def resume(self, start: OnSample) -> OnSample:
        """Continue a start unless it has settled."""
        for _ in range(self.max_passes):
            stop_if_cancelled()
            if start.is_settled:
                break
            stats, carried = self.method.block_stats(start.trial.following, self.sample, start.carried)
            trial, is_settled = following(self.method, start.trial, stats, self.tol)
            start = OnSample(trial, carried, is_settled)
        return start


def following(method: Method, trial: Trial, stats: Stats, tol: float) -> tuple[Trial, bool]:
    """Return a trial after a pass with these statistics, and whether it is settled."""
    state, record = method.finish(trial.following, stats)
    is_settled = method.is_settled(trial.records[-1] if trial.records else None, record, tol)
    return Trial(trial.following, state, [*trial.records, record], method.n_carried > 0), is_settled


def gains_little(previous: Record | None, record: Record, tol: float) -> bool:
    """Return whether the objective rose by at most ``tol`` of itself: a rule for `Method.is_settled`."""
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
