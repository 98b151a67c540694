"""One seed gives the same bits on any engine, with any number of workers, killed or not."""

import os
import signal

import pytest

from bigcons import PCC, PairTable
from bigcons.run.dask import DaskEngine
from bigcons.run.engine import ThreadsEngine
from tests.support.clusters import local_client
from tests.support.fits import bits
from tests.support.solves import SOLVES, WEIGHTED, parameters, store_data
from tests.support.stores import names_in

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PCC stopped at max_iter:bigcons.errors.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("same-bits")
    store_data(folder)
    return folder


@pytest.fixture(scope="module")
def fit(folder):
    """A function of a solve's name and an engine that returns the bits of the result."""

    def fit(solve, client, out=None, **others):
        model = PCC(**{**parameters(solve, folder), **others}, client=client)
        return bits(model.fit(folder / "ensemble.zarr", out=out))

    return fit


@pytest.fixture(scope="module")
def expected(fit):
    """The bits of every solve on the serial engine."""
    return {solve: fit(solve, "serial") for solve in (*SOLVES, *WEIGHTED)}


@pytest.fixture(scope="module")
def client():
    """The client of two processes of one thread."""
    with local_client(n_workers=2) as client:
        yield client


@pytest.mark.parametrize("solve", [*SOLVES, *WEIGHTED])
@pytest.mark.parametrize("n_workers", [1, 5])
def test_fit__threads_give_the_bits_of_serial(solve, fit, expected, n_workers):
    assert fit(solve, ThreadsEngine(n_workers)) == expected[solve]


# of the solves by weights the one that finds them itself
@pytest.mark.parametrize("solve", [*SOLVES, "by entropy"])
def test_fit__dask_gives_the_bits_of_serial(solve, fit, expected, client, tmp_path):
    assert fit(solve, client, out=tmp_path / "consensus.zarr") == expected[solve]


def test_fit__dask_gives_the_bits_of_serial_in_memory_too(fit, expected, client):
    assert fit("l2", client) == expected["l2"]


def test_fit__pairs_in_parquet_give_the_bits_of_zarr(fit, expected, folder, tmp_path):
    PairTable.open(folder / "pairs.zarr").to_parquet(tmp_path / "p.parquet")
    pairs = PairTable.open(tmp_path / "p.parquet")
    for options in ({"pairs": pairs}, {"pairs": str(tmp_path / "p.parquet"), "out": tmp_path / "c.zarr"}):
        assert fit("kl of tiles", "threads", **options) == expected["kl of tiles"]
    heap = {"solver": "heap", "max_iter": 500}
    assert fit("kl of tiles", "serial", pairs=pairs, **heap) == fit("kl of tiles", "serial", **heap)
    assert names_in(tmp_path) == ["c.zarr", "p.parquet"]


class Killing(DaskEngine):
    """Kills the worker of the sixth group of blocks once, when what is before the passes is done."""

    maps = 0

    def __init__(self, client, folder):
        super().__init__(client)
        self.marker = folder / "killed"

    def map(self, task, items):
        self.maps += 1
        marker, is_due = self.marker, self.maps > 5

        def deadly(item):
            result = task(item)
            is_sixth = isinstance(item, list) and item[0].index == 5
            if is_due and is_sixth and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return super().map(deadly, items)


# A kill costs the start of a process, so two of the solves stand for all.
@pytest.mark.parametrize("solve", ["l2", "kl of tiles"])
def test_fit__a_killed_worker_changes_no_bit(solve, fit, expected, client, tmp_path):
    assert fit(solve, Killing(client, tmp_path)) == expected[solve]
    assert (tmp_path / "killed").exists()
