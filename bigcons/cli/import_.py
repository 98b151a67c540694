"""``bigcons import`` and ``bigcons import-pairs``: store label matrices and pairs from files."""

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
    table_options,
)
from bigcons.cli.output import amount, emit, emit_ensemble, reporting, telling_finished


@click.command("import")
@click.argument("tables", nargs=-1, required=True, type=TABLE)
@output_option("Store for the ensemble (.zarr or .parquet).")
@table_options("partitions")
@label_reading
@click.option(
    "--orientation",
    type=click.Choice(["objects", "partitions"]),
    help="What a row is.  [default: an object, if that is clear]",
)
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
    orientation: str | None,
    runs: bool,
    by: str | None,
    memberships: bool,
    chunk_rows: int | None,
    memory: str,
    overwrite: bool,
) -> None:
    """Store a table of labels, or of memberships, as an ensemble.

    The table is a .parquet, .csv, .tsv (or these compressed), .npy, .npz or .zarr with one row per object and
    one column per partition, a folder of files, a pattern such as "labels/*.parquet", a URL of these (but of
    .npz) such as s3://bucket/labels.parquet, or -, standard input; missing labels are empty, NaN or negative.
    The table is streamed and need not fit in memory. What may be read in two ways, such as a first line of
    numbers in a .csv, is refused unless an option tells.

    With --runs, each of the TABLES is one partition. With --long, the table has a row for each label, such as
    the votes of workers on tasks. With --memberships, each of the TABLES, in these forms or a consensus with
    memberships, is a soft clustering; its rows sum to 1, and are NaN or 0 where an object is missing.
    """
    from bigcons.stores.ensemble import Ensemble, import_labels, import_memberships
    from bigcons.tables.select import select

    used = {**chosen, **reading, "orientation": orientation, "chunk_rows": chunk_rows}
    kinds = {"--runs": runs, "--long": by, "--memberships": memberships}
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
        if memberships:
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
            ensemble = import_labels(
                parts[0], orientation=orientation, chunk_rows=chunk_rows, **chosen, **reading, **settings
            )
    emit_ensemble(ensemble, out)


_UNUSED: dict[str | None, tuple[str, ...]] = {
    "--runs": ("drop", "orientation", "chunk_rows"),
    "--long": ("id", "columns", "drop", "orientation", "chunk_rows"),
    "--memberships": ("columns", "drop", "orientation", "missing"),
}
"""Options that an import of each kind does not take."""


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

    TABLE is a .parquet, .csv, .tsv (or these compressed) or .npz, a folder of files, a pattern such as
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
