"""Agglomerative clustering: spanning trees of label rows and nearest-neighbor chains.

Label rows are ``(n_rows, n_partitions)``, negative where missing, C-contiguous.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import empty, zeros
from bigcons.kernels.label_rows import compare_rows


@jit
def grow_tree(rows, over_all, begin, end, agree, seen, nearest, in_tree, first, second, n_agree, n_seen):
    """Fill edges ``begin + 1`` to ``end`` of a spanning tree of greatest similarity ``n_agree / n_seen``.

    Prim's algorithm from row 0, with similarities counted on demand: O(n_rows n_partitions) time an edge.
    ``agree / seen`` (n_rows,), at first -1 / 1, is the similarity of each row to the ``nearest`` one
    ``in_tree``. With ``over_all`` n_seen is the number of partitions; a pair never seen together has
    similarity 0 / 1. Fractions are compared in integers, hence exactly; ties go to the lowest row, and to the
    end placed first.
    """
    n = rows.shape[0]
    for edge in range(begin + 1, end + 1):
        current = second[edge - 1]
        in_tree[current] = True
        best = -1
        for i in range(n):
            if in_tree[i]:
                continue
            c, s = compare_rows(rows[current], rows[i])
            if over_all:
                s = rows.shape[1]
            elif s == 0:
                s = 1
            if c * seen[i] > agree[i] * s:
                agree[i] = c
                seen[i] = s
                nearest[i] = current
            if best < 0 or agree[i] * seen[best] > agree[best] * seen[i]:
                best = i
        first[edge] = nearest[best]
        second[edge] = best
        n_agree[edge] = agree[best]
        n_seen[edge] = seen[best]


@jit
def number_clusters(first, second, sizes, matrix):
    """Fill columns 0, 1 and 3 of scipy's linkage matrix ``(n - 1, 4)`` from merges in order.

    ``sizes`` (n,) float64 are the sizes of the points, and are overwritten.
    """
    n = sizes.shape[0]
    parent = np.arange(n)
    number = np.arange(n)
    for merge in range(n - 1):
        a = find_root(parent, first[merge])
        b = find_root(parent, second[merge])
        matrix[merge, 0] = min(number[a], number[b])
        matrix[merge, 1] = max(number[a], number[b])
        root = min(a, b)
        parent[max(a, b)] = root
        sizes[root] = sizes[a] + sizes[b]
        number[root] = n + merge
        matrix[merge, 3] = sizes[root]


@leaf
def find_root(parent, a):
    """Return the root of ``a``, halving the path to it."""
    while parent[a] != a:
        parent[a] = parent[parent[a]]
        a = parent[a]
    return a


@jit
def chain_merges(distances, sizes, method, first, second, heights):
    """Fill the ``n - 1`` merges of a linkage by nearest-neighbor chains (Murtagh 1985).

    ``distances`` (n (n - 1) / 2,) float64, condensed as scipy does, are overwritten; ``sizes`` (n,) float64,
    overwritten too, are the numbers of objects that the n points stand for. A merge joins the clusters that
    contain points ``first`` and ``second``; merges are not in order of height. On a tie the cluster with the
    lowest first point is taken. O(n^2) time.
    """
    n = sizes.shape[0]
    chain = empty(n, np.int64)
    length = 0
    start = 0
    for merge in range(n - 1):
        if length == 0:
            while sizes[start] == 0:
                start += 1
            chain[0] = start
            length = 1
        while True:
            x = chain[length - 1]
            y = -1
            if length > 1:  # on a tie keep the previous cluster, or the chain might not end
                y = chain[length - 2]
            nearest = _nearest(distances, sizes, x, y)
            if nearest == y:
                break
            chain[length] = nearest
            length += 1
        length -= 2
        a, b = min(x, y), max(x, y)
        height = distances[condensed_index(n, a, b)]
        first[merge] = a
        second[merge] = b
        heights[merge] = height
        _merge(distances, sizes, method, a, b, height)


@leaf
def _nearest(distances, sizes, x, nearest):
    """Return the active cluster nearest to ``x``, on a tie ``nearest`` if that is not -1, else the lowest."""
    n = sizes.shape[0]
    lowest = np.inf if nearest < 0 else distances[condensed_index(n, min(x, nearest), max(x, nearest))]
    for i in range(n):
        if sizes[i] == 0 or i == x:
            continue
        distance = distances[condensed_index(n, min(x, i), max(x, i))]
        if distance < lowest:
            lowest = distance
            nearest = i
    return nearest


@leaf
def _merge(distances, sizes, method, a, b, height):
    """Merge cluster ``b`` into ``a`` (Lance and Williams 1967)."""
    n = sizes.shape[0]
    size_a, size_b = sizes[a], sizes[b]
    sizes[a] = size_a + size_b
    sizes[b] = 0
    for i in range(n):
        if sizes[i] == 0 or i == a:
            continue
        cell = condensed_index(n, min(a, i), max(a, i))
        x = distances[cell]
        y = distances[condensed_index(n, min(b, i), max(b, i))]
        if method == 0:  # single
            distances[cell] = min(x, y)
        elif method == 1:  # complete
            distances[cell] = max(x, y)
        elif method == 2:  # average
            distances[cell] = (size_a * x + size_b * y) / (size_a + size_b)
        else:
            size = sizes[i]
            squares = (size_a + size) * x * x + (size_b + size) * y * y - size * height * height
            distances[cell] = np.sqrt(squares / (size_a + size_b + size))


@leaf
def condensed_index(n, i, j):
    """Return the index of the pair ``i < j`` of ``n`` points in scipy's condensed form."""
    return n * i - i * (i + 1) // 2 + j - i - 1


