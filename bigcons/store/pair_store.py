"""Stored pair tables: compressed sparse rows in the four arrays of a Zarr store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bigcons.disk.arrays import create_array
from bigcons.disk.commit import new_store
from bigcons.disk.interface import Place, StorePath
from bigcons.disk.schema import PAIRS, ArraySpec, checksum_of
from bigcons.store.pair_rows import Rows
from bigcons.store.store import commit

KIND = "pairs"
RESTORE = "sample or import the pairs again, or restore the store from a copy."


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
    types = {"counts_dtype": np.dtype(counts_dtype).name, "agree_dtype": np.dtype(agree_dtype).name}
    with new_store(path, overwrite, KIND) as folder:
        columns = {}
        for name, spec in PAIRS.items():
            dtype = spec.dtype_in(types)
            assert dtype is not None  # noqa: S101 - tables count in these types
            columns[name] = ColumnWriter(folder / name, spec, dtype, chunk_entries)
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
            **types,
            "chunk_entries": chunk_entries,
            "checksums": {name: column.checksums for name, column in columns.items()},
        }
        commit(folder, KIND, body, PAIRS)


class ColumnWriter:
    """Appends to one array; keeps at most the last part and one chunk in memory."""

    def __init__(self, place: Place, spec: ArraySpec, dtype: np.dtype, chunk_entries: int) -> None:
        self._place = place
        self._spec = spec
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
            self._array = create_array(self._place, self._spec, (0,), (length,), self._dtype)
        self._array.resize((self.n_entries + n_entries,))
        for start in range(0, n_entries, self._chunk_entries):
            chunk = pending[start : min(start + self._chunk_entries, n_entries)]
            self._array[self.n_entries : self.n_entries + len(chunk)] = chunk
            self.checksums.append(checksum_of(chunk))
            self.n_entries += len(chunk)
