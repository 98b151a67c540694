"""Ensembles and consensuses as dask arrays and xarray datasets; DataArrays as ensembles."""

import json

import dask.array
import numpy as np
import pytest
import zarr

from bigcons import Consensus, Ensemble, PairTable, coassociation
from bigcons.errors import InvalidInputError
from bigcons.metrics import trust

xarray = pytest.importorskip("xarray")

NAMES = ["who", "what", "where"]


def some_labels(n=50, seed=0):
    labels = np.random.default_rng(seed).integers(-1, 4, (n, 3))
    labels[:4] = np.arange(4)[:, None]
    return labels


def stored(path, ids=None):
    import pandas as pd

    frame = pd.DataFrame(some_labels(), columns=NAMES, index=ids)
    return Ensemble.from_labels(frame, id=None if ids is None else "index").save(path, chunk_rows=16)


def solved(path, ids=None):
    labels = some_labels()[:, 0]
    memberships = np.eye(4, dtype=np.float32)[labels]
    memberships[labels < 0] = 0.25
    told = trust(some_labels(), labels)
    return Consensus.write(
        path, labels, memberships, trust=told, ids=ids, chunk_rows=16, results={"gap": 0.5, "converged": True}
    )


@pytest.mark.parametrize("ids", [None, [f"id{i}" for i in range(50)]])
def test_to_xarray__of_an_ensemble_has_names_ids_and_lazy_labels(tmp_path, ids):
    ensemble = stored(tmp_path / "e.zarr", ids)
    found = ensemble.to_xarray()
    assert isinstance(found["labels"].data, dask.array.Array)
    assert found["labels"].chunks[0] == (16, 16, 16, 2)
    assert found["partition"].values.tolist() == NAMES
    assert found["n_labeled"].values.tolist() == ensemble.n_labeled.tolist()
    np.testing.assert_array_equal(found["labels"], some_labels())
    assert ("object" in found.coords) == (ids is not None)
    for source in (found, found["labels"]):
        again = Ensemble.from_labels(source, id=None if ids is None else "object")
        assert again.names == NAMES
        np.testing.assert_array_equal(np.asarray(again), some_labels())
        if ids is not None:
            assert found["object"].values.tolist() == again.ids.tolist() == ids


def test_to_xarray__of_soft_clusterings_names_base_clusters():
    ensemble = Ensemble.from_memberships([np.eye(2), np.full((2, 3), 1 / 3)], names=["a", "b"])
    found = ensemble.to_xarray()
    np.testing.assert_array_equal(found["memberships"], np.asarray(ensemble))
    assert found["partition"].values.tolist() == ["a", "a", "b", "b", "b"]
    assert found["cluster"].values.tolist() == [0, 1, 0, 1, 2]


def test_to_xarray__of_a_consensus_has_all_that_is_stored(tmp_path):
    consensus = solved(tmp_path / "c.zarr", ids=np.arange(50) * 3)
    found = consensus.to_xarray()
    for name in ("labels", "memberships", "confidence", "second_labels", "second_confidence"):
        assert isinstance(found[name].data, dask.array.Array)
    np.testing.assert_array_equal(found["labels"], consensus.labels)
    np.testing.assert_array_equal(found["memberships"], consensus.memberships)
    np.testing.assert_array_equal(found["second_confidence"], consensus.trust.second_confidence)
    assert float(found["confidence"].sel(object=3)) == consensus.trust.confidence[1]
    assert found.attrs["gap"] == 0.5
    assert json.loads(found.attrs["parameters"]) == {}


def test_stores__open_in_zarr_and_xarray_without_a_warning(tmp_path):  # which would be an error
    ensemble = stored(tmp_path / "e.zarr", [f"id{i}" for i in range(50)])
    solved(tmp_path / "c.zarr", ids=np.arange(50))
    coassociation.sample(ensemble, share=0.1, random_state=0).save(tmp_path / "p.zarr")
    assert isinstance(PairTable.open(tmp_path / "p.zarr"), PairTable)
    dims = {
        "e.zarr": {"object", "partition", "n_id_bytes"},
        "c.zarr": {"object", "cluster"},
        "p.zarr": {"n_objects + 1", "2 n_pairs"},
    }
    for name, wanted in dims.items():
        assert set(xarray.open_zarr(tmp_path / name).sizes) == wanted
        assert len(list(zarr.open(tmp_path / name, mode="r").arrays())) >= 2
    grown = Ensemble.open(tmp_path / "e.zarr", mode="a").append_partitions(some_labels()[:, :1], ["again"])
    labels = xarray.open_zarr(tmp_path / "e.zarr")["labels-2"]
    np.testing.assert_array_equal(labels, np.asarray(grown))


@pytest.mark.parametrize("chunks", [None, {"x": 20, "y": 2}])
def test_from_labels__takes_a_data_array(chunks):
    array = xarray.DataArray(some_labels(), dims=("x", "y"), coords={"y": NAMES})
    array = array if chunks is None else array.chunk(chunks)
    found = Ensemble.from_labels(array)
    assert found.names == NAMES
    np.testing.assert_array_equal(np.asarray(found), some_labels())


def test_from_labels__knows_dimensions_by_their_names():
    array = xarray.DataArray(some_labels().T, dims=("partition", "object"))
    assert Ensemble.from_labels(array).shape == (50, 3)
    gaps = xarray.DataArray(np.where(some_labels() < 0, np.nan, some_labels()), dims=("object", "partition"))
    np.testing.assert_array_equal(np.asarray(Ensemble.from_labels(gaps)), some_labels())


def test_from_labels__asks_for_a_variable_of_a_dataset():
    with pytest.raises(InvalidInputError, match="one of its variables"):
        Ensemble.from_labels(xarray.Dataset({"votes": (("object", "partition"), some_labels())}))
