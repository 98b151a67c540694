"""PCC over all pairs, one by one, against its definition."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import PCC, Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.divergences import resolve_divergence
from bigcons.errors import ConsensusWarning, ConvergenceWarning, InvalidInputError
from bigcons.kernels import pairwise as kernel
from bigcons.methods.pcc import every_pair
from bigcons.methods.pcc.every_pair import general_search
from bigcons.metrics import adjusted_rand
from tests.naive import divergences as naive_divergences
from tests.naive import pcc as naive
from tests.support.pcc import from_sample, solve_all
from tests.support.strategies import label_matrices

FAMILIES = {
    "l2": naive_divergences.squared(),
    "kl": naive_divergences.entropy(),
    "power:1.5": naive_divergences.power(1.5),
}
DIVERGENCES = ["l2", "kl"]


def value_of(name):
    return lambda x, p: naive_divergences.value(FAMILIES[name], x, inside(p))


def slope_of(name):
    return lambda x, p: naive_divergences.slope(FAMILIES[name], x, inside(p))


def inside(p):
    return min(max(p, 1e-12), 1 - 1e-12)


@st.composite
def problems(draw):
    """Draw labels and memberships inside the simplex."""
    labels = draw(label_matrices(min_objects=2, max_objects=8, max_clusters=3))
    seed, n_clusters = draw(st.integers(0, 2**16)), draw(st.integers(2, 4))
    rows = np.random.default_rng(seed).dirichlet(np.ones(n_clusters), len(labels))
    return labels, every_pair.exactly((0.95 * rows + 0.05 / n_clusters).astype(np.float32))


def noisy(n_objects, n_partitions=20, seed=0, noise=0.3):
    """Return noisy labels of three classes, a third of them missing."""
    rng = np.random.default_rng(seed)
    labels = np.tile(rng.integers(3, size=(n_objects, 1)), n_partitions)
    wrong = rng.random(labels.shape) < noise
    labels[wrong] = rng.integers(3, size=wrong.sum())
    labels[rng.random(labels.shape) < 0.3] = -1
    labels[(labels < 0).all(axis=1), 0] = 0
    return labels


def quiet(model, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsensusWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x)


@given(problems(), st.sampled_from(DIVERGENCES))
@settings(max_examples=20)
def test_evaluate__is_the_objective_and_the_largest_gap(problem, name):
    labels, rows = problem
    totals = np.zeros(2)
    value, slope, _, parameter = resolve_divergence(name).compiled
    for start, stop in ((0, 1), (1, len(rows))):
        kernel.evaluate(labels, rows, start, stop, totals, value, slope, parameter)
    pairs = naive.all_pairs(labels)
    expected = naive.exact_objective(pairs, rows, value_of(name))
    np.testing.assert_allclose(totals[0], expected, rtol=1e-10, atol=1e-10)
    gap = naive.kkt_gaps(pairs, rows, slope_of(name)).max()
    np.testing.assert_allclose(totals[1], gap, rtol=1e-8, atol=1e-8)


@given(problems(), st.sampled_from(DIVERGENCES))
@settings(max_examples=20)
def test_sweep__leaves_each_object_at_its_optimum(problem, name):
    labels, rows = problem
    pairs, divergence = naive.all_pairs(labels), resolve_divergence(name)
    _, slope, curvature, parameter = divergence.compiled
    for j in range(len(rows)):
        moved, updated = rows.copy(), rows[j : j + 1].astype(np.float32)
        kernel.sweep(
            *(labels, moved, j, updated, -1.0, np.zeros(2), divergence.is_double_convex),
            *(slope, curvature, general_search(divergence), parameter),
        )
        np.testing.assert_allclose(moved[j], every_pair.exactly(updated)[0], rtol=1e-12)
        own = [pair for pair in pairs if j in pair[:2]]
        weight = sum(n_seen for *_, n_seen in own)
        after = naive.objective(own, moved, value_of(name))
        assert after <= naive.objective(own, rows, value_of(name)) + 1e-6 * weight
        for k in range(rows.shape[1]):  # no other membership is better, toward any vertex
            for share in (0.01, 0.3):
                other = moved.copy()
                other[j] = (1 - share) * moved[j] + share * np.eye(rows.shape[1])[k]
                assert naive.objective(own, other, value_of(name)) >= after - 1e-5 * weight


@pytest.mark.parametrize("divergence", ["kl", "power:1.5"])
def test_fit__of_few_objects_reports_the_exact_gap(divergence):
    labels = noisy(60)
    model = quiet(PCC(3, divergence=divergence, random_state=0), labels)
    pairs, Y = naive.all_pairs(labels), every_pair.exactly(model.memberships_)
    gradients = naive.gradient(pairs, Y, slope_of(divergence))
    gaps = np.where(Y > 0.0, gradients, -np.inf).max(axis=1) - gradients.min(axis=1)
    assert model.gap_ == pytest.approx(gaps.max() / naive.mean_weight(pairs, 60), abs=1e-7)
    assert model.converged_
    assert model.gap_ <= model.tol


def test_solve__of_kl_rules_out_no_observed_pair():
    labels = noisy(300, noise=0.1)
    found = solve_all(labels, 4, from_sample(4), "kl")
    Y = every_pair.exactly(found.memberships)
    for i, j, n_agree, n_seen in naive.all_pairs(labels):
        assert n_agree == 0 or Y[i] @ Y[j] > 2.5e-8
        assert n_agree == n_seen or Y[i] @ Y[j] < 1 - 2.5e-8


def test_fit__of_few_objects_has_the_same_bits_on_any_engine_and_after_a_kill(tmp_path, monkeypatch):
    Ensemble.from_labels(noisy(200)).save(tmp_path / "e.zarr", chunk_rows=64)
    asked = {"divergence": "kl", "n_init": 2, "random_state": 0, "client": "serial"}
    expected = PCC(4, **asked).fit(tmp_path / "e.zarr")
    assert expected.n_passes_ > 3
    threads = PCC(4, **{**asked, "client": "threads"}).fit(tmp_path / "e.zarr")
    np.testing.assert_array_equal(threads.memberships_, expected.memberships_)

    def stop(self, run, at, total, step=every_pair.Pairwise.step):
        if len(at.records) == 2:
            raise KeyboardInterrupt
        return step(self, run, at, total)

    with monkeypatch.context() as patch:
        patch.setattr(every_pair.Pairwise, "step", stop)
        with pytest.raises(KeyboardInterrupt):
            PCC(4, **asked).fit(tmp_path / "e.zarr", out=tmp_path / "c.zarr")
    resumed = PCC(4, **asked).fit(tmp_path / "e.zarr", out=tmp_path / "c.zarr")
    np.testing.assert_array_equal(np.asarray(resumed.memberships_), expected.memberships_)
    assert resumed.history_["objective"] == expected.history_["objective"]


def test_fit__of_many_objects_by_another_divergence_names_the_share_of_pairs_to_use():
    ensemble, truth = planted_ensemble(2300, 20, random_state=3)
    with pytest.raises(InvalidInputError, match=r"at most 2,048, .* pairs=0\.013, or divergence='l2'"):
        PCC(3, divergence="kl").fit(ensemble)
    model = quiet(PCC(3, divergence="kl", pairs=0.013, random_state=0), ensemble)
    assert adjusted_rand(truth, model.labels_) > 0.3
    assert np.mean(model.predict(ensemble) == model.labels_) > 0.8
