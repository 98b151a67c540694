"""V-BCE, the estimator."""

from __future__ import annotations

import os
from typing import ClassVar

import numpy as np

from bigcons.seeding import SeedLike
from bigcons.solvers.base import MethodFacts
from bigcons.solvers.bce.variational import STARTS, VariationalBCE, memberships_of
from bigcons.solvers.pass_clusterer import SoftPassClusterer
from bigcons.solvers.passes import State
from bigcons.solvers.survey import Survey
from bigcons.stores.ensemble import Ensemble
from bigcons.validation import check_choice, check_number


class BCE(SoftPassClusterer):
    """Bayesian cluster ensembles by variational EM.

    Every object mixes the clusters in its own proportions, drawn from a Dirichlet distribution, and every
    cluster has its own label probabilities in each partition; the EM iterations raise a lower bound of the
    likelihood of all labels (Wang, Shan, Banerjee 2009). Missing labels are native.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        paper="Wang, Shan, Banerjee 2009",
        needs="labels",
        soft=True,
        missing="native",
        out_of_core=True,
        distributed=True,
    )

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        start: str = "base",
        update_alpha: bool = True,
        lap: float = 1e-6,
        n_init: int = 10,
        n_finalists: int = 1,
        max_iter: int = 500,
        tol: float = 1e-6,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        resume: bool = False,
        client: object = None,
    ) -> None:
        super().__init__(
            n_clusters,
            n_init=n_init,
            n_finalists=n_finalists,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            memory=memory,
            out=out,
            resume=resume,
            client=client,
        )
        self.start = start
        self.update_alpha = update_alpha
        self.lap = lap

    def _problem(self, ensemble: Ensemble, survey: Survey) -> VariationalBCE:  # noqa: ARG002 - the contract's
        return VariationalBCE(
            ensemble.offsets,
            self.n_clusters,
            start=check_choice("start", self.start, STARTS),
            lap=check_number("lap", self.lap, at_least=1e-12),
            update_alpha=bool(self.update_alpha),
        )

    def _results(self, state: State, labels: np.ndarray, carried: np.ndarray | None) -> np.ndarray:
        return memberships_of(state, self._recoding.offsets, labels, carried)
