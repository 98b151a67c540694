"""CCC, CCU and CCSVD against their definitions over sets of objects."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.errors import ConvergenceWarning, InvalidInputError
from bigcons.methods import correspondence
from bigcons.methods.correspondence import CCC, CCSVD, CCU
from bigcons.methods.incidence import fold_overlaps, one_hot
from bigcons.metrics import adjusted_rand
from bigcons.run.engine import SerialEngine
from tests.naive import correspondence as naive
from tests.naive import overlaps as counted
from tests.naive.hypergraph import noisy_copies
from tests.support.fits import quiet
from tests.support.strategies import label_matrices


def dense_codes(labels):
    ensemble = Ensemble.from_labels(labels)
    return ensemble, np.array(ensemble.read(0, ensemble.n_objects), dtype=np.int64)


def similarity_of(ensemble):
    return correspondence.cosines(fold_overlaps(ensemble, SerialEngine()), ensemble.offsets)


@given(label_matrices(max_objects=8, min_partitions=2, max_partitions=4), st.data())
def test_objective__is_the_summed_mean_cosine(labels, data):
    ensemble, labels = dense_codes(labels)
    size = ensemble.n_base_clusters
    groups = np.array(data.draw(st.lists(st.integers(-1, 2), min_size=size, max_size=size)))
    summed = similarity_of(ensemble) @ one_hot(groups, 3)
    found = correspondence.mean_similarity(summed, ensemble.offsets, groups)
    assert found == pytest.approx(naive.objective(labels, groups, 3), abs=1e-12)


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


@given(label_matrices(min_objects=4, min_partitions=2), st.sampled_from([CCU, CCSVD]))
def test_memberships__are_the_shares_of_observed_votes(labels, method):
    _, labels = dense_codes(labels)
    model = quiet(method(2, random_state=0), labels)
    labeled = (labels >= 0).any(axis=1)
    expected = naive.votes(labels, model.meta_clusters_, 2)
    np.testing.assert_allclose(model.memberships_[labeled], expected[labeled], atol=1e-6)
    assert (model.labels_[~labeled] == -1).all()
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1, atol=1e-6)


def test_ccc__lets_clusters_left_over_vote_where_nobody_else_does():
    """One partition has three clusters for two meta-clusters; object 6 has no label but in the third."""
    labels = np.array([[0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 1], [2, 1, 1], [2, -1, -1]])
    model = CCC(2, random_state=0).fit(labels)
    assert model.meta_clusters_.tolist().count(-1) == 1
    assert model.meta_clusters_[2] == -1
    assert model.labels_[6] == model.labels_[3]
    assert model.labels_[5] == model.labels_[3]
    np.testing.assert_array_equal(model.memberships_[5].max(), 1.0)  # two votes, none from the one left over


@given(label_matrices(min_objects=3, min_partitions=2))
def test_nearest_groups__places_only_what_is_left_over(labels):
    ensemble, labels = dense_codes(labels)
    groups = np.arange(ensemble.n_base_clusters) % 3 - 1
    found = correspondence.nearest_groups(similarity_of(ensemble), groups, 2)
    np.testing.assert_array_equal(found[groups >= 0], groups[groups >= 0])
    clusters, own = counted.base_clusters(labels), counted.partitions(labels)
    for b in np.flatnonzero(groups < 0):
        means = [
            np.mean([naive.cosine(clusters[b], clusters[a]) if own[a] != own[b] else 0.0 for a in members])
            for members in (np.flatnonzero(groups == k) for k in range(2))
            if members.size
        ]
        assert groups.max() < 1 or means[found[b]] == pytest.approx(max(means), abs=1e-12)


@given(label_matrices(min_objects=4, min_partitions=2), st.integers(1, 5))
def test_first_groups__are_the_largest_clusters_of_a_partition_then_others(labels, n_clusters):
    ensemble, labels = dense_codes(labels)
    overlaps = fold_overlaps(ensemble, SerialEngine())
    sizes, k = np.diag(overlaps), int(ensemble.n_clusters[0])
    groups = correspondence.first_groups(similarity_of(ensemble), ensemble.offsets, sizes, 0, n_clusters)
    chosen = np.flatnonzero(groups >= 0)
    assert sorted(groups[chosen]) == list(range(len(chosen)))
    own = chosen[chosen < k]
    assert len(own) == min(k, n_clusters)
    left = np.setdiff1d(np.arange(k), own)
    assert left.size == 0 or sizes[left].max() <= sizes[own].min()
    assert len(chosen) <= n_clusters


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


@pytest.mark.parametrize(
    "model",
    [CCC(2, n_init=0), CCU(2, max_iter=0), CCSVD(2, grouping="nearest"), CCSVD(2, n_init=0)],
)
def test_parameters__that_make_no_sense_are_refused(model):
    with pytest.raises(InvalidInputError, match=r"n_init=0|max_iter=0|grouping='nearest' is unknown"):
        model.fit(np.array([[0, 0], [1, 1], [0, 1]]))
