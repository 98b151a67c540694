"""Nearest label rows by co-association, found through the lists of the members of base clusters.

Label rows are ``(n_rows, n_partitions)``, negative where missing, C-contiguous. Label ``l`` of partition
``u`` is base cluster ``offsets[u] + l``, whose rows are ``members[starts[b] : starts[b + 1]]``.

Two rows are similar only if they share base clusters, so a row meets all rows of positive similarity in the
lists of its own. How many it shares with each is counted list by list, and similarities ``n_agree / n_seen``
are compared in integers, hence exactly.
"""

from __future__ import annotations

import numpy as np

from bigcons.kernels._jit import empty, jit, leaf, zeros
from bigcons.kernels.label_rows import compare_rows
from bigcons.kernels.linkage import find_root


@jit
def list_members(rows, offsets, starts, members):
    """Fill ``members`` (n_labels,) with the rows of each base cluster, ascending.

    ``starts`` (n_base_clusters + 1,) int64 must be 0 and ``members`` long enough.
    """
    n, n_partitions = rows.shape
    for i in range(n):
        for u in range(n_partitions):
            if rows[i, u] >= 0:
                starts[offsets[u] + rows[i, u] + 1] += 1
    for b in range(1, starts.shape[0]):
        starts[b] += starts[b - 1]
    filled = starts[:-1].copy()
    for i in range(n):
        for u in range(n_partitions):
            if rows[i, u] >= 0:
                b = offsets[u] + rows[i, u]
                members[filled[b]] = i
                filled[b] += 1


@jit
def order_of_visits(rows, offsets, starts, members, order):
    """Fill ``order`` (n_rows,) with the rows as a breadth-first walk along shared base clusters meets them.

    Rows that share base clusters come to lie close together, so that counts by row stay in the cache.
    """
    n, n_partitions = rows.shape
    met = zeros(n, np.bool_)
    walked = zeros(starts.shape[0], np.bool_)
    head = 0
    tail = 0
    for first in range(n):
        if met[first]:
            continue
        met[first] = True
        order[tail] = first
        tail += 1
        while head < tail:
            i = order[head]
            head += 1
            for u in range(n_partitions):
                if rows[i, u] < 0:
                    continue
                b = offsets[u] + rows[i, u]
                if walked[b]:
                    continue
                walked[b] = True
                for at in range(starts[b], starts[b + 1]):
                    j = members[at]
                    if not met[j]:
                        met[j] = True
                        order[tail] = j
                        tail += 1


@jit
def mark_observed(rows, observed):
    """Set bit ``u`` of ``observed`` (n_rows, n_words) uint64, all 0, where partition ``u`` labels a row."""
    for i in range(rows.shape[0]):
        for u in range(rows.shape[1]):
            if rows[i, u] >= 0:
                observed[i, u >> 6] |= np.uint64(1) << np.uint64(u & 63)


