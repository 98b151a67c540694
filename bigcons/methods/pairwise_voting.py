"""IPC pair by pair, for the similarity c/N of incomplete ensembles, which is no sum over partitions."""

from __future__ import annotations

import numpy as np

from bigcons.coassociation import dense
from bigcons.execution.engine import Engine, stop_if_cancelled
from bigcons.solving.first_partition import first_partition
from bigcons.solving.passes import Record
from bigcons.solving.starts import best_start
from bigcons.stores.ensemble import Ensemble


def solve_pairwise(
    ensemble: Ensemble,
    n_clusters: int,
    *,
    n_init: int,
    max_passes: int,
    tol: float,
    seed: int,
    engine: Engine,
) -> tuple[np.ndarray, list[Record], bool, list[float]]:
    """Return clusters (n,) int32, the records of the passes and whether they settled, of the best start,
    and the objectives of all starts.

    O(n^2 K) time a pass. Batch moves; objects stay on a tie; without any label they get -1.
    """
    n_agree, n_seen = dense(ensemble, memory=1 << 62, client=engine)
    similarity = np.divide(n_agree, n_seen, out=np.zeros(n_agree.shape, np.float32), where=n_seen > 0)
    labels = ensemble.read(0, ensemble.n_objects)
    labeled = np.asarray((labels >= 0).any(axis=1))

    def restart(number: int) -> tuple[np.ndarray, list[Record], bool]:
        assigned = first_partition(labels, n_clusters, seed, number)
        records: list[Record] = []
        while len(records) < max_passes:
            stop_if_cancelled()
            assigned, record = _move_all(similarity, assigned, labeled, n_clusters)
            records.append(record)
            if record["moved_share"] <= tol:
                return assigned, records, True
        return assigned, records, False

    found, objectives = best_start(
        engine.map(restart, range(n_init)),
        lambda result: result[1][-1]["objective"],
        lower_is_better=False,
    )
    return *found, objectives


def _move_all(
    similarity: np.ndarray, assigned: np.ndarray, labeled: np.ndarray, n_clusters: int
) -> tuple[np.ndarray, Record]:
    """Return the clusters after every object has moved at once, and what they are worth."""
    members = (assigned[:, None] == np.arange(n_clusters)).astype(np.float32)
    sizes = members.sum(axis=0, dtype=np.float64)
    means = (similarity @ members).astype(np.float64) / np.maximum(sizes, 1.0)
    means[:, sizes == 0] = -np.inf
    best = means.argmax(axis=1).astype(np.int32)
    rows = np.arange(assigned.size)
    stays = (assigned >= 0) & (means[rows, assigned] >= means[rows, best])
    moved = np.where(stays, assigned, best)
    moved[~labeled] = -1
    n_moved = float(np.count_nonzero(moved != assigned))
    worth = float(means[rows, moved][labeled].sum())
    return moved, {
        "objective": worth,
        "moved": n_moved,
        "moved_share": n_moved / max(int(labeled.sum()), 1),
    }
