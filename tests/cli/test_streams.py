"""Closed and full streams, and disks that fill up: one line that names the output, in every command."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bigcons import Ensemble
from tests.support.forks import Fork
from tests.support.stores import write_consensus

pytestmark = [
    pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with features, labels, and a store of each kind."""
    folder = tmp_path_factory.mktemp("streams")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (3000, 6))
    np.save(folder / "x.npy", rng.normal(size=(3000, 3)))
    np.savetxt(folder / "l.csv", labels, fmt="%d", delimiter=",")
    (folder / "odd.csv").write_text("a,b\n" + "".join(f"{i},{i % 3}\n" for i in range(300)))  # warned of
    Ensemble.from_labels(labels).save(folder / "e.zarr")
    pairs = [f"{i},{j},1,2" for i in range(100) for j in range(i + 1, 100)]
    (folder / "pairs.csv").write_text("\n".join(["i,j,n_agree,n_seen", *pairs]))
    history = {"pass": [1, 2], "objective": [2.0, 1.0]}
    write_consensus(folder / "c.zarr", labels[:, 0].astype(np.int32), None, history=history)
    return folder


def bigcons(command, folder, shell):
    """Run a command in a shell with redirections."""
    words = [sys.executable, "-m", "bigcons", *command.split(), shell]
    return subprocess.run(
        ["sh", "-c", " ".join(words)], cwd=folder, capture_output=True, text=True, check=False, timeout=600,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "PYTHONDONTWRITEBYTECODE": "1",
             "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        "--version",
        "info --json e.zarr",
        "info --json missing",
        "export c.zarr -o -",
        f"methods --json {'m' * 9000}",  # longer than a buffer
    ],
)
def test_standard_output__full_is_told_in_one_line(made, command):
    run = bigcons(command, made, ">/dev/full")
    assert run.returncode == 1
    assert run.stderr.splitlines() == [
        "Error: standard output: No space left on device; direct it elsewhere."
    ]


@pytest.mark.parametrize("command", ["--help", "import l.csv -o closed.zarr"])
def test_standard_output__closed_is_told_before_anything_is_done(made, command):
    run = bigcons(command, made, ">&-")
    assert run.returncode == 1
    assert run.stderr.startswith("Error: standard output is closed;")
    assert run.stderr.count("\n") == 1
    assert not (made / "closed.zarr").exists()


@pytest.mark.parametrize("command", ["export long.zarr -o -", "--help"])
def test_standard_output__whose_reader_ends_is_left_in_silence(made, command):
    write_consensus(made / "long.zarr", np.zeros(200_000, np.int32), None, overwrite=True)
    assert bigcons(command, made, "| head -n 1 | cat; exit 0").stderr == ""
    assert bigcons(command, made, "| true").stderr == ""


def test_standard_error__full_or_closed_does_not_stop_the_work(made):
    command = "import odd.csv -o noted.zarr --overwrite"
    assert "Warning: " in bigcons(command, made, "").stderr
    for shell in ("2>/dev/full", "2>&-"):
        run = bigcons(command, made, shell)
        assert run.returncode == 0
        assert "n_objects        300" in run.stdout


# A command where no file may be larger than so many bytes.
WITHIN = """
import resource, sys
from bigcons.cli import main

sys.dont_write_bytecode = True  # it would be cut
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
main(sys.argv[2:], prog_name="bigcons")
"""


@pytest.mark.parametrize(
    ("command", "out", "n_bytes"),
    [
        ("generate x.npy --n-partitions 4 -o", "g.zarr", 1024),
        ("import l.csv --no-header -o", "i.zarr", 512),
        ("sample e.zarr --per-object 50 -o", "s.zarr", 20_000),
        ("import --pairs pairs.csv -o", "ip.zarr", 2048),
        ("solve e.zarr -k 3 -o", "solved.zarr", 2048),
        ("export c.zarr -o", "x.csv", 2048),
        ("report c.zarr -o", "r.html", 2048),
        ("plot c.zarr -o", "figures", 2048),
    ],
)
def test_disk__that_takes_no_more_is_told_in_one_line_that_names_the_output(made, command, out, n_bytes):
    arguments = f"{command} {out} --json".split()
    status, said, errors = Fork(WITHIN, n_bytes, *arguments, folder=made).end()
    assert status == 1, errors
    *kept, last = [line for line in errors.splitlines() if not line.startswith("Warning: ")]
    assert all(" is kept in " in line for line in kept)
    assert last.startswith("Error: ")
    assert f"/{out}" in last or f" {out};" in last or f"{made}/.bigcons-" in last
    assert json.loads(said)["error"] == last.removeprefix("Error: ")
