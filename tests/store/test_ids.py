"""Ids in stores: kept by whatever happens to an ensemble, through a solve to an export, and never wrong."""

import pickle
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv
from pyarrow import parquet

import bigcons as bc
from bigcons import generate
from bigcons.disk.commit import read_head
from bigcons.errors import CorruptStoreError, InvalidIdsError, StoreExistsError
from bigcons.io.columns import Ids
from bigcons.store.ensemble import import_labels
from tests.support.refusals import refused
from tests.support.stores import change_head, write_consensus

RNG = np.random.default_rng(0)
N_OBJECTS = 150
NAMES = [f"{'é' * (number % 3)}c{number:03d}" for number in RNG.permutation(N_OBJECTS)]
LABELS = RNG.integers(0, 3, (N_OBJECTS, 4))


def table(names=NAMES, rows=slice(None), **more):
    """Return some rows of the labels, with ids."""
    columns = {f"p{u}": LABELS[rows, u] for u in range(4)}
    return pa.table({"who": names[rows], **columns, **more})


@pytest.fixture
def stored(tmp_path):
    return import_labels(table(), tmp_path / "e.zarr", id="who", chunk_rows=64)


def test_ids__stay_with_an_ensemble_whatever_is_done_to_it(stored, tmp_path):
    held = bc.Ensemble.from_labels(table(), id="who")
    assert held.id_name == stored.id_name == "who"
    for ensemble in (
        held,
        stored,
        stored.load(),
        held.save(tmp_path / "again.zarr", chunk_rows=40),
        pickle.loads(pickle.dumps(held)),
        pickle.loads(pickle.dumps(stored)),
        bc.Ensemble.from_labels(stored),
        bc.Ensemble.from_labels(tmp_path / "e.zarr", drop="p1"),
    ):
        assert ensemble.ids.tolist() == NAMES
        assert ensemble.id_column.facts.digest == stored.id_column.facts.digest
    assert stored.verify()["ok"]
    assert stored.info()["id"] == "who"
    assert stored.id_column.read(60, 70).to_pylist() == NAMES[60:70]
    assert bc.Ensemble.from_labels(LABELS).ids is None


@pytest.mark.parametrize("place", ["memory", "store"])
def test_append__keeps_ids_in_step(place, tmp_path):
    ensemble = bc.Ensemble.from_labels(table(rows=slice(100)), id="who")
    if place == "store":
        ensemble = bc.Ensemble.open(ensemble.save(tmp_path / "e.zarr", chunk_rows=32).path, "a")
    for wrong, message in (
        (table(rows=slice(99, 150)), "is in rows 99 and 100"),
        (table(rows=slice(100, 150)).drop_columns("who"), "pass id="),
        (table(names=list(range(N_OBJECTS)), rows=slice(100, 150)), "is int64 but"),
    ):
        with refused(message, InvalidIdsError):
            ensemble.append_objects(wrong, id="who" if "who" in wrong.column_names else None)
    ensemble.append_objects(table(rows=slice(100, 150)), id="who")
    assert ensemble.ids.tolist() == NAMES
    more = pa.table({"who": NAMES, "new": LABELS[:, 0]})
    other = more.set_column(0, "who", pa.array([*NAMES[:7], "zed", *NAMES[8:]]))
    with refused(r"row 7 .* has who 'zed', which no object has", InvalidIdsError):
        ensemble.append_partitions(other, id="who")
    with refused(r"who of labels is int64 but the ids of the objects are text", InvalidIdsError):
        ensemble.append_partitions(more.set_column(0, "who", pa.array(range(N_OBJECTS))), id="who")
    ensemble.append_partitions(more.sort_by("who"), id="who")  # by key
    ensemble.append_partitions(more.rename_columns(["who", "again"]), id="who")
    assert (ensemble.names[-2:], ensemble.ids.tolist()) == (["new", "again"], NAMES)
    assert np.array_equal(np.asarray(ensemble)[:, 4:], LABELS[:, [0, 0]])
    assert np.array_equal(np.asarray(ensemble)[:, :4], LABELS)
    assert ensemble.verify()["ok"]
    with refused("leave out the id", InvalidIdsError):
        bc.Ensemble.from_labels(LABELS).append_objects(table(), id="who")


def test_memberships__keep_ids_that_agree(tmp_path):
    soft = RNG.dirichlet(np.ones(3), 40)
    frames = [pd.DataFrame(soft, columns=list("abc")).assign(who=NAMES[:40]) for _ in range(2)]
    ensemble = bc.Ensemble.from_memberships(frames, id="who")
    assert ensemble.save(tmp_path / "e.zarr").ids.tolist() == NAMES[:40]
    assert ensemble.harden(tmp_path / "hard.zarr").ids.tolist() == NAMES[:40]
    with refused("other ids, or another order", InvalidIdsError):
        bc.Ensemble.from_memberships([frames[0], frames[1][::-1]], id="who")
    soft = ensemble.read(0, 40)
    ensemble.append_partitions([frames[1][:4:-1]], id="who")  # by key
    assert np.array_equal(ensemble.read(0, 40)[5:, 6:], soft[5:, :3])
    assert not ensemble.read(0, 5)[:, 6:].any()


