"""Bayesian cluster ensembles by variational EM (Wang, Shan and Banerjee 2009).

Object ``i`` draws ``theta_i`` from a Dirichlet with parameters ``alpha (K,)``; for every partition ``u`` that
labeled it a cluster from ``theta_i``, and its label from that cluster's probabilities. ``beta (B, K)`` has
these: column ``k`` sums to 1 over the base clusters of each partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bigcons.kernels import bce as kernel
from bigcons.methods.base import MethodInfo
from bigcons.methods.first_clusters import expected_counts, first_partition, spread
from bigcons.methods.pass_clusterer import PassClusterer
from bigcons.run.passes import Method, Record, State, Stats
from bigcons.seeding import generator
from bigcons.store.ensemble import Ensemble
from bigcons.validation import check_choice, check_flag, check_number
from bigcons.weights import counts_of

# The fixed-point iteration of an object stops when a step changes gamma by less than this share of its sum,
# or after this many steps; the next pass continues from there.
E_STEP_TOL, E_STEPS = 1e-4, 100

# The smoothing and the alpha of a start from base partitions.
SMOOTHING, START_ALPHA = 0.1, 0.5

# The previous objective and the relaxation of the last step, of a state that has made none.
NO_STEP = (-np.inf, 1.0)


@dataclass(eq=False, repr=False, kw_only=True)
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
        Whether the Dirichlet prior of the proportions is estimated; otherwise it keeps its first value. On
        clean ensembles it tends to 0, where every object belongs to one cluster; it is kept above 0.001.
        Where objects have only a few, noisy labels, the bound may be highest at a large alpha, for which all
        objects are alike: then keep it (1,000 planted objects, 20 partitions, nine tenths missing: adjusted
        Rand index .42 without the update, 0 with it).
    smoothing : float, default=1e-6
        Added to every expected label count, so that no probability is zero.
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
    reinitialize gamma in every pass, which can lower the bound. Once a pass gains less than a thousandth of
    the objective, the M-step oversteps its maximum where the bound still rises (over-relaxed EM), which saves
    a third of the passes and leads to the same optima as plain EM. A start that has settled on the sample
    continues on all objects with a tenth of its label probabilities spread evenly over the labels.

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
    max_iter: int = 500

    def _method(self, ensemble: Ensemble) -> VariationalBCE:
        return VariationalBCE(
            ensemble.offsets,
            self.n_clusters,
            init=check_choice("init", self.init, ("partition", "random")),
            smoothing=check_number("smoothing", self.smoothing, at_least=1e-12),
            update_alpha=check_flag("update_alpha", self.update_alpha),
        )


class VariationalBCE(Method):
    """The E-step of a block and the M-step of its sums.

    The state is alpha (K,), beta (B, K) and the last step (2,): the objective before it and its relaxation.
    Objects carry gamma (K,), float32. The statistics of a block are ``K B + K`` sums, the number of its
    labeled objects and its part of the bound.
    """

    name = "BCE"

    def __init__(
        self, offsets: np.ndarray, n_clusters: int, *, init: str, smoothing: float, update_alpha: bool
    ) -> None:
        self.offsets = offsets
        self.n_carried = n_clusters
        self.init = init
        self.smoothing = smoothing
        self.update_alpha = update_alpha

    def start(self, labels: np.ndarray, seed: int, number: int) -> tuple[State, None]:
        """Return the first state of start ``number``, from rows of labels (rows, M)."""
        begin = partition_start if self.init == "partition" else random_start
        return begin(labels, self.offsets, self.n_carried, seed, number), None

    def state_of_counts(self, counts: np.ndarray, _sizes: np.ndarray) -> State:
        """Return the state of objects that are in their clusters by nine tenths, as in `partition_start`.

        Alpha begins at its least: it rises within a few passes where objects mix clusters, but falls by ever
        smaller steps where they do not.
        """
        expected = spread(counts, counts.sum(axis=1, keepdims=True))
        return state_of(expected, self.offsets, ALPHA_FLOOR if self.update_alpha else START_ALPHA)

    def for_all(self, state: State) -> State:
        """Return the state with a tenth of the probability of each cluster spread evenly over all labels.

        Those that the sample has driven to zero would take many passes to recover.
        """
        sizes = sums_by_partition(np.ones_like(state["beta"]), self.offsets)
        beta = 0.9 * state["beta"] + 0.1 / sizes
        return {"alpha": state["alpha"], "beta": beta, "step": np.array(NO_STEP)}

    def block_stats(
        self, state: State, labels: np.ndarray, carried: np.ndarray | None = None
    ) -> tuple[Stats, np.ndarray]:
        """Return the statistics of a block under ``state``, and its gamma (rows, K) float32."""
        parameters = Parameters(state["alpha"], state["beta"])
        gamma = first_gamma(labels, parameters.alpha) if carried is None else carried
        counts, log_means = np.zeros_like(parameters.beta), np.zeros_like(parameters.alpha)
        updated = np.empty_like(gamma)
        bound, n_labeled = kernel.e_step(
            *(labels, self.offsets, parameters.beta, parameters.alpha, gamma, updated, counts, log_means),
            *(E_STEP_TOL, E_STEPS),
        )
        stats = {
            "counts": counts,
            "log_means": log_means,
            "n_labeled": np.array(float(n_labeled)),
            "bound": np.array(bound),
        }
        return stats, updated

    def finish(self, state: State, stats: Stats) -> tuple[State, Record]:
        """Return the next state, and the bound of ``state``."""
        parameters, n_labeled = Parameters(state["alpha"], state["beta"]), float(stats["n_labeled"])
        value = objective(parameters, float(stats["bound"]), n_labeled, self.smoothing)
        relaxation = relaxation_of(float(state["step"][0]), value, float(state["step"][1]))
        following = m_step(
            *(parameters, stats["counts"], stats["log_means"], n_labeled, self.offsets),
            smoothing=self.smoothing,
            update_alpha=self.update_alpha,
            relaxation=relaxation,
        )
        record = {"objective": value, "sum_alpha": float(parameters.alpha.sum())}
        return {**following._asdict(), "step": np.array([value, relaxation])}, record

    def place(self, state: State, labels: np.ndarray, carried: np.ndarray | None = None) -> np.ndarray:
        """Return the expected proportions of a block."""
        return memberships_of(state, self.offsets, labels, carried)


def first_gamma(labels: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return the gamma (rows, K) float32 that favors no cluster: ``alpha + m_i / K`` (as the authors do)."""
    seen = (labels >= 0).sum(axis=1, keepdims=True)
    return (alpha + seen / alpha.size).astype(np.float32)


