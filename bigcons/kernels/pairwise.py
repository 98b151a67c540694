"""All-pairs PCC for any Bregman divergence, pair by pair: exact, at quadratic cost.

One object among all others is the cost of `kernels.newton` with every other membership as a prototype.
"""

from __future__ import annotations

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels.label_rows import compare_rows
from bigcons.kernels.newton import cost_for, kkt_gap, minimize, newton_model, set_gradient


@jit
def sweep(
    labels, rows, start, updated, threshold, totals, convex, slope, curvature, search, parameter
):  # fmt: skip
    """Update the objects ``start, ..., start + len(updated) - 1`` in turn, given all others.

    labels (n, M) with -1 missing; rows (n, K) float64, each of sum one: the memberships, changed in place;
    updated (block rows, K) float32: the new ones. An object whose KKT gap is at most ``threshold`` does not
    move. ``totals (2,)``: the largest gap found, and the number of objects that moved. O(n (M + K^2))
    an object and Newton step.
    """
    cost = cost_for(labels.shape[0], rows.shape[1])
    for e in range(updated.shape[0]):
        i = start + e
        n_terms = list_others(labels, rows, i, cost)
        gap = newton_model(cost, n_terms, slope, curvature, parameter)
        totals[0] = max(totals[0], gap)
        if gap <= threshold or n_terms == 0:
            continue
        minimize(cost, n_terms, gap, convex, slope, curvature, search, parameter)
        moved = False
        for k in range(rows.shape[1]):
            before = updated[e, k]
            updated[e, k] = cost.y[k]
            moved |= updated[e, k] != before
        totals[1] += moved
        read_row(updated, e, rows, i)


@jit
def evaluate(labels, rows, start, stop, totals, value, slope, parameter):
    """Add half the cost of the objects from ``start`` to ``stop`` to totals[0]; totals[1] is the largest gap.

    The cost is ``sum_j c_ij d(1, y_i.y_j) + (N_ij - c_ij) d(0, y_i.y_j)``.
    """
    cost = cost_for(labels.shape[0], rows.shape[1])
    for i in range(start, stop):
        n_terms = list_others(labels, rows, i, cost)
        total = 0.0
        for e in range(n_terms):
            p, x, w = cost.terms[0, e], cost.terms[2, e], cost.terms[3, e]
            total += w * (x * value(1.0, p, parameter) + (1.0 - x) * value(0.0, p, parameter))
        totals[0] += 0.5 * total
        set_gradient(cost, n_terms, slope, parameter)
        totals[1] = max(totals[1], kkt_gap(cost.gradient, cost.y))


@leaf
def list_others(labels, rows, i, cost):
    """List the objects that share partitions with object ``i`` as prototypes; return how many."""
    K = rows.shape[1]
    n_terms = 0
    for k in range(K):
        cost.y[k] = rows[i, k]
    for j in range(labels.shape[0]):
        if j == i:
            continue
        n_agree, n_seen = compare_rows(labels[i], labels[j])
        if n_seen == 0:
            continue
        p = 0.0
        for k in range(K):
            cost.prototypes[n_terms, k] = rows[j, k]
            p += rows[j, k] * rows[i, k]
        cost.terms[0, n_terms] = p
        cost.terms[2, n_terms] = n_agree / n_seen
        cost.terms[3, n_terms] = n_seen
        n_terms += 1
    return n_terms


@leaf
def read_row(memberships, e, rows, i):
    """Set ``rows[i]`` to ``memberships[e]`` in float64, normalized."""
    total = 0.0
    for k in range(rows.shape[1]):
        rows[i, k] = memberships[e, k]
        total += rows[i, k]
    for k in range(rows.shape[1]):
        rows[i, k] /= total
