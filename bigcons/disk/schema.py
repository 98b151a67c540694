"""The on-disk format: what every kind of store consists of, and what its manifest says.

A kind is declared as data: its arrays, which of them a list of checksums covers together, and the entries of
its manifest. `layout_of` returns what this makes of one manifest, by which stores are opened, verified
and written. The tables of ``docs/format.md`` are made from the declarations.

``FORMAT_VERSION`` is incremented whenever an older bigcons could not read, or would misread, a store.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigcons.memory import row_blocks

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
    entry: str = ""
    """The entry of the body with its type, where there are several: if it has another, there is no array."""
    given_by: str = ""
    """The entry of the body that is null or false if there is no array."""

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

    def dtype_in(self, body: Mapping[str, Any]) -> np.dtype | None:
        """Return the type in a store with this body; None if it does not have the array."""
        if self.given_by and not body[self.given_by]:
            return None
        found = body[self.entry] if self.entry else self.dtypes[0]
        return np.dtype(found) if found in self.dtypes else None


class Group(NamedTuple):
    """Arrays of which each checksum covers a chunk, of one array after another."""

    arrays: tuple[str, ...]
    chunks: tuple[str, ...]
    """Entries with the chunk shape; chunks span further axes."""
    checksums: tuple[str, ...]
    """Where the checksums of all chunks are: an entry of the body, and an entry of that."""
    is_shortened: bool = False
    """Whether no chunk is longer than its array."""


class Entry(NamedTuple):
    """An entry of the body of a manifest."""

    type: str
    """A type of JSON; a count is an integer from 1, a size one from 0."""
    meaning: str

    def fits(self, value: Any) -> bool:
        """Return whether a value is of the type."""
        number = isinstance(value, int) and not isinstance(value, bool)
        return any(
            {
                "count": number and value >= 1,
                "size": number and value >= 0,
                "text": isinstance(value, str),
                "flag": isinstance(value, bool),
                "list": isinstance(value, list),
                "object": isinstance(value, dict),
                "null": value is None,
            }[name]
            for name in self.type.split(" or ")
        )


ENSEMBLE = {
    "labels": ArraySpec(
        ("n_objects", "n_partitions"),
        ("object", "partition"),
        ("int8", "int16", "int32", "int64"),
        "minimum",
        "zstd",
        "Label of each object in each partition, numbered from 0 without gaps; -1 if missing. "
        "The smallest type for all labels.",
        entry="dtype",
    ),
    "memberships": ArraySpec(
        ("n_objects", "n_base_clusters"),
        ("object", "base_cluster"),
        ("float32",),
        "-1",
        "zstd",
        "In place of labels, in an ensemble of soft clusterings: the share of each object in each cluster of "
        "each partition; those of one partition sum to 1, or are all 0 if it is missing.",
        entry="dtype",
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
        entry="agree_dtype",
    ),
    "n_seen": ArraySpec(
        ("2 n_pairs",), ("2 n_pairs",), ("uint8", "uint16"), "maximum", "lz4",
        "Number of partitions that label both objects, at least 1. The smallest type with a spare value.",
        entry="counts_dtype",
    ),
}  # fmt: skip
PAIR_COLUMNS = {
    "i": "The first object of the pair, numbered from 0.",
    "j": "The second object, `i < j < n_objects`.",
    "n_agree": "Number of partitions that cluster the pair together, at most `n_seen`; of soft clusterings "
    "the expected one, float32.",
    "n_seen": "Number of partitions that label both objects, at most 65,534; pairs with 0 are left out.",
}
"""The integer columns of a table with one row for each pair: Parquet, CSV, a data frame. No nulls; each pair
once; rows in any order."""

PARQUET_PAIRS = {
    "n_objects": "Number of objects; if missing, that of the ensemble solved, else the largest `j` + 1.",
    "rows_per_block": "As in the manifest of a table of pairs.",
    "provenance": "Source of the table and how it was made.",
    "n_pairs": "Number of pairs in all files of a folder, by which a lost file is noticed; missing in a "
    "single file.",
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
        given_by="has_memberships",
    ),
}  # fmt: skip
TRUST = {
    "confidence": ArraySpec(
        ("n_objects",), ("object",), ("float32",), "-1", "zstd",
        "Probability that the label of each object is right, times the support of its cluster where that is "
        "known; 0 for objects without a label.",
        given_by="trust",
    ),
    "second_labels": ArraySpec(
        ("n_objects",), ("object",), ("int32",), "minimum", "zstd",
        "Most probable other cluster of each object; -1 if there is none.",
        given_by="trust",
    ),
    "second_confidence": ArraySpec(
        ("n_objects",), ("object",), ("float32",), "-1", "zstd",
        "Probability of the most probable other cluster, times its support.",
        given_by="trust",
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
    "type": "Arrow type of the column they come from, in which they are given back, such as `int32`.",
    "is_index": "Whether they are the index of a data frame.",
    "dtype": "`int64`, `uint64` or `text`.",
    "n_bytes": "8 for each number, or of text the size of `id_text` (`n_id_bytes` above).",
    "digest": "Two CRC-32, each as 8 hexadecimal digits: of all numbers or ends, and of the text.",
    "checksums": "CRC-32 of each chunk of `chunk_rows` numbers, or of ends, continued over the text of its "
    "ids.",
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
    "format": "Always `bigcons`.",
    "format_version": "Integer; readers refuse versions above their own.",
    "kind": "One of `ensemble`, `pairs` and `consensus`.",
    "created_by": "Program and version that wrote the store; informative.",
    "body": "Object with the entries of the kind, below.",
    "data": "Name of the data folder with the arrays, matching `data-[0-9a-f]{32}`; absent if they are next "
    "to the manifest.",
    "shared": "Names of earlier data folders that still hold chunks; present with `data` only.",
    "checksum": "CRC-32 of the manifest without this entry.",
}
"""The entries of every manifest."""

_OF_OBJECTS = {
    "ids": Entry("object or null", "What is known of the [ids](#ids); null if the objects have none."),
}
BODIES = {
    "ensemble": {
        "n_objects": Entry("count", "Number of objects."),
        "n_partitions": Entry("count", "Number of partitions."),
        "names": Entry("list", "Name of each partition, all different."),
        "n_clusters": Entry("list", "Number of clusters of each partition, at least 1."),
        "n_labeled": Entry("list", "Number of objects that each partition labels, at least 1."),
        "provenance": Entry("object", "Source of the ensemble, how it was made and with which parameters."),
        "generation": Entry("count", "Number in the names of the arrays and files."),
        "dtype": Entry("text", "Type of the array: the smallest for all labels, or float32 of memberships."),
        "chunk_rows": Entry("count", "Rows of a chunk of the array."),
        "chunk_columns": Entry("count", "Columns of a chunk, at most 128."),
        "metadata_checksum": Entry("size", "CRC-32 of the array's `zarr.json`."),
        "categories_checksum": Entry("size or null", "CRC-32 of the categories file; null if there is none."),
        "checksums": Entry("list", "CRC-32 of the values of each chunk: `checksums[row][column]`."),
        "n_bytes": Entry("size", "Size of the array as stored, in bytes."),
        **_OF_OBJECTS,
        "generator_checksum": Entry(
            "size or null", "CRC-32 of the [generator](#generators) file; null if there is none."
        ),
        "shared": Entry(
            "object or null", "Which chunks are in earlier data folders; absent on a disk, null if none are."
        ),
    },
    "pairs": {
        "n_objects": Entry("size", "Number of objects, below 2^31."),
        "rows_per_block": Entry("count or null", "Rows of a block if pairs were sampled in tiles."),
        "provenance": Entry("object", "Source of the table and how it was made."),
        "n_pairs": Entry("size", "Number of pairs, each stored in the rows of both of its objects."),
        "counts_dtype": Entry("text", "Type of `n_seen`: uint8 up to 254, else uint16, up to 65,534."),
        "agree_dtype": Entry("text", "Type of `n_agree`: `counts_dtype`, or float32 of soft clusterings."),
        "chunk_entries": Entry(
            "count", "Entries of a chunk of each array, except where an array is shorter than one chunk."
        ),
        "checksums": Entry(
            "object", "By array, a list of the CRC-32 of the values of each run of `chunk_entries` entries."
        ),
    },
    "consensus": {
        "n_objects": Entry("count", "Number of objects."),
        "n_clusters": Entry("count", "Number of consensus clusters, including those without objects."),
        "has_memberships": Entry("flag", "Whether the store has memberships."),
        "chunk_rows": Entry("count", "Rows of a chunk of each array; one of memberships spans all clusters."),
        "checksums": Entry("list", "CRC-32 of each chunk of labels, continued over its memberships."),
        "trust": Entry("object or null", "Which labels to trust, below; null if that is not known."),
        **_OF_OBJECTS,
        "placing_checksum": Entry(
            "size or null",
            "CRC-32 of `placing.npz`, the arrays by which the method places new objects, with the digest of "
            "the ensemble in `facts`; null if there is none.",
        ),
        "tree_checksum": Entry(
            "size or null",
            "CRC-32 of `tree.npz`, the tree in which the number of clusters was chosen, with the support of "
            "its splits and the evidence for each number; null if there is none.",
        ),
        "history": Entry("object", "Lists by name, one value per step of the solve."),
        "parameters": Entry("object", "Parameters of the method; its class name is `method`."),
        "results": Entry(
            "object",
            "Objective, `n_clusters` found and `n_tiny_clusters` among them, number of passes and the like.",
        ),
        "provenance": Entry(
            "object", "Input of the consensus; after a solve, `run` is everything the result depends on."
        ),
    },
}
"""The entries of the body by kind of store. All are required, but for what is absent on a disk."""

PARQUET = "ensemble in Parquet"
BODIES[PARQUET] = {
    "files": Entry("list", "CRC-32 of the bytes of each file, in the order of rows."),
    "footers": Entry(
        "list", "CRC-32 of the end of each file: the metadata of Parquet, their length and `PAR1`."
    ),
    **{
        name: entry
        for name, entry in BODIES["ensemble"].items()
        if name not in ("generation", "metadata_checksum", "shared")
    },
}
"""Where ``n_bytes`` is the size of the files, and checksums of ids are of each chunk for itself."""

ARRAYS = {"ensemble": ENSEMBLE, "pairs": PAIRS, "consensus": {**CONSENSUS, **TRUST}}
"""The arrays of each kind of store but those of ids."""

GROUPS = {
    "ensemble": (Group(("labels", "memberships"), ("chunk_rows", "chunk_columns"), ("checksums",)),),
    "pairs": tuple(Group((name,), ("chunk_entries",), ("checksums", name), True) for name in PAIRS),
    "consensus": (
        Group(tuple(CONSENSUS), ("chunk_rows",), ("checksums",)),
        Group(tuple(TRUST), ("chunk_rows",), ("trust", "checksums")),
    ),
    PARQUET: (),
}
"""How the checksums cover the arrays of each kind of store."""

FILES = {
    "ensemble": {
        "categories{suffix}.json": "categories_checksum",
        "generator{suffix}.npz": "generator_checksum",
    },
    "pairs": {},
    "consensus": {"placing.npz": "placing_checksum", "tree.npz": "tree_checksum"},
}
FILES[PARQUET] = {f"_{name.replace('{suffix}', '')}": entry for name, entry in FILES["ensemble"].items()}
"""The files besides the arrays: the entry with the CRC-32 of one, null without it."""


def file_names(kind: str, suffix: str = "") -> dict[str, str]:
    """Return the names of the files besides the arrays, by the entry of their checksum."""
    return {entry: name.format(suffix=suffix) for name, entry in FILES[kind].items()}


# What a manifest says


class Array(NamedTuple):
    """An array as its declaration and the manifest determine it."""

    spec: ArraySpec
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype


class Piece(NamedTuple):
    """Parts of arrays that one checksum covers, one after another."""

    arrays: tuple[str, ...]
    part: tuple[slice, ...]
    checksum: int

    def is_proven_by(self, values: Sequence[np.ndarray]) -> bool:
        """Return whether values have the checksum."""
        return checksum_of(*values) == self.checksum


class Covered(NamedTuple):
    """Arrays whose chunks a list of checksums covers, one array after another."""

    arrays: tuple[str, ...]
    axes: list[tuple[int, int]]
    """Sizes, and those of a chunk."""
    checksums: np.ndarray

    def pieces(self) -> Iterator[Piece]:
        """Yield what each checksum covers."""
        blocks = itertools.product(*(row_blocks(*axis) for axis in self.axes))
        for of_axes, checksum in zip(blocks, self.checksums.ravel().tolist(), strict=True):
            part = tuple(slice(block.start, block.stop) for block in of_axes)
            yield Piece(self.arrays, part, checksum)


class Layout(NamedTuple):
    """What a store consists of."""

    arrays: dict[str, Array]
    """By the names under which they are stored."""
    covered: list[Covered]
    files: dict[str, int | None]
    """Their checksums, None if there is none."""
    suffix: str = ""
    """What the names of arrays end with."""

    def pieces(self) -> Iterator[Piece]:
        """Yield what each checksum covers."""
        return itertools.chain.from_iterable(covered.pieces() for covered in self.covered)


def checksum_of(*values: np.ndarray) -> int:
    """Return the CRC-32 of arrays as little-endian bytes, one after another."""
    found = 0
    for array in values:
        content = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        found = zlib.crc32(content.data.cast("B") if content.size else b"", found)
    return found


def check_body(body: Mapping[str, Any], entries: Mapping[str, Entry]) -> None:
    """Raise ValueError for an entry of a manifest that is missing, or of another type."""
    for name, entry in entries.items():
        if name not in body and name != "shared":  # which is absent on a disk
            raise ValueError(f"no {name}")
        if name in body and not entry.fits(body[name]):
            raise ValueError(f"{name} is {body[name]!r:.40}, no {entry.type}")


def layout_of(kind: str, body: Mapping[str, Any]) -> Layout:
    """Return what the body of a manifest says of a store of this kind, also ``PARQUET``.

    Raises LookupError, TypeError, ValueError or OverflowError if it is inconsistent.
    """
    check_body(body, BODIES[kind])
    suffix = f"-{body['generation']}" if "generation" in BODIES[kind] else ""
    files = {name.format(suffix=suffix): body[entry] for name, entry in FILES[kind].items()}
    if kind == PARQUET:
        for block in row_blocks(body["n_objects"], body["chunk_rows"]):
            files[f"part-{block.index:05}.parquet"] = body["files"][block.index]
    layout = Layout({}, [], files, suffix)
    for group in GROUPS[kind]:
        arrays = arrays_of(kind, group, body)
        if not arrays:
            continue
        layout.arrays.update(arrays)
        shape = next(iter(arrays.values())).shape
        axes = list(zip(shape, [body[entry] for entry in group.chunks], strict=False))
        found: Any = body
        for entry in group.checksums:
            found = found[entry]
        checksums = np.array(found, np.int64)
        if checksums.shape != tuple(-(-size // chunk) for size, chunk in axes):
            raise ValueError("the number of checksums")
        layout.covered.append(Covered(tuple(arrays), axes, checksums))
    return layout


def arrays_of(kind: str, group: Group, body: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays of a group in a store with this body, by the names under which they are stored."""
    suffix = f"-{body['generation']}" if "generation" in BODIES[kind] else ""
    arrays = {}
    for name in group.arrays:
        spec = ARRAYS[kind][name]
        dtype = spec.dtype_in(body)
        if dtype is None:
            continue
        shape = spec.shape_in(body)
        chunks = [body[entry] for entry in group.chunks]
        if group.is_shortened:
            chunks = [min(chunk, max(size, 1)) for chunk, size in zip(chunks, shape, strict=True)]
        arrays[name + suffix] = Array(spec, shape, (*chunks, *shape[len(chunks) :]), dtype)
    if not arrays and not any(ARRAYS[kind][name].given_by for name in group.arrays):
        raise ValueError(f"the type of {' or '.join(group.arrays)}")
    return arrays
