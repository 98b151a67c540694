"""The nearest centers of many partitions against their definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigcons.kernels.nearest import label_nearest, mean_distances, pack_centers
from tests.naive import nearest as naive


@st.composite
def problems(draw):
    """Draw whole coordinates: both ways of computing a distance are exact, and ties are frequent."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    n_rows, n_features = draw(st.integers(1, 70)), draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(1, 11), min_size=1, max_size=4))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    points = rng.integers(-4, 5, (n_rows, n_features)).astype(np.float32)
    centers = rng.integers(-4, 5, (offsets[-1], n_features)).astype(float)
    share = rng.choice([0.0, 0.1, 0.5, 1.0], len(sizes))
    labels = np.where(rng.random((n_rows, len(sizes))) < share, 0, -1).astype(np.int8)
    return points, centers, offsets, labels


def labeled(points, centers, offsets, labels):
    halves = (centers**2).sum(axis=1, keepdims=True) / 2
    found, is_seen = np.full_like(labels, 99), np.ascontiguousarray(labels.T >= 0)
    label_nearest(points, pack_centers(np.hstack([centers, halves])), offsets, is_seen, found)
    return found


@given(problems())
def test_label_nearest__is_the_naive_one(problem):
    np.testing.assert_array_equal(labeled(*problem), naive.label(*problem))


def test_label_nearest__of_a_point_does_not_depend_on_those_around_it():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(1000, 300)).astype(np.float32)  # several panels
    centers = points[rng.integers(1000, size=40)] + 1e-7 * rng.normal(size=(40, 300))
    offsets, labels = np.array([0, 10, 40]), np.zeros((1000, 2), np.int8)
    labels[:, 1] = np.where(rng.random(1000) < 0.1, 0, -1)
    expected = labeled(points, centers, offsets, labels)
    assert len(np.unique(expected)) > 20
    order = rng.permutation(1000)[:700]
    np.testing.assert_array_equal(
        labeled(points[order], centers, offsets, labels[order]), expected[order], strict=True
    )


@given(problems(), st.booleans())
def test_mean_distances__is_the_naive_one(problem, is_shared):
    points, centers, offsets, labels = problem
    rng = np.random.default_rng(len(points))
    weights = np.ones((1, points.shape[1]))
    if not is_shared:
        weights = rng.integers(0, 4, (len(offsets) - 1, points.shape[1])).astype(float)
    labels = np.minimum(labels, np.diff(offsets) - 1).astype(np.int8)
    of_each = np.repeat(
        np.broadcast_to(weights, (len(offsets) - 1, points.shape[1])), np.diff(offsets), axis=0
    )
    inner = centers * of_each
    packed = pack_centers(np.hstack([inner * of_each, (inner**2).sum(axis=1, keepdims=True) / 2]))
    found = np.empty(len(points))
    mean_distances(points, packed, offsets, weights**2, labels, found)
    expected = naive.mean_distance(
        points, centers, offsets, np.broadcast_to(weights, (len(offsets) - 1, points.shape[1])), labels
    )
    np.testing.assert_allclose(found, expected, atol=1e-9)
