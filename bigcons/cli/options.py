"""The options that several commands share."""

from __future__ import annotations

import csv
import sys
import zlib
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from bigcons.errors import InvalidInputError

PATH = click.Path(readable=False)
"""A path or URL as typed: shells complete it as a file name, and whatever opens it checks it."""

STANDARD = "-"
"""The path of standard input and output."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class TablePath(click.Path):
    """The path of an input; "-" is standard input, kept in a temporary file because tables are read twice.

    What comes in is told by how it begins: Parquet, .npy, or text, with commas or tabs, also gzipped.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, of standard input that of a temporary file."""
        if value != STANDARD:
            return super().convert(value, param, ctx)
        return read_standard_input(ctx or click.get_current_context())


TABLE = TablePath(readable=False, allow_dash=True)


def read_standard_input(ctx: click.Context) -> str:
    """Copy standard input to a file that is removed when the command ends, and return its path."""
    from bigcons.disk.leftovers import temporary_folder
    from bigcons.disk.places import disk_errors
    from bigcons.io.files import StandardInput

    found: str | None = ctx.meta.get("bigcons.stdin")
    if found is not None:
        raise click.UsageError("Standard input, -, can be read once only; give another path.", ctx)
    if sys.stdin is None:
        raise click.UsageError("Standard input, -, is closed; give a path, or direct a file to it.", ctx)
    file = sys.stdin.buffer
    part = file.read(1 << 16)
    path = ctx.with_resource(temporary_folder()) / f"standard-input{_suffix(part)}"
    checksum = 0
    with disk_errors(path), path.open("wb") as copy:
        while part:
            copy.write(part)
            checksum = zlib.crc32(part, checksum)
            part = file.read(1 << 20)
    ctx.meta["bigcons.stdin"] = str(path)
    copied = StandardInput(path)
    copied.checksum = checksum
    return copied


def _suffix(head: bytes) -> str:
    """Return the suffix of a file that begins with ``head``."""
    magic = {b"PAR1": ".parquet", b"\x93NUMPY": ".npy"}
    for start, suffix in magic.items():
        if head.startswith(start):
            return suffix
    gz = ""
    if head.startswith(b"\x1f\x8b"):
        gz, head = ".gz", zlib.decompressobj(31).decompress(head, 1 << 16)
    line = head.partition(b"\n")[0]
    return (".tsv" if line.count(b"\t") > line.count(b",") else ".csv") + gz


class StorePath(click.Path):
    """The path of an output that is no stream."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; refuse "-"."""
        if value == STANDARD:
            raise click.BadParameter("- is standard output, which holds no store; give a path.", ctx, param)
        return super().convert(value, param, ctx)


def output_option(help_text: str, *, name: str = "STORE", may_stream: bool = False) -> Decorator:
    """Return the required option ``-o``, the destination of the result."""
    kind = PATH if may_stream else StorePath(readable=False)
    return click.option("-o", "--out", required=True, type=kind, metavar=name, help=help_text)


