"""Tables that list pairs, one in each row, in any order: read in batches, checked, and sorted in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigcons.disk.schema import PAIR_COLUMNS
from bigcons.errors import InvalidInputError, InvalidPairsError, MemoryBudgetError
from bigcons.io.batches import Source
from bigcons.memory import BLOCK_ROWS, enough_for, format_size
from bigcons.progress import progress
from bigcons.store.pair_rows import MAX_OBJECTS, MAX_SEEN, OBJECT_BYTES, PAIR_BYTES, Edges


def read_pairs(
    table: Source, *, n_objects: int | None = None, columns: Sequence[str] | None = None, budget: int
) -> tuple[Edges, int]:
    """Return the pairs of a table with ``n_seen > 0``, ascending by i, then j, and the number of objects.

    The columns are integers, by default `bigcons.disk.schema.PAIR_COLUMNS`, or have the names ``columns`` in
    this order. The number of objects, if None, is one more than the largest of a pair. Raises
    InvalidPairsError, with the file and row, for the first that breaks a rule, and MemoryBudgetError for more
    pairs than fit in ``budget`` bytes.
    """
    names = list(PAIR_COLUMNS if columns is None else columns)
    if len(names) != len(PAIR_COLUMNS):
        raise InvalidInputError(
            f"columns={names}; give four names, of the columns {', '.join(PAIR_COLUMNS)}.",
            parameter="columns",
        )
    if n_objects is not None and not 0 <= n_objects <= MAX_OBJECTS:
        raise InvalidInputError(
            f"n_objects={n_objects} is out of range; use 0 to {MAX_OBJECTS:,}.", parameter="n_objects"
        )
    if any((table.names or []).count(name) != 1 for name in names):
        stated = f"the columns {', '.join(table.names)}" if table.names else "no column names"
        raise InvalidPairsError(
            f"{table.where} has {stated}; it needs the integer columns {', '.join(names)}.", path=table.where
        )
    parts = [Edges(*(np.empty(0, dtype) for dtype in (np.int32, np.int32, np.uint16, np.uint16)))]
    n_rows, last = 0, -1
    with progress("check pairs", table.n_rows or 0, "pairs") as listener:
        for batch in table.batches(BLOCK_ROWS, columns=[(table.names or []).index(name) for name in names]):
            part = _checked(batch, names, n_rows, n_objects, table.where)
            last = max(last, int(part.j.max(initial=-1)))
            n_rows += len(part.i)
            listener.advance(len(part.i))
            seen = part.n_seen > 0
            parts.append(Edges(*(column[seen] for column in part)))
            needed = PAIR_BYTES * max(n_rows, table.n_rows or 0) + OBJECT_BYTES * (n_objects or 0)
            if needed > budget:
                raise MemoryBudgetError(
                    f"the pairs in {table.where} take {format_size(needed)} or more while they are sorted, "
                    f"over {format_size(budget)}; store them by import_pairs (bigcons import --pairs) with "
                    f"memory of {enough_for(needed)} or more.",
                    needed=needed,
                    budget=budget,
                )
    if n_objects is None and (n_rows == 0 or last >= max(1 << 24, 100 * n_rows)):
        # more objects than this, and than this many for each pair, are numbers that are no rows
        raise InvalidPairsError(
            f"{table.where} has {n_rows:,} pairs and a largest object {last:,}; number the objects from 0 "
            f"without gaps, or give n_objects={last + 1} if there are that many.",
            path=table.where,
        )
    edges = Edges(*map(np.concatenate, zip(*parts, strict=True)))
    del parts
    number = edges.i.astype(np.int64) << 32 | edges.j
    if (number[1:] <= number[:-1]).any():
        order = np.argsort(number)
        number, edges = number[order], Edges(*(column[order] for column in edges))
        if (repeated := np.flatnonzero(number[1:] == number[:-1])).size:
            at = repeated[0]
            raise InvalidPairsError(
                f"{table.where} lists the pair {names[0]}={edges.i[at]}, {names[1]}={edges.j[at]} twice; "
                "keep one of them.",
                path=table.where,
            )
    return edges, last + 1 if n_objects is None else n_objects


def _checked(
    batch: Sequence[Any], names: Sequence[str], first: int, n_objects: int | None, where: str
) -> Edges:
    """Return a batch as int32 objects and uint16 counts; ``first`` is its first row, for messages."""
    import pyarrow as pa

    columns = []
    for name, column in zip(names, batch, strict=True):
        is_array = isinstance(column, np.ndarray)
        if not (column.dtype.kind in "iu" if is_array else pa.types.is_integer(column.type)):
            kind = column.dtype if is_array else column.type
            raise InvalidPairsError(
                f"column {name!r} of {where} has type {kind}; it needs integers.", path=where, row=first
            )
        if not is_array and column.null_count:
            row = first + column.is_null().index(True).as_py()
            raise InvalidPairsError(
                f"row {row} of {where} has no {name} (null), but every pair needs one; correct or remove it.",
                path=where,
                row=row,
            )
        columns.append(np.asarray(column))
    i, j, n_agree, n_seen = columns
    most = MAX_OBJECTS if n_objects is None else n_objects
    bad = (i < 0) | (i >= j) | (j >= most) | (n_agree < 0) | (n_agree > n_seen) | (n_seen > MAX_SEEN)
    if bad.any():
        at = int(np.argmax(bad))
        got = ", ".join(f"{name}={column[at]}" for name, column in zip(names, columns, strict=True))
        raise InvalidPairsError(
            f"row {first + at} of {where} has {got}, but 0 <= {names[0]} < {names[1]} < {most} and "
            f"0 <= {names[2]} <= {names[3]} <= {MAX_SEEN} must hold; correct or remove it.",
            path=where,
            row=first + at,
        )
    return Edges(
        i.astype(np.int32, copy=False),
        j.astype(np.int32, copy=False),
        n_agree.astype(np.uint16, copy=False),
        n_seen.astype(np.uint16, copy=False),
    )
