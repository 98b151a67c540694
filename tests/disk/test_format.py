"""Stores are as docs/format.md and bigcons.disk.schema say, read with nothing but zarr, json and zlib."""

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

from bigcons import Consensus, Ensemble, PairTable
from bigcons.disk import arrays, schema
from bigcons.metrics import trust

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
RNG = np.random.default_rng(0)
CODECS = {"zstd": ["bytes", "zstd", "crc32c"], "lz4": ["bytes", "blosc", "crc32c"]}


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
    Consensus.write(path, memberships.argmax(axis=1), memberships, chunk_rows=32, **facts)


def a_trusted_consensus(path):
    labels = np.concatenate([[-1], RNG.integers(0, 3, 69)])
    found = trust(RNG.integers(-1, 4, (70, 5)), labels, client="serial")
    Consensus.write(path, labels, None, chunk_rows=32, trust=found)


def an_ensemble_with_ids(path):
    labels = pa.table(
        {"who": [f"é{row}" for row in range(79)], "a": np.arange(79) % 3, "b": np.arange(79) % 2}
    )
    Ensemble.from_labels(labels[:70], id="who").save(path, chunk_rows=32)
    Ensemble.open(path, "a").append_objects(labels[70:], id="who")


def a_consensus_with_ids(path):
    Consensus.write(path, np.arange(70) % 3, None, chunk_rows=32, ids=np.arange(70)[::-1] - (1 << 62))


STORES = {
    "ensemble": (an_ensemble, {"labels": schema.ENSEMBLE["labels"]}),
    "soft ensemble": (a_soft_ensemble, {"memberships": schema.ENSEMBLE["memberships"]}),
    "pairs": (a_table, schema.PAIRS),
    "consensus": (a_consensus, schema.CONSENSUS),
    "ids of an ensemble": (
        an_ensemble_with_ids,
        {"labels": schema.ENSEMBLE["labels"], **{name: schema.IDS[name] for name in ("id_ends", "id_text")}},
    ),
    "ids of a consensus": (
        a_consensus_with_ids,
        {"labels": schema.CONSENSUS["labels"], "ids": schema.IDS["ids"]},
    ),
    "trusted consensus": (a_trusted_consensus, {"labels": schema.CONSENSUS["labels"], **schema.TRUST}),
}


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    STORES[request.param][0](tmp_path / "s.zarr")
    return request.param, tmp_path / "s.zarr"


def stored_name(kind, name, body):
    """Return the name under which an array is stored."""
    return f"{name}-{body['generation']}" if "generation" in body else name


def test_manifest__has_the_entries_of_the_schema_and_its_checksum(store):
    kind, path = store
    content = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    in_buckets_only = {"data", "shared"}
    assert set(content) == set(schema.MANIFEST) - in_buckets_only
    kind = kind.split()[-1]
    assert set(content["body"]) == set(schema.BODIES[kind]) - in_buckets_only
    assert (content["kind"], content["format_version"]) == (kind, schema.FORMAT_VERSION)
    checksum = content.pop("checksum")
    assert zlib.crc32(json.dumps(content, sort_keys=True).encode()) == checksum


def test_arrays__are_those_of_the_schema(store):
    kind, path = store
    body = json.loads((path / "manifest.json").read_text(encoding="utf-8"))["body"]
    group = zarr.open_group(str(path), mode="r", zarr_format=3)
    names = {stored_name(kind, name, body) for name in STORES[kind][1]}
    assert {file.parent.name for file in path.glob("*/zarr.json")} == names
    for name, spec in STORES[kind][1].items():
        array = group[stored_name(kind, name, body)]
        metadata = array.metadata.to_dict()
        sizes = {**body, "n_id_bytes": body["ids"]["n_bytes"]} if name.startswith("id") else body
        assert array.shape == spec.shape_in(sizes)
        assert tuple(metadata["dimension_names"]) == spec.dims
        assert array.dtype.name in spec.dtypes
        assert metadata["fill_value"] == spec.fill_value(array.dtype)
        assert [codec["name"] for codec in metadata["codecs"]] == CODECS[spec.codec]


