"""Sampled pairs of objects: drawn uniformly from all, or inside tiles of a grid of row blocks.

A uniform draw (`sample_pairs`) draws pair numbers and needs memory for the requested pairs only. But pairs
of arbitrary objects need random access to labels and, in a solver, to memberships. For tables larger than
memory, objects are divided into blocks, every block is paired with itself and a few others, and pairs are
drawn uniformly within these tiles: two blocks of labels in memory suffice for a tile. The graph of blocks is
random and regular, so that it mixes well and every object is in about as many pairs as any other.

The rows of a block need the pairs of all its tiles, so each tile of two blocks is drawn and counted twice,
once for each block: the draws depend on the seed and the tile alone, so both get the same pairs and nothing
is exchanged or kept. A task may run twice.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bigcons.coassociation.counts import count, count_rows
from bigcons.disk.checkpoint import differences
from bigcons.disk.commit import refuse_other, refuse_source
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.memory import Block, enough_for, format_size, parse_size, rows_within
from bigcons.progress import progress
from bigcons.run.engine import Engine, open_engine
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.store.pair_rows import (
    MAX_OBJECTS,
    OBJECT_BYTES,
    PAIR_BYTES,
    Rows,
    counts_dtype,
    rows_of_entries,
)
from bigcons.store.pairs import PairTable, pairs_made, refuse_existing_pairs
from bigcons.validation import check_int, check_number

logger: logging.Logger = logging.getLogger("bigcons")

# The memory of a draw

# Memory of a process that has read a store and counted pairs, besides the pairs. Fixed, not measured: which
# pairs are drawn must not depend on what else the process holds.
PROCESS_BYTES = 250_000_000

# Memory is planned for this many tasks in flight: a fixed number, so that blocks, and with them the pairs, do
# not depend on the number of workers.
PLANNED_TASKS = 16


def sample(
    x: Any,
    *,
    share: float | None = None,
    per_object: float | None = None,
    n_pairs: int | None = None,
    tiles: int | str | None = "auto",
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    random_state: SeedLike = None,
    memory: int | str = "1GB",
    client: object = None,
) -> PairTable:
    """Draw pairs of objects of the ensemble ``x`` and count the partitions that label and that join them.

    The number of pairs is given as in `sample_pairs`. With ``out`` the table is written to a store there,
    which is returned open. ``memory`` is the budget of the process; at least half of it is for pairs and
    labels.

    ``tiles`` chooses the pairs to draw from. None: all, as `sample_pairs` does, with the table in memory. A
    number: tiles of a grid of row blocks, each block with itself and that many others, written directly to
    ``out`` within ``memory``. "auto": 8 if the table goes to ``out`` and would exceed
    ``memory`` before it is written, else None.

    Repeating a call returns the table at ``out``; other parameters or labels raise StoreExistsError, unless
    ``overwrite``. Raises MemoryBudgetError if a table not drawn in tiles would exceed the budget.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, truth = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> pairs = bc.coassociation.sample(ensemble, per_object=10, random_state=0)
    >>> pairs.n_objects
    500
    """
    ensemble = as_ensemble(x)
    n, seed, budget = ensemble.n_objects, resolve_seed(random_state), parse_size(memory)
    asked = {"share": share, "per_object": per_object, "n_pairs": n_pairs}
    given = {name: value for name, value in asked.items() if value is not None}
    wanted = number_of_pairs(n, **asked)
    needed, left = PAIR_BYTES * wanted + OBJECT_BYTES * n, _budget_for_pairs(budget)
    if tiles == "auto":
        # with fewer other blocks, regions far apart in the graph of blocks may order their clusters
        # differently
        tiles = 8 if out is not None and needed > left else None
        if tiles is not None:
            logger.info(
                "%s pairs take %s in memory, over the %s that memory=%s leaves for them: drawing in tiles, "
                "each row block with %d others",
                *(f"{wanted:,}", format_size(needed), format_size(left), format_size(budget), tiles),
            )
    elif tiles is not None and out is None:
        raise InvalidInputError(
            f"tiles={tiles!r} without out=; pass the path of a store for the pairs as out=."
        )
    made: dict[str, Any] = {"sampled": "uniform"}
    if tiles is not None:  # whose size, and so the pairs, depend on memory
        tiles = check_int("tiles", tiles, at_least=2)
        made = {"sampled": "tiles", "tiles": tiles, "memory": budget}
    if out is not None:
        made["labels"] = ensemble.digest()
        of_call = {**made, **asked} | ({} if random_state is None else {"random_state": seed})
        known = pairs_made(out)
        if not overwrite and known is not None and "sampled" in known:
            refuse_other(out, differences(known, of_call))
            logger.info("%s holds the finished result of this call: nothing is left to draw", out)
            return PairTable.open(out)
        refuse_existing_pairs(out, overwrite)
        refuse_source(out, ensemble.path)
    made |= {**given, "random_state": seed}
    if tiles is not None:
        made = {"ensemble": ensemble.path, "n_partitions": ensemble.n_partitions, **made}
        with open_engine(client) as engine:
            return _sample_tiles(ensemble, out, wanted, tiles, seed, budget, engine, overwrite, made)
    if needed > left:
        raise MemoryBudgetError(
            f"{wanted:,} pairs take {format_size(needed)} in memory, over the {format_size(left)} that "
            f"memory={format_size(budget)} leaves for them; raise it to "
            f"{enough_for(min(needed + PROCESS_BYTES, 2 * needed))}, or draw them in tiles: pass out= and "
            "leave tiles='auto'.",
            needed=needed,
            budget=left,
        )
    table = sample_in_memory(ensemble, given, seed, budget, client)
    table.provenance |= made
    return table if out is None else table.save(out, overwrite=overwrite)


def sample_in_memory(
    ensemble: Ensemble, asked: Mapping[str, Any], seed: int, memory: int, client: object
) -> PairTable:
    """Draw pairs from all objects and count them; ``memory`` bounds the labels, not the table.

    ``asked`` gives the number of pairs as `sample_pairs` does.
    """
    i, j = sample_pairs(ensemble.n_objects, **asked, random_state=seed)
    budget = _budget_for_pairs(memory)
    labels = max(budget - 30 * len(i), budget // 2)  # bytes of a pair while it is drawn and counted
    table = count(ensemble, i, j, memory=labels, client=client)
    table.provenance |= {"sampled": "uniform", **asked, "random_state": seed}
    return table


def _budget_for_pairs(memory: int) -> int:
    """Return the bytes for pairs and labels: a budget minus the process itself, at least half of it."""
    return max(memory - PROCESS_BYTES, memory // 2)


def sample_pairs(
    n_objects: int,
    *,
    share: float | None = None,
    n_pairs: int | None = None,
    per_object: float | None = None,
    random_state: SeedLike = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw distinct pairs ``i < j`` of ``n_objects`` objects, every set of pairs equally likely.

    Give one of ``share``, of all ``n (n - 1) / 2`` pairs (0.25e-3 is 0.25 permille), ``n_pairs``, and
    ``per_object``, the mean number of pairs per object.

    Returns ``(i, j)``, both ``(n_pairs,)`` int32, in ascending order of i, then j. About 30 bytes per pair
    of memory and O(n_pairs log n_pairs) time, regardless of the number of objects.

    Examples
    --------
    >>> import bigcons as bc
    >>> i, j = bc.coassociation.sample_pairs(1000, n_pairs=5, random_state=0)
    >>> bool((i < j).all()), len(i)
    (True, 5)
    """
    wanted = number_of_pairs(n_objects, share=share, n_pairs=n_pairs, per_object=per_object)
    rng = generator(resolve_seed(random_state), "coassociation.sample_pairs")
    return pairs_of_numbers(distinct_numbers(rng, count_all_pairs(n_objects), wanted), n_objects)


