"""The results of a solve, computed block by block in tasks and kept in memory or written to a store.

And where they are stored, which run they are of, and what earlier runs have left there.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bigcons.disk.checkpoint import Snapshots, differences, partial_folder
from bigcons.disk.files import Place
from bigcons.disk.places import DiskPlace, place_of, temporary_folder
from bigcons.errors import ConsensusWarning, CorruptStoreError, StoreLockedError, warn_user
from bigcons.io.sources import IN_MEMORY
from bigcons.memory import Block, RowSet, format_size
from bigcons.progress import progress
from bigcons.run.engine import Engine
from bigcons.store.clusters import TRUST_ROW
from bigcons.store.consensus import OF_SIZES, ChunkSums, Consensus, ConsensusWriter, write_rows
from bigcons.store.ensemble import Ensemble

logger: logging.Logger = logging.getLogger("bigcons")

Use = TypeVar("Use")


class BlockResult(NamedTuple):
    """What a method finds of a block, with clusters by its own numbers."""

    rows: np.ndarray
    """Memberships (rows, n_clusters), or labels (rows,), -1 included."""
    trust: np.ndarray | None = None
    """How far to trust the labels, (rows,) `TRUST_ROW`."""
    report: Any = None
    """Anything else, which `Results` add up."""


class Rows(NamedTuple):
    """The results of a block, with clusters as they are published."""

    labels: np.ndarray
    """(rows,) int32."""
    memberships: np.ndarray | None
    """(rows, n_clusters) float32."""
    trust: np.ndarray | None

    def renumbered(self, order: np.ndarray) -> Rows:
        """Return the rows with cluster ``order[k]`` as number k."""
        labels, memberships, trust = renumbered(self.labels, order), self.memberships, self.trust
        if memberships is not None:  # of equal ones another may be the first
            memberships = np.take(memberships, order, axis=1)
            labels = np.where(labels >= 0, memberships.argmax(axis=1), -1).astype(np.int32)
        if trust is not None:
            trust = trust.copy()
            trust["second_labels"] = renumbered(trust["second_labels"], order)
        return Rows(labels, memberships, trust)


@dataclass
class Results:
    """The results of all blocks, computed by tasks on an engine, with clusters numbered largest first.

    A method may number its clusters as it likes, and leave some without objects. Here they are numbered by
    falling number of objects, from 0 and without gaps; of equal ones, the method's first is first. Clusters
    without objects are the last columns of the memberships. An object is labeled by its largest
    membership; of equal ones by the first, of the larger cluster.

    Where sizes do not fall in the order that is expected, results in memory are put into order there, and so
    are stored labels, by this process. Stored memberships are computed and written once more: a task that put
    rows of the store into order would do so twice if it ran twice, as a task does whose worker was lost.
    """

    ensemble: Ensemble
    unlabeled: RowSet
    """The objects without any label: they get label -1 and uniform memberships."""
    n_clusters: int
    """The maximum number of clusters."""
    soft: bool
    """Whether ``read`` gives memberships or labels, -1 included."""
    read: Callable[[Block], BlockResult | np.ndarray]
    engine: Engine
    order: np.ndarray
    """(n_clusters,) int64: the method's number of each cluster, at first in the order that is expected."""
    has_trust: bool = False
    """Whether ``read`` says how far to trust the labels."""
    add: Callable[[Any, Any], Any] | None = None
    """Adds up the reports of two blocks; None without reports. It may change the first."""
    total: Any = field(init=False, default=None)
    """The sum of the reports, once computed."""

    sizes: np.ndarray = field(init=False)
    """(n_clusters,) int64, once computed: the objects of each cluster, falling."""

    def hold(self) -> Rows:
        """Return the results of all objects."""
        n_objects, K = self.ensemble.n_objects, self.n_clusters
        results = Rows(
            np.empty(n_objects, np.int32),
            np.empty((n_objects, K), np.float32) if self.soft else None,
            np.empty(n_objects, TRUST_ROW) if self.has_trust else None,
        )

        parts = self._map(lambda _, rows: rows)
        while True:
            for block, rows in parts:
                for values, part in zip(results, rows, strict=True):
                    if values is not None:
                        values[block.start : block.stop] = part
                self.sizes += sizes_of(rows.labels, K)
            if (order := self._next_order()) is None:
                return results
            parts = (
                (b, Rows._make(None if v is None else v[b.start : b.stop] for v in results).renumbered(order))
                for b in self.ensemble.blocks()
            )

    def write(self, writer: ConsensusWriter) -> None:
        """Write the rows of a consensus in the tasks."""
        if self.has_trust:
            writer.create_arrays(trust=True)
        arrays, K = writer.arrays, self.n_clusters

        def write(block: Block, rows: Rows) -> tuple[ChunkSums, np.ndarray]:
            columns = {"labels": rows.labels, "memberships": rows.memberships}
            chunk_sums = write_rows(arrays, block.start, columns)
            if rows.trust is not None:
                chunk_sums |= write_rows(arrays, block.start, rows.trust)
            return chunk_sums, sizes_of(rows.labels, K)

        def rewrite(block: Block, order: np.ndarray) -> tuple[Block, tuple[ChunkSums, np.ndarray]]:
            labels = arrays["labels"].read(block.start, block.stop)
            return block, write(block, Rows(renumbered(labels, order), None, None))

        reports = self._map(write)
        while True:
            for _, (chunk_sums, sizes) in reports:
                writer.note(chunk_sums)
                self.sizes += sizes
            if (order := self._next_order()) is None:
                return
            reports = (rewrite(block, order) for block in self.ensemble.blocks())
            if self.soft:
                reports = self._map(write, "results, largest clusters first")

    def codes_of(self, labels: Any) -> tuple[Callable[[int, int], np.ndarray], np.ndarray]:
        """Return a reader of ranges of ``labels`` as codes without gaps, and the label (K,) of each code."""
        values = np.flatnonzero(self.sizes)
        code_of = np.full(self.n_clusters + 1, -1)  # the last entry is that of -1
        code_of[values] = np.arange(values.size)
        return lambda start, stop: code_of[labels[start:stop]], values

    def _next_order(self) -> np.ndarray | None:
        """Return the order in which to number the clusters once more, None if their numbers are final.

        One such order makes the sizes fall unless objects with equal memberships move.
        """
        if not (np.diff(self.sizes) > 0).any():
            return None
        order = by_size(self.sizes)
        self.order, self.sizes = self.order[order], np.zeros_like(self.sizes)
        return order

    def _map(self, use: Callable[[Block, Rows], Use], step: str = "results") -> Iterator[tuple[Block, Use]]:
        """Yield every block, in order, with ``use(block, rows)``, part of its task; add its report."""
        read, order, soft, unlabeled_rows = self.read, self.order, self.soft, self.unlabeled
        self.sizes, self.total = np.zeros(self.n_clusters, np.int64), None

        def task(block: Block) -> tuple[Use, Any]:
            placed, unlabeled = read(block), unlabeled_rows.rows_of(block)
            result = placed if isinstance(placed, BlockResult) else BlockResult(placed)
            trust, memberships = result.trust, None
            if soft:
                memberships = np.take(np.asarray(result.rows, np.float32), order, axis=1)
                labels = memberships.argmax(axis=1).astype(np.int32)
                memberships[unlabeled] = np.float32(1.0 / order.size)
            else:
                labels = renumbered(np.asarray(result.rows, np.int32), order)
            labels[unlabeled] = -1
            if trust is not None:
                trust["second_labels"] = renumbered(trust["second_labels"], order)
            return use(block, Rows(labels, memberships, trust)), result.report

        blocks = self.ensemble.blocks()
        with (
            closing(self.engine.map(task, blocks)) as results,
            progress(step, self.ensemble.n_objects) as listener,
        ):
            for block, (output, report) in zip(blocks, results, strict=True):
                if self.add is not None:
                    self.total = report if self.total is None else self.add(self.total, report)
                yield block, output
                listener.advance(block.n_rows)


