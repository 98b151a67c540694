"""Iterative voting: IVC, IPVC and IPC of Nguyen and Caruana, *Consensus Clusterings* (ICDM 2007)."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np

from bigcons.coassociation import dense
from bigcons.kernels.cluster_tables import mark_majorities
from bigcons.memory import MOST_BYTES
from bigcons.methods.assignment import (
    FirstClusters,
    TableProblem,
    count_given,
    first_partition,
    given_clusters,
    random_clusters,
    shares,
)
from bigcons.methods.estimator import MethodInfo
from bigcons.methods.spectral_start import SpectrallyStarted
from bigcons.run.engine import Engine, one_thread, stop_if_cancelled
from bigcons.run.memory_plan import check_matrix_plan
from bigcons.run.output import Output
from bigcons.run.passes import Record, Stats
from bigcons.run.starts import BestOfStarts, CountedStart, Problem, best_start
from bigcons.run.survey import Survey
from bigcons.seeding import SeedLike
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice

_INFO = MethodInfo("Nguyen and Caruana 2007", "labels")


class Disagreement(TableProblem):
    """Tables that sum to the agreement of an object's labels with a cluster; the rest is its distance."""

    def objective(self, stats: Stats) -> float:
        """Return the summed distances of the objects to their clusters."""
        return float(stats["totals"][2] - stats["totals"][0])


class MajorityLabels(Disagreement):
    """IVC: agreement with the majority labels of a cluster."""

    def table(self, T: np.ndarray, _sizes: np.ndarray) -> np.ndarray:
        """Return 1 for the majority label of each partition within each cluster, the lowest of a tie."""
        majority = np.zeros(T.shape)
        mark_majorities(T, self.offsets, majority)
        return majority


class LabelFrequencies(Disagreement):
    """IPVC: mean agreement with the members of a cluster."""

    def table(self, T: np.ndarray, _sizes: np.ndarray) -> np.ndarray:
        """Return the label frequencies of the clusters."""
        return shares(T, self.offsets)


