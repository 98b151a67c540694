"""The number of clusters: recommended for planted ensembles, and taken by the estimators for "auto"."""

from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse

import bigcons as bc
from bigcons.errors import ConsensusWarning, InvalidInputError, MemoryBudgetError
from bigcons.methods.base import ConsensusClusterer
from bigcons.metrics import adjusted_rand
from bigcons.progress import Progress, report_progress_to
from bigcons.store.clusters import NClustersChoice, evidence, merit
from bigcons.trust.groups import FIRST_GROUPS, Sample, nearest_of_rows
from bigcons.trust.n_clusters import judge
from tests.naive import tree as naive
from tests.support.labels import merged_and_cut


def planted(n_classes, n_objects=240, missing=0.0):
    truth = np.arange(n_objects) % n_classes
    return merged_and_cut(truth, missing=missing), truth


@pytest.fixture(scope="module")
def five():
    return planted(5)


@pytest.mark.parametrize(("n_classes", "missing"), [(3, 0.0), (5, 0.5), (8, 0.0), (12, 0.3)])
def test_choose__finds_the_planted_number(n_classes, missing):
    choice = bc.choose_n_clusters(planted(n_classes, missing=missing)[0], random_state=0)
    assert choice.n_clusters == n_classes
    assert choice.runner_up != n_classes
    assert choice.is_clear
    assert choice.row(n_classes)["lifetime"] > choice.row(choice.runner_up)["lifetime"]


def test_choose__does_not_count_outliers_as_clusters():
    """Each partition has the outliers in any cluster, so that every one of them is as distinct as a class."""
    rng = np.random.default_rng(0)
    truth = np.arange(600) % 4
    labels = np.where(rng.random((600, 60)) < 0.1, rng.integers(4, size=(600, 60)), truth[:, None])
    labels[::30] = 10 + np.arange(20)[:, None]
    choice = bc.choose_n_clusters(labels, random_state=0)
    assert (choice.n_clusters, choice.is_clear) == (4, True)


@pytest.mark.parametrize("n_partitions", [15, 60])
def test_choose__does_not_count_objects_that_err_as_a_cluster(n_partitions):
    draw = np.random.default_rng(3)
    classes, errs = draw.integers(6, size=(1500, 1)), draw.random((1500, 1)) < 0.2
    is_wrong = draw.random((1500, n_partitions)) < np.where(errs, 0.8, 0.05)
    labels = np.where(is_wrong, draw.integers(6, size=is_wrong.shape), classes)
    choice = bc.choose_n_clusters(labels, random_state=0)
    assert choice.n_clusters == 6
    assert choice.is_clear


@pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning")
@pytest.mark.parametrize("n_clusters", ["auto", 2])
def test_a_sample_without_labels__is_refused(n_clusters):
    labels = np.full((50_000, 3), -1)
    labels[7], labels[9] = 0, 1
    with pytest.raises(InvalidInputError, match=r"none of the \d+ sampled objects has a label; leave out"):
        bc.PCC(n_clusters, random_state=0).fit(labels)


