"""Criteria of the papers' experiments: learning curves, t-test, error curves of dendrograms, compactness."""

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist
from scipy.stats import t as student

from bigcons.errors import InvalidInputError
from bigcons.io.features import open_features
from bigcons.methods.evidence import DID, EAC, EACAverage
from bigcons.metrics import compactness, error_roc, error_roc_auc, learning_curve, paired_t_test, vat_order
from tests.naive import metrics as naive
from tests.support.refusals import refused


def test_learning_curve__of_the_truth_is_1_less_chance_which_fades_with_size():
    truth = np.random.default_rng(0).integers(0, 4, 5000)
    scores = learning_curve(lambda sample, _: truth[sample], truth, [10, 100, 5000], random_state=0)
    means = scores.mean(axis=1)
    assert (scores <= 1).all()
    assert means[0] < means[1] < means[2]
    assert means[0] < 0.9 < means[2] == pytest.approx(1, abs=0.01)


def test_paired_t_test__by_the_textbook():
    a, b = np.array([0.61, 0.55, 0.58, 0.60]), np.array([0.66, 0.58, 0.66, 0.62])
    result = paired_t_test(a, b)
    differences = a - b
    expected = differences.mean() / (differences.std(ddof=1) / 2)
    assert result.mean_difference == pytest.approx(-0.045)
    assert result.statistic == pytest.approx(expected)
    assert result.p_value == pytest.approx(student.cdf(expected, df=3))
    assert (result.sd_a, result.sd_b) == pytest.approx((a.std(ddof=1), b.std(ddof=1)))
    assert result.p_value < 0.05
    with refused("a has 4 scores but b 1"):  # which NumPy would repeat
        paired_t_test(a, b[:1])


@st.composite
def dendrograms(draw):
    """A linkage matrix and classes with gaps."""
    n_objects = draw(st.integers(2, 10))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    points = rng.integers(0, 6, (n_objects, 2))  # with ties
    method = draw(st.sampled_from(["single", "average", "complete", "ward"]))
    classes = draw(st.lists(st.integers(-1, 2), min_size=n_objects, max_size=n_objects))
    return linkage(pdist(points), method), np.array(classes)


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
    result = error_roc(alone.linkage_, [0, 0, 1, 1], row_of_object=alone.row_of_object_)
    np.testing.assert_array_equal(result, [[1, 0], [0, 1]])


@given(n_objects=st.integers(1, 15), n_features=st.integers(1, 3), seed=st.integers(0, 999))
def test_compactness__equals_naive(n_objects, n_features, seed):
    rng = np.random.default_rng(seed)
    features, labels = rng.normal(size=(n_objects, n_features)), rng.integers(-1, 4, n_objects)
    labels[0] = 0
    known = [None if label < 0 else label for label in labels.tolist()]
    expected = naive.compactness(features.tolist(), known, "euclidean")
    assert compactness(features, labels) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_compactness__out_of_core_equals_memory_for_any_engine(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 4, 150)
    features = rng.normal(size=(150, 3)).astype(np.float32) + 3 * labels[:, None]
    np.save(tmp_path / "x.npy", features)
    zarr.create_array(tmp_path / "x.zarr", data=features, chunks=(7, 3))
    parquet.write_table(pa.table({f"f{c}": features[:, c] for c in range(3)}), tmp_path / "x.parquet")
    values = set()
    for source in (features, *(tmp_path / f"x.{kind}" for kind in ("npy", "zarr", "parquet"))):
        for client in ("serial", "threads"):
            data = open_features(source)
            data.chunk_rows = 32  # in blocks
            values.add(compactness(data, labels, client=client))
    assert len(values) == 1
    known = [None if x < 0 else x for x in labels.tolist()]
    whole = naive.compactness(features.tolist(), known, "euclidean")
    assert values.pop() == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: learning_curve(lambda sample, _: [0], [0, 1, 1, -1, 0], [2]), "2 objects but b has 1"),
        (lambda: error_roc_auc([[0, 1, 1.0, 2]], [0, 0, 1]), "classes has 3 objects but the linkage has 2"),
        (lambda: error_roc_auc([[0, 1, 1.0, 2]], [0, 0]), "no two objects"),
        (lambda: error_roc_auc([[0, 1, 1.0]], [0, 1]), "not a linkage matrix"),
        (lambda: error_roc_auc(object(), [0, 1]), r"linkage of shape \(\) is not a linkage matrix"),
        (lambda: vat_order(np.ones((3, 2))), r"has shape \(3, 2\); pass \(n, n\)"),
        (lambda: error_roc_auc([[0, 4, 1.0, 2], [1, 3, 1.0, 2]], [0, 0, 1]), "not a linkage matrix"),
        (lambda: error_roc_auc([[0, 3, 1.0, 2], [1, 2, 1.0, 2]], [0, 0, 1]), "not a linkage matrix"),
        (lambda: compactness([[1.0], [2.0]], [0]), "labels has 1 objects but the features have 2"),
        (lambda: compactness([[float("nan")]], [0]), "row 0"),
    ],
)
def test_criteria__refuse_in_one_line(call, message):
    with refused(message):
        call()
