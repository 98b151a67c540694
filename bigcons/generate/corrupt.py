"""Ensembles spoiled on purpose: labels deleted from an ensemble, noisy copies of one clustering."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import EmptyPartitionError, InvalidInputError
from bigcons.execution.engine import open_engine
from bigcons.generate.mapped import SEGMENT_ROWS, MappedLabels, Segment, read_blocks, segments
from bigcons.generate.subsets import subset_size
from bigcons.memory import row_blocks
from bigcons.schema import MISSING
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.storage.commit import refuse_existing
from bigcons.validation import check_int, check_number

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble


def mask_labels(
    ensemble: object,
    share: float,
    *,
    out: str | os.PathLike[str] | None = None,
    random_state: SeedLike = None,
    overwrite: bool = False,
    memory: int | float | str = "1GB",
    client: object = None,
) -> Ensemble:
    """Return a copy of an ensemble in which a random share of the entries is missing.

    The missing-value experiment of Wang et al. 2009. Of the ``n_objects * n_partitions`` entries
    exactly ``share`` is chosen uniformly at random, up to one; entries that were missing already stay
    so and count among the chosen.

    Parameters
    ----------
    ensemble
        An Ensemble, the path of one, or what ``Ensemble.from_labels`` takes.
    share
        Share of the entries, from 0 to below 1.
    out
        Path of the store to write; without it the ensemble stays in memory.
    random_state
        Seed. Every 4,096 rows have a generator of their own, so what is deleted does not depend on
        how the ensemble is stored or read, nor on workers.
    overwrite
        Replace the store at ``out``.
    memory
        Bound on what is held at a time when there is an ``out``.
    client
        Engine: None or "threads", "serial", a Dask client or its address, or an Engine.

    Names of partitions and label values stay. Raises InvalidInputError if a partition loses all its
    labels, StoreExistsError, MemoryBudgetError. Cost: two passes over the labels.
    """
    from bigcons.stores.ensemble import as_ensemble, ensemble_of

    check_number("share", share, at_least=0)
    if share >= 1:
        raise InvalidInputError(f"share={share!r} leaves no label; use a number from 0 to below 1.")
    if out is not None:
        refuse_existing(out, overwrite)
    whole = as_ensemble(ensemble)
    seed = resolve_seed(random_state)
    with open_engine(client) as engine:
        source = MappedLabels(
            engine,
            lambda: segments(read_blocks(whole, whole.read)),
            _Eraser(share, seed),
            whole.n_partitions,
            row_bytes=8 * whole.n_partitions,
            held_bytes=3 * whole.chunk_rows * whole.n_partitions * whole.dtype.itemsize,
            names=whole.names,
            categories=whole.categories,
        )
        provenance = {
            "generator": "mask_labels",
            "share": share,
            "seed": seed,
            "source": whole.path or "an ensemble in memory",
            "of": whole.provenance,
        }
        with _naming_the_share(share):
            return ensemble_of(source, out, provenance=provenance, overwrite=overwrite, memory=memory)


@contextmanager
def _naming_the_share(share: float) -> Iterator[None]:
    """Say of a partition that has lost all its labels what deleted them."""
    try:
        yield
    except EmptyPartitionError as error:
        raise InvalidInputError(
            f"share={share} deletes every label of partition {error.name!r}; use a smaller share or another "
            "random_state, or leave that partition out."
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
    memory: int | float | str = "1GB",
    client: object = None,
) -> Ensemble:
    """Return an ensemble of copies of one clustering, each with noise and with its labels permuted.

    The noise experiment of Strehl and Ghosh 2002: in each copy a share ``noise`` of the labels,
    exactly and for each copy anew, is replaced by labels uniform among all clusters (which may be
    those they were); then the clusters are renumbered at random.

    Parameters
    ----------
    labels
        The clustering ``(n_objects,)``: whole numbers or text; -1 is missing and stays so.
    n_partitions
        Number of copies, r.
    noise
        Share of the labels to replace, from 0 to 1.
    n_clusters
        Number of clusters, k; by default that of ``labels``.
    out
        Path of the store to write; without it the ensemble stays in memory.
    random_state
        Seed. Every 4,096 objects have a generator of their own for each copy.
    overwrite
        Replace the store at ``out``.
    memory
        Bound on what is held at a time beside ``labels`` when there is an ``out``.
    client
        Engine: None or "threads", "serial", a Dask client or its address, or an Engine.

    Raises InvalidInputError, StoreExistsError, MemoryBudgetError. Cost: ``n_objects * n_partitions``
    draws, twice.
    """
    from bigcons.stores.ensemble import ensemble_of

    check_int("n_partitions", n_partitions)
    check_number("noise", noise, at_least=0, at_most=1)
    if out is not None:
        refuse_existing(out, overwrite)
    codes, found = _dense(labels)
    k = found if n_clusters is None else check_int("n_clusters", n_clusters)
    if k < found:
        raise InvalidInputError(f"n_clusters={k} but labels has {found} clusters; give at least that many.")
    codes = codes.astype(np.min_scalar_type(-k), copy=False)
    seed = resolve_seed(random_state)
    with open_engine(client) as engine:
        source = MappedLabels(
            engine,
            lambda: segments(_slices(codes)),
            _Copier(n_partitions, noise, k, seed),
            n_partitions,
            row_bytes=codes.dtype.itemsize,
        )
        provenance = {"generator": "noisy_copies", "noise": noise, "n_clusters": k, "seed": seed}
        return ensemble_of(source, out, provenance=provenance, overwrite=overwrite, memory=memory)


@dataclass(frozen=True)
class _Eraser:
    """Deletes labels of a segment of rows: so many that those of all segments before are the share."""

    share: float
    seed: int

    def __call__(self, segment: Segment) -> np.ndarray:
        labels = segment.rows.copy()
        n_partitions = labels.shape[1]
        first, last = (subset_size(row * n_partitions, self.share) for row in (segment.start, segment.stop))
        rng = generator(self.seed, "generate.delete_labels", segment.index)
        labels.flat[rng.choice(labels.size, size=last - first, replace=False, shuffle=False)] = MISSING
        return labels


@dataclass(frozen=True)
class _Copier:
    """Makes the noisy copies of a segment of codes."""

    n_partitions: int
    noise: float
    n_clusters: int
    seed: int

    def __call__(self, segment: Segment) -> np.ndarray:
        copies = [self._copy(segment, u) for u in range(self.n_partitions)]
        return np.stack(copies, axis=1)

    def _copy(self, segment: Segment, u: int) -> np.ndarray:
        n_noisy = subset_size(segment.stop, self.noise) - subset_size(segment.start, self.noise)
        rng = generator(self.seed, "generate.noisy_copies", u, segment.index)
        noisy = rng.choice(len(segment.rows), size=n_noisy, replace=False, shuffle=False)
        codes = segment.rows.copy()
        codes[noisy] = rng.integers(self.n_clusters, size=n_noisy)
        codes[segment.rows < 0] = MISSING
        renumbering = generator(self.seed, "generate.noisy_copies.order", u).permutation(self.n_clusters)
        return np.append(renumbering, MISSING)[codes].astype(codes.dtype)


def _dense(labels: Any) -> tuple[np.ndarray, int]:
    """Return the codes ``(n_objects,)`` of one clustering and the number of its clusters."""
    from bigcons.stores.ensemble import Ensemble

    column = np.asarray(labels)
    if column.ndim != 1:
        raise InvalidInputError(f"labels has shape {column.shape}; give one clustering, shape (n_objects,).")
    clustering = Ensemble.from_labels(column[:, None])
    return clustering.read(0, clustering.n_objects)[:, 0], clustering.n_base_clusters


def _slices(codes: np.ndarray) -> Iterator[np.ndarray]:
    for block in row_blocks(len(codes), SEGMENT_ROWS):
        yield codes[block.start : block.stop]
