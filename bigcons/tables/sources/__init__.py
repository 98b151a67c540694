"""Sources of labels: whatever holds a label matrix, read as blocks of columns.

Objects of pandas, polars, pyarrow and dask are known by the module of their type, so that none of
these packages is imported unless its user already has.
"""

from __future__ import annotations

import os
from typing import Any

from bigcons.errors import InvalidInputError
from bigcons.tables.sources.arrays import ArraySource
from bigcons.tables.sources.base import LabelSource
from bigcons.tables.sources.dask import open_dask
from bigcons.tables.sources.files import open_file
from bigcons.tables.sources.parts import (
    ColumnsSource,
    EnsembleSource,
    FrameSource,
    ReorderedSource,
    rows_source,
)

__all__ = ["ColumnsSource", "LabelSource", "ReorderedSource", "open_source"]


def open_source(x: Any) -> LabelSource:
    """Return the source that reads ``x``; see Ensemble.from_labels for what it may be.

    Raises InvalidInputError for anything else and StoreNotFoundError for a missing file.
    """
    home = type(x).__module__.partition(".")[0]
    if isinstance(x, (str, os.PathLike)):
        return open_file(x)
    if isinstance(x, (list, tuple)):
        return rows_source(x)
    if home == "dask":
        return open_dask(x)
    if home in ("pandas", "polars", "pyarrow") and hasattr(x, "columns") and hasattr(x, "shape"):
        return FrameSource(x)
    if hasattr(x, "n_partitions") and hasattr(x, "categories"):
        return EnsembleSource(x)
    if home != "scipy" and all(hasattr(x, name) for name in ("shape", "ndim", "dtype", "__getitem__")):
        return ArraySource(x)
    raise InvalidInputError(
        f"labels has type {type(x).__name__}; give an array, a list of rows, a pandas, polars or Arrow "
        "table, a dask array or dataframe, or a path to .npy, .npz, .csv, .parquet or .zarr."
    )
