"""Sources: names, batches of rows, and ids. What a user holds is opened as one; nothing else enters.

pandas, polars, dask, Arrow and AnnData are known by the module of their types, so none is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bigcons.disk.files import check_file
from bigcons.errors import DamagedFileError, InvalidInputError, MissingDependencyError, first_line, shown
from bigcons.io.batches import (
    ArraySource,
    ArrowSource,
    DaskSource,
    EnsembleSource,
    PandasSource,
    Reading,
    Source,
    is_sparse,
    source_of_rows,
)
from bigcons.io.columns import (
    INDEX,
    Selection,
    choices_of,
    choose,
    given_for,
    missing_rule,
    source_of,
)
from bigcons.io.files import (
    KNOWN,
    describe,
    file_of,
    is_list_of_paths,
    open_files,
    open_path,
    refuse_bucket,
    refuse_missing,
)
from bigcons.io.ids import scan_ids


def open_source(
    x: Any,
    role: str,
    *,
    are_objects: bool = False,
    with_ids: bool = True,
    usual_id: str | None = None,
    check: Callable[[Source], None] = lambda _: None,
) -> Source:
    """Return what a user holds as a source; ``role`` is "labels", "features", "memberships" or "pairs".

    ``x`` is an array, a list of rows, a pandas DataFrame, any object with ``__arrow_c_stream__`` or
    ``__arrow_c_array__`` (polars, pyarrow, DuckDB), a dask array or dataframe, an AnnData (of labels its obs,
    of features its X), an ensemble, or a path to .npy, .csv, .tsv (or these compressed), .parquet, .h5ad or
    .zarr, to a folder of files of one of these kinds, a pattern such as ``data/*.parquet``, or a list of
    paths; or one of these after `select`. Of labels and features, paths but those of .h5ad may be URLs.

    ``are_objects``: the caller knows that rows are objects. Without ``with_ids``, names of rows are not read.
    ``usual_id`` is the name of the ids by default, where the source has
    such a column or index. What ``check`` raises of the chosen columns comes before any id is read.

    Raises InvalidInputError for anything else, and for what can be read in two ways, and StoreNotFoundError
    for a missing file.
    """
    given, choices = source_of(x), choices_of(x)
    options = given_for(x)
    missing = options.get("missing")
    words = () if isinstance(missing, Mapping) else missing_rule(missing).more_words
    how = Reading(options.get("header"), options.get("sep"), options.get("decimal"), words, are_objects)
    source = _open(given, role, how)
    is_ensemble = isinstance(source, EnsembleSource)
    sparse = "sparse " * source.is_sparse
    what = "an ensemble, which was read before" if is_ensemble else sparse + role
    is_table = not (is_ensemble or sparse)
    for name, kind, fits in (
        ("missing", "tables of labels", is_table and role in ("labels", "features")),
        ("categorical", "tables of features", is_table and role == "features"),
        ("decimal", "tables of features", is_table and role == "features"),
        *((name, "files of text", source.of_text) for name in ("header", "sep", "decimal")),
    ):
        if options.get(name) is not None and not fits:
            what = describe(given) if kind == "files of text" else what
            raise InvalidInputError(f"{name}= is for {kind}, not {what}; leave it out.", parameter=name)
    names_columns = any(choice.columns is not None for choice in choices)
    source.is_given = role == "labels" and not is_ensemble and not isinstance(given, Source)
    source.may_be_other = source.is_given and not (names_columns or are_objects)
    if usual_id is not None and "id" not in options and _has_ids(source, usual_id):
        first = choices[0] if choices else Selection(given)
        choices = [replace(first, id=usual_id), *choices[1:]]
    if role == "pairs":  # whose columns are chosen by name
        return source
    measured = source.measured
    for number, choice in enumerate(choices or [Selection(given)], 1):
        source = choose(source, choice, check if number == max(len(choices), 1) else lambda _: None)
    numbers = [name for name in source.names or () if name in measured]
    if role == "labels" and numbers and not names_columns:
        raise InvalidInputError(
            f"obs has numbers in {len(numbers)} column{'s' * (len(numbers) > 1)}, {shown(numbers)}, which "
            "may be measurements; name the partitions, such as columns='leiden*' (--columns 'leiden*')."
        )
    rows = source.row_names() if with_ids and source.is_named and source.ids is None else None
    if rows is not None:
        source.ids = scan_ids(rows, rows.names[0] if rows.names else INDEX, is_index=True)
    return source


def _has_ids(source: Source, name: str) -> bool:
    """Return whether a source has a column of this name, or an index that is more than numbers of rows."""
    if source.ids is not None or name in (source.names or ()):
        return source.ids is None
    index = None if isinstance(source, PandasSource) and not source.is_named else source.row_names()
    return index is not None and name in (index.names or ())


def _open(x: Any, role: str, how: Reading) -> Source:
    package = type(x).__module__.partition(".")[0]
    name = type(x).__name__
    if isinstance(x, Source):
        return x
    if package in ("dask", "dask_expr"):
        return DaskSource(x, role)
    if isinstance(x, (str, os.PathLike)) and os.fspath(x).lower().endswith(".h5ad"):
        return _open_h5ad(os.fspath(x), role, how)
    if isinstance(x, (str, os.PathLike)):
        return open_path(x, role, how)
    if is_list_of_paths(x, how.sep is not None):
        return open_files([file_of(path) for path in x], role, how=how)
    if isinstance(x, (list, tuple)):
        return source_of_rows(x, role, how.are_objects)
    if package == "anndata" and hasattr(x, "obs"):
        source = PandasSource(x.obs, "obs") if role == "labels" else _open(x.X, role, how)
        source.index, source.is_named = PandasSource(x.obs, "obs").row_names(), True
        source.measured = frozenset(str(column) for column in x.obs if x.obs[column].dtype.kind in "iuf")
        return source
    if package == "pandas" and hasattr(x, "columns"):
        return PandasSource(x, role)
    is_series = name == "Series" or (package == "pyarrow" and hasattr(x, "null_count"))
    has_arrow = hasattr(x, "__arrow_c_stream__") or hasattr(x, "__arrow_c_array__")
    if package != "pandas" and has_arrow and not is_series:
        return ArrowSource(x, role)
    if hasattr(x, "n_partitions") and hasattr(x, "categories"):
        return EnsembleSource(x, role)
    is_array = all(hasattr(x, attribute) for attribute in ("shape", "dtype", "__getitem__"))
    if is_array and (role == "features" or not is_sparse(x)) and package not in ("pandas", "polars"):
        return ArraySource(x, role)
    if is_sparse(x):
        raise InvalidInputError(
            f"{role} is a sparse {name}; pass x.toarray(), with missing=[0] if what is not stored is missing."
        )
    if isinstance(x, dict):
        raise InvalidInputError(
            f"{role} of type dict can be read in two ways; pass pandas.DataFrame(x) if its entries are "
            "columns, or, of labels, Ensemble.from_runs(x) if each is a partition."
        )
    kind = f"{package}.{name}" if package in ("pandas", "polars", "pyarrow") else name
    if is_series:
        frame = "pyarrow.table({'x': x})" if package == "pyarrow" else "x.to_frame()"
        raise InvalidInputError(f"{role} of type {kind} are a single column; pass {frame}.")
    if kind == "polars.LazyFrame":
        raise InvalidInputError(f"{role} is a polars LazyFrame, which has no rows yet; pass its collect().")
    raise InvalidInputError(
        f"{role} of type {kind} cannot be read; pass a dense array, a list of rows, a pandas, polars or "
        f"Arrow table, a dask array or dataframe, an AnnData, or a path to {KNOWN}."
    )


def _open_h5ad(path: str, role: str, how: Reading) -> Source:
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
    try:
        return _open(anndata.read_h5ad(path, backed="r"), role, how)
    except (OSError, KeyError, ValueError) as error:
        raise DamagedFileError(
            f"{path} is not an AnnData ({first_line(error)}); write it again.", path=path
        ) from None
