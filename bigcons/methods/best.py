"""BEST: the base clustering that agrees best with the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.memory import Block
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.methods.incidence import (
    check_overlaps_plan,
    fold_overlaps,
    observed_pairs,
    votes_of,
)
from bigcons.metrics.clusterings import OF_TWO_CLUSTERINGS, Criterion
from bigcons.run.engine import Engine
from bigcons.run.results import Output
from bigcons.run.survey import take_survey
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice, check_flag

DISTANCES = ("van_dongen", "variation_of_information")
"""The criteria that are minimized."""


@dataclass(eq=False, repr=False, kw_only=True)
class BEST(ConsensusClusterer):
    """Return the base clustering that agrees best with all, by a consensus criterion.

    Parameters
    ----------
    n_clusters : int, default=8
        Maximum number of clusters of a partition to be considered.
    criterion : str, default="nmi"
        What is averaged over the partitions: "adjusted_rand", "matching_accuracy", "nmi", "rand_index",
        "van_dongen" or "variation_of_information". Distances are minimized, the others maximized.
    weighted : bool, default=True
        Whether a partition counts by the number of objects that it and the candidate both label; with "nmi"
        the average is then the `anmi` of the candidate, which counts 0 for the objects it leaves out. False:
        all count the same, and what the candidate leaves out does not count.
    unlabeled : {"nearest", "missing"}, default="nearest"
        What happens to objects that other partitions label but the winner does not: "nearest" assigns them to
        the nearest cluster center, over the partitions that label them, "missing" leaves them -1. The
        center of a cluster holds the share of its objects in every base cluster.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Not used: nothing is random.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, the clusters of the winner, -1 for objects that no partition labeled
    objective_ : the average criterion of the winner, over the objects that it labels itself
    best_partition_ : index of the winner
    scores_ : (n_partitions,) the average criterion of every partition, NaN for those with too many clusters
    history_ : a list per quantity with one entry

    Notes
    -----
    Two partitions are compared on the objects that both label, and every partition also with itself. All
    contingency tables are blocks of the overlaps of base clusters, which take one pass. O(n M^2 + B^2) time,
    O(B^2) memory for B base clusters; three passes in all.

    References
    ----------
    Gionis, Mannila and Tsaparas (2007), *Clustering aggregation*; Nguyen and Caruana (2007).

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.BEST(n_clusters=2, unlabeled="nearest").fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Gionis et al. 2007", "base-cluster overlaps")

    criterion: str = "nmi"
    weighted: bool = True
    unlabeled: str = "nearest"

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("criterion", self.criterion, tuple(OF_TWO_CLUSTERINGS))
        self._is_limit = True
        check_flag("weighted", self.weighted)
        check_choice("unlabeled", self.unlabeled, ("nearest", "missing"))
        candidates = np.flatnonzero(ensemble.n_clusters <= self.n_clusters)
        if not candidates.size:
            raise InvalidInputError(
                f"n_clusters={self.n_clusters} but every partition has at least "
                f"{ensemble.n_clusters.min()} clusters; allow as many."
            )
        check_overlaps_plan("BEST", ensemble, engine, self.memory, columns=1, in_memory=False)
        survey = take_survey(ensemble, engine, seed, 0)
        overlaps = fold_overlaps(ensemble, engine)
        self.scores_: np.ndarray = average_criteria(
            overlaps, ensemble.offsets, candidates, self.criterion, weighted=self.weighted
        )
        best = np.nanmin if self.criterion in DISTANCES else np.nanmax
        self.best_partition_: int = int(np.flatnonzero(self.scores_ == best(self.scores_))[0])
        self.objective_: float = float(self.scores_[self.best_partition_])
        self.n_passes_ = 1
        self.history_: dict[str, list[Any]] = {"pass": [1], "objective": [self.objective_]}
        offsets, winner = ensemble.offsets, self.best_partition_
        table = None
        if self.unlabeled == "nearest":
            table = closeness_to_centers(overlaps[offsets[winner] : offsets[winner + 1]], offsets)

        def read(block: Block) -> np.ndarray:
            labels = ensemble.read(block.start, block.stop)
            found = labels[:, winner].astype(np.int32)
            if table is not None:
                missing = found < 0
                scores, _ = votes_of(np.ascontiguousarray(labels[missing]), offsets, table)
                found[missing] = scores.argmax(axis=1)
            return found

        self._publish(ensemble, read, survey.unlabeled, out, engine)


def average_criteria(
    overlaps: np.ndarray,
    offsets: np.ndarray,
    candidates: np.ndarray,
    criterion: str,
    *,
    weighted: bool,
    cells: int = 1 << 20,
) -> np.ndarray:
    """Return the average criterion (M,) of each candidate with all partitions, NaN for the others.

    The weighted average of "nmi" is the ANMI: see `bigcons.metrics.anmi`. Contingency tables in a batch have
    about so many ``cells``, of 8 bytes, and a few times that for logarithms.
    """
    scores = np.full(len(offsets) - 1, np.nan)
    n_labels = float(np.trace(overlaps)) if weighted and criterion == "nmi" else None
    n_clusters, of_tables = np.diff(offsets), OF_TWO_CLUSTERINGS[criterion]
    for k in np.unique(n_clusters[candidates]):
        alike = candidates[n_clusters[candidates] == k]
        # no batch of one: numpy would sum in another order, and equal partitions must score the same
        n_parts = max(1, min(len(alike) // 2, len(alike) * k * len(overlaps) // cells))
        for some in np.array_split(alike, n_parts):
            scores[some] = _averages(overlaps, offsets, some, of_tables, n_labels, weighted=weighted)
    return scores


def _averages(
    overlaps: np.ndarray,
    offsets: np.ndarray,
    some: np.ndarray,
    criterion: Criterion,
    n_labels: float | None,
    *,
    weighted: bool,
) -> np.ndarray:
    """Return the averages (some,) of partitions ``some`` that have the same number of clusters.

    Their tables with all partitions of the same number of clusters form a stack for the criterion. With
    ``n_labels``, the number of all labels, those of the objects that a candidate leaves out count 0.
    """
    n_clusters = np.diff(offsets)
    own = offsets[some] + np.arange(n_clusters[some[0]])[:, None]
    total, weight = np.zeros(len(some)), np.zeros(len(some))
    for k in np.unique(n_clusters):
        other = offsets[:-1][n_clusters == k] + np.arange(k)[:, None]
        cells = overlaps[own[:, None, :, None], other[:, None, :]]  # tables last, for sums over many at once
        sizes = cells.sum(axis=(0, 1))
        cells[0, 0][sizes == 0] = 1.0  # avoids a table without objects; its weight is 0
        weights = sizes if weighted else sizes > 0
        values = criterion(np.moveaxis(cells, (0, 1), (-2, -1)))
        total += (values * weights).sum(axis=1)
        weight += weights.sum(axis=1)
    return total / (weight if n_labels is None else n_labels)


def closeness_to_centers(counts: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the table (B, k) whose votes are largest for the nearest center of k clusters.

    ``counts`` (k, B) are the objects of each cluster in every base cluster. With ``p_b`` the share of a
    cluster's objects in base cluster b, of those that its partition labels, the squared distance of an object
    to the center over one partition is ``1 - 2 p_b + sum_b' p_b'^2``.
    """
    partition = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    seen = observed_pairs(counts, offsets)[:, partition].astype(np.float64)
    centers = np.divide(counts, seen, out=np.zeros_like(seen), where=seen > 0)
    squares = np.add.reduceat(centers**2, offsets[:-1], axis=1)[:, partition]
    return np.asarray((2.0 * centers - squares).T)
