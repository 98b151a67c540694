"""Ensembles drawn from a soft partition."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.execution.engine import open_engine
from bigcons.generate.mapped import MappedLabels, Segment, read_blocks, segments
from bigcons.kernels.draws import draw_labels
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.storage.commit import is_store, refuse_existing
from bigcons.stores.features import open_features
from bigcons.validation import check_int

if TYPE_CHECKING:
    from bigcons.stores.consensus import Consensus
    from bigcons.stores.ensemble import Ensemble

_SUM_TOLERANCE = 1e-3
"""how far a row may be from the simplex; that of a stored consensus"""


def from_memberships(
    memberships: object,
    *,
    n_partitions: int = 100,
    out: str | os.PathLike[str] | None = None,
    random_state: SeedLike = None,
    overwrite: bool = False,
    memory: int | float | str = "1GB",
    client: object = None,
) -> Ensemble:
    """Return an ensemble of partitions drawn from a soft partition, every label independently.

    The simulation of Lourenço et al. 2015: the label of object i in each partition is k with
    probability ``memberships[i, k]``.

    Parameters
    ----------
    memberships
        ``(n_objects, n_clusters)``, rows >= 0 that sum to 1 or, for an object without any label, are
        all 0: a Consensus or the path of one, or what `bigcons.stores.features.open_features` takes
        (an array, or a path to .npy, .zarr, .parquet, .csv). Objects that the consensus left
        unlabeled get -1.
    n_partitions
        Number of partitions to draw.
    out
        Path of the store to write; without it the ensemble stays in memory.
    random_state
        Seed. Every 4,096 rows have a generator of their own, so the labels do not depend on how the
        memberships are stored or read, nor on workers.
    overwrite
        Replace the store at ``out``.
    memory
        Bound on what is held at a time when there is an ``out``.
    client
        Engine: None or "threads", "serial", a Dask client or its address, or an Engine.

    Raises InvalidInputError, naming the row, for memberships off the simplex, and for a consensus of
    labels only; StoreExistsError; MemoryBudgetError. Cost: two readings of the memberships, and twice
    ``n_objects * n_partitions * n_clusters`` operations, once to learn the labels, once to write them.
    """
    from bigcons.stores.ensemble import ensemble_of

    check_int("n_partitions", n_partitions)
    if out is not None:
        refuse_existing(out, overwrite)
    soft = _open(memberships)
    seed = resolve_seed(random_state)
    with open_engine(client) as engine:
        source = MappedLabels(
            engine,
            soft.segments,
            _Sampler(n_partitions, seed, soft.where),
            n_partitions,
            row_bytes=24 * soft.n_clusters,
            held_bytes=soft.held_bytes,
        )
        provenance = {"generator": "from_memberships", "seed": seed, "source": soft.where}
        return ensemble_of(source, out, provenance=provenance, overwrite=overwrite, memory=memory)


@dataclass(frozen=True)
class _Sampler:
    """Draws the labels of a segment of memberships."""

    n_partitions: int
    seed: int
    where: str

    def __call__(self, segment: Segment) -> np.ndarray:
        memberships = segment.rows
        sums = memberships.sum(axis=1, dtype=np.float64)
        fits = (memberships >= 0).all(axis=1) & ((np.abs(sums - 1) <= _SUM_TOLERANCE) | (sums == 0))
        if not fits.all():
            row = int(fits.argmin())
            raise InvalidInputError(
                f"{self.where} has row {segment.start + row} with minimum {memberships[row].min():g} and "
                f"sum {sums[row]:g}; memberships must be >= 0 and sum to 1 (or all be 0: no label)."
            )
        rng = generator(self.seed, "generate.from_memberships", segment.index)
        return draw_labels(memberships, rng.random((len(memberships), self.n_partitions)))


class _Memberships(NamedTuple):
    """A soft partition read from its begin; rows of zeros for objects without any label."""

    where: str
    n_clusters: int
    held_bytes: int
    read: Any

    def segments(self) -> Iterator[Segment]:
        """Read all rows, segment by segment."""
        return segments(self.read())


def _open(memberships: object) -> _Memberships:
    from bigcons.stores.consensus import Consensus

    if isinstance(memberships, (str, os.PathLike)) and is_store(memberships):
        memberships = Consensus.open(memberships)
    if isinstance(memberships, Consensus):
        return _of_consensus(memberships)
    features = open_features(memberships)

    def read() -> Iterable[np.ndarray]:
        return (values for _, values in features.iterate())

    block_bytes = min(features.chunk_rows, features.n_objects) * features.n_features * 16
    where = "memberships" if features.where == "features" else features.where
    return _Memberships(where, features.n_features, features.held_bytes + block_bytes, read)


def _of_consensus(consensus: Consensus) -> _Memberships:
    def read_rows(start: int, stop: int) -> np.ndarray:
        memberships = consensus.read_memberships(start, stop)
        memberships[consensus.read_labels(start, stop) < 0] = 0
        return memberships

    block_bytes = consensus.chunk_rows * (consensus.n_clusters * 12 + 16)
    consensus.read_memberships(0, 0)  # refuses a consensus of labels only before any work
    return _Memberships(
        consensus.path, consensus.n_clusters, block_bytes, lambda: read_blocks(consensus, read_rows)
    )
