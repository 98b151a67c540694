"""Draws by the definition, in integers of any size."""


def splitmix(state, number):
    """Return draw ``number`` of SplitMix64, from 0, as 53 bits."""
    bits = 2**64
    x = (state + (number + 1) * 0x9E3779B97F4A7C15) % bits
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % bits
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % bits
    return (x ^ (x >> 31)) >> 11


def drawn_rows(key, piece, n_rows, count):
    """Return the rows of a piece that selection sampling takes, ascending."""
    state = splitmix((key + piece * 0x9E3779B97F4A7C15) % 2**64, 0) * 0x94D049BB133111EB % 2**64
    rows = []
    for row in range(n_rows):
        if splitmix(state, row) / 2**53 * (n_rows - row) < count - len(rows):
            rows.append(row)
    return rows


def least_of_each(labels, partitions, key, factors, n_least):
    """Return the objects with the least random numbers of every base cluster, ``{(u, label): rows}``."""
    least = {}
    for u, factor in zip(partitions, factors, strict=True):
        for label in sorted({row[u] for row in labels} - {-1}):
            rows = [i for i, row in enumerate(labels) if row[u] == label]
            states = [(key + i * 0x9E3779B97F4A7C15) % 2**64 for i in rows]
            numbers = [(splitmix(state, 0) * factor % 2**64) >> 11 for state in states]
            least[u, label] = [i for _, i in sorted(zip(numbers, rows, strict=True))[:n_least]]
    return least
