"""Which answers to trust: against the definitions, and on planted classes."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons import Ensemble, contingency
from bigcons.datasets import planted_ensemble
from bigcons.metrics import adjusted_rand, nmi, reliability, trust
from bigcons.trust.placement import EXTRA, random_half
from tests.naive import trust as naive
from tests.support.refusals import refused
from tests.support.strategies import label_matrices

EXACT = {"rel": 1e-5, "abs": 1e-5}  # confidence is stored in single precision


@st.composite
def consensuses(draw):
    """Draw an ensemble, its labels, and clusters 0 .. K - 1, some objects in none."""
    ensemble = Ensemble.from_labels(draw(label_matrices(min_objects=2, max_objects=8, max_clusters=3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    clusters = rng.integers(-1, draw(st.integers(1, 4)), ensemble.n_objects)
    clusters[0] = max(clusters[0], 0)
    clusters[clusters >= 0] = np.unique(clusters[clusters >= 0], return_inverse=True)[1]
    return ensemble, ensemble.read(0, ensemble.n_objects), clusters


@given(consensuses())
def test_trust__gives_the_probabilities_of_all_other_objects(drawn):
    ensemble, labels, clusters = drawn
    found = trust(ensemble, clusters, client="serial")
    assert found.temperature == pytest.approx(naive.temperature(labels, clusters, EXTRA))
    for i, cluster in enumerate(clusters):
        if cluster < 0:
            assert (found.confidence[i], found.second_labels[i], found.second_confidence[i]) == (0, -1, 0)
            continue
        shares = naive.posterior(labels, clusters, i, found.temperature, EXTRA)
        assert found.confidence[i] == pytest.approx(shares[cluster], **EXACT)
        if len(shares) == 1:
            assert (found.second_labels[i], found.second_confidence[i]) == (-1, 0)
            continue
        shares[cluster] = -1
        assert shares[found.second_labels[i]] == pytest.approx(shares.max(), **EXACT)
        assert found.second_confidence[i] == pytest.approx(shares.max(), **EXACT)


@settings(max_examples=20)
@given(consensuses())
def test_trust__describes_clusters_by_their_pairs(drawn):
    ensemble, labels, clusters = drawn
    found = trust(ensemble, clusters, client="serial")
    table = found.clusters.to_pydict()
    members = [np.flatnonzero(clusters == k) for k in range(clusters.max() + 1)]
    assert table["cluster"] == list(range(len(members)))
    assert table["size"] == [len(rows) for rows in members]
    assert table["confidence"] == pytest.approx([found.confidence[rows].mean() for rows in members], **EXACT)
    stable = naive.stability(labels, clusters, random_half(labels.shape[1]), found.temperature, EXTRA)
    assert numbers(table["stability"]) == pytest.approx(stable, nan_ok=True)
    cohesion = np.array([naive.coassociation(labels, rows, rows) for rows in members])
    assert numbers(table["cohesion"]) == pytest.approx(cohesion, nan_ok=True)
    for k, rows in enumerate(members):
        across = [naive.coassociation(labels, rows, other) for other in members]
        across[k] = -1.0
        closest = np.nanmax(across)
        if closest < 0:
            assert (table["separation"][k], table["nearest"][k]) == (None, -1)
            continue
        assert across[table["nearest"][k]] == pytest.approx(closest)
        assert numbers([table["separation"][k]])[0] == pytest.approx(cohesion[k] - closest, nan_ok=True)


@settings(max_examples=20)
@given(consensuses())
def test_trust__describes_partitions_by_their_pairs(drawn):
    ensemble, labels, clusters = drawn
    table = trust(ensemble, clusters, client="serial").partitions.to_pydict()
    assert table["partition"] == ensemble.names
    for u, column in enumerate(labels.T):
        both = (column >= 0) & (clusters >= 0)
        i, j = np.triu_indices(np.count_nonzero(both), 1)
        joined, same = (codes[both][i] == codes[both][j] for codes in (column, clusters))
        assert table["n_labeled"][u] == np.count_nonzero(both)
        if both.any():
            assert table["nmi"][u] == pytest.approx(nmi(column[both], clusters[both]))
            assert table["adjusted_rand"][u] == pytest.approx(adjusted_rand(column[both], clusters[both]))
        for name, pairs in (("hit_rate", same), ("false_join_rate", ~same)):
            expected = joined[pairs].mean() if pairs.any() else np.nan
            assert numbers([table[name][u]])[0] == pytest.approx(expected, nan_ok=True)
        alike = {}
        for v, other in enumerate(labels.T):
            shared = (column >= 0) & (other >= 0)
            if v != u and np.count_nonzero(shared) > 1:
                alike[ensemble.names[v]] = adjusted_rand(column[shared], other[shared])
        if not alike:
            assert (table["redundancy"][u], table["most_alike"][u]) == (None, None)
            continue
        assert table["redundancy"][u] == pytest.approx(max(alike.values()))
        assert alike[table["most_alike"][u]] == pytest.approx(max(alike.values()))


def numbers(column):
    """Return a column with nan in place of null."""
    return np.array(column, float)


@pytest.fixture(scope="module")
def planted():
    """Return an ensemble with 10 partitions drawn at random and one that occurs twice, and its classes."""
    ensemble, classes = planted_ensemble(1500, 40, missing=0.3, random_state=3)
    labels = np.array(ensemble.read(0, 1500), np.int64)
    rng = np.random.default_rng(0)
    labels[:, :10] = np.where(labels[:, :10] >= 0, rng.integers(0, 5, (1500, 10)), -1)
    labels[:, 20] = labels[:, 21]
    return labels, classes


def test_trust__gives_random_partitions_no_weight(planted):
    table = trust(*planted).partitions.to_pydict()
    assert max(table["weight"][:10]) < 0.02
    assert min(table["weight"][10:]) > 0.2
    assert np.mean(table["weight"]) == pytest.approx(1.0)
    hits, false_joins = np.array(table["hit_rate"]), np.array(table["false_join_rate"])
    assert np.abs(hits - false_joins)[:10].max() < 0.02
    assert max(table["redundancy"][:10]) < 0.05
    assert table["redundancy"][20:22] == [1.0, 1.0]
    assert (table["most_alike"][20], table["most_alike"][21]) == ("p21", "p20")


def test_trust__is_sure_of_right_labels_and_not_of_wrong_ones(planted):
    labels, classes = planted
    given = classes.copy()
    wrong = np.arange(0, 1500, 50)
    given[wrong] = (classes[wrong] + 1) % 6
    found = trust(labels, given)
    assert np.delete(found.confidence, wrong).mean() > 0.93
    assert found.confidence[wrong].mean() < 0.1
    assert np.mean(found.second_labels[wrong] == classes[wrong]) > 0.85


def test_trust__names_clusters_by_their_labels(planted):
    labels, classes = planted
    few, many = trust(labels, classes), trust(labels, classes * 100 + 7)
    assert (many.second_labels == few.second_labels * 100 + 7).all()
    assert many.clusters["cluster"].to_pylist() == [7, 107, 207, 307, 407, 507]
    assert many.confidence.tobytes() == few.confidence.tobytes()


def test_trust__has_the_same_bits_on_every_engine(planted, tmp_path):
    labels, classes = planted
    Ensemble.from_labels(labels).save(tmp_path / "e.zarr", chunk_rows=128)
    serial, threads = (trust(tmp_path / "e.zarr", classes, client=c) for c in ("serial", "threads"))
    in_memory = trust(labels, classes)
    for name in ("confidence", "second_labels", "second_confidence"):
        assert getattr(serial, name).tobytes() == getattr(threads, name).tobytes()
        assert getattr(serial, name).tobytes() == getattr(in_memory, name).tobytes()
    assert serial[3:] == threads[3:]
    assert serial.partitions == in_memory.partitions


def test_reliability__is_of_bins_of_equal_width():
    truth = np.array([0, 0, 0, 1, 1, 1, -1, 0])
    labels = np.array([5, 5, 3, 3, 3, 5, 5, -1])  # 5 is class 0, 3 is class 1
    confidence = np.array([1.0, 0.9, 0.9, 0.4, 0.5, 0.1, 0.2, 0.0])
    found = reliability(truth, labels, confidence, n_bins=4)
    assert found.n_objects.tolist() == [1, 1, 1, 3]
    np.testing.assert_allclose(found.confidence, [0.1, 0.4, 0.5, 2.8 / 3])
    np.testing.assert_allclose(found.accuracy, [0, 1, 1, 2 / 3])
    assert found.error == pytest.approx((0.1 + 0.6 + 0.5 + 0.8) / 6)


def test_trust__compares_partitions_by_all_pairs_of_objects_coarse_and_fine_ones():
    rng = np.random.default_rng(0)
    widths = np.array([2, 5, 3, 60, 50, 1, 4, 40])
    labels = rng.integers(0, widths, (150, widths.size), dtype=np.int32)
    labels[rng.random(labels.shape) < 0.3] = -1
    offsets = np.concatenate([[0], np.cumsum(widths)])
    index, others = contingency.adjusted_rand_of_partitions(labels, offsets, pairs=8 * 4)
    assert others.tolist() == [0, 2, 4, 6]
    for u, (r, v) in itertools.product(range(widths.size), enumerate(others)):
        both = (labels[:, u] >= 0) & (labels[:, v] >= 0)
        expected = np.nan if u == v else adjusted_rand(labels[both, u], labels[both, v])
        assert index[u, r] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trust(np.zeros((3, 2), int), [0, 1]), "2 objects"),
        (lambda: trust(np.zeros((3, 2), int), ["a", "b", "c"]), "whole numbers"),
        (lambda: trust(np.zeros((3, 2), int), [0, 1, 2**31]), "whole numbers"),
        (lambda: reliability([0, 1, 1], [0, 1, 1], [0.5, 0.5]), "pass one row each"),
        (lambda: reliability([0, 1, 1], [0, 1, 1], [0.5, np.nan, 0.5]), "pass probabilities"),
    ],
)
def test_trust_and_reliability__refuse_in_one_line(call, message):
    with refused(message):
        call()
