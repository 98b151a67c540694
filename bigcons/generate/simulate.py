"""Simulated ensembles: drawn from a soft partition, masked at random, noisy copies of a clustering.

A task makes the labels of one segment of 4,096 rows. Every segment has its own random generator, so labels do
not depend on how the data are stored or read, or on the workers.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.errors import EmptyPartitionError, InvalidInputError
from bigcons.execution.engine import Engine
from bigcons.generate.pipeline import open_logged_engine
from bigcons.generate.planning import budget_of, ensemble_within
from bigcons.generate.sampling import subset_size
from bigcons.generate.scratch import find_finished, take_finished
from bigcons.kernels.draws import draw_labels
from bigcons.layout import MISSING
from bigcons.seeding import SEGMENT_ROWS, SeedLike, generator, resolve_seed
from bigcons.storage.commit import is_store
from bigcons.stores.ensemble_store import SUM_TOLERANCE
from bigcons.stores.features import open_features
from bigcons.tables.encode import label_dtype, rechunk
from bigcons.tables.memory import values_of
from bigcons.tables.table import PartedTable
from bigcons.validation import check_int, check_number

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble


def from_memberships(
    memberships: object,
    *,
    n_partitions: int = 100,
    out: str | os.PathLike[str] | None = None,
    random_state: SeedLike = None,
    overwrite: bool = False,
    memory: int | float | str | None = None,
    client: object = None,
) -> Ensemble:
    """Return an ensemble of partitions drawn from a soft partition, every label independently.

    The simulation of Lourenço et al. 2015: the label of object i in each partition is k with
    probability ``memberships[i, k]``.

    Parameters
    ----------
    memberships
        ``(n_objects, n_clusters)``, nonnegative rows that sum to 1 or, for unlabeled objects, are all 0:
        a Consensus or its path, or a source of `bigcons.stores.features.open_features` (an array, or a
        path to .npy, .zarr, .parquet, .csv). Objects that the consensus does not label get -1.
    n_partitions
        Number of partitions to draw.
    out
        Path of the store to write; if None, the ensemble is in memory.
    random_state
        Seed. Every 4,096 rows have their own random generator, so labels do not depend on how memberships
        are stored or read, or on the workers.
    overwrite
        Replace the store at ``out``. Otherwise, repeating a finished call returns its result, and a call
        with other parameters or data raises StoreExistsError.
    memory
        Memory budget such as "2GB", of the processes and what they hold, the labels returned if ``out`` is
        None among it, but not memberships that the caller holds; a call that would need more is refused. None
        allows 4 GB of data.
    client
        Engine: None (the active Dask client if there is one, else threads), "threads", "serial", a Dask
        client or its address, or an Engine. The engine is logged.

    Raises InvalidInputError, naming the row, for memberships off the simplex, and for a consensus with
    labels only; StoreExistsError; MemoryBudgetError. Cost: two passes over the memberships (three with
    ``out``, for a checksum), each with ``n_objects * n_partitions * n_clusters`` operations.

    Examples
    --------
    >>> import bigcons as bc
    >>> memberships = [[1.0, 0.0], [0.5, 0.5]]
    >>> ensemble = bc.generate.from_memberships(memberships, n_partitions=8, random_state=0)
    >>> ensemble.read(0, 1)
    array([[0, 0, 0, 0, 0, 0, 0, 0]], dtype=int8)
    >>> ensemble.shape
    (2, 8)
    """

    check_int("n_partitions", n_partitions)
    seed = resolve_seed(random_state)
    asked = {
        "generator": "from_memberships",
        "n_partitions": n_partitions,
        "seed": None if random_state is None else seed,
    }
    finished = find_finished(out, asked, overwrite=overwrite)
    soft = _open(memberships)
    checksum = None
    if out is not None:
        checksum = 0
        for rows in soft.read():
            checksum = zlib.crc32(np.ascontiguousarray(rows).data, checksum)
    if finished is not None:
        return take_finished(finished, {"memberships_checksum": checksum})
    where = soft.where

    def draw(segment: Segment) -> np.ndarray:
        sums = segment.rows.sum(axis=1, dtype=np.float64)
        fits = (segment.rows >= 0).all(axis=1) & ((np.abs(sums - 1) <= SUM_TOLERANCE) | (sums == 0))
        if not fits.all():
            row = int(fits.argmin())
            raise InvalidInputError(
                f"{where} has row {segment.start + row} with minimum {segment.rows[row].min():g} and "
                f"sum {sums[row]:g}; memberships must be >= 0 and sum to 1 (or all be 0: unlabeled)."
            )
        rng = generator(seed, "generate.from_memberships", segment.index)
        return draw_labels(segment.rows, rng.random((len(segment.rows), n_partitions)))

    with open_logged_engine(client, "from_memberships") as engine:
        source = MappedLabels(
            engine,
            lambda: segments(soft.read()),
            draw,
            soft.n_objects,
            n_partitions,
            row_bytes=24 * soft.n_clusters,
            held_bytes=soft.held_bytes,
        )
        provenance = {
            "generator": "from_memberships",
            "seed": seed,
            "source": soft.where,
            "memberships_checksum": checksum,
        }
        return ensemble_within(
            *(budget_of(memory, engine), "generate.from_memberships", source, out),
            n_objects=soft.n_objects,
            label_bytes=label_dtype([soft.n_clusters]).itemsize,
            overwrite=overwrite,
            provenance=provenance,
        )


def mask_labels(
    ensemble: object,
    share: float,
    *,
    out: str | os.PathLike[str] | None = None,
    random_state: SeedLike = None,
    overwrite: bool = False,
    memory: int | float | str | None = None,
    client: object = None,
) -> Ensemble:
    """Return a copy of an ensemble with a random share of its entries missing.

    The missing-value experiment of Wang et al. 2009. Exactly ``share`` of the ``n_objects * n_partitions``
    entries, up to one, are masked uniformly at random, including some that are already missing.

    Parameters
    ----------
    ensemble
        An Ensemble, its path, or any source of ``Ensemble.from_labels``.
    share
        Share of the entries to mask, ``0 <= share < 1``.
    out, random_state, overwrite, memory, client
        As in `from_memberships`.

    Names of partitions and label values are kept. Raises InvalidInputError if a partition loses all its
    labels, StoreExistsError, MemoryBudgetError. Cost: two passes over the labels.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, _ = bc.datasets.planted_ensemble(1000, 10, missing=0, random_state=0)
    >>> round(bc.generate.mask_labels(ensemble, 0.3, random_state=0).missing_share, 3)
    0.3
    """
    from bigcons.stores.ensemble import as_ensemble

    check_number("share", share, at_least=0)
    if share >= 1:
        raise InvalidInputError(f"share={share!r} masks every label; use 0 <= share < 1.")
    seed = resolve_seed(random_state)
    made_with = {"generator": "mask_labels", "share": share, "seed": seed}
    asked = made_with | {"seed": None if random_state is None else seed}
    finished = find_finished(out, asked, overwrite=overwrite)
    whole = as_ensemble(ensemble)
    if finished is not None:
        return take_finished(finished, {"labels": whole.digest()})

    def mask(segment: Segment) -> np.ndarray:
        labels = segment.rows.copy()
        first, last = (subset_size(row * labels.shape[1], share) for row in (segment.start, segment.stop))
        rng = generator(seed, "generate.delete_labels", segment.index)
        labels.flat[rng.choice(labels.size, size=last - first, replace=False, shuffle=False)] = MISSING
        return labels

    with open_logged_engine(client, "mask_labels") as engine:
        source = MappedLabels(
            engine,
            lambda: segments(whole.read(block.start, block.stop) for block in whole.blocks()),
            mask,
            *whole.shape,
            row_bytes=8 * whole.n_partitions,
            held_bytes=3 * whole.chunk_rows * whole.n_partitions * whole.dtype.itemsize,
            names=whole.names,
            categories=whole.categories,
        )
        provenance = {
            **made_with,
            "source": whole.path or "an ensemble in memory",
            "labels": whole.digest(),
            "of": whole.provenance,
        }
        try:
            return ensemble_within(
                *(budget_of(memory, engine), "generate.mask_labels", source, out),
                n_objects=whole.n_objects,
                label_bytes=whole.dtype.itemsize,
                overwrite=overwrite,
                provenance=provenance,
            )
        except EmptyPartitionError as error:
            raise InvalidInputError(
                f"share={share} masks every label of partition {error.name!r}; use a smaller share "
                "or another random_state, or drop that partition."
            ) from None


def noisy_copies(
    labels: Any,
    *,
    n_partitions: int = 8,
    noise: float,
    n_clusters: int | None = None,
    out: str | os.PathLike[str] | None = None,
    random_state: SeedLike = None,
    overwrite: bool = False,
    memory: int | float | str | None = None,
    client: object = None,
) -> Ensemble:
    """Return an ensemble of copies of one clustering, each with noise and permuted labels.

    The noise experiment of Strehl and Ghosh 2002: in each copy, exactly a share ``noise`` of the labels
    is replaced by labels drawn uniformly from all clusters (possibly the same); then the clusters are
    renumbered at random.

    Parameters
    ----------
    labels
        The clustering ``(n_objects,)``: whole numbers or text; -1 is missing and is kept.
    n_partitions
        Number of copies, r.
    noise
        Share of the labels to replace, from 0 to 1.
    n_clusters
        Number of clusters, k; by default that of ``labels``.
    out, random_state, overwrite, memory, client
        As in `from_memberships`; ``memory`` does not count ``labels``.

    Raises InvalidInputError, StoreExistsError, MemoryBudgetError. Cost: two passes with
    ``n_objects * n_partitions`` draws each.

    Examples
    --------
    >>> import bigcons as bc
    >>> import numpy as np
    >>> labels = np.repeat([0, 1, 2], 100)
    >>> copies = bc.generate.noisy_copies(labels, n_partitions=4, noise=0.3, random_state=0)
    >>> copies.shape
    (300, 4)
    >>> bc.metrics.nmi(labels, copies.read(0, 300)[:, 0]) < 1
    True
    """
    from bigcons.stores.ensemble import Ensemble

    check_int("n_partitions", n_partitions)
    check_number("noise", noise, at_least=0, at_most=1)
    seed = resolve_seed(random_state)
    asked = {
        "generator": "noisy_copies",
        "n_partitions": n_partitions,
        "noise": noise,
        "n_clusters": n_clusters,
        "seed": None if random_state is None else seed,
    }
    finished = find_finished(out, asked, overwrite=overwrite)
    column = np.asarray(labels)
    if column.ndim != 1:
        raise InvalidInputError(f"labels has shape {column.shape}; pass one clustering, shape (n_objects,).")
    clustering = Ensemble.from_labels(column[:, None])
    codes, found = clustering.read(0, clustering.n_objects)[:, 0], clustering.n_base_clusters
    k = found if n_clusters is None else check_int("n_clusters", n_clusters)
    if k < found:
        raise InvalidInputError(f"n_clusters={k} but labels has {found} clusters; use at least that many.")
    codes = codes.astype(label_dtype([k]), copy=False)
    checksum = zlib.crc32(np.ascontiguousarray(codes).data)
    if finished is not None:
        return take_finished(finished, {"n_clusters": k, "labels_checksum": checksum})

    def copy(segment: Segment) -> np.ndarray:
        copies = np.empty((len(segment.rows), n_partitions), segment.rows.dtype)
        n_noisy = subset_size(segment.stop, noise) - subset_size(segment.start, noise)
        for u in range(n_partitions):
            rng = generator(seed, "generate.noisy_copies", u, segment.index)
            noisy = rng.choice(len(segment.rows), size=n_noisy, replace=False, shuffle=False)
            labels = segment.rows.copy()
            labels[noisy] = rng.integers(k, size=n_noisy)
            labels[segment.rows < 0] = MISSING
            renumbering = generator(seed, "generate.noisy_copies.order", u).permutation(k)
            copies[:, u] = np.append(renumbering, MISSING)[labels]
        return copies

    with open_logged_engine(client, "noisy_copies") as engine:
        source = MappedLabels(
            engine, lambda: segments([codes]), copy, len(codes), n_partitions, row_bytes=codes.dtype.itemsize
        )
        provenance = {
            "generator": "noisy_copies",
            "noise": noise,
            "n_clusters": k,
            "seed": seed,
            "labels_checksum": checksum,
        }
        return ensemble_within(
            *(budget_of(memory, engine), "generate.noisy_copies", source, out),
            n_objects=len(codes),
            label_bytes=codes.dtype.itemsize,
            overwrite=overwrite,
            provenance=provenance,
        )


# Labels made segment by segment


@dataclass(frozen=True)
class Segment:
    """A range of rows, from which labels are made."""

    index: int
    rows: np.ndarray

    @property
    def start(self) -> int:
        """The first row."""
        return self.index * SEGMENT_ROWS

    @property
    def stop(self) -> int:
        """The row after the last."""
        return self.start + len(self.rows)


def segments(blocks: Iterable[np.ndarray]) -> Iterator[Segment]:
    """Regroup consecutive blocks of rows into segments."""
    for index, rows in enumerate(rechunk(blocks, SEGMENT_ROWS)):
        yield Segment(index, rows)


class MappedLabels(PartedTable):
    """The labels ``make(segment)``, ``(rows, n_partitions)``, of all segments, computed on every read.

    ``categories`` are the values that the labels of each partition encode, None for the labels themselves.
    """

    where = "labels"

    def __init__(
        self,
        engine: Engine,
        read: Callable[[], Iterable[Segment]],
        make: Callable[[Segment], np.ndarray],
        n_objects: int,
        n_partitions: int,
        *,
        row_bytes: int,
        held_bytes: int = 0,
        names: Sequence[str] | None = None,
        categories: Sequence[np.ndarray | None] | None = None,
    ) -> None:
        self._engine, self._read, self._make = engine, read, make
        self.least_rows: int = min(SEGMENT_ROWS, n_objects)
        self._categories = [None] * n_partitions if categories is None else categories
        self.n_columns = n_partitions
        self.lengths: list[int | None] = [None]
        self.names: list[str] | None = None if names is None else list(names)
        # a label in progress: draws of 8 bytes, comparisons, the label and its copies
        in_work = self.least_rows * (row_bytes + 24 * n_partitions)
        self.fixed_bytes: int = held_bytes + engine.in_flight * in_work
        self.row_bytes: float = 8.0 * n_partitions

    def load(
        self,
        part: int,  # noqa: ARG002 - all segments are one part
        rows: int,  # noqa: ARG002 - segments have their size
        columns: Sequence[int] | None,
    ) -> Iterator[list[np.ndarray]]:
        """Yield the columns of all segments, in order."""
        positions = range(self.n_columns) if columns is None else columns
        with closing(self._engine.map(self._make, self._read())) as made:
            for labels in made:
                codes = np.ascontiguousarray(labels.T)
                yield [values_of(codes[u], self._categories[u]) for u in positions]


class _Memberships(NamedTuple):
    """A soft partition, with rows of zeros for unlabeled objects."""

    where: str
    n_objects: int
    n_clusters: int
    held_bytes: int
    read: Callable[[], Iterable[np.ndarray]]


def _open(memberships: object) -> _Memberships:
    from bigcons.stores.consensus import Consensus

    if isinstance(memberships, (str, os.PathLike)) and is_store(memberships):
        memberships = Consensus.open(memberships)
    if isinstance(memberships, Consensus):
        consensus = memberships
        consensus.read_memberships(0, 0)  # raises if there are only labels

        def read() -> Iterator[np.ndarray]:
            for block in consensus.blocks():
                rows = consensus.read_memberships(block.start, block.stop)
                rows[consensus.read_labels(block.start, block.stop) < 0] = 0
                yield rows

        block_bytes = consensus.chunk_rows * (consensus.n_clusters * 12 + 16)
        return _Memberships(consensus.path, consensus.n_objects, consensus.n_clusters, block_bytes, read)
    features = open_features(memberships)
    held_bytes = features.held_bytes + min(features.chunk_rows, features.n_objects) * features.n_features * 16
    where = "memberships" if features.where == "features" else features.where
    return _Memberships(
        *(where, features.n_objects, features.n_features, held_bytes),
        lambda: (values for _, values in features.iterate()),
    )
