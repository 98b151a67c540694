"""Cumulative voting: every base cluster spreads its vote over the clusters of a reference partition.

Ayad and Kamel, "Cumulative voting consensus method for partitions with variable number of clusters", 2008: a
reconstruction from the abstract and descriptions by others; the docstrings say what was filled in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from scipy.special import xlogy

from bigcons.coassociation.factorized import Weights
from bigcons.coassociation.linkage import agglomerate, cut
from bigcons.execution.engine import Engine, fold
from bigcons.memory import Block
from bigcons.overlaps.eigenvectors import one_thread
from bigcons.overlaps.incidence import (
    check_overlaps_plan,
    fold_overlaps,
    one_hot,
    partition_of_clusters,
    shares,
    votes_of,
)
from bigcons.progress import progress
from bigcons.seeding import SeedLike
from bigcons.solving.estimator import MethodInfo, SoftPredictingClusterer
from bigcons.solving.results import renumbered
from bigcons.solving.survey import take_survey
from bigcons.solving.workspace import Output
from bigcons.stores.ensemble import Ensemble
from bigcons.validation import check_choice

# Entropies and divergences are rounded to this many decimals, so that rounding errors do not break ties.
DECIMALS = 10


class CumulativeVoting(SoftPredictingClusterer):
    """Map the clusters of all partitions to those of a reference, average the votes, merge similar columns.

    The reference is the partition of highest entropy. A base cluster votes for the clusters of the reference
    in proportion to its objects in them, and an object belongs to these by the mean vote of its clusters. If
    the reference has more than ``n_clusters`` clusters, the most similar ones are merged.

    Parameters
    ----------
    n_clusters : int, default=8
        Maximum number of clusters; columns beyond those of the reference stay empty.
    variant : {"rcv", "acv", "urcv"}, default="rcv"
        What partitions are mapped to. "rcv": the reference itself. "acv": the mean of the votes so far, in
        order of decreasing entropy. "urcv": the reference, with numbers of objects as votes instead of
        shares, so that large clusters count for more (our reading of the paper's un-normalized voting).
    prior : {"sizes", "equal"}, default="sizes"
        Prior probability of the clusters. "sizes", the published method: mean votes are the probabilities of
        the clusters given the object. Where mapped clusters are mixtures, the votes of all objects approach
        the sizes of the clusters, and the largest cluster wins most of them. "equal", ours: columns are first
        divided by their sums over all objects, so that an object joins the cluster that it votes for more
        than others do. On three planted ensembles of noisy partitions the adjusted Rand
        index with "sizes" was 0.87 to 0.94 for "rcv", 0.18 to 0.36 for "acv" and 0.64 to 0.75 for "urcv";
        with "equal" it was 0.94 to 0.97 for all three (``benchmarks/methods.py --planted``).
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times;
        0 leaves it out. None: all count the same.
    random_state : int, RandomState, Generator or None, default=None
        Not used: nothing is random; of partitions of equal entropy the first comes first.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects without any label
    memberships_ : (n_objects, n_clusters) float32
        Votes divided by their sum; with ``prior="equal"`` columns are first divided by theirs.
    reference_ : index of the reference partition
    votes_ : (n_base_clusters, n_reference_clusters) float64, the votes of every base cluster; zeros if it
        shares no object with what it is mapped to, or has weight 0
    merged_ : (n_reference_clusters,) int32, the consensus cluster that contains each reference cluster
    objective_ : sum of the Jensen-Shannon divergences, in bits, at which reference clusters were merged
    history_ : the number of clusters and the objective, before the first merge and after each

    Notes
    -----
    The mapping of a partition E to U is the least-squares ``W = (E^T E)^-1 E^T U`` over the objects that both
    label. With missing labels, the mean for "acv" weights an object by the number of its votes so far (our
    reading): sums of votes over a cluster then follow from the overlaps of base clusters, without a pass for
    every partition. Without missing labels nothing differs. Base clusters that share no object with the
    reference do not vote under "rcv" and "urcv"; an object without votes has uniform memberships and label 0.

    The divergence of two columns of the mean vote is that of their distributions over the objects, weighted
    by the columns' sums; columns merge by average linkage. Three passes, and one more if clusters are merged:
    O(n M^2 + B^2 k + n M k + n k^2) time for B base clusters and k in the reference, O(B^2) memory.

    References
    ----------
    Ayad and Kamel (2008), *Cumulative voting consensus method for partitions with variable number of
    clusters*, IEEE Transactions on Pattern Analysis and Machine Intelligence 30.
    """

    info: ClassVar[MethodInfo] = MethodInfo("Ayad and Kamel 2008", "base-cluster overlaps", soft=True)

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        variant: str = "rcv",
        prior: str = "sizes",
        weights: Any = None,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(n_clusters, random_state=random_state, memory=memory, out=out, client=client)
        self.variant = variant
        self.prior = prior
        self.weights = weights

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("variant", self.variant, ("rcv", "acv", "urcv"))
        check_choice("prior", self.prior, ("sizes", "equal"))
        columns = max(self.n_clusters, int(ensemble.n_clusters.max()))
        held = 8 * ensemble.n_objects * self.n_clusters if out is None else 0
        check_overlaps_plan(
            "CumulativeVoting", ensemble, engine, self.memory, columns=columns, in_memory=False, held=held
        )
        self._weights = Weights.given(self.weights, ensemble.offsets)
        survey = take_survey(ensemble, engine, seed, 0, self._partition_weights())
        overlaps, offsets = fold_overlaps(ensemble, engine), ensemble.offsets
        sizes = np.diag(overlaps)
        order = by_decreasing_entropy(sizes, offsets)
        times = np.ones(len(sizes))
        if self._weights is not None:
            order, times = order[self._weights.partitions[order] > 0], self._weights.base_clusters
        self.reference_: int = int(order[0])
        self.votes_: np.ndarray = cumulative_votes(overlaps, offsets, order, times, self.variant)
        votes = times[:, None] * self.votes_
        merged = self._merge_columns(ensemble, engine, votes)
        table = votes @ one_hot(merged, self.n_clusters)
        if self.prior == "equal":
            table = column_shares(table, sizes)
        self._table: np.ndarray = table
        place = self._placer()

        def read(block: Block) -> np.ndarray:
            return place(ensemble.read(block.start, block.stop))

        self._publish(ensemble, read, survey.unlabeled, out, engine)
        self.merged_: np.ndarray = renumbered(merged, self._order)

    def _placer(self) -> Callable[[np.ndarray], np.ndarray]:
        offsets, table = self._recoding.offsets, self._table
        return lambda labels: shares(votes_of(labels, offsets, table)[0])

    def _merge_columns(self, ensemble: Ensemble, engine: Engine, votes: np.ndarray) -> np.ndarray:
        """Return the cluster (k,) int32 of each cluster of the reference; set the cost of merging them."""
        k, heights = self.votes_.shape[1], np.empty(0)
        self.n_passes_: int = 1
        merged = np.arange(k, dtype=np.int32)
        if k > self.n_clusters:
            merges = agglomerate(fold_divergences(ensemble, engine, votes), "average")
            heights = merges.heights[: k - self.n_clusters]
            merged = cut(merges, k, self.n_clusters)
            self.n_passes_ = 2
        costs = np.append(0.0, heights.cumsum()).tolist()
        self.objective_: float = costs[-1]
        self.history_: dict[str, list[Any]] = {
            "n_clusters": [k - merged for merged in range(len(costs))],
            "objective": costs,
        }
        return merged


def by_decreasing_entropy(sizes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the partitions (M,) by the entropy of their labels, the highest first.

    sizes (B,) of the base clusters; of equal entropies the lowest partition is first.
    """
    partition = partition_of_clusters(offsets)
    shares_of_labels = sizes / np.bincount(partition, sizes)[partition]
    entropies = np.bincount(partition, -xlogy(shares_of_labels, shares_of_labels))
    return np.argsort(-entropies.round(DECIMALS), kind="stable")


def row_shares(counts: np.ndarray) -> np.ndarray:
    """Return the rows of a table divided by their sums, float64; rows of zeros stay."""
    totals = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)


