"""``bigcons methods``: what ``bigcons solve -m`` can be given."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from bigcons.cli.method_options import no_method, parameters_of
from bigcons.cli.output import emit, reporting, table

if TYPE_CHECKING:
    from bigcons.methods import ConsensusClusterer


@click.command()
@click.argument("name", required=False)
@reporting
def command(name: str | None) -> None:
    """List the consensus methods, or all about the method NAME."""
    from bigcons.methods import METHODS

    if name is None:
        methods = {key: _facts(method) for key, method in METHODS.items()}
        emit({"methods": methods}, _table(methods))
        return
    if name not in METHODS:
        raise no_method(name)
    method = METHODS[name]
    options = "\n".join(
        f"  --{parameter.replace('_', '-')}  (default: {'none' if default is None else default})"
        for parameter, default in parameters_of(method).items()
    )
    emit(
        _facts(method),
        f"{name}: {inspect.getdoc(method)}\n\nOptions of `bigcons solve -m {name}`:\n{options}",
    )


def _facts(method: type[ConsensusClusterer]) -> dict[str, Any]:
    return {
        "class": method.__name__,
        "summary": (inspect.getdoc(method) or "").partition("\n")[0],
        "parameters": list(inspect.signature(method).parameters),
        **method.info._asdict(),
    }


def _table(methods: dict[str, dict[str, Any]]) -> str:
    """Return one line a method: what it needs and can, and where it comes from."""
    rows = [
        {
            "method": name,
            "soft": "yes" if entry["soft"] else "-",
            "missing labels": entry["missing"],
            "out of core": "yes" if entry["out_of_core"] else "-",
            "distributed": "yes" if entry["distributed"] else "-",
            "needs": entry["needs"],
            "paper": entry["paper"],
        }
        for name, entry in methods.items()
    ]
    return table(list(rows[0]), rows, text=("missing labels", "needs", "paper"))
