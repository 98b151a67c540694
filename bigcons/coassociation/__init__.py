"""Co-association: how often pairs of objects share a cluster, for sampled pairs or for all."""

from bigcons.coassociation.count import count
from bigcons.coassociation.dense import dense
from bigcons.coassociation.did import did_matrix, did_ranking
from bigcons.coassociation.sample import sample, sample_pairs

__all__ = ["count", "dense", "did_matrix", "did_ranking", "sample", "sample_pairs"]
