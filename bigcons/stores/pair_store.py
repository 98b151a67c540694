"""Stored pair tables: compressed sparse rows in the four arrays of a Zarr store."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bigcons.errors import CorruptStoreError
from bigcons.schema import PAIRS
from bigcons.storage.arrays import create_array, create_group, open_declared
from bigcons.storage.commit import load_manifest, new_store, write_manifest
from bigcons.storage.interface import Place, StorePath
from bigcons.stores.pair_rows import MAX_OBJECTS, Rows
from bigcons.validation import check_choice, check_int

KIND = "pairs"
RESTORE = "sample or import the pairs again, or restore the store from a copy."


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
    with new_store(path, overwrite, KIND) as folder:
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
        create_group(folder, PAIRS)
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
