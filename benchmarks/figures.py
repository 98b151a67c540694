"""Do the README and the pages state the figures that were measured? With ``--write`` they are made to.

`FIGURES` has the sentences and rows of tables that state measured figures, with the places of the figures in
braces, and what they are by the files in ``results/``. Each sentence must occur once in its page.
"""

from __future__ import annotations

import argparse
import json
import re
import string
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from accuracy_report import read_rows
from features import RESULTS, VIEWS, scores_of

ROOT = Path(__file__).parents[1]


def results(name: str) -> Any:
    return json.loads((ROOT / "benchmarks/results" / f"{name}.json").read_text(encoding="utf-8"))


def solve(method: str, millions: int) -> dict[str, str]:
    """Return the solve of a planted ensemble, by the number of its objects."""
    (run,) = (
        run
        for run in results("scale")["runs"]
        if (run["method"], run["n_objects"]) == (method, millions * 10**6)
    )
    return {
        "seconds": f"{run['seconds']:.0f}",
        "minutes": f"{run['seconds'] / 60:.0f}",
        "mb": f"{run['peak_memory'] / 1e6:,.0f}",
        "gb": f"{run['peak_memory'] / 1e9:.2f}",
        "h": f"{run['H']:.3f}",
    }


def cost() -> dict[str, str]:
    """Return the time of an object, of many, and the peak memory of few and of many."""
    runs = {(run["method"], run["n_objects"]): run for run in results("scale")["runs"]}
    few, many, most = (runs["tree", n_objects] for n_objects in (10**6, 10**8, 10**9))
    label = 10 * (many["microseconds_per_object"] - 0.2)  # nanoseconds, by its 100 partitions
    return {
        "label": f"{label:.1f}",
        "times": f"{most['microseconds_per_object'] / (0.2 + most['n_partitions'] * label / 1000):.1f}",
        "byte": f"{many['bytes_stored'] / many['n_objects'] / many['n_partitions']:.2f}",
        "tree": f"{many['microseconds_per_object']:.2f}",
        "pcc": f"{runs['pcc', 10**8]['microseconds_per_object']:.2f}",
        "few": f"{few['peak_memory'] / 1e6:.0f}",
        "many": f"{many['peak_memory'] / 1e6:.0f}",
    }


def accuracy(group: str) -> dict[str, float]:
    """Return the mean adjusted Rand index of every contender in a group of data sets."""
    tables = results("accuracy")[group]["every contender"]
    return {name: row["ari"] for name, row in tables["contenders"].items()}


def mean_accuracy() -> dict[str, str]:
    scores, real = accuracy("reporting"), accuracy("reporting without planted")
    count = results("accuracy")["reporting"]["every contender"]
    best = sorted(scores.values(), reverse=True)
    return {
        "ensembles": str(count["ensembles"]),
        "sets": str(len(count["data"])),
        "tree": f"{scores['tree']:.3f}",
        "next": f"{best[best[0] == scores['tree']]:.3f}",
        "real": f"{sum(sorted(real.values(), reverse=True)[:4]) / 4:.2f}",
    }


def from_features() -> dict[str, str]:
    """Return the mean adjusted Rand index of contenders, by half, of features."""
    rows = read_rows(RESULTS / "features.jsonl")
    values = {}
    for is_given, prefix in ((True, ""), (False, "free_")):
        for contender, scores in scores_of(rows, is_given).items():
            name = prefix + re.sub(r"\W+", "_", contender).lower()
            for half, names in VIEWS.items():
                ari = mean(scores[data]["ari"] for data in names if data in scores)
                values[f"{name}_{half}"] = f"{ari:.2f}".lstrip("0")
    return values


def by_group(method: str) -> dict[str, str]:
    """Return the mean adjusted Rand index of a contender in each group of the paper's table."""
    groups = {
        "choosing": "choosing",
        "held_out": "reporting",
        "real": "reporting without planted",
        "pools": "pools-reporting",
        "networks": "networks",
    }
    return {place: f"{accuracy(group)[method]:.3f}" for place, group in groups.items()}


def budgets() -> dict[str, str]:
    solved = [row for row in results("memory")["solves"] if row["refused"] is None]
    exceeded = sum(row["peak"] > row["budget"] for row in solved)
    return {"solves": str(len(solved)), "exceeded": str(exceeded or "none")}


def alarms() -> dict[str, str]:
    facts = results("alarms")
    return {"readings": str(sum(facts["readings"].values())), "alarms": str(len(facts["alarms"]) or "none")}


