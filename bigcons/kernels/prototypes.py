"""All-pairs PCC for any Bregman divergence: to one object, a group of others is a single prototype.

For one object ``j``, the pairs with the objects ``i`` of a group ``a`` cost, if one ``q_a`` stands for all
their memberships,

    sum_i N_ij d(c_ij / N_ij, y_j.q_a) = N_ja d(c_ja / N_ja, y_j.q_a) + const,

because the mean is the Bregman centroid: ``c_ja`` and ``N_ja``, the sums of ``c_ij`` and ``N_ij`` over the
group, are gathered from the rows of two tables that the object's labels point at, ``count (B, G)`` and
``seen (M, G)``. An object is never its own neighbour: its part is taken out of its own group.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigcons.kernels._jit import jit
from bigcons.kernels.agreement import compare_rows
from bigcons.kernels.objective import probability
from bigcons.kernels.simplex import minimise_on_simplex
from bigcons.kernels.table_rows import find_rows, sum_rows

# Slots of `totals`.
OBJECTIVE, MAX_GAP, N_MOVED = 0, 1, 2
N_TOTALS = 3

# Newton steps for one object and visit, and the gap, relative to its total weight, at which they stop.
MOST_STEPS = 12
INNER_TOL = 1e-7

# A Newton step is taken in full if the slope at its end is at most this share of that at its beginning.
FULL_STEP_SLOPE = 0.5

# Memberships below this are what rounding leaves of a coordinate that vanishes.
DUST = 1e-15


class Tables(NamedTuple):
    """What all objects together mean to one. Sizes: G groups, B base clusters, M partitions, K clusters."""

    centres: np.ndarray
    """(G, K): an object belongs to the group of the centre next to its membership."""
    count: np.ndarray  # type: ignore[assignment] # nobody counts in these tuples
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
    prototypes: np.ndarray
    """(G, K): the prototypes that the object meets."""
    terms: np.ndarray
    """(4, G): probability, its change along the step, observed share, weight: see ``line_search``."""
    y: np.ndarray
    gradient: np.ndarray
    A: np.ndarray
    b: np.ndarray
    step: np.ndarray
    support: np.ndarray
    work: np.ndarray


@jit
def scratch_for(tables, M):
    """Return working space for objects of M partitions."""
    G, K = tables.centres.shape
    width = tables.count.shape[1]
    return Scratch(
        np.empty(M, np.uint64),
        np.empty(M, np.uint64),
        np.empty(width),
        np.empty(width),
        np.empty((G, K)),
        np.empty((4, G)),
        np.empty(K),
        np.empty(K),
        np.empty((K, K)),
        np.empty(K),
        np.empty(K),
        np.empty(K, np.int64),
        np.empty((K, K + 2)),
    )


@jit
def sweep(
    labels,
    offsets,
    tables,
    y_old,
    y_new,
    threshold,
    fresh,
    totals,
    convex,
    slope,
    curvature,
    search,
    parameter,
):
    """Update every object of a block in turn, each given all others; ``tables`` follows every move.

    labels (rows, M) with -1 missing; offsets (M+1,) int64; y_old, y_new (rows, K) float32; totals (N_TOTALS,)
    float64: gets the largest KKT gap met, and the number of objects that moved. An object whose gap is at
    most ``threshold`` stays as it is. With ``fresh`` the objects are not in ``tables``, which do not change;
    ``y_old`` is not read. ``convex``: whether the divergence is, in its second argument. O(m G) to gather an
    object with m labels, O(G K^2) a Newton step.
    """
    s = scratch_for(tables, labels.shape[1])
    y = s.y
    for i in range(labels.shape[0]):
        m = gather_object(labels, i, offsets, tables, s)
        set_uniform(y)
        if m == 0:
            round_into(y, y_new, i)
            continue
        own = -1
        if not fresh:
            read_row(y_old, i, y)
            own = nearest(tables.centres, y)
        n_terms = list_terms(tables, own, m, s)
        gap = newton_model(s, n_terms, slope, curvature, parameter)
        totals[MAX_GAP] = max(totals[MAX_GAP], gap)
        if gap <= threshold and not fresh:
            copy_row(y_old, y_new, i)
            continue
        minimise(s, n_terms, gap, convex, slope, curvature, search, parameter)
        round_into(y, y_new, i)
        if differ(y_old, y_new, i) and not fresh:
            totals[N_MOVED] += 1.0
            read_row(y_old, i, y)
            add_object(tables, own, m, -1.0, s)
            read_row(y_new, i, y)
            add_object(tables, nearest(tables.centres, y), m, 1.0, s)


@jit
def accumulate(labels, offsets, tables, memberships):
    """Add a block's objects, ``memberships (rows, K)`` float32, to ``tables``."""
    s = scratch_for(tables, labels.shape[1])
    width = tables.count.shape[1]
    for i in range(labels.shape[0]):
        m = find_rows(labels, i, offsets, width, s.count_at, width, s.seen_at)
        if m > 0:
            read_row(memberships, i, s.y)
            add_object(tables, nearest(tables.centres, s.y), m, 1.0, s)


