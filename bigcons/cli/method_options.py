"""Options that only some methods have: ``--name value`` for each parameter of the method's class."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import click

from bigcons.cli.output import did_you_mean

# parameters with an option or argument of their own in every solve, or that a command line cannot give
_COMMON = ("n_clusters", "random_state", "out", "client", "memory", "resume")
_WORDS = {"none": None, "true": True, "false": False}


def parameters_of(method: type) -> dict[str, Any]:
    """Return the defaults of the parameters that belong to ``method`` alone."""
    given = inspect.signature(method).parameters.values()
    return {p.name: p.default for p in given if p.name not in _COMMON}


def complete_method(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of methods that begin as typed, for a shell."""
    from bigcons.methods import METHODS

    return [name for name in METHODS if name.startswith(incomplete)]


def no_method(name: str) -> click.UsageError:
    """Return the refusal of a method that there is not."""
    from bigcons.methods import METHODS

    return click.UsageError(
        f"There is no method {name!r}; choose one of {', '.join(METHODS)}.{did_you_mean(name, METHODS)}"
    )


def parse_words(name: str, method: type, given: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Split the words of a command line into arguments and what options such as ``--linkage single`` give.

    A parameter that is true or false by default is a flag, ``--balance`` or ``--no-balance``.
    """
    known = parameters_of(method)
    arguments: list[str] = []
    found: dict[str, Any] = {}
    words = list(given)
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            arguments.append(word)
            continue
        if not word.startswith("--"):
            raise click.UsageError(f"No such option: {word}")
        option, has_value, value = word[2:].partition("=")
        parameter = option.replace("-", "_")
        negated = parameter.removeprefix("no_")
        if isinstance(known.get(parameter), bool) and not has_value:
            found[parameter] = True
        elif isinstance(known.get(negated), bool) and negated != parameter:
            found[negated] = False
        elif parameter not in known:
            raise click.UsageError(_foreign(name, known, option))
        else:
            if not has_value:
                if not words:
                    raise click.UsageError(f"Option --{option} needs a value.")
                value = words.pop(0)
            found[parameter] = _value(option, value, known[parameter])
    return arguments, found


def _value(option: str, text: str, default: Any) -> Any:
    """Return ``text`` as what it looks like; a number must be given where the default is one."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if isinstance(default, (int, float)):
        raise click.UsageError(f"Option --{option}: {text!r} is not a number; write one such as {default}.")
    return text


def _foreign(name: str, known: Mapping[str, Any], option: str) -> str:
    own = [f"--{parameter.replace('_', '-')}" for parameter in known]
    common = [word for p in click.get_current_context().command.params for word in p.opts]
    takes = ", ".join(own) or "no options of its own"
    return (
        f"Method {name!r} takes no --{option}; it takes {takes}.{did_you_mean(f'--{option}', own + common)}"
    )
