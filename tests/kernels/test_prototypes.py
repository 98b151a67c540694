"""All-pairs PCC by prototypes against the definition of the grouped objective, and against dense PCC."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons.coassociation.grouped import add_tables, choose_centers, tables_of_block
from bigcons.datasets import planted_ensemble
from bigcons.divergences import Divergence, resolve_divergence
from bigcons.kernels.objective import over_votes
from bigcons.methods import PCC
from bigcons.methods.pcc.all_pairs import dirichlet
from bigcons.methods.pcc.prototypes import (
    Evaluation,
    approximation_error,
    evaluate_block,
    place_block,
    update_block,
)
from bigcons.metrics import adjusted_rand, pcc_objective
from bigcons.solving.passes import MemoryBlocks
from bigcons.storage.checkpoint import Snapshots
from bigcons.stores.ensemble import Ensemble
from tests.naive import divergences as naive_divergences
from tests.naive import pcc as naive_pcc
from tests.naive import prototypes as naive
from tests.support.pcc import from_sample, solve_all
from tests.support.pcc import given as given_start
from tests.support.strategies import label_matrices

NO_ROWS = np.arange(0)

FAMILIES = {
    "l2": naive_divergences.squared(),
    "kl": naive_divergences.entropy(),
}


def value_of(name):
    return lambda x, p: naive_divergences.value(FAMILIES[name], x, p)


def slope_of(name):
    return lambda x, p: naive_divergences.slope(FAMILIES[name], x, p)


@st.composite
def problems(draw):
    """Draw labels, offsets, and memberships inside the simplex that float32 holds exactly enough."""
    labels = draw(label_matrices(min_objects=2, max_objects=8, max_clusters=3))
    seed, n_clusters = draw(st.integers(0, 2**16)), draw(st.integers(2, 4))
    offsets = np.arange(labels.shape[1] + 1) * 3
    rows = np.random.default_rng(seed).dirichlet(np.ones(n_clusters), len(labels))
    return labels, offsets, (0.95 * rows + 0.05 / n_clusters).astype(np.float32)


def exactly(memberships):
    rows = memberships.astype(np.float64)
    return rows / rows.sum(axis=1, keepdims=True)


@given(problems(), st.integers(1, 5))
def test_tables_of_block__counts_by_group(problem, n_groups):
    labels, offsets, Y = problem
    centers = choose_centers(Y, n_groups)
    tables = tables_of_block(centers, offsets, labels, Y)
    groups = np.array([naive.group_of(centers, y) for y in exactly(Y)])
    labeled = (labels >= 0).any(axis=1)
    for a in range(len(centers)):
        mine = (groups == a) & labeled
        assert tables.sizes[a] == mine.sum()
        np.testing.assert_allclose(tables.sums[a], exactly(Y)[mine].sum(axis=0), atol=1e-12)
        assert (tables.seen[:, a] == (labels[mine] >= 0).sum(axis=0)).all()
        for u, k in np.ndindex(labels.shape[1], 3):
            assert tables.count[offsets[u] + k, a] == (labels[mine, u] == k).sum()


@given(problems(), st.integers(1, 5), st.sampled_from(sorted(FAMILIES)))
@settings(max_examples=20)
def test_evaluate_block__is_the_grouped_objective(problem, n_groups, name):
    labels, offsets, Y = problem
    centers = choose_centers(Y, n_groups)
    tables = tables_of_block(centers, offsets, labels, Y)
    found = evaluate_block(tables, labels, offsets, Y, NO_ROWS, resolve_divergence(name))
    rows = exactly(Y)
    expected = naive.objective(labels, rows, centers, value_of(name))
    np.testing.assert_allclose(found.objective, expected, rtol=1e-10, atol=1e-10)
    gaps = [
        naive.kkt_gap(terms, rows[j], slope_of(name))
        for j in range(len(rows))
        if (terms := naive.terms(labels, rows, centers, j))
    ]
    np.testing.assert_allclose(found.gap, max(gaps, default=0.0), rtol=1e-8, atol=1e-8)


@given(problems(), st.sampled_from(sorted(FAMILIES)))
@settings(max_examples=20)
def test_evaluate_block__with_a_prototype_for_every_membership_is_exact(problem, name):
    labels, offsets, Y = problem
    centers = np.unique(exactly(Y), axis=0)
    pairs = naive_pcc.all_pairs(labels)
    rows = exactly(Y)
    tables = tables_of_block(centers, offsets, labels, Y)
    found = evaluate_block(tables, labels, offsets, Y, np.arange(len(Y)), resolve_divergence(name))
    expected = naive.exact_objective(pairs, rows, value_of(name))
    np.testing.assert_allclose(found.objective, expected, rtol=1e-10, atol=1e-10)
    assert approximation_error(centers, offsets, found, resolve_divergence(name)) < 1e-6
    # as a function of one object, too: the difference to the full objective does not depend on it
    terms = naive.terms(labels, rows, centers, 0)
    others = [pair for pair in pairs if 0 in pair[:2]]
    for y in np.random.default_rng(0).dirichlet(np.ones(rows.shape[1]), 3):
        moved = np.vstack([y[np.newaxis], rows[1:]])
        full = naive_pcc.objective(others, moved, value_of(name)) - naive_pcc.objective(
            others, rows, value_of(name)
        )
        grouped = naive.cost(terms, y, value_of(name)) - naive.cost(terms, rows[0], value_of(name))
        np.testing.assert_allclose(grouped, full, rtol=1e-9, atol=1e-9)


@given(problems(), st.integers(1, 5), st.sampled_from(sorted(FAMILIES)))
@settings(max_examples=20)
def test_update_block__leaves_each_object_at_its_optimum(problem, n_groups, name):
    labels, offsets, Y = problem
    centers = choose_centers(Y, n_groups)
    tables = tables_of_block(centers, offsets, labels, Y)
    rows = exactly(Y)
    for j in range(len(Y)):
        _, updated = update_block(
            tables, offsets, -1.0, resolve_divergence(name), labels[j : j + 1], Y[j : j + 1]
        )
        y = exactly(updated)[0]
        assert (y >= 0).all()
        terms = naive.terms(labels, rows, centers, j)
        before, after = (naive.cost(terms, row, value_of(name)) for row in (rows[j], y))
        weight = sum(n_seen for _, n_seen, _ in terms)
        assert after <= before + 1e-6 * weight
        for k in range(len(y)):  # no other membership is better, towards any vertex
            for share in (0.01, 0.3):
                other = (1 - share) * y + share * np.eye(len(y))[k]
                assert naive.cost(terms, other, value_of(name)) >= after - 1e-5 * weight


@given(problems(), st.integers(1, 4))
def test_update_block__returns_what_it_changed(problem, n_groups):
    labels, offsets, Y = problem
    centers = choose_centers(Y, n_groups)
    before = tables_of_block(centers, offsets, labels, Y)
    change, updated = update_block(before, offsets, -1.0, resolve_divergence("kl"), labels, Y)
    after = add_tables(before, change.tables)
    for found, expected in zip(after, tables_of_block(centers, offsets, labels, updated), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-10)
    labeled = (labels >= 0).any(axis=1)
    assert change.n_moved == (updated != Y)[labeled].any(axis=1).sum()


@given(problems(), st.integers(1, 4))
def test_update_block__leaves_alone_what_is_below_the_threshold(problem, n_groups):
    labels, offsets, Y = problem
    tables = tables_of_block(choose_centers(Y, n_groups), offsets, labels, Y)
    change, updated = update_block(tables, offsets, 1e300, resolve_divergence("kl"), labels, Y)
    labeled = (labels >= 0).any(axis=1)
    assert change.n_moved == 0
    assert (updated[labeled] == Y[labeled]).all()
    assert not any(table.any() for table in change.tables[1:])


@given(problems())
def test_place_block__is_a_fixed_point_on_its_tables(problem):
    labels, offsets, Y = problem
    tables = tables_of_block(choose_centers(Y, 3), offsets, labels, Y)
    placed = place_block(tables, labels, offsets, resolve_divergence("kl"))
    assert (placed >= 0).all()
    np.testing.assert_allclose(placed.sum(axis=1), 1.0, atol=1e-6)


@given(problems(), st.integers(1, 8))
def test_choose_centers__are_distinct_and_in_the_simplex(problem, n_groups):
    _, _, Y = problem
    centers = choose_centers(Y, n_groups)
    assert 1 <= len(centers) <= min(n_groups, len(np.unique(Y, axis=0)))
    np.testing.assert_allclose(centers.sum(axis=1), 1.0, atol=1e-6)
    if n_groups >= len(Y):
        np.testing.assert_allclose(np.unique(centers, axis=0), np.unique(Y, axis=0), atol=1e-6)


def test_approximation_error__falls_with_more_prototypes():
    ensemble, _ = planted_ensemble(300, 40, missing=0.5, random_state=2)
    labels = ensemble.read(0, 300)
    Y = np.random.default_rng(0).dirichlet(np.ones(3), 300).astype(np.float32)
    errors = []
    for n_groups in (1, 8, 64, 300):
        centers = choose_centers(Y, n_groups)
        sample = Evaluation(0.0, 0.0, labels, Y)
        errors.append(approximation_error(centers, ensemble.offsets, sample, Divergence.kl()))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6 < 1e-3 < errors[0]


def solve(ensemble, n_clusters=3, divergence="kl", **how):
    how = {"n_prototypes": 16, "max_passes": 60, "tol": 1e-4, "begin": from_sample(n_clusters), **how}
    begin = how.pop("begin")
    return solve_all(ensemble, n_clusters, begin, divergence, **how)


@pytest.fixture(scope="module")
def planted():
    return planted_ensemble(3000, 30, shares=(0.5, 0.3, 0.2), missing=0.5, random_state=3)


@pytest.mark.parametrize("draw", [None, dirichlet])
def test_prototypes__finds_the_planted_classes_and_never_rises(planted, draw):
    ensemble, truth = planted
    found = solve(ensemble, begin=from_sample(3) if draw is None else given_start(draw(3000, 3, 0)))
    Y = found.memberships
    assert found.settled
    assert (np.diff(found.history["objective"]) <= 0).all()
    assert found.objective == found.history["objective"][-1]
    assert 0 < found.history["error"][-1] < 0.05
    assert adjusted_rand(truth, Y.argmax(axis=1)) > 0.7
    assert (Y >= 0).all()
    np.testing.assert_allclose(Y.sum(axis=1), 1.0, atol=1e-6)


def test_prototypes__takes_up_a_snapshot_with_the_same_bits(planted, tmp_path):
    ensemble, _ = planted
    expected = solve(ensemble)
    arrays, snapshots = MemoryBlocks(), Snapshots(tmp_path, {})
    solve(ensemble, arrays=arrays, snapshots=snapshots, max_passes=2)
    resumed = solve(ensemble, arrays=arrays, snapshots=snapshots)
    assert (resumed.memberships == expected.memberships).all()
    assert resumed.history["pass"] == list(range(1, resumed.n_passes + 1))


@pytest.mark.parametrize("n_clusters", [3, 6])
def test_prototypes__comes_within_half_a_percent_of_dense_kl(n_clusters):
    ensemble, _ = planted_ensemble(500, 40, missing=0.5, random_state=1)
    dense = PCC(n_clusters, divergence="kl", pairs="dense", random_state=0).fit(ensemble)
    Y = solve(ensemble, n_clusters, n_prototypes=32).memberships
    assert pcc_objective(ensemble, Y, divergence="kl") < 1.005 * dense.objective_


@pytest.mark.parametrize(
    "divergence",
    [
        "power:1.5",
        pytest.param(
            Divergence(lambda x: x**4 + x * x, name="quartic", allow_nonconvex=True), marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_prototypes__takes_any_divergence(divergence):
    ensemble, truth = planted_ensemble(400, 40, shares=(0.5, 0.3, 0.2), missing=0.5, random_state=3)
    found = solve(ensemble, divergence=divergence)
    assert (np.diff(found.history["objective"]) <= 0).all()
    assert adjusted_rand(truth, found.memberships.argmax(axis=1)) > 0.6


def test_prototypes__leaves_unlabeled_objects_uniform():
    labels = planted_ensemble(200, 20, random_state=3)[0].read(0, 200).copy()
    labels[7] = -1
    with pytest.warns(UserWarning, match="1 of 200 objects"):
        Y = solve(Ensemble.from_labels(labels)).memberships
    np.testing.assert_allclose(Y[7], 1 / 3)


def test_pairs_objective__is_the_naive_one():
    labels = planted_ensemble(30, 10, random_state=3)[0].read(0, 30)
    Y = np.random.default_rng(0).dirichlet(np.ones(3), 30)
    value, _, _, parameter = Divergence.kl().compiled
    found = over_votes(labels, Y, value, parameter)
    expected = naive.exact_objective(naive_pcc.all_pairs(labels), Y, naive_pcc.kl)
    np.testing.assert_allclose(found, expected)


def test_fit__solves_all_pairs_with_any_divergence(planted):
    ensemble, truth = planted
    model = PCC(3, divergence="kl", n_init=2, random_state=0).fit(ensemble)
    assert model.converged_
    assert model.grouped_gap_ < model.gap_
    assert 0 < model.approximation_error_ < 0.05
    assert adjusted_rand(truth, model.labels_) > 0.7


def test_solve__by_more_prototypes_is_nearer_the_optimum(planted):
    ensemble, _ = planted
    few, many = (solve(ensemble, n_prototypes=number) for number in (16, 64))
    assert many.history["error"][-1] < few.history["error"][-1]
