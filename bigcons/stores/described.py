"""What is known of a label matrix without reading its labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.memory import Block, format_size, row_blocks
from bigcons.schema import FORMAT_VERSION
from bigcons.stores.facts import facts_table
from bigcons.stores.label_store import KIND, Head, StoredLabels
from bigcons.validation import check_int


class Described:
    """The facts of an `Ensemble`: its sizes, names and provenance, and how it is cut into blocks."""

    _labels: np.ndarray | StoredLabels
    _head: Head

    @property
    def n_objects(self) -> int:
        """Number of objects."""
        return self._head.n_objects

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return len(self._head.names)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the label matrix: ``(n_objects, n_partitions)``."""
        return self.n_objects, self.n_partitions

    def __len__(self) -> int:
        """Return the number of objects."""
        return self.n_objects

    @property
    def n_clusters(self) -> np.ndarray:
        """Number of clusters of each partition: ``(n_partitions,)`` int64."""
        return self._head.n_clusters

    @property
    def offsets(self) -> np.ndarray:
        """Where the base clusters of each partition begin: ``(n_partitions + 1,)`` int64.

        The base cluster of label ``l`` in partition ``u`` is ``offsets[u] + l``.
        """
        return np.concatenate([[0], np.cumsum(self._head.n_clusters)])

    @property
    def n_base_clusters(self) -> int:
        """Number of clusters of all partitions together."""
        return int(self._head.n_clusters.sum())

    @property
    def missing_share(self) -> float:
        """Share of the labels that are missing, counted when they were written."""
        return 1.0 - int(self._head.n_labeled.sum()) / (self.n_objects * self.n_partitions)

    @property
    def dtype(self) -> np.dtype:
        """Type of the labels: the smallest signed integer that holds them."""
        return self._labels.dtype

    @property
    def chunk_rows(self) -> int:
        """Rows per chunk of the store; in memory those that ``save`` would choose."""
        return self._head.chunk_rows

    @property
    def path(self) -> str | None:
        """Where the ensemble is stored, None in memory."""
        return str(self._labels.path) if isinstance(self._labels, StoredLabels) else None

    @property
    def names(self) -> list[str]:
        """Names of the partitions."""
        return list(self._head.names)

    @property
    def provenance(self) -> dict[str, Any]:
        """What made the ensemble, from what and with which parameters."""
        return dict(self._head.provenance)

    def blocks(self, rows: int | None = None) -> list[Block]:
        """Cut the objects into blocks of about ``rows`` rows, never more (unless below one chunk row).

        ``rows`` is rounded down to a multiple or a divisor of ``chunk_rows``, so that no chunk is
        touched by two blocks in part; by default it is ``chunk_rows``.
        """
        rows = self.chunk_rows if rows is None else check_int("rows", rows)
        if rows >= self.chunk_rows:
            return row_blocks(self.n_objects, rows - rows % self.chunk_rows)
        while self.chunk_rows % rows:
            rows -= 1
        return row_blocks(self.n_objects, rows)

    def info(self) -> dict[str, Any]:
        """Return what is known without reading labels, as JSON values; sizes in bytes."""
        clusters = self.n_clusters
        return {
            "kind": KIND,
            "path": self.path,
            "format_version": FORMAT_VERSION,
            "n_objects": self.n_objects,
            "n_partitions": self.n_partitions,
            "n_base_clusters": self.n_base_clusters,
            "clusters_min": int(clusters.min()),
            "clusters_median": float(np.median(clusters)),
            "clusters_max": int(clusters.max()),
            "missing_share": self.missing_share,
            "dtype": self.dtype.name,
            "chunk_rows": self.chunk_rows,
            "n_chunks": len(self.blocks()),
            "n_bytes": self._n_bytes,
            "provenance": self.provenance,
        }

    def __repr__(self) -> str:
        low, high = int(self.n_clusters.min()), int(self.n_clusters.max())
        where = f"{self.path!r}" if self.path else "in memory"
        return (
            f"Ensemble({self.n_objects:,} objects x {self.n_partitions:,} partitions of "
            f"{low}-{high} clusters, {self.missing_share:.1%} missing, {format_size(self._n_bytes)} {where})"
        )

    def _repr_html_(self) -> str:
        info = self.info()
        where = "on disk" if self.path else "in memory"
        facts = {
            "objects": f"{self.n_objects:,}",
            "partitions": f"{self.n_partitions:,}",
            "missing labels": f"{self.missing_share:.1%}",
            "clusters per partition (min / median / max)": (
                f"{info['clusters_min']} / {info['clusters_median']:g} / {info['clusters_max']}"
            ),
            "size": f"{format_size(info['n_bytes'])} {where}, {info['dtype']}",
            "chunks": f"{info['n_chunks']:,} of {self.chunk_rows:,} rows",
        }
        return facts_table(f"Ensemble {self.path or 'in memory'}", facts)

    @property
    def _n_bytes(self) -> int:
        return self._labels.nbytes if isinstance(self._labels, np.ndarray) else self._labels.n_bytes
