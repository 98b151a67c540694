"""The command line: what each command does, says and returns, on small real files."""

import json
import re
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

import bigcons
from bigcons import Consensus, Ensemble, PairTable, ProgressBar
from bigcons.cli import main
from bigcons.cli.options import COMMANDS, name_list, with_options
from bigcons.disk import commit
from bigcons.errors import ConsensusWarning, warn_user
from bigcons.progress import progress as step
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


@pytest.mark.parametrize("name", COMMANDS)
def test_help__describes_every_command_and_option(run, name):
    assert f"\n  {name} " in run("--help").stdout
    result = run(f"{name} --help")
    assert result.exit_code == 0
    assert "--json" in result.stdout
    command = main.get_command(click.Context(main), name)
    assert all(option.help for option in command.params if isinstance(option, click.Option))


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


@pytest.mark.parametrize(("options", "n_pairs"), [("--per-object 10", 1500), ("", 4500)])
def test_sample__counts_as_many_pairs_as_asked(ensemble, run, ran, options, n_pairs):
    result = ran(f"sample {ensemble} -o pairs.zarr {options}")
    # pairs that no partition sees are left out
    assert 0.95 * n_pairs < result["n_pairs"] <= n_pairs + 1
    assert bigcons.PairTable.open("pairs.zarr").n_pairs == result["n_pairs"]
    assert "need 250 MB" in run(f"sample {ensemble} -o p.zarr --memory 1MB").stderr


def test_solve__passes_options_on(ensemble, run, ran):
    options = "--pairs pairs.zarr --solver heap --divergence kl --max-iter 50000"
    assert run(f"sample {ensemble} -o pairs.zarr").exit_code == 0
    result = ran(f"solve {ensemble} -m pcc -k 3 -o c.zarr {options}")
    assert 1 <= result["n_clusters"] <= 3
    assert accuracy("c.zarr") > 0.9


def test_solve__refuses_unknown_methods_and_foreign_options(ensemble, run, ran):
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
        assert result.exit_code == 2
        assert complaint in " ".join(result.stderr.split())
    usage = "Usage: main solve [OPTIONS] ENSEMBLE [METHOD OPTIONS]\n"
    for options in ("", f"{ensemble} another.zarr", f"{ensemble} -m ipc --n-init many"):
        assert run(f"solve -k 3 -o c.zarr {options}").stderr.startswith(usage)
    for line in (f"solve {ensemble} -m ipc -o c.zarr", "run nowhere.csv -o out"):
        assert run(line).exit_code in (1, 2)
    ran(f"solve --init=dirichlet --no-background -m mixture -k 3 --n-init 3 {ensemble} -o c.zarr")
    parameters = Consensus.open("c.zarr").parameters  # options of the method may be anywhere
    assert [parameters[name] for name in ("init", "background", "n_init")] == ["dirichlet", False, 3]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("slove e.zarr", "solve?"),
        ("solve e.zarr -k 3 -o c.zarr --memroy 2GB", "--memory?"),
        ("solve e.zarr -m pcc -k 3 -o c.zarr --divergance kl", "--divergence?"),
        ("methods hbfg", "hbgf?"),
        ("solve e.zarr -k 3 -o c.zarr --seed 0", "--random-state?"),
        ("sample nowhere.zarr -o out.zarr --per-objct 3", "--per-object?"),
    ],
)
def test_mistyped_words__are_recognized_before_the_input_is_read(run, line, word):
    Path("e.zarr").touch()
    result = run(line)
    assert result.exit_code == 2
    assert f"Did you mean {word}" in " ".join(result.stderr.replace("'", "").split())


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense", "No such command"),
        ("info", "Missing argument"),
        ("solve {0} -o c.zarr -m ipc", "needs -k"),
        ("solve {0} -o c.zarr -k 0", "-k 0 is no number of clusters"),
        ("solve {0} -o c.zarr -m hbgf -k 4:2", "-k 4:2"),
        ("solve {0} -o c.zarr -m mcla -k 2:4", "-k 2:4"),
        ("solve {0} -o c.zarr -m furthest -k auto", "does not choose n_clusters"),
        ("solve {0} -o c.zarr -k 3 --memory much", "--memory much"),
        ("sample {0} -o p.zarr --per-object 0", "--per-object 0"),
        ("sample {0} -o p.zarr --scheduler mpi", "--scheduler mpi is unknown"),
    ],
)
def test_values_that_options_do_not_take__have_status_2(ensemble, run, line, complaint):
    result = run(line.format(ensemble) + " --json")
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())
    if line[0] != "n":
        assert complaint in json.loads(result.stdout)["error"]
    assert names() == ["ensemble.zarr", "labels.csv", "truth.csv"]


