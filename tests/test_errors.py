"""Errors carry their facts as attributes, here and in other processes."""

import pickle
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import bigcons
from bigcons import errors
from bigcons.errors import nearest, warn_user

EXAMPLES = [
    errors.InvalidInputError("n=0 is out of range.", parameter="n"),
    errors.EmptyPartitionError("p3"),
    errors.UnknownColumnError("x.csv", "whoo", ["who", "a"]),
    errors.UnknownColumnError("x.npy", 7, None, 3),
    errors.UnknownMethodError("hbfg", ["hbgf"], "hbgf"),
    errors.UnknownMethodError(Path, ["hbgf"], None),
    errors.InvalidIdsError("row 3 has no who.", column="who", row=3),
    errors.MemoryBudgetError("too much.", needed=1_500.5, budget=1_000),
    errors.MissingDependencyError("no figures.", extra="plot"),
    *(
        kind("trouble.", path="/data/a.zarr")
        for kind in (errors.StoreError, *errors.StoreError.__subclasses__())
    ),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors__survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert any(value is not None for value in vars(copy).values())
    assert type(error).__new__(type(error))  # which is how tblib, for Dask, makes the copy


def test_errors__state_paths_as_text_and_sizes_as_whole_bytes():
    assert errors.StoreExistsError("exists.", path=Path("a") / "b").path == str(Path("a") / "b")
    error = errors.MemoryBudgetError("too much.", needed=1_500.5, budget=1_000.0)
    assert (error.needed, error.budget) == (1_501, 1_000)
    assert errors.StoreNotFoundError("gone.").path is None


def test_memory_budget__states_more_than_there_is():
    with pytest.raises(errors.MemoryBudgetError) as refusal:
        bigcons.coassociation.dense([[0, 1], [1, 1], [0, 0]], memory="60 B")
    assert (refusal.value.needed, refusal.value.budget) == (72, 60)


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("leiden_1.0", ["leiden_10", "leiden_1.0_0", "leiden_1.00_10"], "leiden_1.0_0"),
        ("Leiden", ["lieden", "leiden_0.5"], "leiden_0.5"),
        ("eac-singel", ["eac", "eac-single"], "eac-single"),
        ("seed", ["random_state", "seeds"], "random_state"),
        ("xyzzy", ["eac"], None),
    ],
)
def test_nearest__begins_so_if_possible(word, known, meant):
    assert nearest(word, known) == meant


def test_warn_user__points_at_the_caller_outside_the_standard_library():
    @contextmanager
    def warns():
        warn_user("look here.", UserWarning)
        yield

    calls = {"contextlib": warns().__enter__, "functools": partial(warn_user, "look here.", UserWarning)}
    for call in calls.values():
        with pytest.warns(UserWarning, match="look here") as caught:
            call()
        assert caught[0].filename == __file__
