"""Criteria of a consensus over its ensemble, and of this alone: plain definitions, published values."""

import tracemalloc
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bigcons import Ensemble, metrics
from bigcons.contingency import SYMMETRIC
from bigcons.errors import InvalidInputError
from bigcons.metrics import anmi, average_criterion, cluster_names, expected_loss, pac
from tests.naive import loss as naive_loss
from tests.naive import metrics as naive
from tests.support.labels import SEVEN
from tests.support.refusals import refused
from tests.support.strategies import label_matrices

NAIVE = {
    "adjusted_rand": lambda a, b: 1 if naive.adjusted_rand(a, b) is None else naive.adjusted_rand(a, b),
    "matching_accuracy": naive.matching_accuracy,
    "nmi": naive.nmi,
    "rand_index": lambda a, b: 1 if naive.rand_index(a, b) is None else naive.rand_index(a, b),
    "van_dongen": naive.van_dongen,
    "variation_of_information": naive.variation_of_information,
}


@st.composite
def compared(draw):
    """Draw an ensemble with gaps, labels with gaps, and weights; some objects are in both."""
    x = draw(label_matrices(min_objects=2, max_objects=15))
    labels = np.array(draw(st.lists(st.integers(-1, 3), min_size=len(x), max_size=len(x))))
    weights = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=x.shape[1], max_size=x.shape[1]))
    assume((((x >= 0) & (labels >= 0)[:, None]).any(axis=0) & (np.array(weights) > 0)).any())
    return x, labels, weights


def columns(labels):
    return [[None if label < 0 else label for label in column] for column in labels.T.tolist()]


def test_anmi__published_grouping_is_best_of_all():
    values = {tuple(labels): anmi(SEVEN, labels) for labels in naive.groupings(7, 3)}
    assert len(values) == 301
    best, second = sorted(values, key=values.__getitem__, reverse=True)[:2]
    assert (best, second) == ((0, 0, 0, 1, 1, 2, 2), (0, 0, 0, 1, 2, 2, 2))
    assert (values[best], values[second]) == pytest.approx((0.717818, 0.715889), abs=1e-6)


@given(case=compared(), weighted=st.booleans())
def test_average__equals_naive(case, weighted):
    x, labels, _ = case
    known = columns(labels[:, None])[0]
    for name in SYMMETRIC:
        expected = naive.average(NAIVE[name], columns(x), known, weighted=weighted)
        assert average_criterion(name, x, labels, weighted=weighted) == pytest.approx(expected, abs=1e-12)
    expected = naive.anmi(columns(x), known)
    assert anmi(x, labels) == pytest.approx(expected, abs=1e-12)
    assert anmi(x, [None if k is None else "abcd"[k] for k in known]) == pytest.approx(expected, abs=1e-12)


@given(case=compared(), loss=st.sampled_from(["vi", "binder"]))
def test_expected_loss__is_the_mean_by_objects_compared_and_weights(case, loss):
    x, labels, weights = case
    result = expected_loss(x, labels, loss=loss, weights=weights)
    assert result == pytest.approx(naive_loss.expected(x, labels, loss, weights), abs=1e-12)


def test_anmi__counts_what_is_left_out_as_no_agreement():
    """Of nine labels the consensus covers those of the first two objects, on which all agree."""
    labels = np.array([[0, 0, 0], [1, 1, 1], [0, 1, 1]])
    assert anmi(labels, [0, 1, -1]) == pytest.approx(6 / 9)
    assert average_criterion("nmi", labels, [0, 1, -1], weighted=True) == pytest.approx(1.0)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_average__stored_equals_memory_for_any_engine(name, tmp_path):
    rng = np.random.default_rng(0)
    labels, consensus = rng.integers(-1, 5, (200, 9)), rng.integers(-1, 4, 200)
    stored = Ensemble.from_labels(labels).save(tmp_path / "ensemble.zarr", chunk_rows=32)
    engines = [(x, client) for x in (labels, stored) for client in ("serial", "threads")]
    assert len({average_criterion(name, x, consensus, client=client) for x, client in engines}) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: average_criterion("purity", x, [0] * 7), "choose one of 'adjusted_rand'"),
        (lambda x: anmi(x, [0, 1]), "2 objects but the ensemble has 7"),
        (lambda x: anmi(x, [-1] * 7), "no labels"),
        (lambda x: anmi(np.where(np.arange(7) == 2, -1, x.T).T, [-1, -1, 0, -1, -1, -1, -1]), "no object is"),
        (lambda x: expected_loss(x, [0] * 7, loss="rand"), "loss"),
        (lambda x: expected_loss(x, [0] * 7, weights=[1.0]), "weights"),
    ],
)
def test_criteria__refuse_in_one_line(call, message):
    with refused(message):
        call(SEVEN)


