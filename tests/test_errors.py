"""Errors carry their facts as attributes, here and in other processes."""

import inspect
import pickle
from pathlib import Path

import pytest

import bigcons
from bigcons import errors
from bigcons.errors import (
    BigconsError,
    CorruptStoreError,
    EmptyPartitionError,
    InvalidIdsError,
    InvalidInputError,
    MemoryBudgetError,
    MissingDependencyError,
    StoreError,
    StoreExistsError,
    StoreLockedError,
    StoreNotFoundError,
    UnknownColumnError,
)

EXAMPLES = [
    InvalidInputError("n=0 is out of range.", parameter="n"),
    EmptyPartitionError("p3"),
    UnknownColumnError("x.csv", "whoo", ["who", "a"]),
    UnknownColumnError("x.npy", 7, None, 3),
    InvalidIdsError("row 3 has no who.", column="who", row=3),
    MemoryBudgetError("too much.", needed=1_500.5, budget=1_000),
    MissingDependencyError("no figures.", extra="plot"),
    *(
        kind("trouble.", path="/data/a.zarr")
        for kind in (StoreError, StoreExistsError, StoreNotFoundError, StoreLockedError, CorruptStoreError)
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


def test_errors__have_one_base_class():
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)]
    assert all(issubclass(cls, (BigconsError, UserWarning)) for cls in classes)


def test_errors__without_facts_have_a_message_only():
    assert str(StoreNotFoundError("a.zarr does not exist.")) == "a.zarr does not exist."
    assert StoreNotFoundError("a.zarr does not exist.").path is None
    assert MemoryBudgetError("too much.").needed is None


def test_errors__state_paths_as_text_and_sizes_as_whole_bytes():
    assert StoreExistsError("exists.", path=Path("a") / "b").path == str(Path("a") / "b")
    error = MemoryBudgetError("too much.", needed=1_500.5, budget=1_000.0)
    assert (error.needed, error.budget) == (1_501, 1_000)


def test_memory_budget__states_more_than_there_is():
    with pytest.raises(MemoryBudgetError) as refusal:
        bigcons.coassociation.dense([[0, 1], [1, 1], [0, 0]], memory="60 B")
    assert (refusal.value.needed, refusal.value.budget) == (72, 60)
