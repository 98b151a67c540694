"""The C allocator of a Dask worker, told to keep what one block frees for the next."""

from __future__ import annotations

import ctypes
import os
from functools import cache

DASK_TRIM_THRESHOLD = "65536"
"""What Dask's nanny sets ``MALLOC_TRIM_THRESHOLD_`` to in the workers it starts."""

KEPT_BYTES = 64 << 20
LARGEST_KEPT = 32 << 20  # the most that glibc allows

# of malloc.h
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3


@cache
def keep_freed_memory() -> None:
    """Let glibc keep up to ``KEPT_BYTES`` of freed memory, where Dask's own setting forbids it.

    By that setting every buffer of a block goes back to the system and is mapped again, page by page, for the
    next block, which doubles the time of reading one. A threshold that somebody chose stays, and so
    does every other allocator than glibc's. Of a process once and for all; later calls cost nothing.
    """
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") != DASK_TRIM_THRESHOLD:
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
