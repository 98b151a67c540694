"""Objects distributed among sites: exact EM by sums over them, and the paper's heuristic in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigcons.coassociation.factorized import counts_of
from bigcons.distributed.sites import (
    Message,
    Run,
    Site,
    Team,
    added,
    check_model,
    dispatch,
    warn_unless_settled,
)
from bigcons.errors import EmptyPartitionError, InvalidInputError
from bigcons.methods.bce.variational import NO_STEP, VariationalBCE, state_of
from bigcons.methods.mixture import SMOOTHING, MixtureProblem
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.solving.assignment import CERTAINTY, partition_order, spread
from bigcons.solving.estimator import Recoding, codes_in
from bigcons.solving.passes import History, State, Stats, add_stats
from bigcons.solving.placing import recode
from bigcons.solving.results import falling_order, sizes_of
from bigcons.solving.starts import SHORT_PASSES, Problem
from bigcons.stores.ensemble import Ensemble, as_ensemble
from bigcons.tables.encode import label_dtype
from bigcons.validation import check_int, check_number


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
    >>> from bigcons.distributed import RowSite
    >>> site = RowSite([[0, 1], [0, 1], [1, -1]])
    >>> sorted(site.answer({"ask": "values"}))
    ['values']
    """

    def __init__(self, labels: Any, *, values: Sequence[Any] | None = None) -> None:
        self._values = None if values is None else [np.asarray(known) for known in values]
        try:
            self._ensemble: Ensemble = as_ensemble(labels, self._values)
        except EmptyPartitionError as error:
            raise InvalidInputError(
                f"partition {error.name!r} has no labels at this site; pass values= with the labels that the "
                "sites have agreed on.",
                parameter="labels",
            ) from None
        if self._values is not None:
            check_values(self._values, self._ensemble)
        self._problem: Problem | None = None
        self._carried: dict[tuple[int, int], np.ndarray | None] = {}  # by start and block
        self._final: tuple[State, int | None] | None = None

    def answer(self, message: Message) -> Message:
        """Return the answer to a message of `fit_rows` or `fit_rows_in_turn`."""
        questions: dict[str, Callable[..., Message]] = {
            "values": self._tell_values,
            "begin": self._begin,
            "tally": self._tally,
            "count": self._count,
            "visit": self._visit,
            "propose": self._propose,
            "step": self._step,
            "end": self._end,
            "number": self._number,
        }
        return dispatch(questions, message)

    def memberships(self) -> np.ndarray:
        """Return memberships (n_own, K) float32 of the objects of this site under the final parameters.

        Objects without labels have uniform memberships. Raises InvalidInputError before the end of a fit.
        """
        if self._final is None:
            raise InvalidInputError("no fit has ended at this site; call fit_rows or fit_rows_in_turn first.")
        state, start = self._final
        parts = []
        for number, labels in enumerate(self._blocks()):
            carried = None if start is None else self._carried.get((start, number))
            found = self._require_problem().results(state, labels, carried)
            found = np.take(found, self._order, axis=1)
            found[(labels < 0).all(axis=1)] = 1.0 / found.shape[1]
            parts.append(found)
        return np.concatenate(parts)

    def labels(self) -> np.ndarray:
        """Return the clusters (n_own,) int32 of the objects of this site, -1 for objects without labels.

        They are numbered largest first at all sites.
        """
        clusters = self.memberships().argmax(axis=1).astype(np.int32)
        clusters[~np.concatenate([(labels >= 0).any(axis=1) for labels in self._blocks()])] = -1
        return clusters

    def _tell_values(self) -> Message:
        known = Recoding(self._ensemble).values if self._values is None else self._values
        return {"values": [np.array(values.tolist()) for values in known]}  # text not as objects

    def _begin(self, method: str, n_clusters: int, update_alpha: bool, values: Sequence[Any]) -> Message:
        own = Recoding(self._ensemble).values
        self._tables = [codes_in(np.asarray(known), has) for known, has in zip(values, own, strict=True)]
        self._offsets = offsets_of(values)
        self._problem = make_problem(method, self._offsets, n_clusters, update_alpha)
        self._carried, self._final = {}, None
        return {}

    def _tally(self, partitions: np.ndarray) -> Message:
        """Return how many objects have each combination of labels in some partitions."""
        return tally_of(labels[:, partitions] for labels in self._blocks())

    def _count(self, partitions: np.ndarray, groups: np.ndarray) -> Message:
        """Return how many objects of each base cluster have each of K combinations of labels; and of all."""
        parts = []
        for labels in self._blocks():
            alike = (labels[:, None, partitions] == groups[None]).all(axis=2)
            clusters = np.where(alike.any(axis=1), alike.argmax(axis=1), -1).astype(np.int32)
            counts, sizes = counts_of(labels, self._offsets, clusters, len(groups))
            everyone, n_objects = counts_of(labels, self._offsets, np.zeros_like(clusters), 1)
            parts.append({"counts": counts, "sizes": sizes, "everyone": everyone, "n_objects": n_objects})
        return dict(added(parts))

    def _visit(self, starts: Sequence[int], states: Sequence[State]) -> Message:
        """Return the sums over the objects of this site under the states of some starts."""
        owned = [{name: np.array(values) for name, values in state.items()} for state in states]
        totals: list[Stats] = []  # arrays in messages may be read-only, for which kernels are not compiled
        for number, labels in enumerate(self._blocks()):
            found = [self._visit_block(labels, number, *run) for run in zip(starts, owned, strict=True)]
            totals = [add_stats(*both) for both in zip(totals, found, strict=True)] if totals else found
        return {"stats": totals}

    def _visit_block(self, labels: np.ndarray, number: int, start: int, state: State) -> Stats:
        key = int(start), number
        stats, self._carried[key] = self._require_problem().visit(state, labels, self._carried.get(key))
        return dict(stats)

    def _propose(self, seed: int, start: int) -> Message:
        """Return the state of a start from the objects of this site."""
        labels = np.concatenate(list(self._blocks()))
        return {"state": parameters_in(self._require_problem().start(labels, seed, start)[0])}

    def _step(self, start: int, state: State) -> Message:
        """Return the state after an EM step on the objects of this site alone, and the bound before it."""
        stats = self._visit([start], [state])["stats"][0]
        following, record = self._require_problem().finish({**state, "step": np.array(NO_STEP)}, stats)
        return {"state": parameters_in(following), "objective": record["objective"]}

    def _end(self, state: State, start: int | None) -> Message:
        """Keep the final state; what the objects carry belongs to it if it is that of a start."""
        self._final = state, start
        self._carried = {key: rows for key, rows in self._carried.items() if key[0] == start}
        return {}

    def _number(self, order: np.ndarray) -> Message:
        """Number the clusters in an order, and return how many objects of this site each then has."""
        self._order = np.array(order)
        return {"sizes": sizes_of(self.labels(), len(order))}

    def _blocks(self) -> Iterable[np.ndarray]:
        """Yield the labels of each block in the codes that all sites share."""
        dtype = label_dtype(np.diff(self._offsets))
        for block in self._ensemble.blocks():
            labels = self._ensemble.read(block.start, block.stop)
            yield recode(labels, self._tables, dtype)

    def _require_problem(self) -> Problem:
        if self._problem is None:
            raise InvalidInputError('this site got no message to "begin"; let fit_rows ask it.')
        return self._problem


