"""PCC on a pair table: Algorithm 1 of Lourenço et al. 2015, steepest two-coordinate descent, in blocks.

With one block of all objects this is the algorithm of the paper. For tables of any size it is block
coordinate descent: a task reads the pairs of one block and the memberships of its neighbor blocks, and takes
a stretch of steps with its own objects while all others are fixed. A pass visits the blocks in a few rounds,
and the blocks of a round move at once. If they share no pairs, as with pairs sampled in tiles and enough
blocks, each lowers the objective as if it were alone. Uniformly drawn pairs connect all blocks, and those of
a round share some. Together they nearly always lower the objective too; a fold over the pairs they share
measures it, and a line search shortens a pass that does not.

Blocks and rounds depend on the pairs alone, never on the number of workers. A pass reads one generation of
memberships and writes the next, so tasks and interrupted passes can be repeated.

The start must give the clusters an identity: from random memberships every block would number them in its own
way, and settling that takes hundreds of passes. Blocks start from a solved sample.

Objects that occur in no pair get their best memberships over all pairs, given all others, as new ones do.
"""

from __future__ import annotations

import itertools
import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons.coassociation import count
from bigcons.coassociation.sampling import sample_in_memory
from bigcons.disk.files import Place
from bigcons.divergences import Divergence
from bigcons.errors import ConsensusWarning, MemoryBudgetError, warn_user
from bigcons.kernels import pair_descent
from bigcons.kernels.divergences import l2_slope, newton_search, sampling_search
from bigcons.memory import Block, format_size, parse_size, row_blocks
from bigcons.methods.pcc.all_pairs import (
    MOVING,
    Begin,
    BySquares,
    Solution,
    Variant,
    first_rows,
    perturbed_uniform,
    placer_of,
    softened,
)
from bigcons.progress import progress
from bigcons.run.engine import Engine, fold, local_engine
from bigcons.run.memory_plan import process_bytes
from bigcons.run.passes import BlockArrays, Iterate, Run, Step, run_passes
from bigcons.run.results import Output, scratch_place
from bigcons.run.survey import Survey
from bigcons.store.ensemble import Ensemble
from bigcons.store.pair_rows import PAIR_BYTES, Rows
from bigcons.store.pairs import PairTable

logger: logging.Logger = logging.getLogger("bigcons")

DENSE, PAPER = "dense", "paper"
"""All pairs of few objects, as ``pairs``; the limit of the paper, as ``max_iter``."""


class Neighborhoods(NamedTuple):
    """The blocks of a pair table and which of them share pairs, as sent to every task."""

    pairs: PairTable
    blocks: list[Block]
    neighbors: list[list[int]]
    """For each block, the other blocks that it shares pairs with, ascending."""
    colors: list[int]
    divergence: Divergence
    mean_weight: float
    """Mean over the objects of ``sum_j N_ij``: the scale of a KKT gap over these pairs."""
    task_entries: int
    """The largest number of pair ends in a block."""

    @classmethod
    def of(
        cls, pairs: PairTable, blocks: list[Block], engine: Engine, divergence: Divergence
    ) -> Neighborhoods:
        """Read all pairs once to find which blocks share some."""
        starts = [block.start for block in blocks]

        def find_borders(block: Block) -> tuple[list[list[int]], float, int]:
            rows = pairs.read(block.start, block.stop)
            known = np.zeros(len(starts), bool)
            known[np.searchsorted(starts, rows.indices, "right") - 1] = True
            known[block.index] = False
            weight = float(rows.n_seen.sum(dtype=np.float64))
            return [np.flatnonzero(known).tolist()], weight, len(rows.indices)

        with progress("blocks of pairs", pairs.n_objects) as listener:
            neighbors, weight, entries = fold(
                *(engine, blocks, find_borders),
                lambda a, b: (a[0] + b[0], a[1] + b[1], max(a[2], b[2])),
                progress=listener,
            )
        mean_weight = max(weight / pairs.n_objects, 1.0)
        return cls(pairs, blocks, neighbors, color_blocks(neighbors), divergence, mean_weight, entries)

    def rounds(self, n_rounds: int) -> list[int]:
        """Return the round of each block if a pass has ``n_rounds``."""
        return [color % n_rounds for color in self.colors]

    def in_rounds(self, n_rounds: int | None = None) -> list[list[Block]]:
        """Return the blocks of each round; None: of `fewest_rounds`."""
        rounds = self.rounds(n_rounds or fewest_rounds(self.colors))
        return [[b for b in self.blocks if rounds[b.index] == number] for number in range(max(rounds) + 1)]


