"""Distributed EM in which sites do not share labels: they hold different objects or different partitions.

Row-distributed: sites hold different objects. What the M-step needs of the objects are sums over them, so
this works for every `Problem` of passes, such as V-BCE and the mixture of multinomials. (On a Dask cluster
the estimators do the same without any of this: there a block is a site.) A site may be a stub that sends its
argument to another machine.

Column-distributed: clients hold different partitions of the same objects. A client keeps its labels and their
probabilities ``beta``; the server keeps what the objects carry and the priors. In every iteration each
client sends ``log beta`` of the labels of all objects and receives how much each object belongs to each
cluster there (Wang, Shan and Banerjee 2009). This does not hide the base clusterings from the server: all
objects of a base cluster send the same vector, from which the server learns every partition up to the names
of its clusters.

Both give the result of the central run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.kernels import bce as kernel
from bigcons.methods.bce.model import (
    RELAXATION,
    further_alpha,
    further_probabilities,
    label_probabilities,
    log_normalizer,
)
from bigcons.methods.bce.variational import (
    E_STEP_TOL,
    E_STEPS,
    SMOOTHING,
    START_ALPHA,
)
from bigcons.solving.assignment import CERTAINTY, first_partition
from bigcons.solving.passes import Problem, Record, State, Stats, add_all, gains_little
from bigcons.validation import check_int


class RowSite(Protocol):
    """What the coordinator needs of a site."""

    def begin(self) -> None:
        """Forget what the objects carried in an earlier run."""
        ...

    def statistics(self, state: State) -> Stats:
        """Return the sums over the objects of the site under ``state``, and keep what the objects carry."""
        ...


class Site:
    """A site with its labels in memory. It shares sums over its objects, and nothing else.

    The messages do not grow with the number of objects. Of V-BCE: the site receives a state of ``K B + K``
    numbers and sends counts ``K B``, summed expectations ``K``, and two scalars for the bound.
    """

    def __init__(self, problem: Problem, labels: np.ndarray) -> None:
        self._problem = problem
        self._labels = labels
        self.carried: np.ndarray | None = None
        """What the objects carry, for the site's own use: the gamma of V-BCE."""

    def begin(self) -> None:
        """Forget what the objects carried in an earlier run."""
        self.carried = None

    def start(self, seed: int, number: int) -> State:
        """Return the state of start ``number``, from the objects of this site."""
        return self._problem.start(self._labels, seed, number)[0]

    def statistics(self, state: State) -> Stats:
        """Return the sums over the objects of the site under ``state``, and keep what the objects carry."""
        stats, self.carried = self._problem.visit(state, self._labels, self.carried)
        return stats


class RowSolution(NamedTuple):
    """The final state of EM among sites."""

    state: State
    records: list[Record]
    """One an iteration, or a cycle; the last judges ``state``."""
    converged: bool


def fit_rows(
    problem: Problem, sites: Sequence[RowSite], state: State, *, max_iter: int = 500, tol: float = 1e-6
) -> RowSolution:
    """Run exact EM from ``state``: what the central run does, up to the order of summation.

    One exchange with every site an iteration. Wang, Shan and Banerjee (2009) exchange messages in every
    Newton iteration for alpha, but gamma is fixed in the M-step and Newton needs no more than these sums.
    """
    _begin(sites)
    records: list[Record] = []
    judged = state
    for _ in range(check_int("max_iter", max_iter)):
        following, record = problem.finish(state, _summed(state, sites))
        settled = problem.is_settled(records[-1] if records else None, record, tol)
        records.append(record)
        if settled:
            return RowSolution(state, records, converged=True)
        judged, state = state, following
    return RowSolution(judged, records, converged=False)


def fit_rows_in_turn(
    problem: Problem, sites: Sequence[RowSite], state: State, *, max_cycles: int = 10, tol: float = 0.01
) -> RowSolution:
    """Pass ``state`` from site to site; each takes one EM step on its own objects alone.

    The heuristic of the paper's experiments: fewer messages, no guarantee of convergence. It converges
    when a cycle changes the state by at most ``tol`` of its absolute sum. (The authors' code looks at beta
    alone, which is most of the state of V-BCE.) The objective of a record sums what each site saw when the
    state reached it.
    """
    _begin(sites)
    records: list[Record] = []
    for _ in range(check_int("max_cycles", max_cycles)):
        before, value = state, 0.0
        for site in sites:
            state, record = problem.finish(state, site.statistics(state))
            value += record["objective"]
        change = relative_change(before, state)
        records.append({"objective": value, "change": change})
        if change <= tol:
            return RowSolution(state, records, converged=True)
    return RowSolution(state, records, converged=False)


