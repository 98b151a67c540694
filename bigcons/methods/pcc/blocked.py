"""PCC on a pair table of any size: Algorithm 1 of Lourenço et al. 2015 inside blocks of objects.

Block coordinate descent: a task reads the pairs of one block and the memberships of its neighbor blocks, and
takes a stretch of steps with its own objects while all others are fixed. A pass visits the blocks in a few
rounds, and the blocks of a round move at once. If they share no pairs, as with pairs sampled in tiles and
enough blocks, each lowers the objective as if it were alone. Uniformly drawn pairs connect all blocks, and
those of a round share some. Together they nearly always lower the objective too; a fold over the pairs they
share measures it, and a line search shortens a pass that does not.

Blocks and rounds depend on the pairs alone, never on the number of workers. A pass reads one generation of
memberships and writes the next, so tasks and interrupted passes can be repeated.

The start must give the clusters an identity: from random memberships every block would number them in its own
way, and settling that takes hundreds of passes. PCC starts blocks from a solved subsample.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigcons.divergences import Divergence
from bigcons.errors import MemoryBudgetError
from bigcons.execution.engine import Engine, fold
from bigcons.kernels.pair_descent import renumber, values_along
from bigcons.memory import Block, format_size, row_blocks
from bigcons.methods.pcc.calibrated_pairs import (
    calibrated,
    rates_of,
    stored_rates,
    sums_over_pairs,
    unit_of,
)
from bigcons.methods.pcc.heap import Stretch, graph_of, mean_weight, stretch_steps, take_stretch
from bigcons.methods.pcc.memberships import (
    LEAST_PART,
    Solution,
    checked_start,
    contradicted,
    diverges_at_edges,
    softened,
    solution_at,
    threshold_after,
)
from bigcons.methods.pcc.subsample import Extension
from bigcons.progress import progress
from bigcons.solving.passes import Iterate, Run, Step, run_passes
from bigcons.storage.checkpoint import BlockArrays, Snapshots
from bigcons.stores.pair_rows import Rows
from bigcons.stores.pairs import PairTable

logger: logging.Logger = logging.getLogger("bigcons")

Start = np.ndarray | Callable[[Block], np.ndarray]
"""Memberships of all objects, or a function that returns those of a block."""

# A table is cut into blocks of equal cost: enough of them for a cluster, none too small to be worth a task or
# too large for a small memory. An object costs as much as this many pair ends.
N_BLOCKS = 16
LEAST_ENTRIES, MOST_ENTRIES = 1 << 16, 1 << 22
ENTRIES_PER_OBJECT = 8
OBJECTS_AT_ONCE = 1 << 20

# In two rounds, less than half of an object's pairs are with blocks that move at the same time: too few for
# joint moves to overshoot often. There are more rounds if each still has this many blocks.
N_ROUNDS = 2
BLOCKS_PER_ROUND = 8

# Lengths tried if a full pass raises the objective by more than rounding.
LENGTHS = (0.75, 0.5, 0.25, 0.125)
ROUNDING = 1e-7

# Bytes of a task per pair end: counts, index, index in the task, share, weight, and temporaries.
BYTES_PER_END = 28


class Borders(NamedTuple):
    """Which blocks share pairs, and the weight of all pairs."""

    neighbors: list[list[int]]
    """For each block, the other blocks that it shares pairs with, ascending."""
    total_weight: float
    task_entries: int
    """The largest number of pair ends in a block."""


class Neighborhoods(NamedTuple):
    """The blocks of a pair table and which of them share pairs, as sent to every task."""

    pairs: PairTable
    blocks: list[Block]
    neighbors: list[list[int]]
    colors: list[int]
    divergence: Divergence

    def by_rates(self, rates: tuple[float, float] | None) -> Neighborhoods:
        """Return the same with a divergence calibrated by ``rates``, if any."""
        return self._replace(divergence=calibrated(self.divergence, rates))

    def rounds(self, n_rounds: int) -> list[int]:
        """Return the round of each block if a pass has ``n_rounds``."""
        return [color % n_rounds for color in self.colors]

    def in_rounds(self, n_rounds: int) -> list[list[Block]]:
        """Return the blocks of each round."""
        rounds = self.rounds(n_rounds)
        return [[b for b in self.blocks if rounds[b.index] == number] for number in range(max(rounds) + 1)]


class Pace(NamedTuple):
    """What passes carry besides memberships."""

    n_rounds: int
    """In a pass: with one per color, blocks that move at the same time share no pairs."""
    objective: float
    """Of the memberships; not needed, and infinite, with one round per color."""
    rates: tuple[float, float] | None = None
    """Background and scale of a calibrated co-association; None for that of the paper."""


class BlockedPairs:
    """The passes of PCC on blocks of pairs; objects carry memberships (rows, K) float32.

    The gap is in units of `heap.mean_weight`, times that of `unit_of`. With several blocks it is the largest
    gap that the tasks of a pass started from; a solve has converged only after a pass without a gap above the
    tolerance, which changes nothing.
    """

    name = "PCC on blocks of pairs"

    def __init__(self, near: Neighborhoods, n_clusters: int, scale: float, rule: str | None = None) -> None:
        self.near = near
        self.n_clusters = n_clusters
        self.scale = scale
        """The unit of the gap by the paper's co-association."""
        self.rule = rule
        """How to find the rates of a calibrated co-association; None for that of the paper."""
        self.n_colors: int = max(near.colors) + 1

    def start(self, run: Run) -> tuple[Pace, list[float]]:
        """Write the first memberships, and find the rates by them."""
        init, near = run.init, self.near
        if isinstance(init, np.ndarray):
            init = checked_start(init, run.data.n_objects, self.n_clusters)
            if self.rule is None and diverges_at_edges(near.divergence):
                rows = np.concatenate([self._contradicted(block, init) for block in run.blocks])
                init[rows] = softened(init[rows], LEAST_PART)
        for _ in run.engine.map(FirstBlock(near, run.arrays, init), run.blocks):
            pass
        pace = Pace(len(run.rounds), np.inf)
        if self.rule is not None:
            sums = fold(run.engine, run.blocks, SumPairs(near, run.arrays), np.add)
            pace = pace._replace(rates=rates_of(sums, self.rule))
        if pace.n_rounds < self.n_colors:
            pace = pace._replace(objective=float(self._measure(run, pace, (0, 0))[0]))
        return pace, init.start_objectives if isinstance(init, Extension) else []

    def _contradicted(self, block: Block, init: np.ndarray) -> np.ndarray:
        graph = graph_of(self.near.pairs.read(block.start, block.stop), self.near.divergence)
        return contradicted(graph.indptr, graph.indices, graph.observed, init[block.start : block.stop], init)

    def visit(self, run: Run, at: Iterate[Pace]) -> StretchOfBlock:
        """Return the task that takes a stretch of steps with the objects of a block."""
        near, n_rounds = self.near.by_rates(at.state.rates), at.state.n_rounds
        run.rounds = near.in_rounds(n_rounds)
        threshold = run.tol
        if not at.records and callable(run.init):
            threshold = 0.0  # a near-uniform start is a saddle, where gaps mean nothing until all have moved
        elif at.records and self.n_colors > 1:
            threshold = threshold_after(at.records[-1]["gap"], run.tol)
        threshold *= self.scale * unit_of(near.divergence)
        return StretchOfBlock(near, run.arrays, at.generation, n_rounds, threshold)

    def add(self, total: Stretch, part: Stretch) -> Stretch:
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
        unit = self.scale * unit_of(calibrated(self.near.divergence, pace.rates))
        gap = (total.gap if is_alone else total.gap_before) / unit
        still = gap <= run.tol if is_alone else total.n_steps == 0
        objective = total.objective
        if pace.n_rounds < self.n_colors:
            after = at.generation + 1
            objective += float(self._measure(run, pace, (after, after), n_rounds=pace.n_rounds)[0])
            if objective > pace.objective + ROUNDING * abs(pace.objective):
                length, objective, pace = self._shorten(run, at)
            pace = pace._replace(objective=objective)
        record = {"objective": objective, "gap": gap, "steps": total.n_steps, "step_length": length}
        return Step(pace, record, still, 1 if length == 1.0 else 2)

    def _shorten(self, run: Run, at: Iterate[Pace]) -> tuple[float, float, Pace]:
        """Shorten the pass to where the objective falls most; if nowhere, undo it and take more rounds."""
        pace = at.state
        tried = self._measure(run, pace, (at.generation, at.generation + 1), LENGTHS)
        best = int(np.argmin(tried))
        if tried[best] < pace.objective:
            length, objective = LENGTHS[best], float(tried[best])
        else:
            length, objective = 0.0, pace.objective
            pace = pace._replace(n_rounds=min(2 * pace.n_rounds, self.n_colors))
        run.shorten(at.generation, length)
        return length, objective, pace

    def _measure(
        self,
        run: Run,
        pace: Pace,
        generations: tuple[int, int],
        lengths: tuple[float, ...] = (0.0,),
        n_rounds: int | None = None,
    ) -> np.ndarray:
        """Return the objective as `Measure` tells it, over all blocks."""
        near = self.near.by_rates(pace.rates)
        task = Measure(near, run.arrays, generations, lengths, n_rounds)
        return fold(run.engine, run.blocks, task, np.add)

    def pack(self, state: Pace) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the pace; the block arrays hold the rest of the state."""
        return {}, state._asdict()

    def unpack(self, _arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Pace:
        """Return the pace."""
        return Pace(facts["n_rounds"], facts["objective"], stored_rates(facts))


def solve_blocked(
    pairs: PairTable,
    n_clusters: int,
    divergence: Divergence,
    *,
    init: Start,
    max_passes: int,
    tol: float,
    seed: int,
    engine: Engine,
    arrays: BlockArrays | None = None,
    snapshots: Snapshots | None = None,
    blocks: list[Block] | None = None,
    memory: int | None = None,
    rule: str | None = None,
) -> Solution:
    """Minimize the divergence over the pairs; memberships (rows, K) float32 live in ``arrays``.

    With a ``rule``, the rates of a calibrated co-association are those of the memberships ``init``.
    ``blocks`` default to `cut_blocks`. With one block this equals `heap.solve_pairs`, bit for bit. With
    ``snapshots``, every pass is committed, and an existing run is resumed.

    A pass reads all pairs, twice if blocks that share pairs move at once, and takes up to n K / 4 steps.
    Raises MemoryBudgetError if concurrent tasks of `task_bytes` each exceed ``memory``.
    """
    blocks = cut_blocks(pairs) if blocks is None else blocks
    borders = find_borders(pairs, blocks, engine)
    near = Neighborhoods(pairs, blocks, borders.neighbors, color_blocks(borders.neighbors), divergence)
    rounds = near.in_rounds(fewest_rounds(near.colors))
    n_tasks = min(engine.n_workers, max(map(len, rounds)))
    task = task_bytes(borders, blocks, n_clusters)
    logger.info(
        "blocked PCC: %d blocks in %d rounds, %d concurrent tasks of %s",
        *(len(blocks), len(rounds), n_tasks, format_size(task)),
    )
    if memory is not None and task * n_tasks > memory:
        raise MemoryBudgetError(
            f"blocked PCC needs {format_size(task * n_tasks)} for {n_tasks} concurrent blocks, over the "
            f"{format_size(memory)} left; raise memory=, use fewer workers, or sample the pairs again in "
            "tiles, with a smaller budget.",
            needed=task * n_tasks,
            budget=memory,
        )
    run = Run(pairs, engine, seed, max_passes, tol, init=init, snapshots=snapshots, rounds=rounds)
    run.arrays = run.arrays if arrays is None else arrays
    method = BlockedPairs(near, n_clusters, mean_weight(borders.total_weight, pairs.n_objects), rule)
    at = run_passes(run, method)
    return solution_at(run, at, blocks=blocks).by(near.by_rates(at.state.rates).divergence)


def cut_blocks(pairs: PairTable) -> list[Block]:
    """Return blocks of equal cost; the tiles, if the pairs were sampled in tiles."""
    if pairs.rows_per_block is not None:
        return pairs.blocks()
    entries = 2 * pairs.n_pairs
    n_blocks = max(min(entries // LEAST_ENTRIES, N_BLOCKS), -(-entries // MOST_ENTRIES), 1)
    n, cost = pairs.n_objects, entries + ENTRIES_PER_OBJECT * pairs.n_objects
    ends, before = [], 0
    for part in row_blocks(n, OBJECTS_AT_ONCE):
        costs = before + np.cumsum(pairs.degrees(part.start, part.stop) + ENTRIES_PER_OBJECT)
        wanted = np.arange(1, n_blocks) * cost // n_blocks
        found = wanted[(wanted >= before) & (wanted < costs[-1])]
        ends += (part.start + np.searchsorted(costs, found, "right")).tolist()
        before = int(costs[-1])
    bounds = sorted({0, *ends, n})
    return [Block(b, start, stop) for b, (start, stop) in enumerate(itertools.pairwise(bounds))]


def task_bytes(borders: Borders, blocks: list[Block], n_clusters: int) -> int:
    """Return the peak memory of a task: its pairs, its own objects and those of neighbor blocks."""
    rows = max(block.n_rows for block in blocks)
    others = max(sum(blocks[b].n_rows for b in known) for known in borders.neighbors)
    to_move = rows * (28 * n_clusters + 32) + 4 * n_clusters * others
    to_measure = 8 * n_clusters * (rows + others)  # two generations
    return BYTES_PER_END * borders.task_entries + max(to_move, to_measure)


# Which blocks share pairs, and so the order in which they move


@dataclass(frozen=True)
class FindBorders:
    """A task: find the neighbor blocks of a block."""

    pairs: PairTable
    blocks: list[Block]

    def __call__(self, block: Block) -> Borders:
        """Read the pairs of a block."""
        rows = self.pairs.read(block.start, block.stop)
        known = np.zeros(len(self.blocks), bool)
        starts = [other.start for other in self.blocks]
        known[np.searchsorted(starts, rows.indices, "right") - 1] = True
        known[block.index] = False
        weight = float(rows.n_seen.sum(dtype=np.float64))
        return Borders([np.flatnonzero(known).tolist()], weight, len(rows.indices))


def find_borders(pairs: PairTable, blocks: list[Block], engine: Engine) -> Borders:
    """Read all pairs once and return which blocks share pairs."""
    with progress("blocks of pairs", pairs.n_objects) as listener:
        return fold(engine, blocks, FindBorders(pairs, blocks), _add_borders, progress=listener)


def _add_borders(a: Borders, b: Borders) -> Borders:
    a.neighbors.extend(b.neighbors)
    return Borders(a.neighbors, a.total_weight + b.total_weight, max(a.task_entries, b.task_entries))


def color_blocks(neighbors: list[list[int]]) -> list[int]:
    """Return a color for every block that differs from its neighbors': greedily, in order."""
    colors: list[int] = []
    for block, known in enumerate(neighbors):
        taken = {colors[other] for other in known if other < block}
        colors.append(next(color for color in range(len(taken) + 1) if color not in taken))
    return colors


