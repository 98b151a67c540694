"""The same random draws for any number of workers.

A draw depends on the seed, on the name of the stream that wants it and on the index of
the block (partition, restart, ...) it is for, never on who makes it or when.
"""

from __future__ import annotations

import zlib

import numpy as np

from bigcons.errors import InvalidInputError

SeedLike = int | np.integer | np.random.Generator | np.random.RandomState | None


def generator(seed: int, stream: str, *index: int) -> np.random.Generator:
    """Return the generator of ``stream`` at ``index`` under ``seed``.

    Streams of different names, and indices of one stream, are independent.
    """
    key = (zlib.crc32(stream.encode()), *index)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy=seed, spawn_key=key)))


def resolve_seed(random_state: SeedLike) -> int:
    """Turn a scikit-learn style ``random_state`` into one integer seed.

    None takes fresh entropy; a generator is advanced by one draw.
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(2, np.uint64)[0])
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if random_state < 0:
            raise InvalidInputError(f"random_state={random_state} is negative; use an integer >= 0 or None.")
        return int(random_state)
    raise InvalidInputError(
        f"random_state has type {type(random_state).__name__}; use an integer >= 0, a generator or None."
    )
