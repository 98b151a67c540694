"""BEST against the criteria of every partition with all others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.contingency import SYMMETRIC
from bigcons.errors import InvalidInputError
from bigcons.methods.greedy import BEST, DISTANCES
from bigcons.metrics import anmi
from bigcons.metrics.ensemble import average_criterion
from tests.naive import correspondence as naive
from tests.naive import metrics as naive_metrics
from tests.support.numbering import numbered_by_size
from tests.support.strategies import label_matrices


def dense_codes(labels):
    labels = labels[(labels >= 0).any(axis=1)]
    ensemble = Ensemble.from_labels(labels)
    return ensemble, np.array(ensemble.read(0, ensemble.n_objects), dtype=np.int64)


@given(label_matrices(), st.sampled_from(sorted(SYMMETRIC)), st.booleans())
def test_best__scores_are_the_criteria_of_the_labels(labels, criterion, weighted):
    ensemble, labels = dense_codes(labels)
    model = BEST(len(labels), criterion=criterion, weighted=weighted, unlabeled="missing").fit(ensemble)
    columns = [np.where(column < 0, np.nan, column) for column in labels.T]
    if weighted and criterion == "nmi":
        expected = [anmi(ensemble, column) for column in columns]
    else:
        expected = [average_criterion(criterion, ensemble, column, weighted=weighted) for column in columns]
    np.testing.assert_allclose(model.scores_, expected, atol=1e-12)
    best = min(model.scores_) if criterion in DISTANCES else max(model.scores_)
    assert model.objective_ == model.scores_[model.best_partition_] == best
    assert model.best_partition_ == np.flatnonzero(model.scores_ == best)[0]
    np.testing.assert_array_equal(model.labels_, numbered_by_size(labels[:, model.best_partition_]))


@given(label_matrices())
def test_best__by_default_has_the_largest_anmi(labels):
    ensemble, labels = dense_codes(labels)
    columns = [[None if label < 0 else int(label) for label in column] for column in labels.T]
    expected = [naive_metrics.anmi(columns, column) for column in columns]
    np.testing.assert_allclose(BEST(len(labels)).fit(ensemble).scores_, expected, atol=1e-9)


@given(label_matrices(min_partitions=2))
def test_best__places_unlabeled_objects_by_the_nearest_center(labels):
    ensemble, labels = dense_codes(labels)
    model = BEST(len(labels)).fit(ensemble)
    assert (model.labels_ >= 0).all()
    clusters = model._order[model.labels_]  # of the winner
    for found, expected in zip(clusters, naive.nearest_clusters(labels, model.best_partition_), strict=True):
        if isinstance(expected, list):
            assert expected[found] == pytest.approx(min(expected), abs=1e-9)
        else:
            assert found == expected


def test_best__of_the_seven_objects_is_the_first_labeling():
    """Strehl and Ghosh's example: of all clusterings into three the largest ANMI, 0.717818."""
    labels = [
        [1, 2, 1, 1],
        [1, 2, 1, 2],
        [1, 2, 2, None],
        [2, 3, 2, 1],
        [2, 3, 3, 2],
        [3, 1, 3, None],
        [3, 1, 3, None],
    ]
    model = BEST(3).fit(labels)
    assert model.best_partition_ == 0
    assert model.objective_ == pytest.approx(0.717818, abs=5e-7)
    assert model.objective_ == pytest.approx(anmi(labels, model.labels_))


def test_best__takes_no_partition_of_too_many_clusters():
    labels = np.array([[0, 0, 0], [1, 1, 0], [2, 2, 1], [3, 3, 1]])
    model = BEST(3).fit(labels)
    assert model.best_partition_ == 2
    assert np.isnan(model.scores_[:2]).all()
    with pytest.raises(InvalidInputError, match=r"n_clusters=1 but every partition has at least 2 clusters"):
        BEST(1).fit(labels)