def check_values(values: Sequence[np.ndarray], ensemble: Ensemble) -> None:
    """Refuse possible labels that lack one of an ensemble."""
    own = Recoding(ensemble).values
    if len(values) != len(own):
        raise InvalidInputError(
            f"values has labels of {len(values)} partitions, but the site has n_partitions={len(own)}; give "
            "those of each.",
            parameter="values",
        )
    for u, (known, has) in enumerate(zip(values, own, strict=True)):
        if (codes_in(known, has)[:-1] < 0).any():
            raise InvalidInputError(
                f"values of partition {u} are {known.tolist()}, which lack labels of this site; give "
                "those of all sites.",
                parameter="values",
            )


def make_problem(method: str, offsets: np.ndarray, n_clusters: int, update_alpha: bool) -> Problem:
    """Return the problem of passes whose sums the sites share."""
    if method == "bce":
        return VariationalBCE(
            offsets, n_clusters, init="partition", smoothing=SMOOTHING, update_alpha=update_alpha
        )
    return MixtureProblem(offsets, n_clusters, "partition", background=False)


def tally_of(blocks: Iterable[np.ndarray]) -> Message:
    """Return the distinct rows without -1 of blocks of labels (rows, p), in order, and their counts."""
    found = []
    for labels in blocks:
        complete = labels[(labels >= 0).all(axis=1)].astype(np.int64)
        groups, counts = np.unique(complete, axis=0, return_counts=True)
        found.append({"groups": groups, "counts": counts})
    return merged(found)


