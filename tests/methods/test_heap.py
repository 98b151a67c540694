"""The indexed heap against a plain list of keys."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigcons.kernels.pair_descent import heapify, sift_down, sift_up

KEYS = st.integers(-20, 20).map(float)  # few values, so that there are ties


class Queue:
    """The heap's three arrays, with the moves that its users make."""

    def __init__(self, keys):
        n = len(keys)
        self.keys, self.items, self.position = (
            np.array(keys),
            np.arange(n, dtype=np.int32),
            np.empty(n, np.int32),
        )
        heapify(self.keys, self.items, self.position)

    def set(self, item, key):
        h = self.position[item]
        grew = key > self.keys[h]
        self.keys[h] = key
        (sift_up if grew else sift_down)(self.keys, self.items, self.position, h)

    def by_item(self):
        return self.keys[self.position]


def assert_heap(queue, expected):
    n = len(expected)
    assert sorted(queue.items.tolist()) == list(range(n))
    assert queue.position[queue.items].tolist() == list(range(n))
    assert queue.by_item().tolist() == list(expected)
    assert all(queue.keys[(h - 1) // 2] >= queue.keys[h] for h in range(1, n))
    assert queue.keys[0] == max(expected)


@given(st.lists(KEYS, min_size=1, max_size=40))
def test_heapify__puts_keys_in_heap_order(keys):
    assert_heap(Queue(keys), keys)


@given(st.lists(KEYS, min_size=1, max_size=30))
def test_sift_down__of_the_root_sorts_the_keys(keys):
    queue, popped = Queue(keys), []
    for _ in keys:
        popped.append(queue.keys[0])
        queue.set(queue.items[0], -np.inf)
    assert popped == sorted(keys, reverse=True)
