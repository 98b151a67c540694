"""The consensus tree: its placement of all objects by naive Bayes, and what the method promises."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Consensus, ConsensusTree, EACGroups, Ensemble, choose_n_clusters, consensus_tree
from bigcons.datasets import planted_ensemble
from bigcons.errors import MemoryBudgetError, SurplusClustersWarning, UnlabeledObjectsWarning
from bigcons.metrics import adjusted_rand, reliability, trust
from bigcons.run.engine import SerialEngine, ThreadsEngine
from bigcons.trust.groups import Sample
from bigcons.trust.placement import Placement, independent_share, random_half
from bigcons.weights import Weights
from tests.naive import tree as naive
from tests.naive.overlaps import incidence
from tests.support.engines import EngineThatStops, StopError
from tests.support.fits import quiet
from tests.support.strategies import label_matrices


def counted(labels, clusters, n_clusters):
    """Return the objects (B, K) and sizes (K,) of clusters."""
    inside = np.eye(n_clusters + 1)[clusters][:, :n_clusters]
    return incidence(labels).T @ inside, inside.sum(axis=0)


@pytest.mark.parametrize(
    "labels",
    [
        ["00", "01", "12", "12"],
        ["00", "01", "12", "1-"],
        ["000", "001", "111", "11-"],
        ["0000", "0001", "0002", "1111", "1112", "1110"],
    ],
)
def test_fit__of_a_handful_of_objects_finds_what_all_partitions_but_one_agree_on(labels):
    given = [[-1 if label == "-" else int(label) for label in row] for row in labels]
    first = np.array(given)[:, 0]
    for order in (slice(None), slice(None, None, -1)):
        model = quiet(ConsensusTree(2, random_state=0), np.array(given)[order])
        assert adjusted_rand(first[order], model.labels_) == 1


@given(
    label_matrices(min_objects=2, max_objects=14),
    st.integers(1, 4),
    st.sampled_from([0.3, 1.0]),
    st.booleans(),
    st.data(),
)
def test_place__takes_the_most_probable_cluster_by_the_labels_of_the_others(labels, K, temper, own, data):
    n, M = labels.shape
    labeled = (labels >= 0).any(axis=1)
    clusters = np.array(data.draw(st.lists(st.integers(0, K - 1), min_size=n, max_size=n)))
    clusters[~labeled] = -1
    given = data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=M, max_size=M))
    offsets = np.cumsum([0, *(labels.max(axis=0) + 1)])
    known = counted(labels, clusters, K)
    placement = replace(Placement.fit(*known, offsets, Weights.parse(given, offsets)), temperature=temper)
    carried = clusters if own else None
    expected = [naive.scores(labels, clusters, i, K, given, own=own) for i in range(n)]
    for rows in (labels, incidence(labels).astype(np.float32)):
        assigned, _, _, stats = placement.place(rows, carried)
        memberships = placement.place(rows, carried, soft=True).memberships
        for i in np.flatnonzero(labeled):
            assert expected[i][assigned[i]] >= expected[i].max() - 1e-9
            shares = naive.probabilities(expected[i], temper)
            np.testing.assert_allclose(memberships[i], shares, atol=1e-6)
        assert (assigned[~labeled] == -1).all()
        np.testing.assert_allclose(memberships[~labeled], 1 / K)
        T, sizes = counted(labels, assigned, K)
        np.testing.assert_array_equal(stats["T"][:, :K], T)
        np.testing.assert_array_equal(stats["sizes"], sizes)
        highest = [own.max() + np.log(np.exp(own - own.max()).sum()) for own in expected]
        moved = np.count_nonzero(labeled & (assigned != (clusters if own else -1)))
        np.testing.assert_allclose(stats["totals"], [np.sum(highest, where=labeled), moved])
    soft = placement.place(labels, carried, soft=True)
    np.testing.assert_array_equal(soft.clusters[labeled], soft.memberships[labeled].argmax(axis=1))
    np.testing.assert_array_equal(soft.clusters, placement.place(labels, carried).clusters)
    for i, (confidence, second, second_confidence) in enumerate(soft.trust):
        others = np.delete(soft.memberships[i], soft.clusters[i])
        if not labeled[i]:
            assert (confidence, second, second_confidence) == (0, -1, 0)
            continue
        assert confidence == soft.memberships[i, soft.clusters[i]]
        assert second_confidence == max(others, default=0) < confidence
        assert second < 0 or soft.memberships[i, second] == second_confidence
    stats = soft.stats
    sums = np.bincount(soft.clusters[labeled], soft.trust["confidence"][labeled], K)
    np.testing.assert_allclose(stats["confidence"], sums)
    known, assigned, shared = np.zeros((3, 2, K))
    first = random_half(M)
    for h, half in enumerate((first, ~first)):
        part = np.where(half, labels, -1)
        for i in np.flatnonzero((part >= 0).any(axis=1)):
            by_half = naive.scores(part, clusters, i, K, given, own=own)
            known[h, soft.clusters[i]] += 1
            winners = np.flatnonzero(by_half >= by_half.max() - 1e-9)
            if winners.size > 1:  # rounding settles a tie
                return
            assigned[h, winners[0]] += 1
            shared[h, winners[0]] += winners[0] == soft.clusters[i]
    np.testing.assert_array_equal(stats["agreements"], [known, assigned, shared])


@pytest.fixture(scope="module")
def planted():
    ensemble, truth = planted_ensemble(1200, 40, missing=0.3, hard_share=0.0, random_state=1)
    labels = ensemble.read(0, 1200)
    return labels, truth, ConsensusTree(6, random_state=0).fit(labels)


def test_planted_classes__are_found_of_more_objects_than_are_sampled():
    for missing, least in ((0.0, 0.98), (0.5, 0.95)):
        ensemble, truth = planted_ensemble(12_000, 60, missing=missing, hard_share=0.0, random_state=2)
        model = ConsensusTree(6, random_state=0).fit(ensemble)
        assert adjusted_rand(truth, model.labels_) > least


def test_memberships__are_probabilities_whose_largest_is_the_label(planted):
    labels, _, model = planted
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(model.memberships_.argmax(axis=1), model.labels_)
    assert 1 / labels.shape[1] <= model.temperature_ <= 1  # copies of a partition are worth it
    # the objects themselves count in what new ones are placed by
    assert np.mean(model.predict(labels) == model.labels_) > 0.99
    np.testing.assert_allclose(model.predict_proba(labels), model.memberships_, atol=0.1)
    np.testing.assert_array_equal(model.predict_proba(labels).argmax(axis=1), model.predict(labels))


@given(label_matrices(min_objects=1, max_objects=12), st.integers(1, 12))
def test_fit__takes_any_labels_and_number_of_clusters(labels, K):
    K = min(K, len(labels))
    model = quiet(ConsensusTree(K), labels)
    labeled = (labels >= 0).any(axis=1)
    np.testing.assert_array_equal(model.labels_ >= 0, labeled)
    assert model.n_clusters_ <= K
    assert np.isfinite(model.memberships_).all()
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1.0, atol=1e-5)
    if K == 1:
        assert set(model.labels_[labeled]) <= {0}


def test_fit__of_one_partition_gives_its_clusters():
    labels = np.repeat([0, 1, 2], [50, 30, 20])[:, None]
    model = ConsensusTree(3).fit(labels)
    assert adjusted_rand(labels[:, 0], model.labels_) == 1.0
    more = quiet(ConsensusTree(30), labels)
    assert adjusted_rand(labels[:, 0], more.labels_) == 1.0


def test_confidence__is_how_often_labels_are_right():
    for seed in range(2):
        ensemble, truth = planted_ensemble(6000, 40, random_state=seed)
        model = ConsensusTree(6, random_state=seed).fit(ensemble)
        assert reliability(truth, model.labels_, model.memberships_.max(axis=1)).error < 0.03


def test_trust__is_that_of_the_labels_and_memberships(planted):
    labels, _, model = planted
    told, again = model.trust_, trust(labels, model)
    for name in ("confidence", "second_labels", "second_confidence"):
        np.testing.assert_array_equal(getattr(told, name), getattr(again, name))
    assert told.partitions == again.partitions
    assert told.temperature == model.temperature_
    by_results = ("stability",)  # counted by the table of the pass before, not once more
    assert told.clusters.drop_columns(by_results) == again.clusters.drop_columns(by_results)
    np.testing.assert_allclose(told.clusters["stability"], again.clusters["stability"], atol=0.02)
    for k, row in enumerate(told.clusters.to_pylist()):
        assert row["confidence"] == pytest.approx(told.confidence[model.labels_ == k].mean())


def test_resume__after_a_stop_at_any_block_ends_with_the_same_bits(tmp_path):
    stored = tmp_path / "ensemble.zarr"
    planted_ensemble(9000, 20, missing=0.2, random_state=4)[0].save(stored, chunk_rows=3000)
    expected = ConsensusTree(5, random_state=3, client=ThreadsEngine(3)).fit(stored)
    for n_tasks in (1, 4, 7):  # of the survey, of the pass and of the results
        out = tmp_path / f"consensus{n_tasks}.zarr"
        with pytest.raises(StopError):
            ConsensusTree(5, random_state=3, client=EngineThatStops(n_tasks)).fit(stored, out=out)
        model = ConsensusTree(5, random_state=3).fit(stored, out=out)
        np.testing.assert_array_equal(model.labels_, expected.labels_)
        np.testing.assert_array_equal(np.asarray(model.memberships_), expected.memberships_)
        assert (model.chosen_tree_, model.temperature_) == (expected.chosen_tree_, expected.temperature_)
        Consensus.open(out).verify()


def test_memory__is_refused_before_anything_is_read():
    ensemble, _ = planted_ensemble(1000, 10, random_state=0)
    engine = EngineThatStops(0)
    with pytest.raises(MemoryBudgetError, match=r"ConsensusTree needs .* over memory=1.*; raise it to"):
        ConsensusTree(6, memory="1MB", client=engine).fit(ensemble)


@pytest.mark.slow
def test_fine_base_clusters__are_grouped_by_all_objects(tmp_path):
    """Eight classes in partitions of clusters of 20 objects, half of the labels missing."""
    shape = {"shares": [1 / 8] * 8, "n_clusters": (1000, 1000), "hard_share": 0.0}
    ensemble, truth = planted_ensemble(20_000, 20, **shape, random_state=0)
    ensemble.save(tmp_path / "ensemble.zarr", chunk_rows=7000)
    ensemble = Ensemble.open(tmp_path / "ensemble.zarr")
    model = ConsensusTree(8, random_state=0, client=SerialEngine()).fit(ensemble)
    assert adjusted_rand(truth, model.labels_) > 0.95
    sample = ensemble.read_rows(np.arange(2000))
    by_sample = Sample(sample, ensemble.offsets).groups(100)
    assert adjusted_rand(truth[:2000], by_sample.cut(8).labels) < 0.5
    threads = ConsensusTree(8, random_state=0, client=ThreadsEngine(3))
    threads.fit(ensemble, out=tmp_path / "consensus.zarr")
    np.testing.assert_array_equal(threads.labels_, model.labels_)
    np.testing.assert_array_equal(np.asarray(threads.memberships_), model.memberships_)


def planted_with_a_rare_class(seed, n_objects, n_rare, n_partitions=20):
    """Return labels and classes: of six classes a tenth of the labels err, of a rare one none."""
    draw = np.random.default_rng(seed)
    classes = draw.permutation(np.r_[np.full(n_rare, 6), draw.integers(6, size=n_objects - n_rare)])
    errs = (draw.random((n_objects, n_partitions)) < 0.1) & (classes < 6)[:, None]
    return np.where(errs, draw.integers(6, size=errs.shape), classes[:, None]), classes


@pytest.mark.parametrize(("n_objects", "n_rare"), [(20_000, 10), (50_000, 20), (50_000, 50)])
def test_a_rare_class__that_every_partition_shows_is_found(n_objects, n_rare):
    for seed in range(5):
        labels, classes = planted_with_a_rare_class(seed, n_objects, n_rare)
        model = ConsensusTree(7, random_state=seed).fit(labels)
        assert adjusted_rand(classes == 6, model.labels_ == 6) == 1.0
        assert model.has_structure_


def test_two_clusters__of_which_a_uniform_sample_has_one():
    truth = np.random.default_rng(0).permutation(np.r_[np.ones(10, int), np.zeros(49_990, int)])
    model = ConsensusTree(2, random_state=0).fit(np.column_stack([truth] * 10))
    np.testing.assert_array_equal(model.labels_, truth)
    assert model.has_structure_
    assert choose_n_clusters(np.column_stack([truth] * 10), random_state=0).n_clusters == 2


def test_labels_of_two_objects__of_fifty_thousand_are_in_the_sample():
    labels = np.full((50_000, 3), -1)
    labels[7], labels[9] = 0, 1
    for n_clusters in (2, "auto"):
        with pytest.warns(UnlabeledObjectsWarning):
            model = ConsensusTree(n_clusters, random_state=0).fit(labels)
        assert model.labels_[7] != model.labels_[9]
        assert (np.delete(model.labels_, [7, 9]) == -1).all()


def test_clusters__are_as_many_as_asked_for_where_some_that_are_cut_win_no_object():
    """Twenty Gaussians in partitions of two to ten clusters, of half of the objects each."""
    draw = np.random.default_rng(1)
    centers, classes = draw.normal(size=(20, 8)), draw.integers(20, size=1500)
    points, labels = centers[classes] + 0.25 * draw.normal(size=(1500, 8)), []
    for _ in range(40):
        nearest = points[draw.choice(1500, int(draw.integers(2, 11)), replace=False)]
        labels.append(((points[:, None] - nearest) ** 2).sum(axis=2).argmin(axis=1))
        labels[-1][draw.random(1500) < 0.5] = -1
    model = ConsensusTree(20, random_state=0).fit(np.column_stack(labels))
    assert model.n_clusters_ == 20


def test_clusters__that_the_labels_do_not_hold_are_told():
    labels = np.random.default_rng(0).integers(2, size=(300, 4))
    with pytest.warns(SurplusClustersWarning, match=r"only \d+ of n_clusters=16 clusters have objects"):
        ConsensusTree(16, random_state=0).fit(labels)


@pytest.mark.parametrize("n", [1500, 5000])  # all objects in the sample, and not
def test_objects_that_err__do_not_join_one_cluster(n):
    draw = np.random.default_rng(n)
    classes, errs = draw.integers(6, size=n), draw.random(n) < 0.2
    wrong = draw.random((n, 60)) < np.where(errs, 0.8, 0.05)[:, None]
    labels = np.where(wrong, draw.integers(6, size=(n, 60)), classes[:, None])
    model = ConsensusTree(6, random_state=0).fit(labels)
    assert adjusted_rand(classes, model.labels_) > 0.9
    assert adjusted_rand(classes, consensus_tree(labels, random_state=0).labels(6)) > 0.9


def test_a_lone_object__that_most_partitions_set_apart_is_no_cluster_of_a_given_number():
    rng, truth = np.random.default_rng(0), np.repeat([0, 1, 2], [300, 120, 80])
    labels = np.stack([truth if u % 4 == 0 else np.minimum(truth, 1) for u in range(40)], axis=1)
    labels = np.where(rng.random(labels.shape) < 0.02, rng.integers(0, 3, labels.shape), labels)
    labels[0, 4:] = 3
    model = quiet(ConsensusTree(3, random_state=0), labels)
    assert adjusted_rand(truth, model.labels_) > 0.97
    assert np.bincount(model.labels_).min() > 50


@given(label_matrices(max_objects=19), st.integers(1, 6), st.integers(1, 20))
def test_min_size__leaves_no_smaller_cluster_but_a_few_objects_that_move(labels, K, least):
    K = min(K, len(labels))
    plain, sized = (quiet(ConsensusTree(K, random_state=0, min_size=size), labels) for size in (1, least))
    assert np.array_equal(plain.labels_, quiet(ConsensusTree(K, random_state=0), labels).labels_)
    labeled = int(np.count_nonzero(plain.labels_ >= 0))
    assert sized.n_clusters_ <= max(labeled // least + 1, 1)
    assert np.count_nonzero(sized.labels_ >= 0) == labeled


@pytest.mark.parametrize("n", [1500, 30_000])  # all objects in the sample, and not
def test_min_size__joins_small_clusters_to_others_and_says_so(n):
    draw, sizes = np.random.default_rng(0), np.array([0.5, 0.3, 0.14, 0.06])
    classes = np.repeat(np.arange(4), (sizes * n).astype(int))
    labels = np.where(draw.random((n, 12)) < 0.1, draw.integers(4, size=(n, 12)), classes[:, None])
    for asked in (4, "auto"):
        with pytest.warns(SurplusClustersWarning, match="only 3 of n_clusters=4 clusters have"):
            model = ConsensusTree(asked, min_size=n // 10, random_state=0).fit(labels)
        assert np.bincount(model.labels_).min() > n // 10
        large = classes < 3
        assert adjusted_rand(classes[large], model.labels_[large]) > 0.97


def few_objects(seed):
    """Labels of 4 to 12 objects, two or more of each, and classes: most partitions join two if of one."""
    draw = np.random.default_rng(seed)
    while True:
        n, M = draw.integers(4, 13), draw.integers(3, 7)
        classes = draw.integers(draw.integers(2, n // 2 + 1), size=n)
        is_wrong, is_missing = draw.random((n, M)) < 0.1, draw.random((n, M)) < 0.05
        labels = np.where(is_wrong, draw.permutation(np.repeat(classes, M)).reshape(n, M), classes[:, None])
        labels[is_missing] = -1
        both = (labels[:, None] >= 0) & (labels >= 0)
        seen, joined = both.sum(axis=2), (both & (labels[:, None] == labels)).sum(axis=2)
        is_told = (2 * joined > seen) == (classes[:, None] == classes)
        if (
            np.ptp(classes)
            and seen.all()
            and (seen.diagonal() > 1).all()
            and is_told.all()
            and (2 * joined != seen).all()
        ):
            return labels, classes


@pytest.mark.parametrize("method", [ConsensusTree, EACGroups])
def test_few_objects__are_in_the_classes_by_which_most_partitions_divide_them(method):
    for seed in range(60):
        labels, classes = few_objects(seed)
        found = quiet(method(np.unique(classes).size, random_state=0, client="serial"), labels)
        assert adjusted_rand(classes, found.labels_) == 1.0


@pytest.mark.parametrize("sizes", [(1, 3), (2, 7), (1, 1, 6), (1, 9)])
@pytest.mark.parametrize("n_partitions", [2, 3])
def test_partitions_that_are_all_alike__are_the_consensus(sizes, n_partitions):
    classes = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.column_stack([classes] * n_partitions)
    labels[-1, 0] = -1
    found = ConsensusTree(len(sizes), random_state=0).fit(labels).labels_
    assert adjusted_rand(classes, found) == 1.0


def test_min_size__takes_clusters_further_down_the_tree_for_ones_that_are_too_small():
    draw, classes = np.random.default_rng(0), np.repeat(np.arange(6), [500, 300, 140, 60, 40, 3])
    labels = np.stack([np.where(classes == 4, 3 + u % 2, classes) for u in range(12)], axis=1)
    wrong = (draw.random(labels.shape) < 0.05) & (classes[:, None] < 5)
    labels = np.where(wrong, draw.integers(5, size=labels.shape), labels)
    plain, sized = (quiet(ConsensusTree(5, random_state=0, min_size=least), labels) for least in (1, 10))
    assert np.bincount(plain.labels_)[-1] == 3
    assert sized.n_clusters_ == 5
    assert adjusted_rand(classes[:-3], sized.labels_[:-3]) > 0.97


def test_temperature__is_at_least_that_of_one_partition():
    sample = np.tile([[0], [0], [1], [1], [1]], 4), np.array([0, 0, 0, 1, 1]), np.arange(0, 9, 2)
    table = np.tile(np.eye(2), 4)  # has no error, though the sample has one in all partitions
    assert independent_share(*sample, table, *2 * [np.log(table.T * 0.8 + 0.1)]) == 0.25
