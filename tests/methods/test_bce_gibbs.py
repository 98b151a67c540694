"""G-BCE: the sweep against counting by hand, its stationary distribution, and the estimator."""

import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError, MemoryBudgetError, UnlabeledObjectsWarning
from bigcons.execution.engine import ThreadsEngine
from bigcons.kernels import gibbs as kernel
from bigcons.kernels.draws import uniform
from bigcons.memory import row_blocks
from bigcons.methods.bce.gibbs import BlockSweeps, GibbsBCE, Sampler
from bigcons.metrics import adjusted_rand
from bigcons.seeding import generator
from bigcons.solving.passes import Iterate, Run
from tests.naive import bce as naive
from tests.support.strategies import label_matrices


def counts_of(labels, offsets, z, K):
    by_label, by_partition = np.zeros((offsets[-1], K)), np.zeros((labels.shape[1], K))
    kernel.count(labels, offsets, z, by_label, by_partition)
    return by_label, by_partition


@given(
    label_matrices(max_objects=8),
    st.integers(1, 4),
    st.integers(0, 2**64 - 1),
    st.sampled_from([0.1, 1.0, 3.0]),
)
def test_sweep__draws_as_counting_by_hand_does(labels, K, seed, alpha):
    ensemble = Ensemble.from_labels(labels)
    labels, offsets, omega = ensemble.read(0, ensemble.n_objects), ensemble.offsets, 0.5
    z = np.random.default_rng(seed).integers(K, size=labels.shape, dtype=np.uint8)
    expected, twin = z.copy(), naive.SplitMix(seed)
    tables, random = counts_of(labels, offsets, z, K), np.array([seed], np.uint64)
    sums = np.zeros((len(labels), K), np.float32)
    for _ in range(3):
        kernel.sweep(labels, offsets, z, *tables, alpha, omega, sums, False, random)
        naive.gibbs_sweep(labels, expected, K, ensemble.n_clusters, alpha, omega, twin)
        seen = labels >= 0
        np.testing.assert_array_equal(z[seen], expected[seen])
        for found, counted in zip(tables, counts_of(labels, offsets, z, K), strict=True):
            np.testing.assert_array_equal(found, counted)
    assert not sums.any()
    kernel.sweep(labels, offsets, z, *tables, alpha, omega, sums, True, random)
    for h in range(K):
        np.testing.assert_array_equal(sums[:, h], ((z == h) & (labels >= 0)).sum(axis=1))


@given(label_matrices(max_objects=6), st.integers(1, 3), st.integers(0, 1000))
def test_log_likelihood__is_the_product_of_the_predictive_probabilities(labels, K, seed):
    ensemble = Ensemble.from_labels(labels)
    labels, offsets = ensemble.read(0, ensemble.n_objects), ensemble.offsets
    z = np.random.default_rng(seed).integers(K, size=labels.shape, dtype=np.uint8)
    sampler = Sampler(K, 0, 1, 0.7, 0.4, "random", 0)
    tables = sampler.tables_of(labels, offsets, z)
    found = sampler.log_proportions(labels, z) + sampler.log_probabilities(offsets, *tables)
    assert found == pytest.approx(naive.log_joint(labels, z, K, ensemble.n_clusters, 0.7, 0.4))


def test_sweep__visits_assignments_as_often_as_the_posterior_says():
    labels = np.array([[0, 0], [0, 1], [-1, 1]], np.int8)
    offsets, sizes, K, alpha, omega = np.array([0, 1, 3]), [1, 2], 2, 0.6, 0.4
    seen = labels >= 0
    posterior = {}
    for values in product(range(K), repeat=int(seen.sum())):
        z = np.zeros(labels.shape, np.uint8)
        z[seen] = values
        posterior[values] = np.exp(naive.log_joint(labels, z, K, sizes, alpha, omega))
    total = sum(posterior.values())
    visits = dict.fromkeys(posterior, 0)
    z = np.zeros(labels.shape, np.uint8)
    tables, random = counts_of(labels, offsets, z, K), np.array([1], np.uint64)
    sums, n_sweeps = np.zeros((3, K), np.float32), 100_000
    for _ in range(n_sweeps):
        kernel.sweep(labels, offsets, z, *tables, alpha, omega, sums, False, random)
        visits[tuple(z[seen].tolist())] += 1
    for (
        values,
        weight,
    ) in posterior.items():  # six standard errors of independent draws, doubled for the chain's
        share = weight / total
        assert abs(visits[values] / n_sweeps - share) < 12 * np.sqrt(share * (1 - share) / n_sweeps)


