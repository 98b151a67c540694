"""Bayesian cluster ensembles and G-BCE: steps against the papers' formulas, promises, and what they find."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine

from bigcons import Ensemble, as_in_paper
from bigcons.datasets import planted_ensemble
from bigcons.errors import UnlabeledObjectsWarning
from bigcons.generate import mask_labels
from bigcons.kernels import bce as kernel
from bigcons.kernels import gibbs
from bigcons.methods import bce
from bigcons.methods.bce import BCE
from bigcons.metrics import adjusted_rand, micro_precision
from tests.naive import bce as naive
from tests.support.strategies import label_matrices

LAP = 1e-6
SIX_CLASSES = 6


@st.composite
def problems(draw):
    """Draw labels with gaps, where their base clusters begin, alpha, beta and gamma."""
    ensemble = Ensemble.from_labels(draw(label_matrices(max_objects=8)))
    labels = ensemble.read(0, ensemble.n_objects)
    K, dtype = draw(st.integers(1, 4)), draw(st.sampled_from([np.float64, np.float32]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    beta = np.vstack([np.ascontiguousarray(rng.dirichlet(np.ones(k), K).T) for k in ensemble.n_clusters])
    alpha = rng.choice([1e-3, 0.1, 1.0, 20.0], K)
    gamma = (alpha + rng.exponential(size=(len(labels), K))).astype(dtype)
    return labels, ensemble.offsets, beta + 1e-12, alpha, gamma


def e_step(labels, offsets, beta, alpha, gamma, tol=0.0, steps=3):
    """Return gamma, counts, log means, bound and number of labeled objects."""
    updated, counts, log_means = np.empty_like(gamma), np.zeros_like(beta), np.zeros_like(alpha)
    found = kernel.e_step(labels, offsets, beta, alpha, gamma, updated, counts, log_means, tol, steps)
    return updated, counts, log_means, *found


@given(problems(), st.integers(0, 4))
def test_e_step__is_that_of_the_paper_and_its_statistics_those_of_the_rounded_gamma(problem, n_steps):
    labels, offsets, beta, alpha, gamma = problem
    found, counts, log_means, bound, n_labeled = e_step(*problem, steps=n_steps)
    tables = np.split(beta, offsets[1:-1])
    assert found.dtype == gamma.dtype
    expected = naive.e_step(labels, tables, alpha, gamma, n_steps)
    np.testing.assert_allclose(found, expected, rtol=1e-9 if gamma.dtype == float else 1e-6, atol=1e-9)
    sums = naive.statistics(labels, tables, alpha, found.astype(float))
    np.testing.assert_allclose(counts, np.concatenate(sums[0]), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log_means, sums[1], rtol=1e-9, atol=1e-9)
    whole = bound + naive.alpha_value(alpha, np.zeros(len(alpha)), n_labeled)  # the same for every object
    np.testing.assert_allclose(whole, sums[2], rtol=1e-9, atol=1e-9)
    assert n_labeled == sums[3]


@st.composite
def statistics(draw):
    """Draw parameters, counts and log_means of an M-step over partitions of 2 and 3 labels, and offsets."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    offsets, n = np.array([0, 2, 5]), draw(st.integers(2, 40))
    counts = rng.exponential(size=(5, 3)) ** draw(st.sampled_from([1, 6])) * n
    gamma = rng.dirichlet(np.full(3, draw(st.sampled_from([0.05, 1.0, 30.0]))), n) * 9 + 0.02
    log_means = (digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))).sum(axis=0)
    beta = bce.label_probabilities(rng.random((5, 3)), offsets)
    return (rng.exponential(size=3) + bce.ALPHA_FLOOR, beta), counts, log_means, n, offsets


@given(statistics(), st.sampled_from([0.001, 0.3, 5.0, 1000.0]))
def test_best_alpha__is_the_direct_maximum(problem, start):
    _, _, log_means, n, _ = problem
    found = bce.best_alpha(np.full(3, start), log_means, n)
    expected = naive.best_alpha(log_means, n, bce.ALPHA_FLOOR)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    value = naive.alpha_value(found, log_means, n)
    assert value >= naive.alpha_value(expected, log_means, n) - 1e-9 * abs(value)


