"""The on-disk format: the arrays of every kind of store, and the entries of its head.

``docs/format.md`` says what they mean. ``FORMAT_VERSION`` goes up whenever an older bigcons could not read,
or would misread, a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

FORMAT_VERSION = 3

KINDS = {"ensemble": "an ensemble of partitions", "pairs": "a table of pairs", "consensus": "a consensus"}
"""Kinds of stores, as described in messages."""

OF_RUN = ("ensemble.zarr", "consensus.zarr")
"""The stores in the folder of `bigcons run`."""

MISSING = -1
"""The label of an object that a partition leaves unlabeled."""

TEXT_CHUNK = 1 << 20
"""Bytes of a chunk of the text of ids."""


LABEL_TYPES = ("int8", "int16", "int32", "int64")
TRUST = {"confidence": "float32", "second_labels": "int32", "second_confidence": "float32"}
"""Arrays of a consensus that says which answers to trust: the probability that the label of an object is
right, times the support of its cluster where that is known; the most probable other cluster, -1 if there is
none; and its probability, times its support."""

BODIES = {
    "ensemble": {
        "count": ("n_objects", "chunk_rows"),
        "text": ("dtype", "digest"),  # of the labels, or float32 of memberships; of all of them
        "texts": ("names",),  # of the partitions
        "counts": ("n_clusters", "n_labeled"),  # objects that each one labels
        "object": ("provenance", "files", "crc32c"),  # CRC-32 of each file besides the arrays; of chunks
        "object or null": ("ids",),
        "list or null": ("footers",),  # in Parquet: CRC-32 of the footer of each file
    },
    "pairs": {
        "count": ("chunk_entries",),
        "size": ("n_objects", "n_pairs"),
        "count or null": ("rows_per_block",),  # if pairs were sampled in tiles
        "text": ("counts_dtype", "digest"),
        "object": ("provenance", "crc32c"),
    },
    "consensus": {
        "count": ("n_objects", "n_clusters", "chunk_rows"),
        "flag": ("has_memberships",),
        "text": ("digest",),
        "lists": ("history",),
        "object": ("parameters", "results", "provenance", "files", "crc32c"),
        "object or null": ("trust", "ids"),  # temperature, and the columns of the tables below
    },
}
"""The entries of the body of a head by kind of store and type; a count is an integer from 1, a size one from
0."""

PAIR_COLUMNS = ("i", "j", "n_agree", "n_seen")
"""The columns of a table with one row for each pair ``i < j``, in any order: Parquet, CSV, a data frame."""

CLUSTER_COLUMNS = {"cluster": "int64", "size": "int64"}
CLUSTER_COLUMNS |= dict.fromkeys(
    ("confidence", "stability", "cohesion", "tightness", "separation"), "float64"
)
CLUSTER_COLUMNS |= {"nearest": "int64", "support": "float64", "division": "float64"}
PARTITION_COLUMNS = {"partition": "string", "n_labeled": "int64", "n_clusters": "int64"}
PARTITION_COLUMNS |= dict.fromkeys(("nmi", "adjusted_rand", "hit_rate", "false_join_rate"), "float64")
PARTITION_COLUMNS |= {"weight": "float64", "redundancy": "float64", "most_alike": "string"}
"""The columns of the tables of a consensus, and their types."""


class Array(NamedTuple):
    """An array of one store."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    """Dimension names in the array's metadata."""
    compressor: str = "zstd"
    """"zstd" (level 1) or "lz4" (Blosc, level 5, shuffled), followed by crc32c in either case."""

    def metadata(self) -> dict[str, Any]:
        """Return the array's ``zarr.json``.

        The fill value occurs in no data, so that other readers can tell a chunk that is missing.
        """
        dtype = np.dtype(self.dtype)
        fill: float = -1.0
        if dtype.kind != "f":
            fill = int(np.iinfo(dtype).max if dtype.kind == "u" else np.iinfo(dtype).min)
        compressor: dict[str, Any] = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
        if self.compressor == "lz4":
            options = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0}
            compressor = {"name": "blosc", "configuration": {"typesize": dtype.itemsize, **options}}
        endian = {"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {}
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.chunks)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill,
            "codecs": [{"name": "bytes", **endian}, compressor, {"name": "crc32c"}],
            "attributes": {},
            "dimension_names": list(self.dims),
            "storage_transformers": [],
        }


