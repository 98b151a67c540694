"""Warnings that help: what they name is there where they appear, and planted ensembles get none."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.preprocessing import FunctionTransformer

from bigcons import METHODS, PCC, ConsensusClustering, ConsensusTree, consensus
from bigcons.datasets import planted_ensemble
from bigcons.disk.schema import MISSING
from bigcons.errors import (
    ConsensusWarning,
    ConvergenceWarning,
    DissentWarning,
    NoStructureWarning,
    SurplusClustersWarning,
)
from bigcons.metrics import adjusted_rand
from bigcons.run.survey import find_dissent


def said(model, x):
    """Return the fitted model, and the warnings that a fit issues, but for unfinished passes.

    Nor for missing structure: what few or coarse partitions with many errors hold, their halves do not show.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x)
    left_out = (ConvergenceWarning, NoStructureWarning)
    found = [warning for warning in caught if not issubclass(warning.category, left_out)]
    assert all("\n" not in str(warning.message) and warning.filename == __file__ for warning in found)
    return model, {warning.category: str(warning.message) for warning in found}


def partitions_of(n_classes, n_clusters, seed=0, n_objects=600, n_partitions=40, noise=0.2):
    """Return noisy partitions into so many clusters, each the union of some classes, and the classes."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_objects)
    columns = [rng.integers(n_clusters, size=n_classes)[truth] for _ in range(n_partitions)]
    labels = np.stack(columns, axis=1)
    wrong = rng.random(labels.shape) < noise
    labels[wrong] = rng.integers(n_clusters, size=int(wrong.sum()))
    return labels, truth


@pytest.mark.parametrize("missing", [0.0, 0.6])
@pytest.mark.parametrize("name", ["pcc", "mixture", "qmi", "ivc", "hbgf"])
def test_planted_ensembles__get_no_warning(name, missing):
    ensemble, _ = planted_ensemble(600, 30, missing=missing, random_state=1)
    few = {"n_init": 3} if name in ("pcc", "mixture", "qmi") else {}
    assert said(METHODS[name](6, random_state=0, **few), ensemble)[1] == {}


def test_coarse_partitions__are_told_and_the_method_named_finds_the_classes():
    labels, truth = partitions_of(8, 3)
    model, found = said(PCC(8, random_state=0), labels)
    assert list(found) == [ConsensusWarning]
    assert "ConsensusTree" in found[ConsensusWarning]
    assert adjusted_rand(truth, model.labels_) < 0.5
    model, found = said(ConsensusTree(8, random_state=0), labels)
    assert found == {}
    assert adjusted_rand(truth, model.labels_) > 0.95


def counts(rng, n_objects):
    return rng.poisson(np.exp(rng.normal(size=(n_objects, 12))))


def pixels(rng, n_objects):
    strokes = 100 * rng.random((10, 12))
    return np.rint(strokes[rng.integers(10, size=n_objects)] + 20 * rng.random((n_objects, 12)))


@pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning")
@pytest.mark.parametrize("n_clusters", [3, "auto"])
@pytest.mark.parametrize("features", [counts, pixels])
def test_features_of_whole_numbers__are_told_from_labels(features, n_clusters):
    x = features(np.random.default_rng(0), 1_000)
    with pytest.warns(NoStructureWarning, match=r"Column 'p\d+' has numbers up to \d+ .*generate.kmeans"):
        consensus(x, n_clusters, random_state=0)


def test_labels_without_structure__are_not_taken_for_features():
    rng = np.random.default_rng(0)
    for first in (0, 1):
        labels = first + rng.integers(4, size=(600, 12))
        for x in (labels, labels.astype(str), np.where(labels == first + 3, -1, labels)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert not consensus(x, 3, random_state=0).has_structure_
            assert not [w for w in caught if "has numbers up to" in str(w.message)]


@pytest.fixture(scope="module")
def three_classes():
    return planted_ensemble(1500, 40, shares=(0.5, 0.3, 0.2), random_state=3)


def test_surplus_clusters__are_told_and_the_number_named_is_that_of_the_classes(three_classes):
    ensemble, _ = three_classes
    model, found = said(PCC(8, n_init=2, random_state=0), ensemble)
    assert found.keys() == {SurplusClustersWarning}
    assert "5 of 8 clusters hold fewer than 19 of 1,500 objects" in found[SurplusClustersWarning]
    assert "n_clusters=3" in found[SurplusClustersWarning]
    assert model.n_tiny_clusters_ == model.n_clusters_ - 3 > 0
    better, found = said(PCC(3, n_init=2, random_state=0), ensemble)
    assert found == {}
    assert (better.n_clusters_, better.n_tiny_clusters_) == (3, 0)


@pytest.mark.parametrize("name", ["pcc", "qmi", "bce"])
def test_partitions_that_agree_with_nobody__are_told(name):
    ensemble, _ = planted_ensemble(600, 20, random_state=2)
    labels = np.asarray(ensemble.read(0, 600)).copy()
    labels[:, [4, 11]] = np.random.default_rng(0).integers(6, size=(600, 2))
    few = {"n_init": 2, "max_iter": 5}
    _, found = said(METHODS[name](6, random_state=0, **few), labels)
    assert found.keys() == {DissentWarning}
    assert found[DissentWarning].startswith("2 of 20 partitions agree with no other (")
    assert said(METHODS[name](6, random_state=0, **few), np.delete(labels, [4, 11], axis=1))[1] == {}
    # of a generator none can be left out
    method = METHODS[name](6, random_state=0, **few)
    model = ConsensusClustering(6, generator=FunctionTransformer(), consensus=method)
    assert said(model, labels)[1] == {}


@pytest.mark.parametrize("free", [15_999, 16_000])
def test_memberships_that_may_not_fit_on_the_disk_are_told_before_a_solve(free, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    ensemble = planted_ensemble(1000, 5, random_state=0)[0]
    told = f"take 16 kB, more than is free in {tmp_path},"
    for name, is_told in (("tree", free < 16_000), ("best", False)):
        method = METHODS[name](4, random_state=0, out=tmp_path / "not" / "yet" / f"{name}.zarr")
        assert (told in said(method, ensemble)[1].get(ConsensusWarning, "")) == is_told


@pytest.mark.parametrize("missing", [0.0, 0.5, 0.95])
def test_dissenting__names_random_partitions_and_no_others(missing):
    labels = planted_ensemble(1500, 40, missing=missing, random_state=0)[0].read(0, 1500).copy()
    assert find_dissent(labels).tolist() == []
    assert find_dissent(np.random.default_rng(0).integers(-1, 5, labels.shape)).tolist() == []
    labels[:, 5:9] = np.random.default_rng(0).integers(5, size=(1500, 4))
    assert set(find_dissent(labels)) <= {5, 6, 7, 8}
    assert missing > 0.5 or find_dissent(labels).tolist() == [5, 6, 7, 8]


def test_dissenting__takes_partitions_without_labels_in_the_sample():
    labels = np.random.default_rng(0).integers(0, 4, (60, 1)).repeat(8, axis=1)
    labels[:, 2:4] = MISSING
    assert find_dissent(labels).tolist() == []
    assert find_dissent(np.full((60, 3), MISSING)).tolist() == []
