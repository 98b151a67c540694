"""The estimator contract that every consensus method keeps."""

from __future__ import annotations

import html
import os
from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin

from bigcons.errors import InvalidInputError
from bigcons.execution.engine import Engine, resolve_engine
from bigcons.seeding import resolve_seed
from bigcons.stores.consensus import Consensus, fit_results
from bigcons.stores.ensemble import Ensemble, as_ensemble
from bigcons.stores.facts import facts_table
from bigcons.stores.manifest import refuse_existing
from bigcons.validation import check_int


class ConsensusClusterer(ClusterMixin, BaseEstimator):
    """Base of the methods that combine an ensemble into one clustering.

    ``fit`` takes an Ensemble, the path of one, or anything ``Ensemble.from_labels`` takes: rows are objects,
    columns partitions, so scikit-learn's checks that feed real-valued features do not apply.
    A method has the parameters ``n_clusters``, ``random_state``, ``out`` and ``client``, and sets ``labels_``
    (n_objects,) int32 with -1 for objects that no partition labelled, ``objective_``, ``history_`` and
    ``n_clusters_``, the number of clusters that win objects.
    """

    n_clusters: int
    random_state: Any
    out: str | os.PathLike[str] | None
    client: object

    def fit(
        self,
        x: Any,
        y: object = None,  # noqa: ARG002 - scikit-learn's signature
        *,
        out: str | os.PathLike[str] | None = None,
    ) -> ConsensusClusterer:
        """Find the consensus of ``x``; ``y`` is there for scikit-learn and not used.

        With ``out``, here or as a parameter, the result is also stored there.
        """
        out = out if out is not None else self.out
        if out is not None:
            refuse_existing(out)
        ensemble = as_ensemble(x)
        n_clusters = check_int("n_clusters", self.n_clusters)
        if n_clusters > ensemble.n_objects:
            raise InvalidInputError(
                f"n_clusters={n_clusters} but there are n_objects={ensemble.n_objects}; "
                f"ask for at most {ensemble.n_objects} clusters."
            )
        self._solve(ensemble, resolve_engine(self.client), resolve_seed(self.random_state))
        winners = self.labels_[self.labels_ >= 0]
        self.n_clusters_ = int(np.unique(winners).size)
        self.n_features_in_ = ensemble.n_partitions
        if out is not None:
            Consensus.from_estimator(out, self, provenance={"ensemble": ensemble.path or "in memory"})
        return self

    @abstractmethod
    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int) -> None:
        """Check the method's own parameters, solve, and set the results."""

    def _repr_html_(self) -> str:
        """Show the parameters and, once fitted, what was found."""
        if not hasattr(self, "labels_"):
            return f"<pre>{html.escape(repr(self))}</pre>"
        n_missing = int((self.labels_ < 0).sum())
        facts = {
            "objects": f"{self.labels_.size:,}",
            "objects without any label": f"{n_missing:,}" if n_missing else None,
            **{name.replace("_", " "): _short(value) for name, value in fit_results(self).items()},
        }
        return facts_table(repr(self), facts)


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
