"""Overlap and centroids of soft clusters: plain definition, identities, stores, engines."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import Consensus
from bigcons.errors import InvalidInputError
from bigcons.metrics import cluster_centroids, cluster_overlap
from tests.naive import metrics as naive


def memberships(rng, n_objects, n_clusters):
    """Rows on the simplex, some of them crisp."""
    rows = rng.dirichlet(np.full(n_clusters, 0.5), n_objects)
    rows[::3] = np.eye(n_clusters)[rng.integers(n_clusters, size=len(rows[::3]))]
    return rows


def stored(path, rows, labels=None, chunk_rows=16):
    labels = rows.argmax(axis=1) if labels is None else labels
    return Consensus.write(path, labels, rows, chunk_rows=chunk_rows)


@settings(deadline=None)
@given(
    n_objects=st.integers(1, 12),
    n_clusters=st.integers(1, 5),
    threshold=st.sampled_from([0.0, 0.05, 0.3, 0.8]),
    seed=st.integers(0, 1000),
)
def test_overlap__equals_naive(n_objects, n_clusters, threshold, seed):
    rows = memberships(np.random.default_rng(seed), n_objects, n_clusters)
    expected = naive.cluster_overlap(rows.tolist(), threshold)
    np.testing.assert_allclose(cluster_overlap(rows, threshold), expected, atol=1e-12)


@settings(deadline=None)
@given(n_clusters=st.integers(1, 5), seed=st.integers(0, 1000))
def test_centroids__equal_naive_and_average_to_the_mean(n_clusters, seed):
    rng = np.random.default_rng(seed)
    rows, features = memberships(rng, 10, n_clusters), rng.normal(size=(10, 2))
    centroids = cluster_centroids(features, rows)
    np.testing.assert_allclose(
        centroids, naive.cluster_centroids(features.tolist(), rows.tolist()), atol=1e-12
    )
    mean = rows.sum(axis=0) @ np.nan_to_num(centroids) / 10
    np.testing.assert_allclose(mean, features.mean(axis=0), atol=1e-12)


def test_centroids__drop_small_memberships_as_overlaps_do():
    rows = np.array([[1.0, 0.0], [0.5, 0.5], [0.1, 0.9]])
    features = np.array([[0.0], [6.0], [9.0]])
    np.testing.assert_allclose(cluster_centroids(features, rows, 0.2), [[2.0], [8.0]])
    np.testing.assert_array_equal(cluster_centroids(features, rows, 0.95), [[0.0], [np.nan]])


def test_overlap__blocks_and_engines():
    rows = memberships(np.random.default_rng(0), 80, 3)
    expected = cluster_overlap(rows, 0.2)
    rows = np.tile(rows, (10_000, 1))  # two blocks
    found = [cluster_overlap(rows, 0.2, client=client) for client in ("serial", "threads")]
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], expected, atol=1e-12)


def test_both__leave_out_objects_without_a_label(tmp_path):
    rng = np.random.default_rng(0)
    rows, features = memberships(rng, 50, 3).astype(np.float32), rng.normal(size=(50, 2))
    labels = rows.argmax(axis=1)
    labels[::7] = -1
    rows[::7] = 1 / 3
    consensus = stored(tmp_path / "c.zarr", rows, labels)
    known = labels >= 0
    np.testing.assert_allclose(cluster_overlap(consensus), cluster_overlap(rows[known]), atol=1e-12)
    np.testing.assert_allclose(
        cluster_centroids(features, consensus), cluster_centroids(features[known], rows[known]), atol=1e-12
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cluster_overlap([[0.5, 0.4]]), "row 0 of memberships"),
        (lambda: cluster_overlap([1.0]), "memberships has shape"),
        (lambda: cluster_overlap([[1.0]], 1.5), "threshold=1.5"),
        (lambda: cluster_centroids([[1.0]], [[1.0]], -1), "threshold=-1"),
        (lambda: cluster_centroids([[1.0], [2.0]], [[1.0]]), "memberships has 1 objects but the features"),
    ],
)
def test_both__refuse_in_one_line(call, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