def column_shares(table: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return a table of votes (B, K) with columns divided by their sums over all objects; zeros stay."""
    totals = sizes @ table
    return np.divide(table, totals, out=np.zeros_like(table), where=totals > 0)


def cumulative_votes(
    overlaps: np.ndarray, offsets: np.ndarray, order: np.ndarray, times: np.ndarray, variant: str
) -> np.ndarray:
    """Return the votes (B, k) of base clusters for those of the first partition of ``order``.

    ``times`` (B,) are the weights of the base clusters; those of weight 0 do not vote.
    """
    if variant == "acv":
        return adaptive_votes(overlaps, offsets, order, times)
    counts = overlaps[:, offsets[order[0]] : offsets[order[0] + 1]] * (times > 0)[:, None]
    return counts if variant == "urcv" else row_shares(counts)


def adaptive_votes(
    overlaps: np.ndarray, offsets: np.ndarray, order: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """Return the votes (B, k) of base clusters, each partition mapped to the votes of those before it.

    The summed votes so far on the objects of a base cluster are those of the base clusters that voted, each
    times its overlap and weight; votes sum to 1, so this is also the number of votes cast. The second of two
    copies of a partition would vote as the first.
    """
    k = int(offsets[order[0] + 1] - offsets[order[0]])
    votes = np.zeros((len(overlaps), k))
    votes[offsets[order[0]] : offsets[order[0] + 1]] = np.eye(k)
    with one_thread():
        for u in order[1:]:
            own = slice(offsets[u], offsets[u + 1])
            votes[own] = row_shares(overlaps[own] @ (times[:, None] * votes))
    return votes


def fold_divergences(ensemble: Ensemble, engine: Engine, table: np.ndarray) -> np.ndarray:
    """Return the Jensen-Shannon divergences of the columns of the mean votes by ``table`` (B, k), in bits.

    Condensed, (k (k - 1) / 2,) float64; one pass, O(n k (M + k)) time.
    """
    offsets = ensemble.offsets

    def sums_of(block: Block) -> tuple[np.ndarray, np.ndarray]:
        labels = ensemble.read(block.start, block.stop)
        memberships = row_shares(votes_of(labels, offsets, table)[0])
        return memberships.sum(axis=0), pair_sums(memberships)

    with progress("divergences of clusters", ensemble.n_objects) as listener:
        sizes, joint = fold(
            engine,
            ensemble.blocks(),
            sums_of,
            lambda a, b: (a[0] + b[0], a[1] + b[1]),
            progress=listener,
        )
    return divergences(sizes, joint)


def pair_sums(memberships: np.ndarray) -> np.ndarray:
    """Return the summed ``x log x`` of the sum of any two columns (k, k), of each column on the diagonal.

    memberships (rows, k) float64; what is below the diagonal stays zero.
    """
    k = memberships.shape[1]
    joint = np.zeros((k, k))
    for q in range(k):
        column = memberships[:, q : q + 1]
        joint[q, q] = xlogy(column, column).sum()
        both = column + memberships[:, q + 1 :]
        joint[q, q + 1 :] = xlogy(both, both).sum(axis=0)
    return joint


def divergences(sizes: np.ndarray, joint: np.ndarray) -> np.ndarray:
    """Return the divergences, condensed and in bits, from the columns' sums (k,) and `pair_sums`.

    With the columns' shares of their common sum as weights: the entropy of the merged column less the mean
    entropy of the two. A column of sum s has ``s`` times its entropy ``s log s - sum x log x``.
    """
    q, r = np.triu_indices(len(sizes), 1)
    alone = xlogy(sizes, sizes) - np.diag(joint)
    both = sizes[q] + sizes[r]
    found = (xlogy(both, both) - joint[q, r] - alone[q] - alone[r]) / (both * np.log(2))
    return np.maximum(found, 0.0).round(DECIMALS)
