"""Criteria of memberships: J, overlaps, centroids, the objective of PCC.

Memberships are ``(n_objects, n_clusters)`` with rows on the simplex, or anything of that shape whose rows can
be sliced; or a `Consensus` or a fitted soft method, whose unlabeled objects count as in no cluster. If a
Consensus stores labels only, its memberships are 0 and 1.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bigcons.contingency import refuse_other_objects
from bigcons.divergences import Divergence, resolve_divergence
from bigcons.errors import InvalidInputError
from bigcons.io.features import open_features
from bigcons.memory import Block, row_blocks
from bigcons.progress import progress
from bigcons.run.engine import fold, open_engine
from bigcons.store.consensus import Consensus
from bigcons.store.ensemble import as_ensemble
from bigcons.store.ensemble_store import SUM_TOLERANCE
from bigcons.store.pairs import PairTable, pairs_of
from bigcons.validation import check_number

__all__ = ["cluster_centroids", "cluster_overlap", "jensen_shannon", "pcc_objective"]


def refuse_without_memberships(model: Any) -> None:
    """Raise InvalidInputError for a clusterer that has no memberships."""
    if not hasattr(model, "memberships_"):
        remedy = "fit it first"
        if hasattr(model, "labels_"):
            remedy = "it finds labels alone: use a soft method, such as ConsensusTree or PCC"
        raise InvalidInputError(f"{type(model).__name__} has no memberships_; {remedy}.")


class MembershipRows:
    """Memberships read by blocks in float64, zero for objects of a consensus or model in no cluster."""

    def __init__(self, name: str, memberships: Any, n_objects: int | None = None, what: str = "") -> None:
        """Refuse what has no rows, or not ``n_objects`` of them, which ``what`` has."""
        self._name, self._labels = name, None
        self._source: Any = memberships
        if hasattr(memberships, "fit"):
            refuse_without_memberships(memberships)
            self._labels, self._source = memberships.labels_, memberships.memberships_
        if isinstance(memberships, Consensus):
            shape = memberships.n_objects, memberships.n_clusters
        else:
            self._source = self._source if hasattr(self._source, "shape") else np.asarray(memberships)
            shape = tuple(self._source.shape)
        if len(shape) != 2 or 0 in shape:
            raise InvalidInputError(
                f"{name} has shape {shape}; pass memberships (n_objects, n_clusters), not empty."
            )
        self.n_objects: int = shape[0]
        self.n_clusters: int = shape[1]
        if n_objects is not None:
            refuse_other_objects(name, self.n_objects, None, what, n_objects)

    def blocks(self) -> list[Block]:
        """Return blocks: whole chunks of a store, some megabytes of an array."""
        if isinstance(self._source, Consensus):
            return self._source.blocks()
        return row_blocks(self.n_objects, max(1, (1 << 21) // self.n_clusters))

    def read(self, block: Block, threshold: float = 0.0) -> np.ndarray:
        """Return the memberships of a block ``(rows, n_clusters)``; refuse rows off the simplex.

        With a ``threshold``, memberships below it are 0 and the others normalized; a row without others is 0.
        """
        part, source = slice(block.start, block.stop), self._source
        labels = None if self._labels is None else self._labels[part]
        if isinstance(source, Consensus):
            labels = source.read_labels(block.start, block.stop)
            if not source.has_memberships:
                return np.append(np.eye(self.n_clusters), np.zeros((1, self.n_clusters)), axis=0)[labels]
            source = source.membership_rows
        rows = np.asarray(source[part]).astype(np.float64, order="C")
        fits = (rows >= 0).all(axis=1) & (np.abs(rows.sum(axis=1) - 1) <= SUM_TOLERANCE)
        if not fits.all():
            row = int(np.argmin(fits))
            raise InvalidInputError(
                f"row {block.start + row} of {self._name} has sum {rows[row].sum():.6g} and least entry "
                f"{rows[row].min():.6g}; memberships are >= 0 and sum to 1: normalize them."
            )
        if labels is not None:
            rows[labels < 0] = 0.0
        if threshold > 0:
            rows[rows < threshold] = 0.0
            totals = rows.sum(axis=1, keepdims=True)
            np.divide(rows, totals, out=rows, where=totals > 0)
        return rows


def jensen_shannon(y: Any, z: Any, *, client: object = None) -> float:
    """Return the J criterion: the mean Jensen-Shannon divergence of memberships, clusters matched best.

    ``y`` ``(n_objects, ky)`` and ``z`` ``(n_objects, kz)`` have rows on the simplex; the one with fewer
    clusters is padded with zero columns. Symmetric, in bits, so between 0 (equal up to names) and 1.

    The divergence is a sum over clusters, so the best matching is an assignment problem, solved exactly
    (Lourenço et al. 2015). Arrays on disk, such as Zarr's, are read block by block. O(n_objects k^2) time.

    Examples
    --------
    >>> import bigcons as bc
    >>> round(bc.metrics.jensen_shannon([[1, 0], [0.5, 0.5]], [[0, 1], [0.4, 0.6]]), 4)
    0.0036
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.special import rel_entr

    first = MembershipRows("y", y)
    second = MembershipRows("z", z, first.n_objects, "y has")
    n_clusters = max(first.n_clusters, second.n_clusters)

    def costs_of_block(block: Block) -> np.ndarray:
        """Return the divergence between each cluster of ``y`` and each of ``z``."""
        a, b = np.zeros((2, block.n_rows, n_clusters))
        a[:, : first.n_clusters], b[:, : second.n_clusters] = first.read(block), second.read(block)
        a, b = a[:, :, None], b[:, None, :]
        middle = (a + b) / 2
        divergence = rel_entr(a, middle) + rel_entr(b, middle)
        return np.asarray(divergence.sum(axis=0) / (2 * np.log(2)))

    blocks = row_blocks(first.n_objects, max(1, (1 << 21) // n_clusters**2))
    with open_engine(client) as engine:
        costs = fold(engine, blocks, costs_of_block, np.add)
    return float(costs[linear_sum_assignment(costs)].sum() / first.n_objects)


def cluster_overlap(memberships: Any, threshold: float = 0.0, *, client: object = None) -> np.ndarray:
    """Return the weights of the cluster-overlap graph ``(n_clusters, n_clusters)`` float64.

    ``[a, b]`` is the share of cluster ``a`` that also lies in ``b``, ``sum_i y_ai y_bi / sum_i y_ai``, after
    memberships below ``threshold`` are set to zero and the others normalized again (Lourenço et al. 2015,
    where the printed ``Q_j`` is a typo). Not symmetric; 1 on the diagonal by definition. The row of a cluster
    without objects is 0 elsewhere.

    Parameters
    ----------
    memberships
        ``(n_objects, n_clusters)``, rows on the simplex; or a `Consensus` or a fitted soft method, whose
        unlabeled objects are left out. If a Consensus stores labels only, its memberships are 0 and 1.
    threshold
        From 0 to 1. An object whose memberships are all below it is left out.
    client
        Engine.

    One pass; O(n_objects n_clusters^2).

    Examples
    --------
    >>> import bigcons as bc
    >>> memberships = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]
    >>> bc.metrics.cluster_overlap(memberships).round(2)
    array([[1.  , 0.29],
           [0.38, 1.  ]])
    """
    return overlap_and_sizes(memberships, threshold, client)[0]


def overlap_and_sizes(memberships: Any, threshold: float, client: object) -> tuple[np.ndarray, np.ndarray]:
    """Return what `cluster_overlap` does, and the sums of memberships of the clusters ``(n_clusters,)``."""
    check_number("threshold", threshold, at_least=0, at_most=1)
    rows = MembershipRows("memberships", memberships)

    def overlap_of_block(block: Block) -> np.ndarray:
        weights = rows.read(block, threshold)
        return np.concatenate([np.einsum("ia,ib->ab", weights, weights), [weights.sum(axis=0)]])

    with open_engine(client) as engine, progress("overlap of clusters", rows.n_objects) as listener:
        sums = fold(engine, rows.blocks(), overlap_of_block, np.add, progress=listener)
    joint, sizes = sums[:-1], sums[-1]
    overlap = np.divide(joint, sizes[:, None], out=np.zeros_like(joint), where=sizes[:, None] > 0)
    np.fill_diagonal(overlap, 1.0)
    return overlap, sizes


def cluster_centroids(features: object, memberships: Any, threshold: float = 0.0) -> np.ndarray:
    """Return the mean of the features in each cluster ``(n_clusters, n_features)`` float64.

    ``sum_i y_ki x_i / sum_i y_ki``, after memberships below ``threshold`` are set to zero and the others
    normalized again (Lourenço et al. 2015); NaN for a cluster without objects.

    ``features`` is anything that `bigcons.io.features.open_features` takes; ``memberships`` and
    ``threshold`` as in `cluster_overlap`. One pass over both, block by block, in this process; O(n_objects
    n_clusters n_features) time. Raises InvalidInputError if they have different numbers of objects.

    Examples
    --------
    >>> import bigcons as bc
    >>> import numpy as np
    >>> memberships = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    >>> bc.metrics.cluster_centroids(np.array([[0.0], [3.0], [6.0]]), memberships)
    array([[1.],
           [5.]])
    """
    check_number("threshold", threshold, at_least=0, at_most=1)
    data = open_features(features)
    rows = MembershipRows("memberships", memberships, data.n_objects, "the features have")
    sums, sizes = np.zeros((rows.n_clusters, data.n_features)), np.zeros(rows.n_clusters)
    with progress("centroids of clusters", data.n_objects) as listener:
        for block, values in data.iterate():
            weights = rows.read(block, threshold)
            sums += np.einsum("ia,ib->ab", weights, values)  # not BLAS, whose sums depend on its threads
            sizes += weights.sum(axis=0)
            listener.advance(block.n_rows)
    return np.divide(sums, sizes[:, None], out=np.full_like(sums, np.nan), where=sizes[:, None] > 0)


def pcc_objective(
    x: Any,
    memberships: Any,
    *,
    divergence: str | Divergence = "l2",
    pairs: str | os.PathLike[str] | PairTable = "all",
    constant: bool = True,
    weights: Any = None,
    client: object = None,
) -> float:
    """Return ``sum N_ij d(c_ij / N_ij, y_i.y_j)`` over the pairs (Lourenço et al. 2015, equation 4).

    ``memberships`` are ``(n_objects, n_clusters)``, rows on the simplex. ``pairs`` is "all", a PairTable, or
    the path of one (``x`` is then not read and may be None).

    ``constant=False``, for the squared divergence over all pairs only, leaves out the term
    ``sum c_ij^2 / N_ij``, which memberships do not change, as ``PCC(pairs="all").objective_`` does. It takes
    one pass over the labels and the memberships, which may be on disk, such as
    ``Consensus.membership_rows``, and allows ``weights`` ``(n_partitions,)`` of partitions, as in PCC.
    Otherwise all pairs take O(n^2 (M + K)) time, with memberships in memory.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0], [0, 0], [1, 1]]
    >>> bc.metrics.pcc_objective(labels, [[1, 0], [1, 0], [0, 1]])
    0.0
    >>> bc.metrics.pcc_objective(labels, [[1, 0], [0, 1], [0, 1]])
    4.0
    """
    from bigcons.coassociation.factorized import add_sums, agreement_sums
    from bigcons.kernels.label_rows import over_pairs, over_tile
    from bigcons.weights import Weights

    are_all = isinstance(pairs, str) and pairs == "all"
    if weights is not None and (constant or not are_all):
        raise InvalidInputError(
            f"weights with pairs={pairs!r}, constant={constant}; they need pairs='all' and constant=False."
        )
    chosen, rows = resolve_divergence(divergence), MembershipRows("memberships", memberships)
    source = as_ensemble(x) if are_all else pairs_of(pairs, rows.n_objects)
    n = source.n_objects
    rows = MembershipRows("memberships", memberships, n, "the ensemble has" if are_all else "pairs has")
    value, _, _, parameter = chosen.compiled
    if isinstance(source, PairTable):
        return float(over_pairs(*source.edges(), rows.read(Block(0, 0, n)), value, parameter))
    ensemble = source
    if not constant:
        if chosen.label != "l2":
            raise InvalidInputError(
                f"constant=False with divergence={chosen.label!r}; only 'l2' has such a constant."
            )
        counted = None if weights is None else Weights.of(weights, ensemble.offsets)

        def sums_of_block(block: Block) -> Any:
            labels = ensemble.read(block.start, block.stop)
            return agreement_sums(labels, ensemble.offsets, rows.read(block).astype(np.float32), counted)

        with open_engine(client) as engine:
            return float(fold(engine, ensemble.blocks(), sums_of_block, add_sums).objective)
    if n > 50_000:  # a pair takes about 20 + M ns: a minute or two
        raise InvalidInputError(
            f"n_objects={n} makes {n * (n - 1) // 2:.3g} pairs, too many to visit; pass constant=False (l2), "
            "or a sampled PairTable."
        )
    labels, all_rows = ensemble.read(0, n), rows.read(Block(0, 0, n))
    side = 512  # of a tile of the n x n square, so that two blocks of labels stay in the cache

    def value_of_tiles(block: Block) -> float:
        return float(over_tile(labels, all_rows, block.start, block.stop, side, value, parameter))

    with open_engine(client) as engine:
        return fold(engine, row_blocks(n, side), value_of_tiles, lambda a, b: a + b)
