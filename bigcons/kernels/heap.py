"""An indexed priority queue: a binary max-heap that knows where each item is, so that any key can change.

``keys (n,)`` float64 and ``items (n,)`` int32 lie in heap order; ``position (n,)`` int32 is the inverse of
``items``. Keys lie beside the order, not behind it, so that sifting reads neighboring memory.
"""

from __future__ import annotations

from bigcons.kernels._jit import jit


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
