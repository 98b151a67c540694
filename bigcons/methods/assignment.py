"""Batch assignment of objects to clusters by sums of table rows: iterative voting, QMI, k-means on labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.kernels.cluster_tables import assign, count_assigned, padded
from bigcons.memory import Block
from bigcons.progress import progress
from bigcons.run.passes import Record, Run, State, Stats
from bigcons.run.starts import Counts
from bigcons.seeding import generator
from bigcons.weights import Weights, counts_of

FirstClusters = Callable[[np.ndarray, int, int, int], np.ndarray]
"""The clusters (rows,) of a start, by labels (rows, M), the number of clusters, the seed and the start."""

CERTAINTY = 0.9
"""The weight of the base partition in a start of probabilities; the rest is spread over all clusters."""


class TableProblem(ABC):
    """Batch assignment: a pass moves every object to its best cluster under fixed tables.

    The tables of the next pass follow from ``T`` (B, K), the number of objects of base cluster ``b`` in
    cluster ``k``, and the sizes (K,). A subclass defines how, and the objective. Scores are multiplied by the
    weights of the partitions, if there are any. Between clusters of equal score an object stays where it is;
    a new one joins that of lowest number.
    """

    n_carried = 1
    carried_dtype = "<i4"
    lower_is_better = True

    def __init__(
        self, name: str, offsets: np.ndarray, n_clusters: int, weights: Weights | None = None
    ) -> None:
        self.name = name
        self.offsets = offsets
        self.n_clusters = n_clusters
        self.weights = weights
        self.first: FirstClusters = first_partition

    def counted(self, labels: np.ndarray) -> np.ndarray:
        """Return labels with those of partitions of weight 0 missing."""
        return labels if self.weights is None else self.weights.counted(labels)

    @abstractmethod
    def table(self, T: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the scores (B, K) of the clusters for a label of each base cluster; the highest sum wins."""

    @abstractmethod
    def objective(self, stats: Stats) -> float:
        """Return the objective of the assignment made by a pass."""

    def state(self, T: np.ndarray, sizes: np.ndarray) -> State:
        """Return the state from counts: padded tables, and biases that exclude empty clusters."""
        table = np.zeros((self.offsets[-1], padded(self.n_clusters)))
        table[:, : self.n_clusters] = self.table(T[:, : self.n_clusters], sizes)
        if self.weights is not None:
            table *= self.weights.base_clusters[:, None]
        return {"table": table, "bias": np.where(sizes > 0, 0.0, -np.inf)}

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, np.ndarray]:
        """Return the state of the first clusters, and these."""
        labels = self.counted(labels)
        assigned = self.first(labels, self.n_clusters, seed, number)
        T, sizes = self._zeros()
        count_assigned(labels, self.offsets, assigned, T, sizes)
        return self.state(T, sizes), assigned[:, None]

    def state_of_counts(self, counts: np.ndarray, sizes: np.ndarray) -> State:
        """Return the state of clusters with so many objects of each base cluster (B, K) and in all (K,)."""
        return self.state(counts, sizes)

    def for_all(self, state: State) -> State:
        """Return the state itself."""
        return state

    def visit(
        self, state: State, labels: np.ndarray, carried: np.ndarray | None = None
    ) -> tuple[Stats, np.ndarray]:
        """Assign the objects of a block and count their new clusters."""
        labels = self.counted(labels)
        rows = labels.shape[0]
        current = np.full(rows, -1, np.int32) if carried is None else np.ascontiguousarray(carried[:, 0])
        assigned = np.empty(rows, np.int32)
        T, sizes = self._zeros()
        totals = np.zeros(4)
        assign(labels, self.offsets, state["table"], state["bias"], current, assigned, T, sizes, totals)
        return {"T": T, "sizes": sizes, "totals": totals}, assigned[:, None]

    def finish(self, _state: State, stats: Stats) -> tuple[State, Record]:
        """Return the tables of the new clusters, and their objective."""
        _, moved, _, n_labeled = stats["totals"].tolist()
        record = {
            "objective": self.objective(stats),
            "moved": moved,
            "moved_share": moved / n_labeled,
        }
        return self.state(stats["T"], stats["sizes"]), record

    def is_settled(self, _previous: Record | None, record: Record, tol: float) -> bool:
        """Return whether at most a share ``tol`` of the objects moved."""
        return record["moved_share"] <= tol

    def results(self, state: State, labels: np.ndarray, carried: np.ndarray | None) -> np.ndarray:
        """Return the clusters of a block."""
        if carried is None:
            _, carried = self.visit(state, labels)
        return carried[:, 0]

    def _zeros(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros((self.offsets[-1], padded(self.n_clusters))), np.zeros(self.n_clusters)


def shares(T: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the label frequencies ``f_kj(l)`` of the clusters, (B, K): among the members that partition
    ``j`` labeled, 0 where it labeled none.
    """
    observed = np.add.reduceat(T, offsets[:-1], axis=0)
    return T / np.repeat(np.where(observed > 0, observed, 1.0), np.diff(offsets), axis=0)


def row_keys(labels: np.ndarray) -> np.ndarray:
    """Return the bytes of each row of labels (rows, M) as one sortable item, (rows,)."""
    labels = np.ascontiguousarray(labels)
    return labels.view(np.dtype((np.void, labels.dtype.itemsize * labels.shape[1])))[:, 0]


def expected_counts(
    labels: np.ndarray, offsets: np.ndarray, clusters: np.ndarray, n_clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return `counts_of` with nine tenths of every object in its cluster and the rest spread evenly.

    Objects of cluster -1 are spread over all clusters evenly. The sizes are those of ``clusters``.
    """
    counts, sizes = counts_of(labels, offsets, clusters, n_clusters)
    everyone, _ = counts_of(labels, offsets, np.zeros_like(clusters), 1)
    return spread(counts, everyone), sizes


def spread(counts: np.ndarray, everyone: np.ndarray) -> np.ndarray:
    """Return counts (B, K) with nine tenths of their weight, the rest of everyone (B, 1) spread evenly."""
    certain = CERTAINTY * counts
    return certain + (everyone - certain.sum(axis=1, keepdims=True)) / counts.shape[1]


def first_partition(labels: np.ndarray, n_clusters: int, seed: int, number: int) -> np.ndarray:
    """Return clusters (rows,) int32 of the objects of ``labels`` (rows, M), -1 where undecided; O(rows M).

    Partitions in random order are intersected until there are ``n_clusters`` groups or no partition is left.
    The largest groups become the clusters; the objects of the others stay undecided. If the first partition
    has enough clusters, this is a base partition chosen at random, as Nguyen and Caruana (2007) advise; with
    fewer, clusters would stay empty forever. M consecutive starts all begin with different partitions.
    """
    return clusters_by(labels, partition_rule(labels, n_clusters, seed, number))


def random_clusters(labels: np.ndarray, n_clusters: int, seed: int, number: int) -> np.ndarray:
    """Return random clusters (rows,) int32 of the objects of ``labels`` (rows, M)."""
    return generator(seed, "start.random", number).integers(n_clusters, size=len(labels), dtype=np.int32)


def given_clusters(init: Any, n_objects: int, n_clusters: int, names: str) -> np.ndarray:
    """Return clusters (n_objects,) int32 that a caller gives; ``names`` are the other values of ``init``."""
    given = np.array(init)
    if (
        given.shape != (n_objects,)
        or given.dtype.kind not in "iu"
        or given.min() < -1
        or given.max() >= n_clusters
    ):
        raise InvalidInputError(
            f"init has shape {given.shape} and type {given.dtype}; pass {names} or {n_objects} integer "
            f"labels from 0 to {n_clusters - 1}, -1 where there is none."
        )
    return given.astype(np.int32)


def count_given(
    clusters: np.ndarray, n_clusters: int, weights: Weights | None, run: Run, *, writes: bool = False
) -> Counts:
    """Return the counts of given clusters (n,) of all objects; ``writes``: they become their first rows."""
    data, arrays = run.data, run.arrays

    def of_block(part: tuple[Block, np.ndarray]) -> Counts:
        block, own = part
        if writes:
            arrays.write(0, block, own[:, None])
        return counts_of(data.read(block.start, block.stop), data.offsets, own, n_clusters, weights)

    parts = [(block, clusters[block.start : block.stop]) for block in run.blocks]
    total = np.zeros((int(data.offsets[-1]), n_clusters)), np.zeros(n_clusters)
    with (
        closing(run.engine.map(of_block, parts)) as found,
        progress("count the given clusters", data.n_objects) as listener,
    ):
        for (block, _), (counts, sizes) in zip(parts, found, strict=True):
            total[0][...] += counts
            total[1][...] += sizes
            listener.advance(block.n_rows)
    return total


PartitionRule = list[tuple[int, np.ndarray]]
"""Partitions, each with the group (groups so far, labels) that a group and a label lead to, -1 for none."""


def partition_rule(labels: np.ndarray, n_clusters: int, seed: int, number: int) -> PartitionRule:
    """Return how `first_partition` finds the cluster of an object, as a rule for objects of further rows."""
    rule: PartitionRule = []
    groups, n_groups = np.zeros(labels.shape[0], np.int64), 1
    for u in partition_order(labels.shape[1], seed, number):
        column = labels[:, u].astype(np.int64)
        n_labels = int(np.max(column)) + 1
        refined = groups * n_labels + column
        refined[(column < 0) | (groups < 0)] = -1
        found = np.unique(refined[refined >= 0])
        if not found.size:
            continue  # no object that is left has a label here
        table = np.full(n_groups * n_labels + 1, -1, np.int64)  # the last entry is that of group -1
        table[found] = np.arange(found.size)
        groups, n_groups = table[refined], found.size
        rule.append((int(u), table[:-1].reshape(-1, n_labels)))
        if n_groups >= n_clusters:
            break
    if rule:
        sizes = np.bincount(groups[groups >= 0])
        largest = np.argsort(-sizes, kind="stable")[:n_clusters]
        cluster = np.full(n_groups + 1, -1, np.int64)
        cluster[np.sort(largest)] = np.arange(largest.size)
        rule[-1] = (rule[-1][0], cluster[rule[-1][1]])
    return rule


def clusters_by(labels: np.ndarray, rule: PartitionRule) -> np.ndarray:
    """Return the clusters (rows,) int32 that a rule gives objects, -1 where it has none."""
    groups = np.zeros(labels.shape[0], np.int64)
    for u, table in rule:
        column = labels[:, u].astype(np.int64)
        known = (groups >= 0) & (column >= 0) & (column < table.shape[1])
        groups[known] = table[groups[known], column[known]]
        groups[~known] = -1
    return groups.astype(np.int32)


def partition_order(n_partitions: int, seed: int, number: int) -> np.ndarray:
    """Return the partitions in the random order of a start, each of M starts beginning with another."""
    first = generator(seed, "start.first").permutation(n_partitions)[number % n_partitions]
    order = generator(seed, "start.partition", number).permutation(n_partitions)
    return np.concatenate(([first], order[order != first]))
