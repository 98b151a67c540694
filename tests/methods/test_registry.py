"""One registry of methods, their constructors and docstrings; what has to agree with them."""

import ast
import copy
import importlib
import inspect
import json
import pickle
import re
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.base import clone

import bigcons
from bigcons import METHODS, methods
from bigcons.cli import main
from bigcons.datasets import planted_ensemble
from tests.support.refusals import refused

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/methods.md"
COMMON = {"n_clusters", "random_state", "memory", "out", "client", "resume"}


def test_registry__has_every_method_there_is_and_shows_type_checkers_its_class_and_module():
    shown = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(inspect.getsource(methods)))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name  # what a typed package re-exports
    }
    classes = [*METHODS.values(), methods.ConsensusClusterer, methods.MethodInfo]
    assert shown == {(cls.__module__, cls.__name__) for cls in classes}

    def below(cls):
        for sub in cls.__subclasses__():
            yield sub
            yield from below(sub)

    leaves = {cls for cls in below(methods.ConsensusClusterer) if not cls.__subclasses__()}
    assert {cls for cls in leaves if cls.__module__.startswith("bigcons.methods.")} <= set(METHODS.values())
    for name, cls in METHODS.items():
        assert name == name.lower()
        assert issubclass(cls, methods.ConsensusClusterer)
        assert cls.__module__.startswith("bigcons.methods.")
        assert getattr(importlib.import_module(cls.__module__), cls.__name__) is cls
        assert getattr(bigcons, cls.__name__) is getattr(methods, cls.__name__) is cls
        assert all((cls.info.paper, cls.info.needs, cls.info.missing))


@pytest.mark.parametrize(("given", "meant"), [("hbfg", "hbgf"), ("IVC", "ivc"), ("eac-singel", "eac-single")])
def test_registry__suggests_the_method_that_was_meant(given, meant):
    with refused(rf"^method='{given}' is unknown; .*Did you mean '{meant}'\?$", KeyError) as refusal:
        METHODS[given]
    assert all(name in str(refusal.value) for name in METHODS)
    with pytest.raises(KeyError, match=f"^method='xyzzy' is unknown; choose one of {', '.join(METHODS)}\\.$"):
        METHODS["xyzzy"]
    assert METHODS.get("xyzzy") is None
    assert "xyzzy" not in METHODS
    assert repr(METHODS) == f"<{len(METHODS)} methods: {', '.join(METHODS._ipython_key_completions_())}>"
    fixes = {name: f"did you mean {it}[?]" for name, it in (("methd", "method"), ("overwrit", "overwrite"))}
    for name, words in {**fixes, "xyzzy": "it has client, memory, n_clusters, .*weights[.]"}.items():
        with refused(f"^HBGF has no parameter {name}; {words}$"):
            bigcons.consensus([[0, 1], [1, 0]], 2, "hbgf", **{name: 1})


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


def test_pages__have_the_number_of_methods():
    stated = {
        "README.md": "among {} [methods](docs/methods.md)",
        "docs/comparison.md": "| bigcons | {} methods,",
        "docs/paper/paper.md": "contains {} methods",
        "CHANGELOG.md": "- {} consensus methods",
    }
    for page, words in stated.items():
        assert words.format(len(METHODS)) in (ROOT / page).read_text(encoding="utf-8"), page


def test_registry__is_what_the_page_of_methods_says_of_large_data():
    sentence = re.search(
        r"All but ([^;.]*) run out of core; all of these but ([^;.]*) run on",
        PAGE.read_text(encoding="utf-8"),
    )
    patterns, local = (re.findall(r"`([^`]+)`", part) for part in sentence.groups())
    in_memory = {name for name in METHODS if any(fnmatch(name, pattern) for pattern in patterns)}
    assert in_memory == {name for name in METHODS if not METHODS[name].info.out_of_core}
    assert set(local) == {name for name in METHODS if not METHODS[name].info.distributed} - in_memory


