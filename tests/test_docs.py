"""The pages of the documentation: their Python lines run; every public name is listed and has an example."""

import doctest
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import bigcons
from bigcons.errors import UnlabeledObjectsWarning

DOCS = Path(__file__).parents[1] / "docs"
ROOMS = ("coassociation", "datasets", "errors", "federated", "generate", "metrics", "plots", "testing")
NOT_FOR_USERS = {"first_line", "is_of_process", "nearest", "quote", "warn_user"}


def blocks_of(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", ["quickstart", "choosing", "large-data"])
def test_pages__python_lines_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks_of(DOCS / f"{page}.md"):
        exec(compile(block, page, "exec"), names)
    assert names["model"].labels_.size == names["model"].memberships_.shape[0]


def test_tasks__every_recipe_does_what_its_page_says(tmp_path, monkeypatch):
    pytest.importorskip("igraph")
    monkeypatch.chdir(tmp_path)
    cells, domains, cytometry, noise, draws, segments, numbers = blocks_of(DOCS / "tasks.md")
    names, agreement = {}, bigcons.metrics.adjusted_rand
    exec(compile(cells, "tasks", "exec"), names)
    assert agreement(names["types"], names["obs"]["consensus"].astype(int)) > 0.9  # in the order of the cells
    assert names["tree"].labels(3).shape == names["obs"].shape[:1]
    exec(compile(domains, "tasks", "exec"), names)
    layers, doubt = names["layers"], names["doubt"]
    assert names["model"].n_clusters_ == 4
    assert agreement(layers.ravel(), names["model"].labels_) > 0.9
    is_border = np.diff(layers, axis=0, append=layers[-1:]).ravel() != 0
    assert doubt[is_border].mean() > 2 * doubt[~is_border].mean()
    exec(compile(cytometry, "tasks", "exec"), names)
    kinds, labels = names["kinds"], names["model"].labels_
    assert agreement(kinds, labels) > 0.99
    assert agreement(kinds == 7, labels == np.bincount(labels[kinds == 7]).argmax()) > 0.9  # 30 of 6,000
    with pytest.warns(UnlabeledObjectsWarning):
        exec(compile(noise, "tasks", "exec"), names)
    kept = names["labels"] >= 0
    assert 0.4 < kept.mean() < 1
    assert agreement(names["types"][kept], names["labels"][kept]) > 0.9
    exec(compile(draws, "tasks", "exec"), names)
    assert ", ".join(f"{loss:.2f}" for loss in names["losses"]) in draws
    assert agreement(names["truth"], names["model"].labels_) > 0.95
    exec(compile(segments, "tasks", "exec"), names)
    assert agreement(names["group"], names["segments"].labels_) > 0.9
    np.testing.assert_allclose(names["sizes"].sum(), names["survey"]["weight"].to_numpy().sum())
    exec(compile(numbers, "tasks", "exec"), names)
    assert names["matched"].table["event"].to_pylist() == ["kept"] * 3


def test_index__example_is_of_clear_structure_and_shows_what_it_finds():
    (code,) = blocks_of(DOCS / "index.md")
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(code, "index", "exec"), names)
    assert f"# {names['model'].labels_!r}" in code


def test_choosing__first_example_gives_what_its_comment_says():
    code = blocks_of(DOCS / "choosing.md")[0]
    names = {}
    exec(compile(code, "choosing", "exec"), names)
    model = names["model"]
    assert f"# {model.n_clusters_}, {model.has_structure_}" in code
    assert 0.5 < names["sure"].mean() < 1


def test_choosing__tree_has_what_its_comments_say():
    code = next(code for code in blocks_of(DOCS / "choosing.md") if "min_support" in code)
    names = {"bc": bigcons}
    exec(compile(code, "choosing", "exec"), names)
    tree = names["tree"]
    assert repr(tree).startswith("ClusterTree(5 clusters")
    assert tree.cut(min_support=0.95, min_size=50).max() + 1 == names["labels"].max() + 1 == 4


@pytest.mark.slow
def test_large_data__script_for_a_cluster_runs(tmp_path):
    (code,) = [block for block in blocks_of(DOCS / "large-data.md") if "__main__" in block]
    bigcons.datasets.planted_ensemble(2000, 20, random_state=0)[0].save(tmp_path / "ensemble.zarr")
    (tmp_path / "script.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(Path(bigcons.__file__).parents[1])}
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=environment, check=True)
    assert bigcons.Consensus.open(tmp_path / "from-python.zarr").n_objects == 2000


def test_comparison__code_without_a_package_runs(capsys):
    (code,) = blocks_of(DOCS / "comparison.md")
    exec(compile(code, "comparison", "exec"), {})
    assert capsys.readouterr().out in ("[0 0 0 1 1]\n", "[1 1 1 0 0]\n")


def sections():
    text = (DOCS / "other-tools.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        if "```python" in section:
            title, _, body = section.partition("\n")
            yield pytest.param(body, id=title)


@pytest.mark.parametrize("section", [*sections()])
def test_other_tools__examples_run(section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    for name in re.findall(r"^import (\w+)", code, flags=re.MULTILINE):
        pytest.importorskip(name)
    names = {}
    exec(compile(code, "other-tools", "exec"), names)
    labels = names["model"].labels_ if "model" in names else names["again"].read(0, 200)
    assert 1 < np.unique(labels).size <= 4


def listed_names():
    """Return the names that the reference lists, with their modules."""
    names, module = [], ""
    for line in (DOCS / "api.md").read_text(encoding="utf-8").splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w+", line):
            names.append(f"{module}.{line.strip()}")
    return names


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_other_tools__a_table_of_r_comes_back_from_files(tmp_path, monkeypatch):
    matrix, files = re.findall(
        r"```r\n(.*?)```", (DOCS / "other-tools.md").read_text("utf-8"), flags=re.DOTALL
    )
    script = tmp_path / "example.R"
    script.write_text(matrix[matrix.index("set.seed") : matrix.index("model <-")] + files, "utf-8")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    subprocess.run(["Rscript", script], cwd=tmp_path, check=True)
    assert len((tmp_path / "consensus.csv").read_text("utf-8").splitlines()) == 151


def test_reference__lists_every_public_name():
    apart = (*ROOMS, "methods", "METHODS", "__version__")
    public = {f"bigcons.{name}" for name in dir(bigcons) if name not in apart}
    for room in ROOMS:
        for name, value in inspect.getmembers(getattr(bigcons, room)):
            is_ours = getattr(value, "__module__", "").startswith("bigcons") and not name.startswith("_")
            is_used = inspect.isclass(value) or inspect.isfunction(value)
            if is_ours and is_used and name not in NOT_FOR_USERS:
                public.add(f"bigcons.{room}.{name}")
    assert set(listed_names()) == public


@pytest.mark.parametrize("name", sorted({name for name in listed_names() if ".errors." not in name}))
def test_example__of_every_public_name_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module, _, attribute = name.rpartition(".")
    documented = getattr(importlib.import_module(module), attribute)
    text, path = documented.__doc__, getattr(documented, "__module__", module)
    names = vars(importlib.import_module(path)).copy()
    examples = doctest.DocTestParser().get_doctest(text, names, name, path, 0)
    assert examples.examples, f"{name} has no example"
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(examples, out=said.append)
    assert not runner.failures, "".join(said)