# Numbers of clusters


def sizes_of(labels: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return the number of objects of each cluster, (n_clusters,) int64; -1 is in none."""
    return np.bincount(labels[labels >= 0], minlength=n_clusters)


def by_size(sizes: np.ndarray) -> np.ndarray:
    """Return the clusters, largest first, (K,) int64; of equal ones the first is first."""
    return np.argsort(-sizes, kind="stable")


def falling_order(count: Callable[[np.ndarray], np.ndarray], n_clusters: int) -> np.ndarray:
    """Return the order (n_clusters,) int64 of the clusters of memberships, largest first.

    ``count`` gives the sizes of the clusters in an order, in which the first of equal memberships wins.
    """
    order = np.arange(n_clusters)
    while (np.diff(sizes := count(order)) > 0).any():
        order = order[by_size(sizes)]
    return order


def renumbered(clusters: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return clusters, any shape, with ``order[k]`` numbered k; -1 stays."""
    numbers = np.full(order.size + 1, -1, clusters.dtype)  # the last entry is that of -1
    numbers[order] = np.arange(order.size)
    return numbers[clusters]


# Share of their mean size below which clusters are called tiny.
TINY = 0.1


def count_clusters(sizes: np.ndarray) -> dict[str, int]:
    """Return how many clusters of ``sizes`` (K,) have objects, and how many of these are tiny, by name.

    Tiny clusters have less than a tenth of the mean number of objects of these.
    """
    nonempty = sizes[sizes > 0]
    tiny = np.count_nonzero(nonempty < TINY * nonempty.mean()) if nonempty.size else 0
    return dict(zip(OF_SIZES, (nonempty.size, int(tiny)), strict=True))


# Where results are stored


class Output(NamedTuple):
    """Where a result is stored, and what identifies its run."""

    path: str | os.PathLike[str]
    overwrite: bool
    """Whether it replaces an existing store."""
    resume: bool
    """Whether an unfinished run to this path continues; otherwise it is discarded."""
    fingerprint: dict[str, Any]
    """Method, parameters, seed and labels: a run continues only with the same."""
    source: str = IN_MEMORY
    """What the labels are read from, in words."""

    def warn_of_size(self, n_objects: int, n_clusters: int) -> None:
        """Warn of memberships that may not fit on the disk; what is free in a bucket is not known."""
        parents = getattr(place_of(self.path), "path", Path()).parents
        folder, n_bytes = next(filter(Path.is_dir, parents), None), 4 * n_objects * n_clusters
        if folder is not None and n_bytes > shutil.disk_usage(folder).free:
            warn_user(
                f"memberships of {n_objects:,} objects in {n_clusters:,} clusters take {format_size(n_bytes)}"
                f", more than is free in {folder}, unless they compress well, as in clear clusters; choose "
                "another place, or a method that is not soft (bigcons methods).",
                ConsensusWarning,
            )


@contextmanager
def scratch_place(output: Output | None) -> Iterator[Place]:
    """Yield a place for a store that a solve needs until it ends, which all of its workers can reach.

    It is in the folder of the unfinished solve or, without ``output``, in a temporary one.
    """
    if output is None:
        with temporary_folder() as directory:
            yield place_of(directory) / "scratch.zarr"
        return
    folder = partial_folder(output.path)
    for name in folder.names():
        if name.startswith("scratch-"):  # of a killed run
            (folder / name).remove()
    # in a bucket a killed run keeps its lock for a minute
    place = folder / f"scratch-{uuid.uuid4().hex}.zarr"
    try:
        yield place
    finally:
        place.remove()


@contextmanager
def logging_how_to_resume(out: str | os.PathLike[str], overwrite: bool) -> Iterator[None]:
    """Log how to resume if the ``with`` block fails or is interrupted with finished passes on file.

    With ``overwrite``, a repeated call starts anew. The passes of a writer that is still at work are not the
    caller's to resume.
    """
    try:
        yield
    except StoreLockedError:
        raise
    except BaseException:
        folder = partial_folder(out)
        if not overwrite and Snapshots(folder, {}).exists():
            logger.warning("What is finished is kept in %s; repeat the call to resume.", folder)
        raise


def clear_finished(output: Output) -> None:
    """Remove the checkpoints of a run that was killed after its result was committed, on a disk.

    Checkpoints of another run, which is to replace the result, and of a run at work stay.
    """
    folder = partial_folder(output.path)
    if isinstance(folder, DiskPlace) and folder.exists():
        snapshots = Snapshots(folder, output.fingerprint)
        with suppress(CorruptStoreError, StoreLockedError), folder.lock():
            snapshot = snapshots.read()
            if snapshot is None or not differences(snapshot.fingerprint, snapshots.fingerprint):
                folder.remove()


def seed_of_run(out: str | os.PathLike[str], result: Consensus | Ensemble | None) -> int | None:
    """Return the seed of the run with this ``result``, or of the unfinished run for ``out``, if any."""
    if result is not None:
        return int(result.provenance["seed"])
    try:
        snapshot = Snapshots(partial_folder(out), {}).read()
    except CorruptStoreError:
        return None  # resuming raises it
    seed = None if snapshot is None else snapshot.fingerprint.get("seed")
    return seed if isinstance(seed, int) else None  # resuming raises what is wrong
