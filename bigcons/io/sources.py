"""Sources: names, batches of rows, and ids. What a user holds is opened as one; nothing else enters.

pandas, polars, dask, Arrow and AnnData are known by the module of their types, so none is imported here.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bigcons.disk.files import check_file
from bigcons.errors import InvalidInputError, MissingDependencyError
from bigcons.io.batches import (
    Source,
    array_source,
    arrow_source,
    dask_source,
    ensemble_source,
    frame_source,
    index_frame,
    is_sparse,
    rows_source,
)
from bigcons.io.columns import Selection, choose, is_index
from bigcons.io.files import (
    KNOWN,
    file_of,
    is_list_of_paths,
    open_files,
    open_path,
    reading,
    refuse_bucket,
    refuse_missing,
)


def open_source(
    x: Any, role: str, *, are_objects: bool = False, with_ids: bool = True, usual_id: str | None = None
) -> Source:
    """Return what a user holds as a source; ``role`` is "labels", "features", "memberships" or "pairs".

    ``x`` is anything that `Ensemble.from_labels` takes, or that after `select`; paths may be URLs.

    ``are_objects``: the caller knows that rows are objects. Without ``with_ids``, names of rows are not read.
    ``usual_id`` is the name of the ids by default, where the source has such a column or index.

    Raises InvalidInputError for anything else, and for what can be read in two ways, and StoreNotFoundError
    for a missing file.
    """
    choice = x if isinstance(x, Selection) else Selection(x)
    held = choice.source
    are_paths = choice.sep is not None and isinstance(held, (list, tuple))  # of any suffix
    source = open_files([*map(file_of, held)], role, choice) if are_paths else _open(held, role, choice)
    is_ensemble = hasattr(held, "categories") and hasattr(held, "n_partitions")
    if is_ensemble and choice.missing is not None:
        raise InvalidInputError("missing= is for tables, not an ensemble; leave it out.", parameter="missing")
    if role == "pairs":  # whose columns are chosen by name
        return source
    if role == "labels" and source.where == "obs" and choice.columns is None:
        what = "obs of an AnnData may have measurements, too; pass columns='leiden*' (--columns)."
        raise InvalidInputError(what)
    if source.where == role == "labels" and isinstance(held, (list, tuple)) and not are_objects:
        n_rows, width = len(held), source.n_columns
        if n_rows < width or (n_rows and hasattr(held[0], "__array__")):
            raise InvalidInputError(
                f"labels is a list of {n_rows} rows of {width} labels; pass Ensemble.from_runs(x) if rows "
                "are partitions, numpy.array(x) if they are objects."
            )
    source.is_given = role == "labels" and not is_ensemble and not isinstance(held, Source)
    source.may_be_other = source.is_given and choice.columns is None and not are_objects
    has_usual = usual_id in (source.names or ()) or (
        usual_id is not None and source.is_named and is_index(source, usual_id)
    )
    if has_usual and choice.id is None and source.ids is None:
        choice = replace(choice, id=usual_id)
    return choose(source, choice, with_ids=with_ids)


def as_table(x: Any) -> Any:
    """Return a vector ``(n_objects,)`` of any kind as a table of one column, and anything else unchanged."""
    if hasattr(x, "nlevels"):  # an index of pandas
        return index_frame(x, "ids")
    if _is_column(x):
        import pyarrow as pa

        return x.to_frame() if hasattr(x, "to_frame") else pa.table({"label": x})
    if isinstance(x, (list, tuple)) and all(isinstance(v, str) or not hasattr(v, "__len__") for v in x):
        return np.array(x, object).reshape(-1, 1)
    return np.asanyarray(x).reshape(-1, 1) if len(getattr(x, "shape", ())) == 1 else x


def _open(x: Any, role: str, how: Selection) -> Source:
    """Open what is known by its type, or by what it offers."""
    package, name = type(x).__module__.partition(".")[0], type(x).__name__
    if isinstance(x, Source):
        return x
    if isinstance(x, (str, os.PathLike)):
        is_anndata = os.fspath(x).lower().endswith(".h5ad")
        return _open_h5ad(x, role, how) if is_anndata else open_path(x, role, how)
    if is_list_of_paths(x):
        return open_files([*map(file_of, x)], role, how)
    if isinstance(x, (list, tuple)):
        return rows_source(x, role)
    if package in ("dask", "dask_expr"):
        return dask_source(x, role)
    if package == "anndata" and hasattr(x, "obs"):
        return _open_anndata(x, role, how)
    if package == "pandas" and hasattr(x, "columns"):
        return frame_source(x, role)
    if hasattr(x, "categories") and hasattr(x, "n_partitions") and role == "labels":
        return ensemble_source(x, role)
    if is_sparse(x) and role != "features":
        raise InvalidInputError(
            f"{role} is a sparse {name}; pass x.toarray(), with missing=[0] if what is not stored is missing."
        )
    if not _is_column(x):
        if hasattr(x, "__arrow_c_stream__") or hasattr(x, "__arrow_c_array__"):
            return arrow_source(x, role)
        if is_sparse(x) or all(hasattr(x, name) for name in ("shape", "dtype", "__getitem__")):
            return array_source(x, role)
    kind = f"{package}.{name}" if package in ("pandas", "polars", "pyarrow") else name
    raise InvalidInputError(
        f"{role} of type {kind} cannot be read; pass an array, a list of rows, a table (of a series "
        f"x.to_frame(), of a lazy frame x.collect(), of a dict pandas.DataFrame(x) or "
        f"Ensemble.from_runs(x)), or a path to {KNOWN}."
    )


def _is_column(x: Any) -> bool:
    return type(x).__name__ == "Series" or (
        type(x).__module__.startswith("pyarrow") and hasattr(x, "null_count")
    )


def _open_anndata(x: Any, role: str, how: Selection) -> Source:
    """Return the obs of an AnnData as labels, or its X as features; names of obs are the ids."""
    obs = frame_source(x.obs, "obs")
    source = obs if role == "labels" else _open(x.X, role, how)
    source.index, source.is_named = obs.index, True
    return source


def _open_h5ad(path: Any, role: str, how: Selection) -> Source:
    """Return the source of an AnnData in a file, of which X stays on the disk."""
    refuse_bucket(path)
    try:
        import anndata
    except ImportError as error:
        raise MissingDependencyError(f"{path} is read by anndata; run pip install anndata.") from error
    refuse_missing(path)
    check_file(Path(path))
    with reading(path, "AnnData"):
        return _open_anndata(anndata.read_h5ad(path, backed="r"), role, how)
