"""``bigcons sample``: random pairs of objects with their counts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from bigcons.cli.options import PATH, memory_option, output_option, overwrite_option, random_state_option
from bigcons.cli.output import amount, emit, reporting

DEFAULT_PER_OBJECT = 30.0


@click.command()
@click.argument("ensemble", type=PATH)
@output_option("Where the pairs go: .zarr to work with, .parquet to hand on.")
@click.option(
    "--per-object",
    type=click.FloatRange(0, min_open=True),
    help=f"Mean number of pairs an object is in.  [default: {DEFAULT_PER_OBJECT:g}]",
)
@click.option("--share", type=click.FloatRange(0, 1, min_open=True), help="Share of all pairs, instead.")
@click.option("--n-pairs", type=click.IntRange(min=1), help="Number of pairs, instead.")
@random_state_option
@memory_option
@overwrite_option
@reporting
def command(
    ensemble: str,
    out: str,
    per_object: float | None,
    share: float | None,
    n_pairs: int | None,
    random_state: int,
    memory: str,
    overwrite: bool,
) -> None:
    """Draw random pairs of objects and count them.

    Counts, for each pair, the partitions of ENSEMBLE that see and that join it. The pairs serve `bigcons
    solve --pairs` again and again. Where they do not fit in the memory budget they are drawn block against
    block, straight to disk.
    """
    from bigcons import coassociation

    sizes: dict[str, Any] = {"per_object": per_object, "share": share, "n_pairs": n_pairs}
    asked = {name: value for name, value in sizes.items() if value is not None}
    if len(asked) > 1:
        raise click.UsageError("Give only one of --per-object, --share and --n-pairs.")
    asked = asked or {"per_object": DEFAULT_PER_OBJECT}
    draw = partial(coassociation.sample, ensemble, **asked, random_state=random_state, memory=memory)
    if out.endswith(".parquet"):
        pairs = _draw_to_parquet(draw, out, overwrite)
    else:
        pairs = draw(out=out, overwrite=overwrite)
    result = {"kind": "pairs", "path": out, "n_objects": pairs.n_objects, "n_pairs": pairs.n_pairs, **asked}
    emit(result, f"{out}: {amount(pairs.n_pairs, 'pair')} of {amount(pairs.n_objects, 'object')}.")


def _draw_to_parquet(draw: Callable[..., Any], out: str, overwrite: bool) -> Any:
    """Draw pairs into a store beside ``out``, for they may not fit into memory, and write them out of it."""
    from bigcons.storage.commit import refuse_existing_file
    from bigcons.storage.places import naming

    target = refuse_existing_file(out, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    with naming(target):
        folder = tempfile.TemporaryDirectory(prefix=".bigcons-", dir=target.parent)
    with folder as scratch:
        pairs = draw(out=str(Path(scratch, "pairs.zarr")))
        pairs.to_parquet(out, overwrite=overwrite)
    return pairs
