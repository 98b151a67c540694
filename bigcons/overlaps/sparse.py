"""Overlaps of many base clusters as a sparse matrix: of the pairs that share an object, and of no other.

Fine base clusters overlap with few others, so that the matrix ``H^T H`` (B, B) of a hundred thousand of them
may fit where the table does not. Objects are listed by the clusters of a partition; what the objects of one
cluster are in besides is its row. How many pairs there are is estimated beforehand from a few hundred base
clusters, by which memory is planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any

import numpy as np

from bigcons.errors import MemoryBudgetError
from bigcons.execution.engine import Engine, fold, local_engine
from bigcons.memory import DEFAULT_DATA_BYTES, LABELS_TOGETHER, Block, enough_for, format_size
from bigcons.overlaps.incidence import MOST_FOR_TABLE
from bigcons.progress import progress
from bigcons.seeding import generator
from bigcons.solving.estimator import logger
from bigcons.solving.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.stores.ensemble import Ensemble

# Planned pairs for each of those estimated.
MARGIN = 1.5

# Tasks by which the partitions are shared whose overlaps are listed.
STRIPS = 8

# Bytes of a pair while both triangles are made and scaled: 12 for a stored entry, and copies.
PAIR_BYTES = 96


def takes_sparse(ensemble: Ensemble) -> bool:
    """Return whether base clusters are so many that their overlaps are kept sparse, whatever the memory."""
    return not ensemble.is_soft and ensemble.n_base_clusters > MOST_FOR_TABLE


def sparse_overlaps(
    name: str,
    ensemble: Ensemble,
    engine: Engine,
    memory: str | float | None,
    n_pairs: int,
    *,
    columns: int,
    in_memory: bool,
) -> Any:
    """Return the upper triangle of ``H^T H`` (B, B) as a csr_array, exactly; one pass.

    Columns ascend, and the diagonal is in it. ``n_pairs`` is about the number of `estimated_pairs`. Logs the
    memory of the method ``name``, whose passes compute ``columns`` values for every object, and refuses a
    budget that cannot hold it.
    """
    n, rows, B = ensemble.n_objects, ensemble.chunk_rows, ensemble.n_base_clusters
    planned = int(MARGIN * n_pairs) + B
    at_once = label_bytes(ensemble, min(n, max(rows, 2 * LABELS_TOGETHER // ensemble.n_partitions)))
    held = PAIR_BYTES * planned + 64 * B * columns + 4 * n + (8 * n * columns if in_memory else 0)
    listing = 2 * at_once + 24 * LABELS_TOGETHER // STRIPS + 8 * n
    plan = MemoryPlan(held, max(listing, block_label_bytes(ensemble) + 24 * rows * (columns + 1)), 12 * rows)
    if memory is None and PAIR_BYTES * planned > DEFAULT_DATA_BYTES:
        needed = plan.n_bytes(engine, ensemble)
        raise MemoryBudgetError(
            f"{name} needs about {format_size(needed)}, most of it for the {planned:,} pairs of base "
            f"clusters that overlap; pass memory='{enough_for(needed)}' to allow it, or use PCC or HBGF, "
            "whose memory is linear in the base clusters.",
            needed=needed,
        )
    plan.check(name, engine, ensemble, memory, f" for {planned:,} pairs of base clusters, or use PCC or HBGF")
    upper = fold_sparse(ensemble, engine, name, planned)
    logger.info("%d base clusters overlap in %d pairs; %d were expected", upper.shape[0], upper.nnz, n_pairs)
    return upper


def estimated_pairs(ensemble: Ensemble, engine: Engine) -> int:
    """Return about how many pairs of base clusters share an object, by a sample of 256; one pass."""
    from bigcons.kernels.overlaps import mark_overlaps

    offsets, B = ensemble.offsets, ensemble.n_base_clusters
    draw = generator(0, "overlaps.sparse")
    sample = np.sort(draw.choice(B, min(256, B), replace=False, shuffle=False))
    number = np.full(B, -1)
    number[sample] = np.arange(sample.size)

    def marks_of(block: Block) -> np.ndarray:
        marks = np.zeros((sample.size, B), np.bool_)
        mark_overlaps(ensemble.read(block.start, block.stop), offsets, number, marks)
        return marks

    with progress("pairs of base clusters", ensemble.n_objects) as listener:
        marks = fold(engine, ensemble.blocks(), marks_of, np.logical_or, progress=listener)
    return int(0.5 * marks.sum() / sample.size * B)


def fold_sparse(
    ensemble: Ensemble, engine: Engine, name: str, most_pairs: int, labels_at_once: int = 2 * LABELS_TOGETHER
) -> Any:
    """Return the upper triangle of ``H^T H`` as a scipy.sparse.csr_array, in one pass.

    Raises MemoryBudgetError if there are more than ``most_pairs``.
    """
    import scipy.sparse

    offsets, B = ensemble.offsets, ensemble.n_base_clusters
    rows = max(labels_at_once // ensemble.n_partitions, 1)
    groups, ranges = _groups(ensemble.blocks(), rows), strips_of(ensemble.n_partitions)
    strips = [(blocks, *bounds) for blocks in groups for bounds in ranges]

    def overlaps_of(
        strip: tuple[list[Block], int, int],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        blocks, first, last = strip
        parts = [ensemble.read(block.start, block.stop) for block in blocks]
        return list_strip(np.concatenate(parts), offsets, first, last)

    total, parts = None, []
    with (
        progress("overlaps of base clusters", len(strips), "parts") as listener,
        closing(engine.map(overlaps_of, strips)) as found,
    ):
        for (_, _, last), part in zip(strips, found, strict=True):
            parts.append(part)
            if last == ensemble.n_partitions:  # the last of its group
                lengths, columns, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
                indptr = np.concatenate([[0], np.cumsum(lengths)])
                of_group = scipy.sparse.csr_array((values, columns, indptr), (B, B))
                of_group.sort_indices()
                total, parts = of_group if total is None else total + of_group, []
                if total.nnz > most_pairs:
                    needed = PAIR_BYTES * total.nnz
                    raise MemoryBudgetError(
                        f"{name} met {total.nnz:,} pairs of base clusters that overlap, more than the "
                        f"{most_pairs:,} planned for; use PCC or HBGF.",
                        needed=needed,
                        budget=PAIR_BYTES * most_pairs,
                    )
            listener.advance(1)
    return total


def _groups(blocks: Sequence[Block], rows: int) -> list[list[Block]]:
    """Return consecutive blocks in groups of at most ``rows`` rows, or of one block."""
    groups: list[list[Block]] = []
    n_rows = 0
    for block in blocks:
        if not groups or n_rows + block.n_rows > rows:
            groups.append([])
            n_rows = 0
        groups[-1].append(block)
        n_rows += block.n_rows
    return groups


def strips_of(n_partitions: int) -> list[tuple[int, int]]:
    """Return ranges of partitions that have about as many pairs with later ones."""
    shares = 1.0 - np.sqrt(np.linspace(1.0, 0.0, min(STRIPS, n_partitions) + 1))
    bounds = np.unique(np.rint(shares * n_partitions).astype(np.int64))
    return list(pairwise(bounds.tolist()))


def list_strip(
    labels: np.ndarray, offsets: np.ndarray, first: int, last: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the overlaps with themselves and later partitions of the base clusters of some partitions.

    The number of entries of each row, the columns int32 and the numbers of objects float64 of all.
    """
    from bigcons.kernels.overlaps import list_overlaps

    lengths, columns, values = [], [], []
    for u in range(first, last):
        k = int(offsets[u + 1] - offsets[u])
        members = np.argsort(labels[:, u], kind="stable")
        ends = np.searchsorted(labels[:, u], np.arange(k + 1), sorter=members)
        n_most = min(len(labels) * (len(offsets) - 1 - u), k * int(offsets[-1] - offsets[u]))
        of_column, of_value = np.empty(n_most, np.int32), np.empty(n_most)
        row_ends = np.zeros(k + 1, np.int64)
        list_overlaps(labels, offsets, u, members, ends, row_ends, of_column, of_value)
        lengths.append(np.diff(row_ends))
        columns.append(of_column[: row_ends[-1]].copy())
        values.append(of_value[: row_ends[-1]].copy())
    return np.concatenate(lengths), np.concatenate(columns), np.concatenate(values)


