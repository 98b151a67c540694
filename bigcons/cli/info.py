"""``bigcons info``: describe a store."""

from __future__ import annotations

import click

from bigcons.cli.options import PATH
from bigcons.cli.output import emit, facts, reporting
from bigcons.cli.store import open_store


@click.command()
@click.argument("store", type=PATH)
@reporting
def command(store: str) -> None:
    """Describe STORE without reading its data.

    STORE is an ensemble, a pair table or a consensus.
    """
    result = open_store(store).info()
    emit(result, facts(result))
