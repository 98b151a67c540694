"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

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

scheduler_option: Decorator = click.option(
    "--scheduler",
    "client",
    metavar="ADDRESS",
    help="Dask scheduler, such as tcp://host:8786; or threads or serial.",
)


def option_name(parameter: str) -> str:
    """Return the option that sets a parameter."""
    return f"--{parameter.replace('_', '-')}"
