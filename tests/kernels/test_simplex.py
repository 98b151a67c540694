"""The quadratic program of one object: against every face, and its own promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons.kernels.simplex import minimize_on_simplex
from tests.naive import simplex as naive
from tests.support.kernels import compiled


@st.composite
def programs(draw, max_clusters=5):
    """Draw (A, b, start): A of any rank, with empty clusters, and a start on any face."""
    K = draw(st.integers(1, max_clusters))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
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


def solve(A, b, start):
    y = start.copy()
    minimize(A, b, y, len(b))
    return y


minimize_compiled = compiled(minimize_on_simplex)


def minimize(A, b, y, n):
    """Minimize ``y[:n]`` in place; return the level of the gradient."""
    return minimize_compiled(A, b, y, n, np.empty(len(b), np.int64), np.empty((len(b), len(b) + 2)))


def size_of(A, b):
    return np.abs(A).max() + np.abs(b).max()


@given(programs())
def test_minimize_on_simplex__stays_feasible(program):
    y = solve(*program)
    assert (y >= 0).all()
    assert y.sum() == pytest.approx(1, abs=1e-12)


@given(programs())
def test_minimize_on_simplex__finds_the_minimum(program):
    A, b, start = program
    best = naive.minimize(A, b)
    slack = 1e-6 * size_of(A, b)
    assert naive.objective(A, b, solve(A, b, start)) <= naive.objective(A, b, best) + slack


@given(programs())
def test_minimize_on_simplex__meets_the_kkt_conditions(program):
    A, b, start = program
    y = solve(A, b, start)
    g = 2 * (A @ y - b)
    assert g[y > 0].max() - g.min() <= 1e-6 * size_of(A, b)


@given(programs())
def test_minimize_on_simplex__is_exactly_zero_where_clearly_worse(program):
    A, b, start = program
    y = solve(A, b, start)
    g = 2 * (A @ y - b)
    worse = g > g.min() + 1e-3 * size_of(A, b)
    assert (y[worse] == 0).all()


def test_minimize_on_simplex__without_any_curvature_takes_the_best_vertex():
    assert solve(np.zeros((3, 3)), np.array([1.0, 3.0, 2.0]), np.full(3, 1 / 3)).tolist() == [0, 1, 0]


@given(programs())
def test_minimize_on_simplex__returns_half_the_gradient_on_the_face(program):
    A, b, start = program
    y = start.copy()
    level = minimize(A, b, y, len(b))
    half = A @ y - b
    np.testing.assert_allclose(half[y > 0], level, atol=1e-6 * size_of(A, b) + 1e-99)


@given(programs(), st.integers(1, 5))
def test_minimize_on_simplex__of_the_first_coordinates_leaves_the_others(program, n):
    A, b, start = program
    n = min(n, len(b))
    first = np.zeros(len(b))
    first[:n] = start[:n] / start[:n].sum() if start[:n].any() else 1 / n
    y = first.copy()
    minimize(A, b, y, n)
    np.testing.assert_array_equal(y[:n], solve(A[:n, :n].copy(), b[:n].copy(), first[:n]))
    assert not y[n:].any()
