"""Furthest consensus: centers and clusters against the definition, ties, samples, disagreements."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble
from bigcons.errors import MemoryBudgetError
from bigcons.methods.furthest import Furthest
from bigcons.metrics import adjusted_rand
from tests.naive import linkage as naive
from tests.support.numbering import numbered_by_size, order_by_size
from tests.support.strategies import label_matrices

pytestmark = pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning")


def planted(n_objects=200, n_partitions=15, n_clusters=4, seed=0):
    rng = np.random.default_rng(seed)
    groups = rng.integers(n_clusters, size=n_objects)
    labels = np.tile(groups[:, None], n_partitions)
    labels[rng.random(labels.shape) < 0.1] = 0
    labels[rng.random(labels.shape) < 0.2] = -1
    return groups, labels


def as_found(model):
    """Return the centers in the order of the search."""
    centers = model.centers_.copy()
    centers[model._order[: len(centers)]] = model.centers_
    return centers.tolist()


@given(labels=label_matrices(min_objects=2, max_objects=14), k=st.integers(1, 6))
def test_fit__equals_the_definition(labels, k):
    model = Furthest(min(k, len(labels))).fit(labels)
    centers, found = naive.furthest(labels.tolist(), min(k, len(labels)))
    assert model.centers_.tolist() == np.array(centers)[order_by_size(found, len(centers))].tolist()
    assert model.labels_.tolist() == numbered_by_size(found).tolist()
    assert model.n_clusters_ == len(centers)
    clusters = [max(label, 0) for label in found]  # objects without any label are in no pair that is seen
    assert model.objective_ == naive.disagreements(labels.tolist(), clusters)


@pytest.mark.parametrize("init", ["exact", "sampled"])
def test_fit__finds_planted_clusters(init):
    groups, labels = planted()
    assert adjusted_rand(groups, Furthest(4, init=init, random_state=0).fit(labels).labels_) > 0.9


def test_fit__breaks_ties_by_the_lowest_objects_and_centers():
    labels = np.array([[0, 0], [0, 0], [1, 1], [2, 2], [1, 2]])
    model = Furthest(3).fit(labels)
    assert as_found(model) == [0, 2, 3]
    assert model.labels_.tolist() == [0, 0, 1, 2, 1]


def test_fit__stops_when_no_object_differs_from_the_centers():
    labels = np.array([[0, 0], [1, 1], [0, 0], [0, -1]])
    model = Furthest(4).fit(labels)
    assert model.labels_.tolist() == [0, 1, 0, 0]
    assert model.n_clusters_ == 2
    assert Furthest(3, init="sampled").fit(np.zeros((5, 2), int)).n_clusters_ == 1


def test_sampled__equals_exact_if_the_sample_holds_every_object():
    _, labels = planted()
    sampled, exact = (Furthest(4, init=init, random_state=1).fit(labels) for init in ("sampled", "exact"))
    np.testing.assert_array_equal(sampled.labels_, exact.labels_)


@pytest.mark.parametrize("init", ["exact", "sampled"])
def test_fit__has_the_same_bits_on_any_engine_and_in_any_blocks(init, tmp_path):
    _, labels = planted(n_objects=2_100)  # tiles of 1,024
    stored = Ensemble.from_labels(labels).save(tmp_path / "ensemble.zarr", chunk_rows=256)
    found = []
    for client, ensemble in (("serial", stored), ("threads", labels)):
        model = Furthest(6, init=init, random_state=2, client=client).fit(ensemble)
        found.append((model.labels_.tobytes(), model.centers_.tobytes(), model.history_))
    assert found[0] == found[1]


def test_exact__refuses_rows_beyond_memory_and_names_sampled(tmp_path):
    labels = np.random.default_rng(0).integers(3, size=(3000, 12))
    stored = Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=64)
    with pytest.raises(MemoryBudgetError, match=r"distinct rows need .*init='sampled'"):
        Furthest(3, memory=370_080_000).fit(stored)
    assert Furthest(3, init="sampled", memory=370_080_000, random_state=0).fit(stored).n_clusters_ == 3
    with pytest.raises(MemoryBudgetError, match="Furthest needs"):
        Furthest(3, init="sampled", memory=370_020_000).fit(stored)
