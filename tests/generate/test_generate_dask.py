"""Every generator on a real Dask worker process: the same bits as in this process."""

import os
import uuid
from pathlib import Path

import dask
import dask.array
import numpy as np
import pytest

from bigcons import ConsensusTree, datasets, generate
from bigcons.errors import MemoryBudgetError
from tests.support.clusters import local_client

N_OBJECTS = 5000  # a whole segment and a part of one


@pytest.fixture(scope="module")
def client():
    with local_client() as client:
        yield client


@pytest.fixture(scope="module")
def points():
    return datasets.planted_features(N_OBJECTS, 5)[0]


GENERATORS = {
    "weighted": lambda x, **kwargs: generate.weighted_kmeans(x, n_clusters=3, n_partitions=3, **kwargs),
    "features": lambda x, **kwargs: generate.feature_views(x, n_features=2, n_clusters=3, **kwargs),
    "objects": lambda x, **kwargs: generate.object_views(x, n_clusters=3, n_partitions=5, **kwargs),
    "samples": lambda x, **kwargs: generate.kmeans(x, n_clusters=3, n_partitions=3, train=200, **kwargs),
    "mixed": lambda x, **kwargs: generate.mixed(x, n_partitions=6, train=300, **kwargs),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_generate__the_same_in_another_process(client, points, name):
    there, here = (GENERATORS[name](points, random_state=0, client=engine) for engine in (client, "serial"))
    np.testing.assert_array_equal(there.read(0, there.n_objects), here.read(0, here.n_objects), strict=True)


def chunk(number, folder):
    (Path(folder) / f"{number}-{os.getpid()}-{uuid.uuid4().hex}").touch()
    return np.random.default_rng(number).integers(3, size=(200, 1)).repeat(4, axis=1).astype(float)


@pytest.mark.parametrize("take", ["generate", "solve"])
def test_dask_array__is_computed_by_the_workers_of_the_client_given(client, tmp_path, take):
    chunks = [dask.delayed(chunk)(number, str(tmp_path)) for number in range(5)]
    array = dask.array.concatenate([dask.array.from_delayed(made, (200, 4), float) for made in chunks])
    if take == "generate":
        generate.kmeans(array, n_clusters=3, n_partitions=3, random_state=0, client=client)
    else:
        ConsensusTree(3, random_state=0, client=client).fit(array.astype(int))
    found = [path.name.split("-") for path in tmp_path.iterdir()]
    assert {number for number, *_ in found} == set("01234")
    assert str(os.getpid()) not in {process for _, process, _ in found}


def test_generate__refuses_workers_whose_own_limit_is_too_small(points):
    """They were killed and started again until the call failed; it is refused before it starts."""
    options = {"n_clusters": 3, "n_partitions": 2, "random_state": 0, "memory": "2GB"}
    refusal = r"^kmeans needs .* in Dask worker .* limit of 400 MB"
    with local_client(memory_limit="400MB") as client, pytest.raises(MemoryBudgetError, match=refusal):
        generate.kmeans(points, client=client, **options)
