"""The threads of BLAS and OpenMP, which NumPy, SciPy and scikit-learn start on their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_lock = threading.Lock()
_n_inside = 0
_limit: Any = None
"""That of the process, while any thread is inside."""


@contextmanager
def one_thread(*, user_api: str | None = None) -> Iterator[None]:
    """Let BLAS and OpenMP use one thread in the ``with`` block.

    Concurrent tasks then start no threads of their own, and the order of sums does not depend on the machine.
    The threads of OpenBLAS are those of the process: they stay limited until the last block ends, of
    whichever thread.

    Parameters
    ----------
    user_api : {'blas', 'openmp'}, default=None
        The one to limit; both by default.
    """
    global _n_inside, _limit
    pools = _thread_pools(user_api == "blas")
    with _lock:
        if not _n_inside:
            _limit = pools.limit(limits=1, user_api="blas")
        _n_inside += 1
    try:
        with pools.limit(limits=1, user_api=user_api):  # of libraries that count for each thread
            yield
    finally:
        with _lock:
            _n_inside -= 1
            if not _n_inside:
                with _limit:  # whose end restores what was before, and lets any thread set limits
                    pass


@cache
def _thread_pools(only_blas: bool) -> Any:
    """Return the thread pools of this process, those of BLAS or all; finding them takes long."""
    if only_blas:
        import scipy.linalg  # noqa: F401
    else:
        import sklearn.cluster  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
