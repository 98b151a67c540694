"""Export columns to a .parquet, .csv or .npy file, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.progress import progress
from bigcons.storage.commit import new_file
from bigcons.storage.interface import StorePath
from bigcons.storage.places import local_path

if TYPE_CHECKING:
    import pyarrow as pa


class Columns(NamedTuple):
    """The columns to write, block by block."""

    n_rows: int
    dtypes: dict[str, np.dtype]
    """Type of each column, by name."""
    blocks: Iterable[Sequence[np.ndarray]]
    """The columns ``(rows,)`` of each block; iterated once."""

    def read(self) -> Iterator[Sequence[np.ndarray]]:
        """Yield the columns of each block, with progress."""
        with progress("export", self.n_rows) as listener:
            for block in self.blocks:
                yield block
                listener.advance(len(block[0]))


def export_columns(columns: Columns, path: StorePath, *, overwrite: bool) -> None:
    """Write columns to a .parquet, .csv or .npy file; see `Consensus.export`."""
    suffix = local_path(path).suffix
    if suffix.lower() not in _WRITERS:
        raise InvalidInputError(f"{path} has suffix {suffix!r}; use one of {', '.join(_WRITERS)}.")
    with new_file(path, overwrite=overwrite) as file:
        _WRITERS[suffix.lower()](file, columns)


def _write_parquet(file: IO[bytes], columns: Columns) -> None:
    from pyarrow import parquet

    whole_numbers = [name for name, dtype in columns.dtypes.items() if dtype.kind == "i"]
    with parquet.ParquetWriter(
        file, _schema(columns), compression="zstd", use_dictionary=whole_numbers, write_page_checksum=True
    ) as writer:
        _write_batches(writer, columns)


def _write_csv(file: IO[bytes], columns: Columns) -> None:
    from pyarrow import csv

    file.write(f"{','.join(columns.dtypes)}\n".encode())  # pyarrow would quote the names
    rows_only = csv.WriteOptions(include_header=False)
    with csv.CSVWriter(file, _schema(columns), write_options=rows_only) as writer:
        _write_batches(writer, columns)


def _write_npy(file: IO[bytes], columns: Columns) -> None:
    """Write one number per row or, with several columns, a structured array."""
    record = np.dtype(list(columns.dtypes.items()))
    header = {
        "descr": np.lib.format.dtype_to_descr(record if len(columns.dtypes) > 1 else record[0]),
        "fortran_order": False,
        "shape": (columns.n_rows,),
    }
    np.lib.format.write_array_header_2_0(file, header)
    for block in columns.read():
        records = np.empty(len(block[0]), record)
        for name, values in zip(columns.dtypes, block, strict=True):
            records[name] = values
        file.write(records.tobytes())


def _write_batches(writer: Any, columns: Columns) -> None:
    import pyarrow as pa

    schema = _schema(columns)
    for block in columns.read():
        writer.write_batch(pa.record_batch(block, schema=schema))


def _schema(columns: Columns) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, pa.from_numpy_dtype(dtype)) for name, dtype in columns.dtypes.items()])


_WRITERS: dict[str, Callable[[IO[bytes], Columns], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".npy": _write_npy,
}
"""By file suffix."""
