"""The intake of tables: opens whatever a user holds as a `Table`, for labels, features and pairs alike.

pandas, dask and AnnData objects are recognized by the module of their type, so none is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from bigcons.disk.files import check_file
from bigcons.errors import DamagedFileError, InvalidInputError, MissingDependencyError, first_line, shown
from bigcons.io import files, memory
from bigcons.io.select import (
    SelectedTable,
    Selection,
    choices_of,
    choose,
    reading_of,
    source_of,
    with_flat_vectors,
    with_row_names,
)
from bigcons.io.table import Reading, Table


def open_table(
    x: Any,
    role: str,
    *,
    are_objects: bool = False,
    with_ids: bool = True,
    usual_id: str | None = None,
    check: Callable[[Table], None] = lambda _: None,
) -> Table:
    """Return the table of any supported source; ``role`` is "labels", "features" or "pairs".

    ``x`` is an array, a list of rows, a pandas DataFrame, any object with ``__arrow_c_stream__`` or
    ``__arrow_c_array__`` (polars, pyarrow, DuckDB), a dask array or dataframe, an AnnData (of labels its obs,
    of features its X), an ensemble, or a path to .npy, .csv, .tsv (or these compressed), .parquet, .h5ad or
    .zarr, to a folder of files of one of these kinds, a pattern such as ``data/*.parquet``, or a list of
    paths; or one of these after `select`. Of labels and features, paths may be URLs of buckets but for
    .h5ad.

    ``are_objects``: the caller knows that rows are objects. Without ``with_ids``, names of rows are no ids,
    and stay a column where they are one.
    ``usual_id`` is the name of the ids by default, where the table has such a column or index. What ``check``
    raises of the chosen columns comes before any id is read.

    Raises InvalidInputError for anything else, and for what can be read in two ways, and StoreNotFoundError
    for a missing file.
    """
    source, choices = source_of(x), choices_of(x)
    how = reading_of(choices)._replace(are_objects=are_objects)
    table = _open(source, role, how)
    measured = table.measured
    is_ensemble = isinstance(table, memory.EnsembleTable)
    if role != "labels" or is_ensemble:
        is_feature = role == "features" and not table.is_sparse
        if not is_feature and any(choice.missing is not None for choice in choices):
            what = "an ensemble, which was read before" if is_ensemble else role
            what = f"sparse {role}" if table.is_sparse else what
            raise InvalidInputError(
                f"missing= is for tables of labels, not {what}; leave it out.", parameter="missing"
            )
    if role != "features" or table.is_sparse:
        what = "sparse features" if table.is_sparse else role
        for name in ("categorical", "decimal"):
            if any(getattr(choice, name) is not None for choice in choices):
                raise InvalidInputError(
                    f"{name}= is for tables of features, not {what}; leave it out.", parameter=name
                )
    if not isinstance(table, (files.CsvTable, files.JoinedTable)):
        for name in ("header", "sep", "decimal"):
            if getattr(how, name) is not None:
                raise InvalidInputError(
                    f"{name}= is for files of text, not for {files.describe(source)}; leave it out.",
                    parameter=name,
                )
    table.is_given = role == "labels" and not is_ensemble and not isinstance(source, Table)
    are_chosen = are_objects or any(choice.columns is not None for choice in choices)
    table.may_be_other = table.is_given and not are_chosen
    if usual_id is not None and all(choice.id is None for choice in choices) and _has_ids(table, usual_id):
        first = choices[0] if choices else Selection(source)
        choices = [replace(first, id=usual_id), *choices[1:]]
    if not choices:
        check(SelectedTable(table, [c for c in range(table.n_columns) if c != table.index_position]))
    for number, choice in enumerate(choices, 1):
        table = choose(table, choice, check if number == len(choices) else lambda _: None)
    if role == "labels" and all(choice.columns is None for choice in choices):
        _refuse_measurements(table, measured)
    if role == "features":
        table = with_flat_vectors(table)
    if role == "pairs" or not with_ids:  # whose columns are chosen by name
        return table
    return with_row_names(table)


def _has_ids(table: Table, name: str) -> bool:
    """Return whether a table has a column of this name, or an index that is more than the numbers of rows."""
    if table.ids is not None or name in (table.names or ()):
        return table.ids is None
    index = None if isinstance(table, memory.PandasTable) and not table.is_named else table.index
    return index is not None and name in (index.names or ())


def _refuse_measurements(table: Table, numbers: Collection[str]) -> None:
    """Raise InvalidInputError if numbers of an AnnData, which may be measurements, are taken as labels."""
    if found := [name for name in table.names or () if name in numbers]:
        raise InvalidInputError(
            f"obs has numbers in {len(found)} column{'s' if len(found) > 1 else ''}, {shown(found)}, which "
            "may be measurements; name the partitions, such as columns='leiden*' (--columns 'leiden*')."
        )


def _open_h5ad(path: str, role: str, how: Reading) -> Table:
    """Return the table of an AnnData in a file, of which X stays on the disk."""
    files.refuse_bucket(path)
    try:
        import anndata
    except ImportError as error:
        raise MissingDependencyError(
            f"{path} is read by anndata, which is not installed; run pip install anndata."
        ) from error
    files.refuse_missing(path)
    check_file(Path(path))
    try:
        adata = anndata.read_h5ad(path, backed="r")
        return _open(adata, role, how)
    except (OSError, KeyError, ValueError) as error:
        raise DamagedFileError(
            f"{path} is not an AnnData ({first_line(error)}); write it again.", path=path
        ) from None


def is_sparse(x: Any) -> bool:
    """Return whether ``x`` is a sparse matrix of scipy, or rows of one that an AnnData keeps on a disk."""
    return _package(x) == "scipy" or (hasattr(x, "format") and hasattr(x, "dtype"))


def _package(x: Any) -> str:
    return type(x).__module__.partition(".")[0]


def _open(x: Any, role: str, how: Reading) -> Table:
    package = _package(x)
    if isinstance(x, Table):
        return x
    if package in ("dask", "dask_expr"):
        return memory.open_dask(x, role)
    if role == "features" and is_sparse(x):
        return memory.SparseTable(x, role)
    if isinstance(x, (str, os.PathLike)) and os.fspath(x).lower().endswith(".h5ad"):
        return _open_h5ad(os.fspath(x), role, how)
    if isinstance(x, (str, os.PathLike)):
        table = files.open_path(x, role, how)
        if isinstance(x, files.StandardInput):
            table.where = files.STANDARD_INPUT
        return table
    if files.is_list_of_paths(x, how.sep is not None):
        return files.open_files([files.file_of(path) for path in x], role, how=how)
    if isinstance(x, (list, tuple)):
        return memory.table_of_rows(x, role, how.are_objects)
    if package == "anndata" and hasattr(x, "obs"):
        index = memory.PandasTable(x.obs, "obs")
        table = index if role == "labels" else _open(x.X, role, how)
        table._index, table.is_named = index.index, True
        table.measured = frozenset(str(name) for name in x.obs if x.obs[name].dtype.kind in "iuf")
        return table
    if package == "pandas" and hasattr(x, "columns"):
        return memory.PandasTable(x, role)
    is_series = type(x).__name__ == "Series" or (package == "pyarrow" and hasattr(x, "null_count"))
    has_arrow = hasattr(x, "__arrow_c_stream__") or hasattr(x, "__arrow_c_array__")
    if package != "pandas" and has_arrow and not is_series:
        return memory.ArrowTable(x, role)
    if hasattr(x, "n_partitions") and hasattr(x, "categories"):
        return memory.EnsembleTable(x, role)
    is_array = all(hasattr(x, name) for name in ("shape", "dtype", "__getitem__"))
    if is_array and package not in ("pandas", "polars", "scipy"):
        return memory.ArrayTable(x, role)
    if is_sparse(x):
        raise InvalidInputError(
            f"{role} is a sparse {type(x).__name__}; pass x.toarray(), with missing=[0] if what is not "
            "stored is missing."
        )
    if isinstance(x, dict):
        raise InvalidInputError(
            f"{role} of type dict can be read in two ways; pass pandas.DataFrame(x) if its entries are "
            "columns, or, of labels, Ensemble.from_runs(x) if each is a partition."
        )
    if is_series:
        frame = "pyarrow.table({'x': x})" if package == "pyarrow" else "x.to_frame()"
        raise InvalidInputError(
            f"{role} of type {package}.{type(x).__name__} are a single column; pass {frame}."
        )
    kind = f"{package}.{type(x).__name__}" if package in ("pandas", "polars") else type(x).__name__
    if kind == "polars.LazyFrame":
        raise InvalidInputError(f"{role} is a polars LazyFrame, which has no rows yet; pass its collect().")
    raise InvalidInputError(
        f"{role} of type {kind} cannot be read; pass a dense array, a list of rows, a pandas, polars or "
        f"Arrow table, a dask array or dataframe, an AnnData, or a path to {files.KNOWN}."
    )
