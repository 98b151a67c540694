"""Criteria of labels: against their plain definitions, scikit-learn and invariance under renaming."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from bigcons import metrics
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.metrics import adjusted_rand, contingency, matching_accuracy, nmi, purity
from tests.naive import metrics as naive

CRITERIA = [matching_accuracy, adjusted_rand, nmi, purity]


def clusterings(n_clusters=4):
    """Two clusterings of the same objects, with gaps, and at least one object labeled in both."""
    gaps = st.integers(-1, n_clusters - 1)
    rows = st.lists(st.tuples(gaps, gaps), min_size=1, max_size=30)
    return rows.filter(lambda rows: any(min(row) >= 0 for row in rows)).map(lambda rows: np.array(rows).T)


def with_none(labels):
    return [None if label < 0 else label for label in labels.tolist()]


@settings(deadline=None)
@given(pair=clusterings())
def test_criteria__equal_naive(pair):
    truth, labels = map(with_none, pair)
    assert matching_accuracy(*pair) == pytest.approx(naive.matching_accuracy(truth, labels), abs=1e-12)
    assert purity(*pair) == pytest.approx(naive.purity(truth, labels), abs=1e-12)
    assert nmi(*pair) == pytest.approx(naive.nmi(truth, labels), abs=1e-12)
    expected = naive.adjusted_rand(truth, labels)
    assert adjusted_rand(*pair) == pytest.approx(1 if expected is None else expected, abs=1e-12)


@pytest.mark.peers
@settings(deadline=None)
@given(pair=clusterings(6))
def test_criteria__equal_scikit_learn(pair):
    truth, labels = pair[:, (pair >= 0).all(axis=0)]
    assert adjusted_rand(*pair) == pytest.approx(adjusted_rand_score(truth, labels), abs=1e-12)
    if len(set(truth)) > 1 and len(set(labels)) > 1:  # one cluster is 0 here, and 1 there if in both
        expected = normalized_mutual_info_score(truth, labels, average_method="geometric")
        assert nmi(*pair) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(pair=clusterings())
def test_contingency__counts_objects_labeled_in_both(pair):
    table = contingency(*pair)
    known = naive.known(*map(with_none, pair))
    rows, columns = sorted({a for a, _ in known}), sorted({b for _, b in known})
    np.testing.assert_array_equal(table, [[known.count((a, b)) for b in columns] for a in rows])
    np.testing.assert_array_equal(contingency(*pair[::-1]), table.T)


@pytest.mark.parametrize(
    "make",
    [
        list,
        lambda labels: np.array(labels, dtype=object),
        pd.Series,
        lambda labels: pd.Series(labels, index=range(10, 16)),
        lambda labels: pd.Series(labels, dtype="category"),
        pl.Series,
        pa.array,
        lambda labels: pa.chunked_array([labels[:2], labels[2:]]),
    ],
)
@pytest.mark.parametrize("labels", [["b", "a", None, "b", "a", "a"], [7, 5, None, 7, 5, 5]])
def test_contingency__takes_labels_of_any_make(make, labels):
    np.testing.assert_array_equal(contingency(make(labels), [0, 1, 0, 0, 1, -1]), [[0, 2], [2, 0]])


def test_contingency__takes_zarr_and_memory_maps(tmp_path):
    labels = np.array([0, 1, 1, 2], dtype=np.int32)
    np.save(tmp_path / "labels.npy", labels)
    stored = zarr.create_array(tmp_path / "labels.zarr", data=labels, chunks=(2,))
    mapped = np.load(tmp_path / "labels.npy", mmap_mode="r")
    np.testing.assert_array_equal(contingency(stored, mapped), np.diag([1, 2, 1]))


@pytest.mark.parametrize("criterion", [contingency, *CRITERIA])
@pytest.mark.parametrize(
    ("truth", "labels", "message"),
    [
        ([0, 1], [0], "2 objects but"),
        ([0, -1], [-1, 0], "no object has a label in both"),
        ([0, 1], [-1, -1], "no labels"),
        ([], [], "no labels"),
        ([[0, 1]], [0, 1], "one label per object"),
        ([0.5], [0], "0.5"),
    ],
)
def test_criteria__refuse_in_one_line(criterion, truth, labels, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        criterion(truth, labels)
    assert "\n" not in str(caught.value)


def test_contingency__refuses_a_table_beyond_memory():
    labels = np.arange(20_000)
    with pytest.raises(MemoryBudgetError, match=r"20,000 by 20,000 clusters needs 3\.2 GB"):
        contingency(labels, labels)


def test_metrics__unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        metrics.nothing  # noqa: B018
    assert set(metrics.__all__) == set(dir(metrics))
