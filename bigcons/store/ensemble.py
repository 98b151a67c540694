"""Ensemble: the labels or memberships of objects in partitions, in memory or stored, read block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import psutil

from bigcons import errors
from bigcons.disk import commit
from bigcons.disk.arrays import digest_text
from bigcons.disk.files import StorePath
from bigcons.disk.places import place_of
from bigcons.io import sources
from bigcons.io.columns import INDEX, Column, Columns, Ids, Selection, listed, positions_of, select
from bigcons.io.labels import names_of_rows, observed, refuse_other_rows
from bigcons.memory import Block, DataBudget, beside_processes, format_size, row_blocks
from bigcons.store import building, ensemble_store
from bigcons.store.building import SoftSources, read_long, read_runs
from bigcons.store.ensemble_store import KIND, Categories, Content, Header, StoredRows
from bigcons.store.generator import Generator, StoredGenerator
from bigcons.store.store import Objects, ids_of
from bigcons.validation import check_choice, check_int, check_rows


class Ensemble(Objects):
    """Partitions of the same objects: labels ``(n_objects, n_partitions)``, -1 where missing.

    Created by ``from_labels``, ``from_runs``, ``from_long``, ``open`` or ``import_labels``. The labels of
    partition ``u`` are ``0 .. n_clusters[u] - 1`` and encode the original values ``categories[u]``.

    ``ensemble["a"]`` and ``ensemble[["a", "b"]]`` select partitions; a slice, a mask or positions select
    objects.

    An ensemble of soft clusterings, from ``from_memberships``, has memberships
    ``(n_objects, n_base_clusters)`` float32 in place of labels: the real incidence matrix of objects and base
    clusters. The columns of partition ``u`` begin at ``offsets[u]``; for an object they sum to 1, or are all
    0 if it is missing. Methods that work on labels alone refuse such an ensemble; ``harden`` makes labels.

    Attributes: ``n_objects``, ``n_partitions``, ``shape`` (both), ``names`` (of the partitions),
    ``provenance`` (its source and how it was made), ``missing_share`` (of the labels), ``is_soft`` (whether
    it has memberships), ``n_clusters`` and ``n_labeled`` (``(n_partitions,)`` int64, the clusters of each
    partition and the objects that it labels), ``offsets`` (``(n_partitions + 1,)`` int64: the base cluster of
    label ``l`` in partition ``u`` is ``offsets[u] + l``), ``n_base_clusters``, ``dtype`` (the smallest signed
    integer for all labels, or float32), ``row_bytes``, ``chunk_rows`` (of the store; in memory, the default
    of ``save``), ``path`` (or URL; None in memory), ``id_column`` (what identifies the objects).

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble = bc.Ensemble.from_labels([["a", "x"], ["a", "y"], ["b", None]])
    >>> ensemble.read(0, 3)
    array([[ 0,  0],
           [ 0,  1],
           [ 1, -1]], dtype=int8)
    >>> _ = ensemble.save("ensemble.zarr")
    >>> bc.Ensemble.open("ensemble.zarr").shape
    (3, 2)
    """

    kind: str = KIND
    summary: tuple[str, ...] = (
        *("path", "n_objects", "n_partitions", "n_base_clusters", "is_soft", "missing_share"),
        *("chunk_rows", "provenance"),
    )

    def __init__(
        self, labels: Any, header: Header | None = None, categories: Categories | None = None, mode: str = "a"
    ) -> None:
        self._mode = mode
        self._take(labels, header or labels.header, categories)

    def _take(self, labels: np.ndarray | StoredRows, header: Header, categories: Categories | None) -> None:
        """Take labels, and set what their header says; ``categories`` are None until they are read."""
        self._labels, self._header, self._categories = labels, header, categories
        self.n_objects: int = header.n_objects
        self.names: list[str] = list(header.names)
        self.n_partitions: int = len(self.names)
        self.shape: tuple[int, int] = (self.n_objects, self.n_partitions)
        self.provenance: dict[str, Any] = dict(header.provenance)
        self.missing_share: float = 1.0 - int(header.n_labeled.sum()) / (self.n_objects * self.n_partitions)
        self.is_soft: bool = header.is_soft
        self.n_clusters: np.ndarray = header.n_clusters
        self.n_labeled: np.ndarray = header.n_labeled
        self.offsets: np.ndarray = header.offsets
        self.n_base_clusters: int = int(self.offsets[-1])
        self.dtype: np.dtype = labels.dtype
        self.row_bytes: int = header.n_columns * labels.dtype.itemsize
        self.chunk_rows: int = header.chunk_rows
        self.id_column: Ids | None = header.ids
        self.stored: StoredRows | None = labels if isinstance(labels, StoredRows) else None
        self.path: str | None = None if self.stored is None else str(self.stored.place)

    @classmethod
    def from_labels(
        cls,
        x: Any,
        *,
        names: Sequence[str] | None = None,
        id: Column | None = None,
        columns: Columns | None = None,
        drop: Columns | None = None,
        missing: Any = None,
        header: bool | None = None,
    ) -> Ensemble:
        """Read a label matrix into memory; rows are objects, columns are partitions.

        ``x`` is an array of whole numbers or text, a list of rows, a pandas, polars or Arrow table or any
        object with ``__arrow_c_stream__``, a dask array or dataframe, an AnnData, whose ``obs`` is read,
        another ensemble, or a path to one or to .npy, .csv, .tsv (or these compressed), .parquet, .h5ad (by
        anndata) or .zarr, a folder of such files, a pattern such as ``labels/*.csv``, or a list of paths, all
        of which need the columns that are read.
        ``id`` names the column that identifies the objects, by default the index of a data frame unless it is
        0, 1, ... in order; ``columns`` and ``drop`` choose the partitions, and ``missing`` says which labels
        are missing: by default, in every source, empty and blank text, NaN, None, pd.NA, masked entries, the
        words that pandas reads as missing, and negative numbers. If negative numbers probably do not mean
        missing labels, such as several different ones that may be hashes, or the number that an unsigned type
        makes of -1, they are refused without ``missing``. See `bigcons.select`. In .csv and .tsv, a column
        that has only numbers is numeric; elsewhere text stays text.

        The first line of a .csv or .tsv has the names of the columns unless ``header=False``; if a number is
        in it, state ``header``. A column of text among columns of numbers, and a table that may have a
        row for each label or a column for each cluster, are refused unless ``columns`` names the partitions.

        Raises InvalidInputError for labels that are neither whole numbers nor text, for an empty or ragged
        matrix, and for a partition without any label.
        """
        is_whole = id is None and columns is None and drop is None and missing is None and header is None
        if type(x) is np.ndarray and x.ndim == 2 and x.size and x.dtype.kind in "biuf" and is_whole:
            provenance: dict[str, Any] = {"made_by": "from_labels", "source": "ndarray"}
            return Ensemble(*building.of_array(x, names, provenance))
        options = {"missing": missing, "header": header}
        choice = select(x, id=id, columns=columns, drop=drop, **options)
        provenance = {"made_by": "from_labels", "source": sources.describe(x)}
        return ensemble_of(_table_of(choice), provenance=provenance, names=names)

    @classmethod
    def from_runs(
        cls,
        runs: Any,
        *,
        names: Sequence[str] | None = None,
        ids: Any = None,
        id: Column | None = None,
        columns: Columns | None = None,
        missing: Any = None,
        header: bool | None = None,
        out: StorePath | None = None,
        overwrite: bool = False,
        memory: int | str = "1GB",
    ) -> Ensemble:
        """Read partitions of the same objects, one from each entry of a list, as most programs give them.

        Parameters
        ----------
        runs
            A list with one entry for each partition, a mapping from names to them, or an array with a row for
            each. An entry is a vector of labels (a list, array, or column of pandas, polars or Arrow), a file
            or a table with one column of labels, or a fitted clusterer of scikit-learn.
        names : default=None
            Names of the partitions; by default the keys of a mapping, or the names of files or columns if
            all have different ones, else ``p0, p1, ...``
        ids : default=None
            What identifies the objects, in order; by default what the runs have.
        id, columns, missing, header
            Of files and tables, the column that identifies the objects and the column of labels, and how they
            are read; see `bigcons.select`.
        out, overwrite, memory
            Where to store the ensemble, and the memory to use for it. By default it is in memory.

        Entries with ids, such as the index of a column, are joined by them; objects are in the order in which
        they first occur, and missing in runs that do not have them. Entries without ids have a label for each
        object. Raises InvalidInputError for entries of different length, and for a single run. The codes of
        all runs are in memory or, with ``out``, the codes of one run at a time.

        Examples
        --------
        >>> import bigcons as bc
        >>> bc.Ensemble.from_runs([[0, 0, 1], ["a", "b", "b"]]).read(0, 3).tolist()
        [[0, 0], [0, 1], [1, 1]]
        """
        options = {"id": id, "columns": columns, "missing": missing, "header": header}
        ids = ids_of(ids)
        facts = {**options, "names": names, "ids": None if ids is None else ids.facts.in_words}
        provenance = {"made_by": "from_runs", **sources.provenance_of_files(runs, facts)}
        with ExitStack() as stack:
            if out is not None and _prepared(out, overwrite, provenance, runs):
                return Ensemble.open(out)
            content = read_runs(runs, names, stack, ids=ids, on_disk=out is not None, **options)
            return _reshaped(content, provenance, out, overwrite, beside_processes(memory))

    @classmethod
    def from_long(
        cls,
        table: Any,
        *,
        object: Column,
        partition: Column,
        label: Column,
        missing: Any = None,
        header: bool | None = None,
        out: StorePath | None = None,
        overwrite: bool = False,
        memory: int | str = "1GB",
    ) -> Ensemble:
        """Read a long table, which has a row for each label, such as the votes of workers on tasks.

        Parameters
        ----------
        table
            Any table, as for ``from_labels``.
        object, partition, label
            The columns with the object, the partition (a worker, a run) and the label. Objects and partitions
            are sorted; objects keep their names as ids. Labels that a partition does not give are missing.
        missing, header
            Which labels are missing, and whether a file has a header; see `bigcons.select`.
        out, overwrite, memory
            Where to store the ensemble, and the memory to use for it. By default it is in memory.

        Raises InvalidInputError for two different labels of an object in a partition, and MemoryBudgetError
        if the rows do not fit, at 100 bytes each. A repeated row counts once. Memory: the rows and, without
        ``out``, the matrix of labels, which is mostly empty.

        Examples
        --------
        >>> import bigcons as bc, pyarrow as pa
        >>> votes = {"task": [7, 7, 9], "worker": ["ann", "bob", "bob"], "vote": ["x", "y", "y"]}
        >>> by_worker = {"object": "task", "partition": "worker", "label": "vote"}
        >>> bc.Ensemble.from_long(pa.table(votes), **by_worker).read(0, 2).tolist()
        [[0, 0], [-1, 0]]
        """
        options: dict[str, Any] = {"missing": missing, "header": header}
        columns: dict[str, Any] = {"object": object, "partition": partition, "label": label}
        provenance = {"made_by": "from_long", **sources.provenance_of_files(table, {**columns, **options})}
        if out is not None and _prepared(out, overwrite, provenance, table):
            return Ensemble.open(out)
        budget = beside_processes(memory)
        content = read_long(select(table, columns=[object, partition, label], **options), budget=budget)
        n_objects, n_partitions = content.header.n_objects, len(content.header.names)
        size = n_objects * n_partitions * content.header.dtype.itemsize
        if out is None and size > psutil.virtual_memory().available:
            raise errors.MemoryBudgetError(
                f"the labels of {n_objects:,} objects in {n_partitions:,} partitions take "
                f"{format_size(size)}, more than there is memory; pass out= to store them.",
                needed=size,
            )
        return _reshaped(content, provenance, out, overwrite, budget)

    @classmethod
    def from_memberships(
        cls,
        memberships: Any,
        *,
        names: Sequence[str] | None = None,
        id: Column | None = None,
        out: StorePath | None = None,
        overwrite: bool = False,
        memory: int | str = "1GB",
        chunk_rows: int | None = None,
    ) -> Ensemble:
        """Read soft clusterings, one table of memberships for each partition.

        ``memberships`` is a list of tables ``(n_objects, k_u)`` as ``from_labels`` takes them, with a column
        for each cluster. Rows are nonnegative and sum to
        1 (within 0.01; they are divided by their sum), or are all NaN or all 0 where the object is missing.
        A cluster may be empty. ``id`` names the column of each table that identifies the objects, the same in
        all of them. Raises InvalidInputError for any other row, for tables of different length and
        for a partition without any object.

        The ensemble is in memory, 4 bytes for each object and base cluster. With ``out``, it is stored there:
        the tables are read twice, once to check them and once to write them, in blocks that fit in
        ``memory``, and one that the same call made of files that have not changed since is returned as it is.
        Raises MemoryBudgetError if the chunks of the store do not fit.
        """
        facts = {"names": names, "id": id, "chunk_rows": chunk_rows}
        provenance: dict[str, Any] = {"made_by": "from_memberships"}
        if out is not None:
            provenance = {"made_by": "import_memberships", **sources.provenance_of_files(memberships, facts)}
            provenance["source"] = ", ".join(map(sources.describe, memberships))
            if _prepared(out, overwrite, provenance, memberships):
                return Ensemble.open(out)
        options: dict[str, Any] = {"overwrite": overwrite, "memory": memory, "chunk_rows": chunk_rows}
        soft = SoftSources(memberships, names, id=id)
        if out is None:
            provenance["n_tables"] = len(soft.names)
        return ensemble_of(soft, out, provenance=provenance, **options)

    @classmethod
    def open(cls, path: Any, mode: str = "r") -> Ensemble:
        """Open a stored ensemble for reading (``mode="r"``) or for reading and appending (``"a"``).

        Raises StoreNotFoundError if it does not exist, CorruptStoreError if it is damaged.
        """
        check_choice("mode", mode, ("r", "a"))
        return cls(StoredRows(place_of(path)), mode=mode)

    def __len__(self) -> int:
        """Return the number of objects."""
        return self.n_objects

    @property
    def generator(self) -> Generator | None:
        """What labels new rows by their features; None if no partition was generated from features.

        It has all partitions of the ensemble; partitions that were not generated have no centers.
        """
        generator = self._header.generator
        if isinstance(generator, StoredGenerator):
            generator = generator.load()
        return None if generator is None else generator.of_partitions(self.names)

    @property
    def categories(self) -> Categories:
        """Original value of each label, per partition; None where the values are 0 .. k-1."""
        if self._categories is None:
            self._categories = self.stored.categories()  # type: ignore[union-attr] # in memory they are set
        return list(self._categories)

    def blocks(self, rows: int | None = None) -> list[Block]:
        """Return blocks of at most ``rows`` objects, by default ``chunk_rows``.

        ``rows`` is rounded down to a multiple or a divisor of ``chunk_rows``, so that blocks align with
        chunks.
        """
        rows = self.chunk_rows if rows is None else check_int("rows", rows)
        if rows >= self.chunk_rows:
            return row_blocks(self.n_objects, rows - rows % self.chunk_rows)
        while self.chunk_rows % rows:
            rows -= 1
        return row_blocks(self.n_objects, rows)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the labels of objects ``start`` to ``stop``: ``(stop - start, n_partitions)``, C order.

        Of soft clusterings, the memberships ``(stop - start, n_base_clusters)`` float32.
        In memory, this is a view that must not be modified. Raises CorruptStoreError for damaged chunks.
        """
        check_rows(start, stop, self.n_objects)
        if isinstance(self._labels, np.ndarray):
            return self._labels[start:stop]
        return self._labels.read(start, stop)

    def read_rows(self, indices: Any) -> np.ndarray:
        """Return the labels of the objects ``indices``, in that order: ``(len(indices), n_partitions)``.

        Of soft clusterings, the memberships ``(len(indices), n_base_clusters)``.
        Reads every chunk that contains one of them once.
        """
        indices = np.asarray(indices)
        rows = np.empty((indices.size, self._header.n_columns), self.dtype)
        if indices.size == 0:
            return rows
        are_numbers = indices.ndim == 1 and indices.dtype.kind in "iu"
        if not are_numbers or indices.min() < 0 or indices.max() >= self.n_objects:
            raise errors.InvalidInputError(
                f"an ensemble has no item {indices.tolist()!s:.80}; give names of partitions, a "
                f"slice, a mask, or positions of objects from 0 to {self.n_objects - 1:,}.",
                parameter="key",
            )
        if isinstance(self._labels, np.ndarray):
            return self._labels[indices]
        order = np.argsort(indices, kind="stable")
        ascending = indices[order]
        for chunk in np.unique(ascending // self.chunk_rows):
            start = int(chunk) * self.chunk_rows
            stop = min(start + self.chunk_rows, self.n_objects)
            low, high = np.searchsorted(ascending, [start, stop])
            rows[order[low:high]] = self.read(start, stop)[ascending[low:high] - start]
        return rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all labels ``(n_objects, n_partitions)``, so that ``np.asarray(ensemble)`` is the matrix.

        Of soft clusterings, all memberships ``(n_objects, n_base_clusters)``.
        A stored ensemble is read into memory; use ``read`` and ``blocks`` if it does not fit. In memory, the
        result is a read-only view unless a copy is requested.
        """
        if self.stored is not None and copy is False:
            raise ValueError(f"{self.path} is stored, so its labels are always copied; pass copy=None.")
        labels = self.read(0, self.n_objects).view()
        labels.flags.writeable = self.stored is not None
        return np.array(labels, dtype, copy=copy if self.path is None else None)

    def load(self) -> Ensemble:
        """Return the ensemble with its labels in memory and the same blocks."""
        if self.stored is None:
            return self
        ids = None if self._header.ids is None else self._header.ids.hold()
        header = self._header._replace(ids=ids, generator=self.generator)
        return Ensemble(self.read(0, self.n_objects), header, self.categories)

    def harden(self, out: StorePath | None = None, *, overwrite: bool = False) -> Ensemble:
        """Return the ensemble of the largest membership in each partition, the lowest cluster on a tie.

        Clusters that win no object have no label; ``categories`` has the original numbers of the others. With
        ``out``, the result is written to a store, block by block. An ensemble of labels is returned as it is,
        or saved.
        """
        sources.refuse_inputs(out, self)
        if not self.is_soft:
            return self if out is None else self.save(out, overwrite=overwrite)
        provenance = {"made_by": "harden", "source": self.path or "in memory"}
        memberships = sources.ensemble_source(self, "memberships")
        return ensemble_of(memberships, out, provenance=provenance, overwrite=overwrite)

    def __getitem__(self, key: Any) -> Ensemble:
        """Return some partitions, or some objects, as an ensemble in memory.

        A name or a list of names gives these partitions, as `select`. A slice, a mask ``(n_objects,)`` or an
        array of positions gives these objects; only the chunks that contain one are read, and clusters are
        numbered anew where some have none of them. Partitions that label none of the objects are left out,
        with a SuspiciousLabelsWarning; if none labels any, EmptyPartitionError is raised.
        """
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:  # as scikit-learn splits arrays
            key = key[0]
        names = [key] if isinstance(key, str) else key
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            return self.select(names)
        rows = np.arange(*key.indices(self.n_objects)) if isinstance(key, slice) else np.asarray(key)
        if rows.dtype == bool and rows.shape == (self.n_objects,):
            refuse_other_rows("the mask", names_of_rows(key), "the ensemble", names_of_rows(self))
            rows = np.flatnonzero(rows)
        if not rows.size:
            raise errors.InvalidInputError("no object is selected; select one or more.", parameter="key")
        labels = self.read_rows(rows)
        n_labeled = np.count_nonzero(observed(labels, self.offsets), axis=0)
        empty, labeled = np.flatnonzero(n_labeled == 0), np.flatnonzero(n_labeled)
        if not labeled.size:
            raise errors.EmptyPartitionError(self.names[0])
        header = self._header._replace(
            n_objects=len(rows),
            chunk_rows=min(self.chunk_rows, len(rows)),
            n_labeled=n_labeled,
            provenance={"made_by": "objects", "source": self.path or "in memory", "from": self.provenance},
            ids=None if self.id_column is None else self.id_column.take(rows),
            generator=self.generator,
        )
        part = Ensemble(labels, header, self.categories)
        if empty.size:
            errors.warn_user(
                f"{empty.size} of {self.n_partitions} partitions label none of the {len(rows)} objects, such "
                f"as {self.names[empty[0]]!r}; they are left out.",
                errors.SuspiciousLabelsWarning,
            )
            part = part.select([part.names[u] for u in labeled])
        if self.is_soft:
            return part
        return ensemble_of(_table_of(part), provenance=header.provenance, generator=part.generator)

    __iter__: None = None  # over objects or partitions? use blocks() or names

    def select(
        self, partitions: Sequence[str | int], out: StorePath | None = None, *, overwrite: bool = False
    ) -> Ensemble:
        """Return the ensemble of some partitions, in that order: names, patterns or positions, see `select`.

        All objects and clusters stay, even objects that none of these partitions labels. The result is in
        memory or, with ``out``, in a store, written block by block.
        """
        sources.refuse_inputs(out, self)
        table = sources.ensemble_source(self, "the ensemble")
        positions = [u for partition in listed(partitions) for u in positions_of(table, partition)]
        if not positions or len(set(positions)) < len(positions):
            raise errors.InvalidInputError(
                f"there is no choice {listed(partitions)!r:.80}; give one or more partitions, each once.",
                parameter="partitions",
            )
        header = self._header._replace(
            names=[self.names[u] for u in positions],
            n_clusters=self.n_clusters[positions],
            n_labeled=self.n_labeled[positions],
            provenance={"made_by": "select", "source": self.path or "in memory", "from": self.provenance},
        )
        columns: Any = positions
        if self.is_soft:
            columns = np.concatenate([np.arange(self.offsets[u], self.offsets[u + 1]) for u in positions])
        categories = [self.categories[u] for u in positions]
        blocks = (self.read(b.start, b.stop)[:, columns] for b in self.blocks())
        return ensemble_of_content(Content(header, categories, blocks), out, overwrite=overwrite)

    def to_pandas(self) -> Any:
        """Return the labels as a pandas data frame of categorical columns of the original values.

        Missing labels are NaN, and ids the index. Reads all labels; the frame takes as much memory as they
        do. Raises SoftEnsembleError for soft clusterings.
        """
        if self.is_soft:
            raise errors.SoftEnsembleError()
        import pandas as pd  # type: ignore[import-untyped]

        rows = self.read(0, self.n_objects)
        index, ids = None, self.id_column
        if ids is not None:
            name = None if ids.facts.name == INDEX else ids.facts.name
            index = pd.Index(ids.hold().values.to_pandas(), name=name)
        columns = {}
        for u, (name, categories) in enumerate(zip(self.names, self.categories, strict=True)):
            values = pd.Index(np.arange(self.n_clusters[u]) if categories is None else categories)
            columns[name] = pd.Categorical.from_codes(rows[:, u], categories=values)
        return pd.DataFrame(columns, index)

    def save(self, path: StorePath, *, chunk_rows: int | None = None, overwrite: bool = False) -> Ensemble:
        """Store the ensemble at ``path`` and return the stored ensemble.

        Raises StoreExistsError if ``path`` exists; with ``overwrite``, an existing store is replaced
        atomically once the new one is complete.
        """
        rows = self.chunk_rows if chunk_rows is None else check_int("chunk_rows", chunk_rows)
        blocks = (self.read(block.start, block.stop) for block in self.blocks())
        header = self._header._replace(chunk_rows=rows)
        ensemble_store.write_store(path, Content(header, self.categories, blocks), overwrite)
        return Ensemble.open(path)

    def append_objects(self, labels: Any, *, memory: int | str = "1GB", **selection: Any) -> Ensemble:
        """Append objects, with columns in the order of the partitions or with their names; return ``self``.

        New label values extend the categories. If the objects have ids, the new objects need new ids, in the
        column ``id``, by default the column of the same name; otherwise InvalidIdsError is raised. An index
        that continues the row numbers, as in the rest of a data frame, is no id. ``selection`` is
        what `bigcons.select` takes, such as ``id=``, ``drop=`` or ``missing=``. Soft clusterings take a list
        of memberships, one table for each partition, with the same clusters, and ``id=`` alone. A stored
        ensemble must be open with mode "a" and keeps its rows per chunk; other instances that have it open
        must open it again. It is read and written in blocks within ``memory``, which also holds the ids;
        MemoryBudgetError is raised if that is too little.
        """
        source: sources.Source | SoftSources
        if self.is_soft:
            source = SoftSources(labels, self.names, **selection)
        else:
            source = _table_of(select(labels, **selection), are_objects=True, usual_id=self.id_name)
        return self._append(partial(building.with_objects, source), memory)

    def append_partitions(
        self, labels: Any, names: Sequence[str] | None = None, *, memory: int | str = "1GB", **selection: Any
    ) -> Ensemble:
        """Append partitions of the same objects; return ``self``.

        ``labels`` is ``(n_objects, n_new)``, or ``(n_objects,)`` for one partition; for soft clusterings a
        list of memberships, one table for each new partition. If a column has the ids of the objects
        (``id``, by default the one of the same name), rows are joined by them, in any order, and objects
        without a row are missing. InvalidIdsError is raised for an unknown id; an ensemble without ids takes
        the ids of the table. Without ids, rows are in the order of the objects. ``selection`` is what
        `bigcons.select` takes; for soft clusterings, ``id=`` alone. A stored ensemble must be open with mode
        "a". ``memory`` is as for `append_objects`; labels that are joined by ids are held in memory.
        """
        source: sources.Source | SoftSources
        if self.is_soft:
            source = SoftSources(labels, names, first=self.n_partitions, **selection)
        else:
            table = select(sources.as_table(labels), **selection)
            source = _table_of(table, are_objects=True, usual_id=self.id_name)
            if source.ids is None and "drop" not in selection:
                refuse_other_rows("labels", names_of_rows(labels), "the ensemble", names_of_rows(self))
        return self._append(partial(building.with_partitions, source, names), memory)

    def _append(self, grow: Callable[..., Content], memory: int | str) -> Ensemble:
        """Take the grown ensemble; a store is locked, then reopened."""
        if isinstance(self._labels, np.ndarray):
            labels, header, categories = building.hold(grow(self._header, self.categories, self.read, None))
            self._take(labels, header._replace(chunk_rows=building.default_rows(header)), categories)
            return self
        if self._mode != "a":
            raise errors.InvalidInputError(f"{self.path} is open for reading; open it by mode='a' to append.")
        place = self._labels.place
        with commit.new_store(place, overwrite=True, kind=KIND) as folder:
            self._labels.check_unchanged()
            content = grow(self._header, self.categories, self.read, budget := beside_processes(memory))
            building.check_chunk_rows(content.header, budget)
            ensemble_store.write_ensemble(folder, content, is_parquet=self._labels.is_parquet)
        stored = StoredRows(place)
        self._take(stored, stored.header, None)
        return self

    def verify(self) -> dict[str, Any]:
        """Read every label and compare it with the head.

        Returns ``{"ok", "path", "n_objects", "n_chunks"}``; raises CorruptStoreError at the first difference.
        An ensemble in memory has nothing to verify.
        """
        n_chunks = 0 if self.stored is None else self.stored.verify()
        return {"ok": True, "path": self.path, "n_objects": self.n_objects, "n_chunks": n_chunks}

    def digest(self) -> str:
        """Return a text that identifies the labels and their chunks, the same in memory and stored.

        A stored ensemble takes it from its head; in memory, all labels are read.
        """
        header = self._header
        if self.stored is not None:
            digest = self.stored.body["digest"]
        else:
            digest = digest_text(sum(header.digest(b, self.read(b.start, b.stop)) for b in self.blocks()))
        soft = f" of {self.n_clusters.tolist()} clusters" if self.is_soft else ""
        return f"{self.n_objects} x {self.n_partitions}{soft}, chunks of {self.chunk_rows}, crc {digest}"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.stored is not None:
            return Ensemble, (self.stored, None, None, self._mode)
        return Ensemble, (self._labels, self._header, self._categories)

    def __repr__(self) -> str:
        low, high = int(self.n_clusters.min()), int(self.n_clusters.max())
        where = repr(self.path) if self.path else "in memory"
        kind = ("soft " if self.is_soft else "") + ("partition" if self.n_partitions == 1 else "partitions")
        sizes = f"{low}-{high} clusters" if low < high else f"{low} cluster{'' if low == 1 else 's'}"
        return (
            f"Ensemble({self.n_objects:,} objects x {self.n_partitions:,} {kind} of {sizes}, "
            f"{self.missing_share:.1%} missing, {format_size(self.n_objects * self.row_bytes)} {where})"
        )


def as_ensemble(
    x: Any, values: Sequence[np.ndarray] | None = None, *, soft: bool = False, with_ids: bool = True
) -> Ensemble:
    """Return ``x`` if it is an Ensemble, open it if it is the path of one, or read its labels into memory.

    Raises SoftEnsembleError for soft clusterings, unless ``soft``. With the ``values`` of each partition,
    these keep their labels and other values come after them; a partition may then have no labels, and names
    of rows are read ``with_ids`` only.
    """
    if isinstance(x, (str, os.PathLike)) and commit.is_store(x):
        x = Ensemble.open(x)
    if isinstance(x, Ensemble):
        if x.is_soft and not soft:
            raise errors.SoftEnsembleError()
        return x
    if hasattr(type(x), "fit") or hasattr(type(x), "read_labels"):
        words = "keeps no partitions; pass the ensemble that it was made of."
        raise errors.InvalidInputError(f"{type(x).__name__} {words}")
    if values is None:
        return Ensemble.from_labels(x)
    table = _table_of(x, are_objects=True, with_ids=with_ids)
    if table.n_columns != len(values):
        raise errors.InvalidInputError(
            f"the new labels have n_partitions={table.n_columns} but {len(values)} were fitted; "
            "give the same partitions in the same order."
        )
    provenance = {"made_by": "from_labels", "source": sources.describe(x)}
    return ensemble_of(table, provenance=provenance, values=values)


def open_store(path: StorePath) -> Any:
    """Open the store at ``path`` with the class for its kind."""
    from bigcons.store.consensus import Consensus
    from bigcons.store.pairs import PairTable

    kinds: dict[str, Any] = {"ensemble": Ensemble, "pairs": PairTable, "consensus": Consensus}
    return kinds.get(commit.read_head(path).kind, Ensemble).open(path)  # which refuses other kinds


def as_soft_ensemble(x: Any) -> Ensemble:
    """Return soft clusterings as an ensemble, as `as_ensemble`; a partition may have no memberships."""
    if not isinstance(x, Ensemble) and not (isinstance(x, (str, os.PathLike)) and commit.is_store(x)):
        soft = SoftSources(x)
        provenance = {"made_by": "from_memberships", "n_tables": len(soft.names)}
        return ensemble_of(soft, provenance=provenance, may_be_empty=True)
    ensemble = as_ensemble(x, soft=True)
    if not ensemble.is_soft:
        raise errors.InvalidInputError(
            "the ensemble has labels but memberships were fitted; pass Ensemble.from_memberships(...)."
        )
    return ensemble


def import_labels(
    source: Any,
    out: StorePath,
    *,
    id: Column | None = None,
    columns: Columns | None = None,
    drop: Columns | None = None,
    missing: Any = None,
    header: bool | None = None,
    overwrite: bool = False,
    memory: int | str = "1GB",
    chunk_rows: int | None = None,
) -> Ensemble:
    """Store labels as an ensemble at ``out``, block by block; ``source`` as for `Ensemble.from_labels`.

    ``id`` names the column that identifies the objects, which is stored with them, ``columns`` and ``drop``
    those that are partitions, ``missing`` and ``header`` how they are read: see `bigcons.select`.
    Reads the source twice, once to find the values and once to write them, in blocks that fit in ``memory``,
    and holds ids in memory. An ensemble at ``out`` that the same call made of files that have not changed
    since is returned as it is. Raises MemoryBudgetError if a chunk of the source or the distinct values do
    not fit.
    """
    options = {"missing": missing, "header": header}
    facts = {"id": id, "columns": columns, "drop": drop, "chunk_rows": chunk_rows, **options}
    provenance = {"made_by": "import_labels", **sources.provenance_of_files(source, facts)}
    if _prepared(out, overwrite, provenance, source):
        return Ensemble.open(out)
    table = _table_of(select(source, id=id, columns=columns, drop=drop, **options))
    return ensemble_of(
        table, out, provenance=provenance, overwrite=overwrite, memory=memory, chunk_rows=chunk_rows
    )


def _prepared(out: StorePath, overwrite: bool, provenance: dict[str, Any], source: Any) -> bool:
    """Return whether the import of this provenance is finished; refuse what else is at ``out``."""
    sources.refuse_inputs(out, source)
    return commit.is_finished_import(out, KIND, provenance, overwrite)


def _reshaped(
    content: Content, provenance: dict[str, Any], out: StorePath | None, overwrite: bool, budget: DataBudget
) -> Ensemble:
    """Hold or store labels that were brought into the form of a matrix."""
    header = content.header._replace(provenance=provenance)
    building.check_chunk_rows(header, None if out is None else budget)
    return ensemble_of_content(content._replace(header=header), out, overwrite=overwrite)


def ensemble_of(
    source: sources.Source | SoftSources,
    out: StorePath | None = None,
    *,
    provenance: dict[str, Any],
    overwrite: bool = False,
    memory: int | float | str = "1GB",
    **options: Any,
) -> Ensemble:
    """Read labels, or memberships, into memory or, with ``out``, into a store within ``memory``.

    The source is read twice and must yield the same both times. ``options`` as for `building.content_of`.
    """
    if out is not None:
        commit.refuse_existing(out, overwrite, KIND)
        options["budget"] = beside_processes(memory)
    return ensemble_of_content(building.content_of(source, provenance, **options), out, overwrite=overwrite)


def ensemble_of_content(
    content: Content, out: StorePath | None = None, *, overwrite: bool = False
) -> Ensemble:
    """Read consecutive blocks, which a header describes, into memory or a store, in one pass."""
    if out is None:
        return Ensemble(*building.hold(content))
    ensemble_store.write_store(out, content, overwrite)
    return Ensemble.open(out)


def _table_of(x: Any, **options: Any) -> sources.Source:
    return sources.open_source(_with_open_store(x), "labels", **options)


def _with_open_store(x: Any) -> Any:
    """Return ``x`` or, if it is the path of a store or a choice from one, the same of the open ensemble."""
    if isinstance(x, Selection):
        return replace(x, source=_with_open_store(x.source))
    is_ensemble = isinstance(x, Ensemble) or (isinstance(x, (str, os.PathLike)) and commit.is_store(x))
    return as_ensemble(x) if is_ensemble else x
