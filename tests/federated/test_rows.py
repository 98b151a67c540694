"""EM among sites that hold objects: as on all objects at one place, and what the sites send."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigcons as bc
from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import ConvergenceWarning, InvalidInputError
from bigcons.federated import RowSite, fit_rows, fit_rows_in_turn
from bigcons.methods.bce import VariationalBCE
from bigcons.metrics import adjusted_rand
from tests.support.strategies import label_matrices

K = 3


def bce(ensemble, n_clusters=K):
    return VariationalBCE(ensemble.offsets, n_clusters, init="partition", smoothing=1e-6, update_alpha=True)


def central(problem, labels, state, max_iter=500, tol=1e-6):
    """Return the state that the last record judges, the records, and what the objects carry."""
    records, carried = [], None
    for _ in range(max_iter):
        judged = state
        stats, carried = problem.block_stats(state, labels, carried)
        state, record = problem.finish(state, stats)
        settled = problem.is_settled(records[-1] if records else None, record, tol)
        records.append(record)
        if settled:
            break
    return judged, records, carried


def parameters_of(state):
    """Return the parameters of a state under the names of `RowFit`."""
    return {"alpha": state["alpha"], "beta": state["beta"]}


def order_of(found, expected):
    """Return the order of the clusters in which expected parameters (..., K) are those found."""
    n_clusters = next(iter(expected.values())).shape[-1]
    for order in itertools.permutations(range(n_clusters)):
        pairs = [(values, expected[name][..., order]) for name, values in found.items()]
        if all(np.allclose(*pair, rtol=1e-5, atol=1e-9) for pair in pairs):
            return np.array(order)
    raise AssertionError("the parameters differ in any order of the clusters")


def assert_same_run(fit, expected, records):
    """Return the order in which the fit has the clusters."""
    assert len(fit.history["objective"]) == len(records)
    np.testing.assert_allclose(
        fit.history["objective"], [r["objective"] for r in records], rtol=1e-9, atol=1e-9
    )
    assert fit.parameters.keys() == expected.keys()
    return order_of(fit.parameters, expected)


@pytest.fixture(scope="module")
def planted():
    ensemble, truth = planted_ensemble(600, 20, shares=(0.5, 0.3, 0.2), missing=0.4, random_state=3)
    return ensemble, ensemble.read(0, 600), truth


def sites_of(labels, n_sites, ensemble, cls=RowSite):
    """Return sites that have agreed on the labels, and so need not have all of them."""
    values = [np.arange(k) for k in ensemble.n_clusters]
    return [cls(part, values=values) for part in np.array_split(labels, n_sites)]


@pytest.mark.parametrize("n_sites", [1, 2, 7])
def test_fit_rows__is_the_central_run(planted, n_sites):
    ensemble, labels, _ = planted
    problem = bce(ensemble)
    sites = sites_of(labels, n_sites, ensemble)
    fit = fit_rows(sites, K, n_init=1, random_state=0)
    state, records, carried = central(problem, labels, problem.start(labels, 0, 0)[0])
    assert fit.converged
    order = assert_same_run(fit, parameters_of(state), records)
    memberships = np.concatenate([site.memberships() for site in sites])
    expected = problem.place(state, labels, carried)[:, order]
    np.testing.assert_allclose(memberships, expected, rtol=1e-4, atol=1e-6)
    clusters = np.concatenate([site.labels() for site in sites])
    assert (np.diff(np.bincount(clusters, minlength=K)) < 0).all()
    np.testing.assert_array_equal(clusters, memberships.argmax(axis=1))


@given(
    label_matrices(min_objects=2, max_objects=10), st.integers(1, 4), st.integers(1, 4), st.integers(0, 99)
)
def test_fit_rows__is_the_central_run_on_any_labels(labels, n_clusters, n_sites, seed):
    ensemble = Ensemble.from_labels(labels)
    labels, problem = ensemble.read(0, ensemble.n_objects), bce(ensemble, n_clusters)
    sites = sites_of(labels, min(n_sites, len(labels)), ensemble)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = fit_rows(sites, n_clusters, n_init=1, max_iter=3, tol=0.0, random_state=seed)
    state, records, _ = central(problem, labels, problem.start(labels, seed, 0)[0], 3, tol=0.0)
    assert_same_run(fit, parameters_of(state), records)
    unlabeled = (labels < 0).all(axis=1)
    assert (np.concatenate([site.labels() for site in sites])[unlabeled] == -1).all()


def test_fit_rows__finds_what_bce_finds_at_one_place(planted):
    ensemble, labels, truth = planted
    sites = sites_of(labels, 3, ensemble)
    fit = fit_rows(sites, K, random_state=0)
    model = bc.BCE(K, n_init=10, random_state=0).fit(ensemble)
    assert fit.objective == pytest.approx(model.objective_, rel=1e-5)
    np.testing.assert_allclose(fit.start_objectives, model.start_objectives_, rtol=1e-7)
    found = np.concatenate([site.labels() for site in sites])
    assert adjusted_rand(found, model.labels_) > 0.99
    assert adjusted_rand(found, truth) > 0.9


class Listening(RowSite):
    """A site that notes the messages and its answers, as a transport would carry them."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.asked, self.told = [], []

    def answer(self, message):
        self.asked.append((message["ask"], len(pickle.dumps(message))))
        answer = super().answer(pickle.loads(pickle.dumps(message)))
        self.told.append((message["ask"], len(pickle.dumps(answer)), answer))
        return pickle.loads(pickle.dumps(answer))


