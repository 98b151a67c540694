"""``bigcons append`` and ``bigcons match``: an ensemble that grows, and its clusters by earlier numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bigcons.cli.options import PATH, TABLE, label_reading, overwrite_option, table_options
from bigcons.cli.output import emit, emit_ensemble, reporting, table

if TYPE_CHECKING:
    import numpy as np

    from bigcons.stores.consensus import Consensus


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
    from bigcons.stores.ensemble import Ensemble
    from bigcons.tables.select import select

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


@click.command()
@click.argument("new", type=PATH)
@click.argument("old", type=PATH)
@click.option(
    "-o",
    "--out",
    type=PATH,
    metavar="FILE",
    help="File for the labels by these numbers, as by `bigcons export`.",
)
@overwrite_option
@reporting
def match(new: str, old: str, out: str | None, overwrite: bool) -> None:
    """Show what became of the clusters of OLD in NEW.

    Both are consensuses, NEW of the ensemble after objects or partitions were appended. A cluster keeps its
    number if NEW has one that shares more objects with it than any other, and the other way around; others
    are split, new, merged or gone. Objects are joined by ids, if both have some; else those of OLD are the
    first of NEW.
    """
    from bigcons.stores.aligning import match as match_clusters
    from bigcons.stores.consensus import Consensus

    solved = Consensus.open(new)
    found = match_clusters(solved, old)
    if out is not None:
        _export(solved, found.labels, out, overwrite)
    rows: list[dict[str, Any]] = found.table.to_pylist()
    cells = [{name: _cell(value) for name, value in row.items()} for row in rows]
    result = {"n_objects": solved.n_objects, "n_moved": found.n_moved, "clusters": rows, "path": out}
    emit(result, f"{found!r}\n\n{table(list(rows[0]), cells, text=('event',))}")


def _cell(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:,}"


def _export(solved: Consensus, labels: np.ndarray, out: str, overwrite: bool) -> None:
    """Write labels to a file, with the ids of a consensus unless it is an .npy."""
    from bigcons.stores.export import export_to

    ids = None if out.lower().endswith(".npy") else solved.id_column
    types: dict[str, Any] = {"label": labels.dtype}
    if ids is not None:
        types = {"id" if ids.facts.name in types else ids.facts.name: ids.type, **types}
    with export_to(out, solved.n_objects, types, overwrite=overwrite) as write:
        for block in solved.blocks():
            of_rows = [] if ids is None else [ids.as_they_came(ids.read(block.start, block.stop))]
            write([*of_rows, labels[block.start : block.stop]])
