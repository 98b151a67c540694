"""Calls of functions that only kernels call."""

from bigcons.kernels._jit import jit


def compiled(leaf):
    """Return a kernel that calls a leaf, which Python itself would run as it is written."""

    @jit
    def call(*arguments):
        return leaf(*arguments)

    return call
