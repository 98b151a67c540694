"""The reference of one Gaussian: it tells clusters from a cloud, by the generator of the ensemble itself."""

from functools import partial

import numpy as np
import pytest

from bigcons import Ensemble, consensus_tree, generate
from bigcons.errors import InvalidInputError
from bigcons.run.engine import SerialEngine, ThreadsEngine
from bigcons.trust.n_clusters import null_reference, p_values_of

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


def reference(ensemble, x, n_draws=1, engine=None):
    return null_reference(ensemble, x, n_draws, engine or SerialEngine(), 0)


@pytest.fixture(scope="module")
def references():
    return [reference(made(x), x, 9) for x in cloud_and_three()]


def test_p_values__tell_clusters_from_a_cloud_and_count_the_draws_with_as_much_evidence(references):
    of_cloud, of_three = references
    assert p_values_of(*of_three, 2).tolist() == [0.1, 0.1]
    assert p_values_of(*of_cloud, 1)[0] > 0.2
    assert (np.diff(p_values_of(*of_three, 40)) >= 0).all()
    assert p_values_of(*of_three, 40)[-1] == 1.0
    known = np.array([0.5, 0.5, 0.1]), np.array([0.2, 0.5, 0.6])
    assert p_values_of(*known, 4).tolist() == [3 / 4, 3 / 4, 1.0, 1.0]


def test_reference__is_the_same_on_threads_and_for_some_of_the_partitions_of_a_store(tmp_path, references):
    x = cloud_and_three()[1]
    ensemble = made(x, out=tmp_path / "e.zarr")
    observed, drawn = reference(Ensemble.open(tmp_path / "e.zarr"), x, 2, ThreadsEngine(2))
    np.testing.assert_array_equal(observed, references[1][0])
    np.testing.assert_array_equal(drawn, references[1][1][:2])
    assert reference(ensemble.select(ensemble.names[:5]), x)[1].size == 1


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (partial(generate.kmeans, n_clusters=3, sample=0.7), {}),
        (partial(generate.kmeans, n_clusters="split", sample=1), {"train": 40}),
        (
            partial(generate.weighted_kmeans, n_clusters=(2, 4), alpha_range=(0.5, 1), largest_weight=3),
            {"train": "all"},
        ),
        (partial(generate.feature_views, n_features=1, n_clusters=3), {"n_init": 2}),
        (partial(generate.object_views, n_clusters=3, repetition=2), {"standardize": False}),
        (generate.mixed, {}),
        (partial(generate.landmarks, n_clusters=3), {}),
    ],
)
def test_reference__takes_every_generator_and_option_as_a_store_records_them(tmp_path, make, options):
    x, out = cloud_and_three()[1], tmp_path / "e.zarr"
    asked = {"n_partitions": 4, "random_state": 0, "client": "serial", **options}
    held, ensemble = make(x, **asked), make(x, out=out, **asked)
    for found, expected in zip(reference(Ensemble.open(out), x), reference(held, x), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert ensemble.provenance.get("train") == options.get("train", ensemble.provenance.get("train"))


def test_consensus_tree__has_a_p_value_of_each_number_of_clusters(references):
    x = cloud_and_three()[1]
    tree = consensus_tree(made(x), features=x, n_draws=2, random_state=0, client="serial")
    expected = p_values_of(references[1][0], references[1][1][:2], len(tree.sizes) - 1)
    np.testing.assert_array_equal(tree.table()["p_value"], expected)
    np.testing.assert_array_equal(tree.p_values[::-1], expected)
    assert "p 0.33 of a single cluster" in repr(tree)


def test_consensus_tree__refuses_features_of_others():
    x = cloud_and_three()[0]
    with pytest.raises(InvalidInputError, match="does not hold its generator"):
        consensus_tree(np.repeat([[0, 1], [1, 0]], 50, axis=0), features=x)
    with pytest.raises(InvalidInputError, match="has 299 rows but the ensemble 300"):
        consensus_tree(made(x), features=x[1:])
