"""The benchmark of accuracy: its do-it-yourself code, networks and kept labels, against plain definitions."""

import json
import math
from itertools import product

import numpy as np
import pytest
from accuracy import (
    CHOOSING,
    GROUPS,
    PLANTED,
    POOLS,
    REAL,
    as_labels,
    as_text,
    coassociation,
    contenders,
    eac,
    lwea,
    refusal,
    rows_of,
    taking_part,
)
from accuracy_networks import DEGREES, SIZES, communities, louvain, moved, network, paired, power_law
from accuracy_report import Scores, labels_beside, read_rows, report, rescored, summary_lines, table_of
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from bigcons.metrics import adjusted_rand, nmi


def gapped(seed, n_objects=40, n_partitions=6, missing=0.3):
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, draw.integers(2, 7, n_partitions), (n_objects, n_partitions))
    labels[draw.random(labels.shape) < missing] = -1
    labels[0] = 0  # no partition is empty
    return labels


# ---------------------------------------------------------------------------------------------- data sets


def test_groups__every_data_set_is_in_one():
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(set(names))
    assert set(names) >= {*PLANTED, *REAL, *POOLS}
    assert set(GROUPS["choosing"]).isdisjoint(GROUPS["reporting"])
    assert sorted(GROUPS["pools-choosing"] + GROUPS["pools-reporting"]) == sorted(POOLS)


# ----------------------------------------------------------------------------------------- do-it-yourself


def naive_weights(labels, theta=0.4):
    """Return exp(-entropy / (theta M)) of each base cluster, by loops over its objects."""
    n_partitions = labels.shape[1]
    found = []
    for u in range(n_partitions):
        for cluster in range(labels[:, u].max() + 1):
            entropy = 0.0
            for v in range(n_partitions):
                others = [row[v] for row in labels if row[u] == cluster and row[v] >= 0]
                for other in set(others):
                    share = others.count(other) / len(others)
                    entropy -= share * math.log2(share)
            found.append(math.exp(-entropy / (theta * n_partitions)))
    return found


def naive_coassociation(labels, weights=None):
    offsets = np.concatenate([[0], np.cumsum(labels.max(axis=0) + 1)])
    found = np.zeros((len(labels), len(labels)))
    for i, j in product(range(len(labels)), repeat=2):
        both = [u for u in range(labels.shape[1]) if labels[i, u] >= 0 and labels[j, u] >= 0]
        for u in both:
            if labels[i, u] == labels[j, u]:
                found[i, j] += (1.0 if weights is None else weights[offsets[u] + labels[i, u]]) / len(both)
    return found


