"""The ``bigcons`` command: imports its commands on demand and reports errors in one line."""

from __future__ import annotations

import importlib
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

import bigcons
from bigcons import errors
from bigcons.cli.output import OPTIONS, did_you_mean, emit_error, open_streams, shown, with_options
from bigcons.errors import BigconsError
from bigcons.progress import ProgressBar

COMMANDS = {
    **dict.fromkeys(("demo", "sample-data", "run", "generate", "import", "append", "sample"), "making"),
    **dict.fromkeys(("solve", "methods", "place", "tree"), "solving"),
    **dict.fromkeys(("report", "plot", "export", "info", "verify"), "showing"),
}
"""Commands in the order of a typical run, and the module of each."""

OWN_WARNINGS = [getattr(errors, name) for name in vars(errors) if name.endswith("Warning")]


class Terminated(KeyboardInterrupt):
    """SIGTERM came, as when a batch system ends a job; work stops as on Ctrl-C."""


class LazyGroup(click.Group):
    """A group whose commands are imported on demand."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; what cannot be printed, such as help on a full disk, is told in one line."""
        if sys.stdout is None:  # a file that is opened would take its place
            click.echo("Error: standard output is closed; direct it to a file or to /dev/null.", err=True)
            sys.exit(1)
        open_streams()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            click.echo(f"Error: {_reason(error)}", err=True)
            sys.exit(1)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the command; None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"bigcons.cli.{COMMANDS[cmd_name]}")
        name = "import_" if cmd_name == "import" else cmd_name.replace("-", "_")
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that ``args`` start with; suggest the closest if there is none."""
        try:
            name, command, words = super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(error.message + did_you_mean(args[0], COMMANDS), error.ctx) from error
        ctx.meta[OPTIONS] = [] if command is None else list(command.params)
        return name, command, words

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; progress, warnings and errors go to standard error, one line each."""
        for name in ("batched", "client"):  # of a lost scheduler, which the library's own error tells
            logging.getLogger(f"distributed.{name}").disabled = True
        with ProgressBar(), _one_line_warnings(), _sigterm_interrupts():
            try:
                return super().invoke(ctx)
            except click.UsageError as error:
                emit_error(ctx, error.format_message())
                raise
            except BrokenPipeError:  # the reader has closed the pipe; click exits silently
                raise
            except (BigconsError, OSError, MemoryError) as error:
                reason = " ".join(with_options(_reason(error), ctx.meta[OPTIONS]).split())
                emit_error(ctx, reason)
                raise click.ClickException(shown(reason)) from error
            except KeyboardInterrupt as error:
                word, status = ("Terminated", 143) if isinstance(error, Terminated) else ("Interrupted", 130)
                click.echo(
                    f"{word} before the output was complete; repeat the command to finish it.", err=True
                )
                ctx.exit(status)  # 128 and the number of the signal


def _reason(error: BaseException) -> str:
    """Return the message of an error; of an operating system error, with its file and a remedy."""
    if isinstance(error, OSError) and not isinstance(error, BigconsError) and error.filename is not None:
        remedy = (
            "direct it elsewhere"
            if error.filename == "standard output"
            else "check the path or choose another"
        )
        return f"{error.filename}: {error.strerror}; {remedy}."
    return str(error)


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show only the message of a warning, once, and always show the library's own warnings."""
    told: set[str] = set()

    def show(message: Warning | str, *_: Any) -> None:
        ctx = click.get_current_context(silent=True)
        text = with_options(str(message), [] if ctx is None else ctx.meta.get(OPTIONS, ()))
        if text not in told:
            told.add(text)
            click.echo(f"Warning: {shown(text)}", err=True)

    with warnings.catch_warnings():
        for category in OWN_WARNINGS:
            warnings.simplefilter("always", category)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let the first SIGTERM raise Terminated; the second ends the process at once."""

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@click.command(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(bigcons.__version__, message="bigcons %(version)s")
def main() -> None:
    """Consensus clustering for data larger than memory.

    Start with `bigcons demo`. On your own data: run, or step by step generate (or import), solve, report.
    With --json, a command prints one JSON object to standard output; progress and logs go to standard error.
    """
