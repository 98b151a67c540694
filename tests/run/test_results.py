"""Results: clusters numbered largest first, held in memory or written to a store, with the same bits."""

import operator
import pickle
import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from bigcons import METHODS, Consensus
from bigcons.datasets import planted_ensemble
from bigcons.disk.schema import CLUSTER_COLUMNS, PARTITION_COLUMNS, TRUST
from bigcons.errors import CorruptStoreError
from bigcons.memory import RowSet, row_blocks
from bigcons.run.engine import SerialEngine
from bigcons.run.results import BlockResult, Results, renumbered
from bigcons.store.clusters import TRUST_ROW, arrow_table
from bigcons.trust.placement import trust_rows
from tests.naive.table_methods import majority
from tests.support.engines import RepeatedTasks
from tests.support.numbering import numbered_by_size, order_by_size

CHUNK = 4


def results_of(read, n_objects, n_clusters, unlabeled, engine=None):
    """Return results of rows that are read from an array: memberships or, if it has one axis, labels."""
    blocks = row_blocks(n_objects, CHUNK)
    ensemble = SimpleNamespace(n_objects=n_objects, blocks=lambda: blocks)

    def found(block):
        part, trust = read[block.start : block.stop], None
        if read.ndim == 2:
            seconds = np.argsort(part, axis=1)[:, 0]
            factor = np.ones(n_clusters, np.float32)
            trust = trust_rows(part.argmax(axis=1), part.max(axis=1), seconds, part.min(axis=1), factor)
        return BlockResult(part, trust, [block.index])

    bits = [np.isin(np.arange(block.start, block.stop), unlabeled) for block in blocks]
    unlabeled = RowSet(
        (block, np.packbits(rows)) for block, rows in zip(blocks, bits, strict=True) if rows.any()
    )
    return Results(
        *(ensemble, unlabeled, n_clusters, read.ndim == 2, found, engine or SerialEngine()),
        np.random.default_rng(n_objects).permutation(n_clusters) if read.ndim == 2 else np.arange(n_clusters),
        has_trust=read.ndim == 2,
        add=operator.iadd,
    )


def stored(results, path):
    with Consensus.create(
        path,
        n_objects=results.ensemble.n_objects,
        n_clusters=results.n_clusters,
        chunk_rows=CHUNK,
        memberships=results.soft,
        overwrite=True,
    ) as writer:
        results.write(writer)
        if results.has_trust:
            of_clusters = arrow_table(CLUSTER_COLUMNS, {name: [] for name in CLUSTER_COLUMNS})
            writer.describe_trust(
                of_clusters, arrow_table(PARTITION_COLUMNS, {name: [] for name in PARTITION_COLUMNS}), 1.0
            )
    found = Consensus.open(path)
    if not results.soft:
        return found.labels, None, None
    trust = np.empty(found.n_objects, TRUST_ROW)
    for name in TRUST_ROW.names:
        trust[name] = getattr(found.trust, name)
    return found.labels, found.memberships, trust