def memberships_of(
    state: State, offsets: np.ndarray, labels: np.ndarray, carried: np.ndarray | None
) -> np.ndarray:
    """Return the expected theta (rows, K) float32 of objects: ``gamma`` over its sum."""
    gamma = carried
    if gamma is None:
        alpha, beta = state["alpha"], state["beta"]
        gamma = first_gamma(labels, alpha)
        unused = np.zeros_like(beta), np.zeros_like(alpha)
        # new objects have no next pass
        kernel.e_step(labels, offsets, beta, alpha, gamma, gamma, *unused, 1e-6, 500)
    return gamma / gamma.sum(axis=1, keepdims=True)


def partition_start(
    labels: np.ndarray, offsets: np.ndarray, n_clusters: int, seed: int, number: int
) -> State:
    """Return a state from random base partitions, which leads to higher bounds than the authors' start.

    An object gives nine tenths to its cluster in `first_partition`; undecided ones are spread evenly.
    """
    clusters = first_partition(labels, n_clusters, seed, number)
    expected, _ = expected_counts(labels, offsets, clusters, n_clusters)
    return state_of(expected, offsets)


def state_of(expected: np.ndarray, offsets: np.ndarray, alpha: float = START_ALPHA) -> State:
    """Return the state that starts from expected label counts (B, K)."""
    beta = label_probabilities(expected + SMOOTHING, offsets)
    return {"alpha": np.full(expected.shape[1], alpha), "beta": beta, "step": np.array(NO_STEP)}


def random_start(labels: np.ndarray, offsets: np.ndarray, n_clusters: int, seed: int, number: int) -> State:
    """Return a state as the authors' code draws it: alpha from the spacings of [0, 1], beta from Dirichlet
    distributions with the label frequencies as parameters.
    """
    draw = generator(seed, "bce.start", number)
    alpha = np.diff(np.sort(draw.random(n_clusters - 1)), prepend=0.0, append=1.0)
    sizes, _ = counts_of(labels, offsets, np.zeros(labels.shape[0], np.int32), 1)
    frequencies = label_probabilities(sizes + 1e-6, offsets)
    beta = draw.standard_gamma(np.repeat(frequencies, n_clusters, axis=1)) + 1e-6  # above zero
    return {
        "alpha": np.maximum(alpha, ALPHA_FLOOR),
        "beta": label_probabilities(beta, offsets),
        "step": np.array(NO_STEP),
    }


# The M-step

# On clean ensembles alpha tends to zero, and the model degenerates to a mixture of multinomials.
ALPHA_FLOOR = 1e-3

# Over-relaxation: the step in log parameters as a multiple of that to the maximum of the M-step. 1 is plain
# EM; near a quadratic maximum any step up to 2 gains. Far from one, oversteps lead to lower optima: of 160
# starts on planted and real ensembles, 29 ended more than 1e-4 lower and 9 higher than by plain EM. Hence the
# steps are plain until a pass gains less than this share of the objective (0 lower, 4 higher), which keeps
# four fifths of the passes saved (benchmarks/bce_paper.py).
RELAXATION, SETTLING_GAIN = 1.7, 1e-3


