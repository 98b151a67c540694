"""``bigcons trust``: which answers to trust, from the store or computed, for people and for programs."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from bigcons import Consensus
from bigcons.cli import main
from bigcons.datasets import planted_ensemble
from bigcons.metrics import trust


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in a folder with e.zarr, told.zarr, with what `trust` returns, and untold.zarr."""
    monkeypatch.chdir(tmp_path)
    ensemble, classes = planted_ensemble(200, 8, random_state=0)
    ensemble.save("e.zarr")
    Consensus.write("told.zarr", classes, None, trust=trust(ensemble, classes))
    Consensus.write("untold.zarr", classes, None)
    return lambda line: CliRunner().invoke(main, line.split())


def test_trust__prints_clusters_and_partitions(run):
    shown = run("trust told.zarr --partitions").stdout.splitlines()
    heads = [line.split() for line in shown if line.startswith(("cluster ", "partition "))]
    assert [head[0] for head in heads] == ["cluster", "partition"]
    assert len(run("trust told.zarr").stdout.splitlines()) < len(shown) - 8
    assert any(line.startswith("p7 ") for line in shown)


def test_trust__computes_what_a_store_has_not(run):
    told = json.loads(run("trust told.zarr --json").stdout)
    computed = json.loads(run("trust untold.zarr --ensemble e.zarr --scheduler serial --json").stdout)
    assert {**told, "consensus": None} == {**computed, "consensus": None}
    assert told["n_below_50"] <= told["n_below_90"] <= told["n_objects"] == 200
    assert [row["cluster"] for row in told["clusters"]] == list(range(6))
    refused = run("trust untold.zarr")
    assert refused.exit_code == 1
    assert "bigcons trust" in refused.stderr


def test_export__writes_the_confidence(run):
    assert run("export told.zarr -o t.npy --confidence").exit_code == 0
    rows = np.load("t.npy")
    assert rows["confidence"].tobytes() == Consensus.open("told.zarr").trust.confidence.tobytes()


def test_export__leaves_out_labels_below_a_confidence(run):
    assert run("export told.zarr -o t.npy --min-confidence 0.9").exit_code == 0
    told = Consensus.open("told.zarr")
    doubtful = told.trust.confidence < 0.9
    assert 0 < doubtful.sum() < 200
    np.testing.assert_array_equal(np.load("t.npy"), np.where(doubtful, -1, told.labels))
    np.testing.assert_array_equal(told.to_pandas(min_confidence=0.9)["label"], np.load("t.npy"))
    assert run("export told.zarr -o t.npy --min-confidence 2").exit_code == 2
    refused = run("export untold.zarr -o u.npy --min-confidence 0.9")
    assert (refused.exit_code, "bigcons trust" in refused.stderr) == (1, True)
