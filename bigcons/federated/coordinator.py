"""The coordinators: exact EM over objects or partitions of several sites, and the paper's heuristic."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import ConvergenceWarning, InvalidInputError, warn_user
from bigcons.federated.sites import (
    Message,
    Site,
    added,
    merged,
    parameters_in,
    problem_of,
)
from bigcons.io.factorize import label_dtype
from bigcons.methods.bce import SMOOTHING as START_SMOOTHING
from bigcons.methods.bce import (
    START_ALPHA,
    VariationalBCE,
    further_alpha,
    log_normalizer,
    relaxation_of,
    state_of,
)
from bigcons.methods.mixture import SMOOTHING
from bigcons.methods.pass_clusterer import CERTAINTY, partition_order, spread
from bigcons.run.passes import SHORT_PASSES, History, Record, State, as_history, gains_little
from bigcons.run.results import falling_order, sizes_of
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.validation import check_flag, check_int, check_number


def ask(sites: Sequence[Site], message: Message | Sequence[Message]) -> list[Message]:
    """Return the answers of all sites in their order, asked at the same time: one message, or one each."""
    if not len(sites):
        raise InvalidInputError("sites is empty; pass at least one.", parameter="sites")
    messages = [message] * len(sites) if isinstance(message, dict) else message
    with ThreadPoolExecutor(min(len(sites), 64)) as threads:  # a thread waits for each site
        return list(threads.map(lambda site, question: site.answer(question), sites, messages))


@dataclass
class Start:
    """One start of EM: the state that the last record judges, the next one, and whether it settled."""

    number: int
    state: State
    following: State
    records: list[Record] = field(default_factory=list)
    settled: bool = False

    @property
    def objective(self) -> float:
        """The last objective."""
        return self.records[-1]["objective"]

    def history(self) -> History:
        """Return one list for each quantity of the records; warn if the start stopped at its limit."""
        if not self.settled:
            warn_user(
                f"the sites stopped after {len(self.records)} iterations or cycles, before the fit settled; "
                "raise max_iter, max_cycles or tol if the labels still change.",
                ConvergenceWarning,
            )
        return as_history([{"pass": float(n), **record} for n, record in enumerate(self.records, 1)])


# By rows


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
    update_alpha: bool = True,
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
    update_alpha : bool, default=True
        Whether alpha is estimated.
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
    >>> from bigcons.federated import RowSite, fit_rows
    >>> ensemble, truth = bc.datasets.planted_ensemble(400, 15, random_state=0)
    >>> labels = ensemble.read(0, 400)
    >>> sites = [RowSite(labels[:100]), RowSite(labels[100:])]
    >>> fit = fit_rows(sites, 6, n_init=2, random_state=0)
    >>> fit.converged, sites[0].labels().shape
    (True, (100,))
    """
    check_int("max_iter", max_iter)
    check_number("tol", tol, at_least=0.0)
    problem, values = _begin(sites, n_clusters, update_alpha)
    seed, starts = resolve_seed(random_state), []
    for number in range(check_int("n_init", n_init)):
        state = _state_of_all(sites, problem, n_clusters, seed, number)
        starts.append(Start(number, state, state))
    _iterate(sites, problem, starts, min(SHORT_PASSES, max_iter), tol)
    kept = sorted(starts, key=lambda start: -start.objective)[: -(-n_init // 4)]
    _iterate(sites, problem, kept, max_iter, tol)
    best = max(kept, key=lambda start: start.objective)
    ask(sites, {"ask": "end", "state": parameters_in(best.state), "start": best.number})
    return _row_fit(sites, best, values, starts)


def _begin(
    sites: Sequence[Site], n_clusters: int, update_alpha: bool
) -> tuple[VariationalBCE, list[np.ndarray]]:
    """Let all sites begin with the labels that any of them has; return the problem and these labels."""
    check_int("n_clusters", n_clusters)
    check_flag("update_alpha", update_alpha)
    by_site = [answer["values"] for answer in ask(sites, {"ask": "values"})]
    values = []
    for number, of_site in enumerate(by_site):
        if len(of_site) != len(by_site[0]):
            raise InvalidInputError(
                f"site {number} has n_partitions={len(of_site)} but site 0 has {len(by_site[0])}; give all "
                "sites the same partitions in the same order.",
                parameter="sites",
            )
    for u, of_sites in enumerate(zip(*by_site, strict=True)):
        labels = {value for of_site in of_sites for value in np.asarray(of_site).tolist()}
        if len({isinstance(value, str) for value in labels}) > 1:
            raise InvalidInputError(
                f"partition {u} has text labels at one site and numbers at another; name them alike.",
                parameter="sites",
            )
        values.append(np.array(sorted(labels)))
    ask(sites, {"ask": "begin", "n_clusters": n_clusters, "update_alpha": update_alpha, "values": values})
    return problem_of(values, n_clusters, update_alpha), values


def _state_of_all(
    sites: Sequence[Site], problem: VariationalBCE, n_clusters: int, seed: int, number: int
) -> State:
    """Return the state of start ``number`` from the labels of all sites: see `first_partition`."""
    chosen: list[int] = []
    tally: Message = {}
    for u in partition_order(len(problem.offsets) - 1, seed, number).tolist():
        further = merged(ask(sites, {"ask": "tally", "partitions": np.array([*chosen, u])}))
        if not len(further["counts"]):
            continue  # no object that is left has a label here
        chosen, tally = [*chosen, u], further
        if len(tally["counts"]) >= n_clusters:
            break
    largest = np.sort(np.argsort(-tally["counts"], kind="stable")[:n_clusters])
    groups = np.full((n_clusters, len(chosen)), -2)  # which no object has
    groups[: len(largest)] = tally["groups"][largest]
    sums = added(ask(sites, {"ask": "count", "partitions": np.array(chosen), "groups": groups}))
    return state_of(spread(sums["counts"], sums["everyone"]), problem.offsets)


def _iterate(
    sites: Sequence[Site], problem: VariationalBCE, starts: Sequence[Start], max_iter: int, tol: float
) -> None:
    """Let all starts that have not settled iterate until each has, or made ``max_iter`` iterations."""
    while going := [one for one in starts if not one.settled and len(one.records) < max_iter]:
        states = [parameters_in(start.following) for start in going]
        numbers = [start.number for start in going]
        answers = ask(sites, {"ask": "visit", "starts": numbers, "states": states})
        for position, start in enumerate(going):
            start.state = start.following
            sums = added([answer["stats"][position] for answer in answers])
            start.following, record = problem.finish(start.state, sums)
            start.settled = problem.is_settled(start.records[-1] if start.records else None, record, tol)
            start.records.append(record)


def _row_fit(sites: Sequence[Site], best: Start, values: list[np.ndarray], starts: Sequence[Start]) -> RowFit:
    """Let all sites number the clusters, largest first; return the fit."""

    def count(order: np.ndarray) -> np.ndarray:
        return added(ask(sites, {"ask": "number", "order": order}))["sizes"]

    order = falling_order(count, best.state["alpha"].size)
    parameters = {name: np.take(array, order, axis=-1) for name, array in parameters_in(best.state).items()}
    objectives = [start.objective for start in starts]
    return RowFit(parameters, values, best.objective, best.history(), objectives, best.settled)


def fit_rows_in_turn(
    sites: Sequence[Site],
    n_clusters: int,
    *,
    update_alpha: bool = True,
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
    update_alpha : bool, default=True
        Whether alpha is estimated.
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
    >>> from bigcons.federated import RowSite, fit_rows_in_turn
    >>> ensemble, truth = bc.datasets.planted_ensemble(400, 15, random_state=0)
    >>> labels = ensemble.read(0, 400)
    >>> sites = [RowSite(labels[:100]), RowSite(labels[100:])]
    >>> fit = fit_rows_in_turn(sites, 6, n_init=2, random_state=0)
    >>> len(fit.history["objective"]) <= 10
    True
    """
    check_int("max_cycles", max_cycles)
    check_number("tol", tol, at_least=0.0)
    _, values = _begin(sites, n_clusters, update_alpha)
    seed, starts = resolve_seed(random_state), []
    for number in range(check_int("n_init", n_init)):
        proposal = sites[number % len(sites)].answer({"ask": "propose", "seed": seed, "start": number})
        start = Start(number, proposal["state"], proposal["state"])
        while len(start.records) < max_cycles and not start.settled:
            before, objective = start.state, 0.0
            for site in sites:
                answer = site.answer({"ask": "step", "start": number, "state": start.state})
                start.state, objective = answer["state"], objective + answer["objective"]
            change = sum(np.abs(start.state[name] - values).sum() for name, values in before.items())
            change = float(change / sum(np.abs(values).sum() for values in before.values()))
            start.records.append({"objective": objective, "change": change})
            start.settled = change <= tol
        starts.append(start)
    best = max(starts, key=lambda start: start.objective)
    ask(sites, {"ask": "end", "state": best.state, "start": None})
    return _row_fit(sites, best, values, starts)


# By columns


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
    update_alpha: bool = True,
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
    update_alpha : bool, default=True
        Whether alpha is estimated.
    n_init : int, default=4
        Number of starts, each from a partition of one site, one site after the other; that of the highest
        objective is kept. All sites see how a start divides the objects.
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
    check_int("n_clusters", n_clusters)
    check_flag("update_alpha", update_alpha)
    check_int("max_iter", max_iter)
    check_number("tol", tol, at_least=0.0)
    seed = resolve_seed(random_state)
    shapes = ask(sites, {"ask": "shape"})
    if len({shape["n_objects"] for shape in shapes}) > 1:
        raise InvalidInputError(
            f"the sites have n_objects={[shape['n_objects'] for shape in shapes]}; all must list the "
            "same objects in the same order.",
            parameter="sites",
        )
    cuts = np.cumsum([shape["n_partitions"] for shape in shapes])[:-1]
    starts = []
    for number in range(check_int("n_init", n_init)):
        question = {"ask": "propose", "n_clusters": n_clusters, "seed": seed, "start": number}
        clusters = sites[number % len(sites)].answer(question)["clusters"]
        shares = np.full((clusters.size, n_clusters), 1.0 / n_clusters)
        decided = np.flatnonzero(clusters >= 0)
        shares[decided] = (1.0 - CERTAINTY) / n_clusters
        shares[decided, clusters[decided]] += CERTAINTY
        starts.append(_fit_start(sites, number, shares, cuts, update_alpha, max_iter, tol))
    best = max(starts, key=lambda start: start.objective)
    gamma, is_labeled = best.state["gamma"], best.state["is_labeled"]
    memberships = (gamma / gamma.sum(axis=1, keepdims=True)).astype(np.float32)

    def count(order: np.ndarray) -> np.ndarray:
        return sizes_of(memberships[is_labeled][:, order].argmax(axis=1), n_clusters)

    order = falling_order(count, n_clusters)
    ask(sites, {"ask": "end", "start": best.number, "order": order})
    memberships = np.take(memberships, order, axis=1)
    labels = memberships.argmax(axis=1).astype(np.int32)
    labels[~is_labeled], memberships[~is_labeled] = -1, 1.0 / n_clusters
    objectives, alpha = [start.objective for start in starts], best.state["alpha"][order]
    history = best.history()
    return ColumnFit(labels, memberships, alpha, best.objective, history, objectives, best.settled)


def _fit_start(
    sites: Sequence[Site],
    number: int,
    shares: Any,
    cuts: np.ndarray,
    update_alpha: bool,
    max_iter: int,
    tol: float,
) -> Start:
    """Run EM until it settles: the sites hold beta, the coordinator alpha (K,) and gamma (n, K).

    To the kernel every label of every object is a base cluster of its own, with the probabilities that its
    site sent: the expected counts of these base clusters are phi, which go back to the sites.
    """
    n_clusters, gamma = shares.shape[1], None
    alpha, relaxation, smoothing = np.full(n_clusters, START_ALPHA), 1.0, START_SMOOTHING
    answers, start = [shares] * len(sites), Start(number, {}, {})
    while True:
        question = {"ask": "update", "start": number, "smoothing": smoothing, "relaxation": relaxation}
        messages = ask(sites, [{**question, "shares": of_site} for of_site in answers])
        log_beta = np.concatenate([message["log_beta"] for message in messages], axis=1)
        n, n_partitions, _ = log_beta.shape
        labels = np.where(np.isnan(log_beta[:, :, 0]), -1, np.arange(n)[:, None]).astype(label_dtype([n]))
        beta = np.exp(log_beta.transpose(1, 0, 2)).reshape(n_partitions * n, n_clusters)
        problem = VariationalBCE(
            np.arange(n_partitions + 1) * n, n_clusters, init="", smoothing=0.0, update_alpha=update_alpha
        )
        stats, gamma = problem.block_stats({"alpha": alpha, "beta": beta}, labels, gamma)
        n_labeled = float(stats["n_labeled"])
        log_prior = SMOOTHING * sum(message["log_prior"] for message in messages)
        objective = float(stats["bound"]) + n_labeled * log_normalizer(alpha) + log_prior
        record = {"objective": objective, "sum_alpha": float(alpha.sum())}
        previous = start.records[-1] if start.records else None
        start.records.append(record)
        start.settled = gains_little(previous, record, tol)
        if start.settled or len(start.records) == max_iter:
            start.state = {"alpha": alpha, "gamma": gamma, "is_labeled": np.any(labels >= 0, axis=1)}
            return start
        relaxation = relaxation_of(previous["objective"] if previous else -np.inf, objective, relaxation)
        if update_alpha:
            alpha = further_alpha(alpha, stats["log_means"], n_labeled, relaxation)
        phi = stats["counts"].reshape(n_partitions, n, n_clusters).transpose(1, 0, 2)
        answers, smoothing = np.split(phi, cuts, axis=1), SMOOTHING
