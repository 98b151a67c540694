"""``bigcons import``: store a label matrix from a file as an ensemble."""

from __future__ import annotations

import click

from bigcons.cli.options import PATH, memory_option, output_option, overwrite_option
from bigcons.cli.output import emit_ensemble, reporting


@click.command("import")
@click.argument("labels", type=PATH)
@output_option("Store for the ensemble (.zarr).")
@click.option(
    "--chunk-rows", type=click.IntRange(min=1), help="Rows per chunk of the store.  [default: chosen by size]"
)
@memory_option
@overwrite_option
@reporting
def import_(labels: str, out: str, chunk_rows: int | None, memory: str, overwrite: bool) -> None:
    """Store a table of LABELS as an ensemble.

    LABELS is a .parquet, .csv, .csv.gz, .npy, .npz or .zarr with one row per object and one column per
    partition; missing labels are empty, NaN or negative. The first line of a .csv is its header, unless it
    contains a number; then it is the first object. The table is streamed and need not fit in memory.
    """
    from bigcons.stores.ensemble import import_labels

    ensemble = import_labels(labels, out, overwrite=overwrite, memory=memory, chunk_rows=chunk_rows)
    emit_ensemble(ensemble, out)