@pytest.mark.parametrize("n_coarse", [30, 34])
def test_auto__warns_where_the_next_best_number_is_nearly_as_good(n_coarse):
    rng, truth = np.random.default_rng(0), np.arange(400) % 4
    levels = (truth // 2 if number < n_coarse else truth for number in range(40))
    labels = [np.where(rng.random(400) < 0.05, rng.integers(4, size=400), level) for level in levels]
    with pytest.warns(ConsensusWarning, match="2 is nearly as") if n_coarse == 34 else nullcontext():
        bc.consensus(np.column_stack(labels), "auto", random_state=0)


def test_table__has_a_row_for_each_number_and_that_of_most_merit_is_the_recommendation(five):
    choice = bc.choose_n_clusters(five[0], k_range=(3, 9), random_state=0)
    table = choice.table
    assert table["n_clusters"].tolist() == list(range(3, 10))
    assert {len(column) for column in table.values()} == {7}
    order = table["n_clusters"][np.argsort(-merit(table), kind="stable")]
    assert [choice.n_clusters, choice.runner_up] == order[:2].tolist()
    assert ((table["distinctness"] >= 0) & (table["distinctness"] <= 1)).all()
    assert (np.diff(table["distinctness"]) <= 0).all()
    assert choice.runner_up_share == np.divide(*np.sort(merit(table))[-2:])
    assert f"5 clusters; agreement of halves 1.00; next best {choice.runner_up} at 0." in repr(choice)
    assert choice.n_sampled == 240


def test_evidence__counts_what_is_not_agreed_on_against_a_number_and_all_larger_ones():
    lifetime, agreement = np.array([0.1, 0.3, 0.0, 0.5]), np.array([1.0, 0.9, np.nan, 0.6])
    table = {"n_clusters": np.arange(1, 5), "lifetime": lifetime, "agreement": agreement}
    np.testing.assert_allclose(evidence(table), [0.1, 0.24, -0.03, 0.3 - 0.2 - 0.03])
    told = [NClustersChoice(4, None, table, of_one, 9).is_clear for of_one in (0.2, 0.3)]
    assert told == [True, False]


def test_merit__is_the_evidence_and_a_share_of_the_quality():
    labels = planted(5)[0]
    sample = Sample(labels, bc.Ensemble.from_labels(labels).offsets)
    groups = sample.groups(FIRST_GROUPS)
    found = judge(sample, groups, FIRST_GROUPS, np.arange(len(labels)))
    table, anmi = found.choice.table, found.groups.mutual_information("average")
    agreement = found.halves.agreement(["average"], 8)[0]
    np.testing.assert_allclose(table["quality"][:8], anmi[:8] * agreement, atol=1e-12)
    assert table["quality"][0] == 0.0
    np.testing.assert_allclose(merit(table), evidence(table) + table["quality"] / 8)


def test_weights__count_partitions_as_if_they_occurred_that_often(five):
    labels, weights = five[0][:, :9], np.array([1, 2, 1, 0, 1, 3, 1, 1, 2])
    weighted = bc.choose_n_clusters(labels, weights=weights, random_state=0)
    repeated = bc.choose_n_clusters(np.repeat(labels, weights, axis=1), random_state=0)
    for name in ("distinctness", "lifetime"):  # a half has a partition once, whatever its weight
        np.testing.assert_allclose(weighted.table[name][1:], repeated.table[name][1:], atol=1e-9)


def test_choice__is_the_same_on_any_engine_and_from_a_store(tmp_path):
    labels = planted(5, n_objects=2_400)[0]
    bc.Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=320)
    first = bc.choose_n_clusters(bc.Ensemble.from_labels(labels), random_state=3, client="serial")
    second = bc.choose_n_clusters(str(tmp_path / "e.zarr"), random_state=3, client="threads")
    assert first.n_sampled == 2_000
    assert first.n_clusters == second.n_clusters == 5
    for name, column in first.table.items():
        np.testing.assert_array_equal(column, second.table[name])


def test_choose__takes_soft_clusterings_as_the_labels_they_are(five):
    labels = five[0][:, :12]
    memberships = [(column[:, None] == np.arange(column.max() + 1)).astype(np.float32) for column in labels.T]
    soft = bc.choose_n_clusters(bc.Ensemble.from_memberships(memberships), random_state=0)
    hard = bc.choose_n_clusters(labels, random_state=0)
    for name, column in hard.table.items():
        np.testing.assert_allclose(column, soft.table[name], atol=1e-6)


def test_choose__finds_many_communities_by_groups_of_centers():
    rng = np.random.default_rng(0)
    truth = np.arange(4_000) % 220
    labels = np.column_stack([rng.integers(150, size=220)[truth] for _ in range(12)])
    wrong = rng.random(labels.shape) < 0.02
    labels[wrong] = rng.integers(150, size=wrong.sum())
    choice = bc.choose_n_clusters(labels, random_state=0)
    assert choice.n_clusters == 220
    assert choice.is_clear


@pytest.mark.parametrize("n_columns", [1, 2, 7, 40])
def test_nearest_of_rows__are_those_of_the_product(n_columns):
    rng = np.random.default_rng(0)
    rows = rng.integers(4, size=(60, 9)) * (rng.random((60, 9)) < 0.4)
    columns = rng.random((9, n_columns)).round(1) * (rng.random((9, n_columns)) < 0.6)
    rows[[0, 5, 59]] = 0
    given = scipy.sparse.csr_array(rows * 1.0), scipy.sparse.csr_array(columns)
    groups, alike = nearest_of_rows(*given)
    expected = naive.nearest(rows.tolist(), columns.tolist())
    np.testing.assert_array_equal(groups, [group for group, _ in expected])
    np.testing.assert_allclose(alike, [largest for _, largest in expected], rtol=1e-14)
    given[0].data[:] *= 0.0
    assert not np.any(nearest_of_rows(*given))