@given(label_matrices(), st.integers(1, 5), st.sampled_from(["partition", "random"]), st.integers(0, 99))
def test_passes__never_lower_the_objective(labels, n_clusters, init, seed):
    ensemble = Ensemble.from_labels(labels)
    labels = ensemble.read(0, ensemble.n_objects)
    problem = bce.VariationalBCE(ensemble.offsets, n_clusters, init=init, smoothing=LAP, update_alpha=True)
    state, carried = problem.start(labels, seed, 0)
    values = []
    for _ in range(12):
        stats, carried = problem.block_stats(state, labels, carried)
        judged, (state, record) = state, problem.finish(state, stats)
        values.append(record["objective"])
        tables = np.split(judged["beta"], ensemble.offsets[1:-1])
        bound = naive.statistics(labels, tables, judged["alpha"], carried.astype(np.float64))[2]
        expected = bound + LAP * np.log(judged["beta"]).sum()
        assert record["objective"] == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert (np.diff(values) >= -1e-7 * (1 + np.abs(values[0]))).all()


@pytest.mark.parametrize(("relaxation", "is_plain"), [(1.0, True), (1.7, False)])
def test_passes__of_relaxation_1_are_plain_em_to_the_end(relaxation, is_plain):
    ensemble = planted_ensemble(300, 10, missing=0.2, random_state=0)[0]
    labels = ensemble.read(0, 300)
    how = {"init": "random", "smoothing": LAP, "update_alpha": True, "relaxation": relaxation}
    problem = bce.VariationalBCE(ensemble.offsets, SIX_CLASSES, **how)
    state, carried = problem.start(labels, 0, 0)
    at_the_maximum = []
    for _ in range(60):
        stats, carried = problem.block_stats(state, labels, carried)
        alpha = bce.best_alpha(state["alpha"], stats["log_means"], float(stats["n_labeled"]))
        beta = bce.label_probabilities(stats["counts"] + LAP, ensemble.offsets)
        state, _ = problem.finish(state, stats)
        is_there = np.array_equal(state["alpha"], alpha) and np.array_equal(state["beta"], beta)
        at_the_maximum.append(is_there)
    assert all(at_the_maximum) == is_plain


def test_as_in_paper__reaches_by_plain_em_nearly_the_bound_of_relaxed_em():
    ensemble = planted_ensemble(300, 10, missing=0.2, random_state=0)[0]
    plain = as_in_paper("bce", SIX_CLASSES, random_state=0).fit(ensemble)
    relaxed = as_in_paper("bce", SIX_CLASSES, relaxation=1.7, random_state=0).fit(ensemble)
    assert plain.objective_ != relaxed.objective_
    assert plain.objective_ == pytest.approx(relaxed.objective_, rel=1e-3)


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_fit__finds_unbalanced_planted_classes_from_any_seed(missing):
    ensemble, truth = planted_ensemble(1000, missing=missing, random_state=0)
    for seed in range(2):
        model = BCE(SIX_CLASSES, random_state=seed).fit(ensemble)
        assert adjusted_rand(truth, model.labels_) > 0.95  # .92 at most where two classes are one cluster
        assert (np.diff(model.history_["objective"]) >= -1e-9 * abs(model.objective_)).all()


def test_fit__from_partitions_stands_missing_labels_that_a_random_start_does_not():
    features, classes = load_wine(return_X_y=True)
    labels = [KMeans(3, init="random", n_init=1, random_state=u).fit(features).labels_ for u in range(20)]
    ensemble = mask_labels(np.stack(labels, axis=1), share=0.9, random_state=0)
    runs = {"partition": [], "random": []}
    for init, results in runs.items():
        for seed in range(8):
            with pytest.warns(UnlabeledObjectsWarning):
                model = BCE(3, n_init=1, init=init, random_state=seed).fit(ensemble)
            seen = model.labels_ >= 0
            results.append((model.objective_, micro_precision(classes[seen], model.labels_[seen])))
    mean = {init: np.mean([score for _, score in results]) for init, results in runs.items()}
    assert mean["partition"] > mean["random"] + 0.05
    assert max(runs["partition"])[1] >= mean["partition"] - 0.03


