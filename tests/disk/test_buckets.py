"""Stores in a bucket, against a server of S3: the same results as on a disk, whole or not there."""

import io
import itertools
import json
import os
import pickle
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zarr
from click.testing import CliRunner
from pyarrow import csv, fs, parquet

import bigcons
from bigcons import PCC, Consensus, Ensemble, PairTable, coassociation, errors, generate
from bigcons.cli import main
from bigcons.datasets import planted_ensemble
from bigcons.disk import commit
from bigcons.disk.arrays import ZarrArray
from bigcons.disk.files import machine
from bigcons.disk.places import place_of
from bigcons.io.columns import select
from bigcons.io.features import open_features
from bigcons.io.sources import open_source
from bigcons.memory import Block
from bigcons.run.engine import SerialEngine
from bigcons.run.passes import open_workspace
from bigcons.run.results import Output
from bigcons.store.ensemble import import_labels
from tests.support.clusters import local_client
from tests.support.deaths import survivor_of_writes
from tests.support.forks import Fork
from tests.support.refusals import refused
from tests.support.s3 import keys_below, s3_server
from tests.support.stores import values_of, write_consensus

FOLDER = r"data-[0-9a-f]{32}"
SOLVE = {"n_clusters": 5, "random_state": 3, "tol": 0.0, "max_iter": 4}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PCC stopped at max_iter:bigcons.errors.ConvergenceWarning"),
]

# A solve that is killed at a moment given by its arguments.
DYING_SOLVE = """
import sys
from bigcons import PCC
from tests.support.deaths import die_after
what, n_writes, ensemble, out = sys.argv[1:]
die_after(what, int(n_writes))
PCC(n_clusters=5, random_state=3, tol=0.0, max_iter=4).fit(ensemble, out=out)
"""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def bucket():
    with s3_server() as url:
        yield url


@pytest.fixture
def url(bucket):
    """A place of this test's own."""
    return f"{bucket}/test-{next(_numbers)}/some store.zarr"


@pytest.fixture(scope="module")
def planted():
    return planted_ensemble(5000, 30, random_state=2)[0]


@pytest.fixture(scope="module")
def stored(bucket, planted):
    return planted.save(f"{bucket}/planted.zarr", chunk_rows=1024)


@pytest.fixture(scope="module")
def on_disk(planted, tmp_path_factory):
    """The solve that all others are compared with."""
    folder = tmp_path_factory.mktemp("solved")
    planted.save(folder / "planted.zarr", chunk_rows=1024)
    return PCC(**SOLVE, client="serial").fit(folder / "planted.zarr", out=folder / "consensus.zarr")


@pytest.fixture(scope="module")
def client(bucket):
    """A worker that knows where the bucket is."""
    with local_client(threads_per_worker=2) as client:
        yield client


def assert_same_solve(model, other):
    np.testing.assert_array_equal(model.labels_, other.labels_)
    np.testing.assert_array_equal(np.asarray(model.memberships_), np.asarray(other.memberships_))
    assert model.history_["objective"] == other.history_["objective"]


def test_ensemble__is_stored_below_its_own_url_only_and_read(bucket, url, planted):
    saved = planted.save(url, chunk_rows=1024)
    assert saved.path == url
    for ensemble in (saved, Ensemble.open(url), pickle.loads(pickle.dumps(saved))):
        np.testing.assert_array_equal(ensemble.read(1000, 3000), planted.read(1000, 3000))
    assert saved.verify() == {"ok": True, "path": url, "n_objects": 5000, "n_chunks": 5}
    assert values_of(saved) == values_of(planted)
    head, *others = sorted(
        keys_below(url.rpartition("/")[0]), key=lambda key: key != "some store.zarr/zarr.json"
    )
    assert head == "some store.zarr/zarr.json"
    assert all(re.fullmatch(rf"some store\.zarr/{FOLDER}/(zarr\.json|labels/.*)", key) for key in others)
    assert "zarr.json" not in keys_below(bucket)


