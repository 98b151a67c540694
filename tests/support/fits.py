"""Fits without a word, and what of a fitted model has to have the same bits however it was fitted."""

from bigcons.testing import _bits as bits
from bigcons.testing import _fit as quiet

__all__ = ["bits", "quiet"]
