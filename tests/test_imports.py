"""Imports stay light: seen in a child's sys.modules, never by the clock."""

import ast
import inspect
import json
import subprocess
import sys

import pytest

import bigcons
from bigcons import methods

HEAVY = ["numba", "scipy", "sklearn", "zarr", "dask", "distributed"]
HEAVY += ["pandas", "polars", "pyarrow", "matplotlib"]


def modules_after(code):
    report = "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    child = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(child.stdout.splitlines()[-1]))


def test_import__leaves_heavy_packages_alone():
    lines = [
        "import bigcons.cli, bigcons.methods, bigcons.plots",
        "list(bigcons.METHODS)",
        "for words in (['--help'], ['solve', '--help']): bigcons.cli.main(words, standalone_mode=False)",
    ]
    assert modules_after("\n".join(lines)).isdisjoint(HEAVY)


def test_import__of_the_package_leaves_numpy_alone():
    assert "numpy" not in modules_after("import bigcons")


def test_import__offers_every_public_name():
    for name in bigcons.__all__:
        assert getattr(bigcons, name) is not None
    assert set(bigcons.__all__) <= set(dir(bigcons))


@pytest.mark.parametrize("module", ["datasets", "federated", "generate", "metrics", "plots", "testing"])
def test_import__completes_to_public_names_alone(module):
    package = getattr(bigcons, module)
    assert dir(package) == sorted(package.__all__)


@pytest.mark.parametrize("package", [bigcons, methods])
def test_import__tells_type_checkers_of_every_public_name(package):
    nodes = ast.walk(ast.parse(inspect.getsource(package)))
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    if package is bigcons:
        assert "*" in imported  # of bigcons.methods
        imported |= set(methods.__all__)
    assert set(package.__all__) <= imported | {"METHODS"}


@pytest.mark.parametrize("package", [bigcons, methods])
def test_import__refuses_unknown_names(package):
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018
