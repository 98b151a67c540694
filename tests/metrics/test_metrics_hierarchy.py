"""The error curve of a dendrogram: cut by cut, as an area under a ROC curve, and where it must be 0 or 1."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from bigcons.errors import InvalidInputError
from bigcons.methods.did import DID
from bigcons.methods.evidence import EAC, EACAverage
from bigcons.metrics import error_roc, error_roc_auc
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


@given(drawn=dendrograms(), seed=st.integers(0, 100))
def test_error_roc__of_rows_is_that_of_their_objects_after_the_first_merges(drawn, seed):
    merges, _ = drawn
    n_rows = len(merges) + 1
    rng = np.random.default_rng(seed)
    rows = np.concatenate([np.arange(n_rows), rng.integers(-1, n_rows, 8)])
    classes = rng.integers(-1, 3, len(rows))
    kept = rows >= 0
    # the same dendrogram over objects: first those of each row, one after another, then the rows
    tree = _over_objects(merges, rows[kept])
    curves = []
    for asked in (
        lambda: error_roc(merges, classes, row_of_object=rows),
        lambda: error_roc(tree, classes[kept]),
    ):
        try:
            curves.append(asked())
        except InvalidInputError:
            curves.append(None)
    if curves[0] is None or curves[1] is None:
        assert curves[0] is curves[1] is None
        return
    by_rows, by_objects = curves
    assert [errors[0] for errors in by_rows] == [1, 0]
    for found, expected in zip(by_rows, by_objects, strict=True):
        np.testing.assert_allclose(found[1:], expected[-n_rows:], atol=1e-12)


def _over_objects(merges, rows):
    """Return the dendrogram of objects that merges those of equal rows first."""
    found = []
    cluster_of_row = {}
    for member, row in enumerate(rows.tolist()):
        if row in cluster_of_row:
            found.append([cluster_of_row[row], member, 0.0, 0])
            cluster_of_row[row] = len(rows) + len(found) - 1
        else:
            cluster_of_row[row] = member
    n_rows = len(merges) + 1
    for step, (left, right, height, _) in enumerate(merges.tolist()):
        found.append([cluster_of_row[left], cluster_of_row[right], height, 0])
        cluster_of_row[n_rows + step] = len(rows) + len(found) - 1
    return np.array(found).reshape(-1, 4)


@pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning")
def test_error_roc__takes_the_dendrograms_of_the_estimators():
    rng = np.random.default_rng(0)
    classes = np.repeat([0, 1, 2], 40)
    points = rng.normal(size=(120, 2)) + 6 * np.eye(3)[classes][:, :2]
    labels = np.where(rng.random((120, 6)) < 0.1, rng.integers(3, size=(120, 6)), classes[:, None])
    labels[[3, 50]] = -1
    aucs = []
    for model in (EACAverage(3), EAC(3, linkage="ward"), DID(3, features=points)):
        model.fit(labels)
        assert model.linkage_[-1, 3] == 118  # sizes in objects
        separated, joined = error_roc(model.linkage_, classes, row_of_object=model.row_of_object_)
        assert ((np.diff(separated) <= 0) & (np.diff(joined) >= 0)).all()
        assert (separated[0], joined[0], separated[-1], joined[-1]) == (1, 0, 0, 1)
        aucs.append(error_roc_auc(model.linkage_, classes, row_of_object=model.row_of_object_))
        assert aucs[-1] == pytest.approx(np.trapezoid(separated, joined))
        shuffled = rng.permutation(classes)
        assert aucs[-1] < 0.1
        assert 0.3 < error_roc_auc(model.linkage_, shuffled, row_of_object=model.row_of_object_) < 0.7
    alone = EACAverage(1).fit(np.zeros((4, 2), int))  # one distinct row: all objects join in one step
    found = error_roc(alone.linkage_, [0, 0, 1, 1], row_of_object=alone.row_of_object_)
    np.testing.assert_array_equal(found, [[1, 0], [0, 1]])


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
