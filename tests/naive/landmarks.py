"""The spectral embedding of landmarks, by its definition: every distance, every matrix dense."""

import numpy as np


def embedding(points, landmarks, n_nearest=5):
    """Return all eigenvalues, the largest first, the eigenvectors of landmarks, and their degrees."""
    points, landmarks = np.asarray(points, float), np.asarray(landmarks, float)
    distances = np.array([[np.sqrt(((x - z) ** 2).sum()) for z in landmarks] for x in points])
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :n_nearest]
    B = np.zeros_like(distances)
    for i, chosen in enumerate(nearest):
        scale = distances[i, chosen].mean()
        B[i, chosen] = np.exp(-(distances[i, chosen] ** 2) / (2 * scale**2)) if scale else 1.0
        B[i] /= B[i].sum()
    alike = B.T @ B
    degrees = alike.sum(axis=1)
    D = np.diag(degrees**-0.5)
    values, vectors = np.linalg.eigh(D @ alike @ D)
    return values[::-1], D @ vectors[:, ::-1], degrees
