"""``bigcons append``: an ensemble grows."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bigcons import Ensemble
from bigcons.cli import main

IDS = [f"c{i}" for i in range(60)]
TRUTH = np.arange(60) % 3


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in a folder with e.zarr, the first 40 objects in 3 partitions."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({name: (TRUTH + u) % 3 for u, name in enumerate("abc")}, index=IDS)
    Ensemble.from_labels(frame[:40], id="index").save("e.zarr")
    frame[40:].to_csv("objects.csv")
    pd.DataFrame({"d": TRUTH[::-1]}, index=IDS[::-1]).to_parquet("partition.parquet")
    return lambda line: CliRunner().invoke(main, line.split())


def test_append__of_objects_and_partitions_is_the_whole_ensemble(run):
    told = run("append e.zarr objects.csv --objects --json")
    assert told.exit_code == 0, told.stderr
    assert json.loads(told.stdout)["n_objects"] == 60
    assert run("append e.zarr partition.parquet --partitions").exit_code == 0
    grown = Ensemble.open("e.zarr")
    assert (grown.names, grown.ids.tolist()) == (list("abcd"), IDS)
    expected = np.column_stack([TRUTH, (TRUTH + 1) % 3, (TRUTH + 2) % 3, TRUTH])
    np.testing.assert_array_equal(grown.to_pandas().to_numpy(int), expected)


def test_append__asks_for_what_it_is_not_told(run):
    for line, words in {
        "append e.zarr objects.csv": "--objects",
        "append e.zarr objects.csv partition.parquet --objects": "pass one",
        "append e.zarr objects.csv --partitions": "has index 'c40', which is no object",
        "append nowhere.zarr objects.csv --objects": "nowhere.zarr",
    }.items():
        told = run(line)
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