def test_ensemble__is_replaced_once_the_new_one_is_complete(url, planted):
    planted.save(url, chunk_rows=1024)
    opened = Ensemble.open(url)
    with pytest.raises(errors.StoreExistsError, match="pass overwrite=True"):
        planted.save(url)
    before = keys_below(url)
    new = np.arange(3000)[:, None] % [2, 3]
    Ensemble.from_labels(new).save(url, overwrite=True)
    np.testing.assert_array_equal(Ensemble.open(url).read(0, 3000), new)
    assert set(before) & set(keys_below(url)) == {"zarr.json"}
    with pytest.raises(errors.StoreError, match="open it again"):
        opened.read(0, 100)


def test_new_store__that_fails_leaves_what_was_there(url, planted):
    def fail():
        with commit.new_store(url, overwrite=True) as folder:
            (folder / "chunk").write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert keys_below(url) == []
    planted.save(url, chunk_rows=1024)
    before = keys_below(url)
    with pytest.raises(ZeroDivisionError):
        fail()
    assert keys_below(url) == before


def test_new_store__leaves_other_objects_alone(url):
    (place_of(url) / "notes.txt").write(b"mine")
    for overwrite in (False, True):
        with pytest.raises(errors.StoreExistsError), commit.new_store(url, overwrite):
            pass
    assert keys_below(url) == ["notes.txt"]


def test_append__gives_what_it_gives_on_a_disk(url, tmp_path):
    rng = np.random.default_rng(0)
    first = rng.integers(-1, 6, (2500, 200))
    steps = [
        ("append_objects", rng.integers(-1, 6, (700, 200))),
        ("append_partitions", rng.integers(-1, 6, (3200, 70))),
        ("append_partitions", rng.integers(-1, 300, (3200, 3))),  # another type: all is written anew
        ("append_objects", rng.integers(-1, 6, (2000, 273))),
    ]
    stores = [Ensemble.from_labels(first).save(path, chunk_rows=512) for path in (url, tmp_path / "e")]
    for action, labels in steps:
        for store in stores:
            getattr(Ensemble.open(store.path, "a"), action)(labels)
        there, here = (Ensemble.open(store.path) for store in stores)
        np.testing.assert_array_equal(there.read(0, there.n_objects), here.read(0, here.n_objects))
        np.testing.assert_array_equal(there.n_clusters, here.n_clusters)
        assert values_of(there) == values_of(here)
        assert there.verify()["ok"]
        assert there.dtype == here.dtype


def test_sources__zarr_arrays_in_a_bucket(url, tmp_path):
    values = np.random.default_rng(0).integers(0, 5, (3000, 4))
    zarr.create_array(tmp_path / "array", data=values, chunks=(700, 4))
    for file in (tmp_path / "array").rglob("*"):
        if file.is_file():
            place_of(f"{url}/{file.relative_to(tmp_path / 'array')}").write(file.read_bytes())
    np.testing.assert_array_equal(open_features(url).read(100, 2000), values[100:2000])
    np.testing.assert_array_equal(import_labels(url, tmp_path / "e").read(0, 3000), values)
    missing = url.replace("some", "no")
    for read in (import_labels, lambda source, _: Ensemble.from_labels(source)):
        with pytest.raises(errors.StoreNotFoundError, match="does not exist"):
            read(missing, tmp_path / "f")


def test_open__reads_what_a_file_of_the_same_bytes_reads(url):
    rng = np.random.default_rng(0)
    content = rng.bytes(9_000_000)  # more than is read ahead
    place_of(url).write(content)
    found, expected = place_of(url).open("rb", 0), io.BytesIO(content)
    for _ in range(60):
        if rng.random() < 0.3:
            at = int(rng.integers(len(content) + 9))
            assert found.seek(at) == expected.seek(at)
        size = int(rng.choice([0, 1, 70_000, 1 << 20, 3_000_000, 5_000_000]))
        assert found.read(size) == expected.read(size)
        assert found.tell() == expected.tell()
    found.seek(-9, os.SEEK_END)
    assert found.read() == content[-9:]