def kills() -> dict[str, str]:
    facts = results("faults")["kills"]
    assert not facts["wrong"], "pages say that all were right"
    return dict.fromkeys(("met", "right"), str(facts["met running"]))


def million(kind: str) -> dict[str, str]:
    """Return ranges over the solves of a million objects: the default of bigcons beside the others."""
    rows = [row for row in results("peers")["rows"] if row["n_objects"] == 10**6 and row["kind"] == kind]
    others = [row for row in rows if not row["solver"].startswith("bigcons")]
    (ours,) = (row for row in rows if row["solver"] == "bigcons tree")
    ended = [row for row in others if "failed" not in row]
    return {
        "seconds": f"{ours['seconds']:.0f}",
        "gb": f"{ours['peak'] / 1e9:.1f}",
        "ended": str(len(ended)),
        "others": str(len(others)),
        "least_seconds": f"{min(row['seconds'] for row in ended):.0f}",
        "most_seconds": f"{max(row['seconds'] for row in ended):.0f}",
        "least_gb": f"{min(row['peak'] for row in ended) / 1e9:.1f}",
        "most_gb": f"{max(row['peak'] for row in ended) / 1e9:.1f}",
    }


def bce_claims() -> dict[str, str]:
    """Return on how many data sets the claims of the paper for V-BCE hold, and of how many runs."""
    facts = results("bce_paper")
    single, several = facts["single"], facts["general"]
    names = {
        "maximum": "best maximum but for the base",
        "average": "best average but for the base",
        "mixture": "maximum at or above MM",
        "pairs": "ahead of MM in pairs",
        "tests": "ahead of MM with p < .05",
        "base": "average at or above the base",
    }
    large = min(row["n_ensembles"] for row in single["rows"])
    counts = {"ensembles": single["n_ensembles"], "large": large, "starts": single["n_starts"]}
    counts["few"] = several["n_ensembles"]
    for name, claim in names.items():
        counts[name] = single["claims"]["converged"][claim]
        counts[f"{name}_short"] = single["claims"]["nearest of K random objects"][claim]
        counts[f"{name}_several"] = several["claims"]["converged"][claim]
    return {name: str(count) for name, count in counts.items()}


def asked_for(n_objects: int) -> dict[str, str]:
    """Return the processor time and memory of as many objects as somebody asked another package to solve."""
    (run,) = (run for run in results("asked")["runs"] if run["n_objects"] == n_objects)
    return {"seconds": f"{run['cpu_seconds']:.0f}", "mb": f"{run['peak_memory'] / 1e6:,.0f}"}


