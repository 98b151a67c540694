"""The supra-consensus: the best of several methods by the average normalized mutual information."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bigcons.errors import InvalidInputError, UnlabeledObjectsWarning
from bigcons.execution.engine import Engine
from bigcons.metrics.ensemble import anmi
from bigcons.seeding import SeedLike
from bigcons.solving.estimator import ConsensusClusterer, MethodInfo
from bigcons.solving.survey import take_survey
from bigcons.solving.workspace import Output
from bigcons.stores.ensemble import Ensemble

logger: logging.Logger = logging.getLogger("bigcons")


class Supra(ConsensusClusterer):
    """Supra-consensus: solve by several methods and keep the result of highest ANMI.

    Parameters
    ----------
    n_clusters : int, default=8
        Maximum number of clusters.
    methods : str or sequence of str, default=("cspa", "hgpa", "mcla")
        Names from `METHODS`, as a sequence or separated by commas. Each runs with its defaults and the
        ``n_clusters``, ``random_state``, ``memory`` and ``client`` given here.
    random_state : int, RandomState, Generator or None, default=None
        Seed; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects that no partition labeled
    objective_ : the ANMI of the winner, weighted by known labels
    scores_ : the ANMI by method
    best_method_ : the name of the winner; the first on ties
    history_ : one entry a method
    n_clusters_

    Notes
    -----
    Costs the sum of the methods, and a pass for each to score it. If a method refuses the ensemble (for its
    size, say), so does this one, rather than silently leave it out; the authors' code drops CSPA
    above 1,000 objects, which the spectral CSPA here makes unnecessary.

    References
    ----------
    Strehl and Ghosh (2002), *Cluster ensembles*.
    """

    info: ClassVar[MethodInfo] = MethodInfo("Strehl and Ghosh 2002", "labels")

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        methods: str | Sequence[str] = ("cspa", "hgpa", "mcla"),
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(n_clusters, random_state=random_state, memory=memory, out=out, client=client)
        self.methods = methods

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        names = self._names()
        survey = take_survey(ensemble, engine, seed, 0)
        self.scores_: dict[str, float] = {}
        best = np.empty(0, np.int32)
        for name in names:
            labels = self._labels_by(name, ensemble, engine, seed)
            score = anmi(ensemble, labels, client=engine)
            logger.info("supra-consensus: %s has ANMI %.6g", name, score)
            if score > max(self.scores_.values(), default=-1.0):
                best = labels
            self.scores_[name] = score
        self.best_method_: str = max(self.scores_, key=lambda name: self.scores_[name])
        self.objective_: float = self.scores_[self.best_method_]
        self.history_: dict[str, list[Any]] = {"objective": list(self.scores_.values())}
        self._publish(ensemble, lambda b: best[b.start : b.stop], survey.unlabeled, out)

    def _names(self) -> list[str]:
        from bigcons.methods import METHODS

        given = self.methods.split(",") if isinstance(self.methods, str) else self.methods
        if not isinstance(given, (list, tuple)):
            raise InvalidInputError(
                f"methods has type {type(given).__name__}; name one or more, such as ('cspa', 'mcla')."
            )
        names = [str(name).strip() for name in given]
        # not itself, nor a method that needs more than labels
        choices = [name for name in METHODS if name not in ("supra", "did")]
        if unknown := [name for name in names if name not in choices]:
            raise InvalidInputError(
                f"methods={unknown!r} are unknown here; choose from {', '.join(choices)}."
            )
        if not names:
            raise InvalidInputError("methods is empty; name one or more, such as ('cspa', 'mcla').")
        return names

    def _labels_by(self, name: str, ensemble: Ensemble, engine: Engine, seed: int) -> np.ndarray:
        """Return the labels that a method finds, without repeating the warning of unlabeled objects."""
        from bigcons.methods import METHODS

        model = METHODS[name](
            n_clusters=self.n_clusters, random_state=seed, memory=self.memory, client=engine
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnlabeledObjectsWarning)
            return np.asarray(model.fit(ensemble).labels_)