@jit
def evaluate(labels, offsets, tables, memberships, totals, value, slope, parameter):
    """Add half of what every object of a block costs to ``totals``, and find the largest KKT gap.

    The cost is ``sum_a c_ja d(1, y_j.q_a) + (N_ja - c_ja) d(0, y_j.q_a)``: what ``sum_a N_ja d(c_ja / N_ja,
    y_j.q_a)`` is but for a term without memberships, in a form that does not depend on the groups otherwise.
    """
    s = scratch_for(tables, labels.shape[1])
    for i in range(labels.shape[0]):
        m = gather_object(labels, i, offsets, tables, s)
        if m == 0:
            continue
        read_row(memberships, i, s.y)
        n_terms = list_terms(tables, nearest(tables.centres, s.y), m, s)
        cost = 0.0
        for e in range(n_terms):
            p, x, w = s.terms[0, e], s.terms[2, e], s.terms[3, e]
            cost += w * (x * value(1.0, p, parameter) + (1.0 - x) * value(0.0, p, parameter))
        totals[OBJECTIVE] += 0.5 * cost
        set_gradient(s, n_terms, slope, parameter)
        totals[MAX_GAP] = max(totals[MAX_GAP], kkt_gap(s.gradient, s.y))


@jit
def read_row(memberships, i, y):
    """Set ``y`` to row ``i`` in float64 and its sum to one: float32 cannot tell how near a vertex is."""
    total = 0.0
    for k in range(y.shape[0]):
        y[k] = np.float64(memberships[i, k])
        total += y[k]
    for k in range(y.shape[0]):
        y[k] /= total


@jit
def nearest(centres, y):
    """Return the group of ``y``: the centre next to it in the squared distance, the first of equals."""
    G, K = centres.shape
    best = 0
    lowest = np.inf
    for a in range(G):
        distance = 0.0
        for k in range(K):
            d = y[k] - centres[a, k]
            distance += d * d
        if distance < lowest:
            lowest = distance
            best = a
    return best


@jit
def gather_object(labels, i, offsets, tables, s):
    """Sum the rows of ``count`` and ``seen`` that object ``i`` points at; return how many labels it has."""
    width = tables.count.shape[1]
    m = find_rows(labels, i, offsets, width, s.count_at, width, s.seen_at)
    if m > 0:
        sum_rows(tables.count.ravel(), s.count_at, m, s.agree)
        sum_rows(tables.seen.ravel(), s.seen_at, m, s.together)
    return m


@jit
def add_object(tables, group, m, sign, s):
    """Add the object in ``s``, of ``m`` labels, to its group; take it out with ``sign`` -1."""
    count, seen = tables.count.ravel(), tables.seen.ravel()
    column = np.uint64(group)
    for e in range(m):
        count[s.count_at[e] + column] += sign
        seen[s.seen_at[e] + column] += sign
    for k in range(s.y.shape[0]):
        tables.sums[group, k] += sign * s.y[k]
    tables.sizes[group] += sign


@jit
def list_terms(tables, own, m, s):
    """List the groups that one object meets, its own part in group ``own`` taken out; return how many."""
    G, K = tables.centres.shape
    n_terms = 0
    for a in range(G):
        mine = 1.0 if a == own else 0.0
        together = s.together[a] - mine * m
        size = tables.sizes[a] - mine
        if together < 1.0 or size < 1.0:
            continue
        p = 0.0
        for k in range(K):
            q = max(tables.sums[a, k] - mine * s.y[k], 0.0) / size
            s.prototypes[n_terms, k] = q
            p += q * s.y[k]
        s.terms[0, n_terms] = p
        s.terms[2, n_terms] = (s.agree[a] - mine * m) / together
        s.terms[3, n_terms] = together
        n_terms += 1
    return n_terms


@jit
def set_gradient(s, n_terms, slope, parameter):
    """Set the gradient of the object's cost."""
    g = s.gradient
    for k in range(g.shape[0]):
        g[k] = 0.0
    for e in range(n_terms):
        rise = s.terms[3, e] * slope(s.terms[2, e], s.terms[0, e], parameter)
        for k in range(g.shape[0]):
            g[k] += rise * s.prototypes[e, k]


@jit
def newton_model(s, n_terms, slope, curvature, parameter):
    """Set the gradient, and ``A``, ``b`` of the quadratic model ``z'Az - 2b'z``; return the KKT gap."""
    K = s.y.shape[0]
    set_gradient(s, n_terms, slope, parameter)
    A, b, q = s.A, s.b, s.prototypes
    for k in range(K):
        for r in range(K):
            A[k, r] = 0.0
    for e in range(n_terms):
        bend = s.terms[3, e] * max(curvature(s.terms[2, e], s.terms[0, e], parameter), 0.0)
        for k in range(K):
            for r in range(k + 1):
                A[k, r] += bend * q[e, k] * q[e, r]
    for k in range(K):
        for r in range(k):
            A[r, k] = A[k, r]
    for k in range(K):
        b[k] = -s.gradient[k]
        for r in range(K):
            b[k] += A[k, r] * s.y[r]
    return kkt_gap(s.gradient, s.y)


