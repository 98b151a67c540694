"""Rows drawn without replacement: as many as asked for, every set equally likely, by the definition."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from bigcons.kernels.draws import mark_drawn
from tests.naive.draws import drawn_rows

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
