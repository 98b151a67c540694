"""The commands that make an ensemble, or pairs of it: demo, run, generate, import, append, sample, ..."""

from __future__ import annotations

import inspect
import time
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from bigcons.cli.options import (
    CHOSEN,
    PATH,
    READING,
    TABLE,
    Literal,
    name_list,
    option,
    option_name,
    output_option,
    parameters_of,
    parse_further,
    shared,
    taken,
)
from bigcons.cli.output import amount, cell, emit, facts, reporting, some, table, telling_finished
from bigcons.errors import InvalidInputError, MemoryBudgetError, StoreExistsError

if TYPE_CHECKING:
    from bigcons.io.features import Features
    from bigcons.store.ensemble import Ensemble


@click.command()
@option("--size", type=click.IntRange(min=100), default=120_000, show_default=True, help="Objects.")
@option("-k", "--n-clusters", type=click.IntRange(min=2), default=3, show_default=True,
        help="Maximum number of clusters.")  # fmt: skip
@option("-o", "--out", default="bigcons-demo", show_default=True, metavar="FOLDER",
        help="Folder for the results.")  # fmt: skip
@option("--overwrite", is_flag=True, help="Write to a folder that holds other files.")
@shared("random_state")
@reporting
def demo(size: int, n_clusters: int, out: str, overwrite: bool, random_state: int) -> None:
    """Solve simulated data of the shape of the PCC paper's large experiment.

    This is the one of Lourenço et al. 2015: 100 k-means partitions of random halves of 120,000 objects of
    three classes, each into 2 to 10 clusters. Their consensus is found by PCC over all pairs of objects, and
    by the consensus tree, the default of the other commands. A table has the accuracy and the time of both. A
    demo that was interrupted resumes.
    """
    import numpy as np

    from bigcons import PCC, ConsensusTree, datasets, generate, metrics, plots
    from bigcons.disk.places import disk_errors
    from bigcons.errors import MissingDependencyError

    folder = Path(out)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "truth.npy").exists() and not overwrite:
        raise StoreExistsError(
            f"{folder} holds other files; choose another folder or pass --overwrite.", path=folder
        )
    folder.mkdir(parents=True, exist_ok=True)
    features, truth = datasets.planted_features(size, random_state=random_state)
    with disk_errors(folder):
        np.save(folder / "truth.npy", truth)
    began = time.perf_counter()
    ensemble = generate.kmeans(
        features,
        n_partitions=100,
        n_clusters=(2, 10),
        sample=0.5,
        out=folder / "ensemble.zarr",
        random_state=random_state,
        overwrite=overwrite,
    )
    rows: list[dict[str, Any]] = [{"step": "100 partitions", "seconds": time.perf_counter() - began}]
    for method, output in ((PCC, None), (ConsensusTree, folder / "consensus.zarr")):
        began = time.perf_counter()
        model = method(n_clusters, random_state=random_state).fit(ensemble, out=output, overwrite=True)
        rows.append({
            "step": method.__name__,
            "seconds": time.perf_counter() - began,
            "accuracy": metrics.matching_accuracy(truth, model),
            "adjusted_rand": metrics.adjusted_rand(truth, model),
            "n_clusters": model.n_clusters_,
        })  # fmt: skip
    figure = f"Figure: {folder / 'demo.png'}."
    try:
        plots.memberships(model).savefig(folder / "demo.png")
    except MissingDependencyError as error:
        figure = f"The figure is left out: {error}"
    setting = f"{size:,} objects, at most {n_clusters} clusters; accuracy: share of objects in the right one."
    cells = [{name: cell(value, name) for name, value in row.items()} for row in rows]
    following = (
        f"{figure} To continue, for example:\n"
        f"  bigcons report {folder / 'consensus.zarr'} --ensemble {folder / 'ensemble.zarr'} -o demo.html\n"
        f"  bigcons solve {folder / 'ensemble.zarr'} -m hbgf -k {n_clusters} -o {folder / 'hbgf.zarr'}"
    )
    result = {"folder": out, "n_objects": size, "n_clusters": n_clusters, "random_state": random_state}
    emit({**result, "steps": rows}, "\n\n".join([setting, table(list(rows[-1]), cells), following]))