@jit
def kkt_gap(g, y):
    """Return the largest gradient on the support of ``y`` less the smallest of all; 0 at the optimum."""
    lowest = np.inf
    highest = -np.inf
    for k in range(y.shape[0]):
        lowest = min(lowest, g[k])
        if y[k] > 0.0:
            highest = max(highest, g[k])
    return highest - lowest


@jit
def minimise(s, n_terms, gap, convex, slope, curvature, search, parameter):
    """Minimise one object's cost over the simplex, in place in ``s.y``, from its model in ``s``.

    Every step goes towards the minimiser of the quadratic model over the simplex: all the way, so that
    coordinates which vanish become exactly zero, unless the slope there tells that the model is far off.
    """
    y, step = s.y, s.step
    K = y.shape[0]
    weight = 0.0
    for e in range(n_terms):
        weight += s.terms[3, e]
    for _ in range(MOST_STEPS):
        if gap <= INNER_TOL * weight:
            return
        for k in range(K):
            step[k] = y[k]
        minimise_on_simplex(s.A, s.b, step, K, s.support, s.work)
        promised = 0.0
        for k in range(K):
            step[k] -= y[k]
            promised -= s.gradient[k] * step[k]
        if promised <= 0.0:
            return
        for e in range(n_terms):
            change = 0.0
            for k in range(K):
                change += s.prototypes[e, k] * step[k]
            s.terms[1, e] = change
        length = step_length(s, n_terms, promised, convex, slope, search, parameter)
        if length <= 0.0:
            return
        take_step(y, step, length)
        for e in range(n_terms):
            p = 0.0
            for k in range(K):
                p += s.prototypes[e, k] * y[k]
            s.terms[0, e] = p
        gap = newton_model(s, n_terms, slope, curvature, parameter)


@jit
def step_length(s, n_terms, promised, convex, slope, search, parameter):
    """Return 1 if the slope at the end of the step is small, else the length that a line search finds.

    A divergence that is not convex always needs the search. The model is far off where a probability leaves
    zero, which it lets grow twofold in a step: then the search goes up to the edge of the simplex.
    """
    rise = 0.0
    for e in range(n_terms):
        p, b, x, w = s.terms[0, e], s.terms[1, e], s.terms[2, e], s.terms[3, e]
        rise += w * b * slope(x, p + b, parameter)
    if convex and abs(rise) <= FULL_STEP_SLOPE * promised:
        return 1.0
    longest = 1.0
    if rise < 0.0:
        longest = np.inf
        for k in range(s.y.shape[0]):
            if s.step[k] < 0.0:
                longest = min(longest, s.y[k] / -s.step[k])
    return search(s.terms, n_terms, promised, longest, parameter)


@jit
def take_step(y, step, length):
    """Move ``y`` by ``length`` of a step; what is left of a vanishing coordinate by rounding is zero."""
    total = 0.0
    for k in range(y.shape[0]):
        reached = y[k] + length * step[k]
        y[k] = reached if reached > DUST else 0.0
        total += y[k]
    for k in range(y.shape[0]):
        y[k] /= total


@jit
def set_uniform(y):
    """Set ``y`` to the centre of the simplex."""
    for k in range(y.shape[0]):
        y[k] = 1.0 / y.shape[0]


@jit
def round_into(y, rows, i):
    """Set row ``i`` to ``y`` in float32."""
    for k in range(y.shape[0]):
        rows[i, k] = np.float32(y[k])


@jit
def copy_row(before, after, i):
    """Leave row ``i`` as it was."""
    for k in range(before.shape[1]):
        after[i, k] = before[i, k]


@jit
def differ(before, after, i):
    """Return whether row ``i`` changed."""
    changed = False
    for k in range(before.shape[1]):
        changed |= before[i, k] != after[i, k]
    return changed


@jit
def pairs_objective(labels, rows, value, parameter):
    """Return ``sum c_ij d(1, p_ij) + (N_ij - c_ij) d(0, p_ij)`` over all pairs of a few objects, one by one.

    labels (r, M), rows (r, K) float64. O(r^2 (M + K)).
    """
    total = 0.0
    for i in range(labels.shape[0]):
        for j in range(i + 1, labels.shape[0]):
            c, n = compare_rows(labels[i], labels[j])
            if n > 0:
                p = probability(rows, i, j)
                total += c * value(1.0, p, parameter) + (n - c) * value(0.0, p, parameter)
    return total
