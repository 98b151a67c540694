"""The error curve of a dendrogram: cut by cut, as an area under a ROC curve, and where it must be 0 or 1."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.spatial.distance import pdist
from sklearn.metrics import roc_auc_score

from bigcons.errors import InvalidInputError
from bigcons.metrics import error_roc_auc
from tests.naive import metrics as naive


@st.composite
def dendrograms(draw):
    """A linkage matrix and classes with gaps."""
    n_objects = draw(st.integers(2, 10))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    points = rng.integers(0, 6, (n_objects, 2))  # with ties
    method = draw(st.sampled_from(["single", "average", "complete", "ward"]))
    classes = draw(st.lists(st.integers(-1, 2), min_size=n_objects, max_size=n_objects))
    return linkage(pdist(points), method), np.array(classes)


@settings(deadline=None)
@given(drawn=dendrograms())
def test_error_roc_auc__equals_every_cut_counted(drawn):
    merges, classes = drawn
    known = [None if c < 0 else c for c in classes.tolist()]
    expected = naive.error_roc_auc(merges[:, :2].astype(int).tolist(), known)
    if expected is None:
        with pytest.raises(InvalidInputError, match=r"no two objects of the same class|no labels"):
            error_roc_auc(merges, classes)
    else:
        assert error_roc_auc(merges, classes) == pytest.approx(expected, abs=1e-12)


@pytest.mark.peers
@pytest.mark.parametrize("method", ["single", "average", "ward", "centroid"])
def test_error_roc_auc__is_the_roc_curve_of_the_order_of_merges(method):
    rng = np.random.default_rng(1)
    classes = rng.integers(0, 3, 60)
    merges = linkage(rng.normal(size=(60, 2)) + 2 * classes[:, None], method)
    steps = merges.copy()
    steps[:, 2] = np.arange(len(merges))
    different = pdist(classes[:, None]) > 0
    assert error_roc_auc(merges, classes) == pytest.approx(1 - roc_auc_score(different, cophenet(steps)))


def test_error_roc_auc__perfect_and_worst():
    points = np.array([[0.0], [1.0], [2.0], [100.0], [101.0], [102.0]])
    merges = linkage(points, "single")
    assert error_roc_auc(merges, ["a", "a", "a", "b", "b", "b"]) == 0
    pairs = linkage([[0.0], [1.0], [100.0], [101.5]], "single")
    # the two merges of different classes come before the one that joins both pairs of the same class
    assert error_roc_auc(pairs, ["a", "b", "a", "b"]) == pytest.approx(0.75)


def test_error_roc_auc__by_chance_is_a_half():
    rng = np.random.default_rng(0)
    merges = linkage(rng.normal(size=(300, 2)), "average")
    values = [error_roc_auc(merges, rng.integers(0, 3, 300)) for _ in range(20)]
    assert np.mean(values) == pytest.approx(0.5, abs=0.01)


def test_error_roc_auc__low_where_the_dendrogram_shows_the_classes():
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 4, 200)
    points = rng.normal(size=(200, 2)) + 6 * np.eye(4)[classes] @ rng.normal(size=(4, 2)) * 2
    good, noisy = (linkage(x, "average") for x in (points, points + 5 * rng.normal(size=(200, 2))))
    assert error_roc_auc(good, classes) < error_roc_auc(noisy, classes) < 0.5


@pytest.mark.parametrize(
    ("merges", "classes", "message"),
    [
        ([[0, 1, 1.0, 2]], [0, 0, 1], "classes has 3 objects but the linkage has 2"),
        ([[0, 1, 1.0, 2]], [0, 1], "no two objects"),
        ([[0, 1, 1.0, 2]], [0, 0], "no two objects"),
        ([[0, 1, 1.0]], [0, 1], "not a linkage matrix"),
        ([[0, 5, 1.0, 2]], [0, 1], "not a linkage matrix"),
        ([[0, 1, 1.0, 2], [0, 2, 1.0, 3]], [0, 1, 1], "not a linkage matrix"),
        ([[0, 3, 1.0, 2], [1, 2, 1.0, 2]], [0, 1, 1], "not a linkage matrix"),
        ([0, 1], [0, 1], "not a linkage matrix"),
    ],
)
def test_error_roc_auc__refuses_in_one_line(merges, classes, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        error_roc_auc(merges, classes)
    assert "\n" not in str(caught.value)
