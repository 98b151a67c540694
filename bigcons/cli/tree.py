"""``bigcons tree``: the tree of clusters of an ensemble."""

from __future__ import annotations

from typing import Any

import click

from bigcons.cli.options import (
    PATH,
    TABLE,
    memory_option,
    overwrite_option,
    random_state_option,
    scheduler_option,
)
from bigcons.cli.output import amount, emit, reporting, table

SHOWN = 20


@click.command()
@click.argument("store", type=PATH)
@click.option("-k", "--n-clusters", type=click.IntRange(min=2), help="Clusters down to which to show it.  "
              "[default: the number recommended, and as many again]")  # fmt: skip
@click.option("--tree", "name", type=click.Choice(["average", "distinctness"]),
              help="Which tree.  [default: the one that agrees better with the partitions]")  # fmt: skip
@click.option("--features", type=TABLE, help="Features that the ensemble was generated of, for a p-value of "
              "each number of clusters, by 20 draws of one Gaussian.")  # fmt: skip
@click.option("-o", "--out", "--picture", "out", type=PATH, metavar="FILE", help="Draw the tree (.png, .pdf "
              "or .svg), or write the table of all splits (.csv or .parquet).")  # fmt: skip
@memory_option
@random_state_option
@scheduler_option
@overwrite_option
@reporting
def tree(
    store: str,
    n_clusters: int | None,
    name: str | None,
    features: str | None,
    out: str | None,
    memory: str,
    random_state: int | None,
    client: str | None,
    overwrite: bool,
) -> None:
    """Show the tree of clusters and the support of its splits.

    STORE is an ensemble, or a consensus whose number of clusters was chosen, which has kept the tree.

    Prints the number of clusters recommended, and a table of the splits from the top: the objects of both
    sides, about (~) if the tree is that of a sample, the height of the split, and its support, how far random
    halves of the partitions reproduce it. A split that takes off too few objects for a cluster leaves
    n_clusters as it is.
    """
    import numpy as np

    from bigcons import Consensus, consensus_tree, plots
    from bigcons.disk.commit import refuse_existing_file
    from bigcons.errors import InvalidInputError
    from bigcons.store.export import export_to
    from bigcons.store.opening import open_store

    if out is not None:
        refuse_existing_file(out, overwrite)
    opened = open_store(store)
    if isinstance(opened, Consensus) and (kept := opened.tree) is not None:
        if features is not None or name not in (None, kept.tree):
            raise InvalidInputError(f"{store} has kept one tree, {kept.tree}; pass the ensemble for others.")
        found = kept
    elif isinstance(opened, Consensus):
        raise InvalidInputError(
            f"{store} has no tree, because its number of clusters was given; pass its ensemble."
        )
    else:
        found = consensus_tree(
            *(opened,), tree=name, features=features, random_state=random_state, memory=memory, client=client
        )
    K = 2 * found.choice.n_clusters if n_clusters is None else n_clusters
    all_splits = found.table()
    n_all = len(all_splits)
    n_splits = int((np.maximum.accumulate(all_splits["n_clusters"].to_numpy()) < K).sum()) + 1
    splits: list[dict[str, Any]] = all_splits.slice(0, n_splits).to_pylist()
    if out is not None and out.lower().endswith((".png", ".pdf", ".svg")):
        plots.tree(found, n_clusters).savefig(out)
    elif out is not None:
        types = dict(zip(all_splits.column_names, all_splits.schema.types, strict=True))
        with export_to(out, n_all, types, overwrite=overwrite) as write:
            write([column.combine_chunks() for column in all_splits.columns])
    result = {
        "ensemble": store,
        "n_objects": found.n_objects,
        "n_clusters": found.choice.n_clusters,
        "is_clear": found.choice.is_clear,
        "tree": found.tree,
        "splits": splits,
    }
    parts = [repr(found)]
    if splits:
        rows = [{column: _cell(value) for column, value in row.items()} for row in splits[:SHOWN]]
        if found.is_sampled:
            for row in rows:
                row |= {column: f"~{row[column]}" for column in ("objects", "larger", "smaller")}
        parts.append(table(list(splits[0]), rows))
    if (n_lower := n_all - min(len(splits), SHOWN)) > 0:
        parts.append(f"... and {amount(n_lower, 'lower split')}; -o FILE.csv writes all.")
    emit(result, "\n\n".join([*parts, *([] if out is None else [f"{out} is written."])]))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}"
