"""MCLA: group base clusters into meta-clusters, which then compete for the objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import squareform

from bigcons.errors import InvalidInputError
from bigcons.memory import Block
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.methods.hypergraph import checked_imbalance, refuse_unused
from bigcons.methods.incidence import (
    check_overlaps_plan,
    clear_own_partitions,
    fold_overlaps,
    observed_pairs,
    one_hot,
    over_zero,
    shares,
    votes_of,
)
from bigcons.methods.linkage import agglomerate, cut
from bigcons.partitioners import graph_of, partition_graph
from bigcons.run.engine import Engine, one_thread
from bigcons.run.results import Output, renumbered
from bigcons.run.survey import take_survey
from bigcons.seeding import generator
from bigcons.spectra import group_rows, leading_eigenvectors
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice
from bigcons.weights import Weights


@dataclass(eq=False, repr=False, kw_only=True)
class MCLA(ConsensusClusterer):
    """Group base clusters by their Jaccard similarity; objects join the group they are most associated with.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of meta-clusters, and so the maximum number of clusters: some may win no object.
        "auto": by `bigcons.choose_n_clusters`.
    partitioner : {"spectral", "average", "metis"}, default="spectral"
        How the graph of base clusters is cut. "spectral": eigenvectors of the normalized Jaccard matrix and
        k-means; meta-clusters may differ in size. "average": average linkage of ``1 - Jaccard``; a few
        outlying base clusters may form meta-clusters of their own when partitions differ in their number of
        clusters. On 18 planted ensembles of such partitions the adjusted Rand index of "average" fell to
        between 0.34 and 0.65 in four; that of "spectral" was 1.00 in all. "metis" (needs pymetis): the
        paper's balanced cut, where every base cluster weighs the same (in the authors' code: its number of
        objects).
    union : {"all", "observed"}, default="all"
        The denominator of the Jaccard measure. "all" counts every object of both base clusters, as in the
        paper; "observed" only those that both partitions label, our reading for many missing labels.
    ties : {"lowest", "random"}, default="lowest"
        How to break ties between meta-clusters of equal association: "lowest", or "random" as in the paper,
        where the membership of the chosen one is one rounding step above the others. `predict` takes the
        lowest either way.
    weights : array of shape (n_partitions,) or None, default=None
        For "spectral" and "average", numbers >= 0 by which each partition counts, as if it occurred that many
        times; 0 leaves it out. None: all count the same.
    imbalance : float or None, default=None
        With "metis", the share by which meta-clusters may exceed their equal share; None is 0.05.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of METIS, of k-means and of random ties.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects without any label
    memberships_ : (n_objects, n_clusters) float32, associations divided by their sum
    meta_clusters_ : (n_base_clusters,) int64, the cluster that every base cluster votes for, -1 at weight 0
        or empty
    objective_ : the share of all Jaccard similarity that lies within meta-clusters
    history_ : a list per quantity with one entry

    Notes
    -----
    The association of an object with a meta-cluster is the share of its base clusters that contain the
    object; a missing label is in none. A partition of weight w is in the graph as w copies of each of its
    base clusters, whose similarity to each other is 1; there are no other copies at weights below 1. Of soft
    clusterings the similarity is the extended Jaccard measure ``a.b / (|a|^2 + |b|^2 - a.b)``. Three passes;
    O(n M^2 + B^2 + n M K) time for B base clusters, O(B^2) memory.

    References
    ----------
    Strehl and Ghosh (2002), *Cluster ensembles*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.MCLA(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.memberships_.round(2)[2]
    array([1., 0.], dtype=float32)
    """

    chooses: ClassVar[bool] = True

    info: ClassVar[MethodInfo] = MethodInfo(
        "Strehl and Ghosh 2002", "base-cluster overlaps", soft=True, soft_input=True
    )

    partitioner: str = "spectral"
    union: str = "all"
    ties: str = "lowest"
    weights: Any = None
    imbalance: float | None = None

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("partitioner", self.partitioner, ("spectral", "average", "metis"))
        check_choice("union", self.union, ("all", "observed"))
        check_choice("ties", self.ties, ("lowest", "random"))
        if self.partitioner != "metis":
            refuse_unused(self, self.partitioner, ("imbalance",))
        elif self.weights is not None:
            raise InvalidInputError(
                "weights do not apply to partitioner='metis'; leave them out, or use another partitioner.",
                parameter="weights",
            )
        imbalance = checked_imbalance(self.imbalance)
        observed = self.union == "observed"
        if ensemble.is_soft and observed:
            raise InvalidInputError(
                "union='observed' does not apply to soft clusterings; leave it at 'all'.", parameter="union"
            )
        self._weights = Weights.given(self.weights, ensemble.offsets)
        check_overlaps_plan(
            "MCLA", ensemble, engine, self.memory, columns=self.n_clusters, in_memory=out is None
        )
        overlaps = fold_overlaps(ensemble, engine)
        survey = take_survey(ensemble, engine, seed, 0, self._partition_weights())
        sizes = overlaps.diagonal().copy()
        jaccard = jaccard_weights(overlaps, ensemble.offsets, observed=observed)
        del overlaps
        counted: Any = slice(None)
        times = None if self._weights is None else self._weights.base_clusters
        is_counted = sizes > 0 if times is None else (sizes > 0) & (times > 0)
        if not is_counted.all():
            counted = np.flatnonzero(is_counted)
            jaccard = jaccard[np.ix_(counted, counted)]
            times = None if times is None else times[counted]
        if self.partitioner == "metis":
            groups = cut_by_metis(jaccard, self.n_clusters, imbalance, seed)
        elif self.partitioner == "spectral":
            groups = cut_by_spectrum(jaccard, self.n_clusters, seed, times)
        else:
            groups = cut_by_linkage(jaccard, self.n_clusters, times)
        groups = in_order_of_appearance(groups)
        self._groups: np.ndarray = np.full(ensemble.n_base_clusters, -1)
        self._groups[counted] = groups
        self._n_groups: int = self.n_clusters
        self.objective_: float = share_within(repeated(jaccard, times), groups)
        self.n_passes_ = 1
        self.history_: dict[str, list[Any]] = {"pass": [1], "objective": [self.objective_]}
        self._vote(ensemble, engine, seed, survey.unlabeled, out)
        self.meta_clusters_: np.ndarray = renumbered(self._groups, self._order)

    def _vote(
        self, ensemble: Ensemble, engine: Engine, seed: int, unlabeled: np.ndarray, out: Output | None
    ) -> None:
        place, is_random = self._placer(), self.ties == "random"

        def read(block: Block) -> np.ndarray:
            memberships = place(ensemble.read(block.start, block.stop))
            if is_random:
                draw = generator(seed, "mcla.ties", block.index)
                lift_one_of_the_best(memberships, draw.random(memberships.shape))
            return memberships

        self._publish(ensemble, read, unlabeled, out, engine)

    _placed_by = ("_groups",)

    def _restore_placing(self, parts: Mapping[str, np.ndarray], ensemble: Ensemble, n_clusters: int) -> None:
        super()._restore_placing(parts, ensemble, n_clusters)
        self._n_groups = n_clusters

    def _placer(self) -> Callable[[np.ndarray], np.ndarray]:
        offsets, weights = self._recoding.offsets, self._weights
        times = None if weights is None else weights.base_clusters
        table = one_hot(self._groups, self._n_groups, times)
        sizes = over_zero(table.sum(axis=0))
        return lambda labels: shares(votes_of(labels, offsets, table)[0] / sizes)


def jaccard_weights(overlaps: np.ndarray, offsets: np.ndarray, *, observed: bool) -> np.ndarray:
    """Return ``|a and b| / |a or b|`` (B, B) float64, zero between base clusters of one partition.

    If ``observed``, the union is of the objects that both partitions label.
    """
    sizes = np.diag(overlaps)
    if observed:
        seen = observed_pairs(overlaps, offsets)[:, np.repeat(np.arange(offsets.size - 1), np.diff(offsets))]
        union = seen + seen.T
    else:
        union = sizes[:, None] + sizes
    union -= overlaps
    weights = np.divide(overlaps, union, out=union, where=union > 0)  # nothing overlaps where it is 0
    clear_own_partitions(weights, offsets)
    return weights


def repeated(weights: np.ndarray, times: np.ndarray | None) -> np.ndarray:
    """Return the weights (B, B) between base clusters that each stand for ``times`` (B,) copies.

    Copies of one base cluster are similar to each other, but not to themselves. None: one copy of each.
    """
    if times is None:
        return weights
    weights = weights * times
    weights *= times[:, None]
    np.fill_diagonal(weights, times * np.maximum(times - 1.0, 0.0))
    return weights


def cut_by_linkage(weights: np.ndarray, n_groups: int, times: np.ndarray | None = None) -> np.ndarray:
    """Return the groups (B,) of base clusters by average linkage of ``1 - weights``.

    There are ``times`` (B,) copies of each; None: one.
    """
    from sklearn.cluster import AgglomerativeClustering

    if n_groups >= len(weights):
        return np.arange(len(weights))
    distances = 1.0 - weights
    np.fill_diagonal(distances, 0.0)
    if times is not None:
        merges = agglomerate(squareform(distances, checks=False), "average", times)
        return cut(merges, len(weights), n_groups)
    linkage = AgglomerativeClustering(n_groups, metric="precomputed", linkage="average")
    with one_thread():
        return np.asarray(linkage.fit_predict(distances))


def cut_by_spectrum(
    weights: np.ndarray, n_groups: int, seed: int, times: np.ndarray | None = None
) -> np.ndarray:
    """Return the groups (B,) of base clusters, ``times`` copies of each, by the normalized cut.

    Eigenvectors, then k-means.
    """
    weights = repeated(weights, times)
    # a base cluster that overlaps with no other has a degree of 1e-12
    degrees = np.sqrt(np.maximum(weights.sum(axis=1, keepdims=True), 1e-12))
    normalized = weights / degrees
    normalized /= degrees.T
    normalized[np.diag_indices_from(normalized)] += 1.0  # lifts the eigenvalues from [-1, 1] to [0, 2]
    _, vectors = leading_eigenvectors(normalized, n_groups)
    return group_rows(vectors, n_groups, 1, seed, times)[0]


def cut_by_metis(weights: np.ndarray, n_groups: int, imbalance: float, seed: int) -> np.ndarray:
    """Return the groups (B,) of base clusters by a balanced cut."""
    return partition_graph(graph_of(weights.copy()), n_groups, imbalance, seed)[0]


def in_order_of_appearance(groups: np.ndarray) -> np.ndarray:
    """Number groups by their first member, 0 upward: (B,) int64."""
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[group]


def share_within(weights: np.ndarray, groups: np.ndarray) -> float:
    """Return the share of the weight of a graph that lies within groups; 1 if there is no weight."""
    total, inside = float(weights.sum()), float(weights[groups[:, None] == groups].sum())
    return inside / total if total > 0 else 1.0


def lift_one_of_the_best(memberships: np.ndarray, draws: np.ndarray) -> None:
    """Raise one of the largest memberships of every row, the one of the largest draw, by a rounding step."""
    best = memberships == memberships.max(axis=1, keepdims=True)
    chosen = np.where(best, draws, -1.0).argmax(axis=1)
    rows = np.flatnonzero(best.sum(axis=1) > 1)
    memberships[rows, chosen[rows]] = np.nextafter(memberships[rows, chosen[rows]], np.float32(2.0))
