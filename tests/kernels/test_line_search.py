"""The searches along one step against the paper's bisection, and their promises."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from bigcons.divergences import Divergence
from bigcons.kernels import divergences as family
from bigcons.kernels.divergences import newton_search, sampling_search
from bigcons.kernels.pair_descent import quadratic_search
from tests.naive import pcc as naive

SEEDS = range(200)
SLOPES = {"l2": naive.l2_slope, "kl": naive.kl_slope}


@pytest.fixture(scope="module")
def newton():
    return {
        "l2": newton_search(family.l2_slope, family.l2_curvature),
        "kl": newton_search(family.kl_slope, family.kl_curvature),
    }


def derivative(scratch, slope, length):
    p, b, x, w = scratch
    return sum(w_ * b_ * slope(x_, p_ + length * b_) for p_, b_, x_, w_ in zip(p, b, x, w, strict=True))


def random_step(seed, slope):
    """Return the neighbors of one falling step, its derivative's size at 0, and the longest length."""
    rng = np.random.default_rng(seed)
    n, K = int(rng.integers(1, 8)), 3
    others, own = rng.dirichlet(np.ones(K), n), rng.dirichlet(np.ones(K))
    share = rng.integers(0, 11, n) / 10
    scratch = np.array([others @ own, others[:, 0] - others[:, 1], share, rng.integers(1, 9, n)])
    at_start = derivative(scratch, slope, 0.0)
    if at_start > 0:  # then it falls the other way
        scratch[1] *= -1
        own[1] = own[0]
    return scratch, abs(at_start), own[1]


@pytest.mark.parametrize("name", SLOPES)
def test_newton_search__equals_bisection(newton, name):
    for seed in SEEDS:
        scratch, gap, longest = random_step(seed, SLOPES[name])
        expected = naive.bisection(lambda e, s=scratch: derivative(s, SLOPES[name], e), longest, 1e-12)
        found = newton[name](scratch, scratch.shape[1], gap, longest, 0.0)
        assert found == pytest.approx(expected, abs=1e-6)
        assert (found == longest) == (expected == longest)


def test_quadratic_search__equals_bisection():
    for seed in SEEDS:
        scratch, gap, longest = random_step(seed, naive.l2_slope)
        expected = naive.bisection(lambda e, s=scratch: derivative(s, naive.l2_slope, e), longest, 1e-12)
        found = quadratic_search(scratch, scratch.shape[1], gap, longest, 0.0)
        assert found == pytest.approx(expected, abs=1e-9)


def test_newton_search__takes_the_whole_step_exactly_while_it_falls(newton):
    scratch = np.array([[0.1], [0.5], [1.0], [4.0]])
    gap = -derivative(scratch, naive.kl_slope, 0.0)
    assert newton["kl"](scratch, 1, gap, 0.3, 0.0) == 0.3


@pytest.mark.parametrize("p", [0.0, 1e-15])
def test_newton_search__leaves_the_edge_of_kl(newton, p):
    scratch = np.array([[p, 0.5], [0.9, -0.4], [0.5, 0.5], [8.0, 8.0]])
    gap = -derivative(scratch, naive.kl_slope, 1e-12)
    found = newton["kl"](scratch, 2, gap, 1.0, 0.0)
    expected = naive.bisection(lambda e: derivative(scratch, naive.kl_slope, e), 1.0, 1e-12)
    assert found == pytest.approx(expected, abs=1e-6)


def test_sampling_search__never_rises_and_beats_its_samples():
    burg = Divergence(lambda x: -np.log(x), allow_nonconvex=True).compiled
    search = sampling_search(burg.value)
    for seed in SEEDS:
        scratch, gap, longest = random_step(seed, naive.l2_slope)
        p, b, x, w = scratch
        x[:] = 0.05 + 0.9 * x  # unusable at 0 and 1

        def along(length, w=w, x=x, p=p, b=b):
            return sum(w_ * burg.value(x_, p_, 0.0) for w_, x_, p_ in zip(w, x, p + length * b, strict=True))

        length = search(scratch, len(w), gap, longest, 0.0)
        slack = 1e-9 * (1 + abs(along(0.0)))
        assert 0 <= length <= longest
        assert along(length) <= min(map(along, np.linspace(0, longest, 17))) + slack


@pytest.mark.parametrize("make", [newton_search, sampling_search])
def test_searches__are_made_once_by_threads_that_ask_together(make):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for parameter in range(5):
            divergence = Divergence(lambda x, parameter=parameter: x * x + parameter)
            value, slope, curvature, _ = divergence.compiled
            parts = (value,) if make is sampling_search else (slope, curvature)
            ready = Barrier(4)

            def ask(_, parts=parts, ready=ready):
                ready.wait()
                return make(*parts)

            with ThreadPoolExecutor(4) as pool:
                assert len(set(map(id, pool.map(ask, range(4))))) == 1
    finally:
        sys.setswitchinterval(interval)
