"""PCC with a calibrated co-association where all partitions share the rates: listed pairs, any divergence.

Partitions join objects i and j with probability ``a + d y_i.y_j``, so memberships minimize

    f = sum N_ij D(c_ij / N_ij, a + d y_i.y_j)

over the pairs, for any divergence D. A pair has one share of agreement, in which partitions cannot be told
apart, hence no rates or weights of each and no rarity. By the squared divergence only memberships are then
different from those of ``(x - a) / d`` with weights ``d^2 N``, which the kernels of the paper's model solve.

The rates are those of the pairs at hand, given first memberships: those of a subsample solved by the model of
`calibrated`, where rates and memberships were estimated in turn, extended to all objects. From then on they
are fixed, and the objective never rises. Least squares can give ``a + d > 1``, which only the squared
divergence allows; moments stay inside [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from bigcons.coassociation.factorized import Rates
from bigcons.divergences import Calibrated, Divergence
from bigcons.kernels import pair_descent as kernel
from bigcons.methods.pcc.calibrated import LEAST_SQUARES, PairSums, least_squares
from bigcons.methods.pcc.subsample import Subsample
from bigcons.stores.pair_rows import Rows
from bigcons.stores.pairs import PairTable

# Probabilities of a join stay this far from 0 and 1, where divergences can be infinite.
MARGIN = 1e-6

# The scale is at least this: a smaller one tells no pairs apart.
LEAST_SCALE = 1e-3

# Probabilities that vary by less than this share of their mean square do not give a scale.
LEAST_VARIATION = 1e-9

NOBODY = np.empty((0, 0), np.float32)


def sums_over_pairs(
    pairs: PairTable | Rows, memberships: np.ndarray, others: np.ndarray = NOBODY
) -> np.ndarray:
    """Return the sums over pairs from which rates follow, see ``kernels.pair_descent.add_pair_sums``.

    ``memberships`` (n, K) float32 of the objects of the rows; ``others`` those of the objects from ``n`` on.
    Pairs with negative numbers are left out.
    """
    totals = np.zeros(kernel.N_PAIR_SUMS)
    if not others.size:
        others = np.empty((0, memberships.shape[1]), np.float32)
    counts = pairs.n_agree.astype(np.float32), pairs.n_seen.astype(np.float32)
    clusters = memberships.argmax(axis=1), others.argmax(axis=1)
    kernel.add_pair_sums(memberships, pairs.indptr, pairs.indices, *counts, others, *clusters, totals)
    return totals


def rates_of(sums: np.ndarray, rule: str) -> tuple[float, float]:
    """Return background and scale by a rule, given `sums_over_pairs`.

    Pairs that cannot be told apart, as with one cluster, leave the model of the paper, 0 and 1.
    """
    n, x, p, p2, xp, n_equal, x_equal = sums.tolist()
    if rule == LEAST_SQUARES:
        if p2 - p * p / max(n, 1.0) <= LEAST_VARIATION * p2:
            return 0.0, 1.0
        a, d = least_squares(PairSums(*(np.array([part]) for part in (n, x, x, p, p2, xp))))
        return float(a[0]), max(float(d[0]), LEAST_SCALE)
    if n_equal in (0.0, n):
        return inside(0.0, 1.0)
    return inside((x - x_equal) / (n - n_equal), x_equal / n_equal)


def inside(background: float, hit_rate: float) -> tuple[float, float]:
    """Return background and scale with which all probabilities of a join are inside (0, 1)."""
    a = min(max(background, MARGIN), 1.0 - MARGIN - LEAST_SCALE)
    return a, min(max(hit_rate - a, LEAST_SCALE), 1.0 - MARGIN - a)


def rates_of_subsample(found: Subsample) -> tuple[float, float]:
    """Return background and scale that all partitions share in a calibrated subsample, inside (0, 1)."""
    rates = cast("Rates", found.sums.weights)
    return inside(float(rates.a[0]), float(rates.a[0] + rates.d[0]))


def stored_rates(facts: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the rates among the facts of a snapshot."""
    rates = facts["rates"]
    return None if rates is None else (rates[0], rates[1])


def calibrated(divergence: Divergence, rates: tuple[float, float] | None) -> Divergence:
    """Return the divergence from ``a + d p``; that of the paper's model without rates."""
    return divergence if rates is None else Calibrated(divergence, *rates)


def unit_of(divergence: Divergence) -> float:
    """Return by what a calibrated divergence multiplies the weight of a pair: gaps are relative to it."""
    return divergence.d**2 if isinstance(divergence, Calibrated) else 1.0


def rates_by_partition(calibrated_by: Calibrated, offsets: np.ndarray) -> Rates:
    """Return the rates of a solution as all-pairs sums take them, the same for all partitions."""
    ones = np.ones(offsets.size - 1)
    return Rates.of(calibrated_by.a * ones, calibrated_by.d * ones, ones, np.ones(int(offsets[-1])), offsets)
