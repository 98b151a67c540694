"""PCC on listed pairs, by a heap or in blocks: never a rise, the same on any engine, what the paper says."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import PCC, Divergence, Ensemble, PairTable
from bigcons.coassociation import sample
from bigcons.disk.checkpoint import FileBlocks, Snapshots
from bigcons.divergences import resolve_divergence
from bigcons.errors import MemoryBudgetError
from bigcons.memory import row_blocks
from bigcons.methods.pcc.all_pairs import dirichlet, perturbed_uniform
from bigcons.methods.pcc.estimator import choose_problem
from bigcons.methods.pcc.pairs import (
    cut_blocks,
    graph_of,
    stretch_steps,
    take_stretch,
)
from bigcons.metrics import adjusted_rand
from bigcons.run.engine import SerialEngine, ThreadsEngine
from tests.naive import pcc as naive
from tests.support.engines import RepeatedTasks
from tests.support.pcc import solve_listed

K = 3
NONCONVEX = Divergence(lambda x: x**6, allow_nonconvex=True, name="sixth")
DIVERGENCES = ["l2", "kl", "power:1.5", "exponential", NONCONVEX]
VALUES = {"l2": (naive.l2, naive.l2_slope), "kl": (naive.kl, naive.kl_slope)}


def table_of(n_objects=40, share=0.5, seed=0, n_true=3):
    """Noisy labels of planted clusters, and some of their pairs."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n_objects) % n_true
    noisy = rng.random((n_objects, 12)) < 0.25
    labels = np.where(noisy, rng.integers(0, n_true, noisy.shape), truth[:, None])
    labels[rng.random(labels.shape) < 0.3] = -1
    labels[:, 0] = truth
    return sample(labels, share=share, random_state=seed), labels, truth


def solve(table, divergence="l2", rows=None, engine=None, **options):
    blocks = None if rows is None else row_blocks(table.n_objects, rows)
    start = start_of(options.pop("init", "dirichlet"), table.n_objects)
    options = {"max_passes": 30, "tol": 1e-4, **options}
    return solve_listed(table, K, start, divergence, blocks=blocks, engine=engine, **options)


def start_of(init, n_objects):
    draws = {"uniform": perturbed_uniform, "dirichlet": dirichlet}
    return draws[init](n_objects, K, 3) if isinstance(init, str) else init


def naive_pairs(table):
    return list(zip(*(column.tolist() for column in table.edges()), strict=True))


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=str)
@pytest.mark.parametrize("init", ["uniform", "dirichlet"])
def test_solve__of_one_block_takes_stretches_of_algorithm_1_one_after_another(divergence, init):
    table = table_of()[0]
    memberships = start_of(init, table.n_objects)
    found = solve(table, divergence, table.n_objects, init=memberships, max_passes=4, tol=0.0, max_steps=130)
    graph, left, objectives = graph_of(table.read(0, 40)), 130, []
    for steps in (40, 40, 40, 10):
        assert steps == min(stretch_steps(40, K), left)
        memberships, done = take_stretch(graph, memberships, resolve_divergence(divergence), steps, 0.0)
        left -= done.n_steps
        objectives.append(done.objective)
    np.testing.assert_array_equal(found.memberships, memberships)
    assert found.history["objective"] == objectives


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=str)
@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize("init", ["uniform", "dirichlet"])
def test_solve__objective_never_rises(divergence, rows, init):
    table = table_of()[0]
    objective = solve(table, divergence, rows, init=init, max_passes=15).history["objective"]
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
    naive_value = naive.objective(
        naive_pairs(table), solution.memberships.astype(float), VALUES[divergence][0]
    )
    assert solution.objective == pytest.approx(naive_value, rel=1e-5)


@given(data=st.data(), divergence=st.sampled_from(["l2", "kl"]))
def test_solve__adversarial_pairs_never_rise(data, divergence):
    """Pairs all together or all apart, on any graph, from any corner: where joint moves overshoot most."""
    n = data.draw(st.integers(2, 9))
    pairs = data.draw(
        st.lists(st.sampled_from(list(itertools.combinations(range(n), 2))), min_size=1, unique=True)
    )
    agree = [data.draw(st.sampled_from([0, 1, 50])) for _ in pairs]
    i, j = np.array(pairs).T
    table = PairTable.from_arrays(i, j, agree, [50] * len(pairs), n_objects=n)
    corners = np.eye(K, dtype=np.float32)[[data.draw(st.integers(0, K - 1)) for _ in range(n)]]
    rows = data.draw(st.integers(1, n))
    solution = solve(table, divergence, rows, init=corners, max_passes=8)
    objective, memberships = solution.history["objective"], solution.memberships
    assert (np.diff(objective) <= 1e-6 * np.abs(objective[:-1]) + 1e-4).all()
    np.testing.assert_allclose(memberships.sum(axis=1), 1, atol=1e-5)
    assert (memberships >= 0).all()


