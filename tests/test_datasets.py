import gzip
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import datasets
from bigcons.errors import InvalidInputError, StoreNotFoundError

N_ROWS = 10_000


@pytest.mark.parametrize(
    "recipe",
    [datasets.PlantedLabels(N_ROWS, 5), datasets.PlantedFeatures(N_ROWS, 3)],
    ids=["labels", "features"],
)
@given(ends=st.tuples(st.integers(0, N_ROWS), st.integers(0, N_ROWS)).filter(lambda ends: ends[0] != ends[1]))
def test_read__any_range_is_a_slice_of_the_whole(recipe, ends):
    start, stop = sorted(ends)
    values, truth = recipe.read(0, N_ROWS)
    some_values, some_truth = recipe.read(start, stop)
    np.testing.assert_array_equal(some_values, values[start:stop])
    np.testing.assert_array_equal(some_truth, truth[start:stop])


def test_planted_labels__has_the_shares_and_gaps_asked_for():
    recipe = datasets.PlantedLabels(50_000, 20, shares=(0.7, 0.3), missing=0.25, random_state=3)
    labels, truth = recipe.read(0, 50_000)
    assert labels.dtype == np.int8
    np.testing.assert_allclose(np.bincount(truth) / len(truth), (0.7, 0.3), atol=0.01)
    np.testing.assert_allclose((labels < 0).mean(axis=0), 0.25, atol=0.02)
    assert labels.min() == -1
    assert set(labels.max(axis=0) + 1) <= set(range(2, 11))


def test_planted_labels__without_noise_clusters_and_classes_are_nested():
    recipe = datasets.PlantedLabels(4000, 30, noise=(0, 0), hard_share=0, missing=0)
    labels, truth = recipe.read(0, 4000)
    for column in labels.T:
        met = np.zeros((truth.max() + 1, column.max() + 1), dtype=bool)
        met[truth, column] = True
        assert (met.sum(axis=0) == 1).all() or (met.sum(axis=1) == 1).all()


def test_planted_features__shape_shares_and_seed():
    points, truth = datasets.planted_features(20_000, random_state=1)
    assert points.shape == (20_000, 39)
    assert points.dtype == np.float32
    np.testing.assert_allclose(np.bincount(truth) / len(truth), (0.6, 0.25, 0.15), atol=0.02)
    assert not np.array_equal(points, datasets.planted_features(20_000, random_state=2)[0])


def test_simulated_soft_partitions__labels_have_the_frequencies_of_the_memberships():
    labels, memberships = datasets.simulated_soft_partitions(50, 4000, low=0.5, high=2)
    assert labels.shape == (200, 4000)
    np.testing.assert_allclose(memberships.sum(axis=1), 1)
    frequencies = np.stack([(labels == k).mean(axis=1) for k in range(4)], axis=1)
    np.testing.assert_allclose(frequencies, memberships, atol=0.05)
    assert (memberships.argmax(axis=1) == np.repeat(range(4), 50)).mean() > 0.8


def test_ce_2d2k__has_the_bayes_error_of_the_paper():
    features, classes = datasets.ce_2d2k(0)
    assert features.shape == (1000, 2)
    np.testing.assert_array_equal(np.bincount(classes), (500, 500))
    means = np.array([(-0.227, 0.077), (0.095, 0.323)])
    np.testing.assert_allclose([features[classes == c].mean(axis=0) for c in (0, 1)], means, atol=0.02)
    distance = np.linalg.norm(features[:, None] - means, axis=2)
    # half the distance of the means is 2.03 standard deviations, the normal tail beyond 2.1 %
    assert (distance.argmin(axis=1) != classes).mean() == pytest.approx(0.021, abs=0.015)


def test_ce_8d5k__five_clouds_of_standard_deviation_a_tenth():
    features, classes = datasets.ce_8d5k(0)
    assert features.shape == (1000, 8)
    np.testing.assert_array_equal(np.bincount(classes), [200] * 5)
    means = np.stack([features[classes == c].mean(axis=0) for c in range(5)])
    np.testing.assert_allclose((features - means[classes]).std(axis=0), 0.1, atol=0.01)
    assert means.min() > -0.05
    assert means.max() < 1.05
    distance = np.linalg.norm(features[:, None] - means, axis=2)
    assert (distance.argmin(axis=1) == classes).mean() > 0.99


def test_kddcup99__names_the_file_that_is_not_there(tmp_path):
    with pytest.raises(StoreNotFoundError, match=r"kddcup.data_10_percent.gz does not exist; download"):
        datasets.kddcup99(tmp_path)


def test_kddcup99__reads_the_three_large_classes_of_its_file(monkeypatch, tmp_path):
    path = tmp_path / datasets.KDD_FILE
    path.parent.mkdir()
    classes = ("normal", "smurf", "back", "neptune", "normal")
    rows = (f"0,tcp,{name[0]},SF,{','.join('7' * 37)},{name}.\n" for name in classes)
    path.write_bytes(gzip.compress("".join(rows).encode()))
    monkeypatch.setenv("BIGCONS_DATA", str(tmp_path))
    table, truth = datasets.kddcup99(n_objects=4)
    assert truth.tolist() == ["normal", "smurf", "neptune", "normal"]
    assert table["service"].to_pylist() == ["n", "s", "n", "n"]
    assert table["src_bytes"].to_pylist() == [7] * 4
    numbers, _ = datasets.kddcup99(n_objects=4, as_numbers=True)
    assert numbers.column_names == table.column_names == list(datasets.KDD_COLUMNS)
    assert numbers["service"].to_pylist() == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.data
@pytest.mark.skipif("BIGCONS_DATA" not in os.environ, reason="BIGCONS_DATA names no directory")
def test_kddcup99__is_a_seeded_subset_of_three_classes():
    table, truth = datasets.kddcup99(n_objects=5000)
    again, truth_again = datasets.kddcup99(n_objects=5000)
    assert table.equals(again)
    np.testing.assert_array_equal(truth, truth_again)
    assert set(truth) == set(datasets.KDD_CLASSES)
    assert not datasets.kddcup99(n_objects=5000, random_state=1)[0].equals(table)
    with pytest.raises(InvalidInputError, match="485269"):
        datasets.kddcup99(n_objects=485_270)