class Pace(NamedTuple):
    """What passes carry besides memberships."""

    n_rounds: int
    """Rounds of a pass: with one per color, blocks that move at the same time share no pairs."""
    objective: float
    """Objective of the memberships; not needed, and infinite, with one round per color."""


class FirstRows(NamedTuple):
    """First memberships of blocks of pairs."""

    of_block: Callable[[Block], np.ndarray]
    start_objectives: tuple[float, ...] = ()


@dataclass
class BlockedPairs:
    """The passes of PCC on blocks of pairs; objects carry memberships (rows, K) float32.

    The gap is in units of the mean weight of an object. With several blocks it is the largest
    gap that the tasks of a pass started from; a solve has converged only after a pass without a gap above the
    tolerance, which changes nothing.
    """

    near: Neighborhoods
    begin: Callable[[], FirstRows]
    max_steps: int | None = None
    """Most steps of all passes over a single block; None for any number."""
    lengths: tuple[float, ...] = (0.75, 0.5, 0.25, 0.125)
    """Step lengths tried if a full pass raises the objective by more than its share ``rounding``."""
    rounding: float = 1e-7

    name = "PCC on pairs"

    def __post_init__(self) -> None:
        self.n_colors: int = max(self.near.colors) + 1

    def start(self, run: Run) -> tuple[Pace, list[float]]:
        """Write the first memberships."""
        first, arrays = self.begin(), run.arrays
        for _ in run.engine.map(lambda block: arrays.write(0, block, first.of_block(block)), run.blocks):
            pass
        pace = Pace(len(run.rounds), np.inf)
        if pace.n_rounds < self.n_colors:
            pace = pace._replace(objective=float(self._measure(run, (0, 0))[0]))
        return pace, list(first.start_objectives)

    def visit(self, run: Run, at: Iterate[Pace]) -> Callable[[Block], Stretch]:
        """Return the task that takes a stretch of steps with the objects of a block, see `move_block`."""
        near, n_rounds = self.near, at.state.n_rounds
        run.rounds = near.in_rounds(n_rounds)
        # a near-uniform start is a saddle, where gaps mean nothing until all have moved
        threshold = 0.0 if not at.records else run.tol
        if at.records and self.n_colors > 1:
            threshold = run.tol * (1.0 if at.records[-1]["gap"] <= run.tol else MOVING)
        left = None if self.max_steps is None else self.max_steps - sum(int(r["steps"]) for r in at.records)
        asked = near, run.arrays, at.generation, n_rounds, threshold * self.near.mean_weight, left
        return partial(move_block, *asked)

    @staticmethod
    def add(total: Stretch, part: Stretch) -> Stretch:
        """Combine the reports of two stretches."""
        return Stretch(
            total.n_steps + part.n_steps,
            max(total.gap_before, part.gap_before),
            max(total.gap, part.gap),
            total.objective + part.objective,
        )

    def step(self, run: Run, at: Iterate[Pace], total: Stretch) -> Step[Pace]:
        """Keep the pass, whose memberships are already written, or shorten it if the objective has risen."""
        pace, length, is_alone = at.state, 1.0, self.n_colors == 1
        gap = (total.gap if is_alone else total.gap_before) / self.near.mean_weight
        still = gap <= run.tol if is_alone else total.n_steps == 0
        objective = total.objective
        if pace.n_rounds < self.n_colors:
            after = at.generation + 1
            objective += float(self._measure(run, (after, after), n_rounds=pace.n_rounds)[0])
            if objective > pace.objective + self.rounding * abs(pace.objective):
                length, objective, pace = self._shorten(run, at)
            pace = pace._replace(objective=objective)
        record = {"objective": objective, "gap": gap, "steps": total.n_steps, "step_length": length}
        return Step(pace, record, still, 1 if length == 1.0 else 2)

    def _shorten(self, run: Run, at: Iterate[Pace]) -> tuple[float, float, Pace]:
        """Shorten the pass to where the objective falls most; if nowhere, undo it and take more rounds."""
        pace = at.state
        tried = self._measure(run, (at.generation, at.generation + 1), self.lengths)
        best = int(np.argmin(tried))
        if tried[best] < pace.objective:
            length, objective = self.lengths[best], float(tried[best])
        else:
            length, objective = 0.0, pace.objective
            pace = pace._replace(n_rounds=min(2 * pace.n_rounds, self.n_colors))
        run.shorten(at.generation, length)
        return length, objective, pace

    def _measure(
        self,
        run: Run,
        generations: tuple[int, int],
        lengths: tuple[float, ...] = (0.0,),
        n_rounds: int | None = None,
    ) -> np.ndarray:
        """Return the objective as `measure_pairs` tells it, over all blocks."""
        task = partial(measure_pairs, self.near, run.arrays, generations, lengths, n_rounds)
        return fold(run.engine, run.blocks, task, np.add)

    def pack(self, state: Pace) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the pace; the block arrays hold the rest of the state."""
        return {}, state._asdict()

    def unpack(self, _arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Pace:
        """Return the pace."""
        return Pace(**facts)


def check_tasks(near: Neighborhoods, n_clusters: int, engine: Engine, memory: int | None) -> None:
    """Raise MemoryBudgetError if the blocks being processed at once exceed ``memory``."""
    rounds = near.in_rounds()
    n_tasks, task = min(engine.n_workers, max(map(len, rounds))), task_bytes(near, n_clusters)
    logger.info(
        "PCC on pairs: %d blocks in %d rounds, %d concurrent tasks of %s",
        *(len(near.blocks), len(rounds), n_tasks, format_size(task)),
    )
    if memory is not None and task * n_tasks > memory:
        raise MemoryBudgetError(
            f"blocked PCC needs {format_size(task * n_tasks)} for {n_tasks} concurrent blocks, over the "
            f"{format_size(memory)} left; raise memory=, use fewer workers, or sample the pairs again in "
            "tiles, with a smaller budget.",
            needed=task * n_tasks,
            budget=memory,
        )


def cut_blocks(
    pairs: PairTable,
    most: int = 16,
    least_entries: int = 1 << 16,
    objects_at_once: int = 1 << 20,
) -> list[Block]:
    """Return blocks of equal cost; the tiles, if the pairs were sampled in tiles.

    At most ``most`` blocks, unless these exceed four million pair ends, of at least ``least_entries`` pair
    ends: enough for a cluster, none too small to be worth a task or too large for a small memory.
    """
    if pairs.rows_per_block is not None:
        return pairs.blocks()
    entries = 2 * pairs.n_pairs
    n_blocks = max(min(entries // least_entries, most), -(-entries // (1 << 22)), 1)
    n, cost = pairs.n_objects, entries + 8 * pairs.n_objects  # an object costs as much as eight pair ends
    ends, before = [], 0
    for part in row_blocks(n, objects_at_once):
        costs = before + np.cumsum(pairs.degrees(part.start, part.stop) + 8)
        wanted = np.arange(1, n_blocks) * cost // n_blocks
        found = wanted[(wanted >= before) & (wanted < costs[-1])]
        ends += (part.start + np.searchsorted(costs, found, "right")).tolist()
        before = int(costs[-1])
    bounds = sorted({0, *ends, n})
    return [Block(b, start, stop) for b, (start, stop) in enumerate(itertools.pairwise(bounds))]


def task_bytes(near: Neighborhoods, n_clusters: int) -> int:
    """Return the peak memory of a task: its pairs, its own objects and those of neighbor blocks."""
    rows = max(block.n_rows for block in near.blocks)
    others = max(sum(near.blocks[b].n_rows for b in known) for known in near.neighbors)
    to_move = rows * (28 * n_clusters + 32) + 4 * n_clusters * others
    to_measure = 8 * n_clusters * (rows + others)  # two generations
    # counts, index, index in the task, share, weight, and temporaries
    return 28 * near.task_entries + max(to_move, to_measure)


# Which blocks share pairs, and so the order in which they move


def color_blocks(neighbors: list[list[int]]) -> list[int]:
    """Return a color for every block that differs from its neighbors': greedily, in order."""
    colors: list[int] = []
    for block, known in enumerate(neighbors):
        taken = {colors[other] for other in known if other < block}
        colors.append(next(color for color in range(len(taken) + 1) if color not in taken))
    return colors


