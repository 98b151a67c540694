"""Criteria of memberships: plain definitions, identities, stores, engines."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Divergence, Ensemble, PairTable, generate
from bigcons.coassociation import sample
from bigcons.errors import InvalidInputError, SoftEnsembleError
from bigcons.metrics import cluster_centroids, cluster_overlap, jensen_shannon, pcc_objective
from tests.naive import metrics as naive
from tests.naive import pcc as naive_pcc
from tests.support.refusals import refused
from tests.support.stores import write_consensus
from tests.support.strategies import label_matrices

VALUES = {"l2": naive_pcc.l2, "kl": naive_pcc.kl}


def memberships(n_objects, n_clusters, seed=0):
    """Rows on the simplex, some of them crisp."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(n_clusters, 0.5), n_objects)
    rows[::3] = np.eye(n_clusters)[rng.integers(n_clusters, size=len(rows[::3]))]
    return rows


@given(ky=st.integers(1, 6), kz=st.integers(1, 6), seed=st.integers(0, 1000))
def test_jensen_shannon__equals_brute_force(ky, kz, seed):
    y, z = memberships(3, ky, seed), memberships(3, kz, seed + 1)
    assert jensen_shannon(y, z) == pytest.approx(naive.jensen_shannon(y.tolist(), z.tolist()), abs=1e-12)


def test_jensen_shannon__blocks_engines_and_stores(tmp_path):
    y, z = memberships(50, 3).astype(np.float32), memberships(50, 4, 1)
    expected = jensen_shannon(y, z)
    y, z = np.tile(y, (6_000, 1)), np.tile(z, (6_000, 1))  # three blocks
    stored = zarr.create_array(tmp_path / "memberships", data=y, chunks=(70_000, 3))
    values = {jensen_shannon(x, z, client=client) for x in (y, stored) for client in ("serial", "threads")}
    assert len(values) == 1
    assert values.pop() == pytest.approx(expected, abs=1e-12)


@given(
    n_objects=st.integers(1, 12),
    n_clusters=st.integers(1, 5),
    threshold=st.sampled_from([0.0, 0.05, 0.3, 0.8]),
    seed=st.integers(0, 1000),
)
def test_overlap__equals_naive(n_objects, n_clusters, threshold, seed):
    rows = memberships(n_objects, n_clusters, seed)
    expected = naive.cluster_overlap(rows.tolist(), threshold)
    np.testing.assert_allclose(cluster_overlap(rows, threshold), expected, atol=1e-12)


@given(n_clusters=st.integers(1, 5), seed=st.integers(0, 1000))
def test_centroids__equal_naive_and_average_to_the_mean(n_clusters, seed):
    rows, features = memberships(10, n_clusters, seed), np.random.default_rng(seed).normal(size=(10, 2))
    centroids = cluster_centroids(features, rows)
    expected = naive.cluster_centroids(features.tolist(), rows.tolist())
    np.testing.assert_allclose(centroids, expected, atol=1e-12)
    mean = rows.sum(axis=0) @ np.nan_to_num(centroids) / 10
    np.testing.assert_allclose(mean, features.mean(axis=0), atol=1e-12)


def test_centroids__drop_small_memberships_as_overlaps_do():
    rows, features = np.array([[1.0, 0.0], [0.5, 0.5], [0.1, 0.9]]), np.array([[0.0], [6.0], [9.0]])
    np.testing.assert_allclose(cluster_centroids(features, rows, 0.2), [[2.0], [8.0]])
    np.testing.assert_array_equal(cluster_centroids(features, rows, 0.95), [[0.0], [np.nan]])


def test_both__leave_out_objects_without_a_label(tmp_path):
    rows, features = memberships(50, 3).astype(np.float32), np.random.default_rng(0).normal(size=(50, 2))
    labels = rows.argmax(axis=1)
    labels[::7], rows[::7] = -1, 1 / 3
    consensus, known = write_consensus(tmp_path / "c.zarr", labels, rows, chunk_rows=16), labels >= 0
    np.testing.assert_allclose(cluster_overlap(consensus), cluster_overlap(rows[known]), atol=1e-12)
    expected = cluster_centroids(features[known], rows[known])
    np.testing.assert_allclose(cluster_centroids(features, consensus), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jensen_shannon([[1.0]], [[1.0], [1.0]]), "z has 2 objects but y has 1"),
        (lambda: jensen_shannon([[0.5, 0.4]], [[1.0]]), "row 0 of y has sum 0.9"),
        (lambda: jensen_shannon([[1.0]], [[1.5, -0.5]]), "row 0 of z"),
        (lambda: jensen_shannon([[1.0]], [[float("nan")]]), "row 0 of z"),
        (lambda: jensen_shannon([1.0], [[1.0]]), "y has shape"),
        (lambda: jensen_shannon(np.empty((0, 2)), [[1.0]]), "y has shape"),
        (lambda: cluster_overlap([[1.0]], 1.5), "threshold=1.5"),
        (lambda: cluster_centroids([[1.0]], [[1.0]], -1), "threshold=-1"),
        (lambda: cluster_centroids([[1.0], [2.0]], [[1.0]]), "memberships has 1 objects but the features"),
    ],
)
def test_criteria__refuse_in_one_line(call, message):
    with refused(message):
        call()