def merged(tallies: Sequence[Message]) -> Message:
    """Return the sum of tallies."""
    rows = np.concatenate([tally["groups"] for tally in tallies])
    groups, where = np.unique(rows, axis=0, return_inverse=True)
    counts = np.zeros(len(groups), np.int64)
    np.add.at(counts, where.ravel(), np.concatenate([tally["counts"] for tally in tallies]))
    return {"groups": groups, "counts": counts}


# By rows: the coordinator


class RowFit(NamedTuple):
    """What the coordinator knows at the end. Memberships are at the sites: ``site.memberships()``.

    Examples
    --------
    >>> import bigcons as bc
    >>> from bigcons.distributed import RowSite, fit_rows
    >>> ensemble, truth = bc.datasets.planted_ensemble(400, 15, random_state=0)
    >>> labels = ensemble.read(0, 400)
    >>> sites = [RowSite(labels[:100]), RowSite(labels[100:])]
    >>> fit = fit_rows(sites, 6, n_init=2, random_state=0)
    >>> sorted(fit.parameters)
    ['alpha', 'beta']
    """

    parameters: dict[str, np.ndarray]
    """For "bce" ``alpha`` (K,) and ``beta`` (B, K); for "mixture" ``weights`` (K,) and ``theta`` (B, K)."""
    values: list[np.ndarray]
    """The label of every base cluster, by partition: the rows of ``beta`` in order."""
    objective: float
    """The bound, or log-likelihood, of all objects; of `fit_rows_in_turn` as the sites saw it in turn."""
    history: History
    """One entry an iteration, or a cycle."""
    start_objectives: list[float]
    """The objective of every start when the best was chosen."""
    converged: bool


