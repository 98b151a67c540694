"""The nearest center of every partition, the last step of many k-means for a block of points at once; and
k-means of rows in an embedding.

Of all centers ``c`` the nearest to a point ``x`` is the one with the largest ``x . c - |c|^2 / 2``. With -1
as one more coordinate of every point and ``|c|^2 / 2`` of every center, that is one matrix product, of which
sixteen points and four centers at a time stay in registers; no product is written to memory. Sums are
float64, over the coordinates in their order. So what is nearest to a point depends on the point and the
centers alone, not on the points around it.
"""

from __future__ import annotations

import math

import numpy as np

from bigcons.disk.schema import MISSING
from bigcons.kernels._jit import jit, leaf
from bigcons.kernels._vector import WIDTH, add_times8, choose8, empty, fill8, load8, store8, zero8, zeros
from bigcons.kernels.cluster_tables import padded_leaf

TILE = 2 * WIDTH
"""Points that are compared with a center at a time."""


def pack_centers(centers: np.ndarray) -> np.ndarray:
    """Return centers ``(B, n_features + 1)``, each with its ``|c|^2 / 2``, as `label_nearest` takes them."""
    padding = np.zeros((3, centers.shape[1]))
    return np.concatenate([centers, padding]).ravel()


@jit
def label_nearest(points, centers, offsets, is_seen, labels):
    """Label each point that a partition sees with the nearest of its centers, and others as missing.

    points (rows, n_features) float32; centers, packed, of partition ``u`` from ``offsets[u]`` to
    ``offsets[u + 1]`` (M + 1,) int64; is_seen (M, rows) bool; labels (rows, M), written. Of centers equally
    near, the first. A partition that sees less than a quarter of the points multiplies only those.
    O(rows B n_features).
    """
    n_rows, width = points.shape[0], points.shape[1] + 1
    n_tiles = max(1, min(16, (1 << 16) // (TILE * width)))  # half a megabyte, which a core's cache holds
    panel, tile = empty(n_tiles * TILE * width, np.float64), empty(TILE * width, np.float64)
    rows, nearest = empty(n_tiles * TILE, np.int64), empty(TILE, np.float64)
    for start in range(0, n_rows, n_tiles * TILE):
        n_here = min(n_tiles * TILE, n_rows - start)
        for r in range(n_here):
            rows[r] = start + r
        for t in range(0, n_here, TILE):
            fill_tile(points, rows, t, n_here, panel, t * width)
        for u in range(labels.shape[1]):
            n_seen = 0
            for r in range(start, start + n_here):
                n_seen += is_seen[u, r]
            if 4 * n_seen >= n_here:
                for t in range(0, n_here, TILE):
                    find_nearest(panel, t * width, width, centers, offsets[u], offsets[u + 1], nearest)
                    for lane in range(min(TILE, n_here - t)):
                        r = start + t + lane
                        number = np.int64(nearest[lane]) - MISSING  # no branch: it would be hard to predict
                        labels[r, u] = MISSING + number * np.int64(is_seen[u, r])
            else:
                n_seen = 0
                for r in range(start, start + n_here):
                    labels[r, u] = MISSING
                    rows[n_seen] = r  # overwritten by the next if this one is not seen
                    n_seen += is_seen[u, r]
                for t in range(0, n_seen, TILE):
                    fill_tile(points, rows, t, n_seen, tile, 0)
                    find_nearest(tile, 0, width, centers, offsets[u], offsets[u + 1], nearest)
                    for lane in range(min(TILE, n_seen - t)):
                        labels[rows[t + lane], u] = nearest[lane]


@leaf
def fill_tile(points, rows, first, stop, tiles, at):
    """Write the points of sixteen ``rows`` from ``first``, transposed, to ``tiles`` from ``at``.

    After ``stop`` the last row is repeated.
    """
    last = stop - 1
    for lane in range(TILE):
        row = rows[min(first + lane, last)]
        for f in range(points.shape[1]):
            tiles[at + f * TILE + lane] = points[row, f]
        tiles[at + points.shape[1] * TILE + lane] = -1.0


@leaf
def find_nearest(tiles, at, width, centers, low, high, nearest):
    """Set ``nearest`` (TILE,) to the nearest of the centers ``low`` to ``high``, counted from ``low``."""
    n = np.uint64(width)
    best_a, best_b = fill8(-np.inf), fill8(-np.inf)
    label_a, label_b = zero8(), zero8()
    for k in range(low, high, 4):
        a0, a1, a2, a3 = zero8(), zero8(), zero8(), zero8()
        b0, b1, b2, b3 = zero8(), zero8(), zero8(), zero8()
        entry, c = np.uint64(at), np.uint64(k * width)
        for _ in range(width):
            x, y = load8(tiles, entry), load8(tiles, entry + np.uint64(WIDTH))
            a0, b0 = add_times8(a0, x, centers[c]), add_times8(b0, y, centers[c])
            a1, b1 = add_times8(a1, x, centers[c + n]), add_times8(b1, y, centers[c + n])
            two, three = c + n + n, c + n + n + n
            a2, b2 = add_times8(a2, x, centers[two]), add_times8(b2, y, centers[two])
            a3, b3 = add_times8(a3, x, centers[three]), add_times8(b3, y, centers[three])
            entry, c = entry + np.uint64(TILE), c + np.uint64(1)
        number = np.float64(k - low)
        label_a, best_a = choose8(a0, best_a, fill8(number), label_a), choose8(a0, best_a, a0, best_a)
        label_b, best_b = choose8(b0, best_b, fill8(number), label_b), choose8(b0, best_b, b0, best_b)
        if k + 1 < high:
            number += 1.0
            label_a, best_a = choose8(a1, best_a, fill8(number), label_a), choose8(a1, best_a, a1, best_a)
            label_b, best_b = choose8(b1, best_b, fill8(number), label_b), choose8(b1, best_b, b1, best_b)
        if k + 2 < high:
            number += 1.0
            label_a, best_a = choose8(a2, best_a, fill8(number), label_a), choose8(a2, best_a, a2, best_a)
            label_b, best_b = choose8(b2, best_b, fill8(number), label_b), choose8(b2, best_b, b2, best_b)
        if k + 3 < high:
            number += 1.0
            label_a, best_a = choose8(a3, best_a, fill8(number), label_a), choose8(a3, best_a, a3, best_a)
            label_b, best_b = choose8(b3, best_b, fill8(number), label_b), choose8(b3, best_b, b3, best_b)
    store8(nearest, np.uint64(0), label_a)
    store8(nearest, np.uint64(WIDTH), label_b)


@jit
def mean_distances(points, centers, offsets, squares, labels, distances):
    """Set ``distances`` (rows,) to the mean squared distance of each point to its center in each partition.

    points, centers, offsets as in `label_nearest`; labels (rows, M), those missing do not count; squares (M
    or 1, n_features) the squared weights of the features in each partition. O(rows M n_features).
    """
    n_features = points.shape[1]
    for i in range(points.shape[0]):
        total, n_labels = 0.0, 0
        for u in range(labels.shape[1]):
            if labels[i, u] < 0:
                continue
            v = min(u, squares.shape[0] - 1)
            begin = (offsets[u] + labels[i, u]) * (n_features + 1)
            length, product = 0.0, 0.0
            for f in range(n_features):
                x = np.float64(points[i, f])
                length += squares[v, f] * x * x
                product += x * centers[begin + f]
            total += length - 2.0 * (product - centers[begin + n_features])
            n_labels += 1
        distances[i] = total / max(n_labels, 1)


# K-means of rows in an embedding


@jit
def normalize_rows(rows):
    """Scale the rows of a float64 matrix to unit length, in place; rows of zeros stay zero."""
    for i in range(rows.shape[0]):
        squares = 0.0
        for k in range(rows.shape[1]):
            squares += rows[i, k] * rows[i, k]
        if squares > 0.0:
            length = math.sqrt(squares)
            for k in range(rows.shape[1]):
                rows[i, k] /= length


@jit
def nearest_centers(rows, weights, centers, assigned, sums, sizes):
    """Set ``assigned`` (n,) int32 to the nearest of the centers (K, d), the lowest number on a tie.

    Adds rows (n, d), times their ``weights`` (n,), to sums (K, d) and sizes (K,) of their center, and
    returns the sum of their squared distances. Weights may be flags; rows of weight 0 get -1. Centers are
    compared by ``r.c - |c|^2 / 2``, eight of them with four rows at a time.
    """
    n, (K, D) = rows.shape[0], centers.shape
    width = padded_leaf(K)
    eights, halves = zeros(width * D, np.float64), zeros(K, np.float64)
    for k in range(K):
        for d in range(D):
            eights[(k // WIDTH * D + d) * WIDTH + k % WIDTH] = centers[k, d]
            halves[k] += 0.5 * centers[k, d] ** 2
    batch = 32  # rows that are compared with the same eight centers, which stay in the cache
    products = empty((batch, width), np.float64)
    inertia = 0.0
    for first in range(0, n, batch):
        last = min(first + batch, n)
        for k in range(0, width, WIDTH):
            for i in range(first, last, 4):
                multiply_four(rows, i, n, eights, k * D, D, products, i - first, k)
        for i in range(first, last):
            weight = float(weights[i])
            if weight == 0.0:
                assigned[i] = -1
                continue
            best, highest = 0, -np.inf
            for k in range(K):
                score = products[i - first, k] - halves[k]
                if score > highest:
                    best, highest = k, score
            assigned[i] = best
            distance = 0.0
            for d in range(D):
                distance += (rows[i, d] - centers[best, d]) ** 2
                sums[best, d] += weight * rows[i, d]
            inertia += weight * distance
            sizes[best] += weight
    return inertia


@leaf
def multiply_four(rows, i, n, eights, at, D, products, first, k):
    """Set ``products[first : first + 4, k : k + 8]`` to products of rows from ``i`` on with eight centers.

    The centers begin at ``at`` of ``eights``, one entry of all eight after the other. Rows end before ``n``.
    """
    second, third, fourth = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
    a, b, c, e = zero8(), zero8(), zero8(), zero8()
    for d in range(D):
        eight = load8(eights, np.uint64(at + d * WIDTH))
        a = add_times8(a, eight, rows[i, d])
        b = add_times8(b, eight, rows[second, d])
        c = add_times8(c, eight, rows[third, d])
        e = add_times8(e, eight, rows[fourth, d])
    store8(products[first], np.uint64(k), a)
    store8(products[first + 1], np.uint64(k), b)
    store8(products[first + 2], np.uint64(k), c)
    store8(products[first + 3], np.uint64(k), e)
