"""The loop of passes: start or resume, visit every block, take a step, commit, until settled.

A pass is a fold over blocks: a small state goes to every block, the reports of the blocks are summed, and the
next state follows from the sum. A `PassMethod` is the mathematics of a method, a `Run` its data, engine and
limits, and `run_passes` the loop, the same for all methods.

A method with several starts is a `Problem`, which `BestOfStarts` turns into a `PassMethod`: all starts run on
a sample, and the best of them share the passes over all objects.
"""

from __future__ import annotations

import itertools
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from bigcons.errors import CorruptStoreError, first_line
from bigcons.execution.engine import Engine, fold, stop_if_cancelled
from bigcons.memory import Block, resident_bytes
from bigcons.progress import Task, progress, time_left
from bigcons.storage.checkpoint import BlockArrays, MemoryBlocks, Snapshot, Snapshots

logger: logging.Logger = logging.getLogger("bigcons")

Record = dict[str, float]
"""Quantities reported by one pass, by name."""

History = dict[str, list[float]]
"""One list per quantity, one entry per pass, for plots and stored results."""

S = TypeVar("S")  # the state of a method
T = TypeVar("T")  # the report of its blocks
Start = TypeVar("Start")


class Iterate(NamedTuple, Generic[S]):
    """A solve between two passes, as a snapshot stores it; block arrays by generation."""

    state: S
    """What the method carries from pass to pass; small."""
    generation: int
    """Generation of the block arrays of this state; a pass reads it and writes later ones."""
    is_settled: bool
    """Whether the stopping rule holds."""
    records: list[Record]
    """One per pass."""
    start_objectives: list[float]
    """Objective of every start; empty if there was no choice."""


class Step(NamedTuple, Generic[S]):
    """The result of one pass."""

    state: S
    record: Record
    is_settled: bool
    n_generations: int = 1
    """Written by the pass; the last one belongs to the state."""


class PassMethod(Protocol[S, T]):
    """The mathematics of a method that runs in passes.

    A method whose passes do not end before ``max_passes`` says so by ``takes_all_passes = True``.
    """

    name: str

    def start(self, run: Run) -> tuple[S, list[float]]:
        """Write generation 0 of the objects' rows; return the state, and the objectives of all starts."""

    def visit(self, run: Run, at: Iterate[S]) -> Callable[[Block], T]:
        """Return the task of a pass: it reads generation ``at.generation`` of a block and writes the next."""

    @property
    def add(self) -> Callable[[T, T], T]:
        """A function that returns the sum of what two blocks report; it may change the first."""

    def step(self, run: Run, at: Iterate[S], total: T) -> Step[S]:
        """Return the result of the pass; change nothing in place, as an interrupted pass is repeated."""

    def pack(self, state: S) -> tuple[Mapping[str, np.ndarray], Mapping[str, Any]]:
        """Return a state as arrays and JSON-serializable facts."""

    def unpack(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> S:
        """Return the state that `pack` was given."""


@dataclass
class Run:
    """One solve: its data, engine, storage between passes, and limits."""

    data: Any
    """The Ensemble; for pairs block by block, their PairTable."""
    engine: Engine
    seed: int
    max_passes: int
    tol: float
    sample: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.int8))
    """(rows, M) labels to start from, of all objects if these are few."""
    arrays: BlockArrays = field(default_factory=MemoryBlocks)
    """Rows that objects carry from pass to pass."""
    snapshots: Snapshots | None = None
    n_init: int = 1
    rounds: list[list[Block]] = field(default_factory=list)
    """The blocks that may be visited at once, round by round; by default all. A method may change them."""

    def __post_init__(self) -> None:
        self.rounds = self.rounds or [self.data.blocks()]
        self.blocks: list[Block] = sorted(block for blocks in self.rounds for block in blocks)

    def fold(self, task: Callable[[Block], T], add: Callable[[T, T], T], listener: Task | None = None) -> T:
        """Return the sum of a task's reports on the blocks, round by round, in order."""
        total = fold(self.engine, self.rounds[0], task, add, progress=listener)
        for blocks in self.rounds[1:]:
            total = add(total, fold(self.engine, blocks, task, add, progress=listener))
        return total

    def visit(
        self, function: Callable[..., Any], *arguments: Any, reads: Sequence[int], writes: int | None = None
    ) -> Callable[[Block], Any]:
        """Return the task that hands a block to a function, and writes what it returns for the objects.

        The function takes ``arguments``, then the block's labels, then its rows of the generations ``reads``.
        If ``writes`` is a generation it returns a report and the rows to write there, if any; else only a
        report.
        """
        data, arrays = self.data, self.arrays

        def visit_block(block: Block) -> Any:
            labels = data.read(block.start, block.stop)
            report = function(*arguments, labels, *(arrays.read(generation, block) for generation in reads))
            if writes is None:
                return report
            report, written = report
            if written is not None:
                arrays.write(writes, block, written)
            return report

        return visit_block

    def shorten(self, generation: int, step: float) -> None:
        """Write, two generations ahead, the interpolation at ``step`` between this and the next."""
        arrays = self.arrays

        def blend(block: Block) -> None:
            before, after = arrays.read(generation, block), arrays.read(generation + 1, block)
            arrays.write(generation + 2, block, before + np.float32(step) * (after - before))

        for _ in self.engine.map(blend, self.blocks):
            pass


