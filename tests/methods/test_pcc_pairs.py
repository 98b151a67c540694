"""PCC on listed pairs, by a heap or in blocks: the paper's steps, never a rise, the same on any engine."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import PCC, Ensemble, PairTable
from bigcons.coassociation import sample
from bigcons.disk.checkpoint import FileBlocks, Snapshots
from bigcons.divergences import resolve_divergence
from bigcons.kernels import divergences as family
from bigcons.kernels import pair_descent
from bigcons.kernels.divergences import newton_search
from bigcons.memory import row_blocks
from bigcons.methods.all_pairs import dirichlet, perturbed_uniform
from bigcons.methods.pcc import choose_problem
from bigcons.run.engine import ThreadsEngine
from tests.naive import pcc as naive
from tests.support.engines import RepeatedTasks
from tests.support.pcc import solve_listed

K = 3
KL_VALUE, KL_SLOPE, KL_CURVATURE = resolve_divergence("kl").compiled
KL_SEARCH = newton_search(KL_SLOPE, KL_CURVATURE)
VALUES = {"l2": (naive.l2, naive.l2_slope), "kl": (naive.kl, naive.kl_slope)}
KERNELS = {
    "l2": (family.l2_value, family.l2_slope, pair_descent.quadratic_search),
    "kl": (KL_VALUE, KL_SLOPE, KL_SEARCH),
}


def derivative(scratch, slope, length):
    p, b, x, w = scratch
    return sum(w_ * b_ * slope(x_, p_ + length * b_) for p_, b_, x_, w_ in zip(p, b, x, w, strict=True))


def random_step(seed, slope):
    """Return the neighbors of one falling step, its derivative's size at 0, and the longest length."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    others, own = rng.dirichlet(np.ones(K), n), rng.dirichlet(np.ones(K))
    share = rng.integers(0, 11, n) / 10
    scratch = np.array([others @ own, others[:, 0] - others[:, 1], share, rng.integers(1, 9, n)])
    at_start = derivative(scratch, slope, 0.0)
    if at_start > 0:  # then it falls the other way
        scratch[1] *= -1
        own[1] = own[0]
    return scratch, abs(at_start), own[1]


@pytest.mark.parametrize("name", VALUES)
def test_searches__equal_bisection(name):
    slope, search = VALUES[name][1], KERNELS[name][2]
    for seed in range(200):
        scratch, gap, longest = random_step(seed, slope)
        expected = naive.bisection(lambda e, s=scratch: derivative(s, slope, e), longest, 1e-12)
        found = search(scratch, scratch.shape[1], gap, longest)
        assert found == pytest.approx(expected, abs=1e-6)
        assert (found == longest) == (expected == longest)


