"""Base clusterings: from features to an ensemble."""

from bigcons.generate.kmeans import kmeans

__all__ = ["kmeans"]
