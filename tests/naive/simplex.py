"""Quadratic programs on the simplex, by trying every face."""

from itertools import combinations

import numpy as np


def objective(A, b, y):
    return y @ A @ y - 2 * b @ y


def minimize(A, b):
    """Return a minimizer of ``y'Ay - 2b'y`` over the simplex.

    Some minimizer is the only stationary point inside a face, so the best feasible stationary point of all
    faces is a minimizer.
    """
    K = len(b)
    candidates = []
    for size in range(1, K + 1):
        for face in map(list, combinations(range(K), size)):
            y = np.zeros(K)
            y[face] = stationary_on_face(A[np.ix_(face, face)], b[face])
            if y.min() > -1e-12:
                y = np.maximum(y, 0)
                candidates.append(y / y.sum())
    return min(candidates, key=lambda y: objective(A, b, y))


def stationary_on_face(A, b):
    """Return where the gradient of ``y'Ay - 2b'y`` is the same in all coordinates and ``sum y = 1``."""
    size = len(b)
    system = np.ones((size + 1, size + 1))
    system[:size, :size] = A
    system[size, size] = 0
    return np.linalg.lstsq(system, np.append(b, 1), rcond=None)[0][:size]