class Descent:
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
        self.graph = table.indptr[: n + 1], table.indices[entries], table.n_agree[entries] / seen, seen
        self.value, self.slope = VALUES[kind]
        self.kernel_value, self.kernel_slope, self.search = KERNELS[kind]
        self.rows = np.zeros((n, 2 * K))
        self.rows[:, :K] = memberships[:n]
        self.queue = np.empty(n), *np.empty((2, n), np.int32)
        pair_descent.prepare(self.rows, *self.graph, self.fixed, *self.queue, self.kernel_slope)

    @property
    def Y(self):  # noqa: N802
        return self.rows[:, :K]

    def descend(self, n_steps, tol=0.0):
        scratch = np.empty((4, np.diff(self.graph[0]).max()))
        functions = self.search, self.kernel_slope
        return pair_descent.descend(
            self.rows, *self.graph, self.fixed, *self.queue, scratch, n_steps, tol, *functions
        )

    def total(self):
        return pair_descent.total_value(self.rows, *self.graph, self.fixed, self.kernel_value)

    def assert_is_consistent(self, atol):
        """Gradients are those of the pairs, keys no smaller than the gaps, each in its place of the queue."""
        n, everyone = len(self.rows), np.concatenate([self.Y, self.fixed])
        gradient = naive.gradient(self.pairs, everyone, self.slope)[:n]
        np.testing.assert_allclose(self.rows[:, K:], gradient, rtol=atol, atol=atol)
        keys, items, position = self.queue
        gaps = naive.kkt_gaps(self.pairs, everyone, self.slope)[:n]
        assert (keys[position] >= gaps - 10 * atol).all()  # one that is out of date is too large
        assert items[position].tolist() == list(range(n))
        np.testing.assert_allclose(self.Y.sum(axis=1), 1, atol=1e-12)
        assert (self.Y >= 0).all()
        return gaps, keys[position]


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("seed", range(3))
def test_descend__takes_the_paper_s_steps(kind, seed):
    run = Descent(kind, share=0.5, seed=seed)
    Y = run.Y.copy()
    for J, U, V, length in naive.algorithm_1(run.pairs, Y, run.slope, 20):
        before = run.Y.copy()
        assert run.descend(1)[0] == 1
        move = np.zeros_like(before)
        move[J, U], move[J, V] = length, -length
        np.testing.assert_allclose(run.Y - before, move, atol=1e-6)
        assert ((run.Y == 0) == (Y == 0)).all()


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize(("share", "n_fixed"), [(1.0, 0), (0.2, 0), (1.0, 5)])
def test_descend__never_rises_keeps_gradients_and_stops_at_the_tolerance(kind, share, n_fixed):
    run = Descent(kind, 25, share, n_fixed=n_fixed)
    everyone = np.concatenate([run.Y, run.fixed])
    if not n_fixed:
        assert run.total() == pytest.approx(naive.objective(run.pairs, everyone, run.value), rel=1e-6)
    gaps, keys = run.assert_is_consistent(1e-5)
    np.testing.assert_allclose(keys, gaps, rtol=1e-5, atol=1e-5)
    totals, fixed = [run.total()], run.fixed.copy()
    for steps in [1] * 30 + [30] * 5:
        run.descend(steps)
        run.assert_is_consistent(1e-4)
        totals.append(run.total())
    assert (np.diff(totals) <= 1e-9 * totals[0]).all()
    assert totals[-1] < totals[0]
    np.testing.assert_array_equal(run.fixed, fixed)
    taken, gap = run.descend(10**5, 1e-2)
    assert taken < 10**5
    assert gap <= 1e-2
    assert gap == pytest.approx(run.assert_is_consistent(1e-4)[0].max(), abs=1e-4)
    before = run.Y.copy()
    assert run.descend(10, 1e-2) == (0, gap)
    np.testing.assert_array_equal(run.Y, before)


DIVERGENCES = ["l2", "kl"]  # of others, test_divergences has the values and slopes
STARTS = {"uniform": perturbed_uniform, "dirichlet": dirichlet}


def table_of(n_objects=40, share=0.5):
    """Noisy labels of planted clusters, and some of their pairs."""
    rng = np.random.default_rng(0)
    truth = np.arange(n_objects) % K
    noisy = rng.random((n_objects, 12)) < 0.25
    labels = np.where(noisy, rng.integers(0, K, noisy.shape), truth[:, None])
    labels[rng.random(labels.shape) < 0.3] = -1
    labels[:, 0] = truth
    return sample(labels, share=share, random_state=0), labels, truth


def solve(table, divergence, rows, *, init="dirichlet", **options):
    start = STARTS[init](table.n_objects, K, 3) if isinstance(init, str) else init
    options = {"max_passes": 30, "tol": 1e-4, "blocks": row_blocks(table.n_objects, rows), **options}
    return solve_listed(table, K, start, divergence, **options)


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=str)
@pytest.mark.parametrize(("rows", "init"), [(1, "uniform"), (3, "dirichlet"), (20, "uniform")])
def test_solve__objective_never_rises(divergence, rows, init):
    objective = solve(table_of()[0], divergence, rows, init=init, max_passes=15).history["objective"]
    assert (np.diff(objective) <= 1e-6 * np.abs(objective[:-1])).all()


