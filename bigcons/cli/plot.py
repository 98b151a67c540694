"""``bigcons plot``: draw figures of a consensus."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bigcons.cli.options import (
    PATH,
    TABLE,
    columns_option,
    drop_option,
    feature_reading,
    overwrite_option,
    random_state_option,
    refuse_alone,
    scheduler_option,
)
from bigcons.cli.output import emit, reporting
from bigcons.errors import InvalidInputError, StoreExistsError

if TYPE_CHECKING:
    from bigcons.store.consensus import Consensus
    from bigcons.store.features import Features


@click.command()
@click.argument("consensus", type=PATH)
@click.option("-o", "--out", required=True, type=PATH, metavar="FOLDER", help="Folder for the figures.")
@click.option("--ensemble", type=PATH, metavar="STORE", help="Its ensemble, for the co-association figure.")
@click.option(
    "--format",
    "suffix",
    type=click.Choice(["png", "pdf", "svg"]),
    default="png",
    show_default=True,
    help="File format.",
)
@click.option(
    "--features", type=TABLE, metavar="FILE", help="Features, for centroids in the graph of clusters."
)
@columns_option("Columns of the features.  [default: all]")
@drop_option("Columns that are not features.")
@feature_reading
@click.option(
    "--glyph",
    type=click.Choice(["profile", "strokes"]),
    help="How a centroid is drawn: its features as a curve, or as the path of a pen x, y, x, y, ....  "
    "[default: profile]",
)
@click.option("--threshold", type=click.FloatRange(0, 1), default=0.05, show_default=True,
              help="Membership below which an object does not count for a cluster of the graph.")  # fmt: skip
@click.option("--n-objects", type=click.IntRange(min=2), default=500, show_default=True,
              help="Objects in the co-association figure.")  # fmt: skip
@random_state_option
@scheduler_option
@overwrite_option
@reporting
def plot(
    consensus: str,
    out: str,
    ensemble: str | None,
    suffix: str,
    features: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
    reading: dict[str, Any],
    glyph: str | None,
    threshold: float,
    n_objects: int,
    random_state: int,
    client: str | None,
    overwrite: bool,
) -> None:
    """Draw figures of CONSENSUS.

    Draws the memberships and the graph of overlapping clusters (of a soft method), how far clusters and
    objects can be trusted (if it says so), the convergence (of several passes) and, with --ensemble, the
    co-association of a sample of the objects and the agreement of partitions.
    """
    from bigcons import plots
    from bigcons.disk.commit import new_file
    from bigcons.io.select import select
    from bigcons.store.consensus import Consensus
    from bigcons.store.ensemble import Ensemble

    solved = Consensus.open(consensus)
    refuse_alone("--features", features, columns=columns, drop=drop, glyph=glyph, **reading)
    if features is not None and not solved.has_memberships:
        raise InvalidInputError(f"{consensus} has no memberships, so no graph of clusters; omit --features.")
    drawings: dict[str, Callable[[], Any]] = {}
    if solved.has_memberships:
        drawings["memberships"] = partial(plots.memberships, solved, random_state=random_state)
        data = None
        if features is not None:
            data = _open_features(solved, select(features, **reading), columns, drop)
        drawings["clusters"] = partial(_graph, solved, data, glyph or "profile", threshold, client)
    if solved.has_trust:
        drawings["trust"] = partial(plots.trust, solved)
    unit = "pass" if "pass" in solved.history else "step"
    if len(solved.history.get(unit, ())) > 1:  # a single pass makes no curve
        drawings["convergence"] = partial(plots.convergence, solved.history)
    if ensemble is not None:
        drawings["coassociation"] = partial(
            plots.coassociation,
            ensemble,
            labels=solved,
            n_objects=n_objects,
            random_state=random_state,
        )
        if (opened := Ensemble.open(ensemble)).n_partitions > 1 and not opened.is_soft:
            drawings["partitions"] = partial(plots.partitions, opened)
    if not drawings:
        raise InvalidInputError(
            f"{consensus} has neither memberships nor several passes; give --ensemble as well."
        )
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{out} is a file, but figures need a folder; give the path of a folder.")
    paths = {name: folder / f"{name}.{suffix}" for name in drawings}
    existing = [str(path) for path in paths.values() if path.exists()]
    if existing and not overwrite:
        raise StoreExistsError(
            f"{existing[0]} exists; pass --overwrite or choose another folder.", path=existing[0]
        )
    figures = {name: draw() for name, draw in drawings.items()}
    for name, figure in figures.items():
        with new_file(paths[name], overwrite=overwrite) as file:
            figure.savefig(file, format=suffix)
    written = [str(path) for path in paths.values()]
    emit({"figures": written}, "\n".join(written))


def _graph(solved: Any, features: Any, glyph: str, threshold: float, client: str | None) -> Any:
    from bigcons import plots
    from bigcons.metrics import cluster_centroids

    centroids = None if features is None else cluster_centroids(features, solved, threshold)
    return plots.cluster_graph(solved, centroids=centroids, glyph=glyph, threshold=threshold, client=client)


def _open_features(
    solved: Consensus, source: Any, columns: list[str] | None, drop: list[str] | None
) -> Features:
    """Open the features of the objects of a consensus; their ids, if they have them, must be the same."""
    from bigcons.io.ids import refuse_other_ids
    from bigcons.io.intake import open_table
    from bigcons.io.select import source_of
    from bigcons.store.features import open_features

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
