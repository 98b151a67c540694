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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation import count
from bigcons.coassociation.factorized import AgreementSums
from bigcons.coassociation.sampling import sample_in_memory
from bigcons.divergences import Divergence
from bigcons.errors import ConsensusWarning, MemoryBudgetError, warn_user
from bigcons.kernels import pair_descent
from bigcons.kernels.divergences import l2_slope, newton_search
from bigcons.memory import Block, format_size, row_blocks
from bigcons.methods.pcc.all_pairs import (
    MOVING,
    Begin,
    best_memberships,
    first_rows,
    perturbed_uniform,
    softened,
    solved_sums,
)
from bigcons.progress import Progress, progress
from bigcons.run.engine import Engine, fold, local_engine
from bigcons.run.passes import BlockArrays, Iterate, Passes, Run, State, Step, run_passes
from bigcons.run.results import Output, scratch_place
from bigcons.store.ensemble import Ensemble
from bigcons.store.pair_rows import Rows
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
    """For each block, a number that differs from those of its neighbors."""
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
            is_neighbor = np.zeros(len(starts), bool)
            is_neighbor[np.searchsorted(starts, rows.indices, "right") - 1] = True
            is_neighbor[block.index] = False
            weight = float(rows.n_seen.sum(dtype=np.float64))
            return [np.flatnonzero(is_neighbor).tolist()], weight, len(rows.indices)

        with progress("blocks of pairs", pairs.n_objects) as listener:
            neighbors, weight, entries = fold(
                *(engine, blocks, find_borders),
                lambda a, b: (a[0] + b[0], a[1] + b[1], max(a[2], b[2])),
                progress=listener,
            )
        colors: list[int] = []
        for block, others in enumerate(neighbors):
            taken = {colors[other] for other in others if other < block}
            colors.append(next(color for color in range(len(taken) + 1) if color not in taken))
        mean_weight = max(weight / pairs.n_objects, 1.0)
        return cls(pairs, blocks, neighbors, colors, divergence, mean_weight, entries)

    @property
    def n_colors(self) -> int:
        """Number of colors of the blocks."""
        return max(self.colors) + 1

    @property
    def fewest_rounds(self) -> int:
        """Rounds of a pass at first: one per color where these have at least eight blocks, two at least.

        In two rounds, less than half of an object's pairs are with blocks that move at the same time: too few
        for joint moves to overshoot often.
        """
        return min(self.n_colors, max(2, len(self.colors) // 8))

    def rounds(self, n_rounds: int) -> list[int]:
        """Return the round of each block if a pass has ``n_rounds``."""
        return [color % n_rounds for color in self.colors]

    def in_rounds(self, n_rounds: int) -> list[list[Block]]:
        """Return the blocks of each round."""
        rounds = self.rounds(n_rounds)
        return [[b for b in self.blocks if rounds[b.index] == number] for number in range(max(rounds) + 1)]


FirstRows = tuple[Callable[[Block], np.ndarray], list[float]]
"""What gives the first memberships of a block of pairs, and the objectives of the starts."""


@dataclass(eq=False)
class BlockedPairs(Passes):
    """The passes of PCC on blocks of pairs; objects carry memberships (rows, K) float32.

    The gap is in units of the mean weight of an object. With several blocks it is the largest
    gap that the tasks of a pass started from; a solve has converged only after a pass without a gap above the
    tolerance, which changes nothing.

    The state is the number of rounds of a pass (with one per color, blocks that move at the same time share
    no pairs) and the objective, which is not needed, and infinite, with one round per color. ``max_steps``
    limits those of all passes over a single block. If a full pass raises the objective by more than its share
    ``rounding``, step ``lengths`` are tried.
    """

    name = "PCC on pairs"

    near: Neighborhoods
    begin: Callable[[], FirstRows]
    max_steps: int | None = None
    lengths: tuple[float, ...] = (0.75, 0.5, 0.25, 0.125)
    rounding: float = 1e-7

    def start(self, run: Run) -> tuple[State, list[float]]:
        """Write the first memberships."""
        (rows_of, start_objectives), arrays = self.begin(), run.arrays
        run.for_all(lambda block: arrays.write(0, block, rows_of(block)))
        n_rounds, objective = self.near.fewest_rounds, np.inf
        if n_rounds < self.near.n_colors:
            objective = self._measure(run, (0, 0))[0]
        return {"n_rounds": np.array(n_rounds), "objective": np.array(objective)}, start_objectives

    def one_pass(self, run: Run, at: Iterate, listener: Progress) -> Step:
        """Move the blocks round by round; shorten the pass if the objective has risen.

        Where it falls at no length, the pass is undone and the next has more rounds.
        """
        near, is_alone, before = self.near, self.near.n_colors == 1, at.generation
        n_rounds, last_objective = int(at.state["n_rounds"]), float(at.state["objective"])
        # a near-uniform start is a saddle, where gaps mean nothing until all have moved
        threshold = 0.0 if not at.records else run.tol
        if at.records and not is_alone:
            threshold = run.tol * (1.0 if at.records[-1]["gap"] <= run.tol else MOVING)
        left = None if self.max_steps is None else self.max_steps - sum(int(r["steps"]) for r in at.records)
        move = partial(move_block, near, run.arrays, before, n_rounds, threshold * near.mean_weight, left)
        total = Stretch(0, 0.0, 0.0, 0.0)
        for blocks in near.in_rounds(n_rounds):
            total = total.plus(fold(run.engine, blocks, move, Stretch.plus, progress=listener))
        gap = (total.gap if is_alone else total.gap_before) / near.mean_weight
        is_settled = gap <= run.tol if is_alone else total.n_steps == 0
        objective, length = total.objective, 1.0
        if n_rounds < near.n_colors:
            objective += float(self._measure(run, (before + 1, before + 1), n_rounds=n_rounds)[0])
            if objective > last_objective + self.rounding * abs(last_objective):
                tried = self._measure(run, (before, before + 1), self.lengths)
                best = int(np.argmin(tried))
                if tried[best] < last_objective:
                    length, objective = self.lengths[best], float(tried[best])
                else:
                    length, objective = 0.0, last_objective
                    n_rounds = min(2 * n_rounds, near.n_colors)
                run.shorten(before, length)
            last_objective = objective
        record = {"objective": objective, "gap": gap, "steps": total.n_steps, "step_length": length}
        state = {"n_rounds": np.array(n_rounds), "objective": np.array(last_objective)}
        return Step(state, record, is_settled, 1 if length == 1.0 else 2)

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


def check_tasks(near: Neighborhoods, n_clusters: int, engine: Engine, memory: int | None) -> None:
    """Raise MemoryBudgetError if the blocks being processed at once exceed ``memory``.

    A task has its pairs, its own objects and those of neighbor blocks.
    """
    rounds = near.in_rounds(near.fewest_rounds)
    rows = max(block.n_rows for block in near.blocks)
    others = max(sum(near.blocks[b].n_rows for b in neighbors) for neighbors in near.neighbors)
    to_move = rows * (28 * n_clusters + 32) + 4 * n_clusters * others
    to_measure = 8 * n_clusters * (rows + others)  # two generations
    # counts, index, index in the task, share, weight, and temporaries
    task = 28 * near.task_entries + max(to_move, to_measure)
    n_tasks = min(engine.n_workers, max(map(len, rounds)))
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

    def plus(self, other: Stretch) -> Stretch:
        """Return the report of both."""
        n_steps, objective = self.n_steps + other.n_steps, self.objective + other.objective
        gap_before, gap = max(self.gap_before, other.gap_before), max(self.gap, other.gap)
        return Stretch(n_steps, gap_before, gap, objective)


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
    value, slope, curvature, parameter = divergence.compiled
    rows = np.zeros((n, 2 * K))
    rows[:, :K] = memberships
    search = pair_descent.quadratic_search if slope is l2_slope else newton_search(slope, curvature)
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


# A solve


def solve_pairs(
    run: Run,
    pairs: PairTable,
    divergence: Divergence,
    begin: Begin | None,
    *,
    n_clusters: int,
    max_steps: int | None,
    memory: int | None,
    out: Output | None,
) -> tuple[Callable[[Block], np.ndarray], Iterate, AgreementSums]:
    """Solve PCC on pairs; return what reads memberships, where the passes ended, and the sums of all objects.

    ``run`` is over the labels. ``max_steps`` of the heap: pairs are in one block, in memory; None in blocks
    that workers read. The first memberships are those of a solved sample, extended to all objects or, without
    ``begin``, the paper's uniform ones, perturbed. Objects in no pair are placed over all pairs.
    """
    data, n, is_squared = run.data, run.data.n_objects, divergence.label == "l2"

    def first() -> FirstRows:
        if begin is None:
            return lambda block: perturbed_uniform(block.n_rows, n_clusters, run.seed, block.index), []
        solved = begin(run)

        def rows_of(block: Block) -> np.ndarray:
            rows = first_rows(data, solved, block, data.read(block.start, block.stop))
            return rows if is_squared else softened(rows)

        return rows_of, solved.start_objectives

    warn_of_few_pairs(pairs, n_clusters)
    with scratch_place(out) as scratch:
        if max_steps is not None:
            engine, blocks = local_engine(run.engine), [Block(0, 0, n)]
        else:
            engine = run.engine
            if pairs.path is None and not engine.shares_memory:
                pairs = pairs.save(str(scratch))
            blocks = cut_blocks(pairs)
        near = Neighborhoods.of(pairs, blocks, engine, divergence)
        check_tasks(near, n_clusters, engine, memory)
        over_pairs = replace(run, data=pairs, engine=engine, blocks=near.blocks)
        at = run_passes(over_pairs, BlockedPairs(near, first, max_steps))
        read = partial(read_across, run.arrays, at.generation, near.blocks)
        degrees = [(part, pairs.degrees(part.start, part.stop)) for part in pairs.blocks()]
        isolated = np.concatenate([part.start + np.flatnonzero(degree == 0) for part, degree in degrees])
        if isolated.size:
            logger.info("%d objects in no sampled pair are placed over all pairs", isolated.size)
            place_isolated(run, read, at.generation + 1, isolated, solved_sums(run, read, isolated))
            read = partial(run.arrays.read, at.generation + 1)
        return read, at, solved_sums(run, read)


def place_isolated(
    run: Run,
    read: Callable[[Block], np.ndarray],
    generation: int,
    isolated: np.ndarray,
    sums: AgreementSums,
) -> None:
    """Write a generation of the rows, as ``read`` gives them, with the sorted objects ``isolated`` placed."""
    data, arrays = run.data, run.arrays

    def place_rows(block: Block) -> None:
        chosen, rows = block.rows_of(isolated), np.array(read(block))
        if chosen.size:
            rows[chosen] = best_memberships(sums, data.offsets, data.read(block.start, block.stop)[chosen])
        arrays.write(generation, block, rows)

    run.for_all(place_rows)


def read_across(arrays: BlockArrays, generation: int, blocks: list[Block], block: Block) -> np.ndarray:
    """Return the memberships (rows, K) float32 of a block, of those that were written in other blocks."""
    parts = [
        arrays.read(generation, written)[max(block.start - written.start, 0) : block.stop - written.start]
        for written in blocks
        if written.start < block.stop and block.start < written.stop
    ]
    return np.concatenate(parts)


def n_pair_ends(pairs: Any, n_objects: int) -> int:
    """Return the approximate number of pair ends of listed pairs."""
    if isinstance(pairs, PairTable):
        return 2 * pairs.n_pairs
    return int((1.0 if pairs == DENSE else float(pairs)) * n_objects * (n_objects - 1))


def counted_pairs(pairs: Any, ensemble: Ensemble, seed: int, engine: Engine) -> PairTable:
    """Return the table of a parameter ``pairs``: given, or counted now."""
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
