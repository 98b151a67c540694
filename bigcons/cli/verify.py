"""``bigcons verify``: whether a store is as it was written."""

from __future__ import annotations

import click

from bigcons.cli.options import PATH
from bigcons.cli.output import emit, facts, reporting
from bigcons.cli.store import open_store


@click.command()
@click.argument("store", type=PATH)
@reporting
def command(store: str) -> None:
    """Compare all of STORE with its checksums.

    STORE is an ensemble, a table of pairs or a consensus. Fails at the first difference.
    """
    result = open_store(store).verify()
    emit({"ok": True, **result}, f"{store} is whole.\n{facts(result)}")
