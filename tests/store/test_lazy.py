"""Ensembles and consensuses as lazy arrays; DataArrays as ensembles."""

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


def test_consensus__has_lazy_arrays(tmp_path):
    consensus = solved(tmp_path / "c.zarr")
    assert consensus.dask_labels().chunks[0] == (16, 16, 16, 2)
    np.testing.assert_array_equal(consensus.dask_labels(), consensus.labels)
    np.testing.assert_array_equal(consensus.dask_memberships(), consensus.memberships)


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
