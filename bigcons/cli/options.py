"""Options that several commands share, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

PATH = click.Path(readable=False)
"""A path or URL as it was typed; shells complete it as the name of a file, and what opens it checks it."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def output_option(help_text: str, *, name: str = "STORE") -> Decorator:
    """Return the required option ``-o``, where the result goes."""
    return click.option("-o", "--out", required=True, type=PATH, metavar=name, help=help_text)


def complete_path(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tell a shell to complete the name of a file, where there is no `PATH` to do so."""
    return [CompletionItem(incomplete, type="file")]


overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace the output if it exists; it stays until the new one is whole."
)
memory_option = click.option(
    "--memory", default="1GB", show_default=True, metavar="SIZE", help="Memory budget, such as 512MB or 2GB."
)
random_state_option = click.option(
    "--random-state",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="SEED",
    help="Seed; the same seed gives the same result on any number of cores.",
)


class ClusterCount(click.ParamType):
    """A number of clusters, or ``auto`` for methods that can find it; becomes None."""

    name = "K|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or "auto"."""
        if value == "auto":
            return "auto"
        if not str(value).isdigit() or int(value) < 1:
            self.fail(f"{value!r} is no number of clusters; write one such as 5, or auto.", param, ctx)
        return int(value)


class ClusterRange(click.ParamType):
    """A number of clusters, ``5``, or a range to draw it from, ``2:10``; becomes a pair."""

    name = "K|MIN:MAX"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return ``(min, max)``."""
        try:
            low, _, high = value.partition(":")
            return int(low), int(high or low)
        except ValueError:
            self.fail(f"{value!r} is no number of clusters; write 5 or 2:10.", param, ctx)
