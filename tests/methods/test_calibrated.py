"""The calibrated co-association: sums against all pairs one by one, rates, and PCC by them."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import PCC, Ensemble
from bigcons.coassociation.factorized import AgreementSums, Rates, add_sums, agreement_sums
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError, UndersegmentationWarning
from bigcons.kernels.cluster_tables import rows_together
from bigcons.methods.pcc import block_model
from bigcons.methods.pcc.all_pairs import (
    CHANGE_PER_TOL,
    LATE_PASSES,
    MOST_PAST,
    MOST_UNDONE,
    AllPairs,
    Passes,
    remaining_change,
)
from bigcons.methods.pcc.block_model import (
    EQUAL,
    HALF_WEIGHT,
    INFORMED,
    LINKED,
    OWN,
    SPECTRAL,
    SPHERICAL,
    Clusters,
    block_rates,
    block_start,
    embedded,
    linked_clusters,
    of_partitions,
    raised,
    rarity_of,
    spectral_start,
)
from bigcons.methods.pcc.calibrated import (
    MOMENTS_AFTER,
    Calibration,
    PairSums,
    by_moments,
    estimated,
    join_rates,
    least_squares,
    memberships_of,
    pair_sums,
    solved_from,
)
from bigcons.methods.pcc.choices import BEST_MODEL, larger_rows
from bigcons.methods.pcc.updates import (
    add_changes,
    apply_change,
    apply_part,
    line_search,
    measure_block,
    objective_change,
    place_block,
    update_block,
)
from bigcons.metrics import adjusted_rand, matching_accuracy
from bigcons.stores.consensus import fit_results
from tests.naive import calibrated as naive
from tests.support.strategies import label_matrices

EXACT = {"rel": 1e-9, "abs": 1e-9}


@st.composite
def problems(draw):
    """Draw labels, offsets, memberships and rates, of a block model or not."""
    labels = draw(label_matrices(min_objects=2, max_objects=9, max_clusters=3)).astype(np.int8)
    rng, K, M = np.random.default_rng(draw(st.integers(0, 2**16))), draw(st.integers(2, 9)), labels.shape[1]
    offsets = np.arange(M + 1) * 3
    Y = rng.dirichlet(np.ones(K), len(labels)).astype(np.float32)
    if draw(st.booleans()):
        Y = np.eye(K, dtype=np.float32)[Y.argmax(axis=1)]
    theta = np.eye(K)
    if draw(st.booleans()):
        theta = np.abs(rng.normal(size=(K, K)))
        theta += theta.T
    rates = rng.uniform(0, 0.5, M), rng.uniform(0.1, 2, M), rng.uniform(0.1, 3, M), rng.uniform(0.5, 4, 3 * M)
    return labels, offsets, Y, (*rates, theta)


def rates_of(rates, offsets):
    """Return the rates as the library has them: without theta where it is the identity."""
    *rates, theta = rates
    return Rates.of(*rates, offsets, None if (theta == np.eye(len(theta))).all() else theta)


def brute_force(labels, offsets, Y, rates):
    """Return the objective less what it is if no two objects belong together."""
    Y = Y.astype(np.float64)
    whole = naive.objective(labels, offsets, Y, *rates)
    return whole - naive.objective(labels, offsets, np.zeros_like(Y), *rates)


@given(problems())
def test_agreement_sums__give_the_objective_of_all_pairs(problem):
    labels, offsets, Y, rates = problem
    sums = agreement_sums(labels, offsets, Y, rates_of(rates, offsets))
    assert sums.objective == pytest.approx(brute_force(*problem), **EXACT)


@given(problems(), st.booleans())
@settings(max_examples=40)
def test_update_block__finds_the_gap_and_the_best_membership_of_each_object(problem, at_once):
    labels, offsets, Y, rates = problem
    sums = agreement_sums(labels, offsets, Y, rates_of(rates, offsets))
    gradient = naive.gradient(labels, offsets, Y.astype(np.float64), *rates)
    scale = max(1.0, float(np.abs(gradient).max()))
    for j in range(len(Y)):
        if not (labels[j] >= 0).any():
            continue
        one = labels[j : j + 1], Y[j : j + 1]
        change, updated = update_block(sums, offsets, -1.0, 1.0, *one, at_once=at_once)
        gap = gradient[j][Y[j] > 0].max() - gradient[j].min()
        assert change.gap == pytest.approx(gap, abs=1e-7 * scale)
        moved = Y.copy()
        moved[j] = updated[0]
        found = brute_force(labels, offsets, moved, rates)
        assert objective_change(sums, change) == pytest.approx(
            found - brute_force(*problem), abs=1e-6 * scale
        )
        after = naive.gradient(labels, offsets, moved.astype(np.float64), *rates)[j]
        assert after[moved[j] > 0].max() - after.min() <= 1e-4 * scale


@given(problems(), st.booleans())
@settings(max_examples=30)
def test_update_block__returns_what_it_changed_and_the_quartic_along_it(problem, at_once):
    labels, offsets, Y, rates = problem
    weights = rates_of(rates, offsets)
    sums = agreement_sums(labels, offsets, Y, weights)
    change, updated = update_block(sums, offsets, 0.0, 1.5, labels, Y, at_once=at_once)
    reached = apply_change(sums, change)
    expected = agreement_sums(labels, offsets, updated, weights)
    assert reached.objective == pytest.approx(expected.objective, rel=1e-7, abs=1e-7)
    assert at_once or expected.objective <= sums.objective + 1e-5
    along = measure_block(sums, offsets, labels, Y, updated)
    length, gain = line_search(sums, change, along)
    assert apply_part(sums, change, along, length).objective == pytest.approx(
        sums.objective + gain, rel=1e-7, abs=1e-7
    )
    half = Y + np.float32(0.5) * (updated - Y)
    there = agreement_sums(labels, offsets, half, weights).objective
    assert apply_part(sums, change, along, 0.5).objective == pytest.approx(there, rel=1e-5, abs=1e-4)


@given(problems())
@settings(max_examples=30)
def test_update_block__at_once_moves_each_object_as_if_no_other_had_moved(problem):
    labels, offsets, Y, rates = problem
    sums = agreement_sums(labels, offsets, Y, rates_of(rates, offsets))
    _, updated = update_block(sums, offsets, 0.0, 1.0, labels, Y, at_once=True)
    for j in range(len(Y)):
        _, alone = update_block(sums, offsets, 0.0, 1.0, labels[j : j + 1], Y[j : j + 1], at_once=True)
        np.testing.assert_array_equal(alone[0], updated[j])


def wide_problem(n_objects=40, n_partitions=3000, n_clusters=4):
    """Return labels of so many partitions that tables exceed the cache, offsets, memberships and rates."""
    ensemble, _ = planted_ensemble(n_objects, n_partitions, n_clusters=(2, 8), missing=0.3)
    labels, offsets = np.array(ensemble.read(0, n_objects)), ensemble.offsets
    labels[7] = -1
    rng = np.random.default_rng(0)
    Y = rng.dirichlet(np.ones(n_clusters), n_objects).astype(np.float32)
    clusters = Y.argmax(axis=1)
    rates = block_rates(labels, offsets, clusters, n_clusters, rarity_of(labels, offsets, 0.5), INFORMED)
    return labels, offsets, Y, rates


@pytest.mark.filterwarnings("ignore::bigcons.errors.SuspiciousLabelsWarning")
def test_update_block__by_slices_of_the_partitions_is_that_of_each_object_alone():
    labels, offsets, Y, rates = wide_problem()
    assert rows_together(len(labels), offsets, 8, 16) > 1
    sums = agreement_sums(labels, offsets, Y, rates)
    change, updated = update_block(sums, offsets, 0.0, 1.0, labels, Y, at_once=True)
    total = None
    for j in range(len(Y)):
        row = slice(j, j + 1)
        assert rows_together(1, offsets, 8, 16) == 1
        part, alone = update_block(sums, offsets, 0.0, 1.0, labels[row], Y[row], at_once=True)
        np.testing.assert_array_equal(alone[0], updated[j])
        total = part if total is None else add_changes(total, part)
    assert updated[7].tolist() == [0.25] * 4
    assert (change.n_moved, change.gap) == (total.n_moved, total.gap)
    np.testing.assert_allclose(change.S, total.S, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(change.T, total.T, rtol=1e-12, atol=1e-12)
    reached, expected = apply_change(sums, change), agreement_sums(labels, offsets, updated, rates)
    assert reached.objective == pytest.approx(expected.objective, rel=1e-9)


@pytest.mark.filterwarnings("ignore::bigcons.errors.SuspiciousLabelsWarning")
def test_agreement_sums__by_slices_of_the_partitions_are_those_of_each_object():
    labels, offsets, Y, rates = wide_problem()
    sums, total = agreement_sums(labels, offsets, Y, rates), None
    for j in range(len(Y)):
        part = agreement_sums(labels[j : j + 1], offsets, Y[j : j + 1], rates)
        total = part if total is None else add_sums(total, part)
    np.testing.assert_allclose(sums.S, total.S, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sums.T, total.T, rtol=1e-12, atol=1e-12)
    assert sums.squares == pytest.approx(total.squares, rel=1e-9)
    assert sums.quartics == pytest.approx(total.quartics, rel=1e-9)


@pytest.mark.filterwarnings("ignore::bigcons.errors.SuspiciousLabelsWarning")
def test_pcc__of_very_many_partitions_descends():
    ensemble, classes = planted_ensemble(60, 3000, n_clusters=(2, 8), missing=0.3)
    model = PCC(6, random_state=0, prune=None, tol=1e-6, max_iter=40).fit(ensemble)
    history = model.history_["objective"]
    assert (np.diff(history) <= 1e-9 * abs(history[0])).all()
    assert model.converged_
    assert adjusted_rand(classes, model.labels_) > 0.8


@pytest.mark.filterwarnings("ignore::bigcons.errors.SuspiciousLabelsWarning")
def test_solved_from__of_very_many_partitions_has_the_rates_and_sums_of_all():
    labels, offsets, _, _ = wide_problem(60)
    clusters = np.where((labels >= 0).any(axis=1), np.arange(60) % 4, -1)
    omega = rarity_of(labels, offsets, 0.5)
    found = solved_from(Clusters(clusters, []), labels, offsets, 4, omega, 0, INFORMED)
    expected = agreement_sums(labels, offsets, found.memberships, found.sums.weights)
    np.testing.assert_array_equal(found.sums.S, expected.S)
    np.testing.assert_array_equal(
        found.sums.weights.w, block_rates(labels, offsets, clusters, 4, omega, INFORMED).w
    )


@pytest.mark.filterwarnings("ignore::bigcons.errors.SuspiciousLabelsWarning")
def test_rates__of_partitions_are_those_of_these_alone():
    labels, offsets, _, rates = wide_problem(n_partitions=20)
    chosen = np.array([1, 4, 5, 19])
    few, few_offsets = of_partitions(labels, offsets, chosen)
    found = rates.of_partitions(chosen, offsets)
    assert few_offsets[-1] == found.omega.size
    for part, whole in ((found.a, rates.a), (found.d, rates.d), (found.w, rates.w)):
        np.testing.assert_array_equal(part, whole[chosen])
    kept = np.concatenate([np.arange(offsets[u], offsets[u + 1]) for u in chosen])
    np.testing.assert_allclose(found.base_clusters[: kept.size], rates.base_clusters[kept])
    assert few.shape[1] == 4


@given(problems())
@settings(max_examples=30)
def test_place_block__places_an_object_as_an_update_would(problem):
    labels, offsets, Y, rates = problem
    weights = rates_of(rates, offsets)
    known = agreement_sums(labels[1:], offsets, np.ascontiguousarray(Y[1:]), weights)
    placed = np.empty((1, Y.shape[1]), np.float32)
    own = place_block(known, labels[:1], offsets, placed)
    if (labels[0] >= 0).any():
        everyone = np.vstack([placed, Y[1:]])
        gradient = naive.gradient(labels, offsets, everyone.astype(np.float64), *rates)[0]
        assert gradient[placed[0] > 0].max() - gradient.min() <= 1e-4 * max(1.0, np.abs(gradient).max())
    assert own.squares == pytest.approx(agreement_sums(labels[:1], offsets, placed, weights).squares, **EXACT)


@given(problems())
@settings(max_examples=30)
def test_pair_sums__are_those_of_all_pairs(problem):
    labels, offsets, Y, (*_, omega, _theta) = problem
    found = pair_sums(labels, offsets, Y, omega)
    expected = naive.pair_sums(labels, offsets, Y.astype(np.float64), omega)
    for name, sums, values in zip(PairSums._fields, found, expected, strict=True):
        np.testing.assert_allclose(sums, values, rtol=1e-9, atol=1e-9, err_msg=name)


@given(problems())
@settings(max_examples=30)
def test_least_squares__has_the_least_residual(problem):
    labels, offsets, Y, (*_, omega, _theta) = problem
    sums = pair_sums(labels, offsets, Y, omega)
    a, d = least_squares(sums)
    least = sums.residual(a, d)
    assert (a >= 0).all()
    clear = sums.p2 - sums.p**2 / np.maximum(sums.n, 1) > 1e-3
    for other in ((a + 0.01, d), (np.maximum(a - 0.01, 0), d), (a, d * 1.01), (a + 0.01, d * 0.99)):
        assert (sums.residual(*other) >= least - 1e-9)[clear & (d > 1e-6)].all()


@given(problems())
@settings(max_examples=30)
def test_by_moments__are_mean_joins_within_and_between(problem):
    labels, offsets, Y, (*_, omega, _theta) = problem
    a, d = by_moments(labels, offsets, Y, omega, None)
    winners = Y.argmax(axis=1)
    within, between = ([[] for _ in a] for _ in range(2))
    for u, i, j, J in naive.joins(labels, omega, offsets):
        (within if winners[i] == winners[j] else between)[u].append(J)
    for u in range(a.size):
        assert a[u] == pytest.approx(np.mean(between[u]) if between[u] else 0.0)
        if within[u] and np.mean(within[u]) > a[u]:
            assert a[u] + d[u] == pytest.approx(np.mean(within[u]))


def test_block_rates__are_mean_joins_of_any_two_clusters(monkeypatch):
    monkeypatch.setattr(block_model, "PRIOR_PAIRS", 0.0)
    labels = planted_ensemble(60, 8, random_state=3)[0].read(0, 60)
    offsets, winners = np.arange(9) * 10, np.random.default_rng(0).integers(3, size=60)
    omega = rarity_of(labels, offsets, 0.5)
    rates = block_rates(labels, offsets, winners, 3, omega, EQUAL)
    joined = [[[] for _ in range(3)] for _ in range(3)]
    for _, i, j, J in naive.joins(labels, omega, offsets):
        for k, h in ((winners[i], winners[j]), (winners[j], winners[i])):
            joined[k][h].append(J)
    mean = np.array([[np.mean(of_both) for of_both in row] for row in joined])
    found = rates.a[0] + rates.d[0] * rates.theta
    np.testing.assert_allclose(found, np.maximum(mean, rates.a[0]), rtol=1e-9)
    own = block_rates(labels, offsets, winners, 3, omega, OWN)
    assert (own.theta >= 0).all()
    assert np.ptp(own.a) > 0
    assert own.w.mean() == pytest.approx(1)


def test_block_rates__weigh_partitions_by_what_they_tell_of_the_clusters():
    draw = np.random.default_rng(0)
    ensemble, truth = planted_ensemble(
        600, 8, n_clusters=(2, 10), noise=(0.1, 0.8), missing=0.3, random_state=3
    )
    labels = np.column_stack([ensemble.read(0, 600), draw.integers(4, size=(600, 2))]).astype(np.int16)
    offsets, omega = np.arange(11) * 10, np.ones(100)
    rates = block_rates(labels, offsets, truth, 6, omega, INFORMED)
    told = [naive.share_told(labels[:, u], truth) for u in range(10)]
    w = np.array([share / (share + HALF_WEIGHT) for share in told])
    np.testing.assert_allclose(rates.w, w / w.mean(), rtol=1e-9)
    assert rates.w[:8].min() > 0.5
    assert rates.w[8:].max() < 0.2
    assert np.ptp(rates.a) == np.ptp(rates.d) == 0.0
    within, between = np.zeros((2, 2))
    for u, i, j, J in naive.joins(labels, omega, offsets):
        (within if truth[i] == truth[j] else between)[:] += rates.w[u] * np.array([J, 1.0])
    assert rates.a[0] == pytest.approx(between[0] / between[1])
    assert rates.a[0] + rates.d[0] == pytest.approx(within[0] / within[1])


@given(problems())
@settings(max_examples=30)
def test_join_rates__count_joins_of_pairs_by_their_probability(problem):
    labels, offsets, Y, rates = problem
    hits, false_joins = join_rates(agreement_sums(labels, offsets, Y, rates_of(rates, offsets)), offsets)
    P = Y.astype(np.float64) @ Y.T.astype(np.float64)
    counts = np.zeros((4, hits.size))
    for u, i, j, J in naive.joins(labels, np.ones(offsets[-1]), offsets):
        counts[:, u] += [J * P[i, j], P[i, j], J * (1 - P[i, j]), 1 - P[i, j]]
    joined, together, joined_apart, apart = 2 * counts  # each pair in both orders
    np.testing.assert_allclose(hits, joined / np.maximum(together, 1), atol=1e-5)
    np.testing.assert_allclose(false_joins, joined_apart / np.maximum(apart, 1), atol=1e-5)


def test_rarity_of__is_a_power_of_the_inverse_share():
    labels = np.array([[0, 0], [0, -1], [0, 1], [1, -1]])
    offsets = np.array([0, 2, 5])
    np.testing.assert_allclose(rarity_of(labels, offsets, 0.5), np.sqrt([4 / 3, 4, 2, 2, 2]))
    assert (rarity_of(labels, offsets, 0.0) == 1.0).all()


def test_estimated__of_common_rates_are_the_same_for_all_partitions():
    labels = planted_ensemble(80, 12, random_state=1)[0].read(0, 80)
    offsets = np.arange(13) * 10
    Y = np.random.default_rng(0).dirichlet(np.ones(4), 80).astype(np.float32)
    omega = rarity_of(labels, offsets, 1.0)
    for rule in ("least-squares", "moments"):
        start = estimated(labels, offsets, Y, omega, Calibration(rule, 1.0, True), None, 0)
        rates = estimated(labels, offsets, Y, omega, Calibration(rule, 1.0, True), start, MOMENTS_AFTER)
        assert np.ptp(rates.a) == np.ptp(rates.d) == np.ptp(rates.w) == 0
        own = estimated(labels, offsets, Y, omega, Calibration(rule, 1.0, False), start, MOMENTS_AFTER)
        assert np.ptp(own.a) > 0
        assert own.w.mean() == pytest.approx(1)


def test_spectral_start__finds_classes_that_the_labels_show():
    truth = np.repeat([0, 1, 2], [10, 20, 30])
    labels = np.stack([truth, truth // 2, (truth + 1) // 2], axis=1)
    labels[5] = -1
    found = spectral_start(labels, np.array([0, 3, 5, 7]), 3, 4, 0)
    Y, labeled = memberships_of(found.of, 3), np.arange(60) != 5
    assert adjusted_rand(truth[labeled], Y[labeled].argmax(axis=1)) == 1
    np.testing.assert_allclose(Y[5], 1 / 3)
    np.testing.assert_allclose(Y.sum(axis=1), 1, atol=1e-6)
    assert len(found.distances) == 4


@pytest.fixture(scope="module")
def unequal():
    """One class of 80 %, cut in pieces by every partition, and four of 5 %: labels, offsets and classes."""
    rng = np.random.default_rng(4)
    place = np.concatenate([rng.uniform(0, 10, 640), np.repeat([14.0, 18.0, 22.0, 26.0], 40)])
    place[640:] += rng.uniform(-0.5, 0.5, 160)
    labels = np.stack(
        [np.searchsorted(np.sort(rng.uniform(-1, 27, rng.integers(5, 14))), place) for _ in range(40)], axis=1
    )
    return labels, np.arange(41) * 14, np.repeat(np.arange(5), [640, 40, 40, 40, 40])


def test_block_start__joins_the_parts_of_a_large_class(unequal):
    labels, offsets, truth = unequal
    spectral = spectral_start(labels, offsets, 5, 8, 0)
    found = block_start(labels, offsets, 5, 8, 0, 0.5)
    assert found.kind == LINKED
    assert found.is_kept
    assert adjusted_rand(truth, spectral.of) < 0.6
    assert adjusted_rand(truth, found.of) > 0.95


def test_fit__keeps_classes_of_very_unequal_size(unequal):
    labels, _, truth = unequal
    labels = np.where(np.random.default_rng(0).random(labels.shape) < 0.2, -1, labels)
    model = PCC(5, random_state=0).fit(labels)
    assert adjusted_rand(truth, model.labels_) > 0.95
    assert (model.predict(labels) == model.labels_).mean() > 0.99


def test_solved_from__keeps_small_classes_of_a_start_to_be_kept():
    rng = np.random.default_rng(4)
    place = np.concatenate([rng.uniform(0, 10, 760), np.repeat([12.0, 14.5, 17.0, 19.5], 10)])
    place[760:] += rng.uniform(-0.25, 0.25, 40)
    cuts = [np.sort(rng.uniform(-1, place.max() + 1, rng.integers(3, 8))) for _ in range(40)]
    labels = np.stack([np.searchsorted(each, place) for each in cuts], axis=1)
    truth, offsets = np.repeat(np.arange(5), [760, 10, 10, 10, 10]), np.arange(41) * 8
    asked = labels, offsets, 5, rarity_of(labels, offsets, 0.5), 0
    plain = solved_from(Clusters(truth, []), *asked, OWN).memberships.argmax(axis=1)
    kept = solved_from(Clusters(truth, [], is_kept=True), *asked, OWN).memberships.argmax(axis=1)
    assert adjusted_rand(truth, kept) > adjusted_rand(truth, plain) + 0.2


def test_block_start__is_spectral_where_classes_are_equal_or_partitions_few(coarse, unequal):
    ensemble, _ = coarse
    assert block_start(ensemble.read(0, 1200), ensemble.offsets, 8, 2, 0, 0.5).kind != LINKED
    labels, offsets, _ = unequal
    assert block_start(labels[:, :7], offsets[:8], 5, 2, 0, 0.5).kind == SPECTRAL
    assert block_start(labels, offsets, 1, 2, 0, 0.5).kind == SPECTRAL


def test_spherical_kmeans__leaves_the_embedding_as_it_is(unequal):
    labels, offsets, _ = unequal
    found = embedded(labels, offsets, 5)
    before = found.rows.copy()
    assert found.kmeans(found.rows.shape[1], 5, 1, 0, spherical=True).kind == SPHERICAL
    np.testing.assert_array_equal(found.rows, before)


def test_block_start__is_spherical_where_random_labels_make_a_cluster_of_their_own():
    ensemble, truth = planted_ensemble(1000, 60, shares=(0.0625,) * 16, n_clusters=(2, 20), random_state=0)
    labels, offsets = ensemble.read(0, 1000), ensemble.offsets
    found = block_start(labels, offsets, 16, 2, 0, 0.5)
    assert found.kind == SPHERICAL
    assert (
        adjusted_rand(truth, found.of)
        > adjusted_rand(truth, spectral_start(labels, offsets, 16, 2, 0).of) + 0.1
    )


def test_linked_clusters__leave_unlabeled_objects_out_and_need_groups(unequal):
    labels, offsets, truth = unequal
    labels = labels.copy()
    labels[[0, 700]] = -1
    found = linked_clusters(embedded(labels, offsets, 10), labels, offsets, 5, 2, 0, 0.5)
    assert set(np.flatnonzero(found.of < 0)) == {0, 700}
    assert adjusted_rand(truth[found.of >= 0], found.of[found.of >= 0]) > 0.95
    assert linked_clusters(embedded(labels[:20], offsets, 10), labels[:20], offsets, 5, 2, 0, 0.5) is None


def test_raised__makes_clusters_below_an_equal_share_dearer(unequal):
    labels, offsets, truth = unequal
    rates = block_rates(labels, offsets, truth, 5, rarity_of(labels, offsets, 0.5), OWN)
    for power, dearer in ((0.5, 2), (1.0, 4)):
        factor = np.diag(raised(rates, truth, offsets, power).theta) / np.diag(rates.theta)
        np.testing.assert_allclose(factor, [1, dearer, dearer, dearer, dearer])


@pytest.fixture(scope="module")
def coarse():
    """Eight classes by partitions of two to four clusters, which join objects of different classes."""
    return planted_ensemble(
        1200, 40, shares=(0.125,) * 8, n_clusters=(2, 4), noise=(0.0, 0.2), missing=0.3, random_state=2
    )


@pytest.mark.parametrize("rule", ["least-squares", "moments", "block-model"])
def test_fit__finds_classes_finer_than_the_partitions(coarse, rule):
    ensemble, truth = coarse
    with pytest.warns(UndersegmentationWarning):
        plain = PCC(8, coassociation="paper", random_state=0).fit(ensemble)
    model = PCC(8, coassociation=rule, rarity=0.0, random_state=0).fit(ensemble)
    assert model.converged_
    assert adjusted_rand(truth, model.labels_) > adjusted_rand(truth, plain.labels_) + 0.02
    assert (model.false_join_rates_ >= (0.0 if rule == "least-squares" else 0.1)).all()
    assert (model.hit_rates_ > model.false_join_rates_).all()
    objective = np.array(model.history_["objective"])
    assert (np.diff(objective) <= 1e-9 * np.abs(objective[0])).all()
    labels, Y = ensemble.read(0, 1200), model.memberships_
    rates = model._placing.sums.weights._replace(theta=getattr(model, "affinities_", None))
    assert model.objective_ == pytest.approx(agreement_sums(labels, ensemble.offsets, Y, rates).objective)
    assert (model.predict(ensemble) == model.labels_).mean() > 0.99


@pytest.mark.parametrize(
    ("asked", "model"),
    [
        ({}, BEST_MODEL),
        ({"rarity": 0.5, "prune": 0.05}, BEST_MODEL),
        ({"coassociation": "least-squares"}, "least-squares"),
        ({"coassociation": "paper"}, "paper"),
        ({"weights": np.ones(6)}, "paper"),
        ({"pairs": 0.5}, "moments"),
        ({"pairs": "dense"}, "moments"),
        ({"pairs": 0.5, "divergence": "kl"}, "paper"),
        ({"pairs": 0.5, "init": "uniform"}, "paper"),
        ({"pairs": 0.5, "max_iter": "paper"}, "paper"),
        ({"divergence": "kl"}, "paper"),
        ({"soft": True}, "paper"),
    ],
    ids=str,
)
def test_fit__calibrates_by_default_where_it_can(asked, model):
    labels = planted_ensemble(60, 6, missing=0.0, random_state=0)[0].read(0, 60)
    soft = asked.pop("soft", False)
    ensemble = Ensemble.from_memberships([np.eye(12)[x] for x in labels.T]) if soft else labels
    fitted = PCC(3, random_state=0, tol=0.1, **asked).fit(ensemble)
    assert fitted.coassociation_ == fit_results(fitted)["coassociation"] == model
    assert hasattr(fitted, "hit_rates_") == (model != "paper")


def test_fit__is_resumed_with_the_same_bits(coarse, tmp_path, monkeypatch):
    ensemble, _ = coarse
    asked = {"n_clusters": 8, "prune": 0.05, "random_state": 0}
    expected = PCC(**asked, init="dirichlet").fit(ensemble)
    assert expected.n_passes_ > 3

    def stop(self, run, at, total, step=AllPairs.step):
        if len(at.records) == 2:
            assert at.state.ahead is not None
            raise KeyboardInterrupt
        return step(self, run, at, total)

    with monkeypatch.context() as patch:
        patch.setattr(AllPairs, "step", stop)
        with pytest.raises(KeyboardInterrupt):
            PCC(**asked, init="dirichlet").fit(ensemble, out=tmp_path / "c.zarr")
    resumed = PCC(**asked, init="dirichlet").fit(ensemble, out=tmp_path / "c.zarr")
    np.testing.assert_array_equal(np.asarray(resumed.memberships_), expected.memberships_)
    assert resumed.history_["objective"] == expected.history_["objective"]


def test_fit__ends_soon_where_long_passes_lead():
    ensemble, _ = planted_ensemble(
        6000, 30, shares=(0.125,) * 8, n_clusters=(4, 12), noise=(0.0, 0.3), missing=0.5, random_state=3
    )
    soon = PCC(3, random_state=0).fit(ensemble)
    long = PCC(3, random_state=0, tol=1e-6).fit(ensemble)
    assert soon.converged_
    assert soon.n_passes_ < long.n_passes_
    assert (soon.labels_ != long.labels_).mean() <= 1e-4
    assert np.abs(soon.memberships_ - long.memberships_).max() <= 2 * CHANGE_PER_TOL * soon.tol
    for model in (soon, long):
        objective = np.array(model.history_["objective"])
        assert (np.diff(objective) <= 1e-10 * np.abs(objective[0])).all()


@pytest.mark.parametrize(
    ("changes", "remaining"),
    [
        ((0.4, 0.2, 0.1), 0.1),
        ((0.32, 0.04, 0.08), 0.08),
        ((0.1, 0.8, 0.4, 0.2, 0.1), 0.1),
        ((9.0, 0.4, 0.04, 0.004), 0.004 / 3),
        ((0.1, 0.2), np.inf),
        ((0.1,), np.inf),
        ((0.0, 0.1), np.inf),
        ((0.0, 0.0), 0.0),
    ],
)
def test_remaining_change__is_that_of_a_geometric_series(changes, remaining):
    records = [{"change": change, "step_length": 1.0} for change in changes]
    assert remaining_change(records) == pytest.approx(remaining)
    undone, shortened = {"change": 0.0, "step_length": 0.0}, {**records[-1], "step_length": 0.5}
    shortened["change"] *= 0.5
    assert remaining_change([*records[:-1], undone, shortened]) == pytest.approx(remaining)


def test_passes__lead_to_the_fixed_point_of_a_linear_map():
    draw = np.random.default_rng(0)
    basis, solution = np.linalg.qr(draw.normal(size=(6, 6)))[0], draw.normal(size=(6, 2))
    factors = basis @ np.diag([-0.9, 0.9, 0.9, -0.9, -0.9, 0.9]) @ basis.T
    T = np.zeros((2, 3))

    def sums(S):
        return AgreementSums(n_clusters=2, S=S, T=T + S[:1, :1], squares=0.0, quartics=0.0, weights=None)

    at = Passes(sums(np.zeros((6, 2))))
    for _ in range(MOST_PAST):
        given = at.sums if at.ahead is None else at.ahead
        found = sums(solution + factors @ (given.S - solution))
        at = at.after(found, found, leads=True)
    np.testing.assert_allclose(at.ahead.S, solution, atol=1e-6)
    np.testing.assert_allclose(at.ahead.T, T + solution[0, 0], atol=1e-6)
    assert len(at.past) == MOST_PAST
    assert at.after(found, found, leads=False).ahead is None


def test_passes__go_halfway_after_a_single_one():
    given = AgreementSums(2, np.ones((6, 2)), np.ones((2, 3)), 0.0, 0.0, None)
    found = given._replace(S=given.S + 1.0, T=given.T - 1.0, squares=1.0)
    at = Passes(given).after(found, found, leads=True)
    assert at.sums is found
    np.testing.assert_array_equal(at.ahead.S, given.S + 0.5)
    np.testing.assert_array_equal(at.ahead.T, given.T - 0.5)


def test_passes__that_change_nothing_lead_nowhere():
    still = AgreementSums(2, np.ones((6, 2)), np.ones((2, 3)), 0.0, 0.0, None)
    at = Passes(still).after(still, still, leads=True).after(still, still, leads=True)
    assert at.ahead is None


@pytest.mark.parametrize(
    ("n_objects", "n_partitions", "expected"),
    [(131_071, 2, 0), (131_072, 2, 8192), (10**7, 2, 262_144), (10**7, 1000, 67_108), (10**7, 10_000, 0)],
)
def test_larger_rows__are_a_sixteenth_within_bounds(n_objects, n_partitions, expected):
    assert larger_rows(SimpleNamespace(n_objects=n_objects, row_bytes=n_partitions)) == expected


def test_fit__goes_on_with_a_larger_sample_first(monkeypatch, tmp_path):
    ensemble, _ = planted_ensemble(
        24_000, 30, shares=(0.125,) * 8, n_clusters=(4, 12), noise=(0.0, 0.3), missing=0.5, random_state=3
    )
    asked = {"n_clusters": 8, "random_state": 0, "tol": 1e-6, "max_iter": 200}
    without = PCC(**asked).fit(ensemble)
    monkeypatch.setattr("bigcons.methods.pcc.choices.FEWEST_LARGER", 100)
    monkeypatch.setattr("bigcons.methods.pcc.choices.LARGER_SHARE", 2)
    found = PCC(**asked).fit(ensemble)
    assert found.history_["change"][0] < 0.5 * without.history_["change"][0]
    assert np.abs(found.memberships_ - without.memberships_).max() < 1e-3
    for other in ({"client": "serial"}, {"out": tmp_path / "c.zarr"}):
        again = PCC(**asked, **other).fit(ensemble)
        np.testing.assert_array_equal(np.asarray(again.memberships_), found.memberships_)
        assert again.history_["objective"] == found.history_["objective"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda ahead: ahead._replace(S=np.ascontiguousarray(ahead.S[:, ::-1])),
        lambda ahead: ahead._replace(T=-50.0 * ahead.T),  # of no memberships
        lambda ahead: ahead._replace(S=np.full_like(ahead.S, np.nan)),
    ],
    ids=["wrong", "negative", "nan"],
)
def test_passes__by_sums_that_would_raise_the_objective_are_not_taken(spoil, coarse, monkeypatch):
    ensemble, _ = coarse
    after = Passes.after

    def too_far(self, reached, found, *, leads):
        state = after(self, reached, found, leads=leads)
        if state.ahead is None:
            return state
        return state._replace(ahead=spoil(state.ahead))

    monkeypatch.setattr(Passes, "after", too_far)
    model = PCC(4, random_state=0, init="dirichlet").fit(ensemble)
    objective, steps = np.array(model.history_["objective"]), np.array(model.history_["step_length"])
    assert (steps == 0.0).any()
    assert (np.diff(objective)[steps[1:] == 0.0] == 0.0).all()
    assert (np.diff(objective) <= 1e-12 * np.abs(objective[0])).all()
    labels = ensemble.read(0, 1200)
    rates = model._placing.sums.weights._replace(theta=model.affinities_)
    again = agreement_sums(labels, ensemble.offsets, model.memberships_, rates)
    assert model.objective_ == pytest.approx(again.objective, rel=1e-6)


def test_passes__that_lead_nowhere_become_rare():
    n = 3000  # in base clusters of four
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fine labels are suspicious, and 25 passes too few
        ensemble, _ = planted_ensemble(n, 20, shares=[0.125] * 8, n_clusters=(n // 4, n // 4), random_state=0)
        model = PCC(8, coassociation="moments", max_iter=25, random_state=0, prune=None).fit(ensemble)
    steps = np.array(model.history_["step_length"])
    assert (steps == 0.0).sum() > MOST_UNDONE
    windows = np.lib.stride_tricks.sliding_window_view(steps == 0.0, LATE_PASSES)
    assert windows.sum(axis=1).max() <= MOST_UNDONE
    assert (np.diff(model.history_["objective"]) <= 0.0).all()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"coassociation": "exact"}, "coassociation='exact' is unknown"),
        ({"coassociation": "paper", "rarity": 1.0}, "rarity=1 with the co-association of the paper"),
        ({"weights": [1, 1], "common_rates": True}, "common_rates=True with the co-association of the paper"),
        ({"coassociation": "moments", "rarity": -1}, "rarity=-1 is out of range"),
        ({"common_rates": 1}, "common_rates=1 is not a boolean"),
        (
            {"coassociation": "block-model", "divergence": "kl"},
            "'block-model' with pairs='all'",
        ),
        (
            {"coassociation": "block-model", "pairs": "dense"},
            "'block-model' with pairs='dense'",
        ),
        ({"coassociation": "moments", "weights": "entropy"}, "weights with coassociation='moments'"),
    ],
)
def test_fit__refuses_what_it_cannot_calibrate(asked, message):
    with pytest.raises(InvalidInputError, match=message):
        PCC(2, **asked).fit(np.arange(12).reshape(6, 2) % 3)


def test_fit__starts_from_some_of_many_partitions(monkeypatch):
    monkeypatch.setattr(block_model, "MOST_PARTITIONS", 30)
    ensemble, classes = planted_ensemble(300, 100, shares=(0.4, 0.3, 0.3), missing=0.5, random_state=1)
    some, offsets = block_model.some_partitions(ensemble.read(0, 300), ensemble.offsets)
    assert some.shape == (300, 30)
    assert (some < np.diff(offsets)).all()
    assert matching_accuracy(classes, PCC(3, random_state=0).fit(ensemble).labels_) > 0.95
