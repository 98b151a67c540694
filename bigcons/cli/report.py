"""``bigcons report``: a one-page summary of a consensus."""

from __future__ import annotations

from typing import Any

import click

from bigcons.cli.options import (
    PATH,
    columns_option,
    drop_option,
    feature_reading,
    memory_option,
    output_option,
    overwrite_option,
    refuse_alone,
    scheduler_option,
)
from bigcons.cli.output import emit, reporting


@click.command()
@click.argument("consensus", type=PATH)
@output_option("The page (.html).", name="FILE")
@click.option("--ensemble", type=PATH, metavar="STORE", help="Its ensemble: how the partitions agree.")
@click.option(
    "--features", type=PATH, metavar="TABLE", help="A table of the objects: what is in each cluster."
)
@columns_option("The columns of the table to use.  [default: all]")
@drop_option("Columns to leave out.")
@feature_reading
@click.option("--n-objects", type=click.IntRange(min=1), default=20, show_default=True,
              help="Least certain objects to list.")  # fmt: skip
@click.option("--n-clusters", type=click.IntRange(min=1), default=20, show_default=True,
              help="Clusters, the largest, to tell the contents of.")  # fmt: skip
@click.option("--pictures/--no-pictures", default=True, help="Draw pictures, if matplotlib is installed.")
@memory_option
@scheduler_option
@overwrite_option
@reporting
def report(
    consensus: str,
    out: str,
    ensemble: str | None,
    features: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
    reading: dict[str, Any],
    n_objects: int,
    n_clusters: int,
    pictures: bool,
    memory: str,
    client: str | None,
    overwrite: bool,
) -> None:
    """Write a one-page summary of CONSENSUS.

    One HTML file, without network or scripts: the clusters by size with their confidence, the objects least
    certain, the partitions, the convergence, how it was made, and warnings. With --features, also what is
    in each cluster: means of numbers and dates, and frequent values of text, unless it names objects.
    """
    from bigcons.disk.commit import refuse_existing_file
    from bigcons.io.select import select
    from bigcons.report import Report, check_page

    check_page(out)
    refuse_existing_file(out, overwrite)
    refuse_alone("--features", features, columns=columns, drop=drop, **reading)
    told = Report(
        consensus,
        ensemble=ensemble,
        features=select(features, **reading),
        columns=columns,
        drop=drop,
        n_objects=n_objects,
        n_clusters=n_clusters,
        pictures=pictures,
        memory=memory,
        client=client,
    )
    told.save(out, overwrite=overwrite)
    minded = [
        "".join([f"{title}:", *(f"\n  {sentence}" for sentence in sentences)])
        for title, sentences in (("Warnings", told.warnings), ("Notes", told.notes))
        if sentences
    ]
    emit(
        {"path": out, "facts": told.facts, "warnings": told.warnings, "notes": told.notes},
        "\n".join([out, *minded]),
    )
