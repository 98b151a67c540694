"""Arrays as sources of features: in memory, mapped or read from a file, or in a Zarr store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.storage.places import Place
from bigcons.tables.feature_sources.base import check_matrix, default_names, first_line


class ArraySource:
    """Anything sliced like a two-dimensional numeric array: ndarray, memory map, Zarr, HDF5, `NpyFile`."""

    schema = None

    def __init__(self, array: Any, where: str) -> None:
        self.where = where
        self.dtype = check_matrix(array.shape, array.dtype, where)
        self.n_rows: int | None = int(array.shape[0])
        self.names = default_names(array.shape[1])
        chunks = getattr(array, "chunks", None) or (0,)
        chunk_bytes = chunks[0] * array.shape[1] * self.dtype.itemsize
        self.held_bytes = 6 * chunk_bytes  # a piece may touch two: as stored, decoded and copied
        self._array = array

    def pieces(
        self,
        start: int,
        stop: int | None,
        rows: int,
        columns: Sequence[str] | None = None,  # noqa: ARG002 - an array comes whole
    ) -> Iterator[np.ndarray]:
        """Yield slices of ``rows`` rows."""
        stop = self.n_rows if stop is None else stop
        for first in range(start, stop or 0, rows):
            yield np.asarray(self._array[first : min(first + rows, stop or 0)])


class NpyFile:
    """A .npy file read by position: unlike those of a memory map, its pages never count as our memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            mapped = np.load(path, mmap_mode="r")
        except ValueError as error:
            raise InvalidInputError(
                f"{path} cannot be read ({first_line(error)}); write a two-dimensional numeric array."
            ) from None
        self.shape: tuple[int, ...] = mapped.shape
        self.dtype: np.dtype = mapped.dtype
        self._by_columns = mapped.flags.f_contiguous and not mapped.flags.c_contiguous
        self._offset: int = mapped.offset

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        n_columns = self.shape[1]
        if not self._by_columns:
            return self._read(start * n_columns, (stop - start) * n_columns).reshape(-1, n_columns)
        columns = [self._read(c * self.shape[0] + start, stop - start) for c in range(n_columns)]
        return np.stack(columns, axis=1)

    def _read(self, first: int, count: int) -> np.ndarray:
        offset = self._offset + first * self.dtype.itemsize
        values = np.fromfile(self._path, dtype=self.dtype, count=count, offset=offset)
        if len(values) < count:
            raise InvalidInputError(f"{self._path} ends early; the file was cut or is still being written.")
        return values


def open_zarr(path: Place) -> Any:
    """Open the Zarr array at ``path`` for reading."""
    import zarr

    try:
        node = zarr.open(path.for_zarr(read_only=True), mode="r")
    except (FileNotFoundError, ValueError) as error:
        raise InvalidInputError(f"{path} is no Zarr array ({first_line(error)}); check the path.") from None
    if not isinstance(node, zarr.Array):
        raise InvalidInputError(f"{path} is a Zarr group; give the path of one two-dimensional array in it.")
    return node
