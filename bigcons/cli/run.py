"""``bigcons run``: from features to a consensus in one command."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from shlex import join
from typing import TYPE_CHECKING, Any

import click

from bigcons.cli.group import Terminated, at_a_terminal
from bigcons.cli.options import (
    TABLE,
    column_words,
    feature_reading,
    log_option,
    memory_option,
    one_or_many,
    option_name,
    output_option,
    overwrite_option,
    random_state_option,
    reading_words,
    refuse_alone,
    scheduler_option,
    table_options,
)
from bigcons.cli.output import emit, emit_constant, facts, log_to_stderr, reporting, some, telling_finished
from bigcons.cli.solve import (
    cluster_count,
    ending,
    method_option,
    parse_method,
    results_of,
    shown_results,
)
from bigcons.errors import (
    ExecutionError,
    InvalidIdsError,
    InvalidInputError,
    MemoryBudgetError,
    StoreExistsError,
)
from bigcons.memory import PROCESS_BYTES, parse_size

if TYPE_CHECKING:
    import numpy as np

    from bigcons.io.ids import Ids


@click.command()
@click.argument("features", nargs=-1, required=True, type=TABLE)
@output_option("Folder or bucket for ensemble.zarr and consensus.zarr.", name="FOLDER")
@table_options("features")
@feature_reading
@log_option
@click.option(
    "-k",
    "--n-clusters",
    type=cluster_count,
    metavar="K|auto",
    help="Maximum number of clusters in the consensus. auto: the method chooses it, as for `bigcons solve`; "
    "with -m supra also LOW:HIGH, all of which are tried.  [required]",
)
@method_option(", with its defaults")
@click.option("--n-partitions", type=click.IntRange(min=1), help="Number of partitions.  [default: 100]")
@click.option(
    "--truth",
    type=TABLE,
    metavar="FILE",
    help="True classes, one row per object, to score against; --sep and --header are for it, too.",
)
@click.option("--column", help="Column of the truth file.  [default: its only column]")
@memory_option
@scheduler_option
@random_state_option
@overwrite_option
@reporting
def run(
    features: tuple[str, ...],
    out: str,
    chosen: dict[str, Any],
    reading: dict[str, Any],
    log: list[str] | None,
    n_clusters: int | range | str | None,
    method: str,
    n_partitions: int | None,
    truth: str | None,
    column: str | None,
    memory: str,
    client: str | None,
    random_state: int,
    overwrite: bool,
) -> None:
    """Cluster FEATURES many times and find the consensus.

    Short for `bigcons generate` and `bigcons solve`; with a truth, the consensus is scored against it.
    FEATURES is one table or several, as for `bigcons generate`, and need not fit in memory; each step keeps
    to the memory budget, and has a process of its own. A budget that is too small for the method is refused
    before generating, with -k auto once the number is known. Repeating the command resumes an interrupted
    run and finds the result of a finished one; an ensemble that is there is used for another -k, too,
    unless --n-partitions asks for others. What was chosen is printed, with the time of each step, and at
    the end the columns of few values, if any, of which each cluster has only one.
    """
    from bigcons.io.files import StandardInput, is_text_path, refuse_missing
    from bigcons.io.select import select

    for path in (*features, *([] if truth is None else [truth])):
        refuse_missing(path)  # methods take seconds to import
    if n_clusters is None:
        raise click.UsageError("Give the number of clusters with -k, or -k auto to have it chosen.")
    refuse_alone("--truth", truth, column=column)
    ensemble_path, consensus_path = (f"{out.rstrip('/')}/{name}.zarr" for name in ("ensemble", "consensus"))
    given: dict[str, Any] = {"n_clusters": n_clusters, "memory": memory, "random_state": random_state}
    given |= {} if client is None else {"client": client}
    _, parameters = parse_method(method, (ensemble_path,), given)

    source, classes = select(one_or_many(features), **reading), None
    if truth is not None:
        of_text = ("sep", "header") if is_text_path(truth) else ()
        classes = select(truth, **{name: reading[name] for name in of_text})
    table = {"features": source, **chosen, "log": log}
    making = {
        "n_partitions": 100 if n_partitions is None else n_partitions,
        "out": ensemble_path,
        "memory": memory,
        "random_state": random_state,
        "overwrite": overwrite,
        "client": client,
    }
    # generating leaves a hundred megabytes behind, for which the memory of the solve has no room
    generating, is_sparse = _in_a_process(
        _generate, table, (classes, column), making, n_partitions, (method, parameters, consensus_path)
    )

    from bigcons.methods import METHODS
    from bigcons.metrics.clusterings import OF_TRUTH, truth_table
    from bigcons.metrics.description import cluster_profiles
    from bigcons.store.consensus import Consensus
    from bigcons.store.ensemble import Ensemble

    ensemble = Ensemble.open(ensemble_path)
    emit_constant(ensemble)
    began = time.perf_counter()
    model = METHODS[method](**parameters)
    try:
        with telling_finished(consensus_path, "run", overwrite) as is_there:
            model.fit(ensemble_path, out=consensus_path, overwrite=overwrite)
    except StoreExistsError as error:
        solve = ["bigcons", "solve", ensemble_path, "-m", method, "-k", _cluster_word(n_clusters)]
        solve += ["--random-state", str(random_state)] if random_state else []
        raise StoreExistsError(
            f"{error} Solve the ensemble that is there by `{join([*solve, '-o', 'OTHER'])}`.",
            path=error.path,
        ) from None
    except KeyboardInterrupt:
        click.echo(f"{ensemble_path} is complete and kept; repeat the command to resume.", err=True)
        raise
    solving = None if is_there else time.perf_counter() - began

    made_with = ensemble.provenance
    low, high = int(ensemble.n_clusters.min()), int(ensemble.n_clusters.max())
    n_features = len(made_with.get("columns", made_with["features"]))
    is_sampled = made_with["sample_rows"] < ensemble.n_objects
    trained_on = f"a sample of {made_with['sample_rows']:,}" if is_sampled else "all objects"
    of_clusters = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    result: dict[str, Any] = {
        "kind": "run",
        "ensemble": {
            "path": ensemble_path,
            "n_objects": ensemble.n_objects,
            "n_features": n_features,
            "n_partitions": ensemble.n_partitions,
            "clusters_per_partition": [low, high],
            "trained_on": trained_on,
            "seconds": generating,
        },
        "consensus": {
            "path": consensus_path,
            "method": method,
            "memory": memory,
            "random_state": random_state,
            "seconds": solving,
            **results_of(model),
        },
    }
    if truth is not None:
        found, joined = read_classes(classes, column, ensemble.n_objects, ensemble.id_column)
        counts = truth_table(found, Consensus.open(consensus_path).label_rows)
        scores = {name: criterion(counts) for name, criterion in OF_TRUTH.items()}
        result["scores"] = {"truth_rows": joined, "n_judged": int(counts.sum()), **scores}
    solved = Consensus.open(consensus_path)
    result["followed"], followed = None, ""
    if not is_sparse:  # else of very many columns, none of which stands out
        # what the process may hold of data; where no block of them fits, it remains unknown
        left = max(parse_size(memory) - PROCESS_BYTES, 1000)
        with suppress(MemoryBudgetError):
            profiles = cluster_profiles(select(source, **chosen), solved, memory=left)
            result["followed"], followed = profiles.followed, profiles.followed_in_words()
    shown = {
        "ensemble": {
            "ensemble": ensemble_path,
            "objects": ensemble.n_objects,
            "features": n_features,
            "partitions": f"{ensemble.n_partitions:,} into {of_clusters} clusters, trained on {trained_on}",
            "seconds": generating,
        },
        "consensus": shown_results(result["consensus"], solved),
        **({"scores": result["scores"]} if truth is not None else {}),
    }
    folder = out.rstrip("/")
    report = ["bigcons", "report", consensus_path, "--ensemble", ensemble_path]
    if len(features) == 1 and not isinstance(features[0], StandardInput):
        report += ["--features", features[0], *reading_words(reading)]
        for name in ("columns", "drop"):
            report += [] if chosen[name] is None else [option_name(name), column_words(chosen[name])]
    export = ["bigcons", "export", consensus_path]
    commands = [join([*report, "-o", f"{folder}.html"]), join([*export, "-o", f"{folder}-labels.csv"])]
    emit(result, "\n\n".join([facts(shown), ending(solved, commands)]))
    if followed:
        click.echo(followed, err=True)


def _cluster_word(n_clusters: int | range | str) -> str:
    """Return the word of a command line that gives this number of clusters, or range."""
    return f"{n_clusters[0]}:{n_clusters[-1]}" if isinstance(n_clusters, range) else str(n_clusters)


def _generate(
    table: dict[str, Any],
    truth: tuple[Any, str | None],
    making: dict[str, Any],
    n_partitions: int | None,
    solving: tuple[str, dict[str, Any], str],
) -> tuple[float | None, bool]:
    """Generate the ensemble, once it is known that it can be solved and scored.

    Return the seconds taken, None for one that is there, and whether the features are sparse. One that is
    there may have another number of partitions, unless ``n_partitions`` is asked for.
    """
    from bigcons import generate
    from bigcons.disk.commit import is_store, provenance_at
    from bigcons.generate.kmeans import drawn_clusters
    from bigcons.methods import METHODS
    from bigcons.run.memory_plan import PlannedEnsemble
    from bigcons.store.ensemble import Ensemble
    from bigcons.store.features import open_features

    began = time.perf_counter()
    out = making["out"]
    data = open_features(table.pop("features"), **table)
    if data.encoding.is_named:
        click.echo(f"{data.where}: {data.encoding.summary()}.", err=True)
    made = None if making["overwrite"] else provenance_at(out, "ensemble")
    if made is not None and n_partitions is None and made.get("generator") == "mixed":
        n_made = Ensemble.open(out).n_partitions
        if n_made != making["n_partitions"]:
            making["n_partitions"] = n_made
            click.echo(
                f"{out} is used as it is, with {n_made:,} partitions; for others pass --n-partitions with "
                "--overwrite, or choose another folder.",
                err=True,
            )
    if truth[0] is not None:
        read_classes(truth[0], truth[1], data.n_objects, data.ids)
    method, parameters, consensus = solving
    if making["overwrite"] or not is_store(consensus):
        drawn = drawn_clusters(data.n_objects, making["n_partitions"], making["random_state"])
        METHODS[method](**parameters).check_plan(PlannedEnsemble(out, data.n_objects, drawn), consensus)
    generate.mixed(data, **making)
    return None if made is not None else time.perf_counter() - began, data.is_sparse


# The truth


def read_classes(
    source: Any, column: str | None, n_objects: int, ids: Ids | None = None
) -> tuple[np.ndarray, str]:
    """Return the classes of a truth file as integers, -1 where missing, and how its rows were joined.

    Only their column is read. Where the objects have ids and the file has them, in a column of their name,
    rows are matched by them.
    """
    import numpy as np

    from bigcons.io.intake import open_table
    from bigcons.io.select import select, source_of
    from bigcons.store.ensemble import Ensemble

    path = source_of(source)
    is_anndata = path.lower().endswith(".h5ad")  # whose columns may be measurements, and are only looked at
    table = open_table(select(source, columns="*") if is_anndata else source, "labels")
    names = table.names or [str(c) for c in range(table.n_columns)]
    id = None
    if ids is not None and ids.facts.name in names and ids.facts.name != column:
        id = ids.facts.name
    others = [name for name in names if name != id]
    if column is None and len(others) != 1:
        raise InvalidInputError(f"{path} has the columns {some(others)}; choose one with --column.")
    if id is None and table.n_rows is not None:
        _check_length(path, table.n_rows, n_objects)
    truth = Ensemble.from_labels(source, id=id, columns=others[0] if column is None else column)
    classes = truth.read(0, truth.n_objects)[:, 0]
    if ids is None or truth.id_column is None:
        _check_length(path, truth.n_objects, n_objects)
        return classes, "in order"
    joined = f"by {truth.id_column.facts.name}"
    if truth.id_column.facts.digest == ids.facts.digest:
        return classes, joined  # the same ids in the same order
    found, known = truth.id_column.hold().values, ids.hold().values
    if found.type != known.type:
        raise InvalidIdsError(
            f"{id} of {path} is {found.type} but the ids of the objects are {known.type}; convert them.",
            column=id,
        )
    import pyarrow.compute as pc

    rows = pc.index_in(known, value_set=found)
    if rows.null_count == len(rows):
        raise InvalidIdsError(f"{path} has none of the objects by {id}; check the column.", column=id)
    return np.append(classes, classes.dtype.type(-1))[pc.fill_null(rows, -1).to_numpy()], joined


def _check_length(path: str, n_rows: int, n_objects: int) -> None:
    if n_rows != n_objects:
        raise InvalidInputError(
            f"{path} has {n_rows:,} rows but the consensus has {n_objects:,} objects; "
            "give one class per object, in order."
        )


# A process of its own


def _in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function(*arguments)``, called in a new process that ends before this returns.

    Its errors are raised here. It shows progress, warnings and logs like this process, and ends with it.
    """
    context = multiprocessing.get_context("spawn")
    answers, answer_to = context.Pipe(duplex=False)
    level = logging.getLogger("bigcons").level
    child = context.Process(target=_answer, args=(answer_to, level, function, arguments))
    child.start()
    answer_to.close()
    try:
        value, error = answers.recv()
    except EOFError:
        child.join()
        raise ExecutionError(
            f"the process that generates ended with status {child.exitcode}, killed or out of memory; repeat "
            "the command to resume."
        ) from None
    except BaseException as interruption:
        # Ctrl-C reaches both processes: the one that generates may end by itself
        child.join(0 if isinstance(interruption, Terminated) else 5.0)
        child.terminate()
        child.join()
        raise
    child.join()
    if error is not None:
        raise error
    return value


def _answer(
    answer_to: Connection, level: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    """Send what the function returns, or the error it raises."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - it was started by one

    def end_with_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    if level:
        log_to_stderr(level)
    try:
        with at_a_terminal():
            answer_to.send((function(*arguments), None))
    except BaseException as error:  # the parent raises it, unless it has ended, as at a second Ctrl-C
        with suppress(BrokenPipeError):
            answer_to.send((None, error))
