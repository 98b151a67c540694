"""The clusters that methods of passes start from: base partitions, random ones, or given ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.memory import Block
from bigcons.run.passes import Counts, Run
from bigcons.seeding import generator
from bigcons.weights import counts_of

CERTAINTY = 0.9
"""The weight of the base partition in a start of probabilities; the rest is spread over all clusters."""


def first_partition(labels: np.ndarray, n_clusters: int, seed: int, number: int) -> np.ndarray:
    """Return clusters (rows,) int32 of the objects of ``labels`` (rows, M), -1 where undecided; O(rows M).

    Partitions in random order are intersected until there are ``n_clusters`` groups or no partition is left.
    The largest groups become the clusters; the objects of the others stay undecided. If the first partition
    has enough clusters, this is a base partition chosen at random, as Nguyen and Caruana (2007) advise; with
    fewer, clusters would stay empty forever. M consecutive starts all begin with different partitions.
    """
    groups, n_groups = np.zeros(labels.shape[0], np.int64), 1
    for u in partition_order(labels.shape[1], seed, number):
        column = labels[:, u].astype(np.int64)
        refined = groups * (int(np.max(column)) + 1) + column
        refined[(column < 0) | (groups < 0)] = -1
        cells = np.unique(refined[refined >= 0])
        if not cells.size:
            continue  # no object that is left has a label here
        groups, n_groups = np.where(refined >= 0, np.searchsorted(cells, refined), -1), cells.size
        if n_groups >= n_clusters:
            break
    sizes = np.bincount(groups[groups >= 0], minlength=n_groups)
    largest = np.sort(np.argsort(-sizes, kind="stable")[:n_clusters])
    clusters = np.full(n_groups + 1, -1, np.int32)  # the last entry is that of group -1
    clusters[largest] = np.arange(largest.size)
    return clusters[groups]


def partition_order(n_partitions: int, seed: int, number: int) -> np.ndarray:
    """Return the partitions in the random order of a start, each of M starts beginning with another."""
    first = generator(seed, "start.first").permutation(n_partitions)[number % n_partitions]
    order = generator(seed, "start.partition", number).permutation(n_partitions)
    return np.concatenate(([first], order[order != first]))


def random_clusters(labels: np.ndarray, n_clusters: int, seed: int, number: int) -> np.ndarray:
    """Return random clusters (rows,) int32 of the objects of ``labels`` (rows, M)."""
    return generator(seed, "start.random", number).integers(n_clusters, size=len(labels), dtype=np.int32)


def given_clusters(init: Any, n_objects: int, n_clusters: int, names: str) -> np.ndarray:
    """Return clusters (n_objects,) int32 that a caller gives; ``names`` are the other values of ``init``."""
    given = np.array(init)
    if (
        given.shape != (n_objects,)
        or given.dtype.kind not in "iu"
        or given.min() < -1
        or given.max() >= n_clusters
    ):
        raise InvalidInputError(
            f"init has shape {given.shape} and type {given.dtype}; pass {names} or {n_objects} integer "
            f"labels from 0 to {n_clusters - 1}, -1 where there is none."
        )
    return given.astype(np.int32)


def count_given(clusters: np.ndarray, n_clusters: int, run: Run) -> Counts:
    """Return the counts of given clusters (n,) of all objects, which become their first rows."""

    def count_block(block: Block) -> Counts:
        members = clusters[block.start : block.stop]
        run.arrays.write(0, block, members[:, None])
        return counts_of(run.data.read(block.start, block.stop), run.data.offsets, members, n_clusters)

    return run.fold(count_block, lambda total, part: (total[0] + part[0], total[1] + part[1]))


def expected_counts(
    labels: np.ndarray, offsets: np.ndarray, clusters: np.ndarray, n_clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return `counts_of` with nine tenths of every object in its cluster and the rest spread evenly.

    Objects of cluster -1 are spread over all clusters evenly. The sizes are those of ``clusters``.
    """
    counts, sizes = counts_of(labels, offsets, clusters, n_clusters)
    everyone, _ = counts_of(labels, offsets, np.zeros_like(clusters), 1)
    return spread(counts, everyone), sizes


def spread(counts: np.ndarray, everyone: np.ndarray) -> np.ndarray:
    """Return counts (B, K) with nine tenths of their weight, the rest of everyone (B, 1) spread evenly."""
    certain = CERTAINTY * counts
    return certain + (everyone - certain.sum(axis=1, keepdims=True)) / counts.shape[1]
