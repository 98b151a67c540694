"""The commands on stores: an ensemble grows, its tree is shown, labels are exported by their confidence."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bigcons import MCLA, Ensemble, consensus_tree
from bigcons.cli import main
from bigcons.datasets import planted_ensemble
from bigcons.metrics import trust
from tests.support.stores import write_consensus

IDS = [f"c{i}" for i in range(60)]
TRUTH = np.arange(60) % 3


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda line: CliRunner().invoke(main, line.split())


@pytest.fixture
def objects(run):
    """Write e.zarr, the first 40 objects in 3 partitions, and the other objects."""
    frame = pd.DataFrame({name: (TRUTH + u) % 3 for u, name in enumerate("abc")}, index=IDS)
    Ensemble.from_labels(frame[:40], id="index").save("e.zarr")
    frame[40:].to_csv("objects.csv")


def test_append__of_objects_and_partitions_is_the_whole_ensemble(run, objects):
    pd.DataFrame({"d": TRUTH[::-1]}, index=IDS[::-1]).to_parquet("partition.parquet")
    told = run("append e.zarr objects.csv --objects --json")
    assert told.exit_code == 0, told.stderr
    assert json.loads(told.stdout)["n_objects"] == 60
    assert run("append e.zarr partition.parquet --partitions").exit_code == 0
    grown = Ensemble.open("e.zarr")
    assert (grown.names, grown.ids.tolist()) == (list("abcd"), IDS)
    expected = np.column_stack([TRUTH, (TRUTH + 1) % 3, (TRUTH + 2) % 3, TRUTH])
    np.testing.assert_array_equal(grown.to_pandas().to_numpy(int), expected)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("e.zarr objects.csv", "--objects"),
        ("e.zarr objects.csv --objects --partitions", "either --objects"),
        ("e.zarr objects.csv objects.csv --objects", "pass one"),
        ("e.zarr objects.csv --partitions", "has index 'c40', which no object has"),
        ("nowhere.zarr objects.csv --objects", "nowhere.zarr"),
    ],
)
def test_append__asks_for_what_it_is_not_told(run, objects, line, words):
    told = run(f"append {line}")
    assert told.exit_code > 0
    assert words in told.stderr
    assert Ensemble.open("e.zarr").shape == (40, 3)


def test_append__of_memberships_takes_a_table_for_each_partition(run):
    soft = np.eye(3)[TRUTH]
    Ensemble.from_memberships([soft[:40], soft[:40]]).save("soft.zarr")
    np.save("more.npy", soft[40:])
    np.save("third.npy", soft)
    assert run("append soft.zarr more.npy more.npy --objects").exit_code == 0
    assert run("append soft.zarr third.npy --partitions").exit_code == 0
    np.testing.assert_array_equal(np.asarray(Ensemble.open("soft.zarr")), np.tile(soft, 3))


def test_tree__is_told_and_drawn_and_kept_by_a_consensus(run):
    planted_ensemble(600, 30, noise=(0.0, 0.2), random_state=0)[0].save("e.zarr")
    found = consensus_tree("e.zarr", random_state=0)
    text = run("tree e.zarr -k 6").stdout
    shown = text.splitlines()
    assert shown[0].startswith("6 clusters; support")
    assert shown[2].split()[:3] == ["split", "n_clusters", "height"]
    assert len(shown) == 4 + 5 + 2
    assert shown[-1] == f"... and {len(found.table()) - 5} lower splits; -o FILE.csv writes all."
    told = json.loads(run("tree e.zarr -o t.png --json").stdout)
    assert told["splits"] == found.table().slice(0, len(told["splits"])).to_pylist()
    assert (told["n_clusters"], told["is_clear"], told["tree"]) == (6, True, found.tree)
    assert Path("t.png").read_bytes()[:4] == b"\x89PNG"
    again = run("tree e.zarr -o t.png")
    assert (again.exit_code, "t.png" in again.stderr) == (1, True)
    assert "use .png, .pdf, .svg, .csv or .parquet" in run("tree e.zarr -o t.jpg").stderr
    assert run("tree e.zarr -o t.csv").exit_code == 0
    written = Path("t.csv").read_text().splitlines()
    assert written[0].split(",") == found.table().column_names
    assert len(written) == 1 + len(found.table())
    MCLA("auto", random_state=0).fit("e.zarr", out="c.zarr")
    MCLA(3, random_state=0).fit("e.zarr", out="three.zarr")
    assert run("tree c.zarr -k 6").stdout == text
    assert "its number of clusters was given; pass the ensemble" in run("tree three.zarr").stderr


def test_export__writes_the_confidence_and_leaves_out_labels_below_one(run):
    ensemble, classes = planted_ensemble(200, 8, random_state=0)
    told = write_consensus("told.zarr", classes, None, trust=trust(ensemble, classes))
    write_consensus("untold.zarr", classes, None)
    assert run("export told.zarr -o t.parquet --confidence").exit_code == 0
    assert pd.read_parquet("t.parquet")["confidence"].to_numpy().tobytes() == told.trust.confidence.tobytes()
    assert run("export told.zarr -o t.parquet --min-confidence 0.9 --overwrite").exit_code == 0
    doubtful = told.trust.confidence < 0.9
    assert 0 < doubtful.sum() < 200
    np.testing.assert_array_equal(pd.read_parquet("t.parquet")["label"], np.where(doubtful, -1, told.labels))
    np.testing.assert_array_equal(
        told.to_pandas(min_confidence=0.9)["label"], pd.read_parquet("t.parquet")["label"]
    )
    least = np.median(told.trust.confidence[~doubtful])
    below = told.trust.confidence < least
    assert (told.trust.confidence == least).any()
    np.testing.assert_array_equal(told.to_pandas(min_confidence=least)["label"] < 0, below)
    assert run("export told.zarr -o u.csv --min-confidence 2").exit_code == 2
    refused = run("export untold.zarr -o u.csv --min-confidence 0.9")
    assert (refused.exit_code, "bigcons.metrics.trust" in refused.stderr) == (1, True)
