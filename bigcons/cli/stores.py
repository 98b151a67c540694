"""``bigcons info``, ``verify``, ``export`` and ``harden``: what to do with a store."""

from __future__ import annotations

import sys
from typing import Any

import click

from bigcons.cli.options import PATH, STANDARD, output_option, overwrite_option
from bigcons.cli.output import JSON, amount, emit, emit_ensemble, facts, reporting, with_clusters
from bigcons.memory import format_size


@click.command()
@click.argument("store", type=PATH)
@reporting
def info(store: str) -> None:
    """Describe STORE without reading its data, and what unfinished or killed writers left next to it.

    STORE is an ensemble, a pair table (.zarr or .parquet) or a consensus, or the path of an output that was
    never finished.
    """
    from bigcons.errors import StoreNotFoundError
    from bigcons.storage.commit import leftovers_of
    from bigcons.stores.consensus import OF_SIZES, Consensus

    left = leftovers_of(store)
    try:
        opened = _open(store)
        result = shown = opened.info()
        if isinstance(opened, Consensus):
            results = {name: value for name, value in result["results"].items() if name not in OF_SIZES}
            shown = {**with_clusters(result, opened.clusters_in_words()), "results": results}
    except StoreNotFoundError:
        if not left:
            raise
        result = shown = {"kind": None, "path": store}
    lines = [f"left: {entry.path} ({format_size(entry.n_bytes)}), {entry.what}" for entry in left]
    emit(
        {**result, "leftovers": [entry._asdict() for entry in left]},
        "\n".join([facts(shown), *lines]),
    )


@click.command()
@click.argument("store", type=PATH)
@reporting
def verify(store: str) -> None:
    """Check all data of STORE against its checksums.

    STORE is an ensemble, a pair table (.zarr or .parquet) or a consensus. The check stops at the first
    difference.
    """
    result = _open(store).verify()
    emit({"ok": True, **result}, f"{store} is intact.\n{facts(result)}")


def _open(path: str) -> Any:
    """Open the store at ``path`` with the class for its kind."""
    import bigcons
    from bigcons.storage.commit import read_manifest
    from bigcons.stores.pair_parquet import is_parquet

    if is_parquet(path):
        return bigcons.PairTable.open(path)
    classes: dict[str, Any] = {
        "ensemble": bigcons.Ensemble, "pairs": bigcons.PairTable, "consensus": bigcons.Consensus
    }  # fmt: skip
    return classes[read_manifest(path)["kind"]].open(path)


@click.command()
@click.argument("consensus", type=PATH)
@output_option(
    "File for the labels: .parquet, .csv, .tsv (or these with .gz) or .npy; or - for CSV to standard output.",
    name="FILE",
    may_stream=True,
)
@click.option("--memberships", is_flag=True, help="Also write the memberships: cluster_0, cluster_1, ...")
@click.option("--confidence", is_flag=True, help="Also write confidence, second_labels, second_confidence.")
@overwrite_option
@reporting
def export(consensus: str, out: str, memberships: bool, confidence: bool, overwrite: bool) -> None:
    """Write the labels of CONSENSUS to a file.

    The file has one row per object, in order: its id, if it has one, under the name it came with, and its
    label, -1 if no partition labeled it. An .npy has no ids.
    """
    from bigcons.stores.consensus import Consensus

    solved = Consensus.open(consensus)
    if out == STANDARD:
        if click.get_current_context().meta.get(JSON):
            raise click.UsageError("--json prints to standard output, too; give a path with -o.")
        solved.export(sys.stdout.buffer, memberships=memberships, confidence=confidence)
        sys.stdout.flush()
        return
    solved.export(out, memberships=memberships, confidence=confidence, overwrite=overwrite)
    given = {"labels": True, "memberships": memberships, "confidence": confidence}
    what = " and ".join(name for name, is_given in given.items() if is_given)
    emit(
        {"path": out, "n_objects": solved.n_objects, "memberships": memberships, "confidence": confidence},
        f"{out}: {what} of {amount(solved.n_objects, 'object')}.",
    )


@click.command()
@click.argument("ensemble", type=PATH)
@output_option("Store for the ensemble (.zarr).")
@overwrite_option
@reporting
def harden(ensemble: str, out: str, overwrite: bool) -> None:
    """Store the labels of the largest memberships of ENSEMBLE, for methods and tools that work on labels.

    ENSEMBLE has soft clusterings, from `bigcons import --memberships`.
    """
    from bigcons.stores.ensemble import Ensemble

    emit_ensemble(Ensemble.open(ensemble).harden(out, overwrite=overwrite), out)
