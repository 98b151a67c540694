"""What users see of results: columns in a .parquet, .csv or .npy file, and HTML tables in notebooks."""

from __future__ import annotations

import csv
import html
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import IO, Any

import numpy as np

from bigcons.disk.commit import new_file
from bigcons.disk.files import StorePath
from bigcons.disk.places import local_path
from bigcons.errors import InvalidInputError, MissingDependencyError
from bigcons.progress import progress

Types = Mapping[str, Any]
"""The numpy or Arrow type of each column, by name."""

Write = Callable[[Sequence[Any]], Any]
"""Writes the columns ``(rows,)`` of the next block."""


@contextmanager
def export_to(path: StorePath | IO[bytes], n_rows: int, types: Types, *, overwrite: bool) -> Iterator[Write]:
    """Yield the function that writes blocks to a file; see `Consensus.export`."""
    with ExitStack() as stack:
        if isinstance(path, (str, os.PathLike)):
            name = local_path(path).name.lower()
            suffix = next((known for known in _WRITERS if name.endswith(known)), None)
            if suffix is None:
                raise InvalidInputError(
                    f"{path} has suffix {local_path(path).suffix!r}; use one of {', '.join(_WRITERS)}."
                )
            file = stack.enter_context(new_file(path, overwrite=overwrite))
        else:
            suffix, file = ".csv", path
        write = stack.enter_context(_WRITERS[suffix](file, n_rows, types))
        listener = stack.enter_context(progress("export", n_rows))

        def write_block(columns: Sequence[Any]) -> None:
            write(columns)
            listener.advance(len(columns[0]))

        yield write_block


@contextmanager
def _parquet(file: IO[bytes], _n_rows: int, types: Types) -> Iterator[Write]:
    import pyarrow as pa
    from pyarrow import parquet

    whole_numbers = [n for n, kind in types.items() if isinstance(kind, np.dtype) and kind.kind == "i"]
    schema = _schema(types)
    with parquet.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=whole_numbers, write_page_checksum=True
    ) as writer:
        yield lambda columns: writer.write_batch(pa.record_batch(columns, schema=schema))


@contextmanager
def _separated(file: IO[bytes], _n_rows: int, types: Types) -> Iterator[Write]:
    import pyarrow as pa
    from pyarrow import csv as arrow

    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(types)
    schema = _schema(types)
    options = arrow.WriteOptions(include_header=False)
    file.write(header.getvalue().encode())  # pyarrow would quote all names
    with arrow.CSVWriter(file, schema, write_options=options) as writer:
        yield lambda columns: writer.write_batch(pa.record_batch(columns, schema=schema))


def _schema(types: Types) -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            (name, pa.from_numpy_dtype(kind) if isinstance(kind, np.dtype) else kind)
            for name, kind in types.items()
        ]
    )


@contextmanager
def _npy(file: IO[bytes], n_rows: int, types: Types) -> Iterator[Write]:
    """Write one number per row or, with several columns, a structured array."""
    record = np.dtype(list(types.items()))
    descr = np.lib.format.dtype_to_descr(record if len(types) > 1 else record[0])
    header = {"descr": descr, "fortran_order": False, "shape": (n_rows,)}
    np.lib.format.write_array_header_2_0(file, header)

    def write(columns: Sequence[np.ndarray]) -> None:
        records = np.empty(len(columns[0]), record)
        for name, values in zip(types, columns, strict=True):
            records[name] = values
        file.write(records.tobytes())

    yield write


_WRITERS: dict[str, Callable[[IO[bytes], int, Types], AbstractContextManager[Write]]] = {
    ".parquet": _parquet,
    ".csv": _separated,
    ".npy": _npy,
}
"""By how the name of the file ends."""


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
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def import_pandas() -> Any:
    """Return pandas; raise MissingDependencyError if it is not installed."""
    try:
        import pandas as pd  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError(
            "to_pandas needs pandas, which is not installed; run pip install pandas."
        ) from error
    return pd