@given(label_matrices(min_objects=2, max_objects=8), st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
def test_sweep_in_blocks__draws_as_counting_by_hand_does(labels, K, n_blocks, seed):
    ensemble = Ensemble.from_labels(labels)
    labels, offsets, alpha, omega = ensemble.read(0, ensemble.n_objects), ensemble.offsets, 1.0, 0.5
    known = labels >= 0
    blocks = row_blocks(len(labels), -(-len(labels) // n_blocks))
    method = BlockSweeps(Sampler(K, 1, 2, alpha, omega, "random", seed), 2)
    run = Run(ensemble, ThreadsEngine(2), seed, method.n_passes, 0.0, labels, rounds=[blocks])
    ranges = [(block.start, block.stop) for block in blocks]
    at = Iterate(method.start(run)[0], 0, False, [], [])
    values, sums = [], []
    for chain, sweep in product(range(2), range(-1, 3)):
        draws = [generator(seed, "bce.gibbs.blocks", chain, block.index, sweep + 1) for block in blocks]
        if sweep < 0:
            drawn = [
                draw.integers(K, size=(b.n_rows, labels.shape[1]), dtype=np.uint8)
                for draw, b in zip(draws, blocks, strict=True)
            ]
            expected = np.concatenate(drawn)
            values.append([])
            sums.append(np.zeros((len(labels), K)))
        else:
            twins = [naive.SplitMix(int(draw.integers(2**64, dtype=np.uint64))) for draw in draws]
            expected = naive.gibbs_sweep_in_blocks(
                labels, expected, ranges, K, np.diff(offsets), alpha, omega, twins
            )
            values[-1].append(naive.log_joint(labels, expected, K, np.diff(offsets), alpha, omega))
            if sweep >= 1:
                sums[-1] += [
                    [(known[i] & (row == h)).sum() for h in range(K)] for i, row in enumerate(expected)
                ]
        step = method.step(run, at, run.fold(method.visit(run, at), method.add))
        at = Iterate(step.state, at.generation + 1, step.is_settled, [], [])
        rows = np.concatenate([run.arrays.read(at.generation, block) for block in blocks])
        np.testing.assert_array_equal(rows[:, : labels.shape[1]][known], expected[known])
        if sweep < 2:
            counts = counts_of(labels, offsets, expected, K)
            for found, counted in zip((at.state.by_label, at.state.by_partition), counts, strict=True):
                np.testing.assert_array_equal(found, counted)
    assert at.is_settled
    np.testing.assert_allclose(at.state.objectives, [np.mean(chain[1:]) for chain in values])
    best = int(np.argmax(at.state.objectives))
    np.testing.assert_allclose(at.state.best, values[best])
    found = [
        method.memberships(run.arrays, at.generation, at.state, labels.shape[1], block) for block in blocks
    ]
    np.testing.assert_allclose(
        np.concatenate(found), sums[best] / np.maximum(sums[best].sum(axis=1, keepdims=True), 1), rtol=1e-6
    )


def test_uniform__draws_are_those_of_splitmix():
    random, twin = np.array([2**64 - 5], np.uint64), naive.SplitMix(2**64 - 5)
    for _ in range(100):
        assert uniform(random) == twin.uniform()


@pytest.fixture(scope="module")
def planted():
    return planted_ensemble(1000, 40, shares=(0.5, 0.3, 0.2), missing=0.5, random_state=4)


@pytest.mark.parametrize("init", ["partition", "random"])
def test_fit__finds_planted_classes(planted, init):
    ensemble, truth = planted
    model = GibbsBCE(3, init=init, random_state=0).fit(ensemble)
    assert adjusted_rand(truth, model.labels_) > 0.85
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1, rtol=1e-5)
    assert len(model.history_["objective"]) == 200


def test_fit__chooses_priors_by_the_number_of_labels(planted):
    labels = planted[0].read(0, 80)
    seen = labels >= 0
    short = {"n_init": 1, "burn_in": 1, "n_samples": 1, "random_state": 0}
    expected = GibbsBCE(8, **short).fit(labels)
    assert expected.alpha_ == pytest.approx(seen.sum() / seen.any(axis=1).sum() / (4 * 8))
    B = sum(len(np.unique(column[column >= 0])) for column in labels.T)
    assert expected.omega_ == pytest.approx(seen.sum() / B / (4 * 8))
    model = GibbsBCE(3, **short).fit(planted[0])
    assert (model.alpha_, model.omega_) == (1.0, 1.0)
    model = GibbsBCE(3, alpha=0.3, omega=0.2, **short).fit(labels)
    assert (model.alpha_, model.omega_) == (0.3, 0.2)
    in_blocks = GibbsBCE(8, sweeps="blocks", **short).fit(labels)
    assert (in_blocks.alpha_, in_blocks.omega_) == (expected.alpha_, expected.omega_)
    for name in ("alpha", "omega"):
        with pytest.raises(InvalidInputError, match=f"{name}='most'"):
            GibbsBCE(3, **{name: "most"}, **short).fit(labels)


@pytest.mark.parametrize("seed", range(3))
def test_fit__with_nine_tenths_missing_is_far_better_than_with_uniform_priors(seed):
    ensemble, truth = planted_ensemble(300, 50, missing=0.9, random_state=seed)
    seen = (ensemble.read(0, 300) >= 0).any(axis=1)
    found = {}
    for prior in ("auto", 1.0):
        model = GibbsBCE(6, alpha=prior, omega=prior, burn_in=60, n_samples=40, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnlabeledObjectsWarning)
            found[prior] = adjusted_rand(truth[seen], model.fit(ensemble).labels_[seen])
    assert found["auto"] > 0.5
    assert found[1.0] < 0.25


def test_fit__keeps_the_most_likely_chain(planted):
    model = GibbsBCE(3, n_init=3, burn_in=5, n_samples=5, random_state=2).fit(planted[0])
    assert len(set(model.start_objectives_)) == 3
    assert model.objective_ == max(model.start_objectives_) == np.mean(model.history_["objective"][5:])


@pytest.mark.slow
def test_fit__in_blocks_finds_planted_classes_with_the_same_bits_on_any_engine(planted, tmp_path):
    ensemble, truth = planted
    stored = ensemble.save(tmp_path / "ensemble.zarr", chunk_rows=64)
    model = GibbsBCE(3, n_init=2, burn_in=30, n_samples=10, random_state=0, sweeps="blocks", client="serial")
    fits = [model.fit(stored), clone(model).set_params(client=ThreadsEngine(3)).fit(stored)]
    assert adjusted_rand(truth, model.labels_) > 0.85
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1, rtol=1e-5)
    assert fits[0].memberships_.tobytes() == fits[1].memberships_.tobytes()
    assert fits[0].history_ == fits[1].history_
    assert fits[0].start_objectives_ == fits[1].start_objectives_
    with pytest.raises(InvalidInputError, match="sweeps='stale' is unknown"):
        clone(model).set_params(sweeps="stale").fit(stored)


@pytest.mark.parametrize(("stored", "per_object"), [(False, 10 + 4 + 2 * (10 + 8 * 3) + 4 * 3), (True, 4)])
def test_fit__in_blocks_holds_little_beside_a_store(stored, per_object, tmp_path):
    needed = []
    for n_objects in (5000, 9000):
        labels = np.zeros((n_objects, 10), np.int8)
        model = GibbsBCE(3, sweeps="blocks", memory="1kB", client="serial")
        model.set_params(out=tmp_path / "consensus.zarr" if stored else None)
        with pytest.raises(MemoryBudgetError) as refusal:
            model.fit(labels)
        needed.append(refusal.value.needed)
    assert needed[1] - needed[0] == pytest.approx(4000 * per_object, abs=100_000 * stored)


def test_fit__in_blocks_resumes_after_any_sweep_with_the_same_bits(planted, tmp_path, monkeypatch):
    stored = planted[0].save(tmp_path / "ensemble.zarr", chunk_rows=300)
    asked = {"n_init": 2, "burn_in": 1, "n_samples": 2, "random_state": 1, "sweeps": "blocks"}
    expected = GibbsBCE(3, **asked).fit(stored)
    step, n_steps = BlockSweeps.step, 0

    def dying(self, *arguments):
        nonlocal n_steps
        n_steps += 1
        if n_steps % 3 == 0:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(BlockSweeps, "step", dying)
    model = GibbsBCE(3, **asked)
    n_interrupts = 0
    while not hasattr(model, "labels_"):
        try:
            model.fit(stored, out=tmp_path / "consensus.zarr")
        except KeyboardInterrupt:
            n_interrupts += 1
    assert n_interrupts == 3
    assert np.asarray(model.memberships_).tobytes() == expected.memberships_.tobytes()
    assert model.history_ == expected.history_
    assert model.start_objectives_ == expected.start_objectives_


def test_fit__names_the_memory_it_needs_and_the_method_that_fits(planted):
    with pytest.raises(MemoryBudgetError, match="use BCE"):
        GibbsBCE(3, memory="1MB").fit(planted[0])


def test_fit__refuses_more_clusters_than_a_byte_counts(planted):
    with pytest.raises(InvalidInputError, match="n_clusters=257"):
        GibbsBCE(257).fit(planted[0])
