"""The tree of clusters: SciPy takes it, cuts keep what they promise, labels are the same on any engine."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import dendrogram, fcluster, is_valid_linkage

import bigcons as bc
from bigcons.datasets import planted_ensemble
from bigcons.errors import CorruptStoreError, InvalidInputError, MemoryBudgetError
from bigcons.metrics import adjusted_rand
from bigcons.trust.groups import TREES
from tests.support.clusters import local_client


@pytest.fixture(scope="module")
def six():
    return planted_ensemble(900, 40, noise=(0.0, 0.2), random_state=3)


@pytest.fixture(scope="module")
def tree(six):
    return bc.consensus_tree(six[0], tree="distinctness", random_state=0)


def members(tree):
    """The leaves of the two sides of every merge."""
    G = len(tree.sizes)
    leaves = [{g} for g in range(G)]
    for one, two in tree.merges[:, :2].astype(int).tolist():
        leaves.append(leaves[one] | leaves[two])
    return [(leaves[int(a)], leaves[int(b)]) for a, b in tree.merges[:, :2]]


def test_tree_and_choice__take_the_columns_of_a_table_that_are_partitions():
    ensemble, _ = planted_ensemble(300, 10, random_state=0)
    labels = ensemble.to_pandas()
    table = labels.assign(cell=[f"c{i}" for i in range(300)], batch=np.arange(300) % 2)
    for find in (bc.choose_n_clusters, bc.consensus_tree):
        expected = repr(find(ensemble, random_state=0))
        for chosen in ({"columns": "p*"}, {"id": "cell", "drop": "batch"}, {"columns": list(labels.columns)}):
            assert repr(find(table, random_state=0, **chosen)) == expected


@pytest.mark.parametrize("name", [*TREES, None])
def test_tree__is_a_linkage_and_has_a_row_for_each_split(six, name):
    tree = bc.consensus_tree(six[0], tree=name, random_state=0)
    G = len(tree.sizes)
    assert isinstance(tree, bc.ClusterTree)
    assert tree.tree in TREES
    assert is_valid_linkage(tree.merges)
    assert (np.diff(tree.merges[:, 2]) >= 0).all()
    assert len(dendrogram(tree.merges, no_plot=True)["leaves"]) == G
    assert tree.sizes.sum() == 900
    table = tree.table().to_pydict()
    assert table["split"] == list(range(1, G))
    assert table["objects"][0] == 900
    for split, n_clusters in zip(table["split"], table["n_clusters"], strict=True):
        nodes = fcluster(tree.merges, split + 1, "maxclust")
        is_tied = nodes.max() < split + 1
        assert is_tied or n_clusters == np.count_nonzero(np.bincount(nodes, tree.sizes) >= 5)
    for at, (one, two) in enumerate(reversed(members(tree))):
        sizes = sorted((int(tree.sizes[list(side)].sum()) for side in (one, two)), reverse=True)
        assert [table["larger"][at], table["smaller"][at]] == sizes
    np.testing.assert_array_equal(table["support"], tree.support[::-1])
    for K in (2, 5, 9):
        by_scipy = fcluster(tree.merges, K, "maxclust")
        assert by_scipy.max() < K or adjusted_rand(by_scipy, tree.cut(K)) == 1.0


@pytest.mark.parametrize("weights", [None, np.arange(12)])
def test_labels__of_memberships_that_are_labels_are_those_of_the_labels(six, weights):
    labels = six[0].read(0, 900)[:, :12]
    soft = [(column[:, None] == np.arange(column.max() + 1)).astype(np.float32) for column in labels.T]
    hard = bc.consensus_tree(labels, weights=weights, random_state=0)
    told = bc.consensus_tree(bc.Ensemble.from_memberships(soft), weights=weights, random_state=0)
    np.testing.assert_allclose(told.support, hard.support, atol=1e-6)
    assert adjusted_rand(hard.labels(6), told.labels(6)) > 0.99


def same(one, two):
    """Whether two trees are equal but for what places objects."""
    (facts, arrays), (other_facts, others) = one.parts(), two.parts()
    assert facts == other_facts
    assert arrays.keys() == others.keys()
    for name, values in arrays.items():
        np.testing.assert_array_equal(values, others[name])
    return repr(one) == repr(two)


def test_tree__of_a_chosen_number_is_kept_by_the_fit_and_by_its_store(six, tmp_path):
    model = bc.MCLA("auto", random_state=0).fit(six[0])
    solved = bc.MCLA("auto", random_state=0).fit(six[0], out=tmp_path / "c.zarr")
    assert same(model.tree_, bc.consensus_tree(six[0], random_state=0))
    kept = bc.Consensus.open(tmp_path / "c.zarr")
    assert same(kept.tree, model.tree_)
    assert same(bc.MCLA("auto", random_state=0).fit(six[0], out=tmp_path / "c.zarr").tree_, solved.tree_)
    kept.verify()
    with pytest.raises(InvalidInputError, match=r"make it by consensus_tree\(ensemble\)"):
        kept.tree.labels()
    assert same(bc.Report(kept, pictures=False).tree, model.tree_)
    bc.MCLA(6).fit(six[0], out=tmp_path / "given.zarr")
    assert bc.Consensus.open(tmp_path / "given.zarr").tree is None
    (tmp_path / "c.zarr" / "tree.npz").write_bytes(b"?")
    with pytest.raises(CorruptStoreError, match=r"tree.npz is damaged \(wrong checksum\)"):
        kept.verify()


@given(st.integers(1, 40), st.integers(1, 400), st.floats(0, 1))
def test_cut__keeps_its_promises(tree, most, min_size, min_support):
    clusters = tree.cut(most, min_size=min_size, min_support=min_support)
    sizes = np.bincount(clusters[clusters >= 0], tree.sizes[clusters >= 0])
    assert 1 <= len(sizes) <= most
    assert (np.diff(sizes) <= 0).all()
    assert len(sizes) == 1 or sizes.min() >= min_size
    by_number, by_support = tree.cut(most), tree.cut(min_support=min_support)
    assert by_number.min() == by_support.min() == 0
    assert by_number.max() + 1 == min(most, max(tree.table()["n_clusters"].to_pylist()))
    for support, (one, two) in zip(tree.support, members(tree), strict=True):
        if len({int(by_support[g]) for g in one | two}) == 1:  # a split within a cluster
            assert support < min_support


@pytest.fixture(scope="module")
def unequal():
    """Labels of clusters of 8,000 to 250 objects; a sample has more than their share of the small ones."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(6), [8000, 4000, 2000, 1000, 500, 250])
    wrong = rng.random((truth.size, 20)) < 0.05
    return bc.Ensemble.from_labels(np.where(wrong, rng.integers(6, size=wrong.shape), truth[:, None])), truth


