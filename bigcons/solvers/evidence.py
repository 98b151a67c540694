"""Evidence accumulation: agglomerative clustering of the co-association matrix."""

from __future__ import annotations

import logging
import os
from typing import ClassVar

import numpy as np

from bigcons.coassociation.linkage import (
    LINKAGES,
    Merges,
    agglomerate,
    cut,
    largest_lifetime,
    linkage_matrix,
    sorted_merges,
)
from bigcons.coassociation.neighbours import BYTES_PER_ROW, sparse_merges
from bigcons.coassociation.rows import UniqueRows, unique_rows
from bigcons.coassociation.similarity import NORMALIZATIONS, condensed_bytes, condensed_distances, distance
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.execution.engine import Engine
from bigcons.memory import format_size, parse_size
from bigcons.seeding import SeedLike
from bigcons.solvers.base import ConsensusClusterer, MethodFacts, Output
from bigcons.solvers.survey import take_survey
from bigcons.stores.ensemble import Ensemble
from bigcons.validation import check_choice, check_flag, check_int

logger = logging.getLogger("bigcons")

CRITERIA = ("n_clusters", "lifetime")
TIES = ("more", "fewer")

DEFAULT_MEMORY = 4_000_000_000


class _EvidenceAccumulation(ConsensusClusterer):
    """What evidence accumulation does whatever the linkage."""

    n_clusters: int | None  # type: ignore[assignment] # None lets the lifetimes choose
    linkage: str
    neighbors: int | str = "all"
    normalize: str
    criterion: str
    allow_one: bool
    tie: str

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        self._check()
        budget = DEFAULT_MEMORY if self.memory is None else parse_size(self.memory)
        survey = take_survey(ensemble, engine, seed, 0)
        remedy = "raise memory, or use pcc, which reads the labels block by block"
        rows = unique_rows(ensemble, engine, budget=budget, remedy=remedy)
        logger.info("%s distinct rows of %s objects", f"{len(rows.labels):,}", f"{ensemble.n_objects:,}")
        within = _within(rows, self.normalize)
        merges = self._merge(rows, within, budget, engine, seed)
        n_clusters = self._choose(merges, rows, within)
        labels = cut(merges, len(rows.labels), n_clusters)
        kept = merges.heights[: len(rows.labels) - n_clusters]
        self.objective_ = float(kept.sum() + ((rows.weights - 1) * within).sum())
        self.history_ = {"n_clusters": [int(labels.max()) + 1], "objective": [self.objective_]}
        self.linkage_ = linkage_matrix(merges, rows.weights)
        self.row_of_object_ = rows.row_of_object
        self._publish_labels(
            ensemble,
            lambda block: labels[rows.row_of_object[block.start : block.stop]],
            survey.unlabelled,
            out,
            n_clusters=n_clusters,
        )

    def _check_n_clusters(self, n_objects: int) -> None:
        if self.n_clusters is not None:
            super()._check_n_clusters(n_objects)
        elif self.criterion == "n_clusters":
            raise InvalidInputError(
                "n_clusters=None with criterion='n_clusters'; give a number, or criterion='lifetime'."
            )

    def _merge(self, rows: UniqueRows, within: np.ndarray, budget: int, engine: Engine, seed: int) -> Merges:
        """Choose between the three roads: a tree without distances, likely neighbours, all distances."""
        held = rows.row_of_object.nbytes + rows.labels.nbytes
        if self.neighbors != "all":
            needed = held + len(rows.labels) * BYTES_PER_ROW + 2 * rows.labels.nbytes
            self._refuse_above(budget, needed, len(rows.labels), "neighbours", "use pcc")
            return sparse_merges(rows.labels, int(self.neighbors), self.normalize, engine, seed)
        if self.linkage == "single":
            return _tree_merges(rows.labels, self.normalize)
        needed = held + condensed_bytes(len(rows.labels), engine)
        self._refuse_above(budget, needed, len(rows.labels), "distances", "use eac-single or pcc")
        distances = condensed_distances(rows.labels, self.normalize, engine)
        return agglomerate(distances, self.linkage, rows.weights, within)

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
            above=1.0 if self.allow_one else None,
            tie=self.tie,
        )

    def _refuse_above(self, budget: int, needed: int, n_rows: int, what: str, remedy: str) -> None:
        if needed > budget:
            raise MemoryBudgetError(
                f"the {what} of {n_rows:,} distinct rows need {format_size(needed)} for linkage="
                f"{self.linkage!r}, over memory={format_size(budget)}; raise memory, or {remedy}."
            )

    def _check(self) -> None:
        check_choice("linkage", self.linkage, LINKAGES)
        check_choice("normalize", self.normalize, NORMALIZATIONS)
        check_choice("criterion", self.criterion, CRITERIA)
        check_choice("tie", self.tie, TIES)
        check_flag("allow_one", self.allow_one)
        if self.neighbors != "all":
            check_int("neighbors", self.neighbors)
            if self.linkage != "single":
                raise InvalidInputError(
                    f"neighbors={self.neighbors} with linkage={self.linkage!r}, which needs the distances of "
                    "all pairs; use neighbors='all', or linkage='single'."
                )
        if self.allow_one and self.criterion != "lifetime":
            raise InvalidInputError("allow_one=True goes with criterion='lifetime'; ask for n_clusters=1.")
        if self.allow_one and self.linkage == "ward":
            raise InvalidInputError(
                "allow_one=True with linkage='ward', whose heights have no upper end; use another linkage."
            )


