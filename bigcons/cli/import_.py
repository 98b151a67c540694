"""``bigcons import`` and ``bigcons import-pairs``: store label matrices and pairs from files."""

from __future__ import annotations

from typing import Any

import click

from bigcons.cli.options import TABLE, memory_option, output_option, overwrite_option, table_options
from bigcons.cli.output import amount, emit, emit_ensemble, reporting, telling_finished


@click.command("import")
@click.argument("tables", nargs=-1, required=True, type=TABLE)
@output_option("Store for the ensemble (.zarr).")
@table_options("partitions")
@click.option(
    "--memberships",
    is_flag=True,
    help="TABLES are memberships, one for each partition, with a column for each cluster.",
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
    id: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
    memberships: bool,
    chunk_rows: int | None,
    memory: str,
    overwrite: bool,
) -> None:
    """Store a table of labels, or of memberships, as an ensemble.

    The table is a .parquet, .csv, .tsv (or these with .gz), .npy, .npz or .zarr with one row per object and
    one column per partition, a folder of files, a pattern such as "labels/*.parquet", or -, standard input;
    missing labels are empty, NaN or negative. The first line of a .csv is its header, unless it
    contains a number; then it is the first object. The table is streamed and need not fit in memory.

    With --memberships, each of the TABLES, in these forms or a consensus with memberships, is a soft
    clustering; its rows sum to 1, and are NaN or 0 where an object is missing.
    """
    from bigcons.stores.ensemble import import_labels, import_memberships

    settings: dict[str, Any] = {"id": id, "overwrite": overwrite, "memory": memory, "chunk_rows": chunk_rows}
    if memberships:
        if columns is not None or drop is not None:
            raise click.UsageError("All columns but the id are memberships; leave out --columns and --drop.")
    elif len(tables) > 1:
        raise click.UsageError(
            f"Got {len(tables)} tables of labels; pass one, with a column for each partition, or a "
            "pattern in quotes for files that have its rows."
        )
    with telling_finished(out, "import", overwrite):
        if memberships:
            ensemble = import_memberships(tables, out, **settings)
        else:
            ensemble = import_labels(tables[0], out, columns=columns, drop=drop, **settings)
    emit_ensemble(ensemble, out)


@click.command("import-pairs")
@click.argument("table", type=TABLE)
@output_option("Store for the pairs: .zarr, or .parquet, sorted.")
@click.option(
    "--n-objects",
    type=click.IntRange(min=1),
    help="Number of objects.  [default: as a .parquet of bigcons states, else the largest in a pair, plus 1]",
)
@click.option(
    "--columns",
    metavar="I,J,AGREE,SEEN",
    help="Names of the four columns.  [default: i,j,n_agree,n_seen]",
)
@memory_option
@overwrite_option
@reporting
def import_pairs(
    table: str, out: str, n_objects: int | None, columns: str | None, memory: str, overwrite: bool
) -> None:
    """Store a TABLE of pairs, for `bigcons solve --pairs`.

    TABLE is a .parquet, .csv, .tsv (or these with .gz) or .npz, a folder of files, a pattern such as
    "pairs/*.csv", or -, standard input, with one row per pair, in any order, and the integer columns i < j,
    objects numbered from 0; n_agree, the number of partitions that cluster both together; n_seen, of those
    that label both. The table is sorted on disk and need not fit in memory.
    """
    from bigcons.stores import pairs

    names = None if columns is None else columns.split(",")
    with telling_finished(out, "import", overwrite):
        stored = pairs.import_pairs(
            table, out, n_objects=n_objects, columns=names, overwrite=overwrite, memory=memory
        )
    emit(stored.info(), f"{out}: {amount(stored.n_pairs, 'pair')} of {amount(stored.n_objects, 'object')}.")
