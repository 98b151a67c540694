"""Fine base clusters, of which a sample says too little, and wide ensembles: the start by the embedding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bigcons import Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.methods import METHODS, embedding
from bigcons.metrics import adjusted_rand
from bigcons.run.engine import ThreadsEngine
from bigcons.run.survey import take_survey

STARTED = ("mixture", "bce", "kcc", "ipvc")


@pytest.fixture(scope="module")
def fine() -> tuple[Ensemble, np.ndarray]:
    """5,000 objects of 4 classes, 20 partitions of 400 clusters."""
    return planted_ensemble(5_000, 20, shares=[0.25] * 4, n_clusters=(400, 400), missing=0.2)


def test_which_shapes_start_by_the_embedding(fine: tuple[Ensemble, np.ndarray]) -> None:
    ensemble, _ = fine

    def starts(ensemble: Ensemble, n_clusters: int) -> bool:
        survey = take_survey(ensemble, ThreadsEngine(1), 0, 4096, None)
        return embedding.starts_spectrally(ensemble, survey, n_clusters)

    assert starts(ensemble, 4)
    assert not starts(ensemble, 150)  # partitions are no finer than the consensus: they are good starts
    labels = ensemble.read(0, ensemble.n_objects)
    assert not starts(Ensemble.from_labels(labels[:4_000]), 4)  # the sample is everything
    assert not starts(Ensemble.from_labels(labels % 8), 4)


@pytest.mark.parametrize("name", STARTED)
def test_fine_base_clusters(name: str, fine: tuple[Ensemble, np.ndarray]) -> None:
    ensemble, classes = fine
    model = METHODS[name](4, random_state=0).fit(ensemble)
    assert adjusted_rand(classes, model.labels_) > 0.9  # k-means from a start on the sample: 0.53
    assert model.start_objectives_ == []


@pytest.mark.filterwarnings("ignore::bigcons.errors.SuspiciousLabelsWarning")
def test_base_clusters_of_two_or_three_objects() -> None:
    shares = [0.125] * 8
    ensemble, classes = planted_ensemble(20_000, 20, shares=shares, n_clusters=(5_000, 5_000), random_state=0)
    model = METHODS["kcc"](8, random_state=0).fit(ensemble)
    assert adjusted_rand(classes, model.labels_) > 0.8  # without further objects in each: 0.16


@pytest.mark.parametrize("name", ["mixture", "qmi"])
def test_wide_ensembles(name: str) -> None:
    ensemble, classes = planted_ensemble(1_000, 4_300, shares=[0.5, 0.3, 0.2], n_clusters=(2, 5), missing=0.0)
    model = METHODS[name](3, random_state=0).fit(ensemble)
    assert model.start_objectives_ == []
    assert adjusted_rand(classes, model.labels_) > 0.9


def test_engines_give_the_same_bits(fine: tuple[Ensemble, np.ndarray], tmp_path: Path) -> None:
    blocks = fine[0].save(tmp_path / "fine.zarr", chunk_rows=1_500)
    found = [
        METHODS["mixture"](4, random_state=0, client=client).fit(blocks).memberships_
        for client in ("serial", "threads")
    ]
    np.testing.assert_array_equal(*found)
