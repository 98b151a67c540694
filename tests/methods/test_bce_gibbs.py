"""G-BCE: the sweep against counting by hand, its stationary distribution, and the estimator."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError
from bigcons.kernels import gibbs as kernel
from bigcons.kernels.draws import uniform
from bigcons.methods.bce import GibbsBCE, Sampler
from bigcons.metrics import adjusted_rand
from tests.naive import bce as naive
from tests.support.strategies import label_matrices


def counts_of(labels, offsets, z, K):
    by_label, by_partition = np.zeros((offsets[-1], K)), np.zeros((labels.shape[1], K))
    kernel.count(labels, offsets, z, by_label, by_partition)
    return by_label, by_partition


@given(
    label_matrices(max_objects=8),
    st.integers(1, 4),
    st.integers(0, 2**64 - 1),
    st.sampled_from([0.1, 1.0, 3.0]),
)
def test_sweep__draws_as_counting_by_hand_does(labels, K, seed, alpha):
    ensemble = Ensemble.from_labels(labels)
    labels, offsets, omega = ensemble.read(0, ensemble.n_objects), ensemble.offsets, 0.5
    z = np.random.default_rng(seed).integers(K, size=labels.shape, dtype=np.uint8)
    expected, twin = z.copy(), naive.SplitMix(seed)
    tables, random = counts_of(labels, offsets, z, K), np.array([seed], np.uint64)
    sums = np.zeros((len(labels), K), np.float32)
    for _ in range(3):
        kernel.sweep(labels, offsets, z, *tables, alpha, omega, sums, False, random)
        naive.gibbs_sweep(labels, expected, K, ensemble.n_clusters, alpha, omega, twin)
        seen = labels >= 0
        np.testing.assert_array_equal(z[seen], expected[seen])
        for found, counted in zip(tables, counts_of(labels, offsets, z, K), strict=True):
            np.testing.assert_array_equal(found, counted)
    assert not sums.any()
    kernel.sweep(labels, offsets, z, *tables, alpha, omega, sums, True, random)
    for h in range(K):
        np.testing.assert_array_equal(sums[:, h], ((z == h) & (labels >= 0)).sum(axis=1))


@given(label_matrices(max_objects=6), st.integers(1, 3), st.integers(0, 1000))
def test_log_likelihood__is_the_product_of_the_predictive_probabilities(labels, K, seed):
    ensemble = Ensemble.from_labels(labels)
    labels, offsets = ensemble.read(0, ensemble.n_objects), ensemble.offsets
    z = np.random.default_rng(seed).integers(K, size=labels.shape, dtype=np.uint8)
    sampler = Sampler(K, 0, 1, 0.7, 0.4, "random", 0)
    tables = counts_of(labels, offsets, z, K)
    found = sampler.log_proportions(labels, z) + sampler.log_probabilities(offsets, *tables)
    assert found == pytest.approx(naive.log_joint(labels, z, K, ensemble.n_clusters, 0.7, 0.4))


def test_sweep__visits_assignments_as_often_as_the_posterior_says():
    labels = np.array([[0, 0], [0, 1], [-1, 1]], np.int8)
    offsets, sizes, K, alpha, omega = np.array([0, 1, 3]), [1, 2], 2, 0.6, 0.4
    seen = labels >= 0
    posterior = {}
    for values in product(range(K), repeat=int(seen.sum())):
        z = np.zeros(labels.shape, np.uint8)
        z[seen] = values
        posterior[values] = np.exp(naive.log_joint(labels, z, K, sizes, alpha, omega))
    total = sum(posterior.values())
    visits = dict.fromkeys(posterior, 0)
    z = np.zeros(labels.shape, np.uint8)
    tables, random = counts_of(labels, offsets, z, K), np.array([1], np.uint64)
    sums, n_sweeps = np.zeros((3, K), np.float32), 100_000
    for _ in range(n_sweeps):
        kernel.sweep(labels, offsets, z, *tables, alpha, omega, sums, False, random)
        visits[tuple(z[seen].tolist())] += 1
    for (
        values,
        weight,
    ) in posterior.items():  # six standard errors of independent draws, doubled for the chain's
        share = weight / total
        assert abs(visits[values] / n_sweeps - share) < 12 * np.sqrt(share * (1 - share) / n_sweeps)


def test_uniform__draws_are_those_of_splitmix():
    random, twin = np.array([2**64 - 5], np.uint64), naive.SplitMix(2**64 - 5)
    for _ in range(100):
        assert uniform(random) == twin.uniform()


@pytest.fixture(scope="module")
def planted():
    return planted_ensemble(1000, 40, shares=(0.5, 0.3, 0.2), missing=0.5, random_state=4)


@pytest.mark.parametrize("init", ["partition", "random"])
def test_fit__finds_planted_classes(planted, init):
    ensemble, truth = planted
    model = GibbsBCE(3, init=init, random_state=0).fit(ensemble)
    assert adjusted_rand(truth, model.labels_) > 0.85
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1, rtol=1e-5)
    assert len(model.history_["objective"]) == 200


def test_fit__chooses_priors_by_the_number_of_labels(planted):
    labels = planted[0].read(0, 80)
    seen = labels >= 0
    short = {"n_init": 1, "burn_in": 1, "n_samples": 1, "random_state": 0}
    expected = GibbsBCE(8, **short).fit(labels)
    assert expected.alpha_ == pytest.approx(seen.sum() / seen.any(axis=1).sum() / (4 * 8))
    B = sum(len(np.unique(column[column >= 0])) for column in labels.T)
    assert expected.omega_ == pytest.approx(seen.sum() / B / (4 * 8))
    model = GibbsBCE(3, **short).fit(planted[0])
    assert (model.alpha_, model.omega_) == (1.0, 1.0)
    model = GibbsBCE(3, alpha=0.3, omega=0.2, **short).fit(labels)
    assert (model.alpha_, model.omega_) == (0.3, 0.2)
    for name in ("alpha", "omega"):
        with pytest.raises(InvalidInputError, match=f"{name}='most'"):
            GibbsBCE(3, **{name: "most"}, **short).fit(labels)
