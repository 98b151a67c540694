"""The converter of stored rows to a dask array; dask is imported when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigcons.memory import Block


def as_dask_array(
    read: Callable[[int, int], np.ndarray], blocks: list[Block], n_columns: int, dtype: np.dtype
) -> Any:
    """Return a dask array (rows, n_columns) that reads one block a chunk, when it is computed."""
    import dask
    import dask.array

    reader = dask.delayed(read)
    chunks = [
        dask.array.from_delayed(reader(block.start, block.stop), (block.n_rows, n_columns), dtype)
        for block in blocks
    ]
    return dask.array.concatenate(chunks)