def sizes_of_messages(n_objects):
    """Return what a site of ``n_objects`` received and sent, by question, with the sizes in bytes."""
    ensemble, _ = planted_ensemble(n_objects, 6, n_clusters=(2, 3), shares=(0.6, 0.4), random_state=1)
    labels = ensemble.read(0, n_objects)
    sites = sites_of(labels, 2, ensemble, Listening)
    with pytest.warns(ConvergenceWarning):
        fit_rows(sites, 2, n_init=2, max_iter=4, tol=0.0, random_state=0)
    return [(site.asked, [(ask, size) for ask, size, _ in site.told]) for site in sites]


def test_fit_rows__no_message_grows_with_the_number_of_objects():
    assert sizes_of_messages(400) == sizes_of_messages(4000)


def test_fit_rows__reads_text_and_stored_labels_and_the_sites_need_not_agree_before(planted, tmp_path):
    _, labels, _ = planted
    words = np.array([None, *"abcdefghijklmn"], object)[labels + 1]
    Ensemble.from_labels(words[:300]).save(tmp_path / "site.zarr", chunk_rows=64)
    sites = [RowSite(tmp_path / "site.zarr"), RowSite(words[300:])]
    fit = fit_rows(sites, K, n_init=2, random_state=0)
    expected = fit_rows([RowSite(labels)], K, n_init=2, random_state=0)
    assert fit.values[0].tolist() == [*"abcdefghijklmn"][: len(expected.values[0])]
    np.testing.assert_allclose(fit.parameters["beta"], expected.parameters["beta"], rtol=1e-4, atol=1e-9)


def test_fit_rows__refuses_sites_that_do_not_fit_together(planted):
    _, labels, _ = planted
    with pytest.raises(InvalidInputError, match="sites is empty"):
        fit_rows([], K)
    with pytest.raises(InvalidInputError, match="n_partitions=19") as refused:
        fit_rows([RowSite(labels), RowSite(labels[:, 1:])], K)
    assert refused.value.parameter == "sites"
    with pytest.raises(InvalidInputError, match="text labels"):
        fit_rows([RowSite([[1], [2]]), RowSite([["a"], ["b"]])], 2)
    with pytest.raises(InvalidInputError, match="values="):
        RowSite([[1, -1], [2, -1]])
    with pytest.raises(InvalidInputError, match="lack") as refused:
        RowSite([[1, 0], [3, 0]], values=[[1, 2], [0]])
    assert refused.value.parameter == "values"
    with pytest.raises(InvalidInputError, match="no fit has ended"):
        RowSite(labels).memberships()
    with pytest.raises(InvalidInputError, match="asks 'labels'"):
        RowSite(labels).answer({"ask": "labels"})


@pytest.mark.parametrize("n_sites", [1, 2, 5, 10])
def test_fit_rows_in_turn__settles_within_ten_cycles_as_published(n_sites):
    """Though alpha, where partitions agree, goes on towards zero for long."""
    clean = {"noise": (0.0, 0.05), "hard_share": 0.0, "missing": 0.0}
    ensemble, _ = planted_ensemble(600, 20, shares=(0.5, 0.3, 0.2), random_state=0, **clean)
    sites = sites_of(ensemble.read(0, 600), n_sites, ensemble)
    fit = fit_rows_in_turn(sites, K, random_state=0)
    assert fit.converged
    assert len(fit.history["objective"]) <= 10
    found = np.concatenate([site.labels() for site in sites])
    with pytest.warns(ConvergenceWarning):
        fit_rows_in_turn(sites, K, max_cycles=30, tol=0, random_state=0)
    assert adjusted_rand(found, np.concatenate([site.labels() for site in sites])) > 0.99


def test_fit_rows_in_turn__sends_parameters_and_no_sums(planted):
    ensemble, labels, _ = planted
    sites = sites_of(labels, 2, ensemble, Listening)
    with pytest.warns(ConvergenceWarning):
        fit_rows_in_turn(sites, K, n_init=2, max_cycles=2, tol=0.0, random_state=0)
    told = [(ask, answer) for site in sites for ask, _, answer in site.told]
    assert {ask for ask, _ in told} == {"values", "begin", "propose", "step", "end", "number"}
    assert all(set(answer) == {"sizes"} for ask, answer in told if ask == "number")
    assert all(set(answer["state"]) == {"alpha", "beta"} for ask, answer in told if ask == "step")
