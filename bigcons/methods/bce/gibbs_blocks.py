"""Sweeps of collapsed Gibbs sampling in blocks: each against what the others were before the sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple

import numpy as np

from bigcons.execution.engine import Engine
from bigcons.kernels import gibbs as kernel
from bigcons.memory import Block
from bigcons.seeding import generator


class BlockSweeps:
    """Sweeps of one chain, block by block on an engine, with draws of each block's own."""

    def __init__(
        self,
        blocks: Sequence[Block],
        offsets: np.ndarray,
        engine: Engine,
        priors: tuple[float, float],
        seed: int,
        number: int,
    ) -> None:
        self.blocks = blocks
        self.offsets = offsets
        self.engine = engine
        self.priors = priors
        self._random = [
            generator(seed, "bce.gibbs.blocks", number, block.index).integers(2**64, size=1, dtype=np.uint64)
            for block in blocks
        ]

    def sweep(
        self,
        labels: np.ndarray,
        z: np.ndarray,
        by_label: np.ndarray,
        by_partition: np.ndarray,
        sums: np.ndarray,
        keep: bool,
    ) -> None:
        """Draw every cluster in ``z`` (n, M), and bring the counts and ``sums`` up to date, all in place.

        A block follows its own changes of the counts, and all changes are added after the sweep.
        """
        task = partial(_sweep_block, self.offsets, by_label.copy(), by_partition.copy(), self.priors, keep)
        with closing(self.engine.map(task, self._parts(labels, z))) as results:
            for block, random, done in zip(self.blocks, self._random, results, strict=True):
                rows = slice(block.start, block.stop)
                z[rows] = done.z
                sums[rows] += done.sums
                by_label += done.by_label
                by_partition += done.by_partition
                random[:] = done.random

    def _parts(
        self, labels: np.ndarray, z: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for block, random in zip(self.blocks, self._random, strict=True):
            rows = slice(block.start, block.stop)
            yield labels[rows], z[rows], random


class _Swept(NamedTuple):
    """What a block hands back: its clusters, how many of each if kept, and the changes of the counts."""

    z: np.ndarray
    sums: np.ndarray
    by_label: np.ndarray
    by_partition: np.ndarray
    random: np.ndarray


def _sweep_block(
    offsets: np.ndarray,
    by_label: np.ndarray,
    by_partition: np.ndarray,
    priors: tuple[float, float],
    keep: bool,
    part: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> _Swept:
    labels, z, random = part[0], part[1].copy(), part[2].copy()  # what a worker was sent may be read-only
    own_label, own_partition = by_label.copy(), by_partition.copy()
    sums = np.zeros((len(labels), by_label.shape[1]), np.float32)
    kernel.sweep(labels, offsets, z, own_label, own_partition, *priors, sums, keep, random)
    return _Swept(z, sums, own_label - by_label, own_partition - by_partition, random)
