"""Trees over groups of objects: their costs, merges and cuts, and the clusters they find."""

import re
import tracemalloc
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform

from bigcons import Ensemble
from bigcons.kernels.tree import pair_costs
from bigcons.metrics import adjusted_rand
from bigcons.store.clusters import least_objects
from bigcons.trust.groups import TREES, Groups, Sample, merge_groups, n_groups_for, plan_bytes, rows_for
from bigcons.trust.support import Halves
from tests.naive import tree as naive
from tests.naive.overlaps import incidence
from tests.support.labels import merged_and_cut
from tests.support.strategies import label_matrices

weights = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])


@st.composite
def tables(draw):
    """Draw the table of groups, of objects with labels or with memberships, and weights."""
    labels = draw(label_matrices(min_objects=2, max_objects=14))
    groups = np.array(draw(st.lists(st.integers(0, 4), min_size=len(labels), max_size=len(labels))))
    groups = np.unique(groups, return_inverse=True)[1]
    table, offsets = naive.table_of(labels, groups)
    if draw(st.booleans()):
        shares = draw(st.lists(st.floats(0, 1), min_size=table.shape[1], max_size=table.shape[1]))
        table = table * np.round(shares, 3)
    counts = np.array(draw(st.lists(weights, min_size=offsets.size - 1, max_size=offsets.size - 1)))
    reliable = np.array(draw(st.lists(st.floats(0.1, 1), min_size=table.shape[1], max_size=table.shape[1])))
    return table, offsets, counts if counts.any() else counts + 1.0, reliable


def test_groups__are_as_many_of_as_many_objects_as_the_page_of_methods_says():
    page = (Path(__file__).parents[2] / "docs/methods.md").read_text(encoding="utf-8").replace(",", "")
    numbers = re.search(
        r"sample of (\d+) objects \(more for more than (\d+) clusters\) (\d+) small groups three for each"
        r"\s+cluster of more than\s+(\d+)",
        page,
    )
    n_rows, of_rows, n_groups, of_groups = map(int, numbers.groups())
    assert [n_groups_for(k) for k in (1, of_groups, of_groups + 1)] == [n_groups, n_groups, 3 * of_groups + 3]
    assert [rows_for(n_groups_for(k)) for k in (1, of_rows)] == [n_rows, n_rows]
    assert rows_for(n_groups_for(of_rows + 1)) > n_rows


@given(tables(), st.sampled_from([naive.AVERAGE, naive.DISTINCT]))
def test_costs__are_those_of_pairs_one_by_one(parts, rule):
    table, offsets, counts, reliable = parts
    gains = np.repeat(counts, np.diff(offsets)) * reliable
    costs = pair_costs(rule, table, offsets, counts, gains)
    expected = naive.pair_costs(rule, table, offsets, counts, gains)
    np.testing.assert_allclose(costs, expected, atol=1e-12)


@given(tables())
def test_every_merge__is_of_the_two_groups_that_cost_least_if_all_costs_are_counted_anew(parts):
    table, offsets, counts, reliable = parts
    gains = np.repeat(counts, np.diff(offsets)) * reliable
    for rule, name in enumerate(TREES):
        tree = merge_groups(table, offsets, counts, reliable)[0][name]
        assert len(tree.sides) == len(table) - 1
        before = naive.costs_before_merges(rule, table, offsets, counts, gains, tree.sides)
        highest = tree.heights[0]
        assert highest == 0
        for costs, sides, height in zip(before, tree.sides, tree.heights[1:], strict=True):
            cost = costs[tuple(sides)]
            assert cost <= costs.min() + 1e-12
            assert height == pytest.approx(max(highest, cost), abs=1e-12)
            highest = height


@pytest.mark.parametrize("seed", range(3))
def test_average_tree__of_single_objects_is_average_link_of_the_co_association(seed):
    rng = np.random.default_rng(seed)
    labels, counts = rng.integers(3, size=(30, 25)), rng.random(25)  # weights, so that no two costs are equal
    table, offsets = naive.table_of(labels, np.arange(30))
    tree = merge_groups(table, offsets, counts, np.ones(table.shape[1]))[0]["average"]
    joined = (labels[:, None] == labels) @ counts / counts.sum()
    expected = linkage(squareform(1.0 - joined, checks=False), "average")
    np.testing.assert_allclose(tree.heights[1:], expected[:, 2], atol=1e-12)
    for n_clusters in range(1, 31):
        assert adjusted_rand(cut_tree(expected, n_clusters).ravel(), tree.cut(n_clusters)) == 1.0


