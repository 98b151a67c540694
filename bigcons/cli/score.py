"""``bigcons score``: evaluate a consensus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bigcons.cli.options import (
    PATH,
    TABLE,
    columns_option,
    drop_option,
    reading_options,
    refuse_alone,
    scheduler_option,
)
from bigcons.cli.output import emit, facts, reporting, some, with_clusters
from bigcons.errors import InvalidIdsError, InvalidInputError

if TYPE_CHECKING:
    import numpy as np

    from bigcons.stores.consensus import Consensus
    from bigcons.stores.features import Features
    from bigcons.tables.ids import Ids


@click.command()
@click.argument("consensus", type=PATH)
@click.option("--truth", type=TABLE, metavar="FILE", help="True classes, one row per object.")
@click.option("--column", help="Column of the truth file.  [default: its only column]")
@click.option(
    "--id",
    metavar="NAME",
    help="Column of the truth file that identifies the objects.  [default: that of the consensus, if it is "
    "there; else rows are in order]",
)
@reading_options("missing", "sep", "header", "decimal")
@click.option("--ensemble", type=PATH, metavar="STORE", help="Its ensemble, for criteria that need no truth.")
@click.option(
    "--features", type=TABLE, metavar="FILE", help="Features of the objects, for the compactness of clusters."
)
@columns_option("Columns of the features.  [default: all]")
@drop_option("Columns that are not features.")
@click.option(
    "--metric",
    type=click.Choice(["euclidean", "sqeuclidean", "cityblock"]),
    help="Distance for the compactness; sqeuclidean takes one pass, the others visit all pairs within each "
    "cluster.  [default: euclidean]",
)
@scheduler_option
@reporting
def score(
    consensus: str,
    truth: str | None,
    column: str | None,
    id: str | None,
    reading: dict[str, Any],
    ensemble: str | None,
    features: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
    metric: str | None,
    client: str | None,
) -> None:
    """Evaluate CONSENSUS by a truth, its ensemble or features.

    The truth is a .parquet, .csv, .tsv (or these compressed), .npy, .npz or .zarr, a folder, a pattern
    or -, standard input; only the column is read. If the objects have ids, and it has them, its rows may be
    in any order, and of more objects; truth_rows says how they were joined. Objects without a class in it, or
    without a label in the consensus, are omitted.
    --missing is for the truth, --decimal for the features; --sep and --header are for both.

    matching_accuracy is H, also called the consistency index; micro_precision matches the largest overlaps
    first, and is the same where that is the best matching.

    Higher is better, except for van_dongen, variation_of_information, pcc_objective and compactness, which
    are distances or costs. Criteria named mean_... are averages over the partitions of the ensemble, and
    anmi is one weighted by their numbers of labels.
    """
    from bigcons import metrics
    from bigcons.metrics.clusterings import OF_TRUTH, truth_table
    from bigcons.solving.results import count_clusters
    from bigcons.stores.consensus import Consensus, clusters_in_words
    from bigcons.tables.select import select

    if truth is None and ensemble is None and features is None:
        raise click.UsageError(
            "Nothing to compare with; give one or more of --truth, --ensemble, --features."
        )
    missing, decimal = reading.pop("missing"), reading.pop("decimal")
    refuse_alone("--truth", truth, column=column, id=id, missing=missing)
    refuse_alone("--truth or --features", truth or features, **reading)
    refuse_alone("--features", features, columns=columns, drop=drop, decimal=decimal, metric=metric)
    solved = Consensus.open(consensus)
    counted = count_clusters(solved.cluster_sizes())
    result: dict[str, Any] = {"path": consensus, "n_objects": solved.n_objects, **counted}
    if truth is not None:
        read = select(truth, missing=missing, **reading)
        classes, joined = read_classes(read, column, solved.n_objects, solved.id_column, id)
        table = truth_table(classes, solved.label_rows)
        result |= {"truth_rows": joined, "n_judged": int(table.sum())}
        result |= {name: criterion(table) for name, criterion in OF_TRUTH.items()}
    if ensemble is not None:
        result |= _by_ensemble(solved, ensemble, client)
    if features is not None:
        read = select(features, decimal=decimal, **reading)
        data = open_features_of(solved, read, columns, drop)
        metric = metric or "euclidean"
        result["compactness"] = metrics.compactness(data, solved.labels, metric=metric, client=client)
    emit(result, facts(with_clusters(result, clusters_in_words(**counted, most=solved.n_clusters))))


def open_features_of(
    solved: Consensus, source: Any, columns: list[str] | None, drop: list[str] | None
) -> Features:
    """Open the features of the objects of a consensus; their ids, if they have them, must be the same."""
    from bigcons.stores.features import open_features
    from bigcons.tables.ids import refuse_other_ids
    from bigcons.tables.intake import open_table
    from bigcons.tables.select import source_of

    known, id = solved.id_column, None
    if known is not None:
        names = open_table(source, "features").names or []
        id = known.facts.name if known.facts.name in names else None
    path = source_of(source)
    data = open_features(source, id=id, columns=columns, drop=drop)
    if data.n_objects != solved.n_objects:
        raise InvalidInputError(
            f"{path} has {data.n_objects:,} rows but {solved.path} has {solved.n_objects:,} objects; "
            "give one row per object, in order."
        )
    if known is not None and data.ids is not None and data.ids.facts.digest != known.facts.digest:
        refuse_other_ids(known.blocks(), data.ids.blocks(), data.ids.facts.name, path)
    return data


def _by_ensemble(solved: Consensus, path: str, client: str | None) -> dict[str, Any]:
    """Return the criteria without a truth; pcc_objective is that of l2 over all pairs."""
    from bigcons import metrics
    from bigcons.metrics.clusterings import OF_TWO_CLUSTERINGS
    from bigcons.metrics.ensemble import anmi_of_tables, average_of_tables, partition_tables
    from bigcons.stores.ensemble import as_ensemble

    ensemble = as_ensemble(path)
    if ensemble.n_objects != solved.n_objects:
        raise InvalidInputError(
            f"{path} has {ensemble.n_objects:,} objects but {solved.path} has {solved.n_objects:,}; "
            "give the ensemble that the consensus was computed from."
        )
    tables, covered = partition_tables(ensemble, solved.label_rows, client=client)
    scores = {"anmi": anmi_of_tables(tables, covered)}
    for name, criterion in OF_TWO_CLUSTERINGS.items():
        scores[f"mean_{name}"] = average_of_tables(criterion, tables, weighted=False)
    if solved.has_memberships:
        scores["pcc_objective"] = metrics.pcc_objective(
            ensemble, solved.membership_rows, constant=False, client=client
        )
    return scores


def read_classes(
    source: Any, column: str | None, n_objects: int, ids: Ids | None = None, id: str | None = None
) -> tuple[np.ndarray, str]:
    """Return the classes of a truth file as integers, -1 where missing, and how its rows were joined.

    Only their column is read. Where the objects have ids and the file has them, in the column ``id`` or one
    of their name, rows are matched by them.
    """
    import numpy as np

    from bigcons.stores.ensemble import Ensemble
    from bigcons.tables.intake import open_table
    from bigcons.tables.select import select, source_of

    path = source_of(source)
    is_anndata = path.lower().endswith(".h5ad")  # whose columns may be measurements, and are only looked at
    table = open_table(select(source, columns="*") if is_anndata else source, "labels")
    names = table.names or [str(c) for c in range(table.n_columns)]
    if id is not None and ids is None:
        raise InvalidInputError(f"the objects of the consensus have no ids to match {id!r}; leave out --id.")
    if id is None and ids is not None and ids.facts.name in names and ids.facts.name != column:
        id = ids.facts.name
    others = [name for name in names if name != id]
    if column is None and len(others) != 1:
        raise InvalidInputError(f"{path} has the columns {some(others)}; choose one with --column.")
    if id is None and table.n_rows is not None:
        _check_length(path, table.n_rows, n_objects)
    truth = Ensemble.from_labels(source, id=id, columns=others[0] if column is None else column)
    classes = truth.read(0, truth.n_objects)[:, 0]
    if ids is None or truth.id_column is None:
        _check_length(path, truth.n_objects, n_objects)
        return classes, "in order"
    joined = f"by {truth.id_column.facts.name}"
    if truth.id_column.facts.digest == ids.facts.digest:
        return classes, joined  # the same ids in the same order
    found, known = truth.id_column.hold().values, ids.hold().values
    if found.type != known.type:
        raise InvalidIdsError(
            f"{id} of {path} is {found.type} but the ids of the objects are {known.type}; convert them.",
            column=id,
        )
    import pyarrow.compute as pc

    rows = pc.index_in(known, value_set=found)
    if rows.null_count == len(rows):
        raise InvalidIdsError(f"{path} has none of the objects by {id}; check the column.", column=id)
    return np.append(classes, classes.dtype.type(-1))[pc.fill_null(rows, -1).to_numpy()], joined


def _check_length(path: str, n_rows: int, n_objects: int) -> None:
    if n_rows != n_objects:
        raise InvalidInputError(
            f"{path} has {n_rows:,} rows but the consensus has {n_objects:,} objects; "
            "give one class per object, in order."
        )