def _within(rows: UniqueRows, normalize: str) -> np.ndarray:
    """Return the distance between two objects of each row: 0, or the share of labels missing if c / M."""
    n_labels = (rows.labels >= 0).sum(axis=1)
    return distance(n_labels, n_labels, rows.labels.shape[1], normalize)


def _tree_merges(rows: np.ndarray, normalize: str) -> Merges:
    """Return the single-link merges of label rows, from their spanning tree of greatest similarity."""
    from bigcons.kernels.linkage import spanning_tree

    n = len(rows)
    first, second = np.empty(n - 1, np.int64), np.empty(n - 1, np.int64)
    n_agree, n_seen = np.empty(n - 1, np.int64), np.empty(n - 1, np.int64)
    spanning_tree(rows, normalize == "all", first, second, n_agree, n_seen)
    return sorted_merges(first, second, distance(n_agree, n_seen, rows.shape[1], normalize))


class EAC(_EvidenceAccumulation):
    """Evidence accumulation clustering (Fred and Jain 2005): agglomerative, on how often objects go together.

    The distance of two objects is one less the share of partitions that put them together. Linkage of these
    distances gives a tree, which is cut.

    Parameters
    ----------
    n_clusters
        Number of clusters; for criterion="lifetime" the most there may be, None for any number. Objects of
        equal label rows always stay together, so there are fewer if there are fewer distinct rows.
    linkage
        "average", "single", "complete" or "ward", which takes the distances for Euclidean ones.
    neighbors
        For linkage="single": "all", or a number of likely neighbours with which each distinct row is
        compared, for ensembles where all pairs would take too long. An approximation that can only miss
        links: exact on the graph of the pairs compared, which are found by sorting the rows in random orders.
        On 5,999 distinct rows the tree was 328 % heavier than the exact one with 8 neighbours, 57 % with 32,
        23 % with 64, 7.8 % with 128 and 2.0 % with 256.
    normalize
        "observed": of the partitions that label both objects, none giving similarity 0; "all": of all.
    criterion
        "n_clusters", or "lifetime": the number of clusters, from 2 to one less than the objects, that stays
        the same over the widest range of heights.
    allow_one
        For criterion="lifetime", let one cluster live from the last merge to distance 1. Not in the paper.
    tie
        Of equal lifetimes take the one of "more" clusters, as the reference implementation did, or "fewer".
    random_state
        Seed of the orders of ``neighbors``; nothing else is random.
    memory
        Budget, 4 GB by default: refused with the size that would do if the distances do not fit.
    out, client
        As for every method: see PCC.

    Attributes
    ----------
    labels_ : (n_objects,) int32, clusters numbered by their first objects, -1 for objects without any label
    objective_ : sum of the heights of the merges that were made, those of equal rows among them
    n_clusters_ : clusters found
    linkage_ : (n_rows - 1, 4) the tree of the distinct rows as scipy's linkage matrix, sizes in objects
    row_of_object_ : (n_objects,) int32 the distinct row of each object, -1 without any label
    history_ : the number of clusters and the objective, one entry

    Notes
    -----
    Works on the U distinct rows, weighted: the same tree as of all objects, up to the order of ties, since
    no other row is nearer to an object than one equal to its own. Two passes over the labels. Single link:
    O(U^2 M) time on one core and O(U M) memory; with q neighbours O(q U (M + log U)) time. The others: 4 U^2
    bytes and O(U^2 M) time, the counting of pairs on all workers. Of equal distances the one of the rows that
    come first is merged first, as far as chains of nearest neighbours follow that order.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        paper="Fred and Jain 2005",
        needs="co-association",
        soft=False,
        missing="c/N",
        out_of_core=False,
        distributed=False,
    )

    def __init__(
        self,
        n_clusters: int | None = 8,
        *,
        linkage: str = "average",
        neighbors: int | str = "all",
        normalize: str = "observed",
        criterion: str = "n_clusters",
        allow_one: bool = False,
        tie: str = "more",
        random_state: SeedLike = None,
        memory: int | str | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.linkage = linkage
        self.neighbors = neighbors
        self.normalize = normalize
        self.criterion = criterion
        self.allow_one = allow_one
        self.tie = tie
        self.random_state = random_state
        self.memory = memory
        self.out = out
        self.client = client


class EACSingle(_EvidenceAccumulation):
    """Evidence accumulation with single link, EAC-SL: `EAC` with linkage="single", which has the details.

    Parameters
    ----------
    n_clusters
        Number of clusters, or the most there may be, or None: as for `EAC`.
    neighbors
        "all", or a number of likely neighbours with which each distinct row is compared: as for `EAC`.
    normalize, criterion, allow_one, tie
        As for `EAC`.
    random_state
        Seed of the orders of ``neighbors``; nothing else is random.
    memory
        Budget, 4 GB by default, for the distinct label rows; refused with the size that would do.
    out, client
        As for every method: see PCC.

    Attributes
    ----------
    labels_, objective_, n_clusters_, linkage_, row_of_object_, history_ : as of `EAC`

    Notes
    -----
    O(U^2 M) time on one core and O(U M) memory for U distinct rows: Prim's algorithm keeps no distance.
    With q neighbours O(q U (M + log U)) time. Suits ensembles of many small clusters; few large ones chain.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*.
    """

    facts = EAC.facts
    linkage = "single"

    def __init__(
        self,
        n_clusters: int | None = 8,
        *,
        neighbors: int | str = "all",
        normalize: str = "observed",
        criterion: str = "n_clusters",
        allow_one: bool = False,
        tie: str = "more",
        random_state: SeedLike = None,
        memory: int | str | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.neighbors = neighbors
        self.normalize = normalize
        self.criterion = criterion
        self.allow_one = allow_one
        self.tie = tie
        self.random_state = random_state
        self.memory = memory
        self.out = out
        self.client = client


class EACAverage(_EvidenceAccumulation):
    """Evidence accumulation with average link, EAC-AL: `EAC` with linkage="average", which has the details.

    Parameters
    ----------
    n_clusters
        Number of clusters, or the most there may be, or None: as for `EAC`.
    normalize, criterion, allow_one, tie
        As for `EAC`.
    random_state
        Taken as by every method; nothing is random.
    memory
        Budget, 4 GB by default, for the distances of distinct rows; refused with the size that would do.
    out, client
        As for every method: see PCC.

    Attributes
    ----------
    labels_, objective_, n_clusters_, linkage_, row_of_object_, history_ : as of `EAC`

    Notes
    -----
    4 U^2 bytes and O(U^2 M) time for U distinct rows, the counting of pairs on all workers.

    References
    ----------
    Fred and Jain (2005), *Combining multiple clusterings using evidence accumulation*;
    Nguyen and Caruana (2007), whose HAC consensus this is.
    """

    facts = EAC.facts
    linkage = "average"

    def __init__(
        self,
        n_clusters: int | None = 8,
        *,
        normalize: str = "observed",
        criterion: str = "n_clusters",
        allow_one: bool = False,
        tie: str = "more",
        random_state: SeedLike = None,
        memory: int | str | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.normalize = normalize
        self.criterion = criterion
        self.allow_one = allow_one
        self.tie = tie
        self.random_state = random_state
        self.memory = memory
        self.out = out
        self.client = client
