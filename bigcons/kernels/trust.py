"""How sure each object's cluster is, by naive Bayes on its base labels, and how much partitions repeat each
other.

Label rows are ``(n_rows, n_partitions)``, negative where missing, C-contiguous; label ``l`` of partition
``u`` is base cluster ``offsets[u] + l``.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit
from bigcons.kernels.cluster_tables import end_of_slice


@jit
def weigh_labels(
    labels, clusters, offsets, rates, own_rates, prior, own_prior, temperature,
    halves, shares, second, second_shares, known, assigned, shared,
):  # fmt: skip
    """Set the probability of each object's cluster, and the best other cluster with its probability.

    ``clusters`` (rows,) are those of the objects, -1 for none. ``rates`` (B, K) are the log-probabilities of
    base clusters in each cluster, and ``own_rates`` those in the object's own cluster without the object;
    ``prior`` and ``own_prior`` (K,) those of the clusters. The evidence of the labels is multiplied by
    ``temperature``.

    ``halves`` (n_splits, M) divides the partitions in two, several times. For each of the 2 n_splits halves
    (2 s, those marked in split s, and 2 s + 1), the rows of ``known``, ``assigned`` and ``shared`` (K,) count
    the objects of each cluster that the half knows, those which it alone would assign to it, and both.
    """
    n_rows, M = labels.shape
    K, n_splits = rates.shape[1], halves.shape[0]
    total, part = np.zeros((n_rows, K)), np.zeros((n_rows, n_splits, K))
    n_labels, n_in_part = np.zeros(n_rows, np.int64), np.zeros((n_rows, n_splits), np.int64)
    first = 0
    while first < M:  # a slice of the partitions after the other, whose rates stay in the cache
        last = end_of_slice(offsets, first, 2 * K)
        for i in range(n_rows):
            cluster = clusters[i]
            if cluster < 0:
                continue
            for u in range(first, last):
                if labels[i, u] < 0:
                    continue
                b = offsets[u] + labels[i, u]
                n_labels[i] += 1
                without = own_rates[b, cluster] - rates[b, cluster]
                for k in range(K):
                    total[i, k] += rates[b, k]
                total[i, cluster] += without
                for s in range(n_splits):
                    if halves[s, u]:
                        n_in_part[i, s] += 1
                        for k in range(K):
                            part[i, s, k] += rates[b, k]
                        part[i, s, cluster] += without
        first = last
    prior_of = np.empty(K)
    for i in range(n_rows):
        cluster = clusters[i]
        shares[i], second[i], second_shares[i] = 0.0, -1, 0.0
        if cluster < 0:
            continue
        for k in range(K):
            prior_of[k] = own_prior[k] if k == cluster else prior[k]
        best = -np.inf
        for k in range(K):
            total_k = prior_of[k] + temperature * total[i, k]
            if k != cluster and (second[i] < 0 or total_k > best):
                second[i], best = k, total_k
        own_score = prior_of[cluster] + temperature * total[i, cluster]
        highest = max(own_score, best)
        mass = 0.0
        for k in range(K):
            mass += np.exp(prior_of[k] + temperature * total[i, k] - highest)
        shares[i] = np.exp(own_score - highest) / mass
        if second[i] >= 0:
            second_shares[i] = np.exp(best - highest) / mass
        for s in range(n_splits):
            for which in range(2):
                n_seen = n_in_part[i, s] if which == 0 else n_labels[i] - n_in_part[i, s]
                if n_seen == 0:
                    continue
                winner, most = 0, -np.inf
                for k in range(K):
                    seen_k = part[i, s, k] if which == 0 else total[i, k] - part[i, s, k]
                    score = prior_of[k] + temperature * seen_k
                    if score > most:
                        winner, most = k, score
                half = 2 * s + which
                known[half, cluster] += 1
                assigned[half, winner] += 1
                if winner == cluster:
                    shared[half, cluster] += 1


@jit
def compare_partitions(labels, offsets, others, together, in_first, in_second, in_all):
    """Count pairs of objects that two partitions join, of each with ``others`` (R,), (M, R) int64 each.

    Over the objects that both label: pairs that both join, that the first joins, that the other joins, and
    all pairs. Two of the ``others`` are compared once, the lower first. O(M R n_rows) time.
    """
    n_rows, M = labels.shape
    widest = 0
    for u in range(M):
        widest = max(widest, offsets[u + 1] - offsets[u])
    ends, order = np.empty(widest + 1, np.int64), np.empty(n_rows, np.int64)
    in_group, in_column = np.zeros(widest, np.int64), np.zeros(widest, np.int64)
    is_other = np.zeros(M, np.bool_)
    is_other[others] = True
    for u in range(M):
        width = offsets[u + 1] - offsets[u]
        ends[: width + 1] = 0
        for i in range(n_rows):
            if labels[i, u] >= 0:
                ends[labels[i, u] + 1] += 1
        for b in range(width):
            ends[b + 1] += ends[b]
        for i in range(n_rows):  # objects by their label in u; afterwards ends[b] is the end of group b
            if labels[i, u] >= 0:
                order[ends[labels[i, u]]] = i
                ends[labels[i, u]] += 1
        for r in range(others.shape[0]):
            v = others[r]
            if v == u or (v < u and is_other[u]):
                continue
            in_column[:] = 0
            start, n_both, n_together, n_first, n_second = 0, 0, 0, 0, 0
            for b in range(width):
                n_group = 0
                for e in range(start, ends[b]):
                    label = labels[order[e], v]
                    if label >= 0:
                        n_together += in_group[label]
                        n_second += in_column[label]
                        n_first += n_group
                        in_group[label] += 1
                        in_column[label] += 1
                        n_group += 1
                for e in range(start, ends[b]):
                    label = labels[order[e], v]
                    if label >= 0:
                        in_group[label] = 0
                n_both += n_group
                start = ends[b]
            together[u, r], in_first[u, r], in_second[u, r] = n_together, n_first, n_second
            in_all[u, r] = n_both * (n_both - 1) // 2
