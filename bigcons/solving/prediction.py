"""Estimators that keep what tells where objects belong which they did not see, and that can be resumed."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bigcons.errors import InvalidInputError
from bigcons.execution.engine import open_engine
from bigcons.memory import Block
from bigcons.seeding import SeedLike
from bigcons.solving.estimator import ConsensusClusterer, Output
from bigcons.solving.recoding import recode
from bigcons.solving.results import Use
from bigcons.solving.survey import labeled_objects
from bigcons.solving.workspace import telling_what_is_kept
from bigcons.stores.consensus import Consensus
from bigcons.stores.ensemble import Ensemble


class PredictingClusterer(ConsensusClusterer):
    """Base of the methods that place new objects, and that can resume an interrupted solve.

    With ``out``, every pass is committed to ``<out>.partial``. With ``resume`` a solve continues from there,
    or starts anew if there is nothing to resume.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        resume: bool = False,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(n_clusters, random_state=random_state, memory=memory, out=out, client=client)
        self.resume = resume

    def _undertaking(self, out: Output | None) -> AbstractContextManager[None]:
        return telling_what_is_kept(out.path) if self.resume and out is not None else nullcontext()

    @abstractmethod
    def _placer(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return what gives labels (rows, M) in the fitted codes their clusters or, if soft, memberships.

        It may travel to other machines, so it is to hold no more than it needs.
        """

    def _partition_weights(self) -> np.ndarray | None:
        """Return the weights (n_partitions,) by which partitions count, None where all count the same."""
        return None

    def predict(self, x: Any, *, out: str | os.PathLike[str] | None = None) -> np.ndarray:
        """Return labels (n_objects,) int32 of objects given by their base labels, -1 where these say nothing.

        ``x`` as in ``fit``, with the same partitions in the same order, some of which may be all missing;
        labels that were not seen in ``fit`` count as missing.
        With ``out``, the result also goes to a Consensus store there, block by block.
        """
        check_is_fitted(self, "labels_")
        ensemble = self._recoding.ensemble(x)
        if out is None:
            return np.concatenate(list(self._placed(ensemble, lambda _, labels, __: labels)))
        with Consensus.create(
            out,
            n_objects=ensemble.n_objects,
            n_clusters=self.n_clusters,
            chunk_rows=ensemble.chunk_rows,
            memberships=self.info.soft,
        ) as writer:
            rows = writer.rows
            for written in self._placed(ensemble, lambda block, *found: rows.write(block.start, *found)):
                writer.note(written)
            writer.describe(provenance={"ensemble": ensemble.path or "in memory", "predicted_by": repr(self)})
        return Consensus.open(out).labels

    def _placed(
        self, ensemble: Ensemble, use: Callable[[Block, np.ndarray, np.ndarray | None], Use]
    ) -> Iterator[Use]:
        """Yield ``use(block, labels, memberships)`` of new objects, block by block; it is part of the tasks.

        Memberships are None of a method that is not soft.
        """
        tables, place, weights = self._recoding.tables(ensemble), self._placer(), self._partition_weights()
        soft, even = self.info.soft, np.float32(1.0 / self.n_clusters)

        def place_block(block: Block) -> Use:
            labels = recode(ensemble.read(block.start, block.stop), tables)
            found, labeled = place(labels), labeled_objects(labels >= 0, weights)
            winners = np.where(labeled, found.argmax(axis=1) if soft else found, -1).astype(np.int32)
            return use(block, winners, np.where(labeled[:, None], found, even) if soft else None)

        with open_engine(self.client) as engine:
            yield from engine.map(place_block, ensemble.blocks())

    def _check_resume(self, out: Output | None) -> None:
        if self.resume and out is None:
            raise InvalidInputError(
                "resume=True without out=; only a solve with out= keeps what it has done."
            )


class SoftPredictingClusterer(PredictingClusterer):
    """Base of the methods that give new objects memberships."""

    def predict_proba(self, x: Any) -> np.ndarray:
        """Return memberships (n_objects, n_clusters) float32 of objects given by their base labels.

        See `predict`; objects without any label get uniform memberships.
        """
        check_is_fitted(self, "labels_")
        return np.concatenate(
            list(self._placed(self._recoding.ensemble(x), lambda _, __, memberships: memberships))
        )
