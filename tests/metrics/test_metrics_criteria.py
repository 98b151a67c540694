"""Criteria of two clusterings: van Dongen, Rand, variation of information, matchings; worked examples."""

import csv
import gzip
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy
from sklearn.cluster import KMeans
from sklearn.metrics import mutual_info_score, rand_score
from sklearn.metrics.cluster import contingency_matrix

from bigcons import metrics
from bigcons.errors import InvalidInputError
from bigcons.metrics import (
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
from bigcons.metrics.clusterings import OF_TRUTH, OF_TWO_CLUSTERINGS
from tests.naive import metrics as naive
from tests.support.strategies import label_matrices

DISTANCES = [van_dongen, variation_of_information]


def clusterings(max_clusters=5):
    """Two clusterings of the same objects, with gaps, and at least one object labeled in both."""
    matrices = label_matrices(max_objects=25, min_partitions=2, max_partitions=2, max_clusters=max_clusters)
    return matrices.map(lambda labels: labels.T).filter(lambda pair: (pair >= 0).all(axis=0).any())


def with_none(labels):
    return [None if label < 0 else label for label in labels.tolist()]


@settings(deadline=None)
@given(pair=clusterings())
def test_criteria__equal_naive(pair):
    a, b = map(with_none, pair)
    assert van_dongen(*pair) == pytest.approx(naive.van_dongen(a, b), abs=1e-12)
    assert variation_of_information(*pair) == pytest.approx(naive.variation_of_information(a, b), abs=1e-12)
    assert micro_precision(*pair) == pytest.approx(naive.greedy_accuracy(a, b), abs=1e-12)
    assert micro_precision(*pair, mode="majority") == pytest.approx(naive.purity(a, b), abs=1e-12)
    assert micro_precision(*pair, mode="hungarian") == pytest.approx(naive.matching_accuracy(a, b), abs=1e-12)
    expected = naive.rand_index(a, b)
    assert rand_index(*pair) == pytest.approx(1 if expected is None else expected, abs=1e-12)


@pytest.mark.peers
@settings(deadline=None)
@given(pair=clusterings(7))
def test_criteria__equal_scikit_learn(pair):
    a, b = pair[:, (pair >= 0).all(axis=0)]
    assert rand_index(*pair) == pytest.approx(rand_score(a, b), abs=1e-12)
    entropies = entropy(np.unique(a, return_counts=True)[1]) + entropy(np.unique(b, return_counts=True)[1])
    expected = entropies - 2 * mutual_info_score(a, b)
    assert variation_of_information(*pair) == pytest.approx(expected, abs=1e-12)
    np.testing.assert_array_equal(contingency(*pair), contingency_matrix(a, b))


@settings(deadline=None)
@given(pair=clusterings())
def test_distances__symmetric_bounded_and_zero_only_if_equal(pair):
    table = contingency(*pair)
    equal = table.shape[0] == table.shape[1] == np.count_nonzero(table)
    n = table.sum()
    for distance in DISTANCES:
        value = distance(*pair)
        assert distance(*pair[::-1]) == pytest.approx(value, abs=1e-12)
        assert (value == 0) == equal
    assert 0 <= van_dongen(*pair) < 1
    assert 0 <= variation_of_information(*pair) <= math.log(n) + 1e-12
    assert 0 <= rand_index(*pair) <= 1
    assert (rand_index(*pair) == 1) == equal


@settings(deadline=None)
@given(pair=clusterings())
def test_matchings__greedy_at_most_hungarian_at_most_majority(pair):
    greedy, hungarian, majority = (
        micro_precision(*pair, mode=m) for m in ("greedy", "hungarian", "majority")
    )
    assert 0 < greedy <= hungarian <= majority <= 1
    largest_class = contingency(*pair).sum(axis=1).max() / contingency(*pair).sum()
    assert majority >= largest_class
    assert greedy >= hungarian / 2 - 1e-12  # a greedy matching is at least half of the best


@settings(deadline=None)
@given(pair=clusterings())
def test_matchings__have_one_definition_under_several_names(pair):
    assert consistency_index(*pair) == matching_accuracy(*pair) == micro_precision(*pair, mode="hungarian")
    assert consistency_index(*pair, matching="greedy") == micro_precision(*pair)
    assert micro_precision(*pair, mode="majority") == purity(*pair)


@settings(deadline=None)
@given(pair=clusterings())
def test_tables__of_criteria_are_the_public_functions(pair):
    table = contingency(*pair)
    padded = np.pad(table, 1)
    for name, criterion in OF_TRUTH.items():
        value = getattr(metrics, name)(*pair)
        assert criterion(table) == value
        assert criterion(padded) == pytest.approx(value, abs=1e-12)
    for criterion in OF_TWO_CLUSTERINGS.values():
        assert criterion(table.T) == pytest.approx(criterion(table), abs=1e-12)


@settings(deadline=None)
@given(pair=clusterings(), seed=st.integers(0, 99))
def test_tables__of_symmetric_criteria_may_be_stacked(pair, seed):
    table = contingency(*pair)
    tables = np.array([[table, 3 * table], [table + 1, np.random.default_rng(seed).permuted(table, axis=0)]])
    for criterion in OF_TWO_CLUSTERINGS.values():
        expected = [[criterion(each) for each in row] for row in tables]
        np.testing.assert_allclose(criterion(tables), expected, rtol=0, atol=1e-12)
        assert isinstance(criterion(table), float)


# Worked examples


def test_relative_nmi__is_a_ratio():
    truth, part, whole = [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 1, -1], [0, 0, 1, 1, 2, 1]
    assert relative_nmi(truth, part, whole) == pytest.approx(nmi(truth, part) / nmi(truth, whole))
    assert relative_nmi(truth, whole, whole) == 1
    with pytest.raises(InvalidInputError, match="NMI 0"):
        relative_nmi(truth, part, [0] * 6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: micro_precision([0], [0], mode="best"), "'greedy', 'majority', 'hungarian'"),
        (lambda: consistency_index([0], [0], matching="majority"), "'hungarian', 'greedy'"),
        (lambda: rand_index([0, -1], [-1, 0]), "labeled|label in both"),
    ],
)
def test_criteria__refuse_in_one_line(call, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


# Published values: Wang, Shan and Banerjee (2009), table 3, the best base clusterings


def best_k_means(features):
    """The clustering that k-means of two clusters converges to from any start."""
    return KMeans(2, n_init=3, random_state=0).fit_predict(features)


@pytest.mark.data
@pytest.mark.skipif("BIGCONS_DATA" not in os.environ, reason="BIGCONS_DATA names no directory")
@pytest.mark.parametrize(
    ("name", "published", "largest_class"),
    [("pima/pima-indians-diabetes", 0.6602, 0.651), ("ionosphere/ionosphere", 0.7123, 0.641)],
)
def test_micro_precision__of_k_means_is_the_published_maximum(name, published, largest_class):
    path = Path(os.environ["BIGCONS_DATA"]) / f"{name}.data.gz"
    with gzip.open(path, "rt") as file:
        rows = [row for row in csv.reader(file) if row]
    classes = [row[-1] for row in rows]
    features = np.array([row[:-1] for row in rows], dtype=float)
    assert round(micro_precision(classes, best_k_means(features)), 4) == published
    assert round(micro_precision(classes, [0] * len(rows), mode="majority"), 3) == largest_class
