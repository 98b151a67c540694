"""EM among sites: as on all labels at one place, and what the sites send."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import ConvergenceWarning, InvalidInputError
from bigcons.federated import ColumnSite, RowSite, fit_columns, fit_rows, fit_rows_in_turn
from bigcons.methods.bce import VariationalBCE, state_of
from bigcons.methods.pass_clusterer import expected_counts, first_partition
from bigcons.metrics import adjusted_rand
from tests.support.clusters import local_client
from tests.support.strategies import label_matrices

K = 3


def bce(ensemble, n_clusters=K):
    return VariationalBCE(ensemble.offsets, n_clusters, init="partition", smoothing=1e-6, update_alpha=True)


def central(problem, labels, state, max_iter=500, tol=1e-6):
    """Return the state that the last record judges, the objectives, and what the objects carry."""
    records, carried = [], None
    for _ in range(max_iter):
        judged = state
        stats, carried = problem.block_stats(state, labels, carried)
        state, record = problem.finish(state, stats)
        settled = problem.is_settled(records[-1] if records else None, record, tol)
        records.append(record)
        if settled:
            break
    return judged, [record["objective"] for record in records], carried


def order_of(alpha, beta, state):
    """Return the order of the clusters in which the parameters of a state are those of a fit."""
    for order in map(list, itertools.permutations(range(len(alpha)))):
        pairs = (alpha, state["alpha"][order]), (beta, state["beta"][:, order])
        if all(np.allclose(*pair, rtol=1e-5, atol=1e-9) for pair in pairs):
            return order
    raise AssertionError("the parameters differ in any order of the clusters")


def assert_same_objectives(fit, objectives):
    np.testing.assert_allclose(fit.history["objective"], objectives, rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def planted():
    ensemble, truth = planted_ensemble(600, 20, shares=(0.5, 0.3, 0.2), missing=0.4, random_state=3)
    return ensemble, ensemble.read(0, 600), truth


def row_sites(labels, n_sites, ensemble, cls=RowSite):
    """Return sites that have agreed on the labels, and so need not have all of them."""
    values = [np.arange(k) for k in ensemble.n_clusters]
    return [cls(part, values=values) for part in np.array_split(labels, n_sites)]


def labels_at(sites):
    return np.concatenate([site.labels() for site in sites])


@pytest.mark.parametrize("n_sites", [1, 2, 7])
def test_fit_rows__is_the_central_run(planted, n_sites):
    ensemble, labels, _ = planted
    problem, sites = bce(ensemble), row_sites(labels, n_sites, ensemble)
    fit = fit_rows(sites, K, n_init=1, random_state=0)
    state, objectives, carried = central(problem, labels, problem.start(labels, 0, 0)[0])
    assert fit.converged
    assert_same_objectives(fit, objectives)
    order = order_of(**fit.parameters, state=state)
    memberships = np.concatenate([site.memberships() for site in sites])
    np.testing.assert_allclose(
        memberships, problem.place(state, labels, carried)[:, order], rtol=1e-4, atol=1e-6
    )
    assert (np.diff(np.bincount(labels_at(sites), minlength=K)) < 0).all()
    np.testing.assert_array_equal(labels_at(sites), memberships.argmax(axis=1))


@given(
    label_matrices(min_objects=2, max_objects=10), st.integers(1, 4), st.integers(1, 4), st.integers(0, 99)
)
def test_fit_rows__is_the_central_run_on_any_labels(labels, n_clusters, n_sites, seed):
    ensemble = Ensemble.from_labels(labels)
    labels, problem = ensemble.read(0, ensemble.n_objects), bce(ensemble, n_clusters)
    sites = row_sites(labels, min(n_sites, len(labels)), ensemble)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = fit_rows(sites, n_clusters, n_init=1, max_iter=3, tol=0.0, random_state=seed)
    state, objectives, _ = central(problem, labels, problem.start(labels, seed, 0)[0], 3, tol=0.0)
    assert_same_objectives(fit, objectives)
    order_of(**fit.parameters, state=state)
    assert (labels_at(sites)[(labels < 0).all(axis=1)] == -1).all()


def test_fit_rows__reads_text_and_stored_labels_and_the_sites_need_not_agree_before(planted, tmp_path):
    _, labels, _ = planted
    words = np.array([None, *"abcdefghijklmn"], object)[labels + 1]
    Ensemble.from_labels(words[:300]).save(tmp_path / "site.zarr", chunk_rows=64)
    sites = [RowSite(tmp_path / "site.zarr"), RowSite(words[300:])]
    fit = fit_rows(sites, K, n_init=2, random_state=0)
    expected = fit_rows([RowSite(labels)], K, n_init=2, random_state=0)
    assert fit.values[0].tolist() == [*"abcdefghijklmn"][: len(expected.values[0])]
    np.testing.assert_allclose(fit.parameters["beta"], expected.parameters["beta"], rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(
    ("sites", "told"),
    [
        (lambda: [RowSite([[0, 1], [1, 0]]), RowSite([[0], [1]])], "n_partitions=2, or labels"),
        (lambda: [RowSite([[1], [2]]), RowSite([["a"], ["b"]])], "labels named alike"),
        (lambda: [RowSite([[1, 0], [3, 0]], values=[[1, 2], [0]])], "values= the labels of all"),
    ],
)
def test_fit_rows__refuses_sites_that_do_not_fit_together(sites, told):
    with pytest.raises(InvalidInputError, match=told):
        fit_rows(sites(), 2)


def test_row_site__has_no_results_before_a_fit():
    with pytest.raises(InvalidInputError, match="no fit has ended"):
        RowSite([[0], [1]]).memberships()


@pytest.mark.parametrize("n_sites", [1, 2, 5, 10])
def test_fit_rows_in_turn__settles_within_ten_cycles_as_published(n_sites):
    """Though alpha, where partitions agree, goes on towards zero for long."""
    clean = {"noise": (0.0, 0.05), "hard_share": 0.0, "missing": 0.0}
    ensemble, _ = planted_ensemble(600, 20, shares=(0.5, 0.3, 0.2), random_state=0, **clean)
    sites = row_sites(ensemble.read(0, 600), n_sites, ensemble)
    fit = fit_rows_in_turn(sites, K, random_state=0)
    assert fit.converged
    assert len(fit.history["objective"]) <= 10
    settled = labels_at(sites)
    with pytest.warns(ConvergenceWarning):
        fit_rows_in_turn(sites, K, max_cycles=30, tol=0, random_state=0)
    assert adjusted_rand(settled, labels_at(sites)) > 0.99


class Listening:
    """A site that notes the messages and answers, as a transport would carry them."""

    def __init__(self, *args, site=None, **kwargs):
        self.site, self.passed = site or RowSite(*args, **kwargs), []

    def answer(self, message):
        answer = self.site.answer(pickle.loads(pickle.dumps(message)))
        answer = getattr(answer, "result", lambda: answer)()  # of an actor of Dask
        self.passed.append((message, answer))
        return pickle.loads(pickle.dumps(answer))

    def sizes(self):
        return [tuple(len(pickle.dumps(part)) for part in passed) for passed in self.passed]


def test_fit_rows__no_message_grows_with_the_number_of_objects():
    sizes = []
    for n_objects in (400, 4000):
        ensemble, _ = planted_ensemble(n_objects, 6, n_clusters=(2, 3), shares=(0.6, 0.4), random_state=1)
        sites = row_sites(ensemble.read(0, n_objects), 2, ensemble, Listening)
        with pytest.warns(ConvergenceWarning):
            fit_rows(sites, 2, n_init=2, max_iter=4, tol=0.0, random_state=0)
        sizes.append([site.sizes() for site in sites])
    assert sizes[0] == sizes[1]


def test_fit_rows_in_turn__sends_parameters_and_no_sums(planted):
    ensemble, labels, _ = planted
    sites = row_sites(labels, 2, ensemble, Listening)
    with pytest.warns(ConvergenceWarning):
        fit_rows_in_turn(sites, K, n_init=2, max_cycles=2, tol=0.0, random_state=0)
    answers = [(message["ask"], answer) for site in sites for message, answer in site.passed]
    assert {ask for ask, _ in answers} == {"values", "begin", "propose", "step", "end"}
    assert all(set(answer) == {"sizes"} for ask, answer in answers if ask == "end")
    assert all(set(answer["state"]) == {"alpha", "beta"} for ask, answer in answers if ask == "step")


def test_actors__fit_rows_as_local_sites_do_and_no_label_crosses(tmp_path):
    """Sites on the workers of a Dask cluster of processes, each of which reads labels of its own."""
    ensemble, _ = planted_ensemble(20_000, 6, n_clusters=(2, 3), shares=(0.6, 0.4), random_state=1)
    parts, how = np.array_split(ensemble.read(0, 20_000), 2), {"n_init": 1, "max_iter": 25, "tol": 1e-3}
    local, sites = [RowSite(part) for part in parts], []
    expected = fit_rows(local, 2, **how, random_state=0)
    with local_client(n_workers=2) as client, client.as_current():
        for number, (worker, part) in enumerate(zip(sorted(client.run(int)), parts, strict=True)):
            path = str(tmp_path / f"{number}.npy")
            np.save(path, part)
            actor = client.submit(RowSite, path, workers=[worker], actor=True, pure=False).result()
            sites.append(Listening(site=actor))
        fit = fit_rows(sites, 2, **how, random_state=0)
        np.testing.assert_array_equal(sites[0].site.labels().result(), local[0].labels())
    for name, values in expected.parameters.items():
        assert fit.parameters[name].tobytes() == values.tobytes()
    assert fit.history == expected.history
    crossed = sum(sum(sizes) for site in sites for sizes in site.sizes())
    assert crossed < sum(part.nbytes for part in parts)


def assert_central_columns(fit, sites, ensemble, labels, n_own, seed, **limits):
    """Assert that a fit is the run on all labels from where the first site, of ``n_own``, starts."""
    n_clusters = len(fit.weights)
    problem, clusters = bce(ensemble, n_clusters), first_partition(labels[:, :n_own], n_clusters, seed, 0)
    expected, _ = expected_counts(labels, ensemble.offsets, clusters, n_clusters)
    state, objectives, carried = central(problem, labels, state_of(expected, ensemble.offsets), **limits)
    assert_same_objectives(fit, objectives)
    order = order_of(fit.weights, np.concatenate([site.probabilities for site in sites]), state)
    memberships = problem.place(state, labels, carried)
    labeled = (labels >= 0).any(axis=1)
    memberships[~labeled] = 1 / n_clusters
    np.testing.assert_allclose(fit.memberships, memberships[:, order], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(fit.labels, np.where(labeled, fit.memberships.argmax(axis=1), -1))
    assert (np.diff(np.bincount(fit.labels[labeled], minlength=n_clusters)) <= 0).all()


@pytest.mark.parametrize("cuts", [[], [1, 2, 9], range(1, 20)])
def test_fit_columns__is_the_central_run(planted, cuts):
    ensemble, labels, _ = planted
    labels = np.vstack([labels, np.full((1, 20), -1, labels.dtype)])
    sites = [ColumnSite(part) for part in np.split(labels, cuts, axis=1)]
    fit = fit_columns(sites, K, n_init=1, random_state=0)
    assert fit.converged
    assert_central_columns(fit, sites, ensemble, labels, [*cuts, 20][0], 0)


@given(label_matrices(max_objects=8), st.integers(1, 4), st.integers(0, 99))
def test_fit_columns__is_the_central_run_on_any_labels(labels, n_clusters, seed):
    ensemble, limits = Ensemble.from_labels(labels), {"max_iter": 3, "tol": 0.0}
    labels = ensemble.read(0, ensemble.n_objects)
    sites = [ColumnSite(column[:, None]) for column in labels.T]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = fit_columns(sites, n_clusters, n_init=1, random_state=seed, **limits)
    assert_central_columns(fit, sites, ensemble, labels, 1, seed, **limits)


def test_fit_columns__a_site_sends_one_vector_for_each_of_its_labels(planted):
    """What the documentation says of privacy: objects of one base cluster send the same vector."""
    _, labels, _ = planted
    sites = [Listening(site=ColumnSite(part)) for part in np.split(labels, 2, axis=1)]
    with pytest.warns(ConvergenceWarning):
        fit_columns(sites, K, n_init=1, max_iter=2, random_state=0)
    answer = sites[0].passed[-2][1]
    assert set(answer) == {"log_beta", "log_prior"}
    for u, column in enumerate(labels[:, :10].T):
        assert np.isnan(answer["log_beta"][column < 0, u]).all()
        vectors = np.unique(answer["log_beta"][column >= 0, u], axis=0)
        assert len(vectors) == len(np.unique(column[column >= 0]))


def test_fit_columns__refuses_sites_of_other_objects():
    with pytest.raises(InvalidInputError, match="same objects") as refused:
        fit_columns([ColumnSite([[0], [1], [1]]), ColumnSite([[0], [1]])], 2)
    assert refused.value.parameter == "sites"