def fewest_rounds(colors: list[int]) -> int:
    """Return the number of rounds of a pass: one per color where these have enough blocks, two at least.

    In two rounds, less than half of an object's pairs are with blocks that move at the same time: too few for
    joint moves to overshoot often.
    """
    return min(max(colors) + 1, max(2, len(colors) // 8))  # more rounds if each still has eight blocks


# Tasks


def move_block(
    near: Neighborhoods,
    arrays: BlockArrays,
    generation: int,
    n_rounds: int,
    threshold: float,
    most: int | None,
    block: Block,
) -> Stretch:
    """Take a stretch of at most so many steps with the objects of a block; write the next generation.

    The objective covers the pairs inside the block and those with blocks of earlier rounds: summed over all
    blocks, every pair at the end of the pass except those that different blocks of one round share.
    """
    rounds, memberships = near.rounds(n_rounds), arrays.read(generation, block)
    known = [near.blocks[b] for b in sorted(near.neighbors[block.index], key=lambda b: (rounds[b], b))]
    moved = [other for other in known if rounds[other.index] < rounds[block.index]]
    generations = [generation + 1] * len(moved) + [generation] * (len(known) - len(moved))
    others = _read_rows(arrays, generations, known, memberships.shape[1])
    graph = graph_of(_numbered(near, [block, *known]), others)
    n_counted, n_steps = sum(other.n_rows for other in moved), stretch_steps(*memberships.shape)
    n_steps = n_steps if most is None else min(n_steps, most)
    updated, done = take_stretch(graph, memberships, near.divergence, n_steps, threshold, n_counted)
    arrays.write(generation + 1, block, updated)
    return done


def measure_pairs(
    near: Neighborhoods,
    arrays: BlockArrays,
    generations: tuple[int, int],
    lengths: tuple[float, ...],
    n_rounds: int | None,
    block: Block,
) -> np.ndarray:
    """Return the objective over the pairs of a block with itself and later blocks, which has all pairs once.

    It is measured at steps of some ``lengths`` from one generation to another; float64, one for each. With
    ``n_rounds``, over the pairs that different blocks of one round share.
    """
    known = [near.blocks[b] for b in near.neighbors[block.index] if b > block.index]
    if n_rounds is not None:
        rounds = near.rounds(n_rounds)
        known = [other for other in known if rounds[other.index] == rounds[block.index]]
    totals = np.zeros(len(lengths))
    if known or n_rounds is None:
        own = {generation: arrays.read(generation, block) for generation in generations}
        others = {g: _read_rows(arrays, [g] * len(known), known, own[g].shape[1]) for g in own}
        before, after = generations
        graph = graph_of(_numbered(near, [block, *known], within=n_rounds is None))
        value, _, _, parameter = near.divergence.compiled
        pair_descent.values_along(
            *(own[before], own[after], *graph[:4], others[before], others[after]),
            *(np.array(lengths), totals, value, parameter),
        )
    return totals


def _read_rows(
    arrays: BlockArrays, generations: list[int], blocks: list[Block], n_clusters: int
) -> np.ndarray:
    """Return the memberships of some blocks, each of its generation, one after another."""
    rows = np.empty((sum(block.n_rows for block in blocks), n_clusters), np.float32)
    filled = 0
    for generation, block in zip(generations, blocks, strict=True):
        rows[filled : filled + block.n_rows] = arrays.read(generation, block)
        filled += block.n_rows
    return rows


def _numbered(near: Neighborhoods, blocks: list[Block], *, within: bool = True) -> Rows:
    """Return the pairs of the first of some blocks, with their objects numbered from 0, block after block.

    Objects of other blocks have negative numbers; so have those of the first, unless ``within``.
    """
    shifts = np.full(len(near.blocks), -near.pairs.n_objects, np.int32)
    first = 0
    for block in blocks:
        shifts[block.index] = first - block.start
        first += block.n_rows
    if not within:
        shifts[blocks[0].index] = -near.pairs.n_objects
    rows = near.pairs.read(blocks[0].start, blocks[0].stop)
    starts = np.array([block.start for block in near.blocks], np.int32)
    numbers = np.empty_like(rows.indices)
    pair_descent.renumber(rows.indices, starts, shifts, numbers)
    return rows._replace(indices=numbers)


# A stretch of steps


class Graph(NamedTuple):
    """The pairs of n objects as kernels read them: CSR, each pair of two of them stored in both rows."""

    indptr: np.ndarray
    indices: np.ndarray
    observed: np.ndarray
    weight: np.ndarray
    others: np.ndarray
    """(., K) float32: fixed memberships of the objects numbered from n."""


class Stretch(NamedTuple):
    """The report of a stretch of steps. Gaps are in units of the pairs' weights."""

    n_steps: int
    gap_before: float
    gap: float
    objective: float


def graph_of(rows: Rows, others: np.ndarray | None = None) -> Graph:
    """Return the arrays of some rows of a pair table, counts turned into shares."""
    weight = rows.n_seen.astype(np.float32)
    observed = rows.n_agree / weight
    others = np.empty((0, 0), np.float32) if others is None else others
    return Graph(rows.indptr, rows.indices, observed, weight, others)


def stretch_steps(n_objects: int, n_clusters: int) -> int:
    """Return the number of steps in a stretch: a quarter of n K, at least one per object.

    Between stretches gradients are computed anew, which bounds their drift, and the objective is recorded.
    """
    return max(n_objects * n_clusters // 4, n_objects, 1)


def general_search(divergence: Divergence) -> Callable[..., Any]:
    """Return the compiled search: Newton if the divergence is double-convex, else sampling."""
    value, slope, curvature, _ = divergence.compiled
    return newton_search(slope, curvature) if divergence.is_double_convex else sampling_search(value)


def take_stretch(
    graph: Graph,
    memberships: np.ndarray,
    divergence: Divergence,
    n_steps: int,
    threshold: float,
    n_counted: int | None = None,
) -> tuple[np.ndarray, Stretch]:
    """Take up to ``n_steps`` steps, the steepest first, while a KKT gap is above ``threshold``.

    Returns the new memberships (n, K) float32 and a report; its objective covers the pairs of the n objects
    with each other and with the first ``n_counted`` others. Time O(n_steps l (K + log n)) for l
    pairs an object; memory 16 n K + 32 n bytes.
    """
    n, K = memberships.shape
    value, slope, _, parameter = divergence.compiled
    rows = np.zeros((n, 2 * K))
    rows[:, :K] = memberships
    is_squared = divergence.compiled.slope is l2_slope
    search = pair_descent.quadratic_search if is_squared else general_search(divergence)
    queue = np.empty(n), np.empty(n, np.int32), np.empty(n, np.int32)
    pair_descent.prepare(rows, *graph, *queue, slope, parameter)
    gap_before = float(queue[0][0])
    scratch = np.empty((4, max(int(np.diff(graph.indptr).max(initial=0)), 1)))
    taken, gap = pair_descent.descend(
        rows, *graph, *queue, scratch, n_steps, threshold, search, slope, parameter
    )
    counted = graph._replace(others=graph.others[:n_counted])
    objective = pair_descent.total_value(rows, *counted, value, parameter)
    return rows[:, :K].astype(np.float32), Stretch(taken, gap_before, gap, objective)


# Objects that occur in no pair


def isolated_objects(pairs: PairTable) -> np.ndarray:
    """Return the objects that are in no pair, ascending."""
    parts = [
        block.start + np.flatnonzero(pairs.degrees(block.start, block.stop) == 0) for block in pairs.blocks()
    ]
    return np.concatenate([np.empty(0, np.int64), *parts])


def place_isolated(
    run: Run,
    read: Callable[[Block], np.ndarray],
    generation: int,
    isolated: np.ndarray,
    place: BySquares,
) -> None:
    """Write a generation of the rows, as ``read`` gives them, with the sorted objects ``isolated`` placed."""
    ensemble, arrays = run.data, run.arrays

    def place_rows(block: Block) -> None:
        rows, found = block.rows_of(isolated), np.array(read(block))
        if rows.size:
            found[rows] = place(ensemble.read(block.start, block.stop)[rows])
        arrays.write(generation, block, found)

    for _ in run.engine.map(place_rows, run.blocks):
        pass


def read_across(arrays: BlockArrays, generation: int, blocks: list[Block], block: Block) -> np.ndarray:
    """Return the memberships (rows, K) float32 of a block, of those that were written in other blocks."""
    parts = [
        arrays.read(generation, own)[max(block.start - own.start, 0) : block.stop - own.start]
        for own in blocks
        if own.start < block.stop and block.start < own.stop
    ]
    return np.concatenate(parts)


# The variants


class Listed(Variant):
    """Pairs of a table, in one block or many."""

    @abstractmethod
    def blocks(self, pairs: PairTable) -> list[Block]:
        """Return the blocks that are solved one by one."""

    def first(self, run: Run, begin: Begin) -> FirstRows:
        """Return the first memberships: those of a solved sample, extended to all objects."""
        solved, data, is_squared = begin(run), run.data, self.divergence.label == "l2"

        def of_block(block: Block) -> np.ndarray:
            rows, _ = first_rows(data, solved, block)
            return rows if is_squared else softened(rows)

        return FirstRows(of_block, tuple(solved.start_objectives))

    def solve(self, run: Run, survey: Survey, begin: Begin, out: Output | None) -> Solution:  # noqa: ARG002
        """Solve, given a run over the labels; objects that are in no pair are placed over all pairs."""
        ensemble, n, K = run.data, run.data.n_objects, self.n_clusters
        pairs = counted_pairs(self.pairs, ensemble, run.seed, run.engine)
        warn_of_few_pairs(pairs, K)
        with scratch_place(out) as scratch:
            pairs, engine = self.ready(pairs, run.engine, scratch)
            near = Neighborhoods.of(pairs, self.blocks(pairs), engine, self.divergence)
            left = None
            if isinstance(self, Blocked) and self.memory is not None:
                left = max(parse_size(self.memory) - process_bytes(run.engine), 0)
            check_tasks(near, K, engine, left)
            over_pairs = replace(run, data=pairs, engine=engine, rounds=near.in_rounds())
            method = BlockedPairs(near, partial(self.first, run, begin), self.max_steps(n))
            at = run_passes(over_pairs, method)
            generation = at.generation
            read = partial(read_across, run.arrays, generation, near.blocks)
            isolated = isolated_objects(pairs)
            if isolated.size:
                logger.info("%d objects in no sampled pair are placed over all pairs", isolated.size)
                place_isolated(run, read, generation + 1, isolated, placer_of(run, read, isolated))
                read = partial(run.arrays.read, generation + 1)
            return Solution(read, at, placer_of(run, read))

    @abstractmethod
    def ready(self, pairs: PairTable, engine: Engine, scratch: Place) -> tuple[PairTable, Engine]:
        """Return the pairs where tasks can read them, and the engine of the tasks."""

    def max_steps(self, n_objects: int) -> int | None:  # noqa: ARG002 - of the heap
        """Return the largest number of steps, None for as many as the passes take."""
        return None


class Heap(Listed):
    """Algorithm 1 of the paper: one block of all objects, in memory, on one core."""

    instead: ClassVar[str | None] = "solver='blocked', pairs='all' or a smaller share"

    def held_bytes(self, ensemble: Ensemble) -> int:
        """Return the size of the pairs, and of memberships and gradients."""
        n = ensemble.n_objects
        # a pair end: index, two counts, share, weight, and temporaries
        return 16 * n * self.n_clusters + 36 * n_pair_ends(self.pairs, n)

    def max_steps(self, n_objects: int) -> int:
        """Return the largest number of steps: n K in the paper, short of the optimum, else 10 n K."""
        if isinstance(self.max_iter, int):
            return self.max_iter
        return (1 if self.max_iter == PAPER else 10) * n_objects * self.n_clusters

    def n_passes(self, n_objects: int) -> int:
        """Return the largest number of stretches of steps."""
        return -(-self.max_steps(n_objects) // stretch_steps(n_objects, self.n_clusters))

    def blocks(self, pairs: PairTable) -> list[Block]:
        """Return one block."""
        return [Block(0, 0, pairs.n_objects)]

    def ready(self, pairs: PairTable, engine: Engine, scratch: Place) -> tuple[PairTable, Engine]:  # noqa: ARG002
        """Return the pairs in memory."""
        return pairs, local_engine(engine)

    def first(self, run: Run, begin: Begin) -> FirstRows:
        """Return the first memberships: by the limit of the paper, its uniform ones, perturbed."""
        if self.max_iter != PAPER:
            return super().first(run, begin)
        return FirstRows(lambda b: perturbed_uniform(b.n_rows, self.n_clusters, run.seed, b.index))


class Blocked(Listed):
    """Algorithm 1 within blocks of objects, on all cores or workers; pairs are read from their store."""

    def held_bytes(self, ensemble: Ensemble) -> int:
        """Return the size of pairs that are yet to be counted."""
        if isinstance(self.pairs, PairTable):
            return 0
        return PAIR_BYTES * n_pair_ends(self.pairs, ensemble.n_objects) // 2

    def blocks(self, pairs: PairTable) -> list[Block]:
        """Return blocks of equal cost."""
        return cut_blocks(pairs)

    def ready(self, pairs: PairTable, engine: Engine, scratch: Place) -> tuple[PairTable, Engine]:
        """Return the pairs, in a store if they are in memory that workers do not share."""
        is_sent = pairs.path is None and not engine.shares_memory
        return pairs.save(str(scratch)) if is_sent else pairs, engine


def n_pair_ends(pairs: Any, n_objects: int) -> int:
    """Return the approximate number of pair ends of listed pairs."""
    if isinstance(pairs, PairTable):
        return 2 * pairs.n_pairs
    return int((1.0 if pairs == DENSE else float(pairs)) * n_objects * (n_objects - 1))


def counted_pairs(pairs: Any, ensemble: Ensemble, seed: int, engine: Engine) -> PairTable:
    """Return the table of a variant's ``pairs``: given, or counted now."""
    if isinstance(pairs, PairTable):
        return pairs
    if pairs == DENSE:
        i, j = np.triu_indices(ensemble.n_objects, 1)
        return count(ensemble, i, j, client=engine)
    # labels of up to a gigabyte are held while pairs are counted
    return sample_in_memory(ensemble, {"share": float(pairs)}, seed, 10**9, engine)


def warn_of_few_pairs(pairs: PairTable, n_clusters: int) -> None:
    """Warn if objects are in too few pairs for these to determine their memberships in ``n_clusters``."""
    # Measured on 20 and 50 planted classes (4,000 objects, 100 partitions, the heap): adjusted Rand indices
    # of .19 and .08 for at most one pair, .66 and .57 for two, .94 and .98 for four or five. By blocks, on 10
    # clusters of 100,000 objects, 100 passes do not settle up to two.
    per_object, all_others = 2 * pairs.n_pairs / pairs.n_objects, pairs.n_objects - 1
    if n_clusters > 1 and per_object < min(3 * n_clusters, all_others):
        enough = min(3 * n_clusters / all_others, 1.0)
        warn_user(
            f"objects are in {per_object:.3g} pairs on average, too few to tell {n_clusters} clusters apart; "
            f"use pairs='all', or a share of {enough:.2g} or more, 3 pairs an object for each "
            "cluster.",
            ConsensusWarning,
        )
