"""What evidence accumulation does whatever the linkage: agglomerate the distinct label rows, cut the tree."""

from __future__ import annotations

import logging
from dataclasses import field
from typing import cast

import numpy as np

from bigcons.coassociation.linkage import (
    LINKAGES,
    MONOTONE,
    Merges,
    agglomerate,
    cut,
    largest_lifetime,
    linkage_matrix,
    sorted_merges,
)
from bigcons.coassociation.neighbors import BYTES_PER_ROW, sparse_merges
from bigcons.coassociation.rows import UniqueRows, unique_rows
from bigcons.coassociation.similarity import NORMALIZATIONS, condensed_bytes, condensed_distances, distance
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.execution.engine import Engine
from bigcons.memory import format_size
from bigcons.seeding import generator
from bigcons.solving.estimator import ConsensusClusterer, Output
from bigcons.solving.memory_plan import data_budget
from bigcons.solving.survey import take_survey
from bigcons.stores.ensemble import Ensemble
from bigcons.validation import check_choice, check_flag, check_int

logger = logging.getLogger("bigcons")

CRITERIA = ("n_clusters", "lifetime")
LIFETIME_TIES = ("more", "fewer")


class EvidenceAccumulation(ConsensusClusterer):
    """Base of the estimators of evidence accumulation, which give the linkage.

    Parameters
    ----------
    n_clusters
        Number of clusters; for criterion="lifetime" the most there may be, None for any number. Objects of
        equal label rows always stay together, so there are fewer if there are fewer distinct rows.
    normalize
        "observed": of the partitions that label both objects, none giving similarity 0; "all": of all.
    criterion
        "n_clusters", or "lifetime": the number of clusters, from 2 to one less than the objects, that stays
        the same over the widest range of heights.
    allow_one
        For criterion="lifetime", let one cluster live from the last merge to distance 1. Not in the paper.
    lifetime_ties
        For criterion="lifetime": of equal lifetimes take the one of "more" clusters, as the reference
        implementation did, or of "fewer".
    ties
        Which of the pairs at equal distance merges first: "lowest", that of the rows that come first, as far
        as the linkage goes by them, or "random": the rows are taken in a random order. Distances have few
        values, so that ties are the rule; several seeds tell what hangs on them.
    random_state
        Seed of the orders of ``neighbors`` and of random ties.
    memory
        Budget, 4 GB by default: refused with the size that would do if the distinct label rows, or their
        distances where these are needed, do not fit.
    """

    n_clusters: int | None = field(default=8, kw_only=False)  # type: ignore[assignment]
    normalize: str = "observed"
    criterion: str = "n_clusters"
    allow_one: bool = False
    lifetime_ties: str = "more"
    ties: str = "lowest"

    linkage = "average"  # this and the next are parameters of some subclasses only
    neighbors = cast("int | str", "all")

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        self._check()
        budget = data_budget(self.memory, engine)
        survey = take_survey(ensemble, engine, seed, 0)
        remedy = "raise memory, or use pcc, which reads the labels block by block"
        rows = unique_rows(ensemble, engine, budget=budget, remedy=remedy)
        logger.info("%s distinct rows of %s objects", f"{len(rows.labels):,}", f"{ensemble.n_objects:,}")
        within = _within(rows, self.normalize)
        merges = self._merge_in_order(rows, within, budget, engine, seed)
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
            survey.unlabeled,
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

    def _merge_in_order(
        self, rows: UniqueRows, within: np.ndarray, budget: int, engine: Engine, seed: int
    ) -> Merges:
        """Take the rows in the order in which ties go, and return the merges of the rows as they were."""
        if self.ties == "lowest":
            return self._merge(rows, within, budget, engine, seed)
        order = generator(seed, "eac.ties").permutation(len(rows.labels))
        taken = rows._replace(labels=rows.labels[order], weights=rows.weights[order])
        merges = self._merge(taken, within[order], budget - rows.labels.nbytes, engine, seed)
        return Merges(order[merges.first], order[merges.second], merges.heights)

    def _merge(self, rows: UniqueRows, within: np.ndarray, budget: int, engine: Engine, seed: int) -> Merges:
        """Choose between the three roads: a tree without distances, likely neighbors, all distances."""
        held = rows.row_of_object.nbytes + rows.labels.nbytes
        if self.neighbors != "all" and int(self.neighbors) < len(rows.labels) - 1:
            needed = held + len(rows.labels) * BYTES_PER_ROW + 2 * rows.labels.nbytes
            self._refuse_above(budget, needed, len(rows.labels), "neighbors", "use pcc")
            return sparse_merges(rows.labels, int(self.neighbors), self.normalize, engine, seed)
        if self.linkage == "single":  # also of as many neighbors as there are rows, and then sooner
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
            tie=self.lifetime_ties,
        )

    def _refuse_above(self, budget: int, needed: int, n_rows: int, what: str, remedy: str) -> None:
        if needed > budget:
            raise MemoryBudgetError(
                f"the {what} of {n_rows:,} distinct rows need {format_size(needed)} for linkage="
                f"{self.linkage!r}, more than the {format_size(budget)} there is for them; "
                f"raise memory, or {remedy}."
            )

    def _check(self) -> None:
        check_choice("linkage", self.linkage, LINKAGES)
        check_choice("normalize", self.normalize, NORMALIZATIONS)
        check_choice("criterion", self.criterion, CRITERIA)
        check_choice("lifetime_ties", self.lifetime_ties, LIFETIME_TIES)
        check_choice("ties", self.ties, ("lowest", "random"))
        check_flag("allow_one", self.allow_one)
        if self.neighbors != "all":
            check_int("neighbors", self.neighbors)
            if self.linkage != "single":
                raise InvalidInputError(
                    f"neighbors={self.neighbors} with linkage={self.linkage!r}, which needs the distances of "
                    "all pairs; use neighbors='all', or linkage='single'."
                )
        if self.criterion == "lifetime" and self.linkage not in MONOTONE:
            raise InvalidInputError(
                f"criterion='lifetime' with linkage={self.linkage!r}, whose heights may fall from a merge "
                "to the next; use criterion='n_clusters', or linkage='average'."
            )
        if self.allow_one and self.criterion != "lifetime":
            raise InvalidInputError("allow_one=True goes with criterion='lifetime'; ask for n_clusters=1.")
        if self.lifetime_ties != "more" and self.criterion != "lifetime":
            raise InvalidInputError(
                f"lifetime_ties={self.lifetime_ties!r} goes with criterion='lifetime'; leave it out."
            )
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