@leaf
def count_bits(word):
    """Return the number of bits set in a uint64."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@jit
def mark_owners(starts, members, component, owner):
    """Set ``owner`` (n_base_clusters,) to the component that has all rows of a base cluster, else to -1."""
    for b in range(owner.shape[0]):
        owner[b] = -1
        if starts[b] < starts[b + 1]:
            owner[b] = component[members[starts[b]]]
        for at in range(starts[b] + 1, starts[b + 1]):
            if component[members[at]] != owner[b]:
                owner[b] = -1
                break


@jit
def nearest_outside(
    rows, offsets, starts, members, observed, fewest, component, owner, wanted, count, neighbor, agree, seen
):
    """Replace the neighbors of the ``wanted`` rows by those most similar outside their components.

    ``neighbor``, ``agree`` and ``seen`` (n_rows, q), by falling similarity ``agree / seen``, end with -1
    where fewer than q rows outside have a positive similarity. What they held is compared first, as are rows
    nearby: bounds that are good from the start save work, and of equally similar rows those found depend on
    them. ``observed`` has no words if all similarities are of all partitions; every row has at least
    ``fewest`` labels. ``owner`` is that of `mark_owners`; ``count`` (n_rows,) must be 0, of a type that holds
    the number of partitions.

    The lists of a row are counted from the smallest. Once p of m are, a row in none of them shares at most
    m - p base clusters, and one met k times at most k + m - p. The largest lists are not read if that is too
    few for all rows not met; rows met often enough are compared label by label.
    """
    n, n_partitions = rows.shape
    q = neighbor.shape[1]
    n_words = observed.shape[1]
    met = empty(n + 1, np.int32)
    lists = empty(n_partitions, np.int64)
    lengths = empty(n_partitions, np.int64)
    tried = empty(2 * q + 9, np.int64)
    near = empty(q, np.int64)
    near_agree = empty(q, np.int64)
    near_seen = empty(q, np.int64)
    last = -1
    for w in range(wanted.shape[0]):
        i = wanted[w]
        own = component[i]
        m = 0
        n_labels = 0
        for u in range(n_partitions):
            if rows[i, u] < 0:
                continue
            n_labels += 1
            b = offsets[u] + rows[i, u]
            if owner[b] != own:
                lists[m] = b
                lengths[m] = starts[b + 1] - starts[b]
                m += 1
        by_length = np.argsort(lengths[:m])

        n_tried = 0
        for slot in range(q):
            if neighbor[i, slot] >= 0:
                tried[n_tried] = neighbor[i, slot]
                n_tried += 1
            if last >= 0 and neighbor[last, slot] >= 0:
                tried[n_tried] = neighbor[last, slot]
                n_tried += 1
        for j in range(max(i - 4, 0), min(i + 5, n)):  # rows beside it, a start for the bounds
            tried[n_tried] = j
            n_tried += 1
        for slot in range(q):
            near[slot] = -1
            near_agree[slot] = 0
            near_seen[slot] = 1
        for t in range(n_tried):
            j = tried[t]
            if component[j] != own:
                c, s = compare_rows(rows[i], rows[j])
                if n_words == 0:
                    s = n_partitions
                _keep(near, near_agree, near_seen, j, np.int64(c), np.int64(s))

        # p: as many lists as rows not met need, and some more, that few rows met must be compared
        worst_agree, worst_seen = near_agree[q - 1], near_seen[q - 1]
        shared = n_labels + fewest - n_partitions if n_words > 0 else n_partitions
        p = 0
        while p < m and _is_more(m - p, max(m - p, shared), worst_agree, worst_seen):
            p += 1
        p = min(m, p + p // 3 + 1)
        n_met = 0
        for t in range(p):
            b = lists[by_length[t]]
            for at in range(starts[b], starts[b + 1]):
                j = members[at]
                k = count[j]
                met[n_met] = j
                n_met += k == 0
                count[j] = k + 1
        for t in range(n_met):
            j = met[t]
            most = np.int64(count[j]) + (m - p)
            count[j] = 0
            if component[j] == own:
                continue
            s = n_partitions
            if n_words > 0:
                s = 0
                for word in range(n_words):
                    s += count_bits(observed[i, word] & observed[j, word])
            if _is_more(min(most, s), s, near_agree[q - 1], near_seen[q - 1]):
                c = most
                if p < m:
                    c = np.int64(compare_rows(rows[i], rows[j])[0])
                _keep(near, near_agree, near_seen, j, c, np.int64(s))
        for slot in range(q):
            neighbor[i, slot] = near[slot]
            agree[i, slot] = near_agree[slot]
            seen[i, slot] = near_seen[slot]
        last = i


@leaf
def _is_more(agree, seen, other_agree, other_seen):
    """Return whether ``agree / seen`` exceeds ``other_agree / other_seen``; denominators are positive."""
    return agree * other_seen > other_agree * seen


@leaf
def _keep(near, near_agree, near_seen, j, agree, seen):
    """Insert row ``j`` into the nearest rows so far if it is nearer than the last and not among them."""
    q = near.shape[0]
    if agree == 0 or not _is_more(agree, seen, near_agree[q - 1], near_seen[q - 1]):
        return
    for slot in range(q):
        if near[slot] == j:
            return
    slot = q - 1
    while slot > 0 and _is_more(agree, seen, near_agree[slot - 1], near_seen[slot - 1]):
        near[slot] = near[slot - 1]
        near_agree[slot] = near_agree[slot - 1]
        near_seen[slot] = near_seen[slot - 1]
        slot -= 1
    near[slot] = j
    near_agree[slot] = agree
    near_seen[slot] = seen


@jit
def best_outside(component, largest, neighbor, agree, seen, head, best):
    """Find each component's most similar pair with a row outside, as far as the neighbors of its rows tell.

    ``best`` (n_components,) becomes the row inside, whose neighbor ``head[row]`` is outside, or -1. ``head``
    (n_rows,) moves on to each row's first neighbor outside; beyond the last, or before a -1, there is none.
    Returns the rows whose q neighbors are all inside although a row outside might be nearer than that of the
    component's best pair. The component ``largest`` is left out of both; -1 leaves none out.
    """
    n, q = neighbor.shape
    best[:] = -1
    for i in range(n):
        own = component[i]
        while head[i] < q and neighbor[i, head[i]] >= 0 and component[neighbor[i, head[i]]] == own:
            head[i] += 1
        if head[i] < q and neighbor[i, head[i]] >= 0:
            other = best[own]
            if other < 0 or _is_more(
                np.int64(agree[i, head[i]]),
                np.int64(seen[i, head[i]]),
                np.int64(agree[other, head[other]]),
                np.int64(seen[other, head[other]]),
            ):
                best[own] = i
    unsure = empty(n, np.int64)
    n_unsure = 0
    for i in range(n):
        if head[i] < q or component[i] == largest:
            continue
        other = best[component[i]]
        if other < 0 or _is_more(
            np.int64(agree[i, q - 1]),
            np.int64(seen[i, q - 1]),
            np.int64(agree[other, head[other]]),
            np.int64(seen[other, head[other]]),
        ):
            unsure[n_unsure] = i
            n_unsure += 1
    if largest >= 0:
        best[largest] = -1
    return unsure[:n_unsure]


@jit
def number_components(parent, component):
    """Fill ``component`` (n,) with the numbers of the trees of ``parent``, by their first members.

    Roots are the first members of their trees, as `union_merges` leaves them. Returns the number of trees.
    """
    n_components = 0
    for i in range(parent.shape[0]):
        root = find_root(parent, i)
        if root == i:
            component[i] = n_components
            n_components += 1
        else:
            component[i] = component[root]
    return n_components
