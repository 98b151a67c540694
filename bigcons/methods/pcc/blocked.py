"""PCC on a pair table of any size: Algorithm 1 of Lourenço et al. 2015 inside blocks of objects.

Block coordinate descent: a task reads the pairs of one block and the memberships of the blocks that these
pairs lead to, and takes a stretch of steps with its own objects while all others stay fixed. Two blocks that
share a pair never move in the same round (the blocks are colored, with one round per color), so that no task
undoes what another gained, and there is no step length to choose. Pairs sampled in tiles need few colors,
with many blocks of each; uniformly drawn pairs join every block to every other, and a round is then a single
block.

A pass reads one generation of memberships and writes the next, so that a task may run twice and a pass that
was cut short can be repeated.

In a near-uniform start the clusters have no identity yet, and blocks that moved independently would not agree
on them. So one block begins, and the others join in once a neighbor has moved, within as many passes as the
graph of blocks is wide.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigcons.divergences import Divergence
from bigcons.errors import MemoryBudgetError
from bigcons.execution.engine import Engine, fold
from bigcons.memory import Block, format_size
from bigcons.methods.pcc import start
from bigcons.methods.pcc.all_pairs import Extension
from bigcons.methods.pcc.pairs import Stretch, graph_of, mean_weight, stretch_steps, take_stretch
from bigcons.methods.pcc.solution import Solution, solution_at
from bigcons.progress import progress
from bigcons.solving.passes import Iterate, Run, Step, run_passes
from bigcons.storage.checkpoint import BlockArrays, Snapshots
from bigcons.stores.pairs import PairTable

logger: logging.Logger = logging.getLogger("bigcons")

Init = start.Init | Callable[[Block], np.ndarray]
"""A start by name, memberships of all objects, or a function that returns those of a block."""

# Bytes of a task for each end of a pair: counts, place, place in the task, share, weight, and their making.
BYTES_PER_END = 28


class Borders(NamedTuple):
    """Which blocks share pairs, and the weight of all pairs."""

    neighbors: list[list[int]]
    """For each block the other blocks that it shares pairs with, ascending."""
    total_weight: float
    task_entries: int
    """The largest number of ends of pairs in a block."""


class Neighborhoods(NamedTuple):
    """The blocks of a pair table, and which of them share pairs: what every task needs; small."""

    pairs: PairTable
    blocks: list[Block]
    neighbors: list[list[int]]
    colors: list[int]
    first_passes: list[int]
    """For each block the pass in which it begins to move."""
    divergence: Divergence

    def rounds(self) -> list[list[Block]]:
        """Return the blocks of each color, which share no pair and move at once."""
        colors = self.colors
        return [[b for b in self.blocks if colors[b.index] == color] for color in sorted(set(colors))]


class BlockedPairs:
    """The passes of PCC on blocks of pairs; objects carry memberships (rows, K) float32.

    The gap is in units of ``pairs.mean_weight``, and of a pass with several blocks the largest that its tasks
    met; only a pass in which none was above the tolerance counts as convergence, and changes nothing.
    """

    name = "PCC on blocks of pairs"

    def __init__(self, near: Neighborhoods, n_clusters: int, scale: float) -> None:
        self.near = near
        self.n_clusters = n_clusters
        self.scale = scale
        """The unit of the gap."""
        self.is_alone: bool = len(set(near.colors)) == 1
        """Whether no block has neighbors, so that the gap at the end of a pass is known."""

    def start(self, run: Run) -> tuple[None, list[float]]:
        """Write the first memberships."""
        init = run.init
        if isinstance(init, np.ndarray):
            init = start.given(init, run.data.n_objects, self.n_clusters)
        for _ in run.engine.map(
            FirstBlock(self.near, run.arrays, self.n_clusters, run.seed, init), run.blocks
        ):
            pass
        return None, init.start_objectives if isinstance(init, Extension) else []

    def visit(self, run: Run, at: Iterate[None]) -> StretchOfBlock:
        """Return the task that takes a stretch of steps with the objects of a block."""
        if at.records:
            gap = at.records[-1]["gap"]
            threshold = run.tol if self.is_alone else start.threshold_after(gap, run.tol)
        else:
            # a near-uniform start is a saddle: its gaps say nothing until every object has had its step
            threshold = 0.0 if isinstance(run.init, str) else run.tol
        return StretchOfBlock(self.near, run.arrays, at.generation + 1, threshold * self.scale)

    def add(self, total: Stretch, part: Stretch) -> Stretch:
        """Return what both stretches did."""
        return Stretch(
            total.n_steps + part.n_steps,
            max(total.gap_before, part.gap_before),
            max(total.gap, part.gap),
            total.objective + part.objective,
        )

    def step(self, run: Run, at: Iterate[None], total: Stretch) -> Step[None]:
        """Judge the pass: the blocks have moved."""
        gap = (total.gap if self.is_alone else total.gap_before) / self.scale
        still = gap <= run.tol if self.is_alone else total.n_steps == 0
        record = {"objective": total.objective, "gap": gap, "steps": total.n_steps}
        return Step(None, record, still and at.generation + 1 >= max(self.near.first_passes))

    def pack(self, _state: None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return nothing: all is in the block arrays."""
        return {}, {}

    def unpack(self, _arrays: dict[str, np.ndarray], _facts: dict[str, Any]) -> None:
        """Return nothing."""


