"""Bayesian cluster ensembles: the parameters, and the M-step that follows from summed statistics.

Object ``i`` draws ``theta_i`` from a Dirichlet with parameters ``alpha (K,)``; for every partition ``u`` that
labelled it a cluster from ``theta_i``, and its label from that cluster's probabilities. ``beta (B, K)`` has
these: column ``k`` sums to 1 over the base clusters of each partition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# On clean ensembles alpha runs towards zero and the model degenerates to a mixture of multinomials.
ALPHA_FLOOR = 1e-3

NEWTON_STEPS = 100
# Newton stops when what it can still gain is below this share of the number of objects.
NEWTON_GAIN = 1e-12


class Parameters(NamedTuple):
    """What all objects share."""

    alpha: np.ndarray
    """(K,) float64."""
    beta: np.ndarray
    """(B, K) float64."""


def m_step(
    parameters: Parameters,
    counts: np.ndarray,
    log_means: np.ndarray,
    n_labelled: float,
    offsets: np.ndarray,
    *,
    lap: float,
    update_alpha: bool,
) -> Parameters:
    """Return the parameters that maximise bound + ``lap`` * sum log beta for fixed gamma and phi.

    counts (B, K) are the summed ``phi``, log_means (K,) the summed expectations of log theta (equations for
    the M-step in section 3.2). The paper's Newton iterations for alpha need nothing else of the objects.
    """
    alpha = best_alpha(parameters.alpha, log_means, n_labelled) if update_alpha else parameters.alpha
    return Parameters(alpha, label_probabilities(counts + lap, offsets))


def label_probabilities(counts: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return counts (B, K) over their sums within each partition."""
    partition = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    totals = np.zeros((offsets.size - 1, counts.shape[1]))
    np.add.at(totals, partition, counts)
    return counts / totals[partition]


def objective(parameters: Parameters, bound: float, n_labelled: float, lap: float) -> float:
    """Return the lower bound of all objects plus ``lap`` * sum log beta.

    ``bound`` as the E-step sums it, without the normaliser of the Dirichlet prior. The second part is the
    prior that adding ``lap`` to the counts stands for: with it no iteration lowers the objective.
    """
    normaliser = n_labelled * log_normaliser(parameters.alpha)
    return float(bound + normaliser + lap * np.log(parameters.beta).sum())


def best_alpha(alpha: np.ndarray, log_means: np.ndarray, n: float, floor: float = ALPHA_FLOOR) -> np.ndarray:
    """Return the alpha >= ``floor`` that gives the bound its maximum.

    It maximises ``n (lgamma(sum alpha) - sum lgamma(alpha)) + sum (alpha - 1) log_means``, a concave function
    whose Hessian is diagonal plus a constant, hence Newton in O(K) a step (appendix A.2 of Blei, Ng, Jordan
    2003). Entries at the floor that want to go lower are left there; a step that gains nothing is halved.
    Where a single cluster leaves nothing to choose, alpha stays.
    """
    if alpha.size == 1:
        return alpha
    alpha = np.maximum(alpha, floor)
    value = _alpha_value(alpha, log_means, n)
    for _ in range(NEWTON_STEPS):
        gradient, step = _newton_step(alpha, log_means, n, floor)
        if gradient @ step <= NEWTON_GAIN * n:
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
    return n * log_normaliser(alpha) + float((alpha - 1.0) @ log_means)


def log_normaliser(alpha: np.ndarray) -> float:
    """Return the logarithm of the normaliser of the Dirichlet distribution."""
    from scipy.special import gammaln

    return float(gammaln(alpha.sum()) - gammaln(alpha).sum())
