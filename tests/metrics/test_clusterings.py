"""Criteria of two clusterings: against plain definitions, scikit-learn, bounds, and published values."""

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zarr
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from scipy.stats import entropy
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, mutual_info_score, normalized_mutual_info_score, rand_score
from sklearn.metrics.cluster import contingency_matrix

from bigcons import metrics
from bigcons.contingency import SYMMETRIC, greedy_accuracy
from bigcons.contingency import purity as best_purity
from bigcons.errors import InvalidInputError, MemoryBudgetError, SuspiciousLabelsWarning
from bigcons.metrics import (
    adjusted_rand,
    consistency_index,
    contingency,
    matching_accuracy,
    micro_precision,
    nmi,
    purity,
    rand_index,
    relative_nmi,
    van_dongen,
    variation_of_information,
)
from tests.naive import metrics as naive
from tests.support.refusals import refused
from tests.support.strategies import label_matrices


def clusterings(max_clusters=5):
    """Two clusterings of the same objects, with gaps, and at least one object labeled in both."""
    matrices = label_matrices(max_objects=25, min_partitions=2, max_partitions=2, max_clusters=max_clusters)
    return matrices.map(lambda labels: labels.T).filter(lambda pair: (pair >= 0).all(axis=0).any())


def with_none(labels):
    return [None if label < 0 else label for label in labels.tolist()]


@given(pair=clusterings())
def test_criteria__equal_naive(pair):
    a, b = map(with_none, pair)
    for result, expected in (
        (van_dongen(*pair), naive.van_dongen(a, b)),
        (variation_of_information(*pair), naive.variation_of_information(a, b)),
        (micro_precision(*pair), naive.greedy_accuracy(a, b)),
        (micro_precision(*pair, mode="majority"), naive.purity(a, b)),
        (matching_accuracy(*pair), naive.matching_accuracy(a, b)),
        (nmi(*pair), naive.nmi(a, b)),
        (rand_index(*pair), naive.rand_index(a, b)),
        (adjusted_rand(*pair), naive.adjusted_rand(a, b)),
    ):
        assert result == pytest.approx(1 if expected is None else expected, abs=1e-12)


@pytest.mark.peers
@given(pair=clusterings(7))
def test_criteria__equal_scikit_learn(pair):
    a, b = pair[:, (pair >= 0).all(axis=0)]
    assert adjusted_rand(*pair) == pytest.approx(adjusted_rand_score(a, b), abs=1e-12)
    assert rand_index(*pair) == pytest.approx(rand_score(a, b), abs=1e-12)
    if len(set(a)) > 1 and len(set(b)) > 1:  # one cluster is 0 here, and 1 there if in both
        expected = normalized_mutual_info_score(a, b, average_method="geometric")
        assert nmi(*pair) == pytest.approx(expected, abs=1e-12)
    entropies = entropy(np.unique(a, return_counts=True)[1]) + entropy(np.unique(b, return_counts=True)[1])
    expected = entropies - 2 * mutual_info_score(a, b)
    assert variation_of_information(*pair) == pytest.approx(expected, abs=1e-12)
    np.testing.assert_array_equal(contingency(*pair), contingency_matrix(a, b))


@given(pair=clusterings())
def test_matchings__greedy_at_most_hungarian_at_most_majority(pair):
    greedy, hungarian, majority = (
        micro_precision(*pair, mode=mode) for mode in ("greedy", "hungarian", "majority")
    )
    assert 0 < greedy <= hungarian <= majority <= 1
    assert majority >= contingency(*pair).sum(axis=1).max() / contingency(*pair).sum()
    assert greedy >= hungarian / 2 - 1e-12  # a greedy matching is at least half of the best
    assert consistency_index(*pair) == matching_accuracy(*pair) == hungarian
    assert consistency_index(*pair, matching="greedy") == greedy
    assert purity(*pair) == majority


@given(pair=clusterings(), seed=st.integers(0, 99))
def test_tables__of_symmetric_criteria_may_be_stacked_padded_and_turned(pair, seed):
    table = contingency(*pair)
    tables = np.array([[table, 3 * table], [table + 1, np.random.default_rng(seed).permuted(table, axis=0)]])
    for name, criterion in SYMMETRIC.items():
        assert criterion(table) == getattr(metrics, name)(*pair)
        assert criterion(np.pad(table, 1)) == pytest.approx(criterion(table), abs=1e-12)
        assert criterion(table.T) == pytest.approx(criterion(table), abs=1e-12)
        expected = [[criterion(each) for each in row] for row in tables]
        np.testing.assert_allclose(criterion(tables), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        list,
        lambda labels: np.array(labels, dtype=object),
        lambda labels: pd.Series(labels, index=range(10, 16)),
        lambda labels: pd.Series(labels, dtype="category"),
        pl.Series,
        lambda labels: pa.chunked_array([labels[:2], labels[2:]]),
    ],
)
@pytest.mark.parametrize("labels", [["b", "a", None, "b", "a", "a"], [7, 5, None, 7, 5, 5]])
def test_contingency__takes_labels_of_any_make(make, labels):
    np.testing.assert_array_equal(contingency(make(labels), [0, 1, 0, 0, 1, -1]), [[0, 2], [2, 0]])


