"""``bigcons solve``: find the consensus of an ensemble."""

from __future__ import annotations

import inspect
import time
from typing import Any

import click

from bigcons.cli.options import (
    cluster_count,
    complete_method,
    complete_path,
    find_method,
    option_name,
    output_option,
    overwrite_option,
    parse_words,
    random_state_option,
)
from bigcons.cli.output import emit, facts, reporting


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument(
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="ENSEMBLE [METHOD OPTIONS]",
    shell_complete=complete_path,
)
@click.option(
    "-m",
    "--method",
    default="pcc",
    show_default=True,
    help="Method, one of those listed by `bigcons methods`.",
    shell_complete=complete_method,
)
@click.option(
    "-k",
    "--n-clusters",
    type=cluster_count,
    metavar="K|auto",
    help="Clusters, at most; auto for methods that can find the number, such as eac by lifetime.",
)
@output_option("Store for the consensus (.zarr).")
@click.option("--memory", metavar="SIZE", help="Memory budget, such as 512MB or 2GB.")
@click.option(
    "--resume/--no-resume",
    default=None,
    help="Resume an interrupted solve of this output (the default), or start over.",
)
@click.option(
    "--scheduler",
    "client",
    metavar="ADDRESS",
    help="Dask scheduler, such as tcp://host:8786; or threads or serial.",
)
@random_state_option
@overwrite_option
@reporting
def command(
    words: tuple[str, ...],
    method: str,
    n_clusters: int | str | None,
    out: str,
    random_state: int,
    overwrite: bool,
    **options: Any,
) -> None:
    """Find the consensus of ENSEMBLE.

    The store holds its labels and, for soft methods, memberships. ENSEMBLE is an ensemble store, or any table
    that `bigcons import` accepts. An interrupted solve resumes when the command is repeated; a completed one
    is reported as such.

    Each parameter of the method is a further option; `bigcons methods NAME` lists them. For pcc:
    --divergence l2|kl|power:P, --pairs all|dense|SHARE|PATH, --solver, --n-init, --max-iter, --tol. Options
    not given take the method's defaults; those it does not have are refused.
    """
    from bigcons.solving.workspace import can_resume
    from bigcons.storage.commit import is_store
    from bigcons.stores.consensus import fit_results

    options["n_clusters"] = n_clusters
    given = {name: value for name, value in options.items() if value is not None}
    ensemble, model = _parse(method, words, {**given, "random_state": random_state})
    is_there, began = is_store(out) and not overwrite, time.perf_counter()
    try:
        model.fit(ensemble, out=out, overwrite=overwrite)
    except KeyboardInterrupt:
        if not can_resume(out):
            click.echo("No checkpoint was reached; the solve will start from the beginning.", err=True)
        raise
    if is_there:
        click.echo(f"{out} already holds the result of this solve.", err=True)
    results = {"seconds": time.perf_counter() - began, **fit_results(model)}
    emit({"kind": "consensus", "path": out, **results}, facts({"consensus": out, **results}))


def _parse(name: str, words: tuple[str, ...], given: dict[str, Any]) -> tuple[str, Any]:
    """Return the ensemble that ``words`` name, and the method with their options and ``given``."""
    method = find_method(name)
    arguments, own = parse_words(name, method, words)
    if len(arguments) != 1:
        raise click.UsageError(
            f"Give one ENSEMBLE, not {len(arguments)}: {' '.join(arguments) or 'nothing'}."
        )
    parameters = inspect.signature(method).parameters
    if "n_clusters" not in given and parameters["n_clusters"].default is not None:
        raise click.UsageError(f"Method {name!r} needs -k, the number of clusters.")
    if foreign := given.keys() - parameters.keys():
        options = ", ".join(map(option_name, sorted(foreign)))
        raise click.UsageError(f"Method {name!r} takes no {options}; leave it out.")
    if given.get("n_clusters") == "auto":
        if "None" not in str(parameters["n_clusters"].annotation):
            raise click.UsageError(f"Method {name!r} does not find the number of clusters; give it with -k.")
        given["n_clusters"] = None
    return arguments[0], method(**given, **own)
