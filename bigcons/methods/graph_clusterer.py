"""What CSPA, HGPA and HBGF share: parameters, k-means of an embedding, and parts of a balanced cut."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigcons.errors import InvalidInputError, SoftEnsembleError
from bigcons.memory import Block
from bigcons.methods.base import ConsensusClusterer
from bigcons.methods.embedding import Centers, Embedding, KMeansSettings, check_embedding_plan, find_centers
from bigcons.methods.incidence import weights_of
from bigcons.run.engine import Engine
from bigcons.run.memory_plan import check_held_plan
from bigcons.run.output import Output
from bigcons.run.survey import Survey, start_rows, take_survey
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_int, check_number
from bigcons.weights import Weights


@dataclass(eq=False, repr=False, kw_only=True)
class GraphClusterer(ConsensusClusterer):
    """Base of the methods that partition a graph of the objects; they give labels without memberships.

    ``predict`` places new objects in the spectral embedding; a balanced cut has no place for them.
    """

    chooses: ClassVar[bool] = True

    _choice: ClassVar[str] = "partitioner"
    """The parameter that chooses between cuts and the embedding."""
    _embedded: ClassVar[str] = "spectral"
    """Its value that chooses the embedding."""

    partitioner: str = "spectral"
    weights: Any = None
    imbalance: float | None = None
    n_init: int = 1
    max_iter: int = 100
    tol: float = 0.0001

    def _checked_imbalance(self, chosen: str) -> float:
        """Return the imbalance allowed; refuse parameters that do not apply to the embedding, or to cuts."""
        unused = ("imbalance",) if chosen == self._embedded else ("n_init", "max_iter", "tol")
        refuse_unused(self, chosen, unused, self._choice)
        if self.weights is not None and chosen == "metis":
            raise InvalidInputError(
                "weights do not apply to partitioner='metis'; leave them out, or use partitioner='spectral'.",
                parameter="weights",
            )
        return checked_imbalance(self.imbalance)

    def _solve_spectral(
        self,
        ensemble: Ensemble,
        engine: Engine,
        seed: int,
        out: Output | None,
        embed: Callable[[Weights | None], Embedding],
        *,
        with_base_clusters: bool = False,
    ) -> None:
        """Publish the clusters of k-means in an embedding of the objects, if asked with the base clusters.

        ``embed`` takes the weights of the partitions.
        """
        name, K = type(self).__name__, self.n_clusters
        n_rows = start_rows(ensemble, K)
        held = n_rows * (4 * 8 * K + ensemble.row_bytes)  # QR with pivots copies the embedded sample
        check_embedding_plan(name, ensemble, engine, self.memory, columns=K, held=held)
        n_init, max_iter = check_int("n_init", self.n_init), check_int("max_iter", self.max_iter)
        settings = KMeansSettings(K, n_init, max_iter, check_number("tol", self.tol, at_least=0.0))
        self._weights = weights_of(name, self.weights, ensemble, engine, self.memory)
        survey = take_survey(ensemble, engine, seed, n_rows, self._partition_weights())
        embedding = embed(self._weights)
        extra = embedding.rows_of_base_clusters()
        if not with_base_clusters:
            extra = extra[0][:0], extra[1][:0]
        found = find_centers(embedding, ensemble, survey.sample, extra, settings, seed, engine)
        self.objective_: float = found.objective
        self.history_: dict[str, list[Any]] = found.history
        self.start_objectives_: list[float] = found.start_objectives
        self.n_passes_: int = embedding.n_passes + found.n_passes
        self.singular_values_: np.ndarray = embedding.singular_values
        self._centers: Centers | None = found

        def read(block: Block) -> np.ndarray:
            return found.labels_of(ensemble.read(block.start, block.stop))

        self._publish(ensemble, read, survey.unlabeled, out, engine)

    def _check_graph_memory(self, ensemble: Ensemble, engine: Engine, n_bytes: int) -> None:
        """Refuse soft clusterings, and a budget that cannot hold a graph of ``n_bytes``."""
        if ensemble.is_soft:
            raise SoftEnsembleError(
                f"a cut by {type(self).__name__}",
                f"{self._choice}={self._embedded!r}, which takes memberships",
            )
        name, remedy = type(self).__name__, f", or use {self._choice}={self._embedded!r}"
        check_held_plan(name, engine, ensemble, n_bytes, memory=self.memory, remedy=remedy)

    def _publish_parts(
        self, ensemble: Ensemble, parts: np.ndarray, cut: float, survey: Survey, out: Output | None
    ) -> None:
        """Publish the parts (n_objects,) of a graph partitioner and the weight it cut."""
        self.objective_ = cut
        self._weights = None
        self._centers = None
        self.n_passes_ = 1
        self.history_ = {"pass": [1], "objective": [cut]}
        self._publish(ensemble, lambda block: parts[block.start : block.stop], survey.unlabeled, out)

    def _placer(self) -> Callable[[np.ndarray], np.ndarray]:
        if self._centers is None:
            raise InvalidInputError(
                f"{type(self).__name__} cut a graph of the fitted objects and cannot place new ones; use "
                f"{self._choice}={self._embedded!r}.",
                parameter=self._choice,
            )
        return self._centers.labels_of

    def _placing_parts(self) -> dict[str, np.ndarray] | None:
        if self._centers is None:
            return None
        table, _, values, *_ = self._centers.embedding
        return {"table": table, "singular_values": values, "centers": self._centers.centers}

    def _restore_placing(self, parts: Mapping[str, np.ndarray], ensemble: Ensemble, n_clusters: int) -> None:  # noqa: ARG002
        table, values, centers = (parts[name] for name in ("table", "singular_values", "centers"))
        if len(table) != ensemble.n_base_clusters or not values.size == centers.shape[1] <= table.shape[1]:
            raise ValueError("the embedding has other shapes than the ensemble")
        embedding = Embedding(table, ensemble.offsets, values, np.empty((0, values.size)), self._weights)
        self._centers = Centers(embedding, centers, float("nan"), {}, 0, [])


def refuse_unused(
    model: ConsensusClusterer, chosen: str, names: tuple[str, ...], parameter: str = "partitioner"
) -> None:
    """Refuse parameters of ``model`` that were set although they do not apply to what ``parameter`` chose."""
    parameters = inspect.signature(type(model)).parameters
    for name in names:
        value, default = getattr(model, name), parameters[name].default
        if value != default:
            raise InvalidInputError(
                f"{name}={value!r} does not apply to {parameter}={chosen!r}; leave it at {default!r}."
            )


def checked_imbalance(imbalance: float | None) -> float:
    """Return the share by which the largest part may exceed its equal share."""
    return 0.05 if imbalance is None else check_number("imbalance", imbalance, above=0.0)
