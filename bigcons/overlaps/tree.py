"""One tree over groups of objects: groups of a sample, and the merges that lead from them to few clusters."""

from __future__ import annotations

import numpy as np

from bigcons.coassociation.factorized import incidence_of
from bigcons.execution.blas import one_thread
from bigcons.overlaps.eigenvectors import Spectrum
from bigcons.overlaps.merging import merge
from bigcons.overlaps.n_clusters import cut_spectrum, normalized

N_GROUPS = 100


def tree_clusters(
    labels: np.ndarray, offsets: np.ndarray, n_clusters: int, counts: np.ndarray | None = None
) -> np.ndarray:
    """Return the clusters (rows,) int64 of objects by their labels (rows, M), at most ``n_clusters``.

    -1 for objects without any label. Of soft clusterings, ``labels`` are memberships (rows, B). ``counts``
    (M,): the weights of the partitions, None if all count the same.
    """
    counts = np.ones(offsets.size - 1) if counts is None else counts
    with one_thread():
        incidence = incidence_of(labels, offsets)
        of_columns = np.repeat(counts, np.diff(offsets))
        labeled = (incidence @ of_columns) > 0
        spectrum = Spectrum.of(normalized(incidence[labeled], of_columns), N_GROUPS)
        groups, _ = cut_spectrum(spectrum.vectors, N_GROUPS)
        path = merge(incidence[labeled], offsets, counts, groups)
    found = np.full(len(labels), -1)
    at = np.flatnonzero(path.numbers <= n_clusters)
    found[labeled] = path.clusters[at[0]] if at.size else 0
    return found