def test_tree__estimates_how_many_objects_small_clusters_have(unequal):
    ensemble, truth = unequal
    tree = bc.consensus_tree(ensemble, random_state=0)
    cut, planted = tree.cut(6), np.bincount(truth)
    assert tree.is_sampled
    assert tree.sizes[cut == 5].sum() / tree.sizes.sum() > 1.5 * 250 / truth.size
    np.testing.assert_allclose(np.bincount(cut, tree.objects), planted, rtol=0.25)
    table = tree.table().to_pandas()[:5]
    assert table["objects"][0] == truth.size
    np.testing.assert_allclose(np.sort(table["smaller"])[0], 250, rtol=0.25)
    assert tree.cut(min_size=400).max() + 1 == 5


def test_tree_of_a_fit__has_the_sizes_and_numbers_of_its_clusters(unequal, tmp_path):
    ensemble, truth = unequal
    model = bc.ConsensusTree("auto", random_state=0).fit(ensemble, out=tmp_path / "c.zarr")
    sizes = np.bincount(model.labels_)
    assert sizes.size == 6
    for tree in (model.tree_, bc.Consensus.open(tmp_path / "c.zarr").tree):
        np.testing.assert_allclose(np.bincount(tree.cut(), tree.objects), sizes, rtol=0.02)
    names = {text.get_text() for text in bc.plots.tree(model).axes[0].get_yticklabels()}
    assert names == {f"{k}: {size / truth.size:.1%}" for k, size in enumerate(sizes)}


