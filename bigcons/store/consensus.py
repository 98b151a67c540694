"""Consensus: a stored result, with labels, memberships, history, parameters and provenance.

A Zarr group of arrays with the same row chunks: labels, memberships if the method has them, and if known how
far the labels can be trusted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from bigcons.disk.arrays import ChunkSums as ChunkSums
from bigcons.disk.arrays import StoredArray, seals_of
from bigcons.disk.commit import new_store, write_head
from bigcons.disk.files import Place, StorePath, pack
from bigcons.disk.places import place_of
from bigcons.disk.schema import CLUSTER_COLUMNS, PARTITION_COLUMNS, TRUST, arrays_of
from bigcons.errors import InvalidIdsError, InvalidInputError
from bigcons.io.columns import Ids
from bigcons.io.labels import LabelColumn, names_of_rows, refuse_other_rows
from bigcons.memory import BLOCK_ROWS, Block, row_blocks
from bigcons.store import store as stores
from bigcons.store.clusters import ClusterTree, Trust, arrow_table
from bigcons.validation import check_number, check_rows

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "consensus"
PLACING, TREE = "placing.npz", "tree.npz"
"""The files of what places new objects, and of the tree of clusters."""


class Consensus(stores.Objects):
    """A stored consensus; arrays are read on demand.

    Attributes: ``path``, ``n_objects``, ``n_clusters`` (including empty ones), ``has_memberships`` (methods
    without soft output store labels only), ``has_trust`` (whether it says which labels to trust), ``id_name``
    (of the column that identifies the objects, None without one), ``id_column`` (what reads it),
    ``chunk_rows``, ``history`` (lists by name, one value per step), ``parameters`` (of the method),
    ``results`` (objective, gap, passes, ...) and ``provenance`` (its input and how it was computed).

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, _ = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> model = bc.MCLA(6, random_state=0).fit(ensemble, out="consensus.zarr")
    >>> consensus = bc.Consensus.open("consensus.zarr")
    >>> consensus.n_objects, consensus.n_clusters
    (500, 6)
    >>> consensus.read_memberships(0, 2).shape
    (2, 6)
    >>> consensus.export("consensus.csv")
    """

    kind: str = KIND
    summary: tuple[str, ...] = (
        *("path", "n_objects", "n_clusters", "has_memberships", "has_trust", "chunk_rows"),
        *("results", "parameters", "provenance"),
    )

    def __init__(self, store: stores.Store) -> None:
        body, arrays = store.body, store.arrays
        self.path: str = str(store.place)
        self.n_objects: int = body["n_objects"]
        self.n_clusters: int = body["n_clusters"]
        self.has_memberships: bool = body["has_memberships"]
        self.chunk_rows: int = body["chunk_rows"]
        self.history: dict[str, list[Any]] = body["history"]
        self.parameters: dict[str, Any] = body["parameters"]
        self.results: dict[str, Any] = body["results"]
        self.provenance: dict[str, Any] = body["provenance"]
        self.has_trust: bool = body["trust"] is not None
        self.has_placing: bool = PLACING in body["files"]
        self.id_column: stores.StoredIds | None = store.ids
        self.label_rows: StoredArray = arrays["labels"]
        """The labels, read when sliced."""
        self._store = store
        if self.has_trust:
            with stores.consistent(store.place):
                trust = body["trust"]
                check_number("temperature", trust["temperature"], at_least=0, at_most=1)
                clusters = arrow_table(CLUSTER_COLUMNS, trust["clusters"])
                partitions = arrow_table(PARTITION_COLUMNS, trust["partitions"])
                if not set(trust["clusters"]["cluster"]) <= set(range(self.n_clusters)):
                    raise ValueError("the numbers of clusters")
                sure, second, second_sure = (cast("Any", arrays[name]) for name in TRUST)
                self._trust = Trust(sure, second, second_sure, clusters, partitions, trust["temperature"])

    @classmethod
    def open(cls, path: StorePath) -> Consensus:
        """Open the consensus at ``path`` for reading.

        Raises StoreNotFoundError if it does not exist, CorruptStoreError if it is damaged.
        """
        return cls(stores.Store(place_of(path), KIND))

    @classmethod
    @contextmanager
    def create(
        cls,
        path: StorePath,
        *,
        n_objects: int,
        n_clusters: int,
        chunk_rows: int = BLOCK_ROWS,
        overwrite: bool = False,
        memberships: bool = True,
        ids: Ids | None = None,
    ) -> Iterator[ConsensusWriter]:
        """Yield a writer of blocks of rows; the store appears at ``path`` when the ``with`` block succeeds.

        Without ``memberships``, only labels are stored; ``ids`` of the objects are stored at once. If the
        block fails or rows are missing, no partial output remains, and an existing store at ``path`` is kept.
        """
        with new_store(path, overwrite, KIND) as folder:
            facts = {"n_objects": n_objects, "n_clusters": n_clusters, "has_memberships": memberships}
            chunk_rows = min(chunk_rows, n_objects)
            writer, id_sums = ConsensusWriter(folder, {**facts, "chunk_rows": chunk_rows}), ChunkSums()
            if ids is not None:
                writer.body["ids"], id_sums = stores.write_ids(folder, ids, n_objects, chunk_rows)
            yield writer
            n_chunks = -(-n_objects // chunk_rows) * len(writer.arrays)
            if n_missing := n_chunks - len(writer.chunk_sums):
                raise InvalidInputError(f"{n_missing} of {n_chunks} chunks were not written; write all rows.")
            write_head(folder, KIND, writer.body | seals_of(writer.chunk_sums, id_sums))

    @property
    def labels(self) -> np.ndarray:
        """All labels, ``(n_objects,)`` int32, -1 for objects that no partition labels; reads the array."""
        return self.read_labels(0, self.n_objects)

    @property
    def memberships(self) -> np.ndarray:
        """All memberships, ``(n_objects, n_clusters)`` float32, rows sum to 1; reads the array."""
        return self.read_memberships(0, self.n_objects)

    def cluster_sizes(self) -> np.ndarray:
        """Return the number of objects of each cluster, ``(n_clusters,)`` int64; reads the labels.

        In results of `fit` the numbers descend, since clusters are numbered by size.
        """
        sizes = np.zeros(self.n_clusters, np.int64)
        for block in self.blocks():
            labels = self.read_labels(block.start, block.stop)
            sizes += np.bincount(labels[labels >= 0], minlength=self.n_clusters)
        return sizes

    def to_arrow(
        self,
        *,
        memberships: bool = False,
        confidence: bool | None = None,
        min_confidence: float | None = None,
    ) -> Any:
        """Return a pyarrow table with a row for each object: its id, if it has one, and its ``label``.

        Columns and parameters are those of `export`, except that ``confidence`` is included by default if
        `trust` is stored.
        """
        import pyarrow as pa

        options = (memberships, self.has_trust if confidence is None else confidence, min_confidence)
        return pa.concat_tables(pa.table(self._exported(block, *options)) for block in self.blocks())

    def to_pandas(self, **columns: Any) -> Any:
        """Return a pandas dataframe, see `to_arrow`; ids that were an index are its index again."""
        return stores.data_frame(self.to_arrow(**columns), self.id_column)

    @property
    def trust(self) -> Trust:
        """Which labels to trust, see `bigcons.metrics.trust`; reads its arrays.

        Raises InvalidInputError if the store has none.
        """
        return self.trust_rows.read()

    @property
    def trust_rows(self) -> Trust:
        """The same as `trust`, with arrays that are read when sliced."""
        if not self.has_trust:
            raise InvalidInputError(
                f"{self.path} does not say which labels to trust; "
                "compute it with bigcons.metrics.trust, or write a report with its ensemble."
            )
        return self._trust

    @property
    def membership_rows(self) -> StoredArray:
        """The memberships, read when sliced; raises InvalidInputError if the consensus has labels only."""
        if not self.has_memberships:
            raise InvalidInputError(
                f"{self.path} has labels only, because its method has no memberships; "
                "read its labels, or use a method with soft output."
            )
        return self._store.arrays["memberships"]

    def read_labels(self, start: int, stop: int) -> np.ndarray:
        """Return the labels of a range of rows, ``(rows,)`` int32."""
        check_rows(start, stop, self.n_objects)
        return self.label_rows.read(start, stop)

    def read_memberships(self, start: int, stop: int) -> np.ndarray:
        """Return the memberships of a range of rows, ``(rows, n_clusters)`` float32.

        Raises InvalidInputError if the consensus has labels only.
        """
        check_rows(start, stop, self.n_objects)
        return self.membership_rows.read(start, stop)

    def export(
        self,
        path: StorePath | IO[bytes],
        *,
        memberships: bool = False,
        confidence: bool = False,
        min_confidence: float | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the labels to a .parquet or .csv file on a disk, in the order of the objects.

        If the objects have ids, they are the first column, under their own name and with their own type, so
        that the file can be joined with other tables; a name that is taken becomes ``id``. The column
        ``label`` is int32, -1 for objects that no partition labeled; ``memberships`` adds float32 columns
        ``cluster_0``, ``cluster_1``, .... ``confidence`` adds ``confidence``, ``second_labels`` and
        ``second_confidence``, see `trust`; with ``min_confidence``, less certain labels become -1. An open
        binary file gets comma-separated values. A few blocks are in memory at a time, and no partial file is
        left behind. A file of labels can be imported as one partition. Text is written as it is: spreadsheets
        read ids that begin with =, +, - or @ as formulas.

        Raises InvalidInputError for another suffix and for memberships that do not exist, StoreExistsError if
        ``path`` exists; with ``overwrite`` a file there is replaced.
        """
        options = (memberships, confidence, min_confidence)
        blocks = (self._exported(block, *options) for block in self.blocks())
        stores.export_blocks(path, self.n_objects, blocks, overwrite=overwrite)

    def _exported(
        self, block: Block, memberships: bool, confidence: bool, min_confidence: float | None
    ) -> dict[str, Any]:
        """Return the columns of an export by name; raises InvalidInputError for what is not there."""
        rows = (block.start, block.stop)
        columns: dict[str, Any] = {"label": self.read_labels(*rows)}
        if confidence or min_confidence is not None:
            trust, part = self.trust_rows, slice(*rows)
            threshold = check_number("min_confidence", min_confidence or 0, at_least=0, at_most=1)
            columns["label"] = np.where(trust.confidence[part] < threshold, np.int32(-1), columns["label"])
            columns |= {name: getattr(trust, name)[part] for name in TRUST if confidence}
        if memberships:
            soft = self.read_memberships(*rows)
            columns |= {f"cluster_{k}": np.ascontiguousarray(column) for k, column in enumerate(soft.T)}
        if self.id_column is None:
            return columns
        return stores.ids_first(columns, self.id_column, self.id_column.read(*rows))

    def read_placing(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the facts and arrays by which the method places new objects in the clusters.

        Raises InvalidInputError if the store has none, CorruptStoreError if it is damaged.
        """
        if not self.has_placing:
            method = self.parameters.get("method", "its method")
            raise InvalidInputError(
                f"{self.path} does not have what places new objects, because {method} did not store it; call "
                "predict_features of the fitted model, or solve by another method, such as ConsensusTree."
            )
        return self._store.read_parts(PLACING, lambda facts, arrays: (facts, arrays))

    @property
    def tree(self) -> ClusterTree | None:
        """The tree in which the number of clusters was chosen, as `bigcons.consensus_tree` returns it.

        None if the number was not chosen. The tree cannot place objects. Reads a file, and raises
        CorruptStoreError if that is damaged.
        """
        return (
            self._store.read_parts(TREE, ClusterTree.of_parts) if TREE in self._store.body["files"] else None
        )

    def dask_memberships(self) -> Any:
        """Return the memberships as a dask array ``(n_objects, n_clusters)`` float32, one chunk per block."""
        import dask.array

        return dask.array.from_array(self.membership_rows, chunks=(self.chunk_rows, -1))

    def blocks(self, rows: int | None = None) -> list[Block]:
        """Return blocks of ``rows`` objects, by default one chunk each."""
        return row_blocks(self.n_objects, rows or self.chunk_rows)

    def verify(self) -> dict[str, Any]:
        """Read every row and compare it with what was written.

        Returns ``{"kind", "path", "n_objects", "n_blocks", "n_unlabeled"}``; raises CorruptStoreError for a
        block that differs from what was written, or whose memberships are not on the simplex.
        """
        n_unlabeled = 0
        for name, start, rows in self._store.checked_chunks():
            where = f"has rows {start} to {start + len(rows)} with"
            if name == "labels":
                n_unlabeled += int(np.count_nonzero(rows < 0))
                if (rows >= self.n_clusters).any():
                    raise self._store.broken(f"{where} labels above {self.n_clusters - 1}")
            elif name == "memberships":
                labeled = rows[self.read_labels(start, start + len(rows)) >= 0]
                gaps = np.abs(labeled.sum(axis=1, dtype=np.float64) - 1)
                if (labeled < 0).any() or not (gaps < 1e-3).all():
                    raise self._store.broken(f"{where} memberships off the simplex")
        if self.has_placing:
            self.read_placing()
        _ = self.tree
        counts = {"n_objects": self.n_objects, "n_blocks": len(self.blocks()), "n_unlabeled": n_unlabeled}
        return {"kind": KIND, "path": self.path, **counts}

    def __reduce__(self) -> tuple[Any, ...]:
        return Consensus, (self._store,)

    def __repr__(self) -> str:
        method = self.parameters.get("method", "consensus")
        return f"<Consensus by {method}: {self.n_objects:,} objects, {self.n_clusters} clusters, {self.path}>"


# Writing


def write_rows(arrays: Mapping[str, StoredArray], start: int, columns: Any) -> ChunkSums:
    """Write whole chunks of rows of some arrays, by name; return what `ConsensusWriter.note` records.

    None stands for an array that is not there. Blocks in different chunks may be written concurrently, by any
    thread and by workers that can reach them, and a block may be written twice.
    """
    chunk_sums: ChunkSums = {}
    for name in columns if isinstance(columns, Mapping) else columns.dtype.names:
        if columns[name] is not None:
            chunk_sums |= arrays[name].write(start, columns[name])
    return chunk_sums


class ConsensusWriter:
    """Writes a consensus block by block, in any order; made by `Consensus.create`."""

    def __init__(self, folder: Place, facts: dict[str, Any]) -> None:
        self.body: dict[str, Any] = {**facts, "trust": None, "ids": None, "files": {}}
        """The body of the head."""
        self.body |= {name: {} for name in ("history", "parameters", "results", "provenance")}
        self.arrays: dict[str, StoredArray] = {}
        """What `write_rows` writes to."""
        self.chunk_sums: ChunkSums = {}
        self._folder = folder
        self.create_arrays()

    def create_arrays(self, *, trust: bool = False) -> None:
        """Create the arrays that are not there yet, with ``trust`` those of `TRUST`."""
        for name, array in arrays_of(KIND, {**self.body, "trust": trust or None}).items():
            if name not in self.arrays:
                self.arrays[name] = StoredArray.create(self._folder / name, array)

    def write(self, start: int, labels: np.ndarray, memberships: np.ndarray | None = None) -> None:
        """Write rows from ``start``: ``labels`` ``(rows,)`` and ``memberships`` ``(rows, n_clusters)``.

        The rows must be whole chunks: start at a multiple of ``chunk_rows``, end at one or at the last row.
        Omit memberships if the consensus has none.
        """
        self.note(write_rows(self.arrays, start, {"labels": labels, "memberships": memberships}))

    def note(self, chunk_sums: ChunkSums) -> None:
        """Record rows that were written, in this process or another."""
        self.chunk_sums |= chunk_sums

    def describe_trust(self, clusters: Any, partitions: Any, temperature: float) -> None:
        """Set the tables that go with the arrays of `TRUST`."""
        tables = {"clusters": clusters.to_pydict(), "partitions": partitions.to_pydict()}
        self.body["trust"] = {"temperature": temperature, **tables}

    def write_parts(self, name: str, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write facts and arrays to the file `PLACING` or `TREE`."""
        self.body["files"] |= stores.write_files(self._folder, {name: pack(facts, arrays)})

    def describe(
        self, *, history: Any = None, parameters: Any = None, results: Any = None, provenance: Any = None
    ) -> None:
        """Set mappings that describe the solve in the head; values that JSON lacks become None, or text."""
        lists = None if history is None else {name: list(values) for name, values in history.items()}
        parts = {"history": lists, "parameters": parameters, "results": results, "provenance": provenance}
        text = json.dumps({name: part for name, part in parts.items() if part is not None}, default=_plain)
        self.body |= json.loads(text, parse_constant=lambda _: None)


def fit_results(model: Any) -> dict[str, Any]:
    """Return the results of a fitted clusterer that fit in a line, by name: objective, gap, passes, ..."""
    names = ["coassociation", "objective", "start_objectives", "gap", *OF_SIZES, STRUCTURE]
    names += ["n_told_apart", "n_passes", "n_steps", "converged"]
    results = {name: getattr(model, f"{name}_", None) for name in names if hasattr(model, f"{name}_")}
    return {name: value for name, value in results.items() if value is not None or name == STRUCTURE}


def cautions(results: Mapping[str, Any], n_clusters: int) -> Iterator[str]:
    """Yield the cautions about the stored results of a fit for so many clusters, one sentence each."""
    if results.get("converged") is False:
        yield "The solve stopped before its tolerance: raise max_iter, and solve again."
    if n_clusters > 1 and results.get(STRUCTURE, True) is None:
        yield (
            "Whether the labels have cluster structure is not known: the sample says too little of so many "
            "clusters or base clusters, and confidence does not count whether clusters are real."
        )
    if results.get(STRUCTURE) is False:
        yield (
            "The labels may have no cluster structure: no number of clusters has more evidence than a single "
            "cluster, as in data without clusters and in many whose classes overlap."
        )
    if (number := results.get("n_told_apart", n_clusters)) < n_clusters:
        yield f"Halves of the partitions confirm {number:,} clusters of {n_clusters:,}; more may be real."


OF_SIZES, STRUCTURE = ("n_clusters", "n_tiny_clusters"), "has_structure"


def clusters_in_words(n_clusters: Any, n_tiny_clusters: Any, limit: int) -> str:
    """Return how many clusters were found, of ``limit``, and how many are tiny, as far as that is known."""
    if not isinstance(n_clusters, int):
        return f"{limit:,}"
    words = f"{n_clusters:,}" if n_clusters == limit else f"{n_clusters:,} non-empty of {limit:,}"
    if isinstance(n_tiny_clusters, int) and n_tiny_clusters:
        words += f", {n_tiny_clusters:,} of them tiny (less than a tenth of the mean size)"
    return words


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {value.dtype}"
    if isinstance(value, Mapping):
        return dict(value)
    return value.item() if isinstance(value, np.generic) else repr(value)


# By the cluster numbers of an earlier one


class Matching(NamedTuple):
    """A consensus by the cluster numbers of an earlier one; see `match`."""

    labels: np.ndarray
    """(n_objects,) int32: the new labels by these numbers, -1 without one."""
    numbers: np.ndarray
    """(n_clusters,) int64: the number of each new cluster, -1 of those without objects."""
    n_moved: int
    """Objects with a label in both whose number has changed."""
    table: pa.Table
    """A row for each number: what became of it (event), split from or merged into which (other), its objects
    now (size) and before (size_before), and the objects in both (shared)."""

    def __repr__(self) -> str:
        events = self.table["event"].to_pylist()
        counts = ", ".join(f"{events.count(event)} {event}" for event in EVENTS if event in events)
        return f"Matching({counts}; {self.n_moved:,} of {self.labels.size:,} objects moved)"


EVENTS = ("kept", "split", "new", "merged", "gone")


def match(new: Any, old: Any) -> Matching:
    """Return a new consensus with the cluster numbers of an earlier one, and what became of its clusters.

    Use it after objects or partitions were appended to an ensemble. A new cluster keeps the number of an old
    cluster if each has most of the other: no other new cluster shares more objects with the old one, and no
    other old cluster with the new one. A new cluster without such a partner gets the next free number: it is
    "split" from the old cluster in which most of its objects were, or "new" if none of them was in any. An
    old cluster without a partner is "merged" into the new cluster that has most of its objects, or "gone".

    Parameters
    ----------
    new, old
        Two consensuses: a `Consensus`, its path, a fitted clusterer, or labels ``(n_objects,)``, whole
        numbers; negative ones are missing. If both have ids, objects are joined by them; otherwise the
        objects of ``old`` are the first ones of ``new``, as after `Ensemble.append_objects`.

    Returns
    -------
    Matching
        ``labels`` (n_objects,) int32, the new labels by these numbers; ``numbers`` (n_clusters,), the number
        of each new cluster; ``n_moved``, how many objects with a label in both have changed their number; and
        ``table``, a row for each number: the event, the other cluster of a split or merge, and its objects
        now (size), before (size_before) and in both (shared).

    Raises
    ------
    InvalidInputError
        If labels are text, or there are more old than new objects, without ids.
    InvalidIdsError
        If no id is in both.

    Examples
    --------
    >>> import bigcons as bc
    >>> bc.match([0, 0, 0, 0, 1, 1, 2], [7, 7, 4, 4, 2, 2])
    Matching(2 kept, 1 new, 1 merged; 2 of 7 objects moved)
    >>> bc.match([0, 0, 0, 0, 1, 1, 2], [7, 7, 4, 4, 2, 2]).labels
    array([4, 4, 4, 4, 2, 2, 8], dtype=int32)
    """
    import pyarrow as pa

    new, old = (Consensus.open(x) if isinstance(x, (str, os.PathLike)) else x for x in (new, old))
    columns = [LabelColumn("labels", x) for x in (new, old)]
    of_new, of_old = (column.values for column in columns)
    if object in (of_new.dtype, of_old.dtype):
        raise InvalidInputError("labels of the new or the old consensus are text; give whole numbers.")
    new_codes, old_codes = (column.codes(0, column.n_objects) for column in columns)
    sizes, sizes_before = (np.bincount(codes[codes >= 0]) for codes in (new_codes, old_codes))
    old_codes = np.append(old_codes, -1)[_rows_before(new, old, new_codes.size, old_codes.size)]
    in_both = (new_codes >= 0) & (old_codes >= 0)
    overlaps = np.zeros((of_new.size, of_old.size), np.int64)
    np.add.at(overlaps, (new_codes[in_both], old_codes[in_both]), 1)

    rows, number = [], np.empty(of_new.size, np.int64)
    n_others = 0
    for k, counts in enumerate(overlaps):
        row: dict[str, Any] = {"event": "new", "size": sizes[k], "shared": 0}
        partner = counts.argmax()  # the first of equal ones
        if counts[partner] and overlaps[:, partner].argmax() == k:
            number[k] = of_old[partner]
            row |= {"event": "kept", "size_before": sizes_before[partner], "shared": counts[partner]}
        else:
            n_others += 1
            number[k] = of_old[-1] + n_others
            if counts[partner]:
                row |= {"event": "split", "other": of_old[partner]}
        rows.append({"number": number[k], **row})
    for q in np.flatnonzero(~np.isin(of_old, number)):
        row = {"number": of_old[q], "event": "gone", "size": 0, "size_before": sizes_before[q], "shared": 0}
        k = int(overlaps[:, q].argmax())
        if overlaps[k, q]:
            row |= {"event": "merged", "other": number[k]}
        rows.append(row)
    names = ("number", "event", "other", "size", "size_before", "shared")
    schema = pa.schema([(name, pa.string() if name == "event" else pa.int64()) for name in names])
    numbers = np.full(int(of_new[-1]) + 1, -1)
    numbers[of_new] = number
    return Matching(
        np.append(number, -1)[new_codes].astype(np.int32),
        numbers,
        int(np.count_nonzero(number[new_codes[in_both]] != of_old[old_codes[in_both]])),
        pa.Table.from_pylist(sorted(rows, key=lambda row: row["number"]), schema=schema),
    )


def _rows_before(new: Any, old: Any, n_new: int, n_old: int) -> np.ndarray:
    """Return the old row of each new object, (n_new,) int64, -1 of objects that were not there."""
    import pyarrow.compute as pc

    new_names, old_names = names_of_rows(new), names_of_rows(old)
    if not (isinstance(new_names, Ids) and isinstance(old_names, Ids)):
        refuse_other_rows("old", old_names, "new", new_names)
        if n_old > n_new:
            raise InvalidInputError(
                f"the old labels are of {n_old:,} objects but the new ones of {n_new:,}; give ids to both, "
                "or new labels in which those objects come first."
            )
        return np.where(np.arange(n_new) < n_old, np.arange(n_new), -1)
    rows = None
    if new_names.facts.dtype == old_names.facts.dtype:
        rows = pc.index_in(new_names.hold().values, value_set=old_names.hold().values)
    if rows is None or rows.null_count == len(rows):
        raise InvalidIdsError(
            f"no {new_names.facts.name} of the new consensus is in the old one; give the same objects.",
            column=new_names.facts.name,
        )
    return np.asarray(pc.fill_null(rows, -1))
