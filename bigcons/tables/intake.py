"""The intake of tables: opens whatever a user holds as a `Table`, for labels, features and pairs alike.

pandas, dask, xarray and AnnData objects are recognized by the module of their type, so none is imported here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bigcons.errors import InvalidInputError
from bigcons.tables import files, memory
from bigcons.tables.select import Selection, choose, refuse_index
from bigcons.tables.table import Table


def open_table(x: Any, role: str) -> Table:
    """Return the table of any supported source; ``role`` is "labels", "features" or "pairs".

    ``x`` is an array, a list of rows, a pandas DataFrame, any object with ``__arrow_c_stream__`` or
    ``__arrow_c_array__`` (polars, pyarrow, DuckDB), a dask array or dataframe, an xarray DataArray, an
    AnnData (of labels its obs, of features its X), an ensemble, or a path to .npy, .npz, .csv, .tsv (or these
    with .gz), .parquet or .zarr, to a folder of files of one of these kinds, a pattern such as
    ``data/*.parquet``, or a list of paths; or one of these after `select`.

    Raises InvalidInputError for anything else and StoreNotFoundError for a missing file.
    """
    if isinstance(x, Table):
        return x
    table = _chosen(x, role)
    if role != "pairs":  # whose columns are chosen by name
        refuse_index(table)
    return table


def _chosen(x: Any, role: str) -> Table:
    """Return the table of a source, with the columns that were chosen."""
    return choose(_chosen(x.source, role), x) if isinstance(x, Selection) else _open(x, role)


def _open(x: Any, role: str) -> Table:
    package = type(x).__module__.partition(".")[0]
    if isinstance(x, Table):
        return x
    if isinstance(x, (str, os.PathLike)):
        table = files.open_path(x, role)
        if isinstance(x, files.StandardInput):
            table.where = files.STANDARD_INPUT
        return table
    if files.is_list_of_paths(x):
        return files.open_files([Path(path) for path in x], role)
    if isinstance(x, (list, tuple)):
        return memory.table_of_rows(x, role)
    if package in ("dask", "dask_expr"):
        return memory.open_dask(x, role)
    if package == "xarray":
        return memory.open_xarray(x, role)
    if package == "anndata" and hasattr(x, "obs"):
        return _open(x.obs if role == "labels" else x.X, role)
    if package == "pandas" and hasattr(x, "columns"):
        return memory.PandasTable(x, role)
    if package != "pandas" and (hasattr(x, "__arrow_c_stream__") or hasattr(x, "__arrow_c_array__")):
        return memory.ArrowTable(x, role)
    if hasattr(x, "n_partitions") and hasattr(x, "categories"):
        return memory.EnsembleTable(x, role)
    is_array = all(hasattr(x, name) for name in ("shape", "dtype", "__getitem__"))
    if is_array and package not in ("pandas", "polars", "scipy"):
        return memory.ArrayTable(x, role)
    if package == "scipy":
        raise InvalidInputError(f"{role} is a sparse {type(x).__name__}; pass it dense, such as x.toarray().")
    kind = f"{package}.{type(x).__name__}" if package in ("pandas", "polars") else type(x).__name__
    raise InvalidInputError(
        f"{role} has type {kind}; pass a dense array, a list of rows, a pandas, polars or Arrow table, "
        f"a dask array or dataframe, an xarray DataArray, an AnnData, or a path to {files.KNOWN}."
    )
