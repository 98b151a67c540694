"""Ensemble: the label matrix of many partitions, in memory or in a store, read block by block."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.memory import parse_size
from bigcons.storage.commit import is_store, refuse_existing
from bigcons.storage.places import StorePath, place_of
from bigcons.stores import growing
from bigcons.stores.described import Described
from bigcons.stores.label_store import Categories, Head, StoredLabels, open_labels
from bigcons.stores.making import read_labels, store_labels
from bigcons.tables.importing import warn_of_suspects
from bigcons.tables.sources import ColumnsSource, LabelSource, open_source
from bigcons.validation import check_choice, check_int


class Ensemble(Described):
    """Partitions of the same objects: dense labels ``(n_objects, n_partitions)``, -1 where missing.

    Make one with ``from_labels``, ``open`` or ``import_labels``. Labels ``0 .. n_clusters[u] - 1`` of
    partition ``u`` stand for the original values ``categories[u]``.
    """

    def __init__(self, labels: np.ndarray | StoredLabels, head: Head, categories: Categories | None) -> None:
        self._labels = labels
        self._head = head
        self._categories = categories
        self._mode = "a" if isinstance(labels, np.ndarray) else "r"

    @classmethod
    def from_labels(cls, x: Any, *, names: Sequence[str] | None = None) -> Ensemble:
        """Read a label matrix into memory; rows are objects, columns are partitions.

        ``x`` is an array of whole numbers or text, a list of rows, a pandas, polars or Arrow table, a
        dask array or dataframe, another ensemble, or a path to one or to .npy, .npz, .csv, .parquet or
        .zarr. NaN, None, pd.NA, negative numbers and what a mask of numpy hides are missing labels. Raises
        InvalidInputError for labels that are neither whole numbers nor text, for an empty or ragged matrix
        and for a partition without any label.
        """
        provenance = {"made_by": "from_labels", "source": _describe(x)}
        return _warned_of(Ensemble(*read_labels(_source_of(x), provenance, names=names)))

    @classmethod
    def open(cls, path: StorePath, mode: str = "r") -> Ensemble:
        """Open a stored ensemble for reading ("r"), or also for appending ("a").

        Raises StoreNotFoundError if there is none, CorruptStoreError if the store is damaged.
        """
        check_choice("mode", mode, ("r", "a"))
        stored = open_labels(place_of(path))
        ensemble = cls(stored, stored.head, None)
        ensemble._mode = mode
        return ensemble

    @property
    def categories(self) -> Categories:
        """Original value of each dense label, per partition; None where the labels were 0 .. k-1 already."""
        if self._categories is None:
            assert isinstance(self._labels, StoredLabels)  # noqa: S101 - in memory they are always set
            self._categories = self._labels.categories()
        return list(self._categories)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the labels of objects ``start`` to ``stop``: ``(stop - start, n_partitions)``, C order.

        In memory this is a view, not to be changed. Raises CorruptStoreError for damaged chunks.
        """
        if not 0 <= start <= stop <= self.n_objects:
            raise InvalidInputError(
                f"rows {start} to {stop} are not within the {self.n_objects} objects; "
                f"use 0 <= start <= stop <= {self.n_objects}."
            )
        if isinstance(self._labels, np.ndarray):
            return self._labels[start:stop]
        return self._labels.read(start, stop)

    def read_rows(self, indices: Any) -> np.ndarray:
        """Return the labels of the objects ``indices``, in their order: ``(len(indices), n_partitions)``.

        Costs one read of every chunk that holds one of them.
        """
        indices = np.asarray(indices)
        if indices.size == 0:
            return np.empty((0, self.n_partitions), self.dtype)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise InvalidInputError(
                f"indices has shape {indices.shape} and type {indices.dtype}; give whole numbers, shape (n,)."
            )
        if indices.min() < 0 or indices.max() >= self.n_objects:
            raise InvalidInputError(
                f"indices go from {indices.min()} to {indices.max()}; use 0 to {self.n_objects - 1}."
            )
        if isinstance(self._labels, np.ndarray):
            return self._labels[indices]
        return self._gather_rows(indices)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all labels ``(n_objects, n_partitions)``, so that ``np.asarray(ensemble)`` is the matrix.

        Of a stored ensemble this reads everything into memory: use ``read`` and ``blocks`` if it does not
        fit. In memory it is a view that cannot be written to, unless a copy is asked for.
        """
        if isinstance(self._labels, StoredLabels) and copy is False:
            raise ValueError(f"{self.path} is on disk, and its labels are always copied; pass copy=None.")
        labels = self.read(0, self.n_objects).view()
        labels.flags.writeable = isinstance(self._labels, StoredLabels)
        return np.array(labels, dtype, copy=copy if self.path is None else None)

    def load(self) -> Ensemble:
        """Return the ensemble with its labels in memory, cut into the same blocks."""
        if not isinstance(self._labels, StoredLabels):
            return self
        return Ensemble(self.read(0, self.n_objects), self._head, self.categories)

    def save(self, path: StorePath, *, chunk_rows: int | None = None, overwrite: bool = False) -> Ensemble:
        """Store the ensemble at ``path`` and return it opened from there.

        Raises StoreExistsError if there is something at ``path``; with ``overwrite`` a store there is
        replaced in one step, once the new one is whole.
        """
        rows = self.chunk_rows if chunk_rows is None else check_int("chunk_rows", chunk_rows)
        blocks = (self.read(block.start, block.stop) for block in self.blocks())
        head = self._head._replace(chunk_rows=rows)
        growing.write_store(path, blocks, head, self.categories, self.dtype, overwrite)
        return Ensemble.open(path)

    def append_objects(self, labels: Any) -> Ensemble:
        """Append rows, in the order of the partitions (tables: by their names), and return this ensemble.

        New label values extend the categories. A stored ensemble must be open with mode "a"; its chunks
        keep their number of rows, and other handles that are open on it must be opened again.
        """
        source = _source_of(labels)
        if isinstance(self._labels, np.ndarray):
            self._labels, self._head, self._categories = growing.memory_objects(
                self._labels, self._head, self.categories, source
            )
        else:
            with self._writing() as room:
                growing.store_objects(room, source)
        return self

    def append_partitions(self, labels: Any, names: Sequence[str] | None = None) -> Ensemble:
        """Append columns for the same objects, in the same order, and return this ensemble.

        ``labels`` is a matrix, or ``(n_objects,)`` for one partition. A stored ensemble must be open
        with mode "a".
        """
        source = _source_of(_as_matrix(labels))
        if isinstance(self._labels, np.ndarray):
            self._labels, self._head, self._categories = growing.memory_partitions(
                self._labels, self._head, self.categories, source, names
            )
        else:
            with self._writing() as room:
                growing.store_partitions(room, source, names)
        return self

    def verify(self) -> dict[str, Any]:
        """Read every label and compare it with what the manifest promises.

        Returns the counts of what was checked; raises CorruptStoreError at the first thing that is
        wrong. In memory there is nothing to compare with.
        """
        n_chunks = self._labels.verify() if isinstance(self._labels, StoredLabels) else 0
        return {"ok": True, "path": self.path, "n_objects": self.n_objects, "n_chunks": n_chunks}

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is not None:
            return Ensemble.open, (self.path, self._mode)
        return Ensemble, (self._labels, self._head, self._categories)

    @contextmanager
    def _writing(self) -> Iterator[growing.Room]:
        """Hold the store for writing, and open what was made of it."""
        assert self.path is not None  # noqa: S101 - only stored ensembles are written to
        if self._mode != "a":
            raise InvalidInputError(f"{self.path} is open for reading; open it with mode='a' to append.")
        with growing.room_to_grow(place_of(self.path)) as room:
            yield room
            self._labels = open_labels(room.stored.path)
            self._head = self._labels.head
            self._categories = None

    def _gather_rows(self, indices: np.ndarray) -> np.ndarray:
        order = np.argsort(indices, kind="stable")
        ascending = indices[order]
        rows = np.empty((len(indices), self.n_partitions), self.dtype)
        for chunk in np.unique(ascending // self.chunk_rows):
            start = int(chunk) * self.chunk_rows
            stop = min(start + self.chunk_rows, self.n_objects)
            low, high = np.searchsorted(ascending, [start, stop])
            rows[order[low:high]] = self.read(start, stop)[ascending[low:high] - start]
        return rows


def as_ensemble(x: Any, known: Sequence[np.ndarray] | None = None) -> Ensemble:
    """Return ``x`` if it is an Ensemble, open it if it is the path of one, or read its labels into memory.

    Labels that are read get the codes of the ``known`` values of each partition, if given, and other values
    codes behind these; a partition with known values may then be without labels.
    """
    if isinstance(x, Ensemble):
        return x
    if isinstance(x, (str, os.PathLike)) and is_store(x):
        return Ensemble.open(x)
    if known is None:
        return Ensemble.from_labels(x)
    source = _source_of(x)
    if source.n_partitions != len(known):
        raise InvalidInputError(
            f"the new labels have n_partitions={source.n_partitions} but {len(known)} were fitted; "
            "give the same partitions in the same order."
        )
    provenance = {"made_by": "from_labels", "source": _describe(x)}
    return Ensemble(*read_labels(source, provenance, known=known))


def import_labels(
    source: Any,
    out: StorePath,
    *,
    overwrite: bool = False,
    memory: int | str = "1GB",
    chunk_rows: int | None = None,
) -> Ensemble:
    """Store the labels of ``source``, which is what ``Ensemble.from_labels`` takes, without holding them.

    Reads the source twice (once for the values, once to write) by blocks that keep within ``memory``;
    a dask collection is computed twice, chunk by chunk. Raises MemoryBudgetError if a chunk of the
    source, or the distinct labels, do not fit.
    """
    refuse_existing(out, overwrite)
    provenance = {"made_by": "import_labels", "source": _describe(source)}
    store_labels(_source_of(source), out, None, provenance, overwrite, parse_size(memory), chunk_rows)
    return _warned_of(Ensemble.open(out))


def _warned_of(ensemble: Ensemble) -> Ensemble:
    warn_of_suspects(ensemble.n_objects, ensemble.names, ensemble.n_clusters)
    return ensemble


def write_partitions(
    out: StorePath,
    columns: Sequence[Any],
    *,
    n_objects: int,
    names: Sequence[str] | None = None,
    provenance: dict[str, Any] | None = None,
    overwrite: bool = False,
    chunk_rows: int | None = None,
    memory: int | str = "1GB",
) -> Ensemble:
    """Store partitions that were made one by one: arrays ``(n_objects,)`` or paths of .npy files of them.

    Files are mapped and read by blocks of rows, so that the labels are never in memory as a whole.
    """
    refuse_existing(out, overwrite)
    source = ColumnsSource(columns, check_int("n_objects", n_objects))
    made_by = {"made_by": "write_partitions"} if provenance is None else provenance
    store_labels(source, out, names, made_by, overwrite, parse_size(memory), chunk_rows)
    return Ensemble.open(out)


def ensemble_of(
    source: LabelSource,
    out: StorePath | None = None,
    *,
    provenance: dict[str, Any],
    overwrite: bool = False,
    memory: int | float | str = "1GB",
) -> Ensemble:
    """Read a source of labels into memory, or with ``out`` into a store within ``memory``.

    The source is read twice, and must give the same labels each time.
    """
    if out is not None:
        refuse_existing(out, overwrite)
        store_labels(source, out, None, provenance, overwrite, parse_size(memory), None)
        return Ensemble.open(out)
    return Ensemble(*read_labels(source, provenance))


def _source_of(x: Any) -> LabelSource:
    is_stored = isinstance(x, (str, os.PathLike)) and is_store(x)
    return open_source(Ensemble.open(x) if is_stored else x)


def _describe(x: Any) -> str:
    return os.fspath(x) if isinstance(x, (str, os.PathLike)) else type(x).__name__


def _as_matrix(labels: Any) -> Any:
    """Return one column ``(n_objects,)`` as a matrix, and anything else as it is."""
    if len(getattr(labels, "shape", (0, 0))) == 1:
        return np.asanyarray(labels).reshape(-1, 1)
    if (
        isinstance(labels, (list, tuple))
        and labels
        and (isinstance(labels[0], str) or not hasattr(labels[0], "__len__"))
    ):
        return np.array(labels, dtype=object).reshape(-1, 1)
    return labels
