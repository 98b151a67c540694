"""First partitions taken from the ensemble itself: better starts than random ones."""

from __future__ import annotations

import numpy as np

from bigcons.seeding import generator


def first_partition(labels: np.ndarray, n_clusters: int, seed: int, number: int) -> np.ndarray:
    """Return clusters (rows,) int32 of the objects of ``labels`` (rows, M), -1 where undecided; O(rows M).

    Partitions in random order are laid over one another until their overlaps form ``n_clusters`` groups or
    none is left; the largest groups become the clusters, the objects of the others stay undecided. If the
    first has enough clusters of its own this is one base partition picked at random, as Nguyen and Caruana
    (2007) advise; with fewer, clusters would stay empty for ever. No two of M starts have the same first.
    """
    groups = np.zeros(labels.shape[0], np.int64)
    for u in _order(labels.shape[1], seed, number):
        column = labels[:, u].astype(np.int64)
        refined = groups * (int(column.max()) + 1) + column
        refined[(column < 0) | (groups < 0)] = -1
        found, numbered = np.unique(refined, return_inverse=True)
        if found[-1] < 0:
            continue  # no object that is left has a label here
        groups = numbered - (1 if found[0] < 0 else 0)
        if groups.max() + 1 >= n_clusters:
            break
    sizes = np.bincount(groups[groups >= 0])
    largest = np.argsort(-sizes, kind="stable")[:n_clusters]
    cluster = np.full(sizes.size + 1, -1, np.int32)  # the last entry is that of group -1
    cluster[np.sort(largest)] = np.arange(largest.size)
    return cluster[groups]


def _order(n_partitions: int, seed: int, number: int) -> np.ndarray:
    """Return the partitions in a random order of the start that begins with one of its own."""
    first = generator(seed, "start.first").permutation(n_partitions)[number % n_partitions]
    order = generator(seed, "start.partition", number).permutation(n_partitions)
    return np.concatenate(([first], order[order != first]))
