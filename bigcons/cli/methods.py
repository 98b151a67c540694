"""``bigcons methods``: the consensus methods and their options."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from bigcons.cli.options import find_method, method_parameters, option_name
from bigcons.cli.output import emit, reporting, table

if TYPE_CHECKING:
    from bigcons.methods import ConsensusClusterer


@click.command()
@click.argument("name", required=False)
@reporting
def command(name: str | None) -> None:
    """List the consensus methods, or describe the method NAME."""
    from bigcons.methods import METHODS

    if name is None:
        methods = {key: _facts(method) for key, method in METHODS.items()}
        emit({"methods": methods}, _table(methods))
        return
    method = find_method(name)
    options = "\n".join(
        f"  {option_name(parameter)}  (default: {'none' if default is None else default})"
        for parameter, default in method_parameters(method).items()
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
    """Return one line per method: its requirements, its capabilities and its source."""
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
