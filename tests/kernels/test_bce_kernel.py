"""The E-step of Bayesian cluster ensembles: the kernel against the paper's formulas, and its promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma

from bigcons import Ensemble
from bigcons.kernels import bce as kernel
from bigcons.kernels._jit import jit
from bigcons.kernels.cluster_tables import rows_together
from tests.naive import bce as naive
from tests.support.strategies import label_matrices

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@st.composite
def problems(draw, dtype=np.float64):
    """Draw labels with gaps, where their base clusters begin, alpha, beta and gamma."""
    ensemble = Ensemble.from_labels(draw(label_matrices(max_objects=8)))
    labels = ensemble.read(0, ensemble.n_objects)
    K = draw(st.integers(1, 4))
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


def whole_bound(bound, alpha, n_labeled):
    """Add to the kernel's bound what is the same for every object."""
    return bound + naive.alpha_value(np.asarray(alpha), np.zeros(len(alpha)), n_labeled)


def split(table, offsets):
    return np.split(table, offsets[1:-1])


@jit
def digammas(x, out):
    for i in range(x.size):
        out[i] = kernel.digamma(x[i])


def test_digamma__is_scipys():
    x = np.concatenate([np.geomspace(1e-6, 1e12, 20_000), np.linspace(1.4, 1.5, 1001)])
    found = np.empty_like(x)
    digammas(x, found)
    expected = digamma(x)
    assert (np.abs(found - expected) <= 1e-12 * np.maximum(np.abs(expected), 1)).all()


@given(problems(), st.integers(0, 4))
def test_e_step__is_that_of_the_paper(problem, n_steps):
    labels, offsets, beta, alpha, gamma = problem
    found, counts, log_means, bound, n_labeled = e_step(*problem, steps=n_steps)
    tables = split(beta, offsets)
    expected = naive.e_step(labels, tables, alpha, gamma, n_steps)
    np.testing.assert_allclose(found, expected, **CLOSE)
    sums = naive.statistics(labels, tables, alpha, found)
    np.testing.assert_allclose(counts, np.concatenate(sums[0]), **CLOSE)
    np.testing.assert_allclose(log_means, sums[1], **CLOSE)
    np.testing.assert_allclose(whole_bound(bound, alpha, n_labeled), sums[2], **CLOSE)
    assert n_labeled == sums[3]


@given(problems())
def test_e_step__no_step_lowers_the_bound(problem):
    bounds = [e_step(*problem, steps=n)[3] for n in range(8)]
    assert (np.diff(bounds) >= -1e-9 * (1 + np.abs(bounds[0]))).all()


@given(problems(np.float32), st.integers(0, 3))
def test_e_step__statistics_are_those_of_the_rounded_gamma(problem, n_steps):
    *rest, gamma = problem
    rounded, *sums = e_step(*rest, gamma, steps=n_steps)
    assert rounded.dtype == np.float32
    _, *expected = e_step(*rest, rounded.astype(np.float64), steps=0)
    for found, value in zip(sums, expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-12)


@given(problems(), st.integers(1, 4))
def test_e_step__blocks_add_up(problem, rows):
    labels, offsets, beta, alpha, gamma = problem
    whole = e_step(*problem)
    blocks = [
        e_step(labels[i : i + rows], offsets, beta, alpha, gamma[i : i + rows])
        for i in range(0, len(labels), rows)
    ]
    np.testing.assert_array_equal(np.concatenate([block[0] for block in blocks]), whole[0])
    for part in range(1, 5):
        np.testing.assert_allclose(sum(block[part] for block in blocks), whole[part], **CLOSE)


@given(problems())
def test_e_step__an_object_without_labels_counts_nowhere(problem):
    labels, offsets, beta, alpha, gamma = problem
    with_empty = np.vstack([np.full((1, labels.shape[1]), -1, labels.dtype), labels])
    gammas = np.vstack([gamma[:1], gamma])
    found, *sums = e_step(with_empty, offsets, beta, alpha, gammas)
    expected, *expected_sums = e_step(*problem)
    np.testing.assert_array_equal(found[0], gamma[0])
    np.testing.assert_array_equal(found[1:], expected)
    for value, other in zip(sums, expected_sums, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-12)


def test_e_step__by_slices_of_the_partitions_is_that_of_each_object_alone():
    rng = np.random.default_rng(2)
    labels = rng.integers(-1, 12, (60, 400), np.int8)
    labels[::7] = -1
    offsets, alpha = np.arange(0, 4801, 12), np.full(3, 0.5)
    beta = np.vstack([np.ascontiguousarray(rng.dirichlet(np.ones(12), 3).T) for _ in range(400)])
    gamma = rng.exponential(size=(60, 3)) + alpha
    assert rows_together(60, offsets, 8, 0) > 1 == rows_together(1, offsets, 8, 0)
    found, *sums = e_step(labels, offsets, beta, alpha, gamma, tol=1e-3, steps=50)
    alone = [
        e_step(labels[i : i + 1], offsets, beta, alpha, gamma[i : i + 1], tol=1e-3, steps=50)
        for i in range(60)
    ]
    np.testing.assert_array_equal(found, np.concatenate([one[0] for one in alone]))
    for part, value in enumerate(sums, start=1):
        np.testing.assert_allclose(value, sum(one[part] for one in alone), **CLOSE)


@pytest.mark.parametrize("n_clusters", [1, 7, 300])
def test_e_step__takes_hopeless_likelihoods_and_many_clusters(n_clusters):
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, (20, 50), np.int8)
    beta = np.full((100, n_clusters), 1e-15)
    alpha = np.full(n_clusters, 1e-3)
    found, counts, log_means, bound, _ = e_step(
        labels, np.arange(0, 101, 2), beta, alpha, alpha + 50 / n_clusters * np.ones((20, 1)), steps=50
    )
    for values in (found, counts, log_means, bound):
        assert np.isfinite(values).all()
    np.testing.assert_allclose(found.sum(axis=1), alpha.sum() + 50)
