"""Every stored array: its name, dimensions, types and meaning. The version counts layouts of all kinds."""

from __future__ import annotations

from typing import NamedTuple

FORMAT_VERSION = 1

KINDS = {
    "ensemble": "an ensemble of partitions",
    "pairs": "a table of pairs",
    "consensus": "a consensus",
}
"""What a store can hold, in words for messages."""

MISSING = -1
"""The label of an object that a partition does not label."""


class ArraySpec(NamedTuple):
    """One stored array."""

    dims: tuple[str, ...]
    dtypes: tuple[str, ...]
    meaning: str


ENSEMBLE = {
    "labels": ArraySpec(
        ("n_objects", "n_partitions"),
        ("int8", "int16", "int32", "int64"),
        "Dense label of an object in a partition, -1 if missing; the type's minimum marks a lost chunk.",
    ),
}
PAIRS = {
    "indptr": ArraySpec(("n_objects + 1",), ("int64",), "Where the pairs of an object begin in the columns."),
    "indices": ArraySpec(("2 n_pairs",), ("int32", "int64"), "The other object of the pair, ascending."),
    "n_agree": ArraySpec(("2 n_pairs",), ("uint8", "uint16"), "Partitions that put the pair together."),
    "n_seen": ArraySpec(("2 n_pairs",), ("uint8", "uint16"), "Partitions that label both objects."),
}
CONSENSUS = {
    "labels": ArraySpec(("n_objects",), ("int32",), "Consensus cluster of an object, -1 without labels."),
    "memberships": ArraySpec(
        ("n_objects", "n_clusters"), ("float32",), "Probability of each consensus cluster; rows sum to 1."
    ),
}
