"""Estimators whose method is passes over the labels: parameters, memory plan, starts and new objects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from bigcons.errors import ConvergenceWarning, InvalidInputError, warn_user
from bigcons.memory import Block
from bigcons.methods.base import ConsensusClusterer
from bigcons.methods.incidence import check_overlaps_plan, count_spectral, starts_spectrally
from bigcons.run import passes
from bigcons.run.engine import Engine, fold
from bigcons.run.passes import BestOfStarts, Counts, Method, Record, Run
from bigcons.run.results import Output
from bigcons.run.survey import (
    MemoryPlan,
    Survey,
    block_label_bytes,
    label_bytes,
    start_rows,
    take_survey,
    warn_of_dissent,
)
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_int, check_number
from bigcons.weights import Weights, counts_of

CERTAINTY = 0.9
"""The weight of the base partition in a start of probabilities; the rest is spread over all clusters."""


class PassClusterer(ConsensusClusterer):
    """Base of the methods that repeat passes over the labels until nothing changes.

    A subclass gives its `Method`; ``info.soft`` says whether it gives memberships. Starts run on a sample,
    and the best continues on all objects. Where a sample says too little of the base clusters, methods that
    start from base partitions start from the spectral embedding of all objects: see `embedding`.
    """

    n_init: int = 10
    max_iter: int = 100
    tol: float = 1e-6

    @abstractmethod
    def _method(self, offsets: np.ndarray, n_clusters: int) -> Method:
        """Check the method's own parameters and return it, for base clusters that begin at ``offsets``."""

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_int("n_init", self.n_init)
        check_int("max_iter", self.max_iter)
        check_number("tol", self.tol, at_least=0.0)
        self._weights = Weights.parse(getattr(self, "weights", None), ensemble.offsets)
        n_rows = start_rows(ensemble, self.n_clusters)
        survey = take_survey(ensemble, engine, seed, n_rows, self._partition_weights())
        remedy = "leave them out" + (", or give them weights= of 0" if hasattr(self, "weights") else "")
        warn_of_dissent(survey, ensemble, self._partition_weights(), remedy)
        self._solve_surveyed(ensemble, engine, seed, out, survey)

    def _solve_surveyed(
        self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None, survey: Survey
    ) -> None:
        starts = self._starts(self._method(ensemble.offsets, self.n_clusters), ensemble, engine, survey)
        self._check_memory_plan(partial(self._memory_plan, starts), ensemble, engine, out, self.memory)
        method = starts.method
        with passes.open_workspace(out, engine, method.n_carried, method.carried_dtype) as workspace:
            limits = seed, self.max_iter, self.tol
            run = Run(ensemble, ensemble.blocks(), engine, *limits, survey.sample, *workspace, self.n_init)
            end = passes.run_passes(run, starts)
            state, arrays, carries = passes.part_of(end.state, "judged"), run.arrays, method.n_carried > 0
            self._parts = state
            self._set_results(end.records, end.start_objectives, converged=end.is_settled)

            def read(block: Block) -> np.ndarray:
                labels = ensemble.read(block.start, block.stop)
                return method.place(state, labels, arrays.read(end.generation, block) if carries else None)

            self._publish(ensemble, read, survey.unlabeled, out, engine)

    def _starts(self, method: Method, ensemble: Ensemble, engine: Engine, survey: Survey) -> BestOfStarts:
        """Return the passes from the best start on the sample, or from the embedding of all objects."""
        options = {"init": "partition", "encode": "onehot"}  # by which methods start from base partitions
        from_partitions = all(getattr(self, name, value) == value for name, value in options.items())
        if not (from_partitions and starts_spectrally(ensemble, survey, self.n_clusters)):
            return BestOfStarts(method)
        check_overlaps_plan(self, ensemble, engine, columns=self.n_clusters, embedded=True)
        return BestOfStarts(method, partial(count_spectral, self.n_clusters, self._weights))

    def _set_results(self, records: list[Record], start_objectives: list[float], *, converged: bool) -> None:
        """Set the fitted attributes that follow from the starts and the records of the passes."""
        if not converged:
            warn_user(
                f"{type(self).__name__} stopped at max_iter={self.max_iter} before it settled; "
                "raise max_iter or tol if the labels still change.",
                ConvergenceWarning,
            )
        self.objective_: float = records[-1]["objective"]
        self.start_objectives_ = start_objectives
        self.n_passes_: int = len(records)
        self.converged_ = converged
        history = passes.as_history(records)
        history = {name: history[name] for name in history if name not in ("seconds", "memory")}
        numbers = [float(number) for number in range(1, len(records) + 1)]
        self.history_: dict[str, list[Any]] = {**history, "pass": numbers}

    def _placer(self, parts: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        return partial(self._method(self._recoding.offsets, self._n_columns).place, parts)

    def _memory_plan(
        self, starts: BestOfStarts, ensemble: Ensemble, engine: Engine, *, in_memory: bool
    ) -> MemoryPlan:
        """Return what the passes need, or the starts on the sample if these need more."""
        n, K, rows, method = ensemble.n_objects, self.n_clusters, ensemble.chunk_rows, starts.method
        carried = method.n_carried * np.dtype(method.carried_dtype).itemsize
        results = 4 * K if self.info.soft else 0
        state, n_sampled = 8 * ensemble.n_base_clusters * (K + 8), start_rows(ensemble, K)
        n_bytes, result_bytes = label_bytes(ensemble, n_sampled), results if in_memory else 0
        pass_plan = MemoryPlan(
            held=n_bytes + 4 * state + (n * (4 + 2 * carried + results) if in_memory else 0),
            per_block=block_label_bytes(ensemble) + rows * (2 * carried + 2 * results + 8) + 2 * state,
            per_result=state + rows * (result_bytes + 8),
        )
        start = 2 * state + n_sampled * carried
        first_rows = 8 * n_sampled * (2 * K + 8 if self.info.soft else 3 * ensemble.n_partitions)
        n_held = starts.n_held(self.n_init)
        sample_plan = MemoryPlan(n_bytes + n_held * start, state + 2 * start + first_rows, start)
        plans = [pass_plan, sample_plan][: 1 + (n_held > 0)]
        return max(plans, key=lambda plan: plan.n_bytes(engine, ensemble))


# The clusters that starts begin with: base partitions, random ones, or given ones


def first_partition(labels: np.ndarray, n_clusters: int, seed: int, number: int) -> np.ndarray:
    """Return clusters (rows,) int32 of the objects of ``labels`` (rows, M), -1 where undecided; O(rows M).

    Partitions in random order are intersected until there are ``n_clusters`` groups or no partition is left.
    The largest groups become the clusters; the objects of the others stay undecided. If the first partition
    has enough clusters, this is a base partition chosen at random, as Nguyen and Caruana (2007) advise; with
    fewer, clusters would stay empty forever. M consecutive starts all begin with different partitions.
    """
    groups, n_groups = np.zeros(labels.shape[0], np.int64), 1
    for u in partition_order(labels.shape[1], seed, number):
        column = labels[:, u].astype(np.int64)
        codes = groups * (int(np.max(column)) + 1) + column
        codes[(column < 0) | (groups < 0)] = -1
        cells = np.unique(codes[codes >= 0])
        if not cells.size:
            continue  # no object that is left has a label here
        groups, n_groups = np.where(codes >= 0, np.searchsorted(cells, codes), -1), cells.size
        if n_groups >= n_clusters:
            break
    sizes = np.bincount(groups[groups >= 0], minlength=n_groups)
    largest = np.sort(np.argsort(-sizes, kind="stable")[:n_clusters])
    clusters = np.full(n_groups + 1, -1, np.int32)  # the last entry is that of group -1
    clusters[largest] = np.arange(largest.size)
    return clusters[groups]


def partition_order(n_partitions: int, seed: int, number: int) -> np.ndarray:
    """Return the partitions in the random order of a start, each of M starts beginning with another."""
    first = generator(seed, "start.first").permutation(n_partitions)[number % n_partitions]
    order = generator(seed, "start.partition", number).permutation(n_partitions)
    return np.concatenate(([first], order[order != first]))


def checked_clusters(init: Any, n_objects: int, n_clusters: int, names: str) -> np.ndarray:
    """Return clusters (n_objects,) int32 that a caller gives; ``names`` are the other values of ``init``."""
    clusters = np.array(init)
    are_labels = clusters.shape == (n_objects,) and clusters.dtype.kind in "iu"
    if not are_labels or clusters.min() < -1 or clusters.max() >= n_clusters:
        raise InvalidInputError(
            f"init has shape {clusters.shape} and type {clusters.dtype}; pass {names} or {n_objects} integer "
            f"labels from 0 to {n_clusters - 1}, -1 where there is none."
        )
    return clusters.astype(np.int32)


def count_initial(clusters: np.ndarray, n_clusters: int, run: Run) -> Counts:
    """Return the counts of initial clusters (n,) of all objects, which become their first rows."""

    def count_block(block: Block) -> Counts:
        members = clusters[block.start : block.stop]
        run.arrays.write(0, block, members[:, None])
        return counts_of(run.data.read(block.start, block.stop), run.data.offsets, members, n_clusters)

    return fold(run.engine, run.blocks, count_block, lambda a, b: (a[0] + b[0], a[1] + b[1]))


def expected_counts(
    labels: np.ndarray, offsets: np.ndarray, clusters: np.ndarray, n_clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return `counts_of` with nine tenths of every object in its cluster and the rest spread evenly.

    Objects of cluster -1 are spread over all clusters evenly. The sizes are those of ``clusters``.
    """
    counts, sizes = counts_of(labels, offsets, clusters, n_clusters)
    totals, _ = counts_of(labels, offsets, np.zeros_like(clusters), 1)
    return spread(counts, totals), sizes


def spread(counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return counts (B, K) with nine tenths of their weight, the rest of everyone (B, 1) spread evenly."""
    bulk = CERTAINTY * counts
    return bulk + (totals - bulk.sum(axis=1, keepdims=True)) / counts.shape[1]