# What methods make of sparse overlaps


def both_triangles(upper: Any, entries: np.ndarray | None = None) -> Any:
    """Return the symmetric csr_array of an upper triangle whose columns ascend.

    Or that of ``entries`` (nnz,) in the place of its own, without the diagonal.
    """
    import scipy.sparse

    from bigcons.kernels.overlaps import mirror_rows

    is_whole, on_diagonal = entries is None, upper.diagonal() > 0
    lengths = np.bincount(upper.indices, minlength=upper.shape[0]) + np.diff(upper.indptr)
    starts = np.concatenate([[0], np.cumsum(lengths - on_diagonal * (1 if is_whole else 2))])
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1])
    given = upper.data if entries is None else entries
    mirror_rows(upper.indptr, upper.indices, given, is_whole, starts, columns, values)
    if starts[-1] <= np.iinfo(np.int32).max:  # of one type, else SciPy copies the columns
        starts = starts.astype(np.int32)
    return scipy.sparse.csr_array((values, columns, starts), upper.shape)


def rows_of_entries(matrix: Any) -> np.ndarray:
    """Return the row (nnz,) of each entry of a csr_array."""
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int32), np.diff(matrix.indptr))


def times_table(matrix: Any, table: np.ndarray, engine: Engine) -> np.ndarray:
    """Return the product (rows, columns) of a matrix and a table (B, columns).

    That of a csr_array is by the threads of this machine, unless the engine is serial.
    """
    import scipy.sparse

    from bigcons.kernels.cluster_tables import in_whole_vectors
    from bigcons.kernels.overlaps import multiply_table

    if not scipy.sparse.issparse(matrix):
        return np.asarray(matrix @ table)
    whole = in_whole_vectors(table)
    product = np.empty((matrix.shape[0], whole.shape[1]))
    bounds = np.searchsorted(matrix.indptr, np.linspace(0, matrix.nnz, STRIPS + 1)[1:-1])

    def fill(rows: tuple[int, int]) -> None:
        multiply_table(matrix.indptr, matrix.indices, matrix.data, *rows, whole, product)

    for _ in local_engine(engine).map(fill, pairwise([0, *bounds.tolist(), matrix.shape[0]])):
        pass
    return product[:, : table.shape[1]]
