"""The loop of passes: start or resume, visit every block, take a step, commit, until settled.

A pass is a fold over blocks: a small state goes to every block, the reports of the blocks are summed, and the
next state follows from the sum. A `PassMethod` is the mathematics of a method, a `Run` its data, engine and
limits, and `run_passes` the loop, the same for all methods.

What objects carry from pass to pass is in memory or, for workers and to resume from, in files: see
`open_workspace`.

Most methods are a `Method`: what it adds up over a block, and what it does with the sum. `BestOfStarts` turns
it into a `PassMethod`: all starts on a sample, the best of them on all objects.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from bigcons.disk.checkpoint import FileBlocks, Snapshot, Snapshots, partial_folder
from bigcons.disk.locks import writer_lock
from bigcons.disk.places import DiskPlace, is_left, temporary_folder
from bigcons.errors import CorruptStoreError, first_line
from bigcons.memory import Block
from bigcons.progress import Progress, progress
from bigcons.run.engine import Engine, fold, stop_if_cancelled
from bigcons.run.results import Output

logger: logging.Logger = logging.getLogger("bigcons")

Record = dict[str, float]
"""Quantities reported by one pass, by name."""

History = dict[str, list[float]]
"""One list per quantity, one entry per pass, for plots and stored results."""

State = Mapping[str, np.ndarray]
"""Small named arrays that a pass needs, sent to workers and stored in snapshots."""

Stats = Mapping[str, np.ndarray]
"""Small named arrays that add up over the blocks."""

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
    """The mathematics of a method that runs in passes."""

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


class MemoryBlocks:
    """Block arrays in the memory of this process."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], np.ndarray] = {}
        """By generation and number of the block."""

    def read(self, generation: int, block: Block) -> np.ndarray:
        """Return the rows of a block, which must not be modified."""
        return self._rows[generation, block.index]

    def write(self, generation: int, block: Block, rows: np.ndarray) -> None:
        """Store the rows of a block."""
        self._rows[generation, block.index] = rows

    def drop(self, generations: Sequence[int]) -> None:
        """Remove generations."""
        for key in [*self._rows]:
            if key[0] in generations:
                del self._rows[key]


BlockArrays = MemoryBlocks | FileBlocks


class Workspace(NamedTuple):
    """Rows that objects carry from pass to pass, and snapshots between passes if the solve can be resumed."""

    arrays: BlockArrays
    snapshots: Snapshots | None


@contextmanager
def open_workspace(
    output: Output | None, engine: Engine, n_columns: int, dtype: str = "<f4"
) -> Iterator[Workspace]:
    """Yield the workspace of a solve whose block arrays have ``n_columns`` of ``dtype``.

    With ``output`` it is the folder ``<path>.partial``, removed on success and on failure before the first
    snapshot, else kept. An earlier run found there is resumed with ``output.resume``, else discarded. Raises
    StoreLockedError if another solve uses the folder.
    """
    if output is None and engine.shares_memory:
        yield Workspace(MemoryBlocks(), None)
        return
    if output is None:
        with temporary_folder() as directory:
            yield Workspace(FileBlocks(directory, n_columns, dtype), None)
        return
    folder = partial_folder(output.path)
    snapshots = Snapshots(folder, output.fingerprint)
    with writer_lock(folder) as snapshots.check_lock:
        if not output.resume:
            folder.remove()
        if isinstance(folder, DiskPlace):
            for left in filter(is_left, folder.path.glob(".*.partial")):
                left.unlink(missing_ok=True)
        try:
            yield Workspace(FileBlocks(folder, n_columns, dtype, snapshots.run), snapshots)
        except BaseException:
            if not snapshots.exists():
                folder.remove()
            raise
        folder.remove()


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
        self.blocks: list[Block] = sorted(chain.from_iterable(self.rounds))

    def fold(
        self, task: Callable[[Block], T], add: Callable[[T, T], T], listener: Progress | None = None
    ) -> T:
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
    no pass reads any more are dropped, with snapshots one pass later: should the last pass be damaged, a run
    resumes from the one before.
    """
    at = None if run.snapshots is None else _resume(run, method, run.snapshots)
    if at is None:
        state, start_objectives = method.start(run)
        at = Iterate(state, 0, False, [], start_objectives)
        _commit(run, method, at)
    kept = 0
    with progress(method.name, 0) as step:
        while not at.is_settled and len(at.records) < run.max_passes:
            began = time.perf_counter()
            note = f"pass {len(at.records) + 1}"
            if at.records and "gap" in at.records[-1]:
                note += f", gap {at.records[-1]['gap']:.1e}"
            step.note(note)
            total = run.fold(method.visit(run, at), method.add, step)
            result = method.step(run, at, total)
            records = [*at.records, timed(method.name, len(at.records) + 1, result.record, began)]
            before, generation = at.generation, at.generation + result.n_generations
            at = Iterate(result.state, generation, bool(result.is_settled), records, at.start_objectives)
            _commit(run, method, at)
            oldest = generation if run.snapshots is None else before
            run.arrays.drop([*range(kept, oldest), *range(oldest + 1, generation)])
            kept = oldest
    return at


def _commit(run: Run, method: PassMethod[S, T], at: Iterate[S]) -> None:
    if run.snapshots is not None and isinstance(run.arrays, FileBlocks):
        arrays, facts = method.pack(at.state)
        n_blocks = run.arrays.n_kept(at.generation)
        run.snapshots.save(arrays, {**at._asdict(), "state": dict(facts), "n_blocks": n_blocks})


def _resume(run: Run, method: PassMethod[S, T], snapshots: Snapshots) -> Iterate[S] | None:
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
        elif at.records:
            logger.warning("Resuming after pass %d.", len(at.records))
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
    if n_blocks and isinstance(run.arrays, FileBlocks):
        for fault in run.engine.map(partial(run.arrays.fault, at.generation), run.blocks):
            if fault is not None:
                raise snapshots.damaged(fault, n_passes)
    return at


def timed(what: str, number: int, record: Record, began: float) -> Record:
    """Return the record of a pass with its number, ``seconds`` since ``began`` and ``memory`` now; log it.

    ``memory`` is what this process holds, in bytes.
    """
    import psutil

    seconds, held = time.perf_counter() - began, psutil.Process().memory_info().rss
    record = {"pass": number, **record, "seconds": seconds, "memory": held}
    logger.info("%s: %s", what, ", ".join(f"{name} {value:.6g}" for name, value in record.items()))
    return record


def as_history(records: list[Record]) -> History:
    """Turn the records of the passes into one list per quantity."""
    names = records[0] if records else {}
    return {name: [record[name] for record in records] for name in names}


def add_stats(total: Stats, more: Stats) -> Stats:
    """Add the statistics of a further block, in place."""
    for name, values in more.items():
        total[name][...] += values
    return total


# Methods with several starts


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
