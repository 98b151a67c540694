"""Counts of agreement: in how many partitions two objects share a cluster, and how many label both.

`count` counts a list of pairs, `dense` all of them; both return numerators and denominators. `similarity`
divides, and `condensed_distances` returns 1 minus the similarity of all pairs as scipy's linkage takes them.

`sample` draws pairs, uniformly from all, or inside tiles of a grid of row blocks.
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
from collections.abc import Mapping
from typing import Any

import numpy as np

from bigcons.disk.checkpoint import differences
from bigcons.disk.commit import provenance_at, refuse_existing, refuse_other
from bigcons.errors import InvalidInputError
from bigcons.io.sources import refuse_inputs
from bigcons.memory import TILE_ROWS, Block, DataBudget, parse_size, row_blocks, rows_within
from bigcons.progress import progress
from bigcons.run.engine import Engine, map_with_progress, open_engine
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.store import pairs as tables
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.store.pairs import PairTable, ascending_pairs, counts_dtype
from bigcons.validation import check_int, check_number
from bigcons.weights import Weights

logger: logging.Logger = logging.getLogger("bigcons")

# Pairs of a task, enough to keep a worker busy.
PAIRS_PER_TASK = 1 << 19

NORMALIZATIONS = ("observed", "all")

Counts = tuple[np.ndarray, np.ndarray]


def count(x: Any, i: Any, j: Any, *, memory: int | str = "1GB", client: object = None) -> PairTable:
    """Count for every pair ``(i[p], j[p])`` the partitions of ``x`` that label both and that join them.

    ``i`` and ``j`` are ``(n_pairs,)`` integers; a pair is given once, in either order, and is left out of the
    table if no partition labels both objects.

    Labels that fit in ``memory`` are held; larger stored ensembles are read tile by tile, with two row blocks
    for each task in flight. Pairs come on top of ``memory``: 30 bytes each while the labels are held, then 60
    bytes each and 40 bytes per object, and 12 bytes each in the table. O(n_pairs n_partitions) time.

    Examples
    --------
    >>> import bigcons as bc
    >>> pairs = bc.coassociation.count([[0, 0], [0, 1], [1, -1]], i=[0, 0], j=[1, 2])
    >>> pairs.n_agree, pairs.n_seen
    (array([1, 0, 1, 0], dtype=uint8), array([2, 1, 2, 1], dtype=uint8))
    """
    ensemble = as_ensemble(x)
    i, j, _ = ascending_pairs(i, j, ensemble.n_objects)
    counts = _count(ensemble, i, j, parse_size(memory), client)  # labels are freed on return
    provenance = {"ensemble": ensemble.path, "n_partitions": ensemble.n_partitions}
    return PairTable.from_arrays(i, j, *counts, n_objects=ensemble.n_objects, provenance=provenance)


def _count(ensemble: Ensemble, i: np.ndarray, j: np.ndarray, memory: int, client: object) -> Counts:
    """Return the counts of ascending pairs, a run of them for each task; labels are held if they fit."""
    n, row_bytes = ensemble.n_objects, ensemble.row_bytes
    n_agree, n_seen = np.empty((2, len(i)), counts_dtype(ensemble.n_partitions))
    with open_engine(client) as engine, progress("count pairs", len(i), "pairs") as listener:
        labels, blocks = None, [Block(0, 0, n)]
        runs = [(blocks[0], slice(run.start, run.stop)) for run in row_blocks(len(i), PAIRS_PER_TASK)]
        if ensemble.path is None or n * row_bytes <= memory:
            labels = ensemble.read(0, n)
        else:
            budget, purpose = DataBudget(memory), "two blocks of labels for each task"
            blocks = ensemble.blocks(rows_within(budget, 2 * row_bytes * engine.in_flight, noun=purpose))
            ends = np.searchsorted(i, [block.stop for block in blocks])  # of pairs by their first object
            parts = map(slice, [0, *ends[:-1]], ends)
            runs = [(rows, part) for rows, part in zip(blocks, parts, strict=True) if part.stop > part.start]

        def count_run(run: tuple[Block, np.ndarray, np.ndarray]) -> Counts:
            """Count the pairs of one row block, one block of second objects after the other."""
            rows, i, j = run
            if labels is not None:
                return count_rows(labels, labels, i, j)
            left = ensemble.read(rows.start, rows.stop)
            n_agree, n_seen = np.empty((2, len(i)), counts_dtype(ensemble.n_partitions))
            block_numbers = np.searchsorted([block.stop for block in blocks], j, side="right")
            order = np.argsort(block_numbers, kind="stable")
            ends = np.searchsorted(block_numbers[order], np.arange(len(blocks)), side="right")
            for columns, pairs in zip(blocks, np.split(order, ends[:-1]), strict=True):
                if len(pairs):
                    right = left if columns == rows else ensemble.read(columns.start, columns.stop)
                    tile = count_rows(left, right, i[pairs] - rows.start, j[pairs] - columns.start)
                    n_agree[pairs], n_seen[pairs] = tile
            return n_agree, n_seen

        counts = engine.map(count_run, ((rows, i[part], j[part]) for rows, part in runs))
        for (_, part), (agree, seen) in zip(runs, counts, strict=True):
            n_agree[part], n_seen[part] = agree, seen
            listener.advance(len(agree))
    return n_agree, n_seen


def count_rows(left: np.ndarray, right: np.ndarray, i: np.ndarray, j: np.ndarray) -> Counts:
    """Return the counts of the rows ``left[i[p]]`` and ``right[j[p]]`` of two blocks of labels."""
    from bigcons.kernels.label_rows import count_pairs

    n_agree, n_seen = np.empty((2, len(i)), counts_dtype(left.shape[1]))
    count_pairs(left, right, i, j, n_agree, n_seen)
    return n_agree, n_seen


def dense(x: Any, *, memory: int | str = "4GB", client: object = None) -> Counts:
    """Return ``(n_agree, n_seen)`` of all pairs of objects of ``x``, ``(n_objects, n_objects)`` int32.

    Both are symmetric; the diagonal holds the number of labels of each object.

    8 bytes for each of the n^2 entries and O(n^2 n_partitions) time; MemoryBudgetError above ``memory``. For
    larger ensembles, `sample` counts a sample of the pairs.

    Examples
    --------
    >>> import bigcons as bc
    >>> n_agree, n_seen = bc.coassociation.dense([[0, 0], [0, 1], [1, -1]])
    >>> n_agree
    array([[2, 1, 0],
           [1, 2, 0],
           [0, 0, 1]], dtype=int32)
    """
    return dense_of_rows(as_ensemble(x), None, memory, client)


def dense_of_rows(
    ensemble: Ensemble, rows: np.ndarray | None, memory: int | str = "4GB", client: object = None
) -> Counts:
    """Return ``(n_agree, n_seen)`` of all pairs of these objects, by default all, as `dense` does."""
    n = ensemble.n_objects if rows is None else len(rows)
    remedy = "count a sample of the pairs with bigcons.coassociation.sample"
    DataBudget(parse_size(memory)).check(8 * n * n, f"all pairs of {n:,} objects", remedy)
    labels = ensemble.read(0, n) if rows is None else ensemble.read_rows(rows)
    n_agree, n_seen = np.empty((n, n), np.int32), np.empty((n, n), np.int32)
    blocks = row_blocks(n, TILE_ROWS)
    tiles = [(first, second) for first in blocks for second in blocks[first.index :]]

    def count_tile(tile: tuple[Block, Block]) -> Counts:
        return count_all(*(labels[first.start : first.stop] for first in tile))

    with open_engine(client) as engine:
        counts = map_with_progress(engine, count_tile, tiles, "count all pairs", "tiles")
        for (first, second), (agree, seen) in counts:
            at_rows, at_columns = slice(first.start, first.stop), slice(second.start, second.stop)
            for matrix, tile in ((n_agree, agree), (n_seen, seen)):
                matrix[at_rows, at_columns] = tile
                matrix[at_columns, at_rows] = tile.T
    return n_agree, n_seen


def count_all(left: np.ndarray, right: np.ndarray) -> Counts:
    """Return the counts of every row of ``left`` with every row of ``right``."""
    from bigcons.kernels.label_rows import count_tile

    n_agree = np.empty((len(left), len(right)), np.int32)
    n_seen = np.empty_like(n_agree)
    count_tile(left, right, n_agree, n_seen)
    return n_agree, n_seen


def similarity(n_agree: np.ndarray, n_seen: np.ndarray, n_partitions: float, normalize: str) -> np.ndarray:
    """Return ``c / N`` ("observed"; 0 where no partition labels both) or ``c / M`` ("all"), float64."""
    if normalize == "all":
        return n_agree / n_partitions
    return np.divide(n_agree, n_seen, out=np.zeros(np.shape(n_agree)), where=n_seen > 0)


def condensed_distances(
    rows: np.ndarray, normalize: str, engine: Engine, weights: Weights | None = None
) -> np.ndarray:
    """Return the distances of all pairs of label rows ``(n, n_partitions)`` as scipy's condensed vector.

    Row 0 with 1, 2, ..., then row 1 with 2, 3, ...: ``n (n - 1) / 2`` float64. O(n^2 n_partitions) time.
    """
    from bigcons.kernels.label_rows import weigh_tile

    def distances_of_band(band: Block) -> np.ndarray:
        """Return the distances of each row of a band to the rows after it."""
        left, right = rows[band.start : band.stop], rows[band.start :]
        total: float = rows.shape[1]
        if weights is None:
            n_agree, n_seen = count_all(left, right)
        else:
            n_agree, n_seen = np.empty((2, len(left), len(right)))
            arguments = weights.offsets, weights.base_clusters, weights.partitions
            weigh_tile(left, right, *arguments, n_agree, n_seen)
            total = float(weights.partitions.sum())
        upper = np.triu_indices(len(left), 1, len(right))
        return (1.0 - similarity(n_agree, n_seen, total, normalize))[upper]

    n, position = len(rows), 0
    distances = np.empty(n * (n - 1) // 2)
    bands = row_blocks(n, max(PAIRS_PER_TASK // max(n, 1), 1))
    for _, part in map_with_progress(engine, distances_of_band, bands, "distances"):
        distances[position : position + len(part)] = part
        position += len(part)
    return distances


# The memory of a draw

# Memory of a process that has read a store and counted pairs, besides the pairs. Fixed, not measured: which
# pairs are drawn must not depend on what else the process holds.
COUNTING_BYTES = 250_000_000

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

    ``tiles`` chooses the pairs to draw from. None: all pairs, as in `sample_pairs`, with the table in memory.
    A number: pairs within tiles of a grid of row blocks, each block with itself and that many others, written
    directly to ``out`` within ``memory``. "auto": 8 if the table goes to ``out`` and would not fit in
    ``memory``, else None.

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
    refuse_inputs(out, x)
    ensemble = as_ensemble(x)
    n, seed, budget = ensemble.n_objects, resolve_seed(random_state), parse_size(memory)
    amounts = {"share": share, "per_object": per_object, "n_pairs": n_pairs}
    settings = {name: value for name, value in amounts.items() if value is not None}
    number = number_of_pairs(n, **amounts)
    n_bytes, available = tables.PAIR_BYTES * number + tables.OBJECT_BYTES * n, _budget_for_pairs(budget)
    if tiles == "auto":
        # with fewer other blocks, regions far apart in the graph of blocks may order their clusters
        # differently
        tiles = 8 if out is not None and n_bytes > available else None
    elif tiles is not None and out is None:
        raise InvalidInputError(
            f"tiles={tiles!r} without out=; pass the path of a store for the pairs as out=."
        )
    provenance: dict[str, Any] = {"sampled": "uniform"}
    if tiles is not None:  # whose size, and so the pairs, depend on memory
        tiles = check_int("tiles", tiles, at_least=2)
        provenance = {"sampled": "tiles", "tiles": tiles, "memory": budget}
    if out is not None:
        provenance["labels"] = ensemble.digest()
        call = {**provenance, **amounts} | ({} if random_state is None else {"random_state": seed})
        stored = provenance_at(out, tables.KIND)
        if not overwrite and stored is not None and "sampled" in stored:
            refuse_other(out, differences(stored, call))
            logger.info("%s holds the finished result of this call: nothing is left to draw", out)
            return PairTable.open(out)
        refuse_existing(out, overwrite, tables.KIND)
    provenance |= {**settings, "random_state": seed}
    if tiles is not None:
        provenance = {"ensemble": ensemble.path, "n_partitions": ensemble.n_partitions, **provenance}
        with open_engine(client) as engine:
            return _sample_tiles(ensemble, out, number, tiles, seed, budget, engine, overwrite, provenance)
    remedy = "draw them in tiles: pass out= and leave tiles='auto'"
    process = min(COUNTING_BYTES, n_bytes)
    DataBudget(budget - process, process).check(n_bytes, f"{number:,} pairs in memory", remedy)
    table = sample_in_memory(ensemble, settings, seed, budget, client)
    table.provenance |= provenance
    return table if out is None else table.save(out, overwrite=overwrite)


def sample_in_memory(
    ensemble: Ensemble, size: Mapping[str, Any], seed: int, memory: int, client: object
) -> PairTable:
    """Draw pairs from all objects and count them; ``memory`` bounds the labels, not the table.

    ``size`` gives the number of pairs as `sample_pairs` does.
    """
    i, j = sample_pairs(ensemble.n_objects, **size, random_state=seed)
    budget = _budget_for_pairs(memory)
    labels = max(budget - 30 * len(i), budget // 2)  # bytes of a pair while it is drawn and counted
    table = count(ensemble, i, j, memory=labels, client=client)
    table.provenance |= {"sampled": "uniform", **size, "random_state": seed}
    return table


def _budget_for_pairs(memory: int) -> int:
    """Return the bytes for pairs and labels: a budget minus the process itself, at least half of it."""
    return max(memory - COUNTING_BYTES, memory // 2)


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
    number = number_of_pairs(n_objects, share=share, n_pairs=n_pairs, per_object=per_object)
    rng = generator(resolve_seed(random_state), "coassociation.sample_pairs")
    return pairs_of_numbers(distinct_numbers(rng, count_all_pairs(n_objects), number), n_objects)


def number_of_pairs(n_objects: int, **counts: Any) -> int:
    """Return the number of pairs that one of ``share``, ``n_pairs`` and ``per_object`` asks for."""
    total, values = count_all_pairs(n_objects), {k: value for k, value in counts.items() if value is not None}
    if len(values) != 1:
        listing = ", ".join(f"{name}={value}" for name, value in values.items()) or "nothing"
        raise InvalidInputError(
            f"got {listing} for the number of pairs; give one of share, n_pairs and per_object."
        )
    ((name, value),) = values.items()
    if name == "n_pairs":
        return check_int(name, value, at_most=total)
    limit, times = (1, total) if name == "share" else (n_objects - 1, n_objects / 2)
    if (number := round(check_number(name, value, above=0, at_most=limit) * times)) == 0:
        raise InvalidInputError(
            f"{name}={value} asks for less than one of the {total} pairs; use a larger number."
        )
    return min(number, total)


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
    subject = "the pairs of one object for each task"
    fitting = rows_within(DataBudget(memory // PLANNED_TASKS), row_bytes, noun=subject)
    # smaller blocks than memory requires let more tasks run at once, if a tile has room for the pairs
    blocks = ensemble.blocks(min(fitting, max(-(-2 * n_pairs // n), -(-n // 32))))
    neighbors = block_graph(len(blocks), tiles, generator(seed, "coassociation.tiles.graph"))
    grid = [(a, a) for a in range(len(blocks))]
    grid += [(a, b) for a, partners in enumerate(neighbors) for b in sorted(partners) if a < b]
    sizes = [_tile_size(blocks[a], blocks[b]) for a, b in grid]
    if n_pairs > sum(sizes):
        raise InvalidInputError(
            f"n_pairs={n_pairs:,} is more than the {sum(sizes):,} pairs in the tiles; raise tiles={tiles}."
        )
    n_bytes = memory * engine.in_flight // PLANNED_TASKS
    subject = f"{engine.in_flight} blocks of pairs in flight"
    DataBudget(memory).check(n_bytes, subject, "use fewer workers")
    ends = [n_pairs * size // sum(sizes) for size in itertools.accumulate(sizes)]
    tiles_of: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
    for (a, b), start, stop in zip(grid, [0, *ends], ends, strict=False):
        for block_index in {a, b}:
            tiles_of[block_index].append((a, b, stop - start))
    rows_per_block = blocks[0].n_rows

    def rows_of_block(block: Block) -> tables.Rows:
        """Return the rows of one block: draw and count the pairs of its tiles."""
        labels, entries = ensemble.read(block.start, block.stop), []
        for a, b, n_drawn in tiles_of[block.index]:
            partner = blocks[b if a == block.index else a]
            other_labels = labels if partner == block else ensemble.read(partner.start, partner.stop)
            i, j = draw_tile(blocks[a], blocks[b], n_drawn, seed)
            left, right = (labels, other_labels) if a == block.index else (other_labels, labels)
            n_agree, n_seen = count_rows(left, right, i, j)
            if a == block.index:
                entries.append((i, j + np.int32(partner.start), n_agree, n_seen))
            if b == block.index:
                entries.append((j, i + np.int32(partner.start), n_agree, n_seen))
        columns = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        return tables.rows_of_entries(*columns, n_rows=block.n_rows, n_objects=n)

    facts = {
        "n_objects": n,
        "counts_dtype": counts_dtype(ensemble.n_partitions).name,
        "rows_per_block": rows_per_block,
        # 65 thousand to a million entries: smaller chunks are slow to read, larger ones gain nothing
        "chunk_entries": 1 << min(max((2 * n_pairs * rows_per_block // n).bit_length() - 1, 16), 20),
        "provenance": provenance,
    }
    parts = (part for _, part in map_with_progress(engine, rows_of_block, blocks, "sample pairs"))
    return PairTable.store_blocks(out, parts, facts, overwrite=overwrite)


def block_graph(n_blocks: int, degree: int, rng: np.random.Generator) -> list[set[int]]:
    """Return the neighbors of each block in a random connected graph of the given degree.

    Few blocks are all neighbors of each other. Others have, in a random order, those one step and some random
    steps before and after. An odd degree with an odd number of blocks, for which no regular graph exists, is
    raised by one.
    """
    if degree >= n_blocks - 1:
        return [set(range(n_blocks)) - {a} for a in range(n_blocks)]
    degree += degree * n_blocks % 2
    jumps = 2 + rng.permutation((n_blocks - 1) // 2 - 1)
    steps = [1, *jumps[: degree // 2 - 1].tolist()] + ([n_blocks // 2] if degree % 2 else [])
    order = rng.permutation(n_blocks).tolist()
    neighbors: list[set[int]] = [set() for _ in range(n_blocks)]
    for position, step in itertools.product(range(n_blocks), steps):
        a, b = order[position], order[(position + step) % n_blocks]
        neighbors[a].add(b)
        neighbors[b].add(a)
    return neighbors


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
    if not 2 <= n_objects <= tables.MAX_OBJECTS:
        raise InvalidInputError(
            f"n_objects={n_objects} has no pairs to sample; give 2 to {tables.MAX_OBJECTS:,} objects."
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


def distinct_numbers(rng: np.random.Generator, total: int, size: int) -> np.ndarray:
    """Return ``size`` distinct numbers below ``total``, ascending; every subset is equally likely."""
    if 2 * size > total:  # draw the numbers to leave out, so that at most half are drawn
        keep = np.ones(total, dtype=bool)
        keep[distinct_numbers(rng, total, total - size)] = False
        return np.flatnonzero(keep)
    # The first `size` distinct values of an endless uniform sequence are a uniform subset. A batch never
    # holds more values than are still missing, so only repeated values are dropped.
    numbers = np.empty(0, dtype=np.int64)
    while len(numbers) < size:
        batch = np.sort(rng.integers(total, size=size - len(numbers)))
        is_first = np.concatenate([[True], batch[1:] != batch[:-1]])
        batch = batch[is_first]
        position = np.searchsorted(numbers, batch)
        is_new = np.append(numbers, -1)[position] != batch
        numbers = np.insert(numbers, position[is_new], batch[is_new])
    return numbers
