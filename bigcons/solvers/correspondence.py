"""CCC, CCU and CCSVD: which clusters of different partitions correspond, then a vote.

Boulis and Ostendorf, "Combining multiple clustering systems", PKDD 2004. Their formulas were not at hand;
these are reconstructions from the abstract and from descriptions by others, and the docstrings say what was
filled in.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from bigcons.errors import ConvergenceWarning, warn_user
from bigcons.execution.engine import Engine
from bigcons.memory import Block
from bigcons.seeding import generator
from bigcons.solvers.base import ConsensusClusterer, MethodFacts, Output
from bigcons.solvers.hypergraph.incidence import (
    check_overlaps_plan,
    fold_overlaps,
    one_hot,
    partition_of_clusters,
    shares,
    votes_of,
)
from bigcons.solvers.hypergraph.spectral import group_rows, leading_eigenvectors, one_thread
from bigcons.solvers.survey import take_survey
from bigcons.stores.ensemble import Ensemble
from bigcons.validation import check_choice, check_int


class Grouping(NamedTuple):
    """A grouping of base clusters into meta-clusters."""

    groups: np.ndarray
    """(B,) int64, -1 for a base cluster that is in none."""
    objective: float
    is_settled: bool = True
    """Whether regrouping changes nothing any more."""


class Correspondence(ConsensusClusterer):
    """Base of the methods that group corresponding base clusters and let these vote for the objects.

    The similarity of base clusters of different partitions is the cosine of their indicator vectors; the
    objective of a grouping is the sum over the base clusters of their mean similarity to those of other
    partitions in the same meta-cluster.

    Parameters
    ----------
    n_clusters
        Meta-clusters, and so clusters of the consensus at the most.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        paper="Boulis and Ostendorf 2004",
        needs="base-cluster overlaps",
        soft=True,
        missing="native",
        out_of_core=True,
        distributed=True,
    )

    n_init: int = 10

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        self._check()
        name = type(self).__name__
        check_overlaps_plan(
            name, ensemble, engine, columns=self.n_clusters, memory=self.memory, in_memory=out is None
        )
        survey = take_survey(ensemble, engine, seed, 0)
        overlaps = fold_overlaps(ensemble, engine)
        similarity = cosines(overlaps, ensemble.offsets)
        with one_thread():
            found, objectives = self._group(overlaps, similarity, ensemble.offsets, seed)
        self.meta_clusters_ = found.groups
        self.objective_ = found.objective
        self.n_passes_ = 1
        self.converged_ = found.is_settled
        if not found.is_settled:
            warn_user(
                f"{name} stopped at max_iter while clusters still changed places; raise max_iter.",
                ConvergenceWarning,
            )
        self.history_ = {"start": [*range(len(objectives))], "objective": objectives}
        self._vote(ensemble, engine, similarity, survey.unlabelled, out)

    @abstractmethod
    def _check(self) -> None:
        """Refuse parameters that make no sense."""

    @abstractmethod
    def _group(
        self, overlaps: np.ndarray, similarity: np.ndarray, offsets: np.ndarray, seed: int
    ) -> tuple[Grouping, list[float]]:
        """Return the best grouping, and the objective of every start."""

    def _vote(
        self,
        ensemble: Ensemble,
        engine: Engine,
        similarity: np.ndarray,
        unlabelled: np.ndarray,
        out: Output | None,
    ) -> None:
        offsets, groups, K = ensemble.offsets, self.meta_clusters_, self.n_clusters
        table = one_hot(groups, K)
        left_over = one_hot(nearest_groups(similarity, groups, K), K) if (groups < 0).any() else None

        def read(block: Block) -> np.ndarray:
            labels = ensemble.read(block.start, block.stop)
            votes, _ = votes_of(labels, offsets, table)
            if left_over is not None:
                without = ~votes.any(axis=1)
                votes[without] = votes_of(np.ascontiguousarray(labels[without]), offsets, left_over)[0]
            return shares(votes)

        self._publish(ensemble, read, unlabelled, out, engine)