@given(st.data(), st.integers(1, 14), st.integers(1, 5))
def test_memberships__are_in_columns_of_falling_size(tmp_path_factory, data, n_objects, n_clusters):
    """Few values, so that many objects have several largest memberships."""
    seed = data.draw(st.integers(0, 999))
    rng = np.random.default_rng(seed)
    given_rows = rng.choice([0.0, 0.25, 0.5], (n_objects, n_clusters)).astype(np.float32)
    unlabeled = np.flatnonzero(rng.random(n_objects) < 0.2)
    held = results_of(given_rows, n_objects, n_clusters, unlabeled)
    labels, rows, trust = held.hold()
    labeled = np.setdiff1d(np.arange(n_objects), unlabeled)
    np.testing.assert_array_equal(rows[labeled], given_rows[labeled][:, held.order])
    np.testing.assert_array_equal(rows[unlabeled], np.float32(1 / n_clusters))
    np.testing.assert_array_equal(labels[labeled], rows[labeled].argmax(axis=1))
    np.testing.assert_array_equal(labels[unlabeled], -1)
    sizes = np.bincount(labels[labeled], minlength=n_clusters)
    assert held.sizes.tolist() == sizes.tolist() == sorted(sizes, reverse=True)
    np.testing.assert_array_equal(held.order[trust["second_labels"]], given_rows.argsort(axis=1)[:, 0])
    np.testing.assert_array_equal(trust["confidence"], given_rows.max(axis=1))
    assert held.total == list(range(-(-n_objects // CHUNK)))
    written = results_of(given_rows, n_objects, n_clusters, unlabeled, RepeatedTasks())
    found, memberships, of_store = stored(written, tmp_path_factory.getbasetemp() / "results.zarr")
    np.testing.assert_array_equal(found, labels)
    np.testing.assert_array_equal(memberships, rows)
    np.testing.assert_array_equal(written.order, held.order)
    np.testing.assert_array_equal(written.sizes, held.sizes)
    np.testing.assert_array_equal(of_store, trust)
    assert written.total == list(range(-(-n_objects // CHUNK)))


@given(st.lists(st.sampled_from([-1, 0, 2, 3, 6]), min_size=1, max_size=14))
def test_labels__are_numbered_by_falling_size(tmp_path_factory, given_labels):
    given_labels = np.array(given_labels, np.int64)
    unlabeled = np.flatnonzero(given_labels < 0)
    held = results_of(given_labels, len(given_labels), 8, unlabeled)
    labels, rows, trust = held.hold()
    assert rows is trust is None
    np.testing.assert_array_equal(labels, numbered_by_size(given_labels))
    np.testing.assert_array_equal(held.order, order_by_size(given_labels, 8))
    written = results_of(given_labels, len(given_labels), 8, unlabeled, RepeatedTasks())
    found, _, _ = stored(written, tmp_path_factory.getbasetemp() / "results.zarr")
    np.testing.assert_array_equal(found, labels)
    assert written.total == list(range(-(-len(given_labels) // CHUNK)))
    np.testing.assert_array_equal(renumbered(given_labels, held.order), labels)


@pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning")
@pytest.mark.parametrize("name", ["pcc", "bce", "mixture", "mcla", "ccc", "hbgf", "ivc", "kmeans"])
def test_fit__numbers_surplus_clusters_last_and_predicts_the_same_numbers(name, tmp_path):
    ensemble, _ = planted_ensemble(400, 20, n_clusters=(3, 6), shares=(0.2, 0.5, 0.3), random_state=2)
    few = {"n_init": 2} if name in ("pcc", "bce", "mixture") else {}
    model = METHODS[name](5, random_state=1, **few).fit(ensemble)
    sizes = np.bincount(model.labels_)
    assert sizes.tolist() == sorted(sizes, reverse=True)
    assert (sizes > 0).all()
    assert model.n_clusters_ == sizes.size
    predicted = model.predict(ensemble)
    agreed = predicted == model.labels_
    if name == "ivc":  # of equal votes, objects keep their cluster in a fit; new ones join the first
        labels = ensemble.read(0, 400)
        members = [labels[model.labels_ == k].tolist() for k in range(sizes.size)]
        centers = np.array([[majority(of, u) for u in range(20)] for of in members])
        costs = ((labels != centers[:, None]) & (labels >= 0)).sum(axis=2)
        is_nearest = costs == costs.min(axis=0)
        assert is_nearest[predicted, np.arange(400)].all()
        agreed = agreed[is_nearest.sum(axis=0) == 1]
        assert agreed.size > 300
    # PCC and BCE update objects in turn
    assert agreed.mean() >= {"pcc": 0.98, "bce": 0.98}.get(name, 1.0)
    model.predict(ensemble.read(0, 100), out=tmp_path / "new.zarr")
    found = Consensus.open(tmp_path / "new.zarr")
    np.testing.assert_array_equal(found.labels, model.predict(ensemble.read(0, 100)))
    if model.info.soft:
        np.testing.assert_array_equal(found.memberships, model.predict_proba(ensemble.read(0, 100)))


@pytest.mark.parametrize("name", ["tree", "kmeans"])
@pytest.mark.parametrize("is_found", [False, True])
def test_labels__of_a_store_are_read_when_first_asked_for(name, is_found, tmp_path):
    ensemble, _ = planted_ensemble(90, 12, random_state=0)
    held = METHODS[name](3, random_state=0).fit(ensemble)
    for _ in range(1 + is_found):  # the second time it finds the result of the first
        model = METHODS[name](3, random_state=0).fit(ensemble, out=tmp_path / "c.zarr")
    early = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(early.labels_, held.labels_)
    shutil.rmtree(tmp_path / "c.zarr" / "labels")
    check_is_fitted(model)
    assert model.n_clusters_ == held.n_clusters_
    np.testing.assert_array_equal(model.predict(ensemble), held.predict(ensemble))
    with pytest.raises(CorruptStoreError, match="is missing"):
        _ = model.labels_
    assert early.labels_ is early.labels_
    with pytest.raises(NotFittedError):
        check_is_fitted(clone(model))
    assert not hasattr(clone(model), "labels_")
    model.fit(ensemble, out=tmp_path / "c.zarr", overwrite=True)
    np.testing.assert_array_equal(model.labels_, held.labels_)
    np.testing.assert_array_equal(model.fit(ensemble.read(0, 60)).labels_.shape, [60])


@pytest.mark.parametrize(
    ("ids", "id", "columns"),
    [
        (pd.Index([f"o{i}" for i in range(80)], name="who"), "index", ["label"]),
        (pd.Series(np.arange(80, dtype=np.int32) + 900, name="who"), "who", ["who", "label"]),
        (pd.Series([f"o{i}" for i in range(80)], name="label"), "label", ["id", "label"]),
        (None, None, ["label"]),
    ],
)
def test_data_frame__of_a_model_is_that_of_its_store(ids, id, columns, tmp_path):
    frame = pd.DataFrame(np.asarray(planted_ensemble(80, 12, random_state=0)[0])).rename(columns=str)
    if isinstance(ids, pd.Index):
        frame = frame.set_axis(ids)
    elif ids is not None:
        frame = frame.assign(**{ids.name: ids})
    held = METHODS["tree"](3, random_state=0).fit(frame, id=id)
    written = METHODS["tree"](3, random_state=0).fit(frame, id=id, out=tmp_path / "c.zarr")
    for memberships in (False, True):
        stored = Consensus.open(tmp_path / "c.zarr").to_pandas(memberships=memberships)
        for model in (held, written):
            pd.testing.assert_frame_equal(model.to_pandas(memberships=memberships), stored)
    assert [name for name in held.to_pandas() if name not in TRUST] == columns
    if ids is not None:
        assert (stored.index if id == "index" else stored[columns[0]]).tolist() == ids.tolist()