def relative_change(before: State, after: State) -> float:
    """Return the summed absolute change of all arrays of a state over their absolute sum."""
    changed = sum(np.abs(after[name] - values).sum() for name, values in before.items())
    return float(changed / sum(np.abs(values).sum() for values in before.values()))


def _begin(sites: Sequence[RowSite]) -> None:
    if not sites:
        raise InvalidInputError("sites is empty; pass at least one.")
    for site in sites:
        site.begin()


def _summed(state: State, sites: Sequence[RowSite]) -> Stats:
    """Return the statistics of all sites under ``state``, added up in their order."""
    total = [{name: values.copy() for name, values in sites[0].statistics(state).items()}]
    for site in sites[1:]:
        add_all([*total], [site.statistics(state)])
    return total[0]


class Message(NamedTuple):
    """The message of a client."""

    log_likelihoods: np.ndarray
    """(n, own partitions, K) float64: ``log beta`` of each object's label, NaN where that is missing."""
    log_prior: float
    """``smoothing`` * sum log beta, the client's part of the objective."""


class ColumnClient:
    """Holds some partitions, and estimates the label probabilities of these alone.

    labels (n, own partitions), -1 where missing; offsets of its own base clusters. ``smoothing`` is added to
    all counts. Time and message size O(n K) for each of its partitions and iterations.
    """

    def __init__(self, labels: np.ndarray, offsets: np.ndarray, *, smoothing: float = 1e-6) -> None:
        self._offsets = offsets
        self._smoothing = smoothing
        self._objects, self._partitions = np.nonzero(labels >= 0)
        self._base = offsets[self._partitions] + labels[self._objects, self._partitions]
        self._labels = labels
        self.beta: np.ndarray | None = None
        """(own base clusters, K) float64."""

    def propose(self, n_clusters: int, seed: int, number: int) -> np.ndarray:
        """Return clusters (n,) from the client's own partitions to start from, -1 where undecided."""
        return first_partition(self._labels, n_clusters, seed, number)

    def send(self) -> Message:
        """Return the message of this client to the server."""
        if self.beta is None:
            raise InvalidInputError("the client has no beta yet; set it, or begin with start_columns.")
        log_beta = np.log(self.beta)
        values = np.full((*self._labels.shape, log_beta.shape[1]), np.nan)
        values[self._objects, self._partitions] = log_beta[self._base]
        return Message(values, float(self._smoothing * log_beta.sum()))

    def receive(self, shares: np.ndarray, *, smoothing: float = 0.0, relaxation: float = 1.0) -> None:
        """Estimate the label probabilities from shares (n, own partitions, K), or (n, K) for all alike.

        ``relaxation`` as of `further_probabilities`, 1 for the best ones.
        """
        if shares.ndim == 2:
            shares = np.broadcast_to(shares[:, None, :], (*self._labels.shape, shares.shape[1]))
        counts = np.full((int(self._offsets[-1]), shares.shape[2]), self._smoothing + smoothing)
        np.add.at(counts, self._base, shares[self._objects, self._partitions])
        if self.beta is None or relaxation == 1.0:
            self.beta = label_probabilities(counts, self._offsets)
        else:
            self.beta = further_probabilities(self.beta, counts, self._offsets, relaxation)


class ColumnServer(Protocol):
    """The part of the model between the clients' messages and their answers."""

    relaxation: float
    """The clients' step toward the label probabilities of an answer, see `further_probabilities`."""

    def respond(self, messages: Sequence[Message]) -> tuple[list[np.ndarray], Record]:
        """Return the answer to each client, and the record of the parameters that the messages are of."""
        ...

    def update(self) -> None:
        """Replace the server's own parameters by those that follow from the last messages."""
        ...


