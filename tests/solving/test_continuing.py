"""Solves that start from the clusters of an earlier consensus: ``fit(start=)`` and ``partial_fit``."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bigcons import METHODS, Consensus, ConsensusTree, Ensemble, match
from bigcons.cli import main
from bigcons.datasets import planted_ensemble
from bigcons.errors import InvalidInputError, StoreExistsError

CONTINUE = sorted(
    name for name, method in METHODS.items() if hasattr(method, "partial_fit") and name != "ipc"
)
ENSEMBLE, TRUTH = planted_ensemble(
    600, 20, shares=[1 / 6] * 6, n_clusters=(5, 9), missing=0.2, random_state=0
)
EARLIER = np.where(np.arange(500) % 50, TRUTH[:500], -1)  # of the first objects, and not of all of them
NUMBERS = np.array([3, 1, 5, 0, 2, 4])


@pytest.mark.parametrize("name", CONTINUE)
def test_start__gives_its_numbers_to_the_clusters(name):
    def labels_from(start):
        return METHODS[name](6, random_state=0).fit(ENSEMBLE, start=start).labels_

    found = labels_from(EARLIER)
    assert np.mean(found == TRUTH) > 0.8
    renumbered = labels_from(np.where(EARLIER < 0, -1, NUMBERS[EARLIER]))
    assert np.mean(renumbered == NUMBERS[found]) > 0.98  # of equal scores the first wins


def test_start__may_have_clusters_that_win_nothing():
    start = np.where(EARLIER == 2, 7, EARLIER)
    model = ConsensusTree("auto").fit(ENSEMBLE, start=start)
    assert set(model.labels_) == {0, 1, 3, 4, 5, 7}
    assert model.n_clusters_ == 6
    assert model.memberships_.shape == (600, 8)
    clusters = model.trust_.clusters
    assert clusters["cluster"].to_pylist() == [0, 1, 3, 4, 5, 7]
    np.testing.assert_array_equal(clusters["size"], np.bincount(model.labels_)[clusters["cluster"]])


def test_start__joins_objects_by_ids_and_is_the_same_stored(tmp_path):
    ids = [f"c{i}" for i in range(600)]
    named = Ensemble.from_labels(pd.DataFrame(np.asarray(ENSEMBLE), ids), id="index")
    order = np.random.default_rng(0).permutation(600)[:450]
    earlier = Consensus.write(tmp_path / "old.zarr", TRUTH[order], None, ids=[ids[i] for i in order])
    by_row = np.full(600, -1)
    by_row[order] = TRUTH[order]
    expected = ConsensusTree(6).fit(ENSEMBLE, start=by_row)
    found = ConsensusTree(6, client="threads").fit(named, start=earlier.path, out=tmp_path / "new.zarr")
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    np.testing.assert_array_equal(np.asarray(found.memberships_), expected.memberships_)
    with pytest.raises(StoreExistsError, match="with other start"):  # another start is another run
        ConsensusTree(6).fit(named, start=by_row[::-1].copy(), out=tmp_path / "new.zarr")


def test_partial_fit__starts_from_the_last_consensus():
    model = ConsensusTree(6).partial_fit(ENSEMBLE[:500, :18])
    before = model.labels_
    after = ConsensusTree(6).fit(ENSEMBLE, start=before).labels_
    np.testing.assert_array_equal(model.partial_fit(ENSEMBLE).labels_, after)
    assert set(match(after, before).table["event"].to_pylist()) == {"kept"}


def test_start__is_refused_where_it_cannot_be_taken():
    with pytest.raises(InvalidInputError, match="HBGF does not start from an earlier"):
        METHODS["hbgf"](6).fit(ENSEMBLE, start=EARLIER)
    with pytest.raises(InvalidInputError, match="n_clusters=5 but start has 6 clusters"):
        ConsensusTree(5).fit(ENSEMBLE, start=EARLIER)
    with pytest.raises(InvalidInputError, match="are text"):
        ConsensusTree(6).fit(ENSEMBLE, start=np.full(600, "a"))
    with pytest.raises(InvalidInputError, match="normalize='all'"):
        METHODS["ipc"](6).fit(ENSEMBLE, start=EARLIER)
    with pytest.raises(InvalidInputError, match="coassoc"):
        METHODS["kmeans"](6, encode="coassoc").fit(ENSEMBLE, start=EARLIER)


def test_solve__from_an_earlier_consensus_tells_what_became_of_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ENSEMBLE.save("e.zarr")
    Consensus.write("old.zarr", EARLIER, None)
    told = CliRunner().invoke(main, ["solve", "e.zarr", "--start", "old.zarr", "-o", "new.zarr", "--json"])
    assert told.exit_code == 0, told.stderr
    found = json.loads(told.stdout)
    labels = Consensus.open("new.zarr").labels
    known = EARLIER >= 0
    assert found["n_moved"] == np.count_nonzero(labels[:500][known] != EARLIER[known])
    np.testing.assert_array_equal(labels, ConsensusTree(6).fit(ENSEMBLE, start=EARLIER).labels_)
