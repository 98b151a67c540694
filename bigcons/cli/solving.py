"""The commands that find a consensus and use it: solve, methods, place, tree."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from bigcons.cli.options import (
    CHOSEN,
    PATH,
    STANDARD,
    TABLE,
    known_method,
    option,
    option_name,
    output_option,
    parameters_of,
    parse_further,
    read_standard_input,
    shared,
    taken,
)
from bigcons.cli.output import JSON, amount, cell, emit, facts, reporting, table, telling_finished
from bigcons.errors import InvalidInputError

if TYPE_CHECKING:
    from bigcons.methods import ConsensusClusterer
    from bigcons.store.consensus import Consensus


def _complete_path(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


COMMON = ("n_clusters", "random_state", "out", "client", "memory", "resume")
"""Parameters of methods that `solve` has as options, or that a command line cannot give."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="ENSEMBLE [METHOD OPTIONS]",
                shell_complete=_complete_path)  # fmt: skip
@shared("method", "n_clusters")
@output_option("Store for the consensus (.zarr).")
@shared(*CHOSEN, "sep", "header", "missing")
@option("--memory", metavar="SIZE", help="Memory budget, such as 512MB or 2GB.")
@option("--resume/--no-resume", default=None,
        help="Resume an interrupted solve of this output (the default), or start over.")  # fmt: skip
@shared("client", "random_state", "overwrite")
@reporting
def solve(
    words: tuple[str, ...], method: str, n_clusters: Any, out: str, overwrite: bool, **options: Any
) -> None:
    """Find the consensus of ENSEMBLE.

    The store holds its labels and, for soft methods, memberships. ENSEMBLE is an ensemble store, or any table
    that `bigcons import` accepts, of which --id, --columns and --drop choose the columns. An interrupted
    solve resumes when the command is repeated; a completed one is reported as such.

    Each parameter of the method is a further option; `bigcons methods NAME` lists them. For -m pcc:
    --divergence l2|kl|power:P, --pairs all|dense|SHARE|PATH, --solver, --n-init, --max-iter, --tol. Options
    not given take the method's defaults; those it does not have are refused.
    """
    from bigcons.io.files import refuse_missing

    if words and not words[0].startswith("-"):
        refuse_missing(words[0])  # methods take seconds to import

    from bigcons.disk.commit import is_store
    from bigcons.io.columns import select
    from bigcons.methods import METHODS
    from bigcons.store.consensus import Consensus

    chosen, reading = taken(options, CHOSEN), taken(options, ("sep", "header", "missing"))
    what = f"Method {method!r}"
    argument = click.Argument(["ensemble"])
    ensemble, given = parse_further(what, words, argument, parameters_of(METHODS[method], without=COMMON))
    given |= {name: value for name, value in options.items() if value is not None}
    if n_clusters is not None or "n_clusters" not in given:
        given["n_clusters"] = check_n_clusters(method, n_clusters)
    if foreign := given.keys() - inspect.signature(METHODS[method]).parameters.keys():
        names = ", ".join(map(option_name, sorted(foreign)))
        raise click.UsageError(f"{what} takes no {names}; leave it out.")
    model = METHODS[method](**given)
    if ensemble == STANDARD:
        ensemble = read_standard_input(click.get_current_context().find_root())
    began = time.perf_counter()
    with telling_finished(out, "solve", overwrite) as is_there:
        labels = select(select(ensemble, **reading), **chosen)
        model.fit(labels, out=out, overwrite=overwrite)
    solved = Consensus.open(out)
    results = {"seconds": None if is_there else time.perf_counter() - began, **results_of(model)}
    result = {"kind": "consensus", "path": out, **results}
    of_ensemble = ["--ensemble", ensemble] if is_store(ensemble) else []
    report = ["bigcons", "report", out, *of_ensemble, "-o", Path(out).with_suffix(".html").name]
    export = ["bigcons", "export", out, "-o", f"{Path(out).stem}-labels.csv"]
    emit(result, f"{facts(result)}\n\n{ending(solved, [report, export])}")