@pytest.fixture
def both(bucket, tmp_path):
    """Return a function that writes the same files of a table to a folder and a bucket; both are yielded."""
    folder = f"{bucket}/tables-{next(_numbers)}"

    def write(name, write_to):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_to(tmp_path / name)
        place_of(f"{folder}/{name}").write((tmp_path / name).read_bytes())

    return tmp_path, folder, write


def table_of_labels(first=0, last=7000):
    rows = np.arange(first, last)
    labels = {f"p{u}": np.random.default_rng(u).integers(-1, 9, 7000)[first:last] for u in range(5)}
    return pa.table({"who": rows + 5000, **labels})


def write_csv(table, **options):
    def write_to(path):
        with pa.output_stream(path) as file:  # compressed by its suffix
            csv.write_csv(table, file, csv.WriteOptions(**options))

    return write_to


def test_import__of_a_table_in_a_bucket_is_that_of_the_same_file_on_a_disk(both):
    here, there, write = both
    table = table_of_labels()
    parts = [table_of_labels(first, min(first + 600, 7000)) for first in range(0, 7000, 600)]  # 10 after 9
    write("a.parquet", lambda path: parquet.write_table(table, path, row_group_size=1000))
    write("a.tsv", write_csv(table, delimiter="\t"))
    for suffix in (".csv", ".csv.gz", ".csv.bz2", ".csv.zst"):
        write(f"a{suffix}", write_csv(table))
    for number, part in enumerate(parts):
        write(
            f"labels.parquet/part.{number}.parquet", lambda path, part=part: parquet.write_table(part, path)
        )
        write(f"text/part.{number}.csv", write_csv(part))
    (place_of(f"{there}/text") / "_SUCCESS").write(b"")
    urllib.request.urlopen(  # the key of a folder, as consoles make it
        urllib.request.Request(
            f"{os.environ['AWS_ENDPOINT_URL']}/{there.removeprefix('s3://')}/labels.parquet/",
            b"",
            method="PUT",
        )
    ).close()
    names = [*(path.name for path in here.iterdir()), "labels.parquet/*.parquet", "labels.parquet/"]
    assert len(names) == 10
    for name in names:
        read = import_labels(f"{here}/{name}", here / "here.zarr", id="who", overwrite=True)
        also = import_labels(f"{there}/{name}", here / "there.zarr", id="who", overwrite=True)
        assert also.digest() == read.digest(), name
        assert also.n_objects == 7000
    files = [f"{there}/labels.parquet/part.{number}.parquet" for number in range(len(parts))]
    assert import_labels(files, here / "list.zarr", id="who").digest() == read.digest()
    chosen = [select(f"{folder}/a.parquet", id="who", columns=["p1", "p3"]) for folder in (here, there)]
    assert len({Ensemble.from_labels(x).digest() for x in chosen}) == 1


def test_features__in_a_bucket_are_read_by_workers_too(both, client):
    here, there, write = both
    x = np.random.default_rng(0).normal(size=(6000, 3)) + np.arange(6000)[:, None] % 3 * 4
    table = pa.table({f"x{c}": x[:, c] for c in range(3)})
    write("x.parquet", lambda path: parquet.write_table(table, path))
    how = {"n_partitions": 3, "n_clusters": 4, "sample": 0.5, "random_state": 0}
    alone = generate.kmeans(here / "x.parquet", **how, out=here / "alone.zarr")
    spread = generate.kmeans(f"{there}/x.parquet", **how, out=here / "spread.zarr", client=client)
    assert spread.digest() == alone.digest()


WRONG_TABLES = [
    ("nothing.parquet", errors.StoreNotFoundError, "URL does not exist; check the path"),
    ("nothing/", errors.StoreNotFoundError, "URL does not exist; check the path"),
    ("notes.csv", errors.InvalidInputError, "URL is a folder without tables"),
    ("notes/x*.csv", errors.StoreNotFoundError, "no file matches URL; check the path"),
    ("*/a.csv", errors.StoreNotFoundError, "no file matches URL; check the path"),
    ("notes/read.me", errors.InvalidInputError, "URL has suffix '.me'; use "),
    ("cut.parquet", errors.DamagedFileError, "URL cannot be read as Parquet .*; write it again"),
    ("a.npy", errors.InvalidInputError, "URL cannot be read from a bucket; copy it, or use Parquet"),
]


