"""Bayesian cluster ensembles, the E-step: the variational fixed point of every object of a block.

Per object (Wang, Shan, Banerjee 2009), with ``beta[b]`` the probabilities of base cluster ``b``
under the K clusters and ``psi`` the digamma function, two updates alternate until convergence:

    phi_jk ~ exp(psi(gamma_k)) beta[b_j, k]   over k, for every label b_j of the object
    gamma_k = alpha_k + sum_j phi_jk

The statistics and the lower bound summed over the objects use the same gamma and phi, and gamma is first
rounded to the type it is stored in. So a pass that starts from the gamma of the previous pass starts exactly
at the bound that pass reported.

Rows of beta and all arrays with an entry per cluster are padded to whole vectors, beta with zeros and gamma
with ones. With ``y = gamma + SHIFT`` the functions of gamma are

    psi(gamma) = log y - excess(gamma)
    lgamma(gamma) = (y - 1/2) log y + stirling(gamma) - log(gamma (gamma + 1) ... (gamma + 5))

The weights ``exp(psi)`` need no logarithm; most of the other logarithms are taken of products. Where beta
exceeds the cache, many objects take every step together, a slice of the partitions after the other.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import (
    WIDTH,
    add_products8,
    add_times8,
    empty,
    flat,
    load8,
    power_of_two,
    store8,
    sum8,
    zero8,
    zeros,
)
from bigcons.kernels.cluster_tables import end_of_slice, find_rows, padded_leaf, rows_together

# Arguments are shifted by this much, to where a few terms of the asymptotic series give 2e-13.
SHIFT = 6.0

# Factors under one logarithm: likelihoods are above 1e-30, those of gamma below 1e36 up to a million labels.
FACTORS = 8


@leaf
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


@leaf
def digamma(x):
    """Return the digamma function of x > 0; absolute error up to 1e-12, relative error where it exceeds 1."""
    return math.log(x + SHIFT) - log_excess(x)


@leaf
def stirling(x):
    """Return ``lgamma(y) - (y - 1/2) log y`` for ``y = x + SHIFT``."""
    y = x + SHIFT
    r = 1.0 / y
    s = r * r
    tail = -691.0 / 360360.0 + s / 156.0
    tail = 1.0 / 1188.0 + s * tail
    tail = -1.0 / 1680.0 + s * tail
    tail = 1.0 / 1260.0 + s * tail
    tail = -1.0 / 360.0 + s * tail
    tail = 1.0 / 12.0 + s * tail
    return r * tail - y + 0.5 * math.log(2.0 * math.pi)


@leaf
def rising(x):
    """Return ``x (x + 1) ... (x + 5)``, which is ``gamma(x + SHIFT) / gamma(x)``."""
    t = x * (x + 5.0)
    return t * (t + 4.0) * (t + 6.0)


@leaf
def exp_below_zero(x):
    """Return exp(x) to a relative 1e-13; x is clipped to [-700, 0]."""
    x = min(max(x, -700.0), 0.0)
    log_2 = math.log(2.0)
    n = np.floor(x / log_2 + 0.5)
    r = x - n * log_2
    tail = 1.0 / 39916800.0
    tail = 1.0 / 3628800.0 + r * tail
    tail = 1.0 / 362880.0 + r * tail
    tail = 1.0 / 40320.0 + r * tail
    tail = 1.0 / 5040.0 + r * tail
    tail = 1.0 / 720.0 + r * tail
    tail = 1.0 / 120.0 + r * tail
    tail = 1.0 / 24.0 + r * tail
    tail = 1.0 / 6.0 + r * tail
    tail = 0.5 + r * tail
    return (1.0 + r * (1.0 + r * tail)) * power_of_two(n)


@jit
def e_step(labels, offsets, beta, alpha, gamma_old, gamma_new, counts, log_means, tol, max_steps):
    """Converge ``gamma`` of every object of a block; return the bound and the number of objects with a label.

    labels (rows, M) with -1 missing; offsets (M+1,) int64; beta (B, K) float64, positive; alpha (K,) float64;
    gamma_old, gamma_new (rows, K) float32 or float64, may be one array. Adds ``phi`` to counts (B, K) and
    ``psi(gamma_k) - psi(sum gamma)`` to log_means (K,). An object is done when gamma changes by at most
    ``tol`` of its sum, or after ``max_steps`` steps; objects without labels keep their gamma and are not
    counted.

    The bound omits the constant ``lgamma(sum alpha) - sum lgamma(alpha)`` of each object. Cost O(rows M K)
    per step.
    """
    n_rows, M = labels.shape
    B, K = beta.shape
    width = padded_leaf(K)
    padded_beta = zeros((B, width), np.float64)
    for b in range(B):
        for k in range(K):
            padded_beta[b, k] = beta[b, k]
    table = flat(padded_beta)
    shares = zeros(B * width, np.float64)  # phi without its factor beta
    prior = np.ones(width)
    for k in range(K):
        prior[k] = alpha[k]
    at = empty(M, np.uint64)
    inverse = empty(M, np.float64)
    batch = rows_together(n_rows, offsets, width, 0)
    n_labels = empty(batch, np.int64)
    gamma = np.ones((batch, width))
    weight, total = empty((batch, width), np.float64), empty((batch, width), np.float64)
    excess = empty(width, np.float64)
    product = np.ones(width)
    log_y = zeros(width, np.float64)
    log_theta = zeros(width, np.float64)
    bound = 0.0
    n_labeled = 0
    for start in range(0, n_rows, batch):
        n = min(batch, n_rows - start)
        for r in range(n):
            n_labels[r] = find_rows(labels, start + r, 0, M, offsets, width, at)
            for k in range(K):
                gamma[r, k] = gamma_old[start + r, k]
        settle(
            *(labels, start, n, offsets, table, at, n_labels, prior, K, gamma, weight, total, excess),
            *(inverse, tol, max_steps),
        )
        for r in range(n):
            for k in range(K):
                gamma_new[start + r, k] = gamma[r, k]
                gamma[r, k] = gamma_new[start + r, k]
            if n_labels[r] == 0:
                continue
            n_labeled += 1
            bound -= n_labels[r] * weigh(gamma[r], K, weight[r], excess)
            bound += add_log_theta(gamma[r], K, prior, excess, n_labels[r], log_theta)
            multiply(product, gamma[r])
            if n_labeled % FACTORS == 0:
                take_logs(product, log_y)
        first = 0
        while first < M:
            last = M if batch == 1 else end_of_slice(offsets, first, width, 0)
            for r in range(n):
                m = n_labels[r]
                if batch > 1:
                    m = find_rows(labels, start + r, first, last, offsets, width, at)
                invert(table, at, m, weight[r], inverse)
                add_shares(shares, at, m, weight[r], inverse)
                bound -= sum_of_logs(inverse, m)
            first = last
    take_logs(product, log_y)
    for k in range(K):
        bound += (alpha[k] + SHIFT - 0.5) * log_y[k]
        log_means[k] += log_y[k] + log_theta[k]
    for b in range(B):
        for k in range(K):
            counts[b, k] += beta[b, k] * shares[b * width + k]
    return bound, n_labeled


@jit
def sum_partitions(values, offsets, sums):
    """Set every row of ``sums`` (B, K) to the sum of the rows of ``values`` (B, K) of its partition."""
    total = empty(values.shape[1], np.float64)
    for u in range(offsets.shape[0] - 1):
        total[:] = 0.0
        for b in range(offsets[u], offsets[u + 1]):
            for k in range(total.shape[0]):
                total[k] += values[b, k]
        for b in range(offsets[u], offsets[u + 1]):
            for k in range(total.shape[0]):
                sums[b, k] = total[k]


@leaf
def settle(
    labels, start, n, offsets, table, at, n_labels, prior, K, gamma, weight, total, excess, inverse,
    tol, max_steps,
):  # fmt: skip
    """Iterate ``gamma[:n]`` of objects from ``start`` on until each changes by at most ``tol`` of its sum.

    The objects visit a slice of the partitions after the other; a single one may visit all at once, and
    ``at`` then lists its rows of the flat ``table`` of beta. ``weight`` and ``total`` are work arrays like
    ``gamma``; meanwhile ``n_labels`` of an object that has settled is negative.
    """
    M, width, n_left = labels.shape[1], gamma.shape[1], n
    by_slices = len(gamma) > 1
    for r in range(n):
        n_left -= n_labels[r] == 0
    for _ in range(max_steps):
        if n_left == 0:
            break
        for r in range(n):
            if n_labels[r] > 0:
                weigh(gamma[r], K, weight[r], excess)
                for k in range(width):
                    total[r, k] = 0.0
        first = 0
        while first < M:
            last = end_of_slice(offsets, first, width, 0) if by_slices else M
            for r in range(n):
                if n_labels[r] > 0:
                    m = n_labels[r]
                    if by_slices:
                        m = find_rows(labels, start + r, first, last, offsets, width, at)
                    invert(table, at, m, weight[r], inverse)
                    add_rows_times(table, at, m, inverse, total[r])
            first = last
        for r in range(n):
            if n_labels[r] <= 0:
                continue
            change = 0.0
            new_sum = 0.0
            for k in range(width):
                updated = prior[k] + weight[r, k] * total[r, k]
                change += abs(updated - gamma[r, k])
                new_sum += updated
                gamma[r, k] = updated
            if change <= tol * (new_sum - (width - K)):
                n_labels[r] = -n_labels[r]
                n_left -= 1
    for r in range(n):
        n_labels[r] = abs(n_labels[r])


@leaf
def weigh(gamma, K, weight, excess):
    """Set ``weight`` to ``exp(psi(gamma) + e)``, ``excess`` to `log_excess`; return ``e``, its least."""
    for k in range(gamma.shape[0]):
        excess[k] = log_excess(gamma[k])
    lowest = excess[0]
    for k in range(1, K):
        lowest = min(lowest, excess[k])
    for k in range(gamma.shape[0]):
        weight[k] = (gamma[k] + SHIFT) * exp_below_zero(lowest - excess[k])
    return lowest


@leaf
def invert(table, at, m, weight, inverse):
    """Set ``inverse`` to ``1 / sum_k weight_k beta_k`` of every label."""
    for e in range(m):
        total = zero8()
        for k in range(0, weight.shape[0], WIDTH):
            column = np.uint64(k)
            total = add_products8(total, load8(weight, column), load8(table, at[e] + column))
        inverse[e] = sum8(total)
    for e in range(m):
        inverse[e] = 1.0 / inverse[e]


@leaf
def add_rows_times(table, at, m, factors, sums):
    """Add the rows of the labels, times their factors, to ``sums``."""
    for k in range(0, sums.shape[0], WIDTH):
        column = np.uint64(k)
        total = load8(sums, column)
        for e in range(m):
            total = add_times8(total, load8(table, at[e] + column), factors[e])
        store8(sums, column, total)


@leaf
def add_shares(shares, at, m, weight, inverse):
    """Add ``phi / beta`` of every label to its row of the flat ``shares``."""
    for k in range(0, weight.shape[0], WIDTH):
        column = np.uint64(k)
        values = load8(weight, column)
        for e in range(m):
            entry = at[e] + column
            store8(shares, entry, add_times8(load8(shares, entry), values, inverse[e]))


@leaf
def sum_of_logs(x, m):
    """Return the sum of ``log(x[:m])``."""
    total = 0.0
    n_whole = m // FACTORS * FACTORS
    for start in range(0, n_whole, FACTORS):
        product = 1.0
        for e in range(FACTORS):
            product *= x[start + e]
        total += math.log(product)
    product = 1.0
    for e in range(n_whole, m):
        product *= x[e]
    return total + math.log(product)


@jit  # not a leaf: its sum is rounded apart from those that it is added to
def add_log_theta(gamma, K, prior, excess, m, log_theta):
    """Add the expectation of one object to ``log_theta``; return the terms of the bound in gamma alone.

    Both omit their ``log y``: one summand of the first, and ``alpha_k + SHIFT - 1/2`` times it in the second.

    With the optimal ``phi`` for gamma, ``sum_k phi_jk (E_k + log beta_jk - log phi_jk)`` of a label is the
    logarithm of its normalizer; ``- m psi(sum gamma)`` completes that of the m labels. The remaining terms
    are

        sum_k (lgamma(gamma_k) + (alpha_k - gamma_k) psi(gamma_k))
        - lgamma(sum gamma) - (m + sum alpha - sum gamma) psi(sum gamma)
    """
    total = 0.0
    surplus = np.float64(m)
    for k in range(K):
        total += gamma[k]
        surplus += prior[k] - gamma[k]
    log_total = math.log(total + SHIFT)
    mean = log_total - log_excess(total)
    value = -(total + SHIFT - 0.5) * log_total - stirling(total) - surplus * mean
    for k in range(K):
        log_theta[k] -= excess[k] + mean
        value += stirling(gamma[k]) - (prior[k] - gamma[k]) * excess[k]
    product = 1.0 / rising(total)
    for start in range(0, K, FACTORS):
        for k in range(start, min(start + FACTORS, K)):
            product *= rising(gamma[k])
        value -= math.log(product)
        product = 1.0
    return value


@leaf
def multiply(product, gamma):
    """Multiply ``product`` by ``gamma + SHIFT``."""
    for k in range(gamma.shape[0]):
        product[k] *= gamma[k] + SHIFT


@leaf
def take_logs(product, sums):
    """Add the logarithms of ``product`` to ``sums``, and set it to one."""
    for k in range(product.shape[0]):
        sums[k] += math.log(product[k])
        product[k] = 1.0
