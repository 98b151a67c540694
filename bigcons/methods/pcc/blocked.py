"""PCC on a pair table of any size: Algorithm 1 of Lourenço et al. 2015 inside blocks of objects.

Block coordinate descent: a task reads the pairs of one block and the memberships of its neighbor blocks, and
takes a stretch of steps with its own objects while all others are fixed. Blocks that share a pair never move
in the same round (the blocks are colored, one round per color), so every task lowers the objective and no
step length is needed. Pairs sampled in tiles need few colors with many blocks each; uniformly drawn pairs
connect all blocks, so a round is then a single block.

A pass reads one generation of memberships and writes the next, so tasks and interrupted passes can be
repeated.

In a near-uniform start the clusters have no identity yet, and blocks moving independently would not agree on
them. So one block starts, and every other block moves once a neighbor has moved.
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
from bigcons.methods.pcc.all_pairs import Extension
from bigcons.methods.pcc.heap import Stretch, graph_of, mean_weight, stretch_steps, take_stretch
from bigcons.methods.pcc.memberships import (
    LEAST_PART,
    Init,
    Solution,
    checked_start,
    contradicted,
    dirichlet,
    diverges_at_edges,
    perturbed_uniform,
    softened,
    solution_at,
    threshold_after,
)
from bigcons.progress import progress
from bigcons.solving.passes import Iterate, Run, Step, run_passes
from bigcons.storage.checkpoint import BlockArrays, Snapshots
from bigcons.stores.pairs import PairTable

logger: logging.Logger = logging.getLogger("bigcons")

AnyInit = Init | Callable[[Block], np.ndarray]
"""A start by name, memberships of all objects, or a function that returns those of a block."""

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
    first_passes: list[int]
    """For each block, the first pass in which it moves."""
    divergence: Divergence

    def rounds(self) -> list[list[Block]]:
        """Return the blocks of each color, which share no pairs and move at once."""
        colors = self.colors
        return [[b for b in self.blocks if colors[b.index] == color] for color in sorted(set(colors))]


class BlockedPairs:
    """The passes of PCC on blocks of pairs; objects carry memberships (rows, K) float32.

    The gap is in units of `heap.mean_weight`. With several blocks it is the largest gap that the tasks of a
    pass started from; a solve has converged only after a pass without a gap above the tolerance, which
    changes nothing.
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
            init = checked_start(init, run.data.n_objects, self.n_clusters)
            if diverges_at_edges(self.near.divergence):
                rows = np.concatenate([self._contradicted(block, init) for block in run.blocks])
                init[rows] = softened(init[rows], LEAST_PART)
        for _ in run.engine.map(
            FirstBlock(self.near, run.arrays, self.n_clusters, run.seed, init), run.blocks
        ):
            pass
        return None, init.start_objectives if isinstance(init, Extension) else []

    def _contradicted(self, block: Block, init: np.ndarray) -> np.ndarray:
        graph = graph_of(self.near.pairs.read(block.start, block.stop))
        return contradicted(graph.indptr, graph.indices, graph.observed, init[block.start : block.stop], init)

    def visit(self, run: Run, at: Iterate[None]) -> StretchOfBlock:
        """Return the task that takes a stretch of steps with the objects of a block."""
        if at.records:
            gap = at.records[-1]["gap"]
            threshold = run.tol if self.is_alone else threshold_after(gap, run.tol)
        else:
            # gaps at a near-uniform start, a saddle, are not meaningful until every object has moved
            threshold = 0.0 if isinstance(run.init, str) else run.tol
        return StretchOfBlock(self.near, run.arrays, at.generation + 1, threshold * self.scale)

    def add(self, total: Stretch, part: Stretch) -> Stretch:
        """Combine the reports of two stretches."""
        return Stretch(
            total.n_steps + part.n_steps,
            max(total.gap_before, part.gap_before),
            max(total.gap, part.gap),
            total.objective + part.objective,
        )

    def step(self, run: Run, at: Iterate[None], total: Stretch) -> Step[None]:
        """Record the pass; memberships are already written."""
        gap = (total.gap if self.is_alone else total.gap_before) / self.scale
        still = gap <= run.tol if self.is_alone else total.n_steps == 0
        record = {"objective": total.objective, "gap": gap, "steps": total.n_steps}
        return Step(None, record, still and at.generation + 1 >= max(self.near.first_passes))

    def pack(self, _state: None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return nothing: the block arrays hold the whole state."""
        return {}, {}

    def unpack(self, _arrays: dict[str, np.ndarray], _facts: dict[str, Any]) -> None:
        """Return nothing."""


def solve_blocked(
    pairs: PairTable,
    n_clusters: int,
    divergence: Divergence,
    *,
    init: AnyInit,
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

    ``blocks``, equally long except the last, default to ``pairs.blocks()``: the tiles, if pairs were sampled
    in tiles. With one block this equals `heap.solve_pairs`, bit for bit. With ``snapshots``, every pass is
    committed, and an existing run is resumed.

    A pass reads all pairs and takes up to n K / 4 steps. Raises MemoryBudgetError if concurrent tasks of
    `task_bytes` each exceed ``memory``.
    """
    blocks = pairs.blocks() if blocks is None else blocks
    borders = find_borders(pairs, blocks, engine)
    colors = color_blocks(borders.neighbors)
    first_passes = first_moves(borders.neighbors, colors) if isinstance(init, str) else [1] * len(blocks)
    near = Neighborhoods(pairs, blocks, borders.neighbors, colors, first_passes, divergence)
    n_tasks = min(engine.n_workers, max(map(len, near.rounds())))  # blocks of one round run at once
    task = task_bytes(borders, blocks, n_clusters)
    logger.info("blocked PCC: %d concurrent tasks of %s", n_tasks, format_size(task))
    if memory is not None and task * n_tasks > memory:
        raise MemoryBudgetError(
            f"blocked PCC needs {format_size(task * n_tasks)} for {n_tasks} concurrent blocks, over the "
            f"{format_size(memory)} left; raise memory=, use fewer workers, or sample the pairs again in "
            "tiles, with a smaller budget.",
            needed=task * n_tasks,
            budget=memory,
        )
    run = Run(pairs, engine, seed, max_passes, tol, init=init, snapshots=snapshots, rounds=near.rounds())
    run.arrays = run.arrays if arrays is None else arrays
    method = BlockedPairs(near, n_clusters, mean_weight(borders.total_weight, pairs.n_objects))
    return solution_at(run, run_passes(run, method), blocks=blocks)


def task_bytes(borders: Borders, blocks: list[Block], n_clusters: int) -> int:
    """Return the peak memory of a task: its pairs, its own objects and those of neighbor blocks."""
    rows = max(block.n_rows for block in blocks)
    others = max(sum(blocks[b].n_rows for b in known) for known in borders.neighbors)
    own = rows * (24 * n_clusters + 32)
    return BYTES_PER_END * borders.task_entries + own + 4 * n_clusters * (others + rows)


@dataclass(frozen=True)
class FindBorders:
    """A task: find the neighbor blocks of a block."""

    pairs: PairTable
    blocks: list[Block]

    def __call__(self, block: Block) -> Borders:
        """Read the pairs of a block."""
        rows = self.pairs.read(block.start, block.stop)
        known = np.zeros(len(self.blocks), bool)
        known[_block_of(rows.indices, self.blocks)] = True
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


def first_moves(neighbors: list[list[int]], colors: list[int]) -> list[int]:
    """Return each block's first pass: that in which a neighbor moves before it; one per component starts."""
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
    init: AnyInit

    def __call__(self, block: Block) -> None:
        """Write a block."""
        init = self.init
        if isinstance(init, str):
            draw = dirichlet if init == "dirichlet" else perturbed_uniform
            memberships = draw(block.n_rows, self.n_clusters, self.seed, block.index, 0)
        else:
            memberships = init(block) if callable(init) else init[block.start : block.stop]
            if callable(init) and self.near.divergence.name != "l2":
                memberships = softened(memberships)
        self.arrays.write(0, block, memberships)


@dataclass(frozen=True)
class StretchOfBlock:
    """A task: take a stretch of steps with the objects of a block, and write them to ``generation``.

    The objective covers the pairs inside the block and those with blocks that moved earlier in the pass, so
    that the sum over all blocks has every pair once, with the memberships at the end of the pass.
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
    """Renumber objects for a task: those of ``block`` from 0, followed by those of ``others``."""
    shift = np.zeros(len(blocks), np.int32)
    shift[block.index] = -block.start
    first = block.n_rows
    for other in others:
        shift[other.index] = first - other.start
        first += other.n_rows
    return indices + shift[_block_of(indices, blocks)]


def _block_of(indices: np.ndarray, blocks: list[Block]) -> np.ndarray:
    return indices // np.int32(blocks[0].n_rows)
