"""The sites: what each holds, and how it answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from bigcons.errors import EmptyPartitionError, InvalidInputError
from bigcons.io.factorize import label_dtype
from bigcons.methods.bce import NO_STEP, VariationalBCE, further_probabilities
from bigcons.methods.mixture import SMOOTHING
from bigcons.methods.pass_clusterer import first_partition
from bigcons.methods.placing import Recoding, codes_in, recode
from bigcons.run.passes import State, Stats, add_stats
from bigcons.run.results import sizes_of
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.weights import counts_of

Message = dict[str, Any]
"""A question, under "ask", with its arguments; or an answer."""


class Site(Protocol):
    """Whatever answers messages: a site itself, or a stub that sends them to one.

    Examples
    --------
    >>> from bigcons.federated import RowSite, Site
    >>> class Stub:  # sends messages to where the labels are
    ...     def __init__(self, send):
    ...         self.send = send
    ...     def answer(self, message):
    ...         return self.send(message)
    >>> site: Site = Stub(RowSite([[0, 1], [0, 1], [1, 0]]).answer)
    """

    def answer(self, message: Message) -> Message:
        """Return the answer of the site, which counts every message: deliver each one once."""
        ...


class _Answering:
    """A site that has a method for each of its questions."""

    questions: ClassVar[tuple[str, ...]]

    def answer(self, message: Message) -> Message:
        """Return the answer to a message of a coordinator."""
        arguments = dict(message)
        question = arguments.pop("ask", None)
        if question not in self.questions:
            raise InvalidInputError(
                f"a message asks {question!r}, which is no question to this site; it answers "
                f"{', '.join(self.questions)}."
            )
        answer: Message = getattr(self, f"_{question}")(**arguments)
        return answer


class RowSite(_Answering):
    """A site with its own objects, labeled by the partitions that all sites share.

    Parameters
    ----------
    labels : Ensemble or anything that ``Ensemble.from_labels`` takes
        Labels (n_own, n_partitions) of the objects of this site, -1 missing; a stored ensemble is read block
        by block. All sites use the same names, numbers or text, for the clusters of a partition.
    values : sequence of arrays or None, default=None
        The possible labels of each partition, if the sites have agreed on them: then no site sends those it
        has, and a partition may have no labels here. None to send them.

    Notes
    -----
    Memory: 4 n_own K bytes for gamma of every start (`fit_rows`), and the labels unless they are stored.

    Examples
    --------
    >>> from bigcons.federated import RowSite
    >>> site = RowSite([[0, 1], [0, 1], [1, -1]])
    >>> sorted(site.answer({"ask": "values"}))
    ['values']
    """

    questions: ClassVar[tuple[str, ...]] = (
        "values",
        "begin",
        "tally",
        "count",
        "visit",
        "propose",
        "step",
        "end",
        "number",
    )

    def __init__(self, labels: Any, *, values: Sequence[Any] | None = None) -> None:
        agreed = None if values is None else [np.asarray(of_partition) for of_partition in values]
        try:
            self._ensemble: Ensemble = as_ensemble(labels, agreed)
        except EmptyPartitionError as error:
            raise InvalidInputError(
                f"partition {error.name!r} has no labels at this site; pass values= with the labels that the "
                "sites have agreed on.",
                parameter="labels",
            ) from None
        self._held: list[np.ndarray] = Recoding(self._ensemble).values
        self._agreed: list[np.ndarray] = self._held if agreed is None else agreed
        if len(self._agreed) != len(self._held):
            raise InvalidInputError(
                f"values has labels of {len(self._agreed)} partitions, but the site has "
                f"n_partitions={len(self._held)}; give those of each.",
                parameter="values",
            )
        for u, (possible, held) in enumerate(zip(self._agreed, self._held, strict=True)):
            if (codes_in(possible, held)[:-1] < 0).any():
                raise InvalidInputError(
                    f"values of partition {u} are {possible.tolist()}, which lack labels of this site; give "
                    "those of all sites.",
                    parameter="values",
                )
        self._gammas: dict[tuple[int, int], np.ndarray] = {}  # by start and block
        self._final: tuple[State, int | None] | None = None

    def memberships(self) -> np.ndarray:
        """Return memberships (n_own, K) float32 of the objects of this site under the final parameters.

        Objects without labels have uniform memberships. Raises InvalidInputError before the end of a fit.
        """
        if self._final is None:
            raise InvalidInputError("no fit has ended at this site; call fit_rows or fit_rows_in_turn first.")
        state, start = self._final
        parts = []
        for number, labels in enumerate(self._blocks()):
            gamma = None if start is None else self._gammas.get((start, number))
            rows = self._problem.place(state, labels, gamma)[:, self._order]
            rows[(labels < 0).all(axis=1)] = 1.0 / rows.shape[1]
            parts.append(rows)
        return np.concatenate(parts)

    def labels(self) -> np.ndarray:
        """Return the clusters (n_own,) int32 of the objects of this site, -1 for objects without labels.

        They are numbered largest first at all sites.
        """
        clusters = self.memberships().argmax(axis=1).astype(np.int32)
        clusters[~np.concatenate([(labels >= 0).any(axis=1) for labels in self._blocks()])] = -1
        return clusters

    def _blocks(self) -> Iterator[np.ndarray]:
        """Yield the labels of each block in the codes that all sites share."""
        dtype = label_dtype(np.diff(self._problem.offsets))
        for block in self._ensemble.blocks():
            yield recode(self._ensemble.read(block.start, block.stop), self._codes, dtype)

    def _values(self) -> Message:
        return {"values": [np.array(values.tolist()) for values in self._agreed]}  # text not as objects

    def _begin(self, n_clusters: int, update_alpha: bool, values: Sequence[Any]) -> Message:
        pairs = zip(values, self._held, strict=True)
        self._codes = [codes_in(np.asarray(possible), held) for possible, held in pairs]
        self._problem = problem_of(values, n_clusters, update_alpha)
        self._gammas, self._final = {}, None
        return {}

    def _tally(self, partitions: np.ndarray) -> Message:
        """Return the combinations of labels in some partitions that objects have, and of how many objects."""
        tallies = []
        for labels in self._blocks():
            rows = labels[:, partitions].astype(np.int64)
            groups, counts = np.unique(rows[(rows >= 0).all(axis=1)], axis=0, return_counts=True)
            tallies.append({"groups": groups, "counts": counts})
        return merged(tallies)

    def _count(self, partitions: np.ndarray, groups: np.ndarray) -> Message:
        """Return how many objects of each base cluster have each of K combinations of labels; and of all."""
        parts = []
        for labels in self._blocks():
            alike = (labels[:, None, partitions] == groups[None]).all(axis=2)
            clusters = np.where(alike.any(axis=1), alike.argmax(axis=1), -1).astype(np.int32)
            counts, _ = counts_of(labels, self._problem.offsets, clusters, len(groups))
            everyone, _ = counts_of(labels, self._problem.offsets, np.zeros_like(clusters), 1)
            parts.append({"counts": counts, "everyone": everyone})
        return dict(added(parts))

    def _visit(self, starts: Sequence[int], states: Sequence[State]) -> Message:
        """Return the sums over the objects of this site under the states of some starts."""
        sums: list[Stats] = []
        for start, state in zip(starts, states, strict=True):
            writable = {name: np.array(values) for name, values in state.items()}  # as kernels are compiled
            parts = []
            for number, labels in enumerate(self._blocks()):
                key = int(start), number
                stats, self._gammas[key] = self._problem.block_stats(writable, labels, self._gammas.get(key))
                parts.append(stats)
            sums.append(added(parts))
        return {"stats": sums}

    def _propose(self, seed: int, start: int) -> Message:
        """Return the state of a start from the objects of this site."""
        labels = np.concatenate(list(self._blocks()))
        return {"state": parameters_in(self._problem.start(labels, seed, start)[0])}

    def _step(self, start: int, state: State) -> Message:
        """Return the state after an EM step on the objects of this site alone, and the bound before it."""
        stats = self._visit([start], [state])["stats"][0]
        following, record = self._problem.finish({**state, "step": np.array(NO_STEP)}, stats)
        return {"state": parameters_in(following), "objective": record["objective"]}

    def _end(self, state: State, start: int | None) -> Message:
        """Keep the final state; the gammas belong to it if it is that of a start."""
        self._final = state, start
        self._gammas = {key: rows for key, rows in self._gammas.items() if key[0] == start}
        self._order = np.arange(state["alpha"].size)
        return {}

    def _number(self, order: np.ndarray) -> Message:
        """Number the clusters in an order, and return how many objects of this site each then has."""
        self._order = np.array(order)
        return {"sizes": sizes_of(self.labels(), len(order))}


class ColumnSite(_Answering):
    """A site with its own partitions of the objects that all sites share (a client, in the paper).

    Parameters
    ----------
    labels : Ensemble or anything that ``Ensemble.from_labels`` takes
        Labels (n_objects, n_own) of all objects in the partitions of this site, -1 missing. All sites list
        the objects in the same order.

    Notes
    -----
    Time and message size O(n K) for each of its partitions and iterations, all in memory.

    Examples
    --------
    >>> from bigcons.federated import ColumnSite
    >>> site = ColumnSite([[0, 1], [0, 1], [1, -1]])
    >>> sorted(site.answer({"ask": "shape"}))
    ['n_objects', 'n_partitions']
    """

    questions: ClassVar[tuple[str, ...]] = ("shape", "propose", "update", "end")

    def __init__(self, labels: Any) -> None:
        ensemble = as_ensemble(labels)
        self._labels = ensemble.read(0, ensemble.n_objects)
        self._offsets = ensemble.offsets
        self._objects, self._partitions = np.nonzero(self._labels >= 0)
        self._base = self._offsets[self._partitions] + self._labels[self._objects, self._partitions]
        self._betas: dict[int, np.ndarray] = {}  # by start
        self.probabilities: np.ndarray | None = None
        """(n_own_base_clusters, K) label probabilities of the clusters; None before the end of a fit."""

    def _shape(self) -> Message:
        self._betas, self.probabilities = {}, None
        return {"n_objects": self._labels.shape[0], "n_partitions": self._labels.shape[1]}

    def _propose(self, n_clusters: int, seed: int, start: int) -> Message:
        """Return clusters (n,) from partitions of this site to start from, -1 where undecided."""
        return {"clusters": first_partition(self._labels, n_clusters, seed, start)}

    def _update(self, start: int, shares: np.ndarray, smoothing: float, relaxation: float) -> Message:
        """Estimate beta from shares (n, n_own, K), or (n, K) for all alike; return its logarithms by label.

        ``relaxation`` as of `further_probabilities`. ``log_beta`` (n, n_own, K) is NaN where a label is
        missing; ``log_prior`` is the part of this site in the objective, the sum of log beta.
        """
        n_clusters = shares.shape[-1]
        if shares.ndim == 2:
            shares = np.broadcast_to(shares[:, None, :], (*self._labels.shape, n_clusters))
        counts = np.full((int(self._offsets[-1]), n_clusters), smoothing)
        np.add.at(counts, self._base, shares[self._objects, self._partitions])
        before = self._betas.get(int(start), counts)
        beta = further_probabilities(before, counts, self._offsets, relaxation)
        self._betas[int(start)] = beta
        log_beta = np.full((*self._labels.shape, n_clusters), np.nan)
        log_beta[self._objects, self._partitions] = np.log(beta)[self._base]
        return {"log_beta": log_beta, "log_prior": float(np.log(beta).sum())}

    def _end(self, start: int, order: np.ndarray) -> Message:
        """Keep the probabilities of a start, with its clusters in an order."""
        self.probabilities = self._betas[int(start)][:, order]
        self._betas = {}
        return {}


def problem_of(values: Sequence[Any], n_clusters: int, update_alpha: bool) -> VariationalBCE:
    """Return the problem whose sums the sites share, given the labels of each partition."""
    offsets = np.cumsum([0, *map(len, values)])
    return VariationalBCE(
        offsets, n_clusters, init="partition", smoothing=SMOOTHING, update_alpha=update_alpha
    )


def merged(tallies: Sequence[Message]) -> Message:
    """Return the sum of tallies."""
    rows = np.concatenate([tally["groups"] for tally in tallies])
    groups, where = np.unique(rows, axis=0, return_inverse=True)
    counts = np.zeros(len(groups), np.int64)
    np.add.at(counts, where.ravel(), np.concatenate([tally["counts"] for tally in tallies]))
    return {"groups": groups, "counts": counts}


def added(parts: Sequence[Stats]) -> Stats:
    """Return the sum of named arrays, in their order."""
    total: Stats = {name: np.array(values) for name, values in parts[0].items()}
    for part in parts[1:]:
        add_stats(total, part)
    return total


def parameters_in(state: State) -> State:
    """Return alpha and beta of a state."""
    return {"alpha": state["alpha"], "beta": state["beta"]}
