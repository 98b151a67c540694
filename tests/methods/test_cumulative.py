"""Cumulative voting against its definition object after object."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import squareform

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError, UnlabeledObjectsWarning
from bigcons.execution.engine import SerialEngine
from bigcons.methods.cumulative import (
    CumulativeVoting,
    by_decreasing_entropy,
    fold_divergences,
)
from bigcons.metrics import adjusted_rand
from bigcons.overlaps.incidence import fold_overlaps
from tests.naive import cumulative as naive
from tests.support.numbering import numbered_by_size
from tests.support.strategies import label_matrices

VARIANTS = ("rcv", "acv", "urcv")
WIDE = 4  # no fewer clusters than any partition of the strategy has
matrices = label_matrices(min_objects=WIDE, min_partitions=2, max_clusters=WIDE)
complete = label_matrices(min_objects=WIDE, min_partitions=2, max_clusters=WIDE, gaps=False)


def dense_codes(labels):
    ensemble = Ensemble.from_labels(labels)
    return ensemble, np.array(ensemble.read(0, ensemble.n_objects), dtype=np.int64)


def fit(labels, n_clusters=WIDE, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlabeledObjectsWarning)
        return CumulativeVoting(n_clusters, **parameters).fit(labels)


def incomplete_planted(seed):
    """Return labels (150, 12) of partitions with 2 to 10 clusters each, two fifths of them missing."""
    return dense_codes(planted_ensemble(150, 12, missing=0.4, random_state=seed)[0].read(0, 150))


@given(matrices)
def test_order__is_of_decreasing_entropy(labels):
    ensemble, labels = dense_codes(labels)
    sizes = np.diag(fold_overlaps(ensemble, SerialEngine()))
    assert by_decreasing_entropy(sizes, ensemble.offsets).tolist() == naive.order(labels)
    assert fit(ensemble).reference_ == naive.order(labels)[0]


@pytest.mark.parametrize("variant", VARIANTS)
@given(labels=matrices)
def test_memberships__are_the_mean_votes_of_the_partitions_that_label_the_object(variant, labels):
    ensemble, labels = dense_codes(labels)
    model = fit(ensemble, variant=variant)
    expected = naive.memberships(naive.mean_votes(labels, variant)[0], WIDE)
    k = model.votes_.shape[1]
    assert sorted(model.merged_) == [*range(k)]
    np.testing.assert_allclose(model.memberships_[:, model.merged_], expected[:, :k], atol=1e-6)
    assert (model.objective_, model.n_passes_) == (0.0, 1)


@given(complete)
def test_acv__of_complete_labels_is_the_regression_on_the_running_mean(labels):
    ensemble, labels = dense_codes(labels)
    U = naive.adaptive_by_regression(labels)
    model = fit(ensemble, variant="acv")
    np.testing.assert_allclose(model.memberships_[:, model.merged_], U, atol=1e-6)


@pytest.mark.parametrize("variant", ["rcv", "acv"])
@given(labels=complete)
def test_votes__of_complete_labels_sum_to_one_and_keep_the_sizes_of_the_reference(variant, labels):
    ensemble, labels = dense_codes(labels)
    model = fit(ensemble, variant=variant)
    np.testing.assert_allclose(model.votes_.sum(axis=1), 1)
    sums = model.memberships_.sum(axis=0, dtype=np.float64)
    np.testing.assert_allclose(sums[model.merged_], np.bincount(labels[:, model.reference_]), atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@given(labels=label_matrices(min_objects=2, max_partitions=1), n_partitions=st.integers(1, 5))
def test_equal_partitions__give_that_partition(variant, labels, n_partitions):
    ensemble, labels = dense_codes(np.tile(labels, n_partitions))
    k = int(ensemble.n_clusters[0])
    model = fit(ensemble, k, variant=variant)
    np.testing.assert_array_equal(model.labels_, numbered_by_size(labels[:, 0]))
    np.testing.assert_array_equal(model.memberships_[model.labels_ >= 0].max(axis=1), 1)


@given(matrices, st.sampled_from(VARIANTS), st.sampled_from(["sizes", "equal"]), st.data())
def test_names_of_labels__change_nothing_but_the_names_of_clusters(labels, variant, prior, data):
    _, labels = dense_codes(labels)
    renamed, names = labels.copy(), []
    for u in range(labels.shape[1]):
        names.append(np.array([*data.draw(st.permutations(range(labels[:, u].max() + 1))), -1]))
        renamed[:, u] = names[u][labels[:, u]]
    model, again = (fit(given_labels, variant=variant, prior=prior) for given_labels in (labels, renamed))
    assert again.reference_ == model.reference_
    column = names[model.reference_][:-1]
    found, expected = again.merged_[column], model.merged_[: len(column)]
    np.testing.assert_allclose(again.memberships_[:, found], model.memberships_[:, expected], atol=1e-6)


@given(matrices, st.sampled_from(VARIANTS))
def test_divergences__are_those_of_the_columns(labels, variant):
    ensemble, labels = dense_codes(labels)
    model = fit(ensemble, variant=variant)
    columns = naive.mean_votes(labels, variant)[0]
    columns /= np.maximum(columns.sum(axis=1, keepdims=True), 1e-300)
    found = squareform(fold_divergences(ensemble, SerialEngine(), model.votes_))
    for q in range(len(found)):
        for r in range(q):
            expected = naive.divergence(columns[:, q], columns[:, r])
            assert found[q, r] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("variant", VARIANTS)
def test_columns__merge_by_the_least_average_divergence(variant, seed):
    ensemble, labels = incomplete_planted(seed)
    columns = naive.memberships(naive.mean_votes(labels, variant)[0], labels.max() + 1)
    columns = columns[:, columns.any(axis=0)]
    model = fit(ensemble, variant=variant)
    groups, cost = naive.merge(columns, WIDE)
    assert columns.shape[1] > WIDE
    found = [np.flatnonzero(model.merged_ == c).tolist() for c in range(WIDE)]
    assert sorted(found) == sorted(groups)
    assert model.objective_ == pytest.approx(cost, abs=1e-8)
    assert model.history_["n_clusters"] == [*range(columns.shape[1], WIDE - 1, -1)]
    assert model.history_["objective"] == sorted(model.history_["objective"])
    expected = np.stack([columns[:, group].sum(axis=1) for group in found], axis=1)
    np.testing.assert_allclose(model.memberships_, expected, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_prior__that_is_equal_divides_the_columns_by_their_sums(variant):
    ensemble, labels = incomplete_planted(0)
    model = fit(ensemble, variant=variant, prior="equal")
    means, n_votes = naive.mean_votes(labels, variant)
    votes = means * n_votes[:, None]
    votes = np.stack([votes[:, model.merged_ == c].sum(axis=1) for c in range(WIDE)], axis=1)
    expected = naive.memberships(votes / votes.sum(axis=0), WIDE)
    np.testing.assert_allclose(model.memberships_, expected, atol=1e-6)


@pytest.mark.parametrize("variant", ["acv", "urcv"])
@pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning")
def test_prior__that_is_equal_finds_clusters_that_the_largest_would_take(variant):
    ensemble, truth = planted_ensemble(2000, random_state=0)
    by_size, by_share = (
        adjusted_rand(truth, fit(ensemble, 6, variant=variant, prior=prior).labels_)
        for prior in ("sizes", "equal")
    )
    assert by_size < 0.9 < by_share


def test_clusters__that_miss_the_reference_vote_only_for_an_adaptive_one():
    """The reference is the first; object 4 meets it by way of the second partition."""
    labels = np.array([[0, 0, -1], [1, 0, -1], [2, -1, -1], [-1, 0, 0], [-1, -1, 0]])
    fixed, adaptive = (fit(labels, 3, variant=variant) for variant in ("rcv", "acv"))
    assert fixed.reference_ == adaptive.reference_ == 0
    np.testing.assert_array_equal(fixed.votes_[-1], 0)
    np.testing.assert_array_equal(fixed.memberships_[4], np.float32(1 / 3))
    np.testing.assert_allclose(adaptive.votes_[-1], [0.5, 0.5, 0])
    np.testing.assert_allclose(adaptive.memberships_[4], [0.5, 0.5, 0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"variant": "bvote"}, "variant='bvote' is unknown; choose one of 'rcv', 'acv', 'urcv'"),
        ({"prior": "flat"}, "prior='flat' is unknown; choose one of 'sizes', 'equal'"),
    ],
)
def test_parameters__that_make_no_sense_are_refused(parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        CumulativeVoting(2, **parameters).fit(np.array([[0, 0], [1, 1], [0, 1]]))
