"""Constructors and docstrings: every parameter documented, and kept as scikit-learn asks."""

import ast
import copy
import inspect
import pickle
import re

import pytest
from sklearn.base import clone

from bigcons import METHODS, consensus

COMMON = {"n_clusters", "random_state", "memory", "out", "client", "resume"}


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


def test_docstring__describes_every_parameter_with_its_default(method):
    entries = documented_in(method)
    assert sorted(name for name, *_ in entries) == sorted(parameters_of(method))
    for name, kind, default, text in entries:
        assert ast.literal_eval(default) == parameters_of(method)[name], name
        assert type(ast.literal_eval(default)) is type(parameters_of(method)[name]), name
        assert kind.strip()
        assert text.strip().endswith("."), name


def test_constructor__keeps_what_it_is_given_and_nothing_else(method):
    given = {name: object() for name in parameters_of(method)}
    model = method(**given)
    assert model.get_params(deep=False) == given
    assert all(getattr(model, name) is value for name, value in given.items())
    assert method().get_params(deep=False) == parameters_of(method)
    assert not [name for name in vars(model) if name.endswith("_") or name.startswith("_")]


def test_parameters__survive_cloning_copies_and_pickles(method):
    given = {name: value for name, value in parameters_of(method).items() if name != "out"}
    given |= {"n_clusters": 3, "random_state": 7, "memory": "1GB", "client": "serial"}
    model = method(**given)
    for copied in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied.get_params() == model.get_params()
    assert method().set_params(**given).get_params() == model.get_params()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("quux", "QMI has no parameter 'quux'; it has n_clusters, "),
        ("k", "QMI has no parameter 'k'; did you mean n_clusters"),
        ("seed", "QMI has no parameter 'seed'; did you mean random_state"),
        ("memroy", "QMI has no parameter 'memroy'; did you mean memory"),
        ("header", "QMI has no parameter 'header'; pass bigcons.select(x, header=...)"),
    ],
)
def test_parameters__are_refused_by_unknown_names(word, said):
    with pytest.raises(TypeError, match=f"^{re.escape(said)}"):
        consensus([[0], [1]], 2, "qmi", **{word: 3})
    for refused in (lambda: METHODS["qmi"](**{word: 3}), lambda: METHODS["qmi"]().set_params(**{word: 3})):
        with pytest.raises((TypeError, ValueError), match=word):
            refused()


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
        "refuse_unused": ("imbalance", "n_init", "max_iter", "tol"),
        "choose_problem": ("solver", "divergence", "weights", "memory"),
    }
    assert set(parameters_of(method)) <= read | {name for names in indirect.values() for name in names}
