"""``bigcons append``: an ensemble that grows."""

from __future__ import annotations

from typing import Any

import click

from bigcons.cli.options import PATH, TABLE, label_reading, table_options
from bigcons.cli.output import emit_ensemble, reporting


@click.command()
@click.argument("ensemble", type=PATH)
@click.argument("tables", nargs=-1, required=True, type=TABLE)
@click.option("--objects", "what", flag_value="objects", help="Rows of TABLES are further objects.")
@click.option(
    "--partitions", "what", flag_value="partitions", help="Columns of TABLES are further partitions."
)
@table_options("partitions")
@label_reading
@reporting
def append(
    ensemble: str,
    tables: tuple[str, ...],
    what: str | None,
    chosen: dict[str, Any],
    reading: dict[str, Any],
) -> None:
    """Append objects or partitions to the store ENSEMBLE.

    With --partitions, rows are joined by ids, in any order; objects that have no row are missing. With
    --objects, columns are the partitions, by their names or in their order; ids must be new. Of soft
    clusterings, TABLES are memberships, one for each partition; else there is one table, or a pattern in
    quotes. An append that is killed leaves the ensemble as it was.
    """
    from bigcons.io.select import select
    from bigcons.store.ensemble import Ensemble

    if what is None:
        raise click.UsageError("Say what to append: --objects, whose rows are new, or --partitions.")
    opened = Ensemble.open(ensemble, "a")
    if not opened.is_soft and len(tables) > 1:
        raise click.UsageError(f"Got {len(tables)} tables of labels; pass one, or a pattern in quotes.")
    add = opened.append_objects if what == "objects" else opened.append_partitions
    sep = reading.pop("sep")
    parts = [select(table, sep=sep) for table in tables]
    source: Any = parts if opened.is_soft else parts[0]
    add(source, **chosen, **reading)
    emit_ensemble(opened, ensemble)
