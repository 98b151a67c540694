"""Input that was made to harm ends in one typed line, within bounded memory and time."""

import gzip
import json
import os
import resource
import struct
import sys
import tracemalloc

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import zarr
from click.testing import CliRunner
from numcodecs import Blosc, Zstd
from pyarrow import parquet

from bigcons import Ensemble, PairTable
from bigcons.cli import main
from bigcons.disk.checkpoint import FileBlocks, Snapshots
from bigcons.disk.files import parse_json
from bigcons.errors import BigconsError, CorruptStoreError, InvalidInputError, StoreError
from bigcons.io.features import open_features
from bigcons.memory import Block

MB = 1 << 20


def checked(content):
    return content + struct.pack("<I", google_crc32c.value(content))


def stream_of(n_bytes):
    """Return a zstd frame that does not state the size of its content."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        file.write(bytes(n_bytes))
    return sink.getvalue().to_pybytes()


def refused(read, kind=BigconsError):
    """Assert that reading ends in one typed line; return it."""
    with pytest.raises(kind) as caught:
        read()
    assert "\n" not in str(caught.value)
    return str(caught.value)


BOMBS = {
    "zstd": lambda: bytes(Zstd(level=1).encode(bytes(64 * MB))),
    "zstd that states no size": lambda: stream_of(64 * MB),
    "zstd that states a terabyte": lambda: b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + bytes(20),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_read__unpacks_no_bomb(tmp_path, bomb):
    Ensemble.from_labels(np.arange(40).reshape(20, 2) % 3).save(tmp_path / "e.zarr")
    content = BOMBS[bomb]()
    (tmp_path / "e.zarr/labels/c/0/0").write_bytes(checked(content))
    tracemalloc.start()
    said = refused(lambda: Ensemble.open(tmp_path / "e.zarr").read(0, 20), CorruptStoreError)
    assert "does not decompress to a chunk" in said
    assert tracemalloc.get_traced_memory()[1] < 16 * MB
    tracemalloc.stop()


def test_read__unpacks_no_bomb_of_blosc(tmp_path):
    PairTable.from_arrays([0, 1], [1, 2], [1, 0], [1, 1], n_objects=3).save(tmp_path / "p.zarr")
    content = bytes(Blosc("lz4", 5, Blosc.SHUFFLE).encode(np.zeros(8 * MB, np.int64)))
    (tmp_path / "p.zarr/indices/c/0").write_bytes(checked(content))
    assert "does not decompress" in refused(lambda: PairTable.open(tmp_path / "p.zarr").read(0, 3))


def features_in_zarr(folder, **changes):
    """Write a Zarr array and change its metadata."""
    zarr.create_array(folder / "f.zarr", shape=(10, 3), chunks=(10, 3), dtype="f8", zarr_format=3)
    file = folder / "f.zarr" / "zarr.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return folder / "f.zarr"


@pytest.mark.parametrize(
    "changes",
    [
        *({"shape": shape} for shape in ([10**15, 3], [10, 10**9], [-10, 3], [1e300, 3], "many")),
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 3]}}},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10**9, 10**9]}}},
        {"data_type": "variable_length_bytes", "fill_value": ""},
        {"data_type": {"name": "structured", "configuration": {"fields": [["a", "int64"]]}}},
        {"codecs": [{"name": "numcodecs.pickle"}]},
        {"codecs": [{"name": "bytes"}, {"name": "zstd"}, {"name": "gzip"}]},
        {"codecs": [{"name": "vlen-utf8"}]},
        {"node_type": "group"},
    ],
    ids=str,
)
def test_open_features__refuses_hostile_zarr(tmp_path, changes):
    path = features_in_zarr(tmp_path, **changes)
    refused(lambda: open_features(path).read(0, 10))


LAYOUTS = {"chunks": {}, "shards": {"shards": (20, 4)}, "shards that end early": {"shards": (50, 4)}}


@pytest.mark.parametrize("how", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("kind", ["missing", "empty", "a folder", "a pipe"])
@pytest.mark.parametrize(
    "read",
    [lambda path: Ensemble.from_labels(path), lambda path: open_features(path).read(0, 70)],
    ids=["labels", "features"],
)
def test_zarr_of_others__no_lost_chunk_is_read_as_zeros(tmp_path, how, kind, read):
    path, values = tmp_path / "f.zarr", np.arange(420).reshape(70, 6) % 5 + 1
    zarr.create_array(path, shape=values.shape, chunks=(10, 2), dtype="i4", zarr_format=3, **how)[:] = values
    read(path)
    lost = sorted(file for file in (path / "c").rglob("*") if file.is_file())[-1]
    if kind in ("missing", "empty"):
        lost.unlink()
        lost.with_name(lost.name if kind == "empty" else "another").touch()
    else:
        replace_by(lost, kind)
    with pytest.raises(CorruptStoreError, match="restore it, or write empty chunks") as told:
        read(path)
    assert f"chunk {lost.relative_to(path)} is missing or empty" in str(told.value)


LACKS = {
    "memory": MemoryError("Unable to allocate 3 TiB"),
    "threads": RuntimeError("can't start new thread"),
    "a library": ImportError("libparquet.so: failed to map segment from shared object"),
    "the system": OSError(12, "Cannot allocate memory"),
}


@pytest.mark.parametrize("lack", LACKS)
@pytest.mark.parametrize("name", ["x.zarr", "e.zarr", "e.parquet", "x.parquet", "x.csv"])
def test_read__a_lack_of_memory_or_threads_is_no_damage(tmp_path, monkeypatch, name, lack):
    labels, path = np.arange(40).reshape(20, 2) % 3, tmp_path / name
    if name.startswith("e."):
        Ensemble.from_labels(labels).save(path)
    elif name == "x.zarr":
        zarr.create_array(path, data=labels, zarr_format=3)
    else:
        table = pa.table({"a": labels[:, 0], "b": labels[:, 1]})
        (parquet.write_table if name == "x.parquet" else pa.csv.write_csv)(table, path)

    def fail(*_, **__):
        raise LACKS[lack]

    for place in ("zarr.Array.__getitem__", "numcodecs.zstd.decompress", "pyarrow.csv.open_csv"):
        monkeypatch.setattr(place, fail)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile", fail)
    with pytest.raises(type(LACKS[lack])) as told:
        Ensemble.from_labels(path)
    assert told.value is LACKS[lack]


@pytest.mark.parametrize(
    "content", [b"[" * 10**6, b'{"a":' * 10**5, b"1" * 10**5, b'"\\ud800"', b"\xff"], ids=len
)
def test_open__refuses_bombs_of_json(tmp_path, content):
    (tmp_path / "e.zarr").mkdir()
    (tmp_path / "e.zarr/zarr.json").write_bytes(content)
    refused(lambda: Ensemble.open(tmp_path / "e.zarr"), StoreError)


def test_open__refuses_json_that_would_fill_the_memory(tmp_path):
    """Two bytes of a list in a list take about 70 in memory."""
    n_lists = 1 << 22
    content = b'{"a": [' + b"[]," * n_lists + b"0]}"
    (tmp_path / "e.zarr").mkdir()
    (tmp_path / "e.zarr/zarr.json").write_bytes(content)
    assert "lists and objects" in refused(lambda: Ensemble.open(tmp_path / "e.zarr"), CorruptStoreError)
    tracemalloc.start()
    with pytest.raises(CorruptStoreError):
        parse_json(content, "here")
    assert tracemalloc.get_traced_memory()[1] < 64 * MB
    tracemalloc.stop()
    assert sys.getsizeof([]) * n_lists > 200 * MB  # without the bound


def replace_by(path, kind):
    """Put something else in the place of a file."""
    path.unlink(missing_ok=True)
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(8 << 30)


needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices in folders")
KINDS = pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder", "a sparse file"])


@needs_posix
@KINDS
@pytest.mark.parametrize("name", ["zarr.json", "labels/zarr.json", "labels/c/0/0", "categories.json"])
def test_store__files_are_of_the_kind_and_size_of_files(tmp_path, kind, name):
    Ensemble.from_labels([["a", "b"], ["b", "c"]]).save(tmp_path / "e.zarr")
    replace_by(tmp_path / "e.zarr" / name, kind)

    def read():
        ensemble = Ensemble.open(tmp_path / "e.zarr")
        return ensemble.verify() if name.startswith("labels") else ensemble.categories

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = refused(read, BigconsError)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024
    if name != "zarr.json":
        assert {"a sparse file": "more than"}.get(kind, kind) in said


@needs_posix
@KINDS
@pytest.mark.parametrize("suffix", ["csv", "tsv.gz", "npy", "parquet"])
def test_table__files_are_of_the_kind_of_files(tmp_path, kind, suffix):
    replace_by(tmp_path / f"x.{suffix}", kind)
    for read in (Ensemble.from_labels, open_features):
        refused(lambda read=read: read(tmp_path / f"x.{suffix}"))


@needs_posix
@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder"])
def test_resume__something_else_in_the_place_of_a_snapshot_or_block(tmp_path, kind):
    snapshots, blocks = Snapshots(tmp_path, {"a": 1}), FileBlocks(tmp_path, 2)
    snapshots.save({"x": np.ones(1)}, {"pass": 1})
    replace_by(tmp_path / "snapshot.npz", kind)
    assert kind in refused(snapshots.load, CorruptStoreError)
    block = Block(0, 0, 3)
    blocks.write(0, block, np.ones((3, 2), np.float32))
    replace_by(tmp_path / "generation-0/block-0", kind)
    assert kind in refused(lambda: blocks.read(0, block), CorruptStoreError)
    if kind == "a folder":
        refused(lambda: blocks.write(0, block, np.ones((3, 2), np.float32)), StoreError)


@pytest.mark.parametrize(
    "content", [b"a,b\n1,2\n1,\0\n", b"a\0,b\n1,2\n", b"a\n" + b"1\n" * 600_000 + bytes(9)]
)
def test_csv__nul_bytes_are_no_cluster(tmp_path, content):
    (tmp_path / "x.csv").write_bytes(content)
    assert "NUL bytes" in refused(lambda: Ensemble.from_labels(tmp_path / "x.csv"), InvalidInputError)
    assert Ensemble.from_labels([["\0", "a"], ["b", "a"]]).n_clusters[0] == 2  # as it was read from files


def test_commands__escape_what_steers_a_terminal(tmp_path):
    steering = "\x1b]0;title\x07\x9b2J\u202e"
    (tmp_path / "x.csv").write_text(f"{steering},b\n1,2\n2,2\n", encoding="utf-8")
    store = str(tmp_path / "e.zarr")
    runs = [
        CliRunner().invoke(main, command)
        for command in (
            ["import", str(tmp_path / "x.csv"), "-o", store],
            ["info", store],
            ["import", str(tmp_path / "x.csv"), "--columns", "c", "-o", f"{store}2"],
        )
    ]
    assert steering in Ensemble.open(store).names[0]
    for run in runs:
        assert not set(run.output) & set("\x1b\x07\x9b\u202e")
    assert any(r"\x1b]0;title\x07\x9b2J\u202e" in run.output for run in runs)


HEADER = "{'descr': %s, 'fortran_order': %s, 'shape': %s}\n"
HEADERS = {
    "rows": HEADER % ("'<i8'", "False", "(1000000000000, 3)"),
    "columns first": HEADER % ("'<i8'", "True", "(1000000000000, 3)"),
    "both": HEADER % ("'<i8'", "False", f"({2**62}, {2**62})"),
    "no columns": HEADER % ("'<i8'", "False", "(5, 0)"),
    "negative": HEADER % ("'<i8'", "False", "(-5, 3)"),
    "no size": HEADER % ("'|V0'", "False", "(5, 3)"),
    "text of no size": HEADER % ("'<U0'", "False", "(1000000000, 3)"),
    "objects": HEADER % ("'|O'", "False", "(5, 3)"),
    "nested": HEADER % ("('<i8', (1000000,))", "False", "(5, 3)"),
    "records": HEADER % ("[('a', '<i8'), ('b', '<i8')]", "False", "(5,)"),
    "fraction": HEADER % ("'<f8'", "False", "(2.5, 3)"),
    "dates": HEADER % ("'<M8[s]'", "False", "(5, 3)"),
    "complex": HEADER % ("'<c16'", "False", "(5, 3)"),
    "deep": "(" * 5000,
    "minus": "-" * 9000 + "1",
    "an expression": "__import__('os').getpid()",
}


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(
    "read", [Ensemble.from_labels, lambda path: open_features(path).read(0, 5)], ids=["labels", "features"]
)
def test_npy__hostile_headers(tmp_path, header, read):
    text = HEADERS[header].encode()
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(240)
    (tmp_path / "x.npy").write_bytes(content)
    refused(lambda: read(tmp_path / "x.npy"))


def test_csv__a_line_without_end_is_not_read(tmp_path):
    with gzip.open(tmp_path / "x.csv.gz", "wb", compresslevel=1) as file:
        file.write(bytes(64 * MB))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "NUL bytes" in refused(lambda: Ensemble.from_labels(tmp_path / "x.csv.gz"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


NESTED = {"list": [[1, 2], [3]], "struct": [{"x": 1}, {"x": 2}], "map": None}


@pytest.mark.parametrize(
    "read", [Ensemble.from_labels, lambda path: open_features(path).read(0, 2)], ids=["labels", "features"]
)
@pytest.mark.parametrize("kind", NESTED)
def test_parquet__nested_types(tmp_path, kind, read):
    values = pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())) if kind == "map" else NESTED[kind]
    parquet.write_table(pa.table({"a": values, "b": [1, 2]}), tmp_path / "x.parquet")
    assert "'a'" in refused(lambda: read(tmp_path / "x.parquet"), InvalidInputError)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_labels__at_the_ends_of_their_type(dtype):
    """Values are kept as they are, or refused; none becomes another."""
    ends = np.iinfo(dtype)
    column = np.array([ends.max, ends.max - 1, 5, ends.max], dtype)
    try:
        ensemble = Ensemble.from_labels(column[:, None])
    except InvalidInputError:
        assert dtype == np.uint64
        return
    values, codes = ensemble.categories[0], ensemble.read(0, 4)[:, 0]
    assert [int(values[code]) for code in codes] == column.tolist()


URLS = ["s3://b\n/x", "file:///etc/passwd", "http://x/y", "javascript://x", "ftp://x/y.csv"]
URLS += ["s3://", "s3:///", "s3://b", "s3://b/../x"]


@pytest.mark.parametrize("url", URLS)
def test_urls__of_odd_schemes(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for use in (Ensemble.open, Ensemble.from_labels, Ensemble.from_labels([[0], [1]]).save):
        refused(lambda use=use: use(url))
    assert not list(tmp_path.iterdir())