def test_tables__in_a_bucket_say_in_one_line_what_is_wrong(both):
    here, there, write = both
    for name in ("notes/read.me", "notes.csv/read.me", "a.npy"):
        write(name, lambda path: path.write_text("text"))
    parquet.write_table(table_of_labels(), here / "a.parquet")
    write("cut.parquet", lambda path: path.write_bytes((here / "a.parquet").read_bytes()[:2000]))
    for name, error, message in WRONG_TABLES:
        url = re.escape(f"{there}/{name}".rstrip("/"))
        for read in (Ensemble.from_labels, open_features):
            with refused(f"^{message.replace('URL', url)}", error):
                read(f"{there}/{name}")


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_tables__that_change_or_cannot_be_reached_while_they_are_read(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":  # of more bytes than Arrow reads ahead
        path.write_text(f"{'a' * 500},{'b' * 500}\n" * 60_000)
    else:
        numbers = np.random.default_rng(0).integers(0, 1 << 60, (20, 60_000))
        parquet.write_table(
            pa.table({f"p{u}": row for u, row in enumerate(numbers)}), path, row_group_size=6000
        )
    with s3_server() as other:
        url = f"{other}/a{suffix}"
        place_of(url).write(path.read_bytes())
        reading = open_source(url, "labels").batches(500)
        next(reading)
        place_of(url).write(path.read_bytes()[:-1])
        with pytest.raises(errors.StoreError, match=f"^{url} has changed while it was read; read it again"):
            list(reading)
        place_of(url).write(path.read_bytes())
        reading = open_source(url, "labels").batches(500)
        next(reading)
    with pytest.raises(errors.StoreError, match=f"^{other} cannot be reached .*check the network") as caught:
        list(reading)
    assert not isinstance(caught.value, errors.DamagedFileError)


def test_large_data__example_goes_from_bucket_to_bucket(bucket):
    page = (Path(__file__).parents[2] / "docs/large-data.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(def from_bucket_to_bucket.*?)```", page, flags=re.DOTALL)
    truth, (system, root) = np.arange(900) % 6, fs.FileSystem.from_uri(bucket)
    labels = {f"p{u}": np.where(np.random.default_rng(u).random(900) < 0.1, 0, truth) for u in range(8)}
    table = pa.table({"customer": np.arange(900) + 5000, **labels})
    for part in range(3):
        parquet.write_table(table.slice(300 * part, 300), f"{root}/labels/{part}.parquet", filesystem=system)
    names = {"bc": bigcons}
    exec(compile(code.replace("s3://bucket", bucket), "large-data", "exec"), names)
    names["from_bucket_to_bucket"]()
    with system.open_input_stream(f"{root}/labels.csv") as file:
        exported = csv.read_csv(file)
    assert exported.column_names == ["customer", "label"]
    assert exported["customer"].equals(pa.chunked_array(table["customer"].chunks))
    np.testing.assert_array_equal(exported["label"], Consensus.open(f"{bucket}/consensus.zarr").labels)
    assert bigcons.metrics.adjusted_rand(truth, exported["label"].to_numpy()) > 0.9


def chunk_of(url, row):
    key = next(key for key in keys_below(url) if key.endswith(f"/c/{row}/0"))
    return place_of(f"{url}/{key}")


def test_read__finds_damage(url, planted):
    ensemble = planted.save(url, chunk_rows=1024)
    place = chunk_of(url, 2)
    whole = place.read()
    for content in (whole[:40], whole[:60] + bytes([whole[60] ^ 1]) + whole[61:], b"", None):
        place.remove() if content is None else place.write(content)
        for check in (lambda: ensemble.read(2048, 2050), ensemble.verify):
            with pytest.raises(errors.CorruptStoreError, match="rows 2048 to"):
                check()
    assert ensemble.read(0, 1024).shape == (1024, 30)


def test_open__rejects_heads_that_point_outside_the_store(url):
    Ensemble.from_labels([[0, 1], [1, 0]]).save(url)
    place = place_of(url) / commit.HEAD
    content = json.loads(place.read())
    for data in ("../planted.zarr", "data-" + "0" * 31 + "/", 3, None):
        content["attributes"]["bigcons"]["data"] = data
        place.write(json.dumps(content).encode())
        with pytest.raises(errors.StoreError, match="damaged"):
            Ensemble.open(url)


def test_writer_lock__rejects_a_second_writer_and_is_renewed(url, planted):
    with place_of(url).lock(seconds=3.0) as check_lock:
        time.sleep(3.5)
        with pytest.raises(errors.StoreLockedError, match=rf"process {os.getpid()} on .*if it was killed"):
            planted.save(url)
        check_lock()
    planted.save(url)
    assert not any("lock" in key for key in keys_below(url.rpartition("/")[0]))


def test_writer_lock__of_a_dead_writer_is_taken_over_or_expires(url):
    lease = place_of(url).sibling(".some store.zarr.lock")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    holder = {"process": dead.pid, "host": "here", "token": "a", "expires": time.time() + 60}
    lease.write(json.dumps({**holder, "machine": "another"}).encode())
    with pytest.raises(errors.StoreLockedError, match="if it was killed"), place_of(url).lock():
        pass
    for expired in ({"machine": machine()}, {"machine": "another", "expires": time.time() - 1}):
        lease.write(json.dumps({**holder, **expired}).encode())
        with place_of(url).lock() as check_lock:
            check_lock()
    assert keys_below(url.rpartition("/")[0]) == []


def test_output__that_another_call_works_on_is_refused(url, stored, on_disk, caplog):
    """Of two solves, one goes on with what it has, and the other does nothing; as generate and append."""
    with open_workspace(Output(url, False, False, {}), SerialEngine(), 5) as (arrays, snapshots):
        arrays.write(0, Block(0, 0, 1), np.zeros((1, 5), np.float32))
        kept = keys_below(f"{url}.partial")
        for resume in (False, True):
            with pytest.raises(errors.StoreLockedError, match=r"zarr\.partial is being written by"):
                PCC(**SOLVE, resume=resume).fit(stored.path, out=url)
        assert "resume" not in caplog.text  # what is kept is another's
        assert keys_below(f"{url}.partial") == kept != []
        snapshots.save({}, {})
        place_of(url).sibling(".some store.zarr.partial.lock").write(b'{"token": "of another"}')
        with pytest.raises(errors.StoreError, match="the lock was lost to another writer"):
            snapshots.save({}, {})
    small = Ensemble.from_labels([[0, 1], [1, 0]]).save(f"{url}.small")
    with place_of(small.path).lock(), pytest.raises(errors.StoreLockedError):
        Ensemble.open(small.path, "a").append_objects([[0, 0]])


def test_new_store__does_not_commit_under_a_lost_lock(url, planted):
    planted.save(url, chunk_rows=1024)
    lock = place_of(url).sibling(".some store.zarr.lock")
    other = place_of(url) / f"data-{'0' * 32}" / "chunk"

    def lose_the_lock(folder):
        commit.write_head(folder, "pairs", {})
        lock.write(json.dumps({"token": "of another", "expires": 0}).encode())
        other.write(b"of the other")

    before = keys_below(url)
    with (
        pytest.raises(errors.StoreError, match="expired without renewal"),
        commit.new_store(url, overwrite=True) as folder,
    ):
        lose_the_lock(folder)
    assert Ensemble.open(url).verify()["ok"]
    assert len(keys_below(url)) == len(before) + 1
    assert other.is_file()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills as POSIX systems do")
@pytest.mark.parametrize("action", ["save", "append_objects", "append_partitions"])
def test_write__killed_at_any_moment_leaves_a_complete_store(url, action):
    for seconds in (0.1, 0.25):
        survivor = survivor_of_writes(action, url, seconds)
        survivor.append_objects(survivor.read(0, 1))
        assert survivor.verify()["ok"]
        named = commit.read_head(url).data.name
        assert {key.partition("/")[0] for key in keys_below(url)} == {named, "zarr.json"}


@pytest.mark.parametrize("tiles", [None, 2])
def test_pairs__are_those_of_a_disk(url, stored, planted, tmp_path, tiles):
    options = {"per_object": 3, "tiles": tiles, "random_state": 0}
    there = coassociation.sample(stored, out=url, **options)
    here = coassociation.sample(planted.save(tmp_path / "e", chunk_rows=1024), out=tmp_path / "p", **options)
    assert there.path == url
    for table in (pickle.loads(pickle.dumps(there)), there.save(f"{url}.copy")):
        for ours, theirs in zip(table.edges(), here.edges(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert there.verify()["n_pairs"] == here.n_pairs
    key = next(key for key in keys_below(url) if key.endswith("n_agree/c/0"))
    (place_of(url) / key).remove()
    with pytest.raises(errors.CorruptStoreError, match="is missing"):
        PairTable.open(url).verify()


@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_solve__has_the_bits_of_a_disk(url, stored, on_disk, engine):
    model = PCC(**SOLVE, client=engine).fit(stored.path, out=url)
    assert_same_solve(model, on_disk)
    consensus = Consensus.open(url)
    assert consensus.verify()["n_objects"] == 5000
    copy = pickle.loads(pickle.dumps(consensus))
    np.testing.assert_array_equal(copy.memberships, np.asarray(on_disk.memberships_))
    assert not keys_below(f"{url}.partial")
    labels = model.predict(stored.path, out=f"{url}.predicted")
    np.testing.assert_array_equal(Consensus.open(f"{url}.predicted").labels, labels)


def test_solve__on_a_cluster_has_the_bits_of_a_disk(url, stored, on_disk, client):
    assert_same_solve(PCC(**SOLVE, client=client).fit(stored.path, out=url), on_disk)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills as POSIX systems do")
@pytest.mark.parametrize(("what", "at"), [("snapshot", 2), ("block", 8)])
def test_resume__a_killed_solve_ends_with_the_same_bits(url, stored, on_disk, what, at):
    assert Fork(DYING_SOLVE, what, at, stored.path, url).end()[0] == -signal.SIGKILL
    assert keys_below(f"{url}.partial")
    assert not keys_below(url)
    assert_same_solve(PCC(**SOLVE).fit(stored.path, out=url), on_disk)
    assert not keys_below(f"{url}.partial")
    assert Consensus.open(url).verify()


def run(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def test_commands__take_urls(url, tmp_path, monkeypatch):
    truth = np.arange(600) % 3
    points = np.random.default_rng(0).normal(truth[:, None] * 10.0, 1, (600, 4))
    np.save(tmp_path / "points.npy", points)
    np.save(tmp_path / "truth.npy", truth)
    np.save(tmp_path / "labels.npy", truth[:, None] % [2, 3, 3])
    run("import", tmp_path / "labels.npy", "-o", f"{url}/imported.zarr")
    run("generate", tmp_path / "points.npy", "-o", f"{url}/e.zarr", "--n-partitions", 10)
    run("sample", f"{url}/e.zarr", "-o", f"{url}/pairs.zarr", "--per-object", 20)
    solve = ["solve", f"{url}/e.zarr", "-m", "pcc", "-k", 3]
    run(*solve, "-o", f"{url}/c.zarr", "--tol", 0, "--max-iter", 3)  # several passes, which a plot draws
    run(*solve, "-o", f"{url}/heap.zarr", "--pairs", f"{url}/pairs.zarr")
    for name in ("imported", "e", "pairs", "c", "heap"):
        assert f"{name}.zarr" in run("info", f"{url}/{name}.zarr").output
        run("verify", f"{url}/{name}.zarr")
    run("plot", f"{url}/c.zarr", "-o", tmp_path / "figures", "--ensemble", f"{url}/e.zarr")
    assert len(list((tmp_path / "figures").iterdir())) == 6
    ended = run("run", tmp_path / "points.npy", "-k", 3, "-o", f"{url}/out/", "--n-partitions", 10)
    monkeypatch.chdir(tmp_path)
    for line in ended.stdout.partition("Next:\n")[2].splitlines():
        run(*shlex.split(line)[1:])
    assert {"out.html", "out-labels.csv"} <= {path.name for path in tmp_path.iterdir()}
    np.testing.assert_array_equal(
        Ensemble.open(f"{url}/e.zarr").read(0, 600),
        generate.mixed(tmp_path / "points.npy", n_partitions=10, random_state=0)
        .read(0, 600),
    )  # fmt: skip


def test_open__says_what_is_missing(bucket, url):
    with pytest.raises(errors.StoreNotFoundError, match="does not exist; check the path"):
        Ensemble.open(url)
    (place_of(url) / "notes.txt").write(b"")
    with pytest.raises(errors.StoreNotFoundError, match="not a bigcons store"):
        Ensemble.open(url)
    for action in (Ensemble.open, Ensemble.from_labels([[0], [1]]).save):
        with pytest.raises(errors.StoreError, match=r"^s3://another-bucket does not exist"):
            action("s3://another-bucket/ensemble.zarr")


def test_open__without_obstore_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "bigcons.disk.buckets")
    with pytest.raises(errors.MissingDependencyError, match=re.escape("pip install 'bigcons[s3]'")):
        Ensemble.open("s3://bucket/e.zarr")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "cannot be reached .*AWS_ENDPOINT_URL"),
        ({"AWS_ALLOW_HTTP": "false"}, "cannot be reached .*AWS_ALLOW_HTTP"),
        (
            {
                "AWS_ACCESS_KEY_ID": None,
                "AWS_SECRET_ACCESS_KEY": None,
                "AWS_METADATA_ENDPOINT": "http://127.0.0.1:1",
            },
            "cannot be reached .*credentials .AWS_ACCESS_KEY_ID",
        ),
    ],
)
def test_open__says_in_one_line_why_a_bucket_is_unreachable(url, planted, monkeypatch, settings, message):
    for name, value in settings.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    for action in (Ensemble.open, planted.save, lambda url: Ensemble.from_labels(f"{url}.parquet")):
        began = time.monotonic()
        with refused(f"^s3://bucket-.* {message}", errors.StoreError):
            action(url)
        assert time.monotonic() - began < 200


