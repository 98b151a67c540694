"""Furthest consensus: clusters around objects that are as dissimilar as possible."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons.coassociation.counts import similarity
from bigcons.memory import N_SAMPLED, TILE_ROWS, Block, DataBudget, row_blocks
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.methods.linkage import unique_rows
from bigcons.progress import progress
from bigcons.run.engine import Engine
from bigcons.run.memory_plan import MemoryPlan, block_label_bytes, data_budget
from bigcons.run.output import Output
from bigcons.run.survey import take_survey
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice
from bigcons.weights import counts_of

STARTS = ("exact", "sampled")
CRITERIA = ("fixed", "disagreement")


@dataclass(eq=False, repr=False, kw_only=True)
class Furthest(ConsensusClusterer):
    """Furthest consensus: clusters around objects that are as dissimilar as possible.

    The first two centers are the least similar pair of objects; each further center is the object whose
    largest similarity to a center is smallest. Every object joins the center it is most similar to. The
    similarity is the share of partitions that put two objects together, of those that label both; 0 if none
    does.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers; for criterion="disagreement" the maximum. There are fewer if no other object
        differs from the centers.
    init : {"exact", "sampled"}, default="exact"
        The first pair: "exact", the least similar of all distinct label rows, or "sampled", of 2,048 objects.
    criterion : {"fixed", "disagreement"}, default="fixed"
        "fixed", or "disagreement": add centers as long as the disagreements fall, beginning with one cluster.
        A disagreement is a pair of objects that the consensus joins and a partition separates, or vice versa,
        summed over all partitions and the pairs that each labels.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the sample.
    memory : str, int or None, default=None
        Budget for the distinct rows of init="exact", 4 GB by default; refused if they do not fit.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects without any label
    centers_ : ``(n_clusters_,)`` int64, the object at the center of each cluster; with a single one, its seed
    objective_ : disagreements with the partitions
    n_clusters_, n_passes_ : number of clusters found; passes over the labels for the centers
    history_ : the number of clusters and the objective after each center

    Notes
    -----
    Of equally similar pairs that of the lowest objects is taken, and objects join the older center. One pass
    per center, each O(n M), with 12 bytes an object in memory; before that two passes and, for U distinct
    rows and init="exact", O(U^2 M) time on all workers. Counting disagreements takes O(B k) memory.

    References
    ----------
    Nguyen and Caruana (2007); Gionis, Mannila and Tsaparas (2007), *Clustering aggregation*, whose Furthest
    stops by the disagreements.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.Furthest(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Nguyen and Caruana 2007", "labels", missing="c/N")

    init: str = "exact"
    criterion: str = "fixed"

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("init", self.init, STARTS)
        check_choice("criterion", self.criterion, CRITERIA)
        budget = data_budget(self.memory, engine, ensemble)
        held, rows = 12 * ensemble.n_objects, ensemble.chunk_rows
        per_block = block_label_bytes(ensemble) + 16 * rows
        MemoryPlan(held, per_block, 12 * rows).check("Furthest", engine, ensemble, self.memory)
        self._is_limit = self.criterion == "disagreement"
        survey = take_survey(ensemble, engine, seed, 0)
        if self.init == "exact":
            pair = _first_pair(ensemble, engine, budget)
        else:
            pair = _sampled_pair(ensemble, survey.unlabeled, engine, seed)
        search = _Search(ensemble, engine, pair)
        assigned = search.assigned
        numbers: list[int] = []
        objectives: list[float] = []
        with progress("centers", self.n_clusters, "centers") as listener:
            while len(search.centers) < self.n_clusters and not search.is_exhausted:
                before, n_before = assigned, len(search.centers)
                disagreements = search.add_center()
                listener.advance(1)
                if self.criterion == "disagreement" and n_before and disagreements >= objectives[-1]:
                    assigned = before
                    break
                assigned = search.assigned
                numbers.append(n_before + 1)
                objectives.append(disagreements)
        self.n_passes_: int = len(search.centers)
        centers = np.array(search.centers[: len(numbers)], np.int64)
        self.objective_: float = objectives[-1]
        self.history_: dict[str, list[Any]] = {"n_clusters": numbers, "objective": objectives}
        self._publish(ensemble, lambda block: assigned[block.start : block.stop], survey.unlabeled, out)
        self.centers_: np.ndarray = centers[self._order[: len(centers)]]


class _Visit(NamedTuple):
    """A block and the state of its objects before a pass."""

    block: Block
    similarity: np.ndarray
    """(rows,) float64 largest similarity to a center; -1 before the first."""
    assigned: np.ndarray
    """(rows,) int32 the first center of that similarity, -1 for objects without any label."""


class _Search:
    """The centers so far, and the similarity of every object to the nearest one."""

    def __init__(self, ensemble: Ensemble, engine: Engine, pair: tuple[int, int]) -> None:
        self.ensemble = ensemble
        self.engine = engine
        self.pair = pair
        self.centers: list[int] = []
        self.assigned = np.full(ensemble.n_objects, -1, np.int32)
        self.is_exhausted = False
        self._similarity = np.full(ensemble.n_objects, -1.0)
        self._furthest = pair[0]

    def add_center(self) -> float:
        """Make the furthest object a center in one pass, and return the disagreements of the clusters."""
        number = len(self.centers)
        self.centers.append(self._furthest)
        row = self.ensemble.read_rows(np.array([self._furthest]))
        visit = partial(_visit_block, self.ensemble, row, number)
        blocks = self.ensemble.blocks()
        table = np.zeros((number + 1, self.ensemble.n_base_clusters), np.int64)
        before, self.assigned = self.assigned, np.empty_like(self.assigned)
        least = np.inf, -1
        with closing(self.engine.map(visit, [self._visit(block, before) for block in blocks])) as results:
            for block, (near, assigned, part, candidate) in zip(blocks, results, strict=True):
                self._similarity[block.start : block.stop] = near
                self.assigned[block.start : block.stop] = assigned
                table += part
                if candidate[0] < least[0]:
                    least = candidate
        self._furthest = least[1]
        if number == 0 and self._similarity[self.pair[1]] < 1.0:  # else all objects of the sample are alike
            self._furthest = self.pair[1]
        self.is_exhausted = least[0] >= 1.0
        return _disagreements(table, self.ensemble.offsets)

    def _visit(self, block: Block, assigned: np.ndarray) -> _Visit:
        part = slice(block.start, block.stop)
        return _Visit(block, self._similarity[part], assigned[part])


def _visit_block(
    ensemble: Ensemble, center: np.ndarray, number: int, visit: _Visit
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[float, int]]:
    """Offer a new center (1, M) to a block: similarities, centers, contingency table, and furthest object.

    The latter after its similarity, infinity if the block has no labeled object.
    """
    labels = ensemble.read(visit.block.start, visit.block.stop)
    labeled = (labels >= 0).any(axis=1)
    offered = _similarities(labels, center)[:, 0]
    nearer = labeled & (offered > visit.similarity)
    objects = np.arange(visit.block.start, visit.block.stop)
    near = np.where(nearer, offered, visit.similarity)
    assigned = np.where(nearer, np.int32(number), visit.assigned)
    table = counts_of(labels, ensemble.offsets, assigned, number + 1)[0].T.astype(np.int64, order="C")
    least = near[labeled].min(initial=np.inf)
    furthest = objects[labeled & (near == least)]
    if not furthest.size:
        return near, assigned, table, (np.inf, -1)
    return near, assigned, table, (float(least), int(furthest[0]))


def _similarities(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the similarities (rows of left, rows of right) float64."""
    from bigcons.kernels.label_rows import count_tile

    n_agree = np.empty((len(left), len(right)), np.int32)
    n_seen = np.empty_like(n_agree)
    count_tile(left, right, n_agree, n_seen)
    return similarity(n_agree, n_seen, left.shape[1], "observed")


def _first_pair(ensemble: Ensemble, engine: Engine, budget: DataBudget) -> tuple[int, int]:
    """Return the least similar pair of all objects, the first on ties."""
    remedy = "use init='sampled'"
    rows = unique_rows(ensemble, engine, budget=budget, remedy=remedy)
    objects = np.flatnonzero(rows.row_of_object >= 0)
    first_object = objects[np.unique(rows.row_of_object[objects], return_index=True)[1]]
    a, b = _least_similar(rows.labels, engine)
    return int(first_object[a]), int(first_object[b])


def _sampled_pair(ensemble: Ensemble, unlabeled: np.ndarray, engine: Engine, seed: int) -> tuple[int, int]:
    """Return the least similar pair of objects drawn uniformly, the first on ties."""
    labeled = np.setdiff1d(np.arange(ensemble.n_objects), unlabeled, assume_unique=True)
    draw = generator(seed, "furthest.sample")
    if len(labeled) > N_SAMPLED:
        labeled = np.sort(draw.choice(labeled, N_SAMPLED, replace=False, shuffle=False))
    a, b = _least_similar(ensemble.read_rows(labeled), engine)
    return int(labeled[a]), int(labeled[b])


def _least_similar(rows: np.ndarray, engine: Engine) -> tuple[int, int]:
    """Return the least similar pair of rows, the first on ties; (0, 0) for a single row."""
    blocks = row_blocks(len(rows), TILE_ROWS)
    tiles = [(left, right) for left in blocks for right in blocks[left.index :]]
    found = engine.map(partial(_least_of_tile, rows), tiles)
    with progress("least similar pair", len(tiles), "tiles") as listener, closing(found):
        least = (np.inf, 0, 0)
        for (left, _), candidate in zip(tiles, found, strict=True):
            if least[0] == 0.0 and least[1] <= left.start:
                break  # no later pair is less similar, or of a lower row
            least = min(least, candidate)
            listener.advance(1)
    return least[1], least[2]


def _least_of_tile(rows: np.ndarray, tile: tuple[Block, Block]) -> tuple[float, int, int]:
    """Return the smallest similarity of a tile and the lowest rows that have it."""
    left, right = tile
    values = _similarities(rows[left.start : left.stop], rows[right.start : right.stop])
    a, b = divmod(int(np.argmin(values)), right.n_rows)
    return float(values.min()), left.start + a, right.start + b


def _disagreements(table: np.ndarray, offsets: np.ndarray) -> float:
    """Return the number of pairs that exactly one of the clusters (rows) and a partition joins, in total."""
    joined_by_both = _n_pairs(table).sum()
    joined_by_partitions = _n_pairs(table.sum(axis=0)).sum()
    seen = np.add.reduceat(table, offsets[:-1], axis=1)
    return float(_n_pairs(seen).sum() + joined_by_partitions - 2 * joined_by_both)


def _n_pairs(counts: np.ndarray) -> np.ndarray:
    return counts * (counts - 1) // 2
