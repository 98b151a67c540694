"""Some partitions and some objects of an ensemble: its items, select and drop, and its data frame."""

import numpy as np
import pandas as pd
import pytest

import bigcons as bc
from bigcons import Ensemble
from bigcons.errors import EmptyPartitionError, InvalidInputError, SuspiciousLabelsWarning

NAMES = list("abcd")
IDS = [f"id{i}" for i in range(30)]
VALUES = np.random.default_rng(0).choice([-1, 3, 5, 8], (30, 4), p=[0.1, 0.3, 0.3, 0.3])


@pytest.fixture(params=["in memory", "stored"])
def ensemble(request, tmp_path):
    frame = pd.DataFrame(VALUES, columns=NAMES, index=IDS)
    made = Ensemble.from_labels(frame, id="index")
    return made if request.param == "in memory" else made.save(tmp_path / "e.zarr", chunk_rows=8)


def values_of(ensemble):
    """The original values of the labels, -1 where missing."""
    return ensemble.to_pandas().to_numpy(float, na_value=-1).astype(int)


@pytest.mark.parametrize("key", ["c", ["c", "a"]])
def test_item__of_names_is_these_partitions(ensemble, key):
    found = ensemble[key]
    assert found.names == list(key)
    np.testing.assert_array_equal(values_of(found), VALUES[:, [NAMES.index(name) for name in key]])
    assert found.ids.tolist() == IDS


@pytest.mark.parametrize(
    "key", [slice(3, 20), slice(None, None, 4), slice(None, None, -1), np.arange(30) % 3 == 0, [29, 0, 12, 7]]
)
def test_item__of_objects_is_these_objects(ensemble, key):
    found = ensemble[key]
    rows = np.arange(30)[key]
    np.testing.assert_array_equal(values_of(found), VALUES[rows])
    assert found.ids.tolist() == [IDS[row] for row in rows]
    assert (found.n_labeled == (VALUES[rows] >= 0).sum(axis=0)).all()
    np.testing.assert_array_equal(values_of(ensemble[key, ...]), VALUES[rows])


def test_item__of_objects_can_be_saved(ensemble, tmp_path):
    part = ensemble[:4].save(tmp_path / "part.zarr")
    np.testing.assert_array_equal(values_of(part), VALUES[:4])
    assert part.verify()["ok"]


def test_item__of_soft_clusterings_keeps_clusters():
    memberships = [np.eye(4), np.full((4, 2), 0.5)]
    memberships[1][:2] = 0
    ensemble = Ensemble.from_memberships(memberships, names=["a", "b"])
    found = ensemble[[3, 0]]
    np.testing.assert_array_equal(np.asarray(found), np.asarray(ensemble)[[3, 0]])
    assert found.n_labeled.tolist() == [2, 1]
    with pytest.warns(
        SuspiciousLabelsWarning, match="1 of 2 partitions label none of the 2 objects, such as 'b'"
    ):
        found = ensemble[:2]
    assert found.names == ["a"]
    np.testing.assert_array_equal(np.asarray(found), np.eye(4)[:2])


def test_item__of_objects_leaves_out_partitions_without_labels():
    ensemble = Ensemble.from_labels([[0, -1, 1], [1, -1, 0], [1, 2, -1], [-1, 3, -1]], names=["a", "b", "c"])
    with pytest.warns(SuspiciousLabelsWarning, match="'b'"):
        found = ensemble[[0, 1]]
    assert found.names == ["a", "c"]
    np.testing.assert_array_equal(values_of(found), [[0, 1], [1, 0]])
    with pytest.raises(EmptyPartitionError):
        ensemble.select(["a"])[[3]]
    with pytest.raises(InvalidInputError, match="no object is selected"):
        ensemble[2:2]


def test_item__of_objects_keeps_the_generator():
    features = np.random.default_rng(0).normal(size=(300, 2)) + 6 * (np.arange(300) % 3)[:, None]
    ensemble = bc.generate.kmeans(features, n_partitions=4, n_clusters=3, sample=1.0, random_state=0)
    some = ensemble.select([3, 1])[np.arange(300) % 3 > 0]
    assert some.generator.names == [ensemble.names[3], ensemble.names[1]]
    model = bc.ConsensusTree(2).fit(some)
    placed = model.predict_features(features)
    np.testing.assert_array_equal(placed.labels[np.arange(300) % 3 > 0], model.labels_)


@pytest.mark.parametrize("key", [3, 2.5, [0.5], [30], (slice(None), "a", 1)])
def test_item__refuses_anything_else(ensemble, key):
    with pytest.raises(InvalidInputError, match="has no item"):
        ensemble[key]
    with pytest.raises(TypeError):
        iter(ensemble)
