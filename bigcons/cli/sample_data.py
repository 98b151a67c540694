"""``bigcons sample-data``: a table to try the other commands on."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from bigcons.cli.options import PATH, overwrite_option, random_state_option
from bigcons.cli.output import amount, emit, reporting
from bigcons.errors import InvalidInputError

N_FEATURES = 10


@click.command()
@click.argument("file", type=PATH)
@click.option("--size", type=click.IntRange(min=10), default=2000, show_default=True, help="Objects.")
@click.option("--truth", type=PATH, metavar="FILE", help="Write the true classes, too (.csv or .parquet).")
@random_state_option
@overwrite_option
@reporting
def sample_data(file: str, size: int, truth: str | None, random_state: int, overwrite: bool) -> None:
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

    write = {".csv": csv.write_csv, ".parquet": parquet.write_table}
    paths = [file] if truth is None else [file, truth]
    for path in paths:
        if not path.endswith(tuple(write)):
            raise InvalidInputError(f"{path} is no .csv or .parquet file; choose one of these suffixes.")
        refuse_existing_file(path, overwrite)
    features, classes = planted_features(size, N_FEATURES, random_state=random_state)
    ids = [f"object-{i:0{len(str(size))}}" for i in range(size)]
    columns = {f"feature_{j}": np.round(features[:, j], 4) for j in range(N_FEATURES)}
    tables = [pa.table({"id": ids, **columns}), pa.table({"id": ids, "class": classes})]
    for path, table in zip(paths, tables, strict=False):
        write[Path(path).suffix](table, path)
    scored = "" if truth is None else f" --truth {quote(truth)} --column class"
    emit(
        {"path": file, "truth": truth, "n_objects": size, "n_features": N_FEATURES},
        f"{file}: {amount(size, 'object')} with {N_FEATURES} features. To continue, for example:\n"
        f"  bigcons run {quote(file)} --id id -k 3 -o out/{scored}",
    )