def number_of_pairs(n_objects: int, **asked: Any) -> int:
    """Return the number of pairs that one of ``share``, ``n_pairs`` and ``per_object`` asks for."""
    total, given = count_all_pairs(n_objects), {k: value for k, value in asked.items() if value is not None}
    if len(given) != 1:
        got = ", ".join(f"{name}={value}" for name, value in given.items()) or "nothing"
        raise InvalidInputError(
            f"got {got} for the number of pairs; give one of share, n_pairs and per_object."
        )
    ((name, value),) = given.items()
    if name == "n_pairs":
        return check_int(name, value, at_most=total)
    most, times = (1, total) if name == "share" else (n_objects - 1, n_objects / 2)
    if (wanted := round(check_number(name, value, above=0, at_most=most) * times)) == 0:
        raise InvalidInputError(
            f"{name}={value} asks for less than one of the {total} pairs; use a larger number."
        )
    return min(wanted, total)


# In tiles


def _sample_tiles(
    ensemble: Ensemble,
    out: Any,
    n_pairs: int,
    tiles: int,
    seed: int,
    memory: int,
    engine: Engine,
    overwrite: bool,
    provenance: dict[str, Any],
) -> PairTable:
    """Draw and count ``n_pairs`` pairs within the tiles of each block with itself and ``tiles`` others.

    Blocks have as many objects as fit: they, and with them the pairs, depend on memory. ``n_pairs`` are
    divided among the tiles by size.

    O(n_pairs n_partitions) time, twice that for pairs of two blocks. Each task in flight holds two blocks of
    labels and the rows of one, together at most a sixteenth of ``memory``. About 10 bytes per pair on disk.
    """
    n = ensemble.n_objects
    # an end of a pair in a task: object, other object and counts, twice while they are sorted, and the draw
    # of a tile; a solver's task needs less
    row_bytes = 2 * ensemble.row_bytes + 40 * 2 * n_pairs / n
    what = "the pairs of one object for each task"
    fitting = rows_within(memory // PLANNED_TASKS, row_bytes, what=what)
    # smaller blocks than memory requires let more tasks run at once, if a tile has room for the pairs
    blocks = ensemble.blocks(min(fitting, max(-(-2 * n_pairs // n), -(-n // 32))))
    others = block_graph(len(blocks), tiles, generator(seed, "coassociation.tiles.graph"))
    grid = [(a, a) for a in range(len(blocks))]
    grid += [(a, b) for a, known in enumerate(others) for b in sorted(known) if a < b]
    sizes = [_tile_size(blocks[a], blocks[b]) for a, b in grid]
    if n_pairs > sum(sizes):
        raise InvalidInputError(
            f"n_pairs={n_pairs:,} is more than the {sum(sizes):,} pairs in the tiles of tiles={tiles}; "
            "raise tiles."
        )
    if engine.in_flight > PLANNED_TASKS:
        needed = memory * engine.in_flight / PLANNED_TASKS
        raise MemoryBudgetError(
            f"{engine.in_flight} blocks of pairs in flight need {format_size(needed)}, over the budget of "
            f"{format_size(memory)}; use fewer workers, or one with client='serial'.",
            needed=needed,
            budget=memory,
        )
    ends = [n_pairs * size // sum(sizes) for size in itertools.accumulate(sizes)]
    tiles_of: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
    for (a, b), start, stop in zip(grid, [0, *ends], ends, strict=False):
        for block_index in {a, b}:
            tiles_of[block_index].append((a, b, stop - start))
    rows_per_block = blocks[0].n_rows
    logger.info(
        "tiles: %d blocks of %s objects, each with itself and %d others, for %s pairs",
        *(len(blocks), f"{rows_per_block:,}", max(map(len, others)), f"{n_pairs:,}"),
    )

    def rows_of_block(block: Block) -> Rows:
        """Return the rows of one block: draw and count the pairs of its tiles."""
        here, entries = ensemble.read(block.start, block.stop), []
        for a, b, n_drawn in tiles_of[block.index]:
            other = blocks[b if a == block.index else a]
            there = here if other == block else ensemble.read(other.start, other.stop)
            i, j = draw_tile(blocks[a], blocks[b], n_drawn, seed)
            left, right = (here, there) if a == block.index else (there, here)
            n_agree, n_seen = count_rows(left, right, i, j)
            if a == block.index:
                entries.append((i, j + np.int32(other.start), n_agree, n_seen))
            if b == block.index:
                entries.append((j, i + np.int32(other.start), n_agree, n_seen))
        columns = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        return rows_of_entries(*columns, n_rows=block.n_rows, n_objects=n)

    def parts() -> Iterator[Rows]:
        with progress("sample pairs", n) as listener:
            for block, part in zip(blocks, engine.map(rows_of_block, blocks), strict=True):
                yield part
                listener.advance(block.n_rows)

    return PairTable.store_blocks(
        out,
        parts(),
        n_objects=n,
        counts_dtype=counts_dtype(ensemble.n_partitions),
        rows_per_block=rows_per_block,
        # 65 thousand to a million entries: smaller chunks are slow to read, larger ones gain nothing
        chunk_entries=1 << min(max((2 * n_pairs * rows_per_block // n).bit_length() - 1, 16), 20),
        provenance=provenance,
        overwrite=overwrite,
    )


def block_graph(n_blocks: int, degree: int, rng: np.random.Generator) -> list[set[int]]:
    """Return the neighbors of each block in a random connected graph of the given degree.

    Few blocks are all neighbors of each other. Others have, in a random order, those one step and some random
    steps before and after. An odd degree with an odd number of blocks, for which no regular graph exists, is
    raised by one.
    """
    if degree >= n_blocks - 1:
        return [set(range(n_blocks)) - {a} for a in range(n_blocks)]
    degree += degree * n_blocks % 2
    further = 2 + rng.permutation((n_blocks - 1) // 2 - 1)
    steps = [1, *further[: degree // 2 - 1].tolist()] + ([n_blocks // 2] if degree % 2 else [])
    order = rng.permutation(n_blocks).tolist()
    others: list[set[int]] = [set() for _ in range(n_blocks)]
    for at, step in itertools.product(range(n_blocks), steps):
        a, b = order[at], order[(at + step) % n_blocks]
        others[a].add(b)
        others[b].add(a)
    return others


def _tile_size(a: Block, b: Block) -> int:
    return a.n_rows * (a.n_rows - 1) // 2 if a == b else a.n_rows * b.n_rows


def draw_tile(a: Block, b: Block, n_pairs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw ``n_pairs`` distinct pairs of a tile: rows ``(i, j)`` int32 of the two blocks, ascending."""
    rng = generator(seed, "coassociation.tiles", a.index, b.index)
    numbers = distinct_numbers(rng, _tile_size(a, b), n_pairs)
    if a == b:
        return pairs_of_numbers(numbers, a.n_rows) if n_pairs else (np.empty(0, np.int32),) * 2
    i = numbers // b.n_rows
    return i.astype(np.int32), (numbers - i * b.n_rows).astype(np.int32)


# Pairs by number: i < j numbered row by row from 0 to n (n - 1) / 2 - 1, exactly


def count_all_pairs(n_objects: int) -> int:
    """Return ``n (n - 1) / 2``, the number of pairs of ``n_objects`` objects."""
    if not 2 <= n_objects <= MAX_OBJECTS:
        raise InvalidInputError(
            f"n_objects={n_objects} has no pairs to sample; between 2 and {MAX_OBJECTS:,} objects are needed."
        )
    return n_objects * (n_objects - 1) // 2


def pairs_of_numbers(numbers: np.ndarray, n_objects: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs ``(i, j)`` int32 of pair ``numbers`` ``(n_pairs,)`` int64; order is kept."""
    i = np.empty(len(numbers), dtype=np.int32)
    j = np.empty(len(numbers), dtype=np.int32)
    step = 1 << 20  # a slice at a time, so that the temporaries stay small
    for start in range(0, len(numbers), step):
        part = slice(start, start + step)
        # counted from the last pair, number = row (row + 1) / 2 + column with 0 <= column <= row
        from_last = count_all_pairs(n_objects) - 1 - numbers[part]
        row = (np.sqrt(2.0 * from_last + 0.25) - 0.5).astype(np.int64)
        row -= row * (row + 1) // 2 > from_last  # the float root is off by one at most
        row += (row + 1) * (row + 2) // 2 <= from_last
        i[part] = n_objects - 2 - row
        j[part] = n_objects - 1 - (from_last - row * (row + 1) // 2)
    return i, j


def distinct_numbers(rng: np.random.Generator, total: int, wanted: int) -> np.ndarray:
    """Return ``wanted`` distinct numbers below ``total``, ascending; every subset is equally likely."""
    if 2 * wanted > total:  # draw the numbers to leave out, so that at most half are drawn
        keep = np.ones(total, dtype=bool)
        keep[distinct_numbers(rng, total, total - wanted)] = False
        return np.flatnonzero(keep)
    # The first `wanted` distinct values of an endless uniform sequence are a uniform subset. A batch never
    # holds more values than are still missing, so only repeated values are dropped.
    numbers = np.empty(0, dtype=np.int64)
    while len(numbers) < wanted:
        batch = np.sort(rng.integers(total, size=wanted - len(numbers)))
        first = np.concatenate([[True], batch[1:] != batch[:-1]])
        batch = batch[first]
        position = np.searchsorted(numbers, batch)
        is_new = np.append(numbers, -1)[position] != batch
        numbers = np.insert(numbers, position[is_new], batch[is_new])
    return numbers
