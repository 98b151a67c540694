"""How low is the expected loss? The clustering of least expected loss beside the tree and PCC.

Ensembles are those that ``accuracy.py --ensembles FOLDER`` keeps. Of each that is named, such as
``iris.all-20.0``, the expected variation of information and the adjusted Rand index with the classes, of
`LeastLoss`, and of the others with as many clusters. The numbers of the documentation are of

    python benchmarks/least_loss.py FOLDER iris.halves-10.0 wine.sqrt.0 glass.all-20.0 glass.views.0 \\
        yeast.views.0 digits.halves-20.0 digits.mixed.0 digits.sparse.0 blobs-5.sqrt.0 blobs-12.halves-20.0 \\
        blobs-12-overlapping.all-20.0 blobs-20.projections.0 blobs-50.sqrt.0 blobs-one-of-80.halves-20.0 \\
        blobs-unequal.all-20.0 blobs-tiny.mixed.0 segmentation.views.0 pendigits.halves-20.0 \\
        isolet.all-20.0 Ecoli.pool.0 Semeion.pool.0 Texture.pool.0 breast-cancer.useless.0 \\
        covertype.halves-10.0 kddcup99.mixed.0
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

from bigcons import METHODS, Ensemble
from bigcons.datasets import planted_ensemble
from bigcons.metrics import adjusted_rand, expected_loss


def main() -> None:
    """Print a row for each ensemble, and the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--smallest", action="store_true", help="one planted ensemble, to show that it works")
    given = parser.parse_args()
    if not given.names and not given.smallest:
        parser.error("give the folder and the names of its ensembles, or --smallest")
    warnings.simplefilter("ignore")
    rows = []
    for name in given.names or ["planted"]:
        if given.names:
            kept = np.load(given.folder / f"{name}.npz")
            labels, classes = kept["labels"], kept["classes"]
        else:
            planted, classes = planted_ensemble(300, 20, noise=(0.0, 0.2), random_state=0)
            labels = planted.read(0, planted.n_objects)
        ensemble = Ensemble.from_labels(labels)
        began = time.perf_counter()
        found = [METHODS["least-loss"](random_state=0).fit(ensemble)]
        seconds = time.perf_counter() - began
        K = found[0].n_clusters_
        found += [METHODS[other](K, random_state=0).fit(ensemble) for other in ("tree", "pcc")]
        losses = [expected_loss(ensemble, model.labels_) for model in found]
        rows.append([*losses, *(adjusted_rand(classes, model.labels_) for model in found)])
        print(f"{name:30} {K:3} clusters, {seconds:.1f} s", *(f"{value:.4f}" for value in rows[-1]))
    print("mean loss of least-loss, tree, pcc, and adjusted Rand index", np.mean(rows, axis=0).round(4))


if __name__ == "__main__":
    main()
