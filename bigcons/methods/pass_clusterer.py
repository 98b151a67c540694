"""Estimators whose method is a `Problem` of passes: parameters, memory plan, results and new objects."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from bigcons.errors import ConvergenceWarning, InvalidInputError, warn_user
from bigcons.memory import Block
from bigcons.methods.estimator import ResumingClusterer, SoftPredictingClusterer
from bigcons.run.engine import Engine
from bigcons.run.memory_plan import MemoryPlan, block_label_bytes, label_bytes
from bigcons.run.output import Output
from bigcons.run.passes import Record, Run, as_history, open_workspace, run_passes
from bigcons.run.starts import BestOfStarts, Problem, Winner
from bigcons.run.survey import Survey, start_rows, take_survey, warn_of_dissent
from bigcons.seeding import SeedLike
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_int, check_number
from bigcons.weights import Weights


class PassClusterer(ResumingClusterer):
    """Base of the methods that repeat passes over the labels until nothing changes.

    A subclass gives its `Problem`; ``info.soft`` says whether results are memberships.
    """

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        n_init: int = 10,
        max_iter: int = 100,
        tol: float = 1e-6,
        resume: bool = True,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(
            n_clusters, resume=resume, random_state=random_state, memory=memory, out=out, client=client
        )
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol

    @abstractmethod
    def _make_problem(self, ensemble: Ensemble) -> Problem:
        """Check the method's own parameters and return its problem on this ensemble."""

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        self._check()
        self.__dict__.pop("_problem", None)
        self._weights = Weights.given(getattr(self, "weights", None), ensemble.offsets)
        n_rows = start_rows(ensemble, self.n_clusters)
        survey = take_survey(ensemble, engine, seed, n_rows, self._partition_weights())
        remedy = "leave them out" + (", or give them weights= of 0" if hasattr(self, "weights") else "")
        warn_of_dissent(survey, ensemble, self._partition_weights(), remedy)
        self._solve_surveyed(ensemble, engine, seed, out, survey)

    def _solve_surveyed(
        self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None, survey: Survey
    ) -> None:
        problem = self._make_problem(ensemble)
        method = self._starts(problem, ensemble, engine, survey)
        self._check_memory_plan(partial(self._memory_plan, method), ensemble, engine, out, self.memory)
        self._run_passes(ensemble, engine, seed, out, survey, method)

    def _run_passes(
        self,
        ensemble: Ensemble,
        engine: Engine,
        seed: int,
        out: Output | None,
        survey: Survey,
        method: BestOfStarts,
    ) -> None:
        """Run the passes and publish their result; their memory has been checked."""
        problem = method.problem
        with open_workspace(out, engine, problem.n_carried, problem.carried_dtype) as workspace:
            run = Run(ensemble, engine, seed, self.max_iter, self.tol, survey.sample, *workspace, self.n_init)
            at = run_passes(run, method)
            winner = method.winner(run, at)
            self._problem, self._state = problem, winner.state
            self._set_results(winner.records, at.start_objectives, converged=at.is_settled)
            self._publish_winner(ensemble, engine, winner, survey, out)

    def _starts(
        self, problem: Problem, _ensemble: Ensemble, _engine: Engine, _survey: Survey
    ) -> BestOfStarts:
        """Return the passes from the best of the starts on the sample."""
        return BestOfStarts(problem)

    def _publish_winner(
        self, ensemble: Ensemble, engine: Engine, winner: Winner, survey: Survey, out: Output | None
    ) -> None:
        problem = self._problem

        def read(block: Block) -> np.ndarray:
            labels = ensemble.read(block.start, block.stop)
            return problem.results(winner.state, labels, winner.carried(block))

        self._publish(ensemble, read, survey.unlabeled, out, engine)

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
        if not hasattr(self, "_problem"):
            raise InvalidInputError(
                f"{type(self).__name__} was solved from the co-association and cannot place new objects; "
                "predict with another method."
            )
        problem, state = self._problem, self._state
        return lambda labels: problem.results(state, labels, None)

    def _placing_parts(self) -> dict[str, np.ndarray] | None:
        return dict(self._state) if hasattr(self, "_problem") else None

    def _restore_placing(self, parts: Mapping[str, np.ndarray], ensemble: Ensemble, n_clusters: int) -> None:
        solved = self.unfitted()
        solved.n_clusters, solved._weights = n_clusters, self._weights
        self._problem, self._state = solved._make_problem(ensemble), parts

    def _check(self) -> None:
        check_int("n_init", self.n_init)
        check_int("max_iter", self.max_iter)
        check_number("tol", self.tol, at_least=0.0)

    def _memory_plan(
        self, method: BestOfStarts, ensemble: Ensemble, engine: Engine, *, in_memory: bool
    ) -> MemoryPlan:
        plans = self._memory_plans(ensemble, method, in_memory=in_memory)
        return max(plans, key=lambda plan: plan.n_bytes(engine, ensemble))

    def _memory_plans(self, ensemble: Ensemble, method: BestOfStarts, *, in_memory: bool) -> list[MemoryPlan]:
        """Return what the passes need, and what the starts on the sample need if there are any."""
        n, K, rows, problem = ensemble.n_objects, self.n_clusters, ensemble.chunk_rows, method.problem
        carried = problem.n_carried * np.dtype(problem.carried_dtype).itemsize
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
        starts = MemoryPlan(
            held=4 * n + sample + method.n_held(self.n_init) * start,
            per_block=5 * state + 2 * rows_after + first_rows,
            per_result=start,
        )
        return [passes, starts] if method.n_held(self.n_init) else [passes]


class SoftPassClusterer(PassClusterer, SoftPredictingClusterer):
    """Base of the methods of passes that give every object memberships."""
