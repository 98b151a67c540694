"""Solves of PCC that must end with the same bits however run: all pairs, tiles, drawn pairs."""

import numpy as np

from bigcons import Ensemble
from bigcons.coassociation import sample

N_OBJECTS, N_PARTITIONS, CHUNK_ROWS = 3000, 12, 256

SOLVES = ["l2", "kl of tiles", "l2 of drawn pairs"]

WEIGHTED = ["by entropy", "by weights"]


def store_data(folder):
    """Store an ensemble of twelve chunks, noisy copies of five groups with gaps, and pairs in tiles of it."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 5, (N_OBJECTS, 1))
    labels = np.where(rng.random((N_OBJECTS, N_PARTITIONS)) < 0.6, groups, rng.integers(0, 5, groups.shape))
    labels = (labels + rng.integers(0, 5, N_PARTITIONS)) % 5
    labels[rng.random(labels.shape) < 0.2] = -1
    labels[rng.choice(N_OBJECTS, 5, replace=False), 1:] = -1
    ensemble = Ensemble.from_labels(labels).save(folder / "ensemble.zarr", chunk_rows=CHUNK_ROWS)
    sample(ensemble, per_object=20, tiles=4, out=folder / "pairs.zarr", random_state=0)


def parameters(solve, folder):
    """Return the parameters of PCC for one of SOLVES or WEIGHTED: three passes, from a solved subsample."""
    common = {"n_clusters": 5, "n_init": 2, "max_iter": 3, "tol": 0.0, "random_state": 7}
    own = {
        "l2": {},
        "kl of tiles": {"divergence": "kl", "pairs": str(folder / "pairs.zarr"), "n_init": 1},
        "l2 of drawn pairs": {"pairs": 0.14, "solver": "blocked", "n_init": 1},
        "by entropy": {"weights": "entropy"},
        "by weights": {"weights": np.linspace(0.0, 2.0, N_PARTITIONS)},
    }
    return {**common, **own[solve]}
