"""The loop of passes: start or resume, visit every block, take a step, commit, until settled.

A pass is a fold over blocks: a small state goes to every block, the reports of the blocks are summed, and the
next state follows from the sum. `Passes` are the mathematics of a method, a `Run` its data, engine and
limits, and `run_passes` the loop, the same for all methods.

What objects carry from pass to pass is in memory or, for workers and to resume from, in files: see
`open_workspace`.

Most methods are a `Method`: what it adds up over a block, and what it does with the sum. `BestOfStarts` are
its passes: all starts on a sample, the best of them on all objects.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bigcons.disk.checkpoint import FileBlocks, Snapshots, partial_folder
from bigcons.disk.places import DiskPlace, is_leftover, temporary_folder
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

Start = TypeVar("Start")


class Iterate(NamedTuple):
    """A solve between two passes, as a snapshot stores it; block arrays by generation."""

    state: State
    """What the method carries from pass to pass."""
    generation: int
    """Generation of the block arrays of this state; a pass reads it and writes later ones."""
    is_settled: bool
    """Whether the stopping rule holds."""
    records: list[Record]
    """One per pass."""
    start_objectives: list[float]
    """Objective of every start; empty if there was no choice."""


class Step(NamedTuple):
    """The result of one pass."""

    state: State
    record: Record
    is_settled: bool
    n_generations: int = 1
    """Written by the pass; the last one belongs to the state."""


class Passes(ABC):
    """The mathematics of a method that runs in passes."""

    name: str

    @abstractmethod
    def start(self, run: Run) -> tuple[State, list[float]]:
        """Write generation 0 of the objects' rows; return the state, and the objectives of all starts."""

    @abstractmethod
    def one_pass(self, run: Run, iterate: Iterate, listener: Progress) -> Step:
        """Visit all blocks and return the step that follows; the listener hears of each block.

        Tasks read ``iterate.generation`` of the rows and write later ones. Nothing is changed in place,
        as an interrupted pass is repeated.
        """


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


@contextmanager
def open_workspace(
    output: Output | None, engine: Engine, n_columns: int, dtype: str = "<f4"
) -> Iterator[tuple[BlockArrays, Snapshots | None]]:
    """Yield the block arrays of a solve, with ``n_columns`` of ``dtype``, and snapshots if it can be resumed.

    With ``output`` they are in the folder ``<path>.partial``, removed on success and on failure before the
    first snapshot, else kept. An earlier run found there is resumed with ``output.resume``, else discarded.
    Raises StoreLockedError if another solve uses the folder.
    """
    if output is None and engine.shares_memory:
        yield MemoryBlocks(), None
        return
    if output is None:
        with temporary_folder() as directory:
            yield FileBlocks(directory, n_columns, dtype), None
        return
    folder = partial_folder(output.path)
    snapshots = Snapshots(folder, output.fingerprint)
    with folder.lock() as snapshots.check_lock:
        if not output.resume:
            folder.remove()
        if isinstance(folder, DiskPlace):
            for leftover in filter(is_leftover, folder.path.glob(".*.partial")):
                leftover.unlink(missing_ok=True)
        try:
            yield FileBlocks(folder, n_columns, dtype, snapshots.run), snapshots
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
    blocks: list[Block]
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
            report, rows = report
            if rows is not None:
                arrays.write(writes, block, rows)
            return report

        return visit_block

    def for_all(self, task: Callable[[Block], None]) -> None:
        """Run a task that reports nothing on all blocks."""
        for _ in self.engine.map(task, self.blocks):
            pass

    def shorten(self, generation: int, step: float) -> None:
        """Write, two generations ahead, the interpolation at ``step`` between this and the next."""
        arrays = self.arrays

        def blend(block: Block) -> None:
            before, after = arrays.read(generation, block), arrays.read(generation + 1, block)
            arrays.write(generation + 2, block, before + np.float32(step) * (after - before))

        self.for_all(blend)