def check_n_clusters(method: str, n_clusters: Any) -> Any:
    """Return the number of clusters as a method takes it; raise UsageError if it needs one."""
    from bigcons.methods import METHODS

    default = inspect.signature(METHODS[method]).parameters["n_clusters"].default
    if n_clusters is None and default not in (None, "auto"):
        auto = ", or auto to have it chosen" if METHODS[method].chooses else ""
        raise click.UsageError(f"Method {method!r} needs -k, the number of clusters{auto}.")
    low, high = n_clusters if isinstance(n_clusters, tuple) else (n_clusters, n_clusters)
    if isinstance(low, (int, float)) and not (isinstance(low, int) and 1 <= low <= high):
        raise click.UsageError(f"-k {low}:{high} is no number of clusters; use one such as 5, or auto.")
    if isinstance(n_clusters, tuple):
        return range(low, high + 1)
    if n_clusters == "auto" and method.startswith("eac") and not METHODS[method].chooses:
        return None  # by the lifetime
    return default if n_clusters is None else n_clusters


def results_of(model: ConsensusClusterer) -> dict[str, Any]:
    """Return the scalar results of a fit, and how the number of clusters was chosen."""
    from bigcons.store.consensus import fit_results

    choice = getattr(model, "n_clusters_choice_", None)
    return fit_results(model) | ({} if choice is None else {"n_clusters_choice": repr(choice)})


def ending(solved: Consensus, commands: Sequence[Sequence[str]]) -> str:
    """Return the end of a solve: its largest clusters, with confidence and support, and the commands."""
    sizes = solved.cluster_sizes()
    rows = [
        {"cluster": str(k), "objects": f"{size:,}", "share": f"{size / max(sizes.sum(), 1):.1%}"}
        for k, size in enumerate(sizes.tolist())
        if size
    ]
    for name in ("confidence", "support") if solved.has_trust else ():
        values = solved.trust_tables[0][name].to_pylist()
        if any(value is not None for value in values):
            for row, value in zip(rows, values, strict=True):
                row[name] = "-" if value is None else f"{value:.3f}"
    listed = rows if len(rows) <= 12 else rows[:8]
    more = len(rows) - len(listed)
    rest = f"\n... and {amount(more, 'smaller cluster')}" if more > 0 else ""
    columns = list(rows[0]) if rows else ["cluster", "objects", "share"]
    following = "\n".join(["Next:", *(f"  {join(words)}" for words in commands)])
    return f"{table(columns, listed)}{rest}\n\n{following}"


@click.command()
@click.argument("name", required=False, type=known_method)
@reporting
def methods(name: str | None) -> None:
    """List the consensus methods, or describe the method NAME."""
    from bigcons.methods import METHODS

    if name is not None:
        method = METHODS[name]
        options = "\n".join(
            f"  {option_name(own)}  (default: {'none' if parameter.default is None else parameter.default})"
            for own, parameter in parameters_of(method, without=COMMON).items()
        )
        text = f"{name}: {inspect.getdoc(method)}\n\nOptions of `bigcons solve -m {name}`:\n{options}"
        emit(_facts_of(method), text)
        return
    described = {key: _facts_of(method) for key, method in METHODS.items()}
    columns = {"soft": "soft", "soft input": "soft_input", "predict": "predicts", "missing labels": "missing",
               "out of core": "out_of_core", "distributed": "distributed", "needs": "needs",
               "paper": "paper"}  # fmt: skip
    flags: dict[Any, str] = {True: "yes", False: "-"}
    rows = [
        {"method": key} | {column: flags.get(entry[name], entry[name]) for column, name in columns.items()}
        for key, entry in described.items()
    ]
    emit({"methods": described}, table(list(rows[0]), rows, text=("missing labels", "needs", "paper")))


def _facts_of(method: type[ConsensusClusterer]) -> dict[str, Any]:
    return {
        "class": method.__name__,
        "summary": (inspect.getdoc(method) or "").partition("\n")[0],
        "parameters": list(inspect.signature(method).parameters),
        **method.info._asdict(),
        "predicts": method.places(),
    }


# New rows


@click.command()
@click.argument("features", nargs=-1, required=True, type=TABLE)
@option("--with", "folder", required=True, type=PATH, metavar="FOLDER",
        help="Output of `bigcons run`, or the store of a consensus.")  # fmt: skip
