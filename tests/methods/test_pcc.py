"""PCC as a whole: what it reports is true, solvers agree, oracles are met, bad input is refused."""

import pickle
import re
import warnings

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from bigcons import METHODS, PCC, Consensus, Ensemble, PairTable, errors, metrics
from bigcons.coassociation import sample
from bigcons.datasets import planted_ensemble, simulated_soft_partitions
from bigcons.errors import InvalidInputError
from bigcons.memory import Block
from bigcons.methods.all_pairs import dirichlet, entropy_weights, perturbed_uniform
from bigcons.metrics import adjusted_rand
from bigcons.run.engine import ThreadsEngine
from bigcons.seeding import resolve_seed
from tests.naive import pcc as naive
from tests.support.fits import quiet
from tests.support.pcc import given as from_memberships
from tests.support.pcc import solve_all, solve_listed
from tests.support.refusals import refused
from tests.support.strategies import label_matrices

# Two pairs of objects, together in 9 of 10 partitions within and in 1 across (PCC, 4-object example).
ORACLE = np.array([[0, 0, 0, 0]] + [[0, 0, 1, 1]] * 7 + [[0, 0, 1, 2], [0, 1, 2, 2]]).T
ORACLE_OPTIMUM = (1 + np.sqrt(0.8)) / 2