def run_passes(run: Run, passes: Passes) -> Iterate:
    """Return the iterate at which the passes end: settled, or after ``run.max_passes`` in all.

    With snapshots, the start and every pass are committed, and an existing run is resumed. Generations that
    no pass reads any more are dropped.
    """
    snapshot = None if run.snapshots is None else run.snapshots.load()
    is_kept, n_dropped = snapshot is not None, 0
    if snapshot is not None:
        iterate = Iterate(**{**snapshot.facts, "state": snapshot.arrays})
        if iterate.records:
            logger.warning("Resuming after pass %d.", len(iterate.records))
    else:
        state, start_objectives = passes.start(run)
        iterate = Iterate(state, 0, False, [], start_objectives)
    with progress(passes.name, 0) as listener:
        while True:
            if run.snapshots is not None and not is_kept:
                run.snapshots.save(iterate.state, {**iterate._asdict(), "state": None})
            run.arrays.drop(range(n_dropped, iterate.generation))
            is_kept, n_dropped = False, iterate.generation
            if iterate.is_settled or len(iterate.records) >= run.max_passes:
                return iterate
            start, number, records = time.perf_counter(), len(iterate.records) + 1, iterate.records
            gap = f", gap {records[-1]['gap']:.1e}" if records and "gap" in records[-1] else ""
            listener.note(f"pass {number}{gap}")
            step = passes.one_pass(run, iterate, listener)
            records = [*records, timed(passes.name, number, step.record, start)]
            generation, is_settled = iterate.generation + step.n_generations, bool(step.is_settled)
            iterate = Iterate(step.state, generation, is_settled, records, iterate.start_objectives)


def timed(name: str, number: int, record: Record, start: float) -> Record:
    """Return the record of a pass with its number, ``seconds`` since ``start`` and ``memory`` now; log it.

    ``memory`` is what this process holds, in bytes.
    """
    import psutil

    seconds, n_bytes = time.perf_counter() - start, psutil.Process().memory_info().rss
    record = {"pass": number, **record, "seconds": seconds, "memory": n_bytes}
    logger.info("%s: %s", name, record)
    return record


def as_history(records: list[Record]) -> History:
    """Turn the records of the passes into one list per quantity."""
    names = records[0] if records else {}
    return {name: [record[name] for record in records] for name in names}


def add_stats(total: Stats, part: Stats) -> Stats:
    """Add the statistics of a further block, in place."""
    for name, values in part.items():
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

    @abstractmethod
    def state_of_counts(self, counts: np.ndarray, sizes: np.ndarray) -> State:
        """Return the first state of all objects in given clusters.

        By the objects of each base cluster in each cluster (B, K), and the sizes of the clusters (K,).
        """

    def is_settled(self, previous: Record | None, record: Record, tol: float) -> bool:
        """Return whether to stop after the pass of ``record``: it gained at most ``tol`` of the objective."""
        if previous is None:
            return False
        return record["objective"] - previous["objective"] <= tol * abs(record["objective"])


class OnSample(NamedTuple):
    """One start on the sample, between passes."""

    judged: State
    """The state that the record describes; empty before the first pass."""
    following: State
    """The state of the next pass."""
    rows: np.ndarray | None
    record: Record
    """The record of the last pass."""
    is_settled: bool


def pass_on_sample(
    method: Method, sample: np.ndarray, seed: int, tol: float, max_passes: int, start: int | OnSample
) -> OnSample:
    """Run a start, by its number or from where it is, on the sample for a limited number of passes."""
    at = OnSample({}, *method.start(sample, seed, start), {}, False) if isinstance(start, int) else start
    for _ in range(max_passes):
        stop_if_cancelled()
        if at.is_settled:
            break
        stats, rows = method.block_stats(at.following, sample, at.rows)
        state, record = method.finish(at.following, stats)
        at = OnSample(at.following, state, rows, record, method.is_settled(at.record or None, record, tol))
    return at


Counts = tuple[np.ndarray, np.ndarray]
"""How many objects of each base cluster are in each cluster (B, K), and how many in all (K,)."""