def test_criteria__tell_that_votes_of_minus_1_are_missing():
    with pytest.warns(SuspiciousLabelsWarning, match="truth has 1 as its only label, and negative numbers"):
        assert matching_accuracy(np.where(np.arange(20) < 9, -1, 1), np.zeros(20, int)) == 1


def test_contingency__takes_zarr_and_memory_maps(tmp_path):
    labels = np.array([0, 1, 1, 2], dtype=np.int32)
    np.save(tmp_path / "labels.npy", labels)
    stored = zarr.create_array(tmp_path / "labels.zarr", data=labels, chunks=(2,))
    mapped = np.load(tmp_path / "labels.npy", mmap_mode="r")
    np.testing.assert_array_equal(contingency(stored, mapped), np.diag([1, 2, 1]))


@pytest.mark.parametrize("criterion", [contingency, purity])
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
    with refused(message):
        criterion(truth, labels)


def test_criteria__refuse_unknown_names_and_tables_beyond_memory():
    for criterion, option in ((micro_precision, "mode"), (consistency_index, "matching")):
        with refused(f"^{option}='best' is unknown; choose one of .*'hungarian'"):
            criterion([0], [0], **{option: "best"})
    with pytest.raises(MemoryBudgetError, match=r"20,000 by 20,000 clusters needs 3\.2 GB"):
        contingency(np.arange(20_000), np.arange(20_000))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        metrics.nothing  # noqa: B018


@given(
    table=arrays(
        np.int64,
        st.tuples(st.integers(1, 6), st.integers(1, 6)),
        elements=st.sampled_from([0, 0, 0, 1, 2, 7]),
    )
)
def test_criteria__are_the_same_of_sparse_tables(table):
    assume(table.any())
    for criterion in (*SYMMETRIC.values(), greedy_accuracy, best_purity):
        assert criterion(csr_array(table)) == pytest.approx(criterion(table), abs=1e-12)


@pytest.mark.parametrize("n_clusters", [1_000, 2_000, 20_000])  # a table of a million cells, and larger
def test_criteria__of_very_many_clusters(n_clusters):
    truth = np.repeat(np.arange(n_clusters), 3)
    labels = truth.copy()
    labels[:3000:3] = (truth[:3000:3] + 1) % 1000  # one object of each of a thousand classes joins the next
    n = len(truth)
    together, joined, pairs = 3 * n_clusters - 2000, 3 * n_clusters, n * (n - 1) / 2
    assert rand_index(truth, labels) == pytest.approx(1 - (2 * joined - 2 * together) / pairs, abs=1e-12)
    by_chance = joined**2 / pairs
    assert adjusted_rand(truth, labels) == pytest.approx((together - by_chance) / (joined - by_chance))
    assert matching_accuracy(truth, labels) == purity(truth, labels) == (n - 1000) / n
    assert consistency_index(truth, labels, matching="greedy") == (n - 1000) / n
    assert van_dongen(truth, labels) == pytest.approx(1000 / n)
    given = np.log(3) - 2 / 3 * np.log(2)  # the entropy of a class of two and one
    assert variation_of_information(truth, labels) == pytest.approx(2 * given * 3000 / n)
    assert nmi(truth, labels) == pytest.approx(1 - given * 3000 / n / np.log(n_clusters))
    assert adjusted_rand(labels, labels) == matching_accuracy(labels, labels) == 1
    known = np.where(np.arange(n) < 3, labels, -1)
    assert nmi(np.where(known < 0, known, 0), labels) == 0
    with pytest.raises(InvalidInputError, match="no object has a label in both"):
        nmi(known, np.where(known < 0, truth, -1))


def test_relative_nmi__is_a_ratio():
    truth, part, whole = [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 1, -1], [0, 0, 1, 1, 2, 1]
    assert relative_nmi(truth, part, whole) == pytest.approx(nmi(truth, part) / nmi(truth, whole))
    assert relative_nmi(truth, whole, whole) == 1
    with pytest.raises(InvalidInputError, match="NMI 0"):
        relative_nmi(truth, part, [0] * 6)


@pytest.mark.data
@pytest.mark.skipif("BIGCONS_DATA" not in os.environ, reason="BIGCONS_DATA names no directory")
@pytest.mark.parametrize(
    ("name", "published", "largest_class"),
    [("pima/pima-indians-diabetes", 0.6602, 0.651), ("ionosphere/ionosphere", 0.7123, 0.641)],
)
def test_micro_precision__of_k_means_is_the_published_maximum(name, published, largest_class):
    """Wang, Shan and Banerjee (2009), table 3, the best base clusterings."""
    with gzip.open(Path(os.environ["BIGCONS_DATA"]) / f"{name}.data.gz", "rt") as file:
        rows = [row for row in csv.reader(file) if row]
    classes, features = [row[-1] for row in rows], np.array([row[:-1] for row in rows], dtype=float)
    result = KMeans(2, n_init=3, random_state=0).fit_predict(features)
    assert round(micro_precision(classes, result), 4) == published
    assert round(micro_precision(classes, [0] * len(rows), mode="majority"), 3) == largest_class
