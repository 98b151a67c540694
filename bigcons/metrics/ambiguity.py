"""How often partitions neither join nor separate pairs of objects: the consensus CDF, and PAC."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigcons.coassociation.counts import dense
from bigcons.errors import InvalidInputError
from bigcons.seeding import SeedLike, draw_rows, resolve_seed
from bigcons.stores.ensemble import as_ensemble
from bigcons.validation import check_int, check_number


def pac(
    x: Any,
    *,
    lower: float = 0.1,
    upper: float = 0.9,
    n_objects: int = 1000,
    random_state: SeedLike = 0,
) -> float:
    """Return the proportion of ambiguous clustering, from 0 to 1: pairs of which partitions disagree.

    That is the share of the pairs of objects whose co-association, the share of the partitions labeling both
    that join them, is above ``lower`` and at most ``upper``: the rise of the consensus CDF between them
    (Șenbabaoğlu, Michailidis and Li 2014). It compares ensembles whose partitions all have one number of
    clusters; partitions of many numbers disagree by design. Independent labels of many clusters have few
    ambiguous pairs, too, as nearly all are apart: whether clusters are real, `bigcons.choose_n_clusters`
    tells.

    ``x`` is an ensemble of labels, or anything `Ensemble.from_labels` takes; of more than ``n_objects``
    objects, a random sample. O(n_objects^2 n_partitions) time, O(n_objects^2) memory. Raises
    InvalidInputError if no partition labels two of the objects.

    Examples
    --------
    >>> import bigcons as bc
    >>> bc.metrics.pac([[0, 0], [0, 0], [1, 0], [1, 1]])
    0.5
    """
    check_number("lower", lower, at_least=0, at_most=1)
    check_number("upper", upper, at_least=lower, at_most=1)
    shares = pair_shares(x, n_objects, random_state)
    return float(((shares > lower) & (shares <= upper)).mean())


def pair_shares(x: Any, n_objects: int, random_state: SeedLike) -> np.ndarray:
    """Return the co-association, ascending, of all pairs of sampled objects that some partition labels."""
    ensemble = as_ensemble(x)
    check_int("n_objects", n_objects, at_least=2)
    rows = draw_rows(ensemble.n_objects, n_objects, resolve_seed(random_state), "metrics.ambiguity")
    upper = np.triu_indices(len(rows), 1)
    agree, seen = (counts[upper] for counts in dense(ensemble.read_rows(rows)))
    known = seen > 0
    if not known.any():
        raise InvalidInputError(
            f"no partition labels two of {len(rows)} sampled objects; pass an ensemble with more labels, or "
            "a larger n_objects."
        )
    return np.sort(agree[known] / seen[known])
