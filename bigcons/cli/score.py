"""``bigcons score``: how good a consensus is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bigcons.cli.output import emit, facts, reporting
from bigcons.errors import InvalidInputError

if TYPE_CHECKING:
    import numpy as np

    from bigcons.stores.consensus import Consensus
    from bigcons.stores.ensemble import Ensemble


@click.command()
@click.argument("consensus")
@click.option("--truth", metavar="FILE", help="True classes, one row per object.")
@click.option("--column", help="Column of the truth file.  [default: its only one]")
@click.option("--ensemble", metavar="STORE", help="Its ensemble, for the criteria that need no truth.")
@reporting
def command(consensus: str, truth: str | None, column: str | None, ensemble: str | None) -> None:
    """Judge CONSENSUS by a truth or by its ensemble.

    The truth is a .parquet, .csv, .npy, .npz or .zarr. Objects without a class in it, or without a label
    in the consensus, are left out.
    """
    from bigcons.stores.consensus import Consensus

    if truth is None and ensemble is None:
        raise click.UsageError("Give --truth, --ensemble or both: there is nothing to judge by.")
    solved = Consensus.open(consensus)
    result: dict[str, Any] = {"path": consensus, "n_objects": solved.n_objects}
    if truth is not None:
        result |= _by_truth(solved, _classes(truth, column, solved.n_objects))
    if ensemble is not None:
        result |= _by_ensemble(solved, ensemble)
    emit(result, facts(result))


def _by_truth(solved: Consensus, classes: np.ndarray) -> dict[str, Any]:
    from bigcons import metrics

    labels = solved.labels
    return {
        "n_judged": int(((classes >= 0) & (labels >= 0)).sum()),
        "matching_accuracy": metrics.matching_accuracy(classes, labels),
        "adjusted_rand": metrics.adjusted_rand(classes, labels),
        "nmi": metrics.nmi(classes, labels),
        "purity": metrics.purity(classes, labels),
    }


def _by_ensemble(solved: Consensus, path: str) -> dict[str, Any]:
    """Return the criteria that need no truth; the objective is that of the squared divergence, all pairs."""
    from bigcons import metrics
    from bigcons.stores.ensemble import as_ensemble

    ensemble = as_ensemble(path)
    if ensemble.n_objects != solved.n_objects:
        raise InvalidInputError(
            f"{path} has {ensemble.n_objects} objects but {solved.path} has {solved.n_objects}; "
            "give the ensemble the consensus was made from."
        )
    return {
        "anmi": metrics.anmi(ensemble, solved.labels),
        "pcc_objective": metrics.pcc_objective(ensemble, solved.memberships, constant=False),
    }


def _classes(path: str, column: str | None, n_objects: int) -> np.ndarray:
    """Return the classes in a truth file as integers, -1 where there is none."""
    table = _table(path)
    names = list(table.names)
    if column is None and len(names) > 1:
        raise InvalidInputError(f"{path} has the columns {', '.join(names)}; choose one with --column.")
    if column is not None and column not in names:
        raise InvalidInputError(f"{path} has no column {column!r}; choose one of {', '.join(names)}.")
    if table.n_objects != n_objects:
        raise InvalidInputError(
            f"{path} has {table.n_objects} rows but the consensus has {n_objects} objects; "
            "give one class per object, in the order of the objects."
        )
    return table.read(0, n_objects)[:, names.index(column) if column else 0]


def _table(path: str) -> Ensemble:
    """Read a truth file as a table of labels; an .npy may also hold one plain vector."""
    import numpy as np

    from bigcons.stores.ensemble import Ensemble

    if not path.endswith(".npy"):
        return Ensemble.from_labels(path)
    try:
        classes = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidInputError(
            f"{path} holds no plain array ({error}); save one with numpy.save."
        ) from error
    return Ensemble.from_labels(classes[:, None] if classes.ndim == 1 else classes)
