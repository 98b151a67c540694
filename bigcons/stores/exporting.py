"""The labels of a consensus as a file for other programs, written block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.progress import progress
from bigcons.stores.new_file import new_file
from bigcons.stores.place import StorePath
from bigcons.stores.places import local_path

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.stores.consensus import Consensus


class _Table(NamedTuple):
    """What is written: a column of labels, and one of memberships per cluster if they were asked for."""

    consensus: Consensus
    memberships: bool

    @property
    def columns(self) -> dict[str, np.dtype]:
        """Types of the columns by name."""
        clusters = range(self.consensus.n_clusters if self.memberships else 0)
        return {"label": np.dtype(np.int32)} | {f"cluster_{k}": np.dtype(np.float32) for k in clusters}

    def blocks(self) -> Iterator[list[np.ndarray]]:
        """Yield the columns ``(rows,)`` of each block."""
        with progress("export", self.consensus.n_objects) as listener:
            for block in self.consensus.blocks():
                columns = [self.consensus.read_labels(block.start, block.stop)]
                if self.memberships:
                    rows = self.consensus.read_memberships(block.start, block.stop)
                    columns += list(np.ascontiguousarray(rows.T))
                yield columns
                listener.advance(block.n_rows)


def export_consensus(consensus: Consensus, path: StorePath, *, memberships: bool, overwrite: bool) -> None:
    """Write labels, and if asked for memberships, to a .parquet, .csv or .npy: see `Consensus.export`."""
    suffix = local_path(path).suffix
    if suffix.lower() not in _WRITERS:
        raise InvalidInputError(f"{path} has suffix {suffix!r}; give one of {', '.join(_WRITERS)}.")
    if memberships:
        consensus.read_memberships(0, 0)  # refuses a consensus without any
    with new_file(path, overwrite=overwrite) as file:
        _WRITERS[suffix.lower()](file, _Table(consensus, memberships))


def _write_parquet(file: IO[bytes], table: _Table) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(
        file, _schema(table), compression="zstd", use_dictionary=["label"], write_page_checksum=True
    ) as writer:
        _write_batches(writer, table)


def _write_csv(file: IO[bytes], table: _Table) -> None:
    from pyarrow import csv

    file.write(f"{','.join(table.columns)}\n".encode())  # pyarrow's own line of names has quotes
    rows_only = csv.WriteOptions(include_header=False)
    with csv.CSVWriter(file, _schema(table), write_options=rows_only) as writer:
        _write_batches(writer, table)


def _write_npy(file: IO[bytes], table: _Table) -> None:
    """Write a number per object, or with memberships a record whose fields have the names of the columns."""
    record = np.dtype(list(table.columns.items()))
    dtype = record if table.memberships else record["label"]
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": (table.consensus.n_objects,),
    }
    np.lib.format.write_array_header_2_0(file, header)
    for block in table.blocks():
        records = np.empty(len(block[0]), record)
        for name, values in zip(table.columns, block, strict=True):
            records[name] = values
        file.write(records.tobytes())


def _write_batches(writer: Any, table: _Table) -> None:
    import pyarrow as pa

    schema = _schema(table)
    for block in table.blocks():
        writer.write_batch(pa.record_batch(block, schema=schema))


def _schema(table: _Table) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, pa.from_numpy_dtype(dtype)) for name, dtype in table.columns.items()])


_WRITERS: dict[str, Callable[[IO[bytes], _Table], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".npy": _write_npy,
}
"""By suffix of the file."""
