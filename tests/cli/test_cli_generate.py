"""``bigcons generate`` with every scheme, and ``bigcons run``, which is short for it and ``solve``."""

import json
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import csv, parquet

from bigcons import Consensus, ConsensusClustering, Ensemble, EnsembleGenerator, datasets, generate
from bigcons.cli import main
from bigcons.disk.checkpoint import Snapshots
from bigcons.generate import training
from bigcons.methods import ConsensusTree

N_OBJECTS = 400


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in a folder with features.npy, and separate.npy of three clear classes."""
    monkeypatch.chdir(tmp_path)
    np.save("features.npy", np.random.default_rng(0).normal(size=(N_OBJECTS, 5)))
    np.save("separate.npy", datasets.planted_features(600, 5, separation=12)[0])
    return lambda line: CliRunner().invoke(main, line.split())


def names():
    return sorted(path.name for path in Path().iterdir())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", lambda x: generate.mixed(x, n_partitions=100, random_state=0)),
        (
            "--scheme kmeans --n-partitions 3 --n-clusters split --sample 1",
            lambda x: generate.kmeans(x, n_partitions=3, n_clusters="split", sample=1.0, random_state=0),
        ),
        (
            "--scheme landmarks --n-partitions 4 --n-clusters 3:5 --no-standardize",
            lambda x: generate.landmarks(
                x, n_partitions=4, n_clusters=(3, 5), random_state=0, standardize=False
            ),
        ),
        (
            "--scheme zipf --n-partitions 4 --n-clusters 3:4 --alpha-range 0.5:2 --largest-weight 9",
            lambda x: generate.weighted_kmeans(
                x, n_partitions=4, n_clusters=(3, 4), alpha_range=(0.5, 2), largest_weight=9, random_state=0
            ),
        ),
        (
            "--scheme feature-views --n-features 2 --n-clusters 3",
            lambda x: generate.feature_views(x, n_features=2, n_clusters=3, random_state=0),
        ),
        (
            "--scheme object-views --n-clusters 3 --n-partitions 6 --repetition 3",
            lambda x: generate.object_views(x, n_clusters=3, n_partitions=6, repetition=3, random_state=0),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_generate__is_the_function_of_the_scheme(run, options, expected):
    result = run(f"generate features.npy -o e.zarr {options} --json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert json.loads(result.stdout)["n_objects"] == N_OBJECTS
    ensemble, reference = Ensemble.open("e.zarr"), expected("features.npy")
    assert ensemble.names == reference.names
    np.testing.assert_array_equal(ensemble.read(0, N_OBJECTS), reference.read(0, N_OBJECTS))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("generate {0} --sample .5", "'mixed' takes no --sample"),
        ("generate {0} --scheme kmeans --repetition 3", "takes no --repetition; it takes --n-partitions"),
        ("generate {0} --scheme feature-views", "'feature-views' needs --n-clusters, --n-features"),
        ("generate {0} --scheme hdbscan", "object-views"),
        ("generate {0} --scheme feature-views --n-features 9 --n-clusters 2", "only 5 features vary"),
        ("generate {0} --scheme object-views --n-clusters 2 --repetition 17", "--repetition 17"),
        ("generate {0} --train some", "--train some"),
        ("generate {0} --scheme zipf --alpha-range 2:1", "alpha_range[1]=1"),
        ("run {0}", "Method 'tree' needs -k, the number of clusters, or auto to"),
        ("run {0} -k 3 -m pccc", "Did you mean pcc?"),
        ("run {0} -k 3:8", "-k 3:8 has type range; use an integer >= 1"),
        ("run {0} -k 3 -m pcc --min-size 5", "Method 'pcc' takes no --min-size"),
    ],
)
def test_generate_and_run__refuse_before_any_work(run, line, words):
    result = run(line.format("features.npy -o out"))
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert names() == ["features.npy", "separate.npy"]


@pytest.mark.parametrize(("memory", "helps"), [("310MB", False), ("400MB", False), ("480MB", True)])
def test_run_and_generate__name_in_a_refusal_of_a_budget_only_options_that_they_have_and_that_help(
    run, memory, helps
):
    told = run("run features.npy -o out -k 3 --memory 400MB").stderr
    assert re.search("ConsensusTree needs .* over --memory 400 MB; raise it to", told)
    assert names() == ["features.npy", "separate.npy"]
    np.save("long.npy", np.random.default_rng(0).normal(size=(90_000, 30)))
    assert run(f"run long.npy -o out -k 3 --memory {memory}").stderr.endswith(" MB.\n")
    told = run(f"generate long.npy -o out.zarr --memory {memory}").stderr
    assert told.endswith("MB, or lower --train.\n" if helps else " MB.\n")
    lower = run(f"generate long.npy -o n.zarr --n-partitions 2 --memory {memory} --train 100")
    assert lower.exit_code == 1 - helps


@pytest.mark.parametrize("method", ["tree", "pcc"])
@pytest.mark.parametrize("k", ["3", "auto"])
def test_run__states_one_budget_that_is_enough_for_all_of_it(run, method, k):
    """Whatever asks for more, the ensemble or the solve, and also where values are missing."""
    features = np.load("separate.npy")
    features[::7, 0] = np.nan
    np.save("gaps.npy", features)
    line = f"run gaps.npy -o out -k {k} -m {method} --n-partitions 20 --memory"
    told = run(f"{line} 1MB")
    assert told.exit_code == 1
    (enough,) = re.findall(r"raise it to ([0-9.]+ MB)", told.stderr)
    result = run(f"{line} {enough.replace(' ', '')}")
    assert result.exit_code == 0, result.stderr


def test_run__refuses_other_options_than_those_of_an_unfinished_run_before_it_reads(run, monkeypatch):
    csv.write_csv(customers(), "customers.csv")
    line = "run customers.csv -o out -k 2 --n-partitions 4"
    Snapshots("out/ensemble.zarr.partial", {"missing": None, "generator": "mixed"}).save({}, {})
    monkeypatch.setattr("bigcons.generate.training.measure", Mock(side_effect=AssertionError))
    refused = run(f"{line} --missing Oslo")
    assert refused.exit_code == 1
    assert "holds an unfinished run with no --missing, not ['Oslo']" in refused.stderr


def test_run__reads_no_features_again_that_have_not_changed_since_its_ensemble_was_made(run, monkeypatch):
    csv.write_csv(customers(), "customers.csv")
    line = "run customers.csv -o out -k 2 --n-partitions 4"
    assert run(line).exit_code == 0
    measure = Mock(wraps=training.measure)
    monkeypatch.setattr("bigcons.generate.training.measure", measure)
    assert run(f"{line} --memory 1GB").exit_code == 0
    assert measure.call_count == 0
    csv.write_csv(customers(), "customers.csv")  # the same, as its values tell
    assert run(line).exit_code == 0
    assert measure.call_count == 1
    csv.write_csv(customers().slice(1), "customers.csv")
    assert "n_objects=60, not 59" in run(line).stderr


def test_run__after_an_append_says_that_the_ensemble_has_grown(run):
    csv.write_csv(customers(), "customers.csv")
    line = "run customers.csv -o out -k 2 --n-partitions 4"
    assert run(line).exit_code == 0
    Ensemble.open("out/ensemble.zarr", "a").append_partitions(np.arange(60) % 2)
    told = run(line)
    assert told.exit_code == 1
    assert "out/ensemble.zarr has grown since it was generated; solve it as it is, or pass" in told.stderr


def customers():
    group = np.arange(60) % 3
    columns = [np.array([10, 20, 30])[group], 40.5 + group + np.arange(60) / 100]
    return pa.table([*columns, np.array(["Oslo", "Rome", "Bonn"])[group]], ["zip", "age", "city"])


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("", "--categorical zip", "no --categorical, not ['zip']"),
        ("--missing Oslo", "", "--missing ['Oslo'], not None"),
        ("--drop zip", "--columns zip,age", "--columns ['age', 'city'], not ['zip', 'age']"),
        ("", "--n-clusters 3", "--n-clusters 2:2, not 3:3"),
    ],
)
def test_generate__finds_its_result_and_refuses_other_options_by_their_names(run, first, second, told):
    csv.write_csv(customers(), "customers.csv")
    line = "generate customers.csv -o other.zarr --scheme kmeans --n-partitions 2 --n-clusters 2"
    made, again = run(f"{line} {first}"), run(f"{line} {first} --sep ,")  # which changes nothing
    assert (made.exit_code, again.exit_code) == (0, 0)
    assert again.stdout == made.stdout
    assert again.stderr.endswith("other.zarr already holds the result of this call.\n")
    refused = run(f"{line} {second}")
    assert refused.exit_code == 1
    assert "other.zarr exists and was made with " in refused.stderr
    assert told in refused.stderr


RUN = "run separate.npy -k 3 -o out/ --n-partitions 16"


def test_run__generates_and_solves_and_finds_its_results(run, tmp_path):
    result = run(f"{RUN} --json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    said = json.loads(result.stdout)
    assert said["ensemble"]["clusters_per_partition"] == [3, 21]
    assert said["consensus"]["method"] == "tree"
    made = generate.mixed("separate.npy", n_partitions=16, random_state=0)
    np.testing.assert_array_equal(Ensemble.open("out/ensemble.zarr"), made)
    assert run(f"{RUN} -k 12 -o many").exit_code == 0  # up to three times as many in a partition
    made_of_many = generate.mixed("separate.npy", n_partitions=16, n_clusters=(2, 36), random_state=0)
    np.testing.assert_array_equal(Ensemble.open("many/ensemble.zarr"), made_of_many)
    expected = ConsensusTree(3, random_state=0).fit(made).labels_
    np.testing.assert_array_equal(Consensus.open("out/consensus.zarr").labels, expected)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    again = run(RUN)
    assert again.exit_code == 0
    assert "out/consensus.zarr already holds the result of this run." in again.stderr
    assert [line.split()[1] for line in again.stdout.splitlines() if "seconds" in line] == ["-", "-"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    for options, difference in (
        ("-k 4", "was made with -k 3, not 4"),
        ("-m best", "To keep it, use bigcons solve out/ensemble.zarr with another -o."),
        ("-m best", "was made with -m tree, not best"),
        ("--random-state 1", "made with --random-state 0, not 1"),
        ("--min-size 9", "was made with no --min-size, not 9"),
        ("--n-partitions 17", "was made with --n-partitions 16, not 17"),
    ):
        other = run(f"{RUN} {options}")
        assert other.exit_code == 1
        assert difference in other.stderr
    (tmp_path / "text.csv").write_text("neither,features\n")  # nor is a row read before another -k is refused
    assert "with -k 3, not 4" in run(f"{RUN} -k 4".replace("separate.npy", "text.csv")).stderr
    assert run(f"{RUN} --random-state 1 --overwrite -m mixture").exit_code == 0


def test_run__of_auto_makes_partitions_for_the_number_that_it_finds(run):
    points = 9.0 * np.eye(16)[np.arange(480) % 16] + np.random.default_rng(0).normal(size=(480, 16))
    np.save("many.npy", points)
    for table, numbers, most in (("separate", (3, 4), 30), ("many", (16,), 48)):
        line = f"run {table}.npy -k auto -o {table} --n-partitions 16 --json"
        for _ in range(2):  # the second time as if killed before it solved
            choice = json.loads(run(line).stdout)["consensus"]["n_clusters_choice"]
            (chosen,) = re.findall(r"^(\d+) clusters; support ", choice)
            labels = np.array(Consensus.open(f"{table}/consensus.zarr").labels)
            assert int(chosen) == len(np.unique(labels)) in numbers
            assert Ensemble.open(f"{table}/ensemble.zarr").provenance["n_clusters"] == [2, most]
            shutil.rmtree(f"{table}/consensus.zarr")
    model = ConsensusClustering("auto", generator=EnsembleGenerator(16), random_state=0).fit(points)
    np.testing.assert_array_equal(model.labels_, labels)


@pytest.mark.parametrize("of", ["classes", "noise"])
def test_run__names_the_column_that_the_clusters_follow(run, of):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(600, 6))
    points += 6 * rng.normal(size=(3, 6))[rng.integers(3, size=600)] * (of == "classes")
    columns = {f"x{c}": points[:, c] for c in range(6)} | {"city": rng.choice(list("abcdefgh"), 600)}
    parquet.write_table(pa.table(columns | {"member": rng.random(600) < 0.5}), "features.parquet")
    told, others = (
        run(f"run features.parquet -k 6 --n-partitions 16 --json {options}")
        for options in ("-o with", "-o without --drop member")
    )
    assert json.loads(others.stdout)["followed"] == []
    # landmarks do not see a column of two values: in noise it makes no cluster
    assert json.loads(told.stdout)["followed"] == (["member"] if of == "classes" else [])
    assert ("The clusters follow 'member': " in told.stderr) == (of == "classes")
    assert ("look for, leave it out with --drop." in told.stderr) == (of == "classes")
