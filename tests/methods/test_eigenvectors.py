"""Eigenvectors by passes over the labels are those of the table of overlaps, on any engine."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble, spectra
from bigcons.datasets import planted_ensemble
from bigcons.errors import MemoryBudgetError
from bigcons.kernels.overlaps import multiply_rows
from bigcons.methods.embedding import check_embedding_plan, groups_of, leading_by_passes
from bigcons.run.engine import SerialEngine, ThreadsEngine
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
    known = values > spectra.NEGLIGIBLE * max(values[0], 1e-300)
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
    scale /= np.sqrt(by_table(labels, 1, scale)[0])  # the largest eigenvalue is 1, as in embeddings
    found = leading_by_passes(ensemble, SERIAL, weights_of_objects, scale, 6)
    values, vectors = by_table(labels, 7, scale)
    sines = np.sqrt(np.maximum(1.0 - np.linalg.svd(found.vectors.T @ vectors[:, :6])[1] ** 2, 0.0))
    assert sines.max() <= 1e-3 / (values[5] - values[6]) < 0.1
    assert found.n_passes <= 14


@pytest.mark.parametrize("chunk_rows", [64, 128])
def test_passes__have_the_same_bits_on_any_engine_and_from_a_store(chunk_rows, tmp_path):
    ensemble, _ = planted_ensemble(600, 10, n_clusters=(3, 9), missing=0.3, random_state=2)
    stored = ensemble.save(tmp_path / "e.zarr", chunk_rows=chunk_rows)
    groups = groups_of(stored, 8 * stored.n_base_clusters)
    assert 2 < len(groups) <= len(stored.blocks())
    found = [
        bipartite_by_passes(data, engine)
        for data in (stored, stored.load())
        for engine in (SERIAL, ThreadsEngine(3))
    ]
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


def test_memory__of_passes_is_linear_in_the_base_clusters_and_refused_with_the_number():
    ensemble, _ = planted_ensemble(300, 10, n_clusters=(3, 9), random_state=5)
    with pytest.raises(MemoryBudgetError, match="n_base_clusters") as refused:
        check_embedding_plan("HBGF", ensemble, SERIAL, "1MB", columns=8)
    assert refused.value.needed > refused.value.budget