class BestOfStarts(Passes):
    """The passes of a `Method` over all objects, from the best of several starts on the sample.

    Or, with ``counts``, from all objects in given clusters, which that function counts; nothing else is
    tried. If ``carries``, it also writes their first rows. The state holds two: the one that the last record
    describes, with names that begin with "judged.", and the one of the next pass, "following.".
    """

    def __init__(
        self, method: Method, counts: Callable[[Run], Counts] | None = None, *, carries: bool = False
    ) -> None:
        self.method = method
        self.name: str = method.name
        self.counts = counts
        self.carries = carries

    def n_held(self, n_init: int) -> int:
        """Return the most starts on the sample that are held at once."""
        return 0 if self.counts else min(n_init, -(-n_init // 4) + 2)

    def start(self, run: Run) -> tuple[State, list[float]]:
        """Run all starts on the sample; return the best of them, and the final objectives of all.

        Every start makes a few passes; the best quarter continues until it settles.
        """
        method = self.method
        if self.counts is not None:
            return _first(method.state_of_counts(*self.counts(run)), carries=self.carries), []
        task = partial(pass_on_sample, method, run.sample, run.seed, run.tol)
        short_task = partial(task, min(SHORT_PASSES, run.max_passes))
        n_continued = -(-run.n_init // 4)
        starts: dict[int, OnSample] = {}
        objectives: list[float] = []

        def rank(number: int) -> float:
            objective = starts[number].record["objective"]
            return objective if method.lower_is_better else -objective

        for number, start in enumerate(run.engine.map(short_task, range(run.n_init))):
            starts[number] = start
            objectives.append(start.record["objective"])
            if len(starts) > n_continued + 1:  # no further one can end as the best
                del starts[sorted(starts, key=rank)[-1]]
        order = sorted(starts, key=rank)
        long_task = partial(task, run.max_passes - SHORT_PASSES)
        results = run.engine.map(long_task, [starts[number] for number in order[:n_continued]])
        for number, start in zip(order, results, strict=False):
            starts[number] = start
            objectives[number] = start.record["objective"]
        # rank all again: if the objective is not monotone, one that continued may fall behind
        best = starts[min(order, key=rank)]
        if len(run.sample) < run.data.n_objects:
            return _first(method.for_all(best.judged), carries=False), objectives
        if best.rows is not None:
            for block in run.blocks:
                run.arrays.write(0, block, best.rows[block.start : block.stop])
        return _first(best.judged, carries=best.rows is not None), objectives

    def one_pass(self, run: Run, iterate: Iterate, listener: Progress) -> Step:
        """Take the step that follows from the sums."""
        state = part_of(iterate.state, "following")
        carries = self.method.n_carried > 0 if iterate.records else CARRIES in iterate.state
        reads = [iterate.generation] if carries else []
        task = run.visit(self.method.block_stats, state, reads=reads, writes=iterate.generation + 1)
        stats = fold(run.engine, run.blocks, task, add_stats, progress=listener)
        following, record = self.method.finish(state, stats)
        is_settled = self.method.is_settled(iterate.records[-1] if iterate.records else None, record, run.tol)
        parts = {"judged": state, "following": following}
        flat = {f"{part}.{name}": values for part in parts for name, values in parts[part].items()}
        return Step(flat, record, is_settled)


CARRIES = "carries"
"""In the first state if the objects have rows from the start."""


def _first(state: State, *, carries: bool) -> State:
    """Return the state of `BestOfStarts` before the first pass, by ``state``."""
    flat = {f"following.{name}": values for name, values in state.items()}
    return flat | {CARRIES: np.array(True)} if carries else flat


def part_of(state: State, part: str) -> State:
    """Return the named part of a state of `BestOfStarts`: "judged" or "following"."""
    beginning = f"{part}."
    names = [name for name in state if name.startswith(beginning)]
    return {name.removeprefix(beginning): state[name] for name in names}


def best_start(starts: Iterable[Start], objective: Callable[[Start], float]) -> tuple[Start, list[float]]:
    """Return the start of the highest objective, the first in case of ties, and the objectives of all.

    Holds at most two starts at a time.
    """
    best: list[Start] = []
    objectives: list[float] = []
    highest = float("-inf")
    for start in starts:
        objectives.append(float(objective(start)))
        if objectives[-1] > highest or not best:
            best, highest = [start], objectives[-1]
    return best[0], objectives
