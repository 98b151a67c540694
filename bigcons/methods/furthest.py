"""Furthest consensus: clusters around objects that are as dissimilar as possible."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bigcons.coassociation.counts import similarity
from bigcons.memory import N_SAMPLED, TILE_ROWS, Block, row_blocks
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.methods.evidence import unique_rows
from bigcons.progress import progress
from bigcons.run.engine import Engine
from bigcons.run.memory_plan import MemoryPlan, block_label_bytes, data_budget
from bigcons.run.results import Output
from bigcons.run.survey import take_survey
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice
from bigcons.weights import counts_of


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
        Number of centers. There are fewer if no other object differs from the centers.
    init : {"exact", "sampled"}, default="exact"
        The first pair: "exact", the least similar of all distinct label rows, or "sampled", of 2,048 objects.
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
    Nguyen and Caruana (2007); Gionis, Mannila and Tsaparas (2007), *Clustering aggregation*.

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

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_choice("init", self.init, ("exact", "sampled"))
        budget = data_budget(self.memory, engine, ensemble)
        n, rows = ensemble.n_objects, ensemble.chunk_rows
        plan = MemoryPlan(12 * n, block_label_bytes(ensemble) + 16 * rows, 12 * rows)
        plan.check("Furthest", engine, ensemble, self.memory)
        survey = take_survey(ensemble, engine, seed, 0)
        if self.init == "exact":
            unique = unique_rows(ensemble, engine, budget=budget, remedy="use init='sampled'")
            candidates, distinct = np.flatnonzero(unique.row_of_object >= 0), unique.labels
            candidates = candidates[np.unique(unique.row_of_object[candidates], return_index=True)[1]]
        else:
            candidates = np.setdiff1d(np.arange(n), survey.unlabeled, assume_unique=True)
            if len(candidates) > N_SAMPLED:
                draw = generator(seed, "furthest.sample")
                candidates = np.sort(draw.choice(candidates, N_SAMPLED, replace=False, shuffle=False))
            distinct = ensemble.read_rows(candidates)
        first, second = (int(candidates[row]) for row in _least_similar(distinct, engine))
        similarity, assigned = np.full(n, -1.0), np.full(n, -1, np.int32)  # of each object to its center
        centers: list[int] = []
        objectives: list[float] = []
        least, furthest = -1.0, first
        with progress("centers", self.n_clusters, "centers") as listener:
            while len(centers) < self.n_clusters and least < 1.0:
                centers.append(furthest)
                center = ensemble.read_rows(np.array([furthest]))
                offer = partial(_offer, ensemble, center, len(centers) - 1)
                parts = [
                    (block, similarity[block.start : block.stop], assigned[block.start : block.stop])
                    for block in ensemble.blocks()
                ]
                table = np.zeros((len(centers), ensemble.n_base_clusters), np.int64)
                least, furthest = np.inf, -1
                with closing(engine.map(offer, parts)) as results:
                    for (_, *before), (*after, counts, candidate) in zip(parts, results, strict=True):
                        for rows_before, rows_after in zip(before, after, strict=True):
                            rows_before[:] = rows_after
                        table += counts
                        if candidate[0] < least:
                            least, furthest = candidate
                if len(centers) == 1 and similarity[second] < 1.0:  # else all of the sample are alike
                    furthest = second
                objectives.append(_disagreements(table, ensemble.offsets))
                listener.advance(1)
        self.n_passes_: int = len(centers)
        self.objective_: float = objectives[-1]
        numbers = list(range(1, len(centers) + 1))
        self.history_: dict[str, list[Any]] = {"n_clusters": numbers, "objective": objectives}
        self._publish(ensemble, lambda block: assigned[block.start : block.stop], survey.unlabeled, out)
        self.centers_: np.ndarray = np.array(centers, np.int64)[self._order[: len(centers)]]


def _offer(
    ensemble: Ensemble, center: np.ndarray, number: int, part: tuple[Block, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[float, int]]:
    """Offer a new center (1, M) to a block, given similarities (rows,) and clusters (rows,) of its objects.

    Return both anew, the contingency table, and the furthest object after its similarity, which is infinity
    if the block has no labeled object.
    """
    block, similarity, assigned = part
    labels = ensemble.read(block.start, block.stop)
    labeled = (labels >= 0).any(axis=1)
    offered = _similarities(labels, center)[:, 0]
    nearer = labeled & (offered > similarity)
    similarity = np.where(nearer, offered, similarity)
    assigned = np.where(nearer, np.int32(number), assigned)
    table = counts_of(labels, ensemble.offsets, assigned, number + 1)[0].T.astype(np.int64, order="C")
    least = float(similarity[labeled].min(initial=np.inf))
    furthest = np.flatnonzero(labeled & (similarity == least))
    candidate = (least, block.start + int(furthest[0])) if furthest.size else (np.inf, -1)
    return similarity, assigned, table, candidate


def _similarities(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the similarities (rows of left, rows of right) float64."""
    from bigcons.kernels.label_rows import count_tile

    n_agree = np.empty((len(left), len(right)), np.int32)
    n_seen = np.empty_like(n_agree)
    count_tile(left, right, n_agree, n_seen)
    return similarity(n_agree, n_seen, left.shape[1], "observed")


def _least_similar(rows: np.ndarray, engine: Engine) -> tuple[int, int]:
    """Return the least similar pair of rows, the first on ties; (0, 0) for a single row."""
    blocks = row_blocks(len(rows), TILE_ROWS)
    tiles = [(left, right) for left in blocks for right in blocks[left.index :]]

    def least_of(tile: tuple[Block, Block]) -> tuple[float, int, int]:
        left, right = tile
        values = _similarities(rows[left.start : left.stop], rows[right.start : right.stop])
        a, b = divmod(int(np.argmin(values)), right.n_rows)
        return float(values.min()), left.start + a, right.start + b

    candidates = engine.map(least_of, tiles)
    with progress("least similar pair", len(tiles), "tiles") as listener, closing(candidates):
        least = (np.inf, 0, 0)
        for (left, _), candidate in zip(tiles, candidates, strict=True):
            if least[0] == 0.0 and least[1] <= left.start:
                break  # no later pair is less similar, or of a lower row
            least = min(least, candidate)
            listener.advance(1)
    return least[1], least[2]


def _disagreements(table: np.ndarray, offsets: np.ndarray) -> float:
    """Return the number of pairs that exactly one of the clusters (rows) and a partition joins, in total."""
    seen = np.add.reduceat(table, offsets[:-1], axis=1)
    n_joined = [(counts * (counts - 1) // 2).sum() for counts in (seen, table.sum(axis=0), table)]
    return float(n_joined[0] + n_joined[1] - 2 * n_joined[2])
