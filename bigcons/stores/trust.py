"""Trust: which labels of a consensus to trust, and the tables of its clusters and of the partitions."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.layout import TRUST
from bigcons.stores.display import first_rows

if TYPE_CHECKING:
    import pyarrow as pa

HALF_WAY = 0.5
"""Agreement, adjusted for chance, half-way between chance and identity: below it, others would not agree."""

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
        n_labeled = sum(self.clusters["size"].to_pylist())  # some with a confidence of 0
        total = self.confidence.sum(dtype=np.float64)
        mean = f"mean confidence {total / n_labeled:.2f}" if n_labeled else "none labeled"
        rows = f"{self.clusters.num_rows} clusters, {self.partitions.num_rows} partitions"
        merged = "".join(f", {k} could be merged with {other} at no cost" for k, other in self._mergers[:3])
        more = ", ..." if len(self._mergers) > 3 else ""
        temperature = f"temperature {self.temperature:.2f}"
        return f"Trust({self.confidence.size:,} objects, {mean}, {rows}, {temperature}{merged}{more})"

    def _repr_html_(self) -> str:
        clusters = {row["cluster"]: row["size"] for row in self.clusters.to_pylist()}
        sizes = [clusters.get(k, 0) for k in range(max(clusters, default=-1) + 1)]
        return f"<p>{html.escape(repr(self))}</p>" + cluster_rows(sizes, self.clusters)

    @property
    def _mergers(self) -> list[tuple[int, int]]:
        return [*mergers(self.clusters).items()]


def mergers(clusters: pa.Table) -> dict[int, int]:
    """Return which clusters could be merged at no cost with which other one, that is at least as large.

    By a table of clusters: those whose division from the nearest has less than half the support of one that
    everyone finds; none where the table does not have that.
    """
    if "division" not in clusters.column_names:
        return {}
    rows = {row["cluster"]: row for row in clusters.to_pylist()}
    return {
        k: row["nearest"]
        for k, row in rows.items()
        if row["division"] is not None
        and row["division"] < HALF_WAY
        and row["size"] <= rows[row["nearest"]]["size"]
    }


def cluster_rows(sizes: Sequence[int], clusters: Any = None) -> str:
    """Return clusters with objects as such a table: sizes (K,) and what a table of `Trust` knows."""
    shown = [k for k, size in enumerate(sizes) if size]
    columns: dict[str, list[Any]] = {
        "cluster": [str(k) for k in shown],
        "objects": [f"{sizes[k]:,}" for k in shown],
        "share": [f"{sizes[k] / max(sum(sizes), 1):.1%}" for k in shown],
    }
    if clusters is not None:
        rows = {row["cluster"]: row for row in clusters.to_pylist()}
        for name, words in (("confidence", "mean confidence"), ("support", "support")):
            if clusters[name].null_count < len(rows):
                values = [rows.get(k, {}).get(name) for k in shown]
                columns[words] = ["" if value is None else f"{value:.3f}" for value in values]
        if merged := mergers(clusters):
            columns["could be merged at no cost with"] = [str(merged.get(k, "")) for k in shown]
    return first_rows("Clusters", columns)


def arrow_table(types: Mapping[str, tuple[str, str]], columns: Mapping[str, Any]) -> pa.Table:
    """Return a table of these types, `CLUSTER_COLUMNS` or `PARTITION_COLUMNS`; NaN and None become null.

    Raises ValueError or TypeError for other columns, and for values of other types. Nothing is taken by
    ``pa.array``, which imports pandas: that takes half a second.
    """
    import pyarrow as pa

    if set(columns) != set(types):
        raise ValueError(f"the columns {sorted(columns)}")
    arrays = []
    for name, (kind, _) in types.items():
        if kind == "string":
            texts = pa.lib.StringBuilder()
            texts.append_values(list(columns[name]))
            arrays.append(texts.finish())
        else:
            values = np.array(columns[name], kind)
            known = pa.py_buffer(np.packbits(~np.isnan(values), bitorder="little"))
            of_kind = getattr(pa, kind)()
            arrays.append(pa.Array.from_buffers(of_kind, values.size, [known, pa.py_buffer(values)]))
    return pa.Table.from_arrays(arrays, names=list(types))
