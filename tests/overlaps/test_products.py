"""Products with overlaps that nothing lists are those with the table, and methods find the same by both."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import MemoryBudgetError
from bigcons.execution.engine import SerialEngine, ThreadsEngine
from bigcons.methods import CCC, CCSVD, CCU, MCLA
from bigcons.methods.correspondence import ByLabels, ByMatrix, cosines
from bigcons.metrics import adjusted_rand
from bigcons.overlaps import products
from bigcons.overlaps.incidence import one_hot
from bigcons.overlaps.products import Form, form_of, overlaps_by_products
from tests.naive import overlaps as naive
from tests.support.strategies import label_matrices

SERIAL = SerialEngine()


def overlaps_of(ensemble, memory=None):
    return overlaps_by_products("CCC", ensemble, SERIAL, memory, columns=3, in_memory=True)


@given(label_matrices(max_objects=9))
def test_products__are_those_with_the_counted_overlaps(labels):
    ensemble = Ensemble.from_labels(labels)
    expected, found = naive.overlaps(ensemble.read(0, ensemble.n_objects)), overlaps_of(ensemble)
    rng = np.random.default_rng(0)
    table = rng.normal(size=(len(expected), 3))
    np.testing.assert_array_equal(found.diagonal(), np.diag(expected))
    np.testing.assert_allclose(found @ table, expected @ table, atol=1e-12)
    kept = np.flatnonzero(np.diag(expected) > 0)[::2]
    offsets = np.unique(np.append(np.searchsorted(kept, ensemble.offsets), 0))
    similarity, by_products = cosines(expected[np.ix_(kept, kept)], offsets), found.of(kept).cosines()
    np.testing.assert_allclose(by_products @ table[kept], similarity @ table[kept], atol=1e-12)
    np.testing.assert_allclose(by_products.columns([0]), similarity[:, [0]], atol=1e-12)


@given(label_matrices(max_objects=9), st.sampled_from([None, 0.3]), st.randoms(use_true_random=False))
def test_sums__follow_members_that_join_and_leave(labels, weight, random):
    ensemble = Ensemble.from_labels(labels)
    overlaps, K = naive.overlaps(ensemble.read(0, ensemble.n_objects)), 3
    kept = np.flatnonzero(np.diag(overlaps) > 0)[::2]
    offsets = np.unique(np.append(np.searchsorted(kept, ensemble.offsets), 0))
    similarity = cosines(overlaps[np.ix_(kept, kept)], offsets)
    times = np.ones(kept.size) if weight is None else 1.0 + weight * np.arange(kept.size)

    def drawn(n):
        return np.array([random.randrange(-1, K) for _ in range(n)])

    ways = [
        ByLabels(overlaps_of(ensemble).of(kept).cosines(), offsets, times),
        ByMatrix(similarity, offsets, times),
        ByMatrix(csr_array(similarity), offsets, times),
    ]
    groups = drawn(kept.size)
    for sums in ways:
        sums.begin(groups, K)
    for _ in range(2):
        for u, (first, last) in enumerate(pairwise(offsets)):
            expected = similarity[first:last] @ one_hot(groups, K, times)
            for sums in ways:
                np.testing.assert_allclose(sums.of(u, groups), expected, atol=1e-12)
            before, groups[first:last] = groups[first:last].copy(), drawn(last - first)
            for sums in ways:
                sums.move(u, before, groups[first:last])
    for sums in ways[1:]:  # which are exact: nothing is left of those that have moved
        found = sums.sums.copy()
        sums.begin(groups, K)
        np.testing.assert_array_equal(sums.sums, found)


@pytest.mark.parametrize("weights", [None, np.arange(12) % 3], ids=["alike", "weighed"])
@pytest.mark.parametrize("model", [MCLA(4), CCC(4), CCU(4), CCSVD(4)], ids=repr)
def test_methods__find_the_same_by_products_as_from_the_table(model, weights, monkeypatch):
    ensemble, _ = planted_ensemble(
        700, 12, n_clusters=(10, 20), missing=0.3, shares=(0.4, 0.3, 0.2, 0.1), random_state=3
    )
    model.set_params(random_state=0, client="serial", weights=weights)
    by_table = model.fit(ensemble)
    labels, objective = by_table.labels_, by_table.objective_
    monkeypatch.setattr(products, "form_of", lambda *_: (Form.PRODUCTS, 0))
    by_products = model.fit(ensemble)
    if not isinstance(model, MCLA):  # whose similarity is then of another kind
        assert by_products.objective_ == pytest.approx(objective, rel=1e-3)
    assert adjusted_rand(labels, by_products.labels_) > 0.98
    memberships = by_products.memberships_
    np.testing.assert_array_equal(
        model.set_params(client=ThreadsEngine(3)).fit(ensemble).memberships_, memberships
    )


def test_where_pairs_are_too_many_to_list(monkeypatch):
    ensemble, _ = planted_ensemble(300, 10, n_clusters=(3, 9), random_state=5)
    assert form_of(ensemble, SERIAL)[0] == Form.TABLE
    monkeypatch.setattr(products, "estimated_pairs", lambda *_: 10)
    fine = SimpleNamespace(n_objects=1_000, n_partitions=10, n_base_clusters=6_000, is_soft=False)
    assert form_of(fine, SERIAL)[0] == Form.SPARSE
    fine.n_partitions = 10_000
    assert form_of(fine, SERIAL)[0] == Form.PRODUCTS
    assert form_of(fine, SERIAL, Form.SPARSE)[0] == Form.SPARSE
    assert form_of(fine, SERIAL, Form.TABLE)[0] == Form.TABLE
    with pytest.raises(MemoryBudgetError, match="CCC needs") as refused:
        products.overlaps_by_products("CCC", ensemble, SERIAL, "1MB", columns=3, in_memory=True)
    assert refused.value.needed > refused.value.budget


def test_where_eigenvectors_take_less_by_products(monkeypatch):
    monkeypatch.setattr(products, "estimated_pairs", lambda *_: 10)
    blocks = [None] * 13
    shape = {"n_objects": 100_000, "n_partitions": 50, "n_base_clusters": 6_000, "is_soft": False}
    fine = SimpleNamespace(**shape, blocks=lambda: blocks)
    assert form_of(fine, SERIAL, n_vectors=12) == (Form.PRODUCTS, 0)
    assert form_of(fine, SERIAL, n_vectors=300) == (Form.SPARSE, 10)
    assert form_of(fine, SERIAL) == (Form.SPARSE, 10)
    fine.n_partitions = 10
    assert form_of(fine, SERIAL, n_vectors=12) == (Form.SPARSE, 10)


def test_by_labels__numbers_as_many_base_clusters_as_the_type_of_the_labels_holds():
    ensemble = Ensemble.from_labels(np.stack([np.arange(128), np.arange(128) % 2], axis=1))
    assert ensemble.dtype == np.int8
    sums = ByLabels(overlaps_of(ensemble).cosines(), ensemble.offsets, np.ones(130))
    np.testing.assert_array_equal(sums.rows[0], np.arange(1, 129))
