"""Memory of making an ensemble of features: what a budget holds, stated before any work."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from bigcons.errors import MemoryBudgetError
from bigcons.generate.landmarks import AT_ONCE, N_NEAREST, n_landmarks
from bigcons.generate.sampling import Scheme
from bigcons.generate.training import Settings, choose_pool_rows, sets_of
from bigcons.io.encode import default_chunk_rows, label_dtype, rows_per_read
from bigcons.io.table import Table
from bigcons.memory import BLOCK_ROWS, PROCESS_BYTES, DataBudget, enough_for, format_size
from bigcons.run.engine import Engine, beside_processes
from bigcons.seeding import SEGMENT_ROWS
from bigcons.store.features import Features

if TYPE_CHECKING:
    from bigcons.store.ensemble import Ensemble

_PREPARE_BYTES_PER_VALUE = 48
_DISTANCE_BYTES = 2048
"""Per cluster: its distances to the 256 points that Lloyd's algorithm processes together."""

_STORE_COPIES = 4


def budget_of(memory: str | float | None, engine: Engine) -> DataBudget:
    """Return what ``memory`` leaves for data beside the processes, which all load what k-means needs."""
    return beside_processes(memory, PROCESS_BYTES * engine.n_processes)


def ensemble_within(
    budget: DataBudget,
    name: str,
    source: Table,
    out: str | os.PathLike[str] | None,
    *,
    n_objects: int,
    label_bytes: int,
    overwrite: bool,
    **how: Any,
) -> Ensemble:
    """Return the ensemble of the labels of a source, in memory or stored, made within a budget.

    Its chunks are those of any store, whatever the budget: the bits of a consensus depend on them.
    """
    from bigcons.store.building import content_of
    from bigcons.store.ensemble import ensemble_of_content

    chunk_rows = default_chunk_rows(n_objects, source.n_columns)
    row_bytes = source.n_columns * label_bytes
    row_bytes += 0 if source.ids is None else math.ceil(source.ids.row_bytes)
    held = row_bytes * n_objects if out is None else 0
    writing = 0 if out is None else 2 * _STORE_COPIES * chunk_rows * row_bytes
    left, reading = budget.n_bytes - held, 0
    try:
        rows_per_read(source, left)
    except MemoryBudgetError as error:
        reading = int(error.needed or 0)
    if budget.n_bytes < (needed := held + max(reading, writing)):
        raise too_little(name, "the labels", budget, needed)
    content = content_of(source, budget=left, chunk_rows=chunk_rows, **how)
    return ensemble_of_content(content, out, overwrite=overwrite)


def too_little(
    name: str, what: str, budget: DataBudget, needed: float, remedy: str = ""
) -> MemoryBudgetError:
    """Return the error that a generator needs so many bytes of data for ``what``; ``remedy`` follows it."""
    total = int(needed) + budget.processes
    return MemoryBudgetError(
        f"{name} needs {format_size(total)} for its processes and {what}, over memory="
        f"{format_size(budget.n_bytes + budget.processes)}; raise it to {enough_for(total)}{remedy}.",
        needed=total,
        budget=budget.n_bytes + budget.processes,
    )


def matrix_copies(engine: Engine) -> int:
    """Return how many processes on one machine hold a copy of data in memory."""
    return 1 if engine.shares_memory else max(engine.n_processes, 2)  # workers may be threads of this process


def check_workers(name: str, engine: Engine, held: int, task: int) -> None:
    """Raise MemoryBudgetError for a Dask worker whose limit is below what it holds and its tasks need."""
    engine.check_limits(name, PROCESS_BYTES + held, task)


class SamplingPlan(NamedTuple):
    """How partitions trained on samples fit in the memory budget.

    Attributes
    ----------
    pool_rows
        Objects from which the samples are drawn; independent of the budget.
    segment_rows
        Rows of a segment.
    n_tasks
        Number of partitions that may be trained concurrently.
    block_rows
        Rows that are labeled at a time. Labels do not depend on it.
    store_rows
        Rows of a chunk of the stored ensemble; independent of the budget.
    reason
        Explanation, for the log.
    """

    pool_rows: int
    segment_rows: int
    n_tasks: int
    block_rows: int
    store_rows: int
    reason: str


