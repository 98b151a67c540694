"""Repair: a store of any kind that was damaged ends with the bits it had, or as it was."""

from __future__ import annotations

import json
import pickle
import shutil

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from benchmarks import faults
from bigcons import METHODS, PCC, Consensus, Ensemble, PairTable, repair
from bigcons.cli.group import main
from bigcons.coassociation import sample
from bigcons.datasets import planted_ensemble
from bigcons.errors import CorruptStoreError, NotRepairableError
from bigcons.storage.checkpoint import Snapshots
from bigcons.stores.ensemble import import_labels
from bigcons.stores.opening import verify_store

pytestmark = pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning")

ROWS, CHUNK = 500, 128


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store of every kind that says what it was made from."""
    folder = tmp_path_factory.mktemp("made") / "here"
    folder.mkdir()
    labels = planted_ensemble(ROWS, 8, random_state=0)[0].read(0, ROWS)
    table = np.char.add("class ", labels.astype(str)).astype(object)
    table[labels < 0] = ""
    lines = ["name," + ",".join(f"u{u}" for u in range(8))]
    lines += [",".join([f"object {row}", *cells]) for row, cells in enumerate(table.tolist())]
    (folder / "labels.csv").write_text("\n".join(lines))
    ensemble = import_labels(folder / "labels.csv", folder / "e.zarr", id="name", chunk_rows=CHUNK)
    ensemble.save(folder / "e.parquet")
    rng = np.random.default_rng(0)
    soft = Ensemble.from_memberships([rng.dirichlet(np.ones(3), ROWS).astype(np.float32) for _ in range(3)])
    soft.save(folder / "soft.zarr", chunk_rows=CHUNK).harden(folder / "hard.zarr")
    sample(ensemble, per_object=10, tiles=3, out=folder / "tiles.zarr", random_state=1)
    sample(ensemble, per_object=10, out=folder / "pairs.zarr", random_state=1)
    sample(ensemble, per_object=10, out=folder / "pairs.parquet", random_state=1)
    PairTable.open(folder / "pairs.zarr").to_parquet(folder / "parts", pairs_per_file=1000)
    PCC(3, random_state=2).fit(ensemble, out=folder / "pcc.zarr")
    METHODS["kmeans"](3, random_state=2).fit(ensemble, out=folder / "kmeans.zarr")
    assert (Consensus.open(folder / "pcc.zarr").labels < 0).any()
    return folder.rename(folder.with_name("moved"))


@pytest.fixture
def folder(made, tmp_path):
    """Sources are no longer where they were, but next to the stores."""
    return shutil.copytree(made, tmp_path / "moved")


def files_of(store):
    files = store.rglob("*") if store.is_dir() else [store]
    return {path.relative_to(store): path.read_bytes() for path in sorted(files) if path.is_file()}


def spoil(file, how="flip"):
    content = bytearray(file.read_bytes())
    if how == "flip":
        content[len(content) // 2] ^= 8
        file.write_bytes(content)
    elif how == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.unlink()


# Store, what is damaged in it and how, and what repair says that it made again.
DAMAGE = {
    "labels": ("e.zarr", "labels-1/c/1/0", "flip", "rows 128 to 256 of labels-1"),
    "two chunks in a row": ("e.zarr", "labels-1/c/[12]/0", "delete", "rows 128 to 384 of labels-1"),
    "metadata": ("e.zarr", "labels-1/zarr.json", "cut", "metadata"),
    "the group": ("e.zarr", "zarr.json", "cut", "metadata"),
    "the group of pairs": ("pairs.zarr", "zarr.json", "delete", "metadata"),
    "values": ("e.zarr", "categories-1.json", "flip", "the original values"),
    "rows in Parquet": ("e.parquet", "part-0000[13].parquet", "flip", "rows 128 to 256; rows 384 to 500"),
    "values in Parquet": ("e.parquet", "_categories.json", "delete", "the original values"),
    "footer of Parquet": ("e.parquet", "part-00003.parquet", "cut", "rows 384 to 500"),
    "ids": ("e.zarr", "id_text-1/c/0", "flip", "the ids"),
    "hardened": ("hard.zarr", "labels-1/c/0/0", "cut", "rows 0 to 500 of labels-1"),
    "indptr of tiles": ("tiles.zarr", "indptr/c/0", "flip", "rows 0 to 501 of indptr"),
    "metadata of tiles": ("tiles.zarr", "indices/zarr.json", "delete", "metadata"),
    "drawn pairs": ("pairs.zarr", "n_*/c/0", "delete", "of n_agree"),
    "pairs in Parquet": ("pairs.parquet", None, "flip", "pairs.parquet"),
    "parts of Parquet": ("parts", "part-00001.parquet", "flip", "part-00001.parquet"),
    "memberships": ("pcc.zarr", "memberships/c/2/0", "flip", "rows 256 to 384 of labels and memberships"),
    "confidence": ("pcc.zarr", "confidence/c/0", "cut", "rows 0 to 128 of confidence"),
    "ids of a consensus": ("pcc.zarr", "id_ends/c/0", "delete", "the ids"),
    "labels without memberships": ("kmeans.zarr", "labels/c/3", "flip", "rows 384 to 500 of labels"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_repair__gives_the_bits_that_were(what, folder):
    name, inside, how, said = DAMAGE[what]
    store = folder / name
    before = files_of(store)
    damaged = [store] if inside is None else list(store.glob(inside))
    assert damaged
    for file in damaged:
        spoil(file, how)
    assert files_of(store) != before
    found = repair(store)
    assert said in "; ".join(found["repaired"])
    assert files_of(store) == before
    assert repair(store)["repaired"] == []
    assert [path.name for path in folder.iterdir() if path.name.startswith((".", "bigcons-"))] == []


@pytest.mark.parametrize("store", ["e.zarr", "pairs.zarr", "pcc.zarr"])
@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("node_type", "node_uype"),
        ('"group"', '"froup"'),
        ("chunk_grid", "chunk_grie"),
        ('name": "b', 'name": "c'),
    ],
)
def test_repair__makes_the_group_again_that_zarr_cannot_open(folder, store, was, becomes):
    path = folder / store
    before, group = files_of(path), path / "zarr.json"
    zarr.open_group(path, mode="r")
    group.write_text(group.read_text().replace(was, becomes, 1))
    with pytest.raises(Exception):  # noqa: B017, PT011 - of any type
        [array[:] for _, array in zarr.open_group(path, mode="r").arrays()]
    with pytest.raises(CorruptStoreError, match="does not list the arrays as they are"):
        verify_store(path)
    assert repair(path)["repaired"] == ["metadata"]
    assert files_of(path) == before
    group.write_text(json.dumps({**json.loads(group.read_text()), "attributes": {"note": "mine"}}))
    verify_store(path)


def test_repair__takes_labels_from_memberships_without_a_source(folder):
    shutil.rmtree(folder / "e.zarr")
    before = files_of(folder / "pcc.zarr")
    spoil(folder / "pcc.zarr/labels/c/1")
    assert repair(folder / "pcc.zarr")["repaired"] == ["rows 128 to 256 of labels and memberships"]
    assert files_of(folder / "pcc.zarr") == before


def replace_by_others(ensemble):
    Ensemble.from_labels(Ensemble.open(ensemble).read(0, ROWS)[::-1]).save(ensemble, overwrite=True)


# What happens to the source, and what is said of it.
LOST = {
    "e.zarr": (lambda folder: (folder / "labels.csv").unlink(), "--source", (128, 256)),
    "pcc.zarr": (lambda folder: shutil.rmtree(folder / "e.zarr"), "--source", (128, 256)),
    "kmeans.zarr": (lambda folder: replace_by_others(folder / "e.zarr"), "other labels", (128, 256)),
    "tiles.zarr": (lambda folder: replace_by_others(folder / "e.zarr"), "another checksum", None),
}


@pytest.mark.parametrize("name", LOST)
def test_repair__that_cannot_leaves_the_store_as_it_was(name, folder):
    lose, said, rows = LOST[name]
    lose(folder)
    store = folder / name
    chunks = ("labels*/c/1", "labels*/c/1/0", "memberships/c/1/0", "indices/c/0")
    for file in [path for pattern in chunks for path in store.glob(pattern) if path.is_file()]:
        spoil(file)
    before = files_of(store)
    with pytest.raises(NotRepairableError, match=said) as caught:
        repair(store)
    assert files_of(store) == before
    assert "\n" not in str(caught.value)
    assert caught.value.rows == ([] if rows is None else [rows])
    assert pickle.loads(pickle.dumps(caught.value)).lost == caught.value.lost
    assert [path.name for path in folder.iterdir() if path.name.startswith((".", "bigcons-"))] == []


@pytest.mark.filterwarnings("ignore::bigcons.errors.ConvergenceWarning")
def test_repair__of_an_unfinished_solve_goes_back_a_pass(folder):
    options = {"n_clusters": 3, "random_state": 2, "tol": 0.0, "max_iter": 4}
    out, partial = folder / "out.zarr", folder / "out.zarr.partial"
    with faults.stopping(Snapshots, "save", 4):
        METHODS["mixture"](**options).fit(folder / "e.zarr", out=out)
    assert [verify_store(out)["n_passes"], repair(out)["repaired"]] == [3, []]
    spoil(partial / "snapshot.npz")
    with pytest.raises(CorruptStoreError, match=r"snapshot.npz is damaged"):
        verify_store(out)
    assert repair(out)["n_passes"] == 2
    found = METHODS["mixture"](**options).fit(folder / "e.zarr", out=out)
    expected = METHODS["mixture"](**options).fit(folder / "e.zarr")
    assert np.asarray(found.memberships_).tobytes() == expected.memberships_.tobytes()


def test_repair__without_a_manifest_to_go_by(folder):
    spoil(folder / "pcc.zarr/manifest.json")
    with pytest.raises(NotRepairableError, match="manifest"):
        repair(folder / "pcc.zarr")


def test_verify_command__repairs_from_a_source_elsewhere(folder, tmp_path):
    (folder / "e.zarr").rename(tmp_path / "elsewhere.zarr")
    store, n_entries = str(folder / "tiles.zarr"), 2 * PairTable.open(folder / "tiles.zarr").n_pairs
    spoil(folder / "tiles.zarr/n_agree/c/0")
    run = CliRunner().invoke
    assert run(main, ["verify", store]).exit_code == 1
    failed = run(main, ["verify", store, "--repair"])
    assert (failed.exit_code, failed.stderr.count("\n")) == (1, 1)
    assert "it was left as it was" in failed.stderr
    done = run(main, ["verify", store, "--repair", "--source", str(tmp_path / "elsewhere.zarr"), "--json"])
    assert (done.exit_code, json.loads(done.stdout)["repaired"]) == (
        0,
        [f"entries 0 to {n_entries} of n_agree"],
    )
    assert run(main, ["verify", store, "--source", "x"]).exit_code == 2
    assert "is intact." in run(main, ["verify", store]).stdout
