"""The README's own lines run as they stand, on small data."""

import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from bigcons import Consensus, Ensemble
from bigcons.cli import main
from bigcons.metrics import adjusted_rand

README = Path(__file__).parents[1] / "README.md"
COMMANDS = README.parent / "docs/command-line.md"


def code_blocks(language, page=README):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def some_files(tmp_path, monkeypatch):
    """Write the files the README speaks of; returns labels and truth."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=400)
    features = rng.normal(size=(400, 4)) + 6 * truth[:, None]
    labels = np.where(rng.random((400, 9)) < 0.4, -1, truth[:, None])
    for name, table in (("features", features), ("labels", labels), ("truth", truth[:, None])):
        columns = {f"{name}{column}": table[:, column] for column in range(table.shape[1])}
        pq.write_table(pa.table(columns), f"{name}.parquet")
    return labels, truth


def test_readme__shell_lines_run(some_files, as_small_process):
    (shown,) = [block for block in code_blocks("sh") if block.startswith("bigcons ")]
    (block,) = code_blocks("sh", COMMANDS)
    assert set(shown.splitlines()) <= set(block.splitlines())
    for line in block.splitlines():
        command, *arguments = shlex.split(line, comments=True)
        assert command == "bigcons"
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, f"{line}\n{result.output}"


@pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning")  # ten clusters of three classes
def test_readme__python_lines_run(some_files, as_small_process):
    labels, truth = some_files
    names = {}
    first, stored = code_blocks("python")
    exec(compile(first, str(README), "exec"), names)
    stated = float(first.rsplit("# ", 1)[1])
    assert adjusted_rand(names["cultivars"], names["model"].labels_) == pytest.approx(stated, abs=0.01)
    for path in ("ensemble.zarr", "new_objects.zarr"):
        Ensemble.from_labels(labels).save(path)
    exec(compile(stored, str(README), "exec"), names)
    Consensus.open("consensus.zarr").export("consensus.parquet")
    exported = pq.read_table("consensus.parquet")
    np.testing.assert_array_equal(exported["label"].to_numpy(), names["model"].labels_)
    assert names["model"].memberships_.shape == (400, 10)
    assert Consensus.open("placed.zarr").labels.shape == truth.shape


def test_readme__has_one_line_to_run_and_one_to_test():
    lines = [block.strip() for block in code_blocks("sh")]
    assert sum(line.endswith(".venv/bin/bigcons demo") for line in lines) == 1
    assert sum(line.endswith(".venv/bin/pytest") for line in lines) == 1