def test_groups_that_no_partition_sees_together__merge_at_the_mean_cost():
    labels = np.array([[0, -1]] * 3 + [[1, -1]] * 3 + [[-1, 0]] * 3 + [[-1, 1]] * 3)
    groups = np.repeat(np.arange(4), 3)
    table, offsets = naive.table_of(labels, groups)
    for tree in merge_groups(table, offsets, np.ones(2), np.full(4, 0.5))[0].values():
        known = tree.heights[1]  # the two known costs are equal, and so is their mean
        np.testing.assert_allclose(tree.heights[1:3], known)
    alone, _ = merge_groups(np.eye(3), np.arange(4), np.ones(3), np.ones(3))
    for tree in alone.values():  # nothing is known of any two
        assert (tree.heights == 0).all()


@given(tables())
def test_cuts__have_no_more_clusters_than_asked_for_and_are_nested(parts):
    table, offsets, counts, reliable = parts
    for tree in merge_groups(table, offsets, counts, reliable)[0].values():
        finer = np.arange(len(table))
        for n_clusters in range(len(table) + 3, 0, -1):
            clusters = tree.cut(n_clusters)
            assert set(clusters) == set(range(min(n_clusters, len(table))))
            assert all(np.unique(clusters[finer == k]).size == 1 for k in set(finer))
            finer = clusters


@given(label_matrices(min_objects=2, max_objects=14), st.data())
def test_criterion__is_that_of_labels_one_by_one(labels, data):
    clusters = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(labels), max_size=len(labels))))
    clusters = np.unique(clusters, return_inverse=True)[1]
    M = labels.shape[1]
    counts = np.array(data.draw(st.lists(weights, min_size=M, max_size=M))) + 0.25
    table, offsets = naive.table_of(labels, clusters)
    known = table, offsets, counts, np.ones(table.shape[1])
    cut = Groups(clusters, np.bincount(clusters), *known, *merge_groups(*known)).cut(len(table))
    assert (cut.anmi, cut.distinctness) == pytest.approx(naive.score(labels, clusters, counts), abs=1e-9)


@given(label_matrices(min_objects=4, max_objects=20, min_partitions=2), st.integers(1, 6), st.booleans())
def test_cut__is_that_of_the_tree_with_the_better_score(labels, n_clusters, weighted):
    ensemble = Ensemble.from_labels(labels)
    labels = ensemble.read(0, len(labels)).astype(np.int64)
    counts = 1.0 + np.arange(labels.shape[1]) if weighted else None
    found = Sample(labels, ensemble.offsets, counts).groups(8)
    cut = found.cut(n_clusters)
    labeled = (labels >= 0).any(axis=1)
    assert ((found.groups >= 0) == labeled).all()
    clusters = cut.labels
    assert ((clusters >= 0) == labeled).all()
    assert set(clusters[labeled]) <= set(range(n_clusters))
    for name, tree in found.trees.items():
        other = np.append(tree.cut(n_clusters), -1)[found.groups]
        anmi, distinctness = naive.score(labels, other, found.counts)
        assert cut.anmi * cut.distinctness >= anmi * distinctness - 1e-9
        if name == cut.tree:
            assert (cut.anmi, cut.distinctness) == pytest.approx((anmi, distinctness), abs=1e-9)
        shared = found.mutual_information(name)
        assert shared[min(n_clusters, len(shared)) - 1] == pytest.approx(anmi, abs=1e-9)


def test_table_of_groups__is_that_of_their_objects():
    labels = planted(np.full(4, 0.25), 120, missing=0.4)[0]
    ensemble = Ensemble.from_labels(labels)
    labels = ensemble.read(0, 120)
    found = Sample(labels, ensemble.offsets).groups(10)
    expected, offsets = naive.table_of(labels, found.groups)
    np.testing.assert_array_equal(found.table, expected)
    np.testing.assert_array_equal(found.offsets, offsets)
    by_memberships = Sample(incidence(labels).astype(np.float32), ensemble.offsets).groups(10)
    np.testing.assert_array_equal(by_memberships.groups, found.groups)


