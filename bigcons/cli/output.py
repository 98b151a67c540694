"""What a command prints: text for people or one JSON object for programs; logs and progress bars."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from bigcons.errors import nearest
from bigcons.progress import ProgressBar

JSON = "bigcons.json"
STANDARD_OUTPUT = "standard output"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All but tabs and ends of lines, and what turns the direction of writing."""


def reporting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every command has: ``--json`` and ``-v``."""
    add_json = click.option(
        "--json", is_flag=True, expose_value=False, is_eager=True, callback=_remember_json,
        help="Print one JSON object to standard output.",
    )  # fmt: skip
    add_verbose = click.option(
        "-v", "--verbose", count=True, expose_value=False, callback=_set_verbosity,
        help="Log to standard error; -vv includes debug messages.",
    )  # fmt: skip
    return add_json(add_verbose(function))


def _remember_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[JSON] = value


def _set_verbosity(_: click.Context, __: click.Parameter, count: int) -> None:
    if count:
        log_to_stderr(logging.INFO if count == 1 else logging.DEBUG)


def log_to_stderr(level: int) -> None:
    """Let the library log to standard error from ``level`` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Escaped("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("bigcons").setLevel(level)


class _Escaped(logging.Formatter):
    """Lines without control characters but their ends."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return shown(super().format(record))


def emit(result: Mapping[str, Any], text: str) -> None:
    """Print ``text`` or, with ``--json``, ``result`` as one JSON object."""
    is_json = click.get_current_context().meta.get(JSON)
    click.echo(json.dumps(result, allow_nan=False) if is_json else shown(text))


class _Stream(io.FileIO):
    """Standard output, whose errors name it, or standard error, which loses the lines it does not take."""

    def write(self, content: Any, /) -> int:
        """Write what a buffer holds."""
        try:
            return super().write(content)
        except OSError as error:
            if self.fileno() == 2:
                return int(memoryview(content).nbytes)
            if isinstance(error, BrokenPipeError):
                # the buffer still holds the rest, which is flushed at the end: to nowhere
                with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
                    os.dup2(nowhere.fileno(), self.fileno())
                raise
            raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from None


def open_streams() -> None:
    """Let standard output and error, as far as they are those of the process, be as `_Stream` describes."""
    if sys.stderr is None:  # a file that is opened would take its place
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    for name, fileno in (("stdout", 1), ("stderr", 2)):
        stream: Any = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):
            how = {"encoding": stream.encoding, "errors": stream.errors}
            raw = io.BufferedWriter(_Stream(fileno, "w", closefd=False))
            setattr(sys, name, io.TextIOWrapper(raw, **how, line_buffering=stream.line_buffering))


def fault_of_standard_output(error: BaseException | None = None) -> str | None:
    """Return why standard output does not take what was printed; None if it does, or if its reader has ended.

    ``error`` is what came of printing, if anything. What standard output still holds is dropped: Python would
    write it at the end, and fail.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return None
    except OSError as of_rest:
        error = of_rest
    if not isinstance(error, OSError) or error.filename != STANDARD_OUTPUT:
        return None
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"{STANDARD_OUTPUT}: {error.strerror}; direct it elsewhere."


def shown(text: str) -> str:
    """Return text with its control characters as escapes: names in a file shall not steer the terminal."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def emit_ensemble(ensemble: Any, path: str) -> None:
    """Print a description of the ensemble that was stored at ``path``."""
    emit(
        ensemble.info(),
        f"{path}: {amount(ensemble.n_objects, 'object')} in {amount(ensemble.n_partitions, 'partition')} "
        f"with {amount(ensemble.n_base_clusters, 'cluster')} in total.",
    )


_OPTION = re.compile(
    r"(?<![\w/])(?:bigcons\.select(?:\([^)]*\))?|\w+=(?:'[^']*'|\[[^]]*\]|\w+)?(?: of bigcons\.select)?)"
    r" \((--[^)]+)\)"
)
"""A parameter with its option, as in "overwrite=True (--overwrite)"."""
_VALUE = r"('[^']*'|\[[^]]*\]|\{[^}]*\}|[\w.:/-]*\w)"
_PARAMETER = re.compile(rf"(?<![\w/])(\w+)={_VALUE}(?:, not {_VALUE})?")


def with_options(message: str, command: click.Command | None) -> str:
    """Return a message of the library with the options of a command in the place of parameters."""
    message = _OPTION.sub(r"\1", message)
    known = {option.name: option for option in command.params} if command is not None else {}

    def as_option(found: re.Match[str]) -> str:
        option, value = known.get(found[1]), _in_words(found[2])
        if not isinstance(option, click.Option):
            return found[0]
        rest = "" if found[3] is None else f", not {_in_words(found[3])}"
        if value == "None":
            return f"no {option.opts[0]}{rest}"
        if option.is_flag:
            return (option.opts if value == "True" else option.secondary_opts or option.opts)[0] + rest
        return f"{option.opts[0]} {value}{rest}"

    return _PARAMETER.sub(as_option, message)


def _in_words(value: str) -> str:
    """Return a value in a message of the library as the words of a command line."""
    with suppress(ValueError, SyntaxError):
        read = ast.literal_eval(value)
        if isinstance(read, list):
            is_range = all(isinstance(each, (int, float)) for each in read)
            return (":" if is_range else ",").join("..." if each is ... else str(each) for each in read)
        if isinstance(read, dict):
            return " ".join(f"{name}={_in_words(str(values))}" for name, values in read.items())
    return value.strip("'")


@contextmanager
def telling_finished(out: str, what: str, overwrite: bool) -> Iterator[bool]:
    """Say so if the ``with`` block, instead of doing ``what``, found its result at ``out``; yield whether.

    What a fit warned of when it was solved is said again.
    """
    from bigcons.disk.commit import is_store

    is_there = not overwrite and is_store(out)
    yield is_there
    if is_there:
        click.echo(f"{out} already holds the result of this {what}.", err=True)
        from bigcons.store.consensus import Consensus, cautions
        from bigcons.store.opening import open_store

        if isinstance(found := open_store(out), Consensus):
            for caution in cautions(found.results, found.n_clusters):
                click.echo(f"Warning: {caution}", err=True)


def emit_error(ctx: click.Context, reason: str) -> None:
    """With ``--json``, print ``{"error": reason}`` to standard output."""
    if ctx.meta.get(JSON):
        click.echo(json.dumps({"error": reason}))


def emit_constant(ensemble: Any) -> None:
    """Name, on standard error, the features that an ensemble was generated without, as they do not vary."""
    if ensemble.generator is not None and (names := ensemble.generator.encoding.constant()):
        click.echo(f"Constant or empty, without effect: {some(names)}.", err=True)


# Layout


def facts(items: Mapping[str, Any], *, indent: int = 0) -> str:
    """Lay out names and values in two columns; nested mappings are indented under their name."""
    width = max((len(str(name)) for name in items), default=0)
    margin = " " * indent
    lines = []
    for name, value in items.items():
        if isinstance(value, Mapping):
            lines += [f"{margin}{name}", *facts(value, indent=indent + 2).splitlines()]
        else:
            lines.append(f"{margin}{str(name).ljust(width)}  {_text(str(name), value)}")
    return "\n".join(lines)


def with_clusters(items: Mapping[str, Any], words: str) -> dict[str, Any]:
    """Return items with "clusters", the number found in words, in the place of the numbers of clusters."""
    found: dict[str, Any] = {}
    for name, value in items.items():
        if name == "n_clusters":
            found["clusters"] = words
        elif name != "n_tiny_clusters":
            found[name] = value
    return found


def _text(name: str, value: Any) -> str:
    """Return a value for people: thousands are separated, except in checksums and seeds."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return str(value) if name.endswith(("checksum", "random_state", "seed")) else f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}" if name == "seconds" else f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        words = [_text("", item) for item in value]
        if len(words) > 2 and len(set(words)) == 1:
            return f"{words[0]} ({len(words)} times)"
        return ", ".join(words)
    return str(value)


def table(columns: Sequence[str], rows: Sequence[Mapping[str, str]], *, text: Sequence[str] = ()) -> str:
    """Lay out a table: the first column and those in ``text`` flush left, the others flush right."""
    lines = [list(columns), *([row.get(column, "") for column in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    place = [str.ljust if column in (columns[0], *text) else str.rjust for column in columns]
    return "\n".join(
        "  ".join(put(cell, width) for put, cell, width in zip(place, cells, widths, strict=True)).rstrip()
        for cells in lines
    )


def amount(n: int, what: str) -> str:
    """Return a count with its noun, ``what`` in the singular, whose plural ends in s."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the ``known`` word closest to ``word``; empty if none is close."""
    near = nearest(word, known)
    return "" if near is None else f" Did you mean {near}?"


# Progress


def some(names: Sequence[str]) -> str:
    """Return the first few names and, if there are more, their number."""
    if len(names) <= 12:
        return ", ".join(names)
    return f"{', '.join(names[:12])}, ... ({len(names):,} in total)"


def progress_on_terminal(after: float = 1.0) -> AbstractContextManager[object]:
    """Draw the bars of work of that many seconds in the ``with`` block, if standard error is a terminal."""
    return ProgressBar(sys.stderr, after=after) if sys.stderr.isatty() else nullcontext()
