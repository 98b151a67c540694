"""Consensus among sites that keep their labels: Bayesian cluster ensembles distributed by rows or by columns.

Wang, Shan and Banerjee (2009) distribute their model in two ways. *By rows*: the sites hold different
objects, labeled by the same partitions. *By columns*: they hold different partitions of the same objects. In
both, sites do not communicate with each other but answer a coordinator: the caller of `fit_rows`,
`fit_rows_in_turn` or `fit_columns`.

A site is an object with one method, ``answer(message)``. Messages and answers are dicts of text, numbers,
arrays, and lists and dicts of these, so that any transport can carry them: `RowSite` and `ColumnSite` answer
in this process, and your own class may send the message elsewhere, such as to an actor on a Dask worker.
Whatever is not in an answer stays at the site:

By rows, `fit_rows`, with M partitions of B base clusters in all, and K clusters:

* A site first sends the distinct labels of each partition, unless the sites were given ``values``.
* For each start it sends how many of its objects have each combination of labels in one or a few partitions
  and, for the K most frequent combinations, how many of these objects are in each base cluster.
* In every iteration it sends expected label counts (B, K), summed expectations of log theta (K,), the number
  of objects with a label, and its part of the bound.
* It receives the parameters (B, K) and (K,), which follow from the sums over all sites.
* Labels, gamma and memberships stay. No message has an entry for an object or grows with their number.

With `fit_rows_in_turn` a site sends the parameters estimated from its own objects and its part of the bound,
but no sums. Sums are exact, without noise: a sum over a single object reveals it, and each of two sites can
subtract its own part from the total. Sites trust the coordinator to ask only what it needs: one that sends
parameters of its own choice can single out objects by the sums.

By columns, `fit_columns`, with n objects and M_own partitions at a site:

* A site sends once the number of its objects and partitions. If it proposes a start, it sends one of its
  partitions, or an intersection of some, as K clusters (n,), which all sites then see.
* In every iteration it sends ``log beta`` of the label of every object in each partition (n, M_own, K).
* It receives how much each of these labels belongs to each cluster (n, M_own, K).
* The names of labels and beta stay. The coordinator keeps gamma and alpha.

By columns the coordinator learns every partition, up to the names of its clusters: all objects of a base
cluster send the same vector. The paper's exchange does not hide them, nor does this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from bigcons.errors import ConvergenceWarning, InvalidInputError, warn_user
from bigcons.io.labels import label_dtype
from bigcons.methods import bce
from bigcons.methods.bce import SMOOTHING
from bigcons.methods.pass_clusterer import CERTAINTY, first_partition, partition_order, spread
from bigcons.methods.placing import Recoding, codes_in, recode
from bigcons.run import passes
from bigcons.run.passes import History, Record, State, Stats
from bigcons.run.results import falling_order, sizes_of
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.store.ensemble import as_ensemble
from bigcons.validation import check_int
from bigcons.weights import counts_of

__all__ = [
    "ColumnFit", "ColumnSite", "Message", "RowFit", "RowSite", "Site", "fit_columns", "fit_rows",
    "fit_rows_in_turn",
]  # fmt: skip

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


def _ask(sites: Sequence[Site], message: Message | list[Message]) -> list[Message]:
    """Return the answers of all sites in their order, asked at the same time: one message, or one each."""
    messages = message if isinstance(message, list) else [message] * len(sites)
    with ThreadPoolExecutor(min(len(sites), 64)) as threads:  # a thread waits for each site
        return list(threads.map(lambda site, question: site.answer(question), sites, messages))


def _shared(state: State) -> dict[str, np.ndarray]:
    """Return what sites and coordinator share of a state."""
    return {"alpha": state["alpha"], "beta": state["beta"]}


def _sum(parts: Sequence[Stats]) -> Stats:
    """Return the sum of named arrays, in their order."""
    total: Stats = {name: np.array(values) for name, values in parts[0].items()}
    for part in parts[1:]:
        passes.add_stats(total, part)
    return total


@dataclass
class _Start:
    """A start of EM between two iterations."""

    number: int
    following: State
    """The state of the next iteration."""
    state: State = field(default_factory=dict)
    """The state that the last record judges."""
    records: list[Record] = field(default_factory=list)
    is_settled: bool = False

    @property
    def objective(self) -> float:
        """The last objective."""
        return self.records[-1]["objective"]


def _outcome(best: _Start, starts: Sequence[_Start]) -> tuple[float, History, list[float], bool]:
    """Return the last four fields of a fit; warn if the best start stopped at its limit."""
    if not best.is_settled:
        warn_user(
            f"the sites stopped after {len(best.records)} iterations or cycles, before the fit settled; "
            "raise max_iter, max_cycles or tol if the labels still change.",
            ConvergenceWarning,
        )
    history = passes.as_history([{"pass": float(n), **record} for n, record in enumerate(best.records, 1)])
    return best.objective, history, [start.objective for start in starts], best.is_settled


# By rows


class RowSite:
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

    def __init__(self, labels: Any, *, values: Sequence[Any] | None = None) -> None:
        arrays = None if values is None else [np.asarray(part) for part in values]
        self._ensemble = as_ensemble(labels, arrays)
        self._held = Recoding(self._ensemble).values
        self._values = self._held if arrays is None else arrays
        self._gammas: dict[tuple[int, int], np.ndarray] = {}  # by start and block
        self._final: tuple[State, int | None, np.ndarray] | None = None

    def answer(self, message: Message) -> Message:
        """Return the answer to a message of a coordinator."""
        match message:
            case {"ask": "values"}:
                return {"values": [np.array(values.tolist()) for values in self._values]}  # text, not objects
            case {"ask": "begin", "values": values, "n_clusters": n_clusters}:
                pairs = zip(map(np.asarray, values), self._held, strict=False)
                self._codes = [codes_in(*pair) for pair in pairs]
                if len(values) != len(self._held) or any((codes[:-1] < 0).any() for codes in self._codes):
                    raise InvalidInputError(
                        f"a site has n_partitions={len(self._held)}, or labels that are not among those that "
                        f"the sites share in {len(values)}; give all sites the same partitions, labels named "
                        "alike, and as values= the labels of all sites.",
                        parameter="sites",
                    )
                self._method = _bce_of(values, n_clusters)
                self._gammas, self._final = {}, None
            case {"ask": "tally", "partitions": partitions}:
                rows = np.concatenate([labels[:, partitions] for labels in self._blocks()]).astype(np.int64)
                groups, counts = np.unique(rows[(rows >= 0).all(axis=1)], axis=0, return_counts=True)
                return {"groups": groups, "counts": counts}
            case {"ask": "count", "partitions": partitions, "groups": groups}:
                parts = []
                for labels in self._blocks():
                    is_in = (labels[:, None, partitions] == groups[None]).all(axis=2)
                    clusters = np.where(is_in.any(axis=1), is_in.argmax(axis=1), -1).astype(np.int32)
                    in_groups, _ = counts_of(labels, self._method.offsets, clusters, len(groups))
                    totals, _ = counts_of(labels, self._method.offsets, np.zeros_like(clusters), 1)
                    parts.append({"counts": in_groups, "everyone": totals})
                return dict(_sum(parts))
            case {"ask": "visit", "start": start, "state": state}:
                return dict(self._stats(start, state))
            case {"ask": "propose", "seed": seed, "start": start}:
                labels = np.concatenate(list(self._blocks()))
                return {"state": _shared(self._method.start(labels, seed, start)[0])}
            case {"ask": "step", "state": state, "start": start}:
                current = {**state, "step": np.array(bce.NO_STEP)}
                following, record = self._method.finish(current, self._stats(start, state))
                return {"state": _shared(following), "objective": record["objective"]}
            case {"ask": "end", "state": state, "start": start, "order": order}:
                self._final = state, start, np.asarray(order)
                self._gammas = {key: gamma for key, gamma in self._gammas.items() if key[0] == start}
                return {"sizes": sizes_of(self.labels(), len(order))}
        return {}

    def memberships(self) -> np.ndarray:
        """Return memberships (n_own, K) float32 of the objects of this site under the final parameters.

        Objects without labels have uniform memberships. Raises InvalidInputError before the end of a fit.
        """
        if self._final is None:
            raise InvalidInputError("no fit has ended at this site; call fit_rows or fit_rows_in_turn first.")
        state, start, order = self._final
        parts = []
        for number, labels in enumerate(self._blocks()):
            gamma = None if start is None else self._gammas.get((start, number))
            rows = self._method.place(state, labels, gamma)[:, order]
            rows[(labels < 0).all(axis=1)] = 1.0 / len(order)
            parts.append(rows)
        return np.concatenate(parts)

    def labels(self) -> np.ndarray:
        """Return the clusters (n_own,) int32 of the objects of this site, -1 for objects without labels.

        They are numbered largest first at all sites.
        """
        clusters = self.memberships().argmax(axis=1)
        is_labeled = [(labels >= 0).any(axis=1) for labels in self._blocks()]
        return np.where(np.concatenate(is_labeled), clusters, -1).astype(np.int32)

    def _blocks(self) -> Iterator[np.ndarray]:
        """Yield the labels of each block in the codes that all sites share."""
        dtype = label_dtype(np.diff(self._method.offsets))
        for block in self._ensemble.blocks():
            yield recode(self._ensemble.read(block.start, block.stop), self._codes, dtype)

    def _stats(self, start: int, state: State) -> Stats:
        """Return the sums over the objects of this site under a state of a start."""
        writable, parts = {name: np.array(values) for name, values in state.items()}, []  # for the kernels
        for number, labels in enumerate(self._blocks()):
            key = int(start), number
            stats, self._gammas[key] = self._method.block_stats(writable, labels, self._gammas.get(key))
            parts.append(stats)
        return _sum(parts)


def _bce_of(values: Sequence[Any], n_clusters: int) -> bce.VariationalBCE:
    """Return the method whose sums the sites share, given the labels of each partition."""
    offsets = np.cumsum([0, *map(len, values)])
    return bce.VariationalBCE(offsets, n_clusters, init="partition", smoothing=SMOOTHING, update_alpha=True)


class RowFit(NamedTuple):
    """What the coordinator knows at the end. Memberships are at the sites: ``site.memberships()``.

    Examples
    --------
    >>> import bigcons as bc
    >>> from bigcons.federated import RowSite, fit_rows
    >>> ensemble, truth = bc.datasets.planted_ensemble(400, 15, random_state=0)
    >>> labels = ensemble.read(0, 400)
    >>> sites = [RowSite(labels[:100]), RowSite(labels[100:])]
    >>> fit = fit_rows(sites, 6, n_init=2, random_state=0)
    >>> sorted(fit.parameters)
    ['alpha', 'beta']
    """

    parameters: dict[str, np.ndarray]
    """``alpha`` (K,) and ``beta`` (B, K)."""
    values: list[np.ndarray]
    """The label of every base cluster, by partition: the rows of ``beta`` in order."""
    objective: float
    """The bound of all objects; of `fit_rows_in_turn` as the sites saw it in turn."""
    history: History
    """One entry an iteration, or a cycle."""
    start_objectives: list[float]
    """The objective of every start when the best was chosen."""
    converged: bool


def fit_rows(
    sites: Sequence[Site],
    n_clusters: int,
    *,
    n_init: int = 10,
    max_iter: int = 500,
    tol: float = 1e-6,
    random_state: SeedLike = None,
) -> RowFit:
    """Fit `BCE` to the objects of all sites together, as the central method does: exact EM.

    Parameters
    ----------
    sites : sequence of Site
        `RowSite` objects, or stubs that reach them. They are asked at the same time, each in a thread (64 at
        most), and their sums added up in this order.
    n_clusters : int
        Number of clusters K.
    n_init : int, default=10
        Number of starts. All make up to 20 iterations; the best quarter continues.
    max_iter : int, default=500
        Maximum number of iterations.
    tol : float, default=1e-6
        Relative gain of the objective at which a start stops.
    random_state : int, RandomState, Generator or None, default=None
        Seed.

    Returns
    -------
    RowFit
        The parameters. Each site has its own part of the result: ``site.memberships()``.

    Notes
    -----
    Each iteration of a start takes one exchange with every site; the end takes about two more, for the sizes
    of the clusters, by which these are numbered. Wang, Shan and Banerjee (2009) exchange messages in every
    step of Newton's method for alpha, but gamma is fixed in the M-step and Newton needs no more than the sums
    that the sites have sent. Starts and iterations are those of `BCE` with the same seed on all the labels:
    the result equals the fit of all objects in one place up to the order of summation, and bit for bit if
    each site is one block of that fit.

    Examples
    --------
    >>> import bigcons as bc
    >>> from bigcons.federated import RowSite, fit_rows
    >>> ensemble, truth = bc.datasets.planted_ensemble(400, 15, random_state=0)
    >>> labels = ensemble.read(0, 400)
    >>> sites = [RowSite(labels[:100]), RowSite(labels[100:])]
    >>> fit = fit_rows(sites, 6, n_init=2, random_state=0)
    >>> fit.converged, sites[0].labels().shape
    (True, (100,))
    """
    max_iter = check_int("max_iter", max_iter)
    method, values = _begin(sites, n_clusters)
    seed, starts = resolve_seed(random_state), []
    for number in range(check_int("n_init", n_init)):
        starts.append(_Start(number, _first_state(sites, method, n_clusters, seed, number)))
        _iterate(sites, method, starts[-1], min(passes.SHORT_PASSES, max_iter), tol)
    finalists = sorted(starts, key=lambda start: -start.objective)[: -(-n_init // 4)]
    for start in finalists:
        _iterate(sites, method, start, max_iter, tol)
    best = max(finalists, key=lambda start: start.objective)
    return _end(sites, best, values, starts, best.number)


def _begin(sites: Sequence[Site], n_clusters: int) -> tuple[bce.VariationalBCE, list[np.ndarray]]:
    """Let all sites begin with the labels that any of them has; return the method and these labels."""
    n_clusters = check_int("n_clusters", n_clusters)
    by_site = [answer["values"] for answer in _ask(sites, {"ask": "values"})]
    values = [np.unique(np.concatenate(parts)) for parts in zip(*by_site, strict=False)]
    _ask(sites, {"ask": "begin", "n_clusters": n_clusters, "values": values})
    return _bce_of(values, n_clusters), values


def _first_state(
    sites: Sequence[Site], method: bce.VariationalBCE, n_clusters: int, seed: int, number: int
) -> State:
    """Return the state of start ``number`` from the labels of all sites: see `first_partition`."""
    partitions: list[int] = []
    groups: np.ndarray = np.empty((0, 0), np.int64)
    sizes: np.ndarray = np.empty(0)
    for u in partition_order(len(method.offsets) - 1, seed, number).tolist():
        tallies = _ask(sites, {"ask": "tally", "partitions": np.array([*partitions, u])})
        rows, counts = (np.concatenate([tally[name] for tally in tallies]) for name in ("groups", "counts"))
        if not len(rows):
            continue  # no object that is left has a label here
        partitions.append(u)
        groups, where = np.unique(rows, axis=0, return_inverse=True)
        sizes = np.bincount(where.ravel(), counts)
        if len(groups) >= n_clusters:
            break
    largest = np.sort(np.argsort(-sizes, kind="stable")[:n_clusters])
    padded = np.full((n_clusters, len(partitions)), -2)  # which no object has
    padded[: len(largest)] = groups[largest]
    sums = _sum(_ask(sites, {"ask": "count", "partitions": np.array(partitions), "groups": padded}))
    return bce.state_of(spread(sums["counts"], sums["everyone"]), method.offsets)


def _iterate(
    sites: Sequence[Site], method: bce.VariationalBCE, start: _Start, max_iter: int, tol: float
) -> None:
    """Let a start iterate until it has settled, or made ``max_iter`` iterations."""
    while not start.is_settled and len(start.records) < max_iter:
        start.state = start.following
        message = {"ask": "visit", "start": start.number, "state": _shared(start.state)}
        start.following, record = method.finish(start.state, _sum(_ask(sites, message)))
        start.is_settled = method.is_settled(start.records[-1] if start.records else None, record, tol)
        start.records.append(record)


def _end(
    sites: Sequence[Site], best: _Start, values: list[np.ndarray], starts: list[_Start], number: int | None
) -> RowFit:
    """Let all sites keep the best state, and the gammas of start ``number``; number clusters by size."""
    parameters = _shared(best.state)
    message = {"ask": "end", "state": parameters, "start": number}

    def count(order: np.ndarray) -> np.ndarray:
        return _sum(_ask(sites, {**message, "order": order}))["sizes"]

    order = falling_order(count, len(parameters["alpha"]))
    parameters = {name: np.take(array, order, axis=-1) for name, array in parameters.items()}
    return RowFit(parameters, values, *_outcome(best, starts))


def fit_rows_in_turn(
    sites: Sequence[Site],
    n_clusters: int,
    *,
    n_init: int = 4,
    max_cycles: int = 10,
    tol: float = 0.01,
    random_state: SeedLike = None,
) -> RowFit:
    """Fit `BCE` by passing its parameters from site to site: the heuristic of the paper's experiments.

    Each site takes one EM step on its own objects alone and passes its parameters on. This takes fewer
    messages than `fit_rows` and shares no sums, except the sizes of the clusters at the end, but need not
    converge, nor reach the same optimum.

    Parameters
    ----------
    sites : sequence of Site
        `RowSite` objects, or stubs that reach them, asked one after the other.
    n_clusters : int
        Number of clusters K.
    n_init : int, default=4
        Number of starts, each from the objects of one site; the one with the highest objective is kept.
    max_cycles : int, default=10
        Maximum number of cycles over the sites.
    tol : float, default=0.01
        Converged when a cycle changes the parameters by at most this share of their absolute sum. (The
        authors' code looks at beta alone, which is most of it.)
    random_state : int, RandomState, Generator or None, default=None
        Seed.

    Returns
    -------
    RowFit
        As of `fit_rows`; the objective sums what each site saw when the parameters reached it.

    Examples
    --------
    >>> import bigcons as bc
    >>> from bigcons.federated import RowSite, fit_rows_in_turn
    >>> ensemble, truth = bc.datasets.planted_ensemble(400, 15, random_state=0)
    >>> labels = ensemble.read(0, 400)
    >>> sites = [RowSite(labels[:100]), RowSite(labels[100:])]
    >>> fit = fit_rows_in_turn(sites, 6, n_init=2, random_state=0)
    >>> len(fit.history["objective"]) <= 10
    True
    """
    max_cycles = check_int("max_cycles", max_cycles)
    _, values = _begin(sites, n_clusters)
    seed, starts = resolve_seed(random_state), []
    for number in range(check_int("n_init", n_init)):
        proposal = sites[number % len(sites)].answer({"ask": "propose", "seed": seed, "start": number})
        start = _Start(number, proposal["state"], proposal["state"])
        while len(start.records) < max_cycles and not start.is_settled:
            previous, objective = start.state, 0.0
            for site in sites:
                answer = site.answer({"ask": "step", "start": number, "state": start.state})
                start.state, objective = answer["state"], objective + answer["objective"]
            change = sum(np.abs(start.state[name] - values).sum() for name, values in previous.items())
            change = float(change / sum(np.abs(values).sum() for values in previous.values()))
            start.records.append({"objective": objective, "change": change})
            start.is_settled = change <= tol
        starts.append(start)
    best = max(starts, key=lambda start: start.objective)
    return _end(sites, best, values, starts, None)


# By columns


class ColumnSite:
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

    probabilities: np.ndarray | None = None
    """(n_own_base_clusters, K) label probabilities of the clusters; None before the end of a fit."""

    def __init__(self, labels: Any) -> None:
        ensemble = as_ensemble(labels)
        self._labels = ensemble.read(0, ensemble.n_objects)
        self._offsets = ensemble.offsets
        self._objects, self._partitions = np.nonzero(self._labels >= 0)
        self._base = self._offsets[self._partitions] + self._labels[self._objects, self._partitions]
        self._betas: dict[int, np.ndarray] = {}  # by start

    def answer(self, message: Message) -> Message:
        """Return the answer to a message of a coordinator."""
        match message:
            case {"ask": "shape"}:
                self._betas, self.probabilities = {}, None
                return {"n_objects": self._labels.shape[0], "n_partitions": self._labels.shape[1]}
            case {"ask": "propose", "n_clusters": n_clusters, "seed": seed, "start": start}:
                return {"clusters": first_partition(self._labels, n_clusters, seed, start)}
            case {"ask": "update", "start": start, "shares": shares, "smoothing": smoothing, **options}:
                counts = np.full((int(self._offsets[-1]), shares.shape[-1]), smoothing)
                np.add.at(counts, self._base, shares[self._objects, self._partitions])
                previous = self._betas.get(int(start), counts)
                beta = bce.further_probabilities(previous, counts, self._offsets, options["relaxation"])
                self._betas[int(start)] = beta
                log_beta = np.full(shares.shape, np.nan)  # where a label is missing
                log_beta[self._objects, self._partitions] = np.log(beta)[self._base]
                return {"log_beta": log_beta, "log_prior": float(np.log(beta).sum())}
            case {"ask": "end", "start": start, "order": order}:
                self.probabilities, self._betas = self._betas[int(start)][:, order], {}
        return {}


class ColumnFit(NamedTuple):
    """What the coordinator of `fit_columns` knows at the end; each site has its own label probabilities.

    Examples
    --------
    >>> import bigcons as bc
    >>> from bigcons.federated import ColumnSite, fit_columns
    >>> ensemble, truth = bc.datasets.planted_ensemble(400, 15, random_state=0)
    >>> labels = ensemble.read(0, 400)
    >>> sites = [ColumnSite(labels[:, :5]), ColumnSite(labels[:, 5:])]
    >>> fit = fit_columns(sites, 6, n_init=2, random_state=0)
    >>> fit.memberships.shape, fit.weights.shape
    ((400, 6), (6,))
    """

    labels: np.ndarray
    """(n_objects,) int32, clusters, largest first, -1 for objects that no site labeled."""
    memberships: np.ndarray
    """(n_objects, K) float32, uniform for objects that no site labeled."""
    weights: np.ndarray
    """(K,) float64: alpha."""
    objective: float
    """The bound."""
    history: History
    """One entry an iteration."""
    start_objectives: list[float]
    """The objective of every start."""
    converged: bool


def fit_columns(
    sites: Sequence[Site],
    n_clusters: int,
    *,
    n_init: int = 4,
    max_iter: int = 500,
    tol: float = 1e-6,
    random_state: SeedLike = None,
) -> ColumnFit:
    """Fit `BCE` to the partitions of all sites together, as the central method does: exact EM.

    Parameters
    ----------
    sites : sequence of Site
        `ColumnSite` objects, or stubs that reach them, asked at the same time, each in a thread (64 at most).
    n_clusters : int
        Number of clusters K.
    n_init : int, default=4
        Number of starts, each from a partition of one site, one site after the other; the one with
        the highest objective is kept. All sites see how a start divides the objects.
    max_iter : int, default=500
        Maximum number of iterations of a start.
    tol : float, default=1e-6
        Relative gain of the objective at which a start stops.
    random_state : int, RandomState, Generator or None, default=None
        Seed.

    Returns
    -------
    ColumnFit
        Memberships and labels of all objects.

    Notes
    -----
    One exchange with every site an iteration; O(n M K) memory here, for the messages of one iteration.

    Examples
    --------
    >>> import bigcons as bc
    >>> from bigcons.federated import ColumnSite, fit_columns
    >>> ensemble, truth = bc.datasets.planted_ensemble(400, 15, random_state=0)
    >>> labels = ensemble.read(0, 400)
    >>> sites = [ColumnSite(labels[:, :5]), ColumnSite(labels[:, 5:])]
    >>> fit = fit_columns(sites, 6, n_init=2, random_state=0)
    >>> fit.labels.shape
    (400,)
    """
    n_clusters = check_int("n_clusters", n_clusters)
    max_iter = check_int("max_iter", max_iter)
    seed, shapes = resolve_seed(random_state), _ask(sites, {"ask": "shape"})
    if len(sizes := {shape["n_objects"] for shape in shapes}) > 1:
        raise InvalidInputError(
            f"the sites have n_objects={sorted(sizes)}; all must list the same objects in the same order.",
            parameter="sites",
        )
    cuts = np.cumsum([shape["n_partitions"] for shape in shapes])
    n, M, starts = shapes[0]["n_objects"], int(cuts[-1]), []
    # To the kernel every label of every object is a base cluster of its own, with the probabilities that its
    # site sent: the expected counts of these base clusters are phi, which go back to the sites.
    method = _bce_of([range(n)] * M, n_clusters)
    for number in range(check_int("n_init", n_init)):
        start, alpha, gamma = _Start(number, {}), np.full(n_clusters, bce.START_ALPHA), None
        starts.append(start)
        question = {"ask": "propose", "n_clusters": n_clusters, "seed": seed, "start": number}
        clusters = sites[number % len(sites)].answer(question)["clusters"]
        phi = np.full((n, M, n_clusters), 1.0 / n_clusters)
        rows = np.flatnonzero(clusters >= 0)
        phi[rows] = (1.0 - CERTAINTY) / n_clusters
        phi[rows, :, clusters[rows]] += CERTAINTY
        objective, smoothing, relaxation = -np.inf, bce.START_SMOOTHING, 1.0
        while not start.is_settled and len(start.records) < max_iter:
            request = {"ask": "update", "start": number, "smoothing": smoothing, "relaxation": relaxation}
            answers = _ask(sites, [{**request, "shares": part} for part in np.split(phi, cuts[:-1], axis=1)])
            log_beta = np.concatenate([answer["log_beta"] for answer in answers], axis=1)
            labels = np.where(np.isnan(log_beta[:, :, 0]), -1, np.arange(n)[:, None]).astype(label_dtype([n]))
            beta = np.exp(log_beta.transpose(1, 0, 2)).reshape(M * n, n_clusters)
            stats, gamma = method.block_stats({"alpha": alpha, "beta": beta}, labels, gamma)
            start.state = {"alpha": alpha, "gamma": gamma, "is_labeled": np.any(labels >= 0, axis=1)}
            n_labeled, previous = float(stats["n_labeled"]), objective
            log_prior = SMOOTHING * sum(answer["log_prior"] for answer in answers)
            objective = float(stats["bound"]) + n_labeled * bce.log_normalizer(alpha) + log_prior
            record = {"objective": objective, "sum_alpha": float(alpha.sum())}
            start.is_settled = method.is_settled(start.records[-1] if start.records else None, record, tol)
            start.records.append(record)
            smoothing, relaxation = SMOOTHING, bce.relaxation_of(previous, relaxation, objective)
            alpha = bce.further_alpha(alpha, stats["log_means"], n_labeled, relaxation)
            phi = stats["counts"].reshape(M, n, n_clusters).transpose(1, 0, 2)
    best = max(starts, key=lambda start: start.objective)
    gamma, is_labeled = best.state["gamma"], best.state["is_labeled"]
    memberships = (gamma / gamma.sum(axis=1, keepdims=True)).astype(np.float32)

    def count(order: np.ndarray) -> np.ndarray:
        return sizes_of(memberships[is_labeled][:, order].argmax(axis=1), n_clusters)

    order = falling_order(count, n_clusters)
    _ask(sites, {"ask": "end", "start": best.number, "order": order})
    memberships = np.take(memberships, order, axis=1)
    labels = memberships.argmax(axis=1).astype(np.int32)
    labels[~is_labeled], memberships[~is_labeled] = -1, 1.0 / n_clusters
    return ColumnFit(labels, memberships, best.state["alpha"][order], *_outcome(best, starts))


def __dir__() -> list[str]:
    return sorted(__all__)