@output_option("File for the labels: .parquet, .csv (or this with .gz) or .npy; or - for CSV to standard "
               "output.", name="FILE", may_stream=True)  # fmt: skip
@shared("id", "header", "sep", "decimal")
@option("--memberships", is_flag=True, help="Also write the memberships: cluster_0, cluster_1, ...")
@shared("client", "overwrite")
@reporting
def place(
    features: tuple[str, ...],
    folder: str,
    out: str,
    id: str | None,
    memberships: bool,
    client: str | None,
    overwrite: bool,
    **reading: Any,
) -> None:
    """Place the rows of FEATURES in the clusters of a consensus.

    FEATURES is a table, or several, with the columns that the ensemble was made of by `bigcons run` or
    `bigcons generate`, as they were then, in any order; other columns are not read. They are encoded and
    scaled as they were, labeled by the centers of all partitions, and placed by these labels. All
    this is done block by block.

    The file has a row for each of them: its id, if it has one, its label, of a method with memberships the
    confidence in it, and whether the row is farther from its centers than 99 % of the rows that the centers
    were made of. If that is so of far more than 1 % of the rows, the data have changed. Warnings say
    so if most are far, and name the columns with text that did not occur. A row without a known value in any
    column has no label: -1.
    """
    import numpy as np

    from bigcons.io.columns import select
    from bigcons.methods.placing import confidence_of, place_features, tables_of_generator
    from bigcons.run.engine import open_engine
    from bigcons.store.export import export_to
    from bigcons.store.generator import NewRows
    from bigcons.trust.placement import ClusterSupport

    to_stream = out == STANDARD
    if to_stream and click.get_current_context().meta.get(JSON):
        raise click.UsageError("--json prints to standard output, too; give a path with -o.")
    model, consensus = open_placing(folder)
    generator, K, is_soft = model._generator, consensus.n_clusters, model.info.soft
    if generator is None:
        raise InvalidInputError(
            f"the ensemble of {consensus.path} was not generated from features, or by an older version; "
            "generate it by bigcons generate or run."
        )
    if memberships and not is_soft:
        consensus.read_memberships(0, 0)  # raises
    support = None
    if consensus.has_trust:
        support = ClusterSupport.of_table(consensus.trust_tables[0], np.arange(K)).clusters
    data = generator.open(select(features[0] if len(features) == 1 else list(features), **reading), id=id)
    new_rows = NewRows(data, generator.encoding.scaling)
    task = model._place_task(tables_of_generator(generator, model._recoding.values))
    types: dict[str, Any] = {"label": np.dtype(np.int32)}
    types |= {"confidence": np.dtype(np.float32)} if is_soft else {}
    types["is_far"] = np.dtype(bool)
    types |= {f"cluster_{k}": np.dtype(np.float32) for k in range(K if memberships else 0)}
    ids = None if out.lower().endswith(".npy") else data.ids
    if ids is not None:
        types = {"id" if ids.facts.name in types else ids.facts.name: ids.type, **types}
    known = iter(()) if ids is None else ids.blocks(data.chunk_rows)
    n, n_far, total, sizes = data.n_objects, 0, 0.0, np.zeros(K, np.int64)
    target = sys.stdout.buffer if to_stream else out
    with open_engine(client) as engine, export_to(target, n, types, overwrite=overwrite) as write:
        for labels, soft, is_far in place_features(generator, task, new_rows, engine):
            columns = [labels, is_far]
            if soft is not None:
                columns.insert(1, confidence_of(labels, soft, support))
                total += float(columns[1].sum(dtype=float))
                columns += [np.ascontiguousarray(soft[:, k]) for k in range(K if memberships else 0)]
            of_rows = [] if ids is None else [ids.as_they_came(next(known))]
            write([*of_rows, *columns])
            sizes += np.bincount(labels[labels >= 0], minlength=K)
            n_far += int(is_far.sum())
    far_share = n_far / n
    if far_share > 0.5:
        click.echo(
            f"Warning: {far_share:.1%} of the rows are far from all centers: they are unlike those of "
            "the ensemble, and confidence in their labels means little.",
            err=True,
        )
    if to_stream:
        sys.stdout.flush()
        return
    result = {"kind": "placed", "path": out, "n_objects": n, "sizes": sizes.tolist()}
    result["mean_confidence"] = total / n if is_soft else None
    result |= {"far_share": far_share, "n_unseen": new_rows.n_unseen}
    words = {f"cluster {k}": size for k, size in enumerate(result["sizes"]) if size}
    emit(result, facts({**result, "sizes": words}))


