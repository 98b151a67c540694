"""Small convex quadratic programs on the simplex, solved exactly by an active-set method."""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import leaf


@leaf
def minimize_on_simplex(A, b, y, K, support, work):
    """Minimize ``y'Ay - 2b'y`` over the first ``K`` coordinates of the simplex, in place, from the face of
    ``y``; return half the gradient at the minimum.

    ``A`` (K, K) symmetric positive semidefinite, ``b`` (K,), ``y`` (K,) feasible; all may be larger.
    ``support`` (K,) int64 and ``work`` (K, K + 2) are scratch. Primal active-set method (Nocedal and Wright
    2006, section 16.5): minimize on the current face, move there until a coordinate reaches zero, and at
    the minimum of the face add the coordinate of steepest descent. Coordinates off the final face are exactly
    zero. O(K |face| + |face|^3) a round, one per change of the support; the objective never rises.
    """
    largest = 0.0
    n_support = 0
    for k in range(K):
        largest = max(largest, A[k, k])
        if y[k] > 0.0:
            support[n_support] = k
            n_support += 1
    if largest == 0.0:  # linear: the best vertex
        best = 0
        for k in range(1, K):
            if b[k] > b[best]:
                best = k
        for k in range(K):
            y[k] = 0.0
        y[best] = 1.0
        return -b[best]
    # Added to the diagonal: empty clusters make A singular. Rounding costs about eps / 1e-8 and the ridge
    # itself 1e-8, both relative to the gradient; this value balances them.
    ridge = 1e-8 * largest
    level = np.inf  # if the rounds run out before the face is exhausted
    for _ in range(4 * K + 8):  # finite in exact arithmetic; the cap prevents cycling by rounding
        if n_support > 1:
            level = minimize_on_face(A, b, ridge, support, n_support, work)
            dropped = walk_to(y, support, n_support, work)
            if dropped >= 0:
                n_support -= 1
                for r in range(dropped, n_support):
                    support[r] = support[r + 1]
                continue
        else:
            y[support[0]] = 1.0
            level = half_gradient(A, b, y, support, 1, support[0]) + ridge
        entering = steepest_outside(A, b, ridge, y, K, support, n_support, level)
        if entering < 0:
            break
        support[n_support] = entering
        n_support += 1
    return level


@leaf
def minimize_on_face(A, b, ridge, support, m, work):
    """Minimize over ``{y : sum y = 1, y = 0 off the face}`` ignoring ``y >= 0``, into ``work[:m,
    0]``. Return half the gradient there, which is equal in all coordinates of the face.

    With ``LDL' = A`` on the face, ``y = A^-1 b + lam A^-1 1`` where ``lam`` makes the sum one. One division
    per row, since divisions are sequential here.
    """
    x, e, L = 0, 1, 2  # columns of work: A^-1 b, A^-1 1, then L below, DL' above and D^-1 on the diagonal
    for r in range(m):
        k = support[r]
        pivot = A[k, k] + ridge
        xr, er = b[k], 1.0
        for c in range(r):
            upper = A[k, support[c]]
            for q in range(c):
                upper -= work[q, L + r] * work[c, L + q]
            lower = upper * work[c, L + c]
            work[c, L + r] = upper
            work[r, L + c] = lower
            pivot -= upper * lower
            xr -= lower * work[c, x]
            er -= lower * work[c, e]
        work[r, L + r] = 1.0 / max(pivot, ridge)
        work[r, x] = xr
        work[r, e] = er
    total = 0.0
    ones = 0.0
    for r in range(m - 1, -1, -1):
        xr, er = work[r, x] * work[r, L + r], work[r, e] * work[r, L + r]
        for q in range(r + 1, m):
            xr -= work[q, L + r] * work[q, x]
            er -= work[q, L + r] * work[q, e]
        work[r, x] = xr
        work[r, e] = er
        total += xr
        ones += er
    lam = (1.0 - total) / ones
    for r in range(m):
        work[r, x] += lam * work[r, e]
    return lam


@leaf
def walk_to(y, support, m, work):
    """Move ``y`` toward ``work[:m, 0]`` within the simplex; return the position that hit zero, or -1."""
    step = 1.0
    blocking = -1
    for r in range(m):
        target = work[r, 0]
        value = y[support[r]]
        if target <= 0.0:
            reach = value / (value - target)
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


@leaf
def steepest_outside(A, b, ridge, y, K, support, m, inside):
    """Return the coordinate off the face of steepest descent, or -1 if there is none.

    ``inside`` is half the gradient on the face.
    """
    if m == K:
        return -1
    best = -1
    lowest = inside - ridge - 1e-12 * abs(inside)  # rounding alone must not admit a coordinate
    for k in range(K):
        if y[k] == 0.0:
            g = half_gradient(A, b, y, support, m, k)
            if g < lowest:
                lowest = g
                best = k
    return best


@leaf
def half_gradient(A, b, y, support, m, k):
    """Return coordinate ``k`` of ``Ay - b``."""
    s = -b[k]
    for r in range(m):
        q = support[r]
        s += A[k, q] * y[q]
    return s
