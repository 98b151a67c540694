"""Objects that fit did not see, by their labels or by features as by the labels that these get."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import FunctionTransformer

import bigcons as bc
from bigcons import METHODS, Consensus, Ensemble, errors
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError
from bigcons.methods.placing import open_placing, tables_of_generator
from bigcons.metrics import adjusted_rand, matching_accuracy
from tests.support.fits import quiet
from tests.support.strategies import label_matrices

# Methods that label an object by a function of its base labels alone, with options that change the function.
TABLES = {
    **{name: (name, {}) for name in ("mcla", "ccc", "ccu", "ccsvd", "cspa", "hbgf")},
    "hgpa": ("hgpa", {"objective": "laplacian"}),
    "cspa all": ("cspa", {"normalize": "all"}),
}
OF_PASSES = {
    **{name: (name, {}) for name in ("ivc", "ipvc", "qmi", "kcc", "kmeans", "pcc")},
    "ipc": ("ipc", {"normalize": "all"}),
}


@pytest.fixture(scope="module")
def halves():
    ensemble, truth = planted_ensemble(3000, 40, random_state=1)
    labels = ensemble.read(0, 3000)
    return labels[:2000], labels[2000:], truth[2000:]


@pytest.mark.parametrize("name", {**TABLES, **OF_PASSES})
def test_predict__finds_the_planted_classes_of_unseen_objects_and_takes_unseen_labels_for_missing(
    name, halves
):
    old, new, truth = halves
    method, parameters = {**TABLES, **OF_PASSES}[name]
    model = pickle.loads(pickle.dumps(quiet(METHODS[method](6, random_state=0, **parameters), old)))
    found = model.predict(new)
    assert found.dtype == np.int32
    assert matching_accuracy(truth, found) > (0.7 if name in ("kmeans", "ivc") else 0.85)
    if model.info.soft:
        memberships = model.predict_proba(new)
        assert memberships.dtype == np.float32
        assert (memberships >= 0).all()
        np.testing.assert_allclose(memberships.sum(axis=1), 1, atol=1e-5)
        np.testing.assert_array_equal(memberships.argmax(axis=1), found)
    strange, without = new.astype(np.int64), new.copy()
    strange[:, 0], without[:, 0] = 77, -1
    with pytest.warns(
        errors.SuspiciousLabelsWarning, match="1 of 40 partitions have labels that did not occur in f"
    ):
        np.testing.assert_array_equal(model.predict(strange), model.predict(without))


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=12)
@given(label_matrices(min_objects=3, max_partitions=4), st.integers(1, 3))
def test_predict__of_fitted_objects_is_their_labels(name, labels, n_clusters):
    method, parameters = TABLES[name]
    model = quiet(METHODS[method](n_clusters, random_state=0, **parameters), labels)
    np.testing.assert_array_equal(model.predict(labels), model.labels_)
    np.testing.assert_array_equal(model.predict(labels[::-1]), model.labels_[::-1])
    assert hasattr(model, "predict_proba") == model.info.soft
    if model.info.soft:
        np.testing.assert_array_equal(model.predict_proba(labels), model.memberships_)
    assert (model.predict(np.full((1, labels.shape[1]), -1)) == -1).all()


def test_predict__goes_from_store_to_store(halves, tmp_path):
    model = bc.PCC(6, random_state=0).fit(halves[0])
    Ensemble.from_labels(halves[1]).save(tmp_path / "new.zarr", chunk_rows=128)
    labels = model.predict(tmp_path / "new.zarr", out=tmp_path / "placed.zarr")
    np.testing.assert_array_equal(labels, model.predict(halves[1]))
    placed = Consensus.open(tmp_path / "placed.zarr")
    np.testing.assert_array_equal(placed.memberships, model.predict_proba(halves[1]))


def test_predict__refuses_partitions_in_another_order(halves):
    old, new, _ = halves
    model = bc.IVC(6, random_state=0).fit(pd.DataFrame(old).add_prefix("run"))
    turned = pd.DataFrame(new).add_prefix("run").iloc[:, ::-1]
    with pytest.raises(InvalidInputError, match=r"'run39' where 'run0' was fitted; give .* the same order"):
        model.predict(turned)
    np.testing.assert_array_equal(model.predict(turned.iloc[:, ::-1]), model.predict(new))


@pytest.mark.parametrize(
    ("model", "places"),
    [
        (bc.HGPA(3, random_state=0), False),
        (bc.HGPA(3, objective="laplacian", random_state=0), True),
        (bc.IPC(3, n_init=2, random_state=0), False),
        (bc.IPC(3, n_init=2, normalize="all", random_state=0), True),
        (bc.LabelKMeans(3, encode="coassoc", n_init=2, random_state=0), False),
    ],
    ids=repr,
)
def test_fitted_methods__that_cannot_place_new_objects_have_none_of_what_does(model, places, halves):
    names = ("predict", "predict_features", "score")
    assert all(hasattr(model, name) for name in names)  # another fit of it might
    quiet(model, halves[0][:60])
    assert [hasattr(model, name) for name in names] == 3 * [places]
    model = bc.ConsensusClustering(3, generator=FunctionTransformer(), consensus=model)
    names = ("predict", "score", "transform", "fit_transform")
    assert all(hasattr(model, name) for name in names)
    quiet(model, halves[0][:60])
    assert [hasattr(model, name) for name in names] == 4 * [places]
    assert not any(hasattr(bc.ConsensusClustering(consensus="eac"), name) for name in names)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=600)
    age = pa.array(30 + 20 * group + rng.normal(size=600), mask=rng.random(600) < 0.1)
    return pa.table({"who": [f"w{v}" for v in range(600)], "city": np.array(list("abc"))[group], "age": age})


@pytest.fixture(scope="module")
def ensemble(table):
    return bc.generate.kmeans(table, id="who", n_partitions=12, n_clusters=(3, 5), random_state=0)


@pytest.mark.parametrize("method", ["tree", "pcc", "ivc"])
def test_predict_features__is_predict_of_the_labels_by_features(table, ensemble, method):
    model = METHODS[method](3, random_state=0).fit(ensemble)
    new = table.slice(100, 200).select(["age", "who", "city"])
    placed = pickle.loads(pickle.dumps(model)).predict_features(new)
    labels = ensemble.generator.assign(new).labels
    np.testing.assert_array_equal(placed.labels, model.predict(labels))
    assert adjusted_rand(placed.labels, model.labels_[100:300]) > 0.98
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


def test_predict__names_predict_features_for_what_are_no_labels_of_a_generated_ensemble(table, ensemble):
    numbers = np.array(table["age"].fill_null(0.5))[:, None]
    model = bc.PCC(3, random_state=0).fit(ensemble)
    for features in (table, numbers, np.tile(numbers, 12), np.rint(numbers)):
        for call in (model.predict, model.predict_proba, model.score):
            with pytest.raises(InvalidInputError, match=r"Of features, call predict_features\(x\)\.$"):
                call(features)
    given = bc.PCC(3, random_state=0).fit(np.asarray(ensemble))
    with pytest.raises(InvalidInputError, match=r"n_partitions=1 but 12 were fitted; .* same order\.$"):
        given.predict(np.rint(numbers))


def test_fit__of_a_finished_store_predicts_as_before(table, ensemble, tmp_path):
    fit = partial(bc.ConsensusTree(3, random_state=0).fit, ensemble, out=tmp_path / "c.zarr")
    first = fit().predict_features(table)
    second = bc.ConsensusTree(3, random_state=0).fit(ensemble, out=tmp_path / "c.zarr")
    np.testing.assert_array_equal(second.predict_features(table).memberships, first.memberships)
    consensus = bc.Consensus.open(tmp_path / "c.zarr")
    assert consensus.verify()
    with pytest.raises(InvalidInputError, match="is of another ensemble than the one in memory"):
        bc.ConsensusTree()._take_placing(consensus, ensemble.select(ensemble.names[1:]))
    file = tmp_path / "c.zarr" / "placing.npz"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(errors.CorruptStoreError, match=r"placing.npz is damaged \(wrong checksum\)"):
        bc.Consensus.open(tmp_path / "c.zarr").verify()
    for _ in range(2):
        found = bc.HGPA(3, random_state=0).fit(ensemble, out=tmp_path / "i.zarr")
    with pytest.raises(AttributeError, match="no attribute 'predict_features'") as refused:
        found.predict_features(table)
    assert "stored without what predict needs" in str(refused.value.__cause__)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("tree", {"weights": True}), ("mixture", {"background": False}), ("bce", {"n_init": 2})),
        *(("qmi", {"weights": True}), ("kcc", {}), ("kmeans", {"encode": "integer"})),
        *(("ivc", {}), ("ipvc", {}), ("ipc", {"normalize": "all"}), ("mcla", {"weights": True})),
        *(("ccsvd", {}), ("hbgf", {"weights": True}), ("cspa", {})),
    ],
)
def test_place__of_a_stored_consensus_is_what_the_fitted_model_says(name, options, ensemble, table, tmp_path):
    if "weights" in options:
        options = {"weights": [0.0, *[2.0] * (ensemble.n_partitions - 1)]}
    ensemble.save(tmp_path / "e.zarr")
    stored = bc.Ensemble.open(tmp_path / "e.zarr")
    model = METHODS[name](2, random_state=0, **options).fit(stored, out=tmp_path / "c.zarr")
    expected, placing = model.predict_features(table), open_placing(str(tmp_path / "c.zarr"))
    place = placing._place_task(tables_of_generator(stored.generator, placing._recoding.values))
    labels, memberships = place(stored.generator.assign(table).labels)
    np.testing.assert_array_equal(labels, expected.labels)
    np.testing.assert_array_equal(memberships, expected.memberships)
