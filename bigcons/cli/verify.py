"""``bigcons verify``: check a store against its checksums."""

from __future__ import annotations

import click

from bigcons.cli.info import open_store
from bigcons.cli.options import PATH
from bigcons.cli.output import emit, facts, reporting


@click.command()
@click.argument("store", type=PATH)
@reporting
def command(store: str) -> None:
    """Check all data of STORE against its checksums.

    STORE is an ensemble, a pair table or a consensus. The check stops at the first difference.
    """
    result = open_store(store).verify()
    emit({"ok": True, **result}, f"{store} is intact.\n{facts(result)}")
