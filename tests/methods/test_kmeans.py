"""K-means of rows in memory: of unit rows and many clusters spherical."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from bigcons import HBGF
from bigcons.datasets import planted_ensemble
from bigcons.methods.assignment import best_kmeans
from bigcons.metrics import adjusted_rand
from bigcons.run.engine import one_thread
from bigcons.spectra import assign, kmeans_of_unit_rows, move_centers


@pytest.mark.parametrize("weighted", [False, True])
def test_best_kmeans__is_that_of_scikit_learn_and_tells_of_every_start(weighted):
    rng = np.random.default_rng(3)
    rows, weights = rng.random((80, 4)), rng.random(80) if weighted else None
    found, objectives = best_kmeans(rows, 7, 5, 11, weights, max_iter=50)
    with one_thread():
        expected = KMeans(7, n_init=5, random_state=11, max_iter=50).fit(rows, sample_weight=weights)
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    assert len(set(objectives)) == 5
    assert found.inertia_ == expected.inertia_ == min(objectives)


def test_kmeans_of_unit_rows__finds_many_clusters_from_a_part_of_the_rows():
    rng, K = np.random.default_rng(4), 60
    classes = rng.integers(K, size=3000)
    rows = np.eye(K)[classes] + 0.08 * rng.standard_normal((3000, K))
    rows /= np.sqrt((rows**2).sum(axis=1, keepdims=True))
    weights = rng.uniform(0.5, 2.0, 3000)
    found = kmeans_of_unit_rows(rows, K, 3, 11, weights, max_iter=50)
    assert adjusted_rand(classes, found.labels) > 0.99
    assert len(found.start_objectives) == 3
    assert len(found.labels) == 3000
    drawn, _ = best_kmeans(rows, K, 3, 11, weights, max_iter=50)
    # random starts miss some of so many
    assert adjusted_rand(classes, found.labels) > adjusted_rand(classes, drawn.labels_)
    of_unit_length = drawn.cluster_centers_ / np.sqrt((drawn.cluster_centers_**2).sum(axis=1, keepdims=True))
    _, records = move_centers(of_unit_length, lambda at: assign(rows, weights, at)[1], 50, 0.0)
    assert min(found.start_objectives) < records[-1]["objective"]


def test_kmeans_of_unit_rows__has_no_center_near_the_origin_that_takes_all_weak_rows():
    rng, K = np.random.default_rng(2), 60
    classes = rng.permutation(np.tile(np.arange(K), 40))
    noise = rng.choice([0.05, 0.3], (classes.size, 1)) * rng.standard_normal((classes.size, K))
    rows = np.eye(K)[classes] + noise
    rows /= np.sqrt((rows**2).sum(axis=1, keepdims=True))
    found = kmeans_of_unit_rows(rows, K, 3, 0)
    drawn, _ = best_kmeans(rows, K, 3, 0, None)
    assert np.bincount(drawn.labels_).max() > 3 * 40
    assert np.bincount(found.labels).max() < 2 * 40
    assert adjusted_rand(classes, found.labels) > adjusted_rand(classes, drawn.labels_) + 0.1
    np.testing.assert_allclose((found.centers**2).sum(axis=1), 1.0)


def test_kmeans_of_unit_rows__starts_on_as_many_rows_as_there_are_clusters():
    rows = np.repeat(np.eye(60), 40, axis=0)[np.argsort(np.tile(np.arange(40), 60), kind="stable")]
    rows[::2] = rows[0]  # of a part, half are one row
    rows[:60] = np.eye(60)
    found = kmeans_of_unit_rows(rows, 60, 2, 0)
    assert min(found.start_objectives) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("K", [2, 5, 12])
def test_kmeans_of_unit_rows__finds_few_clusters_from_one_start(K):
    rng = np.random.default_rng(K)
    classes = rng.integers(K, size=4000)
    rows = np.eye(K)[classes] + 0.15 * rng.standard_normal((4000, K))
    rows /= np.sqrt((rows**2).sum(axis=1, keepdims=True))
    found = kmeans_of_unit_rows(rows, K, 1, 0)
    assert adjusted_rand(classes, found.labels) > 0.99
    assert len(found.start_objectives) == 1


def test_fit__lets_no_cluster_take_the_objects_with_few_labels():
    K, n = 150, 6000
    ensemble, classes = planted_ensemble(
        n, 50, shares=[1 / K] * K, n_clusters=(10, 40), missing=0.5, random_state=0
    )
    found = HBGF(K, n_init=2, random_state=0).fit(ensemble).labels_
    assert np.bincount(found).max() < 2.5 * n / K
    assert adjusted_rand(classes, found) > 0.88
