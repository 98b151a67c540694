"""How long a job still takes, and what the screen shows: recorded sequences, without any timing."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from bigcons import PCC, Ensemble, ProgressBar, progress
from bigcons.kernels._cache import KernelCache
from bigcons.progress import COMPILING, expect_steps, job, note_compiling
from bigcons.progress import progress as task
from bigcons.solving.passes import passes_left

N = 3_000_000

# Seconds of a visit of all objects by the steps of PCC of 3,000,000 objects in 100 partitions, and of the
# start from a sample, which is not stated; then the gaps of its passes over the model of the paper, which
# rise in every other pass until the solve suddenly ends.
# fmt: off
SECONDS = {
    "survey": 0.7, "start": 3.0, "passes": 1.35, "results": 0.3, "compare": 1.4, "confidence": 5.8,
    "write": 2.0,
}
COSTS = {
    "survey": 0.35, "start": 1.7, "passes": 1.0, "results": 0.3, "compare": 1.0, "confidence": 4.0,
    "write": 1.5,
}
SAMPLE_SECONDS = 3.0
GAPS = [
    8.1e-3, 2.56e-3, 1.35e-3, 8.83e-4, 6.04e-4, 4.06e-4, 2.98e-4, 2.13e-4, 1.82e-4, 1.34e-4,
    1.6e-4, 1.06e-4, 1.48e-4, 9.56e-5, 1.38e-4, 8.86e-5, 1.28e-4, 8.31e-5, 1.19e-4, 7.81e-5,
    1.11e-4, 7.35e-5, 1.04e-4, 6.92e-5, 9.64e-5, 6.52e-5, 8.94e-5, 6.19e-5, 8.29e-5, 5.87e-5,
    7.71e-5, 5.71e-5, 7.17e-5, 5.55e-5, 6.69e-5, 5.41e-5, 6.25e-5, 5.18e-5, 5.86e-5, 4.93e-5,
    5.53e-5, 4.64e-5, 5.46e-5, 4.39e-5, 5.22e-5, 4.2e-5, 4.94e-5, 3.96e-5, 4.65e-5, 3.78e-5,
    4.36e-5, 3.65e-5, 4.06e-5, 3.78e-5, 3.86e-5, 3.71e-5, 2.38e-5, 1.72e-5,
]
# fmt: on


class Clock:
    """The clock of progress, which tests set."""

    now = 0.0


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(progress.time, "monotonic", lambda: found.now)
    return found


def replay(clock, n_passes, expected, slower=lambda now: 1.0):
    """Return (now, seconds left as told) after every eighth of a visit, and when the job ended."""
    units = dict.fromkeys(SECONDS, N) | {"passes": expected([]), "results": 2 * N}
    told = []
    with job("PCC"):
        expect_steps({name: (units[name], cost) for name, cost in COSTS.items()})
        whole = progress._job.get()
        for name in SECONDS:
            with task(name, 0 if name == "passes" else int(units[name])) as listener:
                for number in range({"passes": n_passes, "results": 2}.get(name, 1)):
                    if name == "passes":
                        listener.expect(expected(range(number)), f"pass {number + 1}")
                    for _ in range(8):
                        clock.now += SECONDS[name] * slower(clock.now) / 8
                        listener.advance(N // 8)
                        told.append((clock.now, whole.seconds_left()))
            if name == "survey":
                clock.now += SAMPLE_SECONDS
    return told, clock.now


def ratios(told, end):
    """Return the estimate over the truth from a third of the way on, but for the last second."""
    return [left / (end - now) for now, left in told if end / 3 <= now <= end - 1.0]


@pytest.mark.parametrize("n_passes", [3, 4, 5])
@pytest.mark.parametrize("slower", [1.0, 3.0])
def test_job__tells_the_time_left_of_the_whole_solve(clock, n_passes, slower):
    told, end = replay(clock, n_passes, lambda done: max(4, len(done) + 1) * N, lambda _: slower)
    assert told[0][1] is None  # the survey says nothing of the passes
    found = ratios(told, end)
    assert 1 / 1.5 < min(found) <= max(found) < 1.5


def test_job__follows_a_load_that_comes_in_the_middle(clock):
    told, end = replay(clock, 40, lambda _: 40 * N, lambda now: 1.0 if now < 40 else 2.0)
    late = [left / (end - now) for now, left in told if 65 <= now <= end - 1.0]
    assert 1 / 1.5 < min(late) <= max(late) < 1.5


def test_job__tells_a_solve_of_many_passes_by_its_gap(clock):
    """All but the last few of 58 passes, where it ends sooner than the gap foretells."""

    def expected(done):
        left = passes_left([{"gap": gap} for gap in GAPS[: len(done)]], 3e-5, 1000)
        return None if left is None else (len(done) + left) * N

    told, end = replay(clock, len(GAPS), expected)
    assert all(left is None for now, left in told if now < 12.0)
    found = ratios(told, end)
    assert None not in found
    within = [1 / 1.5 < ratio < 1.5 for ratio in found]
    assert sum(within) > 0.9 * len(within)
    assert max(found) < 2.0


def test_job__leaves_out_what_compiling_took(clock):
    with job("PCC"):
        expect_steps({"a": (10, 1.0)})
        with task("a", 10) as listener:
            clock.now = 60.0
            note_compiling()
            listener.advance(1)
            assert progress._job.get().seconds_left() is None
            clock.now = 61.0
            listener.advance(1)
            assert progress._job.get().seconds_left() == pytest.approx(8.0)


def test_job__forgets_steps_that_a_resumed_solve_skips(clock):
    with job("PCC"):
        expect_steps({"start": (N, 3.0), "passes": (None, 1.0), "confidence": (N, 2.0)})
        with task("passes", 0) as listener:
            listener.expect(2 * N, "pass 2")
            clock.now = 1.0
            listener.advance(N)
            assert progress._job.get().seconds_left() == pytest.approx(1.0 + 2.0)


class Terminal(io.StringIO):
    def lines(self):
        return [line.rstrip() for line in re.split(r"[\r\n]", self.getvalue()) if line.strip()]


@pytest.fixture
def screen(monkeypatch):
    """A terminal of 80 columns, and a clock that advances by a second whenever it is read."""
    seconds = iter(range(10**6))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


def test_bar__shows_the_whole_job_and_its_steps(screen):
    with ProgressBar(screen, after=-1.0), job("PCC"):
        expect_steps({"survey": (4, 0.01), "passes": (None, 1.0), "confidence": (4, 1.0)})
        with task("survey", 4) as listener:
            listener.advance(4)
        with task("passes", 0) as listener:
            listener.expect(8, "pass 1 of about 2")
            for number in range(8):
                listener.advance(1)
                if number == 4:
                    listener.expect(8, "pass 2 of about 2, gap 1.0e-03")
        with task("confidence", 4) as listener:
            listener.advance(4)
    lines = screen.lines()
    assert all(line.startswith("PCC  [") and len(line) < 80 for line in lines)
    assert re.fullmatch(r"PCC  \[-+\]    -  -:-- left  survey", lines[0])
    assert any(re.search(r"\] +\d+%  0:\d\d left  pass 2 of about 2, gap 1.0e-03", line) for line in lines)
    assert re.search(r"100%  0:00 left  confidence", lines[-1])
    assert screen.getvalue().endswith("\r")  # nothing of it stays
    assert "\n" not in screen.getvalue()


def test_bar__makes_room_for_what_is_logged(screen, caplog):
    with ProgressBar(screen, after=-1.0), job("PCC"), task("survey", 4) as listener, caplog.at_level("INFO"):
        listener.advance(1)
        assert not screen.getvalue().endswith("\r")
        logging.getLogger("bigcons").info("a line of its own")
        assert screen.getvalue().endswith(" \r")
        listener.advance(1)
        assert screen.lines()[-1].startswith("PCC  [")
    assert "a line of its own" in caplog.text


def test_bar__says_which_time_is_that_of_a_step(screen):
    with ProgressBar(screen, after=-1.0), job("CSPA"), task("overlaps", 4) as listener:
        for _ in range(3):
            listener.advance(1)
    assert re.search(r"^CSPA  \[#.*\d:\d\d left of this step  overlaps$", screen.lines()[-1])


def test_bar__of_a_job_within_a_job_tells_no_time(screen):
    with ProgressBar(screen, after=-1.0), job("outer"), job("inner"):
        expect_steps({"overlaps": (4, 1.0)})
        with task("overlaps", 4) as listener:
            listener.advance(3)
    assert screen.lines()[-1].startswith("outer  [")
    assert "-:-- left" in screen.lines()[-1]


def test_bar__says_that_kernels_are_compiled(screen):
    with ProgressBar(screen, after=-1.0), job("PCC"), task("survey", 4) as listener:
        listener.advance(2)
        note_compiling()
        note_compiling()
        said = screen.lines()
        listener.advance(2)
        after = screen.lines()[len(said) :]
    assert COMPILING in said[-1]
    assert not any(COMPILING in line for line in after)


def test_bar__is_told_by_kernels_that_no_cache_holds(screen, monkeypatch):
    in_cache = {"sweep": object()}
    monkeypatch.setattr(KernelCache, "_entry", lambda _, sig, __: Path(sig))
    monkeypatch.setattr(KernelCache, "_loaded", lambda _, path, __: in_cache.get(path.name))
    monkeypatch.setattr("bigcons.kernels._cache._wait_for_turn", lambda _: None)
    cache, target = object.__new__(KernelCache), SimpleNamespace(codegen=lambda: None)
    cache._turns = {}
    with ProgressBar(screen, after=-1.0), job("PCC"), task("survey", 4) as listener:
        listener.advance(1)
        assert cache.load_overload("sweep", target) is in_cache["sweep"]
        assert not any(COMPILING in line for line in screen.lines())
        assert cache.load_overload("update", target) is None
        assert screen.lines()[-1].endswith(COMPILING)


def test_solve__has_the_steps_it_states(tmp_path):
    """Each stated step is a task of the solve, in order, and has as many units as it was said to have."""
    heard = []

    class Listener(progress.Progress):
        def start(self, what, total, unit):
            self.what, self.done = what, 0
            steps = progress._job.get().steps
            if what in steps:
                heard.append((what, list(steps).index(what)))

        def advance(self, n):
            self.done += n

        def finish(self):
            if self.what == "confidence":
                heard.extend(step.done for step in progress._job.get().steps.values() if step.done)

    labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]] * 10
    with progress.report_progress_to(Listener):
        model = PCC(2, random_state=0).fit(Ensemble.from_labels(labels), out=tmp_path / "c.zarr")
    names = ["survey", "start of PCC", "all-pairs PCC", "results", "compare with partitions", "confidence"]
    told = [(name, order) for order, name in enumerate(names)]
    assert heard == [*told, 70, 70, 70 * model.n_passes_, 70, 70, 70, ("write to disk", 6)]