@pytest.mark.parametrize("engine", [ThreadsEngine(3), "pickled"], ids=["threads", "pickled"])
def test_solve__same_bits_on_any_engine(engine, tmp_path):
    table = table_of(80)[0].save(tmp_path / "p.zarr")
    expected = solve(table, "kl", 16, max_passes=6)
    if engine == "pickled":
        engine = RepeatedTasks(most_bytes=20_000)
        options = {"arrays": FileBlocks(tmp_path / "blocks", K)}
    else:
        options = {}
    solution = solve(table, "kl", 16, engine, max_passes=6, **options)
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
    assert len(list(tmp_path.glob("generation-*"))) == 2


@settings(deadline=None)
@given(data=st.data(), n_objects=st.integers(2, 300), tight=st.booleans())
def test_cut_blocks__cover_all_objects_and_cost_about_the_same(data, n_objects, tight):
    """Also if a few objects have most of the pairs, and in pieces of any length."""
    hubs = data.draw(st.integers(1, n_objects - 1))
    i, j = np.triu_indices(n_objects, 1)
    kept = (i < hubs) & ((i + j) % 3 == 0)
    if not kept.any():
        kept[0] = True
    ones = np.ones(kept.sum(), int)
    table = PairTable.from_arrays(i[kept], j[kept], ones, ones, n_objects=n_objects)
    blocks = cut_blocks(table, 5, 20, 7 if tight else 1000)
    assert [block.start for block in blocks[1:]] == [block.stop for block in blocks[:-1]]
    assert (blocks[0].start, blocks[-1].stop) == (0, n_objects)
    assert [block.index for block in blocks] == list(range(len(blocks)))
    assert all(block.n_rows > 0 for block in blocks)
    cost = np.diff(table.indptr) + 8
    wanted = min(max(2 * table.n_pairs // 20, 1), 5)
    assert len(blocks) <= wanted
    for block in blocks:
        assert cost[block.start : block.stop].sum() <= cost.sum() / wanted + cost.max()


def variant_of(asked, ensemble):
    return choose_problem(PCC(K, **asked), ensemble, SerialEngine())


def test_auto__solves_by_blocks_where_the_heap_and_the_process_exceed_the_budget(tmp_path):
    table, labels, _ = table_of(600, share=0.1)
    table = table.save(tmp_path / "p.zarr")
    ensemble, engine = Ensemble.from_labels(labels), SerialEngine()
    plan = variant_of({"pairs": table, "solver": "heap"}, ensemble).plan(ensemble, engine, in_memory=True)
    heap = plan.n_bytes(engine, ensemble)
    assert variant_of({"pairs": table, "memory": 2 * heap}, ensemble).solver == "heap"
    assert variant_of({"pairs": table, "memory": heap // 2}, ensemble).solver == "blocked"
    with pytest.raises(MemoryBudgetError, match="or use solver='blocked', pairs='all' or a smaller"):
        PCC(K, memory=heap // 2, solver="heap", pairs=table, client="serial").fit(ensemble)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"pairs": 0.25}, "blocked"),
        ({"pairs": 0.1}, "heap"),
        ({"pairs": 0.25, "max_iter": "paper"}, "heap"),
        ({"pairs": 0.25, "solver": "heap"}, "heap"),
        ({"pairs": 0.1, "solver": "blocked"}, "blocked"),
        ({"pairs": "dense"}, "heap"),
    ],
)
def test_auto__solves_a_million_pairs_by_blocks_unless_the_heap_is_meant(asked, expected):
    assert variant_of(asked, Ensemble.from_labels(np.arange(6000).reshape(3000, 2) % 7)).solver == expected


@pytest.mark.slow
@pytest.mark.parametrize("divergence", ["l2", "kl"])
def test_fit__stored_tiles(divergence, tmp_path):
    _, labels, truth = table_of(800)
    ensemble = Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=128)
    sample(ensemble, per_object=20, tiles=4, out=tmp_path / "p.zarr", random_state=0)
    model = PCC(K, divergence=divergence, pairs=tmp_path / "p.zarr", tol=1e-2, random_state=0)
    model.fit(ensemble, out=tmp_path / "c.zarr")
    assert adjusted_rand(truth, model.labels_) > 0.99
    assert "steps" in model.history_
    again = PCC(K, divergence=divergence, pairs=PairTable.open(tmp_path / "p.zarr"), tol=1e-2, random_state=0)
    np.testing.assert_array_equal(again.fit(labels).memberships_, np.asarray(model.memberships_))


def test_fit__places_objects_without_pairs(tmp_path):
    _, labels, truth = table_of(60)
    i, j = np.triu_indices(55, 1)
    together = (truth[i] == truth[j]).astype(int)
    table = PairTable.from_arrays(i, j, together, np.ones(len(i), int), n_objects=60)
    table = table.save(tmp_path / "p.zarr")
    model = PCC(K, pairs=table, solver="blocked", random_state=0).fit(labels)
    assert adjusted_rand(truth, model.labels_) == 1
