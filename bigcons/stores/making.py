"""Ensembles made of a source of labels: in memory, or in a store without ever holding them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigcons.storage.places import StorePath
from bigcons.stores import growing
from bigcons.stores.label_store import Categories, Head
from bigcons.tables.importing import (
    Learned,
    chunk_rows_within,
    default_chunk_rows,
    encode,
    label_dtype,
    learn,
    partition_names,
    rows_per_read,
)
from bigcons.tables.sources import LabelSource
from bigcons.validation import check_int


def read_labels(
    source: LabelSource,
    provenance: dict[str, Any],
    *,
    names: Sequence[str] | None = None,
    known: Sequence[np.ndarray] | None = None,
) -> tuple[np.ndarray, Head, Categories]:
    """Return the labels of a source, their head and their categories; codes stand behind ``known`` values."""
    learned = learn(source, partition_names(source, names), known=known)
    labels = growing.gather(source, learned)
    return labels, _head(learned, provenance), [e.categories for e in learned.encodings]


def store_labels(
    source: LabelSource,
    out: StorePath,
    names: Sequence[str] | None,
    provenance: dict[str, Any],
    overwrite: bool,
    budget: int,
    chunk_rows: int | None,
) -> None:
    """Store the labels of a source, read twice, within a ``budget`` of bytes; see `import_labels`."""
    rows = rows_per_read(source, budget)
    learned = learn(source, partition_names(source, names), rows=rows, values_budget=budget // 4)
    dtype = label_dtype([len(encoding.values) for encoding in learned.encodings])
    if chunk_rows is None:
        chunk_rows = chunk_rows_within(learned.n_objects, dtype.itemsize * source.n_partitions, budget)
    head = _head(learned, provenance)._replace(chunk_rows=check_int("chunk_rows", chunk_rows))
    categories = [encoding.categories for encoding in learned.encodings]
    blocks = encode(source, learned.encodings, dtype, rows)
    growing.write_store(out, blocks, head, categories, dtype, overwrite)


def _head(learned: Learned, provenance: dict[str, Any]) -> Head:
    return Head(
        learned.n_objects,
        [encoding.name for encoding in learned.encodings],
        np.array([len(encoding.values) for encoding in learned.encodings], np.int64),
        np.array([encoding.n_labeled for encoding in learned.encodings], np.int64),
        default_chunk_rows(learned.n_objects),
        provenance,
    )
