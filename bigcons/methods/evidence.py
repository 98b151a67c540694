"""Evidence accumulation: agglomerative clustering of the co-association matrix (Fred and Jain 2005)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigcons.coassociation.counts import NORMALIZATIONS, condensed_bytes, condensed_distances, distance
from bigcons.errors import InvalidInputError
from bigcons.memory import DataBudget
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.methods.incidence import weights_of
from bigcons.methods.linkage import (
    LINKAGES,
    Merges,
    UniqueRows,
    agglomerate,
    cut,
    largest_lifetime,
    linkage_matrix,
    order_by_content,
    single_link,
    unique_rows,
)
from bigcons.methods.tree import ConsensusTree
from bigcons.run.engine import Engine
from bigcons.run.memory_plan import data_budget
from bigcons.run.results import Output
from bigcons.run.survey import take_survey
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.trust.groups import AVERAGE
from bigcons.validation import check_choice, check_flag
from bigcons.weights import Weights

logger: logging.Logger = logging.getLogger("bigcons")

CRITERIA = ("n_clusters", "lifetime")
LIFETIME_TIES = ("more", "fewer")


@dataclass(eq=False, repr=False, kw_only=True)
class Evidence(ConsensusClusterer):
    """Base of evidence accumulation by linkage: what `EAC` does, by the ``linkage`` of a class."""

    linkage: ClassVar[str]
    info: ClassVar[MethodInfo] = MethodInfo(
        "Fred and Jain 2005", "co-association", missing="c/N", out_of_core=False
    )

    normalize: str = "observed"
    weights: Any = None
    criterion: str = "n_clusters"
    allow_single_cluster: bool = False
    lifetime_ties: str = "more"
    ties: str = "lowest"

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        self._check()
        budget = data_budget(self.memory, engine, ensemble)
        weights = weights_of(type(self).__name__, self.weights, ensemble, engine, self.memory)
        survey = take_survey(ensemble, engine, seed, 0, None if weights is None else weights.partitions)
        self._is_limit = self.criterion == "lifetime"
        remedy = "use eac-groups or pcc, which read the labels block by block"
        rows = unique_rows(ensemble, engine, budget=budget, remedy=remedy, weights=weights)
        logger.info("%s distinct rows of %s objects", f"{len(rows.labels):,}", f"{ensemble.n_objects:,}")
        within = _within(rows, self.normalize, weights)
        merges = self._merge(rows, within, weights, budget, engine, seed)
        n_clusters = self._choose(merges, rows, within)
        labels = cut(merges, len(rows.labels), n_clusters)
        kept = merges.heights[: len(rows.labels) - n_clusters]
        self.objective_: float = float(kept.sum() + ((rows.weights - 1) * within).sum())
        self.history_: dict[str, list[Any]] = {
            "n_clusters": [int(labels.max()) + 1],
            "objective": [self.objective_],
        }
        self.linkage_: np.ndarray = linkage_matrix(merges, rows.weights)
        self.row_of_object_: np.ndarray = rows.row_of_object
        self._publish(
            ensemble,
            lambda block: labels[rows.row_of_object[block.start : block.stop]],
            survey.unlabeled,
            out,
            n_clusters=n_clusters,
        )

    def _remedy_of_surplus(self, n_large: int) -> str:
        large = "the large cluster" if n_large == 1 else f"the {n_large} large clusters"
        return f"outliers merge last; a larger n_clusters, mcla or pcc may divide {large}"

    def _check_n_clusters(self, given: Any, n_objects: int) -> None:
        if given is not None:
            super()._check_n_clusters(given, n_objects)
        elif self.criterion == "n_clusters":
            raise InvalidInputError(
                "n_clusters=None with criterion='n_clusters'; give a number, or criterion='lifetime'."
            )

    def _merge(
        self,
        rows: UniqueRows,
        within: np.ndarray,
        weights: Weights | None,
        budget: DataBudget,
        engine: Engine,
        seed: int,
    ) -> Merges:
        """Return the merges of the rows, visited in the order of ``ties``: by a tree or by all distances."""
        if self.ties == "lowest":
            order = order_by_content(rows, weights)
        else:
            order = generator(seed, "eac.ties").permutation(len(rows.labels))
        labels = rows.labels[order]
        if self.linkage == "single" and weights is None:
            merges = single_link(labels, self.normalize)
        else:
            # single linkage holds distances if weighed
            remedy = "use eac-groups or pcc" if weights is not None else "use eac-groups, eac-single or pcc"
            needed = rows.row_of_object.nbytes + 2 * labels.nbytes + condensed_bytes(len(labels), engine)
            what = f"the distances of {len(labels):,} distinct rows for linkage={self.linkage!r}"
            budget.check(needed, what, remedy)
            distances = condensed_distances(labels, self.normalize, engine, weights)
            merges = agglomerate(distances, self.linkage, rows.weights[order], within[order])
        return Merges(order[merges.first], order[merges.second], merges.heights)

    def _choose(self, merges: Merges, rows: UniqueRows, within: np.ndarray) -> int:
        n = len(rows.labels)
        most = n if self.n_clusters is None else min(self.n_clusters, n)
        if self.criterion == "n_clusters":
            return most
        repeated = rows.weights > 1
        below = min(within[repeated].max(), *merges.heights[:1]) if repeated.any() and n > 1 else None
        return largest_lifetime(
            merges.heights,
            most=most,
            below=below,
            above=1.0 if self.allow_single_cluster else None,
            tie=self.lifetime_ties,
        )

    def _check(self) -> None:
        check_choice("linkage", self.linkage, LINKAGES)
        check_choice("normalize", self.normalize, NORMALIZATIONS)
        check_choice("criterion", self.criterion, CRITERIA)
        check_choice("lifetime_ties", self.lifetime_ties, LIFETIME_TIES)
        check_choice("ties", self.ties, ("lowest", "random"))
        check_flag("allow_single_cluster", self.allow_single_cluster)
        if self.allow_single_cluster and self.criterion != "lifetime":
            raise InvalidInputError(
                "allow_single_cluster=True needs criterion='lifetime'; use n_clusters=1 instead."
            )
        if self.lifetime_ties != "more" and self.criterion != "lifetime":
            raise InvalidInputError(
                f"lifetime_ties={self.lifetime_ties!r} needs criterion='lifetime'; leave it out."
            )
        if self.allow_single_cluster and self.linkage == "ward":
            raise InvalidInputError(
                "allow_single_cluster=True with linkage='ward', whose heights have no upper bound; "
                "use another linkage."
            )


@dataclass(eq=False, repr=False, kw_only=True)
class EAC(Evidence):
    """Evidence accumulation clustering (Fred and Jain 2005): agglomerative, on the co-association.

    The distance of two objects is one minus the share of partitions that put them together. Linkage of these
    distances gives a dendrogram, which is cut.

    Parameters
    ----------
    n_clusters : int or None, default=8
        Number of clusters; for criterion="lifetime" the maximum, None for any number. Objects of equal label
        rows always stay together, so there are no more clusters than distinct rows.
    linkage : {"average", "single", "complete", "ward"}, default="average"
        "ward" treats the distances as Euclidean.
    normalize : {"observed", "all"}, default="observed"
        Denominator of the co-association. "observed": the partitions that label both objects; without any the
        similarity is 0. "all": all partitions.
    weights : {"local"}, array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out. None:
        all count the same. "local": a base cluster joins its objects by its reliability, which is the higher
        the less other partitions divide it; the denominator stays the number of partitions. With average
        linkage this is the LWEA of Huang, Wang and Lai (2018). Weights need, for single linkage too, the
        memory for the distances of all pairs of rows.
    criterion : {"n_clusters", "lifetime"}, default="n_clusters"
        "n_clusters", or "lifetime": the number of clusters, from 2 to one less than the objects, that stays
        the same over the widest range of heights.
    allow_single_cluster : bool, default=False
        For criterion="lifetime", whether a single cluster is considered, which lives from the last merge to
        distance 1. Not in the paper.
    lifetime_ties : {"more", "fewer"}, default="more"
        For criterion="lifetime", how to break ties: "more" clusters, as in the reference implementation, or
        "fewer".
    ties : {"lowest", "random"}, default="lowest"
        How to break ties: "lowest" merges the pair of the first rows (as far as the linkage visits rows in
        order), which are those of the largest base clusters, whatever the order of objects and partitions;
        "random" puts the rows in random order. Distances take few values, so ties are common; several seeds
        show how much depends on them.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of random ties; nothing else is random.
    memory : str, int or None, default=None
        Budget for the distinct label rows and their distances, 4 GB by default; refused if they do not fit.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, clusters, largest first and, if of equal size, by their first objects; -1
        for objects without any label
    objective_ : sum of the heights of the merges made, including those of equal rows
    n_clusters_ : number of clusters found
    linkage_ : (n_rows - 1, 4) the dendrogram of the distinct rows as scipy's linkage matrix, sizes in
        objects. `bigcons.metrics.error_roc` takes it with ``row_of_object_``. Both are lost where a finished
        run is only read from ``out``.
    row_of_object_ : (n_objects,) int32 the distinct row of each object, -1 without any label
    history_ : the number of clusters and the objective, one entry

    Notes
    -----
    Works on the U distinct rows, weighted by their objects: this gives the dendrogram of all objects, up to
    the order of ties, since no row is nearer to an object than one equal to its own. Two passes over the
    labels. Single linkage takes O(U M) memory and O(U^2 M) time on one core, a second for 10,000 rows. The
    others take 4 U^2 bytes (.4 GB for 10,000 rows, 14.4 GB for 60,000, 40 GB for 100,000), refused above
    ``memory``, and O(U^2 M) time, pairs counted on all workers. `EACGroups` takes any number of objects. With
    missing labels, equal rows might not be the first to merge with weights="local"; here they do all the
    same. The latter takes one pass more, O(n M^2) time, to count the overlaps of base clusters.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*;
    Huang, Wang and Lai (2018), *Locally weighted ensemble clustering*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.EAC(n_clusters=2).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.n_clusters_
    2
    """

    linkage: str = "average"  # type: ignore[misc]


@dataclass(eq=False, repr=False, kw_only=True)
class EACSingle(Evidence):
    """Evidence accumulation with single linkage, EAC-SL: see `EAC` for the details.

    Parameters
    ----------
    n_clusters : int or None, default=8
        Number of clusters; for criterion="lifetime" the maximum, None for any number.
    normalize : {"observed", "all"}, default="observed"
        Denominator of the co-association: the partitions that label both objects, or all partitions.
    weights : {"local"}, array of shape (n_partitions,) or None, default=None
        Weights of the partitions, or "local" of base clusters, as for `EAC`.
    criterion : {"n_clusters", "lifetime"}, default="n_clusters"
        "n_clusters", or "lifetime": the number that stays the same over the widest range of heights.
    allow_single_cluster : bool, default=False
        For criterion="lifetime", whether a single cluster is considered, as for `EAC`.
    lifetime_ties : {"more", "fewer"}, default="more"
        For criterion="lifetime", whether ties go to "more" or to "fewer" clusters.
    ties : {"lowest", "random"}, default="lowest"
        How to break ties between pairs at equal distance, as for `EAC`.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of random ties; nothing else is random.
    memory : str, int or None, default=None
        Budget for the distinct label rows and their distances, 4 GB by default; refused if they do not fit.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_, objective_, n_clusters_, linkage_, row_of_object_, history_ : as for `EAC`

    Notes
    -----
    Exact in O(U M) memory for U distinct rows, by Prim's algorithm in O(U^2 M) time: a second for 10,000 rows
    of 50 labels, a hundred for 100,000. Suits ensembles of many
    small clusters; with few large ones it chains.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.EACSingle(n_clusters=2).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = EAC.info._replace(distributed=False)

    linkage: ClassVar[str] = "single"


