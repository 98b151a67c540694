"""The clusters of a soft consensus beside one another: how they overlap, and where they lie."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.execution.engine import fold, open_engine
from bigcons.memory import Block, row_blocks
from bigcons.metrics.soft import BLOCK_BYTES, matrix, simplex_rows
from bigcons.progress import progress
from bigcons.stores.consensus import Consensus
from bigcons.stores.features import open_features
from bigcons.validation import check_number


def cluster_overlap(memberships: Any, threshold: float = 0.0, *, client: object = None) -> np.ndarray:
    """Return the weights of the cluster-overlap graph ``(n_clusters, n_clusters)`` float64.

    ``[a, b]`` is the share of cluster ``a`` that lies in ``b`` too, ``sum_i y_ai y_bi / sum_i y_ai``, once
    memberships below ``threshold`` are set to zero and the others made to sum to 1 again (Lourenço et al.
    2015, section 6, where the printed ``Q_j`` is a slip). Not symmetric; 1 on the diagonal by definition. A
    cluster that no object belongs to has 0 beside it.

    Parameters
    ----------
    memberships
        ``(n_objects, n_clusters)``, rows on the simplex, read by rows; or a `Consensus`, whose objects
        without a label are left out and which, if it stores labels only, has memberships of 0 and 1.
    threshold
        From 0 to 1. An object all of whose memberships are below it is left out.
    client
        Engine.

    One pass; O(n_objects n_clusters^2).
    """
    check_number("threshold", threshold, at_least=0, at_most=1)
    rows = _MembershipRows(memberships)
    with open_engine(client) as engine, progress("overlap of clusters", rows.n_objects) as listener:
        joint, sizes = fold(
            engine, rows.blocks(), partial(_overlap_of_block, rows, threshold), _add, progress=listener
        )
    overlap = np.divide(joint, sizes[:, None], out=np.zeros_like(joint), where=sizes[:, None] > 0)
    np.fill_diagonal(overlap, 1.0)
    return overlap


def cluster_centroids(features: object, memberships: Any) -> np.ndarray:
    """Return the mean of the features in each cluster ``(n_clusters, n_features)`` float64.

    ``sum_i y_ki x_i / sum_i y_ki`` (Lourenço et al. 2015, section 6); NaN for a cluster that no object
    belongs to.

    ``features`` is whatever `bigcons.stores.features.open_features` takes; ``memberships`` as in
    `cluster_overlap`. Both are read in one pass, by blocks, in this process; O(n_objects n_clusters
    n_features). Raises InvalidInputError if they are of different numbers of objects.
    """
    data, rows = open_features(features), _MembershipRows(memberships)
    if rows.n_objects != data.n_objects:
        raise InvalidInputError(
            f"memberships is for {rows.n_objects} objects but the features for {data.n_objects}; "
            "pass one row of memberships per row of the features."
        )
    sums, sizes = np.zeros((rows.n_clusters, data.n_features)), np.zeros(rows.n_clusters)
    with progress("centroids of clusters", data.n_objects) as listener:
        for block, values in data.iterate():
            weights = rows.read(block)
            sums += np.einsum("ia,ib->ab", weights, values)  # not BLAS, whose sums depend on its threads
            sizes += weights.sum(axis=0)
            listener.advance(block.n_rows)
    return np.divide(sums, sizes[:, None], out=np.full_like(sums, np.nan), where=sizes[:, None] > 0)


def _overlap_of_block(rows: _MembershipRows, threshold: float, block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Return what the overlaps of a block are the ratios of: joint and single sums of memberships."""
    weights = rows.read(block)
    weights[weights < threshold] = 0.0
    totals = weights.sum(axis=1, keepdims=True)
    np.divide(weights, totals, out=weights, where=totals > 0)
    return np.einsum("ia,ib->ab", weights, weights), weights.sum(axis=0)


def _add(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


class _MembershipRows:
    """Memberships read by blocks in float64, zero for objects that belong to no cluster."""

    def __init__(self, memberships: Any) -> None:
        self._source = (
            memberships if isinstance(memberships, Consensus) else matrix("memberships", memberships)
        )
        if isinstance(self._source, Consensus):
            self.n_objects, self.n_clusters = self._source.n_objects, self._source.n_clusters
        else:
            self.n_objects, self.n_clusters = self._source.shape

    def blocks(self) -> list[Block]:
        """Return blocks of whole chunks of a store, of some megabytes of an array."""
        if isinstance(self._source, Consensus):
            return self._source.blocks()
        return row_blocks(self.n_objects, max(1, BLOCK_BYTES // (8 * self.n_clusters)))

    def read(self, block: Block) -> np.ndarray:
        """Return the memberships of a block ``(rows, n_clusters)``, a copy; refuse rows off the simplex."""
        if not isinstance(self._source, Consensus):
            return simplex_rows("memberships", self._source, block, self.n_clusters)
        labels = self._source.read_labels(block.start, block.stop)
        labeled = np.flatnonzero(labels >= 0)
        rows = np.zeros((block.n_rows, self.n_clusters))
        if self._source.has_memberships:
            rows[labeled] = self._source.read_memberships(block.start, block.stop)[labeled]
        else:
            rows[labeled, labels[labeled]] = 1.0
        return rows
