"""The lines of the README and of the page of commands run as they stand, and print what is shown."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from bigcons import Consensus
from bigcons.cli import main
from bigcons.datasets import planted_features
from bigcons.metrics import adjusted_rand

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
COMMANDS = ROOT / "docs/command-line.md"


def code_blocks(language, page=README):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def run_lines(block):
    """Run the lines of a shell block that call bigcons, in this process, and Python, in another one.

    Lines that import to the same store are alternatives.
    """
    for line in block.splitlines():
        command, *arguments = shlex.split(line, comments=True)
        if arguments[0] == "import" and "-o" in arguments:
            shutil.rmtree(arguments[arguments.index("-o") + 1], ignore_errors=True)
        if command == "python":
            subprocess.run([sys.executable, *arguments], check=True)
            continue
        assert command == "bigcons"
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, f"{line}\n{result.output}"


def test_readme__shell_lines_run_and_make_their_own_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in code_blocks("sh") if "bigcons run" in block]
    run_lines(block)
    exported = pa.csv.read_csv("labels.csv")
    np.testing.assert_array_equal(exported["label"], Consensus.open("out/consensus.zarr").labels)
    assert adjusted_rand(planted_features(2000, 10, random_state=0)[1], exported["label"].to_numpy()) > 0.95
    assert Path("report.html").exists()


def test_readme__python_lines_print_what_is_shown(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (code,) = code_blocks("python")
    exec(compile(code, str(README), "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print.* # (.*)$", code, re.MULTILINE)


@pytest.mark.slow
def test_page_of_commands__lines_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=400)
    features = rng.normal(size=(400, 4)) + 6 * truth[:, None]
    labels = np.where(rng.random((400, 9)) < 0.4, -1, truth[:, None])
    for name, table in (("features", features), ("labels", labels), ("truth", truth[:, None])):
        columns = {f"{name}{column}": table[:, column] for column in range(table.shape[1])}
        pq.write_table(pa.table(columns), f"{name}.parquet")
    pq.write_table(pq.read_table("features.parquet").slice(0, 50), "new.parquet")
    for run in range(3):
        np.save(f"run{run}.npy", labels[:, run])
    votes = [f"c{i},w{u},{labels[i, u]}" for i, u in zip(*np.nonzero(labels >= 0), strict=True)]
    Path("votes.csv").write_text("\n".join(["task,worker,vote", *votes]))
    more = [f"c{i},{cluster}" for i, cluster in enumerate(truth)]
    Path("more.csv").write_text("\n".join(["cell,more", *more]))
    (block,) = code_blocks("sh", COMMANDS)
    run_lines(block)


def test_readme__has_one_line_to_run_and_one_to_test():
    lines = [line for block in code_blocks("sh") for line in block.splitlines()]
    assert sum(line.endswith(".venv/bin/bigcons demo") for line in lines) == 1
    assert sum(line.endswith(".venv/bin/pytest") for line in lines) == 1


@pytest.mark.parametrize(
    "page",
    [
        README,
        ROOT / "CONTRIBUTING.md",
        *sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / ".github").glob("*.md")]),
    ],
    ids=lambda page: page.name,
)
def test_pages__links_lead_to_files_and_titles_that_there_are(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]*(?:#[^)\s]*)?)\)", text):
        path, _, title = link.partition("#")
        if "://" in path:
            continue
        target = page if not path else page.parent / path
        assert target.exists(), link
        if title:
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert title in [re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in titles], link
