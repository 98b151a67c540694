"""A pair table on disk: how its four arrays are written, and what must be there to open them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bigcons.errors import CorruptStoreError, StoreNotFoundError
from bigcons.schema import PAIRS
from bigcons.storage.commit import load_manifest, new_store, write_manifest
from bigcons.storage.places import Place, StorePath
from bigcons.stores.pair_columns import ColumnWriter
from bigcons.stores.symmetric import MAX_OBJECTS, Rows
from bigcons.validation import check_choice, check_int

KIND = "pairs"
RESTORE = "sample or import the pairs again, or restore the store."


def open_pairs(place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the four arrays by name, open for reading, and the body of the manifest.

    Raises StoreNotFoundError if there is no table, CorruptStoreError if its arrays are not the ones its
    manifest describes.
    """
    data, body, _ = load_manifest(place, KIND)
    expected = _expected(place, body)
    return {name: _open_array(data / name, expected[name]) for name in PAIRS}, body


def write_pairs(
    path: StorePath,
    parts: Iterable[Rows],
    counts_dtype: np.dtype,
    chunk_entries: int,
    facts: Mapping[str, Any],
    *,
    overwrite: bool,
) -> None:
    """Write consecutive blocks of rows, all or nothing; the manifest gets the ``facts`` besides."""
    from bigcons.storage.arrays import create_group

    dtypes = dict.fromkeys(PAIRS, counts_dtype) | {
        "indptr": np.dtype(np.int64),
        "indices": np.dtype(np.int32),
    }
    with new_store(path, overwrite) as directory:
        create_group(directory)
        columns = {name: ColumnWriter(directory, name, dtypes[name], chunk_entries) for name in PAIRS}
        n_entries = _append_all(columns, parts)
        if columns["indptr"].n_entries != facts["n_objects"] + 1 or n_entries % 2:
            raise ValueError("the parts do not make up a table of pairs")
        body = {
            **facts,
            "n_pairs": n_entries // 2,
            "counts_dtype": str(np.dtype(counts_dtype)),
            "chunk_entries": chunk_entries,
            "checksums": {name: column.checksums for name, column in columns.items()},
        }
        write_manifest(directory, KIND, body)


def _append_all(columns: Mapping[str, ColumnWriter], parts: Iterable[Rows]) -> int:
    """Write all parts to the columns, close these, and return the number of entries."""
    n_entries = 0
    columns["indptr"].append(np.zeros(1, np.int64))
    for part in parts:
        columns["indptr"].append(part.indptr[1:] + n_entries)
        for name in ("indices", "n_agree", "n_seen"):
            columns[name].append(getattr(part, name))
        n_entries += len(part.indices)
    for column in columns.values():
        column.close()
    return n_entries


def _expected(path: Place, body: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and type of each array from the manifest's body."""
    try:
        n_objects = check_int("n_objects", body["n_objects"], at_least=0, at_most=MAX_OBJECTS)
        n_entries = 2 * check_int("n_pairs", body["n_pairs"], at_least=0)
        counts = check_choice("counts_dtype", body["counts_dtype"], PAIRS["n_seen"].dtypes)
        chunk_entries = check_int("chunk_entries", body["chunk_entries"])
        if body.get("rows_per_block") is not None:
            check_int("rows_per_block", body["rows_per_block"])
        n_checksums = {name: len(body["checksums"][name]) for name in PAIRS}
        dict(body["provenance"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptStoreError(f"{path} has a manifest that does not add up ({error}); {RESTORE}") from error
    lengths = {"indptr": n_objects + 1, "indices": n_entries, "n_agree": n_entries, "n_seen": n_entries}
    if n_checksums != {name: -(-length // chunk_entries) for name, length in lengths.items()}:
        raise CorruptStoreError(f"{path} has a manifest with too few or too many checksums; {RESTORE}")
    dtypes = {"indptr": "int64", "indices": "int32", "n_agree": counts, "n_seen": counts}
    return {name: ((lengths[name],), dtypes[name]) for name in PAIRS}


def _open_array(path: Place, expected: tuple[tuple[int, ...], str]) -> Any:
    from bigcons.storage.arrays import open_array

    try:
        array = open_array(path)
    except StoreNotFoundError as error:
        raise CorruptStoreError(f"{path} is gone; {RESTORE}") from error
    found = (array.shape, str(array.dtype))
    if found != expected:
        raise CorruptStoreError(f"{path} has shape and type {found}, not {expected}; {RESTORE}")
    return array
