"""What killed processes leave is removed by the next writer; what others use stays."""

import os
import subprocess
import sys
import uuid

import numpy as np
import pytest

from bigcons import Ensemble
from bigcons.disk import commit
from bigcons.disk.commit import new_file
from bigcons.disk.files import machine
from bigcons.disk.places import is_leftover, temporary_folder
from bigcons.errors import StoreExistsError
from tests.support.stores import names_in

LABELS = np.arange(40).reshape(20, 2) % 3


@pytest.fixture(scope="module")
def dead():
    """The number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def owner():
    """Return the tag that the names of this process have."""
    return f"{machine()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def partial_name(name):
    """Return the hidden name of what is to become a file."""
    return f".{name}.{owner()}.partial"


def by(process, name):
    """Return a name as a process of this machine would give it."""
    return name.replace(f"-{os.getpid()}-", f"-{process}-")


def test_new_file__removes_what_killed_writers_of_it_left(tmp_path, dead):
    kept = [partial_name("o.csv"), by(dead, partial_name("other.csv")), f".o.csv.{'0' * 8}-1-abc.partial"]
    gone = by(dead, partial_name("o.csv"))
    for name in [*kept, gone]:
        (tmp_path / name).write_text("half")
    with new_file(tmp_path / "o.csv", overwrite=False) as file:
        file.write(b"whole")
    assert names_in(tmp_path) == sorted([*kept, "o.csv"])


def test_export__killed_in_the_middle_is_cleared_by_the_next(tmp_path):
    child = (
        "import os, signal\n"
        "from bigcons.disk.commit import new_file\n"
        f"with new_file({str(tmp_path / 'o.csv')!r}, overwrite=False) as file:\n"
        "    file.write(b'half')\n"
        "    file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.run([sys.executable, "-c", child], check=False)
    assert process.returncode == -9
    assert len(names_in(tmp_path)) == 1  # the kill left something
    with new_file(tmp_path / "o.csv", overwrite=False) as file:
        file.write(b"whole")
    assert names_in(tmp_path) == ["o.csv"]


def test_temporary_folder__removes_those_of_dead_processes_of_this_user(tmp_path, dead, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in (f"bigcons-{owner()}", "bigcons-of-a-user", f"bigcons-{'0' * 8}-1-abc"):
        (tmp_path / name).mkdir()
    kept = names_in(tmp_path)
    left = tmp_path / by(dead, f"bigcons-{owner()}")
    left.mkdir()
    (left / "block-0").write_text("rows")
    (tmp_path / by(dead, f"bigcons-{owner()}")).symlink_to(tmp_path / "bigcons-of-a-user")
    with temporary_folder() as folder:
        assert folder.is_dir()
        (folder / "block-0").write_text("rows")
        assert not left.exists()
    assert [name for name in names_in(tmp_path) if not (tmp_path / name).is_symlink()] == kept


def test_is_left__an_owner_that_runs_keeps_its_files_however_old(tmp_path):
    own = tmp_path / partial_name("o.csv")
    own.write_text("half")
    os.utime(own, (0, 0))
    assert not is_leftover(own)


def test_new_store__puts_back_a_store_that_a_killed_writer_moved_aside(tmp_path, monkeypatch):
    """Where two folders cannot be exchanged, a kill between two renames leaves nothing at the path."""
    path = tmp_path / "e.zarr"
    Ensemble.from_labels(LABELS).save(path)
    path.rename(tmp_path / ".e.zarr.previous")
    monkeypatch.setattr(commit, "_exchange", lambda *_: False)
    with pytest.raises(StoreExistsError):
        Ensemble.from_labels(LABELS[:5]).save(path)
    np.testing.assert_array_equal(Ensemble.open(path).read(0, 20), LABELS)
    Ensemble.from_labels(LABELS[:5]).save(path, overwrite=True)
    assert names_in(tmp_path) == ["e.zarr"]
