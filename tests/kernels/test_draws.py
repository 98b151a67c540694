"""Rows drawn without replacement: as many as asked for, every set equally likely, by the definition."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from bigcons.kernels.draws import keep_least, mark_drawn
from tests.naive.draws import drawn_rows, least_of_each

KEYS = st.integers(0, 2**64 - 1)


def marks_of(key, first, sizes, counts):
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    marks = np.zeros(bounds[-1], bool)
    mark_drawn(np.uint64(key), first, bounds, np.array(counts), marks)
    return np.split(marks, bounds[1:-1])


@given(
    key=KEYS,
    first=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    data=st.data(),
)
def test_mark_drawn__is_the_definition(key, first, sizes, data):
    counts = [data.draw(st.integers(0, size)) for size in sizes]
    for p, marks in enumerate(marks_of(key, first, sizes, counts)):
        assert np.flatnonzero(marks).tolist() == drawn_rows(key, first + p, sizes[p], counts[p])
        assert marks.sum() == counts[p]


def test_mark_drawn__every_set_is_equally_likely():
    sets = list(combinations(range(6), 3))
    found = dict.fromkeys(sets, 0)
    for marks in marks_of(7, 0, [6] * 4000, [3] * 4000):
        found[tuple(np.flatnonzero(marks).tolist())] += 1
    assert chisquare(list(found.values())).pvalue > 0.001


@given(
    labels=st.lists(st.lists(st.integers(-1, 2), min_size=3, max_size=3), min_size=1, max_size=30),
    partitions=st.sampled_from([[0, 1, 2], [1], [0, 2]]),
    key=KEYS,
    n_least=st.integers(1, 4),
    cut=st.integers(0, 30),
)
def test_keep_least__is_the_definition_in_any_blocks(labels, partitions, key, n_least, cut):
    keys = np.full((3 * len(partitions), n_least), 2**64 - 1, np.uint64)
    factors = [(key * (u + 3)) % 2**64 | 1 for u in partitions]
    rows, starts = np.full(keys.shape, -1), 3 * np.arange(len(partitions))
    for first, block in ((0, labels[:cut]), (cut, labels[cut:])):
        given = np.array(block, np.int8).reshape(-1, 3), np.array(partitions), starts, first
        keep_least(*given, np.uint64(key), np.array(factors, np.uint64), keys, rows)
    found = {(partitions[b // 3], b % 3): of[of >= 0].tolist() for b, of in enumerate(rows) if of[0] >= 0}
    assert found == least_of_each(labels, partitions, key, factors, n_least)
    assert (np.sort(keys, axis=1) == keys).all()
