"""All-pairs PCC for any Bregman divergence: a group of objects is approximated by a single prototype.

If one prototype ``q_a`` replaces the memberships of all objects ``i`` of a group ``a``, their pairs with an
object ``j`` cost

    sum_i N_ij d(c_ij / N_ij, y_j.q_a) = N_ja d(c_ja / N_ja, y_j.q_a) + const,

because the mean is the Bregman centroid: ``c_ja`` and ``N_ja``, the sums of ``c_ij`` and ``N_ij`` over the
group, are gathered from the rows of two tables that the object's labels index, ``count (B, G)`` and ``seen
(M, G)``. An object is not its own neighbor: its contribution is removed from its own group.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.kernels._jit import empty, flat, jit, leaf
from bigcons.kernels.cluster_tables import find_rows, sum_rows
from bigcons.kernels.newton import Cost, cost_for, kkt_gap, minimize, newton_model, set_gradient

# Memberships above the floor by less than this share of it are rounding residue.
ABOVE_FLOOR = 0.01


class Tables(NamedTuple):
    """Sums over all objects by group. Sizes: G groups, B base clusters, M partitions, K clusters."""

    centers: np.ndarray
    """(G, K): an object belongs to the group of the center nearest to its membership."""
    count: np.ndarray  # type: ignore[assignment] # shadows tuple.count
    """(B, padded G): objects of each base cluster, by group."""
    seen: np.ndarray
    """(M, padded G): objects with a label in each partition, by group."""
    sums: np.ndarray
    """(G, K): summed memberships of the objects of each group that have any label."""
    sizes: np.ndarray
    """(G,): number of these objects."""


class Scratch(NamedTuple):
    """Working space for one object."""

    count_at: np.ndarray
    seen_at: np.ndarray
    agree: np.ndarray
    together: np.ndarray
    """(padded G,): ``c_ja`` and ``N_ja``, including the object itself if it is in the tables."""
    cost: Cost
    """Cost of the object, given the prototypes of the groups it shares partitions with."""


@jit
def scratch_for(tables, M):
    """Return working space for objects of M partitions."""
    G, K = tables.centers.shape
    width = tables.count.shape[1]
    at, agree = empty((2, M), np.uint64), empty((2, width), np.float64)
    return Scratch(at[0], at[1], agree[0], agree[1], cost_for(G, K))


@jit
def sweep(
    labels, offsets, tables, y_old, y_new, floor, threshold, fresh, totals,
    convex, slope, curvature, search, parameter
):  # fmt: skip
    """Update every object of a block in turn, given all others; keep ``tables`` current after every move.

    labels (rows, M) with -1 missing; offsets (M+1,) int64; y_old, y_new (rows, K) float32; totals (2,)
    float64: the largest KKT gap found, and the number of objects that moved. An object whose gap is at
    most ``threshold`` stays as it is. ``floor``: the least membership, see `lift`. With ``fresh`` the objects
    are not in ``tables``, which do not change; ``y_old`` is not read. ``convex``: whether the divergence is,
    in its second argument. O(m G) to gather an object with m labels, O(G K^2) a Newton step.
    """
    s = scratch_for(tables, labels.shape[1])
    y = s.cost.y
    rest = 1.0 - y.shape[0] * floor
    for i in range(labels.shape[0]):
        m = gather_object(labels, i, offsets, tables, s)
        y[:] = 1.0 / y.shape[0]
        if m == 0:
            round_into(y, y_new, i)
            continue
        own = -1
        if not fresh:
            read_row(y_old, i, y)
            own = nearest(tables.centers, y)
        n_terms = list_terms(tables, own, m, s)
        lift(s.cost, n_terms, floor)
        gap = newton_model(s.cost, n_terms, slope, curvature, parameter)
        totals[0] = max(totals[0], gap / rest)
        if gap / rest <= threshold and not fresh:
            for k in range(y.shape[0]):
                y_new[i, k] = y_old[i, k]
            continue
        minimize(s.cost, n_terms, gap, convex, slope, curvature, search, parameter)
        lower(y, floor)
        round_into(y, y_new, i)
        moved = False
        for k in range(y.shape[0]):
            moved |= y_old[i, k] != y_new[i, k]
        if moved and not fresh:
            totals[1] += 1.0
            read_row(y_old, i, y)
            add_object(tables, own, m, -1.0, s)
            read_row(y_new, i, y)
            add_object(tables, nearest(tables.centers, y), m, 1.0, s)


@jit
def accumulate(labels, offsets, tables, memberships):
    """Add a block's objects, ``memberships (rows, K)`` float32, to ``tables``."""
    s = scratch_for(tables, labels.shape[1])
    width = tables.count.shape[1]
    for i in range(labels.shape[0]):
        m = find_rows(labels, i, 0, labels.shape[1], offsets, width, s.count_at, width, s.seen_at)
        if m > 0:
            read_row(memberships, i, s.cost.y)
            add_object(tables, nearest(tables.centers, s.cost.y), m, 1.0, s)


