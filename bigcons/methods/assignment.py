"""Objects assigned in batches by sums of table rows: QMI, KCC, IVC, IPVC, IPC and k-means on labels.

A pass adds up ``T`` (B, K), the number of objects of base cluster ``b`` in cluster ``k``, and the sizes
(K,). From these follows a table of scores (B, K), by which the next pass moves every object to the cluster of
highest sum over its labels. The methods are their tables and objectives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bigcons.coassociation import dense
from bigcons.errors import InvalidInputError
from bigcons.kernels.cluster_tables import assign, count_assigned, mark_majorities, padded
from bigcons.memory import DEFAULT_DATA_BYTES, MOST_BYTES
from bigcons.methods.base import MethodInfo
from bigcons.methods.pass_clusterer import (
    PassClusterer,
    checked_clusters,
    count_initial,
    expected_counts,
    first_partition,
    spread,
)
from bigcons.run.engine import Engine, one_thread, stop_if_cancelled
from bigcons.run.passes import BestOfStarts, Method, Record, State, Stats, best_start
from bigcons.run.results import Output
from bigcons.run.survey import MemoryPlan, Survey
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice
from bigcons.weights import Weights, counted_labels

FirstClusters = Callable[[np.ndarray, int, int, int], np.ndarray]
"""The clusters (rows,) of a start, by labels (rows, M), the number of clusters, the seed and the start."""


@dataclass(eq=False)
class Tables(Method):
    """Batch assignment: a pass moves every object to its best cluster under fixed tables.

    A subclass has the table of scores and the objective. Scores are multiplied by the weights of the
    partitions, if there are any. Between clusters of equal score an object stays where it is; a new one joins
    the one of lowest number. Objects carry their cluster.
    """

    n_carried = 1
    carried_dtype = "<i4"
    lower_is_better = True

    name: str
    offsets: np.ndarray
    n_clusters: int
    weights: Weights | None = None
    first: FirstClusters = first_partition

    @abstractmethod
    def table(self, T: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the scores (B, K) of the clusters for a label of each base cluster; the highest sum wins."""

    def objective(self, stats: Stats) -> float:
        """Return the objective of the assignment made by a pass: here, the summed distances.

        ``stats["totals"]`` (4,) has the best scores, the objects that moved, the labels present and the
        objects that have any.
        """
        return float(-stats["totals"][0])

    def state(self, T: np.ndarray, sizes: np.ndarray) -> State:
        """Return the state from counts: padded tables, and biases that exclude empty clusters."""
        table = self._padded(self.table(T[:, : self.n_clusters], sizes))
        return {"table": table, "bias": np.where(sizes > 0, 0.0, -np.inf)}

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, np.ndarray]:
        """Return the state of the first clusters, and these."""
        labels = counted_labels(labels, self.weights)
        clusters = self.first(labels, self.n_clusters, seed, number)
        T, sizes = self._zeros()
        count_assigned(labels, self.offsets, clusters, T, sizes)
        return self.state(T, sizes), clusters[:, None]

    def state_of_counts(self, counts: np.ndarray, sizes: np.ndarray) -> State:
        """Return the state of clusters with so many objects of each base cluster (B, K) and in all (K,)."""
        return self.state(counts, sizes)

    def block_stats(
        self, state: State, labels: np.ndarray, carried: np.ndarray | None = None
    ) -> tuple[Stats, np.ndarray]:
        """Assign the objects of a block and count their new clusters."""
        labels = counted_labels(labels, self.weights)
        rows = labels.shape[0]
        current = np.full(rows, -1, np.int32) if carried is None else np.ascontiguousarray(carried[:, 0])
        assigned = np.empty(rows, np.int32)
        T, sizes = self._zeros()
        totals = np.zeros(4)
        assign(labels, self.offsets, state["table"], state["bias"], current, assigned, T, sizes, totals)
        return {"T": T, "sizes": sizes, "totals": totals}, assigned[:, None]

    def finish(self, state: State, stats: Stats) -> tuple[State, Record]:  # noqa: ARG002 - counts are enough
        """Return the tables of the new clusters, and their objective."""
        _, n_moved, _, n_labeled = stats["totals"].tolist()
        record = {"objective": self.objective(stats), "moved": n_moved, "moved_share": n_moved / n_labeled}
        return self.state(stats["T"], stats["sizes"]), record

    def is_settled(self, previous: Record | None, record: Record, tol: float) -> bool:  # noqa: ARG002
        """Return whether at most a share ``tol`` of the objects moved."""
        return record["moved_share"] <= tol

    def place(self, state: State, labels: np.ndarray, carried: np.ndarray | None = None) -> np.ndarray:
        """Return the clusters of a block."""
        return (self.block_stats(state, labels)[1] if carried is None else carried)[:, 0]

    def _padded(self, scores: np.ndarray) -> np.ndarray:
        """Return scores (B, K) in whole vectors, times the weights."""
        table = np.zeros((self.offsets[-1], padded(self.n_clusters)))
        table[:, : self.n_clusters] = scores
        return table if self.weights is None else table * self.weights.base_clusters[:, None]

    def _zeros(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros((self.offsets[-1], padded(self.n_clusters))), np.zeros(self.n_clusters)


def shares(T: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the label frequencies ``f_kj(l)`` of the clusters, (B, K): among the members that partition
    ``j`` labeled, 0 where it labeled none.
    """
    observed = np.add.reduceat(T, offsets[:-1], axis=0)
    return T / np.repeat(np.where(observed > 0, observed, 1.0), np.diff(offsets), axis=0)


class CategoryUtility(Tables):
    """Squared Euclidean distance to the label frequencies, partition by partition, where observed."""

    lower_is_better = False

    def table(self, T: np.ndarray, sizes: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """Return ``2 f_kj(l) - |f_kj|^2``: one minus the squared distance of a one-hot label to ``f_kj``."""
        f = shares(T, self.offsets)
        squares = np.add.reduceat(f * f, self.offsets[:-1], axis=0)
        return 2.0 * f - np.repeat(squares, np.diff(self.offsets), axis=0)

    def objective(self, stats: Stats) -> float:
        """Return the utility of the clusters just formed, partitions weighted by the objects they label."""
        T = stats["T"][:, : self.n_clusters]
        overall = T.sum(axis=1)
        by_cluster = T * shares(T, self.offsets)
        baseline = overall * shares(overall[:, None], self.offsets)[:, 0]
        if self.weights is not None:
            by_cluster *= self.weights.base_clusters[:, None]
            baseline *= self.weights.base_clusters
        return float(by_cluster.sum() - baseline.sum()) / float(stats["totals"][3])


class EntropyUtility(Tables):
    """Kullback-Leibler divergence from the label frequencies, partition by partition, where observed."""

    def table(self, T: np.ndarray, sizes: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """Return ``log f_kj(l)``, with ``f`` at least 1e-6."""
        return np.log(np.maximum(shares(T, self.offsets), 1e-6))

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, np.ndarray]:
        """Return the state of a base partition of weight nine tenths, with all objects undecided.

        Against frequencies of 0 and 1 in that partition, a few others could never move an object.
        """
        labels = counted_labels(labels, self.weights)
        clusters = first_partition(labels, self.n_clusters, seed, number)
        state = self.state(*expected_counts(labels, self.offsets, clusters, self.n_clusters))
        return state, np.full((len(labels), 1), -1, np.int32)

    def state_of_counts(self, counts: np.ndarray, sizes: np.ndarray) -> State:
        """Return the state of clusters that hold nine tenths of their objects."""
        return self.state(spread(counts, counts.sum(axis=1, keepdims=True)), sizes)


class MajorityLabels(Tables):
    """IVC: agreement with the majority labels of a cluster."""

    def table(self, T: np.ndarray, sizes: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """Return 1 for the majority label of each partition within each cluster, the lowest of a tie."""
        majority = np.zeros(T.shape)
        mark_majorities(T, self.offsets, majority)
        return majority

    def objective(self, stats: Stats) -> float:
        """Return the summed distances of the objects to their clusters: labels that do not agree."""
        return float(stats["totals"][2] - stats["totals"][0])


class LabelFrequencies(MajorityLabels):
    """IPVC: mean agreement with the members of a cluster."""

    def table(self, T: np.ndarray, sizes: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """Return the label frequencies of the clusters."""
        return shares(T, self.offsets)


class MeanSimilarity(Tables):
    """IPC with the similarity c/M: mean similarity to the members of a cluster."""

    lower_is_better = False

    def table(self, T: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the contribution of a label to the mean of c/M over the members of a cluster."""
        return T / (np.maximum(sizes, 1.0) * (self.offsets.size - 1))

    def objective(self, stats: Stats) -> float:
        """Return the summed similarities of the objects to their clusters."""
        return float(stats["totals"][0])


class IntegerLabels(Tables):
    """Squared Euclidean distance to the mean label numbers of the clusters, over the observed labels."""

    @property
    def numbers(self) -> np.ndarray:
        """The number (B, 1) of each label in its partition."""
        return np.concatenate([np.arange(k) for k in np.diff(self.offsets)])[:, None]

    def table(self, T: np.ndarray, sizes: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """Return ``-(l - mean_kj)^2`` for label ``l`` of partition ``j``.

        Means are over the observed members or, for a cluster without any, over all observed objects.
        """
        sums = np.add.reduceat(self.numbers * T, self.offsets[:-1], axis=0)
        n_seen = np.add.reduceat(T, self.offsets[:-1], axis=0)
        overall = sums.sum(axis=1, keepdims=True) / np.maximum(n_seen.sum(axis=1, keepdims=True), 1.0)
        return self._closeness(np.where(n_seen > 0, sums / np.maximum(n_seen, 1.0), overall))

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, np.ndarray]:
        """Return the state of k-means++ centers, missing labels replaced by the mean of their partition."""
        from sklearn.cluster import kmeans_plusplus

        draw = generator(seed, "start.kmeans", number)
        is_labeled = labels >= 0
        means = np.where(is_labeled, labels, 0).sum(axis=0) / np.maximum(is_labeled.sum(axis=0), 1)
        lengths = np.ones(len(means)) if self.weights is None else np.sqrt(self.weights.partitions)
        points = lengths * np.where(is_labeled, labels, means)
        centers, _ = kmeans_plusplus(points, self.n_clusters, random_state=int(draw.integers(2**31)))
        table = self._padded(self._closeness((centers / np.where(lengths > 0, lengths, 1.0)).T))
        return {"table": table, "bias": np.zeros(self.n_clusters)}, np.full((len(labels), 1), -1, np.int32)

    def _closeness(self, means: np.ndarray) -> np.ndarray:
        return -((self.numbers - np.repeat(means, np.diff(self.offsets), axis=0)) ** 2)


# Estimators


class QMI(PassClusterer):
    """Quadratic mutual information consensus: k-means on the one-hot labels.

    Maximizes the category utility ``sum_j U(c, pi_j)``, ``U = sum_r p(C_r) sum_l p(l | C_r)^2 -
    sum_l p(l)^2``, half the quadratic mutual information, by ``sum_j U = M - SSE/n - sum_jl p_j(l)^2``
    where SSE is the error of k-means on the one-hot matrix. Local optima differ in quality, so use several
    starts.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Maximum number of clusters; one that loses its last object stays empty.
        "auto": by `bigcons.choose_n_clusters`.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out. None:
        all count the same.
    n_init : int, default=10
        Number of starts, each from a random base partition, on at least 4,096 objects; the best is kept.
        Ensembles of many small base clusters, or of so many partitions that the sample has above 4 million
        labels, start from k-means in the spectral embedding of `HBGF` instead, ``n_init`` times.
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
    objective_ : the utility, partitions weighted by the share of objects they label; no pass lowers it
    start_objectives_ : the objective of every start on its sample, when the best was chosen
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n M K) time a pass, O(B K) memory and, without ``out``, 12 bytes an object. A start from a partition of
    too few clusters intersects it with others. Missing labels: frequencies count the observed members
    and distances go over the observed labels. This is k-means-based consensus with the utility U_c (see
    `KCC`). Standardizing the columns, which the papers mention, means centering, which does not change
    k-means; dividing by the standard deviation would change the objective.

    Without weights every partition counts the same, however noisy; if partitions differ much in noise, the
    optimum can be far from the classes, and `MixtureModel` with its background is better.

    References
    ----------
    Topchy, Jain and Punch (2003), *Combining multiple weak clusterings*; (2005), *Clustering ensembles:
    models of consensus and weak partitions*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.QMI(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Topchy, Jain and Punch 2003", "labels")
    chooses: ClassVar[bool] = True

    weights: Any = None

    def _method(self, offsets: np.ndarray, n_clusters: int) -> Tables:
        return CategoryUtility("QMI", offsets, n_clusters, self._weights)


class KCC(PassClusterer):
    """K-means-based consensus clustering by entropy, the mutual information with the base partitions.

    K-means by the Kullback-Leibler divergence over the observed labels; by the category utility it is `QMI`.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Maximum number of clusters; one that loses its last object stays empty.
        "auto": by `bigcons.choose_n_clusters`.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out. None:
        all count the same.
    n_init : int, default=10
        Number of starts, each from a random base partition, on at least 4,096 objects; the best is kept.
        Ensembles of many small base clusters, or of so many partitions that the sample has above 4 million
        labels, start from k-means in the spectral embedding of `HBGF` instead, ``n_init`` times.
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
    objective_ : the summed distances ``-log f_kj(x_ij)``, lower is better
    start_objectives_ : the objective of every start on its sample, when the best was chosen
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n M K) time a pass, O(B K) memory and, without ``out``, 12 bytes an object. Missing labels as for `QMI`.
    Frequencies are at least 1e-6, so that an object with a label that its cluster never has is far away but
    not infinitely far; and a start gives its base partition nine tenths of the weight and spreads the rest
    over all clusters, because with few partitions no object would leave a start of full weight.

    Every partition counts the same, however noisy: see `QMI`.

    References
    ----------
    Wu, Liu, Xiong, Cao and Chen (2015), *K-means-based consensus clustering: a unified view*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.KCC(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Wu et al. 2015", "labels")
    chooses: ClassVar[bool] = True

    weights: Any = None

    def _method(self, offsets: np.ndarray, n_clusters: int) -> Tables:
        return EntropyUtility("KCC", offsets, n_clusters, self._weights)


class IVC(PassClusterer):
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
        Number of starts, on at least 4,096 objects; the best is kept. Ensembles of many small base clusters,
        or of so many partitions that the sample has above 4 million labels, start from k-means in the
        spectral embedding of `HBGF` instead, ``n_init`` times.
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
    O(n M K) time a pass, O(B K) memory and, without ``out``, 12 bytes an object. A start from a partition of
    too few clusters intersects it with others. Missing labels: the majority is taken over the observed
    members, only observed labels count as differences, and a center that no member was observed for differs
    from every label. On a tie objects stay, and labels and clusters of lower number win, as in ``predict``.

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

    info: ClassVar[MethodInfo] = MethodInfo("Nguyen and Caruana 2007", "labels")
    tables: ClassVar[type[Tables]] = MajorityLabels

    init: Any = "partition"

    def _method(self, offsets: np.ndarray, n_clusters: int) -> Tables:
        return self.tables(type(self).__name__, offsets, n_clusters)

    def _first_clusters(self, ensemble: Ensemble) -> np.ndarray | FirstClusters:
        """Return the clusters given, or the rule of the starts."""
        if not isinstance(self.init, str):
            names = "'partition', 'random'"
            return checked_clusters(self.init, ensemble.n_objects, self.n_clusters, names)
        rule = check_choice("init", self.init, ("partition", "random"))
        if rule == "partition":
            return first_partition
        return lambda labels, n_clusters, seed, number: generator(seed, "start.random", number).integers(
            n_clusters, size=len(labels), dtype=np.int32
        )

    def _starts(self, method: Method, ensemble: Ensemble, engine: Engine, survey: Survey) -> BestOfStarts:
        first = self._first_clusters(ensemble)
        if isinstance(first, np.ndarray):
            return BestOfStarts(method, partial(count_initial, first, self.n_clusters), carries=True)
        method.first = first  # type: ignore[attr-defined]  # of tables
        return super()._starts(method, ensemble, engine, survey)


class IPVC(IVC):
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
        Number of starts, on at least 4,096 objects; the best is kept. Ensembles of many small base clusters,
        or of so many partitions that the sample has above 4 million labels, start from k-means in the
        spectral embedding of `HBGF` instead, ``n_init`` times.
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
    O(n M K) time a pass, O(B K) memory and, without ``out``, 12 bytes an object. On complete ensembles it
    equals `IPC`.

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

    tables: ClassVar[type[Tables]] = LabelFrequencies


class IPC(IVC):
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
        Number of starts, on at least 4,096 objects; the best is kept. Ensembles of many small base clusters,
        or of so many partitions that the sample has above 4 million labels, start from k-means in the
        spectral embedding of `HBGF` instead, ``n_init`` times.
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

    info: ClassVar[MethodInfo] = IVC.info._replace(missing="c/N or c/M")
    tables: ClassVar[type[Tables]] = MeanSimilarity

    normalize: str = "observed"

    def _solve_surveyed(
        self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None, survey: Survey
    ) -> None:
        check_choice("normalize", self.normalize, ("observed", "all"))
        if self.normalize == "all" or (ensemble.n_labeled == ensemble.n_objects).all():
            super()._solve_surveyed(ensemble, engine, seed, out, survey)
            return
        remedy = "use normalize='all' or the method ipvc"
        similarity = shares_of_pairs("IPC", ensemble, engine, self.memory, remedy)
        labels, first = ensemble.read(0, ensemble.n_objects), self._first_clusters(ensemble)
        labeled, is_fixed = np.asarray((labels >= 0).any(axis=1)), isinstance(first, np.ndarray)

        def restart(number: int) -> tuple[np.ndarray, list[Record], bool]:
            clusters: Any = first if is_fixed else first(labels, self.n_clusters, seed, number)  # type: ignore[operator]
            records: list[Record] = []
            with one_thread(user_api="blas"):
                while len(records) < self.max_iter:
                    stop_if_cancelled()
                    clusters, record = move_all(similarity, clusters, labeled, self.n_clusters)
                    records.append(record)
                    if record["moved_share"] <= self.tol:
                        return clusters, records, True
            return clusters, records, False

        starts = engine.map(restart, range(1 if is_fixed else self.n_init))
        best, objectives = best_start(starts, lambda result: result[1][-1]["objective"])
        clusters, records, converged = best
        self._set_results(records, objectives, converged=converged)
        self._publish(ensemble, clusters, survey.unlabeled, out)


def shares_of_pairs(
    name: str, ensemble: Ensemble, engine: Engine, memory: str | float | None, remedy: str
) -> np.ndarray:
    """Return the co-association c/N (n, n) float32, 0 where no partition labels both, if memory allows."""
    n = ensemble.n_objects
    subject, plan = f"{name} of {n:,} objects with c/N", MemoryPlan(20 * n**2)  # counts, shares, temporaries
    plan.check(subject, engine, ensemble, memory, f", or {remedy}", limit=DEFAULT_DATA_BYTES)
    n_agree, n_seen = dense(ensemble, memory=MOST_BYTES, client=engine)
    return np.divide(n_agree, n_seen, out=np.zeros(n_agree.shape, np.float32), where=n_seen > 0)


def move_all(
    similarity: np.ndarray, clusters: np.ndarray, labeled: np.ndarray, n_clusters: int
) -> tuple[np.ndarray, Record]:
    """Return the clusters after all objects have moved at once to the most similar, and the record.

    The similarity c/N of an incomplete ensemble is not a sum over partitions: O(n^2 K). Objects stay on a tie
    and get -1 without any label; means closer than float32 rounds are a tie.
    """
    members = (clusters[:, None] == np.arange(n_clusters)).astype(np.float32)
    sizes = members.sum(axis=0, dtype=np.float64)
    means = (similarity @ members).astype(np.float64) / np.maximum(sizes, 1.0)
    means[:, sizes == 0] = -np.inf
    is_best = means >= means.max(axis=1, keepdims=True) - 1e-6
    best = is_best.argmax(axis=1).astype(np.int32)
    rows = np.arange(clusters.size)
    is_kept = (clusters >= 0) & is_best[rows, clusters]
    new_clusters = np.where(is_kept, clusters, best)
    new_clusters[~labeled] = -1
    n_moved = float(np.count_nonzero(new_clusters != clusters))
    objective = float(means[rows, new_clusters][labeled].sum())
    share = n_moved / max(int(labeled.sum()), 1)
    return new_clusters, {"objective": objective, "moved": n_moved, "moved_share": share}


class LabelKMeans(PassClusterer):
    """k-means on the label matrix: a baseline that treats labels as numbers.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Maximum number of clusters; one that loses its last object stays empty.
        "auto": by `bigcons.choose_n_clusters`.
    encode : {"integer", "onehot", "coassoc"}, default="integer"
        "integer": labels as numbers, as the published figures suggest. "onehot": a column for
        every base cluster, the same as `QMI`. "coassoc": the rows of the co-association matrix c/N (Kuncheva
        and Vetrov 2006), in memory, with scikit-learn's meaning of ``tol``.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out. None:
        all count the same. Not for "coassoc".
    n_init : int, default=10
        Number of starts, of which the best objective is kept: by k-means++ for "integer" and "coassoc", from
        base partitions for "onehot". They run on a sample of at least 4,096 objects, for "coassoc" on all.
        With "onehot", ensembles of many small base clusters, or of so many partitions that the sample has
        above 4 million labels, start from k-means in the spectral embedding of `HBGF` instead.
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
    objective_ : squared distances to the centers, lower is better; for "onehot" the utility of `QMI`
    start_objectives_ : the objective of every start on its sample, when the best was chosen
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n M K) time a pass and O(B K) memory, but O(n^2 K) and O(n^2) for "coassoc". The paper's baseline takes
    no missing labels; here distances go over the observed labels and means over the members observed.

    References
    ----------
    Wang, Shan and Banerjee (2011), *Bayesian cluster ensembles*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.LabelKMeans(n_clusters=2, encode="onehot", random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Wang, Shan and Banerjee 2011", "labels")
    chooses: ClassVar[bool] = True

    encode: str = "integer"
    weights: Any = None

    def _method(self, offsets: np.ndarray, n_clusters: int) -> Tables:
        tables = CategoryUtility if self.encode == "onehot" else IntegerLabels
        return tables("k-means", offsets, n_clusters, self._weights)

    def _solve_surveyed(
        self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None, survey: Survey
    ) -> None:
        check_choice("encode", self.encode, ("integer", "onehot", "coassoc"))
        if self.encode != "coassoc":
            super()._solve_surveyed(ensemble, engine, seed, out, survey)
            return
        if self._weights is not None:
            raise InvalidInputError(
                "weights do not apply to encode='coassoc'; leave them out, or use encode='onehot'.",
                parameter="weights",
            )
        from sklearn.cluster import KMeans

        rows = shares_of_pairs("k-means", ensemble, engine, self.memory, "use encode='onehot'")
        labeled = np.ones(ensemble.n_objects)
        labeled[np.asarray(survey.unlabeled)] = 0.0  # otherwise they would form a cluster of their own
        draw = int(generator(seed, "start.kmeans").integers(2**31))
        model: Any = KMeans(
            self.n_clusters, n_init=self.n_init, max_iter=self.max_iter, tol=self.tol, random_state=draw
        )
        with one_thread():
            model.fit(rows, sample_weight=labeled)
        objective, converged = float(model.inertia_), bool(model.n_iter_ < self.max_iter)
        self._set_results([{"objective": objective}], [objective], converged=converged)
        self.n_passes_: int = int(model.n_iter_)
        self._publish(ensemble, model.labels_.astype(np.int32), survey.unlabeled, out)
