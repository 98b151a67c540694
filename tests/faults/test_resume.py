"""A solve that is killed in any pass, and taken up again, ends with the same bits."""

import json
import logging
import shutil
from pkgutil import resolve_name

import numpy as np
import pytest
from click.testing import CliRunner

from bigcons import IVC, METHODS, PCC, Consensus, Ensemble, PairTable
from bigcons.cli import main
from bigcons.datasets import planted_ensemble
from bigcons.disk.checkpoint import Snapshots
from bigcons.errors import CorruptStoreError, InvalidInputError, StoreExistsError, StoreLockedError
from bigcons.memory import Block
from bigcons.run.engine import SerialEngine
from bigcons.run.passes import open_workspace
from bigcons.run.results import Output
from bigcons.store.consensus import fit_results
from tests.support.fits import bits
from tests.support.forks import Fork
from tests.support.refusals import refused
from tests.support.solves import SOLVES, parameters, store_data

PARAMETERS = {"n_clusters": 5, "random_state": 3, "tol": 1e-5}

# One process that has everything loaded forks a child for each moment; each dies by its own hand.
DEATHS = """
import json, os, signal, sys
from pathlib import Path
from bigcons import PCC
from tests.support.deaths import die_after

options = json.loads(sys.argv[1])
PCC(**options["parameters"], client="serial").fit(options["ensemble"])
for name, moment in options["moments"].items():
    pid = os.fork()
    if not pid:
        die_after(*moment)
        out = Path(options["folder"]) / name / "consensus.zarr"
        out.parent.mkdir()
        PCC(**options["parameters"], client="serial").fit(options["ensemble"], out=out)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, name
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("resume") / "ensemble.zarr"
    planted_ensemble(5000, 30, random_state=2)[0].save(path, chunk_rows=1024)
    return path


@pytest.fixture(scope="module")
def undisturbed(stored):
    return PCC(**PARAMETERS).fit(stored)


@pytest.fixture(scope="module")
def leave_killed(stored, tmp_path_factory):
    """A function that leaves at a path what a solve leaves that is killed after its commit 2 or 3."""
    folder = tmp_path_factory.mktemp("killed")
    kill_at({str(commit): ("snapshot", commit) for commit in (2, 3)}, PARAMETERS, stored, folder)

    def leave(commit, out):
        assert out.name == "consensus.zarr"
        shutil.copytree(folder / str(commit), out.parent, dirs_exist_ok=True)

    return leave


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bigcons.errors.UnlabeledObjectsWarning")
@pytest.mark.parametrize("solve", SOLVES)
def test_resume__a_solve_killed_in_any_pass_ends_with_the_same_bits(solve, tmp_path):
    store_data(tmp_path)
    ensemble, asked = tmp_path / "ensemble.zarr", parameters(solve, tmp_path)
    expected = PCC(**asked).fit(ensemble)
    n_passes, n_blocks = expected.n_passes_, len(Ensemble.open(ensemble).blocks())
    if "pairs" in asked:
        is_stored = isinstance(asked["pairs"], str)
        n_blocks = len(PairTable.open(asked["pairs"]).blocks()) if is_stored else 16
    # in the middle of the start and of every pass, and when these are committed; of the other solves, which
    # commit in the same way, in the middle of the last pass, and after the start and the last one
    first = 0 if solve == SOLVES[0] else n_passes
    moments = {f"in {p}": ("block", p * n_blocks + 3) for p in range(first, n_passes + 1)}
    moments |= {f"after {p}": ("snapshot", p + 1) for p in {0, *range(first, n_passes + 1)}}
    kill_at(moments, asked, ensemble, tmp_path)
    for name in moments:
        out = tmp_path / name / "consensus.zarr"
        assert [path.name for path in out.parent.iterdir() if "lock" not in path.name] == [
            "consensus.zarr.partial"
        ]
        model = PCC(**asked).fit(ensemble, out=out)
        assert bits(model) == bits(expected), name
        assert [path.name for path in out.parent.iterdir() if "lock" not in path.name] == ["consensus.zarr"]
        assert Consensus.open(out).verify()


def kill_at(moments, asked, ensemble, folder):
    """Run a solve once for each moment, and kill it there."""
    options = {"moments": moments, "parameters": asked, "ensemble": str(ensemble), "folder": str(folder)}
    status, _, errors = Fork(DEATHS, json.dumps(options)).end()
    assert status == 0, errors


def test_resume__another_solve_in_the_folder_is_refused(stored, tmp_path, leave_killed):
    out = tmp_path / "consensus.zarr"
    leave_killed(2, out)
    with pytest.raises(InvalidInputError, match=r"tol=1e-05, not 0.001; repeat the call .* overwrite=True"):
        PCC(**{**PARAMETERS, "tol": 1e-3}).fit(stored, out=out)
    assert PCC(**{**PARAMETERS, "tol": 1e-3}).fit(stored, out=out, overwrite=True).converged_


def stop_before(commit, ensemble, out):
    """Interrupt a solve at a commit, of which that of the start is number 1."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Snapshots, "save", InterruptAt(Snapshots.save, commit))
        with pytest.raises(KeyboardInterrupt):
            PCC(**PARAMETERS).fit(ensemble, out=out)