SENTENCES = {
    r"All but (.*?) place new objects": lambda cls: not cls._places(),
    r"\n(`tree`[^.;]*?) work on the\s+memberships": lambda cls: cls.info.soft_input,
    r"`weights=`, a number for each .*? is for (.*?), and for": lambda cls: hasattr(cls(), "weights"),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_page_of_methods__names_those_that_a_sentence_is_of(sentence):
    stated = re.search(sentence, PAGE.read_text(encoding="utf-8"), re.DOTALL)
    patterns = re.findall(r"`([\w*-]+)`", stated[1])
    expected = {name for name in METHODS if SENTENCES[sentence](METHODS[name])}
    assert {name for name in METHODS if any(fnmatch(name, pattern) for pattern in patterns)} == expected
    assert all(any(fnmatch(name, pattern) for name in METHODS) for pattern in patterns)


def test_page_of_methods__costs_are_those_measured_with_the_options_named():
    measured = json.loads((ROOT / "benchmarks" / "results" / "methods.json").read_text())["rows"]
    found = {}
    for row in measured:
        if row["engine"].startswith("threads") and "seconds" in row:
            method, given = row["method"].split()[0], row["parameters"].items()
            defaults = METHODS[method]().get_params()
            options = [f'{name}="{value}"' for name, value in given if defaults[name] != value]
            megabytes = f"{row['peak_memory'] / 1e6:.0f} MB"
            found[method, *options] = f"{row['seconds']:.1f}", megabytes, f"{row['ARI']:.3f}"
    table = PAGE.read_text(encoding="utf-8").partition("\n| method | seconds")[2].partition("\n\n")[0]
    shown = {}
    for line in table.splitlines()[2:]:
        first, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
        shown[tuple(re.findall(r"`([^`]+)`", first))] = tuple(numbers)
    assert shown == found
    for name, *options in shown:
        given = dict(option.replace('"', "").split("=", 1) for option in options)
        assert METHODS[name].info.out_of_core or given
        assert METHODS[name](3, **given).get_params().items() >= given.items()


@pytest.fixture(params=METHODS)
def method(request):
    return METHODS[request.param]


def parameters_of(cls):
    """Return defaults by name, in the order of the constructor."""
    return {p.name: p.default for p in inspect.signature(cls).parameters.values()}


def documented_in(cls):
    """Return for each entry under "Parameters" its name, type and default, and the text below it."""
    section = re.search(r"\nParameters\n-+\n(.*?)(?=\n\n\w+\n--)", inspect.getdoc(cls), re.DOTALL)
    return re.findall(r"^(\w+) : (.+), default=(.+)\n((?:(?:    .*)?\n?)+)", section[1] + "\n", re.MULTILINE)


def test_constructor__takes_the_number_of_clusters_by_position_and_the_rest_by_keyword(method):
    first, *others = inspect.signature(method).parameters.values()
    assert (first.name, first.kind) == ("n_clusters", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    assert {p.kind for p in others} == {inspect.Parameter.KEYWORD_ONLY}
    assert all(p.default is not inspect.Parameter.empty for p in (first, *others))
    assert parameters_of(method).keys() >= COMMON


def test_docstring__tells_results_cost_and_source_and_every_parameter_with_its_default(method):
    text = inspect.getdoc(method)
    assert text.split("\n")[0].endswith((".", ":"))
    for section in ("Parameters", "Attributes", "Notes", "References"):
        assert f"\n{section}\n---" in text, section
    entries = documented_in(method)
    assert sorted(name for name, *_ in entries) == sorted(parameters_of(method))
    for name, kind, default, text in entries:
        assert ast.literal_eval(default) == parameters_of(method)[name], name
        assert type(ast.literal_eval(default)) is type(parameters_of(method)[name]), name
        assert kind.strip()
        assert text.strip().endswith("."), name


def test_constructor__keeps_what_it_is_given_and_nothing_else_and_so_do_copies_and_pickles(method):
    given = {name: object() for name in parameters_of(method)}
    model = method(**given)
    assert model.get_params(deep=False) == given
    assert all(getattr(model, name) is value for name, value in given.items())
    assert method().get_params(deep=False) == parameters_of(method)
    assert not [name for name in vars(model) if name.endswith("_") or name.startswith("_")]
    given = {name: value for name, value in parameters_of(method).items() if name != "out"}
    given |= {"n_clusters": 3, "random_state": 7, "memory": "1GB", "client": "serial"}
    model = method(**given)
    for copied in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied.get_params() == model.get_params()
    assert method().set_params(**given).get_params() == model.get_params()


def test_parameters__are_each_read_by_the_code_of_the_method(method):
    """No parameter is taken and ignored: ``self.<name>`` stands somewhere outside the constructors."""
    read = set()
    for cls in method.__mro__:
        if not cls.__module__.startswith("bigcons."):
            continue
        for function in (value for value in vars(cls).values() if callable(getattr(value, "fget", value))):
            function = getattr(function, "fget", function)
            if not inspect.isfunction(function) or function.__name__ == "__init__":
                continue
            read |= set(re.findall(r'self(?:\.|, ")(\w+)', inspect.getsource(function)))  # or by getattr
    indirect = {  # read by name, or of the estimator
        "choose_problem": ("solver", "divergence", "pairs", "weights", "memory", "n_init", "max_iter", "tol")
    }
    assert set(parameters_of(method)) <= read | {name for names in indirect.values() for name in names}


@pytest.mark.parametrize("method", ["tree", "hbgf"])
def test_consensus__is_the_fit_of_the_method_with_its_parameters(method, tmp_path):
    ensemble, _ = planted_ensemble(300, 10, missing=0.2, random_state=0)
    parameters = {"weights": np.arange(1.0, 11.0), "random_state": 0}
    expected = METHODS[method](4, **parameters).fit(ensemble)
    found = bigcons.consensus(ensemble, 4, method, **parameters, out=tmp_path / method)
    assert type(found) is type(expected)
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    np.testing.assert_array_equal(bigcons.Consensus.open(tmp_path / method).labels, expected.labels_)


def test_consensus__is_a_tree_unless_another_method_is_named_and_passes_columns_on_to_fit():
    ensemble, _ = planted_ensemble(200, 8, missing=0.0, random_state=0)
    assert isinstance(bigcons.consensus(ensemble, n_clusters="auto", random_state=0), bigcons.ConsensusTree)
    names = list("abcdefgh")
    table = pd.DataFrame(ensemble.read(0, 200), columns=names).assign(who=np.arange(200), city=1)
    model = bigcons.consensus(table, 3, id="who", drop=["city"], random_state=0)
    assert isinstance(model, bigcons.ConsensusTree)
    assert list(model.feature_names_in_) == names
