"""``bigcons info``, ``verify`` and ``export``: what to do with a store."""

from __future__ import annotations

import sys
from typing import Any

import click

from bigcons.cli.options import (
    PATH,
    STANDARD,
    output_option,
    overwrite_option,
)
from bigcons.cli.output import JSON, amount, emit, facts, reporting, with_clusters


@click.command()
@click.argument("store", type=PATH)
@reporting
def info(store: str) -> None:
    """Describe STORE: an ensemble, a table of pairs or a consensus.

    Its data are not read.
    """
    from bigcons.store.consensus import OF_SIZES, Consensus, stored_clusters_in_words
    from bigcons.store.opening import open_store

    opened = open_store(store)
    result = shown = opened.info()
    if isinstance(opened, Consensus):
        results = {name: value for name, value in result["results"].items() if name not in OF_SIZES}
        shown = {**with_clusters(result, stored_clusters_in_words(opened)), "results": results}
    emit(result, facts(shown))


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


@click.command()
@click.argument("consensus", type=PATH)
@output_option(
    "File for the labels: .parquet, .csv, .csv.gz or .npy; or - for CSV to standard output.",
    name="FILE",
    may_stream=True,
)
@click.option("--memberships", is_flag=True, help="Also write the memberships: cluster_0, cluster_1, ...")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help="Also write the N largest memberships of each object: top_1, top_1_membership, ...",
)
@click.option("--confidence", is_flag=True, help="Also write confidence, second_labels, second_confidence.")
@click.option(
    "--min-confidence", type=click.FloatRange(0, 1), metavar="P", help="Confidence below which a label is -1."
)
@overwrite_option
@reporting
def export(
    consensus: str,
    out: str,
    memberships: bool,
    top: int | None,
    confidence: bool,
    min_confidence: float | None,
    overwrite: bool,
) -> None:
    """Write the labels of CONSENSUS to a file.

    The file has one row per object, in order: its id, if it has one, under the name it came with, and its
    label, -1 if no partition labeled it. An .npy has no ids.
    """
    if memberships and top is not None:
        raise click.UsageError("--top writes the largest of all --memberships; give one of them.")
    given: dict[str, Any] = {"memberships": top or memberships, "confidence": confidence}
    given |= {"min_confidence": min_confidence}
    from bigcons.store.consensus import Consensus

    solved = Consensus.open(consensus)
    if out == STANDARD:
        if click.get_current_context().meta.get(JSON):
            raise click.UsageError("--json prints to standard output, too; give a path with -o.")
        solved.export(sys.stdout.buffer, **given)
        sys.stdout.flush()
        return
    solved.export(out, **given, overwrite=overwrite)
    written = {"labels": True, "memberships": memberships or top is not None, "confidence": confidence}
    *names, last = [name for name, is_given in written.items() if is_given]
    what = f"{', '.join(names)} and {last}" if names else last
    emit(
        {"path": out, "n_objects": solved.n_objects, **given},
        f"{out}: {what} of {amount(solved.n_objects, 'object')}.",
    )
