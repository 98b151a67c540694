"""Encode a table of labels in two passes over its blocks: collect the values, then encode them.

Memory use is one block and the distinct values, independent of the number of objects.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bigcons.disk.schema import LABEL_TYPES, MISSING
from bigcons.errors import InvalidInputError, MemoryBudgetError, SuspiciousLabelsWarning, shown, warn_user
from bigcons.io.codes import Encoding, EncodingBuilder, unmasked
from bigcons.io.reading import DEFAULT_RULE, refuse_long, refuse_other_matrices
from bigcons.io.table import Column, Rows, Table
from bigcons.memory import BLOCK_ROWS, format_size, rows_within

MIN_CHUNK_ROWS = 1_024
_CHUNK_LABELS = 16_000_000

NAME_OF_IDS = re.compile(r"(?i:(.*[^a-z])?(id|ids|key|uuid|index|unnamed: \d+))|.*I[dD]")


class LabelScan(NamedTuple):
    """The result of the first pass."""

    n_objects: int
    encodings: list[Encoding]


def scan_labels(
    table: Table,
    names: Sequence[str],
    *,
    known: Sequence[np.ndarray | None] | None = None,
    rows: int = BLOCK_ROWS,
    values_budget: int | None = None,
    workers: Any = None,
) -> LabelScan:
    """Read ``table`` once and return the encodings of its partitions, new values after the ``known`` ones.

    On ``workers``, if there are, parts are read where they are computed.

    Raises InvalidInputError for an empty matrix, invalid labels and partitions without labels, and
    MemoryBudgetError if the distinct labels take more than ``values_budget`` bytes.
    """
    known = [None] * table.n_columns if known is None else known
    builders = [
        EncodingBuilder(name, values, is_text=table.is_text, rule=table.rule_of(u))
        for u, (name, values) in enumerate(zip(names, known, strict=True))
    ]
    n_objects = 0
    if workers is None:
        counts = _add_blocks(builders, table, rows)
    else:
        found = table.on_workers(workers, partial(_scan_part, copy.deepcopy(builders), rows))
        counts = (_merge(builders, *of_part) for of_part in found)
    for n_rows in counts:
        n_objects += n_rows
        needed = sum(builder.n_bytes() for builder in builders)
        if values_budget is not None and needed > values_budget:
            raise MemoryBudgetError(
                f"memory is too small for the distinct labels, which take {format_size(needed)} "
                f"of the {format_size(values_budget)} reserved for them; raise the budget.",
                needed=needed,
                budget=values_budget,
            )
    if not n_objects or not table.n_columns:
        raise InvalidInputError(
            f"{table.where} is empty, shape ({n_objects}, {table.n_columns}); "
            "give at least one object and one partition."
        )
    encodings = [builder.build() for builder in builders]
    if table.names_are_guessed:
        _refuse_labels_as_names(table, encodings)
    if table.is_given and all(values is None for values in known):
        _warn_of_votes(n_objects, encodings)
    if table.may_be_other and table.ids is None and all(values is None for values in known):
        _refuse_text_among_numbers(table, encodings)
    return LabelScan(n_objects, encodings)


def _add_blocks(builders: Sequence[EncodingBuilder], table: Table, rows: int) -> Iterator[int]:
    """Add each block of a table to the builders of its columns; yield its number of rows."""
    for columns in map(_columns_of, table.blocks(rows)):
        for u, builder in enumerate(builders):
            builder.add(columns[u])
        n_rows = len(columns[0]) if columns else 0
        del columns  # before the table makes the next ones
        yield n_rows


def _scan_part(
    fresh: Sequence[EncodingBuilder], rows: int, part: Table
) -> tuple[Sequence[EncodingBuilder], int]:
    """Return the builders of a part of a table alone, and its number of rows."""
    builders = copy.deepcopy(fresh)
    return builders, sum(_add_blocks(builders, part, rows))


def _merge(builders: Sequence[EncodingBuilder], more: Sequence[EncodingBuilder], n_rows: int) -> int:
    for builder, other in zip(builders, more, strict=True):
        builder.merge(other)
    return n_rows


def counts_of(encodings: Sequence[Encoding]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray | None]]:
    """Return the numbers of clusters and of labeled objects of each partition, and the categories."""
    n_clusters = np.array([len(encoding.values) for encoding in encodings], np.int64)
    n_labeled = np.array([encoding.n_labeled for encoding in encodings], np.int64)
    return n_clusters, n_labeled, [encoding.categories for encoding in encodings]


def _refuse_labels_as_names(table: Table, encodings: Sequence[Encoding]) -> None:
    """Raise InvalidInputError if a name of a column, from the first line of a file, is a label in it, too."""
    for name, encoding in zip(table.names or [], encodings, strict=True):
        if encoding.values.dtype == object and name in encoding.values:
            raise InvalidInputError(
                f"{table.where} has {name!r} in its first line and as a label in the same column; pass "
                "header=True (--header) if it has names of columns, header=False (--no-header) if it is "
                "an object."
            )


def _refuse_text_among_numbers(table: Table, encodings: Sequence[Encoding]) -> None:
    """Raise InvalidInputError if some columns are text and others numbers, unless the call names them."""
    texts = [encoding.name for encoding in encodings if encoding.values.dtype == object]
    if 0 < len(texts) < len(encodings):
        raise InvalidInputError(
            f"{table.where} has text in {shown(texts)} beside columns of numbers; pass id={texts[0]!r} (--id "
            f"{texts[0]}) if that names the objects, a table with a row for each label to Ensemble.from_long "
            "(bigcons import --long), or name the partitions in columns= (--columns)."
        )


def _warn_of_votes(n_objects: int, encodings: Sequence[Encoding]) -> None:
    """Warn if partitions with missing labels have one number besides: negative ones may be votes."""
    gaps = [
        encoding for encoding in encodings if encoding.n_labeled < n_objects and encoding.rule == DEFAULT_RULE
    ]
    found = [e for e in gaps if e.values.dtype != object]
    if not found or any(len(encoding.values) > 1 for encoding in gaps):
        return
    name, values, n_labeled = found[0][:3]
    warn_user(
        f"partition {name!r} has {values[0]} as its only label, and {n_objects - n_labeled:,} of the objects "
        "have none; pass missing=[] (--missing '') if negative numbers are labels.",
        SuspiciousLabelsWarning,
    )


def encode_labels(
    table: Table, encodings: Sequence[Encoding], dtype: np.dtype, rows: int = BLOCK_ROWS
) -> Iterator[np.ndarray]:
    """Read ``table`` again and yield its rows as codes ``(n_rows, n_partitions)`` of ``dtype``.

    Raises InvalidInputError at the end if the labels differ from the first pass.
    """
    n_labeled = np.zeros(len(encodings), np.int64)
    is_first = table.may_be_other
    for codes in codes_of(table, encodings, dtype, rows):
        if is_first:
            refuse_other_rows(table, codes.T, encodings)
            is_first = False
        n_labeled += np.count_nonzero(codes != MISSING, axis=1)
        yield np.ascontiguousarray(codes.T)
    changed = np.flatnonzero(n_labeled != [encoding.n_labeled for encoding in encodings])
    if changed.size:
        raise InvalidInputError(
            f"partition {encodings[changed[0]].name!r} changed while it was read; "
            "pass labels that do not change."
        )


def refuse_other_rows(table: Table, codes: np.ndarray, encodings: Sequence[Encoding]) -> None:
    """Raise InvalidInputError if the codes ``(n_rows, n_partitions)`` of the first rows are of no objects."""
    refuse_other_matrices(codes, table.n_rows, table.where)
    if table.ids is None or table.ids.facts.is_index:  # an index may only number the rows
        refuse_long(codes, encodings, table.where)


def codes_of(
    table: Table,
    encodings: Sequence[Encoding],
    dtype: np.dtype,
    rows: int,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[np.ndarray]:
    """Yield codes ``(n_partitions, n_rows)`` of rows ``start`` to ``stop``, about ``rows`` at a time."""
    for columns in map(_columns_of, table.blocks(rows, start, stop)):
        codes = np.empty((len(encodings), len(columns[0])), dtype)
        for u, encoding in enumerate(encodings):
            codes[u] = encoding.encode(columns[u])
        del columns  # before the table makes the next ones
        yield codes


def _columns_of(rows: Rows) -> list[Column]:
    """Return a block as columns, contiguous if it is a matrix."""
    return rows if isinstance(rows, list) else list(np.ascontiguousarray(unmasked(rows).T))


def rechunk(blocks: Iterable[np.ndarray], rows: int) -> Iterator[np.ndarray]:
    """Regroup consecutive blocks into blocks of exactly ``rows`` rows (the last may be smaller)."""
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
    """Return the smallest type for -1 and the codes of partitions with ``n_clusters`` clusters."""
    largest = max(n_clusters) - 1
    return next(np.dtype(name) for name in LABEL_TYPES if np.iinfo(name).max >= largest)


def default_chunk_rows(n_objects: int, n_columns: int) -> int:
    """Return a power of two that makes about 16 chunks.

    From 1,024 to 65,536, but fewer than 1,024 where these are more than 16 million labels.
    """
    ideal = 1 << max(0, (n_objects + 16 - 1) // 16 - 1).bit_length()
    fewest = MIN_CHUNK_ROWS
    while fewest > 1 and 3 * fewest * n_columns > 4 * _CHUNK_LABELS:  # the nearest power of two
        fewest //= 2
    return min(max(ideal, fewest), BLOCK_ROWS)


def rows_per_read(table: Table, budget: int) -> int:
    """Return how many rows of ``table`` to read and encode at a time within half of ``budget``."""
    # columns are encoded one at a time, in 64-bit numbers, beside the blocks
    per_row = table.row_bytes + 2 * 4 * table.n_columns + 40
    rows = rows_within(
        budget,
        2 * per_row,
        fixed=2 * table.fixed_bytes,
        at_least=table.least_rows,
        what="one block of the labels",
    )
    return min(rows, max(BLOCK_ROWS, table.least_rows))


def check_chunk_rows(chunk_rows: int, bytes_per_row: float, budget: int) -> None:
    """Raise MemoryBudgetError if four copies of a chunk do not fit in half of ``budget``.

    Chunks do not become smaller for it: the bits of a consensus depend on them.
    """
    rows_within(
        budget, 8 * bytes_per_row, at_least=chunk_rows, what=f"a chunk of {chunk_rows:,} rows of labels"
    )


def partition_names(table: Table, names: Sequence[str] | None, first: int = 0) -> list[str]:
    """Return ``names``, else the names in the table, else ``p0, p1, ...`` numbered from ``first``.

    Raises InvalidInputError if their number is wrong or one is repeated.
    """
    chosen = names if names is not None else table.names
    if chosen is None:
        return [f"p{u}" for u in range(first, first + table.n_columns)]
    return given_names(chosen, table.n_columns, "partitions")


def given_names(names: Sequence[object], n: int, what: str) -> list[str]:
    """Return names as text; raise InvalidInputError if there is not one for each, or one is repeated."""
    if len(names) != n:
        raise InvalidInputError(
            f"names has {len(names)} entries but there are {n} {what}; pass one for each."
        )
    found = [str(name) for name in names]
    check_distinct(found)
    return found


def check_distinct(names: Sequence[str], known: Sequence[str] = ()) -> None:
    """Raise InvalidInputError if a name is repeated, or is one of the ``known`` of an ensemble."""
    for name in names:
        if name in known:
            raise InvalidInputError(
                f"the ensemble has a partition {name!r} already; give the new one another name, or leave it "
                "out if it was appended before."
            )
    if len(set(names)) < len(names):
        repeated = next(name for u, name in enumerate(names) if name in names[:u])
        raise InvalidInputError(f"two partitions are named {repeated!r}; give each a name of its own.")


def warn_of_suspects(
    n_objects: int,
    names: Sequence[str],
    n_clusters: np.ndarray,
) -> None:
    """Warn of columns that look like ids: of 200 objects or more, each has another label there.

    One message names all such columns. They are not, if all columns are so.
    """
    all_differ = (n_clusters == n_objects) & (n_objects >= 200)
    if any(all_differ) and not all(all_differ):
        ids = [name for name, differs in zip(names, all_differ, strict=True) if differs]
        warn_user(
            f"every object has a different label in {shown(ids)}; pass id={ids[0]!r} (--id {ids[0]}) if that "
            "names the objects, and leave out with drop= (--drop) what is no partition.",
            SuspiciousLabelsWarning,
        )
