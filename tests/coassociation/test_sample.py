"""Sampled pairs: as many as asked for, distinct, uniform, in tiles too, the same on any engine."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from bigcons import Ensemble
from bigcons.coassociation import sample, sample_pairs
from bigcons.coassociation.counts import block_graph, count_all_pairs, pairs_of_numbers
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.run.engine import SerialEngine, ThreadsEngine
from tests.naive.agreement import counts as pair_counts
from tests.support.refusals import refused


def numbers_of_pairs(i, j, n_objects):
    """Number the pairs in exact integers, row by row."""
    return [
        int(a) * (2 * n_objects - int(a) - 1) // 2 + int(b) - int(a) - 1 for a, b in zip(i, j, strict=True)
    ]


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
        ({"share": 1e-9}, "less than one of the 10 pairs"),
        ({"n_pairs": 11}, "n_pairs=11"),
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
        with refused(
            r"5,000 pairs in memory need 632 kB, over memory=500 kB.*out=", MemoryBudgetError
        ) as refusal:
            sample(labels, memory="500kB", **further, **asked)
        assert not list(tmp_path.iterdir())
        enough = re.search(r"raise it to ([\d.]+ kB)", str(refusal.value))[1]
        assert sample(labels, memory=enough, **further, **asked).n_pairs == 5000


N_OBJECTS, N_PARTITIONS = 300, 9


def labels(n_objects=N_OBJECTS, seed=0):
    return np.random.default_rng(seed).integers(-2, 4, (n_objects, N_PARTITIONS)).clip(-1)


@given(n_blocks=st.integers(1, 40), degree=st.integers(2, 10), seed=st.integers(0, 99))
def test_block_graph__regular_simple_and_connected(n_blocks, degree, seed):
    others = block_graph(n_blocks, degree, np.random.default_rng(seed))
    expected = min(degree + degree * n_blocks % 2, n_blocks - 1) if degree < n_blocks - 1 else n_blocks - 1
    assert [len(known) for known in others] == [expected] * n_blocks
    assert all(a not in known and all(a in others[b] for b in known) for a, known in enumerate(others))
    reached = {0}
    for _ in range(n_blocks):
        reached |= {b for a in reached for b in others[a]}
    assert len(reached) == n_blocks


def test_sample__tiles_hold_the_pairs_and_their_counts(tmp_path):
    x = labels()
    table = sample(x, n_pairs=2000, tiles=4, out=tmp_path / "p.zarr", random_state=1)
    i, j, n_agree, n_seen = table.edges()
    expected = np.array([pair_counts(x, a, b) for a, b in zip(i, j, strict=True)])
    np.testing.assert_array_equal(np.stack([n_agree, n_seen], axis=1), expected)
    assert table.rows_per_block == 8  # at most 14, the pairs of an object, and a power of two
    joined = np.zeros((38, 38), bool)
    joined[i // 8, j // 8] = joined[j // 8, i // 8] = True
    np.testing.assert_array_equal(joined.sum(axis=1), 5)  # itself and four others
    unseen = 2000 - table.n_pairs
    assert 0 <= unseen < 100
    assert table.verify()["n_pairs"] == table.n_pairs
    assert table.provenance["tiles"] == 4


def test_sample__takes_tiles_where_the_pairs_do_not_fit(tmp_path):
    table = sample(labels(), n_pairs=5000, out=tmp_path / "p.zarr", memory="500kB", random_state=0)
    assert table.provenance["sampled"] == "tiles"


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"tiles": 4}, InvalidInputError, "tiles=4 without out="),
        ({"tiles": 1, "out": "p.zarr"}, InvalidInputError, "tiles=1"),
        ({"tiles": "many", "out": "p.zarr"}, InvalidInputError, "tiles='many'"),
        (
            {"tiles": 2, "out": "p.zarr", "share": 0.5, "per_object": None, "memory": "1MB"},
            InvalidInputError,
            "more than the",
        ),
        ({"tiles": 2, "out": "p.zarr", "memory": 1000}, MemoryBudgetError, "raise the budget to"),
        ({"tiles": 2, "out": "p.zarr", "client": ThreadsEngine(40)}, MemoryBudgetError, "fewer workers"),
    ],
)
def test_sample__refuses_in_one_line_and_leaves_nothing(tmp_path, asked, error, message):
    asked = {"per_object": 5, **asked}
    if "out" in asked:
        asked["out"] = tmp_path / asked["out"]
    with pytest.raises(error) as caught:
        sample(labels(), **asked)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_sample__tiles_are_the_same_on_any_engine(tmp_path):
    stored = Ensemble.from_labels(labels()).save(tmp_path / "e.zarr", chunk_rows=64)
    tables = [
        sample(stored, per_object=10, tiles=2, out=tmp_path / f"p{n}.zarr", random_state=3, client=engine)
        for n, engine in enumerate([SerialEngine(), ThreadsEngine(3)])
    ]
    for columns in zip(*(table.edges() for table in tables), strict=True):
        np.testing.assert_array_equal(*columns)
