"""Methods that assign every object to one cluster by the sum of table rows: IVC, IPVC, QMI and their kin."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from bigcons.kernels.cluster_tables import LABELED, MOVED, N_TOTALS, assign, count_assigned, padded
from bigcons.seeding import generator
from bigcons.solving.passes import Record, State, Stats


class TableProblem(ABC):
    """Batch assignment: a pass moves every object to its best cluster under tables that stay as they are.

    The tables of the next pass follow from ``T`` (B, K), how often cluster ``k`` met base cluster ``b``, and
    the sizes (K,). A subclass says how, and what the clusters it ends with cost.
    """

    n_carried = 1
    carried_dtype = "<i4"
    lower_is_better = True

    def __init__(self, name: str, offsets: np.ndarray, n_clusters: int) -> None:
        self.name = name
        self.offsets = offsets
        self.n_clusters = n_clusters

    @abstractmethod
    def table(self, T: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return what a label of base cluster ``b`` says for each cluster, (B, K); the highest sum wins."""

    @abstractmethod
    def objective(self, stats: Stats) -> float:
        """Return the objective of the assignment that a pass has made."""

    def state(self, T: np.ndarray, sizes: np.ndarray) -> State:
        """Return the state that follows from counts: padded tables, and who may win objects at all."""
        table = np.zeros((self.offsets[-1], padded(self.n_clusters)))
        table[:, : self.n_clusters] = self.table(T[:, : self.n_clusters], sizes)
        return {"table": table, "bias": np.where(sizes > 0, 0.0, -np.inf)}

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, np.ndarray]:
        """Return the state of a partition taken from the ensemble, and that partition."""
        assigned = first_partition(labels, self.n_clusters, seed, number)
        T, sizes = self._zeros()
        count_assigned(labels, self.offsets, assigned, T, sizes)
        return self.state(T, sizes), assigned[:, None]

    def for_all(self, state: State) -> State:
        """Return the state itself."""
        return state

    def visit(self, state: State, labels: np.ndarray, carried: np.ndarray | None) -> tuple[Stats, np.ndarray]:
        """Assign the objects of a block and count their new clusters."""
        rows = labels.shape[0]
        current = np.full(rows, -1, np.int32) if carried is None else np.ascontiguousarray(carried[:, 0])
        assigned = np.empty(rows, np.int32)
        T, sizes = self._zeros()
        totals = np.zeros(N_TOTALS)
        assign(labels, self.offsets, state["table"], state["bias"], current, assigned, T, sizes, totals)
        return {"T": T, "sizes": sizes, "totals": totals}, assigned[:, None]

    def finish(self, _state: State, stats: Stats) -> tuple[State, Record]:
        """Return the tables of the clusters as they are now, and what these cost."""
        totals = stats["totals"]
        record = {
            "objective": self.objective(stats),
            "moved": float(totals[MOVED]),
            "moved_share": float(totals[MOVED] / totals[LABELED]),
        }
        return self.state(stats["T"], stats["sizes"]), record

    def is_settled(self, _previous: Record | None, record: Record, tol: float) -> bool:
        """Stop once no more than a share ``tol`` of the objects moved."""
        return record["moved_share"] <= tol

    def results(self, state: State, labels: np.ndarray, carried: np.ndarray | None) -> np.ndarray:
        """Return the clusters of a block."""
        if carried is not None:
            return carried[:, 0]
        _, assigned = self.visit(state, labels, None)
        return assigned[:, 0]

    def _zeros(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros((self.offsets[-1], padded(self.n_clusters))), np.zeros(self.n_clusters)


def shares(T: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the label frequencies ``f_kj(l)`` of the clusters, (B, K): among the members that partition
    ``j`` labeled, 0 where it labeled none.
    """
    observed = np.add.reduceat(T, offsets[:-1], axis=0)
    return T / np.repeat(np.where(observed > 0, observed, 1.0), np.diff(offsets), axis=0)


def first_partition(labels: np.ndarray, n_clusters: int, seed: int, number: int) -> np.ndarray:
    """Return clusters (rows,) int32 of the objects of ``labels`` (rows, M), -1 where undecided; O(rows M).

    Partitions in random order are laid over one another until their overlaps form ``n_clusters`` groups or
    none is left; the largest groups become the clusters, the objects of the others stay undecided. If the
    first has enough clusters of its own this is one base partition picked at random, as Nguyen and Caruana
    (2007) advise; with fewer, clusters would stay empty for ever. No two of M starts have the same first.
    """
    groups = np.zeros(labels.shape[0], np.int64)
    for u in _order(labels.shape[1], seed, number):
        column = labels[:, u].astype(np.int64)
        refined = groups * (int(column.max()) + 1) + column
        refined[(column < 0) | (groups < 0)] = -1
        found, numbered = np.unique(refined, return_inverse=True)
        if found[-1] < 0:
            continue  # no object that is left has a label here
        groups = numbered - (1 if found[0] < 0 else 0)
        if groups.max() + 1 >= n_clusters:
            break
    sizes = np.bincount(groups[groups >= 0])
    largest = np.argsort(-sizes, kind="stable")[:n_clusters]
    cluster = np.full(sizes.size + 1, -1, np.int32)  # the last entry is that of group -1
    cluster[np.sort(largest)] = np.arange(largest.size)
    return cluster[groups]


def _order(n_partitions: int, seed: int, number: int) -> np.ndarray:
    """Return the partitions in a random order of the start that begins with one of its own."""
    first = generator(seed, "start.first").permutation(n_partitions)[number % n_partitions]
    order = generator(seed, "start.partition", number).permutation(n_partitions)
    return np.concatenate(([first], order[order != first]))