@click.command()
@click.argument("file", type=PATH)
@option("--size", type=click.IntRange(min=10), default=2000, show_default=True, help="Objects.")
@shared("random_state", "overwrite")
@reporting
def sample_data(file: str, size: int, random_state: int, overwrite: bool) -> None:
    """Write simulated features to FILE (.csv, .parquet).

    Its objects have an id and ten features, and belong to three overlapping classes of unequal size: 60, 25
    and 15 percent. The largest class is one cloud of points, the second is two and the smallest is three, so
    that -k auto finds more than three clusters.
    """
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv, parquet

    from bigcons.datasets import planted_features
    from bigcons.disk.commit import refuse_existing_file

    write = {".csv": csv.write_csv, ".parquet": parquet.write_table}.get(Path(file).suffix)
    if write is None:
        raise InvalidInputError(f"{file} is no .csv or .parquet file; choose one of these suffixes.")
    refuse_existing_file(file, overwrite)
    features = np.round(planted_features(size, 10, random_state=random_state)[0], 4)
    ids = [f"object-{i:0{len(str(size))}}" for i in range(size)]
    write(pa.table({"id": ids, **{f"feature_{j}": column for j, column in enumerate(features.T)}}), file)
    emit(
        {"path": file, "n_objects": size, "n_features": 10},
        f"{file}: {amount(size, 'object')} with 10 features. To continue, for example:\n"
        f"  bigcons run {quote(file)} --id id -k 3 -o out/",
    )


# From features to an ensemble, and to a consensus