def fit_rows(
    sites: Sequence[Site],
    n_clusters: int,
    *,
    method: str = "bce",
    update_alpha: bool = True,
    n_init: int = 10,
    max_iter: int = 500,
    tol: float = 1e-6,
    random_state: SeedLike = None,
) -> RowFit:
    """Fit a model to the objects of all sites together, as the central method does: exact EM.

    Parameters
    ----------
    sites : sequence of Site
        `RowSite` objects, or stubs that reach them. They are asked at the same time, each in a thread (64 at
        most), and their sums added up in this order.
    n_clusters : int
        Number of clusters K.
    method : {"bce", "mixture"}, default="bce"
        `BCE` by variational EM, or the mixture of multinomials, `MixtureModel` without its background.
    update_alpha : bool, default=True
        Whether alpha of "bce" is estimated; "mixture" has none.
    n_init : int, default=10
        Number of starts. All make up to 20 iterations in shared messages; the best quarter continues.
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
    One exchange with every site an iteration, and two or so at the end for the sizes of the clusters, which
    are numbered by them. Wang, Shan and Banerjee (2009) exchange messages in every step of Newton's method
    for alpha, but gamma is fixed in the M-step and Newton needs no more than the sums above. Starts are those
    of `BCE` with the same seed on all the labels, and so are the iterations: the result is that of all
    objects at one place up to the order of summation, and bit for bit if each site is one of its blocks.

    Examples
    --------
    >>> import bigcons as bc
    >>> from bigcons.distributed import RowSite, fit_rows
    >>> ensemble, truth = bc.datasets.planted_ensemble(400, 15, random_state=0)
    >>> labels = ensemble.read(0, 400)
    >>> sites = [RowSite(labels[:100]), RowSite(labels[100:])]
    >>> fit = fit_rows(sites, 6, n_init=2, random_state=0)
    >>> fit.converged, sites[0].labels().shape
    (True, (100,))
    """
    with Team(sites) as team:
        problem, values = _begin(team, method, n_clusters, update_alpha)
        seed = resolve_seed(random_state)
        check_int("max_iter", max_iter)
        check_number("tol", tol, at_least=0.0)
        runs = [
            Run(_start_state(team, problem, values, n_clusters, seed, number))
            for number in range(check_int("n_init", n_init))
        ]
        _iterate(team, problem, list(enumerate(runs)), min(SHORT_PASSES, max_iter), tol)
        ranked = sorted(range(n_init), key=lambda number: -runs[number].objective)
        kept = [(number, runs[number]) for number in ranked[: -(-n_init // 4)]]
        _iterate(team, problem, kept, max_iter, tol)
        start_objectives = [run.objective for run in runs]
        best = max(kept, key=lambda one: one[1].objective)[0]
        team.ask({"ask": "end", "state": parameters_in(runs[best].state), "start": best})
        order = _number_clusters(team, n_clusters)
    return _row_fit(runs[best], problem, order, values, start_objectives)


def fit_rows_in_turn(
    sites: Sequence[Site],
    n_clusters: int,
    *,
    method: str = "bce",
    update_alpha: bool = True,
    n_init: int = 4,
    max_cycles: int = 10,
    tol: float = 0.01,
    random_state: SeedLike = None,
) -> RowFit:
    """Fit a model by passing its parameters from site to site: the heuristic of the paper's experiments.

    Each site takes one EM step on its own objects alone and passes its parameters on. This takes fewer
    messages than `fit_rows` and shares no sums, except the sizes of the clusters at the end, but need not
    converge, nor reach the same optimum.

    Parameters
    ----------
    sites : sequence of Site
        `RowSite` objects, or stubs that reach them, asked one after the other.
    n_clusters : int
        Number of clusters K.
    method : {"bce", "mixture"}, default="bce"
        As of `fit_rows`.
    update_alpha : bool, default=True
        Whether alpha of "bce" is estimated; "mixture" has none.
    n_init : int, default=4
        Number of starts, each from the objects of one site; that of the highest objective is kept.
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
    >>> from bigcons.distributed import RowSite, fit_rows_in_turn
    >>> ensemble, truth = bc.datasets.planted_ensemble(400, 15, random_state=0)
    >>> labels = ensemble.read(0, 400)
    >>> sites = [RowSite(labels[:100]), RowSite(labels[100:])]
    >>> fit = fit_rows_in_turn(sites, 6, n_init=2, random_state=0)
    >>> len(fit.history["objective"]) <= 10
    True
    """
    with Team(sites) as team:
        problem, values = _begin(team, method, n_clusters, update_alpha)
        seed = resolve_seed(random_state)
        check_int("max_cycles", max_cycles)
        check_number("tol", tol, at_least=0.0)
        runs = []
        for number in range(check_int("n_init", n_init)):
            proposal = team.sites[number % len(team.sites)].answer(
                {"ask": "propose", "seed": seed, "start": number}
            )
            run = Run(proposal["state"])
            while len(run.records) < max_cycles and not run.settled:
                before, objective = run.state, 0.0
                for site in team.sites:
                    told = site.answer({"ask": "step", "start": number, "state": run.state})
                    run.state, objective = told["state"], objective + told["objective"]
                change = relative_change(before, run.state)
                run.add({"objective": objective, "change": change}, change <= tol)
            runs.append(run)
        best = max(runs, key=lambda run: run.objective)
        team.ask({"ask": "end", "state": best.state, "start": None})
        order = _number_clusters(team, n_clusters)
    start_objectives = [run.objective for run in runs]
    return _row_fit(best, problem, order, values, start_objectives)


def _begin(team: Team, method: str, n_clusters: int, update_alpha: bool) -> tuple[Problem, list[np.ndarray]]:
    """Let all sites begin with the labels that any of them has; return the problem and these labels."""
    check_model(method, n_clusters, update_alpha)
    told = [answer["values"] for answer in team.ask({"ask": "values"})]
    for number, values in enumerate(told):
        if len(values) != len(told[0]):
            raise InvalidInputError(
                f"site {number} has n_partitions={len(values)} but site 0 has {len(told[0])}; give all sites "
                "the same partitions in the same order.",
                parameter="sites",
            )
    shared = [_union(u, [values[u] for values in told]) for u in range(len(told[0]))]
    question = {"method": method, "n_clusters": n_clusters, "update_alpha": update_alpha, "values": shared}
    team.ask({"ask": "begin", **question})
    return make_problem(method, offsets_of(shared), n_clusters, update_alpha), shared


def _union(partition: int, of_sites: Sequence[Any]) -> np.ndarray:
    """Return the sorted labels that any site has in a partition."""
    found = {value for values in of_sites for value in np.asarray(values).tolist()}
    if len({isinstance(value, str) for value in found}) > 1:
        raise InvalidInputError(
            f"partition {partition} has text labels at one site and numbers at another; name them alike.",
            parameter="sites",
        )
    return np.array(sorted(found))


def offsets_of(values: Sequence[Any]) -> np.ndarray:
    """Return the first base cluster of each partition, given its labels."""
    return np.concatenate([[0], np.cumsum([len(of_partition) for of_partition in values])]).astype(np.int64)


def _start_state(
    team: Team,
    problem: Problem,
    values: Sequence[np.ndarray],
    n_clusters: int,
    seed: int,
    number: int,
) -> State:
    """Return the state of start ``number`` from the labels of all sites: see `first_partition`."""
    offsets = offsets_of(values)
    chosen: list[int] = []
    tally: Message = {}
    for u in partition_order(len(values), seed, number):
        partitions = np.array([*chosen, int(u)])
        found = merged(team.ask({"ask": "tally", "partitions": partitions}))
        if not len(found["counts"]):
            continue  # no object that is left has a label here
        chosen, tally = [*chosen, int(u)], found
        if len(tally["counts"]) >= n_clusters:
            break
    largest = np.sort(np.argsort(-tally["counts"], kind="stable")[:n_clusters])
    groups = np.full((n_clusters, len(chosen)), -2)  # which no object has
    groups[: len(largest)] = tally["groups"][largest]
    total = added(team.ask({"ask": "count", "partitions": np.array(chosen), "groups": groups}))
    if not isinstance(problem, MixtureProblem):
        return state_of(spread(total["counts"], total["everyone"]), offsets)
    even = (1.0 - CERTAINTY) / n_clusters  # the mixture gives undecided objects no more than this
    return problem.state_of(
        CERTAINTY * total["counts"] + even * total["everyone"],
        CERTAINTY * total["sizes"] + even * total["n_objects"],
    )


def _iterate(
    team: Team, problem: Problem, runs: Sequence[tuple[int, Run]], max_iter: int, tol: float
) -> None:
    """Let all runs that have not settled iterate until each has, or made ``max_iter`` iterations."""
    while going := [(n, run) for n, run in runs if not run.settled and len(run.records) < max_iter]:
        for _, run in going:
            run.state = run.following
        states = [parameters_in(run.state) for _, run in going]
        answers = team.ask({"ask": "visit", "starts": [n for n, _ in going], "states": states})
        for at, (_, run) in enumerate(going):
            stats = added([answer["stats"][at] for answer in answers])
            run.following, record = problem.finish(run.state, stats)
            run.add(record, problem.is_settled(run.records[-1] if run.records else None, record, tol))


def _number_clusters(team: Team, n_clusters: int) -> np.ndarray:
    """Let all sites number the clusters, largest first; return the order (n_clusters,)."""

    def count(order: np.ndarray) -> np.ndarray:
        return np.asarray(added(team.ask({"ask": "number", "order": order}))["sizes"])

    return falling_order(count, n_clusters)


def relative_change(before: State, after: State) -> float:
    """Return the summed absolute change of all arrays of a state over their absolute sum."""
    changed = sum(np.abs(after[name] - values).sum() for name, values in before.items())
    return float(changed / np.float64(sum(np.abs(values).sum() for values in before.values())))


def parameters_in(state: State) -> dict[str, np.ndarray]:
    """Return a state without what `VariationalBCE` notes of its last step, which sites do not need."""
    return {name: values for name, values in state.items() if name != "step"}


def _row_fit(
    run: Run,
    problem: Problem,
    order: np.ndarray,
    values: list[np.ndarray],
    start_objectives: list[float],
) -> RowFit:
    warn_unless_settled(run)
    parameters = parameters_in(run.state)
    if isinstance(problem, MixtureProblem):
        theta = np.exp(parameters["table"][:, : problem.n_clusters])
        parameters = {"weights": np.exp(parameters["bias"]), "theta": theta}
    parameters = {name: np.take(array, order, axis=-1) for name, array in parameters.items()}
    return RowFit(parameters, values, run.objective, run.history, start_objectives, run.settled)
