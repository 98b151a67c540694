"""IVC, IPVC, IPC, QMI, KCC, k-means on labels and the mixture: passes by plain references, and starts."""

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError, MemoryBudgetError
from bigcons.methods import IPC, IPVC, IVC, KCC, METHODS, QMI, LabelKMeans, MixtureModel
from bigcons.methods.bce import MixtureProblem
from bigcons.metrics import adjusted_rand
from tests.naive import agreement
from tests.naive import mixture as naive_mixture
from tests.naive import table_methods as naive
from tests.support.fits import quiet
from tests.support.stores import dense_codes
from tests.support.strategies import label_matrices

# objects 1 to 6 by partitions I to IV, of the example in the paper's section 3
SIX = np.array([[1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 2, 2], [2, 2, 1, 1], [2, 2, 2, 2], [1, 2, 2, 2]])

COSTS = {
    "ivc": (IVC, naive.ivc_cost),
    "ipvc": (IPVC, naive.ipvc_cost),
    "qmi": (QMI, naive.qmi_cost),
    "kcc": (KCC, naive.entropy_cost),
    "ipc": (IPC, partial(naive.ipc_cost, normalize="observed")),
    "ipc all": (partial(IPC, normalize="all"), partial(naive.ipc_cost, normalize="all")),
}
VOTING = ("ivc", "ipvc", "ipc")
many = label_matrices(min_objects=4, max_objects=25, max_partitions=6)


@pytest.mark.parametrize("name", COSTS)
@given(labels=many, k=st.integers(1, 4), seed=st.integers(0, 5))
def test_fit__ends_at_a_fixed_point_of_the_naive_rule(name, labels, k, seed):
    """No object is strictly better off elsewhere."""
    make, cost = COSTS[name]
    model = quiet(make(k, n_init=2, random_state=seed), labels)
    if make in (IVC, QMI, KCC):
        assert model.converged_
    assume(model.converged_)  # batch moves of the others may go round in circles
    costs = naive.costs(dense_codes(labels)[1].tolist(), model.labels_.tolist(), k, cost)
    slack = 1e-6 if name.startswith("ipc") else 1e-9  # similarities are float32
    for own, cluster in zip(costs, model.labels_, strict=True):
        assert own is None or own[cluster] <= min(own) + slack


@pytest.mark.parametrize("name", ["ivc", "ipvc", "ipc", "ipc all"])
@given(labels=many, k=st.integers(2, 4), seed=st.integers(0, 5))
def test_a_pass__moves_objects_as_exact_fractions_compare(name, labels, k, seed):
    """On a tie an object stays; one without a cluster joins the lowest."""
    make, cost = COSTS[name]
    before = np.random.default_rng(seed).integers(-1, k, len(labels))
    assume((before >= 0).any())
    model = quiet(make(k, init=before, max_iter=1), labels)
    costs = naive.costs(dense_codes(labels)[1].tolist(), before.tolist(), k, cost)
    expected = [
        -1 if own is None else cluster if cluster >= 0 and own[cluster] == min(own) else own.index(min(own))
        for own, cluster in zip(costs, before, strict=True)
    ]
    as_numbered = [model.labels_.tolist().index(label) for label in model.labels_]
    assert as_numbered == [expected.index(label) for label in expected]
    assert ((model.labels_ < 0) == (np.array(expected) < 0)).all()


def test_a_pass_of_ipvc__leaves_an_object_that_is_equally_far_from_two_clusters():
    labels = ["1201", "0112", "1000", "1202", "2002", "2002", "2200", "1000"]
    before = [1, 1, 0, 1, 1, 0, 1, 1]
    model = quiet(IPVC(2, init=before, max_iter=1), [[int(label) for label in row] for row in labels])
    assert model.labels_[6] == before[6]


@pytest.mark.parametrize(("method", "sign"), [(IVC, -1), (QMI, 1), (KCC, -1), (LabelKMeans, -1)])
@given(
    labels=label_matrices(min_objects=6, max_objects=40, max_partitions=6, gaps=False), seed=st.integers(0, 9)
)
@settings(max_examples=8)
def test_objective__never_gets_worse(method, sign, labels, seed):
    # on 12,000 objects the passes go on from a sample, so that there are several
    labels = np.tile(labels, (300, 1))
    labels[np.random.default_rng(seed).random(labels.shape) < 0.4] = 0
    model = quiet(method(3, n_init=1, random_state=seed), labels)
    objective = sign * np.array(model.history_["objective"])
    assert (np.diff(objective) >= -1e-9 * np.abs(objective[:-1])).all()


@given(labels=label_matrices(min_objects=4, max_objects=30, max_partitions=6, gaps=False),
       k=st.integers(1, 4), seed=st.integers(0, 20))  # fmt: skip
def test_ipc__equals_ipvc_on_complete_ensembles(labels, k, seed):
    ipvc = quiet(IPVC(k, n_init=1, random_state=seed), labels)
    for normalize in ("observed", "all"):
        ipc = quiet(IPC(k, n_init=1, normalize=normalize, random_state=seed), labels)
        np.testing.assert_array_equal(ipc.labels_, ipvc.labels_)
        n, M = labels.shape
        assert ipvc.objective_ == pytest.approx(M * (n - ipc.objective_), abs=1e-6)


