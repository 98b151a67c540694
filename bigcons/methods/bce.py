"""Models of the labels: Bayesian cluster ensembles (Wang, Shan and Banerjee 2009) and multinomials.

Object ``i`` draws ``theta_i`` from a Dirichlet with parameters ``alpha (K,)``; for every partition ``u`` that
labeled it a cluster from ``theta_i``, and its label from that cluster's probabilities. ``beta (B, K)`` has
these: column ``k`` sums to 1 over the base clusters of each partition.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigcons.kernels import bce as kernel
from bigcons.kernels import gibbs
from bigcons.kernels.cluster_tables import count_shares, padded, respond, responsibilities
from bigcons.memory import DEFAULT_DATA_BYTES
from bigcons.methods.base import ConsensusClusterer, MethodInfo
from bigcons.methods.pass_clusterer import CERTAINTY, PassClusterer, expected_counts, first_partition, spread
from bigcons.run.engine import Engine, map_with_progress, stop_if_cancelled
from bigcons.run.passes import Method, Record, State, Stats, best_start
from bigcons.run.results import Output
from bigcons.run.survey import MemoryPlan, label_bytes, take_survey
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice, check_flag, check_int, check_number
from bigcons.weights import counts_of

# The fixed-point iteration of an object stops when a step changes gamma by less than this share of its sum,
# or after this many steps; the next pass continues from there.
E_STEP_TOL, E_STEPS = 1e-4, 100

# The smoothing and the alpha of a start from base partitions.
START_SMOOTHING, START_ALPHA = 0.1, 0.5

# Over-relaxation: the step in log parameters as a multiple of that to the maximum of the M-step. 1 is plain
# EM; near a quadratic maximum any step up to 2 gains. Far from one, oversteps lead to lower optima: of 160
# starts on planted and real ensembles, 29 ended more than 1e-4 lower and 9 higher than by plain EM. Hence the
# steps are plain until a pass gains less than this share of the objective (0 lower, 4 higher), which keeps
# four fifths of the passes saved (benchmarks/bce_paper.py).
RELAXATION, SETTLING_GAIN = 1.7, 1e-3

# The previous objective and the relaxation of the last step, of a state that has made none.
NO_STEP = (-np.inf, 1.0)


class BCE(PassClusterer):
    """Bayesian cluster ensembles by variational EM.

    Every object mixes the clusters in its own proportions, drawn from a Dirichlet distribution, and every
    cluster has its own label probabilities in each partition. EM raises a lower bound of the likelihood of
    the observed labels; labels are taken to be missing at random.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Maximum number of clusters; those that are most probable for no object stay empty.
        "auto": by `bigcons.choose_n_clusters`.
    n_init : int, default=20
        Number of starts on a sample of at least 4,096 objects, of which the highest bound is kept. On six
        planted clusters of unequal sizes, a third to a half of the starts find all of them; hence 20.
        Ensembles of many small base clusters, or of so many partitions that the sample has above 4 million
        labels, start from k-means in the spectral embedding of `HBGF` instead, ``n_init`` times, and from the
        least alpha.
    init : {"partition", "random"}, default="partition"
        "partition": responsibilities give nine tenths to one base partition (intersected with others until
        there are enough clusters) and spread one tenth evenly; alpha is 0.5. "random": alpha and beta are
        drawn as in the authors' code, which needs more starts.
    update_alpha : bool, default=True
        Whether alpha, the Dirichlet prior of the proportions, is estimated; otherwise it keeps its first
        value. On clean ensembles alpha tends to 0, where every object belongs to one cluster; it is kept
        above 0.001. If objects have only a few, noisy labels, the bound may be highest at a large alpha, for
        which all objects are alike: then pass False.
    smoothing : float, default=1e-6
        Added to every expected label count, so that no probability is zero.
    relaxation : float, default=1.7
        Factor by which a step exceeds the step to the maximum of the M-step, from 1, the paper's plain EM, to
        1.9, once a pass gains less than a thousandth of the objective.
    max_iter : int, default=500
        Maximum number of passes.
    tol : float, default=1e-6
        Relative gain of the objective at which to stop.
    resume : bool, default=True
        Whether to resume an interrupted solve to ``out``, with the same result as an uninterrupted one.
    random_state : int, RandomState, Generator or None, default=None
        Seed; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects that no partition labeled
    memberships_ : (n_objects, n_clusters) float32, expected proportions of the clusters
    objective_ : lower bound of the log-likelihood, plus ``smoothing * sum log beta`` for the prior that
        ``smoothing`` stands for; no pass lowers it
    start_objectives_ : the objective of every start on its sample, when the best was chosen
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n M K) time for every step of the fixed point of gamma, up to 100 of them a pass but few once gamma has
    settled; memory O(B K), and 8 n K bytes for gamma, which is carried from pass to pass. The authors
    reinitialize gamma in every pass, which can lower the bound. Steps beyond the maximum of the M-step are
    taken only if the bound still rises (over-relaxed EM); they save about a third of the passes and lead to
    the same optima as plain EM. A start that has settled on the sample continues on all objects with a tenth
    of its label probabilities spread evenly over the labels.

    `bigcons.federated` fits the same model to objects, or partitions, of sites that keep their labels.

    References
    ----------
    Wang, Shan and Banerjee (2009), *Bayesian cluster ensembles*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.BCE(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.memberships_.round(2)[-1]
    array([0., 1.], dtype=float32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Wang, Shan and Banerjee 2009", "labels", soft=True)
    chooses: ClassVar[bool] = True

    n_init: int = 20
    init: str = "partition"
    update_alpha: bool = True
    smoothing: float = 1e-6
    relaxation: float = RELAXATION
    max_iter: int = 500

    def _method(self, offsets: np.ndarray, n_clusters: int) -> VariationalBCE:
        return VariationalBCE(
            offsets,
            n_clusters,
            init=check_choice("init", self.init, ("partition", "random")),
            smoothing=check_number("smoothing", self.smoothing, at_least=1e-12),
            update_alpha=check_flag("update_alpha", self.update_alpha),
            relaxation=check_number("relaxation", self.relaxation, at_least=1.0, at_most=1.9),
        )


@dataclass(eq=False)
class VariationalBCE(Method):
    """The E-step of a block and the M-step of its sums.

    The state is alpha (K,), beta (B, K) and the last step (2,): the objective before it and its relaxation.
    Objects carry gamma (K,), float32. The statistics of a block are ``K B + K`` sums, the number of its
    labeled objects and its part of the bound.
    """

    name = "BCE"

    offsets: np.ndarray
    n_clusters: int
    _: KW_ONLY
    init: str
    smoothing: float
    update_alpha: bool
    relaxation: float = RELAXATION

    def __post_init__(self) -> None:
        self.n_carried: int = self.n_clusters

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, None]:
        """Return the first state of start ``number``, from rows of labels (rows, M).

        From base partitions, which leads to higher bounds: an object gives nine tenths to its cluster in
        `first_partition`; undecided ones are spread evenly. Or as the authors' code draws it: alpha from the
        spacings of [0, 1], beta from Dirichlet distributions with the label frequencies as parameters.
        """
        offsets, K = self.offsets, self.n_clusters
        if self.init == "partition":
            clusters = first_partition(labels, K, seed, number)
            return state_of(expected_counts(labels, offsets, clusters, K)[0], offsets), None
        draw = generator(seed, "bce.start", number)
        alpha = np.diff(np.sort(draw.random(K - 1)), prepend=0.0, append=1.0)
        sizes, _ = counts_of(labels, offsets, np.zeros(len(labels), np.int32), 1)
        frequencies = label_probabilities(sizes + 1e-6, offsets)
        beta = draw.standard_gamma(np.repeat(frequencies, K, axis=1)) + 1e-6  # above zero
        beta, alpha = label_probabilities(beta, offsets), np.maximum(alpha, ALPHA_FLOOR)
        return {"alpha": alpha, "beta": beta, "step": np.array(NO_STEP)}, None

    def state_of_counts(self, counts: np.ndarray, _sizes: np.ndarray) -> State:
        """Return the state of objects that are in their clusters by nine tenths, as in `start`.

        Alpha begins at its least: it rises within a few passes where objects mix clusters, but falls by ever
        smaller steps where they do not.
        """
        expected = spread(counts, counts.sum(axis=1, keepdims=True))
        return state_of(expected, self.offsets, ALPHA_FLOOR if self.update_alpha else START_ALPHA)

    def for_all(self, state: State) -> State:
        """Return the state with a tenth of the probability of each cluster spread evenly over all labels.

        Probabilities that the sample has driven to zero would take many passes to recover.
        """
        sizes = sums_by_partition(np.ones_like(state["beta"]), self.offsets)
        beta = 0.9 * state["beta"] + 0.1 / sizes
        return {"alpha": state["alpha"], "beta": beta, "step": np.array(NO_STEP)}

    def block_stats(
        self, state: State, labels: np.ndarray, carried: np.ndarray | None = None
    ) -> tuple[Stats, np.ndarray]:
        """Return the statistics of a block under ``state``, and its gamma (rows, K) float32."""
        alpha, beta = state["alpha"], state["beta"]
        gamma = first_gamma(labels, alpha) if carried is None else carried
        counts, log_means = np.zeros_like(beta), np.zeros_like(alpha)
        updated = np.empty_like(gamma)
        bound, n_labeled = kernel.e_step(
            *(labels, self.offsets, beta, alpha, gamma, updated, counts, log_means, E_STEP_TOL, E_STEPS)
        )
        totals = {"n_labeled": np.array(float(n_labeled)), "bound": np.array(bound)}
        return {"counts": counts, "log_means": log_means, **totals}, updated

    def finish(self, state: State, stats: Stats) -> tuple[State, Record]:
        """Return the next state, and the bound of ``state``.

        It raises bound + ``smoothing`` * sum log beta for fixed gamma and phi, by the summed ``phi`` (B, K)
        and expectations of log theta (K,): all that the paper's Newton iterations for alpha need. The paper
        takes the maximum, as does a relaxation of 1; above 1 this oversteps it where the bound still rises
        (over-relaxed, hence generalized, EM).
        """
        alpha, beta, n_labeled = state["alpha"], state["beta"], float(stats["n_labeled"])
        # the prior that adding smoothing to the counts stands for: with it no iteration lowers the objective
        prior = self.smoothing * np.log(beta).sum()
        value = float(float(stats["bound"]) + n_labeled * log_normalizer(alpha) + prior)
        previous, last = state["step"].tolist()
        relaxation = relaxation_of(previous, last, value, self.relaxation)
        record = {"objective": value, "sum_alpha": float(alpha.sum())}
        if self.update_alpha:
            alpha = further_alpha(alpha, stats["log_means"], n_labeled, relaxation)
        beta = further_probabilities(beta, stats["counts"] + self.smoothing, self.offsets, relaxation)
        return {"alpha": alpha, "beta": beta, "step": np.array([value, relaxation])}, record

    def place(self, state: State, labels: np.ndarray, carried: np.ndarray | None = None) -> np.ndarray:
        """Return the expected proportions of a block, ``gamma`` over its sum."""
        gamma = carried
        if gamma is None:
            alpha, beta = state["alpha"], state["beta"]
            gamma = first_gamma(labels, alpha)
            scratch = np.zeros_like(beta), np.zeros_like(alpha)
            # new objects have no next pass
            kernel.e_step(labels, self.offsets, beta, alpha, gamma, gamma, *scratch, 1e-6, 500)
        return gamma / gamma.sum(axis=1, keepdims=True)


def first_gamma(labels: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return the gamma (rows, K) float32 that favors no cluster: ``alpha + m_i / K`` (as the authors do)."""
    n_labels = (labels >= 0).sum(axis=1, keepdims=True)
    return (alpha + n_labels / alpha.size).astype(np.float32)


def state_of(expected: np.ndarray, offsets: np.ndarray, alpha: float = START_ALPHA) -> State:
    """Return the state that starts from expected label counts (B, K)."""
    beta = label_probabilities(expected + START_SMOOTHING, offsets)
    return {"alpha": np.full(expected.shape[1], alpha), "beta": beta, "step": np.array(NO_STEP)}


# The M-step

# On clean ensembles alpha tends to zero, and the model degenerates to a mixture of multinomials.
ALPHA_FLOOR = 1e-3


def relaxation_of(previous: float, relaxation: float, objective: float, final: float = RELAXATION) -> float:
    """Return the relaxation of the step after a pass that raised the objective from ``previous``.

    1 until the gain is small, then ``final`` for good; ``relaxation`` is the one of the step before.
    """
    is_settling = objective - previous < SETTLING_GAIN * abs(objective)
    return final if is_settling or relaxation > 1.0 else 1.0


def further_probabilities(
    beta: np.ndarray, counts: np.ndarray, offsets: np.ndarray, relaxation: float
) -> np.ndarray:
    """Return `label_probabilities` of ``counts``, overstepped to ``relaxation`` times the way from ``beta``.

    Separately for each cluster and partition; where ``sum counts log beta`` would fall, the best ones stay.
    None falls below a thousandth of the best.
    """
    best = label_probabilities(counts, offsets)
    if relaxation == 1.0:
        return best
    candidate = best * np.maximum((best / beta) ** (relaxation - 1.0), 0.001)
    candidate = label_probabilities(candidate, offsets)
    gains = sums_by_partition(counts * np.log(candidate / beta), offsets)
    return np.where(gains >= 0, candidate, best)


def further_alpha(alpha: np.ndarray, log_means: np.ndarray, n: float, relaxation: float) -> np.ndarray:
    """Return `best_alpha`, overstepped to ``relaxation`` times the way from ``alpha`` if the bound rises."""
    best = best_alpha(alpha, log_means, n)
    if relaxation == 1.0:
        return best
    candidate = np.maximum(best * (best / alpha) ** (relaxation - 1.0), ALPHA_FLOOR)
    return candidate if _alpha_value(candidate, log_means, n) >= _alpha_value(alpha, log_means, n) else best


def label_probabilities(counts: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return counts (B, K) over their sums within each partition."""
    return counts / sums_by_partition(counts, offsets)


def sums_by_partition(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return for each row of values (B, K) the sum over the base clusters of its partition, (B, K)."""
    sums = np.empty(values.shape)
    kernel.sum_partitions(values, offsets, sums)
    return sums


def best_alpha(alpha: np.ndarray, log_means: np.ndarray, n: float) -> np.ndarray:
    """Return the alpha >= `ALPHA_FLOOR` that gives the bound its maximum.

    It maximizes ``n (lgamma(sum alpha) - sum lgamma(alpha)) + sum (alpha - 1) log_means``, a concave function
    whose Hessian is diagonal plus a constant, hence Newton in O(K) a step (Blei, Ng and Jordan
    2003). Entries at the floor whose gradient is negative stay there; a step that gains nothing is halved.
    With a single cluster alpha stays.
    """
    if alpha.size == 1:
        return alpha
    alpha = np.maximum(alpha, ALPHA_FLOOR)
    value = _alpha_value(alpha, log_means, n)
    for _ in range(100):
        gradient, step = _newton_step(alpha, log_means, n)
        if gradient @ step <= 1e-12 * n:  # predicted, relative to the number of objects
            break
        length = 1.0
        while length > 1e-12:
            candidate = np.maximum(alpha + length * step, ALPHA_FLOOR)
            new_value = _alpha_value(candidate, log_means, n)
            if new_value > value:
                break
            length /= 2
        else:
            break
        alpha, value = candidate, new_value
    return alpha


def _newton_step(alpha: np.ndarray, log_means: np.ndarray, n: float) -> tuple[np.ndarray, np.ndarray]:
    """Return gradient and Newton step over the entries that may move; a step from the floor goes upwards."""
    from scipy.special import digamma, polygamma

    gradient = n * (digamma(alpha.sum()) - digamma(alpha)) + log_means
    diagonal = -n * polygamma(1, alpha)
    constant = n * polygamma(1, alpha.sum())
    at_floor = alpha <= ALPHA_FLOOR
    free = ~at_floor | (gradient > 0)
    step = np.zeros_like(alpha)
    while free.any():
        g, d = gradient[free], diagonal[free]
        step[:] = 0.0
        step[free] = ((g / d).sum() / (1.0 / constant + (1.0 / d).sum()) - g) / d
        blocked = free & at_floor & (step <= 0)
        if not blocked.any():
            break
        free &= ~blocked
    return gradient * free, step * free


def _alpha_value(alpha: np.ndarray, log_means: np.ndarray, n: float) -> float:
    return n * log_normalizer(alpha) + float((alpha - 1.0) @ log_means)


def log_normalizer(alpha: np.ndarray) -> float:
    """Return the logarithm of the normalizer of the Dirichlet distribution."""
    from scipy.special import gammaln

    return float(gammaln(alpha.sum()) - gammaln(alpha).sum())


# By collapsed Gibbs sampling


class GibbsBCE(ConsensusClusterer):
    """Bayesian cluster ensembles by collapsed Gibbs sampling.

    The model of `BCE` with fixed symmetric priors: proportions and label probabilities are integrated out,
    and the cluster of every label is sampled given the clusters of all others. Missing labels have no
    cluster.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters, at most 256. "auto": by `bigcons.choose_n_clusters`.
    n_init : int, default=4
        Number of chains, of which the most likely is kept. Samples are averaged within a chain only, since
        chains number their clusters differently.
    burn_in : int, default=100
        Number of sweeps before the first sample.
    n_samples : int, default=100
        Number of sweeps after the burn-in, each of which is a sample.
    alpha : float or "auto", default="auto"
        Parameter of the Dirichlet prior of the proportions, which counts like ``alpha`` labels in each
        cluster. The paper gives no value. 1, which is uniform, outweighs the labels of objects that have few:
        "auto" is ``m / (4 K)`` for a mean of m labels per object, a quarter of their weight, and at most 1.
    omega : float or "auto", default="auto"
        The same for the label probabilities: counts like ``omega`` objects with each label in each cluster.
        "auto" is a quarter of the mean number of labels of a base cluster in a cluster, and at most 1.
    init : {"partition", "random"}, default="partition"
        "partition": all labels of an object begin in its cluster in one base partition (intersected with
        others until there are enough clusters). "random": every label begins in a random cluster.
    resume : bool, default=True
        Whether a repeated call finds its finished result at ``out``.
    random_state : int, RandomState, Generator or None, default=None
        Seed; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Budget such as "2GB"; a fit that would need more is refused before it starts. By default
        labels, clusters and samples may take 4 GB.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects that no partition labeled
    memberships_ : (n_objects, n_clusters) float32, mean share of each cluster in the labels of the object
    alpha_, omega_ : the priors used
    objective_ : log-likelihood of labels and clusters, mean over the samples of the chain kept
    start_objectives_ : the same of every chain
    history_ : the log-likelihood after each sweep of the chain kept
    n_clusters_

    Notes
    -----
    O(n M K) time a sweep. A chain holds n M bytes for labels, as much for clusters, and 4 n K; the engine
    runs chains side by side.

    References
    ----------
    Wang, Shan and Banerjee (2009), *Bayesian cluster ensembles*. "x_ij | z ~ Dirichlet" there
    should read Discrete; ``n_hj`` counts partition ``j`` only, as the normalizer ``k_j omega`` requires.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.GibbsBCE(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        "Wang, Shan and Banerjee 2009", "labels", soft=True, out_of_core=False
    )
    chooses: ClassVar[bool] = True

    n_init: int = 4
    burn_in: int = 100
    n_samples: int = 100
    alpha: float | str = "auto"
    omega: float | str = "auto"
    init: str = "partition"

    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        check_int("n_init", self.n_init)
        check_int("n_clusters", self.n_clusters, at_most=256)  # stored in a byte
        check_int("burn_in", self.burn_in, at_least=0)
        check_int("n_samples", self.n_samples)
        check_choice("init", self.init, ("partition", "random"))
        for name in ("alpha", "omega"):
            if getattr(self, name) != "auto":
                check_number(name, getattr(self, name), above=0.0)
        n, K = ensemble.n_objects, self.n_clusters
        remedy = ", run fewer chains at a time by client='serial', or use BCE"
        chain = label_bytes(ensemble, n) + n * ensemble.n_partitions + 4 * n * K
        plan = MemoryPlan(held=12 * n * K, per_block=chain, per_result=4 * n * K)
        plan.check("GibbsBCE", engine, ensemble, self.memory, remedy, limit=DEFAULT_DATA_BYTES)
        survey = take_survey(ensemble, engine, seed, 0)
        cells = (n - survey.unlabeled.size) * K, ensemble.n_base_clusters * K
        # "auto" counts a quarter as much as labels spread over so many cells, or 1
        autos = (min(1.0, int(ensemble.n_labeled.sum()) / (4.0 * size)) for size in cells)
        pairs = zip((self.alpha, self.omega), autos, strict=True)
        alpha, omega = (auto if prior == "auto" else float(prior) for prior, auto in pairs)
        steps = self.burn_in, self.n_samples
        sampler = Sampler(K, *steps, alpha, omega, self.init, seed)

        def run(number: int) -> tuple[float, list[float], np.ndarray]:
            return sampler.run(ensemble.read(0, n), ensemble.offsets, number)

        chains = map_with_progress(engine, run, range(self.n_init), "GibbsBCE", "chains")
        (_, best), starts = best_start(chains, lambda numbered: numbered[1][0])
        self.start_objectives_: list[float] = starts
        mean, log_likelihoods, memberships = best
        self.alpha_: float = alpha
        self.omega_: float = omega
        self.objective_: float = mean
        sweeps = [float(number) for number in range(1, len(log_likelihoods) + 1)]
        self.history_: dict[str, list[Any]] = {"sweep": sweeps, "objective": log_likelihoods}
        self._publish(ensemble, memberships, survey.unlabeled, out)


class Sampler(NamedTuple):
    """The parameters of a chain."""

    n_clusters: int
    burn_in: int
    n_samples: int
    alpha: float
    omega: float
    init: str
    seed: int

    def run(
        self, labels: np.ndarray, offsets: np.ndarray, number: int
    ) -> tuple[float, list[float], np.ndarray]:
        """Run chain ``number`` on labels (n, M) by exact sweeps.

        Return the mean log-likelihood of the labels and their clusters over the samples, that after every
        sweep, and the shares (n, K) float32 of the clusters in the labels of each object, over the samples.
        """
        draw = generator(self.seed, "bce.gibbs", number)
        if self.init == "random":
            z = draw.integers(self.n_clusters, size=labels.shape, dtype=np.uint8)
        else:  # every label begins in the cluster of its object in a base partition
            clusters = first_partition(labels, self.n_clusters, self.seed, number)
            undecided = clusters < 0
            clusters[undecided] = draw.integers(self.n_clusters, size=np.count_nonzero(undecided))
            z = np.repeat(clusters.astype(np.uint8)[:, None], labels.shape[1], axis=1)
        random = draw.integers(2**64, size=1, dtype=np.uint64)
        by_label = np.zeros((int(offsets[-1]), self.n_clusters))
        by_partition = np.zeros((labels.shape[1], self.n_clusters))
        gibbs.count(labels, offsets, z, by_label, by_partition)
        sums = np.zeros((len(labels), self.n_clusters), np.float32)
        log_likelihoods = []
        for sweep in range(self.burn_in + self.n_samples):
            stop_if_cancelled()
            tables, keep = (by_label, by_partition), sweep >= self.burn_in
            gibbs.sweep(labels, offsets, z, *tables, self.alpha, self.omega, sums, keep, random)
            log_likelihoods.append(self.log_likelihood(labels, offsets, z, *tables))
        shares = np.divide(sums, np.maximum(sums.sum(axis=1, keepdims=True), 1), out=sums)
        return float(np.mean(log_likelihoods[self.burn_in :])), log_likelihoods, shares

    def log_likelihood(
        self, labels: np.ndarray, offsets: np.ndarray, z: np.ndarray, *tables: np.ndarray
    ) -> float:
        """Return ``log p(labels, z)``, proportions and label probabilities integrated out."""
        from scipy.special import gammaln

        K, n_labels, (by_label, by_partition) = self.n_clusters, (labels >= 0).sum(axis=1), tables
        log_gammas = gammaln(self.alpha + np.arange(labels.shape[1] + 1.0)) - gammaln(self.alpha)
        proportions = gibbs.log_prior(labels, z, log_gammas, K)
        proportions += (gammaln(K * self.alpha) - gammaln(K * self.alpha + n_labels)).sum()
        sizes = np.diff(offsets)[:, None] * self.omega
        probabilities = (gammaln(sizes) - gammaln(sizes + by_partition)).sum()
        probabilities += (gammaln(self.omega + by_label) - gammaln(self.omega)).sum()
        return float(proportions) + float(probabilities)


# The mixture of multinomials

# Added to every expected label count, and to the expected sizes of the mixture.
SMOOTHING = 1e-6


class MixtureProblem(Method):
    """Objects drawn from ``K`` clusters, each with its own distribution over the labels of each partition.

    ``P(y_i) = sum_k a_k prod_j theta_kj(y_ij)`` over the observed labels. A state is ``log theta`` (B,
    padded columns) and ``log a`` (columns,), a column for each cluster and, with ``background``, a last one
    whose ``theta`` are the label frequencies among all objects.
    """

    name = "mixture"

    def __init__(self, offsets: np.ndarray, n_clusters: int, init: str, *, background: bool) -> None:
        self.offsets = offsets
        self.n_clusters = n_clusters
        self.init = init
        self.background = background
        self.n_columns: int = n_clusters + background

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, None]:
        """Return the state that follows from responsibilities from a base partition or drawn at random."""
        K = self.n_clusters
        T, sizes = self._zeros()
        r = np.zeros((len(labels), T.shape[1]))
        if self.init == "partition":
            assigned = first_partition(labels, K, seed, number)
            r[:, :K] = (1 - CERTAINTY) / K
            r[assigned >= 0, assigned[assigned >= 0]] += CERTAINTY
        else:
            r[:, :K] = generator(seed, "mixture.start", number).dirichlet(np.ones(K), len(labels))
        sizes[:K] = r[:, :K].sum(axis=0)
        self._add_background(sizes)
        count_shares(labels, self.offsets, r, T)
        return self.state(T, sizes), None

    def block_stats(
        self,
        state: State,
        labels: np.ndarray,
        carried: np.ndarray | None = None,  # noqa: ARG002
    ) -> tuple[Stats, None]:
        """Take the E-step of a block."""
        T, sizes = self._zeros()
        totals = np.zeros(4)
        respond(labels, self.offsets, state["table"], state["bias"], T, sizes, totals)
        return {"T": T, "sizes": sizes, "totals": totals}, None

    def finish(self, state: State, stats: Stats) -> tuple[State, Record]:  # noqa: ARG002
        """Take the M-step; the record is of the state before it."""
        record = {"objective": float(stats["totals"][0])}
        return self.state(stats["T"], stats["sizes"]), record

    def state(self, T: np.ndarray, sizes: np.ndarray) -> State:
        """Return the smoothed estimates from expected counts: T (B, padded columns) and sizes (columns,)."""
        counts, table = np.diff(self.offsets), np.zeros_like(T)
        expected = T[:, : self.n_columns].copy()
        if self.background:
            expected[:, -1] = expected.sum(axis=1)
        observed = np.add.reduceat(expected, self.offsets[:-1], axis=0)
        below = np.repeat(observed + SMOOTHING * counts[:, None], counts, axis=0)
        table[:, : self.n_columns] = np.log((expected + SMOOTHING) / below)
        bias = np.log((sizes + SMOOTHING) / (sizes.sum() + SMOOTHING * self.n_columns))
        return {"table": table, "bias": bias}

    def state_of_counts(self, counts: np.ndarray, sizes: np.ndarray) -> State:
        """Return the state of objects that are in their clusters by nine tenths, as in `start`."""
        K = self.n_clusters
        T, all_sizes = self._zeros()
        T[:, :K] = spread(counts, counts.sum(axis=1, keepdims=True))
        all_sizes[:K] = spread(sizes[None], sizes.sum(keepdims=True)[None])
        self._add_background(all_sizes)
        return self.state(T, all_sizes)

    def place(self, state: State, labels: np.ndarray, carried: np.ndarray | None = None) -> np.ndarray:  # noqa: ARG002
        """Return the responsibilities of the clusters, given that the object is not in the background."""
        K = self.n_clusters
        memberships = np.empty((labels.shape[0], K), np.float32)
        responsibilities(labels, self.offsets, state["table"], state["bias"][:K], memberships)
        return memberships

    def _add_background(self, sizes: np.ndarray) -> None:
        if self.background:
            sizes[-1] = 0.1 / (1 - 0.1) * sizes[:-1].sum()  # the initial share of the background

    def _zeros(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros((self.offsets[-1], padded(self.n_columns))), np.zeros(self.n_columns)


class MixtureModel(PassClusterer):
    """Mixture of multinomials: each cluster has its own distribution over the labels of each partition.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Maximum number of clusters; those that are most probable for no object stay empty.
        "auto": by `bigcons.choose_n_clusters`.
    init : {"partition", "dirichlet"}, default="partition"
        "partition": responsibilities give nine tenths to one base partition (intersected with others until
        there are enough clusters) and spread one tenth evenly. "dirichlet": drawn at random, as in the paper.
    background : bool, default=True
        Whether to add a component for objects that fit no cluster, whose label distributions are fixed at
        those of all objects. False is the paper's model. If some objects are much noisier than the rest, the
        likelihood of that model is highest if they have a cluster of their own and two true clusters are
        merged.
    max_iter : int, default=500
        Maximum number of passes.
    n_init : int, default=10
        Number of starts on a sample of at least 4,096 objects, of which the highest log-likelihood is kept.
        Ensembles of many small base clusters, or of so many partitions that the sample has above 4 million
        labels, start from k-means in the spectral embedding of `HBGF` instead, ``n_init`` times.
    tol : float, default=1e-6
        Relative gain of the objective at which to stop.
    resume : bool, default=True
        Whether to resume an interrupted solve to ``out``, with the same result as an uninterrupted one.
    random_state : int, RandomState, Generator or None, default=None
        Seed; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects that no partition labeled
    memberships_ : (n_objects, n_clusters) float32, posterior probabilities of the clusters, given that
        the object is not in the background
    background_share_ : share of the objects in the background, with ``background``
    objective_ : log-likelihood; no pass lowers it, except by the smoothing of 1e-6
    start_objectives_ : the objective of every start on its sample, when the best was chosen
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n M K) time a pass, O(B K) memory. Missing labels are left out of products and sums (missing at
    random). The paper adds expected counts for them in the M-step instead, which has the same fixed points
    but takes more passes.

    References
    ----------
    Topchy, Jain and Punch (2004), *A mixture model for clustering ensembles*.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]]
    >>> model = bc.MixtureModel(n_clusters=2, random_state=0).fit(labels)
    >>> model.labels_
    array([0, 0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.memberships_.round(2)[2]
    array([1., 0.], dtype=float32)
    """

    info: ClassVar[MethodInfo] = MethodInfo("Topchy, Jain and Punch 2004", "labels", soft=True)
    chooses: ClassVar[bool] = True

    init: str = "partition"
    background: bool = True
    max_iter: int = 500

    def _method(self, offsets: np.ndarray, n_clusters: int) -> MixtureProblem:
        check_choice("init", self.init, ("partition", "dirichlet"))
        background = check_flag("background", self.background)
        return MixtureProblem(offsets, n_clusters, self.init, background=background)

    def _set_results(self, records: list[Record], start_objectives: list[float], *, converged: bool) -> None:
        super()._set_results(records, start_objectives, converged=converged)
        if self.background and self._parts is not None:
            self.background_share_: float = float(np.exp(self._parts["bias"][-1]))