class _Alternating(Correspondence):
    """Base of CCC and CCU: from the clusters of one partition, group and judge in turns.

    Parameters
    ----------
    n_init
        Partitions to start from, whose clusters are the first meta-clusters: those of ``n_clusters`` clusters
        first, then of more, then of fewer, in random order. The best objective wins.
    max_iter
        Sweeps over the partitions in a start, at the most.
    random_state
        Seed of the order of the starts.
    """

    max_iter: int = 100

    _one_to_one: ClassVar[bool]

    def _check(self) -> None:
        check_int("n_init", self.n_init)
        check_int("max_iter", self.max_iter)

    def _group(
        self, overlaps: np.ndarray, similarity: np.ndarray, offsets: np.ndarray, seed: int
    ) -> tuple[Grouping, list[float]]:
        sizes = np.diag(overlaps)
        found = [
            alternate(
                similarity,
                offsets,
                first_groups(similarity, offsets, sizes, u, self.n_clusters),
                self.n_clusters,
                self.max_iter,
                one_to_one=self._one_to_one,
            )
            for u in starting_partitions(offsets, self.n_clusters, seed)[: self.n_init]
        ]
        best = max(found, key=lambda grouping: grouping.objective)
        return best, [grouping.objective for grouping in found]


class CCC(_Alternating):
    """Match the clusters of each partition one to one with meta-clusters; objects are voted for.

    Attributes
    ----------
    labels_ : (n_objects,) int32
        -1 for objects without any label.
    memberships_ : (n_objects, n_clusters) float32
        Votes divided by their number.
    meta_clusters_ : (n_base_clusters,) int64
        The meta-cluster of every base cluster; -1 for those left over where a partition has more than
        ``n_clusters``. These vote, for the meta-cluster most similar, only on objects nobody else votes on.
    objective_ : float
        Sum over base clusters of their mean similarity to those of other partitions in their meta-cluster.
    converged_ : bool
        Whether the best start ended with every cluster in its place; if not, its best sweep counts.
    history_ : dict
        The objective of every start.

    Notes
    -----
    A reconstruction from the paper's abstract. Partitions are matched in turns by the Hungarian method, each
    seeing the latest places of the others. Three passes; O(n M^2 + n M K) time and O(B^2 K) a sweep for B
    base clusters, O(B^2) memory.

    References
    ----------
    Boulis and Ostendorf (2004), *Combining multiple clustering systems*, PKDD.
    """

    _one_to_one = True


class CCU(_Alternating):
    """Give every base cluster to the meta-cluster it resembles most; objects are voted for.

    Several clusters of one partition may share a meta-cluster.

    Attributes
    ----------
    labels_, memberships_, meta_clusters_, objective_, converged_, history_
        As of `CCC`; no base cluster is left over, but a meta-cluster may become empty.

    Notes
    -----
    A reconstruction from the paper's abstract; costs as of `CCC`.

    References
    ----------
    Boulis and Ostendorf (2004), *Combining multiple clustering systems*, PKDD.
    """

    _one_to_one = False


class CCSVD(Correspondence):
    """Group base clusters by the singular vectors of the incidence matrix; objects are voted for.

    Parameters
    ----------
    n_clusters
        Meta-clusters, and so clusters of the consensus at the most; also the rank of the decomposition.
    grouping
        "kmeans": k-means of the rows of ``V S``, one per base cluster, scaled to unit length. "argmax": by
        the singular vector that the row is largest in; on 8D5K this does far worse.
    n_init
        Restarts of k-means; the smallest sum of squared distances wins.
    random_state
        Seed of k-means.

    Attributes
    ----------
    labels_, memberships_, meta_clusters_, objective_, history_
        As of `CCC`.

    Notes
    -----
    A reconstruction from the paper's abstract. V and S are from the eigenvectors of ``H^T H``. Three passes;
    O(n M^2 + B^3 + n M K) time for B base clusters, O(B^2) memory.

    References
    ----------
    Boulis and Ostendorf (2004), *Combining multiple clustering systems*, PKDD.
    """

    grouping: str = "kmeans"

    def _check(self) -> None:
        check_choice("grouping", self.grouping, ("kmeans", "argmax"))
        check_int("n_init", self.n_init)

    def _group(
        self, overlaps: np.ndarray, similarity: np.ndarray, offsets: np.ndarray, seed: int
    ) -> tuple[Grouping, list[float]]:
        values, vectors = leading_eigenvectors(overlaps, self.n_clusters)
        rows = vectors * np.sqrt(values)
        if self.grouping == "argmax":
            groups = np.abs(rows).argmax(axis=1)
        else:
            groups = group_rows(rows, self.n_clusters, self.n_init, seed)
        objective = mean_similarity(similarity, offsets, groups, self.n_clusters)
        return Grouping(groups, objective), [objective]


