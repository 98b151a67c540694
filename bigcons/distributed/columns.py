"""Partitions distributed among sites: exact EM between a server and the sites (the paper's clients)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bigcons.distributed.sites import (
    Message,
    Run,
    Site,
    Team,
    check_model,
    dispatch,
    warn_unless_settled,
)
from bigcons.errors import InvalidInputError
from bigcons.kernels import bce as kernel
from bigcons.methods.bce.model import further_alpha, further_probabilities, log_normalizer, relaxation_of
from bigcons.methods.bce.variational import E_STEP_TOL, E_STEPS, START_ALPHA, first_gamma
from bigcons.methods.bce.variational import SMOOTHING as START_SMOOTHING
from bigcons.methods.mixture import SMOOTHING
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.solving.assignment import CERTAINTY, first_partition
from bigcons.solving.passes import History, Record
from bigcons.solving.results import falling_order, sizes_of
from bigcons.solving.starts import gains_little
from bigcons.stores.ensemble import as_ensemble
from bigcons.tables.encode import label_dtype
from bigcons.validation import check_int, check_number


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
    >>> from bigcons.distributed import ColumnSite
    >>> site = ColumnSite([[0, 1], [0, 1], [1, -1]])
    >>> sorted(site.answer({"ask": "shape"}))
    ['n_objects', 'n_partitions']
    """

    def __init__(self, labels: Any) -> None:
        ensemble = as_ensemble(labels)
        self._labels = ensemble.read(0, ensemble.n_objects)
        self._offsets = ensemble.offsets
        self._objects, self._partitions = np.nonzero(self._labels >= 0)
        self._base = self._offsets[self._partitions] + self._labels[self._objects, self._partitions]
        self._of_starts: dict[int, np.ndarray] = {}
        self.probabilities: np.ndarray | None = None
        """(n_own_base_clusters, K) label probabilities of the clusters; None before the end of a fit."""

    def answer(self, message: Message) -> Message:
        """Return the answer to a message of `fit_columns`."""
        questions: dict[str, Callable[..., Message]] = {
            "shape": self._tell_shape,
            "propose": self._propose,
            "update": self._update,
            "end": self._end,
        }
        return dispatch(questions, message)

    def _tell_shape(self) -> Message:
        self._of_starts, self.probabilities = {}, None
        return {"n_objects": self._labels.shape[0], "n_partitions": self._labels.shape[1]}

    def _propose(self, n_clusters: int, seed: int, start: int) -> Message:
        """Return clusters (n,) from partitions of this site to start from, -1 where undecided."""
        return {"clusters": first_partition(self._labels, n_clusters, seed, start)}

    def _update(self, start: int, shares: np.ndarray, smoothing: float, relaxation: float) -> Message:
        """Estimate beta from shares (n, n_own, K), or (n, K) for all alike; return its logarithms by label.

        ``relaxation`` as of `further_probabilities`. ``log_beta`` (n, n_own, K) is NaN where a label is
        missing; ``log_prior`` is the part of this site in the objective, the sum of log beta.
        """
        K = shares.shape[-1]
        if shares.ndim == 2:
            shares = np.broadcast_to(shares[:, None, :], (*self._labels.shape, K))
        counts = np.full((int(self._offsets[-1]), K), smoothing)
        np.add.at(counts, self._base, shares[self._objects, self._partitions])
        before = self._of_starts.get(int(start), counts)
        beta = further_probabilities(before, counts, self._offsets, relaxation)
        self._of_starts[int(start)] = beta
        log_beta = np.log(beta)
        values = np.full((*self._labels.shape, K), np.nan)
        values[self._objects, self._partitions] = log_beta[self._base]
        return {"log_beta": values, "log_prior": float(log_beta.sum())}

    def _end(self, start: int, order: np.ndarray) -> Message:
        """Keep the probabilities of a start, with its clusters in an order."""
        self.probabilities = self._of_starts[int(start)][:, order]
        self._of_starts = {}
        return {}


# By columns: the coordinator


