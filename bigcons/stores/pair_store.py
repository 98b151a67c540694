"""Stored pair tables: the four arrays of a store, and Parquet files for exchange."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bigcons.errors import CorruptStoreError, InvalidInputError, StoreNotFoundError
from bigcons.schema import PAIRS
from bigcons.storage.arrays import create_array, create_group, open_declared
from bigcons.storage.commit import load_manifest, new_file, new_store, write_manifest
from bigcons.storage.interface import Place, StorePath
from bigcons.storage.places import local_path
from bigcons.stores.pair_rows import MAX_OBJECTS, Edges, Rows
from bigcons.validation import check_choice, check_int

KIND = "pairs"
RESTORE = "sample or import the pairs again, or restore the store from a copy."
_PARQUET_METADATA = b"bigcons.pairs"


# Zarr


def open_pairs(place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the four arrays by name, open for reading, and the body of the manifest.

    Raises StoreNotFoundError if it does not exist, CorruptStoreError if its arrays do not match the manifest.
    """
    data, body, _ = load_manifest(place, KIND)
    try:
        check_int("n_objects", body["n_objects"], at_least=0, at_most=MAX_OBJECTS)
        check_int("n_pairs", body["n_pairs"], at_least=0)
        counts = check_choice("counts_dtype", body["counts_dtype"], PAIRS["n_seen"].dtypes)
        agree = check_choice("agree_dtype", body.get("agree_dtype", counts), (counts, "float32"))
        chunk_entries = check_int("chunk_entries", body["chunk_entries"])
        if body.get("rows_per_block") is not None:
            check_int("rows_per_block", body["rows_per_block"])
        n_checksums = {name: len(body["checksums"][name]) for name in PAIRS}
        dict(body["provenance"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptStoreError(
            f"{place} has an inconsistent manifest ({error}); {RESTORE}", path=place
        ) from error
    shapes = {name: spec.shape_in(body) for name, spec in PAIRS.items()}
    if n_checksums != {name: -(-length // chunk_entries) for name, (length,) in shapes.items()}:
        raise CorruptStoreError(
            f"{place} has a manifest with missing or extra checksums; {RESTORE}", path=place
        )
    dtypes = _dtypes(counts, agree)
    return {name: open_declared(data / name, shapes[name], dtypes[name], RESTORE) for name in PAIRS}, body


def write_pairs(
    path: StorePath,
    parts: Iterable[Rows],
    counts_dtype: np.dtype,
    agree_dtype: np.dtype,
    chunk_entries: int,
    facts: Mapping[str, Any],
    *,
    overwrite: bool,
) -> None:
    """Write consecutive blocks of rows, all or nothing, with ``facts`` in the manifest."""
    with new_store(path, overwrite) as folder:
        create_group(folder)
        dtypes = _dtypes(counts_dtype, agree_dtype)
        columns = {name: ColumnWriter(folder / name, name, dtypes[name], chunk_entries) for name in PAIRS}
        n_entries = 0
        columns["indptr"].append(np.zeros(1, np.int64))
        for part in parts:
            columns["indptr"].append(part.indptr[1:] + n_entries)
            for name in ("indices", "n_agree", "n_seen"):
                columns[name].append(getattr(part, name))
            n_entries += len(part.indices)
        for column in columns.values():
            column.close()
        if columns["indptr"].n_entries != facts["n_objects"] + 1 or n_entries % 2:
            raise ValueError("the parts are not the rows of a symmetric table of n_objects objects")
        body = {
            **facts,
            "n_pairs": n_entries // 2,
            "counts_dtype": str(np.dtype(counts_dtype)),
            "agree_dtype": str(np.dtype(agree_dtype)),
            "chunk_entries": chunk_entries,
            "checksums": {name: column.checksums for name, column in columns.items()},
        }
        write_manifest(folder, KIND, body)


def _dtypes(counts: np.dtype | str, agree: np.dtype | str) -> dict[str, np.dtype]:
    types = {"indptr": "int64", "indices": "int32", "n_agree": agree, "n_seen": counts}
    return {name: np.dtype(dtype) for name, dtype in types.items()}


class ColumnWriter:
    """Appends to one array; keeps at most the last part and one chunk in memory."""

    def __init__(self, place: Place, name: str, dtype: np.dtype, chunk_entries: int) -> None:
        self._place = place
        self._name = name
        self._dtype = dtype
        self._chunk_entries = chunk_entries
        self._array: Any = None
        self._pending: list[np.ndarray] = []
        self._n_pending = 0
        self.n_entries: int = 0
        self.checksums: list[int] = []

    def append(self, part: np.ndarray) -> None:
        """Write complete chunks and keep the rest."""
        self._pending.append(part)
        self._n_pending += len(part)
        if self._n_pending >= self._chunk_entries:
            self._flush(self._n_pending - self._n_pending % self._chunk_entries)

    def close(self) -> None:
        """Write the rest; create the array even if it is empty."""
        if self._n_pending or self._array is None:
            self._flush(self._n_pending)

    def _flush(self, n_entries: int) -> None:
        pending = np.concatenate([np.empty(0, self._dtype), *self._pending], dtype=self._dtype)
        self._pending = [pending[n_entries:].copy()]
        self._n_pending = len(self._pending[0])
        if self._array is None:
            length = min(self._chunk_entries, max(n_entries, 1))
            self._array = create_array(self._place, PAIRS[self._name], (0,), (length,), self._dtype)
        self._array.resize((self.n_entries + n_entries,))
        for start in range(0, n_entries, self._chunk_entries):
            chunk = pending[start : min(start + self._chunk_entries, n_entries)]
            self._array[self.n_entries : self.n_entries + len(chunk)] = chunk
            self.checksums.append(checksum(chunk))
            self.n_entries += len(chunk)


def checksum(part: np.ndarray) -> int:
    """Return the CRC-32 of the values as little-endian bytes."""
    return zlib.crc32(np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<")).data)


# Parquet


def write_parquet(
    path: str | os.PathLike[str], parts: Iterable[Edges], facts: dict[str, Any], *, overwrite: bool
) -> None:
    """Write ``parts`` as row groups of one file, with ``facts`` in its metadata, all or nothing."""
    import pyarrow as pa
    from pyarrow import parquet

    writer = None
    with new_file(path, overwrite=overwrite) as file:
        for part in parts:
            table = pa.table(part._asdict())
            if writer is None:
                stated = json.dumps(facts, default=str).encode()
                schema = table.schema.with_metadata({_PARQUET_METADATA: stated})
                writer = parquet.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def read_parquet(path: str | os.PathLike[str], n_objects: int | None) -> tuple[Edges, dict[str, Any]]:
    """Return the columns of the file unchanged, and its facts: n_objects and provenance."""
    import pyarrow as pa
    from pyarrow import parquet

    if not local_path(path).is_file():
        raise StoreNotFoundError(f"{path} is not a file; check the path.", path=path)
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            schema, metadata = file.schema_arrow, file.schema_arrow.metadata or {}
            for name in Edges._fields:
                places = schema.get_all_field_indices(name)
                if len(places) != 1 or not _is_count(name, schema.field(places[0]).type):
                    got = ", ".join(f"{field.name}: {field.type}" for field in schema)
                    raise InvalidInputError(
                        f"{path} has the columns {got}; it needs the integer columns i, j, n_agree, n_seen "
                        "(n_agree may be float32)."
                    )
            table = file.read(columns=list(Edges._fields))
    except (pa.ArrowException, OSError) as error:
        raise CorruptStoreError(
            f"{path} cannot be read as Parquet ({error}); export the pairs again.", path=path
        ) from error
    for name in Edges._fields:
        if table[name].null_count:
            raise InvalidInputError(
                f"{path}: column {name!r} has {table[name].null_count} nulls; fill or drop these rows."
            )
    try:
        facts = json.loads(metadata.get(_PARQUET_METADATA, b"{}"))
        stated, provenance = facts.get("n_objects"), dict(facts.get("provenance") or {"source": str(path)})
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptStoreError(f"{path} has damaged metadata; export the pairs again.", path=path) from error
    if n_objects is None and stated is None:
        raise InvalidInputError(f"{path} does not state the number of objects; pass n_objects.")
    if None not in (n_objects, stated) and n_objects != stated:
        raise InvalidInputError(f"{path} states n_objects={stated}, not {n_objects}; omit n_objects.")
    n_objects = check_int("n_objects", stated if n_objects is None else n_objects, at_least=0)
    columns = Edges(*(table[name].to_numpy() for name in Edges._fields))
    return columns, {"n_objects": n_objects, "provenance": provenance}


def _is_count(name: str, kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or (name == "n_agree" and pa.types.is_float32(kind)))
