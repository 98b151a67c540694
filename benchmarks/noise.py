"""How much noise do the methods tolerate? The noise experiment of Strehl and Ghosh (2002).

500 objects in 10 balanced clusters; 8 copies of that clustering, each with a share of random labels and
renumbered clusters. Reports the normalized mutual information of each consensus with the original, as mean
and standard deviation over several originals, next to the result of one run of an independent prototype of
the method, if there is one.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigcons import METHODS, Ensemble
from bigcons.errors import ConvergenceWarning
from bigcons.generate import noisy_copies
from bigcons.metrics import nmi
from bigcons.seeding import generator

N_OBJECTS, N_CLUSTERS, N_COPIES = 500, 10, 8
NOISE = (0.25, 0.4, 0.5, 0.7, 0.9)


class Tried(NamedTuple):
    """A method with its parameters, and the results of its prototype by share of noise."""

    method: str
    parameters: Mapping[str, Any] = {}
    prototype: Mapping[float, float] = {}


TRIED = {
    "MCLA": Tried("mcla", {}, {0.25: 1.000, 0.4: 0.953, 0.5: 0.850, 0.7: 0.498}),
    "MCLA by linkage": Tried("mcla", {"partitioner": "average"}, {0.25: 1.000, 0.4: 0.953, 0.5: 0.850}),
    "CSPA": Tried("cspa", {}, {0.25: 0.996, 0.4: 0.950, 0.5: 0.853, 0.7: 0.412}),
    "HBGF": Tried("hbgf", {}, {0.25: 0.996, 0.4: 0.949, 0.5: 0.852, 0.7: 0.416}),
    "HGPA": Tried("hgpa"),
    "QMI": Tried("qmi", {}, {0.25: 1.000, 0.4: 0.954, 0.5: 0.858, 0.7: 0.331}),
    "IVC": Tried("ivc", {}, {0.25: 0.996, 0.4: 0.937, 0.5: 0.866, 0.7: 0.406}),
    "IPVC": Tried("ipvc", {}, {0.25: 0.996, 0.4: 0.949, 0.5: 0.873, 0.7: 0.149}),
    "MM": Tried("mixture", {"background": False}, {0.25: 0.987, 0.4: 0.905, 0.5: 0.769, 0.7: 0.270}),
    "MM with background": Tried("mixture", {}, {0.25: 0.987, 0.4: 0.905, 0.5: 0.769}),
    "CCC": Tried("ccc", {}, {0.25: 0.991, 0.5: 0.885}),
    "CCU": Tried("ccu", {}, {0.25: 0.991, 0.5: 0.885}),
    "CCSVD": Tried("ccsvd", {}, {0.25: 0.991, 0.5: 0.876}),
    "EAC-AL": Tried("eac-average", {}, {0.25: 0.991, 0.5: 0.746}),
    "EAC-SL": Tried("eac-single", {}, {0.25: 0.373, 0.5: 0.0}),
    "FC": Tried("furthest", {}, {0.25: 0.941, 0.5: 0.403}),
    "BEST": Tried("best", {}, {0.25: 0.616, 0.5: 0.334}),
    "greedy ANMI": Tried("greedy-anmi"),
    "V-BCE": Tried("bce"),
    "PCC-l2": Tried("pcc"),
    "PCC-KL": Tried("pcc", {"divergence": "kl"}),
}


@cache
def noisy(noise: float, seed: int) -> tuple[np.ndarray, Ensemble]:
    """Return a random balanced clustering and the ensemble of its noisy copies."""
    truth = generator(seed, "noise.truth").permutation(np.arange(N_OBJECTS) % N_CLUSTERS)
    return truth, noisy_copies(truth, n_partitions=N_COPIES, noise=noise, random_state=seed)


def recovered(tried: Tried, noise: float, seeds: Sequence[int]) -> list[float]:
    """Return the NMI of each original with the consensus of its noisy copies."""
    values = []
    for seed in seeds:
        truth, ensemble = noisy(noise, seed)
        model = METHODS[tried.method](n_clusters=N_CLUSTERS, random_state=seed, **tried.parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            values.append(nmi(truth, model.fit(ensemble).labels_))
    return values


def row_of(name: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Measure a method at every share of noise and print its row of the table."""
    tried, began = TRIED[name], time.process_time()
    found = {noise: recovered(tried, noise, seeds) for noise in NOISE}
    cells = (
        f"{np.mean(values):.3f} ({tried.prototype[noise]:.3f})"
        if noise in tried.prototype
        else f"{np.mean(values):.3f}"
        for noise, values in found.items()
    )
    print(f"{name:19}" + "".join(f"{cell:15}" for cell in cells), flush=True)
    return {
        "name": name,
        "method": tried.method,
        "parameters": dict(tried.parameters),
        "nmi": {str(noise): round(float(np.mean(values)), 4) for noise, values in found.items()},
        "nmi_sd": {str(noise): round(float(np.std(values)), 4) for noise, values in found.items()},
        "prototype": {str(noise): value for noise, value in tried.prototype.items()},
        "cpu_seconds_per_fit": round((time.process_time() - began) / (len(seeds) * len(NOISE)), 3),
    }


def main() -> None:
    from machine import describe  # the other benchmarks, also when the tests import this one

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="one original, to see that it runs")
    parser.add_argument("--seeds", type=int, default=10, help="how many originals")
    parser.add_argument("-o", "--out", type=Path, help="write the results there as JSON")
    arguments = parser.parse_args()
    seeds = range(1 if arguments.smallest else arguments.seeds)
    print(f"{'noise':19}" + "".join(f"{f'{noise:.0%}':15}" for noise in NOISE))
    rows = [row_of(name, seeds) for name in TRIED]
    results = {"machine": describe(), "n_seeds": len(seeds), "rows": rows}
    out = arguments.out or (None if arguments.smallest else Path(__file__).parent / "results" / "noise.json")
    if out:
        out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
