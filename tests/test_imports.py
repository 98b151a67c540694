"""Imports stay light: seen in a child's sys.modules, never by the clock."""

import json
import subprocess
import sys

import pytest

import bigcons

HEAVY = [
    "numba",
    "sklearn",
    "zarr",
    "dask",
    "distributed",
    "pandas",
    "polars",
    "scipy",
    "pyarrow",
    "matplotlib",
]


def modules_after(code):
    report = "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    child = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(child.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import bigcons",
        "import bigcons.cli",
        "import bigcons.plots",
        "from bigcons.cli import main; main(['--help'], standalone_mode=False)",
        "from bigcons.cli import main; main(['solve', '--help'], standalone_mode=False)",
    ],
)
def test_import__leaves_heavy_packages_alone(code):
    assert modules_after(code).isdisjoint(HEAVY)


def test_import__of_the_package_leaves_numpy_alone():
    assert "numpy" not in modules_after("import bigcons")


def test_import__offers_every_public_name():
    for name in bigcons.__all__:
        assert getattr(bigcons, name) is not None
    assert set(bigcons.__all__) <= set(dir(bigcons))


def test_import__refuses_unknown_names():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        bigcons.nothing  # noqa: B018
