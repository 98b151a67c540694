"""Clusters of one clustering by the numbers of another that they overlap."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import EmptyPartitionError, InvalidInputError, SoftEnsembleError
from bigcons.progress import progress
from bigcons.stores.consensus import Consensus
from bigcons.stores.ensemble_store import Categories, Header
from bigcons.tables.labels import LabelColumn

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble


def labels_of(found: Any) -> LabelColumn:
    """Return the labels of a consensus: a `Consensus`, its path, a fitted clusterer, or labels."""
    if isinstance(found, (str, os.PathLike)):
        found = Consensus.open(found)
    if hasattr(found, "fit") and not hasattr(found, "labels_"):
        raise InvalidInputError(f"{type(found).__name__} is not fitted; call fit first.")
    return LabelColumn("labels", getattr(found, "labels_", getattr(found, "label_rows", found)))


def assigned(table: np.ndarray) -> np.ndarray:
    """Return the column matched with each row of overlaps (rows, columns), -1 where none is: (rows,) int64.

    The best one-to-one matching by the Hungarian method; pairs that overlap in nothing are not matched.
    """
    from scipy.optimize import linear_sum_assignment

    matched = np.full(len(table), -1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    real = table[rows, columns] > 0
    matched[rows[real]] = columns[real]
    return matched


def align(ensemble: Ensemble, found: Any) -> tuple[Iterator[np.ndarray], Header, Categories]:
    """Return blocks of codes, header and categories by the numbers of a consensus; see `Ensemble.align`."""
    from bigcons.kernels.cluster_tables import count_assigned  # imports numba

    if ensemble.is_soft:
        raise SoftEnsembleError("align")
    column = labels_of(found)
    if column.n_objects != ensemble.n_objects:
        raise InvalidInputError(
            f"the labels are of {column.n_objects} objects but the ensemble of {ensemble.n_objects}; "
            "give those of the same objects, in the same order."
        )
    K, offsets = column.n_clusters, ensemble.offsets
    table, unlabeled = np.zeros((ensemble.n_base_clusters, K + 1)), np.zeros(K + 1)
    blocks = ensemble.blocks()
    with progress("overlaps with the consensus", ensemble.n_objects) as listener:
        for block in blocks:
            clusters = column.codes(block.start, block.stop)
            clusters[clusters < 0] = K
            labels = ensemble.read(block.start, block.stop)
            count_assigned(labels, offsets, clusters.astype(np.int32), table, unlabeled)
            listener.advance(block.n_rows)
    codes: list[np.ndarray] = []  # by partition
    categories: Categories = []
    n_labeled = []
    for u, name in enumerate(ensemble.names):
        of_base = table[offsets[u] : offsets[u + 1]]
        overlaps = of_base[:, :K]
        number = assigned(overlaps)
        rest = (number < 0) & overlaps.any(axis=1)
        number[rest] = overlaps[rest].argmax(axis=1)
        known = np.unique(number[number >= 0])
        if not known.size:
            raise EmptyPartitionError(name)
        codes.append(np.append(np.where(number < 0, -1, np.searchsorted(known, number)), -1))
        values = column.values[known]
        is_dense = values.dtype != object and (values == np.arange(values.size)).all()
        categories.append(None if is_dense else values)
        n_labeled.append(int(of_base[number >= 0].sum()))
    header = Header(
        ensemble.n_objects,
        ensemble.names,
        n_clusters=np.array([code.max() + 1 for code in codes]),
        n_labeled=np.array(n_labeled),
        chunk_rows=ensemble.chunk_rows,
        provenance={"made_by": "align", "source": ensemble.path or "in memory", "from": ensemble.provenance},
        ids=ensemble.id_column,
    )
    aligned = (
        np.stack([code[labels[:, u]] for u, code in enumerate(codes)], axis=1)
        for labels in (ensemble.read(block.start, block.stop) for block in blocks)
    )
    return aligned, header, categories
