"""A plain reference of the NMF consensus: the co-association in full, and the paper's updates of Q and S."""

import numpy as np

MISSING = -1


def coassociation(labels):
    """Return (n, n): how often two objects are together, over the roots of their numbers of labels."""
    n = len(labels)
    counts = [sum(label != MISSING for label in row) for row in labels]
    matrix = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            together = sum(a == b != MISSING for a, b in zip(labels[i], labels[j], strict=True))
            if together:
                matrix[i, j] = together / np.sqrt(counts[i] * counts[j])
    return matrix


def update_rows(C, Q, S):
    """Return ``Q * sqrt(CQS / (QQ'CQS))``; zeros stay zeros."""
    above, below = C @ Q @ np.diag(S), Q @ Q.T @ C @ Q @ np.diag(S)
    return Q * np.sqrt(np.divide(above, below, out=np.zeros_like(above), where=below > 0))


def update_scales(C, Q, S):
    """Return the diagonal of ``S * sqrt(Q'CQ / (Q'QSQ'Q))``."""
    above, below = np.diag(Q.T @ C @ Q), np.diag(Q.T @ Q @ np.diag(S) @ Q.T @ Q)
    return S * np.sqrt(np.divide(above, below, out=np.zeros_like(above), where=below > 0))


def squared_error(C, Q, S):
    """Return ``||C - QSQ'||^2``."""
    return ((C - Q @ np.diag(S) @ Q.T) ** 2).sum()


def projection_error(X, Q):
    """Return ``||X - QQ'X||^2``."""
    return ((X - Q @ Q.T @ X) ** 2).sum()
