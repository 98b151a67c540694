"""The estimator contract that every consensus method keeps."""

from __future__ import annotations

import html
import os
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin

from bigcons.errors import InvalidInputError
from bigcons.execution.engine import Engine, SerialEngine, open_engine
from bigcons.memory import Block
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.solving.recoding import Recoding
from bigcons.solving.results import Results
from bigcons.storage.commit import is_store, refuse_existing, refuse_source
from bigcons.stores.consensus import Consensus
from bigcons.stores.consensus_writer import ConsensusWriter, fit_results
from bigcons.stores.dask_arrays import as_dask_array
from bigcons.stores.ensemble import Ensemble, as_ensemble
from bigcons.stores.facts import facts_table
from bigcons.validation import check_int


class Output(NamedTuple):
    """Where a result goes, and whether it may replace what is there."""

    path: str | os.PathLike[str]
    overwrite: bool


class MethodInfo(NamedTuple):
    """What `bigcons methods` says of a method."""

    paper: str
    needs: str
    """What it works from: "labels", "base-cluster overlaps", "co-association", "features and labels"."""
    soft: bool
    """Whether it sets ``memberships_``."""
    missing: str
    """How it takes missing labels, in a word or two: "native", "c/N", "refused"."""
    out_of_core: bool
    distributed: bool


