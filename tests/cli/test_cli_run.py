"""``bigcons run``: the three commands that it is short for, with the same results."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from bigcons import Consensus, Ensemble, datasets, generate
from bigcons.cli import main
from bigcons.methods import ConsensusTree

N_OBJECTS = 600


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run `bigcons run features.npy -k 3 -o out` with further options."""
    monkeypatch.chdir(tmp_path)
    np.save("features.npy", datasets.planted_features(N_OBJECTS, 5, separation=12)[0])

    def invoke(options=""):
        return CliRunner().invoke(main, f"run features.npy -k 3 -o out/ --n-partitions 16 {options}".split())

    return invoke


def test_run__generates_and_solves(run):
    result = run("--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    said = json.loads(result.stdout)
    assert said["ensemble"]["clusters_per_partition"] == [3, 21]
    assert said["ensemble"]["trained_on"] == "all objects"
    assert said["consensus"]["method"] == "tree"
    made = generate.mixed("features.npy", n_partitions=16, random_state=0)
    stored = Ensemble.open("out/ensemble.zarr")
    np.testing.assert_array_equal(stored.read(0, N_OBJECTS), made.read(0, N_OBJECTS))
    np.testing.assert_array_equal(
        Consensus.open("out/consensus.zarr").labels, ConsensusTree(3, random_state=0).fit(made).labels_
    )


def test_run__shows_the_number_of_clusters_it_chose(run):
    result = CliRunner().invoke(
        main, ["run", "features.npy", "-k", "auto", "-o", "out", "--n-partitions", "16", "--json"]
    )
    assert result.exit_code == 0, result.output
    (chosen,) = re.findall(
        r"^NClustersChoice\((\d+) ", json.loads(result.stdout)["consensus"]["n_clusters_choice"]
    )
    assert int(chosen) == len(np.unique(Consensus.open("out/consensus.zarr").labels)) in (3, 4)


def test_run__again_finds_its_results_and_other_parameters_are_refused(run, tmp_path):
    assert run().exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    again = run("-v")
    assert again.exit_code == 0
    assert "out/consensus.zarr already holds the result of this run." in again.stderr
    assert [line.split()[1] for line in again.stdout.splitlines() if "seconds" in line] == ["-", "-"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    for options, difference in (("-k 4", "-k 3, not 4"), ("-m best -k 3", "-m ConsensusTree, not BEST")):
        other = run(options)
        assert other.exit_code == 1
        assert f"out/consensus.zarr exists and was made with {difference}" in other.stderr
    other = run("--random-state 1")
    assert other.exit_code == 1
    assert "seed=0, not 1" in other.stderr
    assert run("--random-state 1 --overwrite -m mixture").exit_code == 0
    other = run("--random-state 1 --n-partitions 17")
    assert "was made with --n-partitions 16, not 17" in other.stderr


@pytest.mark.parametrize(
    ("options", "status", "named"),
    [
        ("-m pccc", 2, "Did you mean pcc?"),
        ("-k few", 2, "'few' is not a number"),
        ("-k 3:8", 2, "-k range(3, 9) has type range; use an integer >= 1"),
        ("--base-clusters 5", 2, "No such option '--base-clusters'"),
    ],
)
def test_run__refuses_before_any_work(run, tmp_path, options, status, named):
    result = run(options)
    assert result.exit_code == status
    assert named in result.stderr
    assert not (tmp_path / "out").exists()


def test_run__without_a_number_of_clusters_names_auto(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("features.npy", np.eye(3))
    result = CliRunner().invoke(main, ["run", "features.npy", "-o", "out/"])
    assert result.exit_code == 2
    assert "Give the number of clusters with -k, or -k auto" in result.stderr
    result = CliRunner().invoke(main, ["solve", "features.npy", "-o", "out.zarr"])
    assert result.exit_code == 2
    assert "-k, the number of clusters, or auto to have it chosen" in result.stderr


@pytest.mark.parametrize("k", ["auto", "6"])
@pytest.mark.parametrize("of", ["classes", "noise"])
def test_run__names_the_column_that_the_clusters_follow(tmp_path, monkeypatch, of, k):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    points = rng.normal(size=(N_OBJECTS, 6))
    points += 6 * rng.normal(size=(3, 6))[rng.integers(3, size=N_OBJECTS)] * (of == "classes")
    columns = {f"x{c}": points[:, c] for c in range(6)} | {"city": rng.choice(list("abcdefgh"), N_OBJECTS)}
    parquet.write_table(pa.table(columns | {"member": rng.random(N_OBJECTS) < 0.5}), "features.parquet")
    command = f"run features.parquet -k {k} --n-partitions 16 --json".split()
    told = CliRunner().invoke(main, [*command, "-o", "with"])
    assert told.exit_code == 0, told.output
    others = CliRunner().invoke(main, [*command, "-o", "without", "--drop", "member"])
    assert others.exit_code == 0, others.output
    assert json.loads(others.stdout)["followed"] == []
    assert "The clusters follow" not in others.stderr
    # landmarks do not see a column of two values: in noise it makes no cluster
    assert json.loads(told.stdout)["followed"] == (["member"] if of == "classes" else [])
    assert ("The clusters follow 'member': " in told.stderr) == (of == "classes")
