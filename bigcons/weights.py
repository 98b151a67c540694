"""Weights of partitions, and what blocks of labels count: incidence of base clusters, objects of clusters.

A block is labels (rows, M), -1 missing, or the memberships of soft clusterings (rows, B) float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigcons.kernels.cluster_tables import count_assigned
from bigcons.validation import check_partition_weights


class Weights(NamedTuple):
    """Weights of partitions, or of base clusters."""

    partitions: np.ndarray
    """(M,) float64, at least 0: how much it counts that a partition labels objects."""
    base_clusters: np.ndarray
    """(B,): how much it counts that a base cluster joins objects; as much as its partition, or its own."""
    offsets: np.ndarray
    """(M + 1,): where the base clusters of each partition begin."""

    @classmethod
    def build(cls, partitions: Any, offsets: np.ndarray) -> Weights:
        """Return the given weights (M,) of partitions whose base clusters begin at ``offsets`` (M + 1,).

        Raises InvalidInputError as `check_partition_weights`.
        """
        weights = check_partition_weights(partitions, offsets.size - 1)
        return cls(weights, np.repeat(weights, np.diff(offsets)), offsets)

    @classmethod
    def parse(cls, partitions: Any, offsets: np.ndarray) -> Weights | None:
        """Return the weights of a parameter ``weights``; None if it is None or all weights are one."""
        if partitions is None:
            return None
        weights = cls.build(partitions, offsets)
        return None if (weights.partitions == 1.0).all() else weights


def counted_labels(rows: np.ndarray, weights: Weights | None) -> np.ndarray:
    """Return labels (rows, M), or memberships (rows, B), with labels of partitions of weight 0 missing."""
    if weights is None or (weights.partitions > 0).all():
        return rows
    if rows.dtype.kind == "f":
        return np.where(weights.base_clusters > 0, rows, np.float32(0))
    return np.where(weights.partitions > 0, rows, rows.dtype.type(-1))


def incidence_of(rows: np.ndarray, offsets: np.ndarray) -> Any:
    """Return the incidence matrix H (rows, B) as a float64 csr_array of SciPy's.

    Of labels (rows, M), -1 missing, or of memberships (rows, B).
    """
    import scipy.sparse

    if rows.dtype.kind == "f":
        return scipy.sparse.csr_array(rows.astype(np.float64))
    is_labeled = rows >= 0
    columns = (rows + offsets[:-1])[is_labeled]
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(is_labeled, axis=1))])
    return scipy.sparse.csr_array((np.ones(columns.size), columns, starts), (len(rows), int(offsets[-1])))


def counts_of(
    labels: np.ndarray,
    offsets: np.ndarray,
    clusters: np.ndarray,
    n_clusters: int,
    weights: Weights | None = None,
    times: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many objects of each base cluster are in each cluster, (B, K), and the sizes (K,).

    By labels (rows, M), or memberships (rows, B), and clusters (rows,), -1 for in none; labels in partitions
    of weight 0 do not count. ``times`` (rows,): how often each object counts, once by default.
    """
    labels = counted_labels(labels, weights)
    if times is not None:
        indicators = (clusters == np.arange(n_clusters)[:, None]) * times
        return np.asarray(incidence_of(labels, offsets).T @ indicators.T), indicators.sum(axis=1)
    counts, sizes = np.zeros((offsets[-1], n_clusters)), np.zeros(n_clusters)
    if labels.dtype.kind == "f":
        count_memberships(labels, clusters, counts, sizes)
    else:
        count_assigned(labels, offsets, clusters.astype(np.int32), counts, sizes)
    return counts, sizes


def count_memberships(labels: np.ndarray, assigned: np.ndarray, T: np.ndarray, sizes: np.ndarray) -> None:
    """Add memberships (rows, B) of objects to their clusters in T (B, K) and sizes (K,); -1 adds nothing."""
    for k in range(sizes.size):
        members = labels[assigned == k]
        T[:, k] += members.sum(axis=0, dtype=np.float64)
        sizes[k] += len(members)
