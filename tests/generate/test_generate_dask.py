"""Every generator on a real Dask worker process: the same bits as in this process."""

from __future__ import annotations

import distributed
import numpy as np
import pytest

from bigcons import datasets, generate

N_OBJECTS = 5000  # a whole segment and a part of one


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def points():
    return datasets.planted_features(N_OBJECTS, 5)[0]


GENERATORS = {
    "weighted": lambda x, **kwargs: generate.weighted_kmeans(x, n_clusters=3, n_partitions=3, **kwargs),
    "features": lambda x, **kwargs: generate.feature_views(x, n_features=2, n_clusters=3, **kwargs),
    "objects": lambda x, **kwargs: generate.object_views(x, n_clusters=3, n_partitions=5, **kwargs),
    "samples": lambda x, **kwargs: generate.kmeans(x, n_clusters=3, n_partitions=3, train=200, **kwargs),
    "diverse": lambda x, **kwargs: generate.diverse(x[:300], n_clusters=(3, 4), **kwargs),
    "soft": lambda x, **kwargs: generate.from_memberships(np.eye(5)[np.abs(x).argmax(axis=1)], **kwargs),
    "deleted": lambda x, **kwargs: generate.mask_labels(np.abs(x).astype(int), 0.4, **kwargs),
    "copies": lambda x, **kwargs: generate.noisy_copies(np.abs(x).argmax(axis=1), noise=0.3, **kwargs),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_generate__the_same_in_another_process(client, points, name):
    there, here = (GENERATORS[name](points, random_state=0, client=engine) for engine in (client, "serial"))
    np.testing.assert_array_equal(there.read(0, there.n_objects), here.read(0, here.n_objects), strict=True)
