"""Criteria of a consensus that need no truth: how well it agrees with the partitions it is of."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.execution.engine import open_engine
from bigcons.execution.fold import fold
from bigcons.memory import Block
from bigcons.metrics.contingency import LabelColumn
from bigcons.metrics.information import nmi_of_table
from bigcons.progress import progress

if TYPE_CHECKING:
    from bigcons.stores.ensemble import Ensemble


def anmi(x: Any, labels: Any, *, client: object = None) -> float:
    """Return the average NMI of ``labels`` with the partitions of ``x``, weighted by known labels.

    A partition counts by the number of objects that it and ``labels`` label, and its NMI is over these
    (Strehl and Ghosh 2002, section 3.1, for labels that may be missing). In [0, 1].

    One pass over the ensemble; memory for ``n_clusters`` by ``n_base_clusters`` counts per task.
    Raises InvalidInputError if the lengths differ or no object is labelled in both.
    """
    tables = partition_tables(x, labels, client=client)
    weights = np.array([table.sum() for table in tables])
    if not weights.any():
        raise InvalidInputError("no object has a label in labels and in a partition; pass other labels.")
    return float(np.average([nmi_of_table(table) for table in tables], weights=weights))


def partition_tables(x: Any, labels: Any, *, client: object = None) -> list[np.ndarray]:
    """Return the contingency of ``labels`` with every partition: ``(n_clusters, k)`` int64 each."""
    from bigcons.stores.ensemble import as_ensemble

    ensemble, column = as_ensemble(x), LabelColumn("labels", labels)
    if column.n_objects != ensemble.n_objects:
        raise InvalidInputError(
            f"labels is for {column.n_objects} objects but the ensemble for {ensemble.n_objects}; "
            "pass one label per object of the ensemble."
        )
    with open_engine(client) as engine, progress("compare with partitions", ensemble.n_objects) as listener:
        table = fold(
            engine,
            ensemble.blocks(),
            partial(_block_table, ensemble, column),
            np.add,
            progress=listener,
        )
    return np.split(table, ensemble.offsets[1:-1], axis=1)


def _block_table(ensemble: Ensemble, column: LabelColumn, block: Block) -> np.ndarray:
    from bigcons.kernels.agreement import add_contingency

    table = np.zeros((column.n_clusters, ensemble.n_base_clusters), dtype=np.int64)
    codes = column.codes(block.start, block.stop)
    add_contingency(codes, ensemble.read(block.start, block.stop), ensemble.offsets, table)
    return table