def test_choose__reports_each_doubling_and_each_half():
    told = []

    class Listener(Progress):
        def start(self, what, total, unit):
            self.of = [what, total, 0]
            told.append(self.of)

        def advance(self, n):
            self.of[2] += n

    labels = planted(40, n_objects=3000)[0]  # more clusters than half of the first groups
    with report_progress_to(Listener):
        bc.ConsensusTree("auto", random_state=0, client="serial").fit(labels)
    merged = [what for what, *_ in told if what.startswith("merge ")]
    assert merged[:2] == [f"merge {n} groups to choose n_clusters" for n in (30, 60)]
    # the same sample has 30 groups and 60
    assert [what for what, *_ in told[:3]] == ["sample to choose n_clusters", *merged[:2]]
    halves = {what: (total, done) for what, total, done in told if "halves" in what}
    assert len(halves) == 3
    assert set(halves.values()) == {(8, 8)}


@pytest.mark.parametrize("labels", [np.zeros((5, 3), int), [[0]], [[0, -1], [-1, 0]], np.eye(3, dtype=int)])
def test_choose__copes_with_tiny_ensembles(labels):
    choice = bc.choose_n_clusters(np.asarray(labels), random_state=0)
    assert 1 <= choice.n_clusters <= len(labels)


def test_choose__of_a_single_partition_is_its_number_of_clusters(five):
    assert bc.choose_n_clusters(five[1][:, None], random_state=0).n_clusters == 5


@pytest.mark.parametrize("k_range", [(0, 3), (5, 3), (2, 10_000), "ab", 7, (2, 3, 4)])
def test_choose__refuses_what_is_no_range(five, k_range):
    with pytest.raises(InvalidInputError) as caught:
        bc.choose_n_clusters(five[0], k_range=k_range)
    assert str(caught.value.parameter).startswith("k_range")


def test_choose__refuses_a_budget_that_cannot_hold_the_sample(five):
    with pytest.raises(MemoryBudgetError) as caught:
        bc.choose_n_clusters(five[0], memory="1MB")
    assert caught.value.needed > 1e6


@pytest.mark.parametrize("method", [bc.ConsensusTree, bc.PCC, bc.HBGF])
def test_auto__is_the_fit_with_the_number_chosen_and_is_resumed(five, method, tmp_path):
    auto = method("auto", random_state=0).fit(five[0], out=tmp_path / "c.zarr")
    again = method("auto", random_state=0).fit(five[0], out=tmp_path / "c.zarr")
    np.testing.assert_array_equal(again.labels_, auto.labels_)
    assert auto.n_clusters == "auto"
    assert auto.n_clusters_choice_.n_clusters == 5
    given = method(5, random_state=0).fit(five[0])
    assert adjusted_rand(auto.labels_, given.labels_) == 1.0  # of other groups, numbers may differ
    assert adjusted_rand(auto.predict(five[0]), given.predict(five[0])) == 1.0


@pytest.mark.parametrize("method", [bc.ConsensusTree, bc.EACGroups])
def test_auto__cuts_the_tree_that_is_kept(method):
    """Trees whose cuts differ, of partitions by the nearest of some objects, 30 of which lie apart."""
    draw = np.random.default_rng(2)
    x = draw.normal(size=(300, 2))
    x[:30] += 4
    centers = [x[draw.choice(300, draw.integers(2, 9))] for _ in range(12)]
    labels = np.transpose([np.linalg.norm(x[:, None] - of, axis=2).argmin(axis=1) for of in centers])
    model = method("auto", random_state=0).fit(labels)
    assert model.n_clusters_ > 1
    assert model.chosen_tree_ == model.tree_.tree
    if method is bc.ConsensusTree:
        of_tree = bc.consensus_tree(labels, random_state=0).labels()
        assert adjusted_rand(model.labels_, of_tree) == 1.0


def test_auto__is_refused_by_methods_that_do_not_choose(five):
    for method in bc.METHODS.values():
        if not method.chooses:
            model = method("auto")
            assert isinstance(model, ConsensusClusterer)
            with pytest.raises(InvalidInputError):
                model.fit(five[0])
    with pytest.raises(InvalidInputError) as caught:
        bc.EACAverage("auto").fit(five[0])
    assert caught.value.parameter == "n_clusters"
    with pytest.raises(InvalidInputError):
        bc.HBGF("many").fit(five[0])