@pytest.mark.parametrize("divergence", VALUES)
@pytest.mark.parametrize(("lengths", "expected"), [((0.7, 0.5), 0.7), ((0.0,), 0.0)])
def test_solve__shortens_a_pass_that_raises_the_objective_or_takes_more_rounds(divergence, lengths, expected):
    table = table_of(60)[0]
    how = {"lengths": lengths, "rounding": -1.0}  # every pass counts as one that raises it
    solution = solve(table, divergence, 6, max_passes=9, **how)
    taken, objective = np.array(solution.history["step_length"]), solution.history["objective"]
    # all ten blocks share pairs: 2, 4 and 8 rounds of them, then 10
    assert taken.tolist() == ([expected] * 9 if expected else [0.0] * 3 + [1.0] * 6)
    assert (np.diff(objective) <= 1e-6 * objective[0]).all()
    pairs = list(zip(*(column.tolist() for column in table.edges()), strict=True))
    value = naive.objective(pairs, solution.memberships.astype(float), VALUES[divergence][0])
    assert solution.objective == pytest.approx(value, rel=1e-5)


@given(data=st.data(), divergence=st.sampled_from(["l2", "kl"]))
def test_solve__adversarial_pairs_never_rise(data, divergence):
    """Pairs all together or all apart, on any graph, from any corner: where joint moves overshoot most."""
    n = data.draw(st.integers(2, 9))
    every = st.sampled_from(list(itertools.combinations(range(n), 2)))
    pairs = data.draw(st.lists(every, min_size=1, unique=True))
    agree = [data.draw(st.sampled_from([0, 1, 50])) for _ in pairs]
    i, j = np.array(pairs).T
    table = PairTable.from_arrays(i, j, agree, [50] * len(pairs), n_objects=n)
    corners = np.eye(K, dtype=np.float32)[[data.draw(st.integers(0, K - 1)) for _ in range(n)]]
    solution = solve(table, divergence, data.draw(st.integers(1, n)), init=corners, max_passes=8)
    objective, memberships = solution.history["objective"], solution.memberships
    assert (np.diff(objective) <= 1e-6 * np.abs(objective[:-1]) + 1e-4).all()
    np.testing.assert_allclose(memberships.sum(axis=1), 1, atol=1e-5)
    assert (memberships >= 0).all()


@pytest.mark.parametrize("engine", [ThreadsEngine(3), RepeatedTasks(20_000)], ids=["threads", "pickled"])
def test_solve__same_bits_on_any_engine(engine, tmp_path):
    table = table_of(80)[0].save(tmp_path / "p.zarr")
    expected = solve(table, "kl", 16, max_passes=6)
    arrays = FileBlocks(tmp_path / "blocks", K)
    solution = solve(table, "kl", 16, max_passes=6, engine=engine, arrays=arrays)
    np.testing.assert_array_equal(solution.memberships, expected.memberships)
    for name in ("objective", "gap", "steps"):
        assert solution.history[name] == expected.history[name]


@pytest.mark.parametrize("rounding", [1e-7, -1.0], ids=["full passes", "shortened passes"])
def test_solve__resumes_with_the_same_bits(rounding, tmp_path):
    table, how = table_of(60)[0], {"tol": 0.0, "rounding": rounding}
    expected = solve(table, "l2", 9, max_passes=8, **how)
    keep = {"arrays": FileBlocks(tmp_path, K), "snapshots": Snapshots(tmp_path, {"of": "test"}), **how}
    solve(table, "l2", 9, max_passes=3, **keep)
    for stray in row_blocks(60, 9):  # a pass that was cut short
        keep["arrays"].write(4, stray, np.full((stray.n_rows, K), np.nan, np.float32))
    solution = solve(table, "l2", 9, max_passes=8, **keep)
    np.testing.assert_array_equal(solution.memberships, expected.memberships)
    assert solution.history["objective"] == expected.history["objective"]
    assert len(list(tmp_path.glob("generation-*"))) == 1


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        *(
            ({"pairs": 0.25}, "blocked"),
            ({"pairs": 0.1}, "heap"),
            ({"pairs": 0.25, "max_iter": "paper"}, "heap"),
        ),
        *(({"pairs": 0.25, "solver": "heap"}, "heap"), ({"pairs": 0.1, "solver": "blocked"}, "blocked")),
        ({"pairs": "dense"}, "heap"),
    ],
)
def test_auto__solves_a_million_pairs_by_blocks_unless_the_heap_is_meant(asked, expected):
    ensemble = Ensemble.from_labels(np.arange(6000).reshape(3000, 2) % 7)
    assert choose_problem(PCC(K, **asked), ensemble).solver == expected
