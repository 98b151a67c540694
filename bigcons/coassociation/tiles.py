"""Pairs drawn inside tiles of a block grid, counted and written block by block: as many as the disk holds.

Pairs drawn from all objects need random access to labels and, in a solver, to memberships. Here the objects
are cut into blocks, every block is paired with itself and a few others, and pairs are drawn uniformly inside
these tiles: two blocks of labels in memory serve a whole tile. The graph of blocks is random and regular, so
that it mixes well and every object is in about as many pairs as any other.

The rows of a block need the pairs of all its tiles, so that each tile between two blocks is drawn and counted
once for either: the draws depend on the seed and the tile alone, so both get the same pairs, and nothing is
exchanged or kept on the way. A task may run twice.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.coassociation.pair_numbers import distinct_numbers, pairs_of_numbers
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.execution.engine import Engine
from bigcons.memory import Block, format_size, row_blocks, rows_within
from bigcons.progress import progress
from bigcons.seeding import generator
from bigcons.stores.pair_rows import Rows, counts_dtype, rows_of_entries
from bigcons.stores.pairs import PairTable

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble

logger: logging.Logger = logging.getLogger("bigcons")

# Memory is planned for this many tasks under way: a fixed number, so that blocks, and with them the pairs, do
# not depend on the number of workers.
PLANNED_TASKS = 16

# Smaller blocks than memory asks for let more of them be worked on at once; below a size that gains nothing.
MIN_BLOCKS = 32
MIN_ROWS = 1024

# Bytes of a task for each end of a pair: object, other object and counts, twice while they are sorted, and
# the draw of a tile. A solver's task takes less.
BYTES_PER_END = 40

# Chunks of 65 thousand to a million entries: shorter ones are slow to read, longer ones gain nothing.
MIN_CHUNK_BITS, MAX_CHUNK_BITS = 16, 20

# Exchanges of ends for each edge of the graph of blocks, after which the graph is as good as random.
SWAPS_PER_EDGE = 10
SWAPS_AT_ONCE = 1024


class TilePlan(NamedTuple):
    """Which blocks are paired, and how many pairs each tile has."""

    blocks: list[Block]
    tiles: list[list[tuple[int, int, int]]]
    """For each block the tiles it is in: two blocks ``a <= b`` and the number of pairs."""


def sample_tiles(
    ensemble: Ensemble,
    out: Any,
    *,
    n_pairs: int,
    tiles: int,
    seed: int,
    memory: int,
    engine: Engine,
    overwrite: bool,
    provenance: dict[str, Any],
) -> PairTable:
    """Draw and count ``n_pairs`` pairs, each block of objects with itself and ``tiles`` others, into a store.

    Time O(n_pairs n_partitions), twice for pairs of two blocks. Memory: for each task in flight two blocks of
    labels and the rows of one, together at most a sixteenth of ``memory``. On disk about 10 bytes a pair.
    """
    plan = plan_tiles(ensemble, n_pairs, tiles, memory, seed)
    _refuse_too_many_tasks(engine, memory)
    rows_of_block = partial(_rows_of_block, ensemble, plan, seed)
    with progress("sample pairs", ensemble.n_objects) as listener:

        def parts() -> Any:
            for block, part in zip(plan.blocks, engine.map(rows_of_block, plan.blocks), strict=True):
                yield part
                listener.advance(block.n_rows)

        return PairTable.store_blocks(
            out,
            parts(),
            n_objects=ensemble.n_objects,
            counts_dtype=counts_dtype(ensemble.n_partitions),
            rows_per_block=plan.blocks[0].n_rows,
            chunk_entries=_chunk_entries(2 * n_pairs * plan.blocks[0].n_rows // ensemble.n_objects),
            provenance=provenance,
            overwrite=overwrite,
        )


def plan_tiles(ensemble: Ensemble, n_pairs: int, tiles: int, memory: int, seed: int) -> TilePlan:
    """Choose the blocks, draw which are paired, and share ``n_pairs`` among the tiles by their size.

    Raises MemoryBudgetError if not even one row fits, InvalidInputError if the tiles hold fewer pairs.
    """
    labels_bytes = 2 * ensemble.n_partitions * ensemble.dtype.itemsize
    row_bytes = labels_bytes + BYTES_PER_END * 2 * n_pairs / ensemble.n_objects
    rows = rows_within(memory // PLANNED_TASKS, row_bytes, what="the pairs of one object for each task")
    blocks = ensemble.blocks(min(rows, max(MIN_ROWS, -(-ensemble.n_objects // MIN_BLOCKS))))
    others = block_graph(len(blocks), tiles, generator(seed, "coassociation.tiles.graph"))
    grid = [(a, a) for a in range(len(blocks))]
    grid += [(a, b) for a, known in enumerate(others) for b in sorted(known) if a < b]
    sizes = [_tile_size(blocks[a], blocks[b]) for a, b in grid]
    if n_pairs > sum(sizes):
        raise InvalidInputError(
            f"n_pairs={n_pairs:,} is more than the {sum(sizes):,} pairs in the tiles of tiles={tiles}; "
            "pair each block with more others."
        )
    ends = [n_pairs * size // sum(sizes) for size in itertools.accumulate(sizes)]
    shares = [stop - start for start, stop in itertools.pairwise([0, *ends])]
    logger.info(
        "tiles: %d blocks of %s objects, each with itself and %d others, for %s pairs",
        *(len(blocks), f"{blocks[0].n_rows:,}", max(map(len, others)), f"{n_pairs:,}"),
    )
    tiles_of: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
    for (a, b), share in zip(grid, shares, strict=True):
        for block in {a, b}:
            tiles_of[block].append((a, b, share))
    return TilePlan(blocks, tiles_of)


def block_graph(n_blocks: int, degree: int, rng: np.random.Generator) -> list[set[int]]:
    """Return a random connected graph in which every block has ``degree`` others, or all if they are few.

    Two ends are exchanged again and again between random edges of a ring (Markov chain of switchings). An odd
    degree of an odd number of blocks is raised by one, for there is no such graph.
    """
    if degree >= n_blocks - 1:
        return [set(range(n_blocks)) - {a} for a in range(n_blocks)]
    degree += degree * n_blocks % 2
    steps = list(range(1, degree // 2 + 1)) + ([n_blocks // 2] if degree % 2 else [])
    others: list[set[int]] = [set() for _ in range(n_blocks)]
    for a, step in itertools.product(range(n_blocks), steps):
        _join(others, a, (a + step) % n_blocks)
    while True:
        _switch(others, rng)
        if _is_connected(others):
            return others


def _switch(others: list[set[int]], rng: np.random.Generator) -> None:
    edges = [(a, b) for a, known in enumerate(others) for b in sorted(known) if a < b]
    for e, f, turn in _swaps(len(edges), rng):
        (a, b), (c, d) = edges[e // 2], edges[f // 2]
        if turn % 2:
            c, d = d, c
        if len({a, b, c, d}) == 4 and d not in others[a] and b not in others[c]:
            for x, y in ((a, b), (c, d)):
                others[x].remove(y)
                others[y].remove(x)
            edges[e // 2], edges[f // 2] = (a, d), (c, b)
            _join(others, a, d)
            _join(others, c, b)


def _swaps(n_edges: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """Yield ``(e, f, turn)``, all below ``2 n_edges``; of a fine grid there are millions, so few are held."""
    for part in row_blocks(SWAPS_PER_EDGE * n_edges, SWAPS_AT_ONCE):
        yield from rng.integers(2 * n_edges, size=(part.n_rows, 3)).tolist()


def _join(others: list[set[int]], a: int, b: int) -> None:
    others[a].add(b)
    others[b].add(a)


def _is_connected(others: list[set[int]]) -> bool:
    reached, frontier = {0}, [0]
    while frontier:
        fresh = others[frontier.pop()] - reached
        reached |= fresh
        frontier.extend(fresh)
    return len(reached) == len(others)


def _chunk_entries(per_block: int) -> int:
    """Return a length for the chunks of the store: whoever reads a block decodes little more than it."""
    return 1 << min(max(per_block.bit_length() - 1, MIN_CHUNK_BITS), MAX_CHUNK_BITS)


def _tile_size(a: Block, b: Block) -> int:
    return a.n_rows * (a.n_rows - 1) // 2 if a == b else a.n_rows * b.n_rows


def _rows_of_block(ensemble: Ensemble, plan: TilePlan, seed: int, block: Block) -> Rows:
    """Return the rows of one block: draw and count the pairs of its tiles."""
    from bigcons.kernels.label_rows import count_pairs

    own = ensemble.read(block.start, block.stop)
    dtype = counts_dtype(ensemble.n_partitions)
    entries = []
    for a, b, n_pairs in plan.tiles[block.index]:
        other = plan.blocks[b if a == block.index else a]
        labels = own if other == block else ensemble.read(other.start, other.stop)
        i, j = draw_tile(plan.blocks[a], plan.blocks[b], n_pairs, seed)
        left, right = (own, labels) if a == block.index else (labels, own)
        n_agree, n_seen = np.empty(n_pairs, dtype), np.empty(n_pairs, dtype)
        count_pairs(left, right, i, j, n_agree, n_seen)
        if a == block.index:
            entries.append((i, j + np.int32(other.start), n_agree, n_seen))
        if b == block.index:
            entries.append((j, i + np.int32(other.start), n_agree, n_seen))
    columns = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    return rows_of_entries(*columns, n_rows=block.n_rows, n_objects=ensemble.n_objects)


def draw_tile(a: Block, b: Block, n_pairs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw ``n_pairs`` distinct pairs of a tile: rows ``(i, j)`` int32 of the two blocks, ascending."""
    rng = generator(seed, "coassociation.tiles", a.index, b.index)
    numbers = distinct_numbers(rng, _tile_size(a, b), n_pairs)
    if a == b:
        return pairs_of_numbers(numbers, a.n_rows) if n_pairs else (np.empty(0, np.int32),) * 2
    i = numbers // b.n_rows
    return i.astype(np.int32), (numbers - i * b.n_rows).astype(np.int32)


def _refuse_too_many_tasks(engine: Engine, memory: int) -> None:
    if engine.in_flight > PLANNED_TASKS:
        needed = memory * engine.in_flight / PLANNED_TASKS
        raise MemoryBudgetError(
            f"{engine.in_flight} blocks of pairs under way need {format_size(needed)}, over the budget of "
            f"{format_size(memory)}; use fewer workers, client='serial' for one.",
            needed=needed,
            budget=memory,
        )
