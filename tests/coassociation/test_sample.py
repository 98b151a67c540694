"""Sampled pairs: as many as asked for, distinct, uniform, the same for the same seed."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from bigcons.coassociation import sample, sample_pairs
from bigcons.coassociation.sampling import count_all_pairs, pairs_of_numbers
from bigcons.errors import InvalidInputError, MemoryBudgetError


def numbers_of_pairs(i, j, n_objects):
    """Number the pairs in exact integers, row by row."""
    return [
        int(a) * (2 * n_objects - int(a) - 1) // 2 + int(b) - int(a) - 1 for a, b in zip(i, j, strict=True)
    ]


@settings(deadline=None)
@given(data=st.data(), n_objects=st.integers(2, 40), seed=st.integers(0, 1000))
def test_sample_pairs__distinct_and_ascending(data, n_objects, seed):
    n_pairs = data.draw(st.integers(1, n_objects * (n_objects - 1) // 2))
    i, j = sample_pairs(n_objects, n_pairs=n_pairs, random_state=seed)
    pairs = list(zip(i.tolist(), j.tolist(), strict=True))
    assert len(pairs) == n_pairs
    assert pairs == sorted(set(pairs))
    assert all(0 <= a < b < n_objects for a, b in pairs)


@pytest.mark.parametrize("n_pairs", [2, 4, 8])
def test_sample_pairs__every_set_of_pairs_is_equally_likely(n_pairs):
    possible = list(itertools.combinations(range(10), n_pairs))  # 5 objects have 10 pairs
    drawn = dict.fromkeys(possible, 0)
    for seed in range(40 * len(possible)):
        drawn[tuple(numbers_of_pairs(*sample_pairs(5, n_pairs=n_pairs, random_state=seed), 5))] += 1
    assert chisquare(list(drawn.values())).pvalue > 0.001


def test_sample_pairs__uniform_over_the_triangle():
    n_objects, n_bins = 100_000, 50
    i, j = sample_pairs(n_objects, n_pairs=100_000, random_state=0)
    numbers = np.array(numbers_of_pairs(i, j, n_objects))
    counts = np.bincount(numbers * n_bins // count_all_pairs(n_objects), minlength=n_bins)
    assert chisquare(counts).pvalue > 0.001


def test_sample_pairs__all_pairs():
    i, j = sample_pairs(30, share=1, random_state=0)
    assert list(zip(i, j, strict=True)) == list(itertools.combinations(range(30), 2))


def test_sample_pairs__share_number_and_neighbors_say_the_same():
    expected = sample_pairs(1001, n_pairs=5005, random_state=7)
    for asked in ({"share": 0.01}, {"per_object": 10}):
        np.testing.assert_array_equal(sample_pairs(1001, **asked, random_state=7), expected)


def test_sample_pairs__seed_decides():
    first, again, other = (sample_pairs(1000, n_pairs=50, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@settings(deadline=None)
@given(data=st.data(), n_objects=st.one_of(st.integers(2, 1000), st.integers(10**8, 2**31 - 1)))
def test_pairs_of_numbers__exact_at_any_size(data, n_objects):
    last = count_all_pairs(n_objects) - 1
    row = data.draw(st.integers(0, n_objects - 2))
    start_of_row = row * (2 * n_objects - row - 1) // 2
    numbers = [0, last, start_of_row, max(start_of_row - 1, 0), data.draw(st.integers(0, last))]
    i, j = pairs_of_numbers(np.array(numbers), n_objects)
    assert ((i >= 0) & (i < j) & (j < n_objects)).all()
    assert numbers_of_pairs(i, j, n_objects) == numbers


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"share": 1.5}, "share=1.5"),
        ({"share": 0}, "share=0"),
        ({"share": -0.1}, "share=-0.1"),
        ({"share": float("nan")}, "share=nan"),
        ({"share": "a half"}, "share='a half'"),
        ({"share": 1e-9}, "less than one of the 10 pairs"),
        ({"n_pairs": 11}, "n_pairs=11"),
        ({"n_pairs": 0}, "n_pairs=0"),
        ({"n_pairs": 1.5}, "n_pairs=1.5"),
        ({"per_object": 4.5}, "per_object=4.5"),
        ({}, "one of share, n_pairs and per_object"),
        ({"share": 0.1, "n_pairs": 1}, "got share=0.1, n_pairs=1"),
    ],
)
def test_sample_pairs__refuses_in_one_line(asked, message):
    with pytest.raises(InvalidInputError) as caught:
        sample_pairs(5, **asked)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("n_objects", [0, 1, 2**31])
def test_sample_pairs__needs_pairs_to_sample(n_objects):
    with pytest.raises(InvalidInputError, match=f"n_objects={n_objects}"):
        sample_pairs(n_objects, n_pairs=1)


def test_sample__counts_the_sampled_pairs():
    labels = np.random.default_rng(0).integers(0, 3, (50, 4))
    table = sample(labels, per_object=6, random_state=3)
    i, j = sample_pairs(50, per_object=6, random_state=3)
    edges = table.edges()
    np.testing.assert_array_equal(edges.i, i)
    np.testing.assert_array_equal(edges.j, j)
    np.testing.assert_array_equal(edges.n_agree, (labels[i] == labels[j]).sum(axis=1))
    assert table.provenance["per_object"] == 6
    assert table.provenance["random_state"] == 3


def test_sample__refuses_pairs_that_its_budget_cannot_hold_and_names_one_that_can(tmp_path):
    labels = np.random.default_rng(0).integers(0, 3, (400, 4))
    asked = {"n_pairs": 5000, "random_state": 0}
    for further in ({}, {"tiles": None, "out": tmp_path / "p.zarr"}):
        with pytest.raises(MemoryBudgetError, match=r"5,000 pairs take 316 kB in memory.*out=") as refusal:
            sample(labels, memory="500kB", **further, **asked)
        assert not list(tmp_path.iterdir())
        enough = re.search(r"raise it to ([\d.]+ kB)", str(refusal.value))[1]
        assert sample(labels, memory=enough, **further, **asked).n_pairs == 5000
