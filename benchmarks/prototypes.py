"""How many prototypes does all-pairs PCC need, and what does a pass with them cost?

(a) Planted ensembles, half of the labels missing: Kullback-Leibler over all pairs by 8 to 128 prototypes
against the pair-by-pair optimum (``pairs="dense"``, run to convergence). ``excess`` is the excess of the
exact objective of the memberships found; ``excess_from_dense`` the same when the prototypes start at the
dense solution, which excludes other local optima; ``error`` is the estimate that the solver reports.
(b) Seconds of a pass with a full step, at K = 3 over a larger planted ensemble, against a pass of the squared
divergence.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from statistics import median

import numpy as np
from machine import describe

from bigcons import PCC, Ensemble
from bigcons.coassociation.factorized import agreement_sums
from bigcons.datasets import planted_ensemble
from bigcons.divergences import resolve_divergence
from bigcons.errors import ConvergenceWarning
from bigcons.execution.engine import ThreadsEngine
from bigcons.memory import N_SAMPLED
from bigcons.methods.pcc.all_pairs import Begin, Solved, solve_sample
from bigcons.methods.pcc.prototypes import Prototypes
from bigcons.metrics import pcc_objective
from bigcons.overlaps.tree import Groups, n_groups_for
from bigcons.solving.passes import Iterate, Run, run_passes
from bigcons.solving.survey import take_survey

COUNTS = (8, 16, 32, 64, 128)
THREE_CLASSES = (0.6, 0.25, 0.15)


def solved(
    ensemble: Ensemble,
    n_clusters: int,
    n_prototypes: int,
    begin: Begin | None = None,
    max_passes: int = 100,
    tol: float = 3e-5,
) -> tuple[Iterate, np.ndarray]:
    """Return where passes with so many prototypes end, and the memberships, from a sample by default."""
    engine = ThreadsEngine()
    survey = take_survey(ensemble, engine, 0, N_SAMPLED)

    def of_sample(run: Run) -> Solved:
        groups = Groups.of(run.sample, ensemble.offsets, n_groups_for(n_clusters))
        return solve_sample(run, groups.cut(n_clusters).of_objects, n_clusters, 8)

    run = Run(ensemble, engine, 0, max_passes, tol, survey.sample)
    asked = resolve_divergence("kl"), n_prototypes, survey.mean_weight
    at = run_passes(run, Prototypes(*asked, begin or of_sample))
    return at, np.concatenate([run.arrays.read(at.generation, block) for block in run.blocks])


def against_dense(n_objects: int, n_clusters: int) -> list[dict]:
    """Measure (a) for one number of clusters."""
    shares = {"shares": THREE_CLASSES} if n_clusters == 3 else {}
    ensemble, _ = planted_ensemble(n_objects, 60, missing=0.5, random_state=1, **shares)
    dense = PCC(
        n_clusters, divergence="kl", pairs="dense", random_state=0, max_iter=80 * n_objects * n_clusters
    )
    lowest = pcc_objective(ensemble, dense.fit(ensemble).memberships_, divergence="kl")
    start = dense.memberships_
    given = Solved(start, agreement_sums(ensemble.read(0, n_objects), ensemble.offsets, start), [])
    rows = []
    for n_prototypes in COUNTS:
        (at, found), (_, near) = (
            solved(ensemble, n_clusters, n_prototypes, begin) for begin in (None, lambda _: given)
        )
        found, near = (pcc_objective(ensemble, Y, divergence="kl") / lowest - 1 for Y in (found, near))
        rows.append(
            {
                "n_objects": n_objects,
                "n_clusters": n_clusters,
                "n_prototypes": n_prototypes,
                "excess": round(found, 5),
                "excess_from_dense": round(near, 5),
                "error": round(at.records[-1]["error"], 5),
                "passes": len(at.records),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def seconds_a_pass(n_objects: int) -> list[dict]:
    """Measure (b)."""
    ensemble, _ = planted_ensemble(n_objects, 100, shares=THREE_CLASSES, missing=0.5, random_state=1)
    rows = []
    for divergence, n_prototypes in (("l2", None), *(("kl", count) for count in COUNTS)):
        if n_prototypes is None:
            history = PCC(3, max_iter=6, tol=0, random_state=0).fit(ensemble).history_
            passes = list(zip(history["seconds"], history["step_length"], strict=True))
        else:
            at, _ = solved(ensemble, 3, n_prototypes, max_passes=6, tol=0.0)
            passes = [(record["seconds"], record["step_length"]) for record in at.records]
        whole = [seconds for seconds, length in passes if length == 1.0]
        rows.append(
            {
                "n_objects": n_objects,
                "divergence": divergence,
                "n_prototypes": n_prototypes,
                "median_pass_seconds": round(median(whole), 4),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="a run of seconds that shows it works")
    parser.add_argument("-o", "--out", type=Path, help="file for the results as JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    n_objects, n_clusters, large = (200, (3,), 2_000) if options.smallest else (1_500, (3, 6, 8), 120_000)
    results = {
        "machine": describe(),
        "against_dense": [row for K in n_clusters for row in against_dense(n_objects, K)],
        "seconds_a_pass": seconds_a_pass(large),
    }
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
