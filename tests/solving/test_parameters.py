"""Parameters that estimators declare as attributes, and what is made of them."""

import copy
import inspect
import pickle
import re
from dataclasses import field, is_dataclass
from typing import ClassVar

import pytest
from dask.base import tokenize
from sklearn.base import clone

from bigcons import METHODS
from bigcons.methods import ConsensusClusterer
from bigcons.solving.parameters import Parameters


class Shared(Parameters):
    """What all have.

    Parameters
    ----------
    size
        How large.
    seed, speed
        Two together,
        in two lines.
    """

    size: int = field(default=8, kw_only=False)
    seed: int | None = None
    speed: float = 1.0

    kind: ClassVar[str] = "shared"


class Own(Shared):
    """One with a parameter more.

    And a paragraph.

    Parameters
    ----------
    color
        Its own.

        In two paragraphs.

    Notes
    -----
    After the parameters.
    """

    color: str = "red"
    speed: float = 2.0

    loud = True


class Told(Own):
    """Describes one parameter anew.

    Parameters
    ----------
    seed
        Other words.
    """


class Written(Shared):
    """Its constructor is written by hand."""

    def __init__(self, size: int = 3, *, seed: int = 1) -> None:
        self.size = size
        self.seed = seed


def parameters_of(cls):
    return {p.name: (p.default, p.kind) for p in inspect.signature(cls).parameters.values()}


def described_in(docstring):
    """Return the names that have an entry of their own or with others in the section of parameters."""
    section = re.search(r"Parameters\n-+\n(.*?)(?=\n\n\w+\n--|\Z)", docstring, re.DOTALL)
    return [
        name for heading in re.findall(r"^\w.*$", section[1], re.MULTILINE) for name in heading.split(", ")
    ]


def test_constructor__takes_own_parameters_before_inherited_ones_by_keyword():
    positional, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    assert list(parameters_of(Shared)) == ["size", "seed", "speed"]
    assert list(parameters_of(Own).items()) == [
        ("size", (8, positional)),
        ("color", ("red", keyword)),
        ("speed", (2.0, keyword)),
        ("seed", (None, keyword)),
    ]


def test_constructor__sets_what_is_given_and_defaults_and_nothing_else():
    seed = object()
    model = Own(3, seed=seed)
    assert vars(model) == {"size": 3, "color": "red", "speed": 2.0, "seed": seed}
    assert model.seed is seed
    assert vars(Shared(speed=4.0)) == {"size": 8, "seed": None, "speed": 4.0}


@pytest.mark.parametrize(("given", "named"), [(((), {"kind": "x"}), "kind"), (((), {"loud": 1}), "loud")])
def test_constructor__refuses_what_is_no_parameter(given, named):
    arguments, keywords = given
    with pytest.raises(TypeError, match=rf"Own\.__init__\(\) got an unexpected keyword argument '{named}'"):
        Own(*arguments, **keywords)


def test_constructor__takes_one_parameter_by_position():
    with pytest.raises(TypeError, match="from 1 to 2 positional arguments"):
        Own(3, "blue")


def test_constructor__of_a_default_that_instances_would_share_is_refused():
    with pytest.raises(ValueError, match="mutable default"):

        class Listed(Parameters):
            """Keeps a list."""

            names: list = []  # noqa: RUF012 - the mistake in question


def test_constructor__written_by_hand_stays():
    assert vars(Written()) == {"size": 3, "seed": 1}
    assert described_in(inspect.getdoc(Written)) == ["size", "seed"]


def test_docstring__describes_own_and_inherited_parameters_in_their_order():
    assert Own.__doc__ == (
        "One with a parameter more.\n\nAnd a paragraph.\n\n"
        "Parameters\n----------\n"
        "size\n    How large.\n"
        "color\n    Its own.\n\n    In two paragraphs.\n"
        "speed, seed\n    Two together,\n    in two lines.\n\n"
        "Notes\n-----\nAfter the parameters."
    )


def test_docstring__takes_the_words_of_the_nearest_class():
    assert "seed\n    Other words." in Told.__doc__
    assert "speed\n    Two together,\n    in two lines." in Told.__doc__
    assert described_in(Told.__doc__) == ["size", "color", "speed", "seed"]


@pytest.mark.parametrize("name", METHODS)
def test_methods__describe_each_parameter_once_in_the_order_of_the_signature(name):
    cls = METHODS[name]
    assert described_in(inspect.getdoc(cls)) == list(inspect.signature(cls).parameters)


@pytest.mark.parametrize("name", METHODS)
def test_methods__take_the_number_of_clusters_by_position_and_the_rest_by_keyword(name):
    first, *others = inspect.signature(METHODS[name]).parameters.values()
    assert (first.name, first.kind) == ("n_clusters", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    assert {p.kind for p in others} == {inspect.Parameter.KEYWORD_ONLY}
    assert all(p.default is not inspect.Parameter.empty for p in (first, *others))


class Fitted(ConsensusClusterer):
    """A method with one parameter."""

    smoothing: float = 0.5


def test_estimator__is_compared_hashed_copied_and_shown_as_scikit_learn_does():
    model = Fitted(3, smoothing=1.0)
    assert model != Fitted(3, smoothing=1.0)
    assert len({model, Fitted(3, smoothing=1.0)}) == 2
    assert repr(model) == "Fitted(smoothing=1.0, n_clusters=3)"
    for copied in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied.get_params() == model.get_params()


def test_estimator__is_told_apart_by_what_was_fitted_and_not_by_parameters_alone():
    first, second = Fitted(3), Fitted(3)
    assert tokenize(first) == tokenize(second)
    second.labels_ = [0, 1]
    assert tokenize(first) != tokenize(second)
    assert not is_dataclass(first)
