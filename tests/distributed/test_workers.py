"""Sites on the workers of a real Dask cluster of processes, each of which reads labels of its own."""

import os
import pickle

import dask
import distributed
import numpy as np
import pytest

from bigcons.datasets import planted_ensemble
from bigcons.distributed import ColumnSite, RowSite, at_worker, fit_columns, fit_rows
from bigcons.errors import ExecutionError, InvalidInputError, StoreNotFoundError

K = 2


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(dashboard_address=":0", n_workers=2, threads_per_worker=1) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def workers(client):
    return sorted(client.run(int))


class Metered:
    """A site whose messages and answers are measured on their way."""

    def __init__(self, site):
        self.site, self.sizes = site, []

    def answer(self, message):
        answer = self.site.answer(message)
        self.sizes.append((message["ask"], len(pickle.dumps(message)), len(pickle.dumps(answer))))
        return answer


def parts_of(n_objects, axis):
    ensemble, _ = planted_ensemble(n_objects, 6, n_clusters=(2, 3), shares=(0.6, 0.4), random_state=1)
    return np.array_split(ensemble.read(0, n_objects), 2, axis=axis)


def save_parts(folder, parts):
    paths = [str(folder / f"{number}.npy") for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        np.save(path, part)
    return paths


def test_at_worker__fits_rows_as_local_sites_do_and_no_label_crosses(client, workers, tmp_path):
    sizes = []
    for n_objects in (400, 20_000):
        parts = parts_of(n_objects, axis=0)
        paths = save_parts(tmp_path, parts)
        pinned = [
            at_worker(client, worker, RowSite, path) for worker, path in zip(workers, paths, strict=True)
        ]
        sites = [Metered(site) for site in pinned]
        fit = fit_rows(sites, K, n_init=1, max_iter=25, tol=1e-3, random_state=0)
        local = [RowSite(part) for part in parts]
        expected = fit_rows(local, K, n_init=1, max_iter=25, tol=1e-3, random_state=0)
        for name, values in expected.parameters.items():
            assert fit.parameters[name].tobytes() == values.tobytes()
        assert fit.history == expected.history
        sizes.append([sorted(set(site.sizes)) for site in sites])
    assert dask.config.get("scheduler", None) is None  # of all threads of this process
    assert sizes[0] == sizes[1]  # whatever the number of objects
    crossed = sum(sum(size[1:]) for site in sites for size in site.sizes)
    assert crossed < sum(part.nbytes for part in parts)
    for number, site in enumerate(pinned):
        out = tmp_path / f"memberships{number}.npy"
        assert site.run(lambda own, path: np.save(path, own.memberships()), out) is None
        np.testing.assert_array_equal(np.load(out), local[number].memberships())
        assert site.run(lambda _: os.getpid()) == client.run(os.getpid)[workers[number]]


def test_at_worker__fits_columns_as_local_sites_do(client, workers, tmp_path):
    parts = parts_of(300, axis=1)
    paths = save_parts(tmp_path, parts)
    sites = [at_worker(client, worker, ColumnSite, path) for worker, path in zip(workers, paths, strict=True)]
    fit = fit_columns(sites, K, n_init=2, random_state=0)
    expected = fit_columns([ColumnSite(part) for part in parts], K, n_init=2, random_state=0)
    assert fit.memberships.tobytes() == expected.memberships.tobytes()
    assert fit.history == expected.history


def test_at_worker__hands_on_errors_of_the_site(client, workers, tmp_path):
    with pytest.raises(StoreNotFoundError):
        at_worker(client, workers[0], RowSite, str(tmp_path / "nothing.zarr"))
    site = at_worker(client, workers[0], RowSite, np.zeros((4, 2), np.int8))
    with pytest.raises(InvalidInputError, match="no fit has ended"):
        site.run(RowSite.memberships)
    with pytest.raises(InvalidInputError, match="not among the 2 workers") as refused:
        at_worker(client, "tcp://127.0.0.1:1", RowSite, np.zeros((4, 2), np.int8))
    assert refused.value.parameter == "worker"


def test_at_worker__a_lost_worker_is_an_error_of_one_line(client, workers):
    site = at_worker(client, workers[1], RowSite, np.zeros((4, 2), np.int8))
    with pytest.raises(ExecutionError, match="was lost") as lost:
        site.run(lambda _: os._exit(1))
    assert "\n" not in str(lost.value)
