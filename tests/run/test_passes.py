"""The driver of methods of passes: finalists share them, and a killed run goes on to the same bits."""

import inspect
import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest

from bigcons import METHODS, Consensus, Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.disk.checkpoint import FileBlocks
from bigcons.errors import (
    ConvergenceWarning,
    InvalidInputError,
    MemoryBudgetError,
    UnlabeledObjectsWarning,
)
from bigcons.methods.pass_clusterer import PassClusterer
from bigcons.run.engine import SerialEngine

NAMES = [
    name
    for name, cls in METHODS.items()
    if issubclass(cls, PassClusterer) and "n_init" in inspect.signature(cls).parameters
]
NEEDED = {"ipc": {"normalize": "all"}}  # otherwise it compares all pairs


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("passes") / "ensemble.zarr"
    planted_ensemble(9000, 12, random_state=4)[0].save(path, chunk_rows=3000)
    return path


def fit(name, stored, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UnlabeledObjectsWarning)
        parameters |= NEEDED.get(name, {})
        return METHODS[name](n_clusters=5, random_state=3, n_init=3, **parameters).fit(stored)


def assert_same(model, expected):
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    assert model.history_["objective"] == expected.history_["objective"]
    assert model.start_objectives_ == expected.start_objectives_
    assert len(model.start_objectives_) == 3
    if model.info.soft:
        np.testing.assert_array_equal(np.asarray(model.memberships_), np.asarray(expected.memberships_))


def test_passes__drop_what_no_pass_reads(stored, tmp_path, monkeypatch):
    dropped, drop = [], FileBlocks.drop

    def watched(self, generations):
        dropped.append([(generation, self.n_kept(generation)) for generation in generations])
        drop(self, generations)
        assert not any(self.n_kept(generation) for generation in generations)

    monkeypatch.setattr(FileBlocks, "drop", watched)
    model = METHODS["pcc"](5, random_state=3, max_iter=6, tol=0.0, out=tmp_path / "c.zarr", client="serial")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(Ensemble.open(stored))
    assert model.n_passes_ == 6
    assert dropped == [[], *([(g, 3)] for g in range(5))]  # the one before the last pass stays


class StopError(Exception):
    pass


class EngineThatStops(SerialEngine):
    """Fails after so many tasks, as a kill would."""

    def __init__(self, n_tasks):
        self.left = n_tasks

    def map(self, task, items):
        for result in super().map(task, items):
            self.left -= 1
            if self.left < 0:
                raise StopError
            yield result


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_resume__after_a_stop_in_any_pass_ends_with_the_same_bits(name, stored, tmp_path):
    expected = fit(name, stored, out=tmp_path / "expected.zarr", max_iter=6)
    out = tmp_path / "consensus.zarr"
    blocks = 3
    start = blocks + 3  # the survey, and three starts
    for n_tasks in range(start - 1, start + blocks * (expected.n_passes_ + 1), blocks + 1):
        with pytest.raises(StopError):
            fit(name, stored, out=out, client=EngineThatStops(n_tasks), max_iter=6)
        assert not out.exists()
        assert_same(fit(name, stored, out=out, max_iter=6), expected)
        Consensus.open(out).verify()
        out = tmp_path / f"consensus{n_tasks}.zarr"
    assert not list(tmp_path.glob("*.partial"))


def test_resume__needs_the_same_parameters(stored, tmp_path):
    out = tmp_path / "c.zarr"
    with pytest.raises(StopError):
        fit("qmi", stored, out=out, client=EngineThatStops(10))
    with pytest.raises(InvalidInputError, match=r"tol=1e-06, not 0\.5"):
        fit("qmi", stored, out=out, tol=0.5)


@pytest.mark.slow
def test_interrupt__on_the_command_line_says_how_to_go_on(stored, tmp_path):
    out = tmp_path / "c.zarr"
    planted_ensemble(150_000, 20, random_state=0)[0].save(tmp_path / "big.zarr", chunk_rows=16_384)
    line = [sys.executable, "-m", "bigcons", "solve", str(tmp_path / "big.zarr"), "-m", "mixture", "-k", "6"]
    line += ["-o", str(out), "--tol", "0", "-v"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        for text in process.stderr:
            if "mixture: pass 2" in text:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
    assert process.returncode != 0
    assert "repeat the call to resume" in rest
    assert "Traceback" not in rest
    assert not out.exists()


def test_memory__is_refused_with_what_would_do(stored):
    with pytest.raises(MemoryBudgetError, match="raise it to"):
        fit("mixture", stored, memory="1MB")
    fit("mixture", stored, memory="4GB")
