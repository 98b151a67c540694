"""From a source of labels to dense codes, in two passes over its blocks: learn the values, then encode.

The memory in use is that of one block and of the distinct values, whatever the number of objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError, MemoryBudgetError, SuspiciousLabelsWarning, warn_user
from bigcons.memory import format_size, rows_within
from bigcons.schema import ENSEMBLE, MISSING
from bigcons.tables.relabel import Encoding, Learner, RawColumn
from bigcons.tables.sources import LabelSource

BLOCK_ROWS = 65_536
MIN_CHUNK_ROWS = 1_024
_N_CHUNKS = 16
_WORKING_BYTES = 40
"""per row, beside the blocks: columns are encoded one at a time, in 64-bit numbers"""

_SUSPECT_PARTITIONS = 1_000
_SUSPECT_IDS = 200
"""smaller tables may well have as many partitions, or objects that are all apart"""


class Learned(NamedTuple):
    """What the first pass finds."""

    n_objects: int
    encodings: list[Encoding]


def learn(
    source: LabelSource,
    names: Sequence[str],
    *,
    known: Sequence[np.ndarray | None] | None = None,
    rows: int = BLOCK_ROWS,
    values_budget: int | None = None,
) -> Learned:
    """Read ``source`` once and return the encodings of its partitions, behind the ``known`` values.

    Raises InvalidInputError for an empty matrix, for what is no label and for a partition without any,
    and MemoryBudgetError if the distinct labels take more than ``values_budget`` bytes.
    """
    known = [None] * source.n_partitions if known is None else known
    learners = [
        Learner(name, values, numbers=source.untyped) for name, values in zip(names, known, strict=True)
    ]
    n_objects = 0
    for columns in source.blocks(rows):
        n_objects += _learn_block(learners, columns)
        _check_values_fit(learners, values_budget)
        del columns  # before the source makes the next ones
    if not n_objects or not source.n_partitions:
        raise InvalidInputError(
            f"labels is empty, shape ({n_objects}, {source.n_partitions}); "
            "give at least one object and one partition."
        )
    return Learned(n_objects, [learner.finish() for learner in learners])


def encode(
    source: LabelSource, encodings: Sequence[Encoding], dtype: np.dtype, rows: int = BLOCK_ROWS
) -> Iterator[np.ndarray]:
    """Read ``source`` again and yield its rows as codes ``(n_rows, n_partitions)`` of ``dtype``.

    Raises InvalidInputError at the end if the labels are not those that were learned.
    """
    n_labeled = np.zeros(len(encodings), np.int64)
    for columns in source.blocks(rows):
        codes = _encode_block(encodings, columns, dtype)
        n_labeled += np.count_nonzero(codes != MISSING, axis=1)
        del columns  # before the source makes the next ones
        yield np.ascontiguousarray(codes.T)
    changed = np.flatnonzero(n_labeled != [encoding.n_labeled for encoding in encodings])
    if changed.size:
        raise InvalidInputError(
            f"partition {encodings[changed[0]].name!r} changed while it was read; "
            "give labels that are the same each time."
        )


def rechunk(blocks: Iterable[np.ndarray], rows: int) -> Iterator[np.ndarray]:
    """Cut consecutive blocks of rows anew, into blocks of exactly ``rows`` (the last may be smaller)."""
    waiting: list[np.ndarray] = []
    n_waiting = 0
    for block in blocks:
        while n_waiting + len(block) >= rows:
            head = block[: rows - n_waiting]
            yield np.concatenate([*waiting, head]) if waiting else head
            block = block[len(head) :]
            waiting, n_waiting = [], 0
        if len(block):
            waiting.append(block)
            n_waiting += len(block)
    if waiting:
        yield np.concatenate(waiting)


def label_dtype(n_clusters: Iterable[int]) -> np.dtype:
    """Return the smallest type for -1 and the codes of partitions of ``n_clusters`` clusters."""
    largest = max(n_clusters) - 1
    fitting = (np.dtype(name) for name in ENSEMBLE["labels"].dtypes if np.iinfo(name).max >= largest)
    return next(fitting)


def default_chunk_rows(n_objects: int) -> int:
    """Return a power of two: about 16 chunks, but no more than 65,536 rows and no fewer than 1,024."""
    ideal = 1 << max(0, (n_objects + _N_CHUNKS - 1) // _N_CHUNKS - 1).bit_length()
    return min(max(ideal, MIN_CHUNK_ROWS), BLOCK_ROWS)


def rows_per_read(source: LabelSource, budget: int) -> int:
    """Return how many rows of ``source`` to read and encode at a time within half of ``budget`` bytes."""
    per_row = source.row_bytes + 2 * 4 * source.n_partitions + _WORKING_BYTES
    rows = rows_within(
        budget,
        2 * per_row,
        fixed=2 * source.fixed_bytes,
        at_least=source.least_rows,
        what="one block of the labels",
    )
    return min(rows, max(BLOCK_ROWS, source.least_rows))


def chunk_rows_within(n_objects: int, bytes_per_row: int, budget: int) -> int:
    """Return the default rows per chunk, halved until four copies of a chunk fit into half of ``budget``."""
    rows = default_chunk_rows(n_objects)
    fitting = rows_within(
        budget, 8 * bytes_per_row, at_least=MIN_CHUNK_ROWS, what=f"{MIN_CHUNK_ROWS} rows of labels"
    )
    while rows > fitting:
        rows //= 2
    return rows


def partition_names(source: LabelSource, names: Sequence[str] | None, first: int = 0) -> list[str]:
    """Return the names given, or else the source's own, or else ``p0, p1, ...`` from ``first`` on.

    Raises InvalidInputError if their number is wrong or one is there twice.
    """
    chosen = names if names is not None else source.names
    if chosen is None:
        return [f"p{u}" for u in range(first, first + source.n_partitions)]
    chosen = [str(name) for name in chosen]
    if len(chosen) != source.n_partitions:
        raise InvalidInputError(
            f"names has {len(chosen)} entries but labels has {source.n_partitions} partitions; give one each."
        )
    check_distinct(chosen)
    return chosen


def check_distinct(names: Sequence[str]) -> None:
    """Refuse names that are there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInputError(f"names has {name!r} twice; give every partition a name of its own.")
        seen.add(name)


