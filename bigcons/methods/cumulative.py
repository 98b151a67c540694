"""Cumulative voting: every base cluster spreads its vote over the clusters of a reference partition.

Ayad and Kamel, "Cumulative voting consensus method for partitions with variable number of clusters", 2008: a
reconstruction from the abstract and descriptions by others; the docstrings say what was filled in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from scipy.special import xlogy

from bigcons.coassociation.factorized import Weights
from bigcons.coassociation.linkage import agglomerate, cut
from bigcons.execution.engine import Engine, fold, one_thread
from bigcons.memory import Block, row_blocks
from bigcons.overlaps.eigenvectors import fold_groups, groups_of
from bigcons.overlaps.incidence import (
    check_overlaps_plan,
    fold_overlaps,
    fold_sizes,
    one_hot,
    shares,
    votes_of,
)
from bigcons.overlaps.sparse import both_triangles, estimated_pairs, sparse_overlaps, takes_sparse
from bigcons.progress import progress
from bigcons.seeding import SeedLike
from bigcons.solving.estimator import MethodInfo, SoftPredictingClusterer
from bigcons.solving.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.solving.output import Output
from bigcons.solving.results import renumbered
from bigcons.solving.survey import take_survey
from bigcons.stores.ensemble import Ensemble
from bigcons.validation import check_choice

# Divergences of more clusters than this in the reference are measured on so many objects.
MANY_COLUMNS, SAMPLED_OBJECTS = 64, 4096


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
        Seed of the objects that stand for all where the reference has more than 64 clusters; else not used:
        of partitions of equal entropy the first comes first.
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
    O(n M^2 + B^2 k + n M k + n k^2) time for B base clusters and k in the reference, O(B^2) memory. Of more
    than 5,000 base clusters "rcv" and "urcv" count overlaps with the reference alone, in O(B k) memory, and
    "acv" keeps the pairs that overlap. If the reference has more than 64 clusters, their divergences are
    approximate: those on 4,096 random objects.

    References
    ----------
    Ayad and Kamel (2008), *Cumulative voting consensus method for partitions with variable number of
    clusters*, IEEE Transactions on Pattern Analysis and Machine Intelligence 30.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.CumulativeVoting(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
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
        name, is_fine, offsets = "CumulativeVoting", takes_sparse(ensemble), ensemble.offsets
        if not is_fine:
            plan: dict[str, Any] = {"columns": columns, "in_memory": False, "held": held}
            check_overlaps_plan(name, ensemble, engine, self.memory, **plan)
        elif self.variant != "acv":
            check_reference_plan(name, ensemble, engine, self.memory, held)
        self._weights = Weights.given(self.weights, offsets)
        n_sampled = SAMPLED_OBJECTS if ensemble.n_clusters.max() > MANY_COLUMNS else 0
        survey = take_survey(ensemble, engine, seed, n_sampled, self._partition_weights())
        overlaps: Any = None
        if not is_fine:
            overlaps = fold_overlaps(ensemble, engine)
            sizes = np.diag(overlaps)
        elif self.variant == "acv":
            plan = {"columns": columns, "in_memory": out is None}
            n_pairs = estimated_pairs(ensemble, engine)
            overlaps = both_triangles(sparse_overlaps(name, ensemble, engine, self.memory, n_pairs, **plan))
            sizes = overlaps.diagonal()
        else:
            sizes = fold_sizes(ensemble, engine, lambda labels: np.ones(len(labels)))
        order = by_decreasing_entropy(sizes, offsets)
        times = np.ones(len(sizes))
        if self._weights is not None:
            order, times = order[self._weights.partitions[order] > 0], self._weights.base_clusters
        self.reference_: int = int(order[0])
        if self.variant == "acv":
            self.votes_: np.ndarray = adaptive_votes(overlaps, offsets, order, times)
        else:
            own = slice(offsets[self.reference_], offsets[self.reference_ + 1])
            counts = fold_reference(ensemble, engine, self.reference_) if is_fine else overlaps[:, own]
            counts = counts * (times > 0)[:, None]
            self.votes_ = counts if self.variant == "urcv" else row_shares(counts)
        del overlaps
        votes = times[:, None] * self.votes_
        sample = survey.sample if self.votes_.shape[1] > MANY_COLUMNS else None
        merged = self._merge_columns(ensemble, engine, votes, sample)
        table = votes @ one_hot(merged, self.n_clusters)
        if self.prior == "equal":
            table = column_shares(table, sizes)
        self._table: np.ndarray = table
        place = self._placer()

        def read(block: Block) -> np.ndarray:
            return place(ensemble.read(block.start, block.stop))

        self._publish(ensemble, read, survey.unlabeled, out, engine)
        self.merged_: np.ndarray = renumbered(merged, self._order)

    _placed_by = ("_table",)

    def _placer(self) -> Callable[[np.ndarray], np.ndarray]:
        offsets, table = self._recoding.offsets, self._table
        return lambda labels: shares(votes_of(labels, offsets, table)[0])

    def _merge_columns(
        self, ensemble: Ensemble, engine: Engine, votes: np.ndarray, sample: np.ndarray | None
    ) -> np.ndarray:
        """Return the cluster (k,) int32 of each cluster of the reference; set the cost of merging them."""
        k, heights = self.votes_.shape[1], np.empty(0)
        self.n_passes_: int = 1
        merged = np.arange(k, dtype=np.int32)
        if k > self.n_clusters:
            merges = agglomerate(fold_divergences(ensemble, engine, votes, sample), "average")
            heights = merges.heights[: k - self.n_clusters]
            merged = cut(merges, k, self.n_clusters)
            self.n_passes_ = 2
        costs = np.append(0.0, np.cumsum(heights)).tolist()
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
    partition = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    shares_of_labels = sizes / np.bincount(partition, sizes)[partition]
    entropies = np.bincount(partition, -xlogy(shares_of_labels, shares_of_labels))
    return np.argsort(-entropies.round(10), kind="stable")  # rounding errors break no ties


def row_shares(counts: np.ndarray) -> np.ndarray:
    """Return the rows of a table divided by their sums, float64; rows of zeros stay."""
    totals = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)


def column_shares(table: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return a table of votes (B, K) with columns divided by their sums over all objects; zeros stay."""
    totals = sizes @ table
    return np.divide(table, totals, out=np.zeros_like(table), where=totals > 0)