def run_passes(run: Run, method: PassMethod[S, T]) -> Iterate[S]:
    """Return the iterate at which the passes end: settled, or after ``run.max_passes`` in all.

    With snapshots, the start and every pass are committed, and an existing run is resumed. Generations that
    no pass reads any more are dropped, block by block in the tasks of the next pass; with snapshots one pass
    later: should the last pass be damaged, a run resumes from the one before.
    """
    at = None if run.snapshots is None else _resume(run, run.snapshots, method)
    if at is None:
        state, start_objectives = method.start(run)
        at = Iterate(state, 0, False, [], start_objectives)
        if run.snapshots is not None:
            _commit(run, run.snapshots, method, at)
    first, dropped = len(at.records) + 1, 0
    takes_all, stale = getattr(method, "takes_all_passes", False), list[int]()
    with progress(method.name, 0) as task:
        for number in range(first, run.max_passes + 1):
            if at.is_settled:
                break
            most = run.max_passes - len(at.records)
            n_left = most if takes_all else passes_left(at.records, run.tol, most)
            expected = None if n_left is None else number - 1 + n_left
            of = "" if expected is None else f" of about {expected}"
            gap = [f"gap {record['gap']:.1e}" for record in at.records[-1:] if "gap" in record]
            total = None if expected is None else run.data.n_objects * (expected - first + 1)
            task.expect(total, ", ".join([f"pass {number}{of}", *gap]))
            began = time.perf_counter()
            visit = partial(_clear_and_visit, run.arrays, stale, method.visit(run, at))
            step = method.step(run, at, run.fold(visit, method.add, task))
            run.arrays.drop(stale)  # what is left are empty folders
            records = [*at.records, timed(method.name, number, step.record, began)]
            before, generation = at.generation, at.generation + step.n_generations
            at = Iterate(step.state, generation, bool(step.is_settled), records, at.start_objectives)
            if run.snapshots is not None:
                _commit(run, run.snapshots, method, at)
            kept = before if run.snapshots is not None else generation
            stale = [*range(dropped, kept), *range(kept + 1, generation)]
            dropped = kept
    run.arrays.drop(stale)
    return at


def _clear_and_visit(
    arrays: BlockArrays, stale: Sequence[int], visit: Callable[[Block], T], block: Block
) -> T:
    arrays.drop(stale, block)
    return visit(block)


def passes_left(records: list[Record], tol: float, most: int) -> int | None:
    """Return about how many more passes a solve takes, this one included; None where it cannot be told.

    What usually falls to the tolerance is the gap, else the share that moved, else the gain.
    """
    names = [name for name in ("gap", "moved_share") if records and name in records[0]]
    values = [record.get(names[0] if names else "objective", math.nan) for record in records]
    if not names:
        values = [abs(after - before) / abs(after or 1.0) for before, after in itertools.pairwise(values)]
    n_left = until(values, tol)
    # five are usual, before a solve has shown how fast it converges
    return n_left if n_left is None and most > 5 else min(n_left or most, most)


