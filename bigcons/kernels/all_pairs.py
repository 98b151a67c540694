"""All-pairs PCC with the squared divergence: one sweep of exact object updates over a block of rows.

The identities behind it: with ``S_b`` the summed memberships of base cluster ``b`` and ``T_u`` the summed
outer products of the objects seen in partition ``u``, the objective over all n(n-1)/2 pairs is

    f(Y) = const - (sum_b |S_b|^2 - sum_i m_i |y_i|^2) + (sum_u |T_u|^2 - sum_i m_i |y_i|^4) / 2

and, as a function of one object, the quadratic ``y'A y - 2 b'y`` with ``b`` and ``A`` gathered from the rows
of ``S`` and ``T`` that the object's labels point at. Rows are padded to whole vectors, and ``T`` keeps
the upper triangle only, so that gathering and scattering are vector instructions.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit
from bigcons.kernels._vector import WIDTH, add8, load8, store8, zero8
from bigcons.kernels.simplex import minimise_on_simplex

# What a sweep adds up besides S and T: see the slots of `totals` in `sweep`.
N_TOTALS = 8
MAX_GAP, N_MOVED = 6, 7


def padded(width: int) -> int:
    """Return ``width`` rounded up to whole vectors."""
    return -(-width // WIDTH) * WIDTH


def triangle(n_clusters: int) -> int:
    """Return the number of entries of an upper triangle with its diagonal."""
    return n_clusters * (n_clusters + 1) // 2


@jit
def sweep(labels, offsets, S, T, S_out, T_out, T_step, y_old, y_new, threshold, fresh, totals):
    """Update every object of a block in turn; add what changed to ``S_out``, ``T_out``, ``T_step``,
    ``totals``.

    labels (rows, M) with -1 missing; offsets (M+1,) int64; S, S_out (B, padded K) float64; T, T_out, T_step
    (M, padded K(K+1)/2) float64; y_old, y_new (rows, K) float32; totals (N_TOTALS,) float64.

    With ``S_out is S`` and ``T_out is T`` later objects see what earlier ones did (Gauss-Seidel). An object
    whose KKT gap is at most ``threshold`` stays as it is. With ``fresh`` the objects are new: ``y_old`` is
    not read, counts as zero, and nothing of theirs is in S and T yet.

    T_step sums ``d d'`` over the changes ``d``. totals[0:6] sum, over the objects that moved and times their
    number of labels m, with a = |y|^2, b = y.d, c = |d|^2 of the move: b, c, ab, ac + 2b^2, bc, c^2: what
    the exact line search along all changes of a pass needs. totals[MAX_GAP] is the largest KKT gap met,
    totals[N_MOVED] a count.
    """
    n_rows, M = labels.shape
    K = y_new.shape[1]
    s_width, t_width = S.shape[1], T.shape[1]
    s_at = np.empty(M, np.uint64)
    t_at = np.empty(M, np.uint64)
    s_sum = np.empty(s_width)
    t_sum = np.empty(t_width)
    A = np.empty((K, K))
    b = np.empty(K)
    y = np.empty(K)
    d = np.zeros(s_width)
    t_change = np.zeros(t_width)
    step_change = np.zeros(t_width)
    support = np.empty(K, np.int64)
    work = np.empty((K, K + 2))
    s_flat, t_flat = S.ravel(), T.ravel()
    s_out, t_out, t_step = S_out.ravel(), T_out.ravel(), T_step.ravel()
    for i in range(n_rows):
        m = locate(labels, i, offsets, s_width, t_width, s_at, t_at)
        if m == 0:
            for k in range(K):
                y_new[i, k] = np.float32(1.0 / K)
            continue
        gather(s_flat, s_at, m, s_sum)
        gather(t_flat, t_at, m, t_sum)
        for k in range(K):
            y[k] = 0.0 if fresh else np.float64(y_old[i, k])
        local_problem(s_sum, t_sum, m, y, A, b)
        if fresh:
            y[lightest_vertex(A, b)] = 1.0
        else:
            gap = kkt_gap(A, b, y)
            totals[MAX_GAP] = max(totals[MAX_GAP], gap)
            if gap <= threshold:
                for k in range(K):
                    y_new[i, k] = y_old[i, k]
                continue
        minimise_on_simplex(A, b, y, support, work)
        if record_move(y_old, y_new, i, y, fresh, m, d, t_change, step_change, totals):
            scatter(s_out, s_at, m, d)
            scatter(t_out, t_at, m, t_change)
            scatter(t_step, t_at, m, step_change)


@jit
def locate(labels, i, offsets, s_width, t_width, s_at, t_at):
    """List where the rows of S and T that object ``i`` points at begin; return how many labels it has."""
    m = 0
    for u in range(labels.shape[1]):
        label = labels[i, u]
        s_at[m] = np.uint64((offsets[u] + label) * s_width)  # overwritten by the next if the label is missing
        t_at[m] = np.uint64(u * t_width)
        m += label >= 0
    return m


@jit
def gather(table, at, m, out):
    """Set ``out`` to the sum of the ``m`` rows of ``table`` that begin at ``at``."""
    for q in range(0, out.shape[0], WIDTH):
        column = np.uint64(q)
        total = zero8()
        for e in range(m):
            total = add8(total, load8(table, at[e] + column))
        store8(out, column, total)


@jit
def scatter(table, at, m, change):
    """Add ``change`` to the ``m`` rows of ``table`` that begin at ``at``.

    Few clusters change at a time, so many whole vectors of ``change`` are zero, and skipped.
    """
    for q in range(0, change.shape[0], WIDTH):
        if not is_changed(change, q):
            continue
        column = np.uint64(q)
        addend = load8(change, column)
        for e in range(m):
            p = at[e] + column
            store8(table, p, add8(load8(table, p), addend))


@jit
def is_changed(change, q):
    """Return whether any entry of the vector that begins at ``q`` is not zero."""
    total = 0.0
    for r in range(WIDTH):
        total += abs(change[q + r])
    return total != 0.0


@jit
def local_problem(s_sum, t_sum, m, y, A, b):
    """Form ``A`` and ``b`` of one object from its gathered sums, its own part taken out."""
    K = y.shape[0]
    q = 0
    for k in range(K):
        b[k] = s_sum[k] - m * y[k]
        for r in range(k, K):
            A[k, r] = A[r, k] = t_sum[q] - m * y[k] * y[r]
            q += 1


@jit
def kkt_gap(A, b, y):
    """Return the largest gradient on the support of ``y`` less the smallest of all; 0 at the optimum."""
    K = y.shape[0]
    lowest = np.inf
    highest = -np.inf
    for k in range(K):
        g = -b[k]
        for r in range(K):
            g += A[k, r] * y[r]
        lowest = min(lowest, g)
        if y[k] > 0.0:
            highest = max(highest, g)
    return 2.0 * (highest - lowest)


@jit
def lightest_vertex(A, b):
    """Return the best single cluster for an object that has no membership yet."""
    best = 0
    for k in range(1, b.shape[0]):
        if A[k, k] - 2.0 * b[k] < A[best, best] - 2.0 * b[best]:
            best = k
    return best


@jit
def record_move(y_old, y_new, i, y, fresh, m, d, t_change, step_change, totals):
    """Round ``y`` into ``y_new[i]``; fill the changes to S, T and the step; return whether anything moved."""
    K = y.shape[0]
    moved = False
    a = b = c = 0.0
    for k in range(K):
        y_new[i, k] = np.float32(y[k])
        old = 0.0 if fresh else np.float64(y_old[i, k])
        y[k] = old
        d[k] = np.float64(y_new[i, k]) - old
        moved |= d[k] != 0.0
        a += old * old
        b += old * d[k]
        c += d[k] * d[k]
    if not moved:
        return False
    q = 0
    for k in range(K):
        for r in range(k, K):
            step_change[q] = d[k] * d[r]
            t_change[q] = y[k] * d[r] + d[k] * y[r] + step_change[q]
            q += 1
    totals[0] += m * b
    totals[1] += m * c
    totals[2] += m * a * b
    totals[3] += m * (a * c + 2.0 * b * b)
    totals[4] += m * b * c
    totals[5] += m * c * c
    totals[N_MOVED] += 1.0
    return True


@jit
def accumulate(labels, offsets, y, S, T, sums):
    """Add a block's ``y (rows, K)`` float32 to S and T, and sum m|y|^2 and sum m|y|^4 to ``sums (2,)``."""
    K = y.shape[1]
    s_at = np.empty(labels.shape[1], np.uint64)
    t_at = np.empty(labels.shape[1], np.uint64)
    d = np.zeros(S.shape[1])
    outer = np.zeros(T.shape[1])
    s_flat, t_flat = S.ravel(), T.ravel()
    for i in range(labels.shape[0]):
        m = locate(labels, i, offsets, S.shape[1], T.shape[1], s_at, t_at)
        square = 0.0
        q = 0
        for k in range(K):
            d[k] = np.float64(y[i, k])
            square += d[k] * d[k]
        for k in range(K):
            for r in range(k, K):
                outer[q] = d[k] * d[r]
                q += 1
        scatter(s_flat, s_at, m, d)
        scatter(t_flat, t_at, m, outer)
        sums[0] += m * square
        sums[1] += m * square * square
