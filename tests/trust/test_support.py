"""Support of splits and agreement of halves: as sets of objects say, high of clusters, low of noise."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import PCC, ConsensusTree, EACAverage, EACGroups, Ensemble, Report, choose_n_clusters
from bigcons.errors import NoStructureWarning
from bigcons.metrics import adjusted_rand, trust
from bigcons.trust.groups import ERROR_RATES, TREES, Groups, Sample, Tree, most_probable
from bigcons.trust.placement import EXTRA
from bigcons.trust.support import Half, Halves, common_objects, reproduction
from bigcons.weights import incidence_of
from tests.naive import support as naive
from tests.support.refusals import refused
from tests.support.strategies import label_matrices

DISTINCTNESS = "distinctness"


@st.composite
def groupings(draw, n_objects):
    """Groups of objects, some without."""
    given = draw(st.lists(st.integers(-1, 5), min_size=n_objects, max_size=n_objects))
    return np.unique([-1, *given], return_inverse=True)[1][1:] - 1


@st.composite
def trees(draw, groups):
    """Merges of groups in any order, the first ones at no cost."""
    G = int(groups.max()) + 1
    left, sides = list(range(G)), []
    while len(left) > 1:
        sides.append(draw(st.lists(st.sampled_from(left), min_size=2, max_size=2, unique=True)))
        left = [node for node in left if node not in sides[-1]] + [G + len(sides) - 1]
    heights = np.maximum(np.arange(G) - draw(st.integers(0, len(sides))), 0.0)
    return Tree(np.array(sides, np.int64).reshape(-1, 2), heights)


@given(st.data(), st.integers(1, 12))
def test_support_of_splits__is_that_of_sets_of_objects(data, n_objects):
    one, two = (data.draw(groupings(n_objects)) for _ in range(2))
    if one.max() < 0 or two.max() < 0:
        return
    tree, other = (data.draw(trees(groups)) for groups in (one, two))
    found = reproduction(tree, other, common_objects(one, two))
    splits, sides = naive.splits_of(one.tolist(), tree.sides.tolist()), other.sides.tolist()
    expected = [naive.reproduced(split, one.tolist(), two.tolist(), sides) for split in splits]
    np.testing.assert_allclose(found, expected)


@given(st.data(), label_matrices(min_objects=2, max_objects=12, max_clusters=3), st.booleans(), st.booleans())
def test_objects__join_the_group_that_is_most_probable_by_their_labels(data, given_labels, left_out, free):
    ensemble = Ensemble.from_labels(given_labels)
    labels, offsets = ensemble.read(0, ensemble.n_objects), ensemble.offsets
    groups = data.draw(groupings(ensemble.n_objects))
    if groups.max() < 0:
        return
    counts = np.random.default_rng(0).integers(0, 3, ensemble.n_partitions)
    known = labels, offsets, counts.astype(float), groups
    found = most_probable(*known, left_out=left_out, free_errors=free)
    errors = dict.fromkeys(ERROR_RATES, 1.0) if free else ERROR_RATES
    expected = naive.most_probable(labels, groups, counts, EXTRA, errors, left_out=left_out)
    np.testing.assert_array_equal(found, expected)


@given(st.data(), label_matrices(min_objects=2, max_objects=12, max_clusters=3))
def test_agreement__is_the_adjusted_rand_index_of_objects_that_halves_have_placed(data, given_labels):
    ensemble = Ensemble.from_labels(given_labels)
    n, M, offsets = ensemble.n_objects, ensemble.n_partitions, ensemble.offsets
    labels, groups = ensemble.read(0, n), data.draw(groupings(n))
    if groups.max() < 0:
        return
    both = [data.draw(trees(groups)) for _ in range(2)]
    own = np.array(data.draw(st.lists(st.booleans(), min_size=2 * M, max_size=2 * M))).reshape(2, M)
    own[0, 0] = own[1, -1] = True
    counts = np.random.default_rng(0).integers(0, 3, M)
    known = np.empty((0, 0)), offsets, counts.astype(float), np.empty(0)
    of_group = Groups(groups, np.bincount(groups[groups >= 0]), *known, {}, np.empty(0))
    pair = tuple(Half({DISTINCTNESS: tree}, np.empty(0)) for tree in both)
    found = Halves([pair], of_group, labels, own).agreement([DISTINCTNESS], 7)[0]
    halves = []
    for is_own in own:
        placed = naive.most_probable(
            *(labels[:, is_own], groups, counts[is_own], EXTRA, dict.fromkeys(ERROR_RATES, 1.0)),
            left_out=True,
        )
        halves.append(placed.tolist())
    for K, index in enumerate(found, 1):
        clusters = []
        for tree, placed in zip(both, halves, strict=True):
            n_equal = np.count_nonzero(tree.heights[1:] == 0)
            most = min(K, int(groups.max()) + 1 - n_equal)
            at_first = [*placed, *range(int(groups.max()) + 1)]  # and one more in each, which may have none
            of_half = naive.nodes_of(at_first, tree.sides.tolist(), most).values()
            clusters.append([{i for i in of if i < len(placed)} for of in of_half])
        assert index == pytest.approx(max(naive.adjusted_rand(*clusters), 0.0))


@given(st.data(), label_matrices(min_objects=2, max_objects=7, max_clusters=3))
def test_support_of_clusters__is_how_far_halves_propose_the_same_objects(data, given_labels):
    ensemble = Ensemble.from_labels(given_labels)
    n, labels = ensemble.n_objects, ensemble.read(0, ensemble.n_objects)
    groups = data.draw(groupings(n))
    if groups.max() < 0:
        return
    pair = [Half({DISTINCTNESS: data.draw(trees(groups))}, np.empty(0)) for _ in range(2)]
    clusters = np.array(data.draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n)))
    rng = np.random.default_rng(0)
    weights, counts = np.where(clusters >= 0, rng.random(n), 0.0), rng.integers(1, 3, labels.shape[1])
    table, offsets = incidence_of(labels, ensemble.offsets).toarray(), ensemble.offsets
    table = np.array([table[groups == g].sum(axis=0) for g in range(int(groups.max()) + 1)])
    known = table, offsets, counts.astype(float), np.ones(offsets[-1])
    of_group = Groups(groups, np.bincount(groups[groups >= 0]), *known, {}, np.empty(0))
    judge = Halves([tuple(pair)], of_group, labels, np.empty((2, 0), bool))
    support, divisions = judge.of_clusters(clusters, weights.astype(float), 3)
    members = [set(np.flatnonzero(clusters == k).tolist()) for k in range(3)]
    proposed = [
        naive.proposals(
            *(members, groups.tolist(), [half.trees[DISTINCTNESS].sides.tolist()]),
            *(labels, counts, weights, EXTRA),
        )
        for half in pair
    ]
    alike = np.empty((3, 3))
    for k, sets in enumerate(zip(members, *proposed, strict=True)):
        expected = naive.adjusted_share(sets, weights)
        assert support[k] == pytest.approx(max(expected, 0.0) if members[k] else np.nan, nan_ok=True)
        for other in range(3):
            both = members[k] | members[other]
            inside = [of & both for of in sets]
            alike[k, other] = naive.adjusted_share(inside, weights * [i in both for i in range(n)])
    for k, other in itertools.permutations(range(3), 2):
        expected = max(min(alike[k, other], alike[other, k]), 0.0)
        known = members[k] and members[other]
        assert divisions[k, other] == pytest.approx(expected if known else np.nan, nan_ok=True)


def blobs(centers, n_objects=600, n_partitions=30, seed=0):
    """K-means labels of Gaussian classes, and the classes."""
    from sklearn.cluster import KMeans

    rng = np.random.default_rng(seed)
    truth = rng.integers(len(centers), size=n_objects)
    x = np.asarray(centers, float)[truth] + rng.normal(size=(n_objects, len(centers[0])))
    numbers = rng.integers(2, 13, n_partitions).tolist()
    labels = [KMeans(k, n_init=1, random_state=u).fit_predict(x) for u, k in enumerate(numbers)]
    return np.column_stack(labels), truth


@pytest.fixture(scope="module")
def six():
    return blobs(9 * np.eye(6))


@pytest.fixture(scope="module")
def one():
    return blobs(np.zeros((1, 5)))[0]


@pytest.mark.parametrize("method", [ConsensusTree, PCC])
def test_fit__warns_where_no_number_stands_out_and_only_there(method, one, six):
    with pytest.warns(
        NoStructureWarning, match=r"may have no cluster structure: .* Best guess: .* next"
    ) as caught:
        model = method(4, random_state=0).fit(one)
    assert model.has_structure_ is False
    assert caught[0].filename == __file__
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        method("auto", random_state=0).fit(one)
    assert [w.filename for w in caught if w.category is NoStructureWarning] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoStructureWarning)
        assert method(6, random_state=0).fit(six[0]).has_structure_ is True


def test_confidence__of_parts_of_a_class_is_low_and_that_of_classes_stays_high(six):
    parts = np.where((six[1] == 0) & (np.arange(600) % 2 == 0), 6, six[1])
    judge = halves_of(six[0])
    support, divisions = judge.of_clusters(parts, np.ones(600), 7)
    assert support[1:6].min() > 0.9 > 0.7 > max(support[0], support[6])
    assert divisions[0, 6] < 0.5 < divisions[1:6, :1].min()
    model = ConsensusTree(6, random_state=0).fit(six[0])
    clusters = np.where((model.labels_ == 0) & (np.arange(600) % 2 == 0), 6, model.labels_)
    assert np.isnan(trust(six[0], clusters).clusters["support"].to_numpy()).all()
    again = trust(six[0], model)
    assert again.clusters["support"].equals(model.trust_.clusters["support"])


def halves_of(labels):
    groups = Sample(labels, Ensemble.from_labels(labels).offsets).groups(30)
    return Halves.from_groups(groups, labels)


@pytest.mark.parametrize("name", TREES)
def test_support__is_near_1_of_planted_splits_lower_within_a_class_and_low_of_noise(six, name):
    mean, error = halves_of(six[0]).support(name)
    planted, within = mean[-5:-1], mean[:-5]  # the last joins classes that are equally far apart
    assert planted.min() > 0.95 > within.max()
    assert ((error >= 0) & (error < 0.2)).all()
    noise = np.random.default_rng(0).integers(4, size=(600, 30))
    assert halves_of(noise).support(name).mean[-5:].max() < 0.7


def test_support__of_a_single_partition_is_not_known(six):
    found = halves_of(six[0][:, :1])
    assert found.pairs == []
    assert np.isnan(found.support(DISTINCTNESS).mean).all()
    assert np.isnan(found.agreement([DISTINCTNESS], 3)).all()


def test_auto__says_one_cluster_of_independent_labels_and_warns_of_a_gaussian(one):
    noise = np.random.default_rng(0).integers(4, size=(300, 30))
    for labels in (noise, one):
        choice = choose_n_clusters(labels, random_state=0)
        with pytest.warns(NoStructureWarning):
            model = ConsensusTree("auto").fit(labels)
        assert (choice.is_clear, model.has_structure_) == (False, False)
        assert model.n_clusters_ == choice.n_clusters
        assert choose_n_clusters(labels, k_range=(1, 12), random_state=0).n_clusters == 1
    assert "no number stands out" in repr(choose_n_clusters(noise, k_range=(2, 12), random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoStructureWarning)
        assert ConsensusTree(1).fit(noise).has_structure_ is None


@pytest.mark.parametrize("method", [ConsensusTree, PCC])
def test_confidence__is_low_of_noise_and_high_of_classes(method, six):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        noise = np.random.default_rng(0).integers(5, size=(600, 30))
        assert method(5, random_state=0).fit(noise).trust_.confidence.max() < 0.3
        table = method(6, random_state=0).fit(six[0]).trust_.clusters.to_pydict()
        assert min(*table["support"], *table["division"], *table["confidence"]) > 0.95


@pytest.mark.parametrize(("n_clusters", "is_judged"), [(30, True), (31, False), (50, False)])
@pytest.mark.parametrize("method", [ConsensusTree, PCC])
def test_structure__of_clusters_of_few_objects_is_not_known(method, n_clusters, is_judged):
    truth = np.arange(150) % n_clusters  # 5 objects each, or fewer
    draw = np.random.default_rng(0)
    labels = np.where(
        draw.random((150, 20)) < 0.05, draw.integers(n_clusters, size=(150, 20)), truth[:, None]
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = method(n_clusters, random_state=0).fit(labels)
    told = [str(one.message) for one in caught if one.category is NoStructureWarning]
    assert model.has_structure_ is (True if is_judged else None)
    assert [f"fewer than 5 for each of {n_clusters} clusters" in one for one in told] == [True] * (
        not is_judged
    )
    assert adjusted_rand(truth, model.labels_) > 0.95


def test_tree__refuses_very_many_clusters_of_few_objects_at_once():
    labels = np.tile(np.arange(3000)[:, None] // 3, 20)
    for method in (ConsensusTree, EACGroups):
        with refused(r"1,000 of 3,000 objects .* use eac-average"):
            method(1000).fit(labels)
    assert adjusted_rand(labels[:, 0], EACAverage(1000).fit(labels).labels_) == 1
    assert ConsensusTree(100, random_state=0).fit(labels // 10).n_clusters_ == 100


def test_structure__is_said_not_to_be_known_where_a_sample_has_too_few_labels(tmp_path):
    fine = np.random.default_rng(0).integers(1000, size=(5000, 8))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = ConsensusTree(6, random_state=0).fit(fine, out=tmp_path / "c.zarr")
    (told,) = [str(one.message) for one in caught if one.category is NoStructureWarning]
    assert "is not known" in told
    assert model.has_structure_ is None
    assert any("is not known" in warning for warning in Report(tmp_path / "c.zarr", pictures=False).warnings)
