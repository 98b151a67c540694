"""``bigcons score``: evaluate a consensus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bigcons.cli.options import PATH
from bigcons.cli.output import did_you_mean, emit, facts, reporting, some, with_clusters
from bigcons.errors import InvalidInputError

if TYPE_CHECKING:
    import numpy as np

    from bigcons.stores.consensus import Consensus
    from bigcons.stores.ensemble import Ensemble


@click.command()
@click.argument("consensus", type=PATH)
@click.option("--truth", type=PATH, metavar="FILE", help="True classes, one row per object.")
@click.option("--column", help="Column of the truth file.  [default: its only column]")
@click.option("--ensemble", type=PATH, metavar="STORE", help="Its ensemble, for criteria that need no truth.")
@click.option(
    "--features", type=PATH, metavar="FILE", help="Features of the objects, for the compactness of clusters."
)
@click.option(
    "--metric",
    type=click.Choice(["euclidean", "sqeuclidean", "cityblock"]),
    help="Distance for the compactness; sqeuclidean takes one pass, the others visit all pairs within each "
    "cluster.  [default: euclidean]",
)
@reporting
def score(
    consensus: str,
    truth: str | None,
    column: str | None,
    ensemble: str | None,
    features: str | None,
    metric: str | None,
) -> None:
    """Evaluate CONSENSUS against a truth, its ensemble or features.

    The truth is a .parquet, .csv, .csv.gz, .npy, .npz or .zarr file. Objects without a class in it, or
    without a label in the consensus, are omitted.

    Higher is better, except for van_dongen, variation_of_information, pcc_objective and compactness, which
    are distances or costs. Criteria named mean_... are averages over the partitions of the ensemble, and
    anmi is one weighted by their numbers of labels.
    """
    from bigcons import metrics
    from bigcons.metrics.clusterings import OF_TRUTH, truth_table
    from bigcons.stores.consensus import Consensus, clusters_in_words, count_clusters
    from bigcons.stores.features import open_features

    if truth is None and ensemble is None and features is None:
        raise click.UsageError(
            "Nothing to compare with; give one or more of --truth, --ensemble, --features."
        )
    for option, value, needed, of in (
        ("--column", column, "--truth", truth),
        ("--metric", metric, "--features", features),
    ):
        if value is not None and of is None:
            raise click.UsageError(f"{option} has no effect without {needed}; give both or neither.")
    solved = Consensus.open(consensus)
    counted = count_clusters(solved.cluster_sizes())
    result: dict[str, Any] = {"path": consensus, "n_objects": solved.n_objects, **counted}
    if truth is not None:
        table = truth_table(read_classes(truth, column, solved.n_objects), solved.label_rows)
        result["n_judged"] = int(table.sum())
        result |= {name: criterion(table) for name, criterion in OF_TRUTH.items()}
    if ensemble is not None:
        result |= _by_ensemble(solved, ensemble)
    if features is not None:
        data = open_features(features)
        if data.n_objects != solved.n_objects:
            raise InvalidInputError(
                f"{features} has {data.n_objects} rows but {solved.path} has {solved.n_objects} objects; "
                "give one row per object, in order."
            )
        result["compactness"] = metrics.compactness(data, solved.labels, metric=metric or "euclidean")
    emit(result, facts(with_clusters(result, clusters_in_words(**counted, most=solved.n_clusters))))


def _by_ensemble(solved: Consensus, path: str) -> dict[str, Any]:
    """Return the criteria without a truth; pcc_objective is that of l2 over all pairs."""
    from bigcons import metrics
    from bigcons.metrics.clusterings import OF_TWO_CLUSTERINGS
    from bigcons.metrics.ensemble import anmi_of_tables, average_of_tables, partition_tables
    from bigcons.stores.ensemble import as_ensemble

    ensemble = as_ensemble(path)
    if ensemble.n_objects != solved.n_objects:
        raise InvalidInputError(
            f"{path} has {ensemble.n_objects} objects but {solved.path} has {solved.n_objects}; "
            "give the ensemble that the consensus was computed from."
        )
    tables, covered = partition_tables(ensemble, solved.label_rows)
    scores = {"anmi": anmi_of_tables(tables, covered)}
    for name, criterion in OF_TWO_CLUSTERINGS.items():
        scores[f"mean_{name}"] = average_of_tables(criterion, tables, weighted=False)
    if solved.has_memberships:
        scores["pcc_objective"] = metrics.pcc_objective(ensemble, solved.membership_rows, constant=False)
    return scores


def read_classes(path: str, column: str | None, n_objects: int) -> np.ndarray:
    """Return the classes of a truth file as integers, -1 where missing."""
    table = _table(path)
    names = list(table.names)
    if column is None and len(names) > 1:
        raise InvalidInputError(f"{path} has the columns {some(names)}; choose one with --column.")
    if column is not None and column not in names:
        raise InvalidInputError(
            f"{path} has no column {column!r}; choose one of {some(names)}.{did_you_mean(column, names)}"
        )
    if table.n_objects != n_objects:
        raise InvalidInputError(
            f"{path} has {table.n_objects} rows but the consensus has {n_objects} objects; "
            "give one class per object, in order."
        )
    return table.read(0, n_objects)[:, names.index(column) if column else 0]


def _table(path: str) -> Ensemble:
    """Read a truth file as a table of labels; a .npy file may also hold a vector."""
    import numpy as np

    from bigcons.stores.ensemble import Ensemble

    if not path.endswith(".npy"):
        return Ensemble.from_labels(path)
    try:
        classes = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidInputError(
            f"{path} is not a plain .npy array ({error}); write one with numpy.save."
        ) from error
    return Ensemble.from_labels(classes[:, None] if classes.ndim == 1 else classes)
