"""Sparse overlaps are those of the table, and methods find the same by both."""

import numpy as np
import pytest
from hypothesis import given

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import MemoryBudgetError
from bigcons.execution.engine import SerialEngine, ThreadsEngine
from bigcons.methods import CCC, CCSVD, CCU, MCLA
from bigcons.methods.correspondence import cosines, sparse_cosines
from bigcons.methods.mcla import jaccard_weights, sparse_jaccard
from bigcons.metrics import adjusted_rand
from bigcons.overlaps import products
from bigcons.overlaps.sparse import (
    both_triangles,
    estimated_pairs,
    fold_sparse,
    sparse_overlaps,
    times_table,
)
from tests.naive import overlaps as naive
from tests.support.strategies import label_matrices

SERIAL = SerialEngine()


def overlaps_of(ensemble, engine=SERIAL):
    n_pairs = estimated_pairs(ensemble, engine)
    return sparse_overlaps("MCLA", ensemble, engine, None, n_pairs, columns=3, in_memory=True)


@given(label_matrices(max_objects=20))
def test_overlaps__are_those_that_plain_counting_finds(labels):
    ensemble = Ensemble.from_labels(labels)
    codes = ensemble.read(0, ensemble.n_objects)
    found, expected = overlaps_of(ensemble), naive.overlaps(codes)
    np.testing.assert_array_equal(found.toarray(), np.triu(expected))
    whole = both_triangles(found)
    np.testing.assert_array_equal(whole.toarray(), expected)
    for matrix in (found, whole):
        assert matrix.has_sorted_indices
        assert matrix.nnz == np.count_nonzero(matrix.toarray())
    for observed in (False, True):
        jaccard = sparse_jaccard(found, ensemble.offsets, observed=observed).toarray()
        np.testing.assert_array_equal(jaccard, jaccard_weights(expected, ensemble.offsets, observed=observed))
    if (np.diag(expected) > 0).all():
        similarity = sparse_cosines(found)
        assert (similarity != similarity.T).nnz == 0
        np.testing.assert_allclose(
            similarity.toarray(), cosines(expected, ensemble.offsets), rtol=1e-15, atol=0.0
        )
        table = np.random.default_rng(0).random((len(expected), 3))
        for engine in (SERIAL, ThreadsEngine(3)):
            product = times_table(similarity, table, engine)
            np.testing.assert_allclose(product, similarity.toarray() @ table, rtol=1e-12)


def test_overlaps__have_the_same_bits_on_any_engine_and_in_any_groups(tmp_path):
    ensemble, _ = planted_ensemble(600, 10, n_clusters=(3, 9), missing=0.3, random_state=2)
    whole = overlaps_of(ensemble)
    stored = ensemble.save(tmp_path / "e.zarr", chunk_rows=64)
    for engine in (SERIAL, ThreadsEngine(3)):
        found = fold_sparse(stored, engine, "MCLA", 10**6, labels_at_once=2000)
        for part, expected in zip(
            (found.data, found.indices, found.indptr), (whole.data, whole.indices, whole.indptr), strict=True
        ):
            np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("weights", [None, np.arange(12) % 3], ids=["alike", "weighed"])
@pytest.mark.parametrize("model", [MCLA(4), MCLA(4, union="observed"), CCC(4), CCU(4), CCSVD(4)], ids=repr)
def test_methods__find_the_same_from_sparse_overlaps_as_from_the_table(model, weights, monkeypatch):
    ensemble, _ = planted_ensemble(
        700, 12, n_clusters=(10, 20), missing=0.3, shares=(0.4, 0.3, 0.2, 0.1), random_state=3
    )
    model.set_params(random_state=0, client="serial", weights=weights)
    by_table = model.fit(ensemble)
    labels, objective = by_table.labels_, by_table.objective_
    monkeypatch.setattr(products, "takes_sparse", lambda *_: True)
    assert products.form_of(ensemble, SERIAL)[0] == products.Form.SPARSE
    by_sparse = model.fit(ensemble)
    assert by_sparse.objective_ == pytest.approx(objective, rel=1e-3)
    assert adjusted_rand(labels, by_sparse.labels_) > 0.98


def test_estimate__is_of_all_pairs_where_all_base_clusters_are_in_the_sample():
    ensemble, _ = planted_ensemble(300, 10, n_clusters=(3, 9), missing=0.3, random_state=4)
    n_pairs = both_triangles(overlaps_of(ensemble)).nnz // 2
    assert estimated_pairs(ensemble, SERIAL) == n_pairs
    with pytest.raises(MemoryBudgetError, match="more than the 10 planned") as refused:
        fold_sparse(ensemble, SERIAL, "MCLA", 10)
    assert refused.value.needed > refused.value.budget


def test_memory__of_pairs_is_refused_with_the_number():
    ensemble, _ = planted_ensemble(300, 10, n_clusters=(3, 9), random_state=5)
    with pytest.raises(MemoryBudgetError, match="pairs of base clusters") as refused:
        sparse_overlaps("MCLA", ensemble, SERIAL, "1MB", 1000, columns=3, in_memory=True)
    assert refused.value.needed > refused.value.budget
    with pytest.raises(MemoryBudgetError, match="PCC or HBGF"):
        sparse_overlaps("MCLA", ensemble, SERIAL, None, 10**8, columns=3, in_memory=True)