def test_labels__have_the_numbers_of_the_cut(unequal):
    tree = bc.consensus_tree(unequal[0], random_state=0)
    numbers = np.array([2, 0, 3, 1])
    np.testing.assert_array_equal(tree.placer(numbers[tree.cut(4)], None), numbers[tree.labels(4)])


def test_cut__of_the_number_recommended_passes_over_outliers(six):
    labels = np.array(six[0].read(0, 900))
    labels[:3] = labels.max(axis=0) + 1 + np.arange(3)[:, None]  # each alone in every partition
    tree = bc.consensus_tree(labels, tree="distinctness", random_state=0)
    assert tree.choice.n_clusters == 6
    found = tree.cut()
    sizes = np.bincount(found[found >= 0], tree.sizes[found >= 0])
    assert sizes.size == 6
    assert sizes.min() >= 5
    np.testing.assert_array_equal(found, tree.cut(6))
    assert (np.diff([tree.cut(k).max() for k in range(1, 99)]) >= 0).all()
    table = tree.table().to_pydict()
    assert 1 in table["smaller"][: table["n_clusters"].index(6)]
    for K in (2, 4, 6, 8):
        assert tree.cut(K).max() + 1 == len(tree.branches(K)) + 1 == K
        last = table["n_clusters"].index(K)
        assert table["smaller"][last] >= 5
        assert table["n_clusters"][:last] == sorted(table["n_clusters"][:last])
    branches, G = tree.branches(), len(tree.sizes)
    assert len(branches) == 5
    assert {node for pair in branches.values() for node in pair} >= set(list(branches)[1:])
    ends = {node for pair in branches.values() for node in pair} - set(branches)
    leaves = [{g} for g in range(G)] + [one | two for one, two in members(tree)]
    assert sorted(np.unique(found[list(leaves[node])]).tolist() for node in ends) == [[k] for k in range(6)]


def test_tree__tells_what_is_wrong(six, tree):
    with pytest.raises(InvalidInputError, match=r"tree='ward' is unknown; choose one of 'average'"):
        bc.consensus_tree(six[0], tree="ward")
    with pytest.raises(InvalidInputError, match="min_support"):
        tree.cut(min_support=2)
    alone = bc.consensus_tree(six[0].read(0, 900)[:, :1], random_state=0)
    with pytest.raises(InvalidInputError, match="the support of splits is not known"):
        alone.cut(min_support=0.5)
    assert alone.table()["support"].null_count == len(alone.sizes) - 1
    with pytest.raises(MemoryBudgetError):
        bc.consensus_tree(six[0], memory="1MB")


@pytest.mark.parametrize("labels", [np.zeros((5, 3), int), [[0]], np.eye(3, dtype=int)])
def test_tree__of_tiny_ensembles_shows_itself(labels):
    tree = bc.consensus_tree(np.asarray(labels), random_state=0)
    assert "ClusterTree" in repr(tree)
    assert len(tree.labels()) == len(labels)


def test_labels__find_the_classes_and_are_the_same_on_any_engine_and_from_a_store(tmp_path):

    ensemble, truth = planted_ensemble(2_400, 30, noise=(0.0, 0.2), missing=0.3, random_state=1)
    rows = ensemble.read(0, 2_400).copy()
    rows[7] = -1
    ensemble = bc.Ensemble.from_labels(rows)
    ensemble.save(tmp_path / "e.zarr", chunk_rows=320)
    first = bc.consensus_tree(ensemble, random_state=3, client="serial")
    labels = first.labels(6, client="serial")
    with local_client(threads_per_worker=2, processes=False) as client:
        for engine in ("threads", client):
            second = bc.consensus_tree(tmp_path / "e.zarr", random_state=3, client=engine)
            np.testing.assert_array_equal(first.merges, second.merges)
            np.testing.assert_array_equal(first.support, second.support)
            np.testing.assert_array_equal(labels, second.labels(6, client=engine))
    assert labels[7] == -1
    assert (np.delete(labels, 7) >= 0).all()
    assert (np.diff(np.bincount(labels[labels >= 0])) <= 0).all()
    assert adjusted_rand(truth, labels) > 0.9
    assert first.labels(1).max() == 0
