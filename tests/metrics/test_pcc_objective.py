"""The objective of given memberships, over all pairs and over listed ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigcons import Divergence, Ensemble, PairTable
from bigcons.coassociation import sample
from bigcons.errors import InvalidInputError
from bigcons.metrics import pcc_objective
from tests.naive import divergences as naive_divergences
from tests.naive import pcc as naive
from tests.support.strategies import label_matrices

VALUES = {
    "l2": naive.l2,
    "kl": naive.kl,
    "exponential": lambda x, p: naive_divergences.value(naive_divergences.exponential(1.0), x, p),
}


def memberships(n_objects, n_clusters):
    return np.random.default_rng(0).dirichlet(np.ones(n_clusters), n_objects)


@pytest.mark.parametrize("name", VALUES)
@given(labels=label_matrices(min_objects=2, max_objects=10), n_clusters=st.integers(2, 4))
def test_pcc_objective__over_all_pairs_equals_brute_force(name, labels, n_clusters):
    Y = memberships(len(labels), n_clusters)
    expected = naive.objective(naive.all_pairs(labels), Y, VALUES[name])
    assert pcc_objective(labels, Y, divergence=name) == pytest.approx(expected, rel=1e-7, abs=1e-9)


@given(labels=label_matrices(min_objects=2, max_objects=10), n_clusters=st.integers(1, 4))
def test_pcc_objective__without_the_constant_is_the_factorized_form(labels, n_clusters):
    pairs, Y = naive.all_pairs(labels), memberships(len(labels), n_clusters).astype(np.float32)
    expected = naive.objective(pairs, Y.astype(np.float64)) - naive.constant(pairs)
    assert pcc_objective(labels, Y, constant=False) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", VALUES)
def test_pcc_objective__over_a_table_counts_its_pairs_only(name, tmp_path):
    labels = np.random.default_rng(0).integers(-1, 3, (30, 8))
    table = sample(labels, share=0.3, random_state=0)
    Y = memberships(30, 3)
    pairs = list(zip(*(column.tolist() for column in table.edges()), strict=True))
    expected = naive.objective(pairs, Y, VALUES[name])
    assert 0 < len(pairs) < 30 * 29 / 2
    assert pcc_objective(None, Y, divergence=name, pairs=table) == pytest.approx(expected, rel=1e-7)
    table.save(tmp_path / "pairs.zarr")
    assert pcc_objective(None, Y, divergence=name, pairs=tmp_path / "pairs.zarr") == pytest.approx(expected)


def test_pcc_objective__over_many_tiles_and_chunks_equals_the_factorized_form(tmp_path):
    labels = np.random.default_rng(0).integers(-1, 4, (1100, 6))
    ensemble = Ensemble.from_labels(labels).save(tmp_path / "ensemble.zarr", chunk_rows=64)
    Y = memberships(1, 3).repeat(1100, axis=0).astype(np.float32)
    Y[::2] = Y[::2, ::-1]
    whole = pcc_objective(ensemble, Y)
    constant = whole - pcc_objective(ensemble, Y, constant=False)
    swapped = Y[:, [1, 2, 0]].copy()
    swapped[::3] = [1, 0, 0]
    other = pcc_objective(ensemble, swapped)
    assert constant > 0
    assert other - pcc_objective(ensemble, swapped, constant=False) == pytest.approx(constant, rel=1e-9)


def test_pcc_objective__refuses_what_does_not_fit():
    labels = np.zeros((4, 2), int)
    Y = np.full((4, 2), 0.5)
    table = PairTable.from_arrays([0], [1], [1], [2], n_objects=5)
    with pytest.raises(InvalidInputError, match="3 rows but n_objects=4"):
        pcc_objective(labels, Y[:3])
    with pytest.raises(InvalidInputError, match="4 rows but n_objects=5"):
        pcc_objective(None, Y, pairs=table)
    with pytest.raises(InvalidInputError, match=r"shape \(4,\)"):
        pcc_objective(labels, Y[:, 0])
    for options in ({}, {"constant": False}, {"pairs": table}):
        with pytest.raises(InvalidInputError, match="row 1 of memberships has sum nan"):
            pcc_objective(np.zeros((5, 2), int), [[1.0], [np.nan], [1.0], [1.0], [1.0]], **options)
    with pytest.raises(InvalidInputError, match="only 'l2' has such a constant"):
        pcc_objective(labels, Y, divergence="kl", constant=False)
    with pytest.raises(InvalidInputError, match="not double-convex"):
        pcc_objective(labels, Y, divergence=Divergence(lambda x: -np.sqrt(x)))
    with pytest.raises(InvalidInputError, match="constant=False"):
        pcc_objective(np.zeros((50_001, 1), int), np.ones((50_001, 1)))