@jit
def evaluate(labels, offsets, tables, memberships, floor, totals, value, slope, parameter):
    """Add half the cost of every object of a block to totals[0]; totals[1] is the largest KKT gap.

    The cost is ``sum_a c_ja d(1, y_j.q_a) + (N_ja - c_ja) d(0, y_j.q_a)``: ``sum_a N_ja d(c_ja / N_ja,
    y_j.q_a)`` up to a term that depends on the groups but not on the memberships.
    """
    s = scratch_for(tables, labels.shape[1])
    for i in range(labels.shape[0]):
        m = gather_object(labels, i, offsets, tables, s)
        if m == 0:
            continue
        read_row(memberships, i, s.cost.y)
        n_terms = list_terms(tables, nearest(tables.centers, s.cost.y), m, s)
        cost = 0.0
        for e in range(n_terms):
            p, x, w = s.cost.terms[0, e], s.cost.terms[2, e], s.cost.terms[3, e]
            cost += w * (x * value(1.0, p, parameter) + (1.0 - x) * value(0.0, p, parameter))
        totals[0] += 0.5 * cost
        lift(s.cost, n_terms, floor)
        set_gradient(s.cost, n_terms, slope, parameter)
        gap = kkt_gap(s.cost.gradient, s.cost.y) / (1.0 - s.cost.y.shape[0] * floor)
        totals[1] = max(totals[1], gap)


@leaf
def lift(cost, n_terms, floor):
    """Turn the membership ``y`` of one object into ``z`` on the simplex, ``y = (1 - K floor) z + floor``.

    The prototypes change with it, so that the probabilities ``y.q`` stay what they are, and the gradient is
    ``1 - K floor`` times that of ``y``. Every membership is at least ``floor`` where a divergence is infinite
    for a pair of objects whose memberships are disjoint: prototypes, which are means, do not see such pairs.
    """
    if floor == 0.0:
        return
    K = cost.y.shape[0]
    rest = 1.0 - K * floor
    total = 0.0
    for k in range(K):
        above = cost.y[k] - floor
        cost.y[k] = above if above > ABOVE_FLOOR * floor else 0.0
        total += cost.y[k]
    for k in range(K):
        cost.y[k] /= total
    for e in range(n_terms):
        for k in range(K):
            cost.prototypes[e, k] = rest * cost.prototypes[e, k] + floor


@leaf
def lower(y, floor):
    """Undo `lift` of a membership."""
    if floor == 0.0:
        return
    for k in range(y.shape[0]):
        y[k] = (1.0 - y.shape[0] * floor) * y[k] + floor


@leaf
def read_row(memberships, i, y):
    """Set ``y`` to row ``i`` in float64, normalized: float32 does not resolve the distance to a vertex."""
    total = 0.0
    for k in range(y.shape[0]):
        y[k] = np.float64(memberships[i, k])
        total += y[k]
    for k in range(y.shape[0]):
        y[k] /= total


@jit
def nearest(centers, y):
    """Return the group of ``y``: the center nearest in Euclidean distance, the first in case of ties."""
    G, K = centers.shape
    best = 0
    lowest = np.inf
    for a in range(G):
        distance = 0.0
        for k in range(K):
            d = y[k] - centers[a, k]
            distance += d * d
        if distance < lowest:
            lowest = distance
            best = a
    return best


@jit
def gather_object(labels, i, offsets, tables, s):
    """Sum the rows of ``count`` and ``seen`` that object ``i`` indexes; return its number of labels."""
    width = tables.count.shape[1]
    m = find_rows(labels, i, 0, labels.shape[1], offsets, width, s.count_at, width, s.seen_at)
    if m > 0:
        sum_rows(flat(tables.count), s.count_at, m, s.agree)
        sum_rows(flat(tables.seen), s.seen_at, m, s.together)
    return m


@jit
def add_object(tables, group, m, sign, s):
    """Add the object in ``s``, of ``m`` labels, to its group; remove it with ``sign`` -1."""
    count, seen = flat(tables.count), flat(tables.seen)
    column = np.uint64(group)
    for e in range(m):
        count[s.count_at[e] + column] += sign
        seen[s.seen_at[e] + column] += sign
    for k in range(s.cost.y.shape[0]):
        tables.sums[group, k] += sign * s.cost.y[k]
    tables.sizes[group] += sign


@leaf
def list_terms(tables, own, m, s):
    """List the groups that share partitions with one object, itself removed from ``own``; return how many."""
    G, K = tables.centers.shape
    n_terms = 0
    for a in range(G):
        mine = 1.0 if a == own else 0.0
        together = s.together[a] - mine * m
        size = tables.sizes[a] - mine
        if together < 1.0 or size < 1.0:
            continue
        p = 0.0
        for k in range(K):
            q = max(tables.sums[a, k] - mine * s.cost.y[k], 0.0) / size
            s.cost.prototypes[n_terms, k] = q
            p += q * s.cost.y[k]
        s.cost.terms[0, n_terms] = p
        s.cost.terms[2, n_terms] = (s.agree[a] - mine * m) / together
        s.cost.terms[3, n_terms] = together
        n_terms += 1
    return n_terms


@leaf
def round_into(y, rows, i):
    """Set row ``i`` to ``y`` in float32."""
    for k in range(y.shape[0]):
        rows[i, k] = np.float32(y[k])
