"""Divergences: formulas against their generators, edges, and which of them are double-convex."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Divergence
from bigcons.divergences import parse_divergence, resolve_divergence
from bigcons.errors import InvalidInputError
from bigcons.kernels.divergences import EDGE
from tests.naive import divergences as naive

FAMILIES = {
    "l2": naive.squared(),
    "kl": naive.entropy(),
    "power:1.5": naive.power(1.5),
    "power:3": naive.power(3.0),
    "exponential": naive.exponential(1.0),
    "exponential:2": naive.exponential(2.0),
}
SHARES = st.floats(0, 1)
INSIDE = st.floats(0.01, 0.99)


def functions(name):
    value, slope, curvature, parameter = resolve_divergence(name).compiled
    return [lambda x, p, f=f: f(x, p, parameter) for f in (value, slope, curvature)]


@pytest.mark.parametrize("name", FAMILIES)
@given(x=SHARES, p=INSIDE)
def test_compiled__equals_the_definition(name, x, p):
    value, slope, curvature = functions(name)
    family = FAMILIES[name]
    assert value(x, p) == pytest.approx(naive.value(family, x, p), rel=1e-7, abs=1e-11)
    assert slope(x, p) == pytest.approx(naive.slope(family, x, p), rel=1e-9, abs=1e-12)
    assert curvature(x, p) == pytest.approx(naive.curvature(family, x, p), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
@given(x=SHARES, p=SHARES)
def test_compiled__is_a_divergence(name, x, p):
    value, slope, curvature = functions(name)
    assert value(x, p) >= -1e-10
    assert value(x, x) == pytest.approx(0, abs=1e-9)
    assert slope(x, p) * (p - x) >= -1e-9
    assert curvature(x, p) >= -1e-9


def test_kl__at_the_edges_follows_zero_log_zero():
    value, slope, _ = functions("kl")
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
    value, slope, curvature, _ = Divergence(lambda x: np.exp(x), **chosen).compiled
    for x in (0.0, 0.3, 1.0):
        for p in (0.01, 0.2, 0.5, 0.9):
            family = naive.exponential(1.0)
            assert value(x, p, 0.0) == pytest.approx(naive.value(family, x, p), rel=1e-5, abs=1e-7)
            assert slope(x, p, 0.0) == pytest.approx(naive.slope(family, x, p), rel=1e-5, abs=1e-6)
            assert curvature(x, p, 0.0) == pytest.approx(naive.curvature(family, x, p), rel=1e-3, abs=1e-3)


GENERATORS = {
    "square": (lambda x: x * x, lambda x: 2.0),
    "cosh": (lambda x: np.cosh(x), lambda x: np.cosh(x)),
    "entropy": (lambda x: x * np.log(x) if x > 0 else 0.0, lambda x: 1 / x),
}


@pytest.mark.parametrize("numerical", [True, False], ids=["numerical", "given"])
@pytest.mark.parametrize("name", GENERATORS)
def test_divergence__of_a_generator_is_one_function_up_to_the_edges(name, numerical):
    phi, second = GENERATORS[name]
    value, slope, curvature, _ = Divergence(phi, second_derivative=None if numerical else second).compiled
    grid = np.concatenate([[0, 1e-12], np.geomspace(1e-9, 0.1, 60), np.linspace(0.11, 0.5, 20)])
    grid = np.concatenate([grid, 1 - grid[::-1]])
    for x in (0.0, 0.4, 1.0):
        values, slopes, curvatures = (
            np.array([f(x, p, 0.0) for p in grid]) for f in (value, slope, curvature)
        )
        scale = np.abs(slopes).max()
        assert (np.diff(slopes) >= -1e-5 * scale).all()  # convex
        assert (np.sign(slopes) == np.sign(grid - x)).all()
        assert (curvatures >= 0).all()
        low, high = slopes[:-1] * np.diff(grid), slopes[1:] * np.diff(grid)
        assert (np.diff(values) >= low - 1e-5).all()  # each value follows from the slopes
        assert (np.diff(values) <= high + 1e-5).all()


def test_divergence__is_its_own_deep_copy_and_pickles_once_compiled():
    divergence = parse_divergence("power:1.5")
    expected = divergence.compiled[0](0.2, 0.6, divergence.compiled[3])
    assert copy.deepcopy(divergence) is divergence
    again = pickle.loads(pickle.dumps(divergence))
    assert again.label == divergence.label
    assert again.compiled[0](0.2, 0.6, again.compiled[3]) == expected


def test_is_double_convex__of_the_paper_s_two():
    assert parse_divergence("l2").is_double_convex
    assert parse_divergence("kl").is_double_convex


@pytest.mark.parametrize(
    ("divergence", "expected"),
    [
        *((f"power:{exponent}", True) for exponent in (1.01, 1.5, 2, 3, 5)),
        *((f"power:{exponent}", False) for exponent in (2.01, 2.5, 2.9, 6)),
        *((f"exponential:{rate}", rate <= 2) for rate in (1, 2, 5)),
        (lambda x: 3 * x * x, True),
        (lambda x: np.cosh(x), True),
        (lambda x: x * np.log(x) + (1 - x) * np.log(1 - x), True),
        (lambda x: -np.log(x), False),
        (lambda x: -np.sqrt(x), False),
        (lambda x: 1 / x, False),
        (lambda x: -x * x, False),
    ],
)
def test_is_double_convex__of_families_and_generators(divergence, expected):
    found = parse_divergence(divergence) if isinstance(divergence, str) else Divergence(divergence)
    assert found.is_double_convex == expected
    assert (found.nonconvexity is None) == expected
    if isinstance(divergence, str):
        assert parse_divergence(found.label).parameter == found.parameter


@pytest.mark.parametrize(
    ("divergence", "message"),
    [
        ("power:2.5", r"'power:2\.5' is not double-convex"),
        (Divergence(lambda x: -np.log(x), name="burg"), r"'burg' is not double-convex"),
        *((text, r"use 'l2', 'kl', 'power:1\.5'") for text in ("", "l1", "L2", "kl:2", "power", "power:x")),
        *((other, "or a Divergence") for other in (None, 2, lambda x: x * x)),
        ("power:1", "with p above 1"),
        ("exponential:-1", "with p above 0"),
    ],
)
def test_resolve_divergence__refuses_in_one_line(divergence, message):
    with pytest.raises(InvalidInputError, match=message) as refusal:
        resolve_divergence(divergence)
    assert "\n" not in str(refusal.value)
