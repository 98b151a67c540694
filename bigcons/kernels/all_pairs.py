"""All-pairs PCC with the squared divergence: one sweep of exact object updates over a block of rows.

The identities behind it: with ``S_b`` the summed memberships of base cluster ``b`` and ``T_u`` the summed
outer products of the objects seen in partition ``u``, the objective over all n(n-1)/2 pairs is

    f(Y) = const - (sum_b |S_b|^2 - sum_i m_i |y_i|^2) + (sum_u |T_u|^2 - sum_i m_i |y_i|^4) / 2

and, as a function of one object, the quadratic ``y'A y - 2 b'y`` with ``b`` and ``A`` gathered from the rows
of ``S`` and ``T`` that the object's labels index. Rows are padded to whole vectors, and ``T`` keeps
the upper triangle only, so that gathering and scattering are vector instructions.

With partition weights, ``S`` and ``T`` are unchanged: rows are weighted when they are gathered, m_i is
the summed weight of the labels of object i, and each partition's part of the norms counts by its weight.
``weights=None`` is resolved at compile time and costs nothing.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import empty, flat, zeros
from bigcons.kernels.cluster_tables import (
    add_to_rows,
    end_of_slice,
    find_rows,
    padded_leaf,
    rows_together,
    sum_columns,
)
from bigcons.kernels.simplex import minimize_on_simplex


@leaf
def triangle(n_clusters):
    """Return the number of entries of a triangle with its diagonal."""
    return n_clusters * (n_clusters + 1) // 2


@jit
def sweep(
    labels, offsets, weights, S, T, order, y_old, y_new, threshold, relaxation, fresh, totals
):  # fmt: skip
    """Update every object of a block in turn; add what changed to ``S``, ``T`` and ``totals``.

    labels (rows, M) with -1 missing; offsets (M+1,) int64; weights (M,) float64 or None; S (B, padded K)
    float64; T (M, padded K(K+1)/2) float64; order (K,) int64; y_old, y_new (rows, K) float32; totals (4,)
    float64. Cluster ``k`` of the tables is column ``order[k]`` of the memberships. The fewer of the first
    clusters an object needs, the less it costs: O(m K + m n^2) for ``n`` of them and ``m`` labels.

    Later objects see the moves of earlier ones (Gauss-Seidel). An object whose KKT gap is at most
    ``threshold`` does not move; others take ``relaxation`` >= 1 times the step to their minimum, or stop at
    the boundary of the simplex. With ``fresh`` the objects are new: ``y_old`` is not read, they are not part
    of S and T, and nothing changes but ``y_new``.

    ``totals``: the summed changes of m|y|^2 and of m|y|^4, the largest KKT gap found, and
    the number of objects that moved.
    """
    n_rows, M = labels.shape
    K = y_new.shape[1]
    s_width, t_width = S.shape[1], T.shape[1]
    s_at = empty(M, np.uint64)
    t_at = empty(M, np.uint64)
    w_at = listed(weights)
    s_sum = empty(s_width, np.float64)
    t_sum = empty(t_width, np.float64)
    A = empty((K, K), np.float64)
    b = empty(K, np.float64)
    y = empty(K, np.float64)
    d = zeros(s_width, np.float64)
    t_change = zeros(t_width, np.float64)
    support = empty(K, np.int64)
    work = empty((K, K + 2), np.float64)
    s_flat, t_flat = flat(S), flat(T)
    for i in range(n_rows):
        m = find_rows(labels, i, 0, M, offsets, s_width, s_at, t_width, t_at)
        weight = weigh(labels, i, 0, M, m, weights, w_at)
        if weight == 0.0:
            for k in range(K):
                y_new[i, k] = np.float32(1.0 / K)
            continue
        sum_columns(s_flat, s_at, w_at, m, 0, s_width, s_sum)
        for k in range(K):
            y[k] = 0.0 if fresh else np.float64(y_old[i, order[k]])
            b[k] = s_sum[k] - weight * y[k]
        n = n_likely(y, b)
        read_quadratic(t_flat, t_at, w_at, m, weight, y, 0, n, t_sum, A)
        n = solve_row(
            t_flat, t_at, w_at, m, weight, y, b, n, t_sum, A, support, work, fresh, threshold, totals
        )
        if n == 0:
            for k in range(K):
                y_new[i, k] = y_old[i, k]
            continue
        if fresh:
            for k in range(K):
                y_new[i, order[k]] = np.float32(y[k])
            continue
        if relaxation > 1.0:
            overshoot(order, y_old, i, relaxation, y)
        if record_move(order, y_old, y_new, i, y, weight, weight, d, totals):
            fill_change(y, d, n, t_change)
            add_to_rows(s_flat, s_at, m, d, s_width)
            add_to_rows(t_flat, t_at, m, t_change, triangle(n))


@leaf
def solve_row(
    table, at, w_at, m, weight, y, b, n, t_sum, A, support, work, fresh, threshold, totals
):  # fmt: skip
    """Minimize the quadratic of one object over the simplex in place in ``y``, from its first ``n`` clusters.

    More of ``A`` is read as clusters attract the object. Returns how many were read; 0 if the KKT gap, which
    goes to totals[2], is at most ``threshold`` and ``y`` stays. With ``fresh`` no gap is measured.
    """
    while not fresh:
        lowest, highest = gradient_range(A, b, y, n)
        wider = n_below(lowest, b, n)
        if wider == n:
            gap = 2.0 * (highest - lowest)
            totals[2] = max(totals[2], gap)
            if gap <= threshold:
                return 0
            break
        read_quadratic(table, at, w_at, m, weight, y, n, wider, t_sum, A)
        n = wider
    # A new object starts from the face of all clusters, where it is narrow: labels of much noise end in most.
    # From a wide one, as in a random start, it is faster to restart at a vertex: leaving a face of K clusters
    # takes K rounds of K^3, and few objects end in more than a handful.
    if fresh:
        for k in range(n):
            y[k] = 1.0 / n
    if n_positive(y, n) > 32:
        for k in range(n):
            y[k] = 0.0
        y[lightest_vertex(A, b, n)] = 1.0
    while True:
        level = minimize_on_simplex(A, b, y, n, support, work)
        wider = n_below(level, b, n)
        if wider == n:
            return n
        read_quadratic(table, at, w_at, m, weight, y, n, wider, t_sum, A)
        n = wider


def listed(weights: np.ndarray | None) -> np.ndarray | None:
    """Return a buffer for the weights of one object's labels, None without weights."""
    return None if weights is None else np.empty(weights.shape[0])


