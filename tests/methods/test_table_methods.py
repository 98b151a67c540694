"""IVC, IPVC, IPC, QMI, KCC and k-means on labels: every pass does what the plain references say."""

import itertools
import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import (
    ConvergenceWarning,
    InvalidInputError,
    MemoryBudgetError,
    SuspiciousLabelsWarning,
    UnlabeledObjectsWarning,
)
from bigcons.methods import IPC, IPVC, IVC, KCC, QMI, LabelKMeans
from bigcons.methods.pass_clusterer import first_partition
from bigcons.metrics import adjusted_rand
from tests.naive import agreement
from tests.naive import table_methods as naive
from tests.support.strategies import label_matrices

# objects 1 to 6 by partitions I to IV, of the example in the paper's section 3
SIX = np.array([[1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 2, 2], [2, 2, 1, 1], [2, 2, 2, 2], [1, 2, 2, 2]])

METHODS = {
    IVC: naive.ivc_cost,
    IPVC: naive.ipvc_cost,
    QMI: naive.qmi_cost,
    KCC: naive.entropy_cost,
}
many = label_matrices(min_objects=4, max_objects=25, max_partitions=6)


def quietly_fit(model, x, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UnlabeledObjectsWarning)
        return model.fit(x, **kwargs)


def dense_codes(labels):
    ensemble = Ensemble.from_labels(labels)
    return ensemble.read(0, ensemble.n_objects)


def assert_fixed_point(labels, model, cost, k):
    """No object is strictly better off elsewhere."""
    costs = naive.costs(labels.tolist(), model.labels_.tolist(), k, cost)
    for own, cluster in zip(costs, model.labels_, strict=True):
        if own is not None:
            assert own[cluster] <= min(own) + 1e-9


@pytest.mark.parametrize("method", METHODS)
@given(labels=many, k=st.integers(1, 4), seed=st.integers(0, 5))
def test_fit__ends_at_a_fixed_point_of_the_naive_rule(method, labels, k, seed):
    model = quietly_fit(method(k, n_init=2, random_state=seed), labels)
    if method is IPVC:
        assume(model.converged_)  # batch moves may go round in circles
    assert model.converged_
    assert_fixed_point(dense_codes(labels), model, METHODS[method], k)


@given(
    labels=many, k=st.integers(1, 4), seed=st.integers(0, 5), normalize=st.sampled_from(["observed", "all"])
)
def test_ipc__ends_at_a_fixed_point_of_the_naive_rule(labels, k, seed, normalize):
    model = quietly_fit(IPC(k, n_init=2, normalize=normalize, random_state=seed), labels)
    assume(model.converged_)
    cost = lambda row, members: naive.ipc_cost(row, members, normalize)  # noqa: E731
    costs = naive.costs(dense_codes(labels).tolist(), model.labels_.tolist(), k, cost)
    for own, cluster in zip(costs, model.labels_, strict=True):
        assert own is None or own[cluster] <= min(own) + 1e-6  # similarities are float32


@pytest.mark.parametrize(("method", "sign"), [(IVC, -1), (QMI, 1), (KCC, -1), (LabelKMeans, -1)])
@given(
    labels=label_matrices(min_objects=6, max_objects=40, max_partitions=6, gaps=False), seed=st.integers(0, 9)
)
@pytest.mark.filterwarnings("ignore::bigcons.errors.ConsensusWarning")
def test_objective__never_gets_worse(method, sign, labels, seed):
    # on 12,000 objects the passes go on from a sample, so that there are several
    labels = np.tile(labels, (300, 1))
    labels[np.random.default_rng(seed).random(labels.shape) < 0.4] = 0
    model = quietly_fit(method(3, n_init=1, random_state=seed), labels)
    objective = sign * np.array(model.history_["objective"])
    assert (np.diff(objective) >= -1e-9 * np.abs(objective[:-1])).all()


@given(
    labels=label_matrices(min_objects=4, max_objects=25, max_partitions=6, gaps=False), k=st.integers(2, 4)
)
def test_qmi__utility_is_m_less_the_k_means_error_less_the_squared_shares(labels, k):
    """Identity of methods 4.9: sum_j U = M - SSE/n - sum_jl p_j(l)^2 on complete ensembles."""
    model = quietly_fit(QMI(k, n_init=1, random_state=0), labels)
    n, M = labels.shape
    onehot = np.concatenate([labels[:, [u]] == np.unique(labels[:, u]) for u in range(M)], axis=1).astype(
        float
    )
    sse = sum(
        ((onehot[model.labels_ == c] - onehot[model.labels_ == c].mean(axis=0)) ** 2).sum()
        for c in np.unique(model.labels_)
    )
    assert model.objective_ == pytest.approx(M - sse / n - (onehot.mean(axis=0) ** 2).sum(), abs=1e-9)


