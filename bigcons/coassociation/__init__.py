"""Co-association: how often pairs of objects share a cluster, for sampled pairs or for all."""

from bigcons.coassociation.counts import count, dense, sample, sample_pairs
from bigcons.coassociation.increments import did_matrix, did_ranking

__all__ = ["count", "dense", "did_matrix", "did_ranking", "sample", "sample_pairs"]
