"""Algorithm 1 on a pair table: step by step against the paper's, and what must hold after any steps."""

import numpy as np
import pytest

from bigcons import PairTable
from bigcons.divergences import resolve_divergence
from bigcons.kernels import divergences as family
from bigcons.kernels.divergences import newton_search
from bigcons.kernels.pair_descent import (
    descend,
    prepare,
    quadratic_search,
    total_value,
    values_along,
)
from tests.naive import pcc as naive

KL = resolve_divergence("kl").compiled
KINDS = {
    "l2": (naive.l2, naive.l2_slope, family.l2_value, family.l2_slope, quadratic_search, 0.0),
    "kl": (
        *(naive.kl, naive.kl_slope, KL.value, KL.slope),
        *(newton_search(KL.slope, KL.curvature), KL.parameter),
    ),
}
K = 3


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


class Run:
    """One problem, its queue, and what the kernels keep; the last ``n_fixed`` objects never move."""

    def __init__(self, kind, n_objects=14, share=1.0, seed=0, n_fixed=0):
        rng = np.random.default_rng(seed)
        labels = rng.integers(-1, 3, (n_objects, 9))
        self.pairs = [pair for pair in naive.all_pairs(labels) if rng.random() < share]
        table = PairTable.from_arrays(*np.array(self.pairs).T, n_objects=n_objects)
        memberships = rng.dirichlet(np.ones(K), n_objects)
        n = n_objects - n_fixed
        entries = slice(table.indptr[n])
        seen = table.n_seen[entries].astype(np.float32)
        self.fixed = memberships[n:].astype(np.float32)
        self.graph = (
            table.indptr[: n + 1],
            table.indices[entries],
            table.n_agree[entries] / seen,
            seen,
            self.fixed,
        )
        self.value, self.slope, self._value, self._slope, self._search, self._parameter = KINDS[kind]
        self.rows = np.zeros((n, 2 * K))
        self.Y[:] = memberships[:n]
        self.keys = np.empty(n)
        self.items, self.position = np.empty((2, n), np.int32)
        queue = self.keys, self.items, self.position
        prepare(self.rows, *self.graph, *queue, self._slope, self._parameter)

    @property
    def Y(self):  # noqa: N802
        return self.rows[:, :K]

    @property
    def everyone(self):
        return np.concatenate([self.Y, self.fixed])

    @property
    def key_of(self):
        return self.keys[self.position]

    def descend(self, n_steps, tol=0.0):
        scratch = np.empty((4, np.diff(self.graph[0]).max()))
        queue = (self.keys, self.items, self.position)
        functions = self._search, self._slope, self._parameter
        return descend(self.rows, *self.graph, *queue, scratch, n_steps, tol, *functions)

    def total(self):
        return total_value(self.rows, *self.graph, self._value, self._parameter)


def test_total_value__equals_naive(kind):
    run = Run(kind)
    assert run.total() == pytest.approx(naive.objective(run.pairs, run.Y, run.value), rel=1e-6)


def test_prepare__gradients_and_keys_equal_naive(kind):
    run = Run(kind)
    np.testing.assert_allclose(
        run.rows[:, K:], naive.gradient(run.pairs, run.Y, run.slope), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(run.key_of, naive.kkt_gaps(run.pairs, run.Y, run.slope), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_descend__takes_the_paper_s_steps(kind, seed):
    run = Run(kind, share=0.5, seed=seed)
    Y = run.Y.copy()
    for J, U, V, length in naive.algorithm_1(run.pairs, Y, run.slope, 20):
        before = run.Y.copy()
        assert run.descend(1)[0] == 1
        move = np.zeros_like(before)
        move[J, U], move[J, V] = length, -length
        np.testing.assert_allclose(run.Y - before, move, atol=1e-6)
        assert ((run.Y == 0) == (Y == 0)).all()


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_descend__keeps_gradients_keys_and_places(kind, share):
    run = Run(kind, n_objects=30, share=share)
    for _ in range(10):
        run.descend(30)
        gradient = naive.gradient(run.pairs, run.Y, run.slope)
        np.testing.assert_allclose(run.rows[:, K:], gradient, rtol=1e-4, atol=1e-4)
        gaps = naive.kkt_gaps(run.pairs, run.Y, run.slope)
        assert (run.key_of >= gaps - 1e-3).all()  # a key may be out of date, then it is too large
        assert run.items[run.position].tolist() == list(range(30))
        np.testing.assert_allclose(run.Y.sum(axis=1), 1, atol=1e-12)
        assert (run.Y >= 0).all()


def test_descend__never_raises_the_objective(kind):
    run = Run(kind, n_objects=25)
    totals = [run.total()]
    for _ in range(300):
        run.descend(1)
        totals.append(run.total())
    assert (np.diff(totals) <= 1e-9 * totals[0]).all()
    assert totals[-1] < totals[0]


def test_descend__stops_at_the_tolerance_and_reports_the_gap(kind):
    run = Run(kind)
    tol = 1e-2
    taken, gap = run.descend(10**5, tol)
    assert taken < 10**5
    assert gap <= tol
    assert gap == pytest.approx(naive.kkt_gaps(run.pairs, run.Y, run.slope).max(), abs=1e-4)
    before = run.Y.copy()
    assert run.descend(10, tol) == (0, gap)
    np.testing.assert_array_equal(run.Y, before)


def test_prepare__counts_objects_that_stay_as_they_are(kind):
    run = Run(kind, n_fixed=5)
    gradient = naive.gradient(run.pairs, run.everyone, run.slope)[:9]
    np.testing.assert_allclose(run.rows[:, K:], gradient, rtol=1e-5, atol=1e-5)


def test_descend__moves_its_own_objects_only_and_keeps_their_gradients(kind):
    run = Run(kind, n_fixed=5)
    before, fixed = run.total(), run.fixed.copy()
    taken, gap = run.descend(10**5, 1e-2)
    np.testing.assert_array_equal(run.fixed, fixed)
    assert 0 < taken < 10**5
    assert run.total() < before
    gradient = naive.gradient(run.pairs, run.everyone, run.slope)[:9]
    np.testing.assert_allclose(run.rows[:, K:], gradient, rtol=1e-4, atol=1e-4)
    assert gap == pytest.approx(naive.kkt_gaps(run.pairs, run.everyone, run.slope)[:9].max(), abs=1e-4)


def test_values_along__equal_naive_at_every_length(kind):
    run = Run(kind, n_fixed=5)
    rng = np.random.default_rng(1)
    ends = [rng.dirichlet(np.ones(K), 14).astype(np.float32) for _ in range(2)]
    indptr, indices, observed, weight, _ = run.graph
    left_out = 11
    numbers = np.where(indices == left_out, -1, indices).astype(np.int32)
    counted = [pair for pair in run.pairs if pair[0] < 9 and left_out not in pair]
    lengths, totals = np.array([0.0, 0.3, 1.0]), np.zeros(3)
    own, others = [end[:9] for end in ends], [end[9:] for end in ends]
    graph = (indptr, numbers, observed, weight)
    values_along(*own, *graph, *others, lengths, totals, run._value, run._parameter)
    along = [ends[0].astype(float) + length * (ends[1].astype(float) - ends[0]) for length in lengths]
    expected = [naive.objective(counted, Y, run.value) for Y in along]
    np.testing.assert_allclose(totals, expected, rtol=1e-5)
