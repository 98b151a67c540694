"""PCC with a calibrated co-association: against its definition, and where the paper's model fails."""

import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bigcons import PCC, Ensemble
from bigcons.coassociation import sample
from bigcons.coassociation.factorized import Rates, add_sums, agreement_sums
from bigcons.errors import ConsensusWarning, ConvergenceWarning, SoftEnsembleError, UndersegmentationWarning
from bigcons.execution.engine import ThreadsEngine
from bigcons.methods.pcc.all_pairs import (
    add_changes,
    add_step_sums,
    apply_part,
    calibrated,
    dirichlet,
    line_search,
    measure_block,
    objective_change,
    rates_of,
    softened,
    update_block,
)
from bigcons.metrics import adjusted_rand, pcc_objective
from tests.naive import calibrated as naive_calibrated
from tests.naive import pcc as naive
from tests.naive import simplex as naive_simplex
from tests.support.pcc import given as from_memberships
from tests.support.pcc import solve_all, solve_listed
from tests.support.strategies import label_matrices

CLOSE = {"rel": 1e-8, "abs": 1e-8}
ROUNDED = {"rel": 1e-5, "abs": 1e-4}  # memberships are float32


@st.composite
def problems(draw):
    """Draw labels with gaps, where base clusters begin, float32 memberships, and rates with weights."""
    ensemble = Ensemble.from_labels(draw(label_matrices(min_objects=3, max_objects=12)))
    labels, rng = ensemble.read(0, ensemble.n_objects), np.random.default_rng(draw(st.integers(0, 10**6)))
    K = draw(st.integers(1, 4))
    Y = dirichlet(len(labels), K, draw(st.integers(0, 99)))
    a, d = draw(st.floats(0.0, 0.6)), draw(st.floats(0.1, 1.0))
    weights = rng.integers(1, 4, labels.shape[1]).astype(float)
    return labels, ensemble.offsets, Y, Rates.of(a, d, weights, ensemble.offsets)


def pairs_of(labels, rates):
    return naive_calibrated.calibrated(naive.all_pairs(labels, rates.partitions), rates.a, rates.d)


def brute_force(labels, Y, rates):
    pairs = pairs_of(labels, rates)
    return naive.objective(pairs, np.asarray(Y, np.float64)) - naive.constant(pairs)