class ColumnFit(NamedTuple):
    """What the coordinator of `fit_columns` knows at the end; each site has its own label probabilities.

    Examples
    --------
    >>> import bigcons as bc
    >>> from bigcons.distributed import ColumnSite, fit_columns
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
    """(K,) float64: alpha of "bce", the weights of the clusters of "mixture"."""
    objective: float
    """The bound, or log-likelihood."""
    history: History
    """One entry an iteration."""
    start_objectives: list[float]
    """The objective of every start."""
    converged: bool


def fit_columns(
    sites: Sequence[Site],
    n_clusters: int,
    *,
    method: str = "bce",
    update_alpha: bool = True,
    n_init: int = 4,
    max_iter: int = 500,
    tol: float = 1e-6,
    random_state: SeedLike = None,
) -> ColumnFit:
    """Fit a model to the partitions of all sites together, as the central method does: exact EM.

    Parameters
    ----------
    sites : sequence of Site
        `ColumnSite` objects, or stubs that reach them, asked at the same time, each in a thread (64 at most).
    n_clusters : int
        Number of clusters K.
    method : {"bce", "mixture"}, default="bce"
        `BCE` by variational EM, or the mixture of multinomials, `MixtureModel` without its background.
    update_alpha : bool, default=True
        Whether alpha of "bce" is estimated; "mixture" has none.
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
    >>> from bigcons.distributed import ColumnSite, fit_columns
    >>> ensemble, truth = bc.datasets.planted_ensemble(400, 15, random_state=0)
    >>> labels = ensemble.read(0, 400)
    >>> sites = [ColumnSite(labels[:, :5]), ColumnSite(labels[:, 5:])]
    >>> fit = fit_columns(sites, 6, n_init=2, random_state=0)
    >>> fit.labels.shape
    (400,)
    """
    check_model(method, n_clusters, update_alpha)
    check_int("max_iter", max_iter)
    check_number("tol", tol, at_least=0.0)
    seed = resolve_seed(random_state)
    ends: list[Server] = []
    runs: list[Run] = []
    with Team(sites) as team:
        shapes = team.ask({"ask": "shape"})
        if len({shape["n_objects"] for shape in shapes}) > 1:
            raise InvalidInputError(
                f"the sites have n_objects={[shape['n_objects'] for shape in shapes]}; all must list the "
                "same objects in the same order.",
                parameter="sites",
            )
        cuts = np.cumsum([shape["n_partitions"] for shape in shapes])[:-1]
        for number in range(check_int("n_init", n_init)):
            shares = _first_shares(team, n_clusters, seed, number)
            server: Server = (
                MixtureServer(shares) if method == "mixture" else BCEServer(n_clusters, update_alpha)
            )
            runs.append(_iterate_columns(team, server, number, shares, cuts, max_iter, tol))
            ends.append(server)
        best = max(range(n_init), key=lambda number: runs[number].objective)
        run, server = runs[best], ends[best]
        memberships = server.memberships().astype(np.float32)

        def count(order: np.ndarray) -> np.ndarray:
            return sizes_of(memberships[server.labeled][:, order].argmax(axis=1), n_clusters)

        order = falling_order(count, n_clusters)
        team.ask({"ask": "end", "start": best, "order": order})
    warn_unless_settled(run)
    memberships = np.take(memberships, order, axis=1)
    labels = memberships.argmax(axis=1).astype(np.int32)
    labels[~server.labeled], memberships[~server.labeled] = -1, 1.0 / n_clusters
    start_objectives = [run.objective for run in runs]
    return ColumnFit(
        labels, memberships, server.weights[order], run.objective, run.history, start_objectives, run.settled
    )


def _first_shares(team: Team, n_clusters: int, seed: int, number: int) -> np.ndarray:
    """Return shares (n, K) that give nine tenths to the clusters that one of the sites proposes."""
    question = {"ask": "propose", "n_clusters": n_clusters, "seed": seed, "start": number}
    clusters = team.sites[number % len(team.sites)].answer(question)["clusters"]
    known = np.flatnonzero(clusters >= 0)
    shares = np.full((clusters.size, n_clusters), 1.0 / n_clusters)
    shares[known] = (1.0 - CERTAINTY) / n_clusters
    shares[known, clusters[known]] += CERTAINTY
    return shares


def _iterate_columns(
    team: Team, server: Server, number: int, shares: np.ndarray, cuts: np.ndarray, max_iter: int, tol: float
) -> Run:
    """Run EM until it settles, with the parameters that the last record judges."""
    run = Run({})
    answers, smoothing, relaxation = [shares] * len(team.sites), server.first_smoothing, 1.0
    while True:
        update = {"ask": "update", "start": number, "smoothing": smoothing, "relaxation": relaxation}
        told = team.tell([{**update, "shares": own} for own in answers])
        log_beta = np.concatenate([message["log_beta"] for message in told], axis=1)
        shares, record = server.respond(log_beta, SMOOTHING * sum(m["log_prior"] for m in told))
        run.add(record, gains_little(run.records[-1] if run.records else None, record, tol))
        if run.settled or len(run.records) == max_iter:
            return run
        relaxation = server.update(run)
        answers = np.split(shares, cuts, axis=1) if shares.ndim == 3 else [shares] * len(told)
        smoothing = SMOOTHING


class Server(Protocol):
    """The part of the model between the messages of the sites and the answers they get."""

    weights: np.ndarray
    """Its parameters, (K,)."""
    first_smoothing: float
    """Added to the counts of the start."""
    labeled: np.ndarray
    """Which objects (n,) have a label at any site, once there was a message."""

    def respond(self, log_beta: np.ndarray, log_prior: float) -> tuple[np.ndarray, Record]:
        """Return shares (n, M, K) or, for all partitions alike, (n, K), and the record of the parameters."""
        ...

    def update(self, run: Run) -> float:
        """Replace the parameters by those that follow from the last messages.

        Returns the relaxation of the step that the sites take.
        """
        ...

    def memberships(self) -> np.ndarray:
        """Return memberships (n, K) after the last messages."""
        ...


class BCEServer:
    """The server of BCE: takes the E-step of all objects, and holds gamma (n, K) and alpha (K,)."""

    first_smoothing = START_SMOOTHING

    def __init__(self, n_clusters: int, update_alpha: bool) -> None:
        self.weights: np.ndarray = np.full(n_clusters, START_ALPHA)
        self.labeled: np.ndarray = np.empty(0, bool)
        self._update_alpha = update_alpha
        self._gamma: np.ndarray | None = None  # (n, K) float32
        self._log_means = np.zeros(n_clusters)
        self._relaxation = 1.0

    def respond(self, log_beta: np.ndarray, log_prior: float) -> tuple[np.ndarray, Record]:
        """Return phi (n, M, K), and the bound of alpha and the sites' beta.

        To the kernel every label of every object is a base cluster of its own, with the probabilities that
        its site sent: the expected counts of these base clusters are phi.
        """
        n, M, K = log_beta.shape
        labels = np.where(np.isnan(log_beta[:, :, 0]), -1, np.arange(n)[:, None]).astype(label_dtype([n]))
        self.labeled = np.asarray((labels >= 0).any(axis=1))
        beta = np.exp(log_beta.transpose(1, 0, 2)).reshape(M * n, K)
        alpha, gamma = self.weights, self._gamma
        if gamma is None:
            gamma = first_gamma(labels, alpha)
        updated, shares, self._log_means = np.empty_like(gamma), np.zeros((M * n, K)), np.zeros(K)
        bound, n_labeled = kernel.e_step(
            *(labels, np.arange(M + 1) * n, beta, alpha, gamma, updated, shares, self._log_means),
            *(E_STEP_TOL, E_STEPS),
        )
        self._gamma = updated
        objective = float(bound + n_labeled * log_normalizer(alpha) + log_prior)
        return shares.reshape(M, n, K).transpose(1, 0, 2), {
            "objective": objective,
            "sum_alpha": float(alpha.sum()),
        }

    def update(self, run: Run) -> float:
        """Take the M-step of alpha; return how far it and those of the sites overstep their maxima."""
        previous = run.records[-2]["objective"] if len(run.records) > 1 else -np.inf
        self._relaxation = relaxation_of(previous, run.objective, self._relaxation)
        if self._update_alpha:
            n_labeled = float(self.labeled.sum())
            self.weights = further_alpha(self.weights, self._log_means, n_labeled, self._relaxation)
        return self._relaxation

    def memberships(self) -> np.ndarray:
        """Return the expected proportions (n, K) after the last messages."""
        gamma = np.asarray(self._gamma)
        return gamma / gamma.sum(axis=1, keepdims=True)


class MixtureServer:
    """The server of the mixture: adds up log-likelihoods, and holds the weights (K,) of the clusters.

    ``shares`` (n, K) are those of the start.
    """

    first_smoothing = SMOOTHING

    def __init__(self, shares: np.ndarray) -> None:
        self.labeled: np.ndarray = np.ones(len(shares), bool)
        self._shares = shares
        self.update()

    def respond(self, log_beta: np.ndarray, _log_prior: float) -> tuple[np.ndarray, Record]:
        """Return the responsibilities (n, K), and the log-likelihood of the weights and the sites' beta."""
        from scipy.special import logsumexp

        self.labeled = np.asarray(~np.isnan(log_beta[..., 0]).all(axis=1))
        joint = np.log(self.weights) + np.nansum(log_beta, axis=1)
        evidence = logsumexp(joint, axis=1, keepdims=True)
        self._shares = np.exp(joint - evidence)
        return self._shares, {"objective": float(evidence[self.labeled].sum())}

    def update(self, _run: Run | None = None) -> float:
        """Take the M-step of the weights; the sites take theirs."""
        smoothed = self._shares[self.labeled].sum(axis=0) + SMOOTHING
        self.weights: np.ndarray = smoothed / smoothed.sum()
        return 1.0

    def memberships(self) -> np.ndarray:
        """Return the responsibilities (n, K) after the last messages."""
        return self._shares