def test_checksums__are_those_of_the_values(store):
    kind, path = store
    body = json.loads((path / "manifest.json").read_text(encoding="utf-8"))["body"]
    group = zarr.open_group(str(path), mode="r", zarr_format=3)
    if kind == "pairs":
        for name in schema.PAIRS:
            values, step = group[name][:], body["chunk_entries"]
            found = [
                zlib.crc32(values[start : start + step].tobytes()) for start in range(0, len(values), step)
            ]
            assert found == body["checksums"][name]
        return
    if kind.startswith("ids"):
        check_ids(group, body)
        return
    rows = body["chunk_rows"]
    parts = [slice(start, start + rows) for start in range(0, body["n_objects"], rows)]
    if kind == "trusted consensus":
        found = [zlib.crc32(group["labels"][part].tobytes()) for part in parts]
        of_trust = []
        for part in parts:
            checksum = 0
            for name in schema.TRUST:
                checksum = zlib.crc32(group[name][part].tobytes(), checksum)
            of_trust.append(checksum)
        assert of_trust == body["trust"]["checksums"]
    elif kind == "consensus":
        labels, memberships = group["labels"][:], group["memberships"][:]
        found = [
            zlib.crc32(memberships[part].tobytes(), zlib.crc32(labels[part].tobytes())) for part in parts
        ]
    else:
        (name,) = (stored_name(kind, name, body) for name in STORES[kind][1])
        rows = group[name][:]
        assert body["chunk_columns"] == rows.shape[1]
        found = [[zlib.crc32(rows[part].tobytes())] for part in parts]
        metadata = (path / name / "zarr.json").read_bytes()
        assert zlib.crc32(metadata) == body["metadata_checksum"]
    assert found == body["checksums"]


def test_ensemble_in_parquet__is_as_the_page_says(tmp_path):
    path = tmp_path / "e.parquet"
    words = ["b", None, "a"] * 26
    labels = pa.table({"who": [f"é{row}" for row in range(78)], "a": np.arange(78) % 3, "w": words})
    Ensemble.from_labels(labels, id="who").save(path, chunk_rows=32)
    content = json.loads((path / "_manifest.json").read_text(encoding="utf-8"))
    assert set(content) == set(schema.MANIFEST) - {"data", "shared"}
    body = content["body"]
    assert set(body) == set(schema.BODIES[schema.PARQUET])
    checksum = content.pop("checksum")
    assert zlib.crc32(json.dumps(content, sort_keys=True).encode()) == checksum
    categories = (path / "_categories.json").read_bytes()
    assert json.loads(categories) == [None, ["a", "b"]]
    assert zlib.crc32(categories) == body["categories_checksum"]
    files = sorted(path.glob("*.parquet"))
    assert [file.name for file in files] == [f"part-{number:05}.parquet" for number in range(3)]
    assert [zlib.crc32(file.read_bytes()) for file in files] == body["files"]
    assert sum(file.stat().st_size for file in files) == body["n_bytes"]
    for number, file in enumerate(files):
        footer = file.read_bytes()
        footer = footer[-8 - int.from_bytes(footer[-8:-4], "little") :]
        assert zlib.crc32(footer) == body["footers"][number]
        table = parquet.read_table(file)
        assert table.schema.names == ["who", "a", "w"]
        assert table.schema.types[1:] == [pa.int8(), pa.dictionary(pa.int32(), pa.string())]
        codes = np.array([[*labels["a"].to_pylist()], [{"a": 0, "b": 1}.get(word, -1) for word in words]])
        part = codes.T[32 * number : 32 * (number + 1)].astype(np.int8)
        assert body["checksums"][number] == [zlib.crc32(part.tobytes())]
        texts = [text.encode() for text in table["who"].to_pylist()]
        ends = np.cumsum([len(text) for text in texts])
        assert body["ids"]["checksums"][number] == zlib.crc32(b"".join(texts), zlib.crc32(ends.tobytes()))


