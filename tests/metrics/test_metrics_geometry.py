"""Compactness: against all pairs and scikit-learn, in pieces and out of core."""

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from bigcons.errors import InvalidInputError
from bigcons.io.features import open_features
from bigcons.metrics import compactness
from bigcons.metrics.geometry import METRICS
from tests.naive import metrics as naive


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