@jit
def chain_sparse_merges(starts, neighbors, values, sizes, first, second, heights):
    """Fill the ``n - 1`` merges of average linkage of similarities, most of which are 0; as `chain_merges`.

    Point i is similar to the points ``neighbors`` from ``starts[i]`` to before ``starts[i + 1]``, with summed
    similarities ``values`` > 0 of their objects, both overwritten; of i itself they count for nothing.
    Clusters keep lists of the points to which their points are similar: one list is appended to another at a
    merge, and the entries of one cluster are added up when the list is next read.
    """
    n = sizes.shape[0]
    parent, ends = np.arange(n), empty(n, np.int64)
    begins, following = empty(n, np.int64), empty(neighbors.shape[0], np.int64)
    sums, met = zeros(n, np.float64), empty(n + 1, np.int64)
    for i in range(n):
        begins[i] = starts[i] if starts[i + 1] > starts[i] else -1
        for e in range(starts[i], starts[i + 1]):
            ends[i], following[e] = e, e + 1
        if begins[i] >= 0:
            following[ends[i]] = -1
    chain = empty(n, np.int64)
    length, lowest = 0, 1
    for merge in range(n - 1):
        if length == 0:
            chain[0] = 0  # the lowest cluster, since a merge keeps its lowest point
            length = 1
        while True:
            x, y = chain[length - 1], -1
            if length > 1:
                y = chain[length - 2]
            n_met, e = 0, begins[x]
            while e >= 0:
                k = find_root(parent, neighbors[e])
                if k != x:
                    met[n_met] = k  # overwritten by the next unless it is new
                    n_met += sums[k] == 0.0
                    sums[k] += values[e]
                e = following[e]
            nearest, highest = y, 0.0
            if y >= 0:
                highest = sums[y] / sizes[y]
            e, last = begins[x], -1
            for position in range(n_met):
                k = met[position]
                similarity = sums[k] / sizes[k]
                if similarity > highest or (similarity == highest and nearest != y and k < nearest):
                    nearest, highest = k, similarity
                neighbors[e], values[e] = k, sums[k]
                last, e = e, following[e]
                sums[k] = 0.0
            if last >= 0:
                following[last], ends[x] = -1, last
            else:
                begins[x] = -1
            if nearest < 0:  # similar to none: the lowest other cluster
                while sizes[lowest] == 0:
                    lowest += 1
                nearest = 0 if x > 0 else lowest
            if nearest == y:
                break
            chain[length] = nearest
            length += 1
        length -= 2
        a, b = min(x, y), max(x, y)
        first[merge], second[merge], heights[merge] = a, b, 1.0 - highest / sizes[x]
        parent[b] = a
        sizes[a] += sizes[b]
        sizes[b] = 0.0
        if begins[a] < 0:
            begins[a], ends[a] = begins[b], ends[b]
        elif begins[b] >= 0:
            following[ends[a]], ends[a] = begins[b], ends[b]


