"""What a partition is made with, and how the work fits the memory budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigcons.errors import MemoryBudgetError
from bigcons.execution.engine import Engine, ThreadsEngine
from bigcons.generate.schemes import Scheme
from bigcons.memory import format_size
from bigcons.stores.features import Features

SEGMENT_ROWS = 4096
"""Rows that a subset is drawn from at a time; fewer if a row has more than 256 features."""

_BATCH_VALUES = 1 << 20
_START_VALUES = 1 << 21
_PREPARE_BYTES_PER_VALUE = 48
_DISTANCE_BYTES = 2048
"""per cluster: its distances to the 256 points that Lloyd's algorithm looks at together"""


class Settings(NamedTuple):
    """What a partition is made with."""

    n_clusters: tuple[int, int]
    init: str
    n_init: int
    max_iter: int
    tol: float

    @property
    def label_dtype(self) -> np.dtype:
        """Smallest signed integer that holds the labels."""
        return np.dtype(np.min_scalar_type(-self.n_clusters[1]))


@dataclass(frozen=True)
class Plan:
    """How the work fits the budget.

    Attributes
    ----------
    algorithm
        "lloyd" or "minibatch".
    matrix_in_memory
        Whether the scaled features are in memory, and not in a file.
    n_tasks
        How many tasks may run at a time.
    chunk_rows, segment_rows
        Rows of a block and of a segment, neither of which depends on the budget.
    start_rows, batch_segments
        Rows of the sample that "minibatch" starts from, and segments of a mini-batch; as fixed.
    reason
        The choice in words.
    """

    algorithm: str
    matrix_in_memory: bool
    n_tasks: int
    chunk_rows: int
    segment_rows: int
    batch_segments: int
    start_rows: int
    reason: str

    def limit(self, engine: Engine) -> Engine:
        """Return ``engine`` with no more threads than tasks fit the budget."""
        return limit_threads(engine, self.n_tasks)


def limit_threads(engine: Engine, n_tasks: int) -> Engine:
    """Return ``engine`` with at most ``n_tasks`` threads."""
    if isinstance(engine, ThreadsEngine) and engine.n_workers > n_tasks:
        return ThreadsEngine(n_tasks)
    return engine


def make_plan(
    data: Features, n_kept: int, scheme: Scheme, settings: Settings, budget: int, algorithm: str
) -> Plan:
    """Return the plan for ``n_kept`` columns of ``data``; raise MemoryBudgetError if there is none."""
    width, k = scheme.features.width(n_kept), settings.n_clusters[1]
    block_values = min(data.chunk_rows, data.n_objects) * data.n_features
    prepare = _PREPARE_BYTES_PER_VALUE * block_values + data.held_bytes
    column = data.n_objects * settings.label_dtype.itemsize
    size = scheme.objects.most(data.n_objects)
    centers = k * (32 * width + _DISTANCE_BYTES)
    # the subset, a copy to measure its variance, work per row
    lloyd = column + centers + size * (8 * width + 64)
    matrix = 4 * data.n_objects * n_kept
    segment_rows = min(SEGMENT_ROWS, data.chunk_rows)
    start_rows = min(size, max(_START_VALUES // width, 20 * k))
    batch_rows = min(size, max(_BATCH_VALUES // width, 20 * k))
    minibatch = column + centers + start_rows * (8 * width + 64) + 16 * (batch_rows + segment_rows) * width
    if budget < prepare + column:
        raise _too_little("a block of the features and the labels of a partition", budget, prepare + column)
    free = budget - prepare
    if algorithm != "minibatch" and free >= lloyd:
        in_memory = free >= matrix + lloyd
        task, chosen = lloyd, "lloyd"
        n_tasks = (free - matrix if in_memory else free) // lloyd
    elif algorithm == "lloyd":
        raise _too_little(
            f"a subset of {size} objects (algorithm='minibatch' need not)", budget, prepare + lloyd
        )
    elif free < minibatch:
        raise _too_little("the mini-batches of a partition", budget, prepare + minibatch)
    else:
        in_memory, task, chosen = False, minibatch, "minibatch"
        n_tasks = free // minibatch
    where = "in memory" if in_memory else "in a file"
    reason = (
        f"algorithm={chosen!r}, scaled features ({format_size(matrix)}) {where}, {format_size(task)} per "
        f"partition, memory={format_size(budget)}"
    )
    return Plan(
        algorithm=chosen,
        matrix_in_memory=in_memory,
        n_tasks=int(n_tasks),
        chunk_rows=data.chunk_rows,
        segment_rows=segment_rows,
        batch_segments=math.ceil(batch_rows / (segment_rows * scheme.objects.share)),
        start_rows=start_rows,
        reason=reason,
    )


def _too_little(what: str, budget: int, needed: float) -> MemoryBudgetError:
    return MemoryBudgetError(
        f"memory={format_size(budget)} cannot hold {what}, which needs {format_size(needed)}; "
        "raise the budget to that.",
        needed=needed,
        budget=budget,
    )
