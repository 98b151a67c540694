"""Ensembles and consensuses as lazy arrays."""

import numpy as np
import pytest
import zarr

from bigcons import Ensemble, PairTable, coassociation
from bigcons.metrics import trust
from tests.support.stores import write_consensus

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
    return write_consensus(
        path, labels, memberships, trust=told, ids=ids, chunk_rows=16, results={"gap": 0.5, "converged": True}
    )


def test_consensus__has_lazy_arrays(tmp_path):
    consensus = solved(tmp_path / "c.zarr")
    assert consensus.dask_memberships().chunks == ((16, 16, 16, 2), (4,))
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
    labels = xarray.open_zarr(tmp_path / "e.zarr")["labels"]
    np.testing.assert_array_equal(labels, np.asarray(grown))