def cosines(overlaps: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return ``|a and b| / sqrt(|a| |b|)`` (B, B) float64, zero between clusters of one partition."""
    lengths = np.sqrt(np.diag(overlaps))
    similarity = overlaps / lengths / lengths[:, None]
    partition = partition_of_clusters(offsets)
    similarity[partition[:, None] == partition] = 0.0
    return similarity


def starting_partitions(offsets: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Return the partitions (M,) in the order in which they are started from."""
    n_own = np.diff(offsets)
    draws = generator(seed, "correspondence.starts").random(len(n_own))
    return np.lexsort((draws, np.abs(n_own - n_clusters), n_own < n_clusters))


def first_groups(
    similarity: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, start: int, n_clusters: int
) -> np.ndarray:
    """Return groups (B,) of one base cluster each: the largest of partition ``start``, -1 elsewhere.

    If they are too few, the base clusters least similar to any chosen one follow, the lowest on a tie.
    """
    own = np.arange(offsets[start], offsets[start + 1])
    chosen = own[np.sort(np.argsort(-sizes[own], kind="stable")[:n_clusters])].tolist()
    while len(chosen) < min(n_clusters, len(sizes)):
        closeness = similarity[:, chosen].max(axis=1)
        closeness[own] = np.inf
        closeness[chosen] = np.inf
        chosen.append(int(closeness.argmin()))
    groups = np.full(len(sizes), -1)
    groups[chosen] = np.arange(len(chosen))
    return groups


def alternate(
    similarity: np.ndarray,
    offsets: np.ndarray,
    groups: np.ndarray,
    n_groups: int,
    max_iter: int,
    *,
    one_to_one: bool,
) -> Grouping:
    """Regroup the base clusters of one partition after another until none moves.

    If ``max_iter`` sweeps do not get there, for a sweep need not raise means, the best one counts.
    """
    from scipy.optimize import linear_sum_assignment

    groups = groups.copy()
    best = Grouping(groups, -np.inf, is_settled=False)
    for _ in range(max_iter):
        before = groups.copy()
        for u in range(len(offsets) - 1):
            own = slice(offsets[u], offsets[u + 1])
            resemblance = group_similarities(similarity[own], groups, n_groups, own)
            if one_to_one:
                cluster, group = linear_sum_assignment(resemblance, maximize=True)
                groups[own] = -1
                groups[own.start + cluster] = group
            else:
                groups[own] = resemblance.argmax(axis=1)
        objective = mean_similarity(similarity, offsets, groups, n_groups)
        if (groups == before).all():
            return Grouping(groups, objective)
        if objective > best.objective:
            best = Grouping(groups.copy(), objective, is_settled=False)
    return best


def group_similarities(similarity: np.ndarray, groups: np.ndarray, n_groups: int, own: slice) -> np.ndarray:
    """Return the mean similarity (rows, n_groups) to the members of each group outside ``own``; 0 if none."""
    table = one_hot(groups, n_groups)
    table[own] = 0.0
    return np.asarray(similarity @ table / np.maximum(table.sum(axis=0), 1.0))


def mean_similarity(similarity: np.ndarray, offsets: np.ndarray, groups: np.ndarray, n_groups: int) -> float:
    """Return the summed mean similarity of base clusters to those of other partitions in their group."""
    total = 0.0
    for u in range(len(offsets) - 1):
        own = slice(offsets[u], offsets[u + 1])
        resemblance = group_similarities(similarity[own], groups, n_groups, own)
        inside = np.flatnonzero(groups[own] >= 0)
        total += float(resemblance[inside, groups[own][inside]].sum())
    return total


def nearest_groups(similarity: np.ndarray, groups: np.ndarray, n_groups: int) -> np.ndarray:
    """Return the groups (B,), each base cluster in none having been given to the one it resembles most."""
    resemblance = group_similarities(similarity, groups, n_groups, slice(0, 0))
    return np.where(groups >= 0, groups, resemblance.argmax(axis=1))
