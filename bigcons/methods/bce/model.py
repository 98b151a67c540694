"""Bayesian cluster ensembles: the parameters, and the M-step that follows from summed statistics.

Object ``i`` draws ``theta_i`` from a Dirichlet with parameters ``alpha (K,)``; for every partition ``u`` that
labeled it a cluster from ``theta_i``, and its label from that cluster's probabilities. ``beta (B, K)`` has
these: column ``k`` sums to 1 over the base clusters of each partition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.kernels import bce as kernel

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