SCHEMES = {
    "mixed": "mixed",
    "landmarks": "landmarks",
    "kmeans": "kmeans",
    "zipf": "weighted_kmeans",
    "feature-views": "feature_views",
    "object-views": "object_views",
}
"""Schemes and their functions in `bigcons.generate`."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="FEATURES... [OPTIONS OF THE SCHEME]")
@output_option("Store for the ensemble (.zarr or .parquet).")
@shared(*CHOSEN, *READING, "log")
@option(
    "--scheme", type=click.Choice(list(SCHEMES)), default="mixed", show_default=True,
    help="half of the partitions by landmarks and half by k-means, of all objects; spectral clusterings on "
    "landmarks, which follow curved shapes; k-means on random samples; "
    "k-means on features with Zipf weights; k-means on subsets of the features; k-means on overlapping "
    "subsets that cover all objects.",
)  # fmt: skip
@shared("random_state", "memory", "client", "overwrite")
@reporting
def generate(words: tuple[str, ...], out: str, scheme: str, overwrite: bool, **options: Any) -> None:
    """Cluster FEATURES many times.

    The partitions are stored as an ensemble. FEATURES is a .parquet, .csv, .tsv (or these compressed), .npy
    or .zarr with one row per object, a folder of files, a pattern such as "data/*.parquet", several files, a
    URL of these such as s3://bucket/data.parquet, or -, standard input; it is read in blocks and need not fit
    in memory. Repeating the command resumes an interrupted run and finds the result of a finished one.

    Each parameter of the function of the scheme, such as bigcons.generate.kmeans, is a further option:
    --n-partitions, --n-clusters K, MIN:MAX or split, --standardize or --no-standardize, --train auto, all or
    N; of kmeans and zipf --sample SHARE; of zipf --alpha-range MIN:MAX and --largest-weight; of feature-views
    --n-features; of object-views --repetition.
    """
    from bigcons import generate as generators
    from bigcons.generate.pipeline import GeneratorOptions, make_partitions

    function = getattr(generators, SCHEMES[scheme])
    of_table = taken(options, (*CHOSEN, *READING, "log"))
    common = (*of_table, "out", "overwrite", "resume", *options)
    of_all = parameters_of(make_partitions, without=common)
    parameters = parameters_of(function, without=common)
    parameters |= {name: of_all[name] for name in GeneratorOptions.__annotations__ if name in of_all}
    argument = click.Argument(["features"], nargs=-1, required=True, type=TABLE)
    features, given = parse_further(f"Scheme {scheme!r}", words, argument, parameters)
    if needed := {name for name, p in parameters.items() if p.default is p.empty} - given.keys():
        raise click.UsageError(f"Scheme {scheme!r} needs {', '.join(map(option_name, sorted(needed)))}.")
    with telling_finished(out, "call", overwrite):
        data = _open_features(features, of_table)
        ensemble = function(data, **given, **options, out=out, overwrite=overwrite)
    _tell_constant(ensemble)
    emit(ensemble.info())


def table_of(paths: tuple[str, ...], of_table: dict[str, Any], *names: str) -> Any:
    """Return one path or several with how they are read and, of the options named, what is chosen."""
    from bigcons.io.columns import select

    path = paths[0] if len(paths) == 1 else list(paths)
    return select(path, **taken(of_table, (*READING, *names)))


def _open_features(paths: tuple[str, ...], of_table: dict[str, Any]) -> Features:
    """Open the features, and say on standard error how those with names are encoded."""
    from bigcons.io.features import open_features

    data = open_features(table_of(paths, of_table), **taken(of_table, (*CHOSEN, "log")))
    if data.encoding.is_named:
        click.echo(f"{data.where}: {data.encoding.summary()}.", err=True)
    return data


def _tell_constant(ensemble: Ensemble) -> None:
    """Name, on standard error, the features that an ensemble was generated without, as they do not vary."""
    if ensemble.generator is not None and (names := ensemble.generator.encoding.constant()):
        click.echo(f"Constant or empty, without effect: {some(names)}.", err=True)


@click.command()
@click.argument("features", nargs=-1, required=True, type=TABLE)
@output_option("Folder or bucket for ensemble.zarr and consensus.zarr.", name="FOLDER")
@shared(*CHOSEN, *READING, "log", "n_clusters", "method")
@option("--n-partitions", type=click.IntRange(min=1), default=100, show_default=True,
        help="Number of partitions.")  # fmt: skip
@shared("memory", "client", "random_state", "overwrite")
@reporting
def run(
    features: tuple[str, ...],
    out: str,
    n_clusters: Any,
    method: str,
    n_partitions: int,
    overwrite: bool,
    **options: Any,
) -> None:
    """Cluster FEATURES many times and find the consensus.

    Short for `bigcons generate` and `bigcons solve`. FEATURES is one table or several, as for `bigcons
    generate`, and need not fit in memory; each step keeps to the memory budget. A budget that is too small
    for the method is refused before generating, with -k auto once the number is known. Repeating the command
    resumes an interrupted run and finds the result of a finished one; an ensemble that is there is used for
    another -k, too. What was chosen is printed, with the time of each step, after the columns of few values,
    if any, of which each cluster has only one.
    """
    from bigcons.io.files import refuse_missing

    for path in features:
        refuse_missing(path)  # methods take seconds to import
    if n_clusters is None:
        raise click.UsageError("Give the number of clusters with -k, or -k auto to have it chosen.")

    from bigcons import generate as generators
    from bigcons.cli.solving import check_n_clusters, ending, results_of
    from bigcons.disk.commit import is_store
    from bigcons.generate.kmeans import drawn_clusters
    from bigcons.memory import PROCESS_BYTES, parse_size
    from bigcons.methods import METHODS
    from bigcons.metrics.description import cluster_profiles
    from bigcons.run.memory_plan import PlannedEnsemble
    from bigcons.store.consensus import Consensus

    ensemble_path, consensus_path = (f"{out.rstrip('/')}/{name}.zarr" for name in ("ensemble", "consensus"))
    of_table = taken(options, (*CHOSEN, *READING, "log"))
    settings = {name: value for name, value in options.items() if value is not None}
    model = METHODS[method](check_n_clusters(method, n_clusters), **settings)
    data = _open_features(features, of_table)
    is_made = not overwrite and is_store(ensemble_path)
    if overwrite or not is_store(consensus_path):
        drawn = drawn_clusters(data.n_objects, n_partitions, options["random_state"])
        model.check_plan(PlannedEnsemble(ensemble_path, data.n_objects, drawn), consensus_path)
    began = time.perf_counter()
    making = {**options, "out": ensemble_path, "overwrite": overwrite}
    ensemble = generators.mixed(data, n_partitions=n_partitions, **making)
    generated = time.perf_counter()
    _tell_constant(ensemble)
    with telling_finished(consensus_path, "run", overwrite) as is_there:
        model.fit(ensemble_path, out=consensus_path, overwrite=overwrite)
    provenance, sample_rows = ensemble.provenance, ensemble.provenance["sample_rows"]
    is_sampled = sample_rows < ensemble.n_objects
    of_ensemble = {
        "path": ensemble_path,
        "n_objects": ensemble.n_objects,
        "n_features": len(provenance.get("columns", provenance["features"])),
        "n_partitions": ensemble.n_partitions,
        "clusters_per_partition": [int(ensemble.n_clusters.min()), int(ensemble.n_clusters.max())],
        "trained_on": f"a sample of {sample_rows:,}" if is_sampled else "all objects",
        "seconds": None if is_made else generated - began,
    }
    of_consensus = {
        "path": consensus_path,
        "method": method,
        "memory": options["memory"],
        "random_state": options["random_state"],
        "seconds": None if is_there else time.perf_counter() - generated,
        **results_of(model),
    }
    result = {"ensemble": of_ensemble, "consensus": of_consensus}
    solved, followed = Consensus.open(consensus_path), None
    if not data.is_sparse:  # else of very many columns, none of which stands out
        # what the process may hold of data; where no block of them fits, it remains unknown
        left = max(parse_size(options["memory"]) - PROCESS_BYTES, 1000)
        with suppress(MemoryBudgetError):
            profiles = cluster_profiles(table_of(features, of_table, *CHOSEN), solved, memory=left)
            followed = profiles.followed
            if followed:
                click.echo(profiles.followed_in_words(), err=True)
    report = ["bigcons", "report", consensus_path, "--ensemble", ensemble_path]
    export = ["bigcons", "export", consensus_path, "-o", f"{out.rstrip('/')}-labels.csv"]
    following = [[*report, "-o", f"{out.rstrip('/')}.html"], export]
    emit({"kind": "run", **result, "followed": followed}, f"{facts(result)}\n\n{ending(solved, following)}")


# From labels or memberships to an ensemble


@click.command("import")
@click.argument("tables", nargs=-1, required=True, type=TABLE)
@output_option("Store for the ensemble or the pairs (.zarr or .parquet).")
@shared(*CHOSEN, "sep", "header", "missing")
@option("--runs", is_flag=True, help="Each of the TABLES is a partition, with a column of labels.")
@option("--long", type=name_list, metavar="OBJECT,PARTITION,LABEL", help="A row of the table is one label; "
        "names of the columns with its object, partition and label.")  # fmt: skip
@option("--memberships", is_flag=True,
        help="TABLES are memberships, one for each partition, with a column for each cluster.")  # fmt: skip
@option("--pairs", is_flag=True, help="TABLES has pairs of objects, for `bigcons solve --pairs`; --columns "
        "are then its four columns.  [default: i,j,n_agree,n_seen]")  # fmt: skip
@option("--n-objects", type=click.IntRange(min=1), help="Number of objects in --pairs.  [default: as a "
        ".parquet of bigcons states, else the largest in a pair, plus 1]")  # fmt: skip
@option("--chunk-rows", type=click.IntRange(min=1),
        help="Rows per chunk of the store.  [default: chosen by size]")  # fmt: skip
@shared("memory", "overwrite")
@reporting
def import_(
    tables: tuple[str, ...],
    runs: bool,
    long: list[str] | None,
    memberships: bool,
    pairs: bool,
    sep: str | None,
    header: bool | None,
    **options: Any,
) -> None:
    """Store a table of labels, or of memberships, as an ensemble, or a table of pairs.

    The table is a .parquet, .csv, .tsv (or these compressed), .npy or .zarr with one row per object and one
    column per partition, a folder of files, a pattern such as "labels/*.parquet", a URL of these such as
    s3://bucket/labels.parquet, or -, standard input; missing labels are empty, NaN or negative. The table is
    streamed and need not fit in memory. What may be read in two ways, such as a first line of numbers in a
    .csv, is refused unless an option tells.

    With --runs, each of the TABLES is one partition. With --long, the table has a row for each label, such as
    the votes of workers on tasks. With --memberships, each of the TABLES, in these forms or a consensus with
    memberships, is a soft clustering; its rows sum to 1, and are NaN or 0 where an object is missing.

    With --pairs, the table has a row for each pair, in any order, with integer columns i < j, objects
    numbered from 0; n_agree, the number of partitions that cluster both together; n_seen, of those that label
    both. It is sorted on disk and need not fit in memory.
    """
    from bigcons.disk.places import place_of
    from bigcons.io.columns import select
    from bigcons.io.files import matching
    from bigcons.store.ensemble import Ensemble, import_labels, import_memberships
    from bigcons.store.pairs import import_pairs

    kinds = {"--runs": runs, "--long": long, "--memberships": memberships, "--pairs": pairs}
    kind, *others = [name for name, value in kinds.items() if value] or ["an import"]
    store: Any = {
        "an import": import_labels,
        "--runs": Ensemble.from_runs,
        "--long": Ensemble.from_long,
        "--memberships": import_memberships,
        "--pairs": import_pairs,
    }[kind]
    settings = {name: value for name, value in options.items() if value is not None}
    foreign = settings.keys() - inspect.signature(store).parameters.keys()
    if pairs and (sep, header) != (None, None):
        foreign |= {"header" if sep is None else "sep"}
    if refused := [*map(option_name, sorted(foreign)), *others]:
        raise click.UsageError(f"{kind} takes no {refused[0]}; leave it out.")
    if runs:  # shells expand a pattern, but not in quotes
        tables = tuple(path for table in tables for path in [*map(str, matching(place_of(table)))] or [table])
    if len(tables) > 1 and not (runs or memberships):
        raise click.UsageError(
            f"Got {len(tables)} tables of labels; pass one, with a column for each partition, a pattern in "
            "quotes for files that have its rows, or --runs if each is a partition."
        )
    if long is not None:
        if len(long) != 3:
            raise click.UsageError(
                f"--long has {len(long)} columns; name three: of the object, the partition, the label."
            )
        settings |= dict(zip(("object", "partition", "label"), long, strict=True))
    parts: Any = list(tables) if pairs else [select(part, sep=sep, header=header) for part in tables]
    with telling_finished(options["out"], "import", options["overwrite"]):
        stored = store(parts if runs or memberships else parts[0], **settings)
    emit(stored.info())


@click.command()
@click.argument("ensemble", type=PATH)
@click.argument("tables", nargs=-1, required=True, type=TABLE)
@option("--objects", "what", flag_value="objects", help="Rows of TABLES are further objects.")
@option("--partitions", "what", flag_value="partitions", help="Columns of TABLES are further partitions.")
@shared(*CHOSEN, "sep", "header", "missing")
@reporting
def append(ensemble: str, tables: tuple[str, ...], what: str | None, sep: str | None, **options: Any) -> None:
    """Append objects or partitions to the store ENSEMBLE.

    With --partitions, rows are joined by ids, in any order; objects that have no row are missing. With
    --objects, columns are the partitions, by their names or in their order; ids must be new. Of soft
    clusterings, TABLES are memberships, one for each partition; else there is one table, or a pattern in
    quotes. An append that is killed leaves the ensemble as it was.
    """
    from bigcons.io.columns import select
    from bigcons.store.ensemble import Ensemble

    if what is None:
        raise click.UsageError("Say what to append: --objects, whose rows are new, or --partitions.")
    opened = Ensemble.open(ensemble, "a")
    if not opened.is_soft and len(tables) > 1:
        raise click.UsageError(f"Got {len(tables)} tables of labels; pass one, or a pattern in quotes.")
    add = opened.append_objects if what == "objects" else opened.append_partitions
    parts = [select(part, sep=sep) for part in tables]
    source: Any = parts if opened.is_soft else parts[0]
    add(source, **options)
    emit(opened.info())


# From an ensemble to pairs


@click.command()
@click.argument("ensemble", type=TABLE)
@output_option("Store for the pairs (.zarr).")
@option("--per-object", type=click.FloatRange(0, min_open=True),
        help="Mean number of pairs per object.  [default: 30]")  # fmt: skip
@option("--share", type=click.FloatRange(0, 1, min_open=True), help="Instead: fraction of all pairs.")
@option("--n-pairs", type=click.IntRange(min=1), help="Instead: number of pairs.")
@option("--tiles", type=Literal("auto"), default="auto", show_default=True, metavar="N|auto|none",
        help="Draw block by block, each block of objects with itself and N others; none: from all pairs; "
        "auto: block by block if the pairs exceed the memory budget.")  # fmt: skip
@shared("random_state", "memory", "client", "overwrite")
@reporting
def sample(ensemble: str, out: str, overwrite: bool, **options: Any) -> None:
    """Draw random pairs of objects and count their agreements.

    For each pair, counts the partitions of ENSEMBLE that label both objects and those that put them in the
    same cluster, for use with `bigcons solve --pairs`. Pairs that are drawn block by block, as with --tiles,
    go directly to disk.
    """
    from bigcons import coassociation

    sizes = taken(options, ("per_object", "share", "n_pairs"))
    asked = {name: value for name, value in sizes.items() if value is not None} or {"per_object": 30.0}
    if len(asked) > 1:
        raise click.UsageError("Give only one of --per-object, --share and --n-pairs.")
    with telling_finished(out, "call", overwrite):
        pairs = coassociation.sample(ensemble, **asked, **options, out=out, overwrite=overwrite)
    result = {"kind": "pairs", "path": out, "n_objects": pairs.n_objects, "n_pairs": pairs.n_pairs, **asked}
    emit(result)
