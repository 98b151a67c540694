"""Small convex quadratic programmes on the simplex, solved exactly by an active-set method."""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit

# Added to the diagonal, relative to its largest entry: clusters without mass make A singular. Rounding costs
# about eps / RIDGE and the ridge itself RIDGE, both relative to the gradient; this balances them.
RIDGE = 1e-8


@jit
def minimise_on_simplex(A, b, y, support, work):
    """Minimise ``y'Ay - 2b'y`` over the simplex, in place, from the face that ``y`` lies on.

    ``A (K, K)`` symmetric positive semidefinite, ``b (K,)``, ``y (K,)`` feasible. ``support (K,) int64`` and
    ``work (K, K + 2)`` are scratch. Primal active-set method (Nocedal and Wright 2006, section 16.5):
    minimise on the current face, walk there until a coordinate reaches zero, and when the face is exhausted
    admit the coordinate of steepest descent. Coordinates off the final face are exactly zero. O(K |face|^2)
    a round, with as many rounds as coordinates change; the objective never rises.
    """
    K = b.shape[0]
    largest = 0.0
    n_support = 0
    for k in range(K):
        largest = max(largest, A[k, k])
        if y[k] > 0.0:
            support[n_support] = k
            n_support += 1
    ridge = RIDGE * largest + 1e-100  # not 0 where A is
    for _ in range(4 * K + 8):  # finite in exact arithmetic; the cap guards against cycling by rounding
        if n_support > 1:
            minimise_on_face(A, b, ridge, support, n_support, work)
            dropped = walk_to(y, support, n_support, work)
            if dropped >= 0:
                n_support -= 1
                for r in range(dropped, n_support):
                    support[r] = support[r + 1]
                continue
        else:
            y[support[0]] = 1.0
        entering = steepest_outside(A, b, ridge, y, support, n_support)
        if entering < 0:
            return
        support[n_support] = entering
        n_support += 1


@jit
def minimise_on_face(A, b, ridge, support, m, work):
    """Minimise over ``{y : sum y = 1, y = 0 off the face}`` ignoring ``y >= 0``; the result is ``work[:m,
    0]``.

    With ``LL' = A`` on the face, ``y = A^-1 b + lam A^-1 1`` where ``lam`` makes the sum one.
    """
    x, e, L = 0, 1, 2  # columns of work: A^-1 b, A^-1 1, then the lower triangle of L
    for r in range(m):
        k = support[r]
        for c in range(r + 1):
            s = A[k, support[c]]
            if c == r:
                s += ridge
            for q in range(c):
                s -= work[r, L + q] * work[c, L + q]
            if c == r:
                work[r, L + r] = np.sqrt(max(s, ridge))
            else:
                work[r, L + c] = s / work[c, L + c]
        sb = b[k]
        se = 1.0
        for q in range(r):
            sb -= work[r, L + q] * work[q, x]
            se -= work[r, L + q] * work[q, e]
        work[r, x] = sb / work[r, L + r]
        work[r, e] = se / work[r, L + r]
    total = 0.0
    ones = 0.0
    for r in range(m - 1, -1, -1):
        for q in range(r + 1, m):
            work[r, x] -= work[q, L + r] * work[q, x]
            work[r, e] -= work[q, L + r] * work[q, e]
        work[r, x] /= work[r, L + r]
        work[r, e] /= work[r, L + r]
        total += work[r, x]
        ones += work[r, e]
    lam = (1.0 - total) / ones
    for r in range(m):
        work[r, x] += lam * work[r, e]


@jit
def walk_to(y, support, m, work):
    """Move ``y`` to ``work[:m, 0]`` or the simplex' edge; return the rank that hit zero, or -1."""
    step = 1.0
    blocking = -1
    for r in range(m):
        target = work[r, 0]
        now = y[support[r]]
        if target <= 0.0:
            reach = now / (now - target)
            if reach < step or blocking < 0:
                step = reach
                blocking = r
    total = 0.0
    for r in range(m):
        k = support[r]
        y[k] = max(y[k] + step * (work[r, 0] - y[k]), 0.0)
        if r == blocking:
            y[k] = 0.0
        total += y[k]
    for r in range(m):
        y[support[r]] /= total
    return blocking


@jit
def steepest_outside(A, b, ridge, y, support, m):
    """Return the coordinate off the face along which the objective falls fastest, or -1 if none does."""
    K = b.shape[0]
    inside = 0.0
    for r in range(m):
        k = support[r]
        inside += half_gradient(A, b, y, support, m, k) + ridge * y[k]
    inside /= m
    best = -1
    lowest = inside - ridge - 1e-12 * abs(inside)  # rounding alone must not admit a coordinate
    for k in range(K):
        if y[k] == 0.0:
            g = half_gradient(A, b, y, support, m, k)
            if g < lowest:
                lowest = g
                best = k
    return best


@jit
def half_gradient(A, b, y, support, m, k):
    """Return coordinate ``k`` of ``Ay - b``."""
    s = -b[k]
    for r in range(m):
        q = support[r]
        s += A[k, q] * y[q]
    return s