def arrays_of(kind: str, body: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays of a store with this body, by name; raises ValueError for types that it cannot have.

    Ensembles: ``labels``, from 0 without gaps, -1 where missing; or of soft clusterings ``memberships``,
    which sum to 1 in a partition or are all 0. Tables of pairs: compressed sparse rows, in which every pair
    is in the rows of both of its objects. Consensuses: ``labels``, -1 for objects that no partition labels,
    and where there are any ``memberships``, which sum to 1, and the arrays of `TRUST`.
    """
    n, arrays = body["n_objects"], {}
    if kind == "pairs":
        counts = _checked_dtype(body["counts_dtype"], ("uint8", "uint16"))
        dtypes = {"indptr": "int64", "indices": "int32", "n_agree": counts, "n_seen": counts}
        for name, dtype in dtypes.items():
            size, dim = (n + 1, "n_objects + 1") if name == "indptr" else (2 * body["n_pairs"], "2 n_pairs")
            arrays[name] = Array((size,), (min(body["chunk_entries"], max(size, 1)),), dtype, (dim,), "lz4")
        return arrays
    rows = body["chunk_rows"]
    if kind == "ensemble":
        is_soft = body["dtype"] == "float32"
        n_columns = sum(body["n_clusters"]) if is_soft else len(body["names"])
        name, dim = ("memberships", "base_cluster") if is_soft else ("labels", "partition")
        dtype = _checked_dtype(body["dtype"], ("float32", *LABEL_TYPES))
        return {name: Array((n, n_columns), (rows, chunk_columns(n_columns)), dtype, ("object", dim))}
    arrays["labels"] = Array((n,), (rows,), "int32", ("object",))
    if body["has_memberships"]:
        K = body["n_clusters"]
        arrays["memberships"] = Array((n, K), (rows, K), "float32", ("object", "cluster"))
    if body["trust"] is not None:
        arrays |= {name: Array((n,), (rows,), dtype, ("object",)) for name, dtype in TRUST.items()}
    return arrays


def chunk_columns(n_columns: int) -> int:
    """Return the columns of a chunk of an ensemble."""
    return min(n_columns, 128)


def id_arrays(dtype: str, n_bytes: int, n_objects: int, chunk_rows: int) -> dict[str, Array]:
    """Return the arrays of ids, by name: numbers, or the UTF-8 text of all ids and where each of them
    ends."""
    rows = (min(chunk_rows, n_objects),)
    if dtype != "text":
        return {"ids": Array((n_objects,), rows, _checked_dtype(dtype, ("int64", "uint64")), ("object",))}
    return {
        "id_ends": Array((n_objects,), rows, "int64", ("object",)),
        "id_text": Array((n_bytes,), (min(TEXT_CHUNK, n_bytes),), "uint8", ("n_id_bytes",)),
    }


def _checked_dtype(dtype: str, dtypes: tuple[str, ...]) -> str:
    if dtype not in dtypes:
        raise ValueError(f"the type {dtype!r}, none of {', '.join(dtypes)}")
    return dtype


def check_body(kind: str, body: Mapping[str, Any]) -> None:
    """Raise ValueError for an entry of a head that is missing, or of another type."""
    for types, names in BODIES[kind].items():
        for name in names:
            value = body.get(name, ...)
            is_number = isinstance(value, int) and not isinstance(value, bool)
            fits = {
                "count": is_number and value >= 1,
                "size": is_number and value >= 0,
                "text": isinstance(value, str),
                "flag": isinstance(value, bool),
                "list": isinstance(value, list),
                "texts": isinstance(value, list) and {*map(type, value)} == {str},
                "counts": isinstance(value, list) and {*map(type, value)} == {int},
                "object": isinstance(value, dict),
                "lists": isinstance(value, dict) and {*map(type, value.values())} <= {list},
                "null": value is None,
            }
            if not any(fits[alternative] for alternative in types.split(" or ")):
                raise ValueError(f"{name} is {value!r:.40}, no {types}")
