"""Which clusters of a sample are distinct, and the path along which those that are not are merged."""

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from bigcons import Ensemble
from bigcons.coassociation.factorized import incidence_of
from bigcons.metrics import adjusted_rand
from bigcons.overlaps.merging import CLEAR_ROWS, Pairs, _separated, _terms, merge


def planted(n_classes, n_objects=240, n_partitions=30, seed=0, missing=0.0):
    """Labels of partitions that merge classes, or cut them each in a place of its own."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n_objects) % n_classes
    place = rng.random((n_objects, 3))  # of objects within their class
    labels = np.empty((n_objects, n_partitions), int)
    for u in range(n_partitions):
        labels[:, u] = rng.permutation(n_classes)[truth] % int(rng.integers(2, n_classes + 1))
        if u % 2:
            direction = rng.normal(size=3)
            labels[:, u] = 2 * labels[:, u] + ((place - 0.5) @ direction > 0)
    labels[rng.random(labels.shape) < missing] = -1
    return labels, truth


def parts(labels):
    ensemble = Ensemble.from_labels(labels)
    labels = ensemble.read(0, len(labels))
    return incidence_of(labels, ensemble.offsets), ensemble.offsets, np.ones(ensemble.n_partitions)


def table_of(incidence, clusters):
    return incidence.T @ np.eye(clusters.max() + 1)[clusters]


def test_separated__is_the_share_of_entropy_explained_beyond_chance():
    labels, truth = planted(4, missing=0.2)
    clusters = (truth + np.arange(240) // 120) % 4
    incidence, offsets, _ = parts(labels)
    table = table_of(incidence, clusters)
    found = _separated(table, offsets, 1, slice(None), *_terms(table, offsets))
    for u in range(labels.shape[1]):
        for k in (0, 2, 3):
            seen = (labels[:, u] >= 0) & np.isin(clusters, (1, k))
            x, y, n = labels[seen, u], clusters[seen], np.count_nonzero(seen)
            chance = 0.5 * (np.unique(x).size - 1) / n
            share = (mutual_info_score(x, y) - chance) / (mutual_info_score(y, y) - chance)
            assert found[u, k] == pytest.approx(min(max(share, 0.0), 1.0), abs=1e-9)


@pytest.mark.parametrize(("n_classes", "missing"), [(2, 0.0), (5, 0.4), (9, 0.0)])
def test_merge__leaves_the_planted_classes_distinct_and_no_more(n_classes, missing):
    labels, truth = planted(n_classes, 480, missing=missing)
    pieces = n_classes * (np.arange(480) // 240) + truth  # every class in two
    path = merge(*parts(labels), pieces)
    assert path.numbers[0] <= 2 * n_classes
    assert (np.diff(path.numbers) < 0).all()
    numbers = np.arange(1, 3 * n_classes)
    assert numbers[path.scores(numbers).argmax()] == n_classes
    distinctness = path.distinctness_of(numbers)
    assert np.isnan(distinctness[0])
    assert distinctness[n_classes] < 0.6 < distinctness[n_classes - 1]
    assert (distinctness[2 * n_classes :] == 0).all()
    clusters = path.clusters[int(np.flatnonzero(path.numbers == n_classes)[0])]
    assert adjusted_rand(truth, clusters) > 0.99


def test_merged_pairs__are_those_of_the_merged_table():
    labels, truth = planted(6)
    incidence, offsets, counts = parts(labels)
    pairs = Pairs.of(table_of(incidence, truth), offsets, counts)
    merged = table_of(incidence, np.where(truth == 4, 1, truth - (truth > 4)))
    by_row = pairs.merged(1, 4, merged, offsets)
    again = Pairs.of(merged, offsets, counts)
    assert by_row.distinctness.shape == again.distinctness.shape == (5, 5)
    np.testing.assert_allclose(pairs.distinctness, pairs.distinctness.T)
    expected = pairs.summed(_separated(merged, offsets, 1, slice(None), *_terms(merged, offsets)))
    np.testing.assert_allclose(by_row.distinctness[1, [0, 2, 3, 4]], expected[[0, 2, 3, 4]])


def test_partitions_of_weight_zero__do_not_count():
    labels, truth = planted(4)
    noise = np.random.default_rng(1).integers(3, size=(240, 5))
    incidence, offsets, counts = parts(np.column_stack([labels, noise]))
    counts[30:] = 0
    with_noise, without = merge(incidence, offsets, counts, truth), merge(*parts(labels), truth)
    np.testing.assert_array_equal(with_noise.numbers, without.numbers)
    np.testing.assert_allclose(with_noise.distinctness, without.distinctness)


def test_merge__copes_with_many_clusters_one_cluster_and_one_object_each():
    labels, _ = planted(3, 240, 12)
    incidence, offsets, counts = parts(labels)
    path = merge(incidence, offsets, counts, np.arange(240) % (CLEAR_ROWS + 10))
    assert path.numbers[0] > 3
    assert ((path.distinctness >= 0) & (path.distinctness <= 1)).all()
    path = merge(incidence, offsets, counts, np.zeros(240, int))
    assert path.numbers.size == 0
    assert path.scores(np.array([1, 2])).argmax() == 0
    tiny = merge(*parts(np.arange(4)[:, None]), np.arange(4))
    assert np.isfinite(tiny.distinctness).all()
