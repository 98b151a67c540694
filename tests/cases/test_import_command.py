"""The command line reads what people bring by the same rules."""

import pandas as pd
import pytest
from click.testing import CliRunner

from bigcons import Ensemble
from bigcons.cli import main
from tests.support.stores import values_of


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, " ".join(map(str, words)).split())


@pytest.fixture
def ok(run):
    def invoke(*words):
        result = run(*words)
        assert result.exit_code == 0, result.output
        return result

    return invoke


def test_import__of_runs(ok, run):
    for u in range(3):
        pd.DataFrame({"cell": ["x", "y"], "k": [u, 0]}).to_csv(f"run{u}.csv", index=False)
    ok("import", "run0.csv", "run1.csv", "run2.csv", "--runs", "--id", "cell", "-o", "e.zarr")
    ensemble = Ensemble.open("e.zarr")
    assert (ensemble.names, ensemble.ids.tolist()) == (["run0", "run1", "run2"], ["x", "y"])
    assert values_of(ensemble) == [[0, 1, 2], [0, 0, 0]]
    told = run("import", "run0.csv", "run1.csv", "-o", "f.zarr")
    assert told.exit_code == 2
    assert "--runs if each is a partition" in told.stderr
    again = ok("import", "run0.csv", "run1.csv", "run2.csv", "--runs", "--id", "cell", "-o", "e.zarr")
    assert "already holds" in again.stderr


def test_import__of_a_long_table(ok, run):
    votes = pd.DataFrame({"task": [3, 3, 5], "worker": ["ann", "bob", "bob"], "vote": ["x", "?", "y"]})
    votes.to_csv("votes.csv", index=False)
    ok("import votes.csv --long task,worker,vote --missing ? -o e.zarr --memory 420MB")
    ensemble = Ensemble.open("e.zarr")
    assert ensemble.ids.tolist() == [3, 5]
    assert values_of(ensemble) == [["x", None], [None, "y"]]
    assert "name three" in run("import", "votes.csv", "--long", "task,worker", "-o", "f.zarr").stderr
    told = run("import", "votes.csv", "--long", "task,worker,vote", "--id", "task", "-o", "f.zarr")
    assert "--long takes no --id" in told.stderr


def test_import__with_what_is_missing(ok, run):
    options = ["--missing", "Unknown,99"]
    pd.DataFrame({"a": ["B ", "Unknown", "T"], "b": [0, 99, -1]}).to_csv("x.csv", index=False)
    assert "text in 'a' beside columns of numbers" in run("import", "x.csv", *options, "-o", "e.zarr").stderr
    options = [*options, "--columns", "a,b"]
    ok("import", "x.csv", *options, "-o", "e.zarr")
    assert values_of(Ensemble.open("e.zarr")) == [["B", 0], [None, None], ["T", -1]]
    told = run("import", "x.csv", "--missing", "3", "--columns", "a,b", "-o", "e.zarr")
    assert "was made with --missing " in told.stderr


def test_import__says_whether_there_is_a_header(ok, run):
    pd.DataFrame([[0, 1], [0, 0], [1, 1]]).to_csv("x.csv", index=False, header=False)
    told = run("import", "x.csv", "-o", "e.zarr")
    assert told.exit_code == 1
    assert "--no-header" in told.stderr
    ok("import", "x.csv", "--no-header", "-o", "e.zarr")
    assert Ensemble.open("e.zarr").n_objects == 3
    ok("import", "x.csv", "--header", "-o", "f.zarr")
    assert Ensemble.open("f.zarr").names == ["0", "1"]
    ok("solve", "x.csv", "--no-header", "-k", 2, "-m", "best", "-o", "c.zarr")
    generate = "generate x.csv -o g.zarr --scheme kmeans --n-partitions 2 --n-clusters 2"
    assert "header" in run(generate).stderr
    ok(generate, "--no-header")
    assert Ensemble.open("g.zarr").n_objects == 3
