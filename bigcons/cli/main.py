"""The ``bigcons`` command: runs its commands and reports errors in one line."""

from __future__ import annotations

import _thread
import errno
import io
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

import bigcons
from bigcons.cli import commands as _commands  # noqa: F401 - which fills COMMANDS
from bigcons.cli.options import COMMANDS, JSON, OPTIONS, emit, escaped, with_options
from bigcons.errors import BigconsError, InvalidInputError, is_of_process
from bigcons.progress import ProgressBar

REFUSED = (errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)
"""Errors of a reader that has closed the pipe, and of a full disk."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came, as when a batch system ends a job; work stops as on Ctrl-C."""


class BadValue(click.ClickException):
    """An option has a value that the library refuses."""

    exit_code = 2


class _Lossy(io.FileIO):
    """Standard error, which loses the lines that it does not take, so that work goes on."""

    def write(self, content: Any, /) -> int:
        """Write what a buffer holds."""
        with suppress(OSError):
            return super().write(content)
        return int(memoryview(content).nbytes)


class Group(click.Group):
    """The commands in the order of a typical run, whose errors are one line."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; what cannot be printed, such as help on a full disk, is told in one line."""
        if sys.stdout is None:  # a file that is opened would take its place
            click.echo("Error: standard output is closed; direct it to a file or to /dev/null.", err=True)
            sys.exit(1)
        if sys.stderr is None:
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
        elif sys.stderr is sys.__stderr__:
            stream: Any = sys.stderr
            raw = io.BufferedWriter(_Lossy(2, "w", closefd=False))
            sys.stderr = io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=True)
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still to be flushed
            click.echo(f"Error: standard output: {error.strerror}; direct it elsewhere.", err=True)
            sys.exit(1)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that ``args`` start with, and keep its options."""
        name, command, words = super().resolve_command(ctx, args)
        options = [] if command is None else command.params
        ctx.meta[OPTIONS] = {o.name: o.opts[0] for o in options if isinstance(o, click.Option)}
        return name, command, words

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; progress, warnings and errors go to standard error, one line each.

        The status is 2 for an option that is misused or whose value is refused, 1 for any other error.
        """
        for name in ("batched", "client"):  # of a lost scheduler, which the library's own error tells
            logging.getLogger(f"distributed.{name}").disabled = True
        with ProgressBar(), _one_line_warnings(ctx), _signals_interrupt() as stops:
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
            except click.UsageError as error:
                _emit_error(ctx, error.format_message())
                raise
            except (Exception, KeyboardInterrupt) as error:
                if isinstance(error, KeyboardInterrupt) or stops:  # which a module may hide
                    is_terminated = any(isinstance(stop, Terminated) for stop in (error, *stops))
                    word, status = ("Terminated", 143) if is_terminated else ("Interrupted", 130)
                    notice = f"{word} before the output was complete; repeat the command to finish it."
                    click.echo(notice, err=True)
                    ctx.exit(status)  # 128 and the number of the signal
                if not isinstance(error, (BigconsError, OSError)) and not is_of_process(error):
                    raise
                if getattr(error, "errno", None) in REFUSED and getattr(error, "filename", "") is None:
                    raise  # of standard output: files are told with their names
                flags, message = ctx.meta[OPTIONS], _reason(error)
                reason = escaped(" ".join(with_options(message, flags).split()))
                _emit_error(ctx, reason)
                begins = re.match(r"(\w+)[\[=]", message)
                parameters = {getattr(error, "parameter", None), begins and begins[1]}
                is_value = isinstance(error, InvalidInputError) and parameters & flags.keys()
                raise (BadValue if is_value else click.ClickException)(reason) from error


def _emit_error(ctx: click.Context, reason: str) -> None:
    """With ``--json``, print ``{"error": reason}`` to standard output."""
    if ctx.meta.get(JSON):
        emit({"error": reason})


def _reason(error: BaseException) -> str:
    """Return the message of an error; of an operating system error, with its file and a remedy."""
    if not isinstance(error, (BigconsError, OSError)):
        return f"{str(error) or 'Memory is exhausted'}; give the process more memory or threads."
    if isinstance(error, BigconsError) or error.filename is None:
        is_of_folder = error.args == (errno.ENOENT, os.strerror(errno.ENOENT))  # os.getcwd's
        return "The current folder was removed; change to another (cd)." if is_of_folder else str(error)
    return f"{error.filename}: {error.strerror}; check the path or choose another."


@contextmanager
def _one_line_warnings(ctx: click.Context) -> Iterator[None]:
    """Show only the message of a warning, once."""
    texts: set[str] = set()

    def show(message: Warning | str, *_: Any) -> None:
        text = with_options(str(message), ctx.meta.get(OPTIONS, {}))
        if text not in texts:
            texts.add(text)
            from tqdm import tqdm

            tqdm.write(f"Warning: {escaped(text)}", sys.stderr)  # on a line of its own, above the bars

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextmanager
def _signals_interrupt() -> Iterator[list[KeyboardInterrupt]]:
    """Let the first SIGTERM raise Terminated, the second end the process at once; yield the stops that came.

    Python drops what is raised while it collects an object; the interrupt is then raised once more, later.
    """
    stops: list[KeyboardInterrupt] = []

    def stop(number: int, _: object) -> None:
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
        stops.append(Terminated() if number == signal.SIGTERM else KeyboardInterrupt())
        raise stops[-1]

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            threading.Timer(0.1, _thread.interrupt_main).start()
        else:
            hook(unraisable)

    is_main, handlers = threading.current_thread() is threading.main_thread(), dict[signal.Signals, Any]()
    for number in (signal.SIGTERM, signal.SIGINT) if is_main else ():
        if number == signal.SIGTERM or signal.getsignal(number) is signal.default_int_handler:
            handlers[number] = signal.signal(number, stop)
    hook, sys.unraisablehook = sys.unraisablehook, dropped
    try:
        yield stops
    finally:
        sys.unraisablehook = hook
        for number, handler in handlers.items():
            signal.signal(number, handler)


@click.command(
    cls=Group,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.version_option(bigcons.__version__, message="bigcons %(version)s")
def main() -> None:
    """Consensus clustering for data larger than memory.

    Start with `bigcons demo`. On your own data: run, or step by step generate (or import), solve, report.
    With --json, a command prints one JSON object to standard output; progress and logs go to standard error.
    """
