"""Methods that other packages add by entry points; the package of the page of architecture is one."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bigcons
from bigcons.datasets import planted_ensemble

PAGE = Path(bigcons.__file__).parents[1] / "docs/architecture.md"

BROKEN = {
    "missing_import": ("import no_such_package\n", "Missing", "No module named 'no_such_package'"),
    "missing_name": ("from bigcons import PCC\n", "Absent", "has no attribute 'Absent'"),
    "other_class": ("class Other:\n    pass\n", "Other", "a subclass of bigcons.ConsensusClusterer"),
    "function": ("def solve():\n    pass\n", "solve", "TypeError"),
    "without_info": (
        "from bigcons import ConsensusClusterer\nclass Bare(ConsensusClusterer):\n    pass\n",
        "Bare",
        "with an info",
    ),
    "class_of_ours": ("from bigcons import PCC as Ours\n", "Ours", "no other has"),
}


def install(folder, package, module, method, attribute):
    """Write a module and the metadata that an installer would write."""
    folder.mkdir(exist_ok=True)
    (folder / f"{package}.py").write_text(module, "utf-8")
    facts = folder / f"{package}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", "utf-8")
    entry = f"[bigcons.methods]\n{method} = {package}:{attribute}\n"
    (facts / "entry_points.txt").write_text(entry, "utf-8")


@pytest.fixture
def run(tmp_path):
    """A function that runs Python where the packages installed in ``tmp_path`` are found."""

    def run(*arguments):
        paths = os.pathsep.join([str(tmp_path / "packages"), str(PAGE.parents[1])])
        environment = {**os.environ, "PYTHONPATH": paths}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    return run


@pytest.fixture
def page_package(tmp_path):
    """The package of the page, installed by its own pyproject.toml."""
    text = PAGE.read_text(encoding="utf-8")
    (module,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "_solve" in block]
    (project,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    name, package, attribute = re.search(r'^([\w-]+) = "(\w+):(\w+)"$', project, re.MULTILINE).groups()
    assert f"`{package}.py`" in text
    install(tmp_path / "packages", package, module, name, attribute)


def test_package_of_the_page__adds_a_method_that_keeps_the_contract_to_the_library_and_the_command(
    run, page_package, tmp_path
):
    labels = planted_ensemble(120, 10, shares=(0.4, 0.3, 0.3), missing=0.2, random_state=0)[0].read(0, 120)
    np.save(tmp_path / "labels.npy", labels)
    script = """
import json, sys
import bigcons, numpy as np
assert "average_link" not in sys.modules
assert list(bigcons.METHODS)[-1] == "average-link" and len(bigcons.METHODS) == len([*bigcons.METHODS])
method = bigcons.METHODS["average-link"]
bigcons.testing.check_method(method)
model = bigcons.consensus(np.load("labels.npy"), 3, "average-link", linkage="complete")
print(json.dumps([method.__name__, repr(model), model.labels_.tolist()]))
"""
    ran = run("-c", script)
    assert ran.returncode == 0, ran.stderr
    name, words, found = json.loads(ran.stdout)
    assert (name, words) == ("AverageLink", "AverageLink(linkage='complete', n_clusters=3)")
    listed = run("-m", "bigcons", "methods").stdout.splitlines()
    assert listed[-1].startswith("average-link ")
    solving = (
        *("-m", "bigcons", "solve", "labels.npy", "-m", "average-link", "-k", "3"),
        *("--linkage", "complete", "-o", "consensus.zarr"),
    )
    solved = run(*solving)
    assert solved.returncode == 0, solved.stderr
    assert bigcons.Consensus.open(tmp_path / "consensus.zarr").labels.tolist() == found
    refused = run(*solving[:-3], "ward", "-o", "refused.zarr").stderr
    assert refused == "Error: --linkage ward is unknown; choose one of 'average', 'complete', 'single'.\n"
    page = run("-m", "bigcons", "report", "consensus.zarr", "-o", "report.html")
    assert page.returncode == 0, page.stderr
    assert "AverageLink (Fred and Jain 2005)" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_broken_packages__are_named_in_a_line_each_and_leave_the_rest_alone(run, page_package, tmp_path):
    for package, (module, attribute, _) in BROKEN.items():
        install(tmp_path / "packages", package, module, package.replace("_", "-"), attribute)
    script = """