@dataclass(eq=False, repr=False, kw_only=True)
class EACAverage(Evidence):
    """Evidence accumulation with average linkage, EAC-AL: see `EAC` for the details.

    Parameters
    ----------
    n_clusters : int or None, default=8
        Number of clusters; for criterion="lifetime" the maximum, None for any number.
    normalize : {"observed", "all"}, default="observed"
        Denominator of the co-association: the partitions that label both objects, or all partitions.
    weights : {"local"}, array of shape (n_partitions,) or None, default=None
        Weights of the partitions, or "local" of base clusters, as for `EAC`.
    criterion : {"n_clusters", "lifetime"}, default="n_clusters"
        "n_clusters", or "lifetime": the number that stays the same over the widest range of heights.
    allow_single_cluster : bool, default=False
        For criterion="lifetime", whether a single cluster is considered, as for `EAC`.
    lifetime_ties : {"more", "fewer"}, default="more"
        For criterion="lifetime", whether ties go to "more" or to "fewer" clusters.
    ties : {"lowest", "random"}, default="lowest"
        How to break ties between pairs at equal distance, as for `EAC`.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of random ties; nothing else is random.
    memory : str, int or None, default=None
        Budget for the distinct label rows and their distances, 4 GB by default; refused if they do not fit.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_, objective_, n_clusters_, linkage_, row_of_object_, history_ : as for `EAC`

    Notes
    -----
    4 U^2 bytes for U distinct rows, .4 GB for 10,000, and O(U^2 M) time, pairs counted on all workers. Of
    more rows than ``memory`` holds, `EACGroups` is the choice.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*;
    Nguyen and Caruana (2007), whose HAC consensus this is;
    Huang, Wang and Lai (2018), whose LWEA it is with weights="local".

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.EACAverage(n_clusters=2).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.linkage_.shape
    (4, 4)
    """

    linkage: ClassVar[str] = "average"


