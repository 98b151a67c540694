"""NMF consensus: the updates of the paper without the matrix they are written with, and what they promise."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import ConvergenceWarning, SuspiciousLabelsWarning, UnlabeledObjectsWarning
from bigcons.methods import NMF
from bigcons.methods.nmf import NMFProblem
from bigcons.metrics import adjusted_rand
from tests.naive import nmf as naive
from tests.support.strategies import label_matrices

MATRICES = label_matrices(min_objects=3, max_objects=20, max_partitions=5)


def quietly_fit(model, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UnlabeledObjectsWarning)
        return model.fit(x)


def started(labels, k, number=0):
    """Return the problem, the codes, the co-association, a first state, its rows, how many are labeled."""
    ensemble = Ensemble.from_labels(labels)
    codes = ensemble.read(0, ensemble.n_objects)
    problem = NMFProblem(ensemble.offsets, k)
    state, rows = problem.start(codes, 0, number)
    return problem, codes, naive.coassociation(codes.tolist()), state, rows, (codes >= 0).any(axis=1).sum()


@given(labels=MATRICES, k=st.integers(1, 4), missing=st.booleans())
def test_passes__are_the_naive_updates(labels, k, missing):
    labels = labels if missing else np.maximum(labels, 0)
    problem, codes, C, state, rows, n = started(labels, k)
    if not missing:  # the co-association of the paper
        shares = (codes[:, None, :] == codes[None, :, :]).mean(axis=2)
        np.testing.assert_allclose(C, shares)
    Q, S = rows.astype(float) / np.sqrt(n), state["S"] * n
    for _ in range(4):
        stats, rows = problem.visit(state, codes, rows)
        state, record = problem.finish(state, stats)
        Q = naive.update_rows(C, Q, S)
        S = naive.update_scales(C, Q, S)
        np.testing.assert_allclose(rows / np.sqrt(n), Q, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(state["S"] * n, S, rtol=1e-4, atol=1e-6)
        left = (C**2).sum() - naive.squared_error(C, Q, S)
        assert record["explained"] * n**2 == pytest.approx(left, rel=1e-4)
        values, vectors = np.linalg.eigh(C)
        root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
        left = (root**2).sum() - naive.projection_error(root, Q)
        assert record["objective"] * n == pytest.approx(left, rel=1e-4)


@given(labels=MATRICES, k=st.integers(1, 4))
def test_steps__never_raise_what_theory_says_they_lower(labels, k):
    """A step of Q: the Lagrangian with the multipliers before it; a step of S: the squared error."""
    _, _, C, state, rows, n = started(labels, k)
    Q, S = rows.astype(float) / np.sqrt(n), state["S"] * n
    for _ in range(5):
        multipliers = Q.T @ C @ Q
        after = naive.update_rows(C, Q, S)
        before_after = [np.trace(multipliers @ q.T @ q) - np.trace(q.T @ C @ q) for q in (Q, after)]
        assert before_after[1] <= before_after[0] + 1e-9
        Q = after
        scales = naive.update_scales(C, Q, S)
        assert naive.squared_error(C, Q, scales) <= naive.squared_error(C, Q, S) * (1 + 1e-9) + 1e-9
        S = scales


@given(labels=MATRICES, k=st.integers(1, 4))
@settings(max_examples=20)
def test_scales__have_no_say_in_the_rows(labels, k):
    _, _, C, state, rows, n = started(labels, k)
    Q = rows.astype(float) / np.sqrt(n)
    others = np.random.default_rng(0).uniform(0.1, 10, k)
    expected = naive.update_rows(C, Q, state["S"])
    np.testing.assert_allclose(naive.update_rows(C, Q, others), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("missing", "least"), [(0.5, 0.9), (0.0, 0.93)])
def test_fit__finds_planted_clusters_and_the_objective_rises(missing, least):
    ensemble, truth = planted_ensemble(6000, 50, missing=missing, random_state=2)
    model = NMF(6, random_state=0).fit(ensemble)
    assert adjusted_rand(truth, model.labels_) > least
    assert model.converged_
    objective = np.array(model.history_["objective"])
    assert (np.diff(objective) >= -1e-6 * objective[-1]).all()  # rows are kept in single precision
    assert 0 < model.objective_ < 1


def test_predict__places_fitted_objects_where_they_are():
    ensemble, _ = planted_ensemble(3000, 30, missing=0.3, random_state=0)
    model = quietly_fit(NMF(6, random_state=0), ensemble)
    assert (model.predict(ensemble) == model.labels_).mean() > 0.99
    assert np.abs(model.predict_proba(ensemble) - model.memberships_).mean() < 0.01
    unlabeled = np.full((2, 30), 10_000)  # labels that were not seen in fit
    with pytest.warns(SuspiciousLabelsWarning, match="did not occur in fit"):
        np.testing.assert_array_equal(model.predict_proba(unlabeled), np.float32(1 / 6))
