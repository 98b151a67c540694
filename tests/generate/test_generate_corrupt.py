"""Deleted labels and noisy copies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble, generate
from bigcons.errors import InvalidInputError
from bigcons.metrics import matching_accuracy
from tests.support.stores import values_of

N_OBJECTS = 9000


@pytest.fixture(scope="module")
def labels():
    return np.random.default_rng(0).integers(4, size=(N_OBJECTS, 7))


def read(ensemble):
    return np.array(ensemble.read(0, ensemble.n_objects))


def delete(x, share=0.3, **kwargs):
    return read(generate.mask_labels(x, share, **{"random_state": 0, **kwargs}))


def copies(x, noise=0.25, **kwargs):
    return read(generate.noisy_copies(x, noise=noise, **{"random_state": 0, **kwargs}))


# Deleted labels


@given(share=st.floats(0, 0.9), n=st.integers(20, 5000))
def test_mask_labels__deletes_exactly_the_share(share, n):
    whole = np.zeros((n, 3), dtype=int)
    spoiled = delete(whole, share)
    assert (spoiled < 0).sum() == round(share * 3 * n)


def test_mask_labels__keeps_the_others_and_deletes_anywhere(labels):
    spoiled = delete(labels)
    kept = spoiled >= 0
    np.testing.assert_array_equal(spoiled[kept], labels[kept])
    np.testing.assert_allclose(kept.mean(axis=0), 0.7, atol=0.03)
    # uniform over all entries: how many labels an object keeps is binomial up to the fixed total
    assert kept.sum(axis=1).var() == pytest.approx(7 * 0.3 * 0.7, rel=0.1)


def test_mask_labels__keeps_names_and_values():
    rows = [["a", 10], ["b", 10], ["a", 30], ["c", 20]] * 50
    ensemble = Ensemble.from_labels(rows, names=["letters", "tens"], columns=[0, 1])
    spoiled = generate.mask_labels(ensemble, 0.5, random_state=0)
    assert spoiled.names == ["letters", "tens"]
    for found, row in zip(values_of(spoiled), rows, strict=True):
        assert all(value in (None, original) for value, original in zip(found, row, strict=True))


def test_mask_labels__the_same_however_stored(labels, tmp_path):
    Ensemble.from_labels(labels).save(tmp_path / "whole.zarr", chunk_rows=1500)
    np.testing.assert_array_equal(delete(tmp_path / "whole.zarr"), delete(labels))
    assert not np.array_equal(delete(labels, random_state=1), delete(labels))


@pytest.mark.parametrize(
    ("share", "message"), [(-0.1, "share=-0.1"), (1, "masks every label"), ("half", "share='half'")]
)
def test_mask_labels__rejects_invalid_shares(labels, share, message):
    with pytest.raises(InvalidInputError, match=message):
        delete(labels, share)


def test_mask_labels__rejects_to_empty_a_partition():
    with pytest.raises(InvalidInputError, match=r"share=0.75 masks every label of partition 'p\d'"):
        delete(np.zeros((2, 2), dtype=int), 0.75)


# Noisy copies


def test_noisy_copies__without_noise_are_renumbered_copies():
    truth = np.random.default_rng(0).integers(10, size=N_OBJECTS)
    made = copies(truth, noise=0)
    assert made.shape == (N_OBJECTS, 8)
    for column in made.T:
        assert matching_accuracy(truth, column) == 1
        renumbering = [column[truth == k][0] for k in range(10)]
        assert sorted(renumbering) == list(range(10))
    assert len(np.unique(made, axis=1).T) == 8


@given(noise=st.floats(0, 1), n=st.integers(5, 5000))
def test_noisy_copies__change_no_more_labels_than_the_share(noise, n):
    truth = np.arange(n) % 5
    for column in copies(truth, noise=noise, n_partitions=2).T:
        assert (1 - matching_accuracy(truth, column)) * n <= round(noise * n) + 1e-6


@pytest.mark.parametrize("noise", [0.25, 0.5])
def test_noisy_copies__noise_is_uniform_over_all_clusters(noise):
    truth = np.repeat(range(10), 900)
    for column in copies(truth, noise=noise, n_partitions=4).T:
        table = np.zeros((10, 10))
        np.add.at(table, (truth, column), 1)
        usual = table.max(axis=1)
        # a tenth of the replaced labels become what they were
        assert usual.sum() / 9000 == pytest.approx(1 - noise * 0.9, abs=0.02)
        others = table[table < usual[:, None]] / 900
        np.testing.assert_allclose(others, noise / 10, atol=0.04)


def test_noisy_copies__take_any_labels_and_keep_gaps():
    truth = np.array(["red", "green", "blue"] * 100)
    assert all(matching_accuracy(truth, column) == 1 for column in copies(truth, noise=0).T)
    gappy = np.where(np.arange(600) % 4 == 0, -1, np.arange(600) % 3)
    np.testing.assert_array_equal(copies(gappy) < 0, np.repeat(gappy[:, None] < 0, 8, axis=1))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"noise": 1.5}, "noise=1.5"),
        ({"noise": 0.1, "n_clusters": 2}, "n_clusters=2 but labels has 3 clusters"),
        ({"noise": 0.1, "n_partitions": 0}, "n_partitions=0"),
        ({"noise": 0.1, "labels": [[0, 1], [1, 0]]}, r"labels has shape \(2, 2\)"),
    ],
)
def test_noisy_copies__say_what_is_wrong(kwargs, message):
    labels = kwargs.pop("labels", [0, 1, 2])
    with pytest.raises(InvalidInputError, match=message):
        generate.noisy_copies(labels, **kwargs)
