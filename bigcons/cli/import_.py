"""``bigcons import``: store labels, memberships or pairs from files."""

from __future__ import annotations

from typing import Any

import click

from bigcons.cli.options import (
    TABLE,
    column_list,
    label_reading,
    memory_option,
    option_name,
    output_option,
    overwrite_option,
    refuse_alone,
    table_options,
)
from bigcons.cli.output import amount, emit, emit_ensemble, reporting, telling_finished


@click.command("import")
@click.argument("tables", nargs=-1, required=True, type=TABLE)
@output_option("Store for the ensemble (.zarr or .parquet).")
@table_options("partitions")
@label_reading
@click.option("--runs", is_flag=True, help="Each of the TABLES is a partition, with a column of labels.")
@click.option(
    "--long",
    "by",
    metavar="OBJECT,PARTITION,LABEL",
    help="A row of the table is one label; names of the columns with its object, partition and label.",
)
@click.option(
    "--memberships",
    is_flag=True,
    help="TABLES are memberships, one for each partition, with a column for each cluster.",
)
@click.option(
    "--pairs",
    is_flag=True,
    help="TABLES has pairs of objects, for `bigcons solve --pairs`; --columns are then its four columns.  "
    "[default: i,j,n_agree,n_seen]",
)
@click.option(
    "--n-objects",
    type=click.IntRange(min=1),
    help="Number of objects in --pairs.  [default: as a .parquet of bigcons states, else the largest in a "
    "pair, plus 1]",
)
@click.option(
    "--chunk-rows", type=click.IntRange(min=1), help="Rows per chunk of the store.  [default: chosen by size]"
)
@memory_option
@overwrite_option
@reporting
def import_(
    tables: tuple[str, ...],
    out: str,
    chosen: dict[str, Any],
    reading: dict[str, Any],
    runs: bool,
    by: str | None,
    memberships: bool,
    pairs: bool,
    n_objects: int | None,
    chunk_rows: int | None,
    memory: str,
    overwrite: bool,
) -> None:
    """Store a table of labels, or of memberships, as an ensemble, or a table of pairs.

    The table is a .parquet, .csv, .tsv (or these compressed), .npy or .zarr with one row per object and
    one column per partition, a folder of files, a pattern such as "labels/*.parquet", a URL of these
    such as s3://bucket/labels.parquet, or -, standard input; missing labels are empty, NaN or negative.
    The table is streamed and need not fit in memory. What may be read in two ways, such as a first line with
    numbers in a .csv, is refused unless an option tells.

    With --runs, each of the TABLES is one partition. With --long, the table has a row for each label, such as
    the votes of workers on tasks. With --memberships, each of the TABLES, in these forms or a consensus with
    memberships, is a soft clustering; its rows sum to 1, and are NaN or 0 where an object is missing.

    With --pairs, the table has a row for each pair, in any order, with integer columns i < j, objects
    numbered from 0; n_agree, the number of partitions that cluster both together; n_seen, of those that label
    both. It is sorted on disk and need not fit in memory.
    """
    from bigcons.io.select import select
    from bigcons.store.ensemble import Ensemble, import_labels, import_memberships

    used = {**chosen, **reading, "chunk_rows": chunk_rows}
    kinds = {"--runs": runs, "--long": by, "--memberships": memberships, "--pairs": pairs}
    refuse_alone("--pairs", pairs or None, n_objects=n_objects)
    given = [name for name, value in kinds.items() if value]
    kind = given[0] if given else None
    unused = [option_name(name) for name in _UNUSED.get(kind, ()) if used[name] is not None]
    if kind is not None and (unused or given[1:]):
        raise click.UsageError(f"{kind} takes no {(unused or given[1:])[0]}; leave it out.")
    if len(tables) > 1 and not (runs or memberships):
        raise click.UsageError(
            f"Got {len(tables)} tables of labels; pass one, with a column for each partition, a pattern in "
            "quotes for files that have its rows, or --runs if each is a partition."
        )
    settings: dict[str, Any] = {"out": out, "overwrite": overwrite, "memory": memory}
    id, columns, sep = chosen["id"], chosen["columns"], reading.pop("sep")
    parts = [select(table, sep=sep) for table in tables]
    with telling_finished(out, "import", overwrite):
        if pairs:
            from bigcons.store.pairs import import_pairs

            table = import_pairs(tables[0], n_objects=n_objects, columns=columns, **settings)
        elif memberships:
            parts = [select(table, header=reading["header"]) for table in parts]
            ensemble = import_memberships(parts, id=id, chunk_rows=chunk_rows, **settings)
        elif runs:
            ensemble = Ensemble.from_runs(parts, id=id, columns=columns, **reading, **settings)
        elif by is not None:
            names = column_list(by)
            if len(names) != 3:
                raise click.UsageError(
                    f"--long has {len(names)} columns; name three: of the object, the partition, the label."
                )
            names_of: dict[str, Any] = dict(zip(("object", "partition", "label"), names, strict=True))
            ensemble = Ensemble.from_long(parts[0], **names_of, **reading, **settings)
        else:
            ensemble = import_labels(parts[0], chunk_rows=chunk_rows, **chosen, **reading, **settings)
    if pairs:
        emit(table.info(), f"{out}: {amount(table.n_pairs, 'pair')} of {amount(table.n_objects, 'object')}.")
    else:
        emit_ensemble(ensemble, out)


_UNUSED: dict[str | None, tuple[str, ...]] = {
    "--runs": ("drop", "chunk_rows"),
    "--long": ("id", "columns", "drop", "chunk_rows"),
    "--memberships": ("columns", "drop", "missing"),
    "--pairs": ("id", "drop", "sep", "header", "missing", "chunk_rows"),
}
"""Options that an import of each kind does not take."""
