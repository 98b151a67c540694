"""The reliability of base clusters, by all overlaps or those of a sample, is that of the paper."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.trust.groups import reliability_of_overlaps, reliability_of_table
from bigcons.weights import incidence_of
from tests.naive import reliability as naive
from tests.naive.overlaps import overlaps
from tests.support.strategies import label_matrices


def parts(labels):
    ensemble = Ensemble.from_labels(labels)
    codes = ensemble.read(0, ensemble.n_objects)
    return codes, incidence_of(codes, ensemble.offsets), ensemble.offsets


@given(label_matrices(max_objects=20))
def test_reliability__is_what_counting_labels_gives(labels):
    codes, incidence, offsets = parts(labels)
    expected, counted = naive.reliability(codes), overlaps(codes)
    np.testing.assert_allclose(reliability_of_table(incidence, offsets), expected, rtol=1e-12)
    for form in (counted, scipy.sparse.csr_array(counted)):
        np.testing.assert_allclose(reliability_of_overlaps(form, offsets), expected, rtol=1e-12)


@given(label_matrices(max_objects=16), st.data())
def test_weights__count_as_copies_of_partitions(labels, data):
    codes, incidence, offsets = parts(labels)
    M = codes.shape[1]
    counts = np.array(data.draw(st.lists(st.integers(1, 3), min_size=M, max_size=M)))
    copied = np.split(naive.reliability(np.repeat(codes, counts, axis=1)), offsets_of(codes, counts)[1:-1])
    of_firsts = np.concatenate([copied[u] for u in np.cumsum(counts) - counts])
    found = reliability_of_table(incidence, offsets, counts)
    np.testing.assert_allclose(found, of_firsts, rtol=1e-12)
    np.testing.assert_allclose(found, naive.reliability(codes, counts=counts), rtol=1e-12)


def offsets_of(codes, counts):
    return np.concatenate([[0], np.cumsum(np.repeat(codes.max(axis=0) + 1, counts))])


def test_reliability__of_many_base_clusters_is_that_of_few_at_a_time():
    rng = np.random.default_rng(0)
    labels = rng.integers(1000, size=(3000, 7))
    labels[rng.random(labels.shape) < 0.2] = -1
    offsets = offsets_of(labels, 1)
    assert offsets[-1] > 5_000  # by sparse products
    found = reliability_of_table(incidence_of(labels, offsets), offsets)
    np.testing.assert_allclose(found, naive.reliability(labels), rtol=1e-12)


def test_reliability__of_soft_clusterings_is_that_of_overlaps_of_memberships():
    rng = np.random.default_rng(1)
    rows = [rng.dirichlet(np.ones(k), 40).astype(np.float32) for k in (2, 3, 4)]
    rows[1][:9] = 0.0  # not labeled
    offsets = np.array([0, 2, 5, 9])
    H = np.concatenate(rows, axis=1)
    found = reliability_of_table(incidence_of(H, offsets), offsets)
    np.testing.assert_allclose(found, naive.soft_reliability(H.astype(float), offsets), rtol=1e-12)


def test_reliability__by_hand():
    labels = np.array([[0, 0], [0, 0], [0, 1], [0, -1], [1, 1], [1, 1]])
    _, incidence, offsets = parts(labels)
    two_thirds = -(2 / 3 * np.log2(2 / 3) + 1 / 3 * np.log2(1 / 3))
    expected = np.exp(-np.array([two_thirds, 0.0, 0.0, two_thirds]) / 0.8)
    assert reliability_of_table(incidence, offsets) == pytest.approx(expected)
    assert (reliability_of_table(incidence, offsets)[[1, 2]] == 1).all()
