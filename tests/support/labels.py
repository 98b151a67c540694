"""Labels that several tests use: of a paper's example, and of planted classes."""

import numpy as np

SEVEN = np.array(
    [[1, 1, 1, 2, 2, 3, 3], [2, 2, 2, 3, 3, 1, 1], [1, 1, 2, 2, 3, 3, 3], [1, 2, -1, 1, 2, -1, -1]]
).T
"""The seven objects and four labelings, one with gaps, of Strehl and Ghosh (2002), table 1."""


def merged_and_cut(truth, n_partitions=40, missing=0.0, rng=None):
    """Return labels of partitions that merge classes, or cut them at random, a tenth of them wrong."""
    rng, n_classes = np.random.default_rng(0) if rng is None else rng, truth.max() + 1
    labels = np.empty((len(truth), n_partitions), np.int64)
    for u in range(n_partitions):
        labels[:, u] = rng.permutation(n_classes)[truth] % int(rng.integers(2, n_classes + 1))
        if u % 3 == 0:
            labels[:, u] = 2 * labels[:, u] + rng.integers(2, size=len(truth))
    wrong = rng.random(labels.shape) < 0.1
    labels[wrong] = rng.integers(2, size=wrong.sum())
    labels[rng.random(labels.shape) < missing] = -1
    return labels