def solve_blocked(
    pairs: PairTable,
    n_clusters: int,
    divergence: Divergence,
    *,
    init: Init,
    max_passes: int,
    tol: float,
    seed: int,
    engine: Engine,
    arrays: BlockArrays | None = None,
    snapshots: Snapshots | None = None,
    blocks: list[Block] | None = None,
    memory: int | None = None,
) -> Solution:
    """Minimize the divergence over the pairs; memberships (rows, K) float32 live in ``arrays``.

    ``blocks``, of equal length but for the last, are by default ``pairs.blocks()``: for pairs sampled in
    tiles the blocks of the tiles. With one block this is `pairs.solve_pairs`, bit for bit. With
    ``snapshots``, every pass is committed, and a run that is there already is resumed.

    A pass costs O(n_pairs) reading and up to n K / 4 steps. Tasks take `task_bytes` each, which is refused if
    it is more than ``memory`` for all that are at work.
    """
    blocks = pairs.blocks() if blocks is None else blocks
    borders = find_borders(pairs, blocks, engine)
    _plan_memory(task_bytes(borders, blocks, n_clusters), engine, memory)
    colors = color_blocks(borders.neighbors)
    first_passes = first_moves(borders.neighbors, colors) if isinstance(init, str) else [1] * len(blocks)
    near = Neighborhoods(pairs, blocks, borders.neighbors, colors, first_passes, divergence)
    run = Run(pairs, engine, seed, max_passes, tol, init=init, snapshots=snapshots, rounds=near.rounds())
    run.arrays = run.arrays if arrays is None else arrays
    method = BlockedPairs(near, n_clusters, mean_weight(borders.total_weight, pairs.n_objects))
    return solution_at(run, run_passes(run, method), blocks=blocks)


def task_bytes(borders: Borders, blocks: list[Block], n_clusters: int) -> int:
    """Return the most memory a task takes: its pairs, its own objects and those its pairs lead to."""
    rows = max(block.n_rows for block in blocks)
    others = max(sum(blocks[b].n_rows for b in known) for known in borders.neighbors)
    own = rows * (24 * n_clusters + 32)
    return BYTES_PER_END * borders.task_entries + own + 4 * n_clusters * (others + rows)


def _plan_memory(task: int, engine: Engine, memory: int | None) -> None:
    needed = task * engine.n_workers
    logger.info("blocked PCC: %d tasks of %s at work", engine.n_workers, format_size(task))
    if memory is not None and needed > memory:
        raise MemoryBudgetError(
            f"blocked PCC needs {format_size(needed)} for {engine.n_workers} blocks at work, over the "
            f"{format_size(memory)} left; raise memory=, use fewer workers, or sample the pairs again in "
            "tiles, with a smaller budget.",
            needed=needed,
            budget=memory,
        )


@dataclass(frozen=True)
class FindBorders:
    """A task: find the blocks that the pairs of a block lead to."""

    pairs: PairTable
    blocks: list[Block]

    def __call__(self, block: Block) -> Borders:
        """Look at a block."""
        rows = self.pairs.read(block.start, block.stop)
        known = np.zeros(len(self.blocks), bool)
        known[_block_of(rows.indices, self.blocks)] = True
        known[block.index] = False
        weight = float(rows.n_seen.sum(dtype=np.float64))
        return Borders([np.flatnonzero(known).tolist()], weight, len(rows.indices))


