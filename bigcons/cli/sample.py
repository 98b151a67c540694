"""``bigcons sample``: draw random pairs of objects and count their agreements."""

from __future__ import annotations

from typing import Any

import click

from bigcons.cli.options import (
    TABLE,
    memory_option,
    output_option,
    overwrite_option,
    random_state_option,
    scheduler_option,
)
from bigcons.cli.output import amount, emit, reporting, telling_finished

DEFAULT_PER_OBJECT = 30.0


def _tile_count(value: str) -> int | str | None:
    if value in ("auto", "none"):
        return None if value == "none" else value
    if not value.isdigit() or int(value) < 2:
        raise click.BadParameter(f"{value!r} is not a number of tiles; use 2 or more, auto or none.")
    return int(value)


@click.command()
@click.argument("ensemble", type=TABLE)
@output_option("Store for the pairs (.zarr).")
@click.option(
    "--per-object",
    type=click.FloatRange(0, min_open=True),
    help=f"Mean number of pairs per object.  [default: {DEFAULT_PER_OBJECT:g}]",
)
@click.option("--share", type=click.FloatRange(0, 1, min_open=True), help="Instead: fraction of all pairs.")
@click.option("--n-pairs", type=click.IntRange(min=1), help="Instead: number of pairs.")
@click.option(
    "--tiles",
    type=_tile_count,
    default="auto",
    show_default=True,
    metavar="N|auto|none",
    help="Draw block by block, each block of objects with itself and N others; none: from all pairs; auto: "
    "block by block if the pairs exceed the memory budget.",
)
@random_state_option
@memory_option
@scheduler_option
@overwrite_option
@reporting
def sample(
    ensemble: str,
    out: str,
    per_object: float | None,
    share: float | None,
    n_pairs: int | None,
    tiles: int | str | None,
    random_state: int,
    memory: str,
    client: str | None,
    overwrite: bool,
) -> None:
    """Draw random pairs of objects and count their agreements.

    For each pair, counts the partitions of ENSEMBLE that label both objects and those that put them in the
    same cluster, for use with `bigcons solve --pairs`. Pairs that are drawn block by block, as with --tiles,
    go directly to disk.
    """
    from bigcons import coassociation

    sizes: dict[str, Any] = {"per_object": per_object, "share": share, "n_pairs": n_pairs}
    asked = {name: value for name, value in sizes.items() if value is not None}
    if len(asked) > 1:
        raise click.UsageError("Give only one of --per-object, --share and --n-pairs.")
    asked = asked or {"per_object": DEFAULT_PER_OBJECT}
    options: dict[str, Any] = {
        "tiles": tiles,
        "random_state": random_state,
        "memory": memory,
        "client": client,
    }
    with telling_finished(out, "call", overwrite):
        pairs = coassociation.sample(ensemble, **asked, **options, out=out, overwrite=overwrite)
    result = {"kind": "pairs", "path": out, "n_objects": pairs.n_objects, "n_pairs": pairs.n_pairs, **asked}
    emit(result, f"{out}: {amount(pairs.n_pairs, 'pair')} of {amount(pairs.n_objects, 'object')}.")
