"""Where features come from: every kind of source as a stream of pieces, in row order.

A piece is a two-dimensional numeric array, or an Arrow table for sources with typed columns. No
source is gathered: a piece is a slice of what is in memory, a stretch of a file, or one partition of
a dask collection.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bigcons.errors import InvalidInputError, StoreNotFoundError
from bigcons.storage.places import DiskPlace, StorePath, place_of
from bigcons.tables.feature_sources.arrays import ArraySource, NpyFile, open_zarr
from bigcons.tables.feature_sources.base import Piece, Source
from bigcons.tables.feature_sources.dask import DaskSource
from bigcons.tables.feature_sources.files import CsvSource, ParquetSource
from bigcons.tables.feature_sources.tables import open_table

__all__ = ["NpyFile", "Piece", "Source", "open_source"]


def open_source(source: object) -> Source:
    """Return the Source of whatever `bigcons.stores.features.open_features` takes."""
    if isinstance(source, (str, os.PathLike)):
        return _open_path(source)
    package = type(source).__module__.partition(".")[0]
    if package in ("dask", "dask_expr"):
        return DaskSource(source)
    if package in ("pandas", "polars", "pyarrow"):
        return open_table(source, package)
    if isinstance(source, (list, tuple)):
        source = np.asarray(source)
    if all(hasattr(source, name) for name in ("shape", "dtype", "__getitem__")) and package != "scipy":
        return ArraySource(source, where="features")
    raise InvalidInputError(
        f"features has type {type(source).__name__}; give a dense array, a pandas, polars or pyarrow table, "
        "a dask array or dataframe, or a path to .npy, .zarr, .parquet or .csv."
    )


def _open_path(given: StorePath) -> Source:
    place = place_of(given)
    if not isinstance(place, DiskPlace):
        if place.name.lower().endswith(".zarr"):
            return ArraySource(open_zarr(place), where=str(place))
        raise InvalidInputError(
            f"{place} is no .zarr, the only features read from a bucket; copy it to a disk."
        )
    path = Path(given)
    if not path.exists():
        raise StoreNotFoundError(f"{path} does not exist; check the path of the features.")
    name = path.name.lower()
    if name.endswith(".npy"):
        return ArraySource(NpyFile(path), where=str(path))
    if name.endswith((".csv", ".csv.gz")):
        return CsvSource(path)
    if name.endswith((".parquet", ".pq")) or any(path.glob("*.parquet")):
        return ParquetSource(path)
    if name.endswith(".zarr") or any((path / key).exists() for key in ("zarr.json", ".zarray")):
        return ArraySource(open_zarr(place), where=str(path))
    raise InvalidInputError(f"{path} has no known format; give .npy, .zarr, .parquet, .csv or .csv.gz.")