def make_sampling_plan(
    data: Features,
    scheme: Scheme,
    settings: Settings,
    n_partitions: int,
    sample_rows: int,
    budget: DataBudget,
    engine: Engine,
    n_gaps: int = 0,
    *,
    in_memory: bool,
) -> SamplingPlan:
    """Plan the training on ``sample_rows`` objects and the labeling; raises MemoryBudgetError.

    All columns count, because it is not known yet which vary, and ``n_gaps`` more that tell what is missing.
    Of sparse rows the values that are stored do.
    """
    width = data.row_values + n_gaps
    n_features = data.n_features + n_gaps
    segment_rows = min(SEGMENT_ROWS, data.chunk_rows)
    read_values = min(data.chunk_rows, data.n_objects) * width
    value_bytes = data.dtype.itemsize

    pool_rows = choose_pool_rows(sample_rows, data.n_objects, scheme.objects.share)
    unscaled = pool_rows * width * value_bytes
    pool = pool_rows * (4 * width + 8)
    members, k, p = (
        sets_of(scheme, n_partitions),
        settings.n_clusters[1],
        n_landmarks(sample_rows, n_features),
    )
    n_centers = sum(k if scheme.number_by_landmarks(of[0]) is None else p for of in members)
    centers = 8 * n_centers * (n_features + 1) + 8 * p * n_partitions
    measuring = _PREPARE_BYTES_PER_VALUE * read_values + data.held_bytes + unscaled
    scaling = unscaled + pool + 12 * read_values
    # the points, as the partition sees them, a copy to measure their variance, work per row
    task = sample_rows * (16 * width + 64) + k * (32 * n_features + _DISTANCE_BYTES)
    if scheme.by_landmarks:
        # the points, the graph twice, distances, and the graph of landmarks as an eigensolver has it
        graph = sample_rows * (4 * width + 80 * N_NEAREST) + 32 * AT_ONCE + 8 * p * (6 * p + 4 * n_features)
        task = max(task, graph)
    held = pool * matrix_copies(engine) + centers

    label_bytes = (
        n_partitions * label_dtype([max(settings.n_clusters[1], settings.landmark_clusters[1])]).itemsize
    )
    stored_bytes = label_bytes + (0 if data.ids is None else math.ceil(data.ids.row_bytes))
    # a block in transit is held as read, centered, and as float32; labels three times, and what is nearest
    row_bytes = (value_bytes + 12) * width + 3 * label_bytes + 3 * len(members)
    row_bytes += 8 * n_centers if data.is_sparse else 0  # its products with all centers
    row_bytes *= engine.in_flight + 1
    fixed = data.held_bytes + 24 * read_values + (2 * centers + (1 << 20)) * engine.n_workers
    store_rows = default_chunk_rows(data.n_objects, n_partitions)
    kept = stored_bytes * (data.n_objects if in_memory else _STORE_COPIES * store_rows)
    labeling = fixed + segment_rows * row_bytes + kept

    needed = max(measuring, scaling, held + task, labeling)
    if budget.n_bytes < needed:
        what = f"samples of {sample_rows:,} objects and blocks of labels"
        raise too_little(f"generate.{scheme.name}", what, budget, needed)
    block_rows = min(BLOCK_ROWS, data.sparse_rows if data.is_sparse else data.chunk_rows)
    while fixed + block_rows * row_bytes + kept > budget.n_bytes and block_rows > segment_rows:
        block_rows //= 2
    check_workers(scheme.name, engine, pool + centers, max(task, block_rows * row_bytes // engine.in_flight))
    n_tasks = int((budget.n_bytes - held) // task)
    reason = (
        f"partitions trained on {sample_rows} of {pool_rows} objects ({format_size(task)} each, {n_tasks} at "
        f"a time), labeled {block_rows} objects at a time within {format_size(budget.n_bytes)} of data"
    )
    return SamplingPlan(pool_rows, segment_rows, n_tasks, block_rows, store_rows, reason)
