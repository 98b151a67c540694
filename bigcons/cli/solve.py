"""``bigcons solve``: the consensus of an ensemble."""

from __future__ import annotations

import inspect
import time
from typing import Any

import click

from bigcons.cli.options import Pairs, output_option, overwrite_option, random_state_option
from bigcons.cli.output import emit, facts, reporting


@click.command()
@click.argument("ensemble")
@click.option("-m", "--method", default="pcc", show_default=True, help="One of `bigcons methods`.")
@click.option("-k", "--n-clusters", type=click.IntRange(min=1), required=True, help="Clusters, at most.")
@output_option("Where the consensus goes (.zarr).")
@click.option("--divergence", metavar="l2|kl|power:P|exponential:R", help="What a pair's misfit costs.")
@click.option("--pairs", type=Pairs(), help="The pairs looked at.")
@click.option("--solver", metavar="auto|all|heap", help="How the problem is solved.")
@click.option("--max-iter", type=click.IntRange(min=1), help="Passes, or for the heap steps, at most.")
@click.option("--tol", type=click.FloatRange(min=0), help="Optimality gap to reach.")
@click.option("--n-init", type=click.IntRange(min=1), help="Starts, of which the best is kept.")
@click.option("--memory", metavar="SIZE", help="Memory budget, such as 512MB or 2GB.")
@click.option("--resume", is_flag=True, default=None, help="Take up the solve that was interrupted.")
@click.option(
    "--scheduler",
    "client",
    metavar="ADDRESS",
    help="Dask scheduler such as tcp://host:8786; or threads, serial.",
)
@random_state_option
@overwrite_option
@reporting
def command(
    ensemble: str, method: str, n_clusters: int, out: str, random_state: int, overwrite: bool, **options: Any
) -> None:
    """Find the consensus of ENSEMBLE.

    Stores its labels and memberships. ENSEMBLE is an ensemble store, or any table `bigcons import` takes.
    Options that are not given have the method's own defaults; an option the method does not have is
    refused.
    """
    from bigcons.stores import manifest
    from bigcons.stores.consensus import fit_results

    manifest.refuse_existing(out, overwrite)
    given = {name: value for name, value in options.items() if value is not None}
    model = _method(method, given)(n_clusters=n_clusters, random_state=random_state, **given)
    began = time.perf_counter()
    model.fit(ensemble, out=out, overwrite=overwrite)
    results = {"seconds": time.perf_counter() - began, **fit_results(model)}
    emit({"kind": "consensus", "path": out, **results}, facts({"consensus": out, **results}))


def _method(name: str, given: dict[str, Any]) -> Any:
    """Return the class of a method that takes all ``given`` parameters."""
    from bigcons.solvers import METHODS

    if name not in METHODS:
        raise click.UsageError(f"There is no method {name!r}; choose one of {', '.join(METHODS)}.")
    foreign = given.keys() - inspect.signature(METHODS[name]).parameters.keys()
    if foreign:
        options = ", ".join(f"--{parameter.replace('_', '-')}" for parameter in sorted(foreign))
        raise click.UsageError(f"Method {name!r} takes no {options}; leave it out.")
    return METHODS[name]
