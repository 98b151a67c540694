"""Dask arrays and dataframes as sources of features: one partition at a time, never gathered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.tables.feature_sources.base import Piece, check_matrix, check_names, default_names
from bigcons.tables.feature_sources.parts import PartedSource
from bigcons.tables.feature_sources.tables import to_arrow


class DaskSource(PartedSource):
    """A dask.array or dask.dataframe, computed one row partition at a time and never gathered."""

    where = "features"

    def __init__(self, collection: Any) -> None:
        self._collection = collection
        if hasattr(collection, "chunks"):
            self.dtype = check_matrix(collection.shape, collection.dtype, self.where)
            self.names = default_names(collection.shape[1])
            self.lengths = [None if np.isnan(rows) else int(rows) for rows in collection.chunks[0]]
        elif hasattr(collection, "partitions") and hasattr(collection, "columns"):
            self.names = check_names(list(collection.columns), self.where)
            self.lengths = [None] * collection.npartitions
        else:
            raise InvalidInputError(
                f"features has type dask {type(collection).__name__}; give a dask array or dataframe."
            )

    @property
    def held_bytes(self) -> int:  # type: ignore[override]
        """The largest partition, as it is computed and as it is yielded."""
        itemsize = 8 if self.dtype is None else self.dtype.itemsize
        return 2 * max(length or 0 for length in self.lengths) * len(self.names) * itemsize

    def load(
        self,
        part: int,
        rows: int,  # noqa: ARG002 - a partition comes whole
        columns: Sequence[str] | None,
    ) -> Iterator[Piece]:
        """Compute one partition."""
        if self.dtype is not None:
            yield np.asarray(self._collection.blocks[part].compute())
            return
        table = to_arrow(self._collection.partitions[part].compute())
        yield table if columns is None else table.select(list(columns))
