"""The reference of one Gaussian: it tells clusters from a cloud, by the generator of the ensemble itself."""

from functools import partial

import numpy as np
import pytest

from bigcons import Ensemble, consensus_tree, generate
from bigcons.errors import InvalidInputError
from bigcons.run.engine import SerialEngine, ThreadsEngine
from bigcons.trust.cluster_tree import Reference

N, M = 300, 12


def cloud_and_three():
    """Points of one long Gaussian, and of three."""
    draw = np.random.default_rng(0)
    cloud = draw.normal(size=(N, 2)) * [5.0, 1.0]
    return cloud, draw.normal(size=(N, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], N // 3, axis=0)


def made(points, **options):
    return generate.kmeans(
        points, n_partitions=M, n_clusters=(2, 6), random_state=0, client="serial", **options
    )


@pytest.fixture(scope="module")
def references():
    return [Reference.of(made(x), x, 9, SerialEngine(), 0) for x in cloud_and_three()]


def test_reference__tells_clusters_from_a_cloud(references):
    of_cloud, of_three = references
    assert of_three.p_values(2).tolist() == [0.1, 0.1]
    assert of_cloud.p_values(1)[0] > 0.2
    assert (np.diff(of_three.p_values(40)) >= 0).all()
    assert of_three.p_values(40)[-1] == 1.0


def test_p_values__count_the_draws_with_as_much_evidence():
    reference = Reference(np.array([0.5, 0.5, 0.1]), np.array([0.2, 0.5, 0.6]))
    assert reference.p_values(4).tolist() == [3 / 4, 3 / 4, 1.0, 1.0]
    assert reference.p_values(2).tolist() == [3 / 4, 3 / 4]


def test_reference__is_the_same_on_threads_and_for_some_of_the_partitions_of_a_store(tmp_path, references):
    x = cloud_and_three()[1]
    ensemble = made(x, out=tmp_path / "e.zarr")
    found = Reference.of(Ensemble.open(tmp_path / "e.zarr"), x, 2, ThreadsEngine(2), 0)
    np.testing.assert_array_equal(found.observed, references[1].observed)
    np.testing.assert_array_equal(found.drawn, references[1].drawn[:2])
    fewer = Reference.of(ensemble.select(ensemble.names[:5]), x, 1, SerialEngine(), 0)
    assert fewer.drawn.size == 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"train": 40},
        {"train": "all"},
        {"n_init": 2},
        {"standardize": False},
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        partial(generate.kmeans, n_clusters=3, sample=0.7),
        partial(generate.kmeans, n_clusters="split", sample=1),
        partial(generate.weighted_kmeans, n_clusters=(2, 4), alpha_range=(0.5, 1), largest_weight=3),
        partial(generate.feature_views, n_features=1, n_clusters=3),
        partial(generate.object_views, n_clusters=3, repetition=2),
    ],
)
def test_reference__takes_every_generator_and_option_as_a_store_records_them(tmp_path, make, options):
    x = cloud_and_three()[1]
    out = tmp_path / "e.zarr"
    ensemble = make(x, n_partitions=4, random_state=0, client="serial", out=out, **options)
    assert Reference.of(Ensemble.open(out), x, 1, SerialEngine(), 0).drawn.size == 1
    assert ensemble.provenance["train"] == options.get("train", "auto")


@pytest.mark.parametrize(
    "make", [generate.mixed, generate.landmarks, partial(generate.landmarks, n_clusters=3)]
)
def test_reference__takes_partitions_by_landmarks_and_tells_clusters(tmp_path, make):
    x = cloud_and_three()[1]
    ensemble = make(x, n_partitions=12, random_state=0, client="serial", out=tmp_path / "e.zarr")
    found = Reference.of(Ensemble.open(tmp_path / "e.zarr"), x, 3, SerialEngine(), 0)
    held = Reference.of(make(x, n_partitions=12, random_state=0, client="serial"), x, 3, SerialEngine(), 0)
    np.testing.assert_array_equal(found.drawn, held.drawn)
    assert found.observed[1] > found.drawn.max()
    assert ensemble.n_partitions == 12


def test_reference__says_where_its_sample_is_too_small():
    x = np.random.default_rng(0).normal(size=(4000, 2))
    ensemble = generate.kmeans(x, n_partitions=2, n_clusters=2100, sample=1, client="serial")
    with pytest.raises(InvalidInputError, match="made of 2,000 of the objects"):
        Reference.of(ensemble, x, 1, SerialEngine(), 0)


def test_consensus_tree__has_a_p_value_of_each_number_of_clusters(references):
    x = cloud_and_three()[1]
    tree = consensus_tree(made(x), features=x, n_draws=2, random_state=0, client="serial")
    G = len(tree.sizes)
    expected = Reference(references[1].observed, references[1].drawn[:2]).p_values(G - 1)
    np.testing.assert_array_equal(tree.table()["p_value"], expected)
    np.testing.assert_array_equal(tree.p_values[::-1], expected)
    assert "p 0.33 of a single cluster" in repr(tree)
    assert "p_value" in tree._repr_html_()


def test_consensus_tree__refuses_features_of_others():
    x = cloud_and_three()[0]
    with pytest.raises(InvalidInputError, match="does not hold its generator"):
        consensus_tree(np.repeat([[0, 1], [1, 0]], 50, axis=0), features=x)
    with pytest.raises(InvalidInputError, match="has 299 rows but the ensemble 300"):
        consensus_tree(made(x), features=x[1:])
