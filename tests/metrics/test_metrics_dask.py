"""Criteria on a Dask cluster: the same bits as in this process."""

import numpy as np
import pytest
from distributed import Client, LocalCluster

from bigcons import Consensus, Ensemble
from bigcons.metrics import average_criterion, cluster_overlap, compactness
from bigcons.store.features import open_features

N_OBJECTS = 400


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an ensemble, a consensus and features of the same objects."""
    folder, rng = tmp_path_factory.mktemp("stores"), np.random.default_rng(0)
    memberships = rng.dirichlet([0.5] * 4, N_OBJECTS).astype(np.float32)
    Ensemble.from_labels(rng.integers(-1, 4, (N_OBJECTS, 6))).save(folder / "ensemble.zarr", chunk_rows=64)
    Consensus.write(folder / "consensus.zarr", memberships.argmax(axis=1), memberships, chunk_rows=64)
    np.save(folder / "features.npy", rng.normal(size=(N_OBJECTS, 10)))
    return folder


def test_overlap__same_bits_on_dask(client, folder):
    consensus = Consensus.open(folder / "consensus.zarr")
    here, there = (cluster_overlap(consensus, 0.2, client=c) for c in ("serial", client))
    np.testing.assert_array_equal(here, there)


def test_average_criterion__same_bits_on_dask(client, folder):
    labels = Consensus.open(folder / "consensus.zarr").labels
    here, there = (
        average_criterion("variation_of_information", folder / "ensemble.zarr", labels, client=c)
        for c in ("serial", client)
    )
    assert here == there


def test_compactness__same_bits_on_dask(client, folder):
    labels = Consensus.open(folder / "consensus.zarr").labels
    features = open_features(folder / "features.npy")
    features.chunk_rows = 64
    here, there = (compactness(features, labels, client=c) for c in ("serial", client))
    assert here == there
