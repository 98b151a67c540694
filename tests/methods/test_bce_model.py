"""The M-step of Bayesian cluster ensembles against direct maximization, and starts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma

from bigcons import Ensemble
from bigcons.methods.bce import (
    ALPHA_FLOOR,
    NO_STEP,
    Parameters,
    VariationalBCE,
    best_alpha,
    label_probabilities,
    m_step,
)
from tests.naive import bce as naive
from tests.support.strategies import label_matrices

LAP = 1e-6


@st.composite
def expected_logs(draw):
    """Draw log_means of some gammas, from nearly hard to nearly uniform ones, and their number."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    K, n = draw(st.integers(2, 5)), draw(st.integers(3, 40))
    gamma = rng.dirichlet(np.full(K, draw(st.sampled_from([0.05, 1.0, 30.0]))), n) * 20 + 0.05
    return (digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))).sum(axis=0), n


@given(expected_logs(), st.sampled_from([0.001, 0.3, 5.0, 1000.0]))
def test_best_alpha__is_the_direct_maximum(sums, start):
    log_means, n = sums
    found = best_alpha(np.full(len(log_means), start), log_means, n)
    expected = naive.best_alpha(log_means, n, ALPHA_FLOOR)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    value = naive.alpha_value(found, log_means, n)
    assert value >= naive.alpha_value(expected, log_means, n) - 1e-9 * abs(value)


@st.composite
def summed_statistics(draw):
    """Draw parameters, counts and log_means of an M-step over partitions of 2 and 3 labels, and offsets."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    offsets, n = np.array([0, 2, 5]), draw(st.integers(2, 40))
    counts = rng.exponential(size=(5, 3)) ** draw(st.sampled_from([1, 6])) * n
    gamma = rng.dirichlet(np.full(3, draw(st.sampled_from([0.05, 1.0]))), n) * 9 + 0.02
    log_means = (digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))).sum(axis=0)
    before = Parameters(
        rng.exponential(size=3) + ALPHA_FLOOR, label_probabilities(rng.random((5, 3)), offsets)
    )
    return before, counts, log_means, n, offsets


@given(summed_statistics(), st.sampled_from([1.0, 1.7]))
def test_m_step__is_no_lower_than_before_in_any_part(problem, relaxation):
    before, counts, log_means, n, offsets = problem
    found = m_step(*problem, smoothing=LAP, update_alpha=True, relaxation=relaxation)
    gains = np.add.reduceat((counts + LAP) * np.log(found.beta / before.beta), offsets[:-1])
    assert (gains >= -1e-9 * (1 + np.abs(counts).sum())).all()
    values = [naive.alpha_value(alpha, log_means, n) for alpha in (before.alpha, found.alpha)]
    assert values[1] >= values[0] - 1e-9 * abs(values[0])
    assert (found.alpha >= ALPHA_FLOOR).all()
    np.testing.assert_allclose(np.add.reduceat(found.beta, offsets[:-1]), 1)


@given(summed_statistics(), st.sampled_from([1.0, 1.7]))
def test_m_step__stays_at_that_of_the_paper(problem, relaxation):
    _, counts, log_means, n, offsets = problem
    beta, _ = naive.m_step(np.split(counts, [2]), log_means, n, LAP, ALPHA_FLOOR)
    best = Parameters(best_alpha(np.ones(3), log_means, n), np.concatenate(beta))
    found = m_step(
        best, counts, log_means, n, offsets, smoothing=LAP, update_alpha=True, relaxation=relaxation
    )
    np.testing.assert_allclose(found.beta, best.beta, rtol=1e-9)
    np.testing.assert_allclose(found.alpha, best.alpha, rtol=1e-3)


def test_for_all__gives_every_cluster_labels_that_the_sample_lacks():
    problem = VariationalBCE(np.array([0, 2, 5]), 2, init="partition", smoothing=LAP, update_alpha=True)
    beta = np.array([[1.0, 0.5], [0.0, 0.5], [0.0, 0.2], [1.0, 0.0], [0.0, 0.8]])
    found = problem.for_all({"alpha": np.ones(2), "beta": beta, "step": np.array([-3.0, 1.7])})
    np.testing.assert_allclose(np.add.reduceat(found["beta"], [0, 2]), 1)
    np.testing.assert_allclose(found["beta"][beta == 0], 0.1 / np.array([2, 3, 3, 3]))
    np.testing.assert_array_equal(found["alpha"], np.ones(2))
    np.testing.assert_array_equal(found["step"], NO_STEP)  # objectives of samples and of all do not compare


@given(
    label_matrices(max_objects=12),
    st.integers(1, 5),
    st.sampled_from(["partition", "random"]),
    st.integers(0, 99),
)
def test_passes__never_lower_the_objective(labels, n_clusters, init, seed):
    ensemble = Ensemble.from_labels(labels)
    labels = ensemble.read(0, ensemble.n_objects)
    problem = VariationalBCE(ensemble.offsets, n_clusters, init=init, smoothing=LAP, update_alpha=True)
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
