"""PCC as a whole: what it reports is true, solvers agree, oracles are met, bad input is refused."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import PCC, Ensemble, PairTable
from bigcons.coassociation import sample
from bigcons.datasets import planted_ensemble, simulated_soft_partitions
from bigcons.errors import (
    ConsensusWarning,
    ConvergenceWarning,
    DisconnectedWarning,
    InvalidInputError,
    MemoryBudgetError,
    UnlabeledObjectsWarning,
)
from bigcons.memory import Block
from bigcons.methods.pcc.all_pairs import dirichlet, perturbed_uniform
from bigcons.metrics import adjusted_rand, jensen_shannon, pcc_objective
from bigcons.run.engine import ThreadsEngine
from bigcons.seeding import resolve_seed
from tests.naive import pcc as naive
from tests.support.pcc import given as from_memberships
from tests.support.pcc import solve_all, solve_listed
from tests.support.strategies import label_matrices

# Two pairs of objects, together in 9 of 10 partitions within and in 1 across (PCC, 4-object example).
ORACLE = np.array([[0, 0, 0, 0]] + [[0, 0, 1, 1]] * 7 + [[0, 0, 1, 2], [0, 1, 2, 2]]).T
ORACLE_OPTIMUM = (1 + np.sqrt(0.8)) / 2


def planted(n_objects=60, n_partitions=15, noise=0.25, missing=0.3, seed=0, n_classes=3):
    """Return noisy labels with gaps around a truth, and that truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_objects)
    labels = np.tile(truth[:, None], n_partitions)
    wrong = rng.random(labels.shape) < noise
    labels[wrong] = rng.integers(n_classes, size=wrong.sum())
    labels[rng.random(labels.shape) < missing] = -1
    labels[(labels < 0).all(axis=1), 0] = 0
    return labels, truth


