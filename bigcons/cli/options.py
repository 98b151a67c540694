"""The options of the command line, and what a command prints: text, or one JSON object.

`SHARED` has options that several commands take, each once, and `command` makes a command of them. The options
of a method or of a scheme of `generate` are its parameters: `parse_further` makes them of its signature.
"""

from __future__ import annotations

import csv
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import click
from click.core import ParameterSource

import bigcons
from bigcons.disk.commit import is_store
from bigcons.errors import nearest

JSON, OPTIONS = "bigcons.json", "bigcons.options"
"""Keys of what a context carries: whether to print JSON, and the options of the command."""

STANDARD = "-"
"""The path of standard output."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All but tabs and ends of lines, and what turns the direction of writing."""


def escaped(text: str) -> str:
    """Return text with its control characters as escapes: names in a file shall not steer the terminal."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def emit(result: Mapping[str, Any], *texts: str) -> None:
    """Print paragraphs, by default names and values or, with ``--json``, ``result`` as one JSON object."""
    if click.get_current_context().meta.get(JSON):
        click.echo(json.dumps(result, allow_nan=False))
    else:
        click.echo(escaped("\n\n".join(texts or [facts(result)])))


def destination(out: str) -> Any:
    """Return a path or, for "-", standard output, to which a command then prints nothing else."""
    if out != STANDARD:
        return out
    if click.get_current_context().meta.get(JSON):
        raise click.UsageError("--json prints to standard output, too; give a path with -o.")
    return sys.stdout.buffer


# Messages of the library

_OPTION = re.compile(
    r"(?<![\w/])(?:bigcons\.select(?:\([^)]*\))?|\w+=(?:'[^']*'|\[[^]]*\]|\w+)?(?: of bigcons\.select)?)"
    r" \((--[^)]+)\)"
)
"""A parameter with its option, as in "overwrite=True (--overwrite)"."""


def with_options(message: str, flags: Mapping[str, str]) -> str:
    """Return a message of the library with options in the place of parameters, and values as typed."""

    def as_option(match: re.Match[str]) -> str:
        if match[1] not in flags:
            return match[0]
        flag = flags[match[1]]
        return f"no {flag}" if match[0].endswith("=None") else f"{flag} {match[2] or ''}"

    def as_names(match: re.Match[str]) -> str:
        names = {method.__name__: name for name, method in bigcons.METHODS.items()}
        return ", not ".join(names.get(name, name.replace("_", "-")) for name in match.groups())

    text = re.sub(r"(?<![\w/])(\w+)=(?:'([^']*)'|None\b|(?=[^\s=]))", as_option, _OPTION.sub(r"\1", message))
    text = re.sub(r"\brange\((\d+), (\d+)\)", lambda match: f"{match[1]}:{int(match[2]) - 1}", text)
    text = re.sub(r"\[([\d.]+), ([\d.]+)\](?=[,;] )", r"\1:\2", text)
    return re.sub(r"(?:(?<=-m )|(?<=--scheme ))(\w+), not (\w+)", as_names, text)


@contextmanager
def report_finished(out: str, step: str, overwrite: bool) -> Iterator[bool]:
    """Say so if the result of the ``step`` in the ``with`` block is at ``out`` already; yield whether."""
    is_there = not overwrite and is_store(out)
    yield is_there
    if is_there:
        click.echo(f"{out} already holds the result of this {step}.", err=True)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return a sentence that suggests the one of ``words`` closest to ``word``; empty if none is close."""
    match = nearest(word, words)
    return "" if match is None else f" Did you mean {match}?"


# Layout


def facts(items: Mapping[str, Any], *, indent: int = 0) -> str:
    """Lay out names and values in two columns; nested ones, unless empty, are indented."""
    width, lines = max(map(len, items), default=0), []
    for name, value in items.items():
        if isinstance(value, Mapping):
            lines += [name, *facts(value, indent=2).splitlines()] if value else []
        else:
            lines.append(f"{name.ljust(width)}  {cell(value, name)}")
    return "\n".join(" " * indent + line for line in lines)


def cell(value: Any, name: str = "") -> str:
    """Return a value for people: thousands are separated, except in checksums and seeds."""
    if value is None or value == "None":  # an option that is kept as text
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {cell(item)}" for key, item in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value) if name.endswith(("checksum", "random_state", "seed")) else f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}" if name == "seconds" else f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        words = [cell(item) for item in value]
        is_same = len(words) > 2 and len(set(words)) == 1
        return f"{words[0]} ({len(words)} times)" if is_same else ", ".join(words)
    return re.sub(r"^\['(.*)'\]$", r"\1", str(value)).replace("', '", ", ")


