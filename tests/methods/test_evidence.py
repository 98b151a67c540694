"""Evidence accumulation: trees against scipy and the definition; cuts. Furthest consensus likewise."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.spatial.distance import squareform

from bigcons import Ensemble
from bigcons.coassociation.counts import condensed_distances
from bigcons.errors import MemoryBudgetError
from bigcons.memory import DataBudget
from bigcons.methods import evidence
from bigcons.methods.evidence import EAC, EACAverage, EACGroups, EACSingle, Furthest
from bigcons.metrics import adjusted_rand
from bigcons.run.engine import SerialEngine
from tests.naive import linkage as naive
from tests.support.numbering import numbered_by_size, order_by_size
from tests.support.refusals import refused
from tests.support.strategies import label_matrices

SIX_ITEMS = np.array([[1, 1, 1, 2, 2, 1], [2, 1, 1, 2, 2, 2], [2, 1, 2, 1, 2, 2], [1, 1, 2, 1, 2, 2]]).T

pytestmark = [
    pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning"),
    pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning"),  # chains of single linkage
]


def planted(n_objects=120, n_partitions=14, n_clusters=4, wrong=0.15, missing=0.2, seed=0):
    """Return the groups and noisy labels with gaps."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(n_clusters, size=n_objects)
    labels = np.tile(groups[:, None], n_partitions)
    noisy = rng.random(labels.shape) < wrong
    labels[noisy] = rng.integers(n_clusters, size=noisy.sum())
    labels[rng.random(labels.shape) < missing] = -1
    return groups, labels


def all_distances(labels, normalize="observed"):
    """Return the condensed distances of all objects with a label."""
    rows = np.array(labels)[naive.labeled_objects(labels.tolist())].tolist()
    pairs = itertools.combinations(range(len(rows)), 2)
    return np.array([float(1 - naive.similarity(rows, i, j, normalize == "all")) for i, j in pairs])


def heights_of_objects(model, labels, normalize="observed"):
    """Return the heights of the merges of all objects: those of the tree, and those of equal rows."""
    m = (labels >= 0).sum(axis=1)
    first = np.unique(model.row_of_object_, return_index=True)[1]
    repeated = np.setdiff1d(np.flatnonzero(m), first)
    within = 1 - m[repeated] / labels.shape[1] if normalize == "all" else np.zeros(len(repeated))
    return np.sort(np.concatenate([model.linkage_[:, 2], within]))