def fewest_rounds(colors: list[int]) -> int:
    """Return the number of rounds of a pass: one per color where these have enough blocks."""
    return min(max(colors) + 1, max(N_ROUNDS, len(colors) // BLOCKS_PER_ROUND))


# Tasks


@dataclass(frozen=True)
class FirstBlock:
    """A task: write the first memberships of a block."""

    near: Neighborhoods
    arrays: BlockArrays
    init: Start

    def __call__(self, block: Block) -> None:
        """Write a block."""
        if callable(self.init):
            memberships = self.init(block)
            if self.near.divergence.name != "l2":
                memberships = softened(memberships)
        else:
            memberships = self.init[block.start : block.stop]
        self.arrays.write(0, block, memberships)


@dataclass(frozen=True)
class SumPairs:
    """A task: the sums that rates follow from, over the pairs of a block with itself and later blocks."""

    near: Neighborhoods
    arrays: BlockArrays

    def __call__(self, block: Block) -> np.ndarray:
        """Sum over a block."""
        near, memberships = self.near, self.arrays.read(0, block)
        known = [near.blocks[b] for b in near.neighbors[block.index] if b > block.index]
        others = _read_rows(self.arrays, [0] * len(known), known, memberships.shape[1])
        return sums_over_pairs(_numbered(near, [block, *known]), memberships, others)


@dataclass(frozen=True)
class StretchOfBlock:
    """A task: take a stretch of steps with the objects of a block, and write them to the next generation.

    The objective covers the pairs inside the block and those with blocks of earlier rounds: summed over all
    blocks, every pair at the end of the pass except those that different blocks of one round share.
    """

    near: Neighborhoods
    arrays: BlockArrays
    generation: int
    n_rounds: int
    threshold: float

    def __call__(self, block: Block) -> Stretch:
        """Move the objects of a block."""
        near, rounds = self.near, self.near.rounds(self.n_rounds)
        memberships = self.arrays.read(self.generation, block)
        known = [near.blocks[b] for b in sorted(near.neighbors[block.index], key=lambda b: (rounds[b], b))]
        moved = [other for other in known if rounds[other.index] < rounds[block.index]]
        generations = [self.generation + 1] * len(moved) + [self.generation] * (len(known) - len(moved))
        others = _read_rows(self.arrays, generations, known, memberships.shape[1])
        graph = graph_of(_numbered(near, [block, *known]), near.divergence, others)
        n_counted = sum(other.n_rows for other in moved)
        updated, done = take_stretch(
            graph, memberships, near.divergence, stretch_steps(*memberships.shape), self.threshold, n_counted
        )
        self.arrays.write(self.generation + 1, block, updated)
        return done


@dataclass(frozen=True)
class Measure:
    """A task: the objective over the pairs of a block with itself and later blocks, which has all pairs once.

    It is measured at steps of some ``lengths`` from one generation to another; float64, one for each. With
    ``n_rounds``, over the pairs that different blocks of one round share.
    """

    near: Neighborhoods
    arrays: BlockArrays
    generations: tuple[int, int]
    lengths: tuple[float, ...]
    n_rounds: int | None

    def __call__(self, block: Block) -> np.ndarray:
        """Measure a block."""
        near, within = self.near, self.n_rounds is None
        known = [near.blocks[b] for b in near.neighbors[block.index] if b > block.index]
        if self.n_rounds is not None:
            rounds = near.rounds(self.n_rounds)
            known = [other for other in known if rounds[other.index] == rounds[block.index]]
        totals = np.zeros(len(self.lengths))
        if known or within:
            own = {generation: self.arrays.read(generation, block) for generation in self.generations}
            others = {g: _read_rows(self.arrays, [g] * len(known), known, own[g].shape[1]) for g in own}
            before, after = self.generations
            rows, theirs = (own[before], own[after]), (others[before], others[after])
            graph = graph_of(_numbered(near, [block, *known], within=within), near.divergence)
            value, _, _, parameter = near.divergence.compiled
            values_along(*rows, *graph[:4], *theirs, np.array(self.lengths), totals, value, parameter)
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
    renumber(rows.indices, starts, shifts, numbers)
    return rows._replace(indices=numbers)
