"""Seeds: the same draws for one seed, stream and index, and no others."""

import numpy as np
import pytest

from bigcons.errors import InvalidInputError
from bigcons.seeding import generator, resolve_seed


def draws(seed, stream, *index):
    return generator(seed, stream, *index).integers(2**62, size=4).tolist()


def test_generator__differs_by_seed_stream_and_index():
    keys = [
        (seed, stream, *index)
        for seed in range(5)
        for stream in ("a", "b", "ab")
        for index in [(), (0,), (1,), (0, 0), (0, 1), (1, 0)]
    ]
    assert len({tuple(draws(*key)) for key in keys}) == len(keys)


@pytest.mark.parametrize("seed", [0, 7, np.int64(7), 2**70])
def test_resolve_seed__keeps_whole_numbers(seed):
    assert resolve_seed(seed) == seed
    assert type(resolve_seed(seed)) is int


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_resolve_seed__advances_a_generator(make):
    one, same = make(3), make(3)
    first, second = resolve_seed(one), resolve_seed(one)
    assert first != second
    assert [first, second] == [resolve_seed(same), resolve_seed(same)]
    assert first >= 0


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        *((seed, r"random_state=-\d is negative; use an integer >= 0") for seed in (-1, np.int64(-3))),
        *((seed, "random_state has type") for seed in (1.0, "1", True, [1], np.array([1]))),
    ],
)
def test_resolve_seed__refuses_the_rest(seed, message):
    with pytest.raises(InvalidInputError, match=message):
        resolve_seed(seed)
