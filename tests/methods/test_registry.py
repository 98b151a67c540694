"""One registry of methods: what everything else reads, and what has to agree with it."""

import ast
import importlib
import inspect
import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
from click.testing import CliRunner

import bigcons
from bigcons import METHODS, methods
from bigcons.cli import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/methods.md"


def test_registry__shows_type_checkers_the_class_of_every_method_in_its_module():
    shown = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(inspect.getsource(methods)))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name  # what a typed package re-exports
    }
    classes = [*METHODS.values(), methods.ConsensusClusterer, methods.MethodInfo]
    assert shown == {(cls.__module__, cls.__name__) for cls in classes}


@pytest.mark.parametrize("name", METHODS)
def test_registry__holds_classes_that_the_package_offers_by_name(name):
    cls = METHODS[name]
    assert issubclass(cls, methods.ConsensusClusterer)
    assert cls.__module__.startswith("bigcons.methods.")
    assert getattr(importlib.import_module(cls.__module__), cls.__name__) is cls
    assert getattr(bigcons, cls.__name__) is getattr(methods, cls.__name__) is cls


def test_registry__has_every_method_there_is():
    def below(cls):
        for sub in cls.__subclasses__():
            yield sub
            yield from below(sub)

    list(METHODS.values())  # imports all of them
    leaves = {cls for cls in below(methods.ConsensusClusterer) if not cls.__subclasses__()}
    assert {cls for cls in leaves if cls.__module__.startswith("bigcons.methods.")} <= set(METHODS.values())


def test_registry__is_what_the_page_of_methods_and_the_command_line_list():
    table = PAGE.read_text(encoding="utf-8").partition("| name | method |")[2].partition("\n\n")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = [name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(named) == sorted(METHODS)
    assert named[0] == "tree"
    listed = CliRunner().invoke(main, ["methods"]).output
    assert [line.split()[0] for line in listed.splitlines() if line.split()[:1]][-len(METHODS) :] == [
        *METHODS
    ]


def test_page_of_methods__has_the_table_of_the_ablation_as_it_was_made():
    made = (ROOT / "benchmarks" / "results" / "tree_ablation.md").read_text(encoding="utf-8")
    assert made[made.index("| variant |") :] in PAGE.read_text(encoding="utf-8")


def test_readme__tells_how_many_methods_there_are():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"among {len(METHODS)} [methods](docs/methods.md)" in text


def test_registry__is_what_the_page_of_methods_says_of_large_data():
    sentence = re.search(
        r"All but ([^;.]*) run out of core; all of these but ([^;.]*) run on",
        PAGE.read_text(encoding="utf-8"),
    )
    patterns, local = (re.findall(r"`([^`]+)`", part) for part in sentence.groups())
    in_memory = {name for name in METHODS if any(fnmatch(name, pattern) for pattern in patterns)}
    assert in_memory == {name for name in METHODS if not METHODS[name].info.out_of_core}
    assert set(local) == {name for name in METHODS if not METHODS[name].info.distributed} - in_memory


def test_page_of_methods__costs_are_those_measured_with_the_options_named():
    measured = json.loads((ROOT / "benchmarks" / "results" / "methods.json").read_text())["rows"]
    found = {}
    for row in measured:
        if row["engine"].startswith("threads") and "seconds" in row:
            method, given = row["method"].split()[0], row["parameters"].items()
            defaults = METHODS[method]().get_params()
            options = [f'{name}="{value}"' for name, value in given if defaults[name] != value]
            megabytes = f"{row['peak_memory'] / 1e6:.0f} MB"
            numbers = f"{row['seconds']:.1f}", f"{row['pass_ratio']:.1f}", megabytes, f"{row['ARI']:.3f}"
            found[method, *options] = numbers
    table = PAGE.read_text(encoding="utf-8").partition("| method | seconds | pass")[2].partition("\n\n")[0]
    shown = {}
    for line in table.splitlines()[2:]:
        first, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
        shown[tuple(re.findall(r"`([^`]+)`", first))] = tuple(numbers)
    assert shown == found
    for name, *options in shown:
        given = dict(option.replace('"', "").split("=", 1) for option in options)
        assert METHODS[name].info.out_of_core or given
        assert METHODS[name](3, **given).get_params().items() >= given.items()


@pytest.mark.parametrize(("given", "meant"), [("hbfg", "hbgf"), ("IVC", "ivc"), ("eac-singel", "eac-single")])
def test_registry__suggests_the_method_that_was_meant(given, meant):
    with pytest.raises(
        KeyError, match=rf"^method='{given}' is unknown; .*Did you mean '{meant}'\?$"
    ) as refused:
        METHODS[given]
    assert all(name in str(refused.value) for name in METHODS)


def test_registry__does_not_guess_at_what_is_like_nothing():
    with pytest.raises(KeyError, match=r"^method='xyzzy' is unknown; choose one of tree, pcc.*did\.$"):
        METHODS["xyzzy"]
    assert METHODS.get("xyzzy") is None
    assert "xyzzy" not in METHODS