def test_solve__tries_members_with_parameters_and_a_range_of_clusters(ensemble, ran):
    members = "mcla(ties=random),ivc(n_init=2)"
    ran(f"solve {ensemble} -m supra --members {members} -k 2:4 -o c.zarr")
    consensus = Consensus.open("c.zarr")
    assert consensus.parameters["members"] == members
    assert consensus.history["n_clusters"] == [2, 3, 4, 2, 3, 4]
    assert consensus.n_clusters == 3


def test_solve__auto_is_for_methods_that_find_the_number(ensemble, run, ran):
    found = ran(f"solve {ensemble} -m hbgf -k auto -o b.zarr")
    assert found["n_clusters"] == 3
    assert found["n_clusters_choice"].startswith("3 clusters; support ")
    line = f"solve {ensemble} -m eac --criterion lifetime -k auto -o c.zarr"
    first = ran(line)
    assert first["n_clusters"] >= 1
    assert first.pop("seconds") > 0  # and none to find the result again
    assert json.loads(run(f"{line} --json").stdout) == {**first, "seconds": None}


def test_plot__draws_every_figure(consensus, ran, run):
    figures = ran(f"plot {consensus} -o figures --ensemble ensemble.zarr")["figures"]
    drawn = ["coassociation", "memberships", "partitions", "trust"]  # clusters do not overlap
    assert names("figures") == [f"{name}.png" for name in drawn]
    for out in ("labels.csv", "p.png", "p.SVG"):
        told = run(f"plot {consensus} -o {out}")
        assert_fails_in_one_line(told, f"{out} is no folder", status=2)
    assert not Path("p.png").exists()
    assert all(Path(figure).read_bytes().startswith(b"\x89PNG") for figure in figures)
    assert_fails_in_one_line(run(f"plot {consensus} -o figures"), "exists", "--overwrite")
    assert run(f"plot {consensus} -o figures --overwrite --scheduler serial").exit_code == 0


def test_plot__that_is_interrupted_leaves_nothing_and_is_repeated(consensus, run, monkeypatch):
    drawn, save = [], Figure.savefig

    def savefig(figure, *arguments, **options):
        drawn.append(figure)
        if len(drawn) == 2:
            raise KeyboardInterrupt
        save(figure, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Figure, "savefig", savefig)
        result = run(f"plot {consensus} -o figures")
    assert result.exit_code == 130
    assert "repeat the command" in result.stderr
    assert names("figures") == []
    assert run(f"plot {consensus} -o figures").exit_code == 0


def test_export__writes_what_the_library_writes(consensus, run, ran):
    assert ran(f"export {consensus} -o labels.parquet")["n_objects"] == N_OBJECTS
    np.testing.assert_array_equal(
        pd.read_parquet("labels.parquet")["label"], Consensus.open(consensus).labels
    )
    assert_fails_in_one_line(
        run(f"export {consensus} -o labels.parquet"), "labels.parquet exists", "--overwrite"
    )
    assert ran(f"export {consensus} -o labels.parquet --memberships --overwrite")["memberships"] is True
    assert list(pd.read_parquet("labels.parquet")) == ["label", "cluster_0", "cluster_1", "cluster_2"]
    assert_fails_in_one_line(run(f"export {consensus} -o labels.xls"), ".parquet or .csv")
    assert_fails_in_one_line(run(f"export {consensus} -o labels.parquet/labels.csv"), "labels.parquet")
    assert ran(f"export {consensus} -o new/folder/labels.csv")["n_objects"] == N_OBJECTS
    assert Path("new/folder/labels.csv").exists()
    assert_fails_in_one_line(run("export ensemble.zarr -o labels.csv"), "is an ensemble")


@pytest.mark.parametrize("kind", ["ensemble", "pairs", "consensus"])
def test_info_and_verify__know_every_kind(consensus, run, ran, kind):
    assert run("sample ensemble.zarr -o pairs.zarr").exit_code == 0
    assert ran(f"info {kind}.zarr")["kind"] == kind
    assert ran(f"verify {kind}.zarr")["ok"] is True
    assert (f"{N_OBJECTS}" in (shown := run(f"info {kind}.zarr").stdout), "None" in shown) == (True, False)
    assert f"{kind}.zarr is intact." in run(f"verify {kind}.zarr").stdout
    chunk = next(path for path in Path(f"{kind}.zarr").rglob("c/**/*") if path.is_file())
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    assert_fails_in_one_line(run(f"verify {kind}.zarr"), f"{kind}.zarr")
    for command in ("info", "verify"):
        assert_fails_in_one_line(run(f"{command} labels.csv"), "labels.csv is not a bigcons store")
        folder = Path.cwd()
        meant = f"pass {folder}/consensus.zarr or {folder}/ensemble.zarr."
        assert_fails_in_one_line(run(f"{command} ."), meant)


