"""Writing and growing ensembles: whole stores, more objects, more partitions; on disk and in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.memory import row_blocks
from bigcons.progress import Progress, progress
from bigcons.storage.commit import discarded_on_failure, new_folder, new_store
from bigcons.storage.locks import writer_lock
from bigcons.storage.places import DiskPlace, Place, StorePath, disk_errors
from bigcons.stores.label_store import MAX_CHUNK_COLUMNS, Categories, Head, StoredLabels, open_labels
from bigcons.stores.label_writer import LabelWriter, sweep
from bigcons.tables.importing import (
    Learned,
    check_distinct,
    default_chunk_rows,
    encode,
    label_dtype,
    learn,
    partition_names,
    rechunk,
)
from bigcons.tables.relabel import Encoding
from bigcons.tables.sources import LabelSource, ReorderedSource


class Growth(NamedTuple):
    """What an ensemble is after an append, and what to add to it."""

    head: Head
    categories: Categories
    dtype: np.dtype
    encodings: list[Encoding]


class Room(NamedTuple):
    """A store that is held for writing."""

    stored: StoredLabels
    folder: Place
    """Where its next generation goes."""
    check_lock: Callable[[], None]
    """Raises StoreError if another writer took over; to be called before the step that counts."""


def write_store(
    path: StorePath,
    blocks: Iterable[np.ndarray],
    head: Head,
    categories: Categories,
    dtype: np.dtype,
    overwrite: bool,
) -> None:
    """Store consecutive blocks of labels as a new ensemble at ``path``."""
    with new_store(path, overwrite) as directory:
        shape = (head.n_objects, len(head.names))
        chunks = (head.chunk_rows, min(shape[1], MAX_CHUNK_COLUMNS))
        writer = LabelWriter(directory, 1, shape, dtype, chunks)
        with progress("labels to the store", head.n_objects) as listener:
            writer.write(_reported(rechunk(blocks, head.chunk_rows), listener))
        writer.commit(directory, head, categories)


def _reported(blocks: Iterable[np.ndarray], listener: Progress) -> Iterator[np.ndarray]:
    for block in blocks:
        yield block
        listener.advance(len(block))


def gather(source: LabelSource, learned: Learned) -> np.ndarray:
    """Return the codes of all objects of ``source`` in one array ``(n_objects, n_partitions)``."""
    dtype = label_dtype([len(encoding.values) for encoding in learned.encodings])
    labels = np.empty((learned.n_objects, source.n_partitions), dtype)
    start = 0
    for block in encode(source, learned.encodings, dtype):
        labels[start : start + len(block)] = block
        start += len(block)
    return labels


def more_objects(head: Head, categories: Categories, source: LabelSource) -> Growth:
    """Learn the labels of further objects, behind the values that are known."""
    if source.n_partitions != len(head.names):
        raise InvalidInputError(
            f"labels has {source.n_partitions} partitions but the ensemble has {len(head.names)}; "
            "give one column for each."
        )
    known = [
        np.arange(k) if values is None else values
        for k, values in zip(head.n_clusters, categories, strict=True)
    ]
    learned = learn(source, head.names, known=known)
    encodings = learned.encodings
    grown = head._replace(
        n_objects=head.n_objects + learned.n_objects,
        n_clusters=np.array([len(encoding.values) for encoding in encodings]),
        n_labeled=head.n_labeled + [encoding.n_labeled for encoding in encodings],
        provenance=_appended(head, objects=learned.n_objects),
    )
    return Growth(grown, [e.categories for e in encodings], label_dtype(grown.n_clusters), encodings)


def more_partitions(
    head: Head, categories: Categories, source: LabelSource, names: Sequence[str] | None
) -> Growth:
    """Learn the labels of further partitions of the same objects."""
    if names is None and source.names is not None and _generic(source.names):
        names = [f"p{len(head.names) + u}" for u in range(source.n_partitions)]
    names = partition_names(source, names, first=len(head.names))
    check_distinct([*head.names, *names])
    learned = learn(source, names)
    if learned.n_objects != head.n_objects:
        raise InvalidInputError(
            f"labels has {learned.n_objects} objects but the ensemble has {head.n_objects}; "
            "give one row for each, -1 where the label is missing."
        )
    encodings = learned.encodings
    grown = head._replace(
        names=[*head.names, *names],
        n_clusters=np.append(head.n_clusters, [len(encoding.values) for encoding in encodings]),
        n_labeled=np.append(head.n_labeled, [encoding.n_labeled for encoding in encodings]),
        provenance=_appended(head, partitions=source.n_partitions),
    )
    categories = [*categories, *(encoding.categories for encoding in encodings)]
    return Growth(grown, categories, label_dtype(grown.n_clusters), encodings)


def in_order_of(head: Head, source: LabelSource) -> LabelSource:
    """Return ``source`` with its columns in the order of the partitions, if it names them.

    Raises InvalidInputError if both have names of their own and these differ.
    """
    if source.names is None or source.names == head.names:
        return source
    if sorted(source.names) == sorted(head.names):
        return ReorderedSource(source, head.names)
    if _generic(source.names) or _generic(head.names):
        return source
    stranger = next((name for name in source.names if name not in head.names), source.names[-1])
    raise InvalidInputError(
        f"labels has a partition {stranger!r} that the ensemble has not; "
        "give columns of the same names, or an array in the order of the partitions."
    )


@contextmanager
def room_to_grow(place: Place) -> Iterator[Room]:
    """Hold the store at ``place`` for writing; what a ``with`` block that fails has written is removed."""
    with writer_lock(place) as check_lock, disk_errors(place):
        stored = open_labels(place)
        sweep(place)
        if not isinstance(place, DiskPlace):
            with discarded_on_failure(new_folder(place), place) as folder:
                yield Room(stored, folder, check_lock)
            sweep(place)
        elif stored.data is place:
            try:
                yield Room(stored, place, check_lock)
            finally:
                sweep(place)
        else:
            raise InvalidInputError(
                f"{place} was copied from a bucket; save() it on the disk to append to it."
            )


def store_objects(room: Room, source: LabelSource) -> None:
    """Append objects to a store; chunks that are full stay as they are unless the type grows."""
    stored = room.stored
    head, rows = stored.head, stored.head.chunk_rows
    growth = more_objects(head, stored.categories(), in_order_of(head, source))
    kept_rows = head.n_objects // rows if growth.dtype == stored.dtype else 0
    writer = LabelWriter(
        room.folder,
        stored.generation + 1,
        (growth.head.n_objects, len(head.names)),
        growth.dtype,
        (rows, stored.chunk_columns),
        kept=stored,
        kept_rows=kept_rows,
    )
    old = (
        stored.read(kept_rows * rows + block.start, kept_rows * rows + block.stop).astype(growth.dtype)
        for block in row_blocks(head.n_objects - kept_rows * rows, rows)
    )
    new = encode(in_order_of(head, source), growth.encodings, growth.dtype)
    writer.write(rechunk(chain(old, new), rows))
    room.check_lock()
    writer.commit(stored.path, growth.head, growth.categories)


def store_partitions(room: Room, source: LabelSource, names: Sequence[str] | None) -> None:
    """Append partitions to a store; columns of chunks that are full stay, unless the type grows."""
    stored = room.stored
    head = stored.head
    growth = more_partitions(head, stored.categories(), source, names)
    full = len(head.names) // MAX_CHUNK_COLUMNS if stored.chunk_columns == MAX_CHUNK_COLUMNS else 0
    kept_columns = full if growth.dtype == stored.dtype else 0
    n_partitions = len(growth.head.names)
    writer = LabelWriter(
        room.folder,
        stored.generation + 1,
        (head.n_objects, n_partitions),
        growth.dtype,
        (head.chunk_rows, min(n_partitions, MAX_CHUNK_COLUMNS)),
        kept=stored,
        kept_columns=kept_columns,
    )
    new = rechunk(encode(source, growth.encodings, growth.dtype), head.chunk_rows)
    writer.write(_beside(stored, kept_columns * MAX_CHUNK_COLUMNS, new))
    room.check_lock()
    writer.commit(stored.path, growth.head, growth.categories)


def memory_objects(
    labels: np.ndarray, head: Head, categories: Categories, source: LabelSource
) -> tuple[np.ndarray, Head, Categories]:
    """Return labels, head and categories with further objects."""
    source = in_order_of(head, source)
    growth = more_objects(head, categories, source)
    new = encode(source, growth.encodings, growth.dtype)
    head = growth.head._replace(chunk_rows=default_chunk_rows(growth.head.n_objects))
    return np.concatenate([labels.astype(growth.dtype, copy=False), *new]), head, growth.categories


def memory_partitions(
    labels: np.ndarray,
    head: Head,
    categories: Categories,
    source: LabelSource,
    names: Sequence[str] | None,
) -> tuple[np.ndarray, Head, Categories]:
    """Return labels, head and categories with further partitions."""
    growth = more_partitions(head, categories, source, names)
    new = np.concatenate([*encode(source, growth.encodings, growth.dtype)])
    return np.hstack([labels.astype(growth.dtype, copy=False), new]), growth.head, growth.categories


def _beside(stored: StoredLabels, first_column: int, new: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    start = 0
    for block in new:
        old = stored.read(start, start + len(block), first_column)
        yield np.hstack([old.astype(block.dtype, copy=False), block])
        start += len(block)


def _appended(head: Head, **what: int) -> dict[str, Any]:
    return head.provenance | {"appended": [*head.provenance.get("appended", []), what]}


def _generic(names: Sequence[str]) -> bool:
    """Tell whether names only count: ``p0, p1, ...`` or ``0, 1, ...``."""
    return all(re.fullmatch(r"p?\d+", name) for name in names)
