"""Bayesian cluster ensembles as the paper writes them, one object and one label at a time.

``labels (n, M)`` with negative labels missing; ``beta[u]`` is a (k_u, K) array of label probabilities whose
columns sum to 1; ``alpha (K,)``.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, gammaln


def expected_logs(gamma):
    return digamma(gamma) - digamma(gamma.sum())


def responsibilities(row, beta, gamma):
    """Return {partition: phi (K,)} of one object for its observed labels."""
    phi = {}
    for u, label in enumerate(row):
        if label >= 0:
            weight = np.exp(expected_logs(gamma)) * beta[u][label]
            phi[u] = weight / weight.sum()
    return phi


def e_step(labels, beta, alpha, gamma, n_steps):
    """Return gamma after ``n_steps`` updates of every object that has a label."""
    gamma = np.array(gamma, float)
    for i, row in enumerate(labels):
        for _ in range(n_steps):
            phi = responsibilities(row, beta, gamma[i])
            if phi:
                gamma[i] = alpha + sum(phi.values())
    return gamma


def bound_of_object(row, beta, alpha, gamma):
    """Return the lower bound of one object, with phi optimal for gamma."""
    E = expected_logs(gamma)
    total = gammaln(alpha.sum()) - gammaln(alpha).sum() + ((alpha - 1) * E).sum()
    for u, phi in responsibilities(row, beta, gamma).items():
        for k in range(len(alpha)):
            if phi[k] > 0:
                total += phi[k] * (E[k] + np.log(beta[u][row[u]][k]) - np.log(phi[k]))
    return total - gammaln(gamma.sum()) + gammaln(gamma).sum() - ((gamma - 1) * E).sum()


def statistics(labels, beta, alpha, gamma):
    """Return (counts, a (k_u, K) array per partition; summed expected logs; bound; labeled objects)."""
    counts = [np.zeros_like(table) for table in beta]
    log_means, bound, n_labeled = np.zeros(len(alpha)), 0.0, 0
    for i, row in enumerate(labels):
        if (row < 0).all():
            continue
        n_labeled += 1
        log_means += expected_logs(gamma[i])
        bound += bound_of_object(row, beta, alpha, gamma[i])
        for u, phi in responsibilities(row, beta, gamma[i]).items():
            counts[u][row[u]] += phi
    return counts, log_means, bound, n_labeled


def best_alpha(log_means, n_labeled, floor):
    def loss(log_alpha):
        return -alpha_value(np.exp(log_alpha), log_means, n_labeled) / n_labeled

    starts = [np.full(len(log_means), np.log(value)) for value in (0.01, 1.0, 10.0)]
    bounds = [(np.log(floor), np.log(1e8))] * len(log_means)
    runs = [
        minimize(loss, x, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10})
        for x in starts
    ]
    return np.exp(min(runs, key=lambda run: run.fun).x)


def alpha_value(alpha, log_means, n_labeled):
    """Return the part of the bound that depends on alpha."""
    return n_labeled * (gammaln(alpha.sum()) - gammaln(alpha).sum()) + ((alpha - 1) * log_means).sum()


def gibbs_weights(labels, z, i, u, n_clusters, sizes, alpha, omega):
    """Return the unnormalized probabilities of z[i, u] given all other assignments, by counting them."""
    weights = np.empty(n_clusters)
    for h in range(n_clusters):
        others = [v for v in range(labels.shape[1]) if v != u and labels[i, v] >= 0 and z[i, v] == h]
        in_cluster = [j for j in range(len(labels)) if j != i and labels[j, u] >= 0 and z[j, u] == h]
        same_label = [j for j in in_cluster if labels[j, u] == labels[i, u]]
        weights[h] = (omega + len(same_label)) / (sizes[u] * omega + len(in_cluster)) * (alpha + len(others))
    return weights


class SplitMix:
    """SplitMix64 in Python's integers."""

    def __init__(self, state):
        self.state = state

    def uniform(self):
        mask = 2**64 - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        x = self.state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return ((x ^ (x >> 31)) >> 11) / 2**53


def gibbs_sweep(labels, z, n_clusters, sizes, alpha, omega, random):
    """Draw every z[i, u] in turn, in place."""
    for i, u in zip(*np.nonzero(labels >= 0), strict=True):
        cumulated = np.cumsum(gibbs_weights(labels, z, i, u, n_clusters, sizes, alpha, omega))
        z[i, u] = (cumulated[:-1] <= random.uniform() * cumulated[-1]).sum()


def log_joint(labels, z, n_clusters, sizes, alpha, omega):
    """Return log p(labels, z) as the product of the predictive probabilities, label after label."""
    total = 0.0
    seen = []
    for i, u in zip(*np.nonzero(labels >= 0), strict=True):
        own = [z[j, v] for j, v in seen if j == i]
        column = [(labels[j, v], z[j, v]) for j, v in seen if v == u]
        h = z[i, u]
        in_cluster = [label for label, cluster in column if cluster == h]
        total += np.log((alpha + own.count(h)) / (n_clusters * alpha + len(own)))
        total += np.log((omega + in_cluster.count(labels[i, u])) / (sizes[u] * omega + len(in_cluster)))
        seen.append((i, u))
    return total
