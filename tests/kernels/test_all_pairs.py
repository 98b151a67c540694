"""All-pairs PCC, one pass: the factorized form against brute force over all pairs, and its promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.coassociation.factorized import add_sums, agreement_sums, in_order
from bigcons.kernels.simplex import minimize_on_simplex
from bigcons.methods.all_pairs import add_changes, objective_change, update_block
from bigcons.metrics import pcc_objective
from bigcons.weights import Weights
from tests.naive import pcc as naive
from tests.naive import simplex as naive_simplex
from tests.support.kernels import compiled
from tests.support.strategies import label_matrices

EXACT = {"rel": 1e-9, "abs": 1e-9}
MOVE_ALL = -1.0


def random_memberships(rng, n_objects, n_clusters):
    """Return float32 memberships with exact zeros."""
    Y = rng.dirichlet(np.ones(n_clusters), n_objects) * (rng.random((n_objects, n_clusters)) < 0.8)
    Y[~Y.any(axis=1), 0] = 1
    return (Y / Y.sum(axis=1, keepdims=True)).astype(np.float32)


@st.composite
def problems(draw, most_clusters=4):
    """Draw labels with gaps, where their base clusters begin, memberships, and weights or None."""
    ensemble = Ensemble.from_labels(draw(label_matrices(min_objects=3)))
    labels = ensemble.read(0, ensemble.n_objects)
    rng, K = np.random.default_rng(draw(st.integers(0, 10**6))), draw(st.integers(1, most_clusters))
    weights = rng.uniform(0.1, 3.0, labels.shape[1])
    return (
        labels,
        ensemble.offsets,
        random_memberships(rng, len(labels), K),
        draw(st.none() | st.just(weights)),
    )


def state_of(labels, offsets, Y, weights=None):
    return agreement_sums(labels, offsets, Y, None if weights is None else Weights.build(weights, offsets))


def brute_force(labels, Y, weights=None):
    """Return the objective over all pairs less the constant that the factorized form leaves out."""
    pairs = naive.all_pairs(labels, weights)
    return naive.objective(pairs, np.asarray(Y, np.float64)) - naive.constant(pairs)


def assert_same_state(state, expected):
    np.testing.assert_allclose(state.S, expected.S, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state.T, expected.T, rtol=1e-9, atol=1e-9)
    assert state.squares == pytest.approx(expected.squares, **EXACT)
    assert state.quartics == pytest.approx(expected.quartics, **EXACT)


@given(problems(), st.integers(1, 5))
def test_agreement_sums__objective_is_that_of_all_pairs_and_parts_add_up_in_any_order(problem, rows):
    labels, offsets, Y, weights = problem
    state, expected = state_of(*problem), brute_force(labels, Y, weights)
    assert state.objective == pytest.approx(expected, **EXACT)
    if weights is None:
        assert pcc_objective(labels, Y, constant=False) == pytest.approx(expected, **EXACT)
        total = state_of(labels[:0], offsets, Y[:0])
        for start in range(0, len(labels), rows):
            block = slice(start, start + rows)
            total = add_sums(total, state_of(labels[block], offsets, Y[block]))
        assert_same_state(total, state)
    order = np.random.default_rng(0).permutation(Y.shape[1])
    turned = state_of(labels, offsets, np.ascontiguousarray(Y[:, order]), weights)
    for found, wanted in zip(in_order(state.S, state.T, order), (turned.S, turned.T), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@given(problems(), st.integers(1, 12), st.sampled_from([1.0, 1.5, 1.99]))
def test_update_block__keeps_the_state_of_all_blocks_and_tells_the_change_and_the_gap(
    problem, rows, relaxation
):
    labels, offsets, Y, weights = problem
    for _ in range(3):
        state, total, updated = state_of(labels, offsets, Y, weights), None, np.empty_like(Y)
        for start in range(0, len(labels), rows):
            at = slice(start, start + rows)
            change, updated[at] = update_block(state, offsets, MOVE_ALL, relaxation, labels[at], Y[at])
            total = change if total is None else add_changes(total, change)
        assert (updated >= 0).all()
        np.testing.assert_allclose(updated.sum(axis=1), 1, atol=1e-6)
        before, after = (brute_force(labels, memberships, weights) for memberships in (Y, updated))
        tolerance = {"rel": 1e-9, "abs": 1e-9 * (1 + abs(before))}
        assert objective_change(state, total.sums) == pytest.approx(after - before, **tolerance)
        assert_same_state(add_sums(total.sums, state), state_of(labels, offsets, updated, weights))
        if rows == 1:
            gaps = naive.kkt_gaps(naive.all_pairs(labels, weights), Y.astype(np.float64))
            assert total.gap == pytest.approx(gaps.max(), **EXACT)
        if rows >= len(labels):  # one after another
            assert after <= before + 1e-6 * (1 + abs(before))
        Y = updated


@given(problems(most_clusters=10), st.booleans())
def test_update_block__of_one_object_finds_its_minimum_whether_it_has_memberships_or_not(problem, is_new):
    labels, offsets, Y, weights = problem
    pairs = naive.all_pairs(labels, weights)
    for i in np.flatnonzero((labels >= 0).any(axis=1)):
        rows, row = np.arange(len(labels)) != i if is_new else slice(None), slice(i, i + 1)
        state = state_of(np.ascontiguousarray(labels[rows]), offsets, np.ascontiguousarray(Y[rows]), weights)
        known = () if is_new else (Y[row],)
        _, updated = update_block(state, offsets, 0.0 if is_new else MOVE_ALL, 1.0, labels[row], *known)
        A, b = naive.local_problem(pairs, Y.astype(np.float64), i)
        gradient, y = A @ updated[0].astype(float) - b, updated[0]
        assert y.sum() == pytest.approx(1, abs=1e-6)
        assert gradient[y > 0].max() - gradient.min() <= 2e-5 * (1 + np.abs(A).max() + np.abs(b).max())


def noisy_problem(n_clusters=3):
    """Return labels of planted clusters with gaps and noise, where base clusters begin, and memberships."""
    rng = np.random.default_rng(0)
    truth, drawn = rng.integers(3, size=60), rng.integers(4, size=(60, 12))
    labels = np.where(rng.random((60, 12)) < 0.6, truth[:, None], drawn)
    labels[rng.random(labels.shape) < 0.3] = -1
    ensemble = Ensemble.from_labels(labels)
    return ensemble.read(0, 60), ensemble.offsets, random_memberships(rng, 60, n_clusters)


def test_update_block__leaves_objects_below_the_threshold_as_they_are():
    labels, offsets, Y = noisy_problem()
    gap = naive.kkt_gaps(naive.all_pairs(labels), Y.astype(np.float64)).max()
    change, updated = update_block(state_of(labels, offsets, Y), offsets, gap + 1e-6, 1.0, labels, Y)
    np.testing.assert_array_equal(updated, Y)
    assert (change.n_moved, change.sums.S.any(), change.sums.T.any(), change.predicted) == (
        0,
        False,
        False,
        0,
    )
    assert change.gap == pytest.approx(gap, rel=1e-9)


@pytest.mark.parametrize("n_clusters", [1, 7, 8, 9])
def test_update_block__works_at_the_edges_of_whole_vectors_and_counts_unlabeled_objects_out(n_clusters):
    labels, offsets, Y = noisy_problem(n_clusters)
    labels[5] = -1
    state = state_of(labels, offsets, Y)
    assert state.objective == pytest.approx(brute_force(labels, Y), **EXACT)
    change, updated = update_block(state, offsets, MOVE_ALL, 1.0, labels, Y)
    np.testing.assert_array_equal(updated[5], np.float32(1 / n_clusters))
    after = add_sums(change.sums, state)
    assert_same_state(after, state_of(np.delete(labels, 5, axis=0), offsets, np.delete(updated, 5, axis=0)))
    assert after.objective == pytest.approx(brute_force(labels, updated), **EXACT)
    assert after.objective <= state.objective


@st.composite
def programs(draw):
    """Draw (A, b, start): A of any rank, with empty clusters, and a start on any face."""
    K, rng = draw(st.integers(1, 5)), np.random.default_rng(draw(st.integers(0, 10**6)))
    factor = rng.normal(size=(K, draw(st.integers(0, K + 2))))
    factor[rng.random(K) < 0.2] = 0.0
    scale = draw(st.sampled_from([1e-3, 1.0, 1e5]))
    b = scale * rng.normal(size=K)
    if draw(st.booleans()):
        b = np.round(b / scale) * scale  # ties
    start = rng.dirichlet(np.ones(K)) * (rng.random(K) < 0.6)
    if not start.any():
        start[rng.integers(K)] = 1.0
    return scale * factor @ factor.T, b, start / start.sum()


minimize_compiled = compiled(minimize_on_simplex)


def solve(A, b, start, n=None):
    """Return where the first ``n`` coordinates are best, and the level of the gradient there."""
    y, n = start.copy(), n or len(b)
    return y, minimize_compiled(A, b, y, n, np.empty(len(b), np.int64), np.empty((len(b), len(b) + 2)))


@given(programs())
def test_minimize_on_simplex__finds_the_minimum_and_half_the_gradient_on_its_face(program):
    A, b, start = program
    y, level = solve(A, b, start)
    assert (y >= 0).all()
    assert y.sum() == pytest.approx(1, abs=1e-12)
    size, half = np.abs(A).max() + np.abs(b).max(), A @ y - b
    best = naive_simplex.objective(A, b, naive_simplex.minimize(A, b))
    assert naive_simplex.objective(A, b, y) <= best + 1e-6 * size
    assert 2 * (half[y > 0].max() - half.min()) <= 1e-6 * size
    assert (y[2 * half > 2 * half.min() + 1e-3 * size] == 0).all()  # exactly, where clearly worse
    np.testing.assert_allclose(half[y > 0], level, atol=1e-6 * size + 1e-99)


@given(programs(), st.integers(1, 5))
def test_minimize_on_simplex__of_the_first_coordinates_leaves_the_others(program, n):
    A, b, start = program
    n = min(n, len(b))
    first = np.zeros(len(b))
    first[:n] = start[:n] / start[:n].sum() if start[:n].any() else 1 / n
    y, _ = solve(A, b, first, n)
    np.testing.assert_array_equal(y[:n], solve(A[:n, :n].copy(), b[:n].copy(), first[:n])[0])
    assert not y[n:].any()
