"""What users see of results: columns in a .parquet, .csv or .npy file, and HTML tables in notebooks."""

from __future__ import annotations

import csv
import html
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import numpy as np

from bigcons.disk.commit import new_file
from bigcons.disk.files import StorePath
from bigcons.disk.places import local_path
from bigcons.errors import InvalidInputError, MissingDependencyError
from bigcons.progress import progress

SUFFIXES = (".parquet", ".csv", ".npy")


@contextmanager
def export_to(
    path: StorePath | IO[bytes], n_rows: int, types: Mapping[str, Any], *, overwrite: bool
) -> Iterator[Callable[[Sequence[Any]], None]]:
    """Yield the function that writes the columns ``(rows,)`` of the next block; see `Consensus.export`.

    ``types`` has the numpy or Arrow type of each column. An open file gets comma-separated values.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    with ExitStack() as stack:
        suffix, file = ".csv", path
        if isinstance(path, (str, os.PathLike)):
            suffix = local_path(path).suffix.lower()
            if suffix not in SUFFIXES:
                raise InvalidInputError(f"{path} has suffix {suffix!r}; use one of {', '.join(SUFFIXES)}.")
            file = stack.enter_context(new_file(path, overwrite=overwrite))
        numpy_types = [name for name, kind in types.items() if isinstance(kind, np.dtype)]
        fields = {name: pa.from_numpy_dtype(types[name]) for name in numpy_types}
        schema = pa.schema([*{**types, **fields}.items()]) if suffix != ".npy" else None
        writer: Any = None
        if suffix == ".parquet":
            whole_numbers = [name for name in numpy_types if types[name].kind == "i"]
            how: dict[str, Any] = {"use_dictionary": whole_numbers, "write_page_checksum": True}
            writer = stack.enter_context(parquet.ParquetWriter(file, schema, compression="zstd", **how))
        elif suffix == ".csv":
            header = io.StringIO()
            csv.writer(header, lineterminator="\n").writerow(types)
            file.write(header.getvalue().encode())  # type: ignore[union-attr] # pyarrow would quote all names
            options = arrow_csv.WriteOptions(include_header=False)
            writer = stack.enter_context(arrow_csv.CSVWriter(file, schema, write_options=options))
        else:  # one number per row or, with several columns, a structured array
            record = np.dtype(list(types.items()))
            descr = np.lib.format.dtype_to_descr(record if len(types) > 1 else record[0])
            shape = {"descr": descr, "fortran_order": False, "shape": (n_rows,)}
            np.lib.format.write_array_header_2_0(file, shape)  # type: ignore[arg-type]
        listener = stack.enter_context(progress("export", n_rows))

        def write(columns: Sequence[Any]) -> None:
            if writer is not None:
                writer.write_batch(pa.record_batch(columns, schema=schema))
            else:
                records = np.empty(len(columns[0]), record)
                for name, values in zip(types, columns, strict=True):
                    records[name] = values
                file.write(records.tobytes())  # type: ignore[union-attr]
            listener.advance(len(columns[0]))

        yield write


# In notebooks


def facts_table(caption: str, facts: Mapping[str, Any]) -> str:
    """Return names and values as an HTML table, floats to six digits; None values are left out."""
    rows = "".join(
        f"<tr><th scope='row' style='text-align:left'>{html.escape(str(name))}</th>"
        f"<td style='text-align:left'>{html.escape(_text(value))}</td></tr>"
        for name, value in facts.items()
        if value is not None
    )
    return f"<table><caption>{html.escape(caption)}</caption>{rows}</table>"


def first_rows(caption: str, columns: Mapping[str, Sequence[Any]]) -> str:
    """Return columns as an HTML table of their first ten rows; the first column heads the rows."""
    n_rows = len(next(iter(columns.values())))
    told = caption if n_rows <= 10 else f"{caption}: 10 of {n_rows:,}"
    head = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in columns)
    lines = []
    for first, *others in list(zip(*columns.values(), strict=True))[:10]:
        cells = "".join(f"<td>{html.escape(_text(value))}</td>" for value in others)
        lines.append(f"<tr><th scope='row'>{html.escape(_text(first))}</th>{cells}</tr>")
    return (
        f"<table><caption>{html.escape(told)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def import_pandas() -> Any:
    """Return pandas; raise MissingDependencyError if it is not installed."""
    try:
        import pandas as pd  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError(
            "to_pandas needs pandas, which is not installed; run pip install pandas."
        ) from error
    return pd
