"""Soft clusterings, entry by entry: memberships are lists of rows, one list for each partition."""


def overlaps(partitions, weights):
    """Return ``H^T W H`` as a list of rows, one for each base cluster of each partition."""
    columns = [[row[k] for row in partition] for partition in partitions for k in range(len(partition[0]))]
    return [
        [sum(w * a * b for w, a, b in zip(weights, first, second, strict=True)) for second in columns]
        for first in columns
    ]


def votes(partitions, table, i):
    """Return the rows of ``table``, one for each base cluster, summed by the memberships of an object."""
    shares = [value for partition in partitions for value in partition[i]]
    return [
        sum(share * row[k] for share, row in zip(shares, table, strict=True)) for k in range(len(table[0]))
    ]
