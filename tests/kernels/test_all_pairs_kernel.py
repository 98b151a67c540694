"""All-pairs PCC, one pass: the factorized form against brute force over all pairs, and its promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.coassociation.factorized import add_sums, agreement_sums, in_order, no_sums
from bigcons.kernels import all_pairs as kernel
from bigcons.methods.pcc.all_pairs import (
    add_changes,
    objective_change,
    update_block,
)
from tests.naive import pcc as naive
from tests.naive import simplex as naive_simplex
from tests.support.kernels import compiled
from tests.support.strategies import label_matrices

EXACT = {"rel": 1e-9, "abs": 1e-9}
# memberships are rounded to float32 after each object's exact update
ROUNDED = {"rel": 1e-5, "abs": 1e-5}
MOVE_ALL = -1.0


@st.composite
def problems(draw, min_objects=2):
    """Draw labels with gaps, where their base clusters begin, and float32 memberships with exact zeros."""
    ensemble = Ensemble.from_labels(draw(label_matrices(min_objects=min_objects, max_objects=14)))
    labels = ensemble.read(0, ensemble.n_objects)
    K = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return labels, ensemble.offsets, random_memberships(rng, len(labels), K)


def random_memberships(rng, n_objects, n_clusters):
    Y = rng.dirichlet(np.ones(n_clusters), n_objects) * (rng.random((n_objects, n_clusters)) < 0.8)
    Y[~Y.any(axis=1), 0] = 1
    return (Y / Y.sum(axis=1, keepdims=True)).astype(np.float32)


def noisy_problem(n_objects=60, n_clusters=3, seed=0):
    """Return labels of planted clusters with gaps and noise, where base clusters begin, and memberships."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n_objects)
    labels = np.where(
        rng.random((n_objects, 12)) < 0.6, truth[:, None], rng.integers(4, size=(n_objects, 12))
    )
    labels[rng.random(labels.shape) < 0.3] = -1
    ensemble = Ensemble.from_labels(labels)
    return ensemble.read(0, n_objects), ensemble.offsets, random_memberships(rng, n_objects, n_clusters)


def update(problem, state=None, threshold=MOVE_ALL, relaxation=1.0):
    """Return the change of one sweep over all objects and the memberships it leads to."""
    labels, offsets, Y = problem
    state = agreement_sums(labels, offsets, Y) if state is None else state
    return update_block(state, offsets, threshold, relaxation, labels, Y)


def update_in_blocks(problem, state, rows):
    """Return the change when blocks of ``rows`` objects are all updated from the same state."""
    labels, offsets, Y = problem
    updated, total = np.empty_like(Y), None
    for start in range(0, len(labels), rows):
        block = slice(start, start + rows)
        change, updated[block] = update_block(state, offsets, MOVE_ALL, 1.0, labels[block], Y[block])
        total = change if total is None else add_changes(total, change)
    return total, updated


def brute_force(labels, Y):
    """Return the objective over all pairs less the constant that the factorized form leaves out."""
    pairs = naive.all_pairs(labels)
    return naive.objective(pairs, np.asarray(Y, np.float64)) - naive.constant(pairs)


def assert_same_state(state, expected, **tolerance):
    np.testing.assert_allclose(state.S, expected.S, rtol=tolerance["rel"], atol=tolerance["abs"])
    np.testing.assert_allclose(state.T, expected.T, rtol=tolerance["rel"], atol=tolerance["abs"])
    assert state.squares == pytest.approx(expected.squares, **tolerance)
    assert state.quartics == pytest.approx(expected.quartics, **tolerance)


@given(problems())
def test_agreement_sums__objective_equals_brute_force(problem):
    labels, offsets, Y = problem
    assert agreement_sums(labels, offsets, Y).objective == pytest.approx(brute_force(labels, Y), **EXACT)


@given(problems(), st.integers(1, 5))
def test_add_sums__equals_the_state_of_all(problem, rows):
    labels, offsets, Y = problem
    total = no_sums(offsets, Y.shape[1])
    for start in range(0, len(labels), rows):
        block = slice(start, start + rows)
        total = add_sums(total, agreement_sums(labels[block], offsets, Y[block]))
    assert_same_state(total, agreement_sums(labels, offsets, Y), **EXACT)


