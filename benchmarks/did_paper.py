"""Do the experiments of dissimilarity increments (Aidos and Fred, PCC_DID) come out the same?

On each data set, ensembles of 100 k-means partitions into micro-blocks: the consistency index (CI) of
increments and of evidence accumulation by average and single link; the area under the error curve of their
dendrograms (0 is best, 1/2 chance); and where G-DID ranks the best of the partitions. In the paper
increments are best on 8 of 12 data sets and evidence on 1, average link is the better extractor, and the
best partition is ranked first on 5, among the first three on 11. Which twelve sets it used is not known, nor
whether their features are standardized: ``did`` has standardized features, ``did raw`` raw ones.

Real data are read from the folder that BIGCONS_DATA names; ``--smallest`` needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from real_data import fitted, load, run_parts, winners

from bigcons import Ensemble
from bigcons.coassociation import did_ranking
from bigcons.generate import kmeans
from bigcons.metrics import consistency_index, error_roc_auc

DID_DATA = [
    *("moons", "2d2k", "8d5k", "glass", "rings", "iris", "wine", "house-votes", "ionosphere", "wdbc"),
    *("optdigits-389", "segmentation"),
]


def did(names: Sequence[str], n_partitions: int, raw: bool = False) -> dict[str, Any]:
    """Return the consistency index of increments and of evidence, and G-DID's rank of the best partition."""
    rows: list[dict[str, Any]] = []
    for name in names:
        X, y = load(name, raw)
        K = len(np.unique(y))
        options = {"n_partitions": n_partitions, "n_clusters": "split", "sample": 1.0, "random_state": 0}
        ensemble = kmeans(X, standardize=not raw, **options)
        models = {}
        for short, linkage in (("SL", "single"), ("AL", "average")):
            models[f"EAC-{short}"] = fitted(f"eac-{linkage}", K, ensemble)
            for symmetrize in ("mean", "max"):
                parameters = {"features": X, "linkage": linkage, "symmetrize": symmetrize}
                models[f"DID-{symmetrize}-{short}"] = fitted("did", K, ensemble, **parameters)
        CI = {method: round(100 * consistency_index(y, model.labels_), 2) for method, model in models.items()}
        areas = {
            method: round(error_roc_auc(model.linkage_, y, row_of_object=model.row_of_object_), 4)
            for method, model in models.items()
        }
        best = winners(CI, +1)
        candidates = Ensemble.from_labels(np.column_stack([model.labels_ for model in models.values()]))
        order = [list(models)[u] for u in did_ranking(X, candidates)[0]]
        rank = 1 + min(order.index(method) for method in best)
        rows.append(
            {
                "data": name,
                "CI": CI,
                "best": best,
                "error_roc_auc": areas,
                "least_error_roc_auc": winners(areas, -1),
                "order_by_gdid": order,
                "rank_of_best": rank,
            }
        )
        print(f"{name:14}rank {rank}  " + "  ".join(f"{m} {v:.1f}" for m, v in CI.items()), flush=True)
    sides = [{method.split("-")[0] for method in row["best"]} for row in rows]
    ranks = [row["rank_of_best"] for row in rows]
    summary = {
        "best_is_DID_alone": sum(side == {"DID"} for side in sides),
        "best_is_EAC_alone": sum(side == {"EAC"} for side in sides),
        "tied": sum(len(side) == 2 for side in sides),
        "mean_CI": {
            method: round(float(np.mean([row["CI"][method] for row in rows])), 2) for method in rows[0]["CI"]
        },
        "mean_error_roc_auc": {
            method: round(float(np.mean([row["error_roc_auc"][method] for row in rows])), 4)
            for method in rows[0]["CI"]
        },
        "gdid_first": sum(rank == 1 for rank in ranks),
        "gdid_in_three": sum(rank <= 3 for rank in ranks),
        "n_data_sets": len(rows),
    }
    print(summary, flush=True)
    return {"n_partitions": n_partitions, "rows": rows, "summary": summary}


if __name__ == "__main__":
    run_parts(
        __doc__,
        "did_paper",
        lambda _: {"did": lambda: did(DID_DATA, 100), "did raw": lambda: did(DID_DATA, 100, raw=True)},
        {"did": lambda: did(["iris"], 10), "did raw": lambda: did(["iris"], 10, raw=True)},
        n_runs=1,
    )
