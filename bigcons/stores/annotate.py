"""AnnData: what was found of the objects, into the tables of the cells."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from bigcons.errors import InvalidIdsError, InvalidInputError
from bigcons.stores.consensus import Consensus, fit_results


def annotate(adata: Any, found: Any, *, key_added: str = "consensus", memberships: bool = True) -> None:
    """Write a consensus into an AnnData, whose observations are its objects.

    ``adata.obs[key_added]`` becomes the cluster, a categorical of text as scanpy has it; where it is known,
    ``adata.obs[key_added + "_confidence"]`` the probability that it is right, see `bigcons.metrics.trust`,
    and ``adata.obsm[key_added + "_memberships"]`` the memberships ``(n_obs, n_clusters)`` float32, unless
    ``memberships=False``. ``adata.uns[key_added]`` says in JSON how they were found and what the fit says of
    them: ``has_structure`` is false if no number of clusters stands out.

    Parameters
    ----------
    adata
        An ``anndata.AnnData``, changed in place.
    found
        A `Consensus`, its path, or a fitted clusterer. If its objects have ids, these are matched with
        ``adata.obs_names``, in any order, and observations without a consensus have a missing cluster and
        memberships of 0. Else there is one object for each observation, in their order.
    key_added : default="consensus"
        Name of the new columns; existing ones are replaced.
    memberships : default=True
        Whether to write the memberships, which take 4 bytes for each observation and cluster.

    Raises InvalidInputError for another number of objects, InvalidIdsError if no id is one of ``obs_names``.

    Examples
    --------
    >>> import bigcons as bc
    >>> model = bc.MCLA(2, random_state=0).fit([[0, 0], [0, 0], [0, 1], [1, 2], [1, 2]])
    >>> bc.annotate(adata, model, key_added="consensus")  # doctest: +SKIP
    """
    import pandas as pd  # type: ignore[import-untyped]

    if not hasattr(adata, "obs_names"):
        raise InvalidInputError(
            f"adata has type {type(adata).__name__}; pass an AnnData, of a file adata = "
            "anndata.read_h5ad(path), and write it again by adata.write_h5ad(path).",
            parameter="adata",
        )
    if isinstance(found, (str, os.PathLike)):
        found = Consensus.open(found)
    if isinstance(found, Consensus):
        labels, ids, parameters, results = found.labels, found.ids, found.parameters, found.results
        confidence = found.trust.confidence if found.has_trust else None
        soft = found.memberships if memberships and found.has_memberships else None
    elif hasattr(found, "labels_"):
        labels, ids = found.labels_, getattr(found, "_ids", None)
        ids = None if ids is None else ids.hold().values.to_numpy(zero_copy_only=False)
        parameters = {"method": type(found).__name__, **found.get_params(deep=False)}
        results = fit_results(found)
        trusted = getattr(found, "trust_", None)
        confidence = None if trusted is None else trusted.confidence
        soft = np.asarray(found.memberships_) if memberships and hasattr(found, "memberships_") else None
    else:
        raise InvalidInputError(
            f"found has type {type(found).__name__}; pass a Consensus, its path, or a fitted clusterer."
        )
    if ids is not None:
        rows = pd.Index(ids).astype(str).get_indexer(adata.obs_names)
        if (rows < 0).all():
            raise InvalidIdsError(
                f"none of the {len(ids)} ids is one of adata.obs_names, such as {adata.obs_names[0]!r}; "
                "use the same names in both.",
                column=str(adata.obs_names.name or "obs_names"),
            )
    elif len(labels) != adata.n_obs:
        raise InvalidInputError(
            f"the consensus has {len(labels)} objects but adata {adata.n_obs} observations; "
            "use those that were clustered, or give the objects ids."
        )
    else:
        rows = np.arange(adata.n_obs)
    is_known = rows >= 0
    clusters = np.where(is_known, labels[rows], -1)
    names = [str(k) for k in range(int(labels.max(initial=-1)) + 1)]
    adata.obs[key_added] = pd.Categorical.from_codes(clusters, names)
    if confidence is not None:
        adata.obs[f"{key_added}_confidence"] = np.where(is_known, confidence[rows], np.float32(0))
    if soft is not None:
        adata.obsm[f"{key_added}_memberships"] = np.where(is_known[:, None], soft[rows], np.float32(0))
    told = {"parameters": parameters, "results": results}
    adata.uns[key_added] = {name: json.dumps(values, default=str) for name, values in told.items()}