def column_names(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
    """Parse names of columns, separated by commas; one with a comma stands in double quotes."""
    return None if value is None else column_list(value)


def column_list(text: str) -> list[str]:
    """Split text at its commas, but those in double quotes."""
    return next(csv.reader([text]), [])


def column_words(names: Sequence[str]) -> str:
    """Return names as `column_list` reads them."""
    return ",".join(f'"{name}"' if "," in name else name for name in names)


def columns_option(help_text: str) -> Decorator:
    """Return the option that names the columns of a table to use."""
    return click.option("--columns", callback=column_names, metavar="NAME,...", help=help_text)


def drop_option(help_text: str) -> Decorator:
    """Return the option that names the columns of a table to leave out."""
    return click.option("--drop", callback=column_names, metavar="NAME,...", help=help_text)


header_option: Decorator = click.option(
    "--header/--no-header",
    default=None,
    help="Whether the first line of a .csv or .tsv has names of columns.  [default: if that is clear]",
)


def _separator(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    return "\t" if value == "\\t" else value


sep_option: Decorator = click.option(
    "--sep",
    callback=_separator,
    metavar="CHARACTER",
    help="What separates the columns of a file of text, such as ';' or '\\t', whatever its suffix.  "
    "[default: a comma or, in .tsv, a tab]",
)


decimal_option: Decorator = click.option(
    "--decimal",
    type=click.Choice([".", ","]),
    help="What stands before the fractions of numbers in a file of text.  [default: a point]",
)


def as_one(parameter: str, options: dict[str, Decorator]) -> Decorator:
    """Return what adds options to a command, which takes their values as one mapping, its ``parameter``."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def with_mapping(**given: Any) -> Any:
            values = {name: given.pop(name) for name in options}
            return function(**{parameter: values}, **given)

        command: Callable[..., Any] = with_mapping
        for option in reversed(options.values()):
            command = option(command)
        return command

    return add


def table_options(what: str) -> Decorator:
    """Return the options that choose the columns of a table, all as ``chosen``; ``what`` they are, in the
    plural.
    """
    options: dict[str, Decorator] = {
        "id": click.option(
            "--id",
            metavar="NAME",
            help="Column that identifies the objects; it comes back with every export, to join by.  "
            "[default: the names of rows that pandas, R or AnnData keep]",
        ),
        "columns": columns_option(
            f'Columns that are {what}, or a pattern, such as "leiden*".  [default: all but the id]'
        ),
        "drop": drop_option(f"Columns that are not {what}."),
    }
    return as_one("chosen", options)


categorical_option: Decorator = click.option(
    "--categorical",
    callback=column_names,
    metavar="NAME,...",
    help="Columns whose numbers are categories, such as zip codes.",
)

log_option: Decorator = click.option(
    "--log",
    callback=column_names,
    metavar="NAME,...",
    help="Columns of numbers with heavy tails, x, which become sign(x) log(1 + |x|).",
)


def missing_labels(
    _: click.Context, __: click.Parameter, given: tuple[str, ...]
) -> list[str] | dict[str, list[str]] | None:
    """Parse the labels that are missing, of all columns or of one."""
    if not given:
        return None
    of_all: list[str] = []
    by_column: dict[str, list[str]] = {}
    for text in given:
        name, mark, values = text.partition("=")
        if mark:
            by_column.setdefault(name, [])
        for value in column_list(values if mark else text):
            before, is_next, after = value.partition("=")
            if mark and is_next:  # such as -99 in age=unknown,visits=-99
                name, value = before, after
            (by_column.setdefault(name, []) if mark else of_all).append(value)
    if by_column and (of_all or any("=" not in text for text in given)):
        raise click.BadParameter(
            f"{', '.join(given)} mixes what is missing in all columns, as VALUE,..., with what is so in one, "
            "as NAME=VALUE,...; give one kind. NA and empty cells are missing in any case."
        )
    return by_column or of_all


def missing_words(missing: list[str] | dict[str, list[str]] | None) -> list[str]:
    """Return the words of a command line that `missing_labels` parses to this."""
    if missing is None:
        return []
    of_columns = missing if isinstance(missing, dict) else {"": missing}
    return [
        word
        for name, values in of_columns.items()
        for word in ("--missing", (f"{name}=" if name else "") + column_words(values))
    ]


missing_option: Decorator = click.option(
    "--missing",
    multiple=True,
    callback=missing_labels,
    metavar="[NAME=]VALUE,...",
    help="What is missing, in all columns or in one: text in addition to the default, numbers, of labels, in "
    "place of the negative ones; '' counts only empty cells.  [default: empty cells, NA and the like, "
    "negative labels]",
)


READING = {
    "sep": sep_option,
    "header": header_option,
    "decimal": decimal_option,
    "missing": missing_option,
    "categorical": categorical_option,
}


def reading_options(*names: str) -> Decorator:
    """Return the options of these names that say how a table is read, all as ``reading``, for `select`."""
    return as_one("reading", {name: READING[name] for name in names})


label_reading: Decorator = reading_options("sep", "header", "missing")
feature_reading: Decorator = reading_options(*READING)


def reading_words(reading: dict[str, Any]) -> list[str]:
    """Return the words of a command line that `feature_reading` parses to this."""
    header, sep = reading["header"], reading["sep"]
    words = [] if header is None else ["--header" if header else "--no-header"]
    words += [] if sep is None else ["--sep", "\\t" if sep == "\t" else sep]
    words += [] if reading["decimal"] is None else ["--decimal", reading["decimal"]]
    if reading["categorical"] is not None:
        words += ["--categorical", column_words(reading["categorical"])]
    return words + missing_words(reading["missing"])


def refuse_alone(needed: str, value: object, **options: object) -> None:
    """Raise UsageError for a given option that has no effect without the option ``needed``, which is not."""
    for name, given in options.items():
        if given is not None and value is None:
            raise click.UsageError(
                f"{option_name(name)} has no effect without {needed}; give both or neither."
            )


def one_or_many(paths: tuple[str, ...]) -> str | list[str]:
    """Return the only path, or the list of all."""
    return paths[0] if len(paths) == 1 else list(paths)


overwrite_option: Decorator = click.option(
    "--overwrite",
    is_flag=True,
    help="Replace an existing output, which stays in place until the new one is complete.",
)


def memory_size(value: str) -> str:
    """Return ``value`` if it is a size; raise BadParameter otherwise."""
    from bigcons.memory import parse_size

    try:
        parse_size(value)
    except InvalidInputError as error:
        raise click.BadParameter(str(error)) from None
    return value


memory_option: Decorator = click.option(
    "--memory",
    type=memory_size,
    default="2GB",
    show_default=True,
    metavar="SIZE",
    help="Memory budget, such as 512MB or 2GB.",
)
random_state_option: Decorator = click.option(
    "--random-state",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="SEED",
    help="Random seed; the result is the same on any number of cores.",
)

scheduler_option: Decorator = click.option(
    "--scheduler",
    "client",
    metavar="ADDRESS",
    help="Dask scheduler, such as tcp://host:8786; or threads or serial.",
)


def option_name(parameter: str) -> str:
    """Return the option that sets a parameter."""
    return f"--{parameter.replace('_', '-')}"