class ConsensusClusterer(ClusterMixin, BaseEstimator):
    """Base of the methods that combine an ensemble into one clustering.

    ``fit`` takes an Ensemble, the path of one, or anything ``Ensemble.from_labels`` takes: rows are objects,
    columns partitions, so scikit-learn's checks that feed real-valued features do not apply.
    A method sets ``labels_`` (n_objects,) int32 with -1 for objects that no partition labeled,
    ``objective_``, ``history_`` and ``n_clusters_``, the number of clusters that win objects; if it is soft,
    ``memberships_`` (n_objects, n_clusters) float32; if it has starts, ``start_objectives_``, the objective
    of every start when the best was chosen (on a sample of the objects if starts run on one).

    Blocks, random draws and sums do not depend on the number of workers: one seed gives the same bits on any
    engine. ``memory`` bounds this process and, of the machine with most of them, the Dask workers; what is
    held and the blocks at work must fit. ``client="threads"`` uses all cores of this machine.
    """

    info: ClassVar[MethodInfo]

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.random_state = random_state
        self.memory = memory
        self.out = out
        self.client = client

    def fit(
        self,
        x: Any,
        y: object = None,  # noqa: ARG002 - scikit-learn's signature
        *,
        out: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
    ) -> ConsensusClusterer:
        """Find the consensus of ``x``; ``y`` is there for scikit-learn and not used.

        With ``out``, here or as a parameter, the result goes to a Consensus store there, written block by
        block; ``memberships_`` is then a dask array that reads it. A store that is there already is replaced
        with ``overwrite``, once the new one is whole.
        """
        path = out if out is not None else self.out
        output = Output(path, overwrite) if path is not None else None
        if output is not None:
            refuse_existing(output.path, output.overwrite)
        with self._undertaking(output):
            ensemble = as_ensemble(x)
            if output is not None:
                for source in (ensemble.path, self._stored_pairs()):
                    refuse_source(output.path, source)
            self._check_n_clusters(ensemble.n_objects)
            for name in [name for name in vars(self) if name.endswith("_")]:
                delattr(self, name)  # found by an earlier fit, perhaps with other parameters
            self.n_features_in_ = ensemble.n_partitions
            self._recoding = Recoding(ensemble)
            with open_engine(self.client) as engine:
                self._solve(ensemble, engine, resolve_seed(self.random_state), output)
        return self

    def _undertaking(self, out: Output | None) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return what ``fit`` does its work in; a method that keeps what is done tells so when it fails."""
        return nullcontext()

    def _stored_pairs(self) -> str | os.PathLike[str] | None:
        """Return where the pairs lie that a method was told to work on; None if it has no stored ones."""
        pairs = getattr(self, "pairs", None)
        if isinstance(pairs, (str, os.PathLike)):
            return pairs if is_store(pairs) else None
        return getattr(pairs, "path", None)

    def _check_n_clusters(self, n_objects: int) -> None:
        n_clusters = check_int("n_clusters", self.n_clusters)
        if n_clusters > n_objects:
            raise InvalidInputError(
                f"n_clusters={n_clusters} but there are n_objects={n_objects}; "
                f"ask for at most {n_objects} clusters."
            )

    @abstractmethod
    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        """Check the method's own parameters, solve, set the method's own results and call `_publish`."""

    def _publish(
        self,
        ensemble: Ensemble,
        read: Callable[[Block], np.ndarray],
        unlabeled: np.ndarray,
        out: Output | None,
        engine: Engine | None = None,
    ) -> None:
        """Set labels, memberships and the number of clusters from memberships by block; store them at
        ``out``.

        ``unlabeled`` are the sorted indices of the objects that get label -1 and uniform memberships.
        ``read`` is mapped on ``engine``, by default in this thread.
        """
        self._take_results(
            Results(ensemble, unlabeled, self.n_clusters, True, read, engine or SerialEngine()), out
        )

    def _publish_labels(
        self,
        ensemble: Ensemble,
        read: Callable[[Block], np.ndarray],
        unlabeled: np.ndarray,
        out: Output | None,
        engine: Engine | None = None,
        n_clusters: int | None = None,
    ) -> None:
        """Set labels and the number of clusters from labels by block, of a method without memberships.

        ``unlabeled`` and ``engine`` as in `_publish`; a label of -1 stays. Labels are below ``n_clusters``,
        by default the parameter of that name.
        """
        most = n_clusters or self.n_clusters
        self._take_results(Results(ensemble, unlabeled, most, False, read, engine or SerialEngine()), out)

    def _take_results(self, results: Results, out: Output | None) -> None:
        """Set labels, memberships and the number of clusters; of a stored result, from its Consensus."""
        if out is None:
            self.labels_, soft = results.hold()
            self.n_clusters_ = int(np.unique(self.labels_[self.labels_ >= 0]).size)
            self._memberships: np.ndarray | Consensus | None = soft
            return
        with Consensus.create(
            out.path,
            n_objects=results.ensemble.n_objects,
            n_clusters=results.n_clusters,
            chunk_rows=results.ensemble.chunk_rows,
            overwrite=out.overwrite,
            memberships=results.soft,
        ) as writer:
            self.n_clusters_ = results.write(writer)
            self._describe(writer, results.ensemble)
        consensus = Consensus.open(out.path)
        self.labels_ = consensus.labels
        self._memberships = consensus if results.soft else None

    @property
    def memberships_(self) -> Any:
        """Memberships (n_objects, n_clusters) float32 of a soft method, once fitted.

        Of a result that was stored, a dask array that reads them.
        """
        found = getattr(self, "_memberships", None)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no memberships_; a soft method has once fitted.")
        if not isinstance(found, Consensus):
            return found
        return as_dask_array(found.read_memberships, found.blocks(), found.n_clusters, np.dtype(np.float32))

    def _fingerprint(self) -> dict[str, Any]:
        """Return the parameters that a resumed solve must share with the one it continues."""
        free = ("max_iter", "memory", "client", "out", "resume", "random_state")
        return {name: repr(value) for name, value in self.get_params(deep=False).items() if name not in free}

    def _describe(self, writer: ConsensusWriter, ensemble: Ensemble) -> None:
        writer.describe(
            history=getattr(self, "history_", None),
            parameters={"method": type(self).__name__, **self.get_params(deep=False)},
            results=fit_results(self),
            provenance={"ensemble": ensemble.path or "in memory"},
        )

    def _repr_html_(self) -> str:
        """Show the parameters and, once fitted, what was found."""
        if not hasattr(self, "labels_"):
            return f"<pre>{html.escape(repr(self))}</pre>"
        n_missing = int((self.labels_ < 0).sum())
        facts = {
            "objects": f"{self.labels_.size:,}",
            "objects without any label": f"{n_missing:,}" if n_missing else None,
            **{name.replace("_", " "): value for name, value in fit_results(self).items()},
        }
        return facts_table(repr(self), facts)
