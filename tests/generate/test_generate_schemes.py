"""What the partitions of a k-means ensemble see: objects, features, weights, numbers of clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.sparse import csr_array

from bigcons.errors import InvalidInputError
from bigcons.generate.scheme import Scheme, Subset, split_range
from bigcons.generate.training import _weighed


def zipf(largest, low, high):
    return Scheme("test", alpha_range=(low, high), largest_weight=largest)


def dealt(n_objects, n_partitions, repetition, segment_rows=64):
    """The subsets of all partitions."""
    return [
        Subset(n_objects, 0.0, segment_rows, 1, "test", u, (n_partitions, repetition))
        for u in range(n_partitions)
    ]


@st.composite
def deals(draw):
    p = draw(st.integers(1, 12))
    return draw(st.integers(1, 15_000)), p, draw(st.integers(1, p))


@given(deals())
def test_dealt_subset__covers_all_objects_with_equal_parts(deal):
    n, p, v = deal
    rows = [subset.rows(0, n) for subset in dealt(*deal)]
    seen = np.bincount(np.concatenate(rows), minlength=n)
    assert len(seen) == n
    assert seen.min() >= 1
    assert seen.max() <= p
    assert seen.sum() == v * n
    for subset, part in zip(dealt(*deal), rows, strict=True):
        assert (np.diff(part) > 0).all()
        assert len(part) == subset.size(n)
        assert len(part) in (v * n // p, -(-v * n // p))


@given(deals(), st.sampled_from([1, 64, 4096]), st.integers(0, 300))
def test_dealt_subset__reads_the_same_in_parts(deal, segment_rows, cut):
    n = deal[0]
    subset = dealt(*deal, segment_rows)[-1]
    whole = subset.rows(0, n)
    middle = min(cut * segment_rows, n)
    parts = [subset.rows(start, stop) for start, stop in ((0, middle), (middle, n)) if start < stop]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    masks = [subset.mask(start, stop) for start, stop in ((0, middle), (middle, n)) if start < stop]
    np.testing.assert_array_equal(np.flatnonzero(np.concatenate(masks)), whole)


def test_dealt_subset__parts_are_random_and_the_rest_is_independent():
    n, p = 6000, 4
    seen = np.zeros((p, n), dtype=bool)
    for u, subset in enumerate(dealt(n, p, 2)):
        seen[u, subset.rows(0, n)] = True
    # an object is dealt once and drawn by each other partition with probability 1/3
    counts = np.bincount(seen.sum(axis=0) - 1, minlength=p) / n
    np.testing.assert_allclose(counts, stats.binom.pmf(np.arange(p), p - 1, 1 / 3), atol=0.03)
    neighbors = (seen[:, 1:] & seen[:, :-1]).mean()
    assert neighbors == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.5])
@pytest.mark.parametrize("largest", [1, 5, 20])
def test_zipf_weights__have_the_law_of_scipy(alpha, largest):
    weights = zipf(largest, alpha, alpha).weights(100_000, 0).astype(int)
    values = np.arange(1, largest + 1)
    expected = stats.zipfian.pmf(values, alpha, largest) if alpha else np.full(largest, 1 / largest)
    found = np.bincount(weights, minlength=largest + 1)
    assert found[0] == 0
    assert (
        stats.chisquare(found[1:], expected * 100_000).pvalue > 0.001 if largest > 1 else found[1] == 100_000
    )


@given(st.integers(1, 20), st.data())
def test_random_features__draws_so_many_distinct_columns(n, data):
    size = data.draw(st.integers(1, n))
    weights = Scheme("test", n_features=size).weights(n, data.draw(st.integers(0, 5)))
    assert weights.shape == (n,)
    assert sorted(np.unique(weights)) == ([1] if size == n else [0, 1])
    assert weights.sum() == size


def test_random_features__rejects_more_than_there_are():
    with pytest.raises(InvalidInputError, match="n_features=4 but only 3 features vary"):
        Scheme("test", n_features=4).check_features(3)


@pytest.mark.parametrize("form", [np.array, csr_array])
def test_weighed__takes_columns_and_weighs_them(form):
    points = np.arange(12, dtype=np.float32).reshape(3, 4)
    given = form(points)
    seen = _weighed(given, np.array([0, 2, 0, 10], np.float32)) @ np.eye(2)
    np.testing.assert_array_equal(seen, points[:, [1, 3]] * [2, 10])
    np.testing.assert_array_equal(_weighed(given, None) @ np.eye(4), points)
    np.testing.assert_array_equal(given @ np.eye(4), points)


@given(st.integers(1, 10**7))
def test_split_range__is_the_rule_within_the_number_of_objects(n):
    low, high = split_range(n)
    rule = max(math.sqrt(n) / 2, n / 50)
    assert low == min(math.ceil(rule), n)
    assert 1 <= low <= high <= n
    assert high == min(low + 20, n)
