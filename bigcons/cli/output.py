"""What a command prints: text for people, or one JSON object for programs."""

from __future__ import annotations

import difflib
import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

_JSON = "bigcons.json"
_MOST_NAMES = 12


def reporting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options every command has: ``--json`` and ``-v``."""
    add_json = click.option(
        "--json", is_flag=True, expose_value=False, is_eager=True, callback=_remember_json,
        help="Print one JSON object on standard output.",
    )  # fmt: skip
    add_verbose = click.option(
        "-v", "--verbose", count=True, expose_value=False, callback=_log_to_stderr,
        help="Log to standard error; -vv also what is for developers.",
    )  # fmt: skip
    return add_json(add_verbose(function))


def emit(result: Mapping[str, Any], text: str) -> None:
    """Print ``text``, or ``result`` as one JSON object if that was asked for."""
    if click.get_current_context().meta.get(_JSON):
        click.echo(json.dumps(result, allow_nan=False))
    else:
        click.echo(text)


def emit_ensemble(ensemble: Any, path: str) -> None:
    """Print what an ensemble is that was stored at ``path``."""
    emit(
        ensemble.info(),
        f"{path}: {amount(ensemble.n_objects, 'object')} in {amount(ensemble.n_partitions, 'partition')} "
        f"with {amount(ensemble.n_base_clusters, 'cluster')} in all.",
    )


def emit_error(ctx: click.Context, reason: str) -> None:
    """Print ``{"error": reason}`` on standard output if JSON was asked for."""
    if ctx.meta.get(_JSON):
        click.echo(json.dumps({"error": reason}))


def facts(items: Mapping[str, Any]) -> str:
    """Lay out names and values in two columns; nested mappings indented under their name."""
    return "\n".join(_fact_lines(items, indent=0))


def table(columns: Sequence[str], rows: Sequence[Mapping[str, str]], *, text: Sequence[str] = ()) -> str:
    """Lay out a table for a terminal: the first column and those of ``text`` to the left, others right."""
    lines = [list(columns), *([row.get(column, "") for column in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    to_the_left = [column in (columns[0], *text) for column in columns]
    return "\n".join(_table_line(cells, widths, to_the_left) for cells in lines)


def amount(n: int, what: str) -> str:
    """Return so many of ``what``, a word in the singular whose plural ends in s."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence that names the ``known`` word nearest to a mistyped one, empty if none is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]}?" if near else ""


def some(names: Sequence[str]) -> str:
    """Return the names in a line that stays readable: the first of them, and how many there are."""
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])}, ... ({len(names):,} in all)"


def _table_line(cells: Sequence[str], widths: Sequence[int], to_the_left: Sequence[bool]) -> str:
    placed = [
        cell.ljust(width) if left else cell.rjust(width)
        for cell, width, left in zip(cells, widths, to_the_left, strict=True)
    ]
    return "  ".join(placed).rstrip()


def _fact_lines(items: Mapping[str, Any], indent: int) -> list[str]:
    width = max((len(str(name)) for name in items), default=0)
    lines = []
    for name, value in items.items():
        if isinstance(value, Mapping):
            lines += [f"{' ' * indent}{name}", *_fact_lines(value, indent + 2)]
        else:
            text = str(value) if _names_something(str(name), value) else _text(value)
            lines.append(f"{' ' * indent}{str(name).ljust(width)}  {text}")
    return lines


def _names_something(name: str, value: Any) -> bool:
    """Tell a number that is compared or copied, not read as a size."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and name.endswith(("checksum", "random_state", "seed"))


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    return str(value)


def _remember_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_JSON] = value


def _log_to_stderr(_: click.Context, __: click.Parameter, count: int) -> None:
    if count:
        level = logging.INFO if count == 1 else logging.DEBUG
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
        logging.getLogger("bigcons").setLevel(level)
