"""The engine on real Dask clusters, in threads and in processes: same bits, bounds, retries, nothing left."""

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest

from bigcons import Ensemble
from bigcons.errors import BigconsError, CorruptStoreError, InvalidInputError, MemoryBudgetError
from bigcons.memory import row_blocks
from bigcons.run.dask import DaskEngine, connect
from bigcons.run.engine import SerialEngine, ThreadsEngine, fold, open_engine, resolve_engine
from bigcons.run.survey import MemoryPlan
from tests.support import clusters
from tests.support.refusals import refused

CLUSTERS = {
    "threads": {"processes": False, "n_workers": 1, "threads_per_worker": 2},
    "two processes": {"n_workers": 2, "threads_per_worker": 1},
}


@contextmanager
def cluster_of(**options):
    """A cluster, of one worker of one thread unless told otherwise, and its client."""
    with clusters.local_client(**{"processes": False, **options}) as client:
        yield client.cluster, client


@pytest.fixture(scope="module", params=CLUSTERS)
def client(request):
    with cluster_of(**{"processes": True, **CLUSTERS[request.param]}) as (_, client):
        yield client


@pytest.fixture(scope="module")
def local_client():
    with cluster_of(**CLUSTERS["threads"]) as (_, client):
        yield client


def keys_left(client):
    """Return what the scheduler still knows of our tasks, once its queue of messages has run dry."""
    for _ in range(2000):
        keys = client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks])
        if not keys:
            break
        time.sleep(0.05)
    return keys


def fail_once(folder, what, error):
    """Raise ``error`` the first time this is called with ``what``, in whichever process."""
    try:
        (Path(folder) / what).touch(exist_ok=False)
    except FileExistsError:
        return
    raise error


def test_fold__sums_floats_to_the_same_bits_as_serial(client):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((1000, 3)) * 10.0 ** rng.integers(-8, 8, (1000, 1))
    blocks = row_blocks(1000, 5)

    def block_sum(block):
        time.sleep(0.01 if block.index % 20 == 0 else 0.0)
        return values[block.start : block.stop].sum(axis=0)

    expected = fold(SerialEngine(), blocks, block_sum, np.add)
    assert fold(DaskEngine(client), blocks, block_sum, np.add).tobytes() == expected.tobytes()
    assert keys_left(client) == []


def test_map__tries_again_after_an_error_of_the_disk(client, tmp_path):
    def task(block):
        fail_once(tmp_path, str(block.index), OSError("the disk hiccups"))
        return block.start

    assert list(DaskEngine(client).map(task, row_blocks(40, 10))) == [0, 10, 20, 30]


def test_map__does_not_repeat_an_error_raised_on_purpose(client, tmp_path):
    def task(_):
        (tmp_path / str(time.monotonic_ns())).touch()
        raise CorruptStoreError("x.zarr is damaged; make it again.")

    with pytest.raises(CorruptStoreError, match="is damaged; make it again"):
        list(DaskEngine(client).map(task, range(1)))
    assert len(list(tmp_path.iterdir())) == 1


def test_map__raises_the_error_of_the_first_item_and_begins_no_more(client, tmp_path):
    def task(position):
        (tmp_path / str(position)).touch()
        if position in (2, 3):
            time.sleep(0.3 if position == 2 else 0.0)
            raise InvalidInputError(f"item {position}")
        return position

    engine = DaskEngine(client)
    bound = engine.in_flight
    with pytest.raises(InvalidInputError, match="item 2"):
        list(engine.map(task, range(1000)))
    assert len(list(tmp_path.iterdir())) <= 3 + bound
    assert keys_left(client) == []


def test_map__keeps_a_bounded_number_in_flight(client):
    drawn = 0

    def items():
        nonlocal drawn
        while drawn < 40:
            drawn += 1
            yield drawn

    engine = DaskEngine(client)
    bound = engine.in_flight
    assert bound == 2 * engine.n_workers + 2
    most_known = most_ahead = 0
    for collected, _ in enumerate(engine.map(lambda item: time.sleep(0.002), items()), start=1):
        known = client.run_on_scheduler(
            lambda dask_scheduler: sum(key.startswith("bigcons-") for key in dask_scheduler.tasks)
        )
        most_known = max(most_known, known)
        most_ahead = max(most_ahead, drawn - collected)
    assert most_ahead <= bound
    # the one being collected may not be forgotten yet, and each worker has a copy of the function
    assert 1 < most_known <= bound + 1 + len(engine.workers)


