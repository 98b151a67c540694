"""The noise experiment of Strehl and Ghosh (2002) as `benchmarks/cluster_ensembles_paper.py` runs it."""

from functools import cache

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import squareform

from benchmarks.cluster_ensembles_paper import N_CLUSTERS, N_OBJECTS, TRIED, noisy, recovered
from bigcons.metrics import nmi

SEEDS = range(6)

# The prototypes' figures are of one run; a mean over six may be so much lower. Higher is welcome.
BELOW = 0.02

# These were run on an original of their own. In the mean no alignment of the copies votes that well, nor does
# SciPy link better. The sixth original gives all figures of the correspondence methods, the first EAC's.
OTHER_RUN = {"CCC": 5, "CCU": 5, "CCSVD": 5, "EAC-AL": 0}


@cache
def quality(name, noise):
    """Return the NMI with every original."""
    return recovered(TRIED[name], noise, SEEDS)


FIGURES = {
    (name, noise) for name in TRIED for noise in (0.1, 0.25, 0.4, 0.5) if noise in TRIED[name].prototype
}


@pytest.mark.parametrize(("name", "noise"), sorted(f for f in FIGURES if f[0] not in OTHER_RUN))
@pytest.mark.filterwarnings("ignore::bigcons.errors.SurplusClustersWarning")
def test_recovered__is_not_below_the_prototype(name, noise):
    assert np.mean(quality(name, noise)) >= TRIED[name].prototype[noise] - BELOW


@pytest.mark.parametrize(("name", "noise"), sorted(f for f in FIGURES if f[0] in OTHER_RUN))
def test_recovered__from_one_original_is_what_the_prototypes_found_on_theirs(name, noise):
    assert quality(name, noise)[OTHER_RUN[name]] == pytest.approx(TRIED[name].prototype[noise], abs=BELOW)


def test_mcla__recovers_the_original_up_to_a_quarter():
    """As published."""
    assert np.mean(quality("MCLA", 0.25)) >= 0.99


def vote_of_aligned(truth, labels):
    """Return the plurality of the copies, each renumbered to agree with the original as far as it can."""
    votes = np.zeros((N_OBJECTS, N_CLUSTERS))
    for copy in labels.T:
        table = np.zeros((N_CLUSTERS, N_CLUSTERS))
        np.add.at(table, (copy, truth), 1)
        votes[np.arange(N_OBJECTS), linear_sum_assignment(table, maximize=True)[1][copy]] += 1
    return votes.argmax(axis=1)


@pytest.mark.parametrize("noise", [0.25, 0.4, 0.5])
@pytest.mark.parametrize("name", ["MCLA", "CCC", "CCU", "CCSVD"])
def test_correspondence__votes_as_well_as_if_the_original_numbers_were_known(name, noise):
    best = [nmi(truth, vote_of_aligned(truth, labels)) for truth, labels in ensembles(noise)]
    assert np.mean(quality(name, noise)) >= np.mean(best) - BELOW


@pytest.mark.parametrize("noise", [0.25, 0.4, 0.5])
def test_average_link__is_as_good_as_scipys(noise):
    found = []
    for truth, labels in ensembles(noise):
        distances = 1.0 - (labels[:, None] == labels).mean(axis=2)
        tree = linkage(squareform(distances), "average")
        found.append(nmi(truth, fcluster(tree, N_CLUSTERS, "maxclust")))
    assert np.mean(quality("EAC-AL", noise)) >= np.mean(found) - BELOW


def ensembles(noise):
    """Return every original with the labels of its noisy copies."""
    made = (noisy(noise, seed) for seed in SEEDS)
    return [(truth, ensemble.read(0, N_OBJECTS)) for truth, ensemble in made]


@pytest.mark.parametrize("noise", [0.25, 0.4, 0.5])
@pytest.mark.parametrize("name", [n for n in TRIED if not TRIED[n].prototype and n != "HGPA by cut"])
def test_recovered__without_a_prototype_is_far_better_than_any_copy(name, noise):
    truth, ensemble = noisy(noise, 0)
    copies = ensemble.read(0, N_OBJECTS).T
    assert recovered(TRIED[name], noise, [0])[0] > 1.2 * max(nmi(truth, copy) for copy in copies)


@pytest.mark.parametrize("noise", [0.25, 0.5])
def test_noisy__copies_keep_what_is_not_noise(noise):
    """A noisy label is right by chance once in ten times."""
    truth, ensemble = noisy(noise, 0)
    assert (np.bincount(truth) == N_OBJECTS // N_CLUSTERS).all()
    for copy in ensemble.read(0, N_OBJECTS).T:
        right = sum(np.bincount(truth[copy == label]).max() for label in range(N_CLUSTERS))
        assert right == pytest.approx(N_OBJECTS * (1 - 0.9 * noise), abs=25)


@pytest.mark.parametrize("noise", [0.1, 0.25, 0.5])
def test_hgpa__is_the_worst_of_the_papers_three_and_better_by_km1_than_by_the_cut(noise):
    """The former as published."""
    cspa, mcla, hgpa, by_cut = (
        np.mean(quality(name, noise)) for name in ("CSPA by METIS", "MCLA by METIS", "HGPA", "HGPA by cut")
    )
    assert by_cut < hgpa < min(cspa, mcla)
