"""Stores are as docs/format.md says, read here with nothing but zarr, json, zlib and hashlib."""

import hashlib
import json
import re
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyarrow import parquet

from bigcons import Ensemble, PairTable
from bigcons.disk import schema
from bigcons.disk.arrays import CODECS, ZarrArray
from bigcons.disk.places import place_of
from bigcons.metrics import trust
from tests.support.stores import write_consensus

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
RNG = np.random.default_rng(0)


def an_ensemble(path):
    labels = RNG.integers(0, 3, (70, 5))
    Ensemble.from_labels(labels, names=["a", "b", "é", "d", "e"]).save(path, chunk_rows=32)
    Ensemble.open(path, "a").append_objects(labels[:9])


def a_soft_ensemble(path):
    tables = [RNG.dirichlet(np.ones(k), 70) for k in (2, 3)]
    Ensemble.from_memberships(tables).save(path, chunk_rows=32)
    Ensemble.open(path, "a").append_objects([table[:9] for table in tables])


def a_table(path):
    i, j = (ends[::3] for ends in np.triu_indices(40, 1))
    n_seen = RNG.integers(1, 300, len(i))
    PairTable.from_arrays(i, j, n_seen // 2, n_seen, n_objects=40).save(path)


def a_consensus(path):
    memberships = RNG.dirichlet(np.ones(4), 70).astype(np.float32)
    facts = {"history": {"objective": [2.0, 1e-7]}, "parameters": {"method": "PCC", "tol": np.inf}}
    write_consensus(path, memberships.argmax(axis=1), memberships, chunk_rows=32, **facts)


def a_trusted_consensus(path):
    labels = np.concatenate([[-1], RNG.integers(0, 3, 69)])
    found = trust(RNG.integers(-1, 4, (70, 5)), labels, client="serial")
    write_consensus(path, labels, None, chunk_rows=32, trust=found)


def an_ensemble_with_ids(path):
    labels = pa.table(
        {"who": [f"é{row}" for row in range(79)], "a": np.arange(79) % 3, "b": np.arange(79) % 2}
    )
    Ensemble.from_labels(labels[:70], id="who").save(path, chunk_rows=32)
    Ensemble.open(path, "a").append_objects(labels[70:], id="who")


def a_consensus_with_ids(path):
    write_consensus(path, np.arange(70) % 3, None, chunk_rows=32, ids=np.arange(70)[::-1] - (1 << 62))


STORES = {
    "ensemble": (an_ensemble, ["labels"]),
    "soft ensemble": (a_soft_ensemble, ["memberships"]),
    "pairs": (a_table, ["indptr", "indices", "n_agree", "n_seen"]),
    "consensus": (a_consensus, ["labels", "memberships"]),
    "ids of an ensemble": (an_ensemble_with_ids, ["labels", "id_ends", "id_text"]),
    "ids of a consensus": (a_consensus_with_ids, ["labels", "ids"]),
    "trusted consensus": (a_trusted_consensus, ["labels", *schema.TRUST]),
}


def head_of(file):
    """Return what a head says, once its checksum was compared."""
    content = json.loads(file.read_text(encoding="utf-8"))
    head = content["attributes"]["bigcons"]
    checksum = head.pop("checksum")
    assert zlib.crc32(json.dumps(content, sort_keys=True).encode()) == checksum
    return head


def digest_of(arrays):
    """Return the digest of arrays, given as values and the shape of their chunks by name."""
    total = 0
    for name, (values, chunks) in arrays.items():
        grid = [-(-size // chunk) for size, chunk in zip(values.shape, chunks, strict=True)]
        for place in np.ndindex(*grid):
            corner = tuple(slice(p * c, p * c + c) for p, c in zip(place, chunks, strict=True))
            part = np.ascontiguousarray(values[corner])
            place = place[:1] if part.ndim == 1 else place
            text = f"{name} {place} {part.shape} {part.dtype.name} {zlib.crc32(part.tobytes())}"
            found = hashlib.blake2b(text.encode(), digest_size=8).digest()
            total += int.from_bytes(found, "little")
    return f"{total % 2**64:016x}"


@pytest.mark.parametrize("kind", STORES)
def test_store__is_as_the_page_says(tmp_path, kind):
    make, names = STORES[kind]
    path = tmp_path / "s.zarr"
    make(path)
    head = head_of(path / "zarr.json")
    body, of_kind = head["body"], kind.split()[-1]
    assert (head["kind"], head["format_version"]) == (of_kind, schema.FORMAT_VERSION)
    assert {name for names in schema.BODIES[of_kind].values() for name in names} == body.keys()
    group = zarr.open_group(str(path), mode="r", zarr_format=3)
    assert {file.parent.name for file in path.glob("*/zarr.json")} == set(names)
    assert sorted(name for name, _ in group.arrays()) == sorted(names)
    for name in names:
        codecs = [codec["name"] for codec in group[name].metadata.to_dict()["codecs"]]
        assert codecs == ["bytes", "blosc" if kind == "pairs" else "zstd", "crc32c"]
    arrays = {name: (group[name][:], group[name].chunks) for name in names if not name.startswith("id")}
    if kind == "pairs":
        arrays = {name: (group[name][:], group[name].chunks) for name in names}
    assert body["digest"] == digest_of(arrays)
    if body.get("ids"):
        check_ids(group, body["ids"])


def check_ids(group, facts):
    """Compare ids with what was stored, and with their digest."""
    is_text = facts["dtype"] == "text"
    values = group["id_ends"][:] if is_text else group["ids"][:]
    text = group["id_text"][:].tobytes() if is_text else b""
    if is_text:
        ids = [text[begin:end].decode() for begin, end in pairwise([0, *values.tolist()])]
        assert ids == [f"é{row}" for row in range(79)]
    else:
        assert np.array_equal(values, np.arange(70)[::-1] - (1 << 62))
    assert facts["digest"] == f"{zlib.crc32(values.tobytes()):08x}{zlib.crc32(text):08x}"


def test_ensemble_in_parquet__is_as_the_page_says(tmp_path):
    path = tmp_path / "e.parquet"
    words = ["b", None, "a"] * 26
    labels = pa.table({"who": [f"é{row}" for row in range(78)], "a": np.arange(78) % 3, "w": words})
    Ensemble.from_labels(labels, id="who").save(path, chunk_rows=32)
    body = head_of(path / "_bigcons.json")["body"]
    categories = (path / "_categories.json").read_bytes()
    assert json.loads(categories) == [None, ["a", "b"]]
    assert body["files"] == {"_categories.json": zlib.crc32(categories)}
    files = sorted(path.glob("*.parquet"))
    assert [file.name for file in files] == [f"part-{number:05}.parquet" for number in range(3)]
    codes = np.array([labels["a"].to_pylist(), [{"a": 0, "b": 1}.get(word, -1) for word in words]])
    assert body["digest"] == digest_of({"labels": (codes.T.astype(np.int8), (32, 2))})
    for number, file in enumerate(files):
        footer = file.read_bytes()
        footer = footer[-8 - int.from_bytes(footer[-8:-4], "little") :]
        assert zlib.crc32(footer) == body["footers"][number]
        table = parquet.read_table(file)
        assert table.schema.names == ["who", "a", "w"]
        assert table.schema.types[1:] == [pa.int8(), pa.dictionary(pa.int32(), pa.string())]


def test_page__names_all_that_the_schema_has():
    assert f"version {schema.FORMAT_VERSION}" in PAGE
    columns = (*schema.CLUSTER_COLUMNS, *schema.PARTITION_COLUMNS, *schema.PAIR_COLUMNS)
    for name in (*schema.TRUST, *columns, *CODECS):
        assert f"`{name}`" in PAGE
    for body in schema.BODIES.values():
        for name, kind in ((name, kind) for kind, names in body.items() for name in names):
            assert re.search(rf"^\| `{name}` \| {kind} \|", PAGE, flags=re.MULTILINE), name


@pytest.mark.parametrize("compressor", ["none", "zstd", "blosc", "checksum", "gzip", "shards"])
@pytest.mark.parametrize("dtype", ["int8", "bool", "float32", ">i4"])
def test_zarr_arrays_of_others__are_read_as_what_zarr_wrote(tmp_path, compressor, dtype):
    values = np.random.default_rng(0).integers(0, 2, (70, 5)).astype(dtype)
    values[20:40] = 1  # two rows of chunks of the fill value, which Zarr does not write
    codecs = {
        "none": [],
        "zstd": [zarr.codecs.ZstdCodec()],
        "blosc": [zarr.codecs.BloscCodec(cname="zstd")],
        "checksum": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()],
        "gzip": [zarr.codecs.GzipCodec()],
        "shards": [zarr.codecs.ZstdCodec()],
    }[compressor]
    endian = "big" if dtype.startswith(">") else "little"
    how = {"chunks": (10, 2), "fill_value": 1, "compressors": codecs}
    how |= {"shards": (20, 4)} if compressor == "shards" else {}
    zarr.create_array(tmp_path / "x", data=values, serializer=zarr.codecs.BytesCodec(endian=endian), **how)
    array = ZarrArray(place_of(tmp_path / "x"))
    np.testing.assert_array_equal(array[:], values)
    np.testing.assert_array_equal(array[5:33], values[5:33])
    assert compressor == "shards" or not (tmp_path / "x/c/2").exists()