def test_pairs__are_imported(ensemble, run, ran):
    n_pairs = ran(f"sample {ensemble} -o drawn.zarr --per-object 4")["n_pairs"]
    PairTable.open("drawn.zarr").to_parquet("pairs.parquet")
    assert ran("import --pairs pairs.parquet -o pairs.zarr")["n_pairs"] == n_pairs
    assert ran("verify pairs.zarr")["n_objects"] == N_OBJECTS
    assert run(f"solve {ensemble} -m pcc -k 3 -o c.zarr --pairs pairs.parquet --max-iter 1").exit_code == 0

    Path("pairs.csv").write_text("i,j,n_agree,n_seen\n0,5,1,2\n0,5,2,2\n")
    line = "import --pairs pairs.csv -o more.zarr"
    assert_fails_in_one_line(run(line), "i=0, j=5", "twice")
    Path("pairs.csv").write_text("a,b,both,seen\n0,5,1,2\n")
    assert_fails_in_one_line(run(line), "n_agree")
    Path("pairs.csv").write_text("i,j,n_agree,n_seen\n0,5,1,2\n")
    assert ran(f"{line} --n-objects 9")["n_objects"] == 9
    assert_fails_in_one_line(
        run(f"solve {ensemble} -m pcc -k 3 -o d.zarr --pairs pairs.csv"), "not a bigcons store"
    )


def test_methods__lists_what_solve_takes_and_describes_one(run, ran):
    methods = ran("methods")["methods"]
    assert methods.keys() == bigcons.METHODS.keys()
    assert "divergence" in methods["pcc"]["parameters"]
    assert methods["mixture"]["soft"] is True
    lines = run("methods").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == list(methods)
    text = run("methods ipc").stdout
    assert run("methods IPC").stdout == text
    assert "Nguyen and Caruana" in text
    assert "--normalize  (default: observed)" in text


@pytest.mark.slow
def test_demo__shows_both_methods_and_finds_its_results_again(run, ran):
    result = ran("demo --size 500")
    assert names("bigcons-demo") == ["consensus.zarr", "ensemble.zarr"]
    made = Path("bigcons-demo/ensemble.zarr/zarr.json").stat().st_mtime_ns
    assert [step["step"] for step in result["steps"]] == ["100 partitions", "PCC", "ConsensusTree"]
    assert min(step["accuracy"] for step in result["steps"][1:]) > 0.6
    text = run("demo --size 500").stdout
    assert all(words in text for words in (", made before; ", "\nPCC ", "\nConsensusTree "))
    assert Path("bigcons-demo/ensemble.zarr/zarr.json").stat().st_mtime_ns == made
    assert_fails_in_one_line(run("demo --size 400"), "pass --overwrite")
    assert ran("demo --size 400 --overwrite")["n_objects"] == 400
    assert Consensus.open("bigcons-demo/consensus.zarr").n_objects == 400
    for line in text.partition("for example:\n")[2].splitlines():
        done = run(f"{line.removeprefix('  bigcons ')} --json")
        assert (done.exit_code, done.stderr) == (0, "")
        assert all(re.fullmatch("[a-z_]+", name) for name in json.loads(done.stdout))


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
    ("options", "n_partitions", "missing_share"),
    [
        ("--drop a --drop b,c", 1, 0.0),
        ("--columns a --columns d --columns b", 3, 0.0),
        ("--missing 1 --missing 0,1", 4, 2 / 3),
        ("--missing 1 --missing=", 4, 1 / 3),
    ],
)
def test_lists_of_names__add_up_where_an_option_is_repeated(ran, options, n_partitions, missing_share):
    assert name_list('a, "b, c"') == ["a", "b, c"]
    labels = np.tile(np.arange(6)[:, None] % 3, 4)
    pd.DataFrame(labels, columns=list("abcd")).to_csv("t.csv", index=False)
    made = ran(f"import t.csv -o e.zarr {options}")
    assert (made["n_partitions"], made["missing_share"]) == (n_partitions, pytest.approx(missing_share))


