"""The start of PCC on a subsample: a few thousand objects over all their pairs, from random starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigcons.coassociation.factorized import AgreementSums, Rates, Weights, agreement_sums
from bigcons.execution.engine import Engine, stop_if_cancelled
from bigcons.memory import Block
from bigcons.methods.pcc.memberships import MOVE_ALL, dirichlet
from bigcons.methods.pcc.updates import (
    RELAXATION,
    apply_change,
    apply_part,
    decreases_enough,
    is_wide,
    line_search,
    measure_block,
    place_block,
    update_block,
)
from bigcons.metrics.clusterings import mutual_information_of_table
from bigcons.progress import Progress, progress
from bigcons.solving.passes import best_start
from bigcons.solving.survey import mean_pair_weight
from bigcons.stores.ensemble import Ensemble
from bigcons.stores.ensemble_store import observed

SUBSAMPLE = 2048

# Effort of every start, enough to rank them.
SHORT_PASSES = 50
SHORT_TOL = 1e-3

# Effort of the best start: accuracy missing here would cost passes over all objects.
LONG_PASSES = 200
LONG_TOL = 1e-4

# Labels above which a subsample is wide, and how many all passes of a start over it may visit: a pass over it
# then costs about as much as over all objects, which makes up for those left out.
WIDE_LABELS, MOST_VISITED = 1 << 22, 1 << 26


class Subsample(NamedTuple):
    """The solved subsample."""

    sums: AgreementSums
    memberships: np.ndarray
    """(rows, K) float32."""
    start_objectives: list[float]
    """Of every start at the time of choice: the squared divergence over the pairs of the subsample."""


@dataclass(frozen=True)
class SubsampleStart:
    """A task: run one start on the subsample."""

    labels: np.ndarray
    offsets: np.ndarray
    n_clusters: int
    seed: int
    weights: Weights | Rates | None
    draw: Callable[..., np.ndarray] = dirichlet

    def __call__(self, number: int) -> Subsample:
        """Run start ``number`` until it can be ranked."""
        memberships = self.draw(self.labels.shape[0], self.n_clusters, self.seed, number)
        sums = agreement_sums(self.labels, self.offsets, memberships, self.weights)
        first = self.resume(Subsample(sums, memberships, []), 1, MOVE_ALL)
        return self.resume(first, SHORT_PASSES - 1, SHORT_TOL)

    def resume(self, found: Subsample, max_passes: int, tol: float) -> Subsample:
        """Continue until no object moves; a canceled task ends between passes."""
        labeled = np.count_nonzero(observed(self.labels, self.offsets), axis=0)
        if (n_labels := int(labeled.sum())) > WIDE_LABELS:
            max_passes = min(max_passes, max(MOST_VISITED // n_labels, 2))
        by_partition = None if self.weights is None else self.weights.partitions
        threshold = tol * mean_pair_weight(labeled, self.labels.shape[0], by_partition)
        at_once = is_wide(found.sums)
        how = self.offsets, threshold, 1.0 if at_once else RELAXATION, self.labels
        for _ in range(max_passes):
            stop_if_cancelled()
            sums, before = found.sums, found.memberships
            change, memberships = update_block(sums, *how, before, at_once=at_once)
            reached = apply_change(sums, change)
            if at_once and change.n_moved and not decreases_enough(sums, change):
                along = measure_block(sums, self.offsets, self.labels, before, memberships)
                length, _ = line_search(sums, change, along)
                reached = apply_part(sums, change, along, length)
                memberships = before + np.float32(length) * (memberships - before)
            found = found._replace(sums=reached, memberships=memberships)
            if change.n_moved == 0:
                break
        return found


def solve_subsample(
    labels: np.ndarray,
    offsets: np.ndarray,
    n_clusters: int,
    n_init: int,
    seed: int,
    engine: Engine,
    weights: Weights | Rates | None = None,
    draw: Callable[..., np.ndarray] = dirichlet,
) -> Subsample:
    """Solve a few thousand objects from ``n_init`` starts, of which ``draw`` returns the memberships.

    The default is random (Dirichlet) starts, because over all pairs near-uniform starts all reach the same
    optimum, which is not always the lowest.
    """
    task = SubsampleStart(labels, offsets, n_clusters, seed, weights, draw)
    with progress("starts of PCC", n_init, "starts") as listener:
        starts = _counted(engine.map(task, range(n_init)), listener)
        best, objectives = best_start(starts, lambda found: found.sums.objective)
    return task.resume(best, LONG_PASSES, LONG_TOL)._replace(start_objectives=objectives)


def _counted(starts: Iterator[Subsample], listener: Progress) -> Iterator[Subsample]:
    for found in starts:
        listener.advance(1)
        yield found


@dataclass(frozen=True)
class Extension:
    """Memberships of any block: the optimum of each object given a solved subsample, over all pairs."""

    ensemble: Ensemble
    estimate: AgreementSums
    start_objectives: list[float]
    """Of every start on the subsample."""

    def __call__(self, block: Block) -> np.ndarray:
        """Return the memberships (rows, K) float32 of a block."""
        labels = self.ensemble.read(block.start, block.stop)
        memberships = np.empty((block.n_rows, self.estimate.n_clusters), np.float32)
        place_block(self.estimate, labels, self.ensemble.offsets, memberships)
        return memberships


def extend_subsample(
    ensemble: Ensemble,
    sample: np.ndarray,
    n_clusters: int,
    n_init: int,
    seed: int,
    engine: Engine,
    draw: Callable[..., np.ndarray] = dirichlet,
) -> Extension:
    """Solve the rows ``sample`` of labels from ``n_init`` starts; return the placement of all objects."""
    found = solve_subsample(sample, ensemble.offsets, n_clusters, n_init, seed, engine, draw=draw)
    return extension_of(found, ensemble, sample)


def extension_of(found: Subsample, ensemble: Ensemble, sample: np.ndarray) -> Extension:
    """Return the placement of all objects given the solved rows ``sample`` of labels."""
    estimate = found.sums.scaled(ensemble.n_objects / sample.shape[0])
    return Extension(ensemble, estimate, found.start_objectives)


# Weights of partitions: with weights w_u, c_ij sums those of the partitions that put two objects together and
# N_ij those of the partitions that labeled both, as if partition u occurred w_u times

ENTROPY, INFORMATION = "entropy", "information"

# Relative to the mean weight: an uninformative partition counts next to nothing, yet objects that no other
# partition labeled are still placed by it.
LEAST_WEIGHT = 1e-3


def entropy_weights(labels: np.ndarray, offsets: np.ndarray) -> Weights:
    """Return weights of mean 1: the entropy of each partition's labels (rows, M) over its labeled rows.

    Two objects share label ``b`` by chance with probability ``p_b``, so sharing it carries information
    ``log(1 / p_b)``; the entropy is its mean over the objects.
    """
    return _of_mean_one(np.array([_entropy(column[column >= 0]) for column in labels.T]), offsets)


def information_weights(sums: AgreementSums, offsets: np.ndarray) -> Weights:
    """Return weights of mean 1: the mutual information of each partition and the solved memberships.

    Row ``b`` of S sums the memberships of the objects in base cluster ``b``, so the rows of one partition are
    its contingency table with the consensus, over the objects it labels.
    """
    memberships = np.maximum(sums.S[:, : sums.n_clusters], 0.0)  # rounding can leave negative sums
    tables = np.split(memberships, offsets[1:-1])
    return _of_mean_one(np.array([mutual_information_of_table(table) for table in tables]), offsets)


def _entropy(labels: np.ndarray) -> float:
    """Return the entropy of labels in nats, their mutual information with themselves; 0 if there are none."""
    return mutual_information_of_table(np.diag(np.bincount(labels))) if labels.size else 0.0


def _of_mean_one(worth: np.ndarray, offsets: np.ndarray) -> Weights:
    """Return weights proportional to ``worth (M,)``, or all one if that is zero."""
    if not worth.any():
        return Weights.of(np.ones(worth.size), offsets)
    weights = np.maximum(worth, LEAST_WEIGHT * worth.mean())
    return Weights.of(weights / weights.mean(), offsets)
