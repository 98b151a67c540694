"""Ensembles drawn from memberships."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bigcons import Consensus, generate
from bigcons.errors import InvalidInputError
from bigcons.kernels.draws import draw_labels
from tests.naive import categorical as naive

N_OBJECTS = 9000


@pytest.fixture(scope="module")
def memberships():
    return np.random.default_rng(0).dirichlet(np.full(5, 0.5), size=N_OBJECTS)


def labels_of(ensemble):
    """The labels with their own numbers: a partition without some cluster has renumbered the others."""
    codes = ensemble.read(0, ensemble.n_objects)
    columns = [
        column if values is None else np.append(values, -1)[column]
        for column, values in zip(codes.T, ensemble.categories, strict=True)
    ]
    return np.stack(columns, axis=1)


def make(memberships, **kwargs):
    kwargs = {"n_partitions": 6, "random_state": 0, **kwargs}
    return labels_of(generate.from_memberships(memberships, **kwargs))


# The draw


@given(
    arrays.arrays(
        np.float32, (4, 3), elements=st.sampled_from([0, 0.1, 0.25, 1 / 3, 0.5, 1]), fill=st.nothing()
    ),
    arrays.arrays(np.float64, (4, 5), elements=st.floats(0, 1, exclude_max=True), fill=st.nothing()),
)
def test_draw_labels__is_the_naive_draw(memberships, draws):
    expected = naive.draw_labels(memberships.astype(float).tolist(), draws.tolist())
    expected = [[-1 if label is None else label for label in row] for row in expected]
    np.testing.assert_array_equal(draw_labels(memberships, draws), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_draw_labels__never_draws_a_cluster_of_no_membership(dtype):
    memberships = np.random.default_rng(0).dirichlet(np.ones(3), size=500).astype(dtype)
    padded = np.insert(memberships, [0, 2, 3], 0, axis=1)
    edges = np.array([[0.0, np.nextafter(1, 0)]] * 500)
    drawn = draw_labels(padded, edges)
    assert (np.take_along_axis(padded, drawn.astype(int), axis=1) > 0).all()


# The ensemble


def test_from_memberships__frequencies_are_the_memberships():
    soft = np.random.default_rng(1).dirichlet(np.ones(4), size=60)
    labels = make(soft, n_partitions=20_000)
    frequencies = np.stack([(labels == k).mean(axis=1) for k in range(4)], axis=1)
    np.testing.assert_allclose(frequencies, soft, atol=0.02)  # more than five standard deviations


def test_from_memberships__the_same_however_stored_and_run(memberships, tmp_path):
    expected = make(memberships)
    np.save(tmp_path / "z.npy", memberships)
    Consensus.write(tmp_path / "z.zarr", memberships.argmax(axis=1), memberships, chunk_rows=1000)
    np.testing.assert_array_equal(make(tmp_path / "z.npy"), expected)
    rounded = make(memberships.astype(np.float32))
    np.testing.assert_array_equal(make(str(tmp_path / "z.zarr")), rounded)
    np.testing.assert_array_equal(make(Consensus.open(tmp_path / "z.zarr")), rounded)
    assert not np.array_equal(make(memberships, random_state=1), expected)


def test_from_memberships__unlabeled_objects_stay_so(memberships, tmp_path):
    labels = np.where(np.arange(N_OBJECTS) % 10 == 0, -1, memberships.argmax(axis=1))
    Consensus.write(tmp_path / "z.zarr", labels, memberships)
    drawn = make(tmp_path / "z.zarr")
    np.testing.assert_array_equal(drawn < 0, np.repeat(labels[:, None] < 0, 6, axis=1))
    zeros = np.where(labels[:, None] < 0, 0, memberships).astype(np.float32)
    np.testing.assert_array_equal(make(zeros), drawn)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.4]], "memberships has row 1 with minimum 0.4 and sum 0.9"),
        ([[0.5, 0.5], [1.5, -0.5]], "row 1 with minimum -0.5"),
        ([[0.5, 0.5], [0.5, np.nan]], "nan at row 1"),
    ],
)
def test_from_memberships__names_the_row_off_the_simplex(wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        make(np.array(wrong))


def test_from_memberships__rejects_labels_only(tmp_path):
    with Consensus.create(tmp_path / "hard.zarr", n_objects=3, n_clusters=2, memberships=False) as writer:
        writer.write(0, np.array([0, 1, 1]))
    with pytest.raises(InvalidInputError, match="labels only"):
        make(tmp_path / "hard.zarr")
