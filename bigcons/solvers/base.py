"""The estimator contract that every consensus method keeps."""

from __future__ import annotations

import html
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin

from bigcons.errors import InvalidInputError
from bigcons.execution.engine import Engine, SerialEngine, open_engine
from bigcons.memory import Block
from bigcons.seeding import resolve_seed
from bigcons.solvers.recoding import Recoding
from bigcons.stores.consensus import Consensus
from bigcons.stores.consensus_writer import ConsensusWriter, fit_results
from bigcons.stores.dask_arrays import as_dask_array
from bigcons.stores.ensemble import Ensemble, as_ensemble
from bigcons.stores.facts import facts_table
from bigcons.stores.manifest import refuse_existing
from bigcons.validation import check_int


class Output(NamedTuple):
    """Where a result goes, and whether it may replace what is there."""

    path: str | os.PathLike[str]
    overwrite: bool


class MethodFacts(NamedTuple):
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
    A method has the parameters ``n_clusters``, ``random_state``, ``memory``, ``out`` and ``client``, and sets
    ``labels_`` (n_objects,) int32 with -1 for objects that no partition labelled, ``objective_``,
    ``history_`` and ``n_clusters_``, the number of clusters that win objects; if it is soft,
    ``memberships_`` (n_objects, n_clusters) float32.
    """

    facts: ClassVar[MethodFacts]

    n_clusters: int
    random_state: Any
    memory: str | float | None
    out: str | os.PathLike[str] | None
    client: object

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
        ensemble = as_ensemble(x)
        self._check_n_clusters(ensemble.n_objects)
        self.n_features_in_ = ensemble.n_partitions
        self._recoding = Recoding(ensemble)
        with open_engine(self.client) as engine:
            self._solve(ensemble, engine, resolve_seed(self.random_state), output)
        return self

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
        unlabelled: np.ndarray,
        out: Output | None,
        engine: Engine | None = None,
    ) -> None:
        """Set labels, memberships and the number of clusters from memberships by block; store them at
        ``out``.

        ``unlabelled`` are the sorted indices of the objects that get label -1 and uniform memberships.
        ``read`` is mapped on ``engine``, by default in this thread.
        """

        def finish(rows: np.ndarray, undecided: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            memberships = np.array(rows, np.float32)
            labels = memberships.argmax(axis=1).astype(np.int32)
            labels[undecided] = -1
            memberships[undecided] = np.float32(1.0 / self.n_clusters)
            return labels, memberships

        results = _results(ensemble, read, finish, unlabelled, engine)
        if out is None:
            self._hold(ensemble.n_objects, results, memberships=True)
            return
        consensus = self._store(ensemble, results, out, self.n_clusters, memberships=True)
        self.memberships_ = as_dask_array(
            consensus.read_memberships, consensus.blocks(), self.n_clusters, np.dtype(np.float32)
        )

    def _publish_labels(
        self,
        ensemble: Ensemble,
        read: Callable[[Block], np.ndarray],
        unlabelled: np.ndarray,
        out: Output | None,
        engine: Engine | None = None,
        n_clusters: int | None = None,
    ) -> None:
        """Set labels and the number of clusters from labels by block, of a method without memberships.

        ``unlabelled`` and ``engine`` as in `_publish`; a label of -1 stays. Labels are below ``n_clusters``,
        by default the parameter of that name.
        """

        def finish(rows: np.ndarray, undecided: np.ndarray) -> tuple[np.ndarray, None]:
            labels = np.array(rows, np.int32)
            labels[undecided] = -1
            return labels, None

        results = _results(ensemble, read, finish, unlabelled, engine)
        if out is None:
            self._hold(ensemble.n_objects, results, memberships=False)
            return
        n_clusters = self.n_clusters if n_clusters is None else n_clusters
        self._store(ensemble, results, out, n_clusters, memberships=False)

    def _hold(self, n_objects: int, results: Iterable[Result], *, memberships: bool) -> None:
        """Set labels and memberships from those of blocks, in memory."""
        found = np.empty(n_objects, np.int32)
        soft = np.empty((n_objects, self.n_clusters), np.float32) if memberships else None
        for block, labels, rows in results:
            found[block.start : block.stop] = labels
            if soft is not None:
                soft[block.start : block.stop] = rows
        self.labels_ = found
        self.n_clusters_ = int(np.unique(found[found >= 0]).size)
        if soft is not None:
            self.memberships_ = soft

    def _store(
        self,
        ensemble: Ensemble,
        results: Iterable[Result],
        out: Output,
        n_clusters: int,
        *,
        memberships: bool,
    ) -> Consensus:
        """Write labels and memberships of blocks to a Consensus and set the labels from it."""
        wins = np.zeros(n_clusters, bool)
        with Consensus.create(
            out.path,
            n_objects=ensemble.n_objects,
            n_clusters=n_clusters,
            chunk_rows=ensemble.chunk_rows,
            overwrite=out.overwrite,
            memberships=memberships,
        ) as writer:
            for block, labels, rows in results:
                wins[labels[labels >= 0]] = True
                writer.write(block.start, labels, rows)
            self.n_clusters_ = int(np.count_nonzero(wins))
            self._describe(writer, ensemble)
        consensus = Consensus.open(out.path)
        self.labels_ = consensus.labels
        return consensus

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
            **{name.replace("_", " "): _short(value) for name, value in fit_results(self).items()},
        }
        return facts_table(repr(self), facts)


Result = tuple[Block, np.ndarray, np.ndarray | None]
"""A block, the labels (rows,) int32 of its objects and, if soft, their memberships (rows, K) float32."""


def _results(
    ensemble: Ensemble,
    read: Callable[[Block], np.ndarray],
    finish: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray | None]],
    unlabelled: np.ndarray,
    engine: Engine | None,
) -> Iterator[Result]:
    """Yield the results of every block, in order; reading is left to the engine.

    ``finish`` makes them from what was read and the places of the unlabelled objects in it.
    """
    blocks = ensemble.blocks()
    with closing((engine or SerialEngine()).map(read, blocks)) as results:
        for block, rows in zip(blocks, results, strict=True):
            first, last = np.searchsorted(unlabelled, (block.start, block.stop))
            yield block, *finish(rows, unlabelled[first:last] - block.start)


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