def planted(shares, n_objects, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.choice(len(shares), n_objects, p=shares)
    return merged_and_cut(truth, missing=missing, rng=rng), truth


@pytest.mark.parametrize(
    ("shares", "missing", "least"),
    [
        ([0.2] * 5, 0.0, 0.98),
        ([0.8, 0.05, 0.05, 0.05, 0.05], 0.0, 0.98),
        ([0.2] * 5, 0.5, 0.95),
        ([0.25] * 4, 0.8, 0.8),
    ],
    ids=["equal", "unequal", "incomplete", "sparse"],
)
def test_planted_classes__are_found(shares, missing, least):
    for seed in range(2):
        labels, truth = planted(shares, 1000, missing=missing, seed=seed)
        ensemble = Ensemble.from_labels(labels)
        groups = Sample(ensemble.read(0, 1000), ensemble.offsets).groups(60)
        clusters = groups.cut(len(shares)).labels
        labeled = clusters >= 0
        assert adjusted_rand(truth[labeled], clusters[labeled]) > least


def test_a_large_class_that_partitions_cut_elsewhere__is_kept_by_the_tree_of_distinctness():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [900, 60, 40])
    places, labels = rng.random(1000), np.empty((1000, 30), np.int64)
    for u in range(30):
        part = np.searchsorted(np.sort(rng.random(5)), places)
        labels[:, u] = np.where(truth == 0, part, 6 if u % 3 == 0 else 5 + truth)
    wrong = rng.random(labels.shape) < 0.1
    labels[wrong] = rng.integers(8, size=wrong.sum())
    ensemble = Ensemble.from_labels(labels)
    groups = Sample(ensemble.read(0, 1000), ensemble.offsets).groups(100)
    found = {name: tree.cut(3)[groups.groups] for name, tree in groups.trees.items()}
    assert adjusted_rand(truth, found["average"]) < 0.5
    assert adjusted_rand(truth, found["distinctness"]) > 0.8


def test_cut__at_a_least_size_has_as_many_clusters_of_it_and_leaves_smaller_ones_out():
    rng = np.random.default_rng(0)
    truth = np.arange(603) % 3
    truth[600:] = [3, 4, 5]  # three objects, each on its own
    labels = np.where(rng.random((603, 30)) < 0.05, rng.integers(3, size=(603, 30)), truth[:, None])
    labels[600:] = truth[600:, None]
    groups = Sample(labels, np.arange(31) * 6).groups(30)
    assert least_objects(groups.sizes) == 5
    cut = groups.cut(3, least_objects(groups.sizes))
    sizes = np.bincount(cut.clusters[cut.clusters >= 0], groups.sizes[cut.clusters >= 0])
    assert sizes.size == 3
    assert sizes.min() > 150
    assert (cut.labels[600:] == -1).all()
    plain = groups.cut(3, 0)
    assert plain.clusters.tolist() == groups.trees[plain.tree].cut(3).tolist()
    assert np.bincount(plain.clusters, groups.sizes).min() < 5
    shared = groups.cut(3, trees=("average",), share=0.35)
    assert np.flatnonzero(shared.labels < 0).tolist() == [600, 601, 602]
    assert np.bincount(shared.labels[:600]).min() >= 0.35 * 603 / 3
    joined = [np.append(shared.labels[:600], rest) for rest in product(range(3), repeat=3)]
    anmi = [naive.score(labels, clusters, groups.counts)[0] for clusters in joined]
    assert np.isclose(shared.anmi, anmi, rtol=0, atol=1e-9).any()  # they count in one of the clusters


@pytest.mark.filterwarnings("ignore::bigcons.errors.SuspiciousLabelsWarning")
def test_groups__of_fine_base_clusters_take_no_more_than_planned():
    labels = np.random.default_rng(0).integers(400, size=(500, 20), dtype=np.int32)
    ensemble = Ensemble.from_labels(labels)
    labels = ensemble.read(0, 500)
    Sample(labels[:50], ensemble.offsets).groups(10)  # what is loaded and compiled once does not count
    tracemalloc.start()
    try:
        found = Sample(labels, ensemble.offsets).groups(200)
        Halves.from_groups(found, labels).agreement(["distinctness"], 30)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= plan_bytes(ensemble, 500, 200, 30)
