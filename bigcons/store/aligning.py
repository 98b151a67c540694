"""Clusters of one clustering by the numbers of another that they overlap."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from bigcons.errors import InvalidIdsError, InvalidInputError
from bigcons.io.ids import Ids
from bigcons.io.labels import LabelColumn, are_other_rows, names_of_rows, refuse_other_rows
from bigcons.store.consensus import Consensus
from bigcons.store.ids import ids_of
from bigcons.validation import is_names

if TYPE_CHECKING:
    import pyarrow as pa


def whole_labels_of(found: Any, name: str) -> LabelColumn:
    """Return the labels of a consensus; raises InvalidInputError for labels that are text."""
    column = LabelColumn("labels", found)
    if column.values.dtype == object:
        raise InvalidInputError(
            f"the {name} labels are text, such as {column.values[0]!r}; give whole numbers.", parameter=name
        )
    return column


class Matching(NamedTuple):
    """A consensus by the cluster numbers of an earlier one; see `match`."""

    labels: np.ndarray
    """(n_objects,) int32: the new labels by these numbers, -1 without one."""
    numbers: np.ndarray
    """(n_clusters,) int64: the number of each new cluster, -1 of those without objects."""
    n_moved: int
    """Objects with a label in both whose number has changed."""
    table: pa.Table
    """A row for each number: what became of it (event), split from or merged into which (other), its objects
    now (size) and before (size_before), and those of both (shared)."""

    def __repr__(self) -> str:
        events = self.table["event"].to_pylist()
        told = ", ".join(f"{events.count(event)} {event}" for event in EVENTS if event in events)
        return f"Matching({told}; {self.n_moved:,} of {self.labels.size:,} objects moved)"


EVENTS = ("kept", "split", "new", "merged", "gone")


def match(new: Any, old: Any) -> Matching:
    """Return a consensus by the cluster numbers of an earlier one, and what became of its clusters.

    For the consensus of an ensemble to which objects or partitions were appended. A new cluster keeps the
    number of an old one if each has most of the other: no other new cluster shares more objects with the old
    one, and no other old one with the new one. A new cluster without such a partner gets the next free
    number: it is "split" from the old one in which most of its objects were, or "new" if none of them was in
    any. An old one without is "merged" into the new one in which most of its objects are, or "gone".

    Parameters
    ----------
    new, old
        Two consensuses: a `Consensus`, its path, a fitted clusterer, or labels ``(n_objects,)``, whole
        numbers, of which negative ones are missing. If both have ids, objects are joined by them; else those
        of ``old`` are the first of ``new``, as after `Ensemble.append_objects`. The index of a Series is its
        ids, unless it is 0, 1, ... and those of the other one are not these in another order.

    Raises InvalidInputError for labels that are text, for more old than new objects without ids, and
    InvalidIdsError if no id is in both. Memory: the labels and ids of both.

    Examples
    --------
    >>> import bigcons as bc
    >>> bc.match([0, 0, 0, 0, 1, 1, 2], [7, 7, 4, 4, 2, 2])
    Matching(2 kept, 1 new, 1 merged; 2 of 7 objects moved)
    >>> bc.match([0, 0, 0, 0, 1, 1, 2], [7, 7, 4, 4, 2, 2]).labels
    array([4, 4, 4, 4, 2, 2, 8], dtype=int32)
    """
    new, old = (
        Consensus.open(found) if isinstance(found, (str, os.PathLike)) else found for found in (new, old)
    )
    columns = whole_labels_of(new, "new"), whole_labels_of(old, "old")
    of_new, of_old = (column.values for column in columns)
    now, before = (column.codes(0, column.n_objects) for column in columns)
    sizes, sizes_before = (np.bincount(codes[codes >= 0]) for codes in (now, before))
    before = np.append(before, -1)[_rows_before(new, old, now.size, before.size)]
    both = (now >= 0) & (before >= 0)
    table = np.zeros((of_new.size, of_old.size), np.int64)
    np.add.at(table, (now[both], before[both]), 1)

    matched = table.argmax(axis=1)  # the first of equal ones
    is_mutual = (table.argmax(axis=0)[matched] == np.arange(matched.size)) & table.any(axis=1)
    matched[~is_mutual] = -1
    number = np.where(matched >= 0, of_old[matched], -1)
    left = matched < 0
    number[left] = of_old[-1] + 1 + np.arange(left.sum())
    rows: list[tuple[Any, ...]] = []
    for k, q in enumerate(matched.tolist()):
        if q >= 0:
            rows.append((number[k], "kept", None, sizes[k], sizes_before[q], table[k, q]))
        elif table[k].any():
            rows.append((number[k], "split", of_old[table[k].argmax()], sizes[k], None, 0))
        else:
            rows.append((number[k], "new", None, sizes[k], None, 0))
    for q in np.setdiff1d(np.arange(of_old.size), matched).tolist():
        is_gone = not table[:, q].any()
        into = None if is_gone else number[np.argmax(table[:, q])]
        rows.append((of_old[q], "gone" if is_gone else "merged", into, 0, sizes_before[q], 0))
    rows.sort(key=lambda row: int(row[0]))
    numbers = np.full(int(of_new[-1]) + 1, -1)
    numbers[of_new] = number
    return Matching(
        np.append(number, -1)[now].astype(np.int32),
        numbers,
        int(np.count_nonzero(number[now[both]] != of_old[before[both]])),
        _table(rows),
    )


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    import pyarrow as pa

    names = ("number", "event", "other", "size", "size_before", "shared")
    columns = (
        pa.array(column, pa.string() if name == "event" else pa.int64())
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    )
    return pa.table(dict(zip(names, columns, strict=True)))


def _rows_before(new: Any, old: Any, n_new: int, n_old: int) -> np.ndarray:
    """Return the old row of each new object, (n_new,) int64, -1 of those that there were not."""
    import pyarrow.compute as pc

    names = [names_of_rows(found) for found in (new, old)]
    are_ids = all(hasattr(of, "facts") or (hasattr(of, "nlevels") and is_names(of)) for of in names)
    have_names = all(hasattr(of, "facts") or hasattr(of, "nlevels") for of in names)
    if not are_ids and not (have_names and are_other_rows(*names)):
        refuse_other_rows("old", names[1], "new", names[0])
        if n_old > n_new:
            raise InvalidInputError(
                f"the old labels are of {n_old:,} objects but the new ones of {n_new:,}; give ids to both, "
                "or new labels in which those objects come first."
            )
        return np.where(np.arange(n_new) < n_old, np.arange(n_new), -1)
    of_new, of_old = (cast("Ids", ids_of(of)) for of in names)
    if n_new == n_old and of_new.facts.in_words == of_old.facts.in_words:  # the same ids, in order
        return np.arange(n_new)
    rows = None
    if of_new.facts.dtype == of_old.facts.dtype:
        rows = pc.index_in(of_new.hold().values, value_set=of_old.hold().values)
    if rows is None or rows.null_count == len(rows):
        raise InvalidIdsError(
            f"no {of_new.facts.name} of the new consensus is a {of_old.facts.name} of the old one; "
            "give consensuses of the same objects.",
            column=of_new.facts.name,
        )
    found: np.ndarray = pc.fill_null(rows, -1).to_numpy(zero_copy_only=False)
    return found
