"""``bigcons place``: new rows placed in the clusters of a consensus by their features."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from bigcons.cli.options import (
    PATH,
    STANDARD,
    TABLE,
    one_or_many,
    output_option,
    overwrite_option,
    reading_options,
    scheduler_option,
)
from bigcons.cli.output import JSON, amount, emit, facts, reporting
from bigcons.errors import InvalidInputError

if TYPE_CHECKING:
    from bigcons.methods.base import ConsensusClusterer
    from bigcons.store.consensus import Consensus


@click.command()
@click.argument("features", nargs=-1, required=True, type=TABLE)
@click.option(
    "--with",
    "folder",
    required=True,
    type=PATH,
    metavar="FOLDER",
    help="Output of `bigcons run`, or the store of a consensus.",
)
@output_option(
    "File for the labels: .parquet, .csv, .csv.gz or .npy; or - for CSV to standard output.",
    name="FILE",
    may_stream=True,
)
@click.option(
    "--id",
    metavar="NAME",
    help="Column that identifies the rows.  [default: the name of the ids of the first table, if there]",
)
@reading_options("header", "sep", "decimal")
@click.option("--memberships", is_flag=True, help="Also write the memberships: cluster_0, cluster_1, ...")
@scheduler_option
@overwrite_option
@reporting
def place(
    features: tuple[str, ...],
    folder: str,
    out: str,
    id: str | None,
    reading: dict[str, Any],
    memberships: bool,
    client: str | None,
    overwrite: bool,
) -> None:
    """Place the rows of FEATURES in the clusters of a consensus.

    FEATURES is a table, or several, with the columns that the ensemble was made of by `bigcons run` or
    `bigcons generate`, as they were then, in any order; other columns are not read. They are encoded and
    scaled as they were, labeled by the centers of all partitions, and placed by these labels, block by block.

    The file has a row for each of them: its id, if it has one, its label, of a method with memberships the
    confidence in it, and whether the row is farther from its centers than 99 % of the rows that the centers
    were made of. If that is so of far more than 1 % of the rows, the data have changed. Warnings say
    so if most are far, and name the columns with text that did not occur. A row without a known value in any
    column has no label: -1.
    """
    from bigcons.io.select import select
    from bigcons.methods.placing import confidence_of, place_features, tables_of_generator
    from bigcons.run.engine import open_engine
    from bigcons.store.export import export_to
    from bigcons.store.generator import NewRows
    from bigcons.trust.placement import ClusterSupport

    to_stream = out == STANDARD
    if to_stream and click.get_current_context().meta.get(JSON):
        raise click.UsageError("--json prints to standard output, too; give a path with -o.")
    model, consensus = open_placing(folder)
    generator = model._generator
    if generator is None:
        raise InvalidInputError(
            f"the ensemble of {consensus.path} was not generated from features, or by an older version; "
            "generate it by bigcons generate or run."
        )
    data = generator.open(select(one_or_many(features), **reading), id=id)
    if memberships and not model.info.soft:
        consensus.read_memberships(0, 0)  # raises
    ids = None if out.lower().endswith(".npy") else data.ids
    types: dict[str, Any] = {"label": np.dtype(np.int32)}
    types |= {"confidence": np.dtype(np.float32)} if model.info.soft else {}
    types["is_far"] = np.dtype(bool)
    types |= {f"cluster_{k}": np.dtype(np.float32) for k in range(consensus.n_clusters if memberships else 0)}
    if ids is not None:
        types = {"id" if ids.facts.name in types else ids.facts.name: ids.type, **types}
    sizes, n_far, summed = np.zeros(consensus.n_clusters, np.int64), 0, 0.0
    task = model._place_task(tables_of_generator(generator, model._recoding.values))
    support = None
    if consensus.has_trust:
        numbers = np.arange(consensus.n_clusters)
        support = ClusterSupport.of_table(consensus.trust_tables[0], numbers).clusters
    known = iter(()) if ids is None else ids.blocks(data.chunk_rows)
    rows = NewRows(data, generator.encoding.scaling)

    def rows_of(placed: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
        for labels, soft, is_far in placed:
            sure = [] if soft is None else [confidence_of(labels, soft, support)]
            of_ids = [] if ids is None else [ids.as_they_came(next(known))]
            columns = map(np.ascontiguousarray, soft.T) if memberships else ()
            yield labels, sure, is_far, [*of_ids, labels, *sure, is_far, *columns]

    with (
        open_engine(client) as engine,
        export_to(
            sys.stdout.buffer if to_stream else out, data.n_objects, types, overwrite=overwrite
        ) as write,
    ):
        for labels, sure, is_far, columns in rows_of(place_features(generator, task, rows, engine)):
            write(columns)
            sizes += np.bincount(labels[labels >= 0], minlength=len(sizes))
            n_far += int(is_far.sum())
            summed += sum(float(of_rows.sum(dtype=np.float64)) for of_rows in sure)
    far_share = n_far / data.n_objects
    if far_share > 0.5:
        click.echo(
            f"Warning: {far_share:.1%} of the rows are far from all centers: they are unlike those of the "
            "ensemble, and confidence in their labels means little.",
            err=True,
        )
    if to_stream:
        sys.stdout.flush()
        return
    result = {
        "kind": "placed",
        "path": out,
        "n_objects": data.n_objects,
        "sizes": sizes.tolist(),
        "mean_confidence": summed / data.n_objects if model.info.soft else None,
        "far_share": far_share,
        "n_unseen": rows.n_unseen,
    }
    emit(
        result,
        f"{out}: {amount(data.n_objects, 'row')} placed"
        + (f", with a mean confidence of {result['mean_confidence']:.3f}.\n" if model.info.soft else ".\n")
        + facts({f"cluster {k}": size for k, size in enumerate(sizes.tolist()) if size})
        + f"\nFar from the centers: {n_far:,} ({far_share:.1%}); about 1 % are expected of rows "
        "like those of the ensemble.",
    )


_PLAIN = (bool, int, float, str)
"""Values of parameters that a store gives back as they were."""


def open_placing(folder: str) -> tuple[ConsensusClusterer, Consensus]:
    """Return the method of a stored consensus, ready to place objects, and the consensus."""
    from bigcons.disk.commit import is_store
    from bigcons.methods import METHODS
    from bigcons.store.consensus import Consensus
    from bigcons.store.ensemble import Ensemble

    path = folder if is_store(folder) else f"{folder.rstrip('/')}/consensus.zarr"
    consensus = Consensus.open(path)
    consensus.read_placing()  # raises if there is nothing to place by, before methods are imported
    source = str(consensus.provenance["ensemble"])
    beside = f"{path.rstrip('/').rpartition('/')[0] or '.'}/{source.rpartition('/')[2]}"
    ensemble = Ensemble.open(beside if is_store(beside) else source)
    classes = {method.__name__: method for method in METHODS.values()}
    model: Any = classes[consensus.parameters["method"]]()
    given = {name: value for name, value in consensus.parameters.items() if isinstance(value, _PLAIN)}
    known = set(model.get_params()) - {"memory", "client", "out", "pairs", "weights"}
    model.set_params(**{name: value for name, value in given.items() if name in known})
    model.take_placing(consensus, ensemble)
    return model, consensus
