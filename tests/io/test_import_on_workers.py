"""Dask arrays of labels on a cluster: workers compute, keep and write the chunks, with the same bits."""

import os
import time
from pathlib import Path

import dask
import dask.array
import distributed
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble, select
from bigcons.errors import EmptyPartitionError, InvalidInputError
from bigcons.io import memory
from bigcons.io.codes import EncodingBuilder
from bigcons.store.ensemble import import_labels
from tests.support.stores import names_in
from tests.support.strategies import label_matrices

ROWS = [700, 1300, 1, 998]
CHUNKED = {"chunk_rows": 512}


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def made(number, folder=None, dies=False):
    """Return a chunk; note which process made it, which dies the first time if it is to."""
    if folder is not None:
        is_first = not list(Path(folder).glob(f"{number}-*"))
        (Path(folder) / f"{number}-{os.getpid()}-{time.monotonic_ns()}").touch()
        if dies and is_first:
            os._exit(1)
    rng = np.random.default_rng(number)
    return rng.integers(-1, 4, (ROWS[number], 3)) * [1, 1_000_000, 7]


def lazy(folder=None, change=None, dtype=np.int64, dies=False):
    chunks = [
        dask.delayed(made)(number, folder and str(folder), dies and number == 2)
        for number in range(len(ROWS))
    ]
    if change is not None:
        chunks = [dask.delayed(change)(chunk) for chunk in chunks]
    shaped = zip(chunks, ROWS, strict=True)
    return dask.array.concatenate([dask.array.from_delayed(x, (rows, 3), dtype) for x, rows in shaped])


def given_labels():
    return np.concatenate([made(number) for number in range(len(ROWS))])


def assert_same(found, expected):
    assert found.digest() == expected.digest()
    assert found.n_labeled.tolist() == expected.n_labeled.tolist()
    for of_found, of_expected in zip(found.categories, expected.categories, strict=True):
        np.testing.assert_array_equal(of_found, of_expected)
    assert found.verify()["ok"]


def test_import__is_written_by_workers_that_compute_each_chunk_once(client, tmp_path, monkeypatch):
    def never(*_):
        raise AssertionError("a chunk came to this process")

    expected = import_labels(given_labels(), tmp_path / "here.zarr", **CHUNKED)
    monkeypatch.setattr(memory._Computed, "_compute", never)
    (tmp_path / "made").mkdir()
    with client.as_current():
        found = import_labels(lazy(tmp_path / "made"), tmp_path / "there.zarr", **CHUNKED)
    assert_same(found, expected)
    assert names_in(tmp_path / "there.zarr") == names_in(tmp_path / "here.zarr")
    makers = [path.name.split("-") for path in (tmp_path / "made").iterdir()]
    assert sorted(int(number) for number, *_ in makers) == [0, 1, 2, 3]
    assert str(os.getpid()) not in {process for _, process, _ in makers}


def missing_as_nan(x):
    return np.where(x < 0, np.nan, x)


def as_booleans(x):
    return x[:, [0, 0, 2]] > 0


@pytest.mark.parametrize(
    ("change", "dtype", "how"),
    [
        (missing_as_nan, np.float64, {}),
        (as_booleans, bool, {}),
        (None, np.int64, {"columns": [2, 0]}),
        (None, np.int64, {"missing": [0, 7]}),
        (None, np.int64, {"drop": 1, "missing": []}),
    ],
)
def test_import__of_other_types_and_readings_has_the_bits_of_this_process(
    client, tmp_path, change, dtype, how
):
    given = given_labels() if change is None else change(given_labels())
    expected = import_labels(given, tmp_path / "here.zarr", **how, **CHUNKED)
    with client.as_current():
        array = lazy(change=change, dtype=dtype)
        assert_same(import_labels(array, tmp_path / "there.zarr", **how, **CHUNKED), expected)
        unknown = array[~dask.array.isnan(array[:, 0])]
        assert np.isnan(unknown.shape[0])
        if change is not missing_as_nan:
            assert_same(import_labels(unknown, tmp_path / "unknown.zarr", **how, **CHUNKED), expected)


def elsewhere(_):
    return "not here"


def test_import__comes_to_this_process_if_a_worker_does_not_find_the_store(client, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_version_beside", elsewhere)
    with client.as_current():
        found = import_labels(lazy(), tmp_path / "there.zarr", **CHUNKED)
    assert_same(found, import_labels(given_labels(), tmp_path / "here.zarr", **CHUNKED))


@pytest.mark.slow
def test_import__a_worker_that_dies_changes_nothing(tmp_path):
    (tmp_path / "made").mkdir()
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster),
    ):
        found = import_labels(lazy(tmp_path / "made", dies=True), tmp_path / "there.zarr", **CHUNKED)
    assert_same(found, import_labels(given_labels(), tmp_path / "here.zarr", **CHUNKED))
    assert names_in(tmp_path / "there.zarr") == names_in(tmp_path / "here.zarr")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x: x + 0.5, InvalidInputError, r"partition 'p0' has label .*\.5"),
        (lambda x: x[1:], InvalidInputError, r"chunk 0 of the dask array has shape \(699, 3\)"),
        (
            lambda x: np.ma.masked_less(x, 1),
            InvalidInputError,
            r"chunk 0 .* MaskedArray of int64 .* pass its meta=",
        ),
        (lambda x: x.astype(object), InvalidInputError, r"chunk 0 .* ndarray of object"),
        (lambda x: x * 0 - 1, EmptyPartitionError, "'p0' has no labels"),
    ],
)
def test_import__of_bad_chunks_is_refused_in_one_line_and_leaves_nothing(
    client, tmp_path, change, error, message
):
    with client.as_current(), pytest.raises(error, match=message) as caught:
        import_labels(lazy(change=change), tmp_path / "e.zarr")
    assert "\n" not in str(caught.value)
    assert not names_in(tmp_path)


def test_import__of_masked_arrays_that_say_so_comes_to_this_process(client, tmp_path):
    masked = dask.array.ma.masked_less(lazy(), 1)
    with client.as_current():
        found = import_labels(masked, tmp_path / "there.zarr", **CHUNKED)
    labels = np.ma.masked_less(given_labels(), 1)
    assert_same(found, import_labels(labels, tmp_path / "here.zarr", **CHUNKED))


@given(
    x=label_matrices(min_objects=1, max_objects=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    scale=st.sampled_from([1, 30_000]),
)
def test_merge__of_builders_is_one_builder_of_all_blocks(x, cuts, scale):
    column = x[:, 0].astype(np.int64)
    column[column > 0] *= scale
    one, merged = EncodingBuilder("a"), EncodingBuilder("a")
    for block in np.split(column, sorted(cuts)):
        one.add(block)
        part = EncodingBuilder("a")
        part.add(block)
        merged.merge(part)
    if (column < 0).all():
        with pytest.raises(EmptyPartitionError):
            merged.build()
        return
    expected, found = one.build(), merged.build()
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.n_labeled == expected.n_labeled
    np.testing.assert_array_equal(found.encode(column), expected.encode(column))


def test_selection__of_a_dask_array_is_written_by_workers_too(client, tmp_path):
    with client.as_current():
        found = import_labels(select(lazy(), columns=[1]), tmp_path / "e.zarr")
        assert found.n_clusters.tolist() == Ensemble.from_labels(given_labels()[:, [1]]).n_clusters.tolist()
