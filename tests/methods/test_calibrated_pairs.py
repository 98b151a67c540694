"""Calibrated co-association with shared rates, on listed pairs and by any divergence: against brute force."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bigcons import PCC, Ensemble, PairTable
from bigcons.coassociation import sample
from bigcons.datasets import planted_ensemble
from bigcons.divergences import Calibrated, resolve_divergence
from bigcons.errors import ConvergenceWarning, InvalidInputError
from bigcons.execution.engine import SerialEngine, ThreadsEngine
from bigcons.kernels import pair_descent
from bigcons.memory import row_blocks
from bigcons.methods.pcc.blocked import BlockedPairs, solve_blocked
from bigcons.methods.pcc.calibrated_pairs import (
    LEAST_SCALE,
    MARGIN,
    inside,
    rates_of,
    sums_over_pairs,
)
from bigcons.methods.pcc.heap import graph_of, solve_pairs, stretch_steps
from bigcons.methods.pcc.prototypes import Prototypes
from bigcons.metrics import adjusted_rand
from tests.naive import calibrated_pairs as naive
from tests.naive import pcc as plain
from tests.support.strategies import label_matrices

K = 3
NAIVE = {"l2": (plain.l2, plain.l2_slope), "kl": (plain.kl, plain.kl_slope)}
RULES = [("l2", "least-squares"), ("l2", "moments"), ("kl", "moments")]


@st.composite
def problems(draw):
    """Draw a pair table of labels with gaps, its pairs, memberships and rates."""
    labels = draw(label_matrices(min_objects=2, max_objects=9, max_clusters=3))
    pairs = plain.all_pairs(labels)
    assume(pairs)
    kept = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    pairs = [pair for pair, keep in zip(pairs, kept, strict=True) if keep] or pairs
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    Y = rng.dirichlet(np.ones(K), len(labels)).astype(np.float32)
    if draw(st.booleans()):
        Y = np.eye(K, dtype=np.float32)[Y.argmax(axis=1)]
    a = rng.uniform(0.01, 0.5)
    table = PairTable.from_arrays(*np.array(pairs).T, n_objects=len(labels))
    return table, pairs, Y, a, rng.uniform(0.05, 0.99 - a)


def pairs_of(graph, a=0.0, d=1.0):
    """Return the pairs of a graph with their shares and weights, which are float32, undoing `targets`."""
    for i in range(len(graph.indptr) - 1):
        for e in range(graph.indptr[i], graph.indptr[i + 1]):
            if graph.indices[e] > i:
                weight = float(graph.weight[e]) / d**2
                yield i, int(graph.indices[e]), (a + d * float(graph.observed[e])) * weight, weight


@given(problems(), st.sampled_from(["l2", "kl"]))
@settings(max_examples=60)
def test_kernels__give_objective_and_gradient_of_brute_force(problem, name):
    table, pairs, Y, a, d = problem
    value, slope = NAIVE[name]
    divergence = Calibrated(resolve_divergence(name), a, d)
    graph = graph_of(table, divergence)
    held = list(pairs_of(graph, a, d) if name == "l2" else pairs_of(graph))
    np.testing.assert_allclose(held, pairs, rtol=1e-6, atol=1e-5)
    compiled = divergence.compiled
    n, rows = len(Y), np.zeros((len(Y), 2 * K))
    rows[:, :K] = Y
    queue = np.empty(n), np.empty(n, np.int32), np.empty(n, np.int32)
    graph = graph._replace(others=np.empty((0, K), np.float32))
    pair_descent.prepare(rows, *graph, *queue, compiled.slope, compiled.parameter)
    expected = naive.gradient(held, Y.astype(float), slope, a, d)
    np.testing.assert_allclose(rows[:, K:], expected, rtol=1e-9, atol=1e-9)
    found = pair_descent.total_value(rows, *graph, compiled.value, compiled.parameter)
    assert found == pytest.approx(naive.objective(held, Y.astype(float), value, a, d), rel=1e-9, abs=1e-9)


@given(
    st.sampled_from(["kl", "exponential"]),
    st.floats(0, 1),
    st.floats(0.01, 0.99),
    st.floats(0.01, 0.4),
    st.floats(0.1, 0.5),
)
def test_calibrated__is_the_divergence_from_the_probability_of_a_join(name, x, p, a, d):
    divergence = resolve_divergence(name)
    own, inner = Calibrated(divergence, a, d).compiled, divergence.compiled
    at = x, a + d * p, inner.parameter
    assert own.value(x, p, own.parameter) == pytest.approx(inner.value(*at), rel=1e-12, abs=1e-15)
    assert own.slope(x, p, own.parameter) == pytest.approx(d * inner.slope(*at), rel=1e-12, abs=1e-15)
    assert own.curvature(x, p, own.parameter) == pytest.approx(d * d * inner.curvature(*at), rel=1e-12)


def test_calibrated__is_sent_with_its_rates_alone():
    divergence = Calibrated(resolve_divergence("kl"), 0.25, 0.5)
    assert divergence.compiled.parameter[:2] == (0.25, 0.5)
    sent = pickle.dumps(divergence)
    again = pickle.loads(sent)
    assert (again.a, again.d, again.label) == (0.25, 0.5, "kl")
    assert again.compiled.value is divergence.compiled.value


@given(problems())
def test_sums_over_pairs__are_those_of_all_pairs(problem):
    table, pairs, Y, *_ = problem
    found = sums_over_pairs(table, Y)
    np.testing.assert_allclose(found, naive.sums(pairs, Y.astype(float)), rtol=1e-9, atol=1e-9)


@given(problems())
def test_rates_of__least_squares_have_the_least_residual(problem):
    table, pairs, Y, *_ = problem
    sums = sums_over_pairs(table, Y)
    n, _, p, p2, *_ = sums
    assume(p2 - p * p / n > 1e-3)
    a, d = rates_of(sums, "least-squares")
    assume(d > LEAST_SCALE)
    least = naive.objective(pairs, Y.astype(float), plain.l2, a, d)
    assert a >= 0
    for other in ((a + 0.01, d), (max(a - 0.01, 0), d), (a, d * 1.01), (a + 0.01, d * 0.99)):
        assert naive.objective(pairs, Y.astype(float), plain.l2, *other) >= least - 1e-9


@given(problems())
def test_rates_of__moments_are_mean_joins_in_equal_and_different_clusters(problem):
    table, pairs, Y, *_ = problem
    a, d = rates_of(sums_over_pairs(table, Y), "moments")
    assert a >= MARGIN
    assert d >= LEAST_SCALE
    assert a + d <= 1 - MARGIN + 1e-12
    clusters = Y.argmax(axis=1)
    equal = [(c, w) for i, j, c, w in pairs if clusters[i] == clusters[j]]
    different = [(c, w) for i, j, c, w in pairs if clusters[i] != clusters[j]]
    if equal and different:
        rates = [np.sum(part, axis=0) for part in (different, equal)]
        expected = inside(*(c / w for c, w in rates))
        assert (a, d) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("rule", ["least-squares", "moments"])
def test_rates_of__pairs_that_cannot_be_told_apart_are_those_of_the_paper(rule):
    table = PairTable.from_arrays([0, 1], [1, 2], [1, 2], [4, 4], n_objects=3)
    rates = rates_of(sums_over_pairs(table, np.ones((3, 1), np.float32)), rule)
    assert rates == pytest.approx((0, 1), abs=3e-6)


# Solvers


def problem_of(n_objects=90, share=0.4, seed=0):
    """Return the pairs of coarse labels of four classes, the ensemble, and memberships near the classes."""
    ensemble, truth = planted_ensemble(
        n_objects, 20, shares=(0.25,) * 4, n_clusters=(2, 3), noise=(0.0, 0.2), missing=0.3, random_state=seed
    )
    near = np.full((n_objects, 4), 0.1, np.float32)
    near[np.arange(n_objects), truth] = 0.7
    return sample(ensemble, share=share, random_state=seed), ensemble, truth, near


def solve(table, near, divergence, rule, rows=None, engine=None, max_passes=30, **options):
    blocks = row_blocks(table.n_objects, rows or table.n_objects)
    options = {"init": near, "max_passes": max_passes, "tol": 1e-5, "seed": 0, "blocks": blocks, **options}
    divergence = resolve_divergence(divergence)
    solution = solve_blocked(table, 4, divergence, rule=rule, engine=engine or SerialEngine(), **options)
    return solution, np.concatenate([solution.read(block) for block in blocks])


@pytest.mark.parametrize(("divergence", "rule"), RULES[::2])
def test_solve_blocked__one_block_is_the_heap_bit_for_bit(divergence, rule):
    table, _, _, near = problem_of()
    heap = solve_pairs(
        *(table, 4, resolve_divergence(divergence)),
        init=near,
        n_init=1,
        tol=1e-5,
        seed=0,
        rule=rule,
        max_steps=5 * stretch_steps(90, 4),
    )
    solution, memberships = solve(table, near, divergence, rule, max_passes=5)
    np.testing.assert_array_equal(memberships, heap.memberships)
    assert (solution.calibrated.a, solution.calibrated.d) == (heap.calibrated.a, heap.calibrated.d)
    assert solution.history["objective"] == heap.history["objective"]
    assert solution.history["gap"] == heap.history["gap"]


@pytest.mark.parametrize(("divergence", "rule"), RULES)
@pytest.mark.parametrize("rows", [13, 90])
def test_solve_blocked__objective_never_rises_and_is_that_of_the_memberships(divergence, rule, rows):
    table, _, _, near = problem_of()
    solution, memberships = solve(table, near, divergence, rule, rows, max_passes=200)
    objective = np.array(solution.history["objective"])
    assert (np.diff(objective) <= 1e-6 * np.abs(objective[:-1])).all()
    pairs = list(zip(*(column.tolist() for column in table.edges()), strict=True))
    value, slope = NAIVE[divergence]
    a, d = solution.calibrated.a, solution.calibrated.d
    assert (a, d) == pytest.approx(rates_of(sums_over_pairs(table, near), rule), rel=1e-9)
    Y = memberships.astype(float)
    assert objective[-1] == pytest.approx(naive.objective(pairs, Y, value, a, d), rel=1e-5)
    assert solution.converged
    scale = d * d * plain.mean_weight(pairs, table.n_objects)
    assert naive.kkt_gap(pairs, Y, slope, a, d) / scale <= 2e-4


@pytest.mark.parametrize(("divergence", "rule"), RULES[::2])
def test_solve_blocked__same_bits_on_threads_and_in_any_store(divergence, rule, tmp_path):
    table, _, _, near = problem_of()
    expected = solve(table, near, divergence, rule, 13, max_passes=5)
    stored = table.save(tmp_path / "p.zarr")
    table.save(tmp_path / "p.parquet")
    again = PairTable.open(tmp_path / "p.parquet").save(tmp_path / "again.zarr")
    for pairs, engine in ((table, ThreadsEngine(3)), (stored, None), (again, ThreadsEngine(2))):
        solution, memberships = solve(pairs, near, divergence, rule, 13, engine, max_passes=5)
        np.testing.assert_array_equal(memberships, expected[1])
        assert solution.history["objective"] == expected[0].history["objective"]


@pytest.fixture(scope="module")
def coarse():
    """Eight classes by partitions of two to four clusters, which join objects of different classes."""
    return planted_ensemble(
        800, 40, shares=(0.125,) * 8, n_clusters=(2, 4), noise=(0.0, 0.2), missing=0.3, random_state=2
    )


@pytest.mark.parametrize(
    ("solver", "divergence", "rule"),
    [("heap", "l2", "least-squares"), ("blocked", "kl", "moments")],
)
@pytest.mark.filterwarnings("ignore::bigcons.errors.UndersegmentationWarning")
def test_fit__of_listed_pairs_finds_classes_finer_than_the_partitions(coarse, solver, divergence, rule):
    ensemble, truth = coarse
    asked = {"n_clusters": 8, "pairs": 0.1, "solver": solver, "divergence": divergence, "random_state": 0}
    asked["tol"] = 1e-3
    model = PCC(**asked, coassociation=rule).fit(ensemble)
    assert model.converged_
    assert adjusted_rand(truth, model.labels_) > adjusted_rand(truth, PCC(**asked).fit(ensemble).labels_)
    assert model.hit_rates_.shape == model.false_join_rates_.shape == (40,)
    assert np.ptp(model.hit_rates_) == np.ptp(model.false_join_rates_) == 0
    assert (model.hit_rates_ > model.false_join_rates_).all()
    assert len(model.start_objectives_) == 8
    objective = np.array(model.history_["objective"])
    assert (np.diff(objective) <= 1e-6 * objective[0]).all()
    assert (model.predict(ensemble) == model.labels_).mean() > 0.9


@pytest.mark.parametrize("n_prototypes", ["auto", 24], ids=["pairwise", "prototypes"])
@pytest.mark.filterwarnings("ignore::bigcons.errors.UndersegmentationWarning")
def test_fit__of_all_pairs_by_kl_finds_classes_finer_than_the_partitions(coarse, n_prototypes):
    ensemble, truth = coarse
    labels = ensemble.read(0, 400)
    asked = {
        "n_clusters": 8,
        "divergence": "kl",
        "n_prototypes": n_prototypes,
        "tol": 0.1,
        "random_state": 0,
    }
    model = PCC(**asked, coassociation="moments").fit(labels)
    plainly = PCC(**asked).fit(labels)
    assert adjusted_rand(truth[:400], model.labels_) > adjusted_rand(truth[:400], plainly.labels_)
    objective = np.array(model.history_["objective"])
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    assert (model.predict(labels) == model.labels_).mean() > 0.9
    if n_prototypes == "auto":
        a, d = model.false_join_rates_[0], model.hit_rates_[0] - model.false_join_rates_[0]
        Y = model.memberships_.astype(float)
        i, j = np.triu_indices(400, 1)
        together = ((labels[i] == labels[j]) & (labels[i] >= 0)).sum(axis=1)
        seen = ((labels[i] >= 0) & (labels[j] >= 0)).sum(axis=1)
        joined = a + d * np.einsum("ek,ek->e", Y[i], Y[j])
        likelihood = (together * np.log(joined) + (seen - together) * np.log(1 - joined)).sum()
        assert objective[-1] == pytest.approx(-likelihood, rel=1e-6)


def test_fit__isolated_objects_are_placed_by_the_rates(tmp_path):
    _, ensemble, truth, _ = problem_of(60)
    labels = ensemble.read(0, 60)
    table = sample(Ensemble.from_labels(labels[:55]), share=1.0, random_state=0)
    table = PairTable.from_arrays(*table.edges(), n_objects=60)
    model = PCC(4, pairs=table, coassociation="moments", random_state=0).fit(labels)
    assert adjusted_rand(truth, model.labels_) > 0.5
    assert (model.predict(labels[55:]) == model.labels_[55:]).all()


@pytest.mark.parametrize(
    "asked", [{"pairs": 0.2, "solver": "blocked"}, {"n_prototypes": 24, "init": "dirichlet"}]
)
def test_fit__is_resumed_with_the_same_bits(coarse, asked, tmp_path, monkeypatch):
    labels = coarse[0].read(0, 400)
    method = BlockedPairs if "pairs" in asked else Prototypes
    asked = {"n_clusters": 8, "divergence": "kl", "coassociation": "moments", "random_state": 0, **asked}
    asked |= {"max_iter": 5, "tol": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        expected = PCC(**asked).fit(labels)
        assert expected.n_passes_ > 2

        def stop(self, run, at, total, step=method.step):
            if len(at.records) == 1:
                raise KeyboardInterrupt
            return step(self, run, at, total)

        with monkeypatch.context() as patch:
            patch.setattr(method, "step", stop)
            with pytest.raises(KeyboardInterrupt):
                PCC(**asked).fit(labels, out=tmp_path / "c.zarr")
        resumed = PCC(**asked).fit(labels, out=tmp_path / "c.zarr")
    np.testing.assert_array_equal(np.asarray(resumed.memberships_), expected.memberships_)
    assert resumed.history_["objective"] == expected.history_["objective"]
    np.testing.assert_array_equal(resumed.hit_rates_, expected.hit_rates_)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"rarity": 1.0, "pairs": 0.5}, "rarity=1 with pairs=0.5"),
        ({"common_rates": False, "pairs": "dense"}, "common_rates=False with pairs='dense'"),
        ({"common_rates": False, "divergence": "kl"}, "common_rates=False with pairs='all', divergence='kl'"),
        ({"coassociation": "least-squares", "divergence": "kl"}, "coassociation='least-squares' with"),
        ({"coassociation": "least-squares", "divergence": "kl", "pairs": 0.5}, "which is not defined for"),
        ({"init": "uniform", "pairs": 0.5}, "init='uniform' with coassociation='moments' on listed pairs"),
        ({"init": "dirichlet", "pairs": 0.5, "solver": "blocked"}, "init='dirichlet' with coassociation"),
    ],
)
def test_fit__refuses_what_it_cannot_calibrate(asked, message):
    with pytest.raises(InvalidInputError, match=message):
        PCC(2, **{"coassociation": "moments", **asked}).fit(np.arange(12).reshape(6, 2) % 3)