@overload(listed)
def _listed(weights):
    """Give each case a type of its own, where numba would give both one that may be None."""
    if isinstance(weights, types.Array):
        return lambda weights: empty(weights.shape[0], np.float64)
    return lambda weights: None  # noqa: ARG005 - of the same arguments as what it stands for


@leaf
def weigh(labels, i, first, last, m, weights, w_at):
    """List the weights of the ``m`` labels of object ``i`` in the partitions from ``first`` to before
    ``last``; return their sum, ``m`` without weights.
    """
    if weights is None:
        return np.float64(m)
    e = 0
    for u in range(first, last):
        w_at[e] = weights[u]  # overwritten by the next if the label is missing
        e += labels[i, u] >= 0
    total = 0.0
    for e in range(m):
        total += w_at[e]
    return total


@leaf
def n_likely(y, b):
    """Return how many clusters to read first: up to the last in the support of ``y`` or likely.

    Clusters of less than an eighth of the object's largest ``b`` rarely attract it.
    """
    largest = 0.0
    for k in range(b.shape[0]):
        largest = max(largest, b[k])
    n = b.shape[0]
    while n > 1 and y[n - 1] == 0.0 and b[n - 1] < 0.125 * largest:
        n -= 1
    return n


@leaf
def n_below(level, b, n):
    """Return how many clusters, at least ``n``, to read: the others have half gradients >= ``level``."""
    wider = b.shape[0]
    while wider > n and -b[wider - 1] >= level:
        wider -= 1
    return wider


@leaf
def read_quadratic(table, at, w_at, m, weight, y, n_read, n, t_sum, A):
    """Form ``A[:n, :n]`` of one object from its rows of T, less its own contribution of the given weight.

    ``A[:n_read, :n_read]`` and its part of ``t_sum`` are already computed.
    """
    sum_columns(table, at, w_at, m, padded_leaf(triangle(n_read)), triangle(n), t_sum)
    q = triangle(n_read)
    for r in range(n_read, n):
        share = weight * y[r]
        for k in range(r + 1):
            A[k, r] = A[r, k] = t_sum[q] - share * y[k]
            q += 1


