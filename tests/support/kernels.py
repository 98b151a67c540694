"""Calls of functions that only kernels call."""

from collections.abc import Callable
from typing import Any

from bigcons.kernels._jit import jit


def compiled(leaf: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that calls a leaf, which Python itself would run as it is written."""

    @jit
    def call(*arguments):
        return leaf(*arguments)

    return call
