"""CCC, CCU and CCSVD against their definitions over sets of objects."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given

from bigcons.datasets import planted_ensemble
from bigcons.errors import ConvergenceWarning
from bigcons.methods.correspondence import CCC, CCSVD, CCU
from bigcons.metrics import adjusted_rand
from tests.naive import correspondence as naive
from tests.naive import overlaps as counted
from tests.naive.hypergraph import noisy_copies
from tests.support.fits import quiet
from tests.support.stores import dense_codes
from tests.support.strategies import label_matrices


@given(label_matrices(min_objects=4, max_objects=8, min_partitions=2, max_partitions=4, max_clusters=3))
def test_ccc__gives_every_partition_its_best_matching(labels):
    ensemble, labels = dense_codes(labels)
    model = quiet(CCC(3, random_state=0), ensemble)
    groups = model.meta_clusters_
    assert model.objective_ == pytest.approx(naive.objective(labels, groups, 3), abs=1e-9)
    assert model.objective_ == max(model.start_objectives_)
    partitions = [range(first, last) for first, last in pairwise(ensemble.offsets)]
    for members in partitions:
        assert len(set(groups[members])) == len(members)  # at most one of its clusters in a meta-cluster
    assume(model.converged_)  # the turns may go round in circles
    table = naive.resemblances(labels, groups, 3)
    for members in partitions:
        expected = naive.best_matching([table[b] for b in members], 3)
        assert sum(table[b][groups[b]] for b in members) == pytest.approx(expected, abs=1e-9)


@given(label_matrices(min_objects=4, max_objects=8, min_partitions=2, max_partitions=4, max_clusters=4))
def test_ccu__gives_every_base_cluster_the_meta_cluster_it_resembles_most(labels):
    ensemble, labels = dense_codes(labels)
    model = quiet(CCU(2, random_state=0), ensemble)
    groups = model.meta_clusters_
    assert model.objective_ == pytest.approx(naive.objective(labels, groups, 2), abs=1e-9)
    assume(model.converged_)
    for own, row in zip(groups, naive.resemblances(labels, groups, 2), strict=True):
        assert row[own] >= max(row) - 1e-9


def test_alternation__that_is_cut_short_warns_and_keeps_its_best_sweep():
    with pytest.warns(ConvergenceWarning, match="CCC stopped at max_iter"):
        model = CCC(4, max_iter=1, random_state=0).fit(noisy_copies(200, 4, 6, 0.5, 0)[1])
    assert not model.converged_
    assert model.objective_ == max(model.start_objectives_)


def test_ccc__lets_clusters_left_over_vote_where_nobody_else_does():
    """One partition has three clusters for two meta-clusters; object 6 has no label but in the third."""
    labels = np.array([[0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 1], [2, 1, 1], [2, -1, -1]])
    model = CCC(2, random_state=0).fit(labels)
    assert model.meta_clusters_.tolist().count(-1) == 1
    assert model.meta_clusters_[2] == -1
    assert model.labels_[6] == model.labels_[3]
    assert model.labels_[5] == model.labels_[3]
    np.testing.assert_array_equal(model.memberships_[5].max(), 1.0)  # two votes, none from the one left over


@pytest.mark.parametrize(
    ("method", "n_clusters", "n_starts"),  # of partitions of 4 classes
    [(CCC, 10, 10), (CCC, 100, 1), (CCU, 10, 10), (CCU, 100, 1)],
)
def test_alternation__starts_once_of_many_small_base_clusters(method, n_clusters, n_starts):
    ensemble, classes = planted_ensemble(
        4_000, 20, shares=[0.25] * 4, n_clusters=(n_clusters, n_clusters), missing=0.2, random_state=0
    )
    model = method(4, random_state=0).fit(ensemble)
    assert len(model.start_objectives_) == n_starts
    assert adjusted_rand(classes, model.labels_) > 0.85
    few = method(4, random_state=0).fit(ensemble.read(0, 1_000))
    assert len(few.start_objectives_) == 10  # whose base clusters the sample shows


def test_ccsvd__groups_by_the_right_singular_vectors():
    _, labels = dense_codes(noisy_copies(120, 4, 6, 0.2, 0)[1])
    _, values, Vt = np.linalg.svd(counted.incidence(labels), full_matrices=False)
    rows = Vt[:4].T * values[:4]
    model = CCSVD(4, grouping="argmax", random_state=0).fit(labels)
    assert adjusted_rand(model.meta_clusters_, np.abs(rows).argmax(axis=1)) == 1
    assert not hasattr(model, "start_objectives_")
    by_kmeans = CCSVD(4, random_state=0).fit(labels)
    assert len(by_kmeans.start_objectives_) == 10
    for k in range(4):
        assert (by_kmeans.meta_clusters_ == k).sum() == 6  # one cluster of each partition
