"""``bigcons trust``: which answers of a consensus to trust."""

from __future__ import annotations

from typing import Any

import click

from bigcons.cli.options import PATH, scheduler_option
from bigcons.cli.output import emit, facts, reporting, table


@click.command()
@click.argument("consensus", type=PATH)
@click.option(
    "--ensemble", type=PATH, metavar="STORE", help="Its ensemble, for a consensus without confidence."
)
@click.option("--partitions", is_flag=True, help="Also list the partitions.")
@scheduler_option
@reporting
def trust(consensus: str, ensemble: str | None, partitions: bool, client: str | None) -> None:
    """Show how far the labels of CONSENSUS can be trusted.

    Prints how sure the labels of the objects are, and a table of the clusters: their mean confidence, their
    stability if half of the partitions are left out, how much more often their objects share a label than
    others do (tightness), and than those of the nearest cluster (separation). --partitions adds what each
    partition tells about the clusters (weight, of mean 1), and how much it repeats another one (redundancy).

    tree and pcc store all of this with their result; for other methods give --ensemble. `bigcons export
    --confidence` writes the confidence of each object to a file.
    """
    import numpy as np

    from bigcons import metrics
    from bigcons.stores.consensus import Consensus

    solved = Consensus.open(consensus)
    found = solved.trust if ensemble is None else metrics.trust(ensemble, solved, client=client)
    confidence, tables = found.confidence[solved.labels >= 0], (found.clusters, found.partitions)
    clusters, all_partitions = (rows.to_pylist() for rows in tables)
    result = {
        "consensus": consensus,
        "n_objects": solved.n_objects,
        "n_unlabeled": solved.n_objects - len(confidence),
        "confidence": float(confidence.mean(dtype=np.float64)),
        "n_below_90": int(np.count_nonzero(confidence < 0.9)),
        "n_below_50": int(np.count_nonzero(confidence < 0.5)),
        "temperature": found.temperature,
    }
    shown = [facts(result), _laid_out(clusters), *([_laid_out(all_partitions)] if partitions else [])]
    emit({**result, "clusters": clusters, "partitions": all_partitions}, "\n\n".join(shown))


def _laid_out(rows: list[dict[str, Any]]) -> str:
    cells = [{name: _cell(value) for name, value in row.items()} for row in rows]
    return table(list(rows[0]), cells, text=("most_alike",))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
