"""Average linkage of the co-association from the profiles of clusters, by reciprocal nearest neighbors.

The profile of a cluster counts its objects in each base cluster. The pairs of objects of two clusters agree
in the dot product of their profiles, so their mean co-association needs no pairs.

Profiles are those of pieces, the clusters when profiles were last gathered: piece ``p`` has
``counts[begins[p] : begins[p + 1]]`` objects in the base clusters ``clusters[...]``; piece
``pieces[starts[b] + t]`` has ``shares[starts[b] + t]`` objects of base cluster ``b``. A cluster has the
number of its first piece, and its pieces form a ring, ``following``.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import empty, jit, leaf, zeros


@jit
def nearest_clusters(
    begins,
    clusters,
    counts,
    starts,
    pieces,
    shares,
    gains,
    root,
    following,
    sizes,
    labeled,
    times,
    wanted,
    nearest,
    most,
):
    """Fill ``nearest`` and ``most`` (n_pieces,) for the ``wanted`` clusters: the most similar, and how much.

    ``root`` (n_pieces,) is the cluster of each piece, ``sizes`` that of each cluster in objects, ``labeled``
    (n_pieces, n_partitions) float64 the objects that each partition labels in it. Base clusters count by
    ``gains`` (n_base_clusters,), at least 1, whose sums are exact and thus do not depend on the order;
    partitions count ``times`` (n_partitions,). The similarity is the mean number of partitions that join a
    pair; if ``labeled`` has rows, it is the number of partitions that join a pair, over all pairs, divided by
    that of those that label it. -1 and 0 if none is positive. Ties go to the pair of lowest hash.
    """
    joined = zeros(root.shape[0], np.int64)
    met = empty(root.shape[0], np.int64)
    for w in range(wanted.shape[0]):
        a = wanted[w]
        n_met = 0
        piece = a
        while True:
            for e in range(begins[piece], begins[piece + 1]):
                count = counts[e] * gains[clusters[e]]
                for at in range(starts[clusters[e]], starts[clusters[e] + 1]):
                    b = root[pieces[at]]
                    if joined[b] == 0:
                        met[n_met] = b
                        n_met += 1
                    joined[b] += count * shares[at]
            piece = following[piece]
            if piece == a:
                break
        nearest[a] = -1
        most[a] = 0.0
        for t in range(n_met):
            b = met[t]
            n_joined = np.float64(joined[b])
            joined[b] = 0
            if b == a:
                continue
            if labeled.shape[0] == 0:
                n_pairs = sizes[a] * sizes[b]
            else:
                n_pairs = 0.0
                for u in range(labeled.shape[1]):
                    n_pairs += labeled[a, u] * labeled[b, u] * times[u]
            similarity = n_joined / n_pairs
            if similarity > most[a] or (similarity == most[a] and _hash(a, b) < _hash(a, nearest[a])):
                most[a] = similarity
                nearest[a] = b


@leaf
def _hash(a, b):
    """Return a number that scatters the pairs of clusters, the same for (a, b) and (b, a)."""
    code = (np.uint64(min(a, b)) << np.uint64(32)) ^ np.uint64(max(a, b))
    code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return code ^ (code >> np.uint64(31))


@jit
def merge_reciprocal(nearest, most, alive, root, following, sizes, labeled, stale, first, second, similarity):
    """Merge every two clusters that are each other's nearest, and fill the merges; return how many.

    ``alive`` (n_pieces,) are clusters, the others pieces of some. ``stale`` becomes the clusters whose
    nearest must be found anew: a cluster merged, or one whose nearest was. The nearest of the others is
    still that, for a union is no more similar to them than the more similar of its parts.
    """
    n_merges = 0
    for a in range(nearest.shape[0]):
        b = nearest[a]
        if alive[a] and b > a and nearest[b] == a:
            first[n_merges] = a
            second[n_merges] = b
            similarity[n_merges] = most[a]
            n_merges += 1
    for merge in range(n_merges):
        a = first[merge]
        b = second[merge]
        piece = b
        while True:
            root[piece] = a
            piece = following[piece]
            if piece == b:
                break
        following[a], following[b] = following[b], following[a]
        sizes[a] += sizes[b]
        for u in range(labeled.shape[1] if labeled.shape[0] > 0 else 0):
            labeled[a, u] += labeled[b, u]
        alive[b] = False
        stale[a] = True
        stale[b] = True
    for a in range(nearest.shape[0]):
        if alive[a] and nearest[a] >= 0 and stale[nearest[a]]:
            stale[a] = True
    return n_merges


@jit
def gather_profiles(
    begins, clusters, counts, alive, following, n_base_clusters, new_begins, new_clusters, new_counts
):
    """Write the profile of every cluster in one place, cluster after cluster; return the number of entries.

    New arrays may be the old ones only if every cluster is one piece.
    """
    totals = zeros(n_base_clusters, np.int64)
    met = empty(n_base_clusters, np.int64)
    n_entries = 0
    number = 0
    for a in range(alive.shape[0]):
        if not alive[a]:
            continue
        n_met = 0
        piece = a
        while True:
            for e in range(begins[piece], begins[piece + 1]):
                if totals[clusters[e]] == 0:
                    met[n_met] = clusters[e]
                    n_met += 1
                totals[clusters[e]] += counts[e]
            piece = following[piece]
            if piece == a:
                break
        for t in range(n_met):
            new_clusters[n_entries] = met[t]
            new_counts[n_entries] = totals[met[t]]
            totals[met[t]] = 0
            n_entries += 1
        number += 1
        new_begins[number] = n_entries
    return n_entries


@jit
def list_pieces(begins, clusters, counts, starts, pieces, shares):
    """Fill ``pieces`` and ``shares`` from profiles, base cluster by base cluster; ``starts`` must be 0.

    A base cluster whose objects are all in one piece, which makes no pieces similar, is left out of both: its
    entries are removed from the profiles.
    """
    n_pieces = begins.shape[0] - 1
    n_base_clusters = starts.shape[0] - 1
    within = zeros(n_base_clusters, np.int64)
    for e in range(begins[n_pieces]):
        within[clusters[e]] += 1
    kept = 0
    begin = 0
    for piece in range(n_pieces):
        end = begins[piece + 1]
        for e in range(begin, end):
            if within[clusters[e]] > 1:
                clusters[kept] = clusters[e]
                counts[kept] = counts[e]
                kept += 1
        begin = end
        begins[piece + 1] = kept
    for b in range(n_base_clusters):
        starts[b + 1] = starts[b] + (within[b] if within[b] > 1 else 0)
    filled = starts[:-1].copy()
    for piece in range(n_pieces):
        for e in range(begins[piece], begins[piece + 1]):
            b = clusters[e]
            pieces[filled[b]] = piece
            shares[filled[b]] = counts[e]
            filled[b] += 1
