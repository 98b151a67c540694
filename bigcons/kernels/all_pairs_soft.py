"""All-pairs PCC with the squared divergence on soft clusterings: `all_pairs` with memberships as labels.

With memberships ``p_ib`` of object i in base cluster b and ``q_i = sum_b p_ib^2``, the expected agreement of
two objects is ``sum_b p_ib p_jb``. So ``S_b`` sums ``p_ib y_i``, an object's own part of ``b`` is ``q_i y_i``
where that of labels is ``m_i y_i``, and the objective has ``q_i |y_i|^2`` in the place of ``m_i |y_i|^2``.
``T`` and the rest are as for labels; an object is seen in the partitions in which it has memberships.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import empty, flat, jit, leaf, zeros
from bigcons.kernels.all_pairs import (
    fill_change,
    fill_outer,
    listed,
    n_likely,
    overshoot,
    read_quadratic,
    record_move,
    solve_row,
    triangle,
)
from bigcons.kernels.cluster_tables import add_to_rows, sum_columns


@leaf
def list_rows(memberships, i, offsets, weights, s_width, t_width, s_at, p_at, sw_at, t_at, w_at):
    """List where the rows of object ``i`` begin in S and T, with its memberships and all weights.

    Memberships go to ``p_at`` and, times the weights of their partitions, to ``sw_at``; weights of partitions
    to ``w_at``, if there are any. Returns the numbers of rows in S and T, ``q_i`` and ``m_i``, weighted.
    """
    n, m = 0, 0
    own, weight = 0.0, 0.0
    for u in range(offsets.shape[0] - 1):
        times = 1.0 if weights is None else weights[u]
        before = n
        for b in range(offsets[u], offsets[u + 1]):
            share = np.float64(memberships[i, b])
            if share > 0.0:
                s_at[n] = np.uint64(b * s_width)
                p_at[n] = share
                sw_at[n] = times * share
                own += times * share * share
                n += 1
        if n > before:
            t_at[m] = np.uint64(u * t_width)
            if weights is not None:
                w_at[m] = times
            weight += times
            m += 1
    return n, m, own, weight


@leaf
def add_shares(table, at, shares, n, values, width):
    """Add ``shares[e] * values[:width]`` to the ``n`` rows of the flat ``table`` that begin at ``at``."""
    for e in range(n):
        for k in range(width):
            if values[k] != 0.0:
                table[at[e] + np.uint64(k)] += shares[e] * values[k]


@jit
def sweep(
    memberships, offsets, weights, S, T, order, y_old, y_new, threshold, relaxation, fresh, totals
):  # fmt: skip
    """Update every object of a block in turn, as `all_pairs.sweep`; memberships (rows, B) float32."""
    K = y_new.shape[1]
    M, s_width, t_width = offsets.shape[0] - 1, S.shape[1], T.shape[1]
    s_at, t_at = empty(memberships.shape[1], np.uint64), empty(M, np.uint64)
    p_at, sw_at = empty((2, memberships.shape[1]), np.float64)
    w_at = listed(weights)
    s_sum, t_sum = empty(s_width, np.float64), empty(t_width, np.float64)
    A, b, y = empty((K, K), np.float64), empty(K, np.float64), empty(K, np.float64)
    d, t_change = zeros(s_width, np.float64), zeros(t_width, np.float64)
    support, work = empty(K, np.int64), empty((K, K + 2), np.float64)
    s_flat, t_flat = flat(S), flat(T)
    for i in range(memberships.shape[0]):
        n_s, m, own, weight = list_rows(
            memberships, i, offsets, weights, s_width, t_width, s_at, p_at, sw_at, t_at, w_at
        )
        if weight == 0.0:
            for k in range(K):
                y_new[i, k] = np.float32(1.0 / K)
            continue
        sum_columns(s_flat, s_at, sw_at, n_s, 0, s_width, s_sum)
        for k in range(K):
            y[k] = 0.0 if fresh else np.float64(y_old[i, order[k]])
            b[k] = s_sum[k] - own * y[k]
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
        if record_move(order, y_old, y_new, i, y, weight, own, d, totals):
            fill_change(y, d, n, t_change)
            add_shares(s_flat, s_at, p_at, n_s, d, K)
            add_to_rows(t_flat, t_at, m, t_change, triangle(n))


@jit
def measure_step(memberships, offsets, weights, y_old, y_new, T_step, sums):
    """Add a block's terms of the objective along its changes, as `all_pairs.measure_step`.

    The first two of the ``sums`` are times ``q_i``, the others times ``m_i``.
    """
    K, M = y_new.shape[1], offsets.shape[0] - 1
    s_at, t_at = empty(memberships.shape[1], np.uint64), empty(M, np.uint64)
    p_at, sw_at = empty((2, memberships.shape[1]), np.float64)
    w_at = listed(weights)
    d, outer = empty(K, np.float64), zeros(T_step.shape[1], np.float64)
    table = flat(T_step)
    for i in range(memberships.shape[0]):
        _, m, own, weight = list_rows(
            memberships, i, offsets, weights, 0, T_step.shape[1], s_at, p_at, sw_at, t_at, w_at
        )
        if m == 0:
            continue
        a = b = c = 0.0
        for k in range(K):
            old = np.float64(y_old[i, k])
            d[k] = np.float64(y_new[i, k]) - old
            a += old * old
            b += old * d[k]
            c += d[k] * d[k]
        if c == 0.0:
            continue
        fill_outer(d, K, outer)
        add_to_rows(table, t_at, m, outer, triangle(K))
        sums[0] += own * b
        sums[1] += own * c
        sums[2] += weight * a * b
        sums[3] += weight * (a * c + 2.0 * b * b)
        sums[4] += weight * b * c
        sums[5] += weight * c * c


@jit
def accumulate(memberships, offsets, weights, y, S, T, sums):
    """Add a block's ``y (rows, K)`` float32 to S and T, and sum q|y|^2 and m|y|^4 to ``sums (2,)``."""
    K, M = y.shape[1], offsets.shape[0] - 1
    s_at, t_at = empty(memberships.shape[1], np.uint64), empty(M, np.uint64)
    p_at, sw_at = empty((2, memberships.shape[1]), np.float64)
    w_at = listed(weights)
    d, outer = zeros(S.shape[1], np.float64), zeros(T.shape[1], np.float64)
    s_flat, t_flat = flat(S), flat(T)
    for i in range(memberships.shape[0]):
        n_s, m, own, weight = list_rows(
            memberships, i, offsets, weights, S.shape[1], T.shape[1], s_at, p_at, sw_at, t_at, w_at
        )
        square = 0.0
        for k in range(K):
            d[k] = np.float64(y[i, k])
            square += d[k] * d[k]
        fill_outer(d, K, outer)
        add_shares(s_flat, s_at, p_at, n_s, d, K)
        add_to_rows(t_flat, t_at, m, outer, T.shape[1])
        sums[0] += own * square
        sums[1] += weight * square * square
