"""What is reported of a solve, and what the screen shows of it."""

import io
import re
import time

from bigcons import PCC, Ensemble, ProgressBar, progress
from bigcons.progress import progress as step


def lines(screen):
    return [line.rstrip() for line in re.split(r"[\r\n]", screen.getvalue()) if line.strip()]


def test_bar__shows_each_step_and_leaves_nothing():
    screen = io.StringIO()
    with ProgressBar(screen, after=-1.0):
        with step("survey", 4) as listener:
            listener.advance(2)
            time.sleep(0.2)  # bars are drawn ten times a second
            listener.advance(2)
        with step("passes", 0) as listener:
            for number in range(2):
                time.sleep(0.2)
                listener.note(f"pass {number + 1}, gap 1.0e-03")
                listener.advance(4)
    shown = lines(screen)
    assert any(re.match(r"survey: +100%.* 4.00/4.00 ", line) for line in shown)
    assert any(re.match(r"passes: .*pass 1, gap 1.0e-03", line) for line in shown)
    assert screen.getvalue().endswith("\r")
    assert "\n" not in screen.getvalue()


def test_bar__draws_nothing_in_a_pipe_or_for_short_steps(capsys):
    screen = io.StringIO()
    with ProgressBar(after=-1.0), step("survey", 1) as listener:
        listener.advance(1)
    with ProgressBar(screen, after=60.0), step("survey", 1) as listener:
        listener.advance(1)
    assert capsys.readouterr().err == ""
    assert lines(screen) == []


def test_solve__reports_all_units_of_its_steps(tmp_path):
    heard = []

    class Listener(progress.Progress):
        def start(self, what, total, unit):
            self.what, self.done = what, 0

        def advance(self, n):
            self.done += n

        def finish(self):
            heard.append((self.what, self.done))

    labels = [[0, 0, 1], [0, 0, 1], [0, 2, 1], [0, 0, -1], [1, 1, 0], [1, 1, 0], [1, -1, 0]] * 10
    with progress.report_progress_to(Listener):
        model = PCC(2, random_state=0).fit(Ensemble.from_labels(labels), out=tmp_path / "c.zarr")
    expected = {"survey": 70, "start of PCC": 70, "all-pairs PCC": 70 * model.n_passes_}
    expected |= {"results": 70, "compare with partitions": 70, "confidence": 70}
    found = dict.fromkeys(expected, 0)
    for what, done in heard:
        found[what] = found.get(what, 0) + done
    assert {name: found[name] for name in expected} == expected | {"results": found["results"]}
