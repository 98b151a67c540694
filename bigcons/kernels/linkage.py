"""Agglomerative clustering: spanning trees of label rows, nearest-neighbor chains and centroid linkage.

Label rows are ``(n_rows, n_partitions)``, negative where missing, C-contiguous.

Centroid linkage merges the two nearest centers, and the merged cluster may be nearer to a third than either
was. Nearest-neighbor chains, which find merges out of order, miss such merges, so `centroid_merges` instead
tracks for every cluster the nearest of those after it.
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
def union_merges(first, second, parent, kept):
    """Mark in ``kept`` the edges, taken in order, whose ends were not yet connected (Kruskal's algorithm).

    ``parent`` (n,) must be its own indices at the start. Returns the number of edges kept.
    """
    n_kept = 0
    for edge in range(first.shape[0]):
        a = find_root(parent, first[edge])
        b = find_root(parent, second[edge])
        kept[edge] = a != b
        if a != b:
            parent[max(a, b)] = min(a, b)
            n_kept += 1
    return n_kept


@jit
def number_clusters(first, second, sizes, matrix):
    """Fill columns 0, 1 and 3 of scipy's linkage matrix ``(n - 1, 4)`` from merges in order.

    ``sizes`` (n,) float64 are those of the points, and are overwritten.
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
    least = np.inf if nearest < 0 else distances[condensed_index(n, min(x, nearest), max(x, nearest))]
    for i in range(n):
        if sizes[i] == 0 or i == x:
            continue
        distance = distances[condensed_index(n, min(x, i), max(x, i))]
        if distance < least:
            least = distance
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
        at = condensed_index(n, min(a, i), max(a, i))
        x = distances[at]
        y = distances[condensed_index(n, min(b, i), max(b, i))]
        if method == 0:  # single
            distances[at] = min(x, y)
        elif method == 1:  # complete
            distances[at] = max(x, y)
        elif method == 2:  # average
            distances[at] = (size_a * x + size_b * y) / (size_a + size_b)
        else:
            size = sizes[i]
            squares = (size_a + size) * x * x + (size_b + size) * y * y - size * height * height
            distances[at] = np.sqrt(squares / (size_a + size_b + size))


@leaf
def condensed_index(n, i, j):
    """Return the index of the pair ``i < j`` of ``n`` points in scipy's condensed form."""
    return n * i - i * (i + 1) // 2 + j - i - 1


@jit
def centroid_merges(squares, sizes, first, second, heights):
    """Fill the ``n - 1`` merges of a linkage of centers, in the order in which they are made.

    ``squares`` (n (n - 1) / 2,) float64, squared distances of the centers of n points, condensed as scipy
    does, are overwritten; ``sizes`` (n,) float64, overwritten too, are the numbers of objects that the points
    stand for. A merge joins the clusters whose lowest points are ``first < second``, at ``heights``, which
    may fall by up to a factor of ``sqrt(3 / 4)`` from one to the next. Ties go to the lowest first, then the
    lowest second point. O(n^2) time as long as few rows must be rescanned, O(n^3) at worst.

    ``least`` is a lower bound of a cluster's squared distance to the nearest after it: if that one moved
    away, the row is rescanned only when it might hold the minimum (Müllner 2011).
    """
    n = sizes.shape[0]
    nearest = zeros(n, np.int64)
    least = np.full(n, np.inf)
    for i in range(n - 1):
        _scan_row(squares, sizes, i, nearest, least)
    for merge in range(n - 1):
        a = int(np.argmin(least))
        while squares[condensed_index(n, a, nearest[a])] != least[a]:
            _scan_row(squares, sizes, a, nearest, least)
            a = int(np.argmin(least))
        b = nearest[a]
        first[merge] = a
        second[merge] = b
        heights[merge] = np.sqrt(least[a])
        _merge_centers(squares, sizes, a, b, least[a])
        least[b] = np.inf
        _scan_row(squares, sizes, a, nearest, least)
        for i in range(a):
            if sizes[i] == 0:
                continue
            if nearest[i] == b:
                nearest[i] = a
            _offer(squares[condensed_index(n, i, a)], i, a, nearest, least)
        for i in range(a + 1, b):
            if sizes[i] > 0 and nearest[i] == b:
                _scan_row(squares, sizes, i, nearest, least)


@leaf
def _scan_row(squares, sizes, i, nearest, least):
    """Find the nearest active cluster after ``i``, on a tie the lowest; infinitely far if none."""
    n = sizes.shape[0]
    least[i] = np.inf
    for j in range(i + 1, n):
        square = squares[condensed_index(n, i, j)]
        if sizes[j] > 0 and square < least[i]:
            least[i] = square
            nearest[i] = j


@leaf
def _offer(square, i, j, nearest, least):
    """Make ``j`` the nearest after ``i`` if it is nearer than the current one, or as near and lower."""
    if square < least[i] or (square == least[i] and j < nearest[i]):
        least[i] = square
        nearest[i] = j


@leaf
def _merge_centers(squares, sizes, a, b, square):
    """Merge cluster ``b`` into ``a``, at squared distance ``square`` (Lance and Williams 1967)."""
    n = sizes.shape[0]
    size = sizes[a] + sizes[b]
    inside = sizes[a] * sizes[b] * square / (size * size)
    for i in range(n):
        if sizes[i] == 0 or i in (a, b):
            continue
        at = condensed_index(n, min(a, i), max(a, i))
        x = squares[at]
        y = squares[condensed_index(n, min(b, i), max(b, i))]
        squares[at] = (sizes[a] * x + sizes[b] * y) / size - inside
    sizes[a] = size
    sizes[b] = 0