def until(sizes: Sequence[float], end: float) -> int | None:
    """Return how many more passes ``sizes`` take to fall to ``end``, at least 1; None where they do not fall.

    The rate is that of a line through the logarithms of the latter half: they may rise in every other pass.
    """
    latest = sizes[-max(4, (len(sizes) + 1) // 2) :]  # four passes tell the factor per pass
    if latest and latest[-1] <= end:
        return 1
    if len(latest) < 4 or end <= 0 or not np.isfinite(latest).all():
        return None
    logarithms = np.log(np.maximum(latest, sys.float_info.min))
    passes = np.arange(len(latest)) - (len(latest) - 1) / 2
    shrinks = -float(passes @ logarithms) / float(passes @ passes)
    if shrinks < 0.01:  # a gap that shrinks less says nothing of how many passes are left
        return None
    last = float(logarithms.mean()) - shrinks * (len(latest) - 1) / 2
    return max(1, math.ceil((last - math.log(end)) / shrinks))


def _commit(run: Run, snapshots: Snapshots, method: PassMethod[S, T], at: Iterate[S]) -> None:
    arrays, facts = method.pack(at.state)
    n_kept = run.arrays.n_kept(at.generation)
    snapshots.save(arrays, {**at._asdict(), "state": dict(facts), "n_blocks": n_kept})


def _resume(run: Run, snapshots: Snapshots, method: PassMethod[S, T]) -> Iterate[S] | None:
    """Return the iterate after the last complete pass that is whole; None if there is none.

    Its blocks are all read, before any pass. If one is lost or damaged, that of the pass before is returned;
    raises CorruptStoreError if that is not whole either.
    """
    lost: CorruptStoreError | None = None
    for kept in snapshots.kept():
        try:
            at = _whole_iterate(run, snapshots, method, kept)
        except CorruptStoreError as error:
            lost = lost or error
            continue
        if not kept.is_last:
            logger.warning(
                "The last pass in %s is damaged: going on from the one before, after %d passes",
                *(snapshots.folder, len(at.records)),
            )
            snapshots.go_back()
        return at
    if lost is not None:
        raise lost
    return None


def _whole_iterate(run: Run, snapshots: Snapshots, method: PassMethod[S, T], kept: Snapshot) -> Iterate[S]:
    """Return the iterate of a snapshot; raises CorruptStoreError if one of its blocks is lost or damaged."""
    facts = dict(kept.facts)
    n_blocks = facts.pop("n_blocks", None)
    try:
        at = Iterate(**{**facts, "state": method.unpack(kept.arrays, facts["state"])})
        n_passes = len(at.records)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        damage = f"the snapshot is not one of {method.name} ({first_line(error)})"
        raise snapshots.damaged(damage) from error
    if n_blocks:
        for fault in run.engine.map(partial(run.arrays.fault, at.generation), run.blocks):
            if fault is not None:
                raise snapshots.damaged(fault, n_passes)
    return at


def timed(what: str, number: int, record: Record, began: float) -> Record:
    """Return the record of a pass with its number, ``seconds`` since ``began`` and ``memory`` now; log it.

    ``memory`` is what this process holds, in bytes.
    """
    spent = {"seconds": time.perf_counter() - began, "memory": resident_bytes()}
    record = {"pass": number, **record, **spent}
    if logger.isEnabledFor(logging.INFO):
        words = [f"{name} {value:.6g}" for name, value in record.items()]
        if left := time_left():
            words.append(f"about {left} left")
        logger.info("%s: %s", what, ", ".join(words))
    return record


def as_history(records: list[Record]) -> History:
    """Turn the records of the passes into one list per quantity."""
    names = records[0] if records else {}
    return {name: [record[name] for record in records] for name in names}


# Methods with several starts

# Passes after which three of four starts on the sample are dropped: by then their ranking is clear, and most
# methods have settled anyway.
SHORT_PASSES = 20

State = Mapping[str, np.ndarray]
"""Small named arrays that a pass needs, sent to workers and stored in snapshots."""

Stats = Mapping[str, np.ndarray]
"""Small named arrays that add up over the blocks."""


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


def add_stats(total: Stats, more: Stats) -> Stats:
    """Add the statistics of a further block, in place."""
    for name, values in more.items():
        total[name][...] += values
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
