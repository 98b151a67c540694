"""Every public name has an example in its docstring, and it runs."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

API = Path(__file__).parents[1] / "docs/api.md"


def names():
    """Yield the names that the reference lists, except errors."""
    module = ""
    for line in API.read_text(encoding="utf-8").splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w+", line) and module != "bigcons.errors":
            yield f"{module}.{line.strip()}"


@pytest.mark.parametrize("name", sorted(set(names())))
def test_example__runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module, _, attribute = name.rpartition(".")
    documented = getattr(importlib.import_module(module), attribute)
    text, path = documented.__doc__, getattr(documented, "__module__", module)
    found = doctest.DocTestParser().get_doctest(
        text, vars(importlib.import_module(path)).copy(), name, path, 0
    )
    assert found.examples, f"{name} has no example"
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(found, out=said.append)
    assert not runner.failures, "".join(said)
