"""Algorithm 1 of PCC (Lourenço et al. 2015): steepest two-coordinate descent, objects in a priority queue.

Each row of ``rows (n, 2K)`` holds an object's membership followed by its gradient. Two departures from the
paper, both exact: the probability of a pair is recomputed from two rows that a step reads anyway, so nothing
is stored per pair; and a decreased key is kept as an upper bound until its object reaches the top.

The n objects may be a subset: object ``n + r`` is then row ``r`` of ``others (., K)`` float32, memberships
that are held fixed.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit, leaf


@jit
def prepare(rows, indptr, indices, observed, weight, fixed, keys, items, position, slope):
    """Compute every gradient from the memberships, and build the queue. O(K n_pairs + n)."""
    n = rows.shape[0]
    K = rows.shape[1] // 2
    for i in range(n):
        for k in range(K):
            rows[i, K + k] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            x, w = np.float64(observed[e]), np.float64(weight[e])
            if j < n:
                s = w * slope(x, product(rows, j, rows, i, K))
                add_to_gradient(rows, i, s, rows, j, K)
            else:
                s = w * slope(x, product(fixed, j - n, rows, i, K))
                add_to_gradient(rows, i, s, fixed, j - n, K)
        keys[i] = kkt_gap(rows, i, K)
        items[i] = i
    heapify(keys, items, position)


@jit
def descend(
    rows, indptr, indices, observed, weight, fixed, keys, items, position, scratch, n_steps, tol,
    line_search, slope
):  # fmt: skip
    """Take up to ``n_steps`` steps; return how many were taken and the largest KKT gap left.

    indptr (n+1,) and indices: CSR, each pair of the n objects stored in both rows, a pair with others in one;
    observed and weight, float32, parallel to indices: share of agreement and number of partitions that label
    both; scratch (4, most neighbors). A step costs O(l (K + log n)) for l neighbors plus the line search.
    """
    n = rows.shape[0]
    K = rows.shape[1] // 2
    for step in range(n_steps):
        j, gap, u, v = pop_steepest(rows, K, keys, items, position)
        if gap <= tol:
            return step, gap
        start, stop = indptr[j], indptr[j + 1]
        m = stop - start
        for e in range(m):
            i = indices[start + e]
            if i < n:
                scratch[0, e] = product(rows, i, rows, j, K)
                scratch[1, e] = rows[i, u] - rows[i, v]
            else:
                scratch[0, e] = product(fixed, i - n, rows, j, K)
                scratch[1, e] = np.float64(fixed[i - n, u]) - np.float64(fixed[i - n, v])
            scratch[2, e] = observed[start + e]
            scratch[3, e] = weight[start + e]
        length = line_search(scratch, m, gap, rows[j, v])
        if length <= 0.0:  # a local minimum but not a KKT point: wait until a neighbor moves
            keys[0] = 0.0
            sift_down(keys, items, position, 0)
            continue
        neighbors = indices[start:stop]
        take_step(rows, fixed, j, u, v, length, neighbors, scratch, keys, items, position, slope)
    return n_steps, pop_steepest(rows, K, keys, items, position)[1]


@leaf
def product(these, i, rows, j, K):
    """Return the co-membership probability of object ``i`` of ``these`` (rows or others) and ``j``."""
    p = 0.0
    for k in range(K):
        p += these[i, k] * rows[j, k]
    return p


@leaf
def add_to_gradient(rows, j, factor, these, i, K):
    """Add ``factor`` times the membership of object ``i`` of ``these`` to the gradient of ``j``."""
    for k in range(K):
        rows[j, K + k] += factor * these[i, k]


@leaf
def steepest(rows, i, K):
    """Return object ``i``'s KKT gap and the clusters that gain (``u``) and lose (``v``) membership."""
    u = 0
    v = -1
    lowest = rows[i, K]
    highest = -np.inf
    for k in range(K):
        g = rows[i, K + k]
        if g < lowest:
            lowest = g
            u = k
        if rows[i, k] > 0.0 and g > highest:
            highest = g
            v = k
    return highest - lowest, u, v


@leaf
def kkt_gap(rows, i, K):
    """Return the gap alone, without branches: most calls are for neighbors that do not move next."""
    lowest = np.inf
    highest = -np.inf
    for k in range(K):
        g = rows[i, K + k]
        lowest = min(lowest, g)
        highest = max(highest, g if rows[i, k] > 0.0 else -np.inf)
    return highest - lowest


@leaf
def pop_steepest(rows, K, keys, items, position):
    """Return the object with the largest gap. Keys are upper bounds: lower the top key until it is exact."""
    while True:
        j = items[0]
        gap, u, v = steepest(rows, j, K)
        if gap >= keys[0]:
            return j, keys[0], u, v
        keys[0] = gap
        sift_down(keys, items, position, 0)


