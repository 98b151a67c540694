"""Estimators whose method is passes over the labels: parameters, memory plan, starts and new objects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from bigcons.errors import ConvergenceWarning, InvalidInputError, warn_user
from bigcons.memory import Block
from bigcons.methods.base import ConsensusClusterer
from bigcons.methods.embedding import check_embedding_plan, count_spectral, starts_spectrally
from bigcons.run.engine import Engine
from bigcons.run.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.run.passes import (
    BestOfStarts,
    CountedStart,
    Method,
    Record,
    Run,
    as_history,
    open_workspace,
    run_passes,
)
from bigcons.run.results import Output
from bigcons.run.survey import Survey, start_rows, take_survey, warn_of_dissent
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_int, check_number
from bigcons.weights import Weights


@dataclass(eq=False, repr=False, kw_only=True)
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
    def _method(self, ensemble: Ensemble) -> Method:
        """Check the method's own parameters and return it for this ensemble."""

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_int("n_init", self.n_init)
        check_int("max_iter", self.max_iter)
        check_number("tol", self.tol, at_least=0.0)
        self._solved: tuple[Method, Mapping[str, np.ndarray]] | None = None
        self._weights = Weights.given(getattr(self, "weights", None), ensemble.offsets)
        n_rows = start_rows(ensemble, self.n_clusters)
        survey = take_survey(ensemble, engine, seed, n_rows, self._partition_weights())
        remedy = "leave them out" + (", or give them weights= of 0" if hasattr(self, "weights") else "")
        warn_of_dissent(survey, ensemble, self._partition_weights(), remedy)
        self._solve_surveyed(ensemble, engine, seed, out, survey)

    def _solve_surveyed(
        self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None, survey: Survey
    ) -> None:
        starts = self._starts(self._method(ensemble), ensemble, engine, survey)
        self._check_memory_plan(partial(self._memory_plan, starts), ensemble, engine, out, self.memory)
        method = starts.method
        with open_workspace(out, engine, method.n_carried, method.carried_dtype) as workspace:
            run = Run(ensemble, engine, seed, self.max_iter, self.tol, survey.sample, *workspace, self.n_init)
            at = run_passes(run, starts)
            winner = starts.winner(run, at)
            self._solved = method, winner.state
            self._set_results(winner.records, at.start_objectives, converged=at.is_settled)

            def read(block: Block) -> np.ndarray:
                labels = ensemble.read(block.start, block.stop)
                return method.place(winner.state, labels, winner.carried(block))

            self._publish(ensemble, read, survey.unlabeled, out, engine)

    def _starts(self, method: Method, ensemble: Ensemble, engine: Engine, survey: Survey) -> BestOfStarts:
        """Return the passes from the best start on the sample, or from the embedding of all objects."""
        ways = {"init": "partition", "encode": "onehot"}  # by which methods start from base partitions
        from_partitions = all(getattr(self, name, way) == way for name, way in ways.items())
        if not (from_partitions and starts_spectrally(ensemble, survey, self.n_clusters)):
            return BestOfStarts(method)
        check_embedding_plan(type(self).__name__, ensemble, engine, self.memory, columns=self.n_clusters)
        return CountedStart(method, partial(count_spectral, self.n_clusters, self._weights))

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
        self.history_: dict[str, list[Any]] = as_history(
            [{"pass": float(number), **record} for number, record in enumerate(records, 1)]
        )

    def _placer(self) -> Callable[[np.ndarray], np.ndarray]:
        if self._solved is None:
            raise InvalidInputError(
                f"{type(self).__name__} was solved from the co-association and cannot place new objects; "
                "predict with another method."
            )
        method, state = self._solved
        return lambda labels: method.place(state, labels)

    def _placing_parts(self) -> dict[str, np.ndarray] | None:
        return None if self._solved is None else dict(self._solved[1])

    def _restore_placing(self, parts: Mapping[str, np.ndarray], ensemble: Ensemble, n_clusters: int) -> None:
        model = clone(self).set_params(n_clusters=n_clusters)
        model._weights = self._weights
        self._solved = model._method(ensemble), parts

    def _memory_plan(
        self, starts: BestOfStarts, ensemble: Ensemble, engine: Engine, *, in_memory: bool
    ) -> MemoryPlan:
        """Return what the passes need, or the starts on the sample if these need more."""
        n, K, rows, method = ensemble.n_objects, self.n_clusters, ensemble.chunk_rows, starts.method
        carried = method.n_carried * np.dtype(method.carried_dtype).itemsize
        results = 4 * K if self.info.soft else 0
        state = 8 * ensemble.n_base_clusters * (K + 8)
        n_sampled = start_rows(ensemble, K)
        sample = label_bytes(ensemble, n_sampled)
        passes = MemoryPlan(
            held=4 * n + (n * (2 * carried + results) if in_memory else 0) + 4 * state + sample,
            per_block=block_label_bytes(ensemble) + rows * (2 * carried + 2 * results + 8) + 2 * state,
            per_result=state + rows * ((results if in_memory else 0) + 8),
        )
        rows_after = n_sampled * carried
        start = 2 * state + rows_after
        first_rows = 8 * n_sampled * (2 * K + 8 if self.info.soft else 3 * ensemble.n_partitions)
        on_sample = MemoryPlan(
            held=4 * n + sample + starts.n_held(self.n_init) * start,
            per_block=5 * state + 2 * rows_after + first_rows,
            per_result=start,
        )
        plans = [passes, on_sample] if starts.n_held(self.n_init) else [passes]
        return max(plans, key=lambda plan: plan.n_bytes(engine, ensemble))