def quiet(model, x):
    """Fit without a word about convergence, or another number of clusters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsensusWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x)


def naive_gap(model, labels, slope=naive.l2_slope):
    pairs = naive.all_pairs(labels)
    gaps = naive.kkt_gaps(pairs, model.memberships_.astype(np.float64), slope)
    return gaps.max() / naive.mean_weight(pairs, len(labels))


def stored(labels, path, chunk_rows):
    return Ensemble.from_labels(labels).save(path, chunk_rows=chunk_rows)


# What is reported


@pytest.mark.parametrize("pairs", ["all", "dense"])
def test_fit__reports_the_gap_and_the_objective_of_what_it_returns(pairs):
    labels, _ = planted()
    model = PCC(3, pairs=pairs, tol=1e-5, random_state=0).fit(labels)
    assert model.converged_
    assert model.gap_ <= 1e-5
    assert naive_gap(model, labels) == pytest.approx(model.gap_, abs=2e-6)  # memberships are float32
    expected = pcc_objective(labels, model.memberships_, constant=pairs == "dense")
    assert model.objective_ == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("pairs", "divergence"), [("all", "l2"), ("dense", "l2"), ("dense", "kl")])
@given(
    labels=label_matrices(min_objects=2, max_objects=12),
    n_clusters=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_fit__of_any_labels_returns_memberships_that_are_as_reported(
    pairs, divergence, labels, n_clusters, seed
):
    n_clusters = min(n_clusters, len(labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlabeledObjectsWarning)
        warnings.simplefilter("ignore", ConsensusWarning)
        asked = {"pairs": pairs, "divergence": divergence, "random_state": seed}
        model = PCC(n_clusters, max_iter=1000 if pairs == "all" else 20_000, **asked).fit(labels)
    Y = model.memberships_.astype(np.float64)
    assert (Y >= 0).all()
    np.testing.assert_allclose(Y.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(model.labels_ < 0, (labels < 0).all(axis=1))
    listed = naive.all_pairs(labels)
    value, slope = (naive.kl, naive.kl_slope) if divergence == "kl" else (naive.l2, naive.l2_slope)
    left_out = naive.constant(listed) if pairs == "all" else 0
    expected = naive.objective(listed, Y, value) - left_out
    assert model.objective_ == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert model.converged_
    if listed:
        gap = naive.kkt_gaps(listed, Y, slope).max() / max(naive.mean_weight(listed, len(labels)), 1)
        assert gap <= 1e-3


@pytest.mark.parametrize("draw", [perturbed_uniform, dirichlet])
def test_solve__never_raises_the_objective_from_any_start(draw):
    labels, _ = planted(n_objects=80)
    found = solve_all(labels, 4, from_memberships(draw(80, 4, 1)), tol=0)
    objective = np.array(found.history["objective"])
    assert (np.diff(objective) <= 1e-6 * np.abs(objective[0])).all()
    assert objective[-1] == found.objective < objective[0]


@pytest.mark.parametrize("pairs", ["all", "dense"])
def test_fit__stops_at_max_iter_and_warns(pairs):
    labels, _ = planted(noise=0.5)
    with pytest.warns(ConvergenceWarning, match="raise max_iter or tol"):
        model = PCC(3, pairs=pairs, max_iter=1, tol=1e-9, random_state=0).fit(labels)
    assert not model.converged_
    assert model.n_passes_ == 1


# Several blocks at once, engines, stores


@pytest.mark.parametrize("draw", [None, perturbed_uniform, dirichlet])
def test_solve__of_many_blocks_never_raises_the_objective(tmp_path, draw):
    labels, truth = planted(n_objects=300)
    ensemble = stored(labels, tmp_path / "e.zarr", 16)
    assert len(ensemble.blocks()) == 19
    start = PCC(3, random_state=0).fit(labels).memberships_ if draw is None else draw(300, 3, 0)
    found, whole = (solve_all(x, 3, from_memberships(start), max_passes=400) for x in (ensemble, labels))
    objective = np.array(found.history["objective"])
    assert (np.diff(objective) <= 1e-7 * np.abs(objective[0])).all()
    expected = pcc_objective(labels, found.memberships, constant=False)
    assert found.objective == pytest.approx(expected, rel=1e-6)
    gaps = naive.kkt_gaps(pairs := naive.all_pairs(labels), found.memberships.astype(np.float64))
    assert gaps.max() / naive.mean_weight(pairs, 300) <= 1.1e-4
    assert found.objective == pytest.approx(whole.objective, rel=1e-4)
    assert adjusted_rand(truth, found.memberships.argmax(axis=1)) > 0.9


@pytest.mark.parametrize("pairs", ["all", 0.05])
def test_fit__has_the_same_bits_on_any_engine_and_from_a_store(tmp_path, pairs):
    labels, _ = planted(n_objects=2500, n_partitions=10)
    in_memory = Ensemble.from_labels(labels)
    on_disk = stored(labels, tmp_path / "e.zarr", in_memory.chunk_rows)
    assert len(in_memory.blocks()) == len(on_disk.blocks()) > 1
    asked = {
        "n_clusters": 3,
        "pairs": pairs,
        "random_state": 5,
        "max_iter": 10 if pairs == "all" else 3000,
        "tol": 0,
    }
    expected = PCC(**asked, client="serial").fit(in_memory)
    model = PCC(**asked, client=ThreadsEngine(5)).fit(on_disk)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_array_equal(model.memberships_, expected.memberships_)
    assert model.history_["objective"] == expected.history_["objective"]


# Oracles


@pytest.mark.parametrize(
    ("pairs", "divergence"), [("all", "l2"), ("all", "kl"), ("dense", "l2"), ("dense", "kl")]
)
@pytest.mark.parametrize("n_clusters", [2, 3])
def test_fit__solves_the_four_objects(pairs, divergence, n_clusters):
    model = PCC(n_clusters, pairs=pairs, divergence=divergence, tol=1e-7, random_state=0, max_iter=5000).fit(
        ORACLE
    )
    own = np.sort(model.memberships_, axis=1)
    np.testing.assert_allclose(own[:, -1], ORACLE_OPTIMUM, atol=1e-4)
    np.testing.assert_allclose(own[:, -2], 1 - ORACLE_OPTIMUM, atol=1e-4)
    assert model.labels_[0] == model.labels_[1] != model.labels_[2] == model.labels_[3]
    np.testing.assert_allclose(own[:, :-2], 0, atol=1e-6)
    assert model.n_clusters_ == 2


@pytest.mark.parametrize("divergence", ["l2", "kl"])
def test_fit__by_the_limit_of_the_paper_starts_at_the_perturbed_saddle(divergence):
    labels, truth = planted(noise=0.1)
    asked = {"pairs": "dense", "divergence": divergence, "max_iter": "paper", "random_state": 0}
    model = quiet(PCC(3, **asked), labels)
    table = PairTable.from_arrays(*np.array(naive.all_pairs(labels)).T, n_objects=60)
    block = [Block(0, 0, 60)]
    found = solve_listed(
        table, 3, perturbed_uniform(60, 3, resolve_seed(0), 0), divergence, blocks=block, max_steps=180,
        max_passes=3,
    )  # fmt: skip
    np.testing.assert_array_equal(model.memberships_, found.memberships[:, model._order])
    assert adjusted_rand(truth, model.labels_) == 1


@pytest.mark.parametrize("divergence", ["l2", "kl"])
def test_fit__of_the_heap_converges_unless_the_paper_s_cap_is_asked_for(divergence):
    labels, _ = planted(120, noise=0.4)
    asked = {"pairs": 0.5, "divergence": divergence, "random_state": 0}
    model, paper = PCC(4, **asked).fit(labels), quiet(PCC(4, max_iter="paper", **asked), labels)
    assert model.converged_
    assert model.gap_ <= model.tol
    assert sum(paper.history_["steps"]) == 120 * 4
    assert model.objective_ < paper.objective_


@pytest.mark.parametrize("seed", range(3))
def test_fit__solvers_agree_on_small_problems(seed):
    labels, _ = planted(n_objects=50, seed=seed)
    table = PairTable.from_arrays(*np.array(naive.all_pairs(labels)).T, n_objects=50)
    models = [
        PCC(3, pairs=pairs, random_state=seed, tol=1e-5, max_iter=20_000).fit(labels)
        for pairs in ("all", "dense", table)
    ]
    objectives = [pcc_objective(labels, model.memberships_) for model in models]
    assert objectives == pytest.approx([objectives[0]] * 3, rel=1e-4)
    for model in models[1:]:
        assert adjusted_rand(models[0].labels_, model.labels_) == 1
    np.testing.assert_array_equal(models[1].memberships_, models[2].memberships_)


@pytest.mark.slow
@pytest.mark.parametrize(("pairs", "divergence"), [("all", "l2"), ("dense", "kl")])
def test_fit__recovers_simulated_soft_partitions(pairs, divergence):
    labels, truth = simulated_soft_partitions(random_state=0)
    model = quiet(PCC(8, pairs=pairs, divergence=divergence, n_init=1, random_state=0), labels)
    assert model.n_clusters_ == 4
    assert np.sort(model.memberships_.mean(axis=0))[:4].sum() < 1e-3
    assert jensen_shannon(truth, model.memberships_) <= 0.0012  # of more seeds: benchmarks/pcc_paper.py


# Divergences


# Starts


def test_fit__of_kl_over_all_pairs_lists_those_of_few_objects():
    labels, _ = planted()
    model, listed = (
        PCC(3, divergence="kl", pairs=pairs, random_state=0).fit(labels) for pairs in ("all", "dense")
    )
    np.testing.assert_array_equal(model.memberships_, listed.memberships_)
    Y = model.memberships_.astype(np.float64)
    for i, j, n_agree, n_seen in naive.all_pairs(labels):  # it rules out no observed pair
        assert n_agree == 0 or Y[i] @ Y[j] > 0
        assert n_agree == n_seen or Y[i] @ Y[j] < 1


def test_fit__of_many_objects_by_another_divergence_names_the_share_of_pairs_to_use():
    ensemble, truth = planted_ensemble(2300, 20, random_state=3)
    with pytest.raises(InvalidInputError, match=r"at most 2,048, .* pairs=0\.013, or divergence='l2'"):
        PCC(3, divergence="kl").fit(ensemble)
    model = quiet(PCC(3, divergence="kl", pairs=0.013, random_state=0), ensemble)
    assert adjusted_rand(truth, model.labels_) > 0.3
    assert np.mean(model.predict(ensemble) == model.labels_) > 0.8


# What must not matter


def test_fit__solves_groups_that_no_partition_labels_together_each_by_itself():
    parts = [planted(n_objects=150, n_partitions=10, noise=0.1, seed=seed) for seed in (1, 2)]
    labels, truth = np.full((300, 20), -1), np.concatenate([part[1] for part in parts])
    labels[:150, :10], labels[150:, 10:] = parts[0][0], parts[1][0]
    with pytest.warns(DisconnectedWarning, match=r"2 groups \(150, 150\) that no partition labels together"):
        model = PCC(3, random_state=0).fit(labels)
    for group in (slice(0, 150), slice(150, 300)):
        assert adjusted_rand(truth[group], model.labels_[group]) == 1


# Objects that are known little


def test_fit__labels_objects_that_no_sampled_pair_holds(tmp_path):
    labels, _ = planted(n_objects=200, noise=0.1)
    table = sample(labels, share=0.02, random_state=0)
    isolated = np.flatnonzero(np.diff(table.indptr) == 0)
    assert isolated.size
    model = quiet(PCC(3, pairs=table, random_state=0), stored(labels, tmp_path / "e.zarr", 32))
    assert (model.labels_ >= 0).all()
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1, atol=1e-6)
    everything, lonely = naive.all_pairs(labels), set(isolated.tolist())
    for i in isolated:  # the best membership, given all objects that have pairs
        pairs = [pair for pair in everything if len(lonely & set(pair[:2])) == 1 and i in pair[:2]]
        A, b = naive.local_problem(pairs, model.memberships_.astype(np.float64), i)
        gradient = A @ model.memberships_[i] - b
        support = model.memberships_[i] > 0
        assert gradient[support].max() - gradient.min() <= 1e-4 * np.abs(A).max()


# Refusals


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"n_clusters": 61}, "n_clusters=61 but there are n_objects=60; use at most 60"),
        ({"n_clusters": 0}, "n_clusters=0 is out of range"),
        ({"n_clusters": 2.5}, "n_clusters=2.5 has type float; use an integer >= 1 or 'auto'"),
        ({"solver": "heap"}, "solver='heap' is incompatible with pairs='all'"),
        ({"solver": "all", "pairs": "dense"}, "solver='all' is incompatible with pairs='dense'"),
        ({"solver": "newton"}, "solver='newton' is unknown"),
        ({"divergence": "l3"}, "divergence='l3' is unknown"),
        ({"weights": np.ones(15), "pairs": 0.5}, "weights with pairs=0.5, .*requires pairs='all' and diverg"),
        ({"weights": "entropy", "divergence": "kl"}, "weights with pairs='all', divergence='kl'; it requir"),
        ({"weights": "information"}, "weights='information' is unknown"),
        ({"tol": -1}, "tol=-1 is out of range"),
        ({"tol": float("nan")}, "tol=nan is out of range"),
        ({"max_iter": 0}, "max_iter=0 is out of range"),
        ({"n_init": 0}, "n_init=0 is out of range; use an integer >= 1 or 'auto'."),
        ({"n_init": 2, "pairs": 0.5, "max_iter": "paper"}, "n_init with pairs=.*a start other than that of"),
        ({"random_state": -1}, "random_state=-1 is negative"),
        ({"client": "mpi"}, "client='mpi' is unknown"),
        ({"memory": "lots"}, "memory='lots' is not a size"),
        ({"max_iter": "paper"}, "max_iter='paper' with pairs='all', .*requires solver='heap'"),
        ({"max_iter": "paper", "pairs": 0.5, "solver": "blocked"}, "max_iter='paper' with pairs=0.5, "),
        ({"max_iter": "many"}, "max_iter='many'"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_fit__refuses_parameters_in_one_line(asked, message):
    with pytest.raises(InvalidInputError, match=message) as refusal:
        PCC(**{"n_clusters": 3, **asked}).fit(planted()[0])
    assert "\n" not in str(refusal.value)


def test_fit__refuses_pairs_of_other_objects(tmp_path):
    table = PairTable.from_arrays([0], [1], [1], [2], n_objects=5)
    with pytest.raises(InvalidInputError, match="pairs are of n_objects=5 but the ensemble has n_objects=60"):
        PCC(3, pairs=table).fit(planted()[0])
    table.save(tmp_path / "pairs.zarr")
    with pytest.raises(InvalidInputError, match="pairs are of n_objects=5"):
        PCC(3, pairs=tmp_path / "pairs.zarr").fit(planted()[0])


@pytest.mark.parametrize("pairs", ["all", "dense", 0.5])
def test_fit__refuses_a_budget_that_cannot_hold_the_work(pairs):
    with pytest.raises(MemoryBudgetError, match=r"PCC needs .* over memory=1 kB; raise it to") as refusal:
        PCC(3, pairs=pairs, memory="1kB").fit(planted()[0])
    assert "\n" not in str(refusal.value)


def test_fit__reads_pairs_from_a_store(tmp_path):
    labels, _ = planted()
    table = sample(labels, share=0.5, random_state=0)
    table.save(tmp_path / "pairs.zarr")
    first, second = (
        quiet(PCC(3, pairs=pairs, random_state=0), labels) for pairs in (table, str(tmp_path / "pairs.zarr"))
    )
    np.testing.assert_array_equal(first.memberships_, second.memberships_)