class EACGroups(ConsensusTree):
    """Evidence accumulation with average linkage of groups of objects, for any number of objects.

    `EACAverage` of the groups that `ConsensusTree` merges, by its tree of average link with all base clusters
    counted alike: of two groups the agreements of all their pairs, divided by the partitions that label both
    objects of a pair, summed over all pairs. All objects are then placed as by that method.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters. "auto": by `bigcons.choose_n_clusters`.
    weights : array of shape (n_partitions,) or None, default=None
        Numbers >= 0 by which each partition counts, as if it occurred that many times; 0 leaves it out. None:
        all count the same.
    resume : bool, default=True
        Whether to resume an interrupted solve to ``out``, with the same result as an uninterrupted one.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the sample; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_, memberships_, n_clusters_, trust_, temperature_, objective_, history_, n_passes_
        As for `ConsensusTree`, whose ``chosen_tree_`` is "average" here.

    Notes
    -----
    An approximation that leaves out what the exact method makes clusters of first: single objects and small
    groups of them, of which average link of all objects has many where labels are noisy. Where classes are
    clear, both give the same clusters. Time and memory are those of `ConsensusTree`, linear in the objects.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> bc.EACGroups(n_clusters=2).fit(labels).labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = ConsensusTree.info._replace(paper=EAC.info.paper)
    _trees: ClassVar[tuple[str, ...]] = (AVERAGE,)
    _is_local: ClassVar[bool] = False


def _within(rows: UniqueRows, normalize: str, weights: Weights | None) -> np.ndarray:
    """Return the distance (n_rows,) between two objects of each row.

    0 if partitions count the same, or are weighed; the share of labels missing if c / M.
    """
    if weights is None:
        n_labels = np.count_nonzero(rows.labels >= 0, axis=1)
        return distance(n_labels, n_labels, rows.labels.shape[1], normalize)
    joined, both = np.zeros((2, len(rows.labels)))
    for labels, offset, weight in zip(rows.labels.T, weights.offsets, weights.partitions, strict=False):
        seen = labels >= 0
        joined[seen] += weights.base_clusters[offset + labels[seen]]
        both[seen] += weight
    return distance(joined, both, float(weights.partitions.sum()), normalize)
