"""Counts of agreement: in how many partitions two objects share a cluster, and how many label both.

`count` counts a list of pairs, `dense` all of them; both return numerators and denominators. `similarity`
divides, and `condensed_distances` returns 1 minus the similarity of all pairs as scipy's linkage takes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.errors import MemoryBudgetError
from bigcons.memory import TILE_ROWS, Block, format_size, parse_size, row_blocks, rows_within
from bigcons.progress import progress
from bigcons.run.engine import Engine, open_engine
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.store.pair_rows import ascending_pairs, counts_dtype
from bigcons.store.pairs import PairTable
from bigcons.weights import Weights

# Pairs of a task, enough to keep a worker busy.
PAIRS_PER_TASK = 1 << 19

NORMALIZATIONS = ("observed", "all")

Counts = tuple[np.ndarray, np.ndarray]


def count(x: Any, i: Any, j: Any, *, memory: int | str = "1GB", client: object = None) -> PairTable:
    """Count for every pair ``(i[p], j[p])`` the partitions of ``x`` that label both and that join them.

    ``i`` and ``j`` are ``(n_pairs,)`` integers; a pair is given once, in either order, and is left out of the
    table if no partition labels both objects.

    Labels that fit in ``memory`` are held; larger stored ensembles are read tile by tile, with two row blocks
    for each task in flight within ``memory``. Pairs are not included: they need 30 bytes each besides the
    labels, then 60 each and 40 per object without them, and 12 each in the table. O(n_pairs n_partitions)
    time.

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
        held, blocks = None, [Block(0, 0, n)]
        runs = [(blocks[0], slice(run.start, run.stop)) for run in row_blocks(len(i), PAIRS_PER_TASK)]
        if ensemble.path is None or n * row_bytes <= memory:
            held = ensemble.read(0, n)
        else:
            what = "two blocks of labels for each task"
            blocks = ensemble.blocks(rows_within(memory, 2 * row_bytes * engine.in_flight, what=what))
            ends = np.searchsorted(i, [block.stop for block in blocks])  # of pairs by their first object
            parts = map(slice, [0, *ends[:-1]], ends)
            runs = [(rows, part) for rows, part in zip(blocks, parts, strict=True) if part.stop > part.start]

        def count_run(run: tuple[Block, np.ndarray, np.ndarray]) -> Counts:
            """Count the pairs of one row block, one block of second objects after the other."""
            rows, i, j = run
            if held is not None:
                return count_rows(held, held, i, j)
            left = ensemble.read(rows.start, rows.stop)
            n_agree, n_seen = np.empty((2, len(i)), counts_dtype(ensemble.n_partitions))
            of_block = np.searchsorted([block.stop for block in blocks], j, side="right")
            order = np.argsort(of_block, kind="stable")
            ends = np.searchsorted(of_block[order], np.arange(len(blocks)), side="right")
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
    ensemble = as_ensemble(x)
    n = ensemble.n_objects
    needed, budget = 8 * n * n, parse_size(memory)
    if needed > budget:
        raise MemoryBudgetError(
            f"all pairs of {n:,} objects need {format_size(needed)} but memory={format_size(budget)}; "
            "raise memory or count a sample of the pairs with bigcons.coassociation.sample.",
            needed=needed,
            budget=budget,
        )
    n_agree, n_seen = np.empty((n, n), np.int32), np.empty((n, n), np.int32)
    blocks = row_blocks(n, TILE_ROWS)
    tiles = [(rows, columns) for rows in blocks for columns in blocks[rows.index :]]
    labels = ensemble.read(0, n)

    def count_tile(tile: tuple[Block, Block]) -> Counts:
        return _count_all(*(labels[block.start : block.stop] for block in tile))

    with open_engine(client) as engine, progress("count all pairs", len(tiles), "tiles") as listener:
        counts = engine.map(count_tile, tiles)
        for (rows, columns), (agree, seen) in zip(tiles, counts, strict=True):
            at_rows, at_columns = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
            for matrix, tile in ((n_agree, agree), (n_seen, seen)):
                matrix[at_rows, at_columns] = tile
                matrix[at_columns, at_rows] = tile.T
            listener.advance(1)
    return n_agree, n_seen


def _count_all(left: np.ndarray, right: np.ndarray) -> Counts:
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


def distance(n_agree: np.ndarray, n_seen: np.ndarray, n_partitions: float, normalize: str) -> np.ndarray:
    """Return 1 minus the similarity, float64."""
    return 1.0 - similarity(n_agree, n_seen, n_partitions, normalize)


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
            n_agree, n_seen = _count_all(left, right)
        else:
            n_agree, n_seen = np.empty((2, len(left), len(right)))
            of_partitions = weights.offsets, weights.base_clusters, weights.partitions
            weigh_tile(left, right, *of_partitions, n_agree, n_seen)
            total = float(weights.partitions.sum())
        return distance(n_agree, n_seen, total, normalize)[np.triu_indices(len(left), 1, len(right))]

    n, filled = len(rows), 0
    distances = np.empty(n * (n - 1) // 2)
    bands = row_blocks(n, max(PAIRS_PER_TASK // max(n, 1), 1))
    with progress("distances", n) as listener:
        for band, part in zip(bands, engine.map(distances_of_band, bands), strict=True):
            distances[filled : filled + len(part)] = part
            filled += len(part)
            listener.advance(band.n_rows)
    return distances


def condensed_bytes(n_rows: int, engine: Engine) -> int:
    """Return the memory of `condensed_distances` of ``n_rows`` rows, including bands in flight."""
    # counts, quotient, distance and position of each entry
    in_flight = 50 * min(max(PAIRS_PER_TASK, n_rows), n_rows * n_rows) * engine.in_flight
    return 4 * n_rows * (n_rows - 1) + in_flight
