"""Soft clusterings as input: the incidence matrix has their memberships in place of ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import METHODS, Ensemble
from bigcons.errors import InvalidInputError, SoftEnsembleError
from bigcons.methods.incidence import block_overlaps, cluster_sizes, fold_overlaps, votes_of
from bigcons.metrics import adjusted_rand
from bigcons.run.engine import SerialEngine, ThreadsEngine
from tests.naive import hypergraph as noisy

K = 4
WEIGHTS = np.array([1, 2, 0, 1, 3, 1, 1, 0.5])
TAKING = [name for name, cls in METHODS.items() if cls.info.soft_input]

SOLVES = {
    **{name: (name, {}) for name in TAKING if name != "hgpa"},
    "hgpa": ("hgpa", {"objective": "laplacian"}),
    "cspa all": ("cspa", {"normalize": "all"}),
    "cspa local": ("cspa", {"weights": "local"}),
    "hbgf local": ("hbgf", {"weights": "local"}),
}


def one_hot(labels):
    """Return the memberships of labels, one table for each partition."""
    return [(column[:, None] == np.arange(column.max() + 1)).astype(float) for column in labels.T]


@pytest.fixture(scope="module")
def planted():
    """Four groups of 300 objects in 8 partitions, a quarter of the labels random, others missing."""
    truth, labels = noisy.noisy_copies(300, K, 8, 0.25, 0)
    labels[np.random.default_rng(1).random(labels.shape) < 0.25] = -1
    return truth, labels


@pytest.fixture(scope="module")
def blurred(planted):
    """Memberships that keep seven tenths of each label but those of object 9, which has none."""
    rng, tables = np.random.default_rng(2), []
    for table in one_hot(planted[1]):
        table[9] = 0
        noise = rng.dirichlet(np.ones(table.shape[1]), len(table)) * table.sum(axis=1, keepdims=True)
        tables.append(0.7 * table + 0.3 * noise)
    return tables


@given(
    n_objects=st.integers(1, 8),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
def test_kernels__are_products_with_the_real_incidence_matrix(n_objects, sizes, seed):
    rng, tables = np.random.default_rng(seed), []
    for k in sizes:
        table = rng.dirichlet(np.full(k, 0.5), n_objects).astype(np.float32).astype(float)
        table[1:][rng.random(n_objects - 1) < 0.3] = 0.0
        tables.append(table)
    ensemble = Ensemble.from_memberships(tables)
    memberships, offsets = ensemble.read(0, ensemble.n_objects), ensemble.offsets
    H, weights, table = memberships.astype(float), rng.random(n_objects), rng.random((sum(sizes), 3))
    found = block_overlaps(memberships, offsets, weights)
    np.testing.assert_allclose(np.triu(found), np.triu(H.T @ (weights[:, None] * H)), atol=1e-12)
    np.testing.assert_allclose(votes_of(memberships, offsets, table)[0], H @ table, atol=1e-12)
    found = cluster_sizes(fold_overlaps(ensemble, SerialEngine()), offsets)
    np.testing.assert_allclose(found, H.sum(axis=0), atol=1e-5)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("solve", SOLVES)
def test_memberships__of_zeros_and_ones_are_labels(planted, solve, weights):
    labels, (name, parameters) = planted[1], SOLVES[solve]
    if weights is not None:
        parameters = {"weights": weights, **parameters}
    hard = METHODS[name](K, random_state=0, **parameters).fit(labels)
    soft = METHODS[name](K, random_state=0, **parameters).fit(Ensemble.from_memberships(one_hot(labels)))
    np.testing.assert_array_equal(soft.labels_, hard.labels_)
    assert soft.objective_ == pytest.approx(hard.objective_, rel=1e-12)
    if hard.info.soft:
        np.testing.assert_allclose(soft.memberships_, hard.memberships_, atol=1e-6)


@pytest.mark.parametrize("solve", SOLVES)
def test_fit__finds_the_groups_of_blurred_labels_on_any_engine(planted, blurred, solve, tmp_path):
    truth, (name, parameters) = planted[0], SOLVES[solve]
    ensemble = Ensemble.from_memberships(blurred).save(tmp_path / "soft.zarr", chunk_rows=64)
    model, other = (
        METHODS[name](K, random_state=0, client=client, **parameters)
        for client in (SerialEngine(), ThreadsEngine(3))
    )
    with pytest.warns(UserWarning, match="1 of 300"):
        model.fit(ensemble)
    assert adjusted_rand(np.delete(truth, 9), np.delete(model.labels_, 9)) > 0.85
    assert np.flatnonzero(model.labels_ < 0).tolist() == [9]
    with pytest.warns(UserWarning, match="1 of 300"):
        other.fit(ensemble, out=tmp_path / "consensus.zarr")
    np.testing.assert_array_equal(other.labels_, model.labels_)
    assert other.objective_ == model.objective_
    predicted = model.predict(ensemble)
    if name in ("tree", "eac-groups"):  # whose fit leaves an object itself out of what places it
        assert np.mean(predicted == model.labels_) > 0.99
    else:
        np.testing.assert_array_equal(predicted, model.labels_)
    np.testing.assert_array_equal(model.predict([table[:20] for table in blurred]), predicted[:20])


def test_predict__refuses_other_clusters_and_labels(planted):
    tables = one_hot(planted[1])
    model = METHODS["mcla"](K, random_state=0).fit(Ensemble.from_memberships(tables))
    with pytest.raises(InvalidInputError, match="clusters"):
        model.predict([np.column_stack([table, np.zeros(len(table))]) for table in tables])
    with pytest.raises(InvalidInputError, match="labels"):
        model.predict(Ensemble.from_labels(planted[1]))
    hard = METHODS["mcla"](K, random_state=0).fit(planted[1])
    with pytest.raises(SoftEnsembleError):
        hard.predict(Ensemble.from_memberships(tables))


@pytest.mark.parametrize("name", [name for name in METHODS if name not in TAKING])
def test_methods_of_labels__refuse_memberships_in_one_line(planted, name):
    with pytest.raises(SoftEnsembleError, match="harden") as refusal:
        METHODS[name](K).fit(Ensemble.from_memberships(one_hot(planted[1])))
    assert refusal.value.what == METHODS[name].__name__
    assert "\n" not in str(refusal.value)
