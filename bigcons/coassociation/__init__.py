"""Co-association: how often pairs of objects share a cluster, for sampled pairs or for all."""

from bigcons.coassociation.counts import count, dense
from bigcons.coassociation.increments import did_matrix, did_ranking
from bigcons.coassociation.sampling import sample, sample_pairs

__all__ = ["count", "dense", "did_matrix", "did_ranking", "sample", "sample_pairs"]