import json, sys, warnings
import bigcons
warnings.simplefilter("error")
assert bigcons.METHODS["pcc"] is bigcons.PCC
assert bigcons.METHODS["average-link"].__name__ == "AverageLink"
refused = []
for name in sys.argv[1:]:
    try:
        bigcons.METHODS[name]
    except bigcons.errors.InvalidInputError as error:
        refused.append(str(error))
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    methods = [*bigcons.METHODS.items()]
assert methods[-1] == ("average-link", bigcons.METHODS["average-link"])
assert not {*sys.argv[1:]} & {name for name, _ in methods}
print(json.dumps([refused, [str(warning.message) for warning in warned]]))
"""
    names = [package.replace("_", "-") for package in BROKEN]
    ran = run("-c", script, *names)
    assert ran.returncode == 0, ran.stderr
    refused, warned = json.loads(ran.stdout)
    assert sorted(refused) == sorted(warned)
    for (package, (_, _, reason)), name, line in zip(BROKEN.items(), names, refused, strict=True):
        assert line.startswith(f"method {name!r} of the package {package} 1.0 cannot be used (")
        assert reason in line
        assert line.endswith("; update or uninstall the package.")
        assert "\n" not in line
    listed = run("-m", "bigcons", "methods")
    assert listed.returncode == 0
    assert listed.stdout.splitlines()[-1].startswith("average-link ")
    assert sorted(listed.stderr.splitlines()) == sorted(f"Warning: {line}" for line in refused)
    asked = run("-m", "bigcons", "methods", names[0])
    assert asked.returncode == 2
    assert asked.stderr.endswith(f"{refused[0]}\n")


@pytest.mark.parametrize("name", ["pcc", "Average", "average-link"])
def test_package__with_a_name_that_is_taken_or_in_upper_case_is_left_out(name, run, page_package, tmp_path):
    module = "from bigcons import Furthest\nclass Mine(Furthest):\n    pass\n"
    install(tmp_path / "packages", "other_package", module, name, "Mine")
    ran = run("-W", "ignore", "-c", "import bigcons; print(*[m.__name__ for m in bigcons.METHODS.values()])")
    assert ran.returncode == 0, ran.stderr
    classes = ran.stdout.split()
    assert classes[1] == "PCC"
    assert len(classes) == len(set(classes))
    assert len({"AverageLink", "Mine"} & set(classes)) == 1


def test_store__of_a_method_whose_package_is_not_installed_says_so(run, tmp_path):
    module = "from bigcons import MixtureModel\nclass Placing(MixtureModel):\n    pass\n"
    install(tmp_path / "packages", "placing_package", module, "placing", "Placing")
    script = """
import bigcons
features, _ = bigcons.datasets.planted_features(200, 4, random_state=0)
bigcons.generate.kmeans(features, n_partitions=8, n_clusters=3, out="ensemble.zarr", random_state=0)
bigcons.METHODS["placing"](3, random_state=0, n_init=2).fit("ensemble.zarr", out="consensus.zarr")
import numpy as np
np.save("new.npy", features[:5])
"""
    made = run("-W", "ignore", "-c", script)
    assert made.returncode == 0, made.stderr
    placing = ("-m", "bigcons", "place", "new.npy", "--with", "consensus.zarr", "-o", "placed.csv")
    placed = run(*placing)
    assert placed.returncode == 0, placed.stderr
    (tmp_path / "packages/placing_package-1.0.dist-info/entry_points.txt").unlink()
    placed = run(*placing, "--overwrite")
    assert placed.returncode == 1
    assert "was solved by Placing, which is no method here; install its package" in placed.stderr
    assert "Traceback" not in placed.stderr
