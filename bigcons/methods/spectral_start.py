"""A start from the spectral embedding of all objects, for ensembles of which a sample says too little.

A start on a sample takes clusters from one base partition, and learns what every base cluster is about from
the few sampled objects in it. If base clusters are many and small, the largest clusters of a partition hold
few of the objects, and a base cluster has few of the sample or none. If partitions are many, a start on the
sample costs as much as on all objects. Both kinds of ensembles start from k-means in the embedding of
`bipartite_embedding`, which takes a few passes over the labels, instead of from the best of several starts.
"""

from __future__ import annotations

import numpy as np

from bigcons.methods.embedding import Centers, Embedding, bipartite_embedding
from bigcons.run.passes import Counts, Run, Stats, add_stats
from bigcons.run.survey import Survey
from bigcons.seeding import generator
from bigcons.spectra import kmeans_of_unit_rows
from bigcons.store.ensemble import Ensemble
from bigcons.weights import Weights, counts_of

# Labels in the sample for each base cluster below which base clusters are too fine for it. Starts on the
# sample missed a class of twelve with 38 labels (20,000 objects, 50 partitions of about 106 clusters), and
# lost a quarter of the accuracy with 4 (40,000 objects, 20 partitions of 500 clusters, 8 classes).
FEWEST_LABELS = 64

# Objects that base clusters count as if they had besides their own. Without any, the leading vectors of very
# small base clusters tell of a few objects that hang on the others by a single label: from them, KCC of
# 200,000 objects in 20 partitions of 50,000 base clusters, half of the labels missing, had an adjusted Rand
# index of .03 (8 planted classes), with one more object .84. Of larger base clusters hardly anything changes.
MORE_OBJECTS = 1.0


def starts_spectrally(ensemble: Ensemble, survey: Survey, n_clusters: int) -> bool:
    """Return whether the sample says too little of the base clusters, or has too many labels to start on."""
    is_wide = int(np.count_nonzero(survey.sample >= 0)) > 1 << 22  # starts on it cost more than the embedding
    return is_wide or survey.is_fine(ensemble, n_clusters, FEWEST_LABELS)


def count_spectral(n_clusters: int, weights: Weights | None, run: Run) -> Counts:
    """Return the counts of the clusters of k-means of the sample in the spectral embedding of all objects."""
    embedding = bipartite_embedding(run.data, run.engine, n_clusters, weights, more_objects=MORE_OBJECTS)
    rows, labeled = embedding.rows_of(run.sample)
    draw = int(generator(run.seed, "spectral_start.kmeans").integers(2**31))
    found = kmeans_of_unit_rows(rows[labeled], n_clusters, 1, draw)
    return count_nearest(run, embedding, found.centers, n_clusters, weights)


def count_nearest(
    run: Run, embedding: Embedding, centers: np.ndarray, n_clusters: int, weights: Weights | None
) -> Counts:
    """Return the counts of the clusters of all objects, of the nearest of the centers (K, columns)."""
    offsets, nearest = run.data.offsets, Centers(embedding, centers)

    def of_block(labels: np.ndarray) -> Stats:
        counts, sizes = counts_of(labels, offsets, nearest.labels_of(labels), n_clusters, weights)
        return {"counts": counts, "sizes": sizes}

    stats = run.fold(run.visit(of_block, reads=[]), add_stats)
    return stats["counts"], stats["sizes"]