def planted(n_objects=60, n_partitions=15, noise=0.25, missing=0.3, seed=0):
    """Return noisy labels with gaps around a truth, and that truth; ``noise`` may differ by partition."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n_objects)
    labels = np.tile(truth[:, None], n_partitions)
    wrong = rng.random(labels.shape) < noise
    labels[wrong] = rng.integers(3, size=wrong.sum())
    labels[rng.random(labels.shape) < missing] = -1
    labels[(labels < 0).all(axis=1), 0] = 0
    return labels, truth


def stored(labels, path, chunk_rows):
    return Ensemble.from_labels(labels).save(path, chunk_rows=chunk_rows)


@pytest.mark.parametrize("pairs", ["all", "dense"])
def test_fit__reports_the_gap_and_the_objective_of_what_it_returns(pairs):
    labels, _ = planted()
    model = PCC(3, pairs=pairs, tol=1e-5, random_state=0).fit(labels)
    assert model.converged_
    assert model.gap_ <= 1e-5
    listed = naive.all_pairs(labels)
    gap = naive.kkt_gaps(listed, model.memberships_.astype(float)).max() / naive.mean_weight(listed, 60)
    assert gap == pytest.approx(model.gap_, abs=2e-6)  # memberships are float32
    expected = metrics.pcc_objective(labels, model.memberships_, constant=pairs == "dense")
    assert model.objective_ == pytest.approx(expected, rel=1e-6)
    with pytest.warns(errors.ConvergenceWarning, match="raise max_iter or tol"):
        model = PCC(3, pairs=pairs, max_iter=1, tol=1e-9, random_state=0).fit(planted(noise=0.5)[0])
    assert not model.converged_
    assert model.n_passes_ == 1


@pytest.mark.parametrize(("pairs", "divergence"), [("all", "l2"), ("dense", "l2"), ("dense", "kl")])
@given(labels=label_matrices(min_objects=2), n_clusters=st.integers(1, 4), seed=st.integers(0, 99))
def test_fit__of_any_labels_returns_memberships_that_are_as_reported(
    pairs, divergence, labels, n_clusters, seed
):
    how = {"pairs": pairs, "divergence": divergence, "random_state": seed}
    model = PCC(min(n_clusters, len(labels)), max_iter=1000 if pairs == "all" else 20_000, **how)
    Y = quiet(model, labels).memberships_.astype(np.float64)
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


@pytest.mark.parametrize("draw", [None, perturbed_uniform, dirichlet])
def test_solve__of_many_blocks_never_raises_the_objective(tmp_path, draw):
    labels, truth = planted(160)
    ensemble = stored(labels, tmp_path / "e.zarr", 16)
    start = PCC(3, random_state=0).fit(labels).memberships_ if draw is None else draw(160, 3, 0)
    found, whole = (solve_all(x, 3, from_memberships(start), max_passes=400) for x in (ensemble, labels))
    objective = np.array(found.history["objective"])
    assert (np.diff(objective) <= 1e-7 * np.abs(objective[0])).all()
    assert objective[-1] == found.objective <= objective[0]
    expected = metrics.pcc_objective(labels, found.memberships, constant=False)
    assert found.objective == pytest.approx(expected, rel=1e-6)
    gaps = naive.kkt_gaps(pairs := naive.all_pairs(labels), found.memberships.astype(np.float64))
    assert gaps.max() / naive.mean_weight(pairs, 160) <= 1.1e-4
    assert found.objective == pytest.approx(whole.objective, rel=1e-4)
    assert adjusted_rand(truth, found.memberships.argmax(axis=1)) > 0.9


@pytest.mark.parametrize("pairs", ["all", "dense"])
@pytest.mark.parametrize("divergence", ["l2", "kl"])
@pytest.mark.parametrize("n_clusters", [2, 3])
def test_fit__solves_the_four_objects(pairs, divergence, n_clusters):
    how = {"pairs": pairs, "divergence": divergence, "tol": 1e-7, "random_state": 0, "max_iter": 5000}
    model = PCC(n_clusters, **how).fit(ORACLE)
    ascending = np.sort(model.memberships_, axis=1)
    np.testing.assert_allclose(ascending[:, -1], ORACLE_OPTIMUM, atol=1e-4)
    np.testing.assert_allclose(ascending[:, -2], 1 - ORACLE_OPTIMUM, atol=1e-4)
    np.testing.assert_allclose(ascending[:, :-2], 0, atol=1e-6)
    assert model.labels_[0] == model.labels_[1] != model.labels_[2] == model.labels_[3]
    assert model.n_clusters_ == 2


@pytest.mark.parametrize("divergence", ["l2", "kl"])
def test_fit__by_the_limit_of_the_paper_starts_at_the_perturbed_saddle(divergence):
    labels, truth = planted(noise=0.1)
    how = {"pairs": "dense", "divergence": divergence, "max_iter": "paper", "random_state": 0}
    model = quiet(PCC(3, **how), labels)
    table = PairTable.from_arrays(*np.array(naive.all_pairs(labels)).T, n_objects=60)
    start, blocks = perturbed_uniform(60, 3, resolve_seed(0), 0), [Block(0, 0, 60)]
    found = solve_listed(table, 3, start, divergence, blocks=blocks, max_steps=180, max_passes=3)
    np.testing.assert_array_equal(model.memberships_, found.memberships[:, model._order])
    assert adjusted_rand(truth, model.labels_) == 1


@pytest.mark.parametrize("divergence", ["l2", "kl"])
def test_fit__of_the_heap_converges_unless_the_paper_s_cap_is_asked_for(divergence):
    labels, _ = planted(120, noise=0.4)
    how = {"pairs": 0.5, "divergence": divergence, "random_state": 0}
    model, paper = PCC(4, **how).fit(labels), quiet(PCC(4, max_iter="paper", **how), labels)
    assert model.converged_
    assert model.gap_ <= model.tol
    assert sum(paper.history_["steps"]) == 120 * 4
    assert model.objective_ < paper.objective_


@pytest.mark.parametrize("seed", range(2))
def test_fit__solvers_agree_on_small_problems(seed, tmp_path):
    labels, _ = planted(n_objects=50, seed=seed)
    table = PairTable.from_arrays(*np.array(naive.all_pairs(labels)).T, n_objects=50)
    table.save(tmp_path / "pairs.zarr")
    forms = ("all", "dense", table, tmp_path / "pairs.zarr")
    how = {"random_state": seed, "tol": 1e-5, "max_iter": 20_000}
    models = [PCC(3, pairs=pairs, **how).fit(labels) for pairs in forms]
    objectives = [metrics.pcc_objective(labels, model.memberships_) for model in models]
    assert objectives == pytest.approx([objectives[0]] * 4, rel=1e-4)
    assert adjusted_rand(models[0].labels_, models[1].labels_) == 1
    for model in models[2:]:
        np.testing.assert_array_equal(model.memberships_, models[1].memberships_)


@pytest.mark.slow
@pytest.mark.parametrize(("pairs", "divergence"), [("all", "l2"), ("dense", "kl")])
def test_fit__recovers_simulated_soft_partitions(pairs, divergence):
    labels, truth = simulated_soft_partitions(random_state=0)
    model = quiet(PCC(8, pairs=pairs, divergence=divergence, n_init=1, random_state=0), labels)
    assert model.n_clusters_ == 4
    assert np.sort(model.memberships_.mean(axis=0))[:4].sum() < 1e-3
    assert metrics.jensen_shannon(truth, model.memberships_) <= 0.0012  # more in benchmarks/pcc_paper.py


def test_fit__of_kl_over_all_pairs_lists_those_of_few_objects_and_names_a_share_of_many():
    labels, _ = planted()
    model, listed = (
        PCC(3, divergence="kl", pairs=pairs, random_state=0).fit(labels) for pairs in ("all", "dense")
    )
    np.testing.assert_array_equal(model.memberships_, listed.memberships_)
    Y = model.memberships_.astype(np.float64)
    for i, j, n_agree, n_seen in naive.all_pairs(labels):  # it rules out no observed pair
        assert n_agree == 0 or Y[i] @ Y[j] > 0
        assert n_agree == n_seen or Y[i] @ Y[j] < 1
    ensemble, truth = planted_ensemble(2300, 20, random_state=3)
    with pytest.raises(InvalidInputError, match=r"at most 2,048, .* pairs=0\.013, or divergence='l2'"):
        PCC(3, divergence="kl").fit(ensemble)
    model = quiet(PCC(3, divergence="kl", pairs=0.013, random_state=0), ensemble)
    assert adjusted_rand(truth, model.labels_) > 0.3
    assert np.mean(model.predict(ensemble) == model.labels_) > 0.8


def test_fit__solves_groups_that_no_partition_labels_together_each_by_itself():
    parts = [planted(n_objects=150, n_partitions=10, noise=0.1, seed=seed) for seed in (1, 2)]
    labels, truth = np.full((300, 20), -1), np.concatenate([part[1] for part in parts])
    labels[:150, :10], labels[150:, 10:] = parts[0][0], parts[1][0]
    with pytest.warns(
        errors.DisconnectedWarning, match=r"2 groups \(150, 150\) that no partition labels together"
    ):
        model = PCC(3, random_state=0).fit(labels)
    for group in (slice(0, 150), slice(150, 300)):
        assert adjusted_rand(truth[group], model.labels_[group]) == 1


@pytest.mark.parametrize("solver", ["heap", "blocked"])
def test_fit__gives_objects_that_no_sampled_pair_holds_their_best_membership(solver, tmp_path):
    labels, _ = planted(n_objects=160, noise=0.1)
    table = sample(labels, share=0.02, random_state=0)
    isolated = np.flatnonzero(np.diff(table.indptr) == 0)
    assert isolated.size
    how = {"pairs": table, "solver": solver, "random_state": 0}
    model = quiet(PCC(3, **how, client=ThreadsEngine(3)), ensemble := stored(labels, tmp_path / "e.zarr", 32))
    serial = quiet(PCC(3, **how, client="serial"), ensemble)
    np.testing.assert_array_equal(model.memberships_, serial.memberships_)
    assert (model.labels_ >= 0).all()
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1, atol=1e-6)
    everything, lonely = naive.all_pairs(labels), set(isolated.tolist())
    for i in isolated:  # given all objects that have pairs
        pairs = [pair for pair in everything if len(lonely & set(pair[:2])) == 1 and i in pair[:2]]
        A, b = naive.local_problem(pairs, model.memberships_.astype(np.float64), i)
        gradient = A @ model.memberships_[i] - b
        support = model.memberships_[i] > 0
        assert gradient[support].max() - gradient.min() <= 1e-4 * np.abs(A).max()


def test_entropy_weights__are_the_entropies_of_the_labels():
    labels, _ = planted(300, 24, missing=0.4)
    found = entropy_weights(labels, np.arange(0, 100, 4)).partitions
    expected = np.array([scipy.stats.entropy(np.unique(c[c >= 0], return_counts=True)[1]) for c in labels.T])
    np.testing.assert_allclose(found, expected / expected.mean(), rtol=1e-9)


@pytest.mark.filterwarnings("ignore::bigcons.errors.DissentWarning")  # as is planted
def test_trust__is_that_of_the_labels_stored_with_them(tmp_path):
    ensemble, classes = planted_ensemble(1600, 32, shares=(0.25,) * 4, missing=0.2, random_state=5)
    labels, rng = np.array(ensemble.read(0, 1600), np.int64), np.random.default_rng(0)
    labels[:, ::4] = np.where(labels[:, ::4] >= 0, rng.integers(0, 6, (1600, 8)), -1)
    path, out = tmp_path / "e.zarr", tmp_path / "c.zarr"
    stored(labels, path, 512)

    def same(a, b):
        names = ("confidence", "second_labels", "second_confidence")
        return a[3:] == b[3:] and all(getattr(a, n).tobytes() == getattr(b, n).tobytes() for n in names)

    model = PCC(4, random_state=0, client="serial").fit(path)
    assert same(model.trust_, metrics.trust(path, model))
    assert same(pickle.loads(pickle.dumps(model)).trust_, model.trust_)
    assert same(PCC(4, random_state=0, client="threads").fit(path, out=out).trust_, model.trust_)
    opened, again = Consensus.open(out), PCC(4, random_state=0).fit(path, out=out)
    assert opened.verify()["n_unlabeled"] == 0
    others = opened.trust, again.trust_, metrics.trust(path, opened)
    assert all(same(other, model.trust_) for other in others)
    assert metrics.matching_accuracy(classes, model.labels_) > 0.9


def fine(n_parts, n_objects=400, n_partitions=10):
    """Return labels that cut each of four unequal classes, a circle, into so many arcs anew."""
    rng = np.random.default_rng(0)
    truth = rng.choice(4, n_objects, p=[0.5, 0.25, 0.15, 0.1])
    places = rng.random((n_objects, 1)) + rng.random(n_partitions)
    return truth[:, None] * n_parts + np.floor(n_parts * (places % 1.0)).astype(int)


@pytest.mark.parametrize("how", [{}, {"weights": np.arange(1.0, 11.0)}, {"pairs": 0.2, "solver": "blocked"}])
def test_fit__of_labels_too_fine_says_so_in_one_line(how):
    labels = fine(20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PCC(4, max_iter=2, n_init=1, random_state=0, **how).fit(labels)
    (word,) = (str(w.message) for w in caught if w.category is errors.ConsensusWarning)
    shares = r"join (\S+) % of the pairs of objects, but (\d+) clusters join at least (\S+) %"
    joined, n_clusters, least = map(float, re.search(shares, word).groups())
    together = labels[np.triu_indices(len(labels), 1), :]
    assert joined == pytest.approx(100 * (together[0] == together[1]).mean(), rel=0.06)
    assert n_clusters == 4
    assert least == pytest.approx(100 / 4, rel=0.02)
    assert "\n" not in word
    assert all(name in word and name in METHODS for name in ("eac-average", "eac-single", "mcla"))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"solver": "heap"}, "solver='heap' is incompatible with pairs='all'"),
        ({"solver": "all", "pairs": "dense"}, "solver='all' is incompatible with pairs='dense'"),
        ({"solver": "newton"}, "solver='newton' is unknown"),
        ({"divergence": "l3"}, "divergence='l3' is unknown"),
        ({"n_init": 0}, "n_init=0 is out of range; use an integer >= 1."),
        ({"memory": "1kB", "pairs": 0.5}, "PCC needs .* over memory=1 kB; raise it to"),
        ({"max_iter": "paper"}, "max_iter='paper' with pairs='all', .*requires solver='heap'"),
        ({"max_iter": "paper", "pairs": 0.5, "solver": "blocked"}, "max_iter='paper' with pairs=0.5, "),
        ({"weights": [1.0, 2.0]}, r"weights=\[1.0, 2.0\] does not fit n_partitions=15"),
        ({"weights": "worth"}, "weights='worth' is unknown; use 'entropy', numbers or None"),
        ({"weights": [1.0] * 14 + [-1.0]}, "one number >= 0 for each"),
        ({"weights": "entropy", "divergence": "kl"}, "requires pairs='all' and divergence='l2'"),
        ({"weights": [1.0] * 15, "pairs": 0.1}, "requires pairs='all' and divergence='l2'"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_fit__refuses_parameters_in_one_line(asked, message):
    with refused(message, (InvalidInputError, errors.MemoryBudgetError)):
        PCC(3, **asked).fit(planted()[0])


def test_fit__refuses_pairs_of_other_objects(tmp_path):
    table = PairTable.from_arrays([0], [1], [1], [2], n_objects=5)
    table.save(tmp_path / "pairs.zarr")
    for pairs in (table, tmp_path / "pairs.zarr"):
        with pytest.raises(InvalidInputError, match="pairs are of n_objects=5 but the ensemble has n_object"):
            PCC(3, pairs=pairs).fit(planted()[0])


def test_many_clusters__whose_tables_exceed_the_budget_are_refused_and_the_tree_is_named():
    labels = np.arange(320_000).reshape(2000, 160) % 50
    with pytest.raises(errors.MemoryBudgetError, match=r"PCC needs .* or use Cons"):
        PCC(1900).fit(labels)
    with refused(r"PCC needs .* over memory=2 GB; .*or use ConsensusTree", errors.MemoryBudgetError):
        PCC(1000, memory="2GB").fit(labels)


@pytest.mark.parametrize("method", ["tree", "pcc", "bce"])
def test_budget_too_small__is_told_with_remedies(method):
    ensemble = Ensemble.from_labels(np.arange(2_400_000).reshape(1_200_000, 2) % 3)
    with pytest.raises(errors.MemoryBudgetError, match="over memory=1 MB; raise it to") as refusal:
        METHODS[method](40, memory="1MB", client="serial").fit(ensemble)
    assert "or write the result to a store with out=" in str(refusal.value)
    assert ("or use ConsensusTree" in str(refusal.value)) == (method == "pcc")


@pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning")
def test_auto__starts_as_with_the_number_that_it_chooses_though_that_is_found_in_other_objects():
    ensemble, _ = planted_ensemble(6000, 20, hard_share=0.0, random_state=0)
    auto = PCC("auto", random_state=0).fit(ensemble)
    given = PCC(auto.n_clusters_choice_.n_clusters, random_state=0).fit(ensemble)
    assert auto.start_objectives_ == given.start_objectives_
    np.testing.assert_array_equal(auto.labels_, given.labels_)
