"""Weights of partitions: a partition of weight w counts as if it occurred w times."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import METHODS
from bigcons.errors import InvalidInputError, UnlabeledObjectsWarning
from bigcons.kernels.label_rows import weigh_tile
from bigcons.methods.assignment import LabelKMeans
from bigcons.methods.hypergraph import CSPA, HBGF, MCLA
from bigcons.metrics import adjusted_rand, anmi, average_criterion
from tests.naive import hypergraph as naive
from tests.support.strategies import label_matrices

# chains of single linkage
pytestmark = pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning")

K = 4
WEIGHTS = np.array([1, 2, 3, 1, 2, 1, 1, 0])
WEIGHTED = ("cspa", "hgpa", "hbgf", "mcla", "ccc", "ccu", "ccsvd", "qmi", "kcc", "kmeans",
            "eac-average", "eac-single", "tree")  # fmt: skip
# They cannot predict, or leave an object itself out of what places it.
NOT_AS_PREDICTED = ("hgpa", "eac-average", "eac-single", "tree")

# Methods that see copies of a partition as they see any other partition.
AS_COPIES = {
    "cspa": ("cspa", {}),
    "cspa all": ("cspa", {"normalize": "all"}),
    "hbgf": ("hbgf", {}),
    "hgpa": ("hgpa", {"objective": "laplacian"}),
    "hgpa size": ("hgpa", {"objective": "laplacian", "edge_weight": "size"}),
    "mcla": ("mcla", {}),
    "mcla observed": ("mcla", {"union": "observed"}),
    "mcla average": ("mcla", {"partitioner": "average"}),
    "ccsvd": ("ccsvd", {}),
    "eac": ("eac", {}),
    "eac ward": ("eac", {"linkage": "ward", "normalize": "all"}),
    "eac-single": ("eac-single", {}),
    "qmi": ("qmi", {}),
    "kcc": ("kcc", {}),
    "kmeans": ("kmeans", {}),
    "kmeans onehot": ("kmeans", {"encode": "onehot"}),
}


@pytest.fixture(scope="module")
def labels():
    """Four groups of 300 objects in 8 partitions, a quarter of the labels random, others missing."""
    _, labels = naive.noisy_copies(300, K, 8, 0.25, 0)
    labels[np.random.default_rng(1).random(labels.shape) < 0.25] = -1
    return labels


@pytest.mark.parametrize("name", AS_COPIES)
def test_weights__are_numbers_of_copies(labels, name):
    method, parameters = AS_COPIES[name]
    weighted = METHODS[method](K, weights=WEIGHTS, random_state=0, **parameters).fit(labels)
    copied = METHODS[method](K, random_state=0, **parameters).fit(np.repeat(labels, WEIGHTS, axis=1))
    assert adjusted_rand(weighted.labels_, copied.labels_) > 0.97  # k-means may draw other starts
    if method != "ccsvd":  # whose objective is of other partitions, and a copy is none
        assert weighted.objective_ == pytest.approx(copied.objective_, rel=1e-3)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights__of_zero_leave_a_partition_out(labels, name):
    weights = np.append(np.ones(7), 0)
    without = METHODS[name](K, random_state=0).fit(labels[:, :7])
    model = METHODS[name](K, weights=weights, random_state=0).fit(labels)
    np.testing.assert_array_equal(model.labels_, without.labels_)
    assert model.objective_ == pytest.approx(without.objective_, rel=1e-9)
    if name not in NOT_AS_PREDICTED:
        np.testing.assert_array_equal(model.predict(labels), model.labels_)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights__of_zero_do_not_label_an_object(labels, name):
    labels = labels.copy()
    labels[7, :7] = -1
    labels[7, 7] = 0
    with pytest.warns(UnlabeledObjectsWarning, match="1 of 300"):
        model = METHODS[name](K, weights=WEIGHTS, random_state=0).fit(labels)
    assert np.flatnonzero(model.labels_ < 0).tolist() == [7]
    if name not in NOT_AS_PREDICTED:
        assert model.predict(labels[7:8])[0] == -1


@pytest.mark.parametrize("name", ["ccc", "ccu", "ccsvd", "mcla"])
def test_weights__count_in_the_votes(labels, name):
    weights = np.array([1, 2, 0.5, 1, 3, 1, 0.25, 1])
    model = METHODS[name](K, weights=weights, random_state=0).fit(labels)
    votes = np.zeros((len(labels), K))
    offsets = np.append(0, np.cumsum(labels.max(axis=0) + 1))
    for i, u in np.argwhere(labels >= 0):
        group = model.meta_clusters_[offsets[u] + labels[i, u]]
        if group >= 0:
            votes[i, group] += weights[u]
    if name == "mcla":
        of_clusters = np.repeat(weights, np.diff(offsets))
        votes /= np.bincount(model.meta_clusters_, of_clusters, K)
    voted = votes.any(axis=1)
    expected = votes[voted] / votes[voted].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.memberships_[voted], expected, atol=1e-6)


@pytest.mark.parametrize("name", ["ccc", "ccu"])
def test_weights__turn_a_matching_to_the_partitions_that_count(name):
    """Two groups of partitions tell of different classes; the heavier one prevails."""
    rng = np.random.default_rng(3)
    first, second = rng.integers(3, size=(2, 200))
    labels = np.column_stack([first] * 3 + [second] * 3)
    for weights, truth in (([9, 9, 9, 1, 1, 1], first), ([1, 1, 1, 9, 9, 9], second)):
        model = METHODS[name](3, weights=weights, random_state=0).fit(labels)
        assert adjusted_rand(truth, model.labels_) == 1.0


@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize(
    "weights", [np.ones(7), [1.0] * 7 + [-1.0], [1.0] * 7 + [np.nan], np.zeros(8), "heavy", [[1.0] * 8]]
)
def test_weights__that_are_not_one_number_for_each_partition_are_refused(labels, name, weights):
    with pytest.raises(InvalidInputError) as refusal:
        METHODS[name](K, weights=weights, random_state=0).fit(labels)
    assert "\n" not in str(refusal.value)
    assert "weights" in str(refusal.value)


def test_weights__in_the_anmi_are_numbers_of_copies(labels):
    found = METHODS["ivc"](K, random_state=0).fit(labels).labels_
    found[3:9] = -1  # left out
    copies = np.repeat(labels, WEIGHTS, axis=1)
    assert anmi(labels, found, weights=WEIGHTS) == pytest.approx(anmi(copies, found), rel=1e-12)
    assert anmi(labels, found, weights=np.ones(8)) == pytest.approx(anmi(labels, found), rel=1e-15)
    for weighted in (False, True):
        average = average_criterion("rand_index", labels, found, weighted=weighted, weights=WEIGHTS)
        expected = average_criterion("rand_index", copies, found, weighted=weighted)
        assert average == pytest.approx(expected, rel=1e-12)
    with pytest.raises(InvalidInputError) as refusal:
        anmi(labels, found, weights=np.ones(7))
    assert refusal.value.parameter == "weights"


@given(label_matrices(max_objects=8), st.integers(0, 99))
@settings(max_examples=20)
def test_weigh_tile__sums_the_weights_of_agreeing_partitions(labels, seed):
    rng, offsets = np.random.default_rng(seed), np.cumsum([0, *(labels.max(axis=0) + 1)])
    of_clusters, weights = rng.random(offsets[-1]), rng.random(labels.shape[1])
    agree, seen = np.empty((2, len(labels), len(labels)))
    weigh_tile(labels, labels, offsets, of_clusters, weights, agree, seen)
    for i, j in np.ndindex(agree.shape):
        both = [u for u in range(labels.shape[1]) if labels[i, u] >= 0 and labels[j, u] >= 0]
        assert seen[i, j] == pytest.approx(sum(weights[u] for u in both))
        joining = [offsets[u] + labels[i, u] for u in both if labels[i, u] == labels[j, u]]
        assert agree[i, j] == pytest.approx(sum(of_clusters[joining]))


def test_weights__are_refused_for_the_rows_of_the_coassociation(labels):
    with pytest.raises(InvalidInputError) as refusal:
        LabelKMeans(K, encode="coassoc", weights=WEIGHTS).fit(labels)
    assert refusal.value.parameter == "weights"


@pytest.mark.parametrize("cls", [CSPA, HBGF, MCLA])
def test_weights__are_refused_for_a_balanced_cut(labels, cls):
    with pytest.raises(InvalidInputError) as refusal:
        cls(K, partitioner="metis", weights=WEIGHTS).fit(labels)
    assert refusal.value.parameter == "weights"


def test_page_of_methods__names_those_with_weights():
    page = (Path(__file__).parents[2] / "docs/methods.md").read_text(encoding="utf-8")
    stated = re.search(r"`weights=`, a number for each partition.*? is for (.*?), and for", page, re.DOTALL)
    named = set(re.findall(r"`([\w*-]+)`", stated[1]))
    taking = {name for name, cls in METHODS.items() if "weights" in inspect.signature(cls).parameters}
    assert named == {"eac*" if name.startswith("eac") else name for name in taking}
    assert set(WEIGHTED) | {"pcc", "eac", "eac-groups", "did"} == taking
