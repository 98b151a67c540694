"""``bigcons info``: describe a store."""

from __future__ import annotations

from typing import Any

import click

from bigcons.cli.options import PATH
from bigcons.cli.output import emit, facts, reporting


@click.command()
@click.argument("store", type=PATH)
@reporting
def command(store: str) -> None:
    """Describe STORE without reading its data.

    STORE is an ensemble, a pair table or a consensus.
    """
    result = open_store(store).info()
    emit(result, facts(result))


def open_store(path: str) -> Any:
    """Open the store at ``path`` with the class for its kind."""
    import bigcons
    from bigcons.storage.commit import read_manifest

    classes: dict[str, Any] = {
        "ensemble": bigcons.Ensemble,
        "pairs": bigcons.PairTable,
        "consensus": bigcons.Consensus,
    }
    return classes[read_manifest(path)["kind"]].open(path)