def random_points(seed, n=14):
    """Return weights, distances inside the points and between them, these not the smaller ones."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 5, n) if seed else np.ones(n, int)
    between = np.triu(rng.random((n, n)), 1)
    between += between.T
    within = rng.random(n) * np.where(np.eye(n, dtype=bool), 2, between).min(axis=1)
    return weights, within, between


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", evidence.LINKAGES)
def test_agglomerate__of_weighted_points_equals_scipy_on_all_objects(method, seed):
    weights, within, between = random_points(seed)
    point = np.repeat(np.arange(len(weights)), weights)
    of_objects = np.where(point[:, None] == point, within[point], between[np.ix_(point, point)])
    expected = linkage(of_objects[np.triu_indices(len(point), 1)], method)
    merges = evidence.agglomerate(between[np.triu_indices(len(weights), 1)], method, weights, within)
    heights = np.sort(np.concatenate([merges.heights, np.repeat(within, weights - 1)]))
    np.testing.assert_allclose(heights, expected[:, 2], rtol=1e-12)
    first = np.unique(point, return_index=True)[1]
    of_points = squareform(cophenet(evidence.linkage_matrix(merges, np.ones(len(weights)))))
    np.testing.assert_allclose(of_points, squareform(cophenet(expected))[np.ix_(first, first)], rtol=1e-12)
    if seed == 0:  # of single objects
        for k in (1, 2, 7, 13, 14):
            found = evidence.cut(merges, 14, k)
            assert len(np.unique(found)) == k
            assert adjusted_rand(naive.left_after_merges(expected, k), found) == 1


@pytest.mark.parametrize("normalize", ["observed", "all"])
@given(labels=label_matrices(min_objects=2, max_objects=14))
def test_eac_single__has_the_heights_of_scipy_on_all_objects(normalize, labels):
    model = EACSingle(1, normalize=normalize).fit(labels)
    distances = all_distances(labels, normalize)
    expected = linkage(distances, "single")[:, 2] if len(distances) else np.empty(0)
    np.testing.assert_allclose(heights_of_objects(model, labels, normalize), expected, atol=1e-12)
    assert model.objective_ == pytest.approx(expected.sum())


@pytest.mark.parametrize("normalize", ["observed", "all"])
@pytest.mark.parametrize(
    ("method", "is_sparse"), [("average", True), ("average", False), ("complete", False), ("single", False)]
)
@given(labels=label_matrices(min_objects=3, max_objects=9))
def test_eac__merges_nearest_clusters_of_objects_every_time(method, is_sparse, normalize, labels):
    ensemble = Ensemble.from_labels(labels)
    rows = evidence.unique_rows(ensemble, SerialEngine(), budget=DataBudget(10**9), remedy="")
    n_labels = (rows.labels >= 0).sum(axis=1)
    within = 1 - n_labels / labels.shape[1] if normalize == "all" else np.zeros(len(n_labels))
    if is_sparse:
        merges = evidence.average_link(rows.labels, ensemble.offsets, normalize, None, rows.weights)
    else:
        condensed = condensed_distances(rows.labels, normalize, SerialEngine())
        merges = evidence.agglomerate(condensed, method, rows.weights, within)
    pairs = itertools.permutations(range(len(labels)), 2)
    similarity = {p: naive.similarity(labels.tolist(), *p, normalize == "all") for p in pairs}
    distances = {pair: float(1 - value) for pair, value in similarity.items()}
    groups = [np.flatnonzero(rows.row_of_object == r).tolist() for r in range(len(rows.labels))]
    steps = naive.replay(distances, groups, zip(merges.first, merges.second, strict=True), method)
    for height, (found, least) in zip(merges.heights, steps, strict=True):
        assert height == pytest.approx(found)
        assert height == pytest.approx(least)


@pytest.mark.parametrize(
    ("n_objects", "wrong", "missing"), [(3000, 0.1, 0), (1500, 0.1, 0.3), (1500, 0.3, 0)]
)
def test_eac_average__finds_clusters_of_three_objects(n_objects, wrong, missing):
    truth, labels = planted(n_objects, 20, n_objects // 3, wrong, missing)
    n_clusters = len(np.unique(truth))
    model = EACAverage(n_clusters).fit(labels)
    assert model.n_clusters_ == n_clusters
    assert adjusted_rand(truth, model.labels_) > 0.99
    weights = np.repeat([1, 2], 10)
    weighted, repeated = (
        EACAverage(n_clusters, weights=of).fit(x)
        for of, x in ((weights, labels), (None, np.repeat(labels, weights, axis=1)))
    )
    np.testing.assert_allclose(weighted.linkage_[:, 2], repeated.linkage_[:, 2], atol=1e-12)
    assert adjusted_rand(weighted.labels_, repeated.labels_) > 0.999


def test_six_items__have_the_similarities_and_clusters_of_the_paper():
    """With 3/4 for the first and the last, which the printed table has lost."""
    distances = condensed_distances(SIX_ITEMS, "observed", SerialEngine())
    expected = [0.5, 0.5, 0.5, 0.5, 0.75, 0.5, 0.5, 0, 0.25, 0, 0.5, 0.75, 0.5, 0.25, 0.75]
    np.testing.assert_allclose(1 - distances, expected, atol=1e-7)
    assert EACAverage(2).fit(SIX_ITEMS).labels_.tolist() == [0, 1, 0, 1, 0, 0]


@pytest.mark.parametrize("method", evidence.LINKAGES)
def test_ties__at_random_let_any_of_equal_pairs_merge_first(method):
    labels = np.array([[0, 0], [1, 1], [2, 2]])
    found = {
        tuple(EAC(2, linkage=method, ties="random", random_state=seed).fit(labels).labels_.tolist())
        for seed in range(40)
    }
    assert found == {(0, 0, 1), (0, 1, 0), (1, 0, 0)}
    assert EAC(2, linkage=method).fit(labels).labels_.tolist() == [0, 0, 1]


@given(
    heights=st.lists(st.integers(1, 12), min_size=2, max_size=9).map(sorted),
    bounded=st.booleans(),
    most=st.integers(2, 10),
)
def test_largest_lifetime__equals_the_widest_range_of_heights(heights, bounded, most):
    n = len(heights) + 1
    found = naive.lifetimes(heights, 0 if bounded else heights[0], heights[-1])
    allowed = {k: found.get(k, 0) for k in range(2, n + bounded) if k <= most}
    chosen = evidence.largest_lifetime(np.array(heights, float), limit=most, below=0.0 if bounded else None)
    assert chosen == max(k for k, value in allowed.items() if value == max(allowed.values()))


@pytest.mark.parametrize("method", evidence.LINKAGES)
def test_lifetime__finds_the_number_of_planted_clusters(method):
    groups, labels = planted(wrong=0.05)
    model = EAC(None, linkage=method, criterion="lifetime").fit(labels)
    assert model.n_clusters_ == 4
    assert adjusted_rand(groups, model.labels_) > 0.95


def test_eac__refuses_distances_beyond_memory_with_the_size_that_would_do():
    _, labels = planted(n_objects=3000)
    with refused(
        r"distances of [\d,]+ distinct rows .*need \d+.* raise it to 4\d\d MB, or .* pcc", MemoryBudgetError
    ):
        EACAverage(4, memory="390MB").fit(labels)
    assert EACSingle(4, memory="390MB").fit(labels).n_clusters_ == 4
    with pytest.raises(MemoryBudgetError, match=r"distinct rows need .* use eac-groups or pcc"):
        EACSingle(4, memory=370_050_000).fit(labels)


@pytest.mark.parametrize(("wrong", "least"), [(0.1, 0.99), (0.4, 0.8)])
def test_eac_groups__is_near_average_link_of_all_objects_with_all_base_clusters_alike(wrong, least):
    groups, labels = planted(n_objects=600, wrong=wrong)
    model = EACGroups(4, client="serial").fit(labels)
    exact = EACAverage(4).fit(labels)
    assert model.chosen_tree_ == "average"
    assert adjusted_rand(model.labels_, exact.labels_) >= least
    assert adjusted_rand(groups, model.labels_) >= adjusted_rand(groups, exact.labels_) - 0.02


def as_found(model):
    """Return the centers in the order of the search."""
    centers = model.centers_.copy()
    centers[model._order[: len(centers)]] = model.centers_
    return centers.tolist()


@given(labels=label_matrices(min_objects=2, max_objects=14), k=st.integers(1, 6))
def test_furthest__equals_the_definition(labels, k):
    model = Furthest(min(k, len(labels))).fit(labels)
    centers, found = naive.furthest(labels.tolist(), min(k, len(labels)))
    assert model.centers_.tolist() == np.array(centers)[order_by_size(found, len(centers))].tolist()
    assert model.labels_.tolist() == numbered_by_size(found).tolist()
    assert model.n_clusters_ == len(centers)
    clusters = [max(label, 0) for label in found]  # objects without any label are in no pair that is seen
    assert model.objective_ == naive.disagreements(labels.tolist(), clusters)


def test_furthest__breaks_ties_by_the_lowest_objects_and_stops_where_no_object_differs():
    labels = np.array([[0, 0], [0, 0], [1, 1], [2, 2], [1, 2]])
    model = Furthest(3).fit(labels)
    assert as_found(model) == [0, 2, 3]
    assert model.labels_.tolist() == [0, 0, 1, 2, 1]
    model = Furthest(4).fit(np.array([[0, 0], [1, 1], [0, 0], [0, -1]]))  # no more objects differ
    assert model.labels_.tolist() == [0, 1, 0, 0]
    assert model.n_clusters_ == 2
    assert Furthest(3, init="sampled").fit(np.zeros((5, 2), int)).n_clusters_ == 1


def test_furthest__sampled_equals_exact_if_the_sample_holds_every_object():
    groups, labels = planted(200, 15, wrong=0.07)
    sampled, exact = (Furthest(4, init=init, random_state=1).fit(labels) for init in ("sampled", "exact"))
    np.testing.assert_array_equal(sampled.labels_, exact.labels_)
    assert adjusted_rand(groups, exact.labels_) > 0.9


def test_furthest__exact_refuses_rows_beyond_memory_and_names_sampled(tmp_path):
    labels = np.random.default_rng(0).integers(3, size=(3000, 12))
    stored = Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=64)
    with pytest.raises(MemoryBudgetError, match=r"distinct rows need .*init='sampled'"):
        Furthest(3, memory=370_080_000).fit(stored)
    assert Furthest(3, init="sampled", memory=370_080_000, random_state=0).fit(stored).n_clusters_ == 3
    with pytest.raises(MemoryBudgetError, match="Furthest needs"):
        Furthest(3, init="sampled", memory=370_020_000).fit(stored)
