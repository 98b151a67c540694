"""The clustering of least expected loss."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import metrics
from bigcons.datasets import planted_ensemble
from bigcons.errors import ConsensusWarning, InvalidInputError, MemoryBudgetError
from bigcons.methods import ConsensusTree, LeastLoss
from tests.naive import loss as naive
from tests.support.strategies import label_matrices

losses = st.sampled_from(["vi", "binder"])


def fit(x, *args, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of objects without labels, of labels like features
        return LeastLoss(*args, random_state=0, **parameters).fit(x)


@given(
    x=label_matrices(min_objects=4, max_objects=14, max_partitions=6),
    loss=losses,
    most=st.sampled_from(["auto", 1, 2, 3]),
    split_cost=st.sampled_from([0.6, 1.0, 1.5]),
    weight=st.sampled_from([0.0, 1.0, 2.5]),
)
def test_result__is_a_clustering_that_no_move_and_no_merge_improves(x, loss, most, split_cost, weight):
    weights = [1.0, *[weight] * (x.shape[1] - 1)]
    model = fit(x, most, loss=loss, split_cost=split_cost, weights=weights)
    labels = model.labels_
    assert model.converged_
    np.testing.assert_array_equal(labels >= 0, (x[:, np.array(weights) > 0] >= 0).any(axis=1))
    assert model.objective_ == pytest.approx(
        naive.expected(x, labels, loss, split_cost, weights), rel=1e-12, abs=1e-12
    )
    n_most = max(len(set(column) - {-1}) for column in x.T.tolist()) if most == "auto" else most
    assert model.n_clusters_ <= n_most
    for near in naive.neighbors(labels.tolist(), n_most):
        assert naive.expected(x, near, loss, split_cost, weights) >= model.objective_ - 1e-11


@pytest.mark.parametrize("loss", ["vi", "binder"])
def test_result__of_six_objects_is_nearly_always_the_least_of_all_clusterings(loss):
    rng = np.random.default_rng(0)
    excess = []
    for _ in range(8):
        truth = rng.integers(3, size=6)
        x = np.where(rng.random((6, 9)) < 0.25, rng.integers(3, size=(6, 9)), truth[:, None])
        x[rng.random(x.shape) < 0.1] = -1
        x[:, 0] = truth
        least = min(naive.expected(x, np.array(found), loss) for found in naive.partitions_of(6, 3))
        excess.append(fit(x, 3, loss=loss).objective_ - least)
    assert min(excess) > -1e-12
    assert np.mean(np.array(excess) < 1e-12) >= 0.75
    assert np.mean(excess) < 0.01


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    """An ensemble of more objects than a sample has, stored in blocks; a fifth of the labels missing."""
    ensemble, truth = planted_ensemble(6000, 12, noise=(0.0, 0.15), missing=0.2, random_state=1)
    path = tmp_path_factory.mktemp("least_loss") / "ensemble.zarr"
    return ensemble.save(path, chunk_rows=1000), truth


@pytest.mark.parametrize("loss", ["vi", "binder"])
def test_passes__never_raise_the_loss_and_end_where_no_move_lowers_it(larger, loss):
    ensemble, truth = larger
    model = fit(ensemble, loss=loss)
    history = model.history_["objective"]
    assert len(history) > 2
    assert (np.diff(history) <= 0).all()
    assert model.converged_
    assert model.objective_ == pytest.approx(
        metrics.expected_loss(ensemble, model.labels_, loss=loss), rel=1e-12
    )
    assert model.objective_ < metrics.expected_loss(ensemble, truth, loss=loss)
    rng = np.random.default_rng(0)
    for i in rng.choice(np.flatnonzero(model.labels_ >= 0), 20, replace=False):
        for k in range(model.n_clusters_):
            moved = np.where(np.arange(6000) == i, k, model.labels_)
            assert metrics.expected_loss(ensemble, moved, loss=loss) >= model.objective_ - 1e-11


def test_split_cost__decides_how_many_clusters_there_are():
    ensemble, _ = planted_ensemble(600, 20, noise=(0.0, 0.3), random_state=0)
    numbers = [fit(ensemble, split_cost=cost).n_clusters_ for cost in (0.4, 1.0, 1.8)]
    assert numbers[0] > numbers[-1] == 1
    assert numbers == sorted(numbers, reverse=True)


def test_one_cluster__of_noisy_labels_has_the_least_loss_and_is_told():
    ensemble, truth = planted_ensemble(1500, 50, random_state=0)
    with pytest.warns(ConsensusWarning, match=r"found one cluster: .* loss='binder', .* ConsensusTree"):
        model = LeastLoss(6, random_state=0).fit(ensemble)
    assert model.n_clusters_ == 1
    tree = ConsensusTree(6, random_state=0).fit(ensemble)
    for labels in (truth, tree.labels_):
        for merged in naive.partitions_of(6, 6):
            assert metrics.expected_loss(ensemble, np.array(merged)[labels]) >= model.objective_ - 1e-11
    assert metrics.adjusted_rand(truth, tree.labels_) > 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConsensusWarning)
        assert metrics.adjusted_rand(truth, LeastLoss(6, loss="binder").fit(ensemble).labels_) > 0.8


def test_fit__refuses_a_budget_and_names_it_does_not_know(larger):
    with pytest.raises(MemoryBudgetError, match="LeastLoss needs"):
        LeastLoss(memory="20MB").fit(larger[0])
    with pytest.raises(InvalidInputError, match="loss='rand' is unknown"):
        LeastLoss(loss="rand").fit(larger[0])
    with pytest.raises(InvalidInputError, match="split_cost=3 is out of range"):
        LeastLoss(split_cost=3).fit(larger[0])
