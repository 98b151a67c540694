"""Annealed sweeps of the ANMI, computed anew for every clustering. Labels are numbers, -1 missing."""

from math import exp

from tests.naive.metrics import anmi


def anmi_of(labels, codes):
    """Return the ANMI of codes with the columns of labels."""
    columns = zip(*labels, strict=True)
    return anmi([blanked(column) for column in columns], blanked(codes))


def blanked(values):
    return [None if value < 0 else value for value in values]


def gains(labels, codes, i, n_clusters):
    """Return, for each cluster, n times the gain in ANMI from moving object i there."""
    now = anmi_of(labels, codes)
    moved = [[*codes[:i], k, *codes[i + 1 :]] for k in range(n_clusters)]
    return [len(codes) * (anmi_of(labels, other) - now) for other in moved]


def annealed_sweep(labels, codes, n_clusters, temperature, random):
    """Draw the cluster of every object in turn, with probability ``~ exp(gain / temperature)``; in place."""
    for i, code in enumerate(codes):
        if code >= 0:
            weights = [exp(gain / temperature) for gain in gains(labels, codes, i, n_clusters)]
            threshold = random.uniform() * sum(weights)
            codes[i] = next(k for k in range(n_clusters) if sum(weights[: k + 1]) > threshold)
