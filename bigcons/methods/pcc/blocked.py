"""PCC on a pair table of any size: Algorithm 1 of Lourenço et al. 2015 inside blocks of objects.

A task reads the pairs of one block and the memberships of the blocks that these pairs lead to, and takes a
stretch of steps with its own objects; all others stay as they are. Two blocks that share a pair never move
in the same round (the blocks are colored, a round for each color), so that what one task gains no other
takes away: block coordinate descent, with no step length to choose. A pair table of tiles has few colors and
many blocks of each; uniformly drawn pairs join every block to every other, and a round is then one block.

A pass reads the memberships of one generation and writes the next, every block once and after its last
reader of the same round: a task may run twice, and a pass that was cut short begins again.

A near-uniform start has no order of clusters yet. Blocks that found one each on their own would not agree, so
one block begins, and the others join in when a neighbor has moved, within as many passes as the graph of
blocks is wide.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from bigcons.divergences import Divergence
from bigcons.errors import MemoryBudgetError
from bigcons.execution.engine import Engine
from bigcons.execution.fold import fold
from bigcons.memory import Block, format_size
from bigcons.methods.pcc import start
from bigcons.methods.pcc.extension import Extension
from bigcons.methods.pcc.solution import Solution, solution_at
from bigcons.methods.pcc.steps import threshold_after
from bigcons.methods.pcc.stretch import Stretch, graph_of, mean_weight, stretch_steps, take_stretch
from bigcons.progress import Progress, progress
from bigcons.solving.loop import Begun, Pass, Record, Stage, run_stages
from bigcons.storage.checkpoint import BlockArrays, MemoryBlocks, Snapshots
from bigcons.stores.pairs import PairTable

logger = logging.getLogger("bigcons")

Init = start.Init | Callable[[Block], np.ndarray]
"""A start by name, memberships of all objects, or a function that returns those of a block."""

# Bytes of a task for each end of a pair: counts, place, place in the task, share, weight, and their making.
BYTES_PER_END = 28


class Borders(NamedTuple):
    """What blocks know of each other, block by block, and the weights of all pairs."""

    neighbors: list[list[int]]
    """For each block the other blocks that its pairs lead to, ascending."""
    total_weight: float
    task_entries: int
    """The most ends of pairs in a block."""


class Problem(NamedTuple):
    """What every task of a solve needs; small, and the arrays by reference."""

    pairs: PairTable
    blocks: list[Block]
    neighbors: list[list[int]]
    colors: list[int]
    first_passes: list[int]
    """For each block the pass in which it begins to move."""
    divergence: Divergence
    arrays: BlockArrays

    def rounds(self) -> list[list[Block]]:
        """Return the blocks of each color, which share no pair and move at once."""
        colors = self.colors
        return [[b for b in self.blocks if colors[b.index] == color] for color in sorted(set(colors))]


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
    tiles the blocks of the tiles. With one block this is `heap.solve_pairs`, bit for bit. The gap is in units
    of ``stretch.mean_weight``, and of a pass with several blocks the largest that its tasks met; only a pass
    in which none was above ``tol`` counts as convergence, and changes nothing. With ``snapshots``, every pass
    is committed, and one that is there already is taken up.

    A pass costs O(n_pairs) reading and up to n K / 4 steps. Tasks take `task_bytes` each, which is refused if
    it is more than ``memory`` for all that are at work.
    """
    arrays = MemoryBlocks() if arrays is None else arrays
    blocks = pairs.blocks() if blocks is None else blocks
    borders = find_borders(pairs, blocks, engine)
    _plan_memory(task_bytes(borders, blocks, n_clusters), engine, memory)
    colors = color_blocks(borders.neighbors)
    scale = mean_weight(borders.total_weight, pairs.n_objects)
    spread = isinstance(init, str)
    first_passes = first_moves(borders.neighbors, colors) if spread else [1] * len(blocks)
    problem = Problem(pairs, blocks, borders.neighbors, colors, first_passes, divergence, arrays)
    rounds = problem.rounds()
    alone = len(rounds) == 1

    def one_pass(stage: Stage[None], listener: Progress) -> Pass[None]:
        number = stage.generation + 1
        threshold = _threshold(stage.records, init, tol, alone=alone) * scale
        visit = partial(_visit, problem, number, threshold)
        parts = [fold(engine, part, visit, _add_stretches, progress=listener) for part in rounds]
        done = reduce(_add_stretches, parts)
        gap = (done.gap if alone else done.gap_before) / scale
        record = {"objective": done.objective, "gap": gap, "steps": done.n_steps}
        still = gap <= tol if alone else done.n_steps == 0
        return Pass(None, number, record, still and number >= max(first_passes))

    last = run_stages(
        partial(_begin, problem, n_clusters, init, seed, engine),
        one_pass,
        pack=lambda _: ({}, {}),
        unpack=lambda _arrays, _facts: None,
        max_passes=max_passes,
        n_objects=pairs.n_objects,
        what="PCC on blocks of pairs",
        arrays=arrays,
        snapshots=snapshots,
    )
    return solution_at(last, arrays, blocks)


