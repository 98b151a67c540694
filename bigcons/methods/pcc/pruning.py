"""PCC over all pairs without small clusters.

``n_clusters`` is an upper limit, but in noisy ensembles surplus clusters keep a few objects. Two things are
done about those that win fewer objects than asked for. While passes go on, each is removed for good, its
memberships redistributed, where the objective hardly rises. Others carry the noise: they win few objects, but
take a part of many, and without them the fit is far worse. These stay, and win nothing in the end: the
objects they would win get their best membership among the other clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bigcons.coassociation.factorized import (
    AgreementSums,
    Weights,
    add_sums,
    agreement_sums,
    select_clusters,
)
from bigcons.methods.pcc.all_pairs import AllPairs, Passes
from bigcons.methods.pcc.memberships import BlockMemberships, Solution
from bigcons.methods.pcc.subsample import Subsample
from bigcons.methods.pcc.updates import Change, place_block, remove_block
from bigcons.solving.passes import Iterate, Run, Step
from bigcons.solving.results import by_size
from bigcons.solving.survey import labeled_objects

# Share of its magnitude by which the objective may rise when a cluster is removed.
ALLOWED_RISE = 1e-4

# Largest gap at which removals are tried for the first time: long before the default `tol`, so that passes
# are not spent on clusters that go.
EARLY_GAP = 1e-3


class PrunedPairs(AllPairs):
    """The passes of `AllPairs`, with removals once the gap is at most ``EARLY_GAP`` and when no object moves.

    Clusters in use are the first columns of the memberships. Every trial is a pass over the labels; the first
    that fails ends the trials of a pass.
    """

    def __init__(
        self,
        n_clusters: int,
        n_seen: np.ndarray,
        weights: Weights | str | None,
        solve_sample: Callable[..., Subsample] | None,
        least_won: float,
    ) -> None:
        super().__init__(n_clusters, n_seen, weights, solve_sample)
        self.least_won = least_won
        """Number of objects: clusters that win fewer are removed if possible."""

    def step(self, run: Run, at: Iterate[Passes], total: Change) -> Step[Passes]:
        """Take the step of all-pairs PCC, then remove what clusters the objective allows."""
        step = super().step(run, at, total)
        sums, tried, generation = step.state.sums, 0, at.generation + step.n_generations
        n_before = sums.n_clusters
        fresh = not any(past["tried"] and past["clusters"] == n_before for past in at.records)
        if step.is_settled or (fresh and step.record["gap"] <= EARLY_GAP):
            while (kept := self._without_one(run, sums, generation)) is not None:
                task = run.visit(
                    *(remove_block, select_clusters(sums, kept), kept, run.data.offsets),
                    reads=[generation],
                    writes=generation + 1,
                )
                found, tried = run.fold(task, add_sums), tried + 1
                if found.objective - sums.objective > ALLOWED_RISE * abs(sums.objective):
                    break
                sums, generation = found, generation + 1
            run.arrays.drop(generation + 1)
        record = {**step.record, "objective": sums.objective, "clusters": sums.n_clusters, "tried": tried}
        settled = step.is_settled and sums.n_clusters == n_before
        state = step.state if sums is step.state.sums else Passes(sums)
        return Step(state, record, settled, generation - at.generation)

    def _without_one(self, run: Run, sums: AgreementSums, generation: int) -> np.ndarray | None:
        """Return the clusters less all empty ones and the small one that the objective misses least.

        None if no cluster is small. What the objective misses is estimated with all objects where they are.
        """
        everything = np.arange(sums.n_clusters)
        won = objects_won(run, sums, generation, everything)
        empty = sums.S[:, : sums.n_clusters].sum(axis=0) <= NOTHING * sums.S.sum()
        small = np.flatnonzero((won < self.least_won) & ~empty & (won < won.max()))
        if not small.size:
            return everything[~empty] if empty.any() else None
        choices = [everything[~empty & (everything != k)] for k in small]
        return min(choices, key=lambda kept: select_clusters(sums, kept).objective)


# Share of all memberships up to which those of an empty cluster are rounding residue.
NOTHING = 1e-12


def objects_won(run: Run, sums: AgreementSums, generation: int, clusters: np.ndarray) -> np.ndarray:
    """Return how many labeled objects each of ``clusters`` wins among them; of equal ones the first."""
    task = run.visit(count_winners, clusters, sums.partition_weights, reads=[generation])
    return run.fold(task, np.add)


def count_winners(
    clusters: np.ndarray, weights: np.ndarray | None, labels: np.ndarray, memberships: np.ndarray
) -> np.ndarray:
    """Return how many labeled objects of a block each of ``clusters`` wins among them."""
    labeled = labeled_objects(labels >= 0, weights)
    return np.bincount(memberships[labeled][:, clusters].argmax(axis=1), minlength=clusters.size)


# The end: small clusters keep no objects


class Large(NamedTuple):
    """Memberships of objects among all clusters, of which only the first ``n`` may win."""

    sums: AgreementSums
    """Of all clusters."""
    n: int
    of_large: AgreementSums
    """Of the first ``n`` alone."""

    @classmethod
    def of(cls, sums: AgreementSums, n: int) -> Large:
        """Return the rule by which the first ``n`` of the clusters of ``sums`` win."""
        return cls(sums, n, select_clusters(sums, np.arange(n)))

    def settle(self, labels: np.ndarray, offsets: np.ndarray, memberships: np.ndarray) -> np.ndarray:
        """Return the memberships; objects that another cluster wins get their best among the first ``n``."""
        lost = memberships.argmax(axis=1) >= self.n
        if not lost.any():
            return memberships
        placed = np.empty((np.count_nonzero(lost), self.n), np.float32)
        place_block(self.of_large, labels[lost], offsets, placed)
        settled = np.array(memberships)
        settled[lost] = np.pad(placed, ((0, 0), (0, memberships.shape[1] - self.n)))
        return settled


def settle_block(
    large: Large, order: np.ndarray, offsets: np.ndarray, labels: np.ndarray, memberships: np.ndarray
) -> tuple[AgreementSums, np.ndarray]:
    """Return the sums and memberships of a block with its clusters in ``order``, of which the first win."""
    settled = large.settle(labels, offsets, np.ascontiguousarray(memberships[:, order]))
    reached = np.zeros_like(memberships)
    reached[:, : order.size] = settled
    return agreement_sums(labels, offsets, settled, large.sums.weights), reached


def settled(run: Run, solution: Solution, least_won: float) -> Solution:
    """Return the solution with large clusters as the first columns, which win the objects of small ones.

    The objective is that of the memberships returned; the gap is what it was.
    """
    sums, found = solution.sums, solution.memberships
    if sums is None or not isinstance(found, BlockMemberships):
        raise TypeError("only solutions of all pairs are settled.")
    won = objects_won(run, sums, found.generation, np.arange(sums.n_clusters))
    order = by_size(won)
    n_large = max(int(np.count_nonzero(won >= max(least_won, 1))), 1)
    large, generation = Large.of(select_clusters(sums, order), n_large), found.generation
    task = run.visit(settle_block, large, order, run.data.offsets, reads=[generation], writes=generation + 1)
    sums = run.fold(task, add_sums)
    memberships = BlockMemberships(run.arrays, generation + 1, columns=sums.n_clusters)
    return solution._replace(memberships=memberships, objective=sums.objective, sums=sums, n_large=n_large)