@pytest.fixture
def refusing(monkeypatch):
    """Let all buckets be on a server that refuses every request."""

    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self):
            body = b"<?xml version='1.0'?><Error><Code>SignatureDoesNotMatch</Code></Error>"
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield lambda: monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()


def test_buckets__say_that_credentials_are_refused(url, planted, refusing):
    """Servers refuse a list of keys with the same status as an object; to obstore it is a general error."""
    stored = planted.save(url)
    refusing()
    of_table = lambda url: Ensemble.from_labels(f"{url}.parquet")  # noqa: E731
    for action in (Ensemble.open, planted.save, lambda url: place_of(url).names(), of_table):
        with pytest.raises(errors.StoreError, match=r"these credentials .*; check AWS_ACCESS") as caught:
            action(url)
        assert "network" not in str(caught.value)
    assert stored.n_objects == planted.n_objects


def test_read__distinguishes_an_unreachable_server_from_damage(planted):
    with s3_server() as other:
        ensemble = planted.save(f"{other}/e.zarr", chunk_rows=1024)
        pairs = coassociation.sample(planted, per_object=3, out=f"{other}/p.zarr", random_state=0)
        consensus = write_consensus(f"{other}/c.zarr", [0, 1], np.eye(2))
        others = ZarrArray(ensemble.stored.data / "labels")
    reads = [lambda: ensemble.read(0, 10), lambda: pairs.read(0, 10), lambda: consensus.labels]
    for read in (*reads, lambda: others[0:10]):
        with pytest.raises(errors.StoreError, match=f"^{other} cannot be reached") as caught:
            read()
        assert not isinstance(caught.value, errors.CorruptStoreError)
