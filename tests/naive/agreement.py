"""Counts of agreement, one pair and one partition at a time."""


def counts(labels, i, j):
    """Return how many partitions join objects i and j, and how many label both."""
    n_agree = n_seen = 0
    for first, second in zip(labels[i], labels[j], strict=True):
        if first >= 0 and second >= 0:
            n_seen += 1
            n_agree += int(first == second)
    return n_agree, n_seen


def neighbors(labels, pairs):
    """Return, for every object, the sorted (other object, n_agree, n_seen) of its pairs that are seen."""
    rows = [[] for _ in labels]
    for i, j in pairs:
        n_agree, n_seen = counts(labels, i, j)
        if n_seen:
            rows[i].append((j, n_agree, n_seen))
            rows[j].append((i, n_agree, n_seen))
    return [sorted(row) for row in rows]