def check_reference_plan(
    name: str, ensemble: Ensemble, engine: Engine, memory: str | float | None, held: int
) -> None:
    """Log the memory of overlaps with one partition only, and refuse a budget that cannot hold it."""
    k = -(-int(ensemble.n_clusters.max()) // 8) * 8
    table, rows = 8 * ensemble.n_base_clusters * k, ensemble.chunk_rows
    sample = 2 * label_bytes(ensemble, SAMPLED_OBJECTS)
    held += 4 * table + 16 * k * k + sample
    per_block = table + block_label_bytes(ensemble) + 24 * rows * (k + 1)
    plan = MemoryPlan(held, per_block, max(table, 12 * rows))
    plan.check(name, engine, ensemble, memory, f" for votes of {ensemble.n_base_clusters} base clusters")


def fold_reference(ensemble: Ensemble, engine: Engine, reference: int) -> np.ndarray:
    """Return the overlaps (B, k) of base clusters with those of one partition, in one pass over labels."""
    from bigcons.kernels.cluster_tables import count_assigned

    offsets, k = ensemble.offsets, int(ensemble.n_clusters[reference])

    shape = int(offsets[-1]), -(-k // 8) * 8

    def counts_of(group: Sequence[Block]) -> np.ndarray:
        counts = np.zeros(shape)
        for block in group:
            labels = ensemble.read(block.start, block.stop)
            own = np.ascontiguousarray(labels[:, reference], np.int32)
            count_assigned(labels, offsets, own, counts, np.zeros(k))
        return counts

    groups = groups_of(ensemble, shape[0] * shape[1] // 8)
    total = fold_groups("overlaps with the reference", ensemble, engine, groups, counts_of)
    return np.ascontiguousarray(total[:, :k])


def adaptive_votes(overlaps: Any, offsets: np.ndarray, order: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the votes (B, k) of base clusters, each partition mapped to the votes of those before it.

    The summed votes so far on the objects of a base cluster are those of the base clusters that voted, each
    times its overlap and weight; votes sum to 1, so this is also the number of votes cast. The second of two
    copies of a partition would vote as the first.
    """
    k = int(offsets[order[0] + 1] - offsets[order[0]])
    votes = np.zeros((overlaps.shape[0], k))
    votes[offsets[order[0]] : offsets[order[0] + 1]] = np.eye(k)
    with one_thread():
        for u in order[1:]:
            own = slice(offsets[u], offsets[u + 1])
            votes[own] = row_shares(overlaps[own] @ (times[:, None] * votes))
    return votes


def fold_divergences(
    ensemble: Ensemble, engine: Engine, table: np.ndarray, sample: np.ndarray | None = None
) -> np.ndarray:
    """Return the Jensen-Shannon divergences of the columns of the mean votes by ``table`` (B, k), in bits.

    Condensed, (k (k - 1) / 2,) float64; one pass, O(n k (M + k)) time, or over the labels of a ``sample``.
    """
    offsets = ensemble.offsets

    def sums_of(block: Block) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(block.start, block.stop)
        labels = ensemble.read(block.start, block.stop) if sample is None else sample[rows]
        memberships = row_shares(votes_of(labels, offsets, table)[0])
        return memberships.sum(axis=0), pair_sums(memberships)

    with progress("divergences of clusters", ensemble.n_objects) as listener:
        sizes, joint = fold(
            engine,
            ensemble.blocks() if sample is None else row_blocks(len(sample), 512),
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
    return np.maximum(found, 0.0).round(10)  # rounding errors break no ties
