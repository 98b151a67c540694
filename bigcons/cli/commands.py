"""The commands, in the order of a typical run: each parses, calls the library and prints."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from shlex import join, quote
from typing import Any

import click
import numpy as np

import bigcons as bc
from bigcons.cli import options as cli
from bigcons.cli.options import CHOSEN, PATH, READING, argument, command, emit, option, output_option, table
from bigcons.disk.commit import is_store, new_file, refuse_existing_file
from bigcons.disk.places import place_of
from bigcons.disk.schema import OF_RUN
from bigcons.errors import InvalidInputError, MemoryBudgetError, StoreExistsError
from bigcons.io.sources import matching, refuse_inputs
from bigcons.memory import PROCESS_BYTES, DataBudget, check_all, parse_size, release_unused
from bigcons.store.clusters import tree_in_words


@command(
    option("--size", type=click.IntRange(min=100), default=120_000, help="Objects."),
    option("-o", "--out", default="bigcons-demo", metavar="FOLDER", help="Folder for the results."),
    *("random_state", "overwrite"),
)
def demo(size: int, out: str, random_state: int, overwrite: bool) -> None:
    """Solve simulated data like the PCC paper's large experiment.

    The experiment of Lourenço et al. 2015 has 100 k-means partitions of random halves of 120,000 objects of
    three classes, each into 2 to 10 clusters. The demo finds their consensus by PCC over all pairs of objects
    and by the consensus tree, the default of the other commands, and prints the accuracy and the time of
    both. Repeat the command to resume an interrupted demo.
    """
    folder = Path(out)
    features, truth = bc.datasets.planted_features(size, random_state=random_state)
    (ensemble, solved), began = (folder / name for name in OF_RUN), time.perf_counter()
    is_made, is_solved = (not overwrite and is_store(path) for path in (ensemble, solved))
    options: dict[str, Any] = {"out": ensemble, "overwrite": overwrite, "random_state": random_state}
    bc.generate.kmeans(features, n_clusters=(2, 10), sample=0.5, **options)
    steps: list[dict[str, Any]] = []
    generated = {"step": "100 partitions", "seconds": None if is_made else time.perf_counter() - began}
    made = "before" if is_made else f"in {generated['seconds']:.2f} s"
    for method, output in ((bc.PCC, None), (bc.ConsensusTree, solved)):
        began = time.perf_counter()
        model = method(3, random_state=random_state).fit(ensemble, out=output, overwrite=overwrite)
        steps.append({
            "step": method.__name__,
            "seconds": None if output and is_solved else time.perf_counter() - began,
            "accuracy": bc.metrics.matching_accuracy(truth, model),
            "adjusted_rand": bc.metrics.adjusted_rand(truth, model),
            "n_clusters": model.n_clusters_,
        })  # fmt: skip
    emit(
        {"folder": out, "n_objects": size, "random_state": random_state, "steps": [generated, *steps]},
        f"{size:,} objects in 100 partitions, made {made}; accuracy: share of objects in the right cluster.",
        table(steps),
        "To continue, for example:\n"
        f"  bigcons report {solved} --ensemble {ensemble} -o demo.html\n"
        f"  bigcons solve {ensemble} -m hbgf -k 3 -o {folder / 'hbgf.zarr'}",
    )


@command(
    argument("file", type=PATH),
    option("--size", type=click.IntRange(min=10), default=2000, help="Objects."),
    *("random_state", "overwrite"),
)
def sample_data(file: str, size: int, random_state: int, overwrite: bool) -> None:
    """Write simulated features to FILE (.csv, .parquet).

    Its objects have an id and ten features, and belong to three overlapping classes of unequal size: 60, 25
    and 15 percent. The largest class is one cloud of points, the second is two and the smallest is three, so
    that -k auto finds more than three clusters.
    """
    import pyarrow as pa

    from bigcons.store.store import export_blocks

    features = np.round(bc.datasets.planted_features(size, 10, random_state=random_state)[0], 4)
    ids = pa.array([f"object-{i:0{len(str(size))}}" for i in range(size)])
    columns = {f"feature_{j}": np.ascontiguousarray(column) for j, column in enumerate(features.T)}
    export_blocks(file, size, [{"id": ids, **columns}], overwrite=overwrite)
    emit(
        {"path": file, "n_objects": size, "n_features": 10},
        f"{file}: {size:,} objects with 10 features. To continue, for example:\n"
        f"  bigcons run {quote(file)} --id id -k 3 -o out/",
    )


# From features to an ensemble, and to a consensus

SCHEMES = ("mixed", "landmarks", "kmeans", "zipf", "feature-views", "object-views")
"""Schemes, by the names of their functions in `bigcons.generate`; zipf is `weighted_kmeans`."""


@command(
    argument("words", nargs=-1, type=PATH, metavar="FEATURES... [OPTIONS OF THE SCHEME]"),
    output_option("Store for the ensemble (.zarr or .parquet)."),
    *(*CHOSEN, *READING),
    option("--scheme", type=click.Choice(SCHEMES), default="mixed",
           help="mixed: half of the partitions by landmarks, half by k-means, of all objects. landmarks: "
           "spectral clusterings on landmarks, which follow curved shapes. kmeans: on random samples. zipf: "
           "k-means on features with Zipf weights. feature-views: k-means on subsets of the features. "
           "object-views: k-means on overlapping subsets that cover all objects."),
    *("random_state", "memory", "client", "overwrite"),
    further=True,
)  # fmt: skip
def generate(words: tuple[str, ...], out: str, scheme: str, overwrite: bool, **options: Any) -> None:
    """Cluster FEATURES many times.

    The partitions are stored as an ensemble. FEATURES is a .parquet, .csv, .tsv (or these compressed), .npy
    or .zarr with one row per object, a folder of files, a pattern such as "data/*.parquet", several files, or
    a URL such as s3://bucket/data.parquet; it is read in blocks and need not fit in memory. Repeating the
    command resumes an interrupted run and finds the result of a finished one.

    Each parameter of the function of the scheme, such as bigcons.generate.kmeans, is a further option:
    --n-partitions; --n-clusters K, MIN:MAX or split; --standardize or --no-standardize; --train auto, all or
    N; for kmeans and zipf, --sample SHARE; for zipf, --alpha-range MIN:MAX and --largest-weight; for
    feature-views, --n-features; for object-views, --repetition.
    """
    from bigcons.generate.kmeans import GeneratorOptions, make_partitions

    name = {"zipf": "weighted_kmeans"}.get(scheme, scheme.replace("-", "_"))
    function, reading = getattr(bc.generate, name), cli.pop_options(options, (*CHOSEN, *READING))
    common = (*reading, "out", "overwrite", "resume", *options)
    parameters, shared = (cli.parameters_of(f, without=common) for f in (function, make_partitions))
    parameters |= {name: shared[name] for name in GeneratorOptions.__annotations__ if name in shared}
    features = click.Argument(["features"], nargs=-1, required=True, type=PATH)
    paths, settings = cli.parse_further(f"Scheme {scheme!r}", words, features, parameters)
    if missing := {name for name, p in parameters.items() if p.default is p.empty} - settings.keys():
        raise click.UsageError(f"Scheme {scheme!r} needs {', '.join(map(cli.option_name, sorted(missing)))}.")
    with cli.report_finished(out, "call", overwrite):
        data = _open_features(paths, reading, out)
        ensemble = function(data, **settings, **options, out=out, overwrite=overwrite)
    emit(ensemble.info())


def _selected(paths: Sequence[str], reading: dict[str, Any], *names: str) -> Any:
    """Return one path or several as a choice, with the options of reading and those of these ``names``."""
    choice = {name: reading[name] for name in (*READING, *names) if name in reading}
    return bc.select(paths[0] if len(paths) == 1 else list(paths), **choice)


def _open_features(paths: Sequence[str], reading: dict[str, Any], out: str) -> Any:
    """Open the features, and say on standard error how those with names are encoded.

    Refuses an output ``out`` among them.
    """
    from bigcons.io.features import open_features

    refuse_inputs(out, *paths)
    choice = {name: reading[name] for name in CHOSEN}
    data = open_features(_selected(paths, reading), **choice)
    if data.encoding.is_named:
        click.echo(f"{data.where}: {data.encoding.summary()}.", err=True)
    return data


@command(
    argument("features", nargs=-1, required=True, type=PATH),
    output_option("Folder or bucket for ensemble.zarr and consensus.zarr.", name="FOLDER"),
    *(*CHOSEN, *READING, "n_clusters", "method"),
    option("--n-partitions", type=click.IntRange(min=1), default=100, help="Number of partitions."),
    option("--min-size", type=click.IntRange(min=1), help="Fewest objects in a cluster, for -m tree."),
    *("memory", "client", "random_state", "overwrite"),
)
def run(
    features: tuple[str, ...],
    out: str,
    n_clusters: Any,
    method: str,
    n_partitions: int,
    min_size: int | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Cluster FEATURES many times and find the consensus.

    Short for `bigcons generate` and `bigcons solve`. FEATURES is one table or several, as for `bigcons
    generate`, and need not fit in memory; each step keeps to the memory budget. A budget that is too small
    for the method is refused before generating; with -k auto, once the number is known. Repeating the command
    resumes an interrupted run and finds the result of a finished one; for another -k, use `bigcons solve`
    with the ensemble that the run made. Prints what was chosen and the time of each step, and warns of
    columns that the clusters merely repeat.
    """
    from bigcons.generate.kmeans import check_memory, make_partitions
    from bigcons.generate.training import MOST_PER_CLUSTER, Scheme, range_for
    from bigcons.run.survey import PlannedEnsemble

    ensemble_path, consensus_path = (f"{out.rstrip('/')}/{name}" for name in OF_RUN)
    reading = cli.pop_options(options, (*CHOSEN, *READING))
    parameters = {**options, "n_clusters": _n_clusters_of(method, n_clusters)}
    model = _model_of(method, parameters | ({} if min_size is None else {"min_size": min_size}))
    is_made = not overwrite and is_store(ensemble_path)
    if is_made and is_store(consensus_path) and "appended" not in bc.Ensemble.open(ensemble_path).provenance:
        try:  # to find the result, before features are read
            model.fit(ensemble_path, out=consensus_path)
        except StoreExistsError as error:  # of another -k or method; --overwrite makes partitions anew, too
            message = f"{error} To keep it, use bigcons solve {quote(ensemble_path)} with another -o."
            raise StoreExistsError(message, path=consensus_path) from None
    data = _open_features(features, reading, ensemble_path)
    seed, is_auto = options["random_state"], parameters["n_clusters"] == "auto"

    def scheme_for(number: Any) -> Scheme:
        scheme = Scheme("mixed", n_partitions, range_for(number), seed=seed)
        return scheme.of_objects(data.n_objects, data.chunk_rows)

    scheme = scheme_for(n_clusters)
    if is_made and is_auto:  # perhaps for the number that partitions of the first scheme show, see below
        most = bc.Ensemble.open(ensemble_path).provenance.get("n_clusters", (2, 0))[1]
        scheme = scheme_for(most // MOST_PER_CLUSTER) if most > scheme.ranges[0][1] else scheme
    checks = [] if is_made else [partial(check_memory, data, scheme, options["memory"], options["client"])]
    if overwrite or not is_store(consensus_path):
        planned = PlannedEnsemble(ensemble_path, data.n_objects, scheme.draw_numbers())
        checks.append(partial(model._check_plan, planned, consensus_path))
    check_all(checks)
    began = time.perf_counter()
    settings: dict[str, Any] = {**options, "out": ensemble_path, "overwrite": overwrite}
    ensemble = make_partitions(data, scheme, **settings)
    if is_auto and scheme.n_clusters is None:
        chosen = bc.choose_n_clusters(ensemble_path, **options).n_clusters
        if range_for(chosen, is_found=True):
            ensemble = make_partitions(data, scheme_for(chosen), **settings | {"overwrite": True})
    generated = time.perf_counter()
    release_unused()
    with cli.report_finished(consensus_path, "run", overwrite) as is_there:
        model.fit(ensemble_path, out=consensus_path, overwrite=overwrite)
    solve_seconds = None if is_there else time.perf_counter() - generated
    followed: list[str] = []
    release_unused()
    if not data.is_sparse:  # else of very many columns, none of which stands out
        budget = max(parse_size(options["memory"]) - PROCESS_BYTES - data.held_bytes, 1000)
        with suppress(MemoryBudgetError):  # not even a few rows fit
            solved = bc.Consensus.open(consensus_path)
            profiles = bc.metrics.cluster_profiles(data.table, solved, memory=budget)
            if followed := profiles.followed:
                flags = click.get_current_context().meta[cli.OPTIONS]
                click.echo(cli.with_options(profiles.followed_in_words(), flags), err=True)
    result = {
        "ensemble": {
            "path": ensemble_path,
            "n_objects": ensemble.n_objects,
            "n_partitions": ensemble.n_partitions,
            "clusters_per_partition": [int(ensemble.n_clusters.min()), int(ensemble.n_clusters.max())],
            "seconds": None if is_made else generated - began,
        },
        "consensus": {
            "path": consensus_path,
            "method": method,
            "memory": options["memory"],
            "random_state": options["random_state"],
            "seconds": solve_seconds,
            **_results_of(model),
        },
    }
    is_plain = len(features) == 1 and {*map(reading.get, READING[:3])} == {None}
    emit(
        {"kind": "run", **result, "followed": followed},
        cli.facts(result),
        *_ending(consensus_path, ensemble_path, Path(out).absolute().name, features[0] if is_plain else None),
    )


# From labels or memberships to an ensemble


@command(
    argument("tables", nargs=-1, required=True, type=PATH),
    output_option("Store for the ensemble or the pairs (.zarr or .parquet)."),
    *(*CHOSEN, "sep", "header", "missing"),
    option("--runs", is_flag=True, help="Each of the TABLES is a partition, with a column of labels."),
    option("--long", type=cli.name_list, metavar="OBJECT,PARTITION,LABEL", help="A row of the table is one "
           "label; names of the columns with its object, partition and label."),
    option("--memberships", is_flag=True,
           help="TABLES are memberships, one for each partition, with a column for each cluster."),
    option("--pairs", is_flag=True, help="TABLES has pairs of objects, for `bigcons solve --pairs`, in the "
           "columns i, j, n_agree and n_seen."),
    option("--n-objects", type=click.IntRange(min=1), help="Number of objects in --pairs.  [default: as a "
           ".parquet of bigcons states, else the largest in a pair, plus 1]"),
    *("memory", "overwrite"),
)  # fmt: skip
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
    column per partition, a folder of files, a pattern such as "labels/*.parquet", or a URL such as
    s3://bucket/labels.parquet; missing labels are empty, NaN or negative. The table is streamed and need not
    fit in memory. Ambiguous input, such as a first line of numbers in a .csv, is refused unless an option
    decides.

    With --runs, each of the TABLES is one partition. With --long, the table has a row for each label, such as
    the votes of workers on tasks. With --memberships, each of the TABLES is a soft clustering; its rows sum
    to 1, and are NaN or 0 where an object is missing.

    With --pairs, the table has a row for each pair, in any order, with the integer columns i < j, objects
    numbered from 0; n_agree, the number of partitions that cluster both together; and n_seen, the number of
    partitions that label both. It is sorted in memory, at 60 bytes a pair.
    """
    from bigcons.store.ensemble import import_labels
    from bigcons.store.pairs import import_pairs

    forms: dict[str, tuple[Any, Any]] = {
        "--runs": (runs, bc.Ensemble.from_runs),
        "--long": (long, bc.Ensemble.from_long),
        "--memberships": (memberships, bc.Ensemble.from_memberships),
        "--pairs": (pairs, import_pairs),
        "an import": (True, import_labels),
    }
    form, *alternatives = [name for name, (is_set, _) in forms.items() if is_set]
    store = forms[form][1]
    settings = {name: value for name, value in options.items() if value is not None}
    foreign = [cli.option_name(name) for name in settings if name not in inspect.signature(store).parameters]
    if pairs:
        foreign += [f"--{name}" for name, value in (("sep", sep), ("header", header)) if value is not None]
    if refused := [*foreign, *alternatives[:-1]]:
        raise click.UsageError(f"{form} takes no {refused[0]}; leave it out.")
    if runs:  # shells expand a pattern, but not in quotes
        tables = tuple(path for part in tables for path in [*map(str, matching(place_of(part)))] or [part])
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
    parts: Any = list(tables) if pairs else [bc.select(part, sep=sep, header=header) for part in tables]
    with cli.report_finished(options["out"], "import", options["overwrite"]):
        stored = store(parts if runs or memberships else parts[0], **settings)
    emit(stored.info())


@command(
    argument("ensemble", type=PATH),
    argument("tables", nargs=-1, required=True, type=PATH),
    option("--objects", is_flag=True, help="Rows of TABLES are further objects."),
    option("--partitions", is_flag=True, help="Columns of TABLES are further partitions."),
    *(*CHOSEN, "sep", "header", "missing", "memory"),
)
def append(
    ensemble: str, tables: tuple[str, ...], objects: bool, partitions: bool, sep: str | None, **options: Any
) -> None:
    """Append objects or partitions to the store ENSEMBLE.

    With --partitions, rows are joined by ids, in any order; objects that have no row are missing. With
    --objects, columns are the partitions, by their names or in their order, and ids must be new. For an
    ensemble of soft clusterings, TABLES are memberships, one table for each partition; otherwise there is one
    table, or a pattern in quotes. An append that is killed leaves the ensemble as it was.
    """
    if objects == partitions:
        raise click.UsageError("Say what to append: either --objects, whose rows are new, or --partitions.")
    opened = bc.Ensemble.open(ensemble, "a")
    if not opened.is_soft and len(tables) > 1:
        raise click.UsageError(f"Got {len(tables)} tables of labels; pass one, or a pattern in quotes.")
    add = opened.append_objects if objects else opened.append_partitions
    parts = [bc.select(part, sep=sep) for part in tables]
    source: Any = parts if opened.is_soft else parts[0]
    add(source, **{name: value for name, value in options.items() if value is not None})
    emit(opened.info())


# From an ensemble to pairs, and to a consensus


@command(
    argument("ensemble", type=PATH),
    output_option("Store for the pairs (.zarr)."),
    option("--per-object", type=float, default=30.0, help="Mean number of pairs drawn per object."),
    *("random_state", "memory", "client", "overwrite"),
)  # fmt: skip
def sample(ensemble: str, out: str, per_object: float, overwrite: bool, **options: Any) -> None:
    """Draw random pairs of objects and count their agreements.

    For each pair, counts the partitions of ENSEMBLE that label both objects and those that put them in the
    same cluster, for use with `bigcons solve --pairs`. `bigcons.coassociation.sample` also takes a share of
    all pairs or their number.
    """
    from bigcons.coassociation import counts

    # as much again, or more, is for pairs
    DataBudget(parse_size(options["memory"])).check(counts.COUNTING_BYTES, "processes that count pairs", "")
    with cli.report_finished(out, "call", overwrite):
        pairs = counts.sample(ensemble, per_object=per_object, **options, out=out, overwrite=overwrite)
    facts = {"n_objects": pairs.n_objects, "n_pairs": pairs.n_pairs, "per_object": per_object}
    emit({"kind": "pairs", "path": out, **facts})


COMMON = ("n_clusters", "random_state", "out", "client", "memory", "resume")
"""Parameters of methods that `solve` has as options, or that a command line cannot give."""


@command(
    argument("words", nargs=-1, type=PATH, metavar="ENSEMBLE [METHOD OPTIONS]"),
    *("method", "n_clusters"),
    output_option("Store for the consensus (.zarr)."),
    *(*CHOSEN, "sep", "header", "missing"),
    option("--memory", metavar="SIZE", help="Memory budget, such as 512MB or 2GB."),
    option("--resume/--no-resume", default=None,
           help="Resume an interrupted solve of this output (the default), or start over."),
    *("client", "random_state", "overwrite"),
    further=True,
)  # fmt: skip
def solve(
    words: tuple[str, ...], method: str, n_clusters: Any, out: str, overwrite: bool, **options: Any
) -> None:
    """Find the consensus of ENSEMBLE.

    The output store holds the labels and, for soft methods, memberships. ENSEMBLE is an ensemble store, or
    any table that `bigcons import` accepts, of which --id, --columns and --drop choose the columns. An
    interrupted solve resumes when the command is repeated; a completed one is reported as such.

    Each parameter of the method is a further option; `bigcons methods NAME` lists them. For -m pcc:
    --divergence l2|kl, --pairs all|dense|SHARE|PATH, --solver, --n-init, --max-iter, --tol. Options
    not given take the method's defaults; those it does not have are refused.
    """
    title, parameters = f"Method {method!r}", cli.parameters_of(bc.METHODS[method], without=COMMON)
    choice, reading = cli.pop_options(options, CHOSEN), cli.pop_options(options, ("sep", "header", "missing"))
    ensemble, settings = cli.parse_further(title, words, click.Argument(["ensemble"], type=PATH), parameters)
    settings |= {name: value for name, value in options.items() if value is not None}
    settings.setdefault("n_clusters", _n_clusters_of(method, n_clusters))
    model, began = _model_of(method, settings), time.perf_counter()
    with cli.report_finished(out, "solve", overwrite) as is_there:
        model.fit(bc.select(bc.select(ensemble, **reading), **choice), out=out, overwrite=overwrite)
    seconds = None if is_there else time.perf_counter() - began
    result = {"kind": "consensus", "path": out, "seconds": seconds, **_results_of(model)}
    emit(result, cli.facts(result), *_ending(out, ensemble if is_store(ensemble) else None, Path(out).stem))


def _model_of(method: str, parameters: dict[str, Any]) -> bc.ConsensusClusterer:
    """Return the estimator of a method with these parameters; raise UsageError for one it does not take."""
    if foreign := parameters.keys() - inspect.signature(bc.METHODS[method]).parameters.keys():
        names = ", ".join(map(cli.option_name, sorted(foreign)))
        raise click.UsageError(f"Method {method!r} takes no {names}; leave it out.")
    return bc.METHODS[method](**parameters)


def _n_clusters_of(method: str, n_clusters: Any) -> Any:
    """Return the number of clusters as a method takes it; raise UsageError if it needs one."""
    default = inspect.signature(bc.METHODS[method]).parameters["n_clusters"].default
    if n_clusters is None:
        if default not in (None, "auto"):
            auto = ", or auto to have it chosen" if bc.METHODS[method].chooses else ""
            raise click.UsageError(f"Method {method!r} needs -k, the number of clusters{auto}.")
        return default
    if n_clusters == "auto":
        is_by_lifetime = method.startswith("eac") and not bc.METHODS[method].chooses
        return None if is_by_lifetime else "auto"
    low, high = n_clusters if isinstance(n_clusters, tuple) else (n_clusters, n_clusters)
    if not (isinstance(low, int) and 1 <= low <= high):
        text = n_clusters if low == high else f"{low}:{high}"
        raise click.UsageError(f"-k {text} is no number of clusters; use one such as 5, or auto.")
    return range(low, high + 1) if isinstance(n_clusters, tuple) else n_clusters


def _results_of(model: bc.ConsensusClusterer) -> dict[str, Any]:
    """Return the scalar results of a fit, and how the number of clusters was chosen."""
    from bigcons.store.consensus import fit_results

    tree = getattr(model, "tree_", None)
    return fit_results(model) | ({} if tree is None else {"n_clusters_choice": tree_in_words(tree)})


def _ending(path: str, ensemble: str | None, name: str, features: str | None = None) -> tuple[str, str]:
    """Return the largest clusters of a solve, with confidence and support, and the next commands."""
    solved = bc.Consensus.open(path)
    sizes = solved.cluster_sizes()
    trust: Any = solved.trust_rows.clusters.to_pylist() if solved.has_trust else [{}] * len(sizes)
    columns = [name for name in ("confidence", "support") if any(row.get(name) is not None for row in trust)]
    rows = [
        {"cluster": k, "objects": int(sizes[k]), "share": f"{sizes[k] / sizes.sum():.1%}"}
        | {name: "-" if row[name] is None else f"{row[name]:.3f}" for name in columns}
        for k, row in zip(sizes.nonzero()[0].tolist(), trust, strict=False)
    ]
    largest = rows if len(rows) <= 12 else rows[:8]
    remark = f"\n... and {len(rows) - len(largest):,} smaller clusters" if len(largest) < len(rows) else ""
    report = ["bigcons", "report", path, *(["--ensemble", ensemble] if ensemble else [])]
    report += ["--features", features] if features else []
    export = ["bigcons", "export", path, "-o", f"{name}-labels.csv"]
    following = ["Next:", f"  {join([*report, '-o', f'{name}.html'])}", f"  {join(export)}"]
    return (table(largest) if rows else "No object has a label.") + remark, "\n".join(following)


@command(argument("name", required=False, type=cli.method_name))
def methods(name: str | None) -> None:
    """List the consensus methods, or describe the method NAME."""
    described = {
        key: {
            "class": method.__name__,
            "summary": (inspect.getdoc(method) or "").partition("\n")[0],
            "parameters": list(inspect.signature(method).parameters),
            **method.info._asdict(),
            "predicts": method._places(),
        }
        for key, method in bc.METHODS.items()
        if name in (None, key)
    }
    if name is not None:
        options = [f"Options of `bigcons solve -m {name}`:"]
        for parameter in cli.parameters_of(bc.METHODS[name], without=COMMON).values():
            default = "none" if parameter.default is None else parameter.default
            options.append(f"  {cli.option_name(parameter.name)}  (default: {default})")
        emit(described[name], f"{name}: {inspect.getdoc(bc.METHODS[name])}", "\n".join(options))
        return
    columns = {"soft": "soft", "soft input": "soft_input", "predict": "predicts", "missing labels": "missing",
               "out of core": "out_of_core", "distributed": "distributed", "needs": "needs",
               "paper": "paper"}  # fmt: skip
    flags: dict[Any, str] = {True: "yes", False: "-"}
    rows = [
        {"method": key} | {column: flags.get(entry[field], entry[field]) for column, field in columns.items()}
        for key, entry in described.items()
    ]
    emit({"methods": described}, table(rows, text=("missing labels", "needs", "paper")))


# What a consensus gives


@command(
    argument("features", nargs=-1, required=True, type=PATH),
    option("--with", "folder", required=True, type=PATH, metavar="FOLDER",
           help="Output of `bigcons run`, or the store of a consensus."),
    output_option("File for the labels: .parquet or .csv; or - for CSV to standard output.",
                  name="FILE"),
    *("id", "header", "sep", "decimal", "memberships", "client", "overwrite"),
)  # fmt: skip
def place(features: tuple[str, ...], folder: str, out: str, id: str | None, **options: Any) -> None:
    """Place the rows of FEATURES in the clusters of a consensus.

    FEATURES is a table, or several, with the columns from which `bigcons run` or `bigcons generate` made the
    ensemble, in any order and with values as they were then; other columns are not read. The rows are encoded
    and scaled as before, labeled by the centers and landmarks of all partitions, and placed by these labels,
    block by block.

    The output has a row for each row of FEATURES: its id, if it has one; its label; its confidence, if the
    method has memberships; and whether it is farther from its centers than 99 % of the rows from which the
    centers were made. If many more than 1 % of the rows are far, the data have changed. Warnings say so if
    most rows are far, and name the columns with text that did not occur before. A row without a known value
    in any column gets no label: -1.
    """
    from bigcons.methods.placing import open_placing, place_file

    target, reading = cli.destination(out), cli.pop_options(options, READING)
    placed = place_file(open_placing(folder), _selected(features, reading), target, id=id, **options)
    if out != cli.STANDARD:
        words = {f"cluster {k}": size for k, size in enumerate(placed["sizes"]) if size}
        result = {"kind": "placed", "path": out, **placed}
        emit(result, cli.facts({**result, "sizes": words}))


PICTURES = (".png", ".pdf", ".svg")


@command(
    argument("store", type=PATH),
    option("-k", "--n-clusters", type=click.IntRange(min=2), help="Clusters down to which to show it.  "
           "[default: the number recommended, and as many again]"),
    option("-o", "--out", type=PATH, metavar="FILE", help="Draw the tree (.png, .pdf or .svg), or write the "
           "table of all splits (.csv or .parquet)."),
    *("memory", "random_state", "client", "overwrite"),
)  # fmt: skip
def tree(store: str, n_clusters: int | None, out: str | None, overwrite: bool, **options: Any) -> None:
    """Show the tree of clusters and the support of its splits.

    STORE is an ensemble, or a consensus whose number of clusters was chosen, which has kept the tree.

    Prints the number of clusters recommended, and a table of the splits from the top: the objects of both
    sides, estimated if the tree is of a sample; the height of the split; and its support, how far random
    halves of the partitions separate the same sides. Splits of equal height have no order. A split that
    separates too few objects for a cluster leaves n_clusters unchanged.
    """
    from bigcons.store.ensemble import open_store
    from bigcons.store.store import export_blocks

    suffix = Path(out or "tree.csv").suffix.lower()
    if suffix not in (*PICTURES, ".csv", ".parquet"):
        message = f"{out} has suffix {suffix!r}; use {', '.join(PICTURES)}, .csv or .parquet."
        raise InvalidInputError(message, parameter="out")
    if out is not None:
        refuse_existing_file(out, overwrite)
    opened = open_store(store)
    if not isinstance(opened, bc.Consensus):
        cut = bc.consensus_tree(opened, **options)
    elif opened.tree is None:
        raise InvalidInputError(f"{store} has no tree: its number of clusters was given; pass the ensemble.")
    else:
        cut = opened.tree
    splits = cut.table()
    rows: list[dict[str, Any]] = splits.to_pylist()
    reached = np.maximum.accumulate(splits["n_clusters"].to_numpy())
    top = rows[: int((reached < (n_clusters or 2 * cut.choice.n_clusters)).sum()) + 1]
    notes = []
    if out is not None:
        if suffix in PICTURES:
            with new_file(out, overwrite=overwrite) as file:
                bc.plots.tree(cut, n_clusters).savefig(file, format=suffix[1:])
        else:
            columns = {name: splits[name].combine_chunks() for name in splits.column_names}
            export_blocks(out, len(splits), [columns], overwrite=overwrite)
        notes = [f"{out} is written."]
    result = {"ensemble": store, "n_objects": cut.n_objects, "n_clusters": cut.choice.n_clusters,
              "is_clear": cut.choice.is_clear, "tree": cut.tree, "splits": top}  # fmt: skip
    lower = f"{len(rows) - len(top[:20]):,} lower splits; -o FILE.csv writes all."
    emit(result, tree_in_words(cut), *([table(top[:20])] if top else []), f"... and {lower}", *notes)


@command(
    argument("consensus", type=PATH),
    output_option("The page (.html).", name="FILE"),
    "ensemble",
    option("--features", type=PATH, metavar="TABLE", help="A table of the objects: what is in each cluster."),
    *("columns", "drop", *READING),
    *("client", "overwrite"),
)
def report(consensus: str, out: str, features: str | None, overwrite: bool, **options: Any) -> None:
    """Write a one-page summary of CONSENSUS.

    The summary is one HTML file, which needs no network and no scripts: the clusters by size with their
    confidence, the least certain objects, the partitions, the convergence, how the consensus was made, and
    warnings. With --ensemble, also how the partitions agree and the tree of clusters. With --features, also
    what is in each cluster: means of numbers and dates, and frequent values of text, unless the text names
    objects. Values that counted as missing when the ensemble was generated are missing here, too, unless
    --missing names others.
    """
    from bigcons.report import Report

    refuse_existing_file(out, overwrite)
    refuse_inputs(out, features, options["ensemble"])
    reading = cli.pop_options(options, ("columns", "drop", *READING))
    if features is None and (names := [name for name, value in reading.items() if value is not None]):
        raise click.UsageError(f"{cli.option_name(names[0])} has no effect without --features; give both.")
    if features is not None:
        options["features"] = _selected([features], reading, "columns", "drop")
    page = Report(consensus, **options)
    page.save(out, overwrite=overwrite)
    result = {"path": out, "facts": page.facts, "warnings": page.warnings, "notes": page.notes}
    emit(result, "\n".join([out, *page.warnings, *page.notes]))


@command(
    argument("consensus", type=PATH),
    output_option("Folder for the figures.", name="FOLDER"),
    "ensemble",
    *("client", "overwrite"),
)
def plot(consensus: str, out: str, overwrite: bool, **options: Any) -> None:
    """Draw figures of CONSENSUS as PNG.

    Draws the memberships and the graph of overlapping clusters (for a soft method), how far clusters and
    objects can be trusted (if the store says so), the tree (if the number of clusters was chosen), the
    convergence (if there were several passes) and, with --ensemble, the co-association of a sample of the
    objects and the agreement of partitions.
    """
    from bigcons.report import figures_of

    if (folder := Path(out)).suffix.lower() in PICTURES or folder.is_file():
        raise InvalidInputError(f"{out} is no folder, for several figures; choose one.", parameter="out")
    refuse_inputs(out, options["ensemble"])
    figures = figures_of(consensus, **options)
    if not figures:
        raise InvalidInputError(f"{consensus} has nothing to draw; give --ensemble as well.")
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.png" for name in figures}
    for path in paths.values():
        refuse_existing_file(path, overwrite)
    with ExitStack() as files:  # which appear together
        for name, figure in figures.items():
            figure.savefig(files.enter_context(new_file(paths[name], overwrite=overwrite)), format="png")
    names = [str(path) for path in paths.values()]
    emit({"figures": names}, "\n".join(names))


@command(
    argument("consensus", type=PATH),
    output_option("File for the labels: .parquet or .csv; or - for CSV to standard output.",
                  name="FILE"),
    "memberships",
    option("--confidence", is_flag=True, help="Also write confidence, second_labels, second_confidence."),
    option("--min-confidence", type=float, metavar="P", help="Confidence below which a label is -1."),
    "overwrite",
)  # fmt: skip
def export(consensus: str, out: str, **options: Any) -> None:
    """Write the labels of CONSENSUS to a file.

    The file has one row per object, in order: its id, if it has one, under its original name, and its label,
    -1 if no partition labeled it. Ids are written as they are: spreadsheets read ids that begin with =, +, -
    or @ as formulas.
    """
    target, solved = cli.destination(out), bc.Consensus.open(consensus)
    solved.export(target, **options)
    if out != cli.STANDARD:
        del options["overwrite"]
        emit({"path": out, "n_objects": solved.n_objects, **options})


@command(argument("store", type=PATH))
def info(store: str) -> None:
    """Describe STORE: an ensemble, a table of pairs or a consensus.

    Its data are not read.
    """
    from bigcons.store.ensemble import open_store

    emit(open_store(store).info())


@command(argument("store", type=PATH))
def verify(store: str) -> None:
    """Check all data of STORE against its checksums.

    STORE is an ensemble or a table of pairs (.zarr or .parquet), or a consensus. The check stops at the first
    difference. The exit status is 0 if STORE is intact, else 1, with a message that says what is damaged.
    """
    from bigcons.store.ensemble import open_store

    result = open_store(store).verify()
    emit({"ok": True, **result}, f"{store} is intact.\n{cli.facts(result)}")
