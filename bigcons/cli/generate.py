"""``bigcons generate``: generate base partitions from a table of features."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import click

from bigcons.cli.options import (
    TABLE,
    feature_reading,
    log_option,
    memory_option,
    one_or_many,
    option_name,
    output_option,
    overwrite_option,
    random_state_option,
    scheduler_option,
    table_options,
)
from bigcons.cli.output import emit_constant, emit_ensemble, reporting, telling_finished

T = TypeVar("T", int, float)

SCHEMES = {
    "mixed": "mixed",
    "landmarks": "landmarks",
    "kmeans": "kmeans",
    "zipf": "weighted_kmeans",
    "feature-views": "feature_views",
    "object-views": "object_views",
}
"""Schemes and their functions in `bigcons.generate`."""


def base_clusters(value: str) -> tuple[int, int] | str:
    """Parse the clusters of a partition: a number, a range, or split."""
    return value if value == "split" else _range(value, int, "a number of clusters; use 5 or 2:10")


def _numbers(value: str) -> tuple[float, float]:
    return _range(value, float, "a range of numbers; use one such as 0:1.5")


def _range(value: str, kind: Callable[[str], T], needed: str) -> tuple[T, T]:
    try:
        first, _, last = value.partition(":")
        low, high = kind(first), kind(last or first)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not {needed}.") from None
    if low > high:
        raise click.BadParameter(f"{value!r} is not {needed}; the lower number comes first.")
    return low, high


def _trained_on(value: str) -> int | str:
    if value in ("auto", "all"):
        return value
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not auto, all or a number of objects.") from None


@click.command()
@click.argument("features", nargs=-1, required=True, type=TABLE)
@output_option("Store for the ensemble (.zarr or .parquet).")
@table_options("features")
@feature_reading
@log_option
@click.option(
    "--scheme",
    type=click.Choice(list(SCHEMES)),
    default="mixed",
    show_default=True,
    help="half of the partitions by landmarks and half by k-means, of all objects; spectral clusterings on "
    "landmarks, which follow curved shapes; k-means on random samples; k-means on features with Zipf "
    "weights; k-means on subsets of the features; k-means on overlapping "
    "subsets that cover all objects.",
)
@click.option(
    "--n-partitions",
    type=click.IntRange(min=1),
    help="Number of partitions.  [default: 100; feature-views: 10; object-views: 16]",
)
@click.option(
    "--n-clusters",
    type=base_clusters,
    metavar="K|MIN:MAX|split",
    help="Not for mixed. Clusters per partition; split: enough to divide the data into small groups.  "
    "[default: 2:10; landmarks: 2:20; required for views]",
)
@click.option(
    "--fixed",
    type=click.IntRange(min=1),
    metavar="K",
    help="K clusters and all objects in every partition, so that partitions differ only in their start; "
    "short for --n-clusters K --sample 1.",
)
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    help="kmeans and zipf: fraction of the objects in each partition; the others get no label in it.  "
    "[default: 0.5; zipf: 1]",
)
@click.option(
    "--train",
    type=_trained_on,
    metavar="auto|all|N",
    help="auto: where the objects of a partition are many, it is made of a sample of them; "
    "N: of a sample of N; all: of all, in memory.  [default: auto]",
)
@click.option(
    "--alpha-range", type=_numbers, metavar="MIN:MAX", help="zipf: range of the exponents.  [default: 0:1.5]"
)
@click.option(
    "--largest-weight", type=click.IntRange(min=1), help="zipf: largest feature weight.  [default: 20]"
)
@click.option(
    "--n-features", type=click.IntRange(min=1), help="feature-views: number of features per partition."
)
@click.option(
    "--repetition",
    type=click.IntRange(min=1),
    help="object-views: mean number of partitions per object.  [default: 2]",
)
@click.option(
    "--standardize/--no-standardize",
    default=True,
    help="Scale features to mean 0 and standard deviation 1, the default.",
)
@random_state_option
@memory_option
@scheduler_option
@overwrite_option
@reporting
def generate(
    features: tuple[str, ...],
    out: str,
    chosen: dict[str, Any],
    reading: dict[str, Any],
    log: list[str] | None,
    scheme: str,
    fixed: int | None,
    train: int | str | None,
    standardize: bool,
    random_state: int,
    memory: str,
    client: str | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Cluster FEATURES many times.

    The partitions are stored as an ensemble. FEATURES is a .parquet, .csv, .tsv (or these compressed), .npy,
    or .zarr with one row per object, a folder of files, a pattern such as "data/*.parquet", several
    files, a URL of these such as s3://bucket/data.parquet, or -, standard input; it is read in
    blocks and need not fit in memory. Options that do not apply to the scheme
    are refused. Repeating the command resumes an interrupted run and finds the result of a finished one.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if fixed is not None:
        if scheme not in ("kmeans", "zipf"):
            raise click.UsageError(f"Scheme {scheme!r} takes no --fixed; use --n-clusters.")
        if twice := given.keys() & {"n_clusters", "sample"}:
            raise click.UsageError(f"Give either --fixed or {_option_names(twice)}, not both.")
        given |= {"n_clusters": fixed, "sample": 1.0}
    from bigcons.io.select import select
    from bigcons.store.features import open_features

    make = _generator(scheme, given)
    with telling_finished(out, "call", overwrite):
        source = select(one_or_many(features), **reading)
        data = open_features(source, **chosen, log=log)
        if data.encoding.is_named:
            click.echo(f"{data.where}: {data.encoding.summary()}.", err=True)
        ensemble = make(
            data,
            **given,
            **({} if train is None else {"train": train}),
            out=out,
            standardize=standardize,
            memory=memory,
            random_state=random_state,
            overwrite=overwrite,
            client=client,
        )
    emit_constant(ensemble)
    emit_ensemble(ensemble, out)


def _generator(scheme: str, given: dict[str, Any]) -> Callable[..., Any]:
    """Return the function of a scheme; raise UsageError unless it takes exactly the ``given`` parameters."""
    from bigcons import generate

    function: Callable[..., Any] = getattr(generate, SCHEMES[scheme])
    parameters = inspect.signature(function).parameters
    if foreign := given.keys() - parameters.keys():
        raise click.UsageError(f"Scheme {scheme!r} takes no {_option_names(foreign)}; leave it out.")
    needed = {
        name
        for name, parameter in parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    }
    if needed - given.keys():
        raise click.UsageError(f"Scheme {scheme!r} needs {_option_names(needed - given.keys())}.")
    return function


def _option_names(parameters: set[str]) -> str:
    return ", ".join(map(option_name, sorted(parameters)))
