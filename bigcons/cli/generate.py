"""``bigcons generate``: base partitions of a feature table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import click

from bigcons.cli.options import (
    PATH,
    ClusterRange,
    memory_option,
    output_option,
    overwrite_option,
    random_state_option,
)
from bigcons.cli.output import emit_ensemble, reporting

SCHEMES = {
    "kmeans": "kmeans",
    "zipf": "weighted_kmeans",
    "diverse": "diverse",
    "feature-views": "feature_views",
    "object-views": "object_views",
}
"""Names of the schemes, and of their functions in `bigcons.generate`."""


class Clusters(ClusterRange):
    """A number of clusters, a range of them, or ``split``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return ``(min, max)`` or ``"split"``."""
        return value if value == "split" else super().convert(value, param, ctx)


class NumberRange(click.ParamType):
    """A range of numbers, ``0:1.5``; becomes a pair."""

    name = "MIN:MAX"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Return ``(min, max)``."""
        try:
            low, _, high = value.partition(":")
            return float(low), float(high or low)
        except ValueError:
            self.fail(f"{value!r} is no range of numbers; write 0:1.5.", param, ctx)


class Names(click.ParamType):
    """One name, or several with commas between them."""

    name = "NAME,..."

    def convert(self, value: Any, _: click.Parameter | None, __: click.Context | None) -> str | list[str]:
        """Return a name, or a list of names."""
        names = value.split(",")
        return names if len(names) > 1 else str(value)


@click.command()
@click.argument("features", type=PATH)
@output_option("Where the ensemble goes (.zarr).")
@click.option(
    "--scheme",
    type=click.Choice(list(SCHEMES)),
    default="kmeans",
    show_default=True,
    help="k-means on random samples; on features with Zipf weights; different algorithms (in memory); "
    "k-means on some of the features; k-means on parts that share all objects among them.",
)
@click.option(
    "--n-partitions",
    type=click.IntRange(min=1),
    help="Partitions.  [default: 100; feature-views: 10; object-views: 16]",
)
@click.option(
    "--n-clusters",
    type=Clusters(),
    metavar="K|MIN:MAX|split",
    help="Clusters of a partition; split: as many as cut the data into small blocks.  [default: 2:10; "
    "needed for views]",
)
@click.option(
    "--fixed",
    type=click.IntRange(min=1),
    metavar="K",
    help="K clusters and all objects in every partition: restarts. For --n-clusters K --sample 1.",
)
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    help="Share of the objects each partition sees; the others have no label in it.  [default: 0.5; zipf: 1]",
)
@click.option("--alpha-range", type=NumberRange(), help="zipf: exponents of the weights.  [default: 0:1.5]")
@click.option(
    "--largest-weight", type=click.IntRange(min=1), help="zipf: largest weight of a feature.  [default: 20]"
)
@click.option("--n-features", type=click.IntRange(min=1), help="feature-views: features each partition sees.")
@click.option(
    "--repetition",
    type=click.IntRange(min=1),
    help="object-views: partitions that see an object, on average.  [default: 2]",
)
@click.option(
    "--algorithms",
    type=Names(),
    help="diverse: pcc (linkages, k-means, spectral), rcc (k-means and graph partitioning by four "
    "similarities), or names with commas.  [default: pcc]",
)
@click.option(
    "--standardize/--no-standardize", default=True, help="Bring features to mean 0, deviation 1 (default)."
)
@random_state_option
@memory_option
@overwrite_option
@reporting
def command(
    features: str,
    out: str,
    scheme: str,
    fixed: int | None,
    standardize: bool,
    random_state: int,
    memory: str,
    overwrite: bool,
    **options: Any,
) -> None:
    """Cluster FEATURES many times.

    The partitions are stored as an ensemble. FEATURES is a .parquet, .csv, .npy or .zarr of one row per
    object; it is read in blocks and need not fit in memory, except for --scheme diverse. An option that a
    scheme does not have is refused.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if fixed is not None:
        given = _with_fixed(given, fixed, scheme)
    ensemble = _generator(scheme, given)(
        features,
        **given,
        out=out,
        standardize=standardize,
        memory=memory,
        random_state=random_state,
        overwrite=overwrite,
    )
    emit_ensemble(ensemble, out)


def _with_fixed(given: dict[str, Any], fixed: int, scheme: str) -> dict[str, Any]:
    """Return the options with ``--fixed`` written out."""
    if scheme not in ("kmeans", "zipf"):
        raise click.UsageError(f"Scheme {scheme!r} takes no --fixed; use --n-clusters.")
    twice = given.keys() & {"n_clusters", "sample"}
    if twice:
        raise click.UsageError(f"Give either --fixed or {_option_names(twice)}, not both.")
    return {**given, "n_clusters": fixed, "sample": 1.0}


def _generator(scheme: str, given: dict[str, Any]) -> Callable[..., Any]:
    """Return the function of a scheme that takes all ``given`` parameters and needs no other."""
    from bigcons import generate

    function: Callable[..., Any] = getattr(generate, SCHEMES[scheme])
    parameters = inspect.signature(function).parameters
    foreign = given.keys() - parameters.keys()
    if foreign:
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
    return ", ".join(f"--{name.replace('_', '-')}" for name in sorted(parameters))