@pytest.mark.filterwarnings("ignore::bigcons.errors.SuspiciousLabelsWarning")  # all labels differ
@pytest.mark.parametrize("n_clusters", [1_000, 1_100, 5_000])  # on both sides of a million cells
@pytest.mark.parametrize("criterion", NAIVE)
def test_average__of_very_many_clusters(criterion, n_clusters):
    labels = np.repeat(np.arange(n_clusters), 2)
    partitions = np.stack([labels, labels, labels // 2], axis=1)
    halved = average_criterion(criterion, partitions[:, 2:], labels)
    same = float(criterion not in ("van_dongen", "variation_of_information"))
    result = average_criterion(criterion, partitions, labels, weights=[1.0, 1.0, 2.0])
    assert result == pytest.approx((same + halved) / 2)
    assert halved == pytest.approx(getattr(metrics, criterion)(labels, labels // 2))
    objects = np.append(labels, [0, 1]), np.append(labels // 2, [-1, -1])  # that some leave out
    assert halved == pytest.approx(average_criterion(criterion, objects[1][:, None], objects[0]))
    assert anmi(partitions[:, :2], np.where(labels < n_clusters // 2, labels, -1)) == pytest.approx(0.5)


@given(st.integers(0, 10_000))
def test_cluster_names__are_the_labels_that_the_objects_have_most_often(seed):
    draw = np.random.default_rng(seed)
    words = np.array(["ash", "beech", "cedar", "fir", None], object)[draw.integers(0, 5, (12, 4))]
    words[0], clusters = "ash", np.append(0, draw.integers(0, 3, 11))
    words[[0, -1], -1] = "yew"
    counts = {k: Counter(words[clusters == k].ravel().tolist()) for k in np.unique(clusters).tolist()}
    assume(all(set(count) > {None} for count in counts.values()))
    expected, used = {}, Counter()
    for k, count in counts.items():
        del count[None]
        name = min(count, key=lambda word: (-count[word], word))
        used[name] += 1
        expected[k] = name if used[name] == 1 else f"{name} {used[name]}"
    assert cluster_names(words, clusters) == expected


def test_cluster_names__of_many_clusters_and_names_hold_no_table_of_both():
    names = np.array([f"type {number}" for number in range(6000)])
    tracemalloc.start()
    result = cluster_names(names[:, None], np.arange(6000), client="serial")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert list(result.values()) == names.tolist()
    assert peak < 6000**2


def test_cluster_names__of_numbers_and_of_objects_without_labels_are_refused(tmp_path):
    words = np.array([["ash", "ash"], ["ash", "fir"], [None, None]], object)
    path = Ensemble.from_labels(words).save(tmp_path / "e.zarr").path
    assert cluster_names(path, ["x", "y", None]) == {"x": "ash", "y": "ash 2"}
    with pytest.raises(InvalidInputError, match="the objects of cluster 1 have no label in text; give"):
        cluster_names(words, [0, 0, 1])
    with pytest.raises(InvalidInputError, match="the objects of cluster 0 have no label in text; give"):
        cluster_names([[0, 1], [1, 1]], [0, 0])


@given(arrays(int, st.tuples(st.integers(2, 9), st.integers(1, 12)), elements=st.integers(-1, 1)))
def test_pac__is_the_share_of_pairs_that_some_but_not_most_partitions_join(labels):
    assume((labels >= 0).any(axis=0).all())
    shares = []
    for a, b in combinations(labels.tolist(), 2):
        both = [(p, q) for p, q in zip(a, b, strict=True) if min(p, q) >= 0]
        if both:
            shares.append(sum(p == q for p, q in both) / len(both))
    if not shares:
        with pytest.raises(InvalidInputError, match="no partition labels two"):
            pac(labels)
        return
    expected = sum(0.1 < share <= 0.9 for share in shares) / len(shares)
    assert pac(labels) == pytest.approx(expected)
