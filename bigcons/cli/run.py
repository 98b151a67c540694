"""``bigcons run``: from features to a consensus in one command."""

from __future__ import annotations

import time
from typing import Any

import click

from bigcons.cli.generate import base_clusters
from bigcons.cli.options import (
    TABLE,
    memory_option,
    one_or_many,
    output_option,
    overwrite_option,
    random_state_option,
    scheduler_option,
    table_options,
)
from bigcons.cli.output import emit, facts, reporting, telling_finished, with_clusters
from bigcons.cli.score import read_classes
from bigcons.cli.solve import cluster_count, complete_method, known_method, parse_method

SAMPLE = 0.5
LEAST_HIGH = 10


@click.command()
@click.argument("features", nargs=-1, required=True, type=TABLE)
@output_option("Folder or bucket for ensemble.zarr and consensus.zarr.", name="FOLDER")
@table_options("features")
@click.option(
    "-k",
    "--n-clusters",
    type=cluster_count,
    required=True,
    metavar="K",
    help="Clusters of the consensus, at most.",
)
@click.option(
    "-m",
    "--method",
    callback=known_method,
    default="pcc",
    show_default=True,
    help="Method, one of those listed by `bigcons methods`, with its defaults.",
    shell_complete=complete_method,
)
@click.option(
    "--n-partitions", type=click.IntRange(min=1), default=100, show_default=True, help="Number of partitions."
)
@click.option(
    "--base-clusters",
    type=base_clusters,
    metavar="K|MIN:MAX|split",
    help="Clusters per partition.  [default: 2:MAX with MAX twice -k, at least 10]",
)
@click.option(
    "--truth", type=TABLE, metavar="FILE", help="True classes, one row per object, to score against."
)
@click.option("--column", help="Column of the truth file.  [default: its only column]")
@memory_option
@scheduler_option
@random_state_option
@overwrite_option
@reporting
def run(
    features: tuple[str, ...],
    out: str,
    id: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
    n_clusters: int | range | str,
    method: str,
    n_partitions: int,
    base_clusters: tuple[int, int] | str | None,
    truth: str | None,
    column: str | None,
    memory: str,
    client: str | None,
    random_state: int,
    overwrite: bool,
) -> None:
    """Cluster FEATURES many times and find the consensus.

    Short for `bigcons generate` with k-means on random halves of the objects, `bigcons solve` and, with a
    truth, `bigcons score`. FEATURES is one table or several, as for `bigcons generate`, and need not fit in
    memory; each step keeps to the memory budget. Repeating the command resumes an interrupted run and finds
    the result of a finished one. What was chosen is printed, with the time of each step.
    """
    from bigcons.tables.files import refuse_missing

    for path in (*features, *([] if truth is None else [truth])):
        refuse_missing(path)  # methods take seconds to import

    from bigcons import generate
    from bigcons.metrics.clusterings import OF_TRUTH, truth_table
    from bigcons.stores.consensus import Consensus, fit_results
    from bigcons.stores.features import open_features

    if column is not None and truth is None:
        raise click.UsageError("--column has no effect without --truth; give both or neither.")
    if base_clusters is None:
        most = n_clusters[-1] if isinstance(n_clusters, range) else n_clusters
        base_clusters = (2, max(LEAST_HIGH, 2 * most)) if isinstance(most, int) else (2, LEAST_HIGH)
    ensemble_path, consensus_path = (f"{out.rstrip('/')}/{name}.zarr" for name in ("ensemble", "consensus"))
    given: dict[str, Any] = {"n_clusters": n_clusters, "memory": memory, "random_state": random_state}
    given |= {} if client is None else {"client": client}
    _, model = parse_method(method, (ensemble_path,), given)
    data = open_features(one_or_many(features), id=id, columns=columns, drop=drop)
    classes = None if truth is None else read_classes(truth, column, data.n_objects, data.ids)

    began = time.perf_counter()
    ensemble = generate.kmeans(
        data,
        n_partitions=n_partitions,
        n_clusters=base_clusters,
        sample=SAMPLE,
        out=ensemble_path,
        memory=memory,
        random_state=random_state,
        overwrite=overwrite,
        client=client,
    )
    generated = time.perf_counter()
    with telling_finished(consensus_path, "run", overwrite):
        model.fit(ensemble_path, out=consensus_path, overwrite=overwrite)
    solved = time.perf_counter()

    made_with = ensemble.provenance
    low, high = made_with["n_clusters"]
    trained_on = (
        f"samples of {made_with['sample_rows']:,}" if made_with["train"] == "samples" else "all they see"
    )
    result: dict[str, Any] = {
        "kind": "run",
        "ensemble": {
            "path": ensemble_path,
            "n_objects": ensemble.n_objects,
            "n_features": len(made_with["features"]),
            "n_partitions": ensemble.n_partitions,
            "clusters_per_partition": [low, high],
            "sample": SAMPLE,
            "trained_on": trained_on,
            "seconds": generated - began,
        },
        "consensus": {
            "path": consensus_path,
            "method": method,
            "memory": memory,
            "random_state": random_state,
            "seconds": solved - generated,
            **fit_results(model),
        },
    }
    if classes is not None:
        table = truth_table(classes, Consensus.open(consensus_path).label_rows)
        scores = {name: criterion(table) for name, criterion in OF_TRUTH.items()}
        result["scores"] = {"n_judged": int(table.sum()), **scores}
    words = Consensus.open(consensus_path).clusters_in_words()
    shown = {**result, "consensus": with_clusters(result["consensus"], words)}
    emit(result, facts({name: part for name, part in shown.items() if name != "kind"}))
