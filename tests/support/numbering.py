"""The numbers of clusters in results: largest first."""

import numpy as np


def order_by_size(labels, n_clusters=None):
    """Return the clusters, largest first, of equal ones the first first; -1 is none."""
    labels = np.asarray(labels)
    sizes = np.bincount(labels[labels >= 0], minlength=n_clusters or 0)
    return np.array(sorted(range(len(sizes)), key=lambda k: (-sizes[k], k)), int)


def numbered_by_size(labels):
    """Return labels with their clusters numbered largest first; -1 stays."""
    numbers = {int(k): number for number, k in enumerate(order_by_size(labels))}
    return np.array([numbers.get(int(label), -1) for label in labels])
