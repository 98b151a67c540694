"""Soft clusterings as input: the incidence matrix has their memberships in place of ones."""

import re
from pathlib import Path

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
from tests.naive import soft as naive

K = 4
WEIGHTS = np.array([1, 2, 0, 1, 3, 1, 1, 0.5])
TAKING = [name for name, cls in METHODS.items() if cls.info.soft_input]

SOLVES = {
    **{name: (name, {}) for name in TAKING if name != "hgpa"},
    "hgpa": ("hgpa", {"objective": "laplacian"}),
    "cspa all": ("cspa", {"normalize": "all"}),
    "hgpa size": ("hgpa", {"objective": "laplacian", "edge_weight": "size"}),
    "mcla average": ("mcla", {"partitioner": "average"}),
}


def one_hot(labels):
    """Return the memberships of labels, one table for each partition."""
    return [(column[:, None] == np.arange(column.max() + 1)).astype(float) for column in labels.T]


def blurred(labels, share, seed):
    """Return memberships that keep all but a ``share`` of each label."""
    rng = np.random.default_rng(seed)
    found = []
    for table in one_hot(labels):
        noise = rng.dirichlet(np.ones(table.shape[1]), len(table))
        found.append(np.where(table.any(axis=1, keepdims=True), (1 - share) * table + share * noise, 0))
    return found


@pytest.fixture(scope="module")
def planted():
    """Four groups of 300 objects in 8 partitions, a quarter of the labels random, others missing."""
    truth, labels = noisy.noisy_copies(300, K, 8, 0.25, 0)
    labels[np.random.default_rng(1).random(labels.shape) < 0.25] = -1
    return truth, labels


@st.composite
def soft_ensembles(draw):
    """Draw tables of memberships with missing rows, in which every partition labels the first object."""
    n_objects, sizes = draw(st.integers(1, 8)), draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    tables = []
    for k in sizes:
        table = rng.dirichlet(np.full(k, 0.5), n_objects).astype(np.float32).astype(float)
        table[1:][rng.random(n_objects - 1) < 0.3] = 0.0
        tables.append(table)
    return tables


@given(soft_ensembles(), st.integers(0, 99))
def test_kernels__are_products_with_the_real_incidence_matrix(tables, seed):
    rng, ensemble = np.random.default_rng(seed), Ensemble.from_memberships(tables)
    memberships = ensemble.read(0, ensemble.n_objects)
    tables = [table.tolist() for table in np.split(memberships.astype(float), ensemble.offsets[1:-1], axis=1)]
    weights, size = rng.random(len(memberships)), ensemble.n_base_clusters
    found = block_overlaps(memberships, ensemble.offsets, weights)
    expected = np.array(naive.overlaps(tables, weights))
    np.testing.assert_allclose(np.triu(found), np.triu(expected), atol=1e-12)
    table = rng.random((size, 3))
    scores, _ = votes_of(memberships, ensemble.offsets, table)
    votes = [naive.votes(tables, table.tolist(), i) for i in range(len(memberships))]
    np.testing.assert_allclose(scores, votes, atol=1e-12)
    overlaps = fold_overlaps(ensemble, SerialEngine())
    np.testing.assert_allclose(cluster_sizes(overlaps, ensemble.offsets), memberships.sum(axis=0), atol=1e-5)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("solve", SOLVES)
def test_memberships__of_zeros_and_ones_are_labels(planted, solve, weights):
    labels, (name, parameters) = planted[1], SOLVES[solve]
    hard, soft = (METHODS[name](K, weights=weights, random_state=0, **parameters) for _ in range(2))
    hard.fit(labels)
    soft.fit(Ensemble.from_memberships(one_hot(labels)))
    np.testing.assert_array_equal(soft.labels_, hard.labels_)
    assert soft.objective_ == pytest.approx(hard.objective_, rel=1e-12)
    if hard.info.soft:
        np.testing.assert_allclose(soft.memberships_, hard.memberships_, atol=1e-6)


@pytest.mark.parametrize("solve", SOLVES)
def test_fit__finds_the_groups_of_blurred_labels_on_any_engine(planted, solve, tmp_path):
    (truth, labels), (name, parameters) = planted, SOLVES[solve]
    labels = labels.copy()
    labels[9] = -1
    tables = blurred(labels, 0.3, 2)
    ensemble = Ensemble.from_memberships(tables).save(tmp_path / "soft.zarr", chunk_rows=64)
    with pytest.warns(UserWarning, match="1 of 300"):
        model = METHODS[name](K, random_state=0, client=SerialEngine(), **parameters).fit(ensemble)
    assert adjusted_rand(np.delete(truth, 9), np.delete(model.labels_, 9)) > 0.85
    assert np.flatnonzero(model.labels_ < 0).tolist() == [9]
    other = METHODS[name](K, random_state=0, client=ThreadsEngine(3), **parameters)
    with pytest.warns(UserWarning, match="1 of 300"):
        other.fit(ensemble, out=tmp_path / "consensus.zarr")
    np.testing.assert_array_equal(other.labels_, model.labels_)
    assert other.objective_ == model.objective_
    predicted = model.predict(ensemble)
    if name in ("tree", "eac-groups"):  # whose fit leaves an object itself out of what places it
        assert np.mean(predicted == model.labels_) > 0.99
    else:
        np.testing.assert_array_equal(predicted, model.labels_)
    np.testing.assert_array_equal(model.predict([table[:20] for table in tables]), predicted[:20])


@pytest.mark.parametrize("name", ["mcla", "ccc", "ccsvd", "hbgf", "cspa"])
def test_clusters__without_memberships_change_nothing(planted, name):
    tables = blurred(planted[1], 0.3, 2)
    wider = [np.column_stack([table, np.zeros(len(table))]) for table in tables]
    model, other = (
        METHODS[name](K, random_state=0).fit(Ensemble.from_memberships(found)) for found in (tables, wider)
    )
    assert adjusted_rand(model.labels_, other.labels_) > 0.99
    if hasattr(other, "meta_clusters_"):
        assert (other.meta_clusters_[np.cumsum([table.shape[1] for table in wider]) - 1] == -1).all()


def test_predict__refuses_other_clusters_and_labels(planted):
    tables = blurred(planted[1], 0.3, 2)
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
    ensemble = Ensemble.from_memberships(one_hot(planted[1]))
    with pytest.raises(SoftEnsembleError) as refusal:
        METHODS[name](K).fit(ensemble)
    assert refusal.value.what == METHODS[name].__name__
    assert "\n" not in str(refusal.value)
    assert "harden" in str(refusal.value)


def test_page_of_methods__names_those_that_take_memberships():
    page = (Path(__file__).parents[2] / "docs/methods.md").read_text(encoding="utf-8")
    stated = re.search(r"\n(`tree`[^.;]*?) work on the\s+memberships", page)
    assert set(re.findall(r"`([\w-]+)`", stated[1])) == set(TAKING)