def check_ids(group, body):
    """Compare the checksums of ids with those of the arrays, and the ids with what was stored."""
    facts, first = body["ids"], 0
    is_text = facts["dtype"] == "text"
    values = group[f"id_ends-{body['generation']}"][:] if is_text else group["ids"][:]
    text = group[f"id_text-{body['generation']}"][:].tobytes() if is_text else b""
    if is_text:
        ids = [text[begin:end].decode() for begin, end in pairwise([0, *values.tolist()])]
        assert ids == [f"é{row}" for row in range(79)]
    else:
        assert np.array_equal(values, np.arange(70)[::-1] - (1 << 62))
    found = []
    for start in range(0, len(values), body["chunk_rows"]):
        part = values[start : start + body["chunk_rows"]]
        end = int(part[-1]) if is_text else 0
        found.append(zlib.crc32(text[first:end], zlib.crc32(part.tobytes())))
        first = end
    assert found == facts["checksums"]
    assert facts["digest"] == f"{zlib.crc32(values.tobytes()):08x}{zlib.crc32(text):08x}"
    assert set(facts) == set(schema.ID_FACTS)


def fill_of(spec):
    words = {"minimum": "minimum of the type", "maximum": "maximum of the type", "-1": "-1"}
    return words[spec.fill] + (", -1 for float32" if {"uint8", "float32"} <= set(spec.dtypes) else "")


def rows_of_arrays():
    """Return the rows of the table of arrays."""
    for kind, specs in {**schema.ARRAYS, "ensemble, consensus": schema.IDS}.items():
        for name, spec in specs.items():
            stored = f"{name}-<generation>" if kind == "ensemble" else name
            shape = f"({', '.join(spec.shape)}{',' * (len(spec.shape) == 1)})"
            dims = ", ".join(f"`{dim}`" for dim in spec.dims)
            types = ", ".join(spec.dtypes)
            yield kind, f"`{stored}`", f"`{shape}`", dims, types, fill_of(spec), spec.codec, spec.meaning


def in_parquet_only():
    ensemble, parquet = (schema.BODIES[kind] for kind in ("ensemble", schema.PARQUET))
    return {name: entry for name, entry in parquet.items() if name not in ensemble}


def tables():
    """Return the tables of the page, as they are declared: what the first column has, and rows."""
    yield "store | array | shape | dimension names | types | fill value | codec | value", rows_of_arrays()
    bodies = {kind: entries for kind, entries in schema.BODIES.items() if kind != schema.PARQUET}
    for entries in (*bodies.values(), in_parquet_only()):
        yield "entry of `body` | type | value", [(f"`{name}`", *entry) for name, entry in entries.items()]
    for entries in (schema.MANIFEST, schema.ID_FACTS, schema.PARQUET_PAIRS):
        yield "entry | value", [(f"`{name}`", meaning) for name, meaning in entries.items()]
    yield "column | value", [(f"`{name}`", meaning) for name, meaning in schema.PAIR_COLUMNS.items()]
    for columns in (schema.CLUSTER_COLUMNS, schema.PARTITION_COLUMNS):
        yield "column | type | value", [(f"`{name}`", *entry) for name, entry in columns.items()]


@pytest.mark.parametrize(("head", "rows"), list(tables()))
def test_page__has_the_tables_of_the_declarations(head, rows):
    lines = [f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {' | '.join(row)} |" for row in rows)]
    assert "\n" + "\n".join(lines) + "\n\n" in PAGE


def test_page__names_the_codecs_and_the_version():
    assert set(arrays.CODECS) <= set(re.findall(r"`([^`\n]+)`", PAGE))
    assert f"version {schema.FORMAT_VERSION}" in PAGE.splitlines()[0]