def moved(labels, clusters, k, cost):
    """Return the clusters after every object has moved to its nearest, or stayed on a tie."""
    costs = naive.costs(labels.tolist(), clusters, k, cost)
    return [
        c if own[c] <= min(own) + 1e-9 else int(np.argmin(own))
        for own, c in zip(costs, clusters, strict=True)
    ]


@pytest.mark.parametrize("method", [COSTS[name][0] for name in VOTING])
def test_six_objects__base_partitions_and_the_truth_are_fixed_points(method):
    """The example of Nguyen and Caruana: started at a base partition each method stays there."""
    found = {tuple(quiet(method(2, n_init=1, random_state=s), SIX).labels_) for s in range(20)}
    bases = {tuple(np.unique(SIX[:, u], return_inverse=True)[1]) for u in range(4)}
    relabeled = {tuple(1 - np.array(base)) for base in bases}
    assert found <= bases | relabeled
    for start in ([0, 0, 0, 1, 1, 1], *bases):
        assert adjusted_rand(start, method(2, init=start).fit(SIX).labels_) == 1


@pytest.mark.parametrize(("method", "cost"), [COSTS[name] for name in VOTING])
def test_six_objects__end_from_any_start_where_the_paper_s_rule_leads(method, cost):
    """Every start but one cluster: of 31, IVC recovers the truth from one, IPVC and IPC from three."""
    recovered = 0
    for others in itertools.product((0, 1), repeat=5):
        if any(others):
            clusters = [0, *others]
            model = method(2, init=clusters).fit(SIX)
            while (after := moved(SIX, clusters, 2, cost)) != clusters:
                clusters = after
            assert adjusted_rand(clusters, model.labels_) == 1
            recovered += adjusted_rand([0, 0, 0, 1, 1, 1], clusters) == 1
    assert recovered == (1 if method is IVC else 3)


@pytest.mark.peers
def test_qmi__is_k_means_on_one_hot_labels():
    ensemble, _ = planted_ensemble(300, 10, missing=0.0, random_state=0)
    labels = ensemble.read(0, 300)
    onehot = np.concatenate([labels[:, [u]] == np.unique(labels[:, u]) for u in range(10)], axis=1)
    model = quiet(QMI(6, n_init=20, random_state=0), ensemble)
    judge = KMeans(6, n_init=20, random_state=0).fit(onehot.astype(float))
    best = 10 - judge.inertia_ / 300 - (onehot.mean(axis=0) ** 2).sum()
    assert model.objective_ >= best - 1e-3 * best


@pytest.mark.peers
def test_label_kmeans__is_k_means_on_label_numbers():
    ensemble, _ = planted_ensemble(300, 10, missing=0.0, random_state=0)
    labels = ensemble.read(0, 300).astype(float)
    model = quiet(LabelKMeans(6, n_init=20, random_state=0), ensemble)
    judge = KMeans(6, n_init=20, random_state=0).fit(labels)
    assert model.objective_ == pytest.approx(judge.inertia_, rel=1e-2)
    centers = np.array([labels[model.labels_ == k].mean(axis=0) for k in range(6)])
    assert model.objective_ == pytest.approx(((labels - centers[model.labels_]) ** 2).sum())


def test_label_kmeans__on_coassociations_equals_scikit_learn_on_them():
    ensemble, truth = planted_ensemble(300, 20, missing=0.3, random_state=0)
    model = quiet(LabelKMeans(6, encode="coassoc", random_state=0), ensemble)
    assert adjusted_rand(truth, model.labels_) > 0.7
    labels = ensemble.read(0, 300).tolist()
    counts = np.array([[agreement.counts(labels, i, j) for j in range(300)] for i in range(300)], float)
    shares = counts[..., 0] / np.maximum(counts[..., 1], 1)
    centers = np.array([shares[model.labels_ == k].mean(axis=0) for k in range(6)])
    again = KMeans(6, init=centers, n_init=1).fit(shares)
    assert adjusted_rand(again.labels_, model.labels_) == 1
    assert again.inertia_ == pytest.approx(model.objective_, rel=1e-4)
    assert not hasattr(model, "predict")
    with pytest.raises(InvalidInputError, match="weights do not apply to encode='coassoc'"):
        LabelKMeans(6, encode="coassoc", weights=range(20)).fit(ensemble)
    with pytest.raises(MemoryBudgetError, match="use encode='onehot'"):
        LabelKMeans(6, encode="coassoc", memory=1000).fit(ensemble)


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
    expected, log_likelihood = naive_mixture.posteriors(codes.tolist(), shares, theta)
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


@pytest.fixture(scope="module")
def fine():
    """5,000 objects of 4 classes, 20 partitions of 400 clusters."""
    return planted_ensemble(5_000, 20, shares=[0.25] * 4, n_clusters=(400, 400), missing=0.2)


@pytest.mark.parametrize("name", ["mixture", "bce", "kcc", "ipvc"])
def test_fine_base_clusters(name, fine, tmp_path):
    ensemble, classes = fine
    model = METHODS[name](4, random_state=0).fit(ensemble)
    assert adjusted_rand(classes, model.labels_) > 0.9  # k-means from a start on the sample: 0.53
    assert model.start_objectives_ == []
    if name == "mixture":
        blocks = ensemble.save(tmp_path / "fine.zarr", chunk_rows=1_500)
        one, many = (METHODS[name](4, random_state=0, client=c).fit(blocks) for c in ("serial", "threads"))
        np.testing.assert_array_equal(one.memberships_, many.memberships_)
