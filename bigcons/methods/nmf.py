"""NMF consensus of Li, Ding and Jordan (2007): the co-association, factorized without forming it."""

from __future__ import annotations

import os
from typing import ClassVar, Literal

import numpy as np

from bigcons.kernels.cluster_tables import count_shares, in_whole_vectors, padded
from bigcons.kernels.nmf import multiply_rows, place_rows
from bigcons.overlaps.n_clusters import ChoosingClusterer
from bigcons.seeding import SeedLike
from bigcons.solving.assignment import CERTAINTY, first_partition
from bigcons.solving.estimator import MethodInfo
from bigcons.solving.pass_clusterer import SoftPassClusterer
from bigcons.solving.passes import Record, State, Stats
from bigcons.solving.starts import gains_little
from bigcons.stores.ensemble import Ensemble


class NMFProblem:
    """``C ~ Q S Q'`` with ``C = N^(-1/2) H H' N^(-1/2)``, by multiplicative updates.

    H (n, B) says which base clusters objects are in, N on its diagonal of how many labels they have. Objects
    carry their rows of ``R = sqrt(n) Q``. A state is ``table``, ``G = H' N^(-1/2) R / n`` (B, padded K),
    ``A = G'G = R'CR / n^2`` (K, K), and ``S``, the diagonal of S over n: means over the objects, so that the
    state of a sample serves for all of them.
    """

    name = "NMF"
    carried_dtype = "<f4"
    lower_is_better = False

    def __init__(self, offsets: np.ndarray, n_clusters: int) -> None:
        self.offsets = offsets
        self.n_clusters: int = n_clusters
        self.n_carried: int = n_clusters

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, np.ndarray]:
        """Return the state that follows from a base partition, and its rows."""
        K = self.n_clusters
        n_labels = (labels >= 0).sum(axis=1)
        assigned = first_partition(labels, K, seed, number)
        R = np.full((len(labels), K), (1 - CERTAINTY) / K)
        R[assigned >= 0, assigned[assigned >= 0]] += CERTAINTY
        R[n_labels == 0] = 0.0
        n = int(np.count_nonzero(n_labels))
        R /= np.sqrt((R * R).sum(axis=0) / n)
        R = R.astype(np.float32)
        T, P, _ = self._zeros()
        scaled = R / np.sqrt(np.maximum(n_labels, 1))[:, None]
        count_shares(labels, self.offsets, in_whole_vectors(scaled), T)
        table, A = self._means(T, n)
        P = np.einsum("ik,ih->kh", R, R, dtype=np.float64) / n
        return {"table": table, "A": A, "S": np.diag(A) / np.diag(P) ** 2}, R

    def for_all(self, state: State) -> State:
        """Return the state itself."""
        return state

    def visit(self, state: State, labels: np.ndarray, carried: np.ndarray | None) -> tuple[Stats, np.ndarray]:
        """Update the rows of a block."""
        before = self._placed(state, labels) if carried is None else carried
        after = np.empty_like(before)
        T, P, totals = self._zeros()
        multiply_rows(labels, self.offsets, state["table"], state["A"], before, after, T, P, totals)
        return {"T": T, "P": P, "totals": totals}, after

    def finish(self, state: State, stats: Stats) -> tuple[State, Record]:
        """Update S for the rows that the pass has made; the record is of both."""
        n, moved = stats["totals"].tolist()
        table, A = self._means(stats["T"], n)
        squares = (stats["P"] / n) ** 2
        joined, apart = np.diag(A), (squares * state["S"]).sum(axis=1)
        S = state["S"] * np.sqrt(np.divide(joined, apart, out=np.zeros_like(joined), where=apart > 0))
        explained = 2.0 * (S * joined).sum() - (S[:, None] * squares * S).sum()
        record = {
            "objective": float(2.0 * joined.sum() - (A * stats["P"]).sum() / n),
            "explained": float(explained),
            "moved_share": moved / n,
        }
        return {"table": table, "A": A, "S": S}, record

    def is_settled(self, previous: Record | None, record: Record, tol: float) -> bool:
        """Stop once the objective rises by no more than a share ``tol`` of itself."""
        return gains_little(previous, record, tol)

    def results(self, state: State, labels: np.ndarray, carried: np.ndarray | None) -> np.ndarray:
        """Return the rows over their sums; uniform without labels."""
        rows = self._placed(state, labels) if carried is None else carried
        sums = rows.sum(axis=1, keepdims=True)
        return np.divide(rows, sums, out=np.full_like(rows, 1.0 / self.n_clusters), where=sums > 0)

    def _placed(self, state: State, labels: np.ndarray) -> np.ndarray:
        rows = np.empty((labels.shape[0], self.n_clusters), np.float32)
        # steps under tables that stay as they are
        place_rows(labels, self.offsets, state["table"], state["A"], 50, rows)
        return rows

    def _means(self, T: np.ndarray, n: float) -> tuple[np.ndarray, np.ndarray]:
        table, K = T / n, self.n_clusters
        return table, np.einsum("bk,bh->kh", table[:, :K], table[:, :K])  # not BLAS, for the order of sums

    def _zeros(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        K = self.n_clusters
        return np.zeros((self.offsets[-1], padded(K))), np.zeros((K, K)), np.zeros(2)


class NMF(ChoosingClusterer, SoftPassClusterer):
    """NMF consensus: the co-association C as ``Q S Q'``, Q nonnegative with nearly orthonormal columns.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters; a cluster may end up with no objects. "auto": by `bigcons.choose_n_clusters`.
    max_iter : int, default=500
        Maximum number of passes.
    n_init : int, default=20
        Number of starts, each from a base partition drawn at random (intersected with others until there are
        enough clusters), of which the best objective is kept. They run on a sample of at least 4,096 objects.
        On planted ensembles three in ten found the planted clusters.
    n_finalists : int, default=1
        Number of the best starts that continue on all objects, in the same passes.
    tol : float, default=1e-6
        Relative gain of the objective at which to stop.
    resume : bool, default=True
        Whether to resume an interrupted solve to ``out``, with the same result as an uninterrupted one.
    random_state : int, RandomState, Generator or None, default=None
        Seed; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects that no partition labeled
    memberships_ : (n_objects, n_clusters) float32, the rows of Q over their sums
    objective_ : float
        The share of C that Q explains, ``(2 tr(Q'CQ) - tr(Q'CQ Q'Q)) / n``, which is
        ``1 - ||X - QQ'X||^2 / ||X||^2`` where ``XX' = C``; between 0 and 1, higher is better.
    start_objectives_ : the objective of every start on its sample, when the best was chosen
    history_ : dict
        The objective, ``explained``, which is ``(||C||^2 - ||C - QSQ'||^2) / n^2``, and the share of the
        objects whose largest entry moved, one entry a pass.
    n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n (M + K) K) time a pass, O(B K + K^2) memory and 8 K bytes an object. Updates of the paper: ``Q *
    sqrt(CQS / (QQ'CQS))``, ``S * sqrt(Q'CQ / (Q'QSQ'Q))``. ``C_ij`` is ``c_ij / sqrt(n_i n_j)`` with ``c_ij``
    the partitions that put two objects together and ``n_i`` the labels of one; without missing labels this is
    the co-association of the paper.

    S is diagonal and cancels in the update of Q, so it does not affect the clusters. A step of S never raises
    ``||C - QSQ'||^2``. A step of Q never raises ``tr(LQ'Q) - tr(Q'CQ)`` with ``L = Q'CQ`` from before the
    step; the squared error of both may rise by several percent while the columns of Q become orthonormal.
    It is a poor criterion among starts, since it favors less orthonormal columns. The objective here is that
    of the projection onto Q; it rises over the first passes, without a guarantee, and a solve ends with the
    first pass that no longer raises it.

    References
    ----------
    Li, Ding and Jordan (2007), *Solving consensus and semi-supervised clustering problems using nonnegative
    matrix factorization*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.NMF(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.memberships_.round(2)[2]
    array([1., 0.], dtype=float32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Li, Ding and Jordan 2007", "labels", soft=True)

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        max_iter: int = 500,
        n_init: int = 20,
        n_finalists: int = 1,
        tol: float = 1e-6,
        resume: bool = True,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(
            n_clusters,
            n_init=n_init,
            n_finalists=n_finalists,
            max_iter=max_iter,
            tol=tol,
            resume=resume,
            random_state=random_state,
            memory=memory,
            out=out,
            client=client,
        )

    def _make_problem(self, ensemble: Ensemble) -> NMFProblem:
        return NMFProblem(ensemble.offsets, self.n_clusters)
