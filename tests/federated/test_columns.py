"""EM of a server with sites that hold partitions: as on all partitions at one place."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import ConvergenceWarning, InvalidInputError
from bigcons.federated import ColumnSite, fit_columns
from bigcons.methods.bce import state_of
from bigcons.methods.pass_clusterer import expected_counts, first_partition
from tests.federated.test_rows import bce, central, order_of, parameters_of
from tests.support.strategies import label_matrices

K = 3


def sites_of(labels, cuts):
    return [ColumnSite(part) for part in np.split(labels, cuts, axis=1)]


def central_run(ensemble, labels, n_own, n_clusters, seed, **limits):
    """Return the run on all labels that starts where the first site, of ``n_own`` partitions, proposes."""
    problem = bce(ensemble, n_clusters)
    clusters = first_partition(labels[:, :n_own], n_clusters, seed, 0)
    expected, _ = expected_counts(labels, ensemble.offsets, clusters, n_clusters)
    start = state_of(expected, ensemble.offsets)
    state, records, carried = central(problem, labels, start, **limits)
    memberships = problem.place(state, labels, carried)
    memberships[(labels < 0).all(axis=1)] = 1 / n_clusters
    return parameters_of(state), records, memberships


def assert_same_run(fit, sites, parameters, records, memberships):
    """Return the order in which the fit has the clusters."""
    np.testing.assert_allclose(
        fit.history["objective"], [r["objective"] for r in records], rtol=1e-9, atol=1e-9
    )
    found = fit.weights, np.concatenate([site.probabilities for site in sites])
    order = order_of(dict(zip(parameters, found, strict=True)), parameters)
    np.testing.assert_allclose(fit.memberships, memberships[:, order], rtol=1e-4, atol=1e-6)
    labeled = fit.labels >= 0
    np.testing.assert_array_equal(fit.labels[labeled], fit.memberships[labeled].argmax(axis=1))
    assert (np.diff(np.bincount(fit.labels[labeled], minlength=len(order))) <= 0).all()
    return order


@pytest.fixture(scope="module")
def planted():
    ensemble, truth = planted_ensemble(600, 20, shares=(0.5, 0.3, 0.2), missing=0.4, random_state=3)
    return ensemble, ensemble.read(0, 600), truth


@pytest.mark.parametrize("cuts", [[], [1, 2, 9], range(1, 20)])
def test_fit_columns__is_the_central_run(planted, cuts):
    ensemble, labels, _ = planted
    labels = np.vstack([labels, np.full((1, 20), -1, labels.dtype)])
    sites = sites_of(labels, cuts)
    fit = fit_columns(sites, K, n_init=1, random_state=0)
    expected = central_run(ensemble, labels, [*cuts, 20][0], K, 0)
    assert fit.converged
    order = assert_same_run(fit, sites, *expected)
    assert fit.labels[-1] == -1
    np.testing.assert_array_equal(fit.labels[:-1], expected[2][:-1, order].argmax(axis=1))


@given(label_matrices(max_objects=8), st.integers(1, 4), st.integers(0, 99))
def test_fit_columns__is_the_central_run_on_any_labels(labels, n_clusters, seed):
    ensemble = Ensemble.from_labels(labels)
    labels = ensemble.read(0, ensemble.n_objects)
    sites = sites_of(labels, range(1, ensemble.n_partitions))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = fit_columns(sites, n_clusters, n_init=1, max_iter=3, tol=0.0, random_state=seed)
    expected = central_run(ensemble, labels, 1, n_clusters, seed, max_iter=3, tol=0.0)
    assert_same_run(fit, sites, *expected)


def test_fit_columns__a_site_sends_one_vector_for_each_of_its_labels(planted):
    """What the documentation says of privacy: objects of one base cluster send the same vector."""
    _, labels, _ = planted
    site = ColumnSite(labels[:, :2])
    shares = np.random.default_rng(0).dirichlet(np.ones(K), (600, 2))
    told = site.answer({"ask": "update", "start": 0, "shares": shares, "smoothing": 1e-6, "relaxation": 1.0})
    assert set(told) == {"log_beta", "log_prior"}
    for u, column in enumerate(labels[:, :2].T):
        seen = column >= 0
        assert np.isnan(told["log_beta"][~seen, u]).all()
        vectors = np.unique(told["log_beta"][seen, u], axis=0)
        assert len(vectors) == len(np.unique(column[seen]))


def test_fit_columns__refuses_sites_of_other_objects(planted):
    _, labels, _ = planted
    with pytest.raises(InvalidInputError, match="same objects") as refused:
        fit_columns([ColumnSite(labels[:, :4]), ColumnSite(labels[1:, 4:])], K)
    assert refused.value.parameter == "sites"
    with pytest.raises(InvalidInputError, match="sites is empty"):
        fit_columns([], K)