def naive_average_link(similarity, n_clusters):
    groups = [[i] for i in range(len(similarity))]
    while len(groups) > n_clusters:
        pairs = [(a, b) for b in range(len(groups)) for a in range(b)]
        a, b = max(pairs, key=lambda pair: similarity[np.ix_(groups[pair[0]], groups[pair[1]])].mean())
        groups[a] += groups.pop(b)
    labels = np.empty(len(similarity), int)
    for k, group in enumerate(groups):
        labels[group] = k
    return labels


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3]))
def test_coassociation__is_the_share_of_shared_partitions(seed, missing):
    labels = gapped(seed, missing=missing)
    np.testing.assert_allclose(coassociation(labels), naive_coassociation(labels), atol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_lwea__is_average_link_of_the_locally_weighted_coassociation(seed):
    labels = gapped(seed, n_objects=30)
    similarity = naive_coassociation(labels, naive_weights(labels))
    # so small a nudge breaks ties, alike in both
    assert adjusted_rand(naive_average_link(similarity, 4), lwea(labels, 4, 0)) == pytest.approx(1)


@pytest.mark.parametrize("solve", [eac, lwea])
@given(seed=st.integers(0, 2**32 - 1), n_clusters=st.integers(1, 6))
def test_average_link__finds_at_most_the_clusters_asked_for(solve, seed, n_clusters):
    assert len(set(solve(gapped(seed), n_clusters, 0))) <= n_clusters


# ----------------------------------------------------------------------------------------------- networks


@pytest.mark.parametrize("mixing", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("seed", range(2))
def test_network__has_the_degrees_mixing_and_sizes_asked_for(mixing, seed):
    graph, community = network(1000, mixing, seed)
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


def test_network__is_the_same_for_a_seed_and_another_for_the_next():
    (first, same), (again, _), (other, _) = (network(300, 0.3, seed) for seed in (0, 0, 1))
    assert same.size == 300
    assert (first != again).nnz == 0
    assert (first != other).nnz > 0


def test_power_law__falls_as_the_power():
    drawn = np.bincount(power_law(10, 20, 2, 200_000, np.random.default_rng(0)), minlength=21)
    assert drawn[10] / drawn[20] == pytest.approx(4, rel=0.1)
    assert not drawn[:10].any()


@given(st.integers(0, 2**32 - 1), st.integers(50, 400))
def test_communities__have_room_for_the_links_inside(seed, n_nodes):
    draw = np.random.default_rng(seed)
    inner = draw.integers(1, SIZES[0], n_nodes)
    sizes = np.bincount(communities(n_nodes, inner, draw))
    assert sizes.sum() == n_nodes
    assert sizes.min() >= min(SIZES[0], n_nodes)


@pytest.mark.parametrize("inside", [True, False])
@given(seed=st.integers(0, 2**32 - 1))
def test_paired__links_are_simple_and_of_the_kind_asked_for(inside, seed):
    draw = np.random.default_rng(seed)
    community, wanted = draw.integers(0, 3, 30), draw.integers(0, 8, 30)
    links = paired(np.repeat(np.arange(30), wanted), community, inside, draw)
    assert len({frozenset(link) for link in links.tolist()}) == len(links)
    assert all(a != b and (community[a] == community[b]) == inside for a, b in links)
    assert (np.bincount(links.ravel(), minlength=30) <= wanted).all()


def modularity(graph, labels, resolution):
    graph, two_m = graph.toarray(), graph.sum()
    degrees = graph.sum(axis=1)
    return sum(
        graph[i, j] / two_m - resolution * degrees[i] * degrees[j] / two_m**2
        for i, j in product(range(len(labels)), repeat=2)
        if labels[i] == labels[j]
    )


def random_graph(seed, n_nodes=12):
    draw = np.random.default_rng(seed)
    half = np.triu(draw.integers(1, 4, (n_nodes, n_nodes)) * (draw.random((n_nodes, n_nodes)) < 0.4), 1)
    half[0, 1:] = 1  # connected
    return sparse.csr_matrix((half + half.T).astype(float)), draw


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("resolution", [0.5, 1.0, 2.0])
def test_moved__no_node_gains_by_another_move(seed, resolution):
    graph, draw = random_graph(seed)
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    order = draw.permutation(degrees.size)
    found = moved(graph.indptr, graph.indices, graph.data, degrees, resolution, order)
    reached = modularity(graph, found, resolution)
    for node, other in product(range(degrees.size), set(found)):
        changed = found.copy()
        changed[node] = other
        if graph[node][:, found == other].nnz:
            assert modularity(graph, changed, resolution) <= reached + 1e-9
    assert modularity(graph, louvain(graph, resolution, draw), resolution) >= modularity(
        graph, np.arange(degrees.size), resolution
    )


def test_louvain__finds_cliques_joined_in_a_ring():
    clique = np.ones((5, 5)) - np.eye(5)
    graph = sparse.block_diag([clique] * 6).tolil()
    for k in range(6):
        a, b = 5 * k, (5 * k + 6) % 30
        graph[a, b] = graph[b, a] = 1
    found = louvain(graph.tocsr(), 1.0, np.random.default_rng(0))
    assert adjusted_rand(np.repeat(np.arange(6), 5), found) == 1


# ------------------------------------------------------------------------------------------ rows and labels


@given(st.lists(st.integers(-1, 300), min_size=1, max_size=50), st.data())
def test_labels_as_text__come_back_the_same_but_for_names(labels, data):
    labels = np.array(labels)
    seen = labels >= 0
    back = as_labels(json.loads(json.dumps(as_text(labels), ensure_ascii=False)))
    assert (back[~seen] == -1).all()
    first = list(dict.fromkeys(labels[seen]))
    assert back[seen].tolist() == [first.index(label) for label in labels[seen]]


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


def test_taking_part__leaves_out_what_a_method_refuses(capsys):
    solvers = contenders(None)
    assert refusal("hbgf", {"weights": "nonsense"})
    assert refusal("nonsense", {})
    assert refusal("hbgf", {}) is None
    assert list(taking_part(solvers, ["hbgf", "nonsense"])) == ["hbgf"]
    assert capsys.readouterr().out == "nonsense left out: there is no such contender\n"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_labels_beside__are_named_after_the_rows(tmp_path, suffix):
    path = labels_beside(tmp_path / f"a.jsonl{suffix}")
    assert path.name == {"": "a.labels.jsonl", ".gz": "a.labels.jsonl.xz"}[suffix]
    assert read_rows(path) == []


def rows_with_labels(seeds=(0, 1)):
    solvers = {"last": last_column, "eac": lambda labels, k, seed: (eac(labels, k, seed), None)}
    for seed in seeds:
        for name in ("blobs-5", "network-0.1"):
            kind = "halves-10" if name == "blobs-5" else "louvain"
            yield from rows_of(
                name, kind, seed, solvers if name == "blobs-5" else {"last": last_column}, None
            )


@pytest.fixture(scope="module")
def solved():
    return list(rows_with_labels())


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
