"""Random draws that are the same for any number of workers.

A draw depends only on the seed, the name of its stream, and the index of its block (partition, restart, ...),
never on which worker makes it or when.
"""

from __future__ import annotations

import zlib

import numpy as np

from bigcons.errors import InvalidInputError

SEGMENT_ROWS = 4096
"""Rows that share one generator, where every row has draws of its own."""

SeedLike = int | np.integer | np.random.Generator | np.random.RandomState | None


def generator(seed: int, stream: str, *index: int) -> np.random.Generator:
    """Return the generator of ``stream`` at ``index`` for ``seed``.

    Different streams, and different indices of one stream, are independent.
    """
    key = (zlib.crc32(stream.encode()), *index)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy=seed, spawn_key=key)))


def draw_rows(n_objects: int, n_rows: int, seed: int, stream: str) -> np.ndarray:
    """Return ``n_rows`` of ``n_objects`` rows, drawn without replacement, ascending; at most all."""
    if n_rows >= n_objects:
        return np.arange(n_objects)
    return np.sort(generator(seed, stream).choice(n_objects, n_rows, replace=False, shuffle=False))


def resolve_seed(random_state: SeedLike) -> int:
    """Turn a scikit-learn style ``random_state`` into one integer seed.

    None draws from numpy's global state, which is fresh entropy unless ``np.random.seed`` has set it, as in
    scikit-learn; a generator is advanced by one draw.
    """
    if random_state is None:
        high, low = np.random.randint(1 << 32, size=2, dtype=np.uint32)  # noqa: NPY002
        return int(high) << 32 | int(low)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if random_state < 0:
            raise InvalidInputError(
                f"random_state={random_state} is negative; use an integer >= 0 or None.",
                parameter="random_state",
            )
        return int(random_state)
    raise InvalidInputError(
        f"random_state has type {type(random_state).__name__}; use an integer >= 0, a generator or None.",
        parameter="random_state",
    )
