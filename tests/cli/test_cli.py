"""The command line: what each command does, says and returns, on small real files."""

import errno
import json
import logging
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import bigcons
from bigcons import Consensus, Ensemble, PairTable
from bigcons.cli import main
from bigcons.cli.main import COMMANDS, _one_line_warnings
from bigcons.cli.options import _missing
from bigcons.cli.output import facts, with_options
from bigcons.disk import commit
from bigcons.errors import ConsensusWarning, warn_user
from bigcons.run.engine import SerialEngine

N_OBJECTS = 300


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in an empty folder; returns click's result."""
    monkeypatch.chdir(tmp_path)

    def invoke(line, **options):
        return CliRunner().invoke(main, line.split(), **options)

    return invoke


@pytest.fixture
def ran(run):
    """Run a command line that must succeed with --json, and return the object it prints."""

    def invoke(line):
        result = run(f"{line} --json")
        assert result.exit_code == 0, result.output
        assert result.stderr == ""
        return json.loads(result.stdout)

    return invoke


@pytest.fixture
def labels(tmp_path):
    """Write labels.csv of three planted groups in 12 partitions, and truth.csv."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=N_OBJECTS)
    table = np.repeat(truth[:, None], 12, axis=1)
    noisy = rng.random(table.shape) < 0.1
    table[noisy] = rng.integers(3, size=noisy.sum())
    cells = np.where(rng.random(table.shape) < 0.3, "", table.astype(str))
    header = ",".join(f"p{u}" for u in range(12))
    rows = "\n".join(",".join(row) for row in cells)
    (tmp_path / "labels.csv").write_text(f"{header}\n{rows}\n")
    classes = np.array(["red", "green", "blue"])[truth]
    (tmp_path / "truth.csv").write_text("\n".join(["class", *classes]) + "\n")
    return tmp_path / "labels.csv"


@pytest.fixture
def ensemble(labels, run):
    assert run("import labels.csv -o ensemble.zarr").exit_code == 0
    return "ensemble.zarr"


@pytest.fixture
def consensus(ensemble, run):
    result = run(f"solve {ensemble} -k 3 -o consensus.zarr")
    assert result.exit_code == 0, result.output
    return "consensus.zarr"


def accuracy(consensus):
    """The share of objects that a stored consensus puts in the group that truth.csv has them in."""
    truth = pd.read_csv("truth.csv")["class"].astype("category").cat.codes.to_numpy()
    return bigcons.metrics.matching_accuracy(truth, Consensus.open(consensus))


def names(folder="."):
    """What lies in a folder, hidden or not."""
    return sorted(path.name for path in Path(folder).iterdir())


def assert_fails_in_one_line(result, *words, status=1):
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    for word in words:
        assert word in lines[0]


def test_help__names_every_command(run):
    text = run("--help").stdout
    assert all(f"\n  {name} " in text for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help__of_a_command_describes_every_option(run, name):
    result = run(f"{name} --help")
    assert result.exit_code == 0
    assert "--json" in result.stdout
    command = main.get_command(click.Context(main), name)
    assert all(option.help for option in command.params if isinstance(option, click.Option))


def test_version__is_the_package_version(run):
    assert run("--version").stdout == f"bigcons {bigcons.__version__}\n"


def test_import__stores_a_table(labels, ran):
    result = ran("import labels.csv -o ensemble.zarr")
    assert (result["n_objects"], result["n_partitions"]) == (N_OBJECTS, 12)
    assert names() == ["ensemble.zarr", "labels.csv", "truth.csv"]
    assert bigcons.Ensemble.open("ensemble.zarr").n_objects == N_OBJECTS


def test_import__stores_tables_of_memberships(ran, run, tmp_path):
    tables = [np.random.default_rng(k).dirichlet(np.ones(k), 30) for k in (2, 3)]
    for table in tables:
        np.save(tmp_path / f"{table.shape[1]}.npy", table)
    paths = f"{tmp_path / '2.npy'} {tmp_path / '3.npy'}"
    result = ran(f"import {paths} --memberships -o soft.zarr")
    assert (result["n_partitions"], result["is_soft"]) == (2, True)
    np.testing.assert_allclose(np.asarray(bigcons.Ensemble.open("soft.zarr")), np.hstack(tables), atol=1e-7)
    assert run(f"import {paths} -o hard.zarr").exit_code == 2
    ran("solve soft.zarr -m hbgf -k 2 -o consensus.zarr")
    assert_fails_in_one_line(run("solve soft.zarr -m mixture -k 2 -o other.zarr"), "ensemble.harden()")


@pytest.mark.parametrize(
    ("options", "n_pairs"),
    [("--per-object 10", 1500), ("--share 0.1", 4485), ("--n-pairs 77", 77), ("", 4500)],
)
def test_sample__counts_as_many_pairs_as_asked(ensemble, ran, options, n_pairs):
    result = ran(f"sample {ensemble} -o pairs.zarr {options}")
    # pairs that no partition sees are left out
    assert 0.95 * n_pairs < result["n_pairs"] <= n_pairs + 1
    assert bigcons.PairTable.open("pairs.zarr").n_pairs == result["n_pairs"]


@pytest.mark.parametrize(
    ("options", "named"), [("--tiles 1", "--tiles"), ("--scheduler mpi", "--scheduler mpi is unknown")]
)
def test_sample__refuses_tiles_and_schedulers_that_are_none(ensemble, run, options, named):
    result = run(f"sample {ensemble} -o pairs.zarr {options}")
    assert result.exit_code
    assert named in result.stderr
    assert not Path("pairs.zarr").exists()


def test_solve__is_the_library_call(consensus, ensemble):
    model = bigcons.consensus(ensemble, 3, random_state=0)
    stored = bigcons.Consensus.open(consensus)
    np.testing.assert_array_equal(stored.labels, model.labels_)
    np.testing.assert_array_equal(stored.memberships, model.memberships_)


@pytest.mark.parametrize(
    "options",
    [
        "--pairs 0.2 --max-iter 50000",
        "--pairs dense",
        "--pairs pairs.zarr --solver heap --divergence kl --max-iter 50000",
    ],
)
def test_solve__passes_options_on(ensemble, run, ran, options):
    assert run(f"sample {ensemble} -o pairs.zarr").exit_code == 0
    result = ran(f"solve {ensemble} -m pcc -k 3 -o c.zarr {options}")
    assert 1 <= result["n_clusters"] <= 3
    assert accuracy("c.zarr") > 0.9


def test_solve__refuses_unknown_methods_and_foreign_options(ensemble, run):
    result = run(f"solve {ensemble} -m nonsense -k 3 -o c.zarr")
    assert result.exit_code == 2
    assert "choose one of tree, pcc" in result.stderr
    for options, complaint in (
        ("--divergence kl --n-init 2", "takes no --divergence; it takes --n-init"),
        ("--n-init", "'--n-init' requires an argument"),
        ("--n-init many", "'many' is not a number"),
        ("--normalize sideways", "choose one of 'observed', 'all'"),
        ("another.zarr", "unexpected extra argument (another.zarr)"),
    ):
        result = run(f"solve {ensemble} -m ipc -k 3 -o c.zarr {options}")
        assert result.exit_code == (1 if "choose" in complaint else 2)
        assert complaint in " ".join(result.stderr.split())
    assert "needs -k" in run(f"solve {ensemble} -m ipc -o c.zarr").stderr


def test_solve__takes_options_of_the_method_in_any_place(ensemble, run, ran):
    ran(f"solve --init=dirichlet --no-background -m mixture -k 3 --n-init 3 {ensemble} -o c.zarr")
    parameters = bigcons.Consensus.open("c.zarr").parameters
    assert parameters["init"] == "dirichlet"
    assert parameters["background"] is False
    assert parameters["n_init"] == 3


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("slove e.zarr", "solve?"),
        ("solve e.zarr -k 3 -o c.zarr --memroy 2GB", "--memory?"),
        ("solve e.zarr -m pcc -k 3 -o c.zarr --divergance kl", "--divergence?"),
        ("solve e.zarr -k 3 -o c.zarr -m hbfg", "hbgf?"),
        ("methods hbfg", "hbgf?"),
        ("solve e.zarr -k 3 -o c.zarr --seed 0", "--random-state?"),
    ],
)
def test_mistyped_words__are_recognized(run, line, word):
    Path("e.zarr").touch()
    result = run(line)
    assert result.exit_code == 2
    assert f"Did you mean {word}" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("solve nowhere.zarr -k 3 -o out.zarr -m hbfg", "hbfg"),
        ("run nowhere.csv -k 3 -o out -m hbfg", "hbfg"),
        ("sample nowhere.zarr -o out.zarr --per-objct 3", "--per-object"),
        ("generate nowhere.csv -o out.zarr --scheme kmean", "kmeans"),
    ],
)
def test_mistyped_words__are_told_before_a_missing_input(run, line, word):
    result = run(line)
    assert result.exit_code == 2
    assert word in result.stderr
    assert "does not exist" not in result.stderr


def test_solve__tries_members_with_parameters_and_a_range_of_clusters(ensemble, run, ran):
    members = "mcla(partitioner=average),ivc(n_init=2)"
    ran(f"solve {ensemble} -m supra --members {members} -k 2:4 -o c.zarr")
    consensus = Consensus.open("c.zarr")
    assert consensus.parameters["members"] == members
    assert consensus.history["n_clusters"] == [2, 3, 4, 2, 3, 4]
    assert consensus.n_clusters == 3
    for numbers, method in (("2:4", "mcla"), ("4:2", "supra"), ("0:3", "supra"), ("2:", "supra")):
        result = run(f"solve {ensemble} -m {method} -k {numbers} -o d.zarr")
        assert result.exit_code in (1, 2), numbers
        assert "-k" in result.output


def test_solve__auto_is_for_methods_that_find_the_number(ensemble, run, ran):
    result = run(f"solve {ensemble} -m furthest -k auto -o c.zarr")
    assert_fails_in_one_line(result, "does not choose n_clusters")
    found = ran(f"solve {ensemble} -m hbgf -k auto -o b.zarr")
    assert found["n_clusters"] == 3
    assert "agreement" in found["n_clusters_choice"]
    assert ran(f"solve {ensemble} -m eac --criterion lifetime -k auto -o c.zarr")["n_clusters"] >= 1


def test_plot__draws_every_figure(consensus, ran, run):
    figures = ran(f"plot {consensus} -o figures --ensemble ensemble.zarr --n-objects 50")["figures"]
    drawn = ["clusters", "coassociation", "memberships", "partitions", "trust"]
    assert names("figures") == [f"{name}.png" for name in drawn]
    assert all(Path(figure).read_bytes().startswith(b"\x89PNG") for figure in figures)
    assert_fails_in_one_line(run(f"plot {consensus} -o figures"), "exists", "--overwrite")
    assert run(f"plot {consensus} -o figures --overwrite --scheduler serial").exit_code == 0


def test_export__writes_what_the_library_writes(consensus, run, ran):
    told = ran(f"export {consensus} -o labels.npy")
    assert told.pop("n_objects") == N_OBJECTS
    assert told == {
        "path": "labels.npy",
        "memberships": False,
        "confidence": False,
        "min_confidence": None,
    }
    np.testing.assert_array_equal(np.load("labels.npy"), Consensus.open(consensus).labels)
    assert_fails_in_one_line(run(f"export {consensus} -o labels.npy"), "labels.npy exists", "--overwrite")
    assert ran(f"export {consensus} -o labels.npy --memberships --overwrite")["memberships"] is True
    assert np.load("labels.npy").dtype.names == ("label", "cluster_0", "cluster_1", "cluster_2")
    assert_fails_in_one_line(run(f"export {consensus} -o labels.xls"), ".parquet, .csv, .npy")
    assert_fails_in_one_line(run("export ensemble.zarr -o labels.csv"), "is an ensemble")


@pytest.mark.parametrize("kind", ["ensemble", "pairs", "consensus"])
def test_info_and_verify__know_every_kind(consensus, run, ran, kind):
    assert run("sample ensemble.zarr -o pairs.zarr").exit_code == 0
    assert ran(f"info {kind}.zarr")["kind"] == kind
    verified = ran(f"verify {kind}.zarr")
    assert verified["ok"] is True
    assert f"{N_OBJECTS}" in run(f"info {kind}.zarr").stdout
    assert f"{kind}.zarr is intact." in run(f"verify {kind}.zarr").stdout


def test_pairs__are_imported(ensemble, run, ran):
    n_pairs = ran(f"sample {ensemble} -o drawn.zarr --per-object 4")["n_pairs"]
    PairTable.open("drawn.zarr").to_parquet("pairs.parquet")
    assert ran("info pairs.parquet")["n_pairs"] == n_pairs
    assert ran("import --pairs pairs.parquet -o pairs.zarr")["n_pairs"] == n_pairs
    assert ran("verify pairs.zarr")["n_objects"] == N_OBJECTS
    assert run(f"solve {ensemble} -m pcc -k 3 -o c.zarr --pairs pairs.parquet --max-iter 1").exit_code == 0

    Path("pairs.csv").write_text("a,b,both,seen\n0,5,1,2\n0,5,2,2\n")
    line = "import --pairs pairs.csv -o more.zarr --columns a,b,both,seen"
    assert_fails_in_one_line(run(line), "rows 0 and 1 of", "a=0, b=5")
    assert_fails_in_one_line(
        run("import --pairs pairs.csv -o more.zarr"), "the integer columns i, j, n_agree, n_seen"
    )
    Path("pairs.csv").write_text("a,b,both,seen\n0,5,1,2\n")
    assert ran(f"{line} --n-objects 9")["n_objects"] == 9
    assert_fails_in_one_line(
        run(f"solve {ensemble} -m pcc -k 3 -o d.zarr --pairs pairs.csv"), "import --pairs"
    )


@pytest.mark.parametrize("command", ["info", "verify"])
def test_info_and_verify__say_that_a_table_is_no_store(run, command):
    frame = pd.DataFrame({"x": [0.5, 1.5], "a": [0, 1]})
    frame.to_parquet("x.parquet")
    frame.to_csv("x.csv")
    for path, why in (("x.parquet", "check the path"), ("x.csv", "check the path")):
        assert_fails_in_one_line(run(f"{command} {path}"), f"{path} is not a bigcons store", why)


@pytest.mark.parametrize("kind", ["ensemble", "consensus"])
def test_verify__notices_damage(consensus, run, kind):
    chunk = next(path for path in Path(f"{kind}.zarr").rglob("c/**/*") if path.is_file())
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    assert_fails_in_one_line(run(f"verify {kind}.zarr"), f"{kind}.zarr")


def test_methods__lists_what_solve_takes(run, ran):
    methods = ran("methods")["methods"]
    assert methods.keys() == bigcons.METHODS.keys()
    assert "divergence" in methods["pcc"]["parameters"]
    assert methods["mixture"]["soft"] is True
    lines = run("methods").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == list(methods)


def test_methods__tells_all_of_one(run):
    text = run("methods ipc").stdout
    assert run("methods IPC").stdout == text
    assert "Nguyen and Caruana" in text
    assert "--normalize  (default: observed)" in text
    assert run("methods nonsense").exit_code == 2


@pytest.mark.slow
def test_demo__shows_both_methods_and_finds_its_results_again(run, ran):
    result = ran("demo --size 500")
    assert names("bigcons-demo") == ["consensus.zarr", "demo.png", "ensemble.zarr", "truth.npy"]
    made = Path("bigcons-demo/ensemble.zarr/zarr.json").stat().st_mtime_ns
    assert [step["step"] for step in result["steps"]] == ["100 partitions", "PCC", "ConsensusTree"]
    assert min(step["accuracy"] for step in result["steps"][1:]) > 0.6
    text = run("demo --size 500").stdout
    assert all(f"\n{step['step']} " in text for step in result["steps"])
    assert Path("bigcons-demo/ensemble.zarr/zarr.json").stat().st_mtime_ns == made
    for line in text.partition("for example:\n")[2].splitlines():
        done = run(line.removeprefix("  bigcons "))
        assert done.exit_code == 0, done.output


@pytest.mark.slow
def test_demo__leaves_the_figure_out_without_matplotlib(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ended = run("demo --size 500")
    assert ended.exit_code == 0, ended.output
    assert "matplotlib, which is not installed; run pip install 'bigcons[plot]'." in ended.stdout
    assert names("bigcons-demo") == ["consensus.zarr", "ensemble.zarr", "truth.npy"]


def test_sample_data__runs_as_it_suggests(run):
    made = run("sample-data features.csv --size 300")
    assert made.exit_code == 0, made.output
    command = made.stdout.splitlines()[-1].removeprefix("  bigcons ")
    ended = run(f"{command} --n-partitions 8 --columns feature_0,feature_1,feature_2 --drop feature_2")
    assert ended.exit_code == 0, ended.output
    for line in ended.stdout.partition("Next:\n")[2].splitlines():
        done = run(line.removeprefix("  bigcons "))
        assert done.exit_code == 0, done.output
    assert Path("out-labels.csv").read_text().startswith('id,label\n"object-000",')
    assert Path("out.html").exists()


@pytest.mark.parametrize(
    "line",
    [
        "import nowhere.csv -o out.zarr",
        "generate nowhere.npy -o out.zarr",
        "sample nowhere.zarr -o out.zarr",
        "solve nowhere.zarr -k 3 -o out.zarr",
        "plot nowhere.zarr -o out.zarr",
        "info nowhere.zarr",
        "verify nowhere.zarr",
        "report nowhere.zarr -o out.html",
    ],
)
def test_missing_input__is_one_line_and_leaves_nothing(run, line):
    assert_fails_in_one_line(run(line), "nowhere")
    assert names() == []


def test_json__has_the_error_too(run):
    result = run("info nowhere.zarr --json")
    assert result.exit_code == 1
    assert "nowhere.zarr does not exist" in json.loads(result.stdout)["error"]


@pytest.mark.parametrize(
    "line", ["nonsense", "solve e.zarr -o c.zarr", "solve e.zarr -k 0 -o c.zarr", "info"]
)
def test_bad_usage__has_status_2(run, line):
    Path("e.zarr").touch()
    assert run(line).exit_code == 2
    assert names() == ["e.zarr"]


def test_warnings__are_one_line(ensemble, run):
    result = run(f"solve {ensemble} -m pcc -k 3 -o c.zarr --pairs 0.1 --solver heap --max-iter 1")
    assert result.exit_code == 0
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("Warning: ")


def test_warnings__the_same_is_shown_once(capsys):
    with _one_line_warnings():
        for text in ("one", "two", "one"):
            warn_user(text, ConsensusWarning)
    assert capsys.readouterr().err.splitlines() == ["Warning: one", "Warning: two"]


@pytest.mark.parametrize("error", [MemoryError("Unable to allocate 37.3 GiB"), OSError(28, "No space left")])
def test_trouble_of_the_machine__is_one_line(run, monkeypatch, error):
    monkeypatch.setattr("bigcons.store.opening.read_head", Mock(side_effect=error))
    assert_fails_in_one_line(run("info e.zarr"), str(error))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            "report consensus.zarr -o x.html --features nowhere.npy",
            "nowhere.npy does not exist; check the path",
        ),
        ("plot consensus.zarr -o labels.csv", "labels.csv is a file, but figures need a folder"),
    ],
)
def test_paths_that_cannot_be__are_named_with_the_reason(consensus, run, line, complaint):
    assert_fails_in_one_line(run(line), complaint)


def test_tracebacks_of_dask__stay_off_the_screen(run, monkeypatch, caplog):
    log = logging.getLogger("distributed.client")
    monkeypatch.setattr("bigcons.store.opening.read_head", Mock(side_effect=lambda _: log.error("Traceback")))
    run("info e.zarr")
    assert caplog.text == ""


def test_interrupt__is_one_line_and_status_130(run, monkeypatch):
    monkeypatch.setattr("bigcons.store.opening.read_head", Mock(side_effect=KeyboardInterrupt))
    result = run("info e.zarr")
    assert result.exit_code == 130
    assert len(result.stderr.strip().splitlines()) == 1


def test_bad_usage__is_an_object_too_with_json(run):
    Path("e.zarr").touch()
    result = run("solve e.zarr --json -k 0 -o c.zarr")
    assert result.exit_code == 2
    assert "no number of clusters" in json.loads(result.stdout)["error"]


@pytest.mark.parametrize("line", ["solve {0} -k 3 -o {0} --overwrite", "sample {0} -o ./{0} --overwrite"])
def test_output__never_replaces_the_ensemble_it_is_made_from(ensemble, run, line):
    assert_fails_in_one_line(run(line.format(ensemble)), "would be lost", "another path")
    assert run(f"verify {ensemble}").exit_code == 0
    assert commit.read_head(ensemble).kind == "ensemble"


def test_plot__leaves_no_part_of_a_figure(consensus, run, monkeypatch):
    def fill_the_disk(figure, file, **_):
        file.write(b"half a figure")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fill_the_disk)
    assert_fails_in_one_line(run(f"plot {consensus} -o figures"), "No space left", "memberships.png", "free")
    assert names("figures") == []


def completed(words, monkeypatch):
    monkeypatch.setenv("_BIGCONS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"bigcons {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    result = CliRunner().invoke(main, prog_name="bigcons")
    return result.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("so", ["plain,solve"]),
        ("solve -m mix", ["plain,mixture"]),
        ("solve lab", ["file,lab"]),
        ("import lab", ["file,lab"]),
        ("solve e.zarr -o c", ["file,c"]),
    ],
)
def test_completion__knows_commands_methods_and_files(words, found, monkeypatch):
    assert completed(words, monkeypatch) == found


def test_scheduler__is_an_address_without_a_scheme(run, tmp_path, monkeypatch):
    """Only the parsing: nothing is connected to."""
    asked = []

    @contextmanager
    def connect(address):
        asked.append(address)
        yield SerialEngine()

    monkeypatch.setitem(sys.modules, "bigcons.run.dask", Mock(connect=connect))
    Ensemble.from_labels([[0, 0], [0, 0], [1, 1], [1, 0]]).save(tmp_path / "e.zarr")
    result = run("solve e.zarr -m furthest -k 2 -o c.zarr --scheduler host:8786")
    assert (result.exit_code, asked) == (0, ["host:8786"])
    result = run("solve e.zarr -m furthest -k 2 -o d.zarr --scheduler nonsense")
    assert (result.exit_code, len(asked)) == (1, 1)
    assert "--scheduler nonsense is unknown" in result.stderr


def test_facts__say_once_what_all_of_a_list_are():
    told = facts({"starts": [1.5, 1.5, 1.5], "range": [2, 2], "sizes": [3, 4, 3]})
    assert told.splitlines() == ["starts  1.5 (3 times)", "range   2, 2", "sizes   3, 4, 3"]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("x exists; pass overwrite=True (--overwrite) or leave", "x exists; pass --overwrite or leave"),
        (
            "header=True (--header) if so, header=False (--no-header) if not",
            "--header if so, --no-header if not",
        ),
        ("name it in missing= of bigcons.select (--missing) if", "name it in --missing if"),
        ("pass bigcons.select(x, missing={'age': -9}) (--missing age=-9).", "pass --missing age=-9."),
        ("pass missing=[] (--missing '') if", "pass --missing '' if"),
        (
            "client='h:1' does not answer; use client='threads'.",
            "--scheduler h:1 does not answer; use --scheduler threads.",
        ),
        ("memory=1 MB cannot hold it", "--memory 1 MB cannot hold it"),
        ("n_clusters=3 may do", "-k 3 may do"),
        ("made with random_state=None, not 1", "made with --random-state None, not 1"),
        ("sample=0.5 of part/n_clusters=3/x.csv", "sample=0.5 of part/n_clusters=3/x.csv"),
    ],
)
def test_messages__name_options_in_the_place_of_parameters(message, shown):
    command = main.get_command(click.Context(main), "solve")
    assert with_options(message, command.params) == shown


def test_solve__that_finds_its_result_took_no_time(ensemble, run, ran):
    line = f"solve {ensemble} -k 3 -o c.zarr"
    first = ran(line)
    assert first.pop("seconds") > 0
    assert json.loads(run(f"{line} --json").stdout) == {**first, "seconds": None}


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ([], None),
        (["a=1"], {"a": ["1"]}),
        (["a=1,b=-9,?"], {"a": ["1"], "b": ["-9", "?"]}),
        (["a=1", "b=2", "a=3"], {"a": ["1", "3"], "b": ["2"]}),
        (["x,y", '"p,q"'], ["x", "y", "p,q"]),
        (["a="], {"a": []}),
        (['a="p,q",r'], {"a": ["p,q", "r"]}),
        ([""], []),
    ],
)
def test_missing__is_of_all_columns_or_of_each(given, missing):
    assert _missing(None, None, tuple(given)) == missing


@pytest.mark.parametrize("given", [["a=1", "x"], ["x", "a=1"], ["a=", "x"]])
def test_missing__of_all_columns_and_of_one_is_refused(given):
    with pytest.raises(click.BadParameter, match=f"^{given[0]}, {given[1]} mixes"):
        _missing(None, None, tuple(given))