read_quadratic, n_below = compiled(kernel.read_quadratic), compiled(kernel.n_below)


def read_objects(labels, offsets, Y, known):
    """Yield each object's number, membership, and (A, b) as the kernel reads them in two portions."""
    state, K = agreement_sums(labels, offsets, Y), Y.shape[1]
    t_sum, A = np.empty(state.T.shape[1]), np.full((K, K), np.nan)
    for j, y in enumerate(Y.astype(np.float64)):
        observed = np.flatnonzero(labels[j] >= 0)
        b = state.S[offsets[observed] + labels[j, observed]].sum(axis=0)[:K] - observed.size * y
        at = (observed * state.T.shape[1]).astype(np.uint64)
        m = observed.size
        read_quadratic(state.T.ravel(), at, None, m, float(m), y, 0, known, t_sum, A)
        read_quadratic(state.T.ravel(), at, None, m, float(m), y, known, K, t_sum, A)
        yield j, y, A, b


@given(problems(), st.integers(0, 4))
def test_read_quadratic__equals_naive_for_each_object(problem, known):
    labels, offsets, Y = problem
    pairs = naive.all_pairs(labels)
    gradient = naive.gradient(pairs, Y.astype(np.float64))
    for j, y, A, b in read_objects(labels, offsets, Y, min(known, Y.shape[1])):
        expected = naive.local_problem(pairs, Y.astype(np.float64), j)
        np.testing.assert_allclose(A, expected[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(b, expected[1], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(2 * (A @ y - b), gradient[j], rtol=1e-9, atol=1e-9)


@given(problems(), st.floats(-20, 20), st.integers(1, 4))
def test_n_below__leaves_out_only_clusters_whose_gradient_reaches_the_level(problem, level, n):
    labels, offsets, Y = problem
    for _, y, A, b in read_objects(labels, offsets, Y, 0):
        enough = n_below(level, b, min(n, y.size))
        assert min(n, y.size) <= enough <= y.size
        assert ((A @ y - b)[enough:] >= level - 1e-9).all()


@given(problems())
def test_in_order__is_the_state_of_permuted_memberships(problem):
    labels, offsets, Y = problem
    order = np.random.default_rng(0).permutation(Y.shape[1])
    state = agreement_sums(labels, offsets, Y)
    expected = agreement_sums(labels, offsets, np.ascontiguousarray(Y[:, order]))
    S, T = in_order(state.S, state.T, order)
    np.testing.assert_allclose(S, expected.S, rtol=1e-12)
    np.testing.assert_allclose(T, expected.T, rtol=1e-12)


RELAXATIONS = st.sampled_from([1.0, 1.5, 1.99])


@given(problems(), RELAXATIONS)
def test_update_block__leads_to_memberships_on_the_simplex(problem, relaxation):
    _, updated = update(problem, relaxation=relaxation)
    assert updated.dtype == np.float32
    assert (updated >= 0).all()
    np.testing.assert_allclose(updated.sum(axis=1), 1, atol=1e-6)


@given(problems(), RELAXATIONS)
def test_update_block__never_raises_the_objective(problem, relaxation):
    labels, offsets, Y = problem
    for _ in range(4):
        before = brute_force(labels, Y)
        _, Y = update((labels, offsets, Y), relaxation=relaxation)
        assert brute_force(labels, Y) <= before + 1e-6 * (1 + abs(before))


@given(problems())
def test_update_block__of_one_object_finds_its_minimum(problem):
    labels, offsets, Y = problem
    pairs, state = naive.all_pairs(labels), agreement_sums(labels, offsets, Y)
    for i in np.flatnonzero((labels >= 0).any(axis=1)):
        row, updated = slice(i, i + 1), np.empty((1, Y.shape[1]), np.float32)
        _, updated = update_block(state, offsets, MOVE_ALL, 1.0, labels[row], Y[row])
        A, b = naive.local_problem(pairs, Y.astype(np.float64), i)
        best = naive_simplex.objective(A, b, naive_simplex.minimize(A, b))
        found = naive_simplex.objective(A, b, updated[0].astype(np.float64))
        assert found == pytest.approx(best, **ROUNDED)


@given(problems())
def test_update_block__changes_the_state_to_that_of_the_new_memberships(problem):
    labels, offsets, Y = problem
    state = agreement_sums(labels, offsets, Y)
    change, updated = update(problem, state)
    assert_same_state(add_sums(change.sums, state), agreement_sums(labels, offsets, updated), **EXACT)


@given(problems(), st.integers(1, 5))
def test_objective_change__is_the_change_of_the_objective_over_the_full_step(problem, rows):
    labels, offsets, Y = problem
    state = agreement_sums(labels, offsets, Y)
    change, updated = update_in_blocks(problem, state, rows)
    before, after = brute_force(labels, Y), brute_force(labels, updated)
    assert objective_change(state, change.sums) == pytest.approx(
        after - before, rel=1e-9, abs=1e-9 * (1 + abs(before))
    )


@given(problems(min_objects=3), st.integers(1, 3))
def test_add_changes__is_the_change_of_all_blocks(problem, rows):
    labels, offsets, Y = problem
    state = agreement_sums(labels, offsets, Y)
    change, updated = update_in_blocks(problem, state, rows)
    assert_same_state(add_sums(change.sums, state), agreement_sums(labels, offsets, updated), **EXACT)
    gaps = naive.kkt_gaps(naive.all_pairs(labels), Y.astype(np.float64))
    if rows == 1:
        assert change.gap == pytest.approx(gaps.max(), **EXACT)


def test_update_block__leaves_objects_below_the_threshold_as_they_are():
    labels, offsets, Y = noisy_problem()
    gaps = naive.kkt_gaps(naive.all_pairs(labels), Y.astype(np.float64))
    change, updated = update((labels, offsets, Y), threshold=gaps.max() + 1e-6)
    np.testing.assert_array_equal(updated, Y)
    assert (change.n_moved, change.sums.S.any(), change.sums.T.any(), change.predicted) == (
        0,
        False,
        False,
        0.0,
    )
    assert change.gap == pytest.approx(gaps.max(), rel=1e-9)


def test_update_block__makes_unlabeled_objects_uniform_and_counts_them_out():
    labels, offsets, Y = noisy_problem(n_clusters=4)
    labels = labels.copy()
    labels[5] = -1
    change, updated = update((labels, offsets, Y))
    assert updated[5].tolist() == [0.25] * 4
    expected = agreement_sums(np.delete(labels, 5, axis=0), offsets, np.delete(updated, 5, axis=0))
    state = add_sums(change.sums, agreement_sums(labels, offsets, Y))
    assert_same_state(state, expected, **EXACT)


@given(problems(min_objects=4), st.integers(0, 3))
def test_update_block__gives_new_objects_their_best_membership(problem, new):
    labels, offsets, Y = problem
    known = np.delete(labels, new, axis=0)
    estimate = agreement_sums(known, offsets, np.delete(Y, new, axis=0))
    _, placed = update_block(estimate, offsets, 0.0, 1.0, labels[new : new + 1])
    assert placed.sum() == pytest.approx(1, abs=1e-6)
    A, b = naive.local_problem(naive.all_pairs(labels), Y.astype(np.float64), new)
    best = naive_simplex.objective(A, b, naive_simplex.minimize(A, b))
    found = naive_simplex.objective(A, b, placed[0].astype(np.float64))
    if (labels[new] >= 0).any():
        assert found == pytest.approx(best, **ROUNDED)


@pytest.mark.parametrize("n_clusters", [1, 7, 8, 9])
def test_update_block__works_at_the_edges_of_whole_vectors(n_clusters):
    labels, offsets, Y = noisy_problem(n_clusters=n_clusters)
    state = agreement_sums(labels, offsets, Y)
    change, updated = update((labels, offsets, Y), state)
    assert state.objective == pytest.approx(brute_force(labels, Y), **EXACT)
    after = add_sums(change.sums, state)
    assert after.objective == pytest.approx(brute_force(labels, updated), **EXACT)
    assert after.objective <= state.objective