def test_solve__brings_ids_to_the_export(stored, tmp_path):
    model = bc.METHODS["best"](3)
    model.fit(stored, out=tmp_path / "c.zarr")
    consensus = bc.Consensus.open(tmp_path / "c.zarr")
    expected = dict(zip(NAMES, model.labels_.tolist(), strict=True))
    assert consensus.ids.tolist() == NAMES
    assert consensus.verify()["n_objects"] == N_OBJECTS
    theirs = pd.DataFrame({"who": sorted(NAMES), "age": range(N_OBJECTS)})
    for name in ("c.parquet", "c.csv"):
        path = tmp_path / name
        consensus.export(path)
        read = pd.read_parquet if name.endswith("parquet") else pd.read_csv
        joined = theirs.merge(read(path), on="who", validate="1:1")
        assert dict(zip(joined["who"], joined["label"], strict=True)) == expected
    joined = pl.from_pandas(theirs).join(pl.read_parquet(tmp_path / "c.parquet"), on="who")
    assert dict(joined.select("who", "label").iter_rows()) == expected
    found = duckdb.sql(f"select who, label from theirs join '{tmp_path}/c.parquet' using (who)").fetchall()
    assert dict(found) == expected
    with pytest.raises(StoreExistsError, match="other ids"):  # a result without them is another one
        bc.METHODS["best"](3).fit(table(names=NAMES[::-1]), id="who", out=tmp_path / "c.zarr")


def test_generate__carries_ids_and_goes_by_them(tmp_path):
    points = pd.DataFrame(RNG.normal(size=(N_OBJECTS, 2)), index=pd.Index(NAMES, name="who"))
    options = {"n_partitions": 3, "random_state": 0, "client": "serial", "memory": "500MB"}
    for train in ("auto", "all"):
        ensemble = generate.kmeans(points, id="who", train=train, out=tmp_path / f"{train}.zarr", **options)
        assert ensemble.ids.tolist() == NAMES
        assert ensemble.provenance["features"] == ["0", "1"]
    with refused("other ids", StoreExistsError):
        generate.kmeans(points[::-1], id="who", out=tmp_path / "auto.zarr", **options)
    held = generate.diverse(bc.select(points.reset_index(), id="who"), n_clusters=2, algorithms="ward")
    assert held.ids.tolist() == NAMES
    consensus = write_consensus(tmp_path / "c.zarr", np.asarray(held)[:, 0], None, ids=ensemble)
    assert consensus.to_pandas().index.equals(points.index)


@given(
    ids=st.one_of(
        st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, unique=True),
        st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, unique=True),
        st.lists(st.integers(1 << 63, (1 << 64) - 1), min_size=1, unique=True),
    ),
    chunk_rows=st.integers(1, 9),
)
@settings(max_examples=8)
def test_store__gives_back_any_ids(ids, chunk_rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ids")
    values = pa.array(ids) if isinstance(ids[0], str) else np.array(ids)
    consensus = write_consensus(
        folder / "c.zarr", np.zeros(len(ids), int), None, ids=values, chunk_rows=chunk_rows
    )
    assert consensus.ids.tolist() == ids
    consensus.verify()
    consensus.export(folder / "c.parquet")
    assert parquet.read_table(folder / "c.parquet")["id"].to_pylist() == ids
    consensus.export(folder / "c.csv")
    options = arrow_csv.ConvertOptions(column_types={"id": consensus.id_column.type}, null_values=[])
    parsing = arrow_csv.ParseOptions(newlines_in_values=True)
    again = arrow_csv.read_csv(folder / "c.csv", convert_options=options, parse_options=parsing)
    assert again["id"].to_pylist() == ids
    shutil.rmtree(folder)


def test_store__writes_text_in_whole_chunks(tmp_path):
    names = [f"é{number:099d}" for number in RNG.permutation(25_000)]
    labels = pa.table({"who": names, "a": np.arange(25_000) % 3})
    ensemble = bc.Ensemble.from_labels(labels, id="who").save(tmp_path / "e.zarr", chunk_rows=1_000)
    assert ensemble.ids.tolist() == names
    assert len(list((tmp_path / "e.zarr/id_text/c").iterdir())) == 3  # 2,525,000 bytes


@pytest.mark.parametrize("array", ["id_ends", "id_text"])
def test_store__notices_damage_of_ids(stored, array):
    (chunk,) = [file for file in (Path(stored.path) / array).rglob("c/0") if file.is_file()]
    chunk.unlink()
    again = bc.Ensemble.open(stored.path)
    assert again.read(0, 10).shape == (10, 4)
    with refused(r"(rows|id_text) 0 to", CorruptStoreError):
        again.verify()
    shutil.rmtree(Path(stored.path) / array)
    with refused("is missing", CorruptStoreError):
        _ = bc.Ensemble.open(stored.path).ids


@pytest.mark.parametrize("wrong", [{"dtype": "object"}, {"n_bytes": 3}, {"n_bytes": None}])
def test_store__refuses_a_head_that_misstates_ids(stored, wrong):
    change_head(stored.path, ids=read_head(stored.path).body["ids"] | wrong)
    with pytest.raises(CorruptStoreError):
        bc.Ensemble.open(stored.path).verify()


def test_store__keeps_one_id_for_each_object(tmp_path):
    ids = bc.Ensemble.from_labels(table(), id="who").id_column
    assert isinstance(ids, Ids)
    with refused("150 ids 'who' but 3 objects", InvalidIdsError):
        write_consensus(tmp_path / "c.zarr", np.zeros(3, int), None, ids=ids)
    assert list(tmp_path.glob("c.zarr")) == []
    series = pd.Series(["a", "b"], name="label")
    consensus = write_consensus(tmp_path / "c.zarr", np.array([0, 1]), None, ids=series)
    assert consensus.to_arrow().to_pydict() == {"id": ["a", "b"], "label": [0, 1]}
