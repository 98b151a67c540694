"""The benchmark of accuracy: its do-it-yourself code, networks and kept labels, against plain definitions."""

import numpy as np
import pytest
from accuracy import CHOOSING, GROUPS, PLANTED, POOLS, REAL, as_text, coassociation, eac, lwea, rows_of
from accuracy_networks import DEGREES, SIZES, louvain, network
from accuracy_report import Scores, report, rescored, summary_lines, table_of
from scipy import sparse
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from bigcons.metrics import adjusted_rand, nmi
from tests.naive import linkage, reliability


def gapped(seed, n_objects=40, n_partitions=6, missing=0.3):
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, draw.integers(2, 7, n_partitions), (n_objects, n_partitions))
    labels[draw.random(labels.shape) < missing] = -1
    labels[0] = 0  # no partition is empty
    return labels


def test_groups__every_data_set_is_in_one():
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(set(names))
    assert set(names) >= {*PLANTED, *REAL, *POOLS}
    assert set(GROUPS["choosing"]).isdisjoint(GROUPS["reporting"])
    assert sorted(GROUPS["pools-choosing"] + GROUPS["pools-reporting"]) == sorted(POOLS)


@pytest.mark.parametrize("seed", range(4))
def test_average_link__is_that_of_scipy_of_the_naive_coassociation(seed):
    labels = gapped(seed, n_objects=30)
    shares = [[float(linkage.similarity(labels.tolist(), i, j)) for j in range(30)] for i in range(30)]
    np.testing.assert_allclose(coassociation(labels), shares, atol=1e-6)
    similarity = reliability.coassociation(labels, normalize="observed")
    tree = hierarchy.linkage(squareform(1 - similarity, checks=False), "average")
    # so small a nudge breaks ties, alike in both
    assert adjusted_rand(linkage.left_after_merges(tree, 4), lwea(labels, 4, 0)) == pytest.approx(1)
    assert len(set(eac(labels, 4, 0))) <= 4


@pytest.mark.parametrize("mixing", [0.1, 0.5])
def test_network__has_the_degrees_mixing_and_sizes_asked_for(mixing):
    graph, community = network(1000, mixing, 0)
    links = graph.tocoo()
    assert (graph != graph.T).nnz == 0
    assert not graph.diagonal().any()
    assert set(graph.data) == {1.0}
    degrees = np.diff(graph.indptr)
    assert degrees.max() <= DEGREES[1]
    assert (degrees >= DEGREES[0] - 1).mean() > 0.99  # stubs without a partner are dropped
    assert np.mean(community[links.row] != community[links.col]) == pytest.approx(mixing, abs=0.02)
    sizes = np.bincount(community)
    assert sizes.sum() == 1000
    assert sizes.min() >= SIZES[0]


def test_louvain__finds_cliques_joined_in_a_ring():
    clique = sparse.csr_array(np.ones((5, 5)) - np.eye(5))
    graph = sparse.block_diag([clique] * 6).tolil()
    for k in range(6):
        a, b = 5 * k, (5 * k + 6) % 30
        graph[a, b] = graph[b, a] = 1
    found = louvain(graph.tocsr(), 1.0, np.random.default_rng(0))
    assert adjusted_rand(np.repeat(np.arange(6), 5), found) == 1


def last_column(labels, n_clusters, seed):
    """A contender that keeps the order of rows."""
    return labels[:, -1], None


def refusing(labels, n_clusters, seed):
    raise ValueError("not this one")


def test_rows_of__labels_are_in_the_order_of_the_data_and_score_as_the_row(tmp_path):
    draw = np.random.default_rng(0)
    classes = draw.integers(0, 4, 50)
    labels = np.column_stack([draw.integers(0, 3, 50), draw.integers(0, 5, 50)])
    labels[7] = -1
    labels[8, 1] = 9
    np.savez(tmp_path / "mine.pool.3.npz", labels=labels, classes=classes)
    given_rows = []

    def noted(labels, n_clusters, seed):
        given_rows.append(labels)
        return last_column(labels, n_clusters, seed)

    solvers = {"noted": noted, "refusing": refusing}
    (row, found), (refused, nothing) = rows_of("mine", "pool", 3, solvers, tmp_path)
    seen = np.arange(50) != 7
    assert sorted(map(tuple, given_rows[0])) == sorted(map(tuple, labels))
    assert (given_rows[0] != labels).any()
    assert found == as_text(labels[:, 1])
    assert row["ari"] == pytest.approx(float(adjusted_rand(classes[seen], labels[seen, 1])), abs=1e-4)
    assert (row["classes"], row["clusters"]) == (4, np.unique(labels[seen, 1]).size)
    assert nothing is None
    assert refused["ari"] == 0
    assert refused["refused"] == "ValueError: not this one"


@pytest.fixture(scope="module")
def solved():
    """Rows and labels of two contenders on one data set, and of one of them on another."""
    last, both = {"last": last_column}, {"last": last_column, "eac": lambda *given: (eac(*given), None)}
    sets = (("blobs-5", "halves-10", both), ("network-0.1", "louvain", last))
    return [
        row for seed in (0, 1) for name, kind, how in sets for row in rows_of(name, kind, seed, how, None)
    ]


@pytest.mark.parametrize(("measure", "what"), [(adjusted_rand, "ari"), (nmi, "nmi")])
def test_rescored__by_the_same_measure_is_the_same(solved, measure, what):
    rows = [row for row, _ in solved]
    again = list(rescored([row | {"labels": found} for row, found in solved], measure))
    assert [row["ari"] for row in again] == pytest.approx([row[what] for row in rows], abs=1e-4)


def test_report__means_ranks_and_shortfalls_are_plain(solved):
    rows = [row for row, _ in solved]
    cells = {}
    for row in rows:
        if row["data"] == "blobs-5":
            cells.setdefault((row["data"], row["kind"], row["seed"]), {})[row["contender"]] = row
    table = table_of(Scores.of(cells, ["last", "eac"]))["contenders"]
    for name in ("last", "eac"):
        ari = [cell[name]["ari"] for cell in cells.values()]
        short = [max(row["ari"] for row in cell.values()) - cell[name]["ari"] for cell in cells.values()]
        assert table[name]["ari"] == pytest.approx(np.mean(ari), abs=1e-4)
        assert table[name]["shortfall"] == pytest.approx(np.mean(short), abs=1e-4)
        assert table[name]["worst"] == pytest.approx(max(short), abs=1e-4)
    found = report(rows, {"choosing": CHOOSING, "networks": GROUPS["networks"]})
    lines = summary_lines(found)
    assert lines[0] == "| contender | choosing | networks |"
    assert lines[-1].startswith("| eac |")  # on one of two groups: last
    assert lines[-1].endswith("| |")
