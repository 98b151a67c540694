"""Stores for dask and xarray: arrays that are read block by block when they are computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import MissingDependencyError
from bigcons.layout import TRUST
from bigcons.memory import Block
from bigcons.stores.clusters import TRUST_ROW

if TYPE_CHECKING:
    from bigcons.stores.consensus import Consensus
    from bigcons.stores.ensemble import Ensemble


def dask_rows(
    read: Callable[[int, int], np.ndarray],
    blocks: Sequence[Block],
    row_shape: tuple[int, ...],
    dtype: np.dtype,
) -> Any:
    """Return the dask array of what ``read(start, stop)`` gives, one chunk per block of rows."""
    import dask.array
    from dask.delayed import delayed

    later = delayed(read, pure=True)
    chunks = [
        dask.array.from_delayed(later(block.start, block.stop), (block.n_rows, *row_shape), dtype)
        for block in blocks
    ]
    return dask.array.concatenate(chunks)


def dataset_of_ensemble(ensemble: Ensemble) -> Any:
    """Return the xarray dataset of an ensemble; see `Ensemble.to_xarray`."""
    by_partition = {
        "partition": ensemble.names,
        "n_clusters": ("partition", ensemble.n_clusters),
        "n_labeled": ("partition", ensemble.n_labeled),
    }
    attributes = {"provenance": json.dumps(ensemble.provenance, default=str)}
    if not ensemble.is_soft:
        return _dataset(
            {"labels": (("object", "partition"), ensemble.to_dask(), {"missing": -1})},
            by_partition,
            ensemble.ids,
            attributes,
        )
    counts = ensemble.n_clusters
    by_cluster = {
        "partition": ("base_cluster", np.repeat(np.array(ensemble.names, object), counts)),
        "cluster": ("base_cluster", np.concatenate([np.arange(k) for k in counts])),
    }
    rows: dict[str, Any] = {"memberships": (("object", "base_cluster"), ensemble.to_dask(), {})}
    return _dataset(rows, by_cluster, ensemble.ids, attributes)


def dataset_of_consensus(consensus: Consensus) -> Any:
    """Return the xarray dataset of a consensus; see `Consensus.to_xarray`."""
    rows: dict[str, Any] = {"labels": ("object", consensus.dask_labels(), {"missing": -1})}
    by_cluster = {}
    if consensus.has_memberships:
        rows["memberships"] = (("object", "cluster"), consensus.dask_memberships(), {})
        by_cluster["cluster"] = np.arange(consensus.n_clusters)
    if consensus.has_trust:
        for name in TRUST:
            dtype = TRUST_ROW[name]
            found = dask_rows(partial(consensus.read_array, name), consensus.blocks(), (), dtype)
            rows[name] = ("object", found, {})
    attributes = {
        name: int(value) if isinstance(value, bool) else value
        for name, value in consensus.results.items()
        if isinstance(value, (int, float, str))
    }
    attributes |= {
        name: json.dumps(getattr(consensus, name), default=str) for name in ("parameters", "provenance")
    }
    return _dataset(rows, by_cluster, consensus.ids, attributes)


def _dataset(rows: Mapping[str, Any], coords: Mapping[str, Any], ids: Any, attributes: Any) -> Any:
    try:
        import xarray
    except ImportError as error:
        raise MissingDependencyError(
            "to_xarray needs xarray, which is not installed; run pip install xarray."
        ) from error
    of_objects = {} if ids is None else {"object": ids}
    return xarray.Dataset(dict(rows), {**of_objects, **coords}, attributes)