@given(labels=label_matrices(min_objects=4, max_objects=30, max_partitions=6, gaps=False),
       k=st.integers(1, 4), seed=st.integers(0, 20))  # fmt: skip
def test_ipc__equals_ipvc_on_complete_ensembles(labels, k, seed):
    ipvc = quietly_fit(IPVC(k, n_init=1, random_state=seed), labels)
    for normalize in ("observed", "all"):
        ipc = quietly_fit(IPC(k, n_init=1, normalize=normalize, random_state=seed), labels)
        np.testing.assert_array_equal(ipc.labels_, ipvc.labels_)
        n, M = labels.shape
        assert ipvc.objective_ == pytest.approx(M * (n - ipc.objective_), abs=1e-6)


def test_ipc__pair_by_pair_equals_the_fold_where_both_apply():
    """c/N with one label missing from a partition that saw nobody else there."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, (60, 8))
    observed = quietly_fit(IPC(3, random_state=0), labels)
    hidden = np.concatenate([labels, np.full((60, 1), -1)], axis=1)
    hidden[0, -1] = 0  # N of no pair of two objects changes, but for the object with itself
    pairwise = quietly_fit(IPC(3, random_state=0), hidden)
    assert adjusted_rand(observed.labels_, pairwise.labels_) == 1.0


VOTING = {
    IVC: naive.ivc_cost,
    IPVC: naive.ipvc_cost,
    IPC: lambda row, members: naive.ipc_cost(row, members, "observed"),
}


def moved(labels, clusters, k, cost):
    """Return the clusters after every object has moved to its nearest, or stayed on a tie."""
    costs = naive.costs(labels.tolist(), clusters, k, cost)
    return [
        c if own[c] <= min(own) + 1e-9 else int(np.argmin(own))
        for own, c in zip(costs, clusters, strict=True)
    ]


@pytest.mark.parametrize("method", VOTING)
def test_six_objects__base_partitions_and_the_truth_are_fixed_points(method):
    """The example of Nguyen and Caruana: started at a base partition each method stays there."""
    found = {tuple(quietly_fit(method(2, n_init=1, random_state=s), SIX).labels_) for s in range(20)}
    bases = {tuple(np.unique(SIX[:, u], return_inverse=True)[1]) for u in range(4)}
    relabeled = {tuple(1 - np.array(base)) for base in bases}
    assert found <= bases | relabeled
    for start in ([0, 0, 0, 1, 1, 1], *bases):
        assert adjusted_rand(start, method(2, init=start).fit(SIX).labels_) == 1


@pytest.mark.parametrize("method", VOTING)
def test_six_objects__end_from_any_start_where_the_paper_s_rule_leads(method):
    """Every start but one cluster: of 31, IVC recovers the truth from one, IPVC and IPC from three."""
    recovered = 0
    for others in itertools.product((0, 1), repeat=5):
        if any(others):
            clusters = [0, *others]
            model = method(2, init=clusters).fit(SIX)
            while (after := moved(SIX, clusters, 2, VOTING[method])) != clusters:
                clusters = after
            assert adjusted_rand(clusters, model.labels_) == 1
            recovered += adjusted_rand([0, 0, 0, 1, 1, 1], clusters) == 1
    assert recovered == (1 if method is IVC else 3)


def test_kcc__with_the_category_utility_is_qmi():
    ensemble, _ = planted_ensemble(800, 12, random_state=0)
    qmi = quietly_fit(QMI(5, random_state=1), ensemble)
    kcc = quietly_fit(KCC(5, utility="uc", random_state=1), ensemble)
    np.testing.assert_array_equal(qmi.labels_, kcc.labels_)
    assert qmi.objective_ == kcc.objective_


def test_first_partition__starts_are_different_base_partitions_until_all_were_taken():
    labels = np.random.default_rng(0).integers(0, 3, (60, 12)).astype(np.int32)
    starts = {first_partition(labels, 3, 7, number).tobytes() for number in range(12)}
    assert starts == {column.tobytes() for column in labels.T}
    orders = [first_partition(labels, 3, seed, 0).tobytes() for seed in range(12)]
    assert len(set(orders)) > 4


@pytest.mark.peers
def test_qmi__is_k_means_on_one_hot_labels():
    from sklearn.cluster import KMeans

    ensemble, _ = planted_ensemble(300, 10, missing=0.0, random_state=0)
    labels = ensemble.read(0, 300)
    onehot = np.concatenate([labels[:, [u]] == np.unique(labels[:, u]) for u in range(10)], axis=1)
    model = quietly_fit(QMI(6, n_init=20, random_state=0), ensemble)
    judge = KMeans(6, n_init=20, random_state=0).fit(onehot.astype(float))
    best = 10 - judge.inertia_ / 300 - (onehot.mean(axis=0) ** 2).sum()
    assert model.objective_ >= best - 1e-3 * best


@pytest.mark.peers
def test_label_kmeans__is_k_means_on_label_numbers():
    from sklearn.cluster import KMeans

    ensemble, _ = planted_ensemble(300, 10, missing=0.0, random_state=0)
    labels = ensemble.read(0, 300).astype(float)
    model = quietly_fit(LabelKMeans(6, n_init=20, random_state=0), ensemble)
    judge = KMeans(6, n_init=20, random_state=0).fit(labels)
    assert model.objective_ == pytest.approx(judge.inertia_, rel=1e-2)
    centers = np.array([labels[model.labels_ == k].mean(axis=0) for k in range(6)])
    own = ((labels - centers[model.labels_]) ** 2).sum()
    assert model.objective_ == pytest.approx(own)


def test_label_kmeans__on_coassociations_equals_scikit_learn_on_them():
    from sklearn.cluster import KMeans

    ensemble, truth = planted_ensemble(300, 20, missing=0.3, random_state=0)
    model = quietly_fit(LabelKMeans(6, encode="coassoc", random_state=0), ensemble)
    assert adjusted_rand(truth, model.labels_) > 0.7
    labels = ensemble.read(0, 300).tolist()
    counts = np.array([[agreement.counts(labels, i, j) for j in range(300)] for i in range(300)], float)
    shares = counts[..., 0] / np.maximum(counts[..., 1], 1)
    centers = np.array([shares[model.labels_ == k].mean(axis=0) for k in range(6)])
    again = KMeans(6, init=centers, n_init=1).fit(shares)
    assert adjusted_rand(again.labels_, model.labels_) == 1
    assert again.inertia_ == pytest.approx(model.objective_, rel=1e-4)
    with pytest.raises(InvalidInputError, match="cannot place new objects"):
        model.predict(ensemble)
    with pytest.raises(MemoryBudgetError, match="use encode='onehot'"):
        LabelKMeans(6, encode="coassoc", memory=1000).fit(ensemble)


def test_label_kmeans__finds_planted_numbers_with_half_of_them_missing():
    rng = np.random.default_rng(0)
    truth = rng.integers(4, size=6000)
    labels = np.repeat(truth[:, None], 12, axis=1)
    labels[rng.random(labels.shape) < 0.5] = -1
    model = quietly_fit(LabelKMeans(4, random_state=0), labels)
    assert adjusted_rand(truth[model.labels_ >= 0], model.labels_[model.labels_ >= 0]) > 0.99


PREDICTING = {
    "ivc": IVC,
    "ipvc": IPVC,
    "qmi": QMI,
    "kcc": KCC,
    "ipc": partial(IPC, normalize="all"),
    "kmeans": LabelKMeans,
}


@pytest.mark.parametrize("name", PREDICTING)
def test_predict__gives_fitted_objects_of_many_blocks_their_labels(name, tmp_path):
    ensemble, _ = planted_ensemble(6000, 20, missing=0.3, random_state=0)
    ensemble.save(tmp_path / "labels.zarr", chunk_rows=512)
    model = quietly_fit(PREDICTING[name](6, random_state=0), tmp_path / "labels.zarr")
    np.testing.assert_array_equal(model.predict(ensemble), model.labels_)
    unseen = np.full((3, 20), 10_000)
    with pytest.warns(SuspiciousLabelsWarning, match="did not occur in fit"):
        assert (model.predict(unseen) == -1).all()