@leaf
def gradient_range(A, b, y, n):
    """Return the smallest half gradient of the first ``n`` clusters and the largest on the support of ``y``.

    Twice their difference is the KKT gap, 0 at the optimum.
    """
    lowest = np.inf
    highest = -np.inf
    for k in range(n):
        g = -b[k]
        for r in range(n):
            g += A[k, r] * y[r]
        lowest = min(lowest, g)
        if y[k] > 0.0:
            highest = max(highest, g)
    return lowest, highest


@leaf
def n_positive(y, n):
    """Return the number of the first ``n`` clusters in the support of ``y``."""
    count = 0
    for k in range(n):
        count += y[k] > 0.0
    return count


@leaf
def lightest_vertex(A, b, n):
    """Return the best vertex among the first ``n`` clusters, for an object without a membership."""
    best = 0
    for k in range(1, n):
        if A[k, k] - 2.0 * b[k] < A[best, best] - 2.0 * b[best]:
            best = k
    return best


@leaf
def overshoot(order, y_old, i, step, y):
    """Extrapolate the step from the old membership to the minimum ``y`` by ``step``, within the simplex."""
    for k in range(y.shape[0]):
        old = np.float64(y_old[i, order[k]])
        if y[k] < old and step * (old - y[k]) > old:
            step = old / (old - y[k])
    if step > 1.0:
        for k in range(y.shape[0]):
            old = np.float64(y_old[i, order[k]])
            y[k] = max(old + step * (y[k] - old), 0.0)


@leaf
def record_move(order, y_old, y_new, i, y, weight, pull, d, totals):
    """Round ``y`` into ``y_new[i]``; return if it moved, with the old row in ``y``, the change in ``d``."""
    has_moved = False
    a = b = c = 0.0
    for k in range(y.shape[0]):
        column = order[k]
        y_new[i, column] = np.float32(y[k])
        old = np.float64(y_old[i, column])
        y[k] = old
        d[k] = np.float64(y_new[i, column]) - old
        has_moved |= d[k] != 0.0
        a += old * old
        b += old * d[k]
        c += d[k] * d[k]
    if has_moved:
        change = 2.0 * b + c
        totals[0] += pull * change
        totals[1] += weight * change * (2.0 * a + change)
        totals[3] += 1.0
    return has_moved


@leaf
def fill_change(y, d, n, t_change):
    """Fill the change of T for the move ``d`` from ``y`` in the first ``n`` clusters, padded with zeros."""
    q = 0
    for r in range(n):
        new = y[r] + d[r]
        for k in range(r + 1):
            t_change[q] = y[k] * d[r] + d[k] * new
            q += 1
    for padding in range(q, padded_leaf(q)):
        t_change[padding] = 0.0


@leaf
def fill_outer(d, n, outer):
    """Fill ``d d'`` of the first ``n`` clusters, in the order of T."""
    q = 0
    for r in range(n):
        for k in range(r + 1):
            outer[q] = d[k] * d[r]
            q += 1


@jit
def accumulate(labels, offsets, weights, y, S, T, sums):
    """Add a block's ``y (rows, K)`` float32 to S and T, and sum m|y|^2 and m|y|^4 to ``sums (2,)``."""
    n_rows, M = labels.shape
    K, s_width, t_width = y.shape[1], S.shape[1], T.shape[1]
    n_together = rows_together(n_rows, offsets, s_width, t_width)
    s_at, t_at = empty(M, np.uint64), empty(M, np.uint64)
    w_at = listed(weights)
    d, outer = zeros((n_together, s_width), np.float64), zeros((n_together, t_width), np.float64)
    weight = empty(n_together, np.float64)
    s_flat, t_flat = flat(S), flat(T)
    for start in range(0, n_rows, n_together):
        n_here = min(n_together, n_rows - start)
        weight[:n_here] = 0.0
        for r in range(n_here):
            for k in range(K):
                d[r, k] = np.float64(y[start + r, k])
            fill_outer(d[r], K, outer[r])
        first = 0
        while first < M:
            last = end_of_slice(offsets, first, s_width, t_width) if n_together > 1 else M
            for r in range(n_here):
                i = start + r
                m = find_rows(labels, i, first, last, offsets, s_width, s_at, t_width, t_at)
                weight[r] += weigh(labels, i, first, last, m, weights, w_at)
                add_to_rows(s_flat, s_at, m, d[r], s_width)
                add_to_rows(t_flat, t_at, m, outer[r], t_width)
            first = last
        for r in range(n_here):
            square = 0.0
            for k in range(K):
                square += d[r, k] * d[r, k]
            sums[0] += weight[r] * square
            sums[1] += weight[r] * square * square
