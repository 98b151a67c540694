"""The columns of a stored pair table: long arrays written in order, in chunks with a checksum each."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from bigcons.schema import PAIRS
from bigcons.storage.arrays import create_array
from bigcons.storage.places import Place


class ColumnWriter:
    """Appends to one array of a pair table; never holds more than what was last appended and a chunk."""

    def __init__(self, directory: Place, name: str, dtype: np.dtype, chunk_entries: int) -> None:
        self._directory = directory
        self._name = name
        self._dtype = np.dtype(dtype)
        self._chunk_entries = chunk_entries
        self._array: Any = None
        self._pending: list[np.ndarray] = []
        self._n_pending = 0
        self.n_entries = 0
        self.checksums: list[int] = []

    def append(self, part: np.ndarray) -> None:
        """Write what fills whole chunks, keep the rest for later."""
        self._pending.append(part)
        self._n_pending += len(part)
        if self._n_pending >= self._chunk_entries:
            self._flush(self._n_pending - self._n_pending % self._chunk_entries)

    def close(self) -> None:
        """Write what is left; an array without entries is created too."""
        if self._n_pending or self._array is None:
            self._flush(self._n_pending)

    def _flush(self, n_entries: int) -> None:
        pending = np.concatenate([np.empty(0, self._dtype), *self._pending], dtype=self._dtype)
        self._pending = [pending[n_entries:].copy()]
        self._n_pending = len(self._pending[0])
        if self._array is None:
            length = min(self._chunk_entries, max(n_entries, 1))
            self._array = create_array(
                self._directory / self._name, PAIRS[self._name], (0,), (length,), self._dtype
            )
        self._array.resize((self.n_entries + n_entries,))
        for start in range(0, n_entries, self._chunk_entries):
            chunk = pending[start : min(start + self._chunk_entries, n_entries)]
            self._array[self.n_entries : self.n_entries + len(chunk)] = chunk
            self.checksums.append(checksum(chunk))
            self.n_entries += len(chunk)


def checksum(part: np.ndarray) -> int:
    """Return the crc32 of the values as little-endian bytes."""
    return zlib.crc32(np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<")).data)
