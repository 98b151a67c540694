"""The J criterion of memberships: against enumeration of all matchings, and its bounds."""

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from bigcons.errors import InvalidInputError
from bigcons.metrics import jensen_shannon
from tests.naive import metrics as naive


def memberships(rng, n_objects, n_clusters):
    """Rows on the simplex, some of them crisp."""
    rows = rng.dirichlet(np.full(n_clusters, 0.5), n_objects)
    rows[::3] = np.eye(n_clusters)[rng.integers(n_clusters, size=len(rows[::3]))]
    return rows


@settings(deadline=None)
@given(ky=st.integers(1, 6), kz=st.integers(1, 6), seed=st.integers(0, 1000))
def test_jensen_shannon__equals_brute_force(ky, kz, seed):
    rng = np.random.default_rng(seed)
    y, z = memberships(rng, 3, ky), memberships(rng, 3, kz)
    assert jensen_shannon(y, z) == pytest.approx(naive.jensen_shannon(y.tolist(), z.tolist()), abs=1e-12)


def test_jensen_shannon__blocks_engines_and_stores(tmp_path):
    rng = np.random.default_rng(0)
    y, z = memberships(rng, 50, 3).astype(np.float32), memberships(rng, 50, 4)
    expected = jensen_shannon(y, z)
    y, z = np.tile(y, (6_000, 1)), np.tile(z, (6_000, 1))  # three blocks
    stored = zarr.create_array(tmp_path / "memberships", data=y, chunks=(70_000, 3))
    values = {jensen_shannon(x, z, client=client) for x in (y, stored) for client in ("serial", "threads")}
    assert len(values) == 1
    assert values.pop() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("y", "z", "message"),
    [
        ([[1.0]], [[1.0], [1.0]], "y has 1 objects but z has 2"),
        ([[0.5, 0.4]], [[1.0]], "row 0 of y has sum 0.9"),
        ([[1.0]], [[1.5, -0.5]], "row 0 of z"),
        ([[1.0]], [[float("nan")]], "row 0 of z"),
        ([["a"]], [[1.0]], "y has entries of type <U1"),
        ([[1.0]], [[1.0 + 1.0j]], "z has entries of type complex128"),
        ([1.0], [[1.0]], "y has shape"),
        (np.empty((0, 2)), [[1.0]], "y has shape"),
    ],
)
def test_jensen_shannon__refuses_in_one_line(y, z, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        jensen_shannon(y, z)
    assert "\n" not in str(caught.value)
