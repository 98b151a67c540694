"""Pruning superfluous clusters: what is removed, what it costs, and how clusters are numbered."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigcons
from bigcons import Consensus, Ensemble
from bigcons.coassociation.factorized import Weights, agreement_sums, select_clusters
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError, SurplusClustersWarning
from bigcons.methods.pcc.pruning import ALLOWED_RISE, PrunedPairs
from bigcons.methods.pcc.updates import remove_block
from bigcons.metrics import adjusted_rand, pcc_objective
from tests.support.strategies import label_matrices

# The model of the paper, not the calibrated one that "auto" solves over all pairs.
PCC = partial(bigcons.PCC, coassociation="paper")

PRUNE = 0.05

# of the plain fits, whose surplus clusters are what is pruned
pytestmark = pytest.mark.filterwarnings("ignore::bigcons.errors.ConsensusWarning")


@pytest.fixture(scope="module")
def planted():
    """Three noisy classes, in which surplus clusters win few objects and take a part of many."""
    return planted_ensemble(1500, 40, shares=(0.5, 0.3, 0.2), random_state=3)


@pytest.fixture(scope="module")
def crowded():
    """Six classes, among which some surplus clusters have next to nothing."""
    return planted_ensemble(1500, 40, random_state=4)


@pytest.fixture(scope="module")
def plain(planted):
    return PCC(8, n_init=2, random_state=0).fit(planted[0])


@pytest.fixture(scope="module")
def pruned(planted):
    return PCC(8, n_init=2, prune=PRUNE, random_state=0).fit(planted[0])


def test_fit__leaves_no_objects_to_small_clusters(planted, plain, pruned):
    ensemble, truth = planted
    assert plain.n_clusters_ > 3
    assert pruned.converged_
    assert pruned.n_clusters_ == 3
    assert adjusted_rand(truth, pruned.labels_) > adjusted_rand(truth, plain.labels_)
    Y = pruned.memberships_
    np.testing.assert_allclose(Y.sum(axis=1), 1, atol=1e-6)
    assert (Y.argmax(axis=1) == pruned.labels_).all()
    assert (Y[:, 3:] > 0).any()  # the fit needs clusters for the noise
    reached = pcc_objective(ensemble, Y, constant=False)
    assert pruned.objective_ == pytest.approx(reached, rel=1e-6)
    assert pruned.objective_ <= plain.objective_ * 0.995


def test_fit__gives_lost_objects_their_best_membership_among_large_clusters(planted, plain, pruned):
    labels, Y = planted[0].read(0, 1500), pruned.memberships_.astype(np.float64)
    seen = (labels >= 0).astype(np.float64)
    lost = np.flatnonzero(~Y[:, 3:].any(axis=1) & (plain.memberships_ > 0).sum(axis=1) > 0)
    for i in lost[:20]:
        n_seen = seen @ seen[i]
        n_agree = ((labels == labels[i]) & (labels >= 0)).sum(axis=1).astype(np.float64)
        n_seen[i] = n_agree[i] = 0.0
        A, b = np.einsum("j,jk,jr->kr", n_seen, Y, Y)[:3, :3], (n_agree @ Y)[:3]
        half_gradient = A @ Y[i, :3] - b
        assert half_gradient[Y[i, :3] > 0].max() - half_gradient.min() <= 0.02 * n_seen.sum()


def test_fit__removes_clusters_that_the_objective_does_not_miss(crowded):
    ensemble, truth = crowded
    plain = PCC(12, n_init=2, random_state=0).fit(ensemble)
    model = PCC(12, n_init=2, prune=PRUNE, random_state=0).fit(ensemble)
    assert model.memberships_.shape[1] < 12
    assert adjusted_rand(truth, model.labels_) >= adjusted_rand(truth, plain.labels_)
    assert model.objective_ <= plain.objective_ * (1 - 1e-3)
    objective, clusters = model.history_["objective"], [12, *model.history_["clusters"]]
    removed = -np.diff(clusters)
    assert removed.sum() > 0
    assert (np.array(model.history_["tried"]) >= (removed > 0)).all()
    for t in range(1, len(objective)):
        assert objective[t] - objective[t - 1] <= removed[t] * ALLOWED_RISE * abs(objective[t - 1])


@pytest.mark.parametrize("prune", [0.0, PRUNE, 0.3])
def test_fit__numbers_clusters_by_falling_size(planted, prune):
    model = PCC(8, n_init=2, prune=prune, random_state=0).fit(planted[0])
    sizes = np.bincount(model.labels_)
    assert (np.diff(sizes) <= 0).all()
    assert sizes.min() >= max(prune * 1500, 1)
    assert model.n_clusters_ == sizes.size


def test_fit__of_zero_keeps_all_but_empty_clusters(planted, plain):
    clean = PCC(6, prune=0, n_init=2, random_state=0).fit(np.tile(planted[1][:200, None], 5))
    assert clean.memberships_.shape == (200, 3)
    noisy = PCC(8, prune=0, n_init=2, random_state=0).fit(planted[0])
    assert noisy.n_clusters_ == plain.n_clusters_
    assert adjusted_rand(noisy.labels_, plain.labels_) == 1


def test_fit__of_one_cluster_keeps_it():
    for n_clusters in (1, 2):
        model = PCC(n_clusters, prune=1.0, random_state=0).fit([[0, 1], [0, 1], [1, 2]])
        assert model.labels_.tolist() == [0, 0, 0]


def test_predict__gives_fitted_objects_their_columns(planted, pruned, tmp_path):
    labels = planted[0].read(0, 300)
    unlabeled = np.vstack([labels, np.full_like(labels[:1], -1)])
    rows, width = pruned.predict_proba(unlabeled), pruned.memberships_.shape[1]
    assert rows.shape == (301, width)
    np.testing.assert_allclose(rows[-1], 1 / width)
    assert (rows[:-1].argmax(axis=1) == pruned.labels_[:300]).mean() > 0.99
    assert rows[:-1].argmax(axis=1).max() < 3
    pruned.predict(unlabeled, out=tmp_path / "p.zarr")
    assert Consensus.open(tmp_path / "p.zarr").memberships.shape == (301, width)


def test_fit__is_resumed_and_stored_with_the_same_bits(planted, pruned, tmp_path, monkeypatch):
    asked = {"n_clusters": 8, "n_init": 2, "prune": PRUNE, "random_state": 0}
    at_removal = next(t for t, tried in enumerate(pruned.history_["tried"]) if tried)

    def stop(self, run, at, total, step=PrunedPairs.step):
        found = step(self, run, at, total)
        if len(at.records) == at_removal:
            raise KeyboardInterrupt  # after the trials, before they are committed
        return found

    with monkeypatch.context() as patch:
        patch.setattr(PrunedPairs, "step", stop)
        with pytest.raises(KeyboardInterrupt):
            PCC(**asked).fit(planted[0], out=tmp_path / "c.zarr")
    resumed = PCC(**asked).fit(planted[0], out=tmp_path / "c.zarr")
    np.testing.assert_array_equal(np.asarray(resumed.memberships_), pruned.memberships_)
    np.testing.assert_array_equal(resumed.labels_, pruned.labels_)
    assert resumed.history_["objective"] == pruned.history_["objective"]
    assert resumed.n_clusters_ == 3


@given(
    labels=label_matrices(min_objects=2, max_objects=9, max_clusters=3),
    seed=st.integers(0, 999),
    weighted=st.booleans(),
)
@settings(max_examples=20)
def test_remove_block__sums_what_it_leaves(labels, seed, weighted):
    rng = np.random.default_rng(seed)
    offsets = np.arange(labels.shape[1] + 1) * 3
    weights = Weights.of(rng.uniform(0.1, 2, labels.shape[1]), offsets) if weighted else None
    Y = rng.dirichlet(np.ones(4), len(labels)).astype(np.float32)
    Y[rng.random(len(labels)) < 0.5, 2] = 0.0
    sums = agreement_sums(labels, offsets, Y, weights)
    kept = np.array([0, 1, 3])
    estimate = select_clusters(sums, kept)
    left = agreement_sums(labels, offsets, np.ascontiguousarray(Y[:, kept]), weights)
    np.testing.assert_allclose(estimate.S, left.S, atol=1e-6)
    np.testing.assert_allclose(estimate.T, left.T, atol=1e-6)
    assert estimate.squares == pytest.approx(left.squares, abs=1e-5)
    found, reached = remove_block(estimate, kept, offsets, labels, Y)
    whole = Y[:, 2] == 0.0
    np.testing.assert_array_equal(reached[whole, :3], Y[whole][:, kept])
    assert not reached[:, 3].any()
    labeled = (labels >= 0).any(axis=1)
    np.testing.assert_allclose(reached[labeled & ~whole].sum(axis=1), 1, atol=1e-6)
    expected = agreement_sums(labels, offsets, np.ascontiguousarray(reached[:, :3]), weights)
    assert found.objective == pytest.approx(expected.objective)


def test_fit__by_weights_numbers_what_they_count():
    labels = planted_ensemble(400, 30, random_state=1)[0].read(0, 400)
    weights = np.r_[np.zeros(5), np.ones(25)]
    model = PCC(6, weights=weights, prune=PRUNE, n_init=2, random_state=0).fit(labels)
    alone = PCC(6, prune=PRUNE, n_init=2, random_state=0).fit(labels[:, 5:])
    np.testing.assert_array_equal(model.labels_, alone.labels_)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"prune": -0.1}, "prune=-0.1 is out of range"),
        ({"prune": 2}, "prune=2 is out of range"),
        ({"prune": "small"}, "prune='small' is out of range"),
        ({"prune": 0.1, "divergence": "kl"}, "prune with pairs='all', divergence='KL'|prune with .*'kl'"),
        ({"prune": 0.1, "pairs": "dense"}, "prune with pairs='dense'"),
    ],
)
def test_fit__refuses_what_it_cannot_prune(asked, message):
    with pytest.raises(InvalidInputError, match=message):
        PCC(2, **asked).fit(Ensemble.from_labels(np.arange(12).reshape(6, 2) % 3))


# Merging, by prune="auto"


@pytest.fixture(scope="module")
def halves():
    """Partitions of 2 to 7 clusters of halves of the objects, which merge six classes or cut them."""
    rng = np.random.default_rng(5)
    truth = rng.choice(6, 600, p=[0.3, 0.22, 0.18, 0.14, 0.1, 0.06])
    place = rng.normal(size=(600, 4))
    labels = np.empty((600, 40), int)
    for u in range(40):
        labels[:, u] = rng.permutation(6)[truth] % int(rng.integers(2, 7))
        cut = rng.integers(6)
        labels[(truth == cut) & (place @ rng.normal(size=4) > 0), u] = 6
    labels[rng.random(labels.shape) < 0.5] = -1
    return labels, truth


def test_auto__merges_what_the_labels_do_not_tell_apart_and_says_so(halves):
    labels, truth = halves
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = bigcons.PCC(6, n_init=2, random_state=0).fit(labels)
    with pytest.warns(SurplusClustersWarning, match="distinguish only 6 of n_clusters=15 clusters"):
        merged = bigcons.PCC(15, n_init=2, random_state=0).fit(labels)
    assert right.n_clusters_ == merged.n_clusters_ == 6
    assert adjusted_rand(truth, merged.labels_) > 0.99
    assert merged.memberships_.shape == (600, 15)
    np.testing.assert_array_equal(merged.memberships_[:, :6], right.memberships_)
    assert not merged.memberships_[:, 6:].any()
    for name in ("labels_", "affinities_"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(right, name))
    np.testing.assert_array_equal(merged.trust_.confidence, right.trust_.confidence)
    np.testing.assert_array_equal(merged.predict(labels), right.predict(labels))
    np.testing.assert_array_equal(merged.predict_proba(labels)[:, :6], right.predict_proba(labels))
    assert merged.n_clusters == 15
    kept = bigcons.PCC(15, n_init=2, prune=None, random_state=0).fit(labels)
    assert kept.n_clusters_ > 6


@pytest.fixture(scope="module")
def pieces():
    """K-means of halves of five Gaussian classes, which cuts them at similar places; and the classes."""
    rng = np.random.default_rng(2)
    centers, truth = 3.0 * rng.normal(size=(5, 10)), rng.integers(5, size=20_000)
    features = centers[truth] + rng.normal(size=(20_000, 10))
    return bigcons.generate.kmeans(
        features.astype(np.float32), n_partitions=20, n_clusters=(2, 20), sample=0.5, random_state=2
    ), truth


def test_auto__leaves_out_clusters_that_win_next_to_nothing_and_says_so(pieces):
    ensemble, truth = pieces
    with pytest.warns(SurplusClustersWarning, match=r"of n_clusters=15 clusters win almost no.*prune=None"):
        model = bigcons.PCC(15, random_state=0).fit(ensemble)
    assert model.n_clusters_ == len(model.affinities_) == 5
    assert adjusted_rand(truth, model.labels_) > 0.99
    assert model.memberships_.shape == (20_000, 15)
    assert not model.memberships_[:, 5:].any()
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1.0, atol=1e-6)
    assert model.converged_
    assert model.n_passes_ < 20
    assert np.mean(model.predict(ensemble) == model.labels_) > 0.999
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = bigcons.PCC(15, prune=None, max_iter=3, random_state=0).fit(ensemble)
        threads = bigcons.PCC(15, random_state=0, client="threads").fit(ensemble)
    assert kept.memberships_.any(axis=0).sum() > 5
    assert threads.memberships_.tobytes() == model.memberships_.tobytes()


def test_auto__leaves_out_clusters_of_all_objects_of_few(pieces):
    """Where the subsample is all objects."""
    labels = pieces[0].read(0, 20_000)[:1_500]
    with pytest.warns(SurplusClustersWarning, match="win almost no objects"):
        model = bigcons.PCC(15, random_state=0).fit(labels)
    assert not model.memberships_[:, model.n_clusters_ :].any()
    assert adjusted_rand(pieces[1][:1_500], model.labels_) > 0.9


def test_auto__keeps_small_clusters_of_few_objects_and_two_at_least():
    labels = np.repeat([[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]], [5, 4, 2, 1], axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = bigcons.PCC(4, random_state=0).fit(np.tile(labels, 4))
    np.testing.assert_array_equal(np.bincount(model.labels_), [5, 4, 2, 1])


def test_auto__keeps_clusters_of_given_memberships_and_of_other_models(halves):
    start = np.random.default_rng(0).dirichlet(np.ones(15), 600)
    for options in ({"init": start}, {"coassociation": "paper"}):
        asked = {"n_init": 1, "max_iter": 2, "tol": 0, "random_state": 0, **options}
        found, kept = (bigcons.PCC(15, prune=prune, **asked).fit(halves[0]) for prune in ("auto", None))
        np.testing.assert_array_equal(found.memberships_, kept.memberships_)
