"""The ``bigcons`` command: finds commands when they are asked for, and turns errors into one line."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

import bigcons
from bigcons.cli.output import did_you_mean, emit_error
from bigcons.cli.progress import progress_on_terminal
from bigcons.errors import (
    BigconsError,
    ConvergenceWarning,
    OversegmentationWarning,
    SuspiciousLabelsWarning,
    UnlabeledObjectsWarning,
)

COMMANDS = (
    "demo",
    "generate",
    "import",
    "sample",
    "solve",
    "score",
    "plot",
    "export",
    "info",
    "verify",
    "methods",
)
INTERRUPTED = 130

OWN_WARNINGS = (ConvergenceWarning, OversegmentationWarning, SuspiciousLabelsWarning, UnlabeledObjectsWarning)


class LazyGroup(click.Group):
    """A group whose commands are modules, imported when one is looked up."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands, in the order a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the command, or None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module = "import_" if cmd_name == "import" else cmd_name
        return importlib.import_module(f"bigcons.cli.{module}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that ``args`` begin with; name the nearest if there is none."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(error.message + did_you_mean(args[0], COMMANDS), error.ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command with its progress, warnings and errors as lines on standard error."""
        with progress_on_terminal(), _warnings_in_one_line(), _without_tracebacks_of_dask():
            try:
                return super().invoke(ctx)
            except click.UsageError as error:
                emit_error(ctx, error.format_message())
                raise
            except BrokenPipeError:  # whoever reads the output has seen enough; click ends without a word
                raise
            except (BigconsError, OSError, MemoryError) as error:
                reason = " ".join(_reason(error).split())
                emit_error(ctx, reason)
                raise click.ClickException(reason) from error
            except KeyboardInterrupt:
                click.echo("Interrupted: nothing unfinished was left under its final name.", err=True)
                ctx.exit(INTERRUPTED)


def _reason(error: BaseException) -> str:
    """Return what an error says; of the machine's own, the file and what became of it."""
    if isinstance(error, OSError) and not isinstance(error, BigconsError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; check the path, or choose another."
    return str(error)


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Show a warning as its message alone, and the library's own warnings always."""

    def show(message: Warning | str, *_: Any) -> None:
        click.echo(f"Warning: {message}", err=True)

    with warnings.catch_warnings():
        for category in OWN_WARNINGS:
            warnings.simplefilter("always", category)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextmanager
def _without_tracebacks_of_dask() -> Iterator[None]:
    """Keep back what a Dask client logs of a lost scheduler: our own error says so in a line."""
    loggers = [logging.getLogger(f"distributed.{name}") for name in ("batched", "client")]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


@click.command(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(bigcons.__version__, message="bigcons %(version)s")
def main() -> None:
    """Consensus clustering for data bigger than memory.

    Begin with `bigcons demo`. A whole run on your own data: generate (or import), solve, score, plot.
    Every command prints one JSON object with --json; progress and logs go to standard error.
    """
