"""``bigcons export`` of how far the labels can be trusted."""

import numpy as np
import pytest
from click.testing import CliRunner

from bigcons import Consensus
from bigcons.cli import main
from bigcons.datasets import planted_ensemble
from bigcons.metrics import trust


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in a folder with told.zarr, with what `trust` returns, and untold.zarr."""
    monkeypatch.chdir(tmp_path)
    ensemble, classes = planted_ensemble(200, 8, random_state=0)
    Consensus.write("told.zarr", classes, None, trust=trust(ensemble, classes))
    Consensus.write("untold.zarr", classes, None)
    return lambda line: CliRunner().invoke(main, line.split())


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
    assert (refused.exit_code, "bigcons.metrics.trust" in refused.stderr) == (1, True)
