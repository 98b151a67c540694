"""All-pairs PCC of many clusters: a sweep in which an object has few clusters, and no K x K table of its own.

As a function of one object, given all others, the objective is ``y'A y - 2 b'y`` with

    b = sum of the rows of ``rows`` that its labels index, less its own part
    A = v (G - v z z'),    z = theta y of the object as it is

where ``G = theta X theta``, ``X = sum_i v_i y_i y_i'``, is one table for all objects, and ``v_i v_j`` stands
for the weight that the partitions which label both objects have: see ``methods.pcc.many``. The gradient is
known for all clusters in O(m K), so those that can lower the objective are found among all; the quadratic is
solved over these candidates only, and again until no other cluster has a lower gradient. That is the minimum
over all clusters, among memberships in at most as many as there is room for.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels.all_pairs import sum_counts
from bigcons.kernels.cluster_tables import find_rows, sum_columns, sum_rows
from bigcons.kernels.simplex import minimize_on_simplex

# Slots of `totals` in `sweep`.
SQUARES, QUARTICS, MAX_GAP, N_MOVED, N_CHANGED, PREDICTED = 0, 1, 2, 3, 4, 5
N_TOTALS = 6

# Rounds of candidates for an object: one is the rule, a second if a cluster left the face.
MOST_ROUNDS = 6

# Gradients this much lower, relative to the curvature, are rounding errors.
ROUNDING = 1e-7


@jit
def sweep(
    labels, offsets, rows, G, theta, near, counts, scale, kept, kept_new, S, X, own, threshold, length, fresh,
    totals
):  # fmt: skip
    """Find the best memberships of every object of a block, all others as they were before the block.

    labels (n, M) with -1 missing; offsets (M+1,) int64; rows (B, padded K) float64; G (K, padded K), theta
    (K, K) float64 symmetric, ``near`` the entries of theta that are not zero, as (row starts (K+1,), columns,
    values); counts (2, B+M) as in ``all_pairs.sweep``; ``scale`` times the summed weight of its partitions
    is v of an object. kept, kept_new (n, 2 room) float32: the clusters of an object, -1 for none, then its
    memberships in them. An object whose KKT gap is at most ``threshold`` does not move, others go ``length``
    of the way. With ``fresh`` objects are new, and ``kept`` is not read.

    Adds what changed to S (B, padded K), X (K, K) and own (M,), see `add_to_labels` and `add_squares`.
    totals[SQUARES] and totals[QUARTICS] sum changes, too; MAX_GAP is the largest KKT gap found, N_MOVED
    counts objects that moved, N_CHANGED those whose largest membership is in another cluster; PREDICTED sums
    by how much each alone would lower the objective, at least (negative). O(m K + s K + s^3) for an object of
    m labels and s clusters.
    """
    n_rows, M = labels.shape
    K, width, room = theta.shape[0], rows.shape[1], kept_new.shape[1] // 2
    at = np.empty(M, np.uint64)
    b, g, z = np.zeros(width), np.empty(width), np.zeros(K)
    g_at, g_by = np.empty(room, np.uint64), np.empty(room)
    found, before = np.empty(room, np.int64), np.empty(room, np.int64)
    y, y_before, b_at = np.empty(room), np.empty(room), np.empty(room)
    changed, change = np.empty(2 * room, np.int64), np.empty(2 * room)
    A, work = np.empty((room, room)), np.empty((room, room + 2))
    support = np.empty(room, np.int64)
    flat, sums, G_flat = rows.ravel(), S.ravel(), G.ravel()
    for i in range(n_rows):
        m = find_rows(labels, i, offsets, width, at)
        v = scale * sum_counts(labels, i, offsets, counts, 1)
        if v == 0.0:
            write_row(kept_new, i, found, y, 0)
            continue
        pull = sum_counts(labels, i, offsets, counts, 0)
        sum_rows(flat, at, m, b)
        n = 0 if fresh else read_row(kept, i, before, y_before)
        n_before = n
        for e in range(n):
            found[e], y[e] = before[e], y_before[e]
        add_near(near, before, y_before, n_before, 1.0, z)
        add_near(near, before, y_before, n_before, -pull, b)
        if n == 0:
            found[0], y[0], n = best_vertex(G, b, v, K), 1.0, 1
        first, level, stays = 0.0, 0.0, False
        for number in range(MOST_ROUNDS + 1):
            inner = set_gradient(G_flat, width, b, z, found, y, n, v, g_at, g_by, g)
            add_near(near, before, y_before, n_before, -v * v * inner, g)
            if number == 0:
                first = cost_at(g, b, found, y, n)
                lowest, highest = np.inf, -np.inf
                for k in range(K):
                    lowest = min(lowest, g[k])
                for e in range(n):
                    highest = max(highest, g[found[e]])
                    level += y[e] * g[found[e]]  # about that of all at the minimum of the face
                if n_before > 0:
                    gap = 2.0 * (highest - lowest)
                    totals[MAX_GAP] = max(totals[MAX_GAP], gap)
                    stays = gap <= threshold
            if stays or number == MOST_ROUNDS:
                break
            largest = 0.0
            for e in range(n):
                largest = max(largest, v * G[found[e], found[e]])
            more = add_candidates(g, K, level - ROUNDING * largest, found, n)
            if more == n and number > 0:
                break
            for e in range(n, more):
                y[e] = 0.0
            n = more
            for e in range(n):
                b_at[e] = b[found[e]]
                for f in range(e + 1):
                    k, r = found[e], found[f]
                    A[e, f] = A[f, e] = v * (G[k, r] - v * z[k] * z[r])
            level = minimize_on_simplex(A, b_at, y, n, support, work)
            n = without_zeros(found, y, n)
        clear_near(near, before, n_before, z)
        if stays:
            copy_row(kept, kept_new, i)
            continue
        if n_before > 0:
            totals[PREDICTED] += length * (cost_at(g, b, found, y, n) - first)
        if length < 1.0 and n_before > 0:
            n = part_of_the_way(before, y_before, n_before, found, y, n, length)
        write_row(kept_new, i, found, y, n)
        n = read_row(kept_new, i, found, y)
        n_changes = list_changes(before, y_before, n_before, found, y, n, changed, change)
        if n_changes == 0:
            continue
        totals[N_MOVED] += 1.0
        totals[N_CHANGED] += n_before == 0 or winner(before, y_before, n_before) != winner(found, y, n)
        add_to_labels(at, m, changed, change, n_changes, sums)
        add_squares(labels, i, before, y_before, n_before, -1.0, v, pull, theta, X, own, totals)
        add_squares(labels, i, found, y, n, 1.0, v, pull, theta, X, own, totals)


@leaf
def list_changes(before, y_before, n_before, found, y, n, changed, change):
    """List the clusters whose membership changed, and by how much; return how many."""
    n_changes = 0
    for e in range(n):
        d = y[e]
        for f in range(n_before):
            if before[f] == found[e]:
                d -= y_before[f]
        if d != 0.0:
            changed[n_changes], change[n_changes] = found[e], d
            n_changes += 1
    for f in range(n_before):
        stayed = False
        for e in range(n):
            stayed |= found[e] == before[f]
        if not stayed:
            changed[n_changes], change[n_changes] = before[f], -y_before[f]
            n_changes += 1
    return n_changes


@leaf
def add_to_labels(at, m, found, y, n, sums):
    """Add ``y`` to the ``m`` rows of the flat ``sums`` that begin at ``at``."""
    for e in range(n):
        column = np.uint64(found[e])
        for j in range(m):
            sums[at[j] + column] += y[e]


@leaf
def add_squares(labels, i, found, y, n, sign, v, pull, theta, X, own, totals):
    """Add ``v y y'`` of one object to X, and ``|y|^2`` to its partitions in ``own``; with ``sign`` 1 or -1.

    And to totals ``pull y' theta y``, and ``v^2`` times the square of ``y' theta y``.
    """
    length = inner = 0.0
    for e in range(n):
        length += y[e] * y[e]
        for f in range(n):
            X[found[e], found[f]] += sign * v * y[e] * y[f]
            inner += theta[found[e], found[f]] * y[e] * y[f]
    for u in range(labels.shape[1]):
        if labels[i, u] >= 0:
            own[u] += sign * length
    totals[SQUARES] += sign * pull * inner
    totals[QUARTICS] += sign * v * v * inner * inner


@leaf
def add_near(near, found, y, n, factor, out):
    """Add ``factor theta y`` to ``out``."""
    starts, columns, values = near
    for e in range(n):
        part = factor * y[e]
        for q in range(starts[found[e]], starts[found[e] + 1]):
            out[columns[q]] += part * values[q]


@leaf
def clear_near(near, found, n, out):
    """Set to zero what `add_near` adds to."""
    starts, columns, _ = near
    for e in range(n):
        for q in range(starts[found[e]], starts[found[e] + 1]):
            out[columns[q]] = 0.0


@leaf
def set_gradient(G_flat, width, b, z, found, y, n, v, g_at, g_by, g):
    """Set ``g`` to ``v G y - b``, half the gradient at ``y`` but for ``-v^2 z (z.y)``; return ``z.y``."""
    inner = 0.0
    for e in range(n):
        inner += y[e] * z[found[e]]
        g_at[e], g_by[e] = np.uint64(found[e] * width), v * y[e]
    sum_columns(G_flat, g_at, g_by, n, 0, width, g)
    for k in range(width):
        g[k] -= b[k]
    return inner


@leaf
def cost_at(g, b, found, y, n):
    """Return ``y'A y - 2 b'y`` by half the gradient ``g = A y - b`` at ``y``."""
    cost = 0.0
    for e in range(n):
        cost += y[e] * (g[found[e]] - b[found[e]])
    return cost


@leaf
def best_vertex(G, b, v, K):
    """Return the cluster of the lowest objective if an object that is in none yet were in it alone."""
    best, lowest = 0, np.inf
    for k in range(K):
        cost = v * G[k, k] - 2.0 * b[k]
        if cost < lowest:
            best, lowest = k, cost
    return best


@leaf
def add_candidates(g, K, level, found, n):
    """List after the ``n`` clusters ``found`` those of the lowest gradients below ``level``, lowest first.

    As many as there is room for; return how many are listed.
    """
    room, listed = found.shape[0], n
    if n == room:
        return n
    for k in range(K):
        if g[k] >= level or (listed == room and g[k] >= g[found[room - 1]]):
            continue
        known = False
        for e in range(n):
            known |= found[e] == k
        if known:
            continue
        at = listed if listed < room else room - 1
        while at > n and g[found[at - 1]] > g[k]:
            found[at] = found[at - 1]
            at -= 1
        found[at] = k
        listed = min(listed + 1, room)
    return listed


@leaf
def without_zeros(found, y, n):
    """Drop clusters whose membership is zero, in place; return how many are left."""
    left = 0
    for e in range(n):
        if y[e] > 0.0:
            found[left], y[left] = found[e], y[e]
            left += 1
    return left


@leaf
def part_of_the_way(before, y_before, n_before, found, y, n, length):
    """Set ``y`` to the point at ``length`` between two memberships; the smallest shares may find no room."""
    room = found.shape[0]
    for e in range(n):
        y[e] *= length
    for f in range(n_before):
        share = (1.0 - length) * y_before[f]
        at = -1
        for e in range(n):
            if found[e] == before[f]:
                at = e
        if at >= 0:
            y[at] += share
            continue
        if n < room:
            found[n], y[n] = before[f], share
            n += 1
            continue
        least = 0
        for e in range(1, n):
            if y[e] < y[least]:
                least = e
        if share > y[least]:
            found[least], y[least] = before[f], share
    total = 0.0
    for e in range(n):
        total += y[e]
    for e in range(n):
        y[e] /= total
    return n


@leaf
def read_row(kept, i, found, y):
    """Read the clusters and memberships of an object, these normalized in float64; return how many."""
    room, n, total = found.shape[0], 0, 0.0
    while n < room and kept[i, n] >= 0:
        found[n] = np.int64(kept[i, n])
        y[n] = np.float64(kept[i, room + n])
        total += y[n]
        n += 1
    for e in range(n):
        y[e] /= total
    return n


@leaf
def write_row(kept, i, found, y, n):
    """Write the clusters and memberships of an object."""
    room = kept.shape[1] // 2
    for e in range(room):
        kept[i, e] = np.float32(found[e]) if e < n else np.float32(-1.0)
        kept[i, room + e] = np.float32(y[e]) if e < n else np.float32(0.0)


@leaf
def copy_row(kept, kept_new, i):
    """Copy the row of an object."""
    for e in range(kept.shape[1]):
        kept_new[i, e] = kept[i, e]


@leaf
def winner(found, y, n):
    """Return the cluster of the largest membership, the first listed of equal ones."""
    best = 0
    for e in range(1, n):
        if y[e] > y[best]:
            best = e
    return found[best] if n else -1
