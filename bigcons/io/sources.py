"""Sources: names, batches of rows, and ids. What a user holds is opened as one; nothing else enters.

pandas, polars, dask, Arrow and AnnData are known by the module of their types, so none is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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
from bigcons.io.columns import Selection, choose, given_for, is_index
from bigcons.io.files import (
    KNOWN,
    describe,
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

    ``x`` is one of `KINDS`, or one of these after `select`. Of labels and features, paths may be URLs.

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
    is_table = role in ("labels", "features") and not is_ensemble and not source.is_sparse
    for name, kind, fits in (  # options of reading that would change nothing
        ("missing", "tables of labels or features", is_table),
        ("categorical", "tables of features", is_table and role == "features"),
        ("decimal", "features in files of text", role == "features" and source.of_text),
        ("header", "files of text", source.of_text),
        ("sep", "files of text", source.of_text),
    ):
        if name in given_for(x) and not fits:
            what = "an ensemble" if is_ensemble else f"{role} in {describe(held)}"
            raise InvalidInputError(f"{name}= is for {kind}, not {what}; leave it out.", parameter=name)
    if role == "pairs":  # whose columns are chosen by name
        return source
    if role == "labels" and source.where == "obs" and choice.columns is None:
        raise InvalidInputError(
            "obs of an AnnData may have measurements beside partitions; name the partitions, such as "
            "columns='leiden*' (--columns 'leiden*')."
        )
    if source.where == role == "labels" and isinstance(held, (list, tuple)) and not are_objects:
        n_rows, width = len(held), source.n_columns
        if n_rows < width or (n_rows and hasattr(held[0], "__array__")):
            raise InvalidInputError(
                f"labels is a list of {n_rows} rows of {width} labels, which may be partitions or objects; "
                "pass Ensemble.from_runs(x) if rows are partitions, numpy.array(x) if they are objects."
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
    if _is_column(x) and hasattr(x, "to_frame"):  # of pandas or polars
        return x.to_frame()
    if _is_column(x):
        import pyarrow as pa

        return pa.table({"label": x})
    if isinstance(x, (list, tuple)) and all(
        isinstance(value, str) or not hasattr(value, "__len__") for value in x
    ):
        return np.array(x, object).reshape(-1, 1)
    return np.asanyarray(x).reshape(-1, 1) if len(getattr(x, "shape", ())) == 1 else x


def _open(x: Any, role: str, how: Selection) -> Source:
    for recognizes, opens in KINDS:
        if recognizes(x):
            return opens(x, role, how)
    package, name = _package(x), type(x).__name__
    kind = f"{package}.{name}" if package in ("pandas", "polars", "pyarrow") else name
    raise InvalidInputError(
        f"{role} of type {kind} cannot be read; pass a dense array, a list of rows, a pandas, polars or "
        f"Arrow table (of a series x.to_frame(), of a lazy frame x.collect(), of a dict pandas.DataFrame(x) "
        f"or Ensemble.from_runs(x)), a dask array or dataframe, an AnnData, or a path to {KNOWN}."
    )


def _package(x: Any) -> str:
    return type(x).__module__.partition(".")[0]


def _is_path(x: Any) -> bool:
    return isinstance(x, (str, os.PathLike))


def _is_column(x: Any) -> bool:
    return type(x).__name__ == "Series" or (_package(x) == "pyarrow" and hasattr(x, "null_count"))


def _open_array(x: Any, role: str, _: Selection) -> Source:
    if is_sparse(x) and role != "features":
        raise InvalidInputError(
            f"{role} is a sparse {type(x).__name__}; pass x.toarray(), with missing=[0] if what is not "
            "stored is missing."
        )
    return array_source(x, role)


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
        raise MissingDependencyError(
            f"{path} is read by anndata, which is not installed; run pip install anndata."
        ) from error
    refuse_missing(path)
    check_file(Path(path))
    with reading(path, "AnnData"):
        return _open_anndata(anndata.read_h5ad(path, backed="r"), role, how)


KINDS: list[tuple[Callable[[Any], bool], Callable[[Any, str, Selection], Source]]] = [
    (lambda x: isinstance(x, Source), lambda x, *_: x),
    (lambda x: _package(x) in ("dask", "dask_expr"), lambda x, role, _: dask_source(x, role)),
    (lambda x: _is_path(x) and os.fspath(x).lower().endswith(".h5ad"), _open_h5ad),
    (_is_path, open_path),
    (is_list_of_paths, lambda x, role, how: open_files([*map(file_of, x)], role, how)),
    (lambda x: isinstance(x, (list, tuple)), lambda x, role, _: rows_source(x, role)),
    (lambda x: _package(x) == "anndata" and hasattr(x, "obs"), _open_anndata),
    (lambda x: _package(x) == "pandas" and hasattr(x, "columns"), lambda x, role, _: frame_source(x, role)),
    (
        lambda x: not _is_column(x) and (hasattr(x, "__arrow_c_stream__") or hasattr(x, "__arrow_c_array__")),
        lambda x, role, _: arrow_source(x, role),
    ),
    (
        lambda x: hasattr(x, "categories") and hasattr(x, "n_partitions"),
        lambda x, role, _: ensemble_source(x, role),
    ),
    (
        lambda x: (
            is_sparse(x)
            or (all(hasattr(x, name) for name in ("shape", "dtype", "__getitem__")) and not _is_column(x))
        ),
        _open_array,
    ),
]
"""What a source may be, and what opens it, given how it is read. A new kind is a line here."""
