"""Trust: which labels of a consensus to trust, and the tables of its clusters and of the partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.layout import CLUSTER_COLUMNS, PARTITION_COLUMNS, TRUST

if TYPE_CHECKING:
    import pyarrow as pa

TRUST_ROW = np.dtype([(name, spec.dtypes[0]) for name, spec in TRUST.items()])
"""What is known of every object."""


class Trust(NamedTuple):
    """How far the labels of a consensus can be trusted; see `bigcons.metrics.trust`."""

    confidence: np.ndarray
    """(n_objects,) float32: the probability that the object's label is right; 0 without a label.

    Times the support of the object's cluster, where that is known.
    """
    second_labels: np.ndarray
    """(n_objects,) int32: the most probable other cluster; -1 if there is none."""
    second_confidence: np.ndarray
    """(n_objects,) float32: the same of it, which exceeds the confidence where the label is doubtful."""
    clusters: pa.Table
    """One row per cluster."""
    partitions: pa.Table
    """One row per partition."""
    temperature: float
    """From 0 to 1: which share of the evidence in the labels of an object counts."""

    def __repr__(self) -> str:
        labeled = self.confidence > 0
        mean = f"mean confidence {self.confidence[labeled].mean():.2f}" if labeled.any() else "none labeled"
        rows = f"{self.clusters.num_rows} clusters, {self.partitions.num_rows} partitions"
        return f"Trust({self.confidence.size:,} objects, {mean}, {rows}, temperature {self.temperature:.2f})"


def cluster_table(columns: Mapping[str, Any]) -> pa.Table:
    """Return the table of clusters with these columns; NaN becomes null."""
    return _table(CLUSTER_COLUMNS, columns)


def partition_table(columns: Mapping[str, Any]) -> pa.Table:
    """Return the table of partitions with these columns; NaN becomes null."""
    return _table(PARTITION_COLUMNS, columns)


def _table(types: Mapping[str, tuple[str, str]], columns: Mapping[str, Any]) -> pa.Table:
    """Raises ValueError for wrong columns, and for values of wrong types."""
    import pyarrow as pa

    if set(columns) != set(types):
        raise ValueError(f"the columns {sorted(columns)}")
    arrays = [_array(columns[name], kind) for name, (kind, _) in types.items()]
    return pa.Table.from_arrays(arrays, names=list(types))


def _array(values: Any, kind: str) -> pa.Array:
    """Return values as an array of Arrow of this type, NaN and None as null.

    Arrays of NumPy without ``pa.array``, which imports pandas: that takes half a second.
    """
    import pyarrow as pa

    if not isinstance(values, np.ndarray):
        return pa.array(values, getattr(pa, kind)(), from_pandas=True)
    if kind == "string":
        texts = pa.lib.StringBuilder()
        texts.append_values(values.tolist())
        return texts.finish()
    values = np.ascontiguousarray(values, kind)
    known = pa.py_buffer(np.packbits(~np.isnan(values), bitorder="little"))
    return pa.Array.from_buffers(getattr(pa, kind)(), values.size, [known, pa.py_buffer(values)])
