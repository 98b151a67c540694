"""Bayesian cluster ensembles, the E-step: the variational fixed point of every object of a block.

Per object (Wang, Shan, Banerjee 2009, section 3), with ``beta[b]`` the probabilities of base cluster ``b``
under the K clusters and ``psi`` the digamma function, two updates alternate until they settle:

    phi_jk ~ exp(psi(gamma_k)) beta[b_j, k]   over k, for every label b_j of the object
    gamma_k = alpha_k + sum_j phi_jk

What is summed over the objects, the statistics and the lower bound, is of one and the same gamma and phi, and
gamma is rounded to the type it is kept in before they are formed. So a pass that begins from the gamma of the
one before begins exactly at the bound that one reported.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.kernels._jit import jit

# The argument is moved up by this much, to where seven terms of the asymptotic series give 2e-13.
SHIFT = 6.0

# Likelihoods multiplied under one logarithm: none is below 1e-30, so that no product of eight underflows.
FACTORS = 8


@jit
def log_excess(x):
    """Return ``log(x + SHIFT) - digamma(x)`` for x > 0, without a logarithm.

    Recurrence up to ``y = x + SHIFT``, its six reciprocals over one denominator, and the series at ``y``.
    """
    t = x * (x + 5.0)
    reciprocals = (2.0 * x + 5.0) * ((3.0 * t + 20.0) * t + 24.0) / (t * (t + 4.0) * (t + 6.0))
    r = 1.0 / (x + SHIFT)
    s = r * r
    tail = -691.0 / 32760.0 + s / 12.0
    tail = 1.0 / 132.0 + s * tail
    tail = -1.0 / 240.0 + s * tail
    tail = 1.0 / 252.0 + s * tail
    tail = -1.0 / 120.0 + s * tail
    tail = 1.0 / 12.0 + s * tail
    return reciprocals + 0.5 * r + s * tail


@jit
def digamma(x):
    """Return the digamma function of x > 0, to 1e-12 of the larger of itself and 1."""
    return math.log(x + SHIFT) - log_excess(x)


@jit
def e_step(labels, offsets, beta, alpha, gamma_old, gamma_new, counts, log_means, tol, max_steps):
    """Settle ``gamma`` of every object of a block; return the bound and how many objects have a label.

    labels (rows, M) with -1 missing; offsets (M+1,) int64; beta (B, K) float64, positive; alpha (K,) float64;
    gamma_old, gamma_new (rows, K) float32 or float64, may be one array. Adds ``phi`` to counts (B, K) and
    ``psi(gamma_k) - psi(sum gamma)`` to log_means (K,). An object is settled when gamma changes by at most
    ``tol`` of its sum, or after ``max_steps`` steps; one without labels keeps its gamma and counts nowhere.

    The bound lacks what is the same for all objects: ``lgamma(sum alpha) - sum lgamma(alpha)`` of each.
    Cost O(rows M K) for every step.
    """
    n_rows, M = labels.shape
    K = alpha.shape[0]
    base = np.empty(M, np.int64)
    likelihood = np.empty((K, M))  # clusters first: the loops over the labels then fill vector registers
    inverse = np.empty(M)
    gamma = np.empty(K)
    weight = np.empty(K)
    bound = 0.0
    n_labelled = 0
    for i in range(n_rows):
        m = gather(labels, i, offsets, beta, base, likelihood)
        for k in range(K):
            gamma[k] = gamma_old[i, k]
        if m > 0:
            settle(likelihood, m, alpha, gamma, weight, inverse, tol, max_steps)
        for k in range(K):
            gamma_new[i, k] = gamma[k]
            gamma[k] = gamma_new[i, k]
        if m == 0:
            continue
        n_labelled += 1
        highest = weigh(gamma, weight)
        normalise(likelihood, m, weight, inverse)
        for e in range(m):
            for k in range(K):
                counts[base[e], k] += weight[k] * likelihood[k, e] * inverse[e]
        bound += m * highest - sum_of_logs(inverse, m) + add_log_means(gamma, alpha, m, log_means)
    return bound, n_labelled


@jit
def gather(labels, i, offsets, beta, base, likelihood):
    """List the base clusters of object ``i`` and their probabilities; return how many labels it has."""
    m = 0
    for u in range(labels.shape[1]):
        if labels[i, u] >= 0:
            b = offsets[u] + labels[i, u]
            base[m] = b
            for k in range(beta.shape[1]):
                likelihood[k, m] = beta[b, k]
            m += 1
    return m


@jit
def settle(likelihood, m, alpha, gamma, weight, inverse, tol, max_steps):
    """Iterate ``gamma`` of one object in place until it changes by at most ``tol`` of its sum."""
    K = gamma.shape[0]
    for _ in range(max_steps):
        weigh(gamma, weight)
        normalise(likelihood, m, weight, inverse)
        change = 0.0
        total = 0.0
        for k in range(K):
            share = 0.0
            for e in range(m):
                share += likelihood[k, e] * inverse[e]
            updated = alpha[k] + weight[k] * share
            change += abs(updated - gamma[k])
            total += updated
            gamma[k] = updated
        if change <= tol * total:
            break


@jit
def weigh(gamma, weight):
    """Set ``weight`` to ``exp(psi(gamma))`` over its largest; return the logarithm of that."""
    top = 0
    for k in range(1, gamma.shape[0]):
        if gamma[k] > gamma[top]:
            top = k
    least = log_excess(gamma[top])
    for k in range(gamma.shape[0]):
        ratio = (gamma[k] + SHIFT) / (gamma[top] + SHIFT)
        weight[k] = ratio * math.exp(least - log_excess(gamma[k]))
    return math.log(gamma[top] + SHIFT) - least


@jit
def normalise(likelihood, m, weight, inverse):
    """Set ``inverse`` to ``1 / sum_k weight_k likelihood_k`` of every label."""
    for e in range(m):
        inverse[e] = weight[0] * likelihood[0, e]
    for k in range(1, weight.shape[0]):
        for e in range(m):
            inverse[e] += weight[k] * likelihood[k, e]
    for e in range(m):
        inverse[e] = 1.0 / inverse[e]


@jit
def sum_of_logs(x, m):
    """Return the sum of ``log(x[:m])``."""
    total = 0.0
    for start in range(0, m, FACTORS):
        product = 1.0
        for e in range(start, min(start + FACTORS, m)):
            product *= x[e]
        total += math.log(product)
    return total


@jit
def add_log_means(gamma, alpha, m, log_means):
    """Add the expected log theta of one object to ``log_means``; return what gamma alone gives the bound.

    With ``phi`` at its best for gamma, ``sum_k phi_jk (E_k + log beta_jk - log phi_jk)`` of a label is the
    logarithm of its normaliser; ``- m psi(sum gamma)`` completes that of the m labels.
    """
    total = 0.0
    for k in range(gamma.shape[0]):
        total += gamma[k]
    log_total = digamma(total)
    value = -math.lgamma(total) - m * log_total
    for k in range(gamma.shape[0]):
        log_mean = digamma(gamma[k]) - log_total
        log_means[k] += log_mean
        value += math.lgamma(gamma[k]) + (alpha[k] - gamma[k]) * log_mean
    return value
