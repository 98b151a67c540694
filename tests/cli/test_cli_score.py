"""``bigcons score``: every criterion of the library, on real files, for people and for programs."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bigcons import Consensus, Ensemble, metrics
from bigcons.cli import main
from bigcons.metrics.clusterings import OF_TRUTH, OF_TWO_CLUSTERINGS
from bigcons.stores.consensus import stored_clusters_in_words
from bigcons.stores.store import Store

N_OBJECTS = 200


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in the folder of the test; returns click's result."""
    monkeypatch.chdir(tmp_path)
    return lambda line: CliRunner().invoke(main, line.split())


@pytest.fixture
def ran(run):
    """Run a command line that must succeed with --json, and return the object it prints."""

    def invoke(line):
        result = run(f"{line} --json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return invoke


@pytest.fixture
def world(tmp_path):
    """Write truth.npy, ensemble.zarr, features.npy, soft.zarr and hard.zarr; return what they hold."""
    rng = np.random.default_rng(0)
    truth = rng.integers(-1, 3, N_OBJECTS)
    classes = np.maximum(truth, 0)
    table = np.where(rng.random((N_OBJECTS, 8)) < 0.8, classes[:, None], rng.integers(0, 3, (N_OBJECTS, 8)))
    table[rng.random(table.shape) < 0.3] = -1
    features = rng.normal(size=(N_OBJECTS, 2)) + 3 * classes[:, None]
    memberships = rng.dirichlet([0.3] * 3, N_OBJECTS) + 2 * np.eye(3)[classes]
    memberships = (memberships / memberships.sum(axis=1, keepdims=True)).astype(np.float32)
    labels = memberships.argmax(axis=1).astype(np.int32)
    labels[:5] = -1
    np.save(tmp_path / "truth.npy", truth)
    np.save(tmp_path / "features.npy", features)
    Ensemble.from_labels(table).save(tmp_path / "ensemble.zarr", chunk_rows=50)
    Consensus.write(tmp_path / "soft.zarr", labels, memberships, chunk_rows=64)
    with Consensus.create(
        tmp_path / "hard.zarr", n_objects=N_OBJECTS, n_clusters=3, memberships=False
    ) as writer:
        writer.write(0, labels)
    return truth, table, features, labels, memberships


def test_score__by_truth_prints_every_criterion(world, ran):
    truth, _, _, labels, _ = world
    scores = ran("score soft.zarr --truth truth.npy")
    assert scores.pop("path") == "soft.zarr"
    assert scores.pop("n_objects") == N_OBJECTS
    assert (scores.pop("n_clusters"), scores.pop("n_tiny_clusters")) == (3, 0)
    assert scores.pop("truth_rows") == "in order"
    assert scores.pop("n_judged") == ((truth >= 0) & (labels >= 0)).sum()
    assert scores == {name: getattr(metrics, name)(truth, labels) for name in OF_TRUTH}
    assert {
        "matching_accuracy",
        "adjusted_rand",
        "purity",
        "micro_precision",
        "nmi",
    } <= (scores.keys())


def test_score__by_ensemble_prints_every_criterion(world, ran):
    _, table, _, labels, memberships = world
    scores = ran("score soft.zarr --ensemble ensemble.zarr")
    assert scores["anmi"] == metrics.anmi(table, labels)
    for name in OF_TWO_CLUSTERINGS:
        assert scores[f"mean_{name}"] == metrics.average_criterion(name, table, labels)
    stored = Ensemble.open("ensemble.zarr")
    assert scores["pcc_objective"] == metrics.pcc_objective(stored, memberships, constant=False)
    assert {"mean_van_dongen", "mean_rand_index", "mean_variation_of_information", "mean_nmi"} < scores.keys()


def test_score__never_reads_more_memberships_than_a_block(world, ran, monkeypatch):
    expected = ran("score soft.zarr --ensemble ensemble.zarr")
    read, most = Store.read, []

    def read_and_tell(store, name, start, stop):
        if name == "memberships":
            most.append(stop - start)
        return read(store, name, start, stop)

    monkeypatch.setattr(Store, "read", read_and_tell)
    assert ran("score soft.zarr --ensemble ensemble.zarr --truth truth.npy").items() >= expected.items()
    assert max(most) == 50


def test_score__of_labels_alone_leaves_out_the_objective(world, ran):
    soft, hard = (
        ran(f"score {kind}.zarr --truth truth.npy --ensemble ensemble.zarr") for kind in ("soft", "hard")
    )
    assert soft.keys() - hard.keys() == {"pcc_objective"}
    assert {**soft, "path": ""} == {**hard, "path": "", "pcc_objective": soft["pcc_objective"]}


@pytest.mark.parametrize("metric", [None, "sqeuclidean", "cityblock"])
def test_score__by_features_prints_compactness(world, ran, metric):
    _, _, features, labels, _ = world
    option = "" if metric is None else f" --metric {metric}"
    scores = ran(f"score hard.zarr --features features.npy{option}")
    assert scores["compactness"] == metrics.compactness(features, labels, metric=metric or "euclidean")


def test_commands__print_the_clusters_found_and_the_tiny_ones_in_one_line(world, run, ran):
    solved = run("solve ensemble.zarr -k 4 -o solved.zarr -m kmeans").stdout
    (line,) = [line for line in solved.splitlines() if "clusters" in line]
    found = Consensus.open("solved.zarr")
    sizes = found.cluster_sizes()
    assert sizes.tolist() == np.bincount(found.labels[found.labels >= 0], minlength=4).tolist()
    assert sizes.sum() == (found.labels >= 0).sum()
    assert line.split(maxsplit=1) == ["clusters", stored_clusters_in_words(found)]
    for asked in ("info solved.zarr", "score solved.zarr --truth truth.npy"):
        told = [row.split(maxsplit=1) for row in run(asked).stdout.splitlines()]
        assert [row for row in told if row[0] == "clusters"] == [
            ["clusters", stored_clusters_in_words(found)]
        ]
    assert ran("info solved.zarr")["results"]["n_clusters"] == (sizes > 0).sum()
    labels = np.repeat([0, 1, 3], [60, 59, 1])
    Consensus.write("tiny.zarr", labels, np.eye(5)[labels])
    words = "3 non-empty of 5, 1 of them tiny (less than a tenth of the mean size)"
    np.save("all.npy", labels)
    assert words in run("score tiny.zarr --truth all.npy").stdout


def test_score__prints_names_and_values_for_people(world, run):
    result = run("score soft.zarr --truth truth.npy --ensemble ensemble.zarr --features features.npy")
    assert result.exit_code == 0
    printed = [line.split()[0] for line in result.stdout.splitlines()]
    expected = [
        "path",
        "n_objects",
        "clusters",
        "truth_rows",
        "n_judged",
        *OF_TRUTH,
        "anmi",
        *(f"mean_{n}" for n in OF_TWO_CLUSTERINGS),
    ]
    assert printed == [*expected, "pcc_objective", "compactness"]


def test_score__reads_a_truth_as_it_is_told_to(world, run):
    truth = np.load("truth.npy")
    expected = run("score soft.zarr --truth truth.npy --json").stdout
    lines = "\n".join(f"{n};{c}" for n, c in enumerate(truth))
    Path("semicolons.csv").write_text(f"n;class\n{lines}\n")
    Path("bare.csv").write_text("\n".join(map(str, truth)) + "\n")
    assert (truth < 0).any()
    unknown = np.where(truth < 0, "?", truth.astype(str))
    Path("unknown.csv").write_text("class\n" + "\n".join(unknown) + "\n")
    assert run("score soft.zarr --truth semicolons.csv --sep ; --column class --json").stdout == expected
    assert run("score soft.zarr --truth bare.csv --no-header --json").stdout == expected
    assert run("score soft.zarr --truth unknown.csv --missing ? --json").stdout == expected
    features = np.load("features.npy")
    np.savetxt("points.csv", features, delimiter=";")
    Path("commas.csv").write_text(Path("points.csv").read_text().replace(".", ","))
    of_array = run("score soft.zarr --features features.npy --json").stdout
    for name, decimal in (("points", "."), ("commas", ",")):
        how = f"--features {name}.csv --sep ; --no-header --decimal {decimal}"
        of_file = run(f"score soft.zarr {how} --json").stdout
        assert json.loads(of_file)["compactness"] == pytest.approx(json.loads(of_array)["compactness"])
        assert run(f"plot soft.zarr -o of_{name} {how}").exit_code == 0
    assert Path("of_points/clusters.png").read_bytes() == Path("of_commas/clusters.png").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "--truth, --ensemble, --features"),
        ("--ensemble ensemble.zarr --column a", "--column has no effect without --truth"),
        ("--ensemble ensemble.zarr --missing x", "--missing has no effect without --truth"),
        ("--ensemble ensemble.zarr --sep ;", "--sep has no effect without --truth or --features"),
        ("--ensemble ensemble.zarr --no-header", "--header has no effect without --truth or --features"),
        ("--truth truth.npy --metric cityblock", "--metric has no effect without --features"),
        ("--truth truth.npy --decimal ,", "--decimal has no effect without --features"),
        ("--features features.npy --metric cosine", "cosine"),
    ],
)
def test_score__bad_usage(world, run, options, message):
    result = run(f"score soft.zarr {options}")
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize("command", ["plot", "report"])
@pytest.mark.parametrize(
    "option",
    ["--columns a", "--drop a", "--sep ;", "--no-header", "--decimal ,", "--missing x", "--categorical a"],
)
def test_options_of_features_have_no_effect_without_them(world, run, command, option):
    result = run(f"{command} soft.zarr -o out.html {option}")
    assert result.exit_code == 2
    assert "has no effect without --features; give both or neither." in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--features short.npy", ("short.npy has 3 rows", "200 objects")),
        ("--ensemble short.zarr", ("short.zarr has 3 objects", "200")),
        ("--truth none.npy", ("no object has a label in both",)),
        ("--features nowhere.npy", ("nowhere.npy",)),
    ],
)
def test_score__fails_in_one_line(world, run, options, words):
    np.save("short.npy", np.ones((3, 2)))
    classes = np.full(N_OBJECTS, -1)
    classes[0] = 0  # an object without a label in the consensus
    np.save("none.npy", classes)
    Ensemble.from_labels([[0], [1], [1]]).save(Path("short.zarr"))
    result = run(f"score soft.zarr {options}")
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if not line.startswith("Warning: ")]
    for word in words:
        assert word in line


def test_column__is_named_without_a_list_of_hundreds(world, run):
    names = ",".join(f"column{u}" for u in range(300))
    Path("wide.csv").write_text(f"{names}\n{','.join('0' * 300)}\n")
    for line, start in (("", "has the columns"), (" --column colunm299", "has no column 'colunm299'")):
        result = run(f"score soft.zarr --truth wide.csv{line}")
        assert result.exit_code == 1
        assert start in result.stderr
        assert "(300 in total)" in result.stderr
        assert len(result.stderr) < 400