def test_map__sends_a_large_task_function_to_each_worker_once(client, tmp_path):
    folder = str(tmp_path)

    def arrive(content):
        (Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}").touch()
        return len(content)

    class Ballast:  # over the size from which Dask warns of a large graph
        def __reduce__(self):
            return arrive, (np.random.default_rng(0).bytes(12_000_000),)

    ballast = Ballast()
    results = list(DaskEngine(client).map(lambda position: ballast + position, range(30)))
    assert results == [12_000_000 + position for position in range(30)]
    assert 1 <= len(list(tmp_path.iterdir())) <= len(client.nthreads())


@pytest.mark.parametrize(
    ("reason", "raised"), [(KeyboardInterrupt, KeyboardInterrupt), (ValueError, SystemError)]
)
def test_open_engine__leaves_an_interrupt_as_one_that_c_code_has_replaced(reason, raised):
    inner, outer = SystemError("an exception set"), SystemError("an exception set")
    inner.__cause__, outer.__cause__ = reason(), inner
    with pytest.raises(raised), open_engine("serial"):
        raise outer


def test_open_engine__connects_to_an_address_and_leaves_nothing_open():
    with cluster_of(protocol="tcp") as (cluster, _):
        with open_engine(cluster.scheduler_address) as engine:
            assert list(engine.map(abs, [-1, -2])) == [1, 2]
            opened = engine.client
        assert opened.status == "closed"


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "carrier-pigeon://127.0.0.1:1"])
def test_open_engine__says_in_one_line_that_nobody_answers(address):
    with (
        pytest.raises(InvalidInputError, match="not answer as a Dask scheduler") as caught,
        connect(address, grace=0.5),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_open_engine__does_not_wait_for_what_listens_and_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        configured = dask.config.set({"distributed.comm.timeouts.connect": "0.3s"})
        with configured, pytest.raises(InvalidInputError, match="says nothing"), open_engine(address):
            pass


def test_resolve_engine__of_none_is_the_active_client(local_client):
    assert isinstance(resolve_engine(None), ThreadsEngine)
    with local_client.as_current():
        assert resolve_engine(None).client is local_client
        assert isinstance(resolve_engine("threads"), ThreadsEngine)
    assert isinstance(resolve_engine(None), ThreadsEngine)


def test_resolve_engine__within_a_task_is_serial(local_client):
    def engine_name(_):
        return resolve_engine(None).name

    with local_client.as_current():
        assert list(resolve_engine(None).map(engine_name, range(2))) == ["serial", "serial"]


def test_engine__refuses_a_client_within_a_task(local_client):
    def nested(_):
        return DaskEngine(distributed.get_client()).name

    with pytest.raises(InvalidInputError, match="within a Dask task"):
        list(DaskEngine(local_client).map(nested, range(1)))
    distributed.default_client().close()  # that of the worker


def test_resolve_engine__of_none_does_not_import_distributed():
    code = (
        "import sys; from bigcons.run.engine import resolve_engine; "
        "assert resolve_engine().name == 'threads'; assert 'distributed' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_resolve_engine__refuses_a_cluster_and_a_closed_client(local_client):
    with refused(r"LocalCluster.* is unknown; .*distributed\.Client\(cluster\)"):
        resolve_engine(local_client.cluster)
    closed = distributed.Client(local_client.cluster, set_as_default=False)
    closed.close()
    with pytest.raises(BigconsError, match="client= is closed"):
        resolve_engine(closed)


def addresses_used(engine, n_items=60, at_tenth=None, seconds=0.1):
    """Return the workers that ran items; call ``at_tenth`` when ten results have come."""

    def task(_):
        time.sleep(seconds)
        return distributed.get_worker().address

    used = []
    for address in engine.map(task, range(n_items)):
        used.append(address)
        if len(used) == 10 and at_tenth is not None:
            at_tenth()
    return used


def test_map__gives_newcomers_work():
    with cluster_of() as (cluster, client):
        engine = DaskEngine(client)
        used = addresses_used(engine, at_tenth=lambda: (cluster.scale(3), client.wait_for_workers(3)))
        assert len(set(used)) > 1
        assert engine.n_workers == 3


def test_plan__refuses_a_worker_whose_own_limit_is_too_small():
    ensemble = Ensemble.from_labels(np.zeros((1000, 4), int))
    with cluster_of(memory_limit="1 TB") as (_, client):
        engine = DaskEngine(client)
        with refused(r"^PCC needs .* in Dask worker .*--memory-limit '1[0-9.]* TB'", MemoryBudgetError):
            MemoryPlan(0, per_block=10**12).check("PCC", engine, ensemble, None)
        MemoryPlan(0, per_block=10**9).check("PCC", engine, ensemble, None)