def share(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


def bce_missing() -> dict[str, str]:
    """Return the micro-precision on iris of many deleted labels, and how far all sets fall by then."""
    facts = results("bce_paper")["missing"]
    rows = {(row["data"], row["starts"], row["missing"]): row for row in facts["rows"]}
    best, single = (rows["iris", starts, 0.9] for starts in ("best", "single"))
    fall = max(
        abs(row["V-BCE"] - rows[data, starts, 0.0]["V-BCE"])
        for (data, starts, _), row in rows.items()
        if starts == "best"
    )
    return {
        "runs": str(facts["n_runs"]),
        "fall": share(fall, 2),
        **{
            name: share(best[name], 3) for name in ("MCLA", "CSPA", "HGPA", "MM", "k-means", "G-BCE", "V-BCE")
        },
        "at_72": share(rows["iris", "single", 0.72]["V-BCE"], 3),
        "at_90": share(single["V-BCE"], 3),
        "gibbs": share(single["G-BCE"], 3),
    }


def noisy_copies() -> dict[str, str]:
    """Return the NMI and the ANMI of what is found in noisy copies, by the partitioners of the paper."""
    facts = results("cluster_ensembles_paper")["noise"]
    rows = {row["name"]: row for row in facts["rows"]}
    names = {"mcla": "MCLA by METIS", "cspa": "CSPA by METIS", "hgpa": "HGPA by cut", "greedy": "greedy ANMI"}
    figures = {"runs": str(facts["n_runs"])}
    for short, name in names.items():
        figures[f"{short}_anmi"] = share(rows[name]["anmi"]["0.7"], 2)
        for noise in ("0.1", "0.25", "0.5", "0.7"):
            figures[f"{short}_{noise[2:]}"] = share(rows[name]["nmi"][noise], 2)
    return figures


def kddcup99() -> dict[str, str]:
    """Return H by the number of clusters, of sampled pairs, of CSPA and of all pairs."""
    facts = results("kddcup99")
    names = {"sampled l2": "l2", "sampled kl": "kl", "CSPA": "cspa", "all pairs": "all"}
    figures = {f"{names[row['solver']]}_{row['n_clusters']}": share(row["H"], 4) for row in facts["clusters"]}
    return {**figures, "base": share(facts["base_accuracy"], 3)}


def by_numbers() -> dict[str, str]:
    """Return the ARI of as many clusters as rules say, and as there are classes, on both halves."""
    parts = results("choosing_k")["parts"]
    return {
        f"{name}_{half}": share(parts[f"{half} half"]["rules"][name]["ari"], 3)
        for half in ("choosing", "reporting")
        for name in ("auto", "eigengap", "classes")
    }


def repeated(index: int) -> dict[str, str]:
    """Return how many numbers stood out by a share of the runner-up, and how often others are the same."""
    row = results("repeated_numbers")["by_share"][index]
    return {"choices": str(row["choices"]), "same": f"{100 * row['same']:.0f}"}


def few_objects() -> dict[str, str]:
    """Return the ARI of few objects where one label in five is random, and where each partition joins two."""
    scores = results("toys")["ari"]
    return {
        f"{method}_{kind}": share(scores[method][ensembles], 2)
        for method in ("tree", "mcla", "hbgf")
        for kind, ensembles in (("noisy", "one in five"), ("merged", "merged"))
    }


def structure() -> dict[str, str]:
    """Return of how many ensembles along a curve structure is claimed."""
    found = results("structure")["summary"]["structureless, curve-10"]
    return {"ensembles": str(found["ensembles"]), "clear": f"{found['ensembles'] * found['claimed']:.0f}"}


def bare_read() -> dict[str, str]:
    return {"seconds": f"{results('phases')['read_seconds']:.2f}"}


def phase(method: str, name: str) -> dict[str, str]:
    """Return the time of a phase of a fit, and how many bare reads of the labels that is."""
    rows = {(row["method"], row["phase"]): row for row in results("phases")["rows"]}
    return {"seconds": f"{rows[method, name]['seconds']:.2f}", "reads": f"{rows[method, name]['reads']:.1f}"}


SIZE = (
    "100 million objects in 100 partitions, half of the labels missing: {seconds} s and {gb} GB on two cores"
)
BUDGET = "in {solves} test runs, {exceeded} exceeded its budget"
KILLED = "rerunning a killed command reproduced it in all {met} trials"
MEAN = (
    "On {ensembles} ensembles of {sets} held-out data sets, given the number of classes, the default has a"
    " mean adjusted Rand index of {tree}, the next best {next}; on the ten real data sets the leading"
    " methods tie at {real}"
)
MILLION = (
    "On a million objects the default takes {seconds} s and {gb} GB; {ended} of the {others} others finish,"
    " in {least_seconds} to {most_seconds} s and {least_gb} to {most_gb} GB"
)
CLAIMS = (
    "of {ensembles} ensembles of converged k-means ({large} of magic04) and {starts} random starts of each,"
    " V-BCE's maximum is the best of all seven methods on {maximum} of 10, its average on {average}; its"
    " maximum is at or above the mixture's on {mixture}, ahead in the mean of pairs of runs on {pairs}, by"
    " the paired t-test with p < .05 on {tests}; its average is at or above the average of the base"
    " partitions on {base}. Of bases cut short (nearest of K random objects) {maximum_short},"
    " {average_short}, {mixture_short}, {pairs_short}, {tests_short} and {base_short}. Of {few} ensembles and"
    " one run of several starts, the highest bound chosen, {maximum_several}, {average_several},"
    " {mixture_several}, {pairs_several}, {tests_several} and {base_several}"
)
DELETED = (
    "means of {runs} ensembles: of several starts within {fall} of complete labels up to 90 %; there on iris"
    " V-BCE {V-BCE}, G-BCE {G-BCE}, mixture {MM}, HGPA {HGPA}, MCLA {MCLA}, k-means {k-means} and CSPA"
    " {CSPA}. Of single random starts, by plain EM, V-BCE falls to {at_72} at 72 % and {at_90} at 90 %, where"
    " G-BCE has {gibbs}"
)
NOISE = (
    "means of {runs} originals, by METIS and the cut of hyperedges as in the paper: NMI of MCLA, CSPA and"
    " HGPA {mcla_1}, {cspa_1} and {hgpa_1} at 10 % noise, {mcla_25}, {cspa_25} and {hgpa_25} at 25 %,"
    " {mcla_5}, {cspa_5} and {hgpa_5} at 50 %, {mcla_7}, {cspa_7} and {hgpa_7} at 70 %; by ANMI with the"
    " copies, which the paper's figure shows, CSPA {cspa_anmi}, MCLA {mcla_anmi}, greedy {greedy_anmi} and"
    " HGPA {hgpa_anmi} at 70 %"
)
CLUSTERS_OF_KDD = (
    "PCC of sampled pairs has H {l2_2} (l2) and {kl_2} (KL) at K = 2, where CSPA has {cspa_2}; {l2_3} and"
    " {kl_3} at K = 3, below CSPA's {cspa_3}; {l2_5} and {kl_5}, {l2_8} and {kl_8}, {l2_10} and {kl_10} at"
    " K = 5, 8 and 10, where CSPA has {cspa_5}, {cspa_8} and {cspa_10}. All pairs have {all_3} at K = 3. The"
    " base partitions have {base}"
)
COST = (
    "each of a hundred million objects in 100 partitions takes {tree} microseconds by the tree and {pcc} by "
    "`PCC`, for ten clusters. The peak memory of the tree is {few} MB for a million objects and {many} "
    "MB for a hundred million"
)
CLUSTERED = (
    "its mean ARI is {default_shapes} on the shapes (k-means {k_means_shapes}),"
    " {default_choosing} on the choosing half, more than any single clustering (Leiden's method"
    " {leiden_choosing}, k-means {k_means_choosing}), and {default_reporting} on the reporting half, as much"
    " as k-means and Ward's method, {k_means_reporting} and {ward_reporting}"
)
BY_HBGF = (
    "HBGF on the same ensemble has {default_hbgf_choosing} and {default_hbgf_reporting}, and"
    " {default_hbgf_shapes} on shapes. Without a number the default has {free_default_choosing} and"
    " {free_default_reporting}, k-means with the best silhouette {free_k_means_choosing} and"
    " {free_k_means_reporting}"
)
NUMBERS = (
    'as many clusters as `"auto"` says has a mean ARI of {auto_choosing} and {auto_reporting}, with as many'
    " as the largest gap of eigenvalues says {eigengap_choosing} and {eigengap_reporting}, and with as many"
    " as there are classes {classes_choosing} and {classes_reporting}"
)
FEW = (
    "the tree has an ARI of {tree_noisy} if one label in five is random and {tree_merged} if every partition"
    " joins two classes, MCLA {mcla_noisy} and {mcla_merged}, and HBGF {hbgf_noisy} and {hbgf_merged}"
)
LARGE, LARGEST = partial(solve, "tree", 100), partial(solve, "tree", 1000)
BILLION = "a billion in 20 partitions: {minutes} minutes and {gb} GB"
PAPER = {
    "{seconds} s and {gb} GB on two cores": LARGE,
    "so it did in {right} of {met} trials": kills,
    "mean adjusted Rand index on {ensembles} ensembles of {sets} held-out data sets is {tree}, and the next"
    " best {next}. On the ten real data sets among them the leading methods tie at {real}": mean_accuracy,
    "`bigcons` takes {seconds} s and {gb} GB; {ended} of the {others} others finish, in {least_seconds} to"
    " {most_seconds} s and {least_gb} to {most_gb} GB": partial(million, "coarse"),
    **{
        f"| {name} | {{held_out}} | {{real}} | {{pools}} | {{networks}} |": partial(by_group, method)
        for name, method in {
            "tree (default)": "tree",
            "HBGF": "hbgf",
            "CSPA": "cspa",
            "average linkage by SciPy": "EAC by SciPy",
            "MCLA": "mcla",
            "mixture model": "mixture",
            "PCC": "pcc",
        }.items()
    },
}
"""Sentences and rows of the paper, with their figures."""
ALARMS = "In {readings} readings of published labels and features where nothing is wrong, {alarms} ended in"

FIGURES: list[tuple[str, str, Callable[[], dict[str, str]]]] = [
    *((page, SIZE, LARGE) for page in ("README.md", "docs/index.md", "docs/large-data.md")),
    *((page, BILLION, LARGEST) for page in ("README.md", "docs/index.md", "docs/large-data.md")),
    *((page, BUDGET, budgets) for page in ("README.md", "docs/index.md", "docs/promises.md")),
    *((page, KILLED, kills) for page in ("README.md", "docs/index.md")),
    *((page, MEAN, mean_accuracy) for page in ("README.md", "docs/index.md")),
    *(("docs/paper/paper.md", sentence, figures) for sentence, figures in PAPER.items()),
    ("docs/comparison.md", "| a billion objects, {gb} GB |", LARGEST),
    *(("docs/comparison.md", sentence, from_features) for sentence in (CLUSTERED, BY_HBGF)),
    ("docs/methods.md", FEW, few_objects),
    ("docs/comparison.md", MILLION, lambda: million("coarse")),
    ("docs/large-data.md", COST, cost),
    ("docs/large-data.md", ALARMS, alarms),
    ("docs/large-data.md", "result is written, and {label} nanoseconds for each of its labels", cost),
    ("docs/large-data.md", "A billion objects in 20 partitions took {times} times as long", cost),
    ("docs/large-data.md", "a label takes a byte at most ({byte} here", cost),
    *(
        ("docs/comparison.md", f"{words} | {{seconds}} s, {{mb}} MB |", partial(asked_for, n_objects))
        for words, n_objects in (
            ("for a matrix of all pairs", 40_000),
            ("exceeds 12 GB at a million", 2_000_000),
            ('"Out of netind memory!"', 239_847),
            ("which bigcons is given here", 36_260),
        )
    ),
    ("docs/papers.md", "a million objects in {seconds} s (`scale.json`)", partial(solve, "pcc", 1)),
    ("docs/papers.md", CLAIMS, bce_claims),
    ("docs/papers.md", DELETED, bce_missing),
    ("docs/papers.md", NOISE, noisy_copies),
    ("docs/papers.md", CLUSTERS_OF_KDD, kddcup99),
    *(
        (
            "docs/methods.md",
            f"| {millions * 10**6:,} | {method} | {{seconds}} | {{mb}} MB | {{h}} |",
            partial(solve, method, millions),
        )
        for method, sizes in (("tree", (1, 10, 100, 1000)), ("pcc", (1, 10, 100)))
        for millions in sizes
    ),
    ("docs/evidence.md", NUMBERS, by_numbers),
    (
        "docs/evidence.md",
        "| {ensembles} along a bent curve, such as a trajectory of cells | {clear}:",
        structure,
    ),
    *(
        ("docs/evidence.md", f"| {words} | {{choices}} | {{same}} % |", partial(repeated, index))
        for index, words in enumerate(("below .4", ".4 to .6", ".6 to .8", ".8 and more, with a warning"))
    ),
    ("docs/evidence.md", "one bare read, takes {seconds} s", bare_read),
    *(
        (
            "docs/evidence.md",
            f"| {row['method']} | {row['phase']} | {{seconds}} | {{reads}} |",
            partial(phase, row["method"], row["phase"]),
        )
        for row in results("phases")["rows"]
    ),
]
"""Page, sentence and figures. A sentence may be wrapped differently in its page."""


def pattern_of(sentence: str) -> re.Pattern[str]:
    """Return what finds a sentence with any figures, a group for each."""
    parts = []
    for words, name, _, _ in string.Formatter().parse(sentence):
        parts.append(r"\s+".join(map(re.escape, re.split(r"\s+", words))))
        parts.append(r"(none|[\d.,]*\d)" if name else "")
    return re.compile("".join(parts))


def stated(text: str, sentence: str, figures: dict[str, str]) -> Iterator[tuple[int, int, str]]:
    """Yield where a text states figures, and what they are."""
    matches = list(pattern_of(sentence).finditer(text))
    if len(matches) != 1:
        raise LookupError(f"found {len(matches)} times instead of once: {sentence}")
    names = [name for _, name, _, _ in string.Formatter().parse(sentence) if name]
    for number, name in enumerate(names, start=1):
        yield *matches[0].span(number), figures[name]


def corrected(text: str, sentence: str, figures: dict[str, str]) -> str:
    """Return a text whose sentence has these figures."""
    for start, stop, figure in reversed(list(stated(text, sentence, figures))):
        text = text[:start] + figure + text[stop:]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--smallest", action="store_true", help="as the other benchmarks; changes nothing here"
    )
    parser.add_argument("--write", action="store_true", help="write the figures into the pages")
    arguments = parser.parse_args()
    wrong = 0
    for page, sentence, figures in FIGURES:
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        right = corrected(text, sentence, figures())
        if right != text:
            wrong += 1
            print(f"{page}: {sentence.format(**figures())}")
            if arguments.write:
                path.write_text(right, encoding="utf-8")
    if wrong and not arguments.write:
        raise SystemExit(f"{wrong} sentences state other figures than the results; run with --write.")


if __name__ == "__main__":
    main()
