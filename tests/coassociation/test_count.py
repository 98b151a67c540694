"""Counts of agreement: kernels against the plain definition, tiles against one piece."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.coassociation import count, dense, sample_pairs
from bigcons.errors import MemoryBudgetError
from bigcons.run.engine import SerialEngine, ThreadsEngine
from tests.naive import agreement as naive
from tests.support.refusals import refused
from tests.support.strategies import label_matrices

COLUMNS = ("indptr", "indices", "n_agree", "n_seen")


@given(data=st.data(), labels=label_matrices(min_objects=2, max_objects=20))
def test_count__equals_naive(data, labels):
    every = list(itertools.combinations(range(len(labels)), 2))
    pairs = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    turned = [
        pair if turn else pair[::-1] for pair, turn in zip(pairs, itertools.cycle([0, 1]), strict=False)
    ]
    table = count(labels, *np.array(turned).T)
    columns = [getattr(table, name).tolist() for name in COLUMNS]
    entries = list(zip(*columns[1:], strict=True))
    rows = [entries[start:stop] for start, stop in itertools.pairwise(columns[0])]
    assert rows == naive.neighbors(labels.tolist(), pairs)


@given(labels=label_matrices(min_objects=2, max_objects=20))
def test_dense__equals_naive(labels):
    n_agree, n_seen = dense(labels)
    n = len(labels)
    expected = np.array([[naive.counts(labels, i, j) for j in range(n)] for i in range(n)])
    np.testing.assert_array_equal(np.stack([n_agree, n_seen], axis=-1), expected)


def test_dense__of_many_tiles():
    labels = np.random.default_rng(0).integers(-1, 4, (2_100, 3))
    seen = (labels >= 0).astype(int)
    agree = sum((labels == k).astype(int) @ (labels == k).astype(int).T for k in range(4))
    np.testing.assert_array_equal(dense(labels, client="serial"), (agree, seen @ seen.T))


def test_dense__refuses_what_does_not_fit():
    with pytest.raises(MemoryBudgetError, match=r"all pairs of 1,000 .* need 8 MB, over memory=1 MB.*sample"):
        dense(np.zeros((1000, 2), dtype=int), memory="1MB")


@pytest.mark.parametrize("n_partitions", [3, 600])
@pytest.mark.parametrize("engine", [SerialEngine(), ThreadsEngine(3)], ids=["serial", "threads"])
def test_count__in_tiles_of_a_store_equals_counting_in_memory(engine, n_partitions, tmp_path):
    labels = np.random.default_rng(1).integers(-1, 5, (1_100, n_partitions))
    i, j = sample_pairs(1_100, share=0.9, random_state=0)  # two tasks in memory
    stored = Ensemble.from_labels(labels).save(tmp_path / "ensemble.zarr", chunk_rows=128)
    expected = count(labels, i, j, client="serial")
    np.testing.assert_array_equal(expected.edges().n_agree[:9], [naive.counts(labels, *pair)[0] for pair in
                                                                 zip(i[:9], j[:9], strict=True)])  # fmt: skip
    budget = f"{2 * 160 * n_partitions * engine.in_flight}B"
    for found in (count(labels, i, j, client=engine), count(stored, i, j, memory=budget, client=engine)):
        for name in COLUMNS:
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
            assert getattr(found, name).dtype == getattr(expected, name).dtype


@pytest.mark.parametrize(
    ("i", "j", "message"),
    [([0, 1], [1], "differ in length"), ([0], [3], "0 to 2"), ([1], [1], "two different objects"),
     ([0, 1], [1, 0], "given once"), ([0.5], [1], "integers")],
)  # fmt: skip
def test_count__refuses_in_one_line(i, j, message):
    with refused(message):
        count(np.zeros((3, 2), dtype=int), i, j)
