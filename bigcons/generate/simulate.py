"""Simulated ensembles: drawn from a soft partition, masked at random, noisy copies of a clustering.

Labels are drawn by segments of 4,096 rows, each with a random generator of its own, so that they do not
depend on how the data are stored or read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.disk.schema import MISSING
from bigcons.errors import InvalidInputError
from bigcons.io.columns import NONE_MISSING
from bigcons.io.sources import columns_source, values_of
from bigcons.kernels.draws import draw_labels
from bigcons.memory import row_blocks
from bigcons.seeding import SEGMENT_ROWS, SeedLike, generator, resolve_seed
from bigcons.store.consensus import Consensus
from bigcons.store.ensemble import Ensemble, as_ensemble, ensemble_of
from bigcons.store.ensemble_store import sum_to_one
from bigcons.validation import check_int, check_number


def from_memberships(
    memberships: object, *, n_partitions: int = 100, random_state: SeedLike = None
) -> Ensemble:
    """Return an ensemble of partitions drawn from a soft partition, every label independently.

    The simulation of Lourenço et al. 2015: the label of object i in each partition is k with
    probability ``memberships[i, k]``.

    Parameters
    ----------
    memberships
        ``(n_objects, n_clusters)``, nonnegative rows that sum to 1 or, for unlabeled objects, are all 0:
        an array or a Consensus, where objects without a label get -1.
    n_partitions
        Number of partitions to draw.
    random_state
        Seed.

    The labels are in memory; `Ensemble.save` stores them. Raises InvalidInputError, naming the row, for
    memberships off the simplex, and for a consensus with labels only. ``n_objects * n_partitions *
    n_clusters`` operations.

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
    n_partitions = check_int("n_partitions", n_partitions)
    seed = resolve_seed(random_state)
    if isinstance(memberships, Consensus):
        where, n_objects = str(memberships.path), memberships.n_objects
    else:
        where, memberships = "memberships", np.asarray(memberships)
        n_objects = len(memberships)
    parts = []
    for block in row_blocks(n_objects, SEGMENT_ROWS):
        if isinstance(memberships, Consensus):
            rows = memberships.read_memberships(block.start, block.stop)
            rows[memberships.read_labels(block.start, block.stop) < 0] = 0
        else:
            rows = memberships[block.start : block.stop]
        sums = rows.sum(axis=1, dtype=np.float64)
        fits = (rows >= 0).all(axis=1) & (sum_to_one(sums) | (sums == 0))
        if not fits.all():
            row = int(fits.argmin())
            raise InvalidInputError(
                f"{where} has row {block.start + row} with minimum {rows[row].min():g} and "
                f"sum {sums[row]:g}; memberships must be >= 0 and sum to 1 (or all be 0: unlabeled)."
            )
        rng = generator(seed, "generate.from_memberships", block.index)
        parts.append(draw_labels(rows, rng.random((len(rows), n_partitions))))
    provenance = {"generator": "from_memberships", "seed": seed, "source": where}
    return _ensemble_of(np.concatenate(parts).T, provenance)


def mask_labels(ensemble: object, share: float, *, random_state: SeedLike = None) -> Ensemble:
    """Return a copy of an ensemble, in memory, with a random share of its entries missing.

    The missing-value experiment of Wang et al. 2009. Exactly ``share`` of the ``n_objects * n_partitions``
    entries, up to one, are masked uniformly at random, including some that are already missing.

    Parameters
    ----------
    ensemble
        An Ensemble, its path, or any source of ``Ensemble.from_labels``.
    share
        Share of the entries to mask, ``0 <= share < 1``.
    random_state
        Seed.

    Names of partitions and label values are kept. Raises EmptyPartitionError if a partition loses all its
    labels: use a smaller share or another random_state, or leave it out.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, _ = bc.datasets.planted_ensemble(1000, 10, missing=0, random_state=0)
    >>> round(bc.generate.mask_labels(ensemble, 0.3, random_state=0).missing_share, 3)
    0.3
    """
    if check_number("share", share, at_least=0) >= 1:
        raise InvalidInputError(f"share={share!r} masks every label; use 0 <= share < 1.")
    seed = resolve_seed(random_state)
    original = as_ensemble(ensemble)
    masked = np.array(original.read(0, original.n_objects))
    for block in row_blocks(original.n_objects, SEGMENT_ROWS):
        labels = masked[block.start : block.stop]
        first, last = (round(share * (row * original.n_partitions)) for row in (block.start, block.stop))
        rng = generator(seed, "generate.delete_labels", block.index)
        labels.flat[rng.choice(labels.size, size=last - first, replace=False, shuffle=False)] = MISSING
    columns = [values_of(codes, values) for codes, values in zip(masked.T, original.categories, strict=True)]
    provenance = {"generator": "mask_labels", "share": share, "seed": seed, "of": original.provenance}
    source = columns_source(columns, original.n_objects, list(original.names))
    source.rule = NONE_MISSING  # negative numbers that are labels stay labels
    return ensemble_of(source, provenance=provenance)


def noisy_copies(
    labels: Any, *, n_partitions: int = 8, noise: float, random_state: SeedLike = None
) -> Ensemble:
    """Return an ensemble, in memory, of copies of one clustering with noise and permuted labels.

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
    random_state
        Seed.

    Raises InvalidInputError. ``n_objects * n_partitions`` draws.

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
    n_partitions = check_int("n_partitions", n_partitions)
    check_number("noise", noise, at_least=0, at_most=1)
    seed = resolve_seed(random_state)
    clustering = Ensemble.from_labels(np.asarray(labels)[:, None])
    k = clustering.n_base_clusters
    codes = clustering.read(0, clustering.n_objects)[:, 0]
    copies = np.tile(codes, (n_partitions, 1))
    for u, copy in enumerate(copies):
        renumbering = np.append(generator(seed, "generate.noisy_copies.order", u).permutation(k), MISSING)
        for block in row_blocks(len(codes), SEGMENT_ROWS):
            part = copy[block.start : block.stop]
            n_noisy = round(noise * block.stop) - round(noise * block.start)
            rng = generator(seed, "generate.noisy_copies", u, block.index)
            noisy = rng.choice(len(part), size=n_noisy, replace=False, shuffle=False)
            part[noisy] = rng.integers(k, size=n_noisy)
        copy[:] = np.where(codes < 0, MISSING, renumbering[copy])
    provenance = {"generator": "noisy_copies", "noise": noise, "n_clusters": k, "seed": seed}
    return _ensemble_of(copies, provenance)


def _ensemble_of(columns: Any, provenance: dict[str, Any]) -> Ensemble:
    """Return the ensemble of the labels (n_partitions, n_objects) of partitions."""
    return ensemble_of(columns_source(columns, len(columns[0])), provenance=provenance)
