"""The threads of BLAS and OpenMP, which NumPy, SciPy and scikit-learn start on their own."""

from __future__ import annotations

from functools import cache
from typing import Any


def one_thread(*, user_api: str | None = None) -> Any:
    """Return a context in which BLAS and OpenMP use one thread.

    Concurrent tasks then start no threads of their own, and the order of sums does not depend on the machine.

    Parameters
    ----------
    user_api : {'blas', 'openmp'}, default=None
        The one to limit; both by default.
    """
    return _thread_pools(user_api == "blas").limit(limits=1, user_api=user_api)


@cache
def _thread_pools(only_blas: bool) -> Any:
    """Return the thread pools of this process, those of BLAS or all; finding them takes long."""
    if only_blas:
        import scipy.linalg  # noqa: F401
    else:
        import sklearn.cluster  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
