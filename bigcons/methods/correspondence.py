"""CCC, CCU and CCSVD: match the clusters of different partitions, then let them vote.

Boulis and Ostendorf, "Combining multiple clustering systems", PKDD 2004: reconstructions from the abstract
and from descriptions by others; the docstrings say what was filled in.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons.errors import ConvergenceWarning, warn_user
from bigcons.memory import N_SAMPLED, Block
from bigcons.methods import incidence
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.run.engine import Engine, local_engine, one_thread
from bigcons.run.passes import best_start
from bigcons.run.results import Output, renumbered
from bigcons.run.survey import take_survey
from bigcons.seeding import generator
from bigcons.spectra import group_rows, leading_eigenvectors
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice, check_int
from bigcons.weights import Weights

BaseClusters = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Of the B base clusters that count: overlaps (B, B), similarity (B, B), where each partition begins
(M + 1,), and weights (B,)."""


class Correspondence(ConsensusClusterer):
    """Base of the methods that group corresponding base clusters and let these vote for the objects.

    The similarity of base clusters of different partitions is the cosine of their indicator vectors; the
    objective of a grouping is the sum over the base clusters of their mean similarity to base clusters of
    other partitions in the same meta-cluster.
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        "Boulis and Ostendorf 2004", "base-cluster overlaps", soft=True, soft_input=True
    )

    n_init: int = 10
    weights: Any = None

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_int("n_init", self.n_init)
        check_int("max_iter", getattr(self, "max_iter", 1))
        name, K = type(self).__name__, self.n_clusters
        self._weights = Weights.parse(self.weights, ensemble.offsets)
        incidence.check_overlaps_plan(self, ensemble, engine, columns=K, in_memory=out is None)
        overlaps = incidence.fold_overlaps(ensemble, engine)
        survey = take_survey(ensemble, engine, seed, N_SAMPLED, self._partition_weights())
        # whether the largest clusters of one partition are small parts of the objects, and no start
        self._is_fine = survey.undersamples(ensemble, K, incidence.FEWEST_LABELS)
        offsets, indices = ensemble.offsets, np.arange(ensemble.n_base_clusters)
        times = np.ones(int(offsets[-1])) if self._weights is None else self._weights.base_clusters
        is_counted = (times > 0) & (overlaps.diagonal() > 0)
        if not is_counted.all():  # the rest is of the base clusters that count
            indices = np.flatnonzero(is_counted)
            overlaps, times = overlaps[np.ix_(indices, indices)], times[indices]
            n_kept = np.add.reduceat(is_counted.astype(np.int64), offsets[:-1])
            offsets = np.append(0, np.cumsum(n_kept[n_kept > 0]))
        # the cosines of base clusters, zero between those of one partition
        lengths = np.sqrt(np.diag(overlaps))
        similarity = overlaps / lengths
        similarity /= lengths[:, None]
        incidence.clear_same_partitions(similarity, offsets)
        with one_thread():
            grouping, objectives = self._group((overlaps, similarity, offsets, times), seed, engine)
            # base clusters in no group join the one that they resemble most
            table = incidence.one_hot(grouping.groups, K, times)
            resemblance = similarity @ table / incidence.divisors(table.sum(axis=0))
            nearest = np.where(grouping.groups >= 0, grouping.groups, resemblance.argmax(axis=1))
        all_groups, all_nearest = np.full((2, ensemble.n_base_clusters), -1)
        all_groups[indices], all_nearest[indices] = grouping.groups, nearest
        voting = all_nearest if self._is_fine else all_groups  # one to one, few of many are matched: all vote
        self._parts = {"_groups": voting, "_nearest": all_nearest}
        self._note_pass(grouping.objective)
        self.converged_: bool = grouping.is_settled
        if not grouping.is_settled:
            warn_user(
                f"{name} stopped at max_iter while base clusters still changed groups; raise max_iter.",
                ConvergenceWarning,
            )
        if objectives:
            self.start_objectives_ = objectives
        place = self._placer(self._parts)

        def read(block: Block) -> np.ndarray:
            return place(ensemble.read(block.start, block.stop))

        self._publish(ensemble, read, survey.unlabeled, out, engine)
        self.meta_clusters_: np.ndarray = renumbered(all_groups, self._order)

    @abstractmethod
    def _group(self, base: BaseClusters, seed: int, engine: Engine) -> tuple[Grouping, list[float]]:
        """Return the best grouping, and the objectives of all starts; empty without starts."""

    def _placer(self, parts: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        offsets, groups, K = self._recoding.offsets, parts["_groups"], self._n_columns
        times = None if self._weights is None else self._weights.base_clusters
        table = incidence.one_hot(groups, K, times)
        nearest_table = incidence.one_hot(parts["_nearest"], K, times) if (groups < 0).any() else None

        def place(labels: np.ndarray) -> np.ndarray:
            votes, _ = incidence.votes_of(labels, offsets, table)
            if nearest_table is not None:
                is_empty = ~votes.any(axis=1)
                rows = np.ascontiguousarray(labels[is_empty])
                votes[is_empty] = incidence.votes_of(rows, offsets, nearest_table)[0]
            return incidence.shares(votes)

        return place


class Alternating(Correspondence):
    """Base of CCC and CCU: from the clusters of one partition, regroup those of the others in turn."""

    _one_to_one: ClassVar[bool]

    max_iter: int = 100

    def _group(self, base: BaseClusters, seed: int, engine: Engine) -> tuple[Grouping, list[float]]:
        (overlaps, similarity, offsets, times), K = base, self.n_clusters
        sizes = incidence.cluster_sizes(overlaps, offsets)
        # in multiples of a power of two, of which sums are exact in any order: they take 51 of the 53 bits
        rows = similarity * times[:, None]
        unit = 2.0 ** (np.ceil(np.log2(max(rows.sum(axis=0).max(), 1.0))) - 51)
        rows = np.rint(rows / unit) * unit

        def start(u: int) -> Grouping:
            if self._is_fine:
                groups = group_rows(spectral_rows(overlaps, times, K), K, self.n_init, seed, times)[0]
            else:
                groups = first_groups(similarity, offsets, sizes, u, K)
            return self._alternate(rows, offsets, groups, times)

        widths = np.diff(offsets)
        draws = generator(seed, "correspondence.starts").random(len(widths))
        order = np.lexsort((draws, np.abs(widths - K), widths < K))
        starts = order[: 1 if self._is_fine else self.n_init]
        with closing(local_engine(engine).map(start, starts.tolist())) as groupings:
            return best_start(groupings, lambda result: result.objective)

    def _alternate(
        self, similarity: np.ndarray, offsets: np.ndarray, groups: np.ndarray, times: np.ndarray
    ) -> Grouping:
        """Regroup the base clusters of one partition after another until none moves.

        ``similarity`` (B, B): of base clusters (columns) to others, times the weights of the others.
        If none of the sweeps settles (a sweep need not raise the objective), the best one is kept.
        """
        from scipy.optimize import linear_sum_assignment

        def objective(groups: np.ndarray) -> float:
            sums = similarity.T @ incidence.one_hot(groups, self.n_clusters)
            return mean_similarity(sums, offsets, groups, times)

        sweeps = [groups]
        for _ in range(self.max_iter):
            groups = groups.copy()
            for first, last in pairwise(offsets):
                table = incidence.one_hot(groups, self.n_clusters)
                table[first:last] = 0.0
                resemblance = (similarity[:, first:last].T @ table) / incidence.divisors(times @ table)
                if self._one_to_one:
                    cluster, group = linear_sum_assignment(resemblance, maximize=True)
                    groups[first:last] = -1
                    groups[first + cluster] = group
                else:
                    groups[first:last] = resemblance.argmax(axis=1)
            if (groups == sweeps[-1]).all():
                return Grouping(groups, objective(groups))
            sweeps.append(groups)
        objectives = [objective(groups) for groups in sweeps[1:]]
        best = int(np.argmax(objectives))
        return Grouping(sweeps[1 + best], objectives[best], is_settled=False)


class CCC(Alternating):
    """Match the clusters of each partition one to one with meta-clusters; they vote for the objects.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of meta-clusters, and so the maximum number of clusters of the consensus.
    max_iter : int, default=100
        Maximum number of sweeps over the partitions in a start.
    n_init : int, default=10
        Number of starts, each from the clusters of one partition: first partitions of ``n_clusters``
        clusters, then of more, then of fewer, in random order. The best objective is kept. Ensembles of many
        small base clusters start once, from the groups of `CCSVD`, with as many starts of k-means.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts in the votes and in the mean similarities; 0 leaves it
        out. None: all count the same.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the order of the starts.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects without any label
    memberships_ : (n_objects, n_clusters) float32, votes divided by their number
    meta_clusters_ : (n_base_clusters,) int64
        The meta-cluster of every base cluster; -1 if it is unmatched because its partition has more than
        ``n_clusters``, has weight 0 or, in soft clusterings, has no memberships. Unmatched base clusters vote
        for the most similar meta-cluster, but only for objects without other votes; if base clusters are many
        and small, for all objects.
    objective_ : sum over base clusters of their mean similarity to clusters of other partitions in their
        meta-cluster
    converged_ : whether a sweep of the best start changed nothing; otherwise its best sweep is kept
    start_objectives_ : the objective of every start
    history_ : the objective, one entry

    Notes
    -----
    A reconstruction from the paper's abstract. Partitions are matched in turn by the Hungarian method, each
    against the latest groups of the others. In partitions of hundreds of clusters few clusters are matched;
    if they have a few objects each, use `CCU` or `CCSVD`. A missing label is in no base cluster and casts
    no vote. In soft clusterings, the vectors of base clusters and the votes are memberships. Three passes;
    O(n M^2 + n M K) time, O(B K) a sweep and O(B) for each of the B base clusters that moves; O(B^2) memory.

    References
    ----------
    Boulis and Ostendorf (2004), *Combining multiple clustering systems*, PKDD.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.CCC(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    _one_to_one = True


class CCU(Alternating):
    """Assign every base cluster to the meta-cluster it resembles most; they vote for the objects.

    Several clusters of one partition may share a meta-cluster.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of meta-clusters, and so the maximum number of clusters of the consensus.
    max_iter : int, default=100
        Maximum number of sweeps over the partitions in a start.
    n_init : int, default=10
        Number of starts, as for `CCC`; the best objective is kept.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts in the votes and in the mean similarities; 0 leaves it
        out. None: all count the same.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the order of the starts.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_, memberships_, meta_clusters_, objective_, start_objectives_, converged_, history_
        As for `CCC`; no base cluster is unmatched, but a meta-cluster may become empty.

    Notes
    -----
    A reconstruction from the paper's abstract; costs, missing labels and soft clusterings as for `CCC`.

    References
    ----------
    Boulis and Ostendorf (2004), *Combining multiple clustering systems*, PKDD.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.CCU(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    _one_to_one = False


class CCSVD(Correspondence):
    """Group base clusters by the singular vectors of the incidence matrix; they vote for the objects.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of meta-clusters, and so the maximum number of clusters of the consensus; also the rank of the
        decomposition.
    grouping : {"kmeans", "argmax"}, default="kmeans"
        "kmeans": k-means of the rows of ``V S``, one per base cluster, scaled to unit length. "argmax": by
        the singular vector in which the row is largest; far worse on 8D5K.
    n_init : int, default=10
        Restarts of k-means; the smallest sum of squared distances wins.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts as if it occurred that many times; 0 leaves it
        out. None: all count the same.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of k-means.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_, memberships_, meta_clusters_, objective_, history_
        As for `CCC`.
    start_objectives_ : the sum of squared distances of every start of k-means, with grouping="kmeans"

    Notes
    -----
    A reconstruction from the paper's abstract. V and S follow from the eigenvectors of ``H^T H``. Missing
    labels and soft clusterings as for `CCC`. Three passes; O(n M^2 + B^3 + n M K) time for B base clusters,
    O(B^2) memory.

    References
    ----------
    Boulis and Ostendorf (2004), *Combining multiple clustering systems*, PKDD.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.CCSVD(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    grouping: str = "kmeans"

    def _group(self, base: BaseClusters, seed: int, engine: Engine) -> tuple[Grouping, list[float]]:  # noqa: ARG002
        overlaps, similarity, offsets, times = base
        check_choice("grouping", self.grouping, ("kmeans", "argmax"))
        rows = spectral_rows(overlaps, times, self.n_clusters)
        objectives: list[float] = []
        if self.grouping == "argmax":
            groups = np.abs(rows).argmax(axis=1)
        else:
            groups, objectives = group_rows(rows, self.n_clusters, self.n_init, seed, times)
        sums = similarity @ incidence.one_hot(groups, self.n_clusters, times)
        objective = mean_similarity(sums, offsets, groups, times)
        return Grouping(groups, objective), objectives


class Grouping(NamedTuple):
    """A grouping of base clusters into meta-clusters."""

    groups: np.ndarray
    """(B,) int64, -1 for a base cluster that is in none."""
    objective: float
    is_settled: bool = True
    """Whether another sweep changes nothing."""


def spectral_rows(overlaps: np.ndarray, times: np.ndarray, n_columns: int) -> np.ndarray:
    """Return the rows (B, columns) of ``V S`` of the incidence matrix, of base clusters by weight."""
    if (times != 1.0).any():
        root = np.sqrt(times)
        overlaps = overlaps * root
        overlaps *= root[:, None]
    values, vectors = leading_eigenvectors(overlaps, n_columns)
    return np.asarray(vectors * np.sqrt(values))


def first_groups(
    similarity: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, start: int, n_clusters: int
) -> np.ndarray:
    """Return groups (B,) of one base cluster each: the largest of partition ``start``, -1 elsewhere.

    If these are too few, add the base clusters least similar to any chosen one, the lowest on a tie.
    """
    members = np.arange(offsets[start], offsets[start + 1])
    seeds = members[np.sort(np.argsort(-sizes[members], kind="stable")[:n_clusters])].tolist()
    while len(seeds) < min(n_clusters, len(sizes)):
        closeness = similarity[:, seeds].max(axis=1)
        closeness[members] = np.inf
        closeness[seeds] = np.inf
        seeds.append(int(closeness.argmin()))
    groups = np.full(len(sizes), -1)
    groups[seeds] = np.arange(len(seeds))
    return groups


def mean_similarity(sums: np.ndarray, offsets: np.ndarray, groups: np.ndarray, times: np.ndarray) -> float:
    """Return the summed mean similarity of base clusters to those of other partitions in their group.

    ``sums`` (B, n_groups): their similarities to the members of each group, times their weights.
    """
    table = incidence.one_hot(groups, sums.shape[1], times)
    same_partition = np.repeat(np.add.reduceat(table, offsets[:-1], axis=0), np.diff(offsets), axis=0)
    means = sums / incidence.divisors(table.sum(axis=0) - same_partition)  # own partitions are not similar
    members = np.flatnonzero(groups >= 0)
    return float((times[members] * means[members, groups[members]]).sum())
