"""The supra-consensus: the best of several methods by the average normalized mutual information."""

from __future__ import annotations

import ast
import inspect
import logging
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from bigcons.errors import InvalidInputError, UnlabeledObjectsWarning
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.metrics.ensemble import anmi
from bigcons.run.engine import Engine
from bigcons.run.results import Output
from bigcons.run.survey import take_survey
from bigcons.store.ensemble import Ensemble

logger: logging.Logger = logging.getLogger("bigcons")

# The parameters of a member that the supra-consensus sets.
SHARED = ("n_clusters", "random_state", "memory", "out", "client", "resume")


@dataclass(eq=False, repr=False, kw_only=True)
class Supra(ConsensusClusterer):
    """Supra-consensus: solve by several methods and keep the result of highest ANMI.

    Parameters
    ----------
    n_clusters : int or sequence of int, default=8
        Maximum number of clusters; of several, such as ``range(2, 11)``, all are tried with every member.
    members : str or sequence of str or estimators, default=("cspa", "hgpa", "mcla")
        The methods: names from `METHODS`, which may have parameters, such as "cspa(partitioner=metis)", as a
        sequence or separated by commas; or estimators, such as ``CSPA(partitioner="metis")``, which are
        cloned. All take the ``n_clusters``, ``random_state``, ``memory`` and ``client`` given here. The
        paper's own are "cspa(partitioner=metis), hgpa, mcla(partitioner=metis)".
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
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
    objective_ : the ANMI of the winner: see `bigcons.metrics.anmi`
    scores_ : the ANMI by member and number of clusters, as in ``scores_["cspa"][8]``
    best_member_ : the name of the winning member, with its parameters; the first on ties
    best_n_clusters_ : the number of clusters that the winner was asked for; the first given on ties
    history_ : the number of clusters asked for and the ANMI, one entry for every consensus tried
    n_clusters_

    Notes
    -----
    Costs the sum of the methods, and a pass for each consensus to score it. It runs out of core if its
    members do: of the default ones HGPA does with "hgpa(objective=laplacian)". If a method refuses the
    ensemble (for its size, say), so does this one, rather than silently leave it out; the authors' code drops
    CSPA above 1,000 objects, which the spectral CSPA here makes unnecessary. Objects that a member leaves
    without a label count against it.

    References
    ----------
    Strehl and Ghosh (2002), *Cluster ensembles*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.Supra(n_clusters=2, members=("cspa", "mcla", "hbgf"), random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> sorted(model.scores_)
    ['cspa', 'hbgf', 'mcla']
    """

    info: ClassVar[MethodInfo] = MethodInfo("Strehl and Ghosh 2002", "labels", out_of_core=False)

    members: str | Sequence[str | ConsensusClusterer] = ("cspa", "hgpa", "mcla")

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        members = self._members()
        survey = take_survey(ensemble, engine, seed, 0)
        self.scores_: dict[str, dict[int, float]] = {name: {} for name in members}
        self.history_: dict[str, list[Any]] = {"n_clusters": [], "objective": []}
        best = np.empty(0, np.int32)
        self.objective_: float = -1.0
        for name, member in members.items():
            for n_clusters in self._numbers():
                labels = self._labels_by(member, n_clusters, ensemble, engine, seed)
                score = anmi(ensemble, labels, client=engine)
                logger.info("supra-consensus: %s with %d clusters has ANMI %.6g", name, n_clusters, score)
                self.scores_[name][n_clusters] = score
                self.history_["n_clusters"].append(n_clusters)
                self.history_["objective"].append(score)
                if score > self.objective_:
                    best, self.objective_ = labels, score
                    self.best_member_: str = name
                    self.best_n_clusters_: int = n_clusters
        self._publish(
            ensemble,
            lambda b: best[b.start : b.stop],
            survey.unlabeled,
            out,
            n_clusters=self.best_n_clusters_,
        )

    def _check_n_clusters(self, given: Any, n_objects: int) -> None:  # noqa: ARG002 - each number of it
        for n_clusters in self._numbers():
            super()._check_n_clusters(n_clusters, n_objects)

    def _numbers(self) -> list[int]:
        """Return the numbers of clusters to try."""
        given: Any = self.n_clusters
        if isinstance(given, str) or not (isinstance(given, Sequence) or np.ndim(given) == 1):
            return [given]  # type: ignore[list-item]  # checked later
        if not len(given):
            raise InvalidInputError("n_clusters is empty; give one number or more.", parameter="n_clusters")
        return [int(K) if isinstance(K, np.integer) else K for K in given]

    def _members(self) -> dict[str, ConsensusClusterer]:
        """Return the members by name."""
        given: Any = self.members
        if isinstance(given, str):
            given = re.split(r",(?![^(]*\))", given)
        if not isinstance(given, (list, tuple)) or not given:
            raise InvalidInputError(
                f"members={given!r} names no method; name one or more, such as ('cspa', 'mcla').",
                parameter="members",
            )
        members: dict[str, ConsensusClusterer] = {}
        for item in given:
            member = _parsed(item) if isinstance(item, str) else item
            if not isinstance(member, ConsensusClusterer) or isinstance(member, Supra):
                raise InvalidInputError(
                    f"members has {item!r}; give methods such as 'cspa' or CSPA(), other than Supra itself.",
                    parameter="members",
                )
            name = _name_of(member)
            if name in members:
                raise InvalidInputError(f"members has {name!r} twice; give each once.", parameter="members")
            members[name] = member
        return members

    def _labels_by(
        self, member: ConsensusClusterer, n_clusters: int, ensemble: Ensemble, engine: Engine, seed: int
    ) -> np.ndarray:
        """Return the labels that a member finds, without repeating the warning of unlabeled objects."""
        model: ConsensusClusterer = clone(member).set_params(
            n_clusters=n_clusters, random_state=seed, memory=self.memory, out=None, client=engine
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnlabeledObjectsWarning)
            return np.asarray(model.fit(ensemble).labels_)


