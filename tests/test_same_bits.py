"""One seed gives the same bits on any engine, with any number of workers, killed or not."""

import os
import signal

import distributed
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from bigcons import PCC, Ensemble
from bigcons.coassociation.factorised import State
from bigcons.execution.dask_engine import DaskEngine
from bigcons.execution.engine import ThreadsEngine

pytestmark = [
    pytest.mark.filterwarnings("ignore:PCC stopped at max_iter:bigcons.errors.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabelledObjectsWarning"),
]

N_OBJECTS, N_PARTITIONS, CHUNK_ROWS = 3000, 12, 256


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    """A stored ensemble of twelve chunks: noisy copies of five groups, each seeing four fifths."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 5, (N_OBJECTS, 1))
    labels = np.where(rng.random((N_OBJECTS, N_PARTITIONS)) < 0.6, groups, rng.integers(0, 5, groups.shape))
    labels = (labels + rng.integers(0, 5, N_PARTITIONS)) % 5
    labels[rng.random(labels.shape) < 0.2] = -1
    labels[rng.choice(N_OBJECTS, 5, replace=False), 1:] = -1
    path = tmp_path_factory.mktemp("same-bits") / "ensemble.zarr"
    return Ensemble.from_labels(labels).save(path, chunk_rows=CHUNK_ROWS)


def bits(ensemble, client, init="auto", out=None):
    """Return the bits of the labels, memberships and history of a few passes."""
    model = PCC(5, init=init, n_init=2, max_iter=4, tol=0.0, random_state=7, client=client)
    model.fit(ensemble, out=out)
    history = {name: values for name, values in model.history_.items() if name != "seconds"}
    return np.asarray(model.labels_).tobytes(), np.asarray(model.memberships_).tobytes(), history


@pytest.fixture(scope="module")
def expected(ensemble):
    return bits(ensemble, "serial")


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two processes"])
def client(request):
    with (
        distributed.LocalCluster(
            dashboard_address=":0", n_workers=request.param, threads_per_worker=1
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_ensemble__has_several_blocks_and_gaps(ensemble):
    assert len(ensemble.blocks()) == 12
    assert (ensemble.read(0, N_OBJECTS) == -1).any()


@pytest.mark.parametrize("n_workers", [1, 2, 5])
def test_fit__threads_give_the_bits_of_serial(ensemble, expected, n_workers):
    assert bits(ensemble, ThreadsEngine(n_workers)) == expected


def test_fit__threads_give_the_bits_of_serial_from_random_memberships(ensemble):
    assert bits(ensemble, ThreadsEngine(3), "dirichlet") == bits(ensemble, "serial", "dirichlet")


def test_fit__dask_gives_the_bits_of_serial(ensemble, expected, client):
    assert bits(ensemble, client) == expected


def test_fit__a_result_on_disk_has_the_bits_of_one_in_memory(ensemble, expected, client, tmp_path):
    assert bits(ensemble, client, out=tmp_path / "consensus.zarr") == expected


class Killing(DaskEngine):
    """Kills the worker of block 5 once, in the third fold."""

    folds = 0

    def __init__(self, client, folder):
        super().__init__(client)
        self.marker = folder / "killed"

    def map(self, task, items):
        self.folds += 1
        marker, is_due = self.marker, self.folds == 3

        def deadly(item):
            result = task(item)
            if is_due and item.index == 5 and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return super().map(deadly, items)


def test_fit__a_killed_worker_changes_no_bit(ensemble, expected, client, tmp_path):
    assert bits(ensemble, Killing(client, tmp_path)) == expected
    assert (tmp_path / "killed").exists()


def test_objective__does_not_depend_on_the_threads_of_blas():
    rng = np.random.default_rng(0)
    state = State(10, rng.random((1000, 16)), rng.random((100, 64)), 0.0, 0.0)
    found = set()
    for n_threads in (1, 2, 4):
        with threadpool_limits(n_threads):
            found.add(state.objective)
    assert len(found) == 1