def coarse(n_objects=600, n_classes=10, n_partitions=60, missing=0.4, seed=0):
    """Return partitions of two to four clusters that join classes at random, with noise, and the classes."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_objects)
    labels = np.stack([rng.integers(2 + u % 3, size=n_classes)[truth] for u in range(n_partitions)], axis=1)
    wrong = rng.random(labels.shape) < 0.1
    labels[wrong] = rng.integers(2, size=wrong.sum())
    labels[rng.random(labels.shape) < missing] = -1
    return labels, truth


def quiet(model, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsensusWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x)


@given(problems())
def test_sums__are_those_of_the_calibrated_shares_of_all_pairs(problem):
    labels, offsets, Y, rates = problem
    expected = brute_force(labels, Y, rates)
    sums = agreement_sums(labels, offsets, Y, rates)
    assert sums.objective == pytest.approx(expected, **CLOSE)
    parts = [agreement_sums(labels[rows], offsets, Y[rows], rates) for rows in (slice(0, 2), slice(2, None))]
    assert add_sums(*parts).objective == pytest.approx(expected, **CLOSE)
    assert pcc_objective(labels, Y, constant=False) == pytest.approx(
        brute_force(labels, Y, Rates.of(0.0, 1.0, np.ones(labels.shape[1]), offsets)), **CLOSE
    )


@given(problems())
def test_update_block__of_one_object_finds_its_minimum(problem):
    labels, offsets, Y, rates = problem
    pairs, sums = pairs_of(labels, rates), agreement_sums(labels, offsets, Y, rates)
    gaps = naive.kkt_gaps(pairs, Y.astype(np.float64))
    for i in np.flatnonzero((labels >= 0).any(axis=1)):
        row = slice(i, i + 1)
        change, updated = update_block(sums, offsets, -1.0, 1.0, labels[row], Y[row])
        A, b = naive.local_problem(pairs, Y.astype(np.float64), i)
        if not A.any():
            continue
        assert change.gap == pytest.approx(gaps[i], **CLOSE)
        best = naive_simplex.objective(A, b, naive_simplex.minimize(A, b))
        assert naive_simplex.objective(A, b, updated[0].astype(np.float64)) == pytest.approx(best, **ROUNDED)
        after = add_sums(change.sums, sums)
        moved = Y.copy()
        moved[row] = updated
        assert after.objective == pytest.approx(brute_force(labels, moved, rates), **CLOSE)


@given(problems(), st.integers(1, 4))
def test_passes__of_many_blocks_know_the_objective_along_their_changes(problem, rows):
    labels, offsets, Y, rates = problem
    sums, updated, change, along = agreement_sums(labels, offsets, Y, rates), np.empty_like(Y), None, None
    blocks = [slice(start, start + rows) for start in range(0, len(labels), rows)]
    for block in blocks:
        part, updated[block] = update_block(sums, offsets, -1.0, 1.0, labels[block], Y[block])
        change = part if change is None else add_changes(change, part)
    for block in blocks:
        part = measure_block(sums, offsets, labels[block], Y[block], updated[block])
        along = part if along is None else add_step_sums(along, part)
    before = brute_force(labels, Y, rates)

    def gain(step):
        return brute_force(labels, Y + step * (updated.astype(np.float64) - Y), rates) - before

    scale = 1e-8 * (1 + abs(before))
    length, found = line_search(sums, change.sums, along)
    assert objective_change(sums, change.sums) == pytest.approx(gain(1.0), rel=1e-8, abs=scale)
    assert found == pytest.approx(gain(length), rel=1e-6, abs=scale)
    assert found <= scale
    assert apply_part(sums, change.sums, along, 0.5).objective == pytest.approx(before + gain(0.5), **CLOSE)


@given(problems())
def test_update_block__gives_new_objects_their_best_membership(problem):
    labels, offsets, Y, rates = problem
    known = agreement_sums(labels[1:], offsets, np.ascontiguousarray(Y[1:]), rates)
    _, placed = update_block(known, offsets, 0.0, 1.0, labels[:1])
    whole = add_sums(agreement_sums(labels[:1], offsets, placed, rates), known)
    assert whole.objective == pytest.approx(
        brute_force(labels, np.concatenate([placed, Y[1:]]), rates), **CLOSE
    )
    A, b = naive.local_problem(pairs_of(labels, rates), Y.astype(np.float64), 0)
    if A.any():
        best = naive_simplex.objective(A, b, naive_simplex.minimize(A, b))
        assert naive_simplex.objective(A, b, placed[0].astype(np.float64)) == pytest.approx(best, **ROUNDED)


@given(problems())
def test_rates_of__are_those_of_pairs_of_objects_surely_in_a_cluster(problem):
    labels, offsets, Y, rates = problem
    with np.errstate(invalid="ignore", divide="ignore"):
        a, d = naive_calibrated.rates(labels, Y, rates.partitions)
    found = rates_of(labels, offsets, Y, rates.partitions)
    if np.isnan(a) or np.isnan(d):
        assert (found.a, found.d) == (0.0, 1.0)
        return
    assume(a < 0.99)
    assert found.a == pytest.approx(a)
    assert found.d == pytest.approx(max(d, 1e-3))


def test_calibrated__finds_the_rates_by_which_labels_were_drawn():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=900)
    labels = np.stack([rng.integers(4, size=3)[truth] for _ in range(200)], axis=1)
    ensemble = Ensemble.from_labels(labels)
    found = calibrated(
        ensemble.read(0, 900), ensemble.offsets, softened(np.eye(3, dtype=np.float32)[truth]), np.ones(200)
    )
    assert found.a + found.d == pytest.approx(1.0, abs=1e-6)
    assert found.a == pytest.approx(0.25, abs=0.03)


@pytest.mark.filterwarnings("ignore::bigcons.errors.DissentWarning")
@pytest.mark.parametrize("asked", [{}, {"pairs": 0.3}, {"pairs": 0.3, "solver": "blocked"}])
def test_fit__finds_classes_that_coarse_partitions_join_by_chance(asked):
    labels, truth = coarse()
    model = PCC(10, coassociation="calibrated", random_state=0, **asked).fit(labels)
    with pytest.warns(UndersegmentationWarning, match="coassociation='calibrated' allows for it"):
        paper = PCC(10, random_state=0, **asked).fit(labels)
    assert adjusted_rand(truth, model.labels_) > max(0.95, adjusted_rand(truth, paper.labels_) + 0.2)
    assert 0 < model.false_join_rate_ < model.hit_rate_ <= 1
    assert adjusted_rand(truth, model.predict(labels)) > 0.95


def test_fit__reports_the_gap_and_the_objective_of_what_it_returns():
    labels, _ = coarse(120, 4)
    model = PCC(4, coassociation="calibrated", tol=1e-6, max_iter=500, random_state=0).fit(labels)
    a = model.false_join_rate_
    pairs = naive_calibrated.calibrated(naive.all_pairs(labels), a, model.hit_rate_ - a)
    Y = model.memberships_.astype(np.float64)
    assert model.objective_ == pytest.approx(naive.objective(pairs, Y) - naive.constant(pairs), rel=1e-6)
    gap = naive.kkt_gaps(pairs, Y).max() / naive.mean_weight(pairs, 120)
    assert gap == pytest.approx(model.gap_, abs=5e-6)
    assert model.gap_ <= 1e-6


def test_solve__of_listed_pairs_is_that_of_all_of_them():
    labels, _ = coarse(120, 4)
    table = sample(labels, share=1.0, random_state=0)
    rates, start = (0.3, 0.65), dirichlet(120, 4, 0)
    counted = Rates.of(*rates, np.ones(labels.shape[1]), Ensemble.from_labels(labels).offsets)
    whole = solve_all(labels, 4, from_memberships(start, counted), tol=1e-6, max_passes=1000)
    listed = solve_listed(table, 4, whole.memberships, tol=1e-6, rates=rates)
    pairs = naive_calibrated.calibrated(naive.all_pairs(labels), *rates)
    assert listed.objective == pytest.approx(whole.objective + naive.constant(pairs), rel=1e-6)
    np.testing.assert_allclose(listed.memberships, whole.memberships, atol=1e-3)


@pytest.mark.parametrize("asked", [{}, {"pairs": 0.05}, {"pairs": 0.05, "solver": "blocked"}])
def test_fit__resumed_on_threads_has_the_bits_of_serial(tmp_path, asked, monkeypatch):
    labels, _ = coarse(2300, 6)
    ensemble = Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=500)
    asked = {
        "coassociation": "calibrated",
        "n_init": 2,
        "max_iter": 4,
        "tol": 0.0,
        "random_state": 0,
        **asked,
    }
    if asked.get("pairs") and not asked.get("solver"):
        asked["max_iter"] = 20_000
    expected = quiet(PCC(6, client="serial", **asked), ensemble)
    snapshots = "bigcons.storage.checkpoint.Snapshots.save"
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, stopping_at(3))
        with pytest.raises(KeyboardInterrupt):
            PCC(6, **asked).fit(ensemble, out=tmp_path / "c.zarr")
    resumed = quiet(PCC(6, client=ThreadsEngine(3), out=tmp_path / "c.zarr", **asked), ensemble)
    np.testing.assert_array_equal(np.asarray(resumed.memberships_), expected.memberships_)
    assert resumed.history_["objective"] == expected.history_["objective"]
    assert resumed.hit_rate_ == expected.hit_rate_


def stopping_at(number):
    """Return a way to save snapshots that is interrupted at a certain one."""
    from bigcons.storage.checkpoint import Snapshots

    save, calls = Snapshots.save, [0]

    def stopping(*arguments):
        calls[0] += 1
        if calls[0] == number:
            raise KeyboardInterrupt
        save(*arguments)

    return stopping


def test_fit__refuses_soft_clusterings():
    soft = [np.full((6, 2), 0.5), np.eye(3)[[0, 1, 2, 0, 1, 2]]]
    with pytest.raises(SoftEnsembleError, match="coassociation='calibrated'"):
        PCC(2, coassociation="calibrated").fit(Ensemble.from_memberships(soft))