def table(rows: Sequence[Mapping[str, Any]], *, text: Sequence[str] = ()) -> str:
    """Lay out a table, whose first row has all columns: the first and those in ``text`` flush left."""
    columns = list(rows[0])
    lines = [columns, *([cell(row[name], name) if name in row else "" for name in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    place = [str.ljust if column in (columns[0], *text) else str.rjust for column in columns]
    return "\n".join(
        "  ".join(pad(words, width) for pad, words, width in zip(place, cells, widths, strict=True)).rstrip()
        for cells in lines
    )


# Paths


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

PATH = click.Path(readable=False)
"""A path or URL as typed: shells complete it as a file name, and whatever opens it checks it."""


# Values


def name_list(text: str) -> list[str]:
    """Split text at its commas, but those in double quotes; blanks after a comma do not count."""
    return next(csv.reader([text], skipinitialspace=True), [])


def method_name(name: str) -> str:
    """Return the name of a method in lower case."""
    if name.lower() not in (names := bigcons.METHODS):
        raise click.UsageError(
            f"Unknown method {name!r}; choose one of {', '.join(names)}.{did_you_mean(name, names)}"
        )
    return name.lower()


class Literal(click.ParamType[Any]):
    """A value of a parameter as it looks: a number, a range of numbers, none, true, false, or text."""

    name = "value"

    def __init__(self, default: Any, *, is_list: bool = False) -> None:
        self.default: Any = default
        self.is_list: bool = is_list

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value; one in the place of a number must be one."""
        words = {"none": None, "true": True, "false": False, "auto": "auto"}
        if not isinstance(value, str) or value.lower() in words:
            return words[value.lower()] if isinstance(value, str) else value
        for kind in (float,) if isinstance(self.default, float) else (int, float):
            try:
                numbers = tuple(kind(part) for part in value.split(":"))
            except ValueError:
                continue
            return numbers[0] if len(numbers) == 1 else numbers
        if isinstance(self.default, (int, float)):
            self.fail(f"{value!r} is not a number; use one such as {self.default}.", param, ctx)
        return value.split(",") if self.is_list and "," in value else value


# The options


option: Callable[..., Decorator] = click.option
argument: Callable[..., Decorator] = click.argument

CHOSEN = ("id", "columns", "drop")
"""Options that choose the columns of a table."""

READING = ("sep", "header", "decimal", "missing", "categorical")
"""Options that say how a table is read, for `bigcons.select`."""

NAMES: dict[str, Any] = {
    "type": name_list, "multiple": True, "callback": lambda _, __, lists: [*chain(*lists)] if lists else None,
}  # fmt: skip
"""What makes an option a list of names, whose further uses add to it."""

SHARED = {
    "id": option("--id", metavar="NAME", help="Column that identifies the objects; it comes back with every "
                 "export.  [default: the names of rows that pandas, R or AnnData keep]"),
    "columns": option("--columns", **NAMES, metavar="NAME,...",
                      help='Columns to use, or a pattern, such as "leiden*".  [default: all but the id]'),
    "drop": option("--drop", **NAMES, metavar="NAME,...", help="Columns to leave out."),
    "sep": option("--sep", callback=lambda _, __, value: "\t" if value == "\\t" else value,
                  metavar="CHARACTER", help="What separates the columns of a file of text, such as ';' or "
                  "'\\t', whatever its suffix.  [default: a comma or, in .tsv, a tab]"),
    "header": option("--header/--no-header", default=None, help="Whether the first line of a .csv or .tsv "
                     "has names of columns.  [default: if that is clear]"),
    "decimal": option("--decimal", type=click.Choice([".", ","]),
                      help="What stands before the fractions of numbers in text.  [default: a point]"),
    "missing": option("--missing", **NAMES, metavar="VALUE,...",
                      help="Values that mean missing. Text adds to the default words; numbers replace, for "
                      "labels, the negative ones; '' leaves empty cells only.  "
                      "[default: empty cells, NA and the like, negative labels]"),
    "categorical": option("--categorical", **NAMES, metavar="NAME,...",
                          help="Columns whose numbers are categories, such as zip codes."),
    "n_clusters": option("-k", "--n-clusters", type=Literal(5), metavar="K|auto",
                         help="Maximum number of clusters. auto: chosen from the labels, if the method can; "
                         "for eac, with --criterion lifetime. -m supra also takes LOW:HIGH."),
    "method": option("-m", "--method", type=method_name, default="tree",
                     help="Method, one of those listed by `bigcons methods`."),
    "memory": option("--memory", default="2GB", metavar="SIZE",
                     help="Memory budget, such as 512MB or 2GB."),
    "random_state": option("--random-state", type=click.IntRange(min=0), default=0, metavar="SEED",
                           help="Random seed; any number of cores gives the same result."),
    "client": option("--scheduler", "client", metavar="ADDRESS",
                     help="Dask scheduler, such as tcp://host:8786; or threads or serial."),
    "overwrite": option("--overwrite", is_flag=True, help="Replace an existing output, which stays in place "
                        "until the new one is complete."),
    "ensemble": option("--ensemble", type=PATH, metavar="STORE", help="The ensemble of the consensus."),
    "memberships": option("--memberships", is_flag=True,
                          help="Also write the memberships: cluster_0, cluster_1, ..."),
    "json": option("--json", is_flag=True, expose_value=False, is_eager=True,
                   callback=lambda ctx, _, value: ctx.meta.update({JSON: value}),
                   help="Print one JSON object to standard output."),
}  # fmt: skip


def output_option(help_text: str, *, name: str = "STORE") -> Decorator:
    """Return the required option ``-o``, the destination of the result."""
    return click.option("-o", "--out", required=True, type=PATH, metavar=name, help=help_text)


COMMANDS: dict[str, click.Command] = {}
"""All commands by name, in the order of a typical run."""


def command(*parameters: str | Decorator, further: bool = False) -> Decorator:
    """Return what makes a command of a function: its arguments, and its options or the names of shared ones.

    ``further`` options are left to `parse_further`.
    """

    def make(function: Callable[..., Any]) -> click.Command:
        for parameter in reversed((*parameters, "json")):
            function = (SHARED[parameter] if isinstance(parameter, str) else parameter)(function)
        name = function.__name__.strip("_").replace("_", "-")
        COMMANDS[name] = click.command(name, context_settings={"ignore_unknown_options": further})(function)
        return COMMANDS[name]

    return make


def pop_options(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Remove the options of these names and return them."""
    return {name: options.pop(name) for name in names if name in options}


def option_name(parameter: str) -> str:
    """Return the option that sets a parameter."""
    return f"--{parameter.replace('_', '-')}"


# The options of a method or a scheme


def parameters_of(function: Callable[..., Any], *, without: Sequence[str]) -> dict[str, inspect.Parameter]:
    """Return the keyword parameters of a function or class that are options of its own."""
    parameters = inspect.signature(function).parameters.items()
    return {name: p for name, p in parameters if p.kind is p.KEYWORD_ONLY and name not in without}


def parse_further(
    title: str, words: Sequence[str], argument: click.Argument, parameters: Mapping[str, inspect.Parameter]
) -> tuple[Any, dict[str, Any]]:
    """Return the value of an argument, and those parameters that words such as ``--name value`` set.

    A parameter that is boolean by default is a flag, ``--name`` or ``--no-name``.
    """
    options = []
    for name, parameter in parameters.items():
        flag, is_list = option_name(name), "Sequence[str]" in str(parameter.annotation)
        if isinstance(parameter.default, bool):
            options.append(click.Option([f"{flag}/--no-{flag[2:]}"], default=None))
        else:
            options.append(click.Option([flag], type=Literal(parameter.default, is_list=is_list)))
    outer = click.get_current_context()
    outer.meta[OPTIONS] |= {option.name: option.opts[0] for option in options}
    inner = click.Command(outer.info_name, params=[argument, *options], add_help_option=False)
    try:
        ctx = inner.make_context(outer.info_name, list(words), parent=outer)
    except click.UsageError as error:
        error.ctx = outer
        if not isinstance(error, click.NoSuchOption):
            raise
        flags = [flag for option in (*options, *outer.command.params) for flag in option.opts]
        takes = ", ".join(option.opts[0] for option in options) or "no options of its own"
        raise click.UsageError(
            f"{title} takes no {error.option_name}; it takes {takes}.{did_you_mean(error.option_name, flags)}"
        ) from None
    is_set = {name: ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in parameters}
    return ctx.params[argument.name or ""], {name: ctx.params[name] for name in parameters if is_set[name]}