@leaf
def take_step(rows, fixed, j, u, v, length, neighbors, scratch, keys, items, position, slope):
    """Move ``length`` of object ``j`` from cluster ``v`` to ``u``; update gradients and queue."""
    n = rows.shape[0]
    K = rows.shape[1] // 2
    remaining = rows[j, v] - length
    if remaining <= 0.0:
        length = rows[j, v]
        remaining = 0.0  # exactly: the support of a membership is where it is not zero
    rows[j, u] += length
    rows[j, v] = remaining
    for k in range(K):
        rows[j, K + k] = 0.0
    for e in range(neighbors.shape[0]):
        i = neighbors[e]
        p, x, w = scratch[0, e], scratch[2, e], scratch[3, e]
        new_slope = w * slope(x, p + length * scratch[1, e])
        if i >= n:
            add_to_gradient(rows, j, new_slope, fixed, i - n, K)
            continue
        old_slope = w * slope(x, p)
        change = new_slope - old_slope
        for k in range(K):
            rows[j, K + k] += new_slope * rows[i, k]
            rows[i, K + k] += change * rows[j, k]
        # the old gradient term used the old y_j, which `change` does not account for
        rows[i, K + u] += old_slope * length
        rows[i, K + v] -= old_slope * length
        h = position[i]
        gap = kkt_gap(rows, i, K)
        if gap > keys[h]:
            keys[h] = gap
            sift_up(keys, items, position, h)
    h = position[j]
    gap = kkt_gap(rows, j, K)
    grew = gap > keys[h]
    keys[h] = gap
    if grew:
        sift_up(keys, items, position, h)
    else:
        sift_down(keys, items, position, h)


@jit
def quadratic_search(scratch, m, gap, longest):
    """Return the exact step of the squared divergence: gap over curvature, at most ``longest``."""
    curvature = 0.0
    for e in range(m):
        curvature += scratch[3, e] * scratch[1, e] * scratch[1, e]
    if 2.0 * curvature * longest <= gap:
        return longest
    return gap / (2.0 * curvature)


@jit
def total_value(rows, indptr, indices, observed, weight, fixed, value):
    """Return the objective over the pairs, each counted once. O(K n_pairs).

    ``fixed`` may be truncated: pairs with objects beyond it are left out.
    """
    n = rows.shape[0]
    K = rows.shape[1] // 2
    total = 0.0
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if not i < j < n + fixed.shape[0]:
                continue
            p = product(rows, j, rows, i, K) if j < n else product(fixed, j - n, rows, i, K)
            total += np.float64(weight[e]) * value(np.float64(observed[e]), p)
    return total


@jit
def values_along(
    before, after, indptr, indices, observed, weight, others_before, others_after, lengths, totals, value
):  # fmt: skip
    """Add the objective at steps of ``lengths (m,)`` from ``before`` to ``after`` to ``totals (m,)``.

    Memberships are float32, (n, K) and those of other objects; each pair is counted once, and pairs with a
    negative index are left out. O((K + m) n_pairs).
    """
    n, K = before.shape
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if j <= i:
                continue
            start, linear, square = 0.0, 0.0, 0.0
            for k in range(K):
                a = np.float64(before[i, k])
                d = np.float64(after[i, k]) - a
                if j < n:
                    b = np.float64(before[j, k])
                    c = np.float64(after[j, k]) - b
                else:
                    b = np.float64(others_before[j - n, k])
                    c = np.float64(others_after[j - n, k]) - b
                start += a * b
                linear += a * c + b * d
                square += c * d
            x, w = np.float64(observed[e]), np.float64(weight[e])
            for m in range(lengths.shape[0]):
                p = start + lengths[m] * (linear + lengths[m] * square)
                totals[m] += w * value(x, p)


@jit
def renumber(indices, starts, shifts, numbers):
    """Write each index plus the shift of its block to ``numbers``; blocks begin at ``starts``, ascending."""
    for e in range(indices.shape[0]):
        low = 0
        high = starts.shape[0]
        while high - low > 1:
            middle = (low + high) >> 1
            if starts[middle] <= indices[e]:
                low = middle
            else:
                high = middle
        numbers[e] = indices[e] + shifts[low]


# The queue is an indexed binary max-heap, so that any key can change. ``keys (n,)`` float64 and ``items
# (n,)`` int32 are in heap order, so that sifting reads contiguous memory; ``position (n,)`` int32 inverts
# ``items``.


@jit
def heapify(keys, items, position):
    """Arrange ``keys`` and ``items`` in heap order and fill ``position``. O(n)."""
    n = keys.shape[0]
    for h in range(n):
        position[items[h]] = h
    for h in range(n // 2 - 1, -1, -1):
        sift_down(keys, items, position, h)


@jit
def sift_up(keys, items, position, h):
    """Move the entry at ``h``, whose key may have grown, towards the root. O(log n)."""
    key = keys[h]
    item = items[h]
    while h > 0:
        parent = (h - 1) >> 1
        if keys[parent] >= key:
            break
        keys[h] = keys[parent]
        items[h] = items[parent]
        position[items[h]] = h
        h = parent
    keys[h] = key
    items[h] = item
    position[item] = h


@jit
def sift_down(keys, items, position, h):
    """Move the entry at ``h``, whose key may have fallen, towards the leaves. O(log n)."""
    n = keys.shape[0]
    key = keys[h]
    item = items[h]
    while True:
        child = 2 * h + 1
        if child >= n:
            break
        if child + 1 < n and keys[child + 1] > keys[child]:
            child += 1
        if keys[child] <= key:
            break
        keys[h] = keys[child]
        items[h] = items[child]
        position[items[h]] = h
        h = child
    keys[h] = key
    items[h] = item
    position[item] = h
