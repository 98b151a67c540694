"""``bigcons methods``: what ``bigcons solve -m`` can be given."""

from __future__ import annotations

import inspect

import click

from bigcons.cli.output import emit, reporting


@click.command()
@reporting
def command() -> None:
    """List the consensus methods."""
    from bigcons.solvers import METHODS

    methods = {
        name: {
            "class": method.__name__,
            "summary": (inspect.getdoc(method) or "").partition("\n")[0],
            "parameters": list(inspect.signature(method).parameters),
        }
        for name, method in METHODS.items()
    }
    emit({"methods": methods}, "\n".join(f"{name:<12}{entry['summary']}" for name, entry in methods.items()))
