"""Estimators whose method is a `Problem` of passes: parameters, memory plan, results and new objects."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bigcons.errors import ConvergenceWarning, InvalidInputError, warn_user
from bigcons.execution.engine import Engine, open_engine
from bigcons.execution.loop import as_history
from bigcons.memory import Block
from bigcons.seeding import SeedLike
from bigcons.solvers.base import ConsensusClusterer, Output
from bigcons.solvers.passes import SUBSAMPLE, CarriedArrays, Problem, Record, solve_by_passes
from bigcons.solvers.plan import check_plan, label_bytes
from bigcons.solvers.recoding import recode
from bigcons.solvers.survey import Survey, take_survey
from bigcons.solvers.workspace import open_workspace
from bigcons.stores.ensemble import Ensemble, as_ensemble
from bigcons.validation import check_int, check_number


class PassClusterer(ConsensusClusterer):
    """Base of the methods that repeat passes over the labels until nothing changes.

    A subclass gives its `Problem`; its class attribute ``facts.soft`` says whether results are memberships.
    """

    n_init: int
    n_finalists: int
    max_iter: int
    tol: float
    resume: bool

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int = 10,
        n_finalists: int = 1,
        max_iter: int = 100,
        tol: float = 1e-6,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        resume: bool = False,
        client: object = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.n_finalists = n_finalists
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.memory = memory
        self.out = out
        self.resume = resume
        self.client = client

    @abstractmethod
    def _make_problem(self, ensemble: Ensemble, survey: Survey) -> Problem:
        """Check the method's own parameters and return its problem on this ensemble."""

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        self._check(out)
        self.__dict__.pop("_problem", None)
        survey = take_survey(ensemble, engine, seed, SUBSAMPLE)
        self._solve_surveyed(ensemble, engine, seed, out, survey)

    def _solve_surveyed(
        self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None, survey: Survey
    ) -> None:
        problem = self._make_problem(ensemble, survey)
        n_finalists = min(self.n_finalists, self.n_init)
        self._check_memory(ensemble, engine, problem, in_memory=out is None and engine.shares_memory)
        fingerprint = {**self._fingerprint(), "seed": seed, "ensemble": ensemble.info()}
        with open_workspace(
            out.path if out is not None else None,
            engine,
            problem.n_carried * n_finalists,
            fingerprint,
            resume=self.resume,
            dtype=problem.carried_dtype,
        ) as workspace:
            solution = solve_by_passes(
                problem,
                ensemble,
                survey.sample,
                n_init=self.n_init,
                n_finalists=n_finalists,
                max_passes=self.max_iter,
                tol=self.tol,
                seed=seed,
                engine=engine,
                arrays=workspace.arrays,
                snapshots=workspace.snapshots,
            )
            self._problem, self._state = problem, solution.state
            self._set_results(solution.records, converged=solution.converged)
            self._publish_solution(ensemble, engine, solution.carried, survey, out)

    def _set_results(self, records: list[Record], *, converged: bool) -> None:
        """Set what the records of the passes tell."""
        if not converged:
            warn_user(
                f"{type(self).__name__} stopped at max_iter={self.max_iter} before it settled; "
                "raise max_iter or tol if the labels still change.",
                ConvergenceWarning,
            )
        self.objective_ = records[-1]["objective"]
        self.n_passes_ = len(records)
        self.converged_ = converged
        self.history_ = as_history(
            [{"pass": float(number), **record} for number, record in enumerate(records, 1)]
        )

    def _publish_solution(
        self,
        ensemble: Ensemble,
        engine: Engine,
        carried: CarriedArrays,
        survey: Survey,
        out: Output | None,
    ) -> None:
        problem, state = self._problem, self._state

        def read(block: Block) -> np.ndarray:
            return problem.results(state, ensemble.read(block.start, block.stop), carried.read(block))

        publish = self._publish if self.facts.soft else self._publish_labels
        publish(ensemble, read, survey.unlabelled, out, engine)

    def predict(self, x: Any) -> np.ndarray:
        """Return labels (n_objects,) int32 of objects given by their base labels, -1 where these say nothing.

        ``x`` as in ``fit``, with the same partitions; labels that were not seen in ``fit`` count as missing.
        """
        parts = []
        for labels, rows in self._placed(as_ensemble(x)):
            winners = rows.argmax(axis=1) if self.facts.soft else rows
            parts.append(np.where((labels >= 0).any(axis=1), winners, -1).astype(np.int32))
        return np.concatenate(parts)

    def _placed(self, ensemble: Ensemble) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the recoded labels of new objects and what becomes of them, block by block."""
        check_is_fitted(self, "labels_")
        if not hasattr(self, "_problem"):
            raise InvalidInputError(
                f"{type(self).__name__} was solved pair by pair here and keeps nothing to place new objects "
                "by; predict with another method."
            )
        tables, problem, state = self._recoding.tables(ensemble), self._problem, self._state

        def place(block: Block) -> tuple[np.ndarray, np.ndarray]:
            labels = recode(ensemble.read(block.start, block.stop), tables)
            return labels, problem.results(state, labels, None)

        with open_engine(self.client) as engine:
            yield from engine.map(place, ensemble.blocks())

    def _check(self, out: Output | None) -> None:
        check_int("n_init", self.n_init)
        check_int("n_finalists", self.n_finalists)
        check_int("max_iter", self.max_iter)
        check_number("tol", self.tol, at_least=0.0)
        if self.resume and out is None:
            raise InvalidInputError(
                "resume=True without out=; only a solve with out= keeps what it has done."
            )

    def _check_memory(self, ensemble: Ensemble, engine: Engine, problem: Problem, *, in_memory: bool) -> None:
        n, K, rows = ensemble.n_objects, self.n_clusters, ensemble.chunk_rows
        carried = problem.n_carried * np.dtype(problem.carried_dtype).itemsize * self.n_finalists
        results = 4 * K if self.facts.soft else 0
        state = 8 * ensemble.n_base_clusters * (K + 8) * self.n_finalists
        sample = label_bytes(ensemble, min(SUBSAMPLE, n))
        check_plan(
            type(self).__name__,
            engine,
            held=4 * n + (n * (2 * carried + results) if in_memory else 0) + 4 * state + sample,
            per_block=3 * label_bytes(ensemble, rows) + rows * (2 * carried + 2 * results + 8) + 2 * state,
            memory=self.memory,
            remedy="" if not in_memory else " or write the result to a store with out=",
        )


class SoftPassClusterer(PassClusterer):
    """Base of the methods of passes that give every object memberships."""

    def predict_proba(self, x: Any) -> np.ndarray:
        """Return memberships (n_objects, n_clusters) float32 of objects given by their base labels.

        See `predict`; objects without any label get uniform memberships.
        """
        parts = []
        for labels, rows in self._placed(as_ensemble(x)):
            rows[(labels < 0).all(axis=1)] = np.float32(1.0 / self.n_clusters)
            parts.append(rows)
        return np.concatenate(parts)
