"""PCC with partitions of different weight: like copies of partitions, and by their entropy."""

import warnings

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from bigcons import PCC, Ensemble
from bigcons.coassociation.factorized import add_sums, agreement_sums
from bigcons.errors import ConsensusWarning, ConvergenceWarning, InvalidInputError
from bigcons.methods.pcc.all_pairs import (
    entropy_weights,
    update_block,
)
from bigcons.metrics import adjusted_rand, pcc_objective
from bigcons.weights import Weights
from tests.naive import pcc as naive
from tests.support.strategies import label_matrices

CLOSE = {"rel": 1e-9, "abs": 1e-9}
ROUNDED = {"rel": 1e-5, "abs": 1e-5}  # memberships are float32
MOVE_ALL = -1.0


@st.composite
def problems(draw, whole=False):
    """Draw labels with gaps, where base clusters begin, float32 memberships, and weights of partitions."""
    ensemble = Ensemble.from_labels(draw(label_matrices(min_objects=3, max_objects=12)))
    labels = ensemble.read(0, ensemble.n_objects)
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    K = draw(st.integers(1, 4))
    Y = rng.dirichlet(np.ones(K), len(labels)) * (rng.random((len(labels), K)) < 0.8)
    Y[~Y.any(axis=1), 0] = 1
    Y = (Y / Y.sum(axis=1, keepdims=True)).astype(np.float32)
    M = labels.shape[1]
    weights = rng.integers(1, 5, M) if whole else rng.uniform(0.1, 3.0, M)
    weights *= rng.random(M) < 0.8
    weights[rng.integers(M)] += not weights.any()
    return labels, ensemble.offsets, Y, weights.astype(float)


def copied(labels, weights):
    """Return labels and offsets in which each partition is there as many times as its weight says."""
    ensemble = Ensemble.from_labels(np.repeat(labels, weights.astype(int), axis=1))
    return ensemble.read(0, ensemble.n_objects), ensemble.offsets