def _learn_block(learners: Sequence[Learner], columns: Sequence[RawColumn]) -> int:
    for learner, column in zip(learners, columns, strict=True):
        learner.learn(column)
    return len(columns[0]) if columns else 0


def _encode_block(encodings: Sequence[Encoding], columns: Sequence[RawColumn], dtype: np.dtype) -> np.ndarray:
    codes = np.empty((len(encodings), len(columns[0])), dtype)
    for u, (encoding, column) in enumerate(zip(encodings, columns, strict=True)):
        codes[u] = encoding.encode(column)
    return codes


def _check_values_fit(learners: Sequence[Learner], budget: int | None) -> None:
    if budget is None:
        return
    needed = sum(learner.n_bytes() for learner in learners)
    if needed > budget:
        raise MemoryBudgetError(
            f"memory cannot hold the distinct labels, which take {format_size(needed)} "
            f"of the {format_size(budget)} set apart for them; raise the budget."
        )


def warn_of_suspects(n_objects: int, names: Sequence[str], n_clusters: np.ndarray) -> None:
    """Warn of labels that look like a turned matrix or like a column of ids."""
    if len(names) >= max(_SUSPECT_PARTITIONS, 10 * n_objects):
        warn_user(
            f"labels has {n_objects:,} objects (rows) in {len(names):,} partitions (columns); "
            "if it is the other way round, transpose it.",
            SuspiciousLabelsWarning,
        )
    (ids,) = np.nonzero(n_clusters == max(n_objects, _SUSPECT_IDS))
    if 0 < ids.size < len(names):  # where all columns are so, none stands out
        warn_user(
            f"partition {names[ids[0]]!r} has a label of its own for every object; "
            "if it holds their ids, leave it out.",
            SuspiciousLabelsWarning,
        )
