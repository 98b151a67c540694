"""All-pairs PCC of many clusters: a sweep in which an object has few clusters, found by its base clusters.

As a function of one object, given all others, the objective is ``y'A y - 2 b'y`` with

    b = theta h + the background of its partitions, less its own part
    A = v (G - v z z'),    z = theta y of the object as it is

where h is the sum of the hints of its base clusters, see `sparse_rows.choose_hints`, ``G = theta X theta``,
``X = sum_i v_i y_i y_i'``, is one table for all objects, and ``v_i v_j`` stands for the weight that the
partitions which label both objects have: see ``methods.pcc.many``. An object may belong to the clusters with
some share of the largest entry of h, and to those it is in. The quadratic is solved over those of them that
can lower the objective, and again until no other has a lower gradient. That is the minimum over the clusters
the object may belong to, among memberships in at most as many as there is room for.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels.simplex import minimize_on_simplex
from bigcons.kernels.sparse_rows import list_base_clusters, list_changes, read_row, times_near

# Slots of `totals` in `sweep`.
SQUARES, QUARTICS, MAX_GAP, N_MOVED, N_CHANGED, PREDICTED = 0, 1, 2, 3, 4, 5
N_TOTALS = 6

# Rounds of candidates for an object: one is the rule, a second if a cluster left the face.
MOST_ROUNDS = 6

# Gradients this much lower, relative to the curvature, are rounding errors.
ROUNDING = 1e-7


@jit
def sweep(
    labels, offsets, hints, background, spread, G, theta, near, weights, least, kept, kept_new, has_moved,
    X, own, threshold, length, fresh, totals
):  # fmt: skip
    """Find the best memberships of every object of a block, all others as they were before the block.

    labels (n, M) with -1 missing; offsets (M+1,) int64; ``hints`` the sparse table of what base clusters hint
    at; background (K, M) float64, of each partition; spread (K,), what the rest of base clusters pulls; G,
    theta (K, K) float64 symmetric, ``near`` the entries of theta that are not zero, as (row starts (K+1,),
    columns, values). weights (B, 3): of each base cluster the pull of an object on itself, the part of v of
    an object, and the rest of the base cluster. An object may belong to clusters with the share ``least`` of
    its largest hint. kept, kept_new (n, 2 room) float32: the clusters of an object, -1 for none, then its
    memberships in them. An object whose KKT gap is at most ``threshold`` does not move, others go ``length``
    of the way. With ``fresh`` objects are new, and ``kept`` is not read. ``has_moved`` (n,) bool is set.

    Adds what changed to X (K, K), and of ``|y|^2`` to the partitions of the object in own (M,).
    totals[SQUARES] and totals[QUARTICS] sum changes, too; MAX_GAP is the largest KKT gap found, N_MOVED
    counts objects that moved, N_CHANGED those whose largest membership is in another cluster; PREDICTED sums
    by how much each alone would lower the objective, at least (negative). O(H + c (M + t + s) + s^3) for an
    object of s clusters, with H hints, c clusters that it may belong to, and t entries in a row of theta.
    """
    n_rows, M = labels.shape
    K, room = theta.shape[0], kept_new.shape[1] // 2
    at_base, seen = np.empty(M + 1, np.int64), np.empty(M)
    h, z, latest, hinted = np.zeros(K), np.zeros(K), np.full(K, -1, np.int64), np.empty(K + 1, np.int64)
    clusters, b, g = np.empty(K, np.int64), np.empty(K), np.empty(K)
    at, found, before = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    y, y_before, b_at = np.empty(room), np.empty(room), np.empty(room)
    changed, change = np.empty(2 * room, np.int64), np.empty(2 * room)
    A, work = np.empty((room, room)), np.empty((room, room + 2))
    support = np.empty(room, np.int64)
    for i in range(n_rows):
        m = list_base_clusters(labels, i, offsets, at_base, seen)
        pull = v = rest = 0.0
        for j in range(m):
            pull += weights[at_base[j], 0]
            v += weights[at_base[j], 1]
            rest += weights[at_base[j], 2]
        has_moved[i] = False
        if v == 0.0:
            write_row(kept_new, i, found, y, 0)
            continue
        n_hinted = add_hints(hints, at_base, m, i, h, latest, hinted)
        n_before = 0 if fresh else read_row(kept, i, before, y_before)
        add_near(near, before, y_before, n_before, z)
        n_clusters = list_strong(h, hinted, n_hinted, before, n_before, least, clusters)
        for c in range(n_clusters):
            k = clusters[c]
            total = 0.0
            for u in range(M):
                total += background[k, u] * seen[u]
            b[c] = total + times_near(near, k, h) + rest * spread[k] - pull * z[k]
        for e in range(n_hinted):
            h[hinted[e]] = 0.0
        n = n_before
        for e in range(n):
            at[e], y[e] = e, y_before[e]
        if n == 0:
            at[0], y[0], n = best_vertex(G, b, v, clusters, n_clusters), 1.0, 1
        first, level, stays = 0.0, 0.0, False
        for number in range(MOST_ROUNDS + 1):
            set_gradient(G, b, z, v, clusters, n_clusters, at, y, n, g)
            if number == 0:
                first = cost_at(g, b, at, y, n)
                lowest, highest = np.inf, -np.inf
                for c in range(n_clusters):
                    lowest = min(lowest, g[c])
                for e in range(n):
                    highest = max(highest, g[at[e]])
                    level += y[e] * g[at[e]]  # about that of all at the minimum of the face
                if n_before > 0:
                    gap = 2.0 * (highest - lowest)
                    totals[MAX_GAP] = max(totals[MAX_GAP], gap)
                    stays = gap <= threshold
            if stays or number == MOST_ROUNDS:
                break
            largest = 0.0
            for e in range(n):
                k = clusters[at[e]]
                largest = max(largest, v * G[k, k])
            more = add_candidates(g, n_clusters, level - ROUNDING * largest, at, n)
            if more == n and number > 0:
                break
            for e in range(n, more):
                y[e] = 0.0
            n = more
            for e in range(n):
                b_at[e] = b[at[e]]
                for f in range(e + 1):
                    k, r = clusters[at[e]], clusters[at[f]]
                    A[e, f] = A[f, e] = v * (G[k, r] - v * z[k] * z[r])
            level = minimize_on_simplex(A, b_at, y, n, support, work)
            n = without_zeros(at, y, n)
        clear_near(near, before, n_before, z)
        if stays:
            copy_row(kept, kept_new, i)
            continue
        if n_before > 0:
            totals[PREDICTED] += length * (cost_at(g, b, at, y, n) - first)
        for e in range(n):
            found[e] = clusters[at[e]]
        if length < 1.0 and n_before > 0:
            n = part_of_the_way(before, y_before, n_before, found, y, n, length)
        write_row(kept_new, i, found, y, n)
        n = read_row(kept_new, i, found, y)
        if list_changes(before, y_before, n_before, found, y, n, changed, change) == 0:
            continue
        has_moved[i] = True
        totals[N_MOVED] += 1.0
        totals[N_CHANGED] += n_before == 0 or winner(before, y_before, n_before) != winner(found, y, n)
        length_before = add_squares(before, y_before, n_before, -1.0, v, pull, theta, X, totals)
        more_length = add_squares(found, y, n, 1.0, v, pull, theta, X, totals) - length_before
        for u in range(M):
            own[u] += more_length * seen[u]


@leaf
def add_hints(hints, at_base, m, i, h, latest, hinted):
    """Add the hints of object ``i``'s base clusters to ``h``, and list the clusters; return how many.

    All if there is no hint. ``latest`` (K,): the object that had a hint at each cluster last.
    """
    starts, columns, values = hints
    n = 0
    for j in range(m):
        for q in range(starts[at_base[j]], starts[at_base[j] + 1]):
            k = columns[q]
            h[k] += values[q]
            hinted[n] = k
            n += latest[k] != i
            latest[k] = i
    if n == 0:
        n = h.shape[0]
        for k in range(n):
            hinted[k] = k
    return n


@leaf
def list_strong(h, hinted, n_hinted, before, n_before, least, clusters):
    """List the clusters ``before``, then the others with the share ``least`` of the largest ``h``."""
    largest, n = -np.inf, n_before
    for e in range(n_hinted):
        largest = max(largest, h[hinted[e]])
    enough = least * largest if largest > 0.0 else -np.inf
    for f in range(n_before):
        clusters[f] = before[f]
    for e in range(n_hinted):
        k = hinted[e]
        if h[k] >= enough:
            known = False
            for f in range(n_before):
                known |= before[f] == k
            if not known:
                clusters[n] = k
                n += 1
    return n


@leaf
def add_squares(found, y, n, sign, v, pull, theta, X, totals):
    """Add ``v y y'`` of one object to X, with ``sign`` 1 or -1; return ``|y|^2``.

    And to totals ``pull y' theta y``, and ``v^2`` times the square of ``y' theta y``.
    """
    length = inner = 0.0
    for e in range(n):
        length += y[e] * y[e]
        for f in range(n):
            X[found[e], found[f]] += sign * v * y[e] * y[f]
            inner += theta[found[e], found[f]] * y[e] * y[f]
    totals[SQUARES] += sign * pull * inner
    totals[QUARTICS] += sign * v * v * inner * inner
    return length


@leaf
def add_near(near, found, y, n, out):
    """Add ``theta y`` to ``out``."""
    starts, columns, values = near
    for e in range(n):
        for q in range(starts[found[e]], starts[found[e] + 1]):
            out[columns[q]] += y[e] * values[q]


@leaf
def clear_near(near, found, n, out):
    """Set to zero what `add_near` adds to."""
    starts, columns, _ = near
    for e in range(n):
        for q in range(starts[found[e]], starts[found[e] + 1]):
            out[columns[q]] = 0.0


@leaf
def set_gradient(G, b, z, v, clusters, n_clusters, at, y, n, g):
    """Set ``g`` to half the gradient ``A y - b`` at ``y``, in the listed clusters."""
    inner = 0.0
    for e in range(n):
        inner += y[e] * z[clusters[at[e]]]
    for c in range(n_clusters):
        k = clusters[c]
        total = 0.0
        for e in range(n):
            total += y[e] * G[clusters[at[e]], k]
        g[c] = v * (total - v * inner * z[k]) - b[c]


@leaf
def cost_at(g, b, at, y, n):
    """Return ``y'A y - 2 b'y`` by half the gradient ``g = A y - b`` at ``y``."""
    cost = 0.0
    for e in range(n):
        cost += y[e] * (g[at[e]] - b[at[e]])
    return cost


@leaf
def best_vertex(G, b, v, clusters, n_clusters):
    """Return which of the clusters has the lowest objective if an object that is in none were in it alone."""
    best, lowest = 0, np.inf
    for c in range(n_clusters):
        cost = v * G[clusters[c], clusters[c]] - 2.0 * b[c]
        if cost < lowest:
            best, lowest = c, cost
    return best


@leaf
def add_candidates(g, n_clusters, level, at, n):
    """List after the ``n`` clusters ``at`` those of the lowest gradients below ``level``, lowest first.

    As many as there is room for; return how many are listed.
    """
    room, listed = at.shape[0], n
    if n == room:
        return n
    for c in range(n_clusters):
        if g[c] >= level or (listed == room and g[c] >= g[at[room - 1]]):
            continue
        known = False
        for e in range(n):
            known |= at[e] == c
        if known:
            continue
        place = listed if listed < room else room - 1
        while place > n and g[at[place - 1]] > g[c]:
            at[place] = at[place - 1]
            place -= 1
        at[place] = c
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