def spoil(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("lost", ["generation-1/block-0", "snapshot.npz"])
def test_resume__a_damaged_block_or_snapshot_is_noticed(stored, tmp_path, lost):
    out, partial = tmp_path / "consensus.zarr", tmp_path / "consensus.zarr.partial"
    stop_before(3, stored, out)
    spoil(partial / lost)
    with pytest.raises(CorruptStoreError, match=f"{lost} is damaged, .*; start over with overwrite=True"):
        PCC(**PARAMETERS).fit(stored, out=out)


def test_resume__without_a_random_state_takes_the_seed_of_the_run_it_continues(stored, tmp_path, monkeypatch):
    asked = {**PARAMETERS, "random_state": None}
    out = tmp_path / "consensus.zarr"
    with monkeypatch.context() as patch:
        patch.setattr(Snapshots, "save", InterruptAt(Snapshots.save, 3))
        with pytest.raises(KeyboardInterrupt):
            PCC(**asked).fit(stored, out=out)
    model = PCC(**asked).fit(stored, out=out)
    found = Consensus.open(out)
    assert found.parameters["random_state"] is None
    assert bits(PCC(**{**asked, "random_state": found.provenance["seed"]}).fit(stored)) == bits(model)


def test_fit__without_a_random_state_finds_a_finished_run_of_any_seed(stored, tmp_path):
    for seed in (0, 3):
        out = tmp_path / f"{seed}.zarr"
        model = IVC(5, random_state=seed).fit(stored, out=out)
        assert np.array_equal(IVC(5).fit(stored, out=out).labels_, model.labels_)
        assert Consensus.open(out).provenance["seed"] == seed


@pytest.mark.parametrize("tol", [0, np.int64(0), np.float64(0)])
def test_fit__finds_the_result_of_a_run_with_the_same_numbers_of_other_types(stored, tmp_path, tol):
    asked = {"random_state": 0, "max_iter": 2, "out": tmp_path / "c.zarr"}
    model = PCC(5, tol=0.0, **asked).fit(stored)
    again = PCC(np.int32(5), tol=tol, **asked).fit(stored)
    np.testing.assert_array_equal(again.labels_, model.labels_)
    with pytest.raises(StoreExistsError, match=r"tol=0\.0, not 1e-09"):
        PCC(5, tol=1e-9, **asked).fit(stored)


@pytest.mark.parametrize("method", ["pcc", "mixture", "ivc", "cspa"])
def test_fit__finds_the_result_of_a_finished_run(stored, tmp_path, method, caplog):
    out = tmp_path / "consensus.zarr"
    asked = {"n_clusters": 5, "random_state": None}
    model = METHODS[method](**asked).fit(stored, out=out)
    before = (out / "zarr.json").read_bytes()
    with caplog.at_level(logging.INFO, "bigcons"):
        again = METHODS[method](**asked).fit(stored, out=out)
    assert "holds the finished result of this run" in caplog.text
    assert (out / "zarr.json").read_bytes() == before
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert again.history_ == model.history_
    assert fit_results(again) == fit_results(model)
    assert hasattr(again, "memberships_") == hasattr(model, "memberships_") == model.info.soft
    if Consensus.open(out).has_placing:
        np.testing.assert_array_equal(again.predict(stored), model.predict(stored))
    elif hasattr(model, "predict"):
        with pytest.raises(InvalidInputError, match="overwrite=True"):
            again.predict(stored)
    for other, labels, named in (
        ({"n_clusters": 4}, stored, "n_clusters=5, not 4"),
        ({"random_state": 3}, stored, "random_state="),
        ({}, Ensemble.open(stored).read(0, 4000), "other labels"),
    ):
        with refused(named, StoreExistsError):
            METHODS[method](**{**asked, **other}).fit(labels, out=out)
    assert (out / "zarr.json").read_bytes() == before
    METHODS[method](n_clusters=4, random_state=0).fit(stored, out=out, overwrite=True)
    assert Consensus.open(out).parameters["n_clusters"] == 4


def test_fit__clears_what_a_run_left_that_was_killed_after_its_commit(stored, tmp_path, leave_killed):
    out, partial = tmp_path / "consensus.zarr", tmp_path / "consensus.zarr.partial"
    leave_killed(2, out)
    shutil.copytree(partial, tmp_path / "kept")
    PCC(**PARAMETERS).fit(stored, out=out)
    shutil.copytree(tmp_path / "kept", partial)
    (tmp_path / ".consensus.zarr.partial.lock").write_text("999999")
    PCC(**PARAMETERS).fit(stored, out=out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["consensus.zarr", "kept"]
    Snapshots(partial, {"of": "another"}).save({}, {})
    PCC(**PARAMETERS).fit(stored, out=out)
    assert partial.exists()


class InterruptAt:
    """Stands for a function and interrupts its call of that number."""

    def __init__(self, function, call):
        self.function, self.calls_left = function, call

    def __call__(self, *arguments, **named):
        self.calls_left -= 1
        if not self.calls_left:
            raise KeyboardInterrupt
        return self.function(*arguments, **named)

    def __get__(self, instance, _):
        return lambda *arguments, **named: self(instance, *arguments, **named)


N_BLOCKS = 5
# what is interrupted in which call, and the passes that are then kept
MOMENTS = {
    "starts": ("bigcons.methods.all_pairs.solve_sample", 1, None),
    "first commit": ("bigcons.disk.checkpoint.Snapshots.save", 1, None),
    "pass 2": ("bigcons.disk.checkpoint.FileBlocks.write", 2 * N_BLOCKS + 3, 1),
    "results": ("bigcons.disk.arrays.StoredArray.write", 3, "all"),
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_interrupt__of_the_command_keeps_committed_passes_and_a_repetition_finishes(
    moment, stored, undisturbed, tmp_path, monkeypatch, caplog
):
    out = tmp_path / "consensus.zarr"
    options = ["-m", "pcc", "-k", "5", "--tol", "1e-5", "--random-state", "3"]
    options += ["--scheduler", "serial", "-o", str(out)]
    target, call, passes = MOMENTS[moment]
    with monkeypatch.context() as patch:
        patch.setattr(target, InterruptAt(resolve_name(target), call))
        stopped = CliRunner().invoke(main, ["solve", str(stored), *options])
    assert stopped.exit_code == 130
    assert "Interrupted before the output was complete; repeat the command" in stopped.stderr
    folder = tmp_path / "consensus.zarr.partial"
    assert folder.exists() == (passes is not None)
    assert kept(caplog) == (passes is not None)
    if passes is not None:
        n_kept = passes_of(folder)
        assert n_kept == (undisturbed.n_passes_ if passes == "all" else passes)
    done = CliRunner().invoke(main, ["solve", str(stored), *options])
    assert done.exit_code == 0
    found = Consensus.open(out)
    np.testing.assert_array_equal(found.labels, undisturbed.labels_)
    np.testing.assert_array_equal(found.memberships, undisturbed.memberships_)


def passes_of(folder, name="snapshot.npz"):
    with np.load(folder / name) as members:
        return len(json.loads(members["facts"].tobytes())["facts"]["records"])


@pytest.mark.parametrize("asked", [{"overwrite": True}, {"resume": False}], ids=str)
def test_solve__begins_again_only_if_told_to(stored, undisturbed, tmp_path, asked, leave_killed):
    out = tmp_path / "consensus.zarr"
    leave_killed(3, out)
    with np.load(f"{out}.partial/snapshot.npz") as members:
        head = json.loads(members["facts"].tobytes())
    assert len(head["facts"]["records"]) == 2
    resume, overwrite = asked.get("resume", True), asked.get("overwrite", False)
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        save = Snapshots.save
        patch.setattr(Snapshots, "save", lambda *a: (calls.append(len(a[2]["records"])), save(*a)))
        model = PCC(**PARAMETERS, resume=resume).fit(stored, out=out, overwrite=overwrite)
    assert calls[0] == 0  # the start, which a resumed run does not commit again
    assert bits(model) == bits(undisturbed)


def kept(caplog):
    """How often it was told since the last time that something is kept, and where."""
    n_told = caplog.text.count("consensus.zarr.partial; repeat the call to resume")
    caplog.clear()
    return n_told


def test_fit__refuses_an_output_that_another_solve_works_on(tmp_path, caplog):
    """The folder of unfinished work has one owner: a second solve neither empties it nor goes on with it."""
    ensemble, _ = planted_ensemble(60, 8, random_state=0)
    out = tmp_path / "c.zarr"
    partial = tmp_path / "c.zarr.partial"
    with open_workspace(Output(out, False, False, {}), SerialEngine(), 5) as (arrays, snapshots):
        arrays.write(0, Block(0, 0, 1), np.zeros((1, 5), np.float32))
        model = PCC(**PARAMETERS)
        snapshots.save({}, {})
        assert Snapshots(partial, {}).exists()
        kept = sorted(partial.rglob("*"))
        for resume in (False, True):
            with pytest.raises(StoreLockedError, match=r"c\.zarr\.partial is being written by"):
                model.set_params(resume=resume).fit(ensemble, out=out, overwrite=True)
        assert "resume" not in caplog.text  # what is kept is another's
        assert sorted(partial.rglob("*")) == kept != []
    PCC(**PARAMETERS).fit(ensemble, out=out)
    assert [path.name for path in tmp_path.iterdir()] == ["c.zarr"]
