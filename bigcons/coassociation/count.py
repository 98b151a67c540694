"""Counts of agreement for a list of pairs: by gathering label rows, block against block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.execution.engine import Engine, open_engine
from bigcons.memory import Block, parse_size, row_blocks, rows_within
from bigcons.progress import progress
from bigcons.stores.pair_rows import ascending_pairs, counts_dtype
from bigcons.stores.pairs import PairTable

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble

PAIRS_PER_TASK = 1 << 18

# Bytes of a pair in memory while it is drawn and counted, beside the labels; and until it is in a table, when
# these are gone: there every object takes some, too. Of a billion pairs and more, half more.
COUNTED_PAIR_BYTES = 30
PAIR_BYTES = 60
OBJECT_BYTES = 40

Counts = tuple[np.ndarray, np.ndarray]


class _Task(NamedTuple):
    """A run of pairs, ascending, whose first objects all lie in ``rows``."""

    rows: Block
    i: np.ndarray
    j: np.ndarray


def count(x: Any, i: Any, j: Any, *, memory: int | str = "1GB", client: object = None) -> PairTable:
    """Count for every pair ``(i[p], j[p])`` the partitions of ``x`` that see both and that join them.

    ``i`` and ``j`` are ``(n_pairs,)`` integers; a pair is given once, either way round, and is left out
    of the table if no partition labels both objects.

    Labels within ``memory`` are read once and held; larger stored ensembles are visited tile by tile,
    two row blocks for each task in flight within ``memory``. The pairs come on top: 30 bytes each
    beside the labels, then 60 each and 40 an object without them, 12 in the table. Costs
    O(n_pairs n_partitions).
    """
    from bigcons.stores.ensemble import as_ensemble

    ensemble = as_ensemble(x)
    i, j, _ = ascending_pairs(i, j, ensemble.n_objects)
    counts = _count(ensemble, i, j, parse_size(memory), client)  # and by now no labels are held
    provenance = {"ensemble": ensemble.path, "n_partitions": ensemble.n_partitions}
    return PairTable.from_arrays(i, j, *counts, n_objects=ensemble.n_objects, provenance=provenance)


def _count(ensemble: Ensemble, i: np.ndarray, j: np.ndarray, memory: int, client: object) -> Counts:
    """Return the counts of ascending pairs."""
    n_agree, n_seen = _empty_counts(len(i), ensemble.n_partitions)
    done = 0
    with open_engine(client) as engine, progress("count pairs", len(i), "pairs") as listener:
        count_task, tasks = _plan(ensemble, i, j, memory, engine)
        for agree, seen in engine.map(count_task, tasks):
            part = slice(done, done + len(agree))
            n_agree[part], n_seen[part] = agree, seen
            done = part.stop
            listener.advance(len(agree))
    return n_agree, n_seen


def _plan(
    ensemble: Ensemble, i: np.ndarray, j: np.ndarray, memory: int, engine: Engine
) -> tuple[Callable[[_Task], Counts], Iterator[_Task]]:
    """Choose between one visit of all labels and tiles; return the task's function and the tasks in order."""
    row_bytes = ensemble.n_partitions * ensemble.dtype.itemsize
    if ensemble.path is None or ensemble.n_objects * row_bytes <= memory:
        labels = ensemble.read(0, ensemble.n_objects)
        return partial(_count_within, labels), _equal_runs(ensemble.n_objects, i, j)
    rows = rows_within(memory, 2 * row_bytes * engine.in_flight, what="two blocks of labels for each task")
    blocks = ensemble.blocks(rows)
    return partial(_count_tiles, ensemble, blocks), _runs_of_blocks(blocks, i, j)


def _equal_runs(n_objects: int, i: np.ndarray, j: np.ndarray) -> Iterator[_Task]:
    for run in row_blocks(len(i), PAIRS_PER_TASK):
        pairs = slice(run.start, run.stop)
        yield _Task(Block(0, 0, n_objects), i[pairs], j[pairs])


def _runs_of_blocks(blocks: list[Block], i: np.ndarray, j: np.ndarray) -> Iterator[_Task]:
    for rows in blocks:
        pairs = slice(*np.searchsorted(i, [rows.start, rows.stop]))
        if pairs.stop > pairs.start:
            yield _Task(rows, i[pairs], j[pairs])


def _count_within(labels: np.ndarray, task: _Task) -> Counts:
    """Count pairs whose labels are all in memory."""
    from bigcons.kernels.label_rows import count_pairs

    counts = _empty_counts(len(task.i), labels.shape[1])
    count_pairs(labels, labels, task.i, task.j, *counts)
    return counts


def _count_tiles(ensemble: Ensemble, blocks: list[Block], task: _Task) -> Counts:
    """Count the pairs of one row block against each row block that holds a second object, in turn."""
    from bigcons.kernels.label_rows import count_pairs

    left = ensemble.read(task.rows.start, task.rows.stop)
    counts = _empty_counts(len(task.i), ensemble.n_partitions)
    of_block = np.searchsorted([block.stop for block in blocks], task.j, side="right")
    order = np.argsort(of_block, kind="stable")
    ends = np.searchsorted(of_block[order], np.arange(len(blocks)), side="right")
    for columns, pairs in zip(blocks, np.split(order, ends[:-1]), strict=True):
        if len(pairs):
            right = left if columns == task.rows else ensemble.read(columns.start, columns.stop)
            tile = _empty_counts(len(pairs), ensemble.n_partitions)
            count_pairs(left, right, task.i[pairs] - task.rows.start, task.j[pairs] - columns.start, *tile)
            counts[0][pairs], counts[1][pairs] = tile
    return counts


def _empty_counts(n_pairs: int, n_partitions: int) -> Counts:
    dtype = counts_dtype(n_partitions)
    return np.empty(n_pairs, dtype=dtype), np.empty(n_pairs, dtype=dtype)
