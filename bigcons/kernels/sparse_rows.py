"""Sparse tables with one row per base cluster: sums of the memberships of objects that are in few clusters.

A table is three arrays: where each row starts (B + 1,) int64, then the columns uint16 and the values float64
of all its entries, by column. Objects have the rows that `candidates` describes: their clusters, then their
memberships in them.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import jit, leaf

# Sums of memberships at most this large are rounding errors of zero.
DUST = 1e-9


@jit
def sum_moves(labels, offsets, kept, kept_new, has_moved, fresh, n_clusters):
    """Return the table of what a block's moves add to the summed memberships of its base clusters.

    labels (n, M) with -1 missing; offsets (M+1,) int64; kept, kept_new (n, 2 room) float32: the memberships
    before and after, ``kept`` not read if the objects are ``fresh``; has_moved (n,) bool. O(m) for each
    membership that changes: changes are sorted by cluster, then dealt to base clusters in that order.
    """
    n_rows, M = labels.shape
    B, room = offsets[M], kept_new.shape[1] // 2
    found, before = np.empty(room, np.int64), np.empty(room, np.int64)
    y, y_before = np.empty(room), np.empty(room)
    changed, change = np.empty(2 * room, np.int64), np.empty(2 * room)
    first, n_labels = np.zeros(n_clusters + 1, np.int64), 0
    for i in range(n_rows):
        if has_moved[i]:
            n_before = 0 if fresh else read_row(kept, i, before, y_before)
            n = read_row(kept_new, i, found, y)
            for e in range(list_changes(before, y_before, n_before, found, y, n, changed, change)):
                first[changed[e] + 1] += 1
            for u in range(M):
                n_labels += labels[i, u] >= 0
    for k in range(n_clusters):
        first[k + 1] += first[k]
    of_object, base_clusters = np.empty(n_rows + 1, np.int64), np.empty(n_labels, np.int32)
    objects, amounts = np.empty(first[n_clusters], np.int32), np.empty(first[n_clusters])
    ends, n_labels = first[:n_clusters].copy(), 0
    at_base, seen = np.empty(M + 1, np.int64), np.empty(M)
    for i in range(n_rows):
        of_object[i] = n_labels
        if has_moved[i]:
            n_before = 0 if fresh else read_row(kept, i, before, y_before)
            n = read_row(kept_new, i, found, y)
            for e in range(list_changes(before, y_before, n_before, found, y, n, changed, change)):
                objects[ends[changed[e]]], amounts[ends[changed[e]]] = i, change[e]
                ends[changed[e]] += 1
            for j in range(list_base_clusters(labels, i, offsets, at_base, seen)):
                base_clusters[n_labels] = at_base[j]
                n_labels += 1
    of_object[n_rows] = n_labels
    starts, latest = np.zeros(B + 1, np.int64), np.full(B, -1, np.int32)
    for k in range(n_clusters):
        for q in range(first[k], first[k + 1]):
            for j in range(of_object[objects[q]], of_object[objects[q] + 1]):
                b = base_clusters[j]
                starts[b + 1] += latest[b] != k
                latest[b] = k
    for b in range(B):
        starts[b + 1] += starts[b]
        latest[b] = -1
    columns, values = np.empty(starts[B], np.uint16), np.empty(starts[B])
    ends = starts[:B] - 1
    for k in range(n_clusters):
        for q in range(first[k], first[k + 1]):
            for j in range(of_object[objects[q]], of_object[objects[q] + 1]):
                b = base_clusters[j]
                if latest[b] == k:
                    values[ends[b]] += amounts[q]
                else:
                    latest[b] = k
                    ends[b] += 1
                    columns[ends[b]], values[ends[b]] = k, amounts[q]
    return starts, columns, values


@jit
def add_tables(a, b):
    """Return the sum of two tables; entries of at most `DUST` are left out. O(entries)."""
    starts = np.zeros(a[0].shape[0], np.int64)
    none, nothing = np.empty(0, np.uint16), np.empty(0)
    for r in range(starts.shape[0] - 1):
        starts[r + 1] = starts[r] + merge_row(a, b, r, none, nothing, -1)
    columns, values = np.empty(starts[-1], np.uint16), np.empty(starts[-1])
    for r in range(starts.shape[0] - 1):
        merge_row(a, b, r, columns, values, starts[r])
    return starts, columns, values


@leaf
def merge_row(a, b, r, columns, values, at):
    """Write the sum of two rows from position ``at`` on, unless it is negative; return its entries."""
    p, p_end, q, q_end = a[0][r], a[0][r + 1], b[0][r], b[0][r + 1]
    n = 0
    while p < p_end or q < q_end:
        if q == q_end or (p < p_end and a[1][p] < b[1][q]):
            column, value = a[1][p], a[2][p]
            p += 1
        elif p == p_end or b[1][q] < a[1][p]:
            column, value = b[1][q], b[2][q]
            q += 1
        else:
            column, value = a[1][p], a[2][p] + b[2][q]
            p += 1
            q += 1
        if abs(value) > DUST:
            if at >= 0:
                columns[at + n], values[at + n] = column, value
            n += 1
    return n


@jit
def sum_partitions(table, offsets, out):
    """Add the rows of the base clusters of each partition to its row of ``out`` (M, K)."""
    for u in range(offsets.shape[0] - 1):
        for q in range(table[0][offsets[u]], table[0][offsets[u + 1]]):
            out[u, table[1][q]] += table[2][q]


@jit
def choose_hints(table, offsets, of_partitions, shares, gains, least, near, rest):
    """Return the table of the clusters that each base cluster hints at, and the agreement of all.

    A base cluster hints at a cluster that has at least the share ``least`` of its objects, or of which it
    has this share, by ``of_partitions`` (M, K), of the objects its partition labels: at most ``(B + M K) /
    least`` hints in all. Its other objects are taken to be ``r`` times ``shares`` (K,), those of all objects.
    The values are the entries of ``table`` less ``r shares``, times ``gains`` (B,); ``rest`` (B,) becomes
    ``r gains``. ``near``: the entries of theta, see `candidates.sweep`. The agreement is the sum of ``gains
    s' theta s`` over the rows s of ``table``, none left out.
    """
    B, K = gains.shape[0], shares.shape[0]
    starts, totals = np.zeros(B + 1, np.int64), np.zeros(B)
    for u in range(offsets.shape[0] - 1):
        for b in range(offsets[u], offsets[u + 1]):
            for q in range(table[0][b], table[0][b + 1]):
                totals[b] += table[2][q]
            n = 0
            for q in range(table[0][b], table[0][b + 1]):
                n += table[2][q] >= least * min(totals[b], of_partitions[u, table[1][q]])
            starts[b + 1] = starts[b] + n
    columns, values = np.empty(starts[B], np.uint16), np.empty(starts[B])
    row = np.zeros(K)
    agreement = 0.0
    for u in range(offsets.shape[0] - 1):
        for b in range(offsets[u], offsets[u + 1]):
            first, end, n = table[0][b], table[0][b + 1], starts[b]
            inner = 0.0
            for q in range(first, end):
                row[table[1][q]] = table[2][q]
                inner += table[2][q] * times_near_up_to(near, table[1][q], row)
            agreement += gains[b] * inner
            hinted = expected = 0.0
            for q in range(first, end):
                k = table[1][q]
                row[k] = 0.0
                if table[2][q] >= least * min(totals[b], of_partitions[u, k]):
                    columns[n], values[n] = k, table[2][q]
                    hinted += table[2][q]
                    expected += shares[k]
                    n += 1
            r = (totals[b] - hinted) / (1.0 - expected) if expected < 1.0 - DUST else 0.0
            for q in range(starts[b], starts[b + 1]):
                values[q] = gains[b] * (values[q] - r * shares[columns[q]])
            rest[b] = gains[b] * r
    return (starts, columns, values), agreement


@leaf
def times_near(near, k, row):
    """Return ``theta[k].row`` by the entries of theta that are not zero."""
    starts, columns, values = near
    total = 0.0
    for q in range(starts[k], starts[k + 1]):
        total += values[q] * row[columns[q]]
    return total


@leaf
def times_near_up_to(near, k, row):
    """Return twice ``theta[k].row`` over the clusters before ``k``, plus its term of ``k``."""
    starts, columns, values = near
    total = 0.0
    q = starts[k]
    while q < starts[k + 1] and columns[q] < k:
        total += values[q] * row[columns[q]]
        q += 1
    total *= 2.0
    if q < starts[k + 1] and columns[q] == k:
        total += values[q] * row[k]
    return total


# Rows of objects


@leaf
def list_base_clusters(labels, i, offsets, at_base, seen):
    """List the base clusters of object ``i`` in ``at_base`` (M + 1,); return how many.

    And set ``seen`` (M,) float64 to which partitions label it.
    """
    m = 0
    for u in range(labels.shape[1]):
        at_base[m] = offsets[u] + labels[i, u]  # overwritten by the next if the label is missing
        seen[u] = labels[i, u] >= 0
        m += labels[i, u] >= 0
    return m


@leaf
def read_row(kept, i, found, y):
    """Read the clusters and memberships of an object, these normalized in float64; return how many."""
    room, n, total = found.shape[0], 0, 0.0
    while n < room and kept[i, n] >= 0:
        found[n] = np.int64(kept[i, n])
        y[n] = np.float64(kept[i, room + n])
        total += y[n]
        n += 1
    for e in range(n):
        y[e] /= total
    return n


@leaf
def list_changes(before, y_before, n_before, found, y, n, changed, change):
    """List the clusters whose membership changed, and by how much; return how many."""
    n_changes = 0
    for e in range(n):
        d = y[e]
        for f in range(n_before):
            if before[f] == found[e]:
                d -= y_before[f]
        if d != 0.0:
            changed[n_changes], change[n_changes] = found[e], d
            n_changes += 1
    for f in range(n_before):
        stayed = False
        for e in range(n):
            stayed |= found[e] == before[f]
        if not stayed:
            changed[n_changes], change[n_changes] = before[f], -y_before[f]
            n_changes += 1
    return n_changes