# Dissimilarity increments: the minimum spanning tree of a cluster and the differences of its edges


@jit
def tree_and_neighbors(points, parent, length, nearest, distance, next_distance):
    """Fill the Euclidean minimum spanning tree of ``points`` (n, d) float64, and their nearest neighbors.

    An edge of ``length[v]`` joins vertex ``v`` to ``parent[v]``; vertex 0 has parent -1. ``nearest`` (n,) is
    the nearest other point (on a tie, the first visited), at ``distance``; the second nearest is at
    ``next_distance``, infinite if it does not exist. Prim's algorithm visits every pair once, so distances
    are exact and none is stored: O(n^2 d) time, O(n) memory. On a tie the parent is the vertex placed last,
    so that many equal points form a path, not a star.
    """
    n = points.shape[0]
    placed = zeros(n, np.bool_)
    for v in range(n):
        parent[v] = -1
        length[v] = distance[v] = next_distance[v] = np.inf
        nearest[v] = -1
    current = 0
    length[0] = 0.0
    for _ in range(n - 1):
        placed[current] = True
        best = -1
        for v in range(n):
            if placed[v]:
                continue
            squares = 0.0
            for k in range(points.shape[1]):
                difference = points[current, k] - points[v, k]
                squares += difference * difference
            d = np.sqrt(squares)
            _meet(current, v, d, nearest, distance, next_distance)
            _meet(v, current, d, nearest, distance, next_distance)
            if d <= length[v]:
                length[v] = d
                parent[v] = current
            if best < 0 or length[v] < length[best]:
                best = v
        current = best


@leaf
def _meet(v, other, d, nearest, distance, next_distance):
    """Update the two nearest distances of point ``v`` with its distance to another point."""
    if d < distance[v]:
        next_distance[v] = distance[v]
        distance[v] = d
        nearest[v] = other
    elif d < next_distance[v]:
        next_distance[v] = d


@jit
def incident_edges(parent, length, start, edges):
    """List the lengths of the tree's edges at every vertex, ascending: those of ``v`` begin at ``start[v]``.

    Fills ``start`` (n + 1,) and ``edges`` (2 (n - 1),).
    """
    n = parent.shape[0]
    start[:] = 0
    for v in range(n):
        if parent[v] >= 0:
            start[v + 1] += 1
            start[parent[v] + 1] += 1
    for v in range(n):
        start[v + 1] += start[v]
    free = start[:-1].copy()
    for v in range(n):
        if parent[v] >= 0:
            for end in (v, parent[v]):
                edges[free[end]] = length[v]
                free[end] += 1
    for v in range(n):
        edges[start[v] : start[v + 1]].sort()


@jit
def list_increments(start, edges, every_pair, increments):
    """Fill the differences of the edges at every vertex, of every pair or of neighbors in length.

    Returns their number, even if they do not fit.
    """
    count = 0
    for v in range(start.shape[0] - 1):
        for r in range(start[v] + 1, start[v + 1]):
            lowest = start[v] if every_pair else r - 1
            for s in range(lowest, r):
                if count < increments.shape[0]:
                    increments[count] = edges[r] - edges[s]
                count += 1
    return count
