"""The commands that show a result: report, plot, export, info, verify."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from bigcons.cli.options import PATH, READING, STANDARD, option, option_name, output_option, shared, taken
from bigcons.cli.output import JSON, emit, facts, reporting
from bigcons.errors import InvalidInputError, StoreExistsError


@click.command()
@click.argument("consensus", type=PATH)
@output_option("The page (.html).", name="FILE")
@shared("ensemble")
@option("--features", type=PATH, metavar="TABLE", help="A table of the objects: what is in each cluster.")
@shared("columns", "drop", *READING)
@option("--n-objects", type=click.IntRange(min=1), default=20, show_default=True,
        help="Least certain objects to list.")  # fmt: skip
@option("--n-clusters", type=click.IntRange(min=1), default=20, show_default=True,
        help="Clusters, the largest, to tell the contents of.")  # fmt: skip
@option("--pictures/--no-pictures", default=True, help="Draw pictures, if matplotlib is installed.")
@shared("memory", "client", "overwrite")
@reporting
def report(consensus: str, out: str, features: str | None, overwrite: bool, **options: Any) -> None:
    """Write a one-page summary of CONSENSUS.

    One HTML file, without network or scripts: the clusters by size with their confidence, the objects least
    certain, the partitions, the convergence, how it was made, and warnings. With --ensemble, also how the
    partitions agree and the tree of clusters. With --features, also what is in each cluster: means of numbers
    and dates, and frequent values of text, unless it names objects.
    """
    from bigcons.disk.commit import refuse_existing_file
    from bigcons.io.columns import select
    from bigcons.report import Report, check_page

    check_page(out)
    refuse_existing_file(out, overwrite)
    reading = taken(options, ("columns", "drop", *READING))
    if features is None and (given := [name for name, value in reading.items() if value is not None]):
        raise click.UsageError(f"{option_name(given[0])} has no effect without --features; give both.")
    page = Report(consensus, features=select(features, **reading), **options)
    page.save(out, overwrite=overwrite)
    result = {"path": out, "facts": page.facts, "warnings": page.warnings, "notes": page.notes}
    emit(result, "\n".join([out, *page.warnings, *page.notes]))


@click.command()
@click.argument("consensus", type=PATH)
@option("-o", "--out", required=True, type=PATH, metavar="FOLDER", help="Folder for the figures.")
@shared("ensemble")
@option("--format", "suffix", type=click.Choice(["png", "pdf", "svg"]), default="png", show_default=True,
        help="File format.")  # fmt: skip
@option("--threshold", type=click.FloatRange(0, 1), default=0.05, show_default=True,
        help="Membership below which an object does not count for a cluster of the graph.")  # fmt: skip
@option("--n-objects", type=click.IntRange(min=2), default=500, show_default=True,
        help="Objects in the co-association figure.")  # fmt: skip
@shared("random_state", "client", "overwrite")
@reporting
def plot(
    consensus: str,
    out: str,
    ensemble: str | None,
    suffix: str,
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
    from bigcons import Consensus, Ensemble, plots
    from bigcons.disk.commit import new_file

    solved = Consensus.open(consensus)
    draw: dict[str, Callable[[], Any]] = {}
    if solved.has_memberships:
        draw["memberships"] = partial(plots.memberships, solved, random_state=random_state)
        draw["clusters"] = partial(plots.cluster_graph, solved, threshold=threshold, client=client)
    if solved.has_trust:
        draw["trust"] = partial(plots.trust, solved)
    unit = "pass" if "pass" in solved.history else "step"
    if len(solved.history.get(unit, ())) > 1:  # a single pass makes no curve
        draw["convergence"] = partial(plots.convergence, solved.history)
    if ensemble is not None:
        sample = {"n_objects": n_objects, "random_state": random_state}
        draw["coassociation"] = partial(plots.coassociation, ensemble, labels=solved, **sample)
        if (opened := Ensemble.open(ensemble)).n_partitions > 1 and not opened.is_soft:
            draw["partitions"] = partial(plots.partitions, opened)
    if not draw:
        raise InvalidInputError(
            f"{consensus} has neither memberships nor several passes; give --ensemble as well."
        )
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{out} is a file, but figures need a folder; give the path of a folder.")
    paths = {name: folder / f"{name}.{suffix}" for name in draw}
    existing = [str(path) for path in paths.values() if path.exists()]
    if existing and not overwrite:
        raise StoreExistsError(
            f"{existing[0]} exists; pass --overwrite or choose another folder.", path=existing[0]
        )
    for name, figure in {name: make() for name, make in draw.items()}.items():
        with new_file(paths[name], overwrite=overwrite) as file:
            figure.savefig(file, format=suffix)
    written = [str(path) for path in paths.values()]
    emit({"figures": written}, "\n".join(written))


@click.command()
@click.argument("consensus", type=PATH)
@output_option("File for the labels: .parquet, .csv or .npy; or - for CSV to standard output.", name="FILE",
               may_stream=True)  # fmt: skip
@option("--memberships", is_flag=True, help="Also write the memberships: cluster_0, cluster_1, ...")
@option("--confidence", is_flag=True, help="Also write confidence, second_labels, second_confidence.")
@option("--min-confidence", type=click.FloatRange(0, 1), metavar="P",
        help="Confidence below which a label is -1.")  # fmt: skip
@shared("overwrite")
@reporting
def export(consensus: str, out: str, overwrite: bool, **given: Any) -> None:
    """Write the labels of CONSENSUS to a file.

    The file has one row per object, in order: its id, if it has one, under the name it came with, and its
    label, -1 if no partition labeled it. An .npy has no ids.
    """
    from bigcons import Consensus

    solved = Consensus.open(consensus)
    if out == STANDARD:
        if click.get_current_context().meta.get(JSON):
            raise click.UsageError("--json prints to standard output, too; give a path with -o.")
        solved.export(sys.stdout.buffer, **given)
        sys.stdout.flush()
        return
    solved.export(out, **given, overwrite=overwrite)
    emit({"path": out, "n_objects": solved.n_objects, **given})


@click.command()
@click.argument("store", type=PATH)
@reporting
def info(store: str) -> None:
    """Describe STORE: an ensemble, a table of pairs or a consensus.

    Its data are not read.
    """
    from bigcons.store.opening import open_store

    emit(open_store(store).info())


@click.command()
@click.argument("store", type=PATH)
@reporting
def verify(store: str) -> None:
    """Check all data of STORE against its checksums.

    STORE is an ensemble or a pair table (.zarr or .parquet), a consensus, or the output of an unfinished
    solve. The check stops at the first difference. Ends with 0 if STORE is intact, else with 1 and what is
    damaged.
    """
    from bigcons.store.opening import verify_store

    result = verify_store(store)
    emit({"ok": True, **result}, f"{store} is intact.\n{facts(result)}")
