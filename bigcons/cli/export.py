"""``bigcons export``: write the labels of a consensus to a file for other programs."""

from __future__ import annotations

import click

from bigcons.cli.options import PATH, output_option, overwrite_option
from bigcons.cli.output import amount, emit, reporting


@click.command()
@click.argument("consensus", type=PATH)
@output_option("File for the labels: .parquet, .csv or .npy.", name="FILE")
@click.option("--memberships", is_flag=True, help="Also write the memberships: cluster_0, cluster_1, ...")
@overwrite_option
@reporting
def command(consensus: str, out: str, memberships: bool, overwrite: bool) -> None:
    """Write the labels of CONSENSUS to a file.

    The file has one row per object, in order; the label is -1 for objects that no partition labeled.
    """
    from bigcons.stores.consensus import Consensus

    solved = Consensus.open(consensus)
    solved.export(out, memberships=memberships, overwrite=overwrite)
    what = "labels and memberships" if memberships else "labels"
    emit(
        {"path": out, "n_objects": solved.n_objects, "memberships": memberships},
        f"{out}: {what} of {amount(solved.n_objects, 'object')}.",
    )