@pytest.mark.parametrize("name", VALUES)
@given(labels=label_matrices(min_objects=2, max_objects=10), n_clusters=st.integers(2, 4))
def test_pcc_objective__over_all_pairs_equals_brute_force(name, labels, n_clusters):
    Y = memberships(len(labels), n_clusters) * 0.9 + 0.1 / n_clusters
    expected = naive_pcc.objective(naive_pcc.all_pairs(labels), Y, VALUES[name])
    assert pcc_objective(labels, Y, divergence=name) == pytest.approx(expected, rel=1e-7, abs=1e-9)


@given(labels=label_matrices(min_objects=2, max_objects=10), n_clusters=st.integers(1, 4))
def test_pcc_objective__without_the_constant_is_the_factorized_form(labels, n_clusters):
    pairs, Y = naive_pcc.all_pairs(labels), memberships(len(labels), n_clusters).astype(np.float32)
    expected = naive_pcc.objective(pairs, Y.astype(np.float64)) - naive_pcc.constant(pairs)
    assert pcc_objective(labels, Y, constant=False) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("how", [{}, {"divergence": "kl"}, {"constant": False}])
def test_pcc_objective__of_soft_clusterings_is_refused_in_one_line(how):
    soft = Ensemble.from_memberships([memberships(6, 3), memberships(6, 2)])
    with refused(r"works on labels; .*ensemble\.harden\(\)", SoftEnsembleError):
        pcc_objective(soft, memberships(6, 3), **how)


def test_pcc_objective__over_a_table_counts_its_pairs_only(tmp_path):
    table = sample(np.random.default_rng(0).integers(-1, 3, (30, 8)), share=0.3, random_state=0)
    Y = memberships(30, 3) * 0.9 + 0.1 / 3
    pairs = list(zip(*(column.tolist() for column in table.edges()), strict=True))
    assert 0 < len(pairs) < 30 * 29 / 2
    table.save(tmp_path / "pairs.zarr")
    for name, value in VALUES.items():
        expected = naive_pcc.objective(pairs, Y, value)
        for given_pairs in (table, tmp_path / "pairs.zarr"):
            result = pcc_objective(None, Y, divergence=name, pairs=given_pairs)
            assert result == pytest.approx(expected, rel=1e-7)


def test_pcc_objective__over_many_tiles_and_chunks_equals_the_factorized_form(tmp_path):
    labels = np.random.default_rng(0).integers(-1, 4, (1100, 6))
    ensemble = Ensemble.from_labels(labels).save(tmp_path / "ensemble.zarr", chunk_rows=64)
    constants = []
    for seed in (0, 1):
        Y = memberships(1100, 3, seed).astype(np.float32)
        constants.append(pcc_objective(ensemble, Y) - pcc_objective(ensemble, Y, constant=False))
    assert constants[0] > 0
    assert constants[0] == pytest.approx(constants[1], rel=1e-9)


def test_pcc_objective__refuses_what_does_not_fit():
    labels, Y = np.zeros((4, 2), int), np.full((4, 2), 0.5)
    table = PairTable.from_arrays([0], [1], [1], [2], n_objects=5)
    for arguments, options, message in (
        ((labels, Y[:3]), {}, "3 objects but the ensemble has 4"),
        ((None, Y), {"pairs": table}, "4 objects but pairs has 5"),
        ((labels, Y), {"divergence": "kl", "constant": False}, "only 'l2' has such a constant"),
        ((labels, Y), {"divergence": Divergence(lambda x: -np.sqrt(x))}, "not double-convex"),
        ((np.zeros((50_001, 1), int), np.ones((50_001, 1))), {}, "constant=False"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            pcc_objective(*arguments, **options)


def test_memberships__that_are_rounded_are_those_of_their_sums():
    """As in an ensemble that is made of them, so rows of two decimals are taken."""
    exact = np.random.default_rng(0).dirichlet(np.ones(3), 200)
    rounded = np.round(exact, 2)
    rounded[0] = 0.33
    assert 0.005 < np.abs(rounded.sum(axis=1) - 1).max() < 0.0101
    assert Ensemble.from_memberships([rounded]).n_objects == 200
    whole = rounded / rounded.sum(axis=1, keepdims=True)
    assert jensen_shannon(rounded, exact) == pytest.approx(jensen_shannon(whole, exact))
    generate.from_memberships(rounded, n_partitions=2, random_state=0)
    with pytest.raises(InvalidInputError, match="normalize them"):
        jensen_shannon(rounded * 1.03, exact)
