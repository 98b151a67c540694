"""The spectral embedding of landmarks against its definition, and the shapes that its clusters follow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.datasets import make_moons

import bigcons as bc
from bigcons.generate.training import N_LANDMARKS, embedding, n_landmarks
from tests.naive import landmarks as naive


def projector(vectors, degrees):
    """Return the projector onto the eigenvectors of the symmetric matrix, whatever their signs and order."""
    orthonormal = vectors * np.sqrt(degrees)[:, None]
    np.testing.assert_allclose(orthonormal.T @ orthonormal, np.eye(vectors.shape[1]), atol=1e-8)
    return orthonormal @ orthonormal.T


def compare(points, landmarks, n_vectors, *, is_sparse=False):
    """Compare all spaces of leading eigenvectors that are separated from the next one."""
    values, expected, degrees = naive.embedding(points, landmarks)
    found, of_found = embedding(csr_array(points) if is_sparse else points, landmarks, n_vectors)
    assert found.shape == (len(landmarks), min(n_vectors, len(landmarks)))
    np.testing.assert_allclose(of_found, degrees, rtol=1e-6)
    gaps = -np.diff(np.append(values, -1.0))
    compared = [k for k in range(1, found.shape[1] + 1) if gaps[k - 1] > 1e-4]
    for k in compared:
        np.testing.assert_allclose(
            projector(found[:, :k], of_found), projector(expected[:, :k], degrees), atol=1e-6
        )
    return compared


@given(
    seed=st.integers(0, 10**6),
    n_groups=st.integers(1, 5),
    width=st.integers(1, 4),
    n_points=st.integers(6, 120),
    is_sparse=st.booleans(),
)
def test_embedding__is_that_of_the_definition(seed, n_groups, width, n_points, is_sparse):
    rng = np.random.default_rng(seed)
    centers = 30 * np.arange(n_groups)[:, None] + rng.normal(size=(n_groups, width))
    points = (centers[np.arange(n_points) % n_groups] + rng.normal(size=(n_points, width))).astype(np.float32)
    n_chosen = int(rng.integers(1, n_points // 2 + 1))
    landmarks = points[rng.choice(n_points, n_chosen, replace=False)].astype(float)
    compare(points, landmarks, int(rng.integers(1, 2 * n_chosen + 1)), is_sparse=is_sparse)


def test_embedding__of_groups_apart_has_a_vector_of_each():
    rng = np.random.default_rng(0)
    group = np.arange(300) % 4
    points = (100 * np.eye(4)[group] + rng.normal(size=(300, 4))).astype(np.float32)
    assert 4 in compare(points, points[:80].astype(float), 10)
    vectors, degrees = embedding(points, points[:80].astype(float), 4)
    indicators = (group[:80, None] == np.arange(4)) / np.sqrt(np.bincount(group[:80], degrees[:80]))
    np.testing.assert_allclose(
        projector(vectors, degrees), projector(indicators, degrees), atol=1e-8
    )  # which are constant in every group


def test_n_landmarks__of_few_objects_many_and_many_features():
    assert n_landmarks(1, 3) == 1
    assert n_landmarks(3, 3) == 3
    assert n_landmarks(30, 3) == 10
    assert n_landmarks(10**6, 3) == N_LANDMARKS
    assert n_landmarks(10**6, 10**5) * 10**5 <= 1 << 23
    assert n_landmarks(10**6, 10**7) == 10


# Shapes


def circles(n):
    rng = np.random.default_rng(0)
    radius, angle = np.arange(n) % 3, rng.uniform(0, 2 * np.pi, n)
    shape = (1 + 2 * radius)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return shape + 0.1 * rng.normal(size=(n, 2)), radius


SHAPES = {
    "moons": lambda: make_moons(1500, noise=0.05, random_state=0),
    "circles": lambda: circles(1500),
}


@pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning")
@pytest.mark.parametrize("shape", SHAPES)
def test_landmarks__follow_curved_shapes_that_k_means_cuts(shape):
    points, truth = SHAPES[shape]()
    scores = {
        make.__name__: bc.metrics.adjusted_rand(
            truth,
            bc.consensus(make(points, random_state=0), len(np.unique(truth)), random_state=0).labels_,
        )
        for make in (bc.generate.landmarks, bc.generate.kmeans)
    }
    assert scores["landmarks"] > 0.99
    assert scores["kmeans"] < 0.9


def test_landmarks__share_three_sets():
    points = np.random.default_rng(0).normal(size=(300, 2))
    made = bc.generate.landmarks(points, n_partitions=11, random_state=0).generator.centers
    assert len(made.offsets) - 1 == 3
    assert made.sets.tolist() == [u % 3 for u in range(11)]
    assert np.diff(made.offsets).tolist() == [100, 100, 100]
    two = bc.generate.landmarks(points, n_partitions=2, random_state=0).generator.centers
    np.testing.assert_array_equal(two.packed[: 2 * 100], made.packed[: 2 * 100])
