"""``bigcons generate``: base partitions of a feature table."""

from __future__ import annotations

import click

from bigcons.cli.options import (
    ClusterRange,
    memory_option,
    output_option,
    overwrite_option,
    random_state_option,
)
from bigcons.cli.output import emit, reporting


@click.command()
@click.argument("features")
@output_option("Where the ensemble goes (.zarr).")
@click.option(
    "--n-partitions", type=click.IntRange(min=1), default=100, show_default=True, help="Partitions."
)
@click.option(
    "--n-clusters", type=ClusterRange(), default="2:10", show_default=True, help="Clusters of a partition."
)
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.5,
    show_default=True,
    help="Share of the objects each partition sees; the others have no label in it.",
)
@click.option(
    "--standardize/--no-standardize", default=True, help="Bring features to mean 0, deviation 1 (default)."
)
@random_state_option
@memory_option
@overwrite_option
@reporting
def command(
    features: str,
    out: str,
    n_partitions: int,
    n_clusters: tuple[int, int],
    sample: float,
    standardize: bool,
    random_state: int,
    memory: str,
    overwrite: bool,
) -> None:
    """Cluster FEATURES many times by k-means.

    The partitions, each of a random sample of the objects, are stored as an ensemble. FEATURES is a
    .parquet, .csv, .npy or .zarr of one row per object; it is read in blocks and need not fit in memory.
    """
    from bigcons import generate

    ensemble = generate.kmeans(
        features,
        n_partitions=n_partitions,
        n_clusters=n_clusters,
        sample=sample,
        out=out,
        standardize=standardize,
        memory=memory,
        random_state=random_state,
        overwrite=overwrite,
    )
    emit(
        ensemble.info(),
        f"{out}: {ensemble.n_objects:,} objects in {ensemble.n_partitions:,} partitions "
        f"with {ensemble.n_base_clusters:,} clusters in all.",
    )
