"""Counts of agreement: kernels against the plain definition, tiles against one piece."""

import itertools
import pkgutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import Ensemble, coassociation
from bigcons.coassociation import count, dense, sample_pairs
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.run.engine import SerialEngine, ThreadsEngine
from tests.naive import agreement as naive
from tests.support.strategies import label_matrices

COLUMNS = ("indptr", "indices", "n_agree", "n_seen")


def rows_of(table):
    """Return, for every object, its (other object, n_agree, n_seen), in stored order."""
    entries = list(zip(*(getattr(table, name).tolist() for name in COLUMNS[1:]), strict=True))
    return [entries[start:stop] for start, stop in itertools.pairwise(table.indptr.tolist())]


def assert_same_table(table, expected):
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(table, name), getattr(expected, name))
        assert getattr(table, name).dtype == getattr(expected, name).dtype


@settings(deadline=None)
@given(data=st.data(), labels=label_matrices(min_objects=2, max_objects=20))
def test_count__equals_naive(data, labels):
    every = list(itertools.combinations(range(len(labels)), 2))
    pairs = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    turned = [
        pair if turn else pair[::-1] for pair, turn in zip(pairs, itertools.cycle([0, 1]), strict=False)
    ]
    table = count(labels, *np.array(turned).T)
    assert rows_of(table) == naive.neighbors(labels.tolist(), pairs)
    assert table.n_objects == len(labels)


@settings(deadline=None)
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
    with pytest.raises(
        MemoryBudgetError, match=r"all pairs of 1,000 objects need 8 MB but memory=1 MB.*sample"
    ):
        dense(np.zeros((1000, 2), dtype=int), memory="1MB")


@settings(max_examples=20)
@given(data=st.data(), labels=label_matrices(min_objects=30, max_objects=80))
def test_count__stored_tiles_equal_memory(data, labels, tmp_path_factory):
    seed = data.draw(st.integers(0, 10))
    i, j = sample_pairs(len(labels), share=0.5, random_state=seed)
    path = tmp_path_factory.mktemp("tiles") / "ensemble.zarr"
    stored = Ensemble.from_labels(labels).save(path, chunk_rows=data.draw(st.sampled_from([8, 16])))
    row_bytes = stored.n_partitions * stored.dtype.itemsize
    budget = 2 * 10 * row_bytes  # two blocks of ten rows
    expected = count(labels, i, j)
    assert_same_table(count(stored, i, j, client="serial"), expected)
    assert_same_table(count(stored, i, j, memory=f"{budget}B", client="serial"), expected)


@pytest.mark.parametrize(
    "engine", [SerialEngine(), ThreadsEngine(1), ThreadsEngine(3)], ids=["serial", "one", "three"]
)
def test_count__same_for_any_number_of_workers(engine, tmp_path):
    labels = np.random.default_rng(1).integers(-1, 5, (1_100, 12))
    i, j = sample_pairs(1_100, share=0.9, random_state=0)  # two tasks in memory
    stored = Ensemble.from_labels(labels).save(tmp_path / "ensemble.zarr", chunk_rows=128)
    expected = count(labels, i, j, client="serial")
    assert_same_table(count(labels, i, j, client=engine), expected)
    assert_same_table(
        count(stored, i, j, memory=f"{2 * 160 * 12 * engine.in_flight}B", client=engine), expected
    )


@pytest.mark.parametrize("n_partitions", [1, 254, 255, 600])
def test_count__wide_ensembles(n_partitions):
    labels = np.random.default_rng(2).integers(0, 2, (6, n_partitions))
    i, j = sample_pairs(6, share=1)
    edges = count(labels, i, j).edges()
    np.testing.assert_array_equal(edges.n_agree, (labels[i] == labels[j]).sum(axis=1))
    np.testing.assert_array_equal(edges.n_seen, np.full(15, n_partitions))


@pytest.mark.filterwarnings("ignore:.* look like features")
@pytest.mark.parametrize("largest", [100, 1000, 100_000])
def test_count__any_label_type(largest):
    labels = np.random.default_rng(3).integers(0, largest, (largest // 10, 3))
    labels[:, 0] = np.arange(len(labels)) % 7
    i, j = sample_pairs(len(labels), n_pairs=40, random_state=0)
    np.testing.assert_array_equal(count(labels, i, j).edges().n_agree, (labels[i] == labels[j]).sum(axis=1))


@pytest.mark.parametrize(
    ("i", "j", "message"),
    [
        ([0, 1], [1], "differ in length"),
        ([0], [3], "0 to 2"),
        ([-1], [1], "0 to 2"),
        ([1], [1], "two different objects"),
        ([0, 1], [1, 0], "given once"),
        ([0.5], [1], "integers"),
        ([[0]], [[1]], r"shape \(n_pairs,\)"),
    ],
)
def test_count__refuses_in_one_line(i, j, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        count(np.zeros((3, 2), dtype=int), i, j)
    assert "\n" not in str(caught.value)


def test_coassociation__no_module_hides_a_function():
    modules = {module.name for module in pkgutil.iter_modules(coassociation.__path__)}
    assert modules.isdisjoint(coassociation.__all__)
