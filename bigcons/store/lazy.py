"""Stores for dask: arrays that are read block by block when they are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigcons.memory import Block


def dask_rows(
    read: Callable[[int, int], np.ndarray],
    blocks: Sequence[Block],
    row_shape: tuple[int, ...],
    dtype: np.dtype,
) -> Any:
    """Return the dask array of what ``read(start, stop)`` gives, one chunk per block of rows."""
    import dask.array
    from dask.delayed import delayed

    later = delayed(read, pure=True)
    chunks = [
        dask.array.from_delayed(later(block.start, block.stop), (block.n_rows, *row_shape), dtype)
        for block in blocks
    ]
    return dask.array.concatenate(chunks)
