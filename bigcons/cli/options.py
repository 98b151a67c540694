"""The options of commands: those that several share, the types of their values, and those of a method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from bigcons.cli.output import did_you_mean

PATH = click.Path(readable=False)
"""A path or URL as typed: shells complete it as a file name, and whatever opens it checks it."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def output_option(help_text: str, *, name: str = "STORE") -> Decorator:
    """Return the required option ``-o``, the destination of the result."""
    return click.option("-o", "--out", required=True, type=PATH, metavar=name, help=help_text)


overwrite_option: Decorator = click.option(
    "--overwrite",
    is_flag=True,
    help="Replace an existing output, which stays in place until the new one is complete.",
)
memory_option: Decorator = click.option(
    "--memory", default="1GB", show_default=True, metavar="SIZE", help="Memory budget, such as 512MB or 2GB."
)
random_state_option: Decorator = click.option(
    "--random-state",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="SEED",
    help="Random seed; the result is the same on any number of cores.",
)


def cluster_count(value: str) -> int | str:
    """Return a number of clusters, or "auto"."""
    if value == "auto":
        return value
    if not value.isdigit() or int(value) < 1:
        raise click.BadParameter(f"{value!r} is not a number of clusters; use one such as 5, or auto.")
    return int(value)


def cluster_range(value: str) -> tuple[int, int]:
    """Return the lowest and highest of ``5`` or ``2:10`` clusters."""
    try:
        low, _, high = value.partition(":")
        return int(low), int(high or low)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a number of clusters; use 5 or 2:10.") from None


# Options of a single method: --name VALUE for each parameter of its class

# parameters with an option or argument of their own in every solve, or that a command line cannot give
_COMMON = ("n_clusters", "random_state", "out", "client", "memory", "resume")
_WORDS = {"none": None, "true": True, "false": False}


def complete_path(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete file names where an argument has no type `PATH`."""
    return [CompletionItem(incomplete, type="file")]


def complete_method(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of methods that start with what was typed."""
    from bigcons.methods import METHODS

    return [name for name in METHODS if name.startswith(incomplete)]


def find_method(name: str) -> type:
    """Return the class of the method ``name``; raise UsageError if there is none."""
    from bigcons.methods import METHODS

    if name not in METHODS:
        raise click.UsageError(
            f"Unknown method {name!r}; choose one of {', '.join(METHODS)}.{did_you_mean(name, METHODS)}"
        )
    return METHODS[name]


def option_name(parameter: str) -> str:
    """Return the option that sets a parameter."""
    return f"--{parameter.replace('_', '-')}"


def method_parameters(method: type) -> dict[str, Any]:
    """Return the parameters that are specific to ``method``, with their defaults."""
    parameters = inspect.signature(method).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in _COMMON}


def parse_words(name: str, method: type, given: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Split the words of a command line into its arguments and the parameters set by ``--name value``.

    A parameter that is boolean by default is a flag, ``--balance`` or ``--no-balance``.
    """
    known = method_parameters(method)
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
        option, has_value, value = word.partition("=")
        parameter = option[2:].replace("-", "_")
        negated = parameter.removeprefix("no_")
        if isinstance(known.get(parameter), bool) and not has_value:
            found[parameter] = True
        elif isinstance(known.get(negated), bool) and negated != parameter:
            found[negated] = False
        elif parameter not in known:
            own = [option_name(p) for p in known]
            common = [opt for p in click.get_current_context().command.params for opt in p.opts]
            raise click.UsageError(
                f"Method {name!r} takes no {option}; it takes {', '.join(own) or 'no options of its own'}."
                f"{did_you_mean(option, own + common)}"
            )
        elif not has_value and not words:
            raise click.UsageError(f"Option {option} needs a value.")
        else:
            found[parameter] = _value(option, value if has_value else words.pop(0), known[parameter])
    return arguments, found


def _value(option: str, text: str, default: Any) -> Any:
    """Return ``text`` as the value it looks like; where the default is a number, it must be one."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if isinstance(default, (int, float)):
        raise click.UsageError(f"Option {option}: {text!r} is not a number; use one such as {default}.")
    return text
