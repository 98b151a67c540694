"""Criteria of the papers' experiments: learning curves, t-test, error curves of dendrograms, compactness."""

import math

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist
from scipy.stats import t as student
from sklearn.cluster import KMeans

from bigcons.errors import InvalidInputError
from bigcons.io.features import open_features
from bigcons.methods.did import DID
from bigcons.methods.evidence import EAC, EACAverage
from bigcons.metrics import compactness, error_roc, error_roc_auc, learning_curve, paired_t_test
from tests.naive import metrics as naive

METRICS = ("euclidean", "sqeuclidean", "cityblock")


def test_learning_curve__of_the_truth_is_1_less_chance_which_fades_with_size():
    truth = np.random.default_rng(0).integers(0, 4, 5000)
    scores = learning_curve(lambda sample, _: truth[sample], truth, [10, 100, 5000], random_state=0)
    means = scores.mean(axis=1)
    assert (scores <= 1).all()
    assert means[0] < means[1] < means[2]
    assert means[2] == pytest.approx(1, abs=0.01)
    assert means[0] < 0.9


def test_learning_curve__rises_for_k_means_and_repeats_with_its_seed():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 600)
    points = rng.normal(size=(600, 2)) + 4 * np.array([[0, 0], [1, 0], [0, 1]])[truth]

    def cluster(sample, seed):
        return KMeans(3, n_init=3, random_state=seed).fit_predict(points[sample])

    scores = learning_curve(cluster, truth, [12, 300], n_repetitions=5, random_state=3)
    np.testing.assert_array_equal(
        scores, learning_curve(cluster, truth, [12, 300], n_repetitions=5, random_state=3)
    )
    assert scores[1].mean() > scores[0].mean()


@pytest.mark.parametrize(
    ("sizes", "cluster", "message"),
    [
        ([5], lambda sample, _: sample, "sizes=5"),
        ([0], lambda sample, _: sample, "sizes=0"),
        ([2], lambda sample, _: [0], "2 objects but b has 1"),
    ],
)
def test_learning_curve__refuses_in_one_line(sizes, cluster, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        learning_curve(cluster, [0, 1, 1, -1, 0], sizes)
    assert "\n" not in str(caught.value)


def test_paired_t_test__by_the_textbook():
    a, b = np.array([0.61, 0.55, 0.58, 0.60]), np.array([0.66, 0.58, 0.66, 0.62])
    found = paired_t_test(a, b)
    differences = a - b
    expected = differences.mean() / (differences.std(ddof=1) / 2)
    assert found.mean_difference == pytest.approx(-0.045)
    assert found.statistic == pytest.approx(expected)
    assert found.p_value == pytest.approx(student.cdf(expected, df=3))
    assert (found.sd_a, found.sd_b) == pytest.approx((a.std(ddof=1), b.std(ddof=1)))
    assert found.p_value < 0.05


@pytest.mark.parametrize(
    ("a", "b"), [([1], [2]), ([1, 2], [1]), ([[1, 2]], [[1, 2]]), ([1, math.nan], [1, 2])]
)
def test_paired_t_test__refuses_in_one_line(a, b):
    with pytest.raises(InvalidInputError, match="finite scores of the same") as caught:
        paired_t_test(a, b)
    assert "\n" not in str(caught.value)


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


@st.composite
def clustered_features(draw):
    n_objects, n_features = draw(st.integers(1, 15)), draw(st.integers(1, 3))
    value = st.floats(-100, 100, width=32)
    features = draw(
        st.lists(
            st.lists(value, min_size=n_features, max_size=n_features), min_size=n_objects, max_size=n_objects
        )
    )
    labels = st.lists(st.integers(-1, 3), min_size=n_objects, max_size=n_objects)
    return np.array(features), draw(labels.filter(lambda labels: max(labels) >= 0))


def in_blocks(features):
    """Return features of three columns in blocks of 32 rows."""
    data = open_features(features)
    data.chunk_rows = 32
    return data


@pytest.fixture
def planted():
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 4, 150)
    return rng.normal(size=(150, 3)).astype(np.float32) + 3 * labels[:, None], labels


@pytest.mark.parametrize("metric", METRICS)
@settings(deadline=None)
@given(data=clustered_features())
def test_compactness__equals_naive(metric, data):
    features, labels = data
    expected = naive.compactness(
        features.tolist(), [None if label < 0 else label for label in labels], metric
    )
    assert compactness(features, labels, metric=metric) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("metric", METRICS)
def test_compactness__out_of_core_equals_memory_for_any_engine(metric, planted, tmp_path):
    features, labels = planted
    np.save(tmp_path / "x.npy", features)
    zarr.create_array(tmp_path / "x.zarr", data=features, chunks=(7, 3))
    parquet.write_table(pa.table({f"f{c}": features[:, c] for c in range(3)}), tmp_path / "x.parquet")
    np.savetxt(tmp_path / "x.csv", features, delimiter=",", header="a,b,c", comments="", fmt="%.17g")
    sources = [features, *(tmp_path / f"x.{kind}" for kind in ("npy", "zarr", "parquet", "csv"))]
    values = [
        compactness(in_blocks(source), labels, metric=metric, client=client)
        for source in sources
        for client in ("serial", "threads")
    ]
    assert len(set(values)) == 1
    whole = naive.compactness(features.tolist(), [None if x < 0 else x for x in labels.tolist()], metric)
    assert values[0] == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize(
    ("features", "labels", "options", "message"),
    [
        ([[1.0], [2.0]], [0], {}, "labels has 1 objects but the features have 2"),
        ([[1.0]], [-1], {}, "no labels"),
        ([[1.0]], [0], {"metric": "cosine"}, "'euclidean', 'sqeuclidean', 'cityblock'"),
        ([[float("nan")]], [0], {}, "row 0"),
    ],
)
def test_compactness__refuses_in_one_line(features, labels, options, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        compactness(features, labels, **options)
    assert "\n" not in str(caught.value)