class BCEServer:
    """The server of V-BCE: takes the E-step of all objects, and holds gamma (n, K) and alpha (K,).

    Memory O(n M K): the messages themselves.
    """

    relaxation = RELAXATION

    def __init__(self, alpha: np.ndarray, *, update_alpha: bool = True) -> None:
        self.alpha: np.ndarray = alpha
        self.update_alpha = update_alpha
        self.gamma: np.ndarray | None = None
        """(n, K) float32."""
        self._log_means = np.zeros_like(alpha)
        self._n_labeled = 0

    def respond(self, messages: Sequence[Message]) -> tuple[list[np.ndarray], Record]:
        """Return phi (n, own partitions, K) for each client, and the bound of alpha and their beta.

        To the kernel every label of every object is a base cluster of its own, with the probabilities that
        the client sent: the counts of these base clusters are phi.
        """
        values = np.concatenate([message.log_likelihoods for message in messages], axis=1)
        n, M, K = values.shape
        labels = np.where(np.isnan(values[:, :, 0]), -1, np.arange(n)[:, None])
        offsets = np.arange(M + 1) * n
        likelihoods = np.exp(values.transpose(1, 0, 2)).reshape(M * n, K)
        if self.gamma is None:
            seen = (labels >= 0).sum(axis=1, keepdims=True)
            self.gamma = (self.alpha + seen / K).astype(np.float32)
        updated, shares, self._log_means = np.empty_like(self.gamma), np.zeros((M * n, K)), np.zeros(K)
        bound, self._n_labeled = kernel.e_step(
            *(labels, offsets, likelihoods, self.alpha, self.gamma, updated, shares, self._log_means),
            *(E_STEP_TOL, E_STEPS),
        )
        self.gamma = updated
        value = bound + self._n_labeled * log_normalizer(self.alpha) + sum(m.log_prior for m in messages)
        record = {"objective": float(value), "sum_alpha": float(self.alpha.sum())}
        ends = np.cumsum([message.log_likelihoods.shape[1] for message in messages])
        return np.split(shares.reshape(M, n, K).transpose(1, 0, 2), ends[:-1], axis=1), record

    def update(self) -> None:
        """Take the M-step of alpha."""
        if self.update_alpha:
            self.alpha = further_alpha(self.alpha, self._log_means, self._n_labeled)

    def memberships(self) -> np.ndarray:
        """Return the expected proportions (n, K) float32 after the last messages."""
        if self.gamma is None:
            raise InvalidInputError("the server has had no messages yet; call fit_columns first.")
        return self.gamma / self.gamma.sum(axis=1, keepdims=True)


class MixtureServer:
    """The server of the mixture of multinomials: adds up the log-likelihoods and holds the weights (K,).

    The paper's mixture, without a background. ``smoothing`` is that of the weights. All clients get the same
    responsibilities (n, K).
    """

    relaxation: float = 1.0

    def __init__(self, weights: np.ndarray, *, smoothing: float = 1e-6) -> None:
        self.weights: np.ndarray = weights
        self.smoothing = smoothing
        self.responsibilities: np.ndarray | None = None
        """(n, K) float64."""
        self._sizes = np.zeros_like(weights)

    def respond(self, messages: Sequence[Message]) -> tuple[list[np.ndarray], Record]:
        """Return the responsibilities for each client, and the log-likelihood of weights and their beta."""
        from scipy.special import logsumexp

        labeled = np.logical_or.reduce([~np.isnan(m.log_likelihoods[..., 0]).all(axis=1) for m in messages])
        joint = np.log(self.weights) + sum(np.nansum(m.log_likelihoods, axis=1) for m in messages)
        evidence = logsumexp(joint, axis=1, keepdims=True)
        self.responsibilities = np.exp(joint - evidence)
        self._sizes = self.responsibilities[labeled].sum(axis=0)
        record = {"objective": float(evidence[labeled].sum())}
        return [self.responsibilities] * len(messages), record

    def update(self) -> None:
        """Take the M-step of the weights."""
        smoothed = self._sizes + self.smoothing
        self.weights = smoothed / smoothed.sum()


class ColumnSolution(NamedTuple):
    """The records of a run; its parameters are with the server and the clients."""

    records: list[Record]
    converged: bool


def start_columns(clients: Sequence[ColumnClient], n_clusters: int, seed: int, number: int) -> np.ndarray:
    """Give all clients a first beta from the partitions of one of them; return the alpha to start from.

    Client ``number`` modulo their number proposes clusters; all clients give them nine tenths of the weight.
    """
    clusters = clients[number % len(clients)].propose(n_clusters, seed, number)
    known = np.flatnonzero(clusters >= 0)
    shares = np.full((clusters.size, n_clusters), 1.0 / n_clusters)
    shares[known] = (1.0 - CERTAINTY) / n_clusters
    shares[known, clusters[known]] += CERTAINTY
    for client in clients:
        client.receive(shares, smoothing=SMOOTHING)
    return np.full(n_clusters, START_ALPHA)


def fit_columns(
    server: ColumnServer, clients: Sequence[ColumnClient], *, max_iter: int = 500, tol: float = 1e-6
) -> ColumnSolution:
    """Run exact EM from the parameters that server and clients have.

    Stops, with the parameters that the last record judges, once the objective gains no more than ``tol``
    of itself. One message to and one from every client an iteration.
    """
    records: list[Record] = []
    settled = False
    check_int("max_iter", max_iter)
    while not settled:
        answers, record = server.respond([client.send() for client in clients])
        settled = gains_little(records[-1] if records else None, record, tol)
        records.append(record)
        if settled or len(records) == max_iter:
            break
        server.update()
        for client, answer in zip(clients, answers, strict=True):
            client.receive(answer, relaxation=server.relaxation)
    return ColumnSolution(records, settled)