def counts_of(labels, offsets, z, K):
    by_label, by_partition = np.zeros((offsets[-1], K)), np.zeros((labels.shape[1], K))
    gibbs.count(labels, offsets, z, by_label, by_partition)
    return by_label, by_partition


@given(
    label_matrices(max_objects=8), st.integers(1, 4), st.integers(0, 2**64 - 1), st.sampled_from([0.1, 3.0])
)
def test_sweep__draws_as_counting_by_hand_does(labels, K, seed, alpha):
    ensemble = Ensemble.from_labels(labels)
    labels, offsets, omega = ensemble.read(0, ensemble.n_objects), ensemble.offsets, 0.5
    z = np.random.default_rng(seed).integers(K, size=labels.shape, dtype=np.uint8)
    expected, twin, seen = z.copy(), naive.SplitMix(seed), labels >= 0
    tables, random = counts_of(labels, offsets, z, K), np.array([seed], np.uint64)
    sums = np.zeros((len(labels), K), np.float32)
    for _ in range(3):
        gibbs.sweep(labels, offsets, z, *tables, alpha, omega, sums, False, random)
        naive.gibbs_sweep(labels, expected, K, ensemble.n_clusters, alpha, omega, twin)
        np.testing.assert_array_equal(z[seen], expected[seen])
        for found, counted in zip(tables, counts_of(labels, offsets, z, K), strict=True):
            np.testing.assert_array_equal(found, counted)
    assert not sums.any()
    gibbs.sweep(labels, offsets, z, *tables, alpha, omega, sums, True, random)
    for h in range(K):
        np.testing.assert_array_equal(sums[:, h], ((z == h) & seen).sum(axis=1))


@given(label_matrices(max_objects=6), st.integers(1, 3), st.integers(0, 1000))
def test_log_likelihood__is_the_product_of_predictive_probabilities_by_which_labels_are_drawn(
    labels, K, seed
):
    ensemble = Ensemble.from_labels(labels)
    labels, offsets, sizes = ensemble.read(0, ensemble.n_objects), ensemble.offsets, ensemble.n_clusters
    z = np.random.default_rng(seed).integers(K, size=labels.shape, dtype=np.uint8)
    sampler, tables = bce.Sampler(K, 0, 1, 0.7, 0.4, "random", 0), counts_of(labels, offsets, z, K)
    found = sampler.log_likelihood(labels, offsets, z, *tables)
    assert found == pytest.approx(naive.log_joint(labels, z, K, sizes, 0.7, 0.4))
    i, u = np.argwhere(labels >= 0)[seed % np.count_nonzero(labels >= 0)]
    weights, joint = naive.gibbs_weights(labels, z, i, u, K, sizes, 0.7, 0.4), np.empty(K)
    for h in range(K):
        z[i, u] = h
        joint[h] = np.exp(naive.log_joint(labels, z, K, sizes, 0.7, 0.4) - found)
    np.testing.assert_allclose(weights / weights.sum(), joint / joint.sum())


@pytest.mark.parametrize("init", ["partition", "random"])
def test_gibbs__finds_planted_classes_and_chooses_priors_by_the_number_of_labels(init):
    ensemble, truth = planted_ensemble(1000, 40, shares=(0.5, 0.3, 0.2), missing=0.5, random_state=4)
    model = bce.GibbsBCE(3, init=init, random_state=0).fit(ensemble)
    assert adjusted_rand(truth, model.labels_) > 0.85
    assert len(model.history_["objective"]) == 200
    assert (model.alpha_, model.omega_) == (1.0, 1.0)
    labels = ensemble.read(0, 80)
    seen, few = labels >= 0, {"n_init": 1, "burn_in": 1, "n_samples": 1, "random_state": 0}
    of_few_labels = bce.GibbsBCE(8, **few).fit(labels)
    assert of_few_labels.alpha_ == pytest.approx(seen.sum() / seen.any(axis=1).sum() / (4 * 8))
    B = sum(len(np.unique(column[column >= 0])) for column in labels.T)
    assert of_few_labels.omega_ == pytest.approx(seen.sum() / B / (4 * 8))
    asked = bce.GibbsBCE(3, alpha=0.3, omega=0.2, **few).fit(labels)
    assert (asked.alpha_, asked.omega_) == (0.3, 0.2)
