"""Deleted labels and noisy copies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Ensemble, generate
from bigcons.errors import InvalidInputError, StoreExistsError
from bigcons.metrics import matching_accuracy
from tests.support.stores import names_in, values_of

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


def test_mask_labels__missing_labels_count_towards_the_share(labels):
    gappy = np.where(np.random.default_rng(1).random(labels.shape) < 0.5, -1, labels)
    spoiled = delete(gappy, 0.4)
    assert (spoiled[gappy < 0] == -1).all()
    assert (spoiled[gappy >= 0] < 0).mean() == pytest.approx(0.4, abs=0.02)


def test_mask_labels__nothing_deleted_is_the_ensemble(labels):
    np.testing.assert_array_equal(delete(labels, 0), labels)


def test_mask_labels__the_same_however_stored_and_run(labels, tmp_path):
    expected = delete(labels)
    stored = Ensemble.from_labels(labels).save(tmp_path / "whole.zarr", chunk_rows=1500)
    for other in (
        delete(labels, client="serial"),
        delete(stored),
        delete(tmp_path / "whole.zarr", out=tmp_path / "spoiled.zarr", memory="400MB"),
    ):
        np.testing.assert_array_equal(other, expected)
    assert not np.array_equal(delete(labels, random_state=1), expected)
    np.testing.assert_array_equal(read(stored), labels)


def test_mask_labels__does_not_touch_an_ensemble_in_memory(labels):
    ensemble = Ensemble.from_labels(labels[:, :1])
    delete(ensemble, 0.5)
    np.testing.assert_array_equal(read(ensemble), labels[:, :1])


def test_mask_labels__keeps_names_and_values(tmp_path):
    rows = [["a", 10], ["b", 10], ["a", 30], ["c", 20]] * 50
    ensemble = Ensemble.from_labels(rows, names=["letters", "tens"])
    for kwargs in ({}, {"out": tmp_path / "e.zarr"}):
        spoiled = generate.mask_labels(ensemble, 0.5, random_state=0, **kwargs)
        assert spoiled.names == ["letters", "tens"]
        for found, row in zip(values_of(spoiled), rows, strict=True):
            assert all(value in (None, original) for value, original in zip(found, row, strict=True))


@pytest.mark.parametrize(
    ("share", "message"), [(-0.1, "share=-0.1"), (1, "masks every label"), ("half", "share='half'")]
)
def test_mask_labels__rejects_invalid_shares(labels, share, message):
    with pytest.raises(InvalidInputError, match=message):
        delete(labels, share)


def test_mask_labels__rejects_to_empty_a_partition(tmp_path):
    with pytest.raises(InvalidInputError, match=r"share=0.75 masks every label of partition 'p\d'"):
        delete(np.zeros((2, 2), dtype=int), 0.75, out=tmp_path / "e.zarr")
    assert names_in(tmp_path) == []


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


def test_noisy_copies__are_noisy_in_different_places():
    truth = np.zeros(N_OBJECTS, dtype=int)
    made = copies(truth, noise=0.5, n_clusters=50, n_partitions=2)
    usual = [np.bincount(column).argmax() for column in made.T]
    both = (made != usual).all(axis=1).mean()
    assert both == pytest.approx((0.5 * 0.98) ** 2, abs=0.03)


def test_noisy_copies__take_any_labels_and_keep_gaps():
    truth = np.array(["red", "green", "blue"] * 100)
    assert all(matching_accuracy(truth, column) == 1 for column in copies(truth, noise=0).T)
    gappy = np.where(np.arange(600) % 4 == 0, -1, np.arange(600) % 3)
    np.testing.assert_array_equal(copies(gappy) < 0, np.repeat(gappy[:, None] < 0, 8, axis=1))


def test_noisy_copies__may_have_more_clusters_than_the_clustering():
    made = copies(np.arange(N_OBJECTS) % 3, noise=0.9, n_clusters=200)
    assert (made.max(axis=0) == 199).all()


def test_noisy_copies__the_same_stored_and_on_any_engine(tmp_path):
    truth = np.arange(N_OBJECTS) % 10
    expected = copies(truth)
    np.testing.assert_array_equal(copies(truth, client="serial"), expected)
    np.testing.assert_array_equal(copies(truth, out=tmp_path / "e.zarr", memory="400MB"), expected)
    np.testing.assert_array_equal(copies(truth, n_partitions=3), expected[:, :3])
    assert not np.array_equal(copies(truth, random_state=1), expected)


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


# Stores


def test_corrupt__reject_what_exists(labels, tmp_path):
    delete(labels, out=tmp_path / "e.zarr")
    with pytest.raises(StoreExistsError, match="overwrite=True"):
        delete("labels that are never read", out=tmp_path / "e.zarr", random_state=5)
    with pytest.raises(StoreExistsError, match="overwrite=True"):
        copies(labels[:, 0], out=tmp_path / "e.zarr")
    assert copies(labels[:, 0], out=tmp_path / "e.zarr", overwrite=True).shape == (N_OBJECTS, 8)


def test_corrupt__find_the_results_of_finished_calls(labels, tmp_path):
    deleted, copied = delete(labels, out=tmp_path / "d"), copies(labels[:, 0], out=tmp_path / "c")
    np.testing.assert_array_equal(delete(labels, out=tmp_path / "d"), deleted)
    np.testing.assert_array_equal(copies(labels[:, 0], out=tmp_path / "c"), copied)
    with pytest.raises(StoreExistsError, match="was made with other labels;"):
        delete(labels[::-1], out=tmp_path / "d")
    with pytest.raises(StoreExistsError, match="was made with other labels;"):
        copies(labels[::-1, 0], out=tmp_path / "c")
    with pytest.raises(StoreExistsError, match="was made with n_partitions=8, not 3"):
        copies(labels[:, 0], out=tmp_path / "c", n_partitions=3)


CHILD = """
import sys
import numpy as np
from bigcons import generate
generate.noisy_copies(np.arange(400_000) % 10, n_partitions=20, noise=0.3, out=sys.argv[1], random_state=0)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills as POSIX systems do")
def test_corrupt__a_kill_while_labels_are_written_leaves_no_store(labels, tmp_path):
    out = tmp_path / "e.zarr"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(out)], cwd=Path(generate.__file__).parents[2])
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".e.zarr*")) and time.monotonic() < deadline and child.poll() is None:
        time.sleep(0.002)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert child.returncode == -signal.SIGKILL
    assert not out.exists()
    assert list(tmp_path.glob(".e.zarr*"))
    delete(labels, out=out)
    assert [name for name in names_in(tmp_path) if not name.endswith(".lock")] == ["e.zarr"]
