"""Eigenvectors by passes over the labels are those of the table of overlaps, on any engine."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import MemoryBudgetError
from bigcons.execution.engine import SerialEngine, ThreadsEngine
from bigcons.kernels.overlaps import multiply_rows
from bigcons.methods import CSPA, HBGF, HGPA
from bigcons.metrics import adjusted_rand
from bigcons.overlaps import eigenvectors, embedding, spectral_start
from bigcons.overlaps.eigenvectors import (
    check_passes_plan,
    groups_of,
    leading_by_passes,
    leading_by_products,
    takes_passes,
)
from bigcons.overlaps.embedding import bipartite_embedding, cut_embedding
from bigcons.overlaps.tree import weights_of
from tests.naive.overlaps import incidence
from tests.support.strategies import label_matrices

SERIAL = SerialEngine()


def weights_of_objects(rows):
    """Return weights that differ, by the labels or memberships of an object alone."""
    return 1.0 / (1.0 + np.maximum(rows, 0).sum(axis=1))


def by_table(labels, n_vectors, scale):
    """Return the same as `leading_by_passes` by dense linear algebra."""
    codes = Ensemble.from_labels(labels).read(0, len(labels))
    H = np.concatenate([column[:, None] == np.arange(column.max() + 1) for column in codes.T], axis=1) * scale
    values, vectors = np.linalg.eigh(H.T @ (H * weights_of_objects(codes)[:, None]))
    return values[::-1][:n_vectors], vectors[:, ::-1][:, :n_vectors]


def shape_of(n_objects, n_partitions, n_clusters):
    """Return what `takes_passes` reads of an ensemble."""
    blocks = [None] * -(-n_objects // 8192)
    sizes = {"n_objects": n_objects, "n_partitions": n_partitions}
    n_base_clusters = n_partitions * n_clusters
    return SimpleNamespace(**sizes, n_base_clusters=n_base_clusters, blocks=lambda: blocks)


@pytest.mark.parametrize(
    ("shape", "share"), [((1, 1), 1.0), ((7, 40), 0.3), ((90, 3000), 0.5), ((5, 9), 0.0)]
)
def test_multiply_rows__gives_the_products_of_the_dense_matrix(shape, share):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=shape) * (rng.random(shape) < share)
    dense[:, :2] = 0.0
    sparse, found = scipy.sparse.csr_array(dense), np.zeros((shape[0], shape[0]))
    column_starts = np.append(0, np.bincount(sparse.indices, minlength=shape[1]).cumsum())
    multiply_rows(sparse.indptr, sparse.indices, sparse.data, column_starts, found)
    assert share < 0.5 or shape[0] == 1 or (dense != 0).sum() > 1 << 16  # of more than one slice
    np.testing.assert_allclose(found, dense @ dense.T, rtol=1e-12, atol=1e-12)


@given(label_matrices(min_objects=2, max_objects=30, max_partitions=6), st.integers(1, 6))
def test_passes__find_the_eigenvectors_of_the_table(labels, n_vectors):
    ensemble = Ensemble.from_labels(labels)
    scale = 1.0 / np.sqrt(1.0 + np.arange(ensemble.n_base_clusters))
    found = leading_by_passes(ensemble, SERIAL, weights_of_objects, scale, n_vectors, tol=1e-12)
    values, _ = by_table(labels, n_vectors, scale)
    known = values > eigenvectors.NEGLIGIBLE * max(values[0], 1e-300)
    np.testing.assert_allclose(found.values, values[known], rtol=1e-9)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(known.sum()), atol=1e-9)
    codes = ensemble.read(0, ensemble.n_objects)
    H = incidence(codes) * scale
    image = H.T @ (weights_of_objects(codes)[:, None] * (H @ found.vectors))
    np.testing.assert_allclose(image, found.vectors * found.values, atol=1e-9 * values[0])


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_passes__of_planted_clusters_are_few_and_end_near_the_table(missing):
    ensemble, _ = planted_ensemble(800, 20, n_clusters=(20, 30), missing=missing, random_state=0)
    labels = ensemble.read(0, 800)
    scale = 1.0 / np.sqrt(1.0 + np.arange(ensemble.n_base_clusters) % 7)
    found = leading_by_passes(ensemble, SERIAL, weights_of_objects, scale, 6)
    _, vectors = by_table(labels, 6, scale)
    sines = np.sqrt(np.maximum(1.0 - np.linalg.svd(found.vectors.T @ vectors)[1] ** 2, 0.0))
    assert sines.max() < 1e-2
    assert found.residual <= eigenvectors.RESIDUAL
    assert found.n_passes <= 14


def test_passes__that_restart_find_the_same():
    ensemble, _ = planted_ensemble(400, 12, n_clusters=(20, 30), random_state=1)
    scale = np.ones(ensemble.n_base_clusters)
    wide = leading_by_passes(ensemble, SERIAL, weights_of_objects, scale, 4, tol=1e-9, max_passes=99)
    H = incidence(ensemble.read(0, 400))
    table = H.T @ (H * weights_of_objects(ensemble.read(0, 400))[:, None])
    narrow = leading_by_products(table.__matmul__, len(table), 4, tol=1e-9, max_products=99, most_blocks=2)
    np.testing.assert_allclose(narrow.values, wide.values)
    np.testing.assert_allclose(narrow.vectors, wide.vectors, atol=1e-6)
    assert narrow.n_passes >= wide.n_passes


@pytest.mark.parametrize("chunk_rows", [64, 128])
def test_passes__have_the_same_bits_on_any_engine_and_from_a_store(chunk_rows, tmp_path):
    ensemble, _ = planted_ensemble(600, 10, n_clusters=(3, 9), missing=0.3, random_state=2)
    stored = ensemble.save(tmp_path / "e.zarr", chunk_rows=chunk_rows)
    groups = groups_of(stored, eigenvectors.LABELS_PER_BASE_CLUSTER * stored.n_base_clusters)
    assert 2 < len(groups) <= len(stored.blocks())
    found = [
        bipartite_by_passes(data, engine)
        for data in (stored, stored.load())
        for engine in (SERIAL, ThreadsEngine(3))
    ]
    assert len({part.vectors.tobytes() for part in found}) == 1


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_passes__by_far_fewer_objects_find_the_same(missing, tmp_path):
    ensemble, _ = planted_ensemble(40, 300, n_clusters=(2, 9), missing=missing, random_state=6)
    stored = ensemble.save(tmp_path / "e.zarr", chunk_rows=16)
    assert eigenvectors.goes_by_objects(stored)
    scale = 1.0 / np.sqrt(1.0 + np.arange(ensemble.n_base_clusters) % 7)
    found = [
        leading_by_passes(data, engine, weights_of_objects, scale, 5, tol=1e-10)
        for data in (stored, stored.load())
        for engine in (SERIAL, ThreadsEngine(3))
    ]
    values, vectors = by_table(ensemble.read(0, 40), 5, scale)
    np.testing.assert_allclose(found[0].values, values)
    np.testing.assert_allclose(np.abs(np.einsum("bk,bk->k", found[0].vectors, vectors)), 1.0, atol=1e-6)
    assert len({part.vectors.tobytes() for part in found}) == 1


def bipartite_by_passes(ensemble, engine):
    return leading_by_passes(ensemble, engine, weights_of_objects, np.ones(ensemble.n_base_clusters), 5)


def test_passes__take_memberships():
    labels = np.random.default_rng(0).integers(0, 4, (50, 3))
    hard, soft = (
        Ensemble.from_labels(labels),
        Ensemble.from_memberships([np.eye(4)[column] for column in labels.T]),
    )
    scale = np.ones(12)
    ones = lambda rows: np.ones(len(rows))  # noqa: E731
    found = [leading_by_passes(data, SERIAL, ones, scale, 3, tol=1e-10) for data in (hard, soft)]
    np.testing.assert_allclose(found[0].values, found[1].values)
    np.testing.assert_allclose(found[0].vectors, found[1].vectors, atol=1e-8)


@pytest.mark.parametrize("weights", [None, np.arange(12) % 3], ids=["alike", "weighed"])
@pytest.mark.parametrize(
    "model", [HBGF(4), CSPA(4), CSPA(4, normalize="all"), HGPA(4, objective="laplacian")], ids=repr
)
def test_methods__find_the_same_by_passes_as_by_the_table(model, weights, monkeypatch):
    ensemble, truth = planted_ensemble(
        700, 12, n_clusters=(10, 20), missing=0.3, shares=(0.4, 0.3, 0.2, 0.1), random_state=3
    )
    model.set_params(random_state=0, client="serial", weights=weights)
    by_overlaps = model.fit(ensemble)
    labels, values = by_overlaps.labels_, by_overlaps.singular_values_
    for module in (embedding, spectral_start):
        monkeypatch.setattr(module, "takes_passes", lambda *_: True)
    by_passes = model.fit(ensemble)
    np.testing.assert_allclose(by_passes.singular_values_, values, rtol=1e-6)
    assert adjusted_rand(labels, by_passes.labels_) > 0.99
    assert adjusted_rand(truth, by_passes.labels_) > adjusted_rand(truth, labels) - 0.02
    assert by_passes.n_passes_ > 3


def test_embeddings__by_passes_are_those_of_the_table(monkeypatch):
    ensemble, _ = planted_ensemble(500, 10, n_clusters=(8, 14), missing=0.3, random_state=4)
    rows, local = ensemble.read(0, 500), weights_of("HBGF", "local", ensemble, SERIAL, None)
    for embed in (
        bipartite_embedding,
        partial(bipartite_embedding, more_objects=5.0),
        partial(bipartite_embedding, weights=local),
        lambda *given: cut_embedding(*given, observed=True),
        lambda *given: cut_embedding(*given, local, observed=True),
    ):
        expected = embed(ensemble, SERIAL, 3)
        with monkeypatch.context() as patch:
            patch.setattr(embedding, "takes_passes", lambda *_: True)
            found = embed(ensemble, SERIAL, 3)
        assert found.n_passes > expected.n_passes
        similar = found.rows_of(rows)[0] @ found.rows_of(rows)[0].T
        np.testing.assert_allclose(
            similar, expected.rows_of(rows)[0] @ expected.rows_of(rows)[0].T, atol=0.05
        )


def test_choice__is_of_passes_where_base_clusters_are_many():
    assert takes_passes(shape_of(100_000, 50, 240), 12)
    assert takes_passes(shape_of(1_000_000, 50, 20_000), 12)
    assert takes_passes(shape_of(20_000, 30, 100), 12)
    assert not takes_passes(shape_of(100_000_000, 100, 10), 12)
    assert not takes_passes(shape_of(100_000_000, 50, 50), 12)


def test_memory__of_passes_is_linear_in_the_base_clusters_and_refused_with_the_number():
    ensemble, _ = planted_ensemble(300, 10, n_clusters=(3, 9), random_state=5)
    with pytest.raises(MemoryBudgetError, match="n_base_clusters") as refused:
        check_passes_plan("HBGF", ensemble, SERIAL, "1MB", columns=8)
    assert refused.value.needed > refused.value.budget