@pytest.mark.parametrize(
    "line",
    [
        *("import nowhere.csv -o out.zarr", "generate nowhere.npy -o out.zarr", "plot nowhere.zarr -o out"),
        *("sample nowhere.zarr -o out.zarr", "solve nowhere.zarr -k 3 -o out.zarr"),
        *("info nowhere.zarr", "verify nowhere.zarr", "report nowhere.zarr -o out.html"),
    ],
)
def test_missing_input__is_one_line_and_leaves_nothing(run, line, monkeypatch):
    assert_fails_in_one_line(run(line), "nowhere")
    assert names() == []
    assert "nowhere" in json.loads(run(f"{line} --json").stdout)["error"]
    cases = ((2, "No such file or directory"), "The current folder was removed"), (("a/key",), "a/key")
    for facts, told in cases:
        monkeypatch.setattr("os.getcwd", Mock(side_effect=FileNotFoundError(*facts)))
        assert_fails_in_one_line(run(line), told)


def test_warnings__are_one_line_each_and_the_same_is_shown_once(run, monkeypatch):
    def warn(_):
        for text in ("one", "two", "one"):
            warn_user(text, ConsensusWarning)
        raise MemoryError("Unable to allocate 37.3 GiB")

    monkeypatch.setattr("bigcons.disk.commit.read_head", warn)
    lines, remedy = run("info e.zarr").stderr.splitlines(), "; give the process more memory or threads."
    assert lines == ["Warning: one", "Warning: two", f"Error: Unable to allocate 37.3 GiB{remedy}"]


def test_warnings__are_on_lines_of_their_own_above_a_bar(run, monkeypatch):
    def warn(_):
        with step("survey", 4) as listener:
            for _ in range(3):
                time.sleep(0.2)  # bars are drawn ten times a second
                listener.advance(1)
            warn_user("one", ConsensusWarning)
        raise MemoryError

    module = sys.modules["bigcons.cli.main"]
    monkeypatch.setattr(module, "ProgressBar", lambda: ProgressBar(sys.stderr, after=-1.0))
    monkeypatch.setattr("bigcons.disk.commit.read_head", warn)
    shown = [line.strip() for line in re.split(r"[\r\n]", run("info e.zarr").stderr)]
    assert any(line.startswith("survey:") for line in shown)
    assert "Warning: one" in shown
    assert "Error: Memory is exhausted; give the process more memory or threads." in shown


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("solve {0} -k 3 -o {0} --overwrite", "is the input"),
        ("sample {0} -o ./{0} --overwrite", "is the input"),
        ("import labels.csv -o {0}/labels --overwrite", "is inside the store"),
        ("solve labels.csv -k 3 -o {0} --overwrite", "would be lost"),
        ("demo --size 300 -o .", "exists"),
    ],
)
def test_output__never_replaces_what_it_is_made_from_or_lies_among_other_files(ensemble, run, line, words):
    status = 2 if "input" in words else 1
    assert_fails_in_one_line(run(line.format(ensemble)), words, "another", status=status)
    assert names() == ["ensemble.zarr", "labels.csv", "truth.csv"]
    assert run(f"verify {ensemble}").exit_code == 0
    assert commit.read_head(ensemble).kind == "ensemble"


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
    assert (result.exit_code, len(asked)) == (2, 1)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("x exists; pass overwrite=True (--overwrite) or leave", "x exists; pass --overwrite or leave"),
        ("header=True (--header), header=False (--no-header) if", "--header, --no-header if"),
        ("name it in missing= of bigcons.select (--missing) if", "name it in --missing if"),
        ("pass bigcons.select(x, missing=-9) (--missing -9).", "pass --missing -9."),
        ("pass missing=[] (--missing '') if", "pass --missing '' if"),
        (
            "client='h:1' does not answer; use client='threads'.",
            "--scheduler h:1 does not answer; use --scheduler threads.",
        ),
        ("memory=1 MB cannot hold it", "--memory 1 MB cannot hold it"),
        ("n_clusters=3 may do", "-k 3 may do"),
        ("made with random_state=None, not 1", "made with no --random-state, not 1"),
        ("n_clusters=[2, 9], not range(2, 5); pass", "-k 2:9, not 2:4; pass"),
        ("sample=0.5 of part/n_clusters=3/x.csv", "sample=0.5 of part/n_clusters=3/x.csv"),
    ],
)
def test_messages__name_options_in_the_place_of_parameters(message, shown):
    flags = {"client": "--scheduler", "memory": "--memory", "n_clusters": "-k"}
    assert with_options(message, flags | {"random_state": "--random-state"}) == shown