class Parameters(NamedTuple):
    """The parameters that all objects share."""

    alpha: np.ndarray
    """(K,) float64."""
    beta: np.ndarray
    """(B, K) float64."""


def m_step(
    parameters: Parameters,
    counts: np.ndarray,
    log_means: np.ndarray,
    n_labeled: float,
    offsets: np.ndarray,
    *,
    smoothing: float,
    update_alpha: bool,
    relaxation: float = 1.0,
) -> Parameters:
    """Return parameters that raise bound + ``smoothing`` * sum log beta for fixed gamma and phi.

    counts (B, K) are the summed ``phi``, log_means (K,) the summed expectations of log theta: all that the
    paper's Newton iterations for alpha need. The paper takes the maximum, as does ``relaxation`` 1; above 1
    this oversteps it where the bound still rises (over-relaxed, hence generalized, EM).
    """
    alpha, beta = parameters
    if update_alpha:
        alpha = further_alpha(alpha, log_means, n_labeled, relaxation)
    return Parameters(alpha, further_probabilities(beta, counts + smoothing, offsets, relaxation))


def relaxation_of(previous: float, objective: float, relaxation: float) -> float:
    """Return the relaxation of the step after a pass that raised the objective from ``previous``.

    1 until the gain is small, then `RELAXATION` for good; ``relaxation`` is that of the step before.
    """
    is_settling = objective - previous < SETTLING_GAIN * abs(objective)
    return RELAXATION if is_settling or relaxation > 1.0 else 1.0


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
    beyond = best * np.maximum((best / beta) ** (relaxation - 1.0), 0.001)
    beyond = label_probabilities(beyond, offsets)
    gains = sums_by_partition(counts * np.log(beyond / beta), offsets)
    return np.where(gains >= 0, beyond, best)


def further_alpha(alpha: np.ndarray, log_means: np.ndarray, n: float, relaxation: float) -> np.ndarray:
    """Return `best_alpha`, overstepped to ``relaxation`` times the way from ``alpha`` if the bound rises."""
    best = best_alpha(alpha, log_means, n)
    if relaxation == 1.0:
        return best
    beyond = np.maximum(best * (best / alpha) ** (relaxation - 1.0), ALPHA_FLOOR)
    return beyond if _alpha_value(beyond, log_means, n) >= _alpha_value(alpha, log_means, n) else best


def label_probabilities(counts: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return counts (B, K) over their sums within each partition."""
    return counts / sums_by_partition(counts, offsets)


def sums_by_partition(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return for each row of values (B, K) the sum over the base clusters of its partition, (B, K)."""
    sums = np.empty(values.shape)
    kernel.sum_partitions(values, offsets, sums)
    return sums


def objective(parameters: Parameters, bound: float, n_labeled: float, smoothing: float) -> float:
    """Return the lower bound of all objects plus ``smoothing`` * sum log beta.

    ``bound`` as the E-step sums it, without the normalizer of the Dirichlet prior. The second part is the
    prior that adding ``smoothing`` to the counts stands for: with it no iteration lowers the objective.
    """
    normalizer = n_labeled * log_normalizer(parameters.alpha)
    return float(bound + normalizer + smoothing * np.log(parameters.beta).sum())


def best_alpha(alpha: np.ndarray, log_means: np.ndarray, n: float, floor: float = ALPHA_FLOOR) -> np.ndarray:
    """Return the alpha >= ``floor`` that gives the bound its maximum.

    It maximizes ``n (lgamma(sum alpha) - sum lgamma(alpha)) + sum (alpha - 1) log_means``, a concave function
    whose Hessian is diagonal plus a constant, hence Newton in O(K) a step (Blei, Ng and Jordan
    2003). Entries at the floor whose gradient is negative stay there; a step that gains nothing is halved.
    With a single cluster alpha stays.
    """
    if alpha.size == 1:
        return alpha
    alpha = np.maximum(alpha, floor)
    value = _alpha_value(alpha, log_means, n)
    for _ in range(100):
        gradient, step = _newton_step(alpha, log_means, n, floor)
        if gradient @ step <= 1e-12 * n:  # predicted, relative to the number of objects
            break
        length = 1.0
        while length > 1e-12:
            candidate = np.maximum(alpha + length * step, floor)
            reached = _alpha_value(candidate, log_means, n)
            if reached > value:
                break
            length /= 2
        else:
            break
        alpha, value = candidate, reached
    return alpha


def _newton_step(
    alpha: np.ndarray, log_means: np.ndarray, n: float, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return gradient and Newton step over the entries that may move; a step from the floor goes upwards."""
    from scipy.special import digamma, polygamma

    gradient = n * (digamma(alpha.sum()) - digamma(alpha)) + log_means
    diagonal = -n * polygamma(1, alpha)
    constant = n * polygamma(1, alpha.sum())
    at_floor = alpha <= floor
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
