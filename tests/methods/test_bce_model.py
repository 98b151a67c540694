"""The M-step of Bayesian cluster ensembles against direct maximization, and starts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.methods.bce import variational
from bigcons.methods.bce.model import (
    ALPHA_FLOOR,
    RELAXATION,
    Parameters,
    best_alpha,
    further_probabilities,
    label_probabilities,
    m_step,
    objective,
    relaxation_of,
)
from bigcons.methods.bce.variational import NO_STEP, UNSEEN, VariationalBCE, partition_start, random_start
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


def test_best_alpha__stays_at_the_floor_while_the_others_are_at_their_best():
    log_means, n = np.array([-20000.0, -12.0, -20.0]), 10
    found = best_alpha(np.full(3, 0.5), log_means, n)
    expected = naive.best_alpha(log_means, n, ALPHA_FLOOR)
    assert found[0] == ALPHA_FLOOR < found[1]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_best_alpha__leaves_the_floor_when_that_raises_the_bound():
    log_means, n = np.array([-9.0, -12.0, -20.0]), 10
    found = best_alpha(np.full(3, ALPHA_FLOOR), log_means, n)
    np.testing.assert_allclose(found, naive.best_alpha(log_means, n, ALPHA_FLOOR), rtol=1e-4)
    assert (found > ALPHA_FLOOR).all()


def test_best_alpha__of_one_cluster_stays():
    assert best_alpha(np.array([0.7]), np.zeros(1), 5) == 0.7


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


@given(summed_statistics())
def test_m_step__without_relaxation_is_that_of_the_paper(problem):
    before, counts, log_means, n, offsets = problem
    found = m_step(before, counts, log_means, n, offsets, smoothing=LAP, update_alpha=True)
    beta = [part / part.sum(axis=0) for part in np.split(counts + LAP, [2])]
    np.testing.assert_allclose(found.beta, np.concatenate(beta), rtol=1e-9)
    np.testing.assert_array_equal(found.alpha, best_alpha(before.alpha, log_means, n))


def test_relaxation_of__begins_when_a_pass_gains_little_and_stays():
    assert relaxation_of(-np.inf, -1000.0, 1.0) == 1.0
    assert relaxation_of(-1002.0, -1000.0, 1.0) == 1.0
    assert relaxation_of(-1000.5, -1000.0, 1.0) == RELAXATION
    assert relaxation_of(-1002.0, -1000.0, RELAXATION) == RELAXATION


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_passes__end_no_lower_than_those_of_plain_em_and_sooner(missing, monkeypatch):
    """Fails where the relaxation begins at once: most starts then end at lower optima."""
    ensemble, _ = planted_ensemble(400, 20, missing=missing, random_state=0)
    labels = ensemble.read(0, 400)
    problem = VariationalBCE(ensemble.offsets, 6, init="partition", smoothing=LAP, update_alpha=True)
    found = [passes_of(problem, labels, number) for number in range(6)]
    monkeypatch.setattr(variational, "relaxation_of", lambda *_: 1.0)
    plain = [passes_of(problem, labels, number) for number in range(6)]
    for values, expected in zip(found, plain, strict=True):
        assert values[-1] > expected[-1] - 1e-4 * abs(expected[-1])
    assert sum(map(len, found)) < 0.9 * sum(map(len, plain))


def passes_of(problem, labels, number):
    """Return the objectives of a start until it settles."""
    state, carried, records = problem.start(labels, 0, number)[0], None, []
    while len(records) < 500:
        stats, carried = problem.visit(state, labels, carried)
        state, record = problem.finish(state, stats)
        records.append(record)
        if problem.is_settled(records[-2] if len(records) > 1 else None, record, 1e-6):
            break
    return [record["objective"] for record in records]


@given(summed_statistics())
def test_further_probabilities__of_the_whole_way_are_the_best_ones(problem):
    before, counts, _, _, offsets = problem
    found = further_probabilities(before.beta, counts, offsets, 1.0)
    np.testing.assert_allclose(found, label_probabilities(counts, offsets), rtol=1e-12)


def test_m_step__keeps_alpha_if_told():
    before = Parameters(np.ones(3), np.full((5, 3), 0.5))
    found = m_step(
        before,
        np.ones((5, 3)),
        np.full(3, -50.0),
        30.0,
        np.array([0, 2, 5]),
        smoothing=LAP,
        update_alpha=False,
    )
    np.testing.assert_array_equal(found.alpha, before.alpha)


def test_for_all__gives_every_cluster_labels_that_the_sample_lacks():
    problem = VariationalBCE(np.array([0, 2, 5]), 2, init="partition", smoothing=LAP, update_alpha=True)
    beta = np.array([[1.0, 0.5], [0.0, 0.5], [0.0, 0.2], [1.0, 0.0], [0.0, 0.8]])
    found = problem.for_all({"alpha": np.ones(2), "beta": beta, "step": np.array([-3.0, 1.7])})
    np.testing.assert_allclose(np.add.reduceat(found["beta"], [0, 2]), 1)
    np.testing.assert_allclose(found["beta"][beta == 0], UNSEEN / np.array([2, 3, 3, 3]))
    np.testing.assert_array_equal(found["alpha"], np.ones(2))
    np.testing.assert_array_equal(found["step"], NO_STEP)  # objectives of samples and of all do not compare


def test_objective__is_the_bound_and_the_prior_of_lap():
    parameters = Parameters(np.array([0.5, 1.5]), np.array([[0.25, 0.5], [0.75, 0.5]]))
    normalizer = naive.alpha_value(parameters.alpha, np.zeros(2), 3)
    expected = -7.0 + normalizer + 0.1 * np.log([0.25, 0.5, 0.75, 0.5]).sum()
    assert objective(parameters, -7.0, 3, 0.1) == pytest.approx(expected)


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
        stats, carried = problem.visit(state, labels, carried)
        judged, (state, record) = state, problem.finish(state, stats)
        values.append(record["objective"])
        tables = np.split(judged["beta"], ensemble.offsets[1:-1])
        bound = naive.statistics(labels, tables, judged["alpha"], carried.astype(np.float64))[2]
        expected = bound + LAP * np.log(judged["beta"]).sum()
        assert record["objective"] == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert (np.diff(values) >= -1e-7 * (1 + np.abs(values[0]))).all()


@given(label_matrices(max_objects=12), st.integers(1, 6), st.integers(0, 99))
def test_starts__are_parameters(labels, n_clusters, seed):
    ensemble = Ensemble.from_labels(labels)
    labels, offsets = ensemble.read(0, ensemble.n_objects), ensemble.offsets
    for begin in (partition_start, random_start):
        alpha, beta, step = begin(labels, offsets, n_clusters, seed, 0).values()
        np.testing.assert_array_equal(step, NO_STEP)
        assert alpha.shape == (n_clusters,)
        assert beta.shape == (ensemble.n_base_clusters, n_clusters)
        assert (alpha >= ALPHA_FLOOR).all()
        assert (beta > 0).all()
        np.testing.assert_allclose(np.add.reduceat(beta, offsets[:-1]), 1)


def test_partition_start__is_nine_tenths_the_partition_and_even_where_that_is_missing():
    labels = np.array([[0], [0], [0], [1], [1]], np.int8)
    beta = partition_start(labels, np.array([0, 2]), 2, 0, 0)["beta"]
    own, other = 0.95 * 3 + 0.1, 0.05 * 2 + 0.1
    np.testing.assert_allclose(beta[:, 0], np.array([own, other]) / (own + other))
    labels = np.array([[0, 0], [1, 1], [-1, 1]], np.int8)
    # start 1 of this seed begins with one of the two copies
    beta = partition_start(labels[:, [0, 0, 1]], np.array([0, 2, 4, 6]), 2, 0, 1)["beta"]
    first, last = 0.05 + 0.1, 0.95 + 0.1 + 0.5
    np.testing.assert_allclose(beta[4:, 1], np.array([first, last]) / (first + last))


def test_label_probabilities__takes_a_partition_without_clusters():
    found = label_probabilities(np.array([[1.0], [3.0], [2.0]]), np.array([0, 2, 2, 3]))
    np.testing.assert_allclose(found, [[0.25], [0.75], [1.0]])
