"""Divergences: formulas against their generators, edges, and which of them are double-convex."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Divergence
from bigcons.divergences import resolve_divergence
from bigcons.kernels.divergences import EDGE
from tests.naive import divergences as naive
from tests.support.refusals import refused

FAMILIES = {"l2": naive.squared(), "kl": naive.entropy()}
SHARES = st.floats(0, 1)


@pytest.mark.parametrize("name", FAMILIES)
@given(x=SHARES, p=st.floats(0.01, 0.99), anywhere=SHARES)
def test_compiled__equals_the_definition_and_is_a_divergence(name, x, p, anywhere):
    value, slope, curvature = resolve_divergence(name).compiled
    family = FAMILIES[name]
    assert value(x, p) == pytest.approx(naive.value(family, x, p), rel=1e-7, abs=1e-11)
    assert slope(x, p) == pytest.approx(naive.slope(family, x, p), rel=1e-9, abs=1e-12)
    assert curvature(x, p) == pytest.approx(naive.curvature(family, x, p), rel=1e-9, abs=1e-9)
    assert value(x, anywhere) >= -1e-10
    assert value(x, x) == pytest.approx(0, abs=1e-9)
    assert slope(x, anywhere) * (anywhere - x) >= -1e-9
    assert curvature(x, anywhere) >= -1e-9


def test_kl__at_the_edges_follows_zero_log_zero():
    value, slope, _ = resolve_divergence("kl").compiled
    assert value(0.0, 0.0) == pytest.approx(0, abs=1e-11)
    assert value(1.0, 1.0) == pytest.approx(0, abs=1e-11)
    assert slope(0.0, 0.0) == pytest.approx(1)
    assert slope(1.0, 1.0) == pytest.approx(-1)
    assert slope(0.5, 0.0) == pytest.approx(-0.5 / EDGE)
    assert slope(0.5, 1.0) == pytest.approx(0.5 / EDGE, rel=1e-3)


@pytest.mark.parametrize("given_derivatives", [0, 1, 2])
def test_divergence__of_a_generator_equals_the_family(given_derivatives):
    derivatives = {"derivative": lambda x: np.exp(x), "second_derivative": lambda x: np.exp(x)}
    chosen = dict(list(derivatives.items())[:given_derivatives])
    value, slope, curvature = Divergence(lambda x: np.exp(x), **chosen).compiled
    for x in (0.0, 0.3, 1.0):
        for p in (0.01, 0.2, 0.5, 0.9):
            family = naive.exponential(1.0)
            assert value(x, p) == pytest.approx(naive.value(family, x, p), rel=1e-5, abs=1e-7)
            assert slope(x, p) == pytest.approx(naive.slope(family, x, p), rel=1e-5, abs=1e-6)
            assert curvature(x, p) == pytest.approx(naive.curvature(family, x, p), rel=1e-3, abs=1e-3)


GENERATORS = {
    "square": (lambda x: x * x, lambda x: 2.0),
    "cosh": (lambda x: np.cosh(x), lambda x: np.cosh(x)),
    "entropy": (lambda x: x * np.log(x) if x > 0 else 0.0, lambda x: 1 / x),
}


@pytest.mark.parametrize("numerical", [True, False], ids=["numerical", "given"])
@pytest.mark.parametrize("name", GENERATORS)
def test_divergence__of_a_generator_is_one_function_up_to_the_edges(name, numerical):
    phi, second = GENERATORS[name]
    value, slope, curvature = Divergence(phi, second_derivative=None if numerical else second).compiled
    grid = np.concatenate([[0, 1e-12], np.geomspace(1e-9, 0.1, 60), np.linspace(0.11, 0.5, 20)])
    grid = np.concatenate([grid, 1 - grid[::-1]])
    for x in (0.0, 0.4, 1.0):
        values, slopes, curvatures = (np.array([f(x, p) for p in grid]) for f in (value, slope, curvature))
        scale = np.abs(slopes).max()
        assert (np.diff(slopes) >= -1e-5 * scale).all()  # convex
        assert (np.sign(slopes) == np.sign(grid - x)).all()
        assert (curvatures >= 0).all()
        low, high = slopes[:-1] * np.diff(grid), slopes[1:] * np.diff(grid)
        assert (np.diff(values) >= low - 1e-5).all()  # each value follows from the slopes
        assert (np.diff(values) <= high + 1e-5).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_divergence__is_its_own_deep_copy_and_pickles_once_compiled(name):
    divergence = resolve_divergence(name)
    expected = divergence.compiled[0](0.2, 0.6)
    assert copy.deepcopy(divergence) is divergence
    assert divergence.is_double_convex
    again = pickle.loads(pickle.dumps(divergence))
    assert again.compiled[0](0.2, 0.6) == expected


@pytest.mark.parametrize(
    ("phi", "expected"),
    [
        (lambda x: x * x, True),  # of the paper
        (lambda x: x * np.log(x) if x > 0 else 0.0, True),  # of the paper
        (lambda x: x**1.5, True),
        (lambda x: x**2.5, False),
        (lambda x: np.exp(2 * x), True),
        (lambda x: np.exp(5 * x), False),
        (lambda x: x * np.log(x) + (1 - x) * np.log(1 - x), True),
        (lambda x: -np.log(x), False),
        (lambda x: -x * x, False),
    ],
)
def test_is_double_convex__of_generators(phi, expected):
    assert Divergence(phi).is_double_convex == expected
    assert (Divergence(phi).nonconvexity is None) == expected


@pytest.mark.parametrize(
    ("divergence", "message"),
    [
        (Divergence(lambda x: -np.log(x), name="burg"), r"'burg' is not double-convex"),
        *((other, "use 'l2', 'kl' or a Divergence") for other in ("", "L2", "power:1.5", None, 2)),
    ],
)
def test_resolve_divergence__refuses_in_one_line(divergence, message):
    with refused(message):
        resolve_divergence(divergence)