def open_placing(folder: str) -> tuple[Any, Consensus]:
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
    known = set(model.get_params()) - {"memory", "client", "out", "pairs", "weights"}
    plain = (bool, int, float, str)  # values that a store gives back as they were
    stored = consensus.parameters.items()
    model.set_params(**{name: value for name, value in stored if name in known and isinstance(value, plain)})
    model.take_placing(consensus, ensemble)
    return model, consensus


# The tree


@click.command()
@click.argument("store", type=PATH)
@option("-k", "--n-clusters", type=click.IntRange(min=2), help="Clusters down to which to show it.  "
        "[default: the number recommended, and as many again]")  # fmt: skip
@option("--tree", "name", type=click.Choice(["average", "distinctness"]),
        help="Which tree.  [default: the one that agrees better with the partitions]")  # fmt: skip
@option("--features", type=TABLE, help="Features that the ensemble was generated of, for a p-value of each "
        "number of clusters, by 20 draws of one Gaussian.")  # fmt: skip
@option("-o", "--out", "--picture", "out", type=PATH, metavar="FILE", help="Draw the tree (.png, .pdf or "
        ".svg), or write the table of all splits (.csv or .parquet).")  # fmt: skip
@shared("memory", "random_state", "client", "overwrite")
@reporting
def tree(
    store: str,
    n_clusters: int | None,
    name: str | None,
    features: str | None,
    out: str | None,
    overwrite: bool,
    **options: Any,
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
    from bigcons.store.export import export_to
    from bigcons.store.opening import open_store

    if out is not None:
        refuse_existing_file(out, overwrite)
    opened = open_store(store)
    if not isinstance(opened, Consensus):
        shown = consensus_tree(opened, tree=name, features=features, **options)
    elif (kept := opened.tree) is None:
        raise InvalidInputError(
            f"{store} has no tree, because its number of clusters was given; pass its ensemble."
        )
    elif features is not None or name not in (None, kept.tree):
        raise InvalidInputError(f"{store} has kept one tree, {kept.tree}; pass the ensemble for others.")
    else:
        shown = kept
    K = 2 * shown.choice.n_clusters if n_clusters is None else n_clusters
    all_splits = shown.table()
    n_splits = int((np.maximum.accumulate(all_splits["n_clusters"].to_numpy()) < K).sum()) + 1
    splits: list[dict[str, Any]] = all_splits.slice(0, n_splits).to_pylist()
    if out is not None and out.lower().endswith((".png", ".pdf", ".svg")):
        plots.tree(shown, n_clusters).savefig(out)
    elif out is not None:
        types = dict(zip(all_splits.column_names, all_splits.schema.types, strict=True))
        with export_to(out, len(all_splits), types, overwrite=overwrite) as write:
            write([column.combine_chunks() for column in all_splits.columns])
    result = {
        "ensemble": store,
        "n_objects": shown.n_objects,
        "n_clusters": shown.choice.n_clusters,
        "is_clear": shown.choice.is_clear,
        "tree": shown.tree,
        "splits": splits,
    }
    about = dict.fromkeys(("objects", "larger", "smaller"), "~" if shown.is_sampled else "")
    rows = [
        {column: about.get(column, "") + cell(value) for column, value in row.items()} for row in splits[:20]
    ]
    parts = [repr(shown), *([table(list(rows[0]), rows)] if rows else [])]
    if (n_lower := len(all_splits) - len(rows)) > 0:
        parts.append(f"... and {amount(n_lower, 'lower split')}; -o FILE.csv writes all.")
    emit(result, "\n\n".join([*parts, *([] if out is None else [f"{out} is written."])]))
