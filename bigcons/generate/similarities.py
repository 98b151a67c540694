"""The four similarities of robust centralised clustering, between two sets of points."""

from __future__ import annotations

import numpy as np


def euclidean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``exp(-|x - y|^2)``."""
    from sklearn.metrics import pairwise_distances

    return np.exp(-pairwise_distances(a, b, metric="sqeuclidean"))


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``x.y / (|x| |y|)``, 0 for points at the origin."""
    return unit_rows(a) @ unit_rows(b).T


def correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``(r + 1) / 2`` with Pearson's r over the features, 1/2 for points whose features are all equal."""
    return (cosine(centered_rows(a), centered_rows(b)) + 1) / 2


def jaccard(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Extended Jaccard ``x.y / (|x|^2 + |y|^2 - x.y)``, 0 between two points at the origin."""
    product = a @ b.T
    union = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - product
    return np.divide(product, union, out=np.zeros_like(product), where=union > 0)


def unit_rows(points: np.ndarray) -> np.ndarray:
    """Return ``points`` scaled to length one; the origin stays."""
    from sklearn.preprocessing import normalize

    unit: np.ndarray = normalize(points)
    return unit


def centered_rows(points: np.ndarray) -> np.ndarray:
    """Return ``points`` with the mean of its features taken from each."""
    return points - points.mean(axis=1, keepdims=True)
