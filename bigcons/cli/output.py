"""What a command prints: text for people or one JSON object for programs, and logs."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from bigcons.errors import nearest

JSON, OPTIONS = "bigcons.json", "bigcons.options"
"""Keys of what a context carries: whether to print JSON, and the options of the command."""

STANDARD = "-"
"""The path of standard input and output."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All but tabs and ends of lines, and what turns the direction of writing."""


def shown(text: str) -> str:
    """Return text with its control characters as escapes: names in a file shall not steer the terminal."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def emit(result: Mapping[str, Any], *texts: str) -> None:
    """Print paragraphs, by default names and values or, with ``--json``, ``result`` as one JSON object."""
    if click.get_current_context().meta.get(JSON):
        click.echo(json.dumps(result, allow_nan=False))
    else:
        click.echo(shown("\n\n".join(texts or [facts(result)])))


def destination(out: str) -> Any:
    """Return a path or, for "-", standard output, to which a command then prints nothing else."""
    if out != STANDARD:
        return out
    if click.get_current_context().meta.get(JSON):
        raise click.UsageError("--json prints to standard output, too; give a path with -o.")
    return sys.stdout.buffer


class Escaped(logging.Formatter):
    """Lines of a log without control characters but their ends."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return shown(super().format(record))


class _Lossy(io.FileIO):
    """Standard error, which loses the lines that it does not take, so that work goes on."""

    def write(self, content: Any, /) -> int:
        """Write what a buffer holds."""
        with suppress(OSError):
            return super().write(content)
        return int(memoryview(content).nbytes)


def open_standard_error() -> None:
    """Let standard error, if it is that of the process, lose what it does not take."""
    if sys.stderr is None:  # a file that is opened would take its place
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    elif sys.stderr is sys.__stderr__:
        stream: Any = sys.stderr
        raw = io.BufferedWriter(_Lossy(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=True)


# Messages of the library

_OPTION = re.compile(
    r"(?<![\w/])(?:bigcons\.select(?:\([^)]*\))?|\w+=(?:'[^']*'|\[[^]]*\]|\w+)?(?: of bigcons\.select)?)"
    r" \((--[^)]+)\)"
)
"""A parameter with its option, as in "overwrite=True (--overwrite)"."""


def with_options(message: str, flags: Mapping[str, str]) -> str:
    """Return a message of the library with the options of a command in the place of parameters."""

    def as_option(match: re.Match[str]) -> str:
        return f"{flags[match[1]]} {match[2] or ''}" if match[1] in flags else match[0]

    return re.sub(r"(?<![\w/])(\w+)=(?:'([^']*)'|(?=[^\s=]))", as_option, _OPTION.sub(r"\1", message))


@contextmanager
def telling_finished(out: str, what: str, overwrite: bool) -> Iterator[bool]:
    """Say so if the ``with`` block, instead of doing ``what``, found its result at ``out``; yield whether."""
    from bigcons.disk.commit import is_store

    is_there = not overwrite and is_store(out)
    yield is_there
    if is_there:
        click.echo(f"{out} already holds the result of this {what}.", err=True)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the ``known`` word closest to ``word``; empty if none is close."""
    near = nearest(word, known)
    return "" if near is None else f" Did you mean {near}?"


# Layout


def facts(items: Mapping[str, Any], *, indent: int = 0) -> str:
    """Lay out names and values in two columns; nested mappings are indented under their name."""
    width, lines = max(map(len, items), default=0), []
    for name, value in items.items():
        if isinstance(value, Mapping):
            lines += [name, *facts(value, indent=2).splitlines()]
        else:
            lines.append(f"{name.ljust(width)}  {cell(value, name)}")
    return "\n".join(" " * indent + line for line in lines)


def cell(value: Any, name: str = "") -> str:
    """Return a value for people: thousands are separated, except in checksums and seeds."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return str(value) if name.endswith(("checksum", "random_state", "seed")) else f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}" if name == "seconds" else f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        words = [cell(item) for item in value]
        is_same = len(words) > 2 and len(set(words)) == 1
        return f"{words[0]} ({len(words)} times)" if is_same else ", ".join(words)
    return str(value)


def table(rows: Sequence[Mapping[str, Any]], *, text: Sequence[str] = ()) -> str:
    """Lay out a table, whose first row has all columns: the first and those in ``text`` flush left."""
    columns = list(rows[0])
    lines = [columns, *([cell(row[name], name) if name in row else "" for name in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    place = [str.ljust if column in (columns[0], *text) else str.rjust for column in columns]
    return "\n".join(
        "  ".join(put(words, width) for put, words, width in zip(place, cells, widths, strict=True)).rstrip()
        for cells in lines
    )
