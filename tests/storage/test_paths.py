"""What is no path is refused in one line, at every door that takes one."""

import os
from pathlib import Path

import numpy as np
import pytest

from bigcons import METHODS, PCC, Consensus, Ensemble, PairTable, generate
from bigcons.coassociation import sample
from bigcons.errors import InvalidInputError
from bigcons.validation import check_path

LABELS = np.random.default_rng(0).integers(0, 3, (40, 5))
NO_PATHS = [5, 3.5, b"labels.zarr", "", "a\0b", ["labels.zarr"], np.zeros((40, 5))]


class BytesPath(os.PathLike):
    def __fspath__(self):
        return b"labels.zarr"


def a_table():
    return PairTable.from_arrays([0, 1], [1, 2], [1, 0], [1, 1], n_objects=3)


DOORS = {
    "Ensemble.open": Ensemble.open,
    "Ensemble.save": lambda path: Ensemble.from_labels(LABELS).save(path),
    "Consensus.open": Consensus.open,
    "PairTable.open": PairTable.open,
    "PairTable.save": lambda path: a_table().save(path),
    "PairTable.from_parquet": PairTable.from_parquet,
    "PairTable.to_parquet": lambda path: a_table().to_parquet(path),
}
OUTPUTS = {
    "fit": lambda path: PCC(3).fit(LABELS, out=path),
    "fit of a method by passes": lambda path: METHODS["mixture"](n_clusters=3).fit(LABELS, out=path),
    "fit of a method in memory": lambda path: METHODS["eac-single"](n_clusters=3).fit(LABELS, out=path),
    "PCC(out=)": lambda path: PCC(3, out=path).fit(LABELS),
    "sample": lambda path: sample(LABELS, n_pairs=10, out=path),
    "generate": lambda path: generate.kmeans(LABELS * 1.0, n_partitions=2, n_clusters=3, out=path),
}


def refused(door, value):
    with pytest.raises(
        InvalidInputError, match=r"is not a valid path; pass a local path or a URL such as s3:"
    ) as got:
        door(value)
    assert "\n" not in str(got.value)


@pytest.mark.parametrize("path", ["a.zarr", "s3://bucket/a.zarr", Path("folder") / "a.zarr"])
def test_check_path__lets_text_and_paths_through(path):
    assert check_path(path) == str(path)


@pytest.mark.parametrize("value", [None, *NO_PATHS, BytesPath()])
def test_check_path__refuses_what_is_neither(value):
    refused(check_path, value)


@pytest.mark.parametrize("value", [None, 5, ""])
@pytest.mark.parametrize("door", DOORS)
def test_open_and_save__refuse_what_is_no_path(door, value):
    refused(DOORS[door], value)


@pytest.mark.parametrize("value", [5, ""])
@pytest.mark.parametrize("door", OUTPUTS)
def test_out__refuses_what_is_no_path(door, value):
    refused(OUTPUTS[door], value)
