"""Export columns to a .parquet, .csv or .npy file, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.progress import progress
from bigcons.storage.commit import new_file
from bigcons.storage.interface import StorePath
from bigcons.storage.places import local_path

Types = Mapping[str, np.dtype]
"""The type of each column, by name."""

Write = Callable[[Sequence[np.ndarray]], Any]
"""Writes the columns ``(rows,)`` of the next block."""


@contextmanager
def export_to(path: StorePath, n_rows: int, types: Types, *, overwrite: bool) -> Iterator[Write]:
    """Yield the function that writes blocks to a .parquet, .csv or .npy file; see `Consensus.export`."""
    suffix = local_path(path).suffix
    if suffix.lower() not in _WRITERS:
        raise InvalidInputError(f"{path} has suffix {suffix!r}; use one of {', '.join(_WRITERS)}.")
    writer = _WRITERS[suffix.lower()]
    with (
        new_file(path, overwrite=overwrite) as file,
        writer(file, n_rows, types) as write,
        progress("export", n_rows) as listener,
    ):

        def write_block(columns: Sequence[np.ndarray]) -> None:
            write(columns)
            listener.advance(len(columns[0]))

        yield write_block


@contextmanager
def _parquet(file: IO[bytes], _n_rows: int, types: Types) -> Iterator[Write]:
    import pyarrow as pa
    from pyarrow import parquet

    whole_numbers = [name for name, dtype in types.items() if dtype.kind == "i"]
    schema = _schema(types)
    with parquet.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=whole_numbers, write_page_checksum=True
    ) as writer:
        yield lambda columns: writer.write_batch(pa.record_batch(columns, schema=schema))


@contextmanager
def _csv(file: IO[bytes], _n_rows: int, types: Types) -> Iterator[Write]:
    import pyarrow as pa
    from pyarrow import csv

    file.write(f"{','.join(types)}\n".encode())  # pyarrow would quote the names
    schema = _schema(types)
    with csv.CSVWriter(file, schema, write_options=csv.WriteOptions(include_header=False)) as writer:
        yield lambda columns: writer.write_batch(pa.record_batch(columns, schema=schema))


def _schema(types: Types) -> Any:
    import pyarrow as pa

    return pa.schema([(name, pa.from_numpy_dtype(dtype)) for name, dtype in types.items()])


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


_WRITERS = {".parquet": _parquet, ".csv": _csv, ".npy": _npy}
"""By file suffix."""
