"""A solve that is killed in any pass, and taken up again, ends with the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bigcons import PCC, Consensus, Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.errors import CorruptStoreError, InvalidInputError

PARAMETERS = {"n_clusters": 5, "random_state": 3, "tol": 1e-5}

# The child dies by its own hand, at a moment that the arguments name.
CHILD = """
import os, signal, sys
from bigcons import PCC
from bigcons.stores.checkpoint import FileBlocks, Snapshots
what, at, ensemble, out = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
kind, name = {"snapshot": (Snapshots, "save"), "block": (FileBlocks, "write")}[what]
original, calls = getattr(kind, name), [0]
def dying(*arguments):
    original(*arguments)
    calls[0] += 1
    if calls[0] == at:
        os.kill(os.getpid(), signal.SIGKILL)
setattr(kind, name, dying)
PCC(n_clusters=5, random_state=3, tol=1e-5).fit(ensemble, out=out)
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("resume") / "ensemble.zarr"
    planted_ensemble(5000, 30, random_state=2)[0].save(path, chunk_rows=1024)
    return path


@pytest.fixture(scope="module")
def undisturbed(stored: Path) -> PCC:
    return PCC(**PARAMETERS).fit(stored)


def die(what: str, at: int, ensemble: Path, out: Path) -> None:
    command = [sys.executable, "-c", CHILD, what, str(at), str(ensemble), str(out)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert process.returncode == -signal.SIGKILL, process.stderr


@pytest.mark.parametrize(
    ("what", "at"), [("snapshot", 1), ("snapshot", 3), ("block", 2), ("block", 8), ("block", 13)]
)
def test_resume__a_killed_solve_ends_with_the_same_bits(
    what: str, at: int, stored: Path, undisturbed: PCC, tmp_path: Path
) -> None:
    out = tmp_path / "consensus.zarr"
    die(what, at, stored, out)
    assert not out.exists()
    model = PCC(**PARAMETERS, resume=True).fit(stored, out=out)
    np.testing.assert_array_equal(model.labels_, undisturbed.labels_)
    np.testing.assert_array_equal(np.asarray(model.memberships_), undisturbed.memberships_)
    assert model.history_["objective"] == undisturbed.history_["objective"]
    assert [path.name for path in tmp_path.iterdir() if "lock" not in path.name] == ["consensus.zarr"]
    assert Consensus.open(out).verify()


def test_resume__more_passes_continue_where_the_last_run_stopped(
    stored: Path, undisturbed: PCC, tmp_path: Path
) -> None:
    out = tmp_path / "consensus.zarr"
    die("snapshot", 3, stored, out)
    model = PCC(**PARAMETERS, resume=True, max_iter=50).fit(stored, out=out)
    np.testing.assert_array_equal(model.labels_, undisturbed.labels_)


def test_resume__another_solve_in_the_folder_is_refused(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "consensus.zarr"
    die("snapshot", 2, stored, out)
    with pytest.raises(InvalidInputError, match=r"other tol.*resume with the same"):
        PCC(**{**PARAMETERS, "tol": 1e-3}, resume=True).fit(stored, out=out)
    assert PCC(**{**PARAMETERS, "tol": 1e-3}).fit(stored, out=out).converged_


def test_resume__a_damaged_block_is_noticed(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "consensus.zarr"
    die("snapshot", 2, stored, out)
    block = sorted(tmp_path.glob("consensus.zarr.partial/generation-1/block-*"))[0]
    content = bytearray(block.read_bytes())
    content[40] ^= 1
    block.write_bytes(content)
    with pytest.raises(CorruptStoreError, match="damaged"):
        PCC(**PARAMETERS, resume=True).fit(stored, out=out)


def test_resume__nothing_to_take_up_starts_anew(stored: Path, undisturbed: PCC, tmp_path: Path) -> None:
    model = PCC(**PARAMETERS, resume=True).fit(stored, out=tmp_path / "consensus.zarr")
    np.testing.assert_array_equal(model.labels_, undisturbed.labels_)


def test_resume__needs_an_output_that_keeps_what_is_done(stored: Path) -> None:
    with pytest.raises(InvalidInputError, match="resume=True without out="):
        PCC(3, resume=True).fit(stored)
    with pytest.raises(InvalidInputError, match="pairs='all' and solver='blocked' can be resumed"):
        PCC(3, pairs=0.1, resume=True, out="never-written.zarr").fit(Ensemble.open(stored))


def test_interrupt__says_how_to_go_on(stored: Path, tmp_path: Path, monkeypatch, caplog) -> None:  # type: ignore[no-untyped-def]
    from bigcons.stores.checkpoint import Snapshots

    original = Snapshots.save

    def interrupted(self: Snapshots, *arguments: object) -> None:
        original(self, *arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(Snapshots, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        PCC(**PARAMETERS).fit(stored, out=tmp_path / "consensus.zarr")
    assert "resume=True" in caplog.text
