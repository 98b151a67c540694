"""The mixture of multinomials: EM as the equations say, and what the background is for."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.kernels.cluster_tables import respond, responsibilities, rows_together
from bigcons.methods import MixtureModel
from bigcons.methods.mixture import MixtureProblem
from bigcons.metrics import adjusted_rand
from tests.naive import mixture as naive
from tests.support.strategies import label_matrices


def unpack(state, offsets, n_columns):
    """Return the parameters of a state as the naive reference takes them."""
    theta = [
        [np.exp(state["table"][first:last, k]).tolist() for first, last in itertools.pairwise(offsets)]
        for k in range(n_columns)
    ]
    return np.exp(state["bias"]).tolist(), theta


@given(
    labels=label_matrices(min_objects=3, max_objects=20, max_partitions=5),
    k=st.sampled_from([1, 2, 3, 4, 8]),  # with a background, 8 columns are padded to 16
    background=st.booleans(),
    init=st.sampled_from(["partition", "dirichlet"]),
)
def test_a_pass__is_the_naive_e_and_m_step(labels, k, background, init):
    ensemble = Ensemble.from_labels(labels)
    codes = ensemble.read(0, ensemble.n_objects)
    problem = MixtureProblem(ensemble.offsets, k, init, background=background)
    state, _ = problem.start(codes, 0, 0)
    columns = k + background
    shares, theta = unpack(state, ensemble.offsets, columns)
    assert sum(shares) == pytest.approx(1)
    assert all(sum(own) == pytest.approx(1) for cluster in theta for own in cluster)
    expected, log_likelihood = naive.posteriors(codes.tolist(), shares, theta)
    stats, _ = problem.block_stats(state, codes, None)
    following, record = problem.finish(state, stats)
    assert record["objective"] == pytest.approx(log_likelihood, rel=1e-9, abs=1e-9)
    r = np.array([row for row in expected if row is not None])
    seen = codes[[row is not None for row in expected]]
    new_shares, new_theta = unpack(following, ensemble.offsets, columns)
    np.testing.assert_allclose(new_shares, r.mean(axis=0), atol=1e-5)
    for u in range(codes.shape[1]):
        for c in range(columns):
            weights = np.ones(len(seen)) if background and c == k else r[:, c]
            observed = seen[:, u] >= 0
            counts = np.bincount(seen[observed, u], weights[observed], ensemble.n_clusters[u])
            if counts.sum() > 1e-2:
                np.testing.assert_allclose(new_theta[c][u], counts / counts.sum(), atol=1e-3)


@pytest.mark.parametrize(("missing", "least"), [(0.5, 0.96), (0.0, 0.99)])
def test_background__keeps_noisy_objects_from_a_cluster_of_their_own(missing, least):
    ensemble, truth = planted_ensemble(8000, 100, missing=missing, random_state=1)
    with_background = MixtureModel(6, random_state=0).fit(ensemble)
    without = MixtureModel(6, random_state=0, background=False).fit(ensemble)
    assert adjusted_rand(truth, with_background.labels_) > least
    assert with_background.background_share_ == pytest.approx(0.1, abs=0.02)  # one tenth is planted
    assert not hasattr(without, "background_share_")
    assert adjusted_rand(truth, without.labels_) < adjusted_rand(truth, with_background.labels_)


@pytest.mark.filterwarnings("ignore::bigcons.errors.SuspiciousLabelsWarning")
def test_respond__by_slices_of_the_partitions_is_that_of_each_object_alone():
    ensemble, _ = planted_ensemble(40, 3000, missing=0.4)
    labels, offsets = np.array(ensemble.read(0, 40)), ensemble.offsets
    labels[3] = -1
    rng, K = np.random.default_rng(0), 5
    table, bias = np.zeros((int(offsets[-1]), 8)), np.log(rng.dirichlet(np.ones(K)))
    table[:, :K] = 0.01 * rng.normal(size=(len(table), K))
    assert rows_together(40, offsets, 8, 0) > 1 == rows_together(1, offsets, 8, 0)
    found = [np.zeros_like(table), np.zeros(K), np.zeros(4)]
    alone = [np.zeros_like(table), np.zeros(K), np.zeros(4)]
    shares, shares_alone = np.empty((2, 40, K), np.float32)
    respond(labels, offsets, table, bias, *found)
    responsibilities(labels, offsets, table, bias, shares)
    for i in range(40):
        row = slice(i, i + 1)
        respond(labels[row], offsets, table, bias, *alone)
        responsibilities(labels[row], offsets, table, bias, shares_alone[row])
    for part, expected in zip([*found, shares], [*alone, shares_alone], strict=True):
        np.testing.assert_array_equal(part, expected)
