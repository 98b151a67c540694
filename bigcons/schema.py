"""The on-disk format: every stored array and every entry of the manifests; see ``docs/format.md``.

``FORMAT_VERSION`` is incremented whenever an older bigcons could not read, or would misread, a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

FORMAT_VERSION = 1

KINDS = {
    "ensemble": "an ensemble of partitions",
    "pairs": "a table of pairs",
    "consensus": "a consensus",
}
"""Kinds of stores, as described in messages."""

MISSING = -1
"""The label of an object that a partition leaves unlabeled."""


class ArraySpec(NamedTuple):
    """One stored array. Its fill value is never data, so that missing chunks are detected."""

    shape: tuple[str, ...]
    """Names of manifest entries, or expressions of them."""
    dims: tuple[str, ...]
    """Dimension names in the array's metadata."""
    dtypes: tuple[str, ...]
    fill: str
    """"minimum" or "maximum" of the type, or "-1"."""
    codec: str
    """"zstd" (level 1) or "lz4" (Blosc, level 5, shuffled), followed by crc32c in either case."""
    meaning: str

    def fill_value(self, dtype: np.dtype) -> int | float:
        """Return the fill value of an array of this type: -1 for all floats."""
        if self.fill == "-1" or dtype.kind == "f":
            return -1 if dtype.kind == "i" else -1.0
        info = np.iinfo(dtype)
        return int(info.min if self.fill == "minimum" else info.max)

    def shape_in(self, sizes: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the shape in a store whose manifest has the entries ``sizes``."""
        named = {
            **sizes,
            "n_objects + 1": sizes["n_objects"] + 1,
            "2 n_pairs": 2 * sizes.get("n_pairs", 0),
            "n_id_bytes": sizes.get("n_id_bytes", 0),
            "n_base_clusters": int(np.sum(sizes.get("n_clusters", 0))),
        }
        return tuple(named[name] for name in self.shape)


ENSEMBLE = {
    "labels": ArraySpec(
        ("n_objects", "n_partitions"),
        ("object", "partition"),
        ("int8", "int16", "int32", "int64"),
        "minimum",
        "zstd",
        "Label of each object in each partition, numbered from 0 without gaps; -1 if missing. "
        "The smallest type for all labels. The stored name is labels-<generation>.",
    ),
    "memberships": ArraySpec(
        ("n_objects", "n_base_clusters"),
        ("object", "base_cluster"),
        ("float32",),
        "-1",
        "zstd",
        "In place of labels, in an ensemble of soft clusterings: the share of each object in each cluster of "
        "each partition; those of one partition sum to 1, or are all 0 if it is missing. The stored name is "
        "memberships-<generation>.",
    ),
}
PAIRS = {
    "indptr": ArraySpec(
        ("n_objects + 1",), ("n_objects + 1",), ("int64",), "-1", "lz4",
        "Start of each object's entries in the other three arrays.",
    ),
    "indices": ArraySpec(
        ("2 n_pairs",), ("2 n_pairs",), ("int32",), "-1", "lz4",
        "The other object of the pair, in ascending order for each object.",
    ),
    "n_agree": ArraySpec(
        ("2 n_pairs",), ("2 n_pairs",), ("uint8", "uint16", "float32"), "maximum", "lz4",
        "Number of partitions that cluster the pair together; of soft clusterings the expected one, float32.",
    ),
    "n_seen": ArraySpec(
        ("2 n_pairs",), ("2 n_pairs",), ("uint8", "uint16"), "maximum", "lz4",
        "Number of partitions that label both objects, at least 1. The smallest type with a spare value.",
    ),
}  # fmt: skip
PAIR_COLUMNS = {
    "i": "The first object of the pair, numbered from 0.",
    "j": "The second object, i < j < n_objects.",
    "n_agree": "Number of partitions that cluster the pair together, at most n_seen; of soft clusterings the "
    "expected one, float32.",
    "n_seen": "Number of partitions that label both objects, at most 65,534; pairs with 0 are left out.",
}
"""The integer columns of a table with one row for each pair: Parquet, CSV, a data frame. No nulls; each pair
once; rows in any order."""

PARQUET_PAIRS = {
    "n_objects": "Number of objects; the last may be in no pair.",
    "rows_per_block": "As in the manifest of a table of pairs.",
    "provenance": "Source of the table and how it was made.",
    "n_pairs": "Number of pairs in all files of a folder; absent in a single file.",
}
"""The entries of the JSON object at the key ``bigcons.pairs`` of the metadata of Parquet files."""

CONSENSUS = {
    "labels": ArraySpec(
        ("n_objects",), ("object",), ("int32",), "minimum", "zstd",
        "Consensus cluster of each object, -1 for objects that no partition labels.",
    ),
    "memberships": ArraySpec(
        ("n_objects", "n_clusters"), ("object", "cluster"), ("float32",), "-1", "zstd",
        "Probability of each consensus cluster; rows of labeled objects sum to 1. Only for soft methods.",
    ),
}  # fmt: skip
TRUST = {
    "confidence": ArraySpec(
        ("n_objects",), ("object",), ("float32",), "-1", "zstd",
        "Probability that the label of each object is right, times the support of its cluster where that is "
        "known; 0 for objects without a label.",
    ),
    "second_labels": ArraySpec(
        ("n_objects",), ("object",), ("int32",), "minimum", "zstd",
        "Most probable other cluster of each object; -1 if there is none.",
    ),
    "second_confidence": ArraySpec(
        ("n_objects",), ("object",), ("float32",), "-1", "zstd",
        "Probability of the most probable other cluster, times its support.",
    ),
}  # fmt: skip
"""Further arrays of a consensus that says which answers to trust."""

IDS = {
    "ids": ArraySpec(
        ("n_objects",), ("object",), ("int64", "uint64"), "minimum", "zstd",
        "Identifier of each object, if it is a number.",
    ),
    "id_ends": ArraySpec(
        ("n_objects",), ("object",), ("int64",), "-1", "zstd",
        "Where the identifier of each object ends in id_text, if it is text; it begins where that of the "
        "object before ends.",
    ),
    "id_text": ArraySpec(
        ("n_id_bytes",), ("n_id_bytes",), ("uint8",), "maximum", "zstd",
        "The identifiers of all objects in UTF-8, one after another.",
    ),
}  # fmt: skip
"""Further arrays of an ensemble or a consensus whose objects have ids. In an ensemble, their stored names end
in -<generation>."""

ID_FACTS = {
    "name": "Name of the column.",
    "type": "Arrow type of the column they come from, in which they are given back.",
    "is_index": "Whether they are the index of a data frame.",
    "dtype": "int64, uint64 or text.",
    "n_bytes": "8 for each number, or the size of id_text.",
    "digest": "Two CRC-32 in hexadecimal: of all numbers or ends, and of the text.",
    "checksums": "CRC-32 of each chunk of numbers, or of ends, continued over the text of its ids.",
}
"""The entries of ``ids`` in the body of an ensemble or consensus."""

CLUSTER_COLUMNS = {
    "cluster": ("int64", "Label of the cluster; clusters without objects are left out."),
    "size": ("int64", "Number of its objects."),
    "confidence": ("float64", "Mean confidence of its objects."),
    "stability": (
        "float64", "Mean Jaccard index with the cluster that each of two halves of the partitions assigns."
    ),
    "cohesion": ("float64", "Mean co-association of pairs of its objects; null if no partition labels one."),
    "tightness": ("float64", "Its cohesion minus the mean co-association of objects of different clusters."),
    "separation": ("float64", "Its cohesion minus the mean co-association with the nearest cluster."),
    "nearest": ("int64", "Label of the nearest cluster, most often joined with it; -1 if there is none."),
    "support": (
        "float64", "Chance that other partitions would find it, by halves of these; null if not known."
    ),
    "division": ("float64", "Support of its division from the nearest cluster; null if not known."),
}  # fmt: skip
PARTITION_COLUMNS = {
    "partition": ("string", "Name of the partition."),
    "n_labeled": ("int64", "Number of objects with a label in it and in the consensus."),
    "n_clusters": ("int64", "Number of its clusters."),
    "nmi": ("float64", "Normalized mutual information with the consensus."),
    "adjusted_rand": ("float64", "Adjusted Rand index with the consensus."),
    "hit_rate": ("float64", "Share of the pairs of objects of one consensus cluster that it joins."),
    "false_join_rate": ("float64", "Share of the pairs of objects of different clusters that it joins."),
    "weight": ("float64", "Mutual information with the consensus beyond chance, of mean 1."),
    "redundancy": ("float64", "Largest adjusted Rand index with another partition, on a sample of objects."),
    "most_alike": ("string", "Name of that partition."),
}
"""The columns of the tables of a consensus, and their types."""

MANIFEST = {
    "format": "Always bigcons.",
    "format_version": "Integer; readers refuse versions above their own.",
    "kind": "One of ensemble, pairs, consensus.",
    "created_by": "Program and version that wrote the store; informative.",
    "body": "Object with the entries of the kind, below.",
    "data": "Name of the data folder with the arrays; absent if they are next to the manifest.",
    "shared": "Names of earlier data folders that still hold chunks; present with data only.",
    "checksum": "CRC-32 of the manifest without this entry.",
}
"""The entries of every manifest."""

BODIES = {
    "ensemble": {
        "n_objects": "Number of objects, at least 1.",
        "n_partitions": "Number of partitions, at least 1.",
        "names": "Name of each partition, all different.",
        "n_clusters": "Number of clusters of each partition.",
        "n_labeled": "Number of objects that each partition labels, at least 1.",
        "provenance": "Source of the ensemble, how it was made and with which parameters.",
        "generation": "Number in the names of the array and the categories file, from 1.",
        "dtype": "Type of the array: float32 if it has memberships, else that of the labels.",
        "chunk_rows": "Rows of a chunk of the array.",
        "chunk_columns": "Columns of a chunk, at most 128.",
        "metadata_checksum": "CRC-32 of the array's zarr.json.",
        "categories_checksum": "CRC-32 of the categories file; null if there is none.",
        "checksums": "CRC-32 of the values of each chunk: a list for each row of chunks.",
        "n_bytes": "Size of the array.",
        "ids": "Null or absent without ids; else an object of what is known of them.",
        "generator_checksum": "CRC-32 of the generator file; null or absent if there is none.",
        "shared": "Which chunks are in earlier data folders; absent on a disk, null if there are none.",
    },
    "pairs": {
        "n_objects": "Number of objects.",
        "rows_per_block": "Rows of a block if pairs were sampled in tiles, else null.",
        "provenance": "Source of the table and how it was made.",
        "n_pairs": "Number of pairs, each stored in the rows of both of its objects.",
        "counts_dtype": "Type of n_seen and, without agree_dtype, of n_agree.",
        "agree_dtype": "Type of n_agree: counts_dtype, or float32 of soft clusterings. Absent in old stores.",
        "chunk_entries": "Entries of a chunk of each array, except where an array is shorter than one chunk.",
        "checksums": "By array, CRC-32 of the values of each run of chunk_entries entries.",
    },
    "consensus": {
        "n_objects": "Number of objects, at least 1.",
        "n_clusters": "Number of consensus clusters, including those without objects.",
        "has_memberships": "Whether the store has memberships; true if absent.",
        "chunk_rows": "Rows of a chunk of each array.",
        "checksums": "CRC-32 of each chunk of labels, continued over its memberships.",
        "trust": "Null or absent without confidence; else temperature, checksums, clusters and partitions.",
        "ids": "As of an ensemble.",
        "placing_checksum": "CRC-32 of the file placing.npz; null or absent if there is none.",
        "tree_checksum": "CRC-32 of the file tree.npz; null or absent if there is none.",
        "history": "Lists by name, one value per step of the solve.",
        "parameters": "Parameters of the method; its name is method.",
        "results": "Objective, number of passes and the like.",
        "provenance": "Input of the consensus and how it was computed.",
    },
}
"""The entries of the body by kind of store."""

PARQUET_ENSEMBLE = {
    "files": "CRC-32 of each file, in the order of rows.",
    "footers": "CRC-32 of the end of each file: the metadata of Parquet, their length and PAR1.",
    **{
        name: BODIES["ensemble"][name]
        for name in BODIES["ensemble"]
        if name not in ("generation", "metadata_checksum", "shared")
    },
}
"""The entries of the body of an ensemble in Parquet, where ``n_bytes`` is the size of the files, and the
checksums of ids are of each chunk for itself."""
