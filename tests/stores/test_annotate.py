"""AnnData in and out, by the attributes that bigcons uses of it."""

import json

import numpy as np
import pandas as pd
import pytest

from bigcons import Consensus, ConsensusTree, Ensemble, annotate
from bigcons.errors import InvalidIdsError, InvalidInputError
from bigcons.metrics import trust

CELLS = [f"cell{i}" for i in range(20)]
LABELS = np.random.default_rng(0).integers(0, 3, (20, 4))


class AnnData:
    """What bigcons uses of an AnnData."""

    def __init__(self, obs):
        self.obs, self.obsm, self.uns = obs, {}, {}
        self.X = np.arange(2.0 * len(obs)).reshape(-1, 2)

    obs_names = property(lambda self: self.obs.index)
    n_obs = property(lambda self: len(self.obs))


AnnData.__module__ = "anndata._core.anndata"


def some_cells(names=CELLS):
    obs = pd.DataFrame(LABELS[: len(names)], columns=list("abcd"), index=pd.Index(names))
    return AnnData(obs.assign(batch="x", d=pd.Categorical(obs["d"].map({0: "u", 1: "v", 2: None}))))


def solved(path, ids=None):
    memberships = np.eye(3, dtype=np.float32)[LABELS[:, 0]]
    told = trust(LABELS, LABELS[:, 0])
    return Consensus.write(path, LABELS[:, 0], memberships, trust=told, ids=ids)


def test_from_labels__reads_columns_of_obs():
    found = Ensemble.from_labels(some_cells(), columns=["a", "d"], id="index")
    assert found.names == ["a", "d"]
    assert found.ids.tolist() == CELLS
    np.testing.assert_array_equal(found.read(0, 20)[:, 0], LABELS[:, 0])
    np.testing.assert_array_equal(found.read(0, 20)[:, 1], np.where(LABELS[:, 3] == 2, -1, LABELS[:, 3]))


def test_annotate__writes_clusters_confidence_and_memberships(tmp_path):
    cells, consensus = some_cells(), solved(tmp_path / "c.zarr")
    annotate(cells, tmp_path / "c.zarr", key_added="found")
    assert cells.obs["found"].tolist() == [str(k) for k in LABELS[:, 0]]
    assert cells.obs["found"].cat.categories.tolist() == ["0", "1", "2"]
    np.testing.assert_array_equal(cells.obs["found_confidence"], consensus.trust.confidence)
    np.testing.assert_array_equal(cells.obsm["found_memberships"], consensus.memberships)
    assert "found" in cells.uns


def test_annotate__matches_ids_with_the_names_of_the_observations(tmp_path):
    consensus = solved(tmp_path / "c.zarr", ids=np.array(CELLS))
    cells = some_cells(["cell7", "other", "cell3"])
    annotate(cells, consensus, memberships=False)
    clusters = cells.obs["consensus"].tolist()
    assert clusters[::2] == [str(LABELS[7, 0]), str(LABELS[3, 0])]
    assert pd.isna(clusters[1])
    assert cells.obs["consensus_confidence"].tolist()[1] == 0
    assert not cells.obsm


@pytest.mark.filterwarnings("ignore::bigcons.errors.ConsensusWarning")
@pytest.mark.parametrize(
    ("source", "is_clear"), [(LABELS, False), (np.repeat(LABELS[:, :1], 8, axis=1), True)]
)
def test_annotate__says_whether_there_is_structure(tmp_path, source, is_clear):
    model = ConsensusTree(3, random_state=0, client="serial").fit(source, out=tmp_path / "c.zarr")
    for found in (model, tmp_path / "c.zarr"):
        annotate(cells := some_cells(), found)
        assert json.loads(cells.uns["consensus"]["results"])["has_structure"] is is_clear
        assert json.loads(cells.uns["consensus"]["parameters"])["n_clusters"] == 3


def test_annotate__refuses_other_objects(tmp_path):
    with pytest.raises(InvalidInputError, match="20 objects but adata 3"):
        annotate(some_cells(CELLS[:3]), solved(tmp_path / "c.zarr"))
    with pytest.raises(InvalidIdsError, match="none of the 20 ids"):
        annotate(some_cells(["x", "y"]), solved(tmp_path / "d.zarr", ids=np.array(CELLS)))
    with pytest.raises(InvalidInputError, match="type list"):
        annotate(some_cells(), [1, 2])