def _threshold(records: list[Record], init: Init, tol: float, *, alone: bool) -> float:
    """Return the relative gap up to which objects stay as they are in the next pass.

    Blocks without neighbors, ``alone``, know the gap at the end of a pass.
    """
    if records:
        return tol if alone else threshold_after(records[-1]["gap"], tol)
    # a near-uniform start is a saddle: its gaps say nothing until every object has had its step
    return 0.0 if isinstance(init, str) else tol


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
            "tiles, with a smaller budget."
        )


def find_borders(pairs: PairTable, blocks: list[Block], engine: Engine) -> Borders:
    """Read all pairs once and return which blocks they join."""

    def look(block: Block) -> Borders:
        rows = pairs.read(block.start, block.stop)
        known = np.zeros(len(blocks), bool)
        known[_block_of(rows.indices, blocks)] = True
        known[block.index] = False
        weight = float(rows.n_seen.sum(dtype=np.float64))
        return Borders([np.flatnonzero(known).tolist()], weight, len(rows.indices))

    def both(a: Borders, b: Borders) -> Borders:
        a.neighbors.extend(b.neighbors)
        return Borders(a.neighbors, a.total_weight + b.total_weight, max(a.task_entries, b.task_entries))

    with progress("blocks of pairs", pairs.n_objects) as listener:
        return fold(engine, blocks, look, both, progress=listener)


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


def _begin(problem: Problem, n_clusters: int, init: Init, seed: int, engine: Engine) -> Begun[None]:
    """Write the first memberships as generation 0."""
    if isinstance(init, np.ndarray):
        init = start.given(init, problem.pairs.n_objects, n_clusters)
    for _ in engine.map(partial(_write_start, problem, n_clusters, init, seed), problem.blocks):
        pass
    return Begun(None, init.start_objectives if isinstance(init, Extension) else [])


def _write_start(problem: Problem, n_clusters: int, init: Init, seed: int, block: Block) -> None:
    if isinstance(init, str):
        draw = start.dirichlet if init == "dirichlet" else start.perturbed_uniform
        memberships = draw(block.n_rows, n_clusters, seed, block.index, 0)
    else:
        memberships = init(block) if callable(init) else init[block.start : block.stop]
        if problem.divergence.name != "l2":
            memberships = start.softened(memberships)
    problem.arrays.write(0, block, memberships)


def _visit(problem: Problem, generation: int, threshold: float, block: Block) -> Stretch:
    """Take a stretch of steps with the objects of a block; write them to ``generation``.

    The objective is over the pairs inside the block and those with blocks that have moved before in this
    pass: summed over all blocks that is every pair once, with the memberships at the end of the pass.
    """
    memberships = problem.arrays.read(generation - 1, block)
    colors = problem.colors
    known = sorted(problem.neighbors[block.index], key=lambda b: (colors[b], b))
    moved = [problem.blocks[b] for b in known if colors[b] < colors[block.index]]
    still = [problem.blocks[b] for b in known[len(moved) :]]
    n_moved = sum(other.n_rows for other in moved)
    others = np.empty((n_moved + sum(other.n_rows for other in still), memberships.shape[1]), np.float32)
    filled = 0
    for other, current in [(b, generation) for b in moved] + [(b, generation - 1) for b in still]:
        others[filled : filled + other.n_rows] = problem.arrays.read(current, other)
        filled += other.n_rows
    rows = problem.pairs.read(block.start, block.stop)
    rows = rows._replace(indices=_renumbered(rows.indices, block, moved + still, problem.blocks))
    updated, done = take_stretch(
        graph_of(rows, others),
        memberships,
        problem.divergence,
        stretch_steps(*memberships.shape) if generation >= problem.first_passes[block.index] else 0,
        threshold,
        n_moved,
    )
    problem.arrays.write(generation, block, updated)
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


def _add_stretches(a: Stretch, b: Stretch) -> Stretch:
    return Stretch(
        a.n_steps + b.n_steps,
        max(a.gap_before, b.gap_before),
        max(a.gap, b.gap),
        a.objective + b.objective,
    )