class MeanSimilarity(TableProblem):
    """IPC with the similarity c/M: mean similarity to the members of a cluster."""

    lower_is_better = False

    def table(self, T: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the contribution of a label to the mean of c/M over the members of a cluster."""
        return T / (np.maximum(sizes, 1.0) * (self.offsets.size - 1))

    def objective(self, stats: Stats) -> float:
        """Return the summed similarities of the objects to their clusters."""
        return float(stats["totals"][0])


class VotingClusterer(SpectrallyStarted):
    """Base of the three: where they start."""

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "partition",
        n_init: int = 10,
        max_iter: int = 100,
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
            max_iter=max_iter,
            tol=tol,
            resume=resume,
            random_state=random_state,
            memory=memory,
            out=out,
            client=client,
        )
        self.init = init

    def _first_clusters(self, ensemble: Ensemble) -> np.ndarray | FirstClusters:
        """Return the clusters given, or the rule of the starts."""
        if not isinstance(self.init, str):
            names = "'partition', 'random'"
            return given_clusters(self.init, ensemble.n_objects, self.n_clusters, names)
        chosen = check_choice("init", self.init, ("partition", "random"))
        return first_partition if chosen == "partition" else random_clusters

    def _starts(self, problem: Problem, ensemble: Ensemble, engine: Engine, survey: Survey) -> BestOfStarts:
        first, own = self._first_clusters(ensemble), cast("TableProblem", problem)
        if isinstance(first, np.ndarray):
            return CountedStart(
                own, partial(count_given, first, own.n_clusters, own.weights, writes=True), carries=True
            )
        own.first = first
        return super()._starts(problem, ensemble, engine, survey)


class IVC(VotingClusterer):
    """Iterative voting consensus: clusters of objects around their majority labels (k-modes).

    Every pass takes the majority label of each partition within each cluster as its center, and moves every
    object to the center from which its labels differ least.

    Parameters
    ----------
    n_clusters : int, default=8
        Maximum number of clusters; one that loses its last object stays empty.
    init : {"partition", "random"} or array of shape (n_objects,), default="partition"
        "partition": random base partitions, as the paper advises. "random": random clusters. Or the clusters
        to start from, 0 to ``n_clusters`` - 1, -1 where there is none; there is one start then.
    n_init : int, default=10
        Number of starts, on at least 4,096 objects; the best is kept. Instead of from base partitions,
        ensembles of many small base clusters, or of so many partitions that the sample has above 4 million
        labels, start from k-means in the spectral embedding of `HBGF`, ``n_init`` times.
    max_iter : int, default=100
        Maximum number of passes.
    tol : float, default=1e-6
        Share of the objects that may still move in the last pass.
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
    objective_ : labels that differ from the center of their object's cluster; no pass raises it
    start_objectives_ : the objective of every start on its sample, when the best was chosen
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n M K) time a pass, O(B K) memory and 4 bytes an object. A start from a partition of too few clusters
    intersects it with others. Missing labels: the majority is that of the observed members, only observed
    labels count as differences, and a center that no member was observed for differs from every label. On a
    tie objects stay, and labels and clusters of lower number win, as in ``predict``.

    References
    ----------
    Nguyen and Caruana (2007), *Consensus clusterings*, ICDM.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.IVC(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = _INFO

    def _make_problem(self, ensemble: Ensemble) -> TableProblem:
        return MajorityLabels("IVC", ensemble.offsets, self.n_clusters)


class IPVC(VotingClusterer):
    """Iterative probabilistic voting consensus: clusters of objects around their label frequencies.

    As `IVC`, but the distance of an object to a cluster is its mean distance to all members, itself
    included: ``sum_j 1 - f_j(y_j)`` with the frequencies ``f`` among the members observed.

    Parameters
    ----------
    n_clusters : int, default=8
        Maximum number of clusters; one that loses its last object stays empty.
    init : {"partition", "random"} or array of shape (n_objects,), default="partition"
        "partition": random base partitions, as the paper advises. "random": random clusters. Or the clusters
        to start from, 0 to ``n_clusters`` - 1, -1 where there is none; there is one start then.
    n_init : int, default=10
        Number of starts, on at least 4,096 objects; the best is kept. Instead of from base partitions,
        ensembles of many small base clusters, or of so many partitions that the sample has above 4 million
        labels, start from k-means in the spectral embedding of `HBGF`, ``n_init`` times.
    max_iter : int, default=100
        Maximum number of passes.
    tol : float, default=1e-6
        Share of the objects that may still move in the last pass.
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
    objective_ : summed distances of the objects to their clusters; usually falls, but is not guaranteed to
    start_objectives_ : the objective of every start on its sample, when the best was chosen
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n M K) time a pass, O(B K) memory and 4 bytes an object. On complete ensembles it equals `IPC`.

    References
    ----------
    Nguyen and Caruana (2007).

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.IPVC(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.predict([[-1, 1, 0]])
    array([1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = _INFO

    def _make_problem(self, ensemble: Ensemble) -> TableProblem:
        return LabelFrequencies("IPVC", ensemble.offsets, self.n_clusters)


class IPC(VotingClusterer):
    """Iterative pairwise consensus: objects join the cluster they are most similar to on average.

    The similarity of two objects is the share of partitions that put them together. An object's similarity to
    itself counts, without which batch moves can cycle.

    Parameters
    ----------
    n_clusters : int, default=8
        Maximum number of clusters; one that loses its last object stays empty.
    normalize : {"observed", "all"}, default="observed"
        "observed": similarity c/N, over the partitions that label both objects; on an incomplete ensemble it
        is computed pair by pair, in O(n^2) memory. "all": c/M, at the cost of `IVC`. The two are the same
        without missing labels.
    init : {"partition", "random"} or array of shape (n_objects,), default="partition"
        "partition": random base partitions, as the paper advises. "random": random clusters. Or the clusters
        to start from, 0 to ``n_clusters`` - 1, -1 where there is none; there is one start then.
    n_init : int, default=10
        Number of starts, on at least 4,096 objects; the best is kept. Instead of from base partitions,
        ensembles of many small base clusters, or of so many partitions that the sample has above 4 million
        labels, start from k-means in the spectral embedding of `HBGF`, ``n_init`` times.
    max_iter : int, default=100
        Maximum number of passes.
    tol : float, default=1e-6
        Share of the objects that may still move in the last pass.
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
    objective_ : summed similarities of the objects to their clusters; usually rises, without a guarantee
    start_objectives_ : the objective of every start on its sample, when the best was chosen
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n M K) time a pass for c/M and complete ensembles, where it equals `IPVC` and needs no matrix of pairs
    (the paper needs O(n^2) space); O(n^2) time and 4 n^2 bytes for c/N.

    References
    ----------
    Nguyen and Caruana (2007).

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.IPC(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = _INFO._replace(missing="c/N or c/M")

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        normalize: str = "observed",
        init: Any = "partition",
        n_init: int = 10,
        max_iter: int = 100,
        tol: float = 1e-6,
        resume: bool = True,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(
            n_clusters,
            init=init,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            resume=resume,
            random_state=random_state,
            memory=memory,
            out=out,
            client=client,
        )
        self.normalize = normalize

    def _make_problem(self, ensemble: Ensemble) -> TableProblem:
        return MeanSimilarity("IPC", ensemble.offsets, self.n_clusters)

    def _solve_surveyed(
        self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None, survey: Survey
    ) -> None:
        check_choice("normalize", self.normalize, ("observed", "all"))
        complete = bool((survey.n_seen == ensemble.n_objects).all())
        if complete or self.normalize == "all":
            super()._solve_surveyed(ensemble, engine, seed, out, survey)
            return
        check_matrix_plan(
            "IPC with normalize='observed'",
            engine,
            ensemble,
            memory=self.memory,
            remedy=", or use normalize='all' or the method ipvc",
        )
        assigned, records, converged, start_objectives = solve_pairwise(
            ensemble,
            self.n_clusters,
            self._first_clusters(ensemble),
            n_init=self.n_init,
            max_passes=self.max_iter,
            tol=self.tol,
            seed=seed,
            engine=engine,
        )
        self._set_results(records, start_objectives, converged=converged)
        self._publish(ensemble, lambda b: assigned[b.start : b.stop], survey.unlabeled, out)


def solve_pairwise(
    ensemble: Ensemble,
    n_clusters: int,
    first: np.ndarray | FirstClusters,
    *,
    n_init: int,
    max_passes: int,
    tol: float,
    seed: int,
    engine: Engine,
) -> tuple[np.ndarray, list[Record], bool, list[float]]:
    """Solve IPC with the similarity c/N of an incomplete ensemble, which is not a sum over partitions.

    Returns for the best start clusters (n,) int32, the records of its passes and whether it converged, and
    the objectives of all starts. O(n^2 K) time a pass. Batch moves; objects stay on a tie and get -1 without
    any label.
    """
    n_agree, n_seen = dense(ensemble, memory=MOST_BYTES, client=engine)
    similarity = np.divide(n_agree, n_seen, out=np.zeros(n_agree.shape, np.float32), where=n_seen > 0)
    labels = ensemble.read(0, ensemble.n_objects)
    labeled = np.asarray((labels >= 0).any(axis=1))

    def restart(number: int) -> tuple[np.ndarray, list[Record], bool]:
        assigned = first if isinstance(first, np.ndarray) else first(labels, n_clusters, seed, number)
        records: list[Record] = []
        with one_thread(user_api="blas"):
            while len(records) < max_passes:
                stop_if_cancelled()
                assigned, record = _move_all(similarity, assigned, labeled, n_clusters)
                records.append(record)
                if record["moved_share"] <= tol:
                    return assigned, records, True
        return assigned, records, False

    found, objectives = best_start(
        engine.map(restart, range(1 if isinstance(first, np.ndarray) else n_init)),
        lambda result: result[1][-1]["objective"],
        lower_is_better=False,
    )
    return *found, objectives


def _move_all(
    similarity: np.ndarray, assigned: np.ndarray, labeled: np.ndarray, n_clusters: int
) -> tuple[np.ndarray, Record]:
    """Return the clusters after all objects have moved at once, and the record of the pass."""
    members = (assigned[:, None] == np.arange(n_clusters)).astype(np.float32)
    sizes = members.sum(axis=0, dtype=np.float64)
    means = (similarity @ members).astype(np.float64) / np.maximum(sizes, 1.0)
    means[:, sizes == 0] = -np.inf
    best = means.argmax(axis=1).astype(np.int32)
    rows = np.arange(assigned.size)
    stays = (assigned >= 0) & (means[rows, assigned] >= means[rows, best])
    moved = np.where(stays, assigned, best)
    moved[~labeled] = -1
    n_moved = float(np.count_nonzero(moved != assigned))
    worth = float(means[rows, moved][labeled].sum())
    return moved, {
        "objective": worth,
        "moved": n_moved,
        "moved_share": n_moved / max(int(labeled.sum()), 1),
    }