def find_borders(pairs: PairTable, blocks: list[Block], engine: Engine) -> Borders:
    """Read all pairs once and return which blocks they join."""
    with progress("blocks of pairs", pairs.n_objects) as listener:
        return fold(engine, blocks, FindBorders(pairs, blocks), _add_borders, progress=listener)


def _add_borders(a: Borders, b: Borders) -> Borders:
    a.neighbors.extend(b.neighbors)
    return Borders(a.neighbors, a.total_weight + b.total_weight, max(a.task_entries, b.task_entries))


def color_blocks(neighbors: list[list[int]]) -> list[int]:
    """Return a color for every block, other than those of its neighbors: the first free one, in order."""
    colors: list[int] = []
    for block, known in enumerate(neighbors):
        taken = {colors[other] for other in known if other < block}
        colors.append(next(color for color in range(len(taken) + 1) if color not in taken))
    return colors


def first_moves(neighbors: list[list[int]], colors: list[int]) -> list[int]:
    """Return for each block the first pass in which a neighbor has moved before it; one begins unasked."""
    passes = [0] * len(colors)
    number = 0
    while not all(passes):
        number += 1
        alone = True
        for block in sorted(range(len(colors)), key=lambda b: (colors[b], b)):
            if not passes[block] and any(passes[other] for other in neighbors[block]):
                passes[block] = number
                alone = False
        if alone:
            passes[passes.index(0)] = number
    return passes


@dataclass(frozen=True)
class FirstBlock:
    """A task: write the first memberships of a block."""

    near: Neighborhoods
    arrays: BlockArrays
    n_clusters: int
    seed: int
    init: Init

    def __call__(self, block: Block) -> None:
        """Begin a block."""
        init = self.init
        if isinstance(init, str):
            draw = start.dirichlet if init == "dirichlet" else start.perturbed_uniform
            memberships = draw(block.n_rows, self.n_clusters, self.seed, block.index, 0)
        else:
            memberships = init(block) if callable(init) else init[block.start : block.stop]
            if self.near.divergence.name != "l2":
                memberships = start.softened(memberships)
        self.arrays.write(0, block, memberships)


@dataclass(frozen=True)
class StretchOfBlock:
    """A task: take a stretch of steps with the objects of a block, and write them to ``generation``.

    The objective is over the pairs inside the block and those with blocks that have moved before in this
    pass: summed over all blocks that is every pair once, with the memberships at the end of the pass.
    """

    near: Neighborhoods
    arrays: BlockArrays
    generation: int
    threshold: float

    def __call__(self, block: Block) -> Stretch:
        """Move the objects of a block."""
        near, generation = self.near, self.generation
        memberships, colors = self.arrays.read(generation - 1, block), near.colors
        known = sorted(near.neighbors[block.index], key=lambda b: (colors[b], b))
        moved = [near.blocks[b] for b in known if colors[b] < colors[block.index]]
        still = [near.blocks[b] for b in known[len(moved) :]]
        n_moved = sum(other.n_rows for other in moved)
        others = np.empty((n_moved + sum(other.n_rows for other in still), memberships.shape[1]), np.float32)
        filled = 0
        for other, current in [(b, generation) for b in moved] + [(b, generation - 1) for b in still]:
            others[filled : filled + other.n_rows] = self.arrays.read(current, other)
            filled += other.n_rows
        rows = near.pairs.read(block.start, block.stop)
        rows = rows._replace(indices=_renumbered(rows.indices, block, moved + still, near.blocks))
        may_move = generation >= near.first_passes[block.index]
        n_steps = stretch_steps(*memberships.shape) if may_move else 0
        graph = graph_of(rows, others)
        updated, done = take_stretch(graph, memberships, near.divergence, n_steps, self.threshold, n_moved)
        self.arrays.write(generation, block, updated)
        return done


def _renumbered(indices: np.ndarray, block: Block, others: list[Block], blocks: list[Block]) -> np.ndarray:
    """Number the objects as a task has them: those of ``block`` from 0, then those of ``others`` in turn."""
    shift = np.zeros(len(blocks), np.int32)
    shift[block.index] = -block.start
    first = block.n_rows
    for other in others:
        shift[other.index] = first - other.start
        first += other.n_rows
    return indices + shift[_block_of(indices, blocks)]


def _block_of(indices: np.ndarray, blocks: list[Block]) -> np.ndarray:
    return indices // np.int32(blocks[0].n_rows)