def planted(n_objects=300, n_good=8, n_bad=16, missing=0.3, seed=0, n_classes=3):
    """Return labels of a few good partitions and many poor ones, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_objects)
    noise = np.repeat([0.15, 0.85], [n_good, n_bad])
    labels = np.where(
        rng.random((n_objects, noise.size)) < noise,
        rng.integers(n_classes, size=(n_objects, noise.size)),
        truth[:, None],
    )
    labels[rng.random(labels.shape) < missing] = -1
    labels[(labels < 0).all(axis=1), 0] = 0
    return labels, truth


def quiet(model, x, **others):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsensusWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x, **others)


# One pass


@given(problems())
def test_state__objective_equals_brute_force_over_weighted_pairs(problem):
    labels, offsets, Y, weights = problem
    pairs = naive.all_pairs(labels, weights)
    expected = naive.objective(pairs, Y.astype(np.float64)) - naive.constant(pairs)
    assert agreement_sums(labels, offsets, Y, Weights.of(weights, offsets)).objective == pytest.approx(
        expected, **CLOSE
    )
    assert pcc_objective(labels, Y, weights=weights, constant=False) == pytest.approx(expected, **CLOSE)


@given(problems(whole=True))
def test_update_block__by_whole_weights_equals_copies_of_partitions(problem):
    labels, offsets, Y, weights = problem
    many, many_offsets = copied(labels, weights)
    state = agreement_sums(labels, offsets, Y, Weights.of(weights, offsets))
    expected = agreement_sums(many, many_offsets, Y)
    assert state.objective == pytest.approx(expected.objective, **CLOSE)
    for _ in range(3):
        updated, same = np.empty_like(Y), np.empty_like(Y)
        change, updated = update_block(state, offsets, MOVE_ALL, 1.0, labels, Y)
        copies, same = update_block(expected, many_offsets, MOVE_ALL, 1.0, many, Y)
        assert change.gap == pytest.approx(copies.gap, **CLOSE)
        assert change.predicted == pytest.approx(copies.predicted, rel=1e-4, abs=1e-4)
        pairs = naive.all_pairs(many)
        assert naive.objective(pairs, updated.astype(np.float64)) == pytest.approx(
            naive.objective(pairs, same.astype(np.float64)), **ROUNDED
        )
        Y = updated
        state, expected = add_sums(change.sums, state), agreement_sums(many, many_offsets, Y)
        assert state.objective == pytest.approx(expected.objective, **CLOSE)


# Whole solves


def test_fit__by_whole_weights_equals_copies_of_partitions():
    labels, _ = planted()
    weights = np.random.default_rng(1).integers(1, 4, labels.shape[1])
    asked = {"n_clusters": 3, "tol": 1e-6, "max_iter": 5000, "random_state": 0}
    model = quiet(PCC(**asked, weights=weights), labels)
    expected = quiet(PCC(**asked), np.repeat(labels, weights, axis=1))
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_allclose(model.memberships_, expected.memberships_, atol=1e-4)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    assert model.gap_ <= 1e-6
    np.testing.assert_array_equal(model.weights_, weights)


def test_fit__by_ones_has_the_bits_of_no_weights():
    labels, _ = planted()
    plain, ones = (quiet(PCC(3, weights=w, random_state=0), labels) for w in (None, np.ones(labels.shape[1])))
    np.testing.assert_array_equal(ones.memberships_, plain.memberships_)
    assert ones.history_["objective"] == plain.history_["objective"]
    assert plain.weights_.tolist() == ones.weights_.tolist() == [1.0] * labels.shape[1]


def test_predict__weighs_the_labels_of_new_objects():
    labels, truth = planted(n_objects=600)
    weights = np.repeat([1.0, 1e-6], [8, 16])
    model = quiet(PCC(3, weights=weights, random_state=0), labels[:400])
    without = labels[400:].copy()
    without[20:, 8:] = -1  # a partition needs some label
    known = 20 + np.flatnonzero((without[20:] >= 0).any(axis=1))
    placed, expected = model.predict_proba(labels[400:]), model.predict_proba(without)
    np.testing.assert_allclose(placed[known], expected[known], atol=1e-3)
    assert adjusted_rand(truth[400:], model.predict(labels[400:])) > 0.8


# Entropy


def test_entropy_weights__are_the_entropies_of_the_labels():
    labels, _ = planted(missing=0.4)
    offsets = np.arange(0, 100, 4)[: labels.shape[1] + 1]
    found = entropy_weights(labels, offsets).partitions
    expected = np.array([scipy.stats.entropy(np.unique(c[c >= 0], return_counts=True)[1]) for c in labels.T])
    np.testing.assert_allclose(found, expected / expected.mean(), rtol=1e-9)


# Refusals


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"weights": [1.0, 2.0]}, r"weights has shape \(2,\) but there are n_partitions=24"),
        ({"weights": 3.0}, r"weights has shape \(\)"),
        ({"weights": "worth"}, "weights='worth' is unknown; use 'entropy', numbers or None"),
        ({"weights": ["a"] * 24}, "weights is not numeric"),
        ({"weights": [[1], [1, 2]]}, "weights is not numeric"),
        ({"weights": [1.0] * 23 + [-1.0]}, r"weights\[23\]=-1 is out of range; use finite numbers >= 0"),
        ({"weights": [0.0] * 24}, "weights are all 0; give at least one"),
        ({"weights": [float("nan")] * 24}, r"weights\[0\]=nan is out of range"),
        ({"weights": "entropy", "divergence": "kl"}, "requires pairs='all' and divergence='l2'"),
        ({"weights": "entropy", "pairs": "dense"}, "requires pairs='all' and divergence='l2'"),
        ({"weights": [1.0] * 24, "pairs": 0.1}, "requires pairs='all' and divergence='l2'"),
    ],
)
def test_fit__refuses_weights_in_one_line(asked, message):
    with pytest.raises(InvalidInputError, match=message) as refusal:
        PCC(3, **asked).fit(planted()[0])
    assert "\n" not in str(refusal.value)


def test_pcc_objective__takes_weights_only_where_it_counts_them():
    labels, truth = planted()
    Y = np.eye(3)[truth]
    with pytest.raises(InvalidInputError, match="they need pairs='all' and constant=False"):
        pcc_objective(labels, Y, weights=np.ones(24))
    with pytest.raises(InvalidInputError, match="n_partitions=24"):
        pcc_objective(labels, Y, weights=np.ones(3), constant=False)
