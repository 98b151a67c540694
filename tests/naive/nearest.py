"""The nearest center of every partition, by its definition."""


def distance(x, center):
    """Return the squared Euclidean distance."""
    return sum((float(a) - float(b)) ** 2 for a, b in zip(x, center, strict=True))


def mean_distance(points, centers, offsets, weights, labels):
    """Return the mean squared distance of each point to its centers, in features times weights (M, width)."""
    found = []
    for x, of_x in zip(points, labels, strict=True):
        own = [
            distance(x * weights[u], centers[offsets[u] + label] * weights[u])
            for u, label in enumerate(of_x)
            if label >= 0
        ]
        found.append(sum(own) / max(len(own), 1))
    return found


def label(points, centers, offsets, labels):
    """Return the labels: all that are not negative become the nearest center, the first of a tie."""
    found = labels.copy()
    for i, x in enumerate(points):
        for u in range(labels.shape[1]):
            if labels[i, u] >= 0:
                of_partition = centers[offsets[u] : offsets[u + 1]]
                distances = [distance(x, center) for center in of_partition]
                found[i, u] = distances.index(min(distances))
    return found
