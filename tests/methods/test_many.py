"""PCC of many clusters: its sums against all pairs one by one, its moves against tables of each partition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from bigcons import PCC
from bigcons.coassociation.factorized import Rates, agreement_sums
from bigcons.datasets import planted_ensemble
from bigcons.methods.pcc import block_model, many, updates
from bigcons.methods.pcc.memberships import MOST_SHARES, all_shares, few_shares
from bigcons.metrics import adjusted_rand
from tests.naive import many as naive

K = 9


@pytest.fixture(scope="module")
def problem():
    """Return complete labels, offsets, clusters and rates of a block model with distinct affinities."""
    rng = np.random.default_rng(3)
    truth = rng.integers(K, size=60)
    maps = np.stack([rng.permutation(K) % 6 for _ in range(12)])
    labels = maps[:, truth].T.astype(np.int8)
    wrong = rng.random(labels.shape) < 0.25
    labels[wrong] = rng.integers(6, size=wrong.sum())
    offsets = np.arange(13) * 6
    omega = block_model.rarity_of(labels, offsets, 0.5)
    theta = np.eye(K) + 0.1 * rng.random((K, K))
    a, d, w = rng.uniform(0.05, 0.2, 12), rng.uniform(0.5, 1.0, 12), rng.uniform(0.5, 2.0, 12)
    rates = Rates.of(a, d, w, omega, offsets, theta + theta.T)
    return labels, offsets, truth, rates


def dense(S):
    """Return the summed memberships as an array (B, K)."""
    return scipy.sparse.csr_array((S.values, S.columns, S.starts), shape=(S.starts.size - 1, K)).toarray()


def moved(labels, offsets, truth, rates, n_passes):
    """Return sums and memberships after some passes from given clusters, and every objective."""
    kept, sums = few_shares(truth, K), many.sums_of_clusters(labels, offsets, truth, rates)
    tables, objective = many.tables_of(sums, offsets)
    objectives = [objective]
    for _ in range(n_passes):
        change, kept = many.update_block(tables, offsets, 0.0, 0.5, labels, kept)
        sums = many.after_moves(sums, change)
        tables, objective = many.tables_of(sums, offsets)
        objectives.append(objective)
    return sums, kept, objectives


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_sums_objective_and_descent(problem, missing):
    labels, offsets, truth, rates = problem
    labels = np.where(np.random.default_rng(0).random(labels.shape) < missing, np.int8(-1), labels)
    sums, kept, objectives = moved(labels, offsets, truth, rates, 3)
    Y = all_shares(kept, K).astype(np.float64)
    assert (Y > 0).sum() > len(Y)  # some are soft
    assert objectives[-1] == pytest.approx(naive.objective(labels, offsets, Y, rates), rel=1e-5)
    assert np.all(np.diff(objectives) < 0)
    weights = rates.w * rates.d**2
    v = (labels >= 0) @ weights / np.sqrt(weights.sum())
    np.testing.assert_allclose(sums.X, (v[:, None] * Y).T @ Y, atol=1e-5)
    S = dense(sums.S)
    for u in range(labels.shape[1]):
        of_label = np.array([Y[labels[:, u] == label].sum(axis=0) for label in range(6)])
        np.testing.assert_allclose(S[offsets[u] : offsets[u + 1]], of_label, atol=1e-5)
        np.testing.assert_allclose(sums.own[u], (Y[labels[:, u] >= 0] ** 2).sum(), rtol=1e-5)


def test_complete_labels_give_the_moves_of_the_model_with_tables(problem, monkeypatch):
    monkeypatch.setattr(many, "LEAST_HINT", 0.0)
    monkeypatch.setattr(many, "LEAST_PULL", -1e9)
    labels, offsets, truth, rates = problem
    sums, kept, objectives = moved(labels, offsets, truth, rates, 2)
    dense = agreement_sums(labels, offsets, all_shares(kept, K), rates)
    assert objectives[-1] == pytest.approx(dense.objective, rel=1e-6)
    tables, _ = many.tables_of(sums, offsets)
    _, found = many.update_block(tables, offsets, 0.0, 1.0, labels, kept)
    _, expected = updates.update_block(dense, offsets, 0.0, 1.0, labels, all_shares(kept, K), at_once=True)
    np.testing.assert_allclose(all_shares(found, K), expected, atol=2e-5)
    placed = np.empty((len(labels), K), np.float32)
    updates.place_block(dense, labels, offsets, placed)
    np.testing.assert_allclose(many.ByCandidates.of(sums, offsets)(labels), placed, atol=2e-5)


def test_a_snapshot_holds_the_sums_and_the_rates(problem):
    labels, offsets, truth, rates = problem
    sums = many.sums_of_clusters(labels, offsets, truth, rates)
    method = many.ManyClusters(K, np.full(12, 60), None)
    arrays, facts = method.pack(sums)
    found = method.unpack(dict(arrays), dict(facts))
    parts, known = ((*of.S, *of[1:4], *of.weights) for of in (found, sums))
    for part, expected in zip(parts, known, strict=True):
        np.testing.assert_array_equal(part, expected)


def test_rates_are_those_of_the_block_model(problem, monkeypatch):
    monkeypatch.setattr(many, "LEAST_AFFINITY", 0.0)
    labels, offsets, truth, rates = problem
    labels = np.where(np.random.default_rng(1).random(labels.shape) < 0.3, np.int8(-1), labels)
    for rule in (block_model.EQUAL, block_model.INFORMED):
        arguments = labels, offsets, truth, K, rates.omega
        found = many.rates_of_many(*arguments, rule)
        for part, expected in zip(found, block_model.block_rates(*arguments, rule), strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-9, atol=1e-12)


def test_fit_of_many_clusters(tmp_path):
    ensemble, truth = planted_ensemble(
        1_500, 30, shares=[1 / 60] * 60, n_clusters=(30, 60), missing=0.3, noise=(0.1, 0.2), random_state=1
    )
    ensemble = ensemble.save(tmp_path / "labels.zarr", chunk_rows=400)
    model = PCC(60, random_state=0, client="serial").fit(ensemble)
    assert adjusted_rand(truth, model.labels_) > 0.85
    falls = np.diff(model.history_["objective"])
    taken = np.array(model.history_["step_length"][1:]) > 0  # a pass that would not lower it is not
    assert taken.any()
    assert np.all(falls[taken] < 0)
    assert np.all(falls[~taken] == 0)
    assert (model.memberships_ > 0).sum(axis=1).max() <= MOST_SHARES
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1.0, atol=1e-5)
    assert model.affinities_.shape == (60, 60)
    assert np.mean(model.predict(ensemble) == model.labels_) > 0.97
    stored = PCC(60, random_state=0, client="threads", out=tmp_path / "found.zarr").fit(ensemble)
    np.testing.assert_array_equal(stored.labels_, model.labels_)
    np.testing.assert_array_equal(stored.memberships_, model.memberships_)


def test_partitions_of_some_classes_alone_do_no_harm():
    """Weights of pairs are pooled where labels are not missing at random; joins and background are not."""
    ensemble, truth = planted_ensemble(
        1_500, 30, shares=[1 / 60] * 60, n_clusters=(30, 60), noise=(0.1, 0.2), random_state=1
    )
    at_random, by_class = np.array(ensemble[:]), np.array(ensemble[:])
    at_random[np.random.default_rng(5).random(at_random.shape) < 1 / 3] = -1
    by_class[np.ix_(truth >= 30, range(10, 20))] = -1
    by_class[np.ix_(truth < 30, range(20, 30))] = -1
    found, expected = (PCC(60, random_state=0, client="serial").fit(part) for part in (by_class, at_random))
    assert adjusted_rand(truth, found.labels_) > adjusted_rand(truth, expected.labels_) - 0.02
