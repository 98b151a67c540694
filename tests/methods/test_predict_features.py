"""New objects placed by their features, as by the base labels that they get."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

import bigcons as bc
from bigcons.errors import (
    CorruptStoreError,
    InvalidInputError,
    SuspiciousFeaturesWarning,
)
from bigcons.methods.placing import open_placing, tables_of_generator

N = 600


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=N)
    age = pa.array(30 + 20 * group + rng.normal(size=N), mask=rng.random(N) < 0.1)
    return pa.table({"who": [f"w{v}" for v in range(N)], "city": np.array(list("abc"))[group], "age": age})


@pytest.fixture(scope="module")
def ensemble(table):
    return bc.generate.kmeans(table, id="who", n_partitions=12, n_clusters=(3, 5), random_state=0)


@pytest.mark.parametrize("method", ["tree", "pcc", "ivc"])
def test_predict_features__is_predict_of_the_labels_by_features(table, ensemble, method):
    model = bc.METHODS[method](3, random_state=0).fit(ensemble)
    new = table.slice(100, 200).select(["age", "who", "city"])
    placed = pickle.loads(pickle.dumps(model)).predict_features(new)
    labels = ensemble.generator.assign(new).labels
    np.testing.assert_array_equal(placed.labels, model.predict(labels))
    assert bc.metrics.adjusted_rand(placed.labels, model.labels_[100:300]) > 0.98
    assert placed.far_share < 0.05
    assert placed.ids.hold().values.to_pylist() == new["who"].to_pylist()
    if method == "ivc":
        assert placed.memberships is None
        assert placed.to_arrow().column_names == ["who", "label", "is_far"]
        return
    np.testing.assert_array_equal(placed.memberships, model.predict_proba(labels))
    support = model.trust_.clusters["support"].to_numpy(zero_copy_only=False).astype(np.float32)
    supported = np.where(np.isnan(support), np.float32(1), support)[placed.labels]
    np.testing.assert_array_equal(placed.confidence, placed.memberships.max(axis=1) * supported)
    assert placed.to_arrow().column_names == ["who", "label", "confidence", "is_far"]


@pytest.fixture(scope="module")
def placers(table, ensemble):
    """Return what places new rows of the table, from Python."""
    model = bc.ConsensusTree(3, random_state=0).fit(ensemble)
    both = bc.ConsensusClustering(3, random_state=0).fit(table.drop("who").to_pandas())
    return {
        "predict_features": lambda new: model.predict_features(new).labels,
        "assign": lambda new: ensemble.generator.assign(new).labels,
        "predict": both.predict,
        "transform": both.generator_.transform,
    }


PLACERS = ["predict_features", "assign", "predict", "transform"]


@pytest.mark.parametrize("place", PLACERS)
def test_new_rows__with_text_that_did_not_occur_are_named(place, placers, table):
    new = table.drop("who").to_pandas()[:50]
    others = new.assign(city=["Lima", " Lima ", *new["city"][2:]])
    with pytest.warns(SuspiciousFeaturesWarning, match=r"did not occur .*: 'city' in 2 rows; ") as caught:
        found = placers[place](others)
    assert [warning.filename for warning in caught] == [__file__]
    np.testing.assert_array_equal(found[2:], placers[place](new)[2:])
    assert found.min() >= 0


def test_predict__names_predict_features_for_what_are_no_labels_of_a_generated_ensemble(table, ensemble):
    numbers = np.array(table["age"].fill_null(0.5))[:, None]
    model = bc.PCC(3, random_state=0).fit(ensemble)
    for features in (table, table.select(["city", "age"]), numbers, np.tile(numbers, 12), np.rint(numbers)):
        for call in (model.predict, model.predict_proba, model.score):
            with pytest.raises(InvalidInputError, match=r"Of features, call predict_features\(x\)\.$"):
                call(features)
    given = bc.PCC(3, random_state=0).fit(np.asarray(ensemble))
    with pytest.raises(InvalidInputError, match=r"n_partitions=1 but 12 were fitted; .* same order\.$"):
        given.predict(np.rint(numbers))


def test_predict_features__of_an_ensemble_with_other_partitions_uses_the_generated_ones(table, ensemble):
    more = bc.Ensemble.from_labels(np.asarray(ensemble))
    with pytest.raises(InvalidInputError, match="was not generated from features"):
        bc.ConsensusTree(3).fit(more).predict_features(table)
    held = ensemble.select(ensemble.names)
    held.append_partitions(np.array(table["city"].to_pylist()), names=["mine"])
    model = bc.ConsensusTree(3, random_state=0).fit(held)
    labels = np.where(np.arange(13) < 12, held.generator.assign(table).labels, -1)
    np.testing.assert_array_equal(
        model.predict_features(table).labels, model.predict(np.where(labels < 0, None, labels).astype(object))
    )


def test_fit__of_a_finished_store_predicts_as_before(table, ensemble, tmp_path):
    first = bc.ConsensusTree(3, random_state=0).fit(ensemble, out=tmp_path / "c.zarr")
    second = bc.ConsensusTree(3, random_state=0).fit(ensemble, out=tmp_path / "c.zarr")
    expected = first.predict_features(table)
    np.testing.assert_array_equal(second.predict_features(table).memberships, expected.memberships)
    np.testing.assert_array_equal(second.predict(ensemble), first.predict(ensemble))
    consensus = bc.Consensus.open(tmp_path / "c.zarr")
    assert consensus.verify()
    with pytest.raises(InvalidInputError, match="is of another ensemble than the one in memory"):
        bc.ConsensusTree().take_placing(consensus, ensemble.select(ensemble.names[1:]))
    file = tmp_path / "c.zarr" / "placing.npz"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptStoreError, match=r"placing.npz is damaged \(wrong checksum\)"):
        bc.Consensus.open(tmp_path / "c.zarr").verify()
    bc.HGPA(3, random_state=0).fit(ensemble, out=tmp_path / "i.zarr")
    found = bc.HGPA(3, random_state=0).fit(ensemble, out=tmp_path / "i.zarr")
    with pytest.raises(InvalidInputError, match="does not store what predict needs"):
        found.predict_features(table)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("tree", {"weights": True}), ("mixture", {"background": False}), ("bce", {})),
        *(("qmi", {"weights": True}), ("kcc", {"utility": "uc"}), ("kmeans", {"encode": "integer"})),
        *(("ivc", {}), ("ipvc", {}), ("ipc", {"normalize": "all"})),
        *(("mcla", {"weights": True}), ("ccsvd", {})),
        *(("hbgf", {"weights": True}), ("cspa", {})),
    ],
)
def test_place__of_a_stored_consensus_is_what_the_fitted_model_says(name, options, ensemble, table, tmp_path):
    if "weights" in options:
        options = {"weights": [0.0, *[2.0] * (ensemble.n_partitions - 1)]}
    ensemble.save(tmp_path / "e.zarr")
    stored = bc.Ensemble.open(tmp_path / "e.zarr")
    model = bc.METHODS[name](2, random_state=0, **options).fit(stored, out=tmp_path / "c.zarr")
    expected, placing = model.predict_features(table), open_placing(str(tmp_path / "c.zarr"))
    place = placing._place_task(tables_of_generator(stored.generator, placing._recoding.values))
    labels, memberships = place(stored.generator.assign(table).labels)
    np.testing.assert_array_equal(labels, expected.labels)
    np.testing.assert_array_equal(memberships, expected.memberships)