def _parsed(text: str) -> ConsensusClusterer:
    """Return the estimator of a text such as "cspa" or "cspa(partitioner=metis)"."""
    from bigcons.methods import METHODS

    form = re.fullmatch(r"([^()\s]+)\s*(?:\((.*)\))?", text.strip())
    choices = [name for name in METHODS if name != "supra"]
    if form is None or form[1] not in choices:
        raise InvalidInputError(
            f"members has {text!r}, unknown here; choose from {', '.join(choices)}, with parameters as in "
            "cspa(partitioner=metis).",
            parameter="members",
        )
    method, parameters = METHODS[form[1]], {}
    own = [name for name in inspect.signature(method).parameters if name not in SHARED]
    for assignment in form[2].split(",") if form[2] else ():
        name, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals or name not in own:
            raise InvalidInputError(
                f"members has {text!r}, but {form[1]} takes no {assignment!r}; give name=value of "
                f"{', '.join(own) or 'none'}.",
                parameter="members",
            )
        words: dict[str, Any] = {"true": True, "false": False, "none": None}
        try:
            parameters[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            parameters[name] = words.get(value.lower(), value)
    return method(**parameters)


def _name_of(member: ConsensusClusterer) -> str:
    """Return the name of a method, with the parameters that are not its defaults: as `_parsed` takes it."""
    from bigcons.methods import METHODS

    method = type(member)
    name = next((name for name in METHODS if METHODS[name] is method), method.__name__)
    changed = ", ".join(
        f"{parameter.name}={getattr(member, parameter.name)}"
        for parameter in inspect.signature(method).parameters.values()
        if parameter.name not in SHARED and repr(getattr(member, parameter.name)) != repr(parameter.default)
    )
    return f"{name}({changed})" if changed else name
