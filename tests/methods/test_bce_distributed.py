"""EM among sites that hold rows, and of a server with clients that hold columns: as the central run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError
from bigcons.methods.bce.distributed import (
    BCEServer,
    ColumnClient,
    MixtureServer,
    Site,
    fit_columns,
    fit_rows,
    fit_rows_in_turn,
    start_columns,
)
from bigcons.methods.bce.variational import VariationalBCE, memberships_of
from bigcons.methods.mixture import SMOOTHING, MixtureProblem
from bigcons.metrics import adjusted_rand
from tests.support.strategies import label_matrices

LAP = 1e-6
K = 3


def bce(ensemble, n_clusters=K):
    return VariationalBCE(ensemble.offsets, n_clusters, init="partition", smoothing=LAP, update_alpha=True)


def mixture(ensemble, n_clusters=K):
    return MixtureProblem(ensemble.offsets, n_clusters, "partition", background=False)


def central(problem, labels, state, max_iter, tol=0.0):
    """Return the state that the last record judges, the records, and what the objects carry."""
    records, carried = [], None
    for _ in range(max_iter):
        judged = state
        stats, carried = problem.visit(state, labels, carried)
        state, record = problem.finish(state, stats)
        settled = problem.is_settled(records[-1] if records else None, record, tol)
        records.append(record)
        if settled:
            break
    return judged, records, carried


def assert_same_run(state, records, expected_state, expected_records):
    assert len(records) == len(expected_records)
    for record, expected in zip(records, expected_records, strict=True):
        assert record == pytest.approx(expected, rel=1e-9, abs=1e-9)
    for name in expected_state:
        np.testing.assert_allclose(state[name], expected_state[name], rtol=1e-5, atol=1e-9)


@pytest.fixture(scope="module")
def planted():
    ensemble, truth = planted_ensemble(600, 20, shares=(0.5, 0.3, 0.2), missing=0.4, random_state=3)
    return ensemble, ensemble.read(0, 600), truth


def sites_of(problem, labels, n_sites):
    return [Site(problem, part) for part in np.array_split(labels, n_sites)]


@pytest.mark.parametrize("problem_of", [bce, mixture])
@pytest.mark.parametrize("n_sites", [1, 2, 7])
def test_fit_rows__is_the_central_run(planted, problem_of, n_sites):
    ensemble, labels, _ = planted
    problem = problem_of(ensemble)
    state = problem.start(labels, 0, 0)[0]
    sites = sites_of(problem, labels, n_sites)
    found = fit_rows(problem, sites, state, tol=1e-6)
    expected_state, expected_records, carried = central(problem, labels, state, 500, tol=1e-6)
    assert found.converged
    assert_same_run(found.state, found.records, expected_state, expected_records)
    if carried is not None:
        np.testing.assert_allclose(np.concatenate([s.carried for s in sites]), carried, rtol=1e-4)


@given(label_matrices(min_objects=2, max_objects=10), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=30)
def test_fit_rows__is_the_central_run_on_any_labels(labels, n_clusters, n_sites):
    ensemble = Ensemble.from_labels(labels)
    labels, problem = ensemble.read(0, ensemble.n_objects), bce(ensemble, n_clusters)
    state = problem.start(labels, 1, 0)[0]
    found = fit_rows(problem, sites_of(problem, labels, n_sites), state, max_iter=3, tol=0.0)
    expected = central(problem, labels, state, 3)
    assert_same_run(found.state, found.records, *expected[:2])


class Listening(Site):
    """A site that notes how many numbers it sends and gets."""

    def __init__(self, *args):
        super().__init__(*args)
        self.received, self.sent = [], []

    def statistics(self, state):
        stats = super().statistics(state)
        self.received.append(sum(np.size(values) for values in state.values()))
        self.sent.append(sum(np.size(values) for values in stats.values()))
        return stats


def test_fit_rows__messages_have_the_parameters_size_and_there_is_one_each_way_an_iteration(planted):
    ensemble, labels, _ = planted
    problem = bce(ensemble)
    sites = [Listening(problem, part) for part in np.array_split(labels, 3)]
    found = fit_rows(problem, sites, sites[0].start(0, 0), max_iter=4, tol=0.0)
    parameters = K * ensemble.n_base_clusters + K
    for site in sites:
        assert site.received == [parameters] * len(found.records)
        assert site.sent == [parameters + 2] * len(found.records)  # and the objects and the bound


def test_fit_rows__begins_anew(planted):
    ensemble, labels, _ = planted
    problem = bce(ensemble)
    sites = sites_of(problem, labels, 2)
    state = sites[1].start(0, 0)
    first = fit_rows(problem, sites, state, max_iter=3)
    assert fit_rows(problem, sites, state, max_iter=3).records == first.records


def test_fit_rows__refuses_no_sites(planted):
    with pytest.raises(InvalidInputError, match="sites is empty"):
        fit_rows(bce(planted[0]), [], {})


@pytest.mark.parametrize("n_sites", [1, 5])
def test_fit_rows_in_turn__finds_planted_classes(n_sites):
    ensemble, truth = planted_ensemble(1000, 40, shares=(0.5, 0.3, 0.2), missing=0.2, random_state=3)
    labels, problem = ensemble.read(0, 1000), bce(ensemble)
    sites = sites_of(problem, labels, n_sites)
    found = fit_rows_in_turn(problem, sites, sites[0].start(0, 0), max_cycles=20)
    assert found.converged
    memberships = memberships_of(found.state, ensemble.offsets, labels, None)
    assert adjusted_rand(truth, memberships.argmax(axis=1)) > 0.9


@pytest.mark.parametrize("n_sites", [1, 2, 5, 10])
def test_fit_rows_in_turn__settles_within_ten_cycles_as_published(n_sites):
    """Though alpha, where partitions agree, goes on towards zero for long."""
    clean = {"noise": (0.0, 0.05), "hard_share": 0.0, "missing": 0.0}
    ensemble, _ = planted_ensemble(600, 20, shares=(0.5, 0.3, 0.2), random_state=0, **clean)
    labels, problem = ensemble.read(0, 600), bce(ensemble)
    sites = sites_of(problem, labels, n_sites)
    runs = [fit_rows_in_turn(problem, sites, problem.start(labels, 0, number)[0]) for number in range(4)]
    assert all(run.converged and len(run.records) <= 10 for run in runs)
    found = max(runs, key=lambda run: run.records[-1]["objective"])  # poor optima are flatter
    longer = fit_rows_in_turn(problem, sites, found.state, max_cycles=30, tol=0)
    clusters = [
        memberships_of(run.state, ensemble.offsets, labels, None).argmax(axis=1) for run in (found, longer)
    ]
    assert adjusted_rand(*clusters) > 0.99


def test_fit_rows_in_turn__of_one_site_is_the_central_run(planted):
    ensemble, labels, _ = planted
    problem = bce(ensemble)
    state = problem.start(labels, 0, 0)[0]
    found = fit_rows_in_turn(problem, sites_of(problem, labels, 1), state, max_cycles=5, tol=0.0)
    expected = central(problem, labels, state, 6)
    assert_same_run(
        found.state,
        [{"objective": r["objective"]} for r in found.records],
        expected[0],
        [{"objective": r["objective"]} for r in expected[1][:5]],
    )


def clients_of(ensemble, labels, beta, cuts, smoothing):
    """Return a client for each group of partitions between two of ``cuts``, with its part of beta."""
    clients = []
    for first, last in zip([0, *cuts], [*cuts, ensemble.n_partitions], strict=True):
        own = ensemble.offsets[first : last + 1]
        client = ColumnClient(labels[:, first:last], own - own[0], smoothing=smoothing)
        client.beta = beta[own[0] : own[-1]]
        clients.append(client)
    return clients


@pytest.mark.parametrize("cuts", [[], [1, 2, 9], range(1, 20)])
def test_fit_columns__of_bce_is_the_central_run(planted, cuts):
    ensemble, labels, _ = planted
    problem = bce(ensemble)
    state = problem.start(labels, 0, 0)[0]
    server, clients = BCEServer(state["alpha"]), clients_of(ensemble, labels, state["beta"], cuts, LAP)
    found = fit_columns(server, clients, tol=1e-6)
    expected_state, expected_records, carried = central(problem, labels, state, 500, tol=1e-6)
    assert found.converged
    parameters = {"alpha": server.alpha, "beta": np.concatenate([client.beta for client in clients])}
    assert_same_run(parameters, found.records, expected_state, expected_records)
    expected = memberships_of(expected_state, ensemble.offsets, labels, carried)
    np.testing.assert_allclose(server.memberships(), expected, rtol=1e-4, atol=1e-6)


@given(label_matrices(max_objects=8), st.integers(1, 4))
@settings(max_examples=30)
def test_fit_columns__of_bce_is_the_central_run_on_any_labels(labels, n_clusters):
    ensemble = Ensemble.from_labels(labels)
    labels, problem = ensemble.read(0, ensemble.n_objects), bce(ensemble, n_clusters)
    state = problem.start(labels, 1, 0)[0]
    cuts = range(1, ensemble.n_partitions)
    server, clients = BCEServer(state["alpha"]), clients_of(ensemble, labels, state["beta"], cuts, LAP)
    found = fit_columns(server, clients, max_iter=3, tol=0.0)
    expected_state, expected_records, _ = central(problem, labels, state, 3)
    parameters = {"alpha": server.alpha, "beta": np.concatenate([client.beta for client in clients])}
    assert_same_run(parameters, found.records, expected_state, expected_records)


def test_fit_columns__of_the_mixture_is_the_central_run(planted):
    ensemble, labels, _ = planted
    labels = np.vstack([labels, np.full((1, 20), -1, labels.dtype)])
    problem = mixture(ensemble)
    state = problem.start(labels, 0, 0)[0]
    server = MixtureServer(np.exp(state["bias"]), smoothing=SMOOTHING)
    clients = clients_of(ensemble, labels, np.exp(state["table"][:, :K]), [3, 4], SMOOTHING)
    found = fit_columns(server, clients, tol=1e-6)
    expected_state, expected_records, _ = central(problem, labels, state, 500, tol=1e-6)
    theta = np.log(np.concatenate([client.beta for client in clients]))
    parameters = {"table": theta, "bias": np.log(server.weights)}
    expected_state = {"table": expected_state["table"][:, :K], "bias": expected_state["bias"]}
    assert_same_run(parameters, found.records, expected_state, expected_records)


def test_fit_columns__a_start_by_the_clients_finds_the_planted_classes(planted):
    ensemble, labels, truth = planted
    clients = clients_of(ensemble, labels, np.zeros((ensemble.n_base_clusters, K)), [5, 11], LAP)
    runs = []
    for number in range(3):
        server = BCEServer(start_columns(clients, K, 0, number))
        found = fit_columns(server, clients)
        gains = np.diff([record["objective"] for record in found.records])
        assert (gains > -1e-7 * abs(found.records[0]["objective"])).all()
        runs.append((found.records[-1]["objective"], server.memberships()))
    assert adjusted_rand(truth, max(runs, key=lambda run: run[0])[1].argmax(axis=1)) > 0.9


def test_send__before_a_start_is_refused(planted):
    with pytest.raises(InvalidInputError, match="no beta"):
        ColumnClient(planted[1][:, :2], planted[0].offsets[:3]).send()
